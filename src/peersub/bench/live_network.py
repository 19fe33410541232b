"""A live network in processes of its own, and all that its nodes have told so far.

Whoever asks for something waits for what must follow, never for a while: each line that a node
tells lets the conditions be looked at again, and a condition that does not come true in time is an
error that says what was waited for.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from peersub.bench.resilience.cluster import Cluster, WorkerProcess
from peersub.overlays.core.publication import Delivery, Publication
from peersub.wire import pack_attributes

__all__ = ["PATIENCE_S", "LiveNetwork"]

PATIENCE_S: Final = 30.0
"""How long to wait for something; a busy machine is slow, a network that failed is silent."""


class LiveNetwork:
    """Processes with a node each. Use as an async context manager.

    Attributes:
        got: per subscription, how often each event came.
        arrivals_ms: when the event last came to the subscription.
        contents: per subscription that asks for it and event, what its content hashes to.
        ended: per publication that has ended, why it failed, or None.
        begun_ms: when it was handed to its node.
    """

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        self.got: dict[str, Counter[str]] = {}
        self.contents: dict[tuple[str, str], str] = {}
        self.ended: dict[str, str | None] = {}
        self.arrivals_ms: dict[tuple[str, str], float] = {}
        self.begun_ms: dict[str, float] = {}
        self.cluster = Cluster(self._on_line, dict(settings or {}))
        self._ready: dict[str, None] = {}
        self._statuses: dict[int, dict[str, Any]] = {}
        self._died: list[str] = []
        self._something = asyncio.Event()

    async def __aenter__(self) -> LiveNetwork:
        await self.cluster.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.cluster.__aexit__(*error)

    def _on_line(self, worker: WorkerProcess, line: dict[str, Any]) -> None:
        for name, event_id, _, at_ms in line.get("got", ()):
            self.got.setdefault(name, Counter())[event_id] += 1
            self.arrivals_ms[name, event_id] = at_ms
        for name, event_id, content in line.get("held", ()):
            self.contents[name, event_id] = content
        for event_id, begun_ms, _, failure in line.get("ended", ()):
            self.ended[event_id] = failure
            self.begun_ms[event_id] = begun_ms
        if "ready" in line:
            self._ready[line["ready"]] = None
        if "died" in line:
            self._died.append(line["died"])
        if "status" in line:
            self._statuses[worker.number] = line["status"]
        self._something.set()

    async def until(
        self, holds: Callable[[], bool], what: str, patience_s: float = PATIENCE_S
    ) -> None:
        """Wait for something that a node must tell.

        Raises:
            TimeoutError: it did not come true.
            RuntimeError: a process ended that nobody told to.
        """
        try:
            async with asyncio.timeout(patience_s):
                while not holds():
                    if self._died:
                        raise RuntimeError(f"{', '.join(self._died)} died; waiting until {what}")
                    self._something.clear()
                    await self._something.wait()
        except TimeoutError:
            raise TimeoutError(f"waited {patience_s:.0f} s until {what}") from None

    # --- nodes ---------------------------------------------------------------------------------

    async def start(self, listen: str = "127.0.0.1:0", **settings: Any) -> WorkerProcess:
        """One more node; raises `NodeFailedError` if it is not let in."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.cluster.start(listen, **settings)

    async def leave(self, workers: Sequence[WorkerProcess]) -> None:
        """Let nodes take leave, all at once, and wait for the ends of their processes."""
        for worker in workers:
            worker.command(do="leave")
            worker.is_alive = False
        async with asyncio.timeout(PATIENCE_S):
            for worker in workers:
                await worker.process.wait()

    async def crash(self, workers: Sequence[WorkerProcess]) -> None:
        """`kill -9`."""
        for worker in workers:
            worker.kill()
        for worker in workers:
            await worker.process.wait()

    async def status(self, workers: Iterable[WorkerProcess]) -> list[dict[str, Any]]:
        """What nodes say of themselves now."""
        asked = list(workers)
        for worker in asked:
            self._statuses.pop(worker.number, None)
            worker.command(do="status")
        await self.until(
            lambda: all(worker.number in self._statuses for worker in asked), "every node answers"
        )
        return [self._statuses[worker.number] for worker in asked]

    # --- subscriptions and events --------------------------------------------------------------

    async def subscribe(self, worker: WorkerProcess, wishes: Mapping[str, dict[str, Any]]) -> None:
        """Subscribe, each name with its `filter` or `xpath`, and wait until all are ready."""
        for name, wish in wishes.items():
            self._ready.pop(name, None)
            self.got.setdefault(name, Counter())
            worker.command(do="subscribe", name=name, **wish)
        await self.until(
            lambda: all(name in self._ready for name in wishes),
            f"the subscriptions {', '.join(wishes)} on {worker.name} are ready",
        )

    def publish(
        self, worker: WorkerProcess, events: Sequence[Publication], batch: str | None = None
    ) -> None:
        """Publish events of one promise; under the name of a batch, together."""
        packed = [
            (
                each.id,
                b64encode(pack_attributes(each.attributes)).decode(),
                None if each.body is None else b64encode(each.body).decode(),
            )
            for each in events
        ]
        delivery = events[0].delivery if events else Delivery.BEST_EFFORT
        worker.command(do="events", events=packed, delivery=int(delivery), batch=batch)
