"""Live nodes, a process each, as a driver of the conformance suite."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from conformance.networks import Network, NotInTimeError, Wish
from peersub.bench.live_network import PATIENCE_S, LiveNetwork
from peersub.bench.resilience.cluster import NodeFailedError, WorkerProcess
from peersub.overlays.core.publication import Publication

T = TypeVar("T")
BRIEFLY_S = 2.0
PATIENT = {"heartbeat_ms": 200, "silence_ms_min": 10_000, "silence_ms_max": 20_000}
"""On a busy machine a process may stand still for seconds. Best effort loses what is under way on a
link that is given up, so none is: a process that is killed closes its connections at once."""


class LiveDriver(Network):
    """Node processes on this machine. The event loop runs while a scenario waits."""

    def __init__(self, overlay: str, nodes_with_columns: int = 0) -> None:
        super().__init__(overlay)
        self._nodes_with_columns = nodes_with_columns
        self._runner = asyncio.Runner()
        self._network = self._run(self._begin())
        self._workers: dict[str, WorkerProcess] = {}

    def _run(self, doing: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(doing)

    async def _begin(self) -> LiveNetwork:
        connection = {"liveness": PATIENT}
        network = LiveNetwork(
            {"overlay": self.overlay, "network": "test", "connection": connection}
        )
        return await network.__aenter__()

    def members(self) -> list[str]:
        return [node for node, worker in self._workers.items() if worker.is_alive]

    def join(self, **differences: Any) -> str:
        # Some nodes take events in columns; for the others they are taken apart.
        differences.setdefault("columns", len(self.members()) < self._nodes_with_columns)
        worker = self._run(self._network.start(**differences))
        self._workers.pop(worker.name, None)
        self._workers[worker.name] = worker
        return worker.name

    def refusal(self, **differences: Any) -> str:
        try:
            self.join(columns=False, **differences)
        except NodeFailedError as error:
            return str(error)
        raise AssertionError("the node was let in")

    def leave(self, nodes: Sequence[str]) -> None:
        self._run(self._network.leave([self._workers[node] for node in nodes]))
        self.forget(nodes)

    def crash(self, nodes: Sequence[str]) -> None:
        self._run(self._network.crash([self._workers[node] for node in nodes]))
        self.forget(nodes)

    def restart(self, node: str) -> str:
        return self.join(listen=node)

    def subscribe_all(self, node: str, wishes: Mapping[str, Wish]) -> None:
        told = {
            name: {"xpath" if wish.is_xpath else "filter": wish.text, "content": True}
            for name, wish in wishes.items()
        }
        self._run(self._network.subscribe(self._workers[node], told))

    def unsubscribe_one(self, node: str, name: str) -> None:
        self._workers[node].command(do="unsubscribe", name=name)
        # Commands are obeyed in order: after its answer to this one it has unsubscribed.
        self.status(node)

    def publish_all(self, node: str, events: Sequence[Publication], batch: str | None) -> None:
        self._network.publish(self._workers[node], events, batch)

    def ended(self) -> Mapping[str, str | None]:
        return self._network.ended

    def got(self) -> Mapping[str, Counter[str]]:
        return self._network.got

    def contents(self) -> Mapping[tuple[str, str], str]:
        return self._network.contents

    def until(self, holds: Callable[[], bool], what: str, *, briefly: bool = False) -> None:
        patience_s = BRIEFLY_S if briefly else PATIENCE_S
        try:
            self._run(self._network.until(holds, what, patience_s))
        except TimeoutError as error:
            raise NotInTimeError(str(error)) from None

    def status(self, node: str) -> Mapping[str, Any]:
        return self._run(self._network.status([self._workers[node]]))[0]

    def close(self) -> None:
        self._run(self._network.__aexit__())
        self._runner.close()
