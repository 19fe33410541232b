"""Live nodes on one loop, over sockets of this machine, and consumers that note what they get."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from peersub.filters import Filter
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.mirror_settings import MirrorSettings
from peersub.overlays.core.publication import Delivery, Publication
from peersub.runtime.live_node import DurableOptions, LiveNode
from peersub.runtime.settings import NodeSettings
from peersub.wire import sealed

PATIENCE_S = 60
"""After which a condition counts as one that never holds."""

QUICK = MirrorSettings(tick_ms=50, lost_ms=500, grace_ms=1_000, answer_ms=5_000)


async def until(condition: Callable[[], object], what: str = "") -> None:
    """Let the network go on until something holds."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"never: {what or condition}") from None


class Consumer:
    """A consumer of a durable subscription, which acknowledges what it gets if told so."""

    def __init__(self, acknowledges: bool = True) -> None:
        self.got: Counter[str] = Counter()
        self.marked: set[str] = set()
        """Those that say that they may have come before."""
        self.losses: list[tuple[int, int, int]] = []
        self.is_ready = False
        self.end: str | None = None
        self.last = 0
        self._acknowledges = acknowledges
        self._node: LiveNode | None = None
        self._name = ""

    def attach(self, node: LiveNode, name: str, wanted: str, since: Any = None) -> Consumer:
        self._node, self._name, self.is_ready = node, name, False
        node.subscribe(name, Filter(wanted), self, durable=DurableOptions(since))
        return self

    def deliver(self, publication: Publication, hops: int, position: int | None) -> None:
        assert position is not None
        self.got[publication.id] += 1
        if publication.again:
            self.marked.add(publication.id)
        self.last = position
        if self._acknowledges:
            self.acknowledge()

    def acknowledge(self) -> None:
        assert self._node is not None
        self._node.acknowledge(self._name, self.last)

    async def gets(self, count: int) -> None:
        """Wait for so many events."""
        await until(
            lambda: len(self.got) >= count, f"{count} events, of which {len(self.got)} came"
        )

    def deliver_batch(self, batch: Batch, rows: Any, hops: int) -> None:
        raise AssertionError("a durable subscription gets its events from the log")

    def ready(self) -> None:
        self.is_ready = True

    def lost(self, count: int, through: int, gaps: int) -> None:
        self.losses.append((count, through, gaps))

    def move_proposed(self, node: str) -> None:
        """It stays."""

    def ended(self, reason: str) -> None:
        self.end = reason


class Network:
    """Nodes by name, each with a folder of its own."""

    def __init__(self, folder: Path, mirrors: MirrorSettings = QUICK) -> None:
        self.nodes: dict[str, LiveNode] = {}
        self._folder = folder
        self.mirrors = mirrors
        self.overlay = "chord"
        self._addresses: dict[str, str] = {}
        self.published = 0
        self.open = 0
        self.failures: list[str] = []

    async def start(self, name: str, *, data: str | None = None) -> LiveNode:
        """Start a node, at the address that it had before, if any."""
        settings = NodeSettings(
            listen=self._addresses.get(name, "127.0.0.1:0"),
            join=tuple(node.name for node in self.nodes.values()),
            data=self._folder / (data or name),
            mirrors=self.mirrors,
            overlay=self.overlay,
        )
        node = LiveNode(settings)
        await node.start()
        self._addresses[name] = node.name
        self.nodes[name] = node
        return node

    async def kill(self, name: str) -> None:
        await self.nodes.pop(name).stop(leave=False)

    async def stop(self) -> None:
        for name in list(self.nodes):
            await self.kill(name)

    def publish(self, name: str, count: int, delivery: Delivery, symbol: str = "a") -> list[str]:
        """Publish, and note which are acknowledged."""
        ids = [f"e{number}" for number in range(self.published, self.published + count)]
        self.published += count
        self.open += count
        events = [
            sealed(
                Publication(event_id, {"symbol": symbol, "place": place}, None, delivery=delivery)
            )
            for place, event_id in enumerate(ids)
        ]
        self.nodes[name].publish(events, self._on_ended)
        return ids

    def publish_batch(self, name: str, count: int, delivery: Delivery) -> list[str]:
        """The same in columns."""
        batch_id = f"b{self.published}"
        self.published += count
        self.open += 1
        columns = {"symbol": ["a"] * count, "place": list(range(count))}
        batch = Batch.of(batch_id, pa.table(columns), delivery=delivery)
        self.nodes[name].publish_batch(batch, self._on_ended)
        return [batch.event_id(row) for row in range(count)]

    def _on_ended(self, event_id: str, failure: str | None, _: int) -> None:
        self.open -= 1
        if failure is not None:
            self.failures.append(f"{event_id}: {failure}")

    async def acknowledged(self) -> None:
        await until(lambda: not self.open, "all publications end")
        assert self.failures == []

    def status(self, name: str) -> dict[str, Any]:
        return self.nodes[name].status()["mirrors"]

    def mirror_of(self, name: str) -> str | None:
        """The name of the node that mirrors for another."""
        address = self.status(name)["mirror"]
        return next((n for n, node in self.nodes.items() if node.name == address), None)
