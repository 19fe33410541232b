"""peersub in the benchmark: a process is a `LiveNode`.

The overlay is chord, because it alone makes both promises. The keys are set so that each delivery
takes as many hops as the trial says (`keys_for_hops`); hosts report the hops they saw.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from peersub.bench.network.members import COLUMNS, Arm, Opening, PublisherReport, Publishing
from peersub.bench.network.tally import HostReport, Tally
from peersub.bench.network.workload import Subscription, generate_events, hash_of
from peersub.filters import Filter
from peersub.overlays.chord.settings import KEY_BITS_MAX
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.publication import Delivery, Publication
from peersub.runtime.connection import ConnectionSettings
from peersub.runtime.live_node import DurableOptions, LiveNode
from peersub.runtime.liveness import LivenessSettings
from peersub.runtime.settings import NodeSettings
from peersub.runtime.transport import TransportSettings
from peersub.wire.publications import sealed

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LiveMember", "keys_for_hops"]

UNCONFIRMED_MAX: Final = 16
"""Batches, or groups, under way under a promise: the publisher waits for one before the next."""
GROUP: Final = 32
"""Single events that are handed over together."""
READY_S_MAX: Final = 120.0
PATIENT: Final = LivenessSettings(
    doubt_ms_min=5_000, doubt_ms_max=5_000, silence_ms_min=5_000, silence_ms_max=20_000
)
"""A node takes its neighbours for dead later than by default: here, more processes than processors
are busy at once, and a link that is given up for nothing takes best-effort events along."""


def keys_for_hops(hosts: int, hops: int) -> list[int]:
    """Keys of the publisher, of `hops - 1` relays and of the hosts: every host is so many hops off.

    Fingers stand half of the circle, a quarter, an eighth, … away. Whoever is first serves all that
    is behind it. So relays at half and three quarters are the only way on, and hosts at ever
    smaller distances from the last relay, or from the publisher, are all its fingers.

    >>> [key.bit_length() for key in keys_for_hops(3, 1)]
    [0, 63, 62, 61]
    >>> keys = keys_for_hops(8, 3)
    >>> len(keys), len(set(keys))
    (11, 11)
    """
    keys, distance = [0], 1 << KEY_BITS_MAX - 1
    for _ in range(hops - 1):
        keys.append(keys[-1] + distance)
        distance >>= 1
    last = keys[-1]
    return [*keys, *(last + (distance >> host) for host in range(hosts))]


class _Sink:
    """A subscriber of the host: it counts."""

    def __init__(self, member: LiveMember, place: int) -> None:
        self._member = member
        self._place = place
        self._taken: int | None = None
        self.is_ready = asyncio.Event()

    def deliver(self, publication: Publication, hops: int, position: int | None) -> None:
        """One event."""
        self._member.on_event(self._place, publication, hops)
        if position is not None:
            if self._taken is None:
                asyncio.get_running_loop().call_soon(self._acknowledge)
            self._taken = position

    def _acknowledge(self) -> None:
        """Once for all that came in a turn of the loop."""
        position, self._taken = self._taken, None
        assert position is not None
        self._member.acknowledge(self._place, position)

    def deliver_batch(self, batch: Batch, rows: np.ndarray, hops: int) -> None:
        """Events of a batch."""
        self._member.on_events(self._place, batch, rows, hops)

    def ready(self) -> None:
        """The overlay keeps its promise."""
        self.is_ready.set()

    def lost(self, count: int, through: int, gaps: int) -> None:
        """No bound is reached here."""

    def move_proposed(self, node: str) -> None:
        """It stays."""

    def ended(self, reason: str) -> None:
        """Nothing more comes."""


class LiveMember:
    """A live node, and what it publishes or counts."""

    def __init__(self) -> None:
        self._node: LiveNode | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._tally: Tally | None = None
        self._label = ""
        self._subscriptions: tuple[Subscription, ...] = ()
        self._batch: Batch | None = None
        self._batch_hops = 0
        self._batch_places: list[int] = []
        self._batch_rows: list[np.ndarray] = []
        self._batch_deliveries = 0
        """What came of the batch that comes at present: all subscribers of the host get their parts
        one after the other, and they are counted together."""
        self._tables: list[pa.Table] = []
        self._publications: list[Publication] = []
        self._open = 0
        self._failures: list[str] = []
        self._confirmed = asyncio.Event()

    @property
    def node(self) -> LiveNode:
        """The node, which runs."""
        assert self._node is not None
        return self._node

    async def open(self, opening: Opening) -> str:
        """Start or join."""
        join = (opening.contact,) if opening.contact else ()
        settings = NodeSettings(
            join=join,
            overlay="chord",
            overlay_settings={"key": opening.key},
            transport=TransportSettings(connection=ConnectionSettings(liveness=PATIENT)),
        )
        if opening.copies:
            self._folder = tempfile.TemporaryDirectory(prefix="peersub-bench-")
            mirrors = replace(settings.mirrors, copies=opening.copies)
            settings = replace(settings, data=Path(self._folder.name), mirrors=mirrors)
        self._node = LiveNode(settings)
        await self._node.start()
        self._subscriptions = opening.subscriptions
        return self._node.name

    async def subscribe(self) -> None:
        """Make the subscriptions; returns when all are ready."""
        sinks = [_Sink(self, place) for place in range(len(self._subscriptions))]
        durable = None if self._folder is None else DurableOptions()
        for sink, wish in zip(sinks, self._subscriptions, strict=True):
            self.node.subscribe(wish.name, Filter(wish.text), sink, durable=durable)
        async with asyncio.timeout(READY_S_MAX):
            for sink in sinks:
                await sink.is_ready.wait()

    def acknowledge(self, place: int, position: int) -> None:
        """A durable subscriber has taken all up to here."""
        if self._node is not None:
            self._node.acknowledge(self._subscriptions[place].name, position)

    # --- publishing ----------------------------------------------------------------------------

    async def prepare(self, publishing: Publishing) -> None:
        """Make the events."""
        events = generate_events(publishing.workload, publishing.events)
        self._tables, self._publications = [], []
        delivery = _delivery(publishing)
        if publishing.form == COLUMNS:
            table, rows = events.table(), publishing.batch_rows
            self._tables = [
                table.slice(start, rows).combine_chunks() for start in range(0, len(events), rows)
            ]
        else:
            self._publications = [
                sealed(Publication(f"{publishing.label}-{number}", attributes, delivery=delivery))
                for number, attributes in enumerate(events.attributes(0, len(events)))
            ]

    async def publish(self, publishing: Publishing) -> PublisherReport:
        """Publish what was prepared."""
        self._open, self._failures = 0, []
        late_ns = 0
        begin_ns = time.monotonic_ns()
        if publishing.per_second is not None:
            late_ns = await self._publish_by_the_clock(publishing.per_second, begin_ns)
        elif publishing.form == COLUMNS:
            for number, table in enumerate(self._tables):
                name = f"{publishing.label}-{number}"
                batch = Batch.of(name, table, None, _delivery(publishing))
                self._open += 1
                self.node.publish_batch(batch, self._on_ended)
                await self._hold_back()
        else:
            for start in range(0, len(self._publications), GROUP):
                group = self._publications[start : start + GROUP]
                self._open += len(group)
                self.node.publish(group, self._on_ended)
                await self._hold_back(GROUP)
        while self._open:
            self._confirmed.clear()
            await self._confirmed.wait()
        return PublisherReport(
            begin_ns, time.monotonic_ns(), tuple(sorted(set(self._failures))), late_ns
        )

    async def _publish_by_the_clock(self, per_second: float, begin_ns: int) -> int:
        """Each event at its time, with that time as it is then; how late the latest was."""
        late_ns_max = 0
        for number, before in enumerate(self._publications):
            due_ns = begin_ns + int(number * 1e9 / per_second)
            while (wait_ns := due_ns - time.monotonic_ns()) > 0:
                await asyncio.sleep(wait_ns / 1e9)
            now_ns = time.monotonic_ns()
            late_ns_max = max(late_ns_max, now_ns - due_ns)
            attributes = {**before.attributes, "time": now_ns}
            self._open += 1
            event = sealed(Publication(before.id, attributes, delivery=before.delivery))
            self.node.publish([event], self._on_ended)
        return late_ns_max

    async def _hold_back(self, group: int = 1) -> None:
        await asyncio.sleep(0)
        if self.node.is_congested():
            await self.node.relief()
        while self._open >= UNCONFIRMED_MAX * group:
            self._confirmed.clear()
            await self._confirmed.wait()

    def _on_ended(self, name: str, failure: str | None, _: int) -> None:
        self._open -= 1
        self._confirmed.set()
        if failure is not None:
            self._failures.append(failure)

    # --- receiving -----------------------------------------------------------------------------

    async def arm(self, arm: Arm) -> None:
        """A trial begins."""
        self._batch, self._batch_places, self._batch_rows = None, [], []
        self._batch_deliveries = 0
        self._label = f"{arm.label}-"
        self._tally = Tally(
            len(self._subscriptions),
            expected=arm.expected,
            keep_latencies=arm.keep_latencies,
            lose_one=arm.lose_one,
        )

    def on_event(self, place: int, publication: Publication, hops: int) -> None:
        """One event for one subscriber."""
        if self._tally is None or not publication.id.startswith(self._label):
            return  # Of an earlier trial: a promise is kept also when nobody waits any more.
        attributes = publication.attributes
        if self._tally.keep_latencies:
            self._tally.add_latency(attributes["time"])
        self._tally.add_one(place, attributes["number"], hops)

    def on_events(self, place: int, batch: Batch, rows: np.ndarray, hops: int) -> None:
        """Events of a batch for one subscriber."""
        if batch is not self._batch or hops != self._batch_hops:
            self._count_batch()
            self._batch, self._batch_hops = batch, hops
        self._batch_places.append(place)
        self._batch_rows.append(rows)
        self._batch_deliveries += len(rows)
        if self._tally is not None and self._batch_deliveries >= self._tally.missing:
            self._count_batch()

    def _count_batch(self) -> None:
        """Count what came of a batch so far."""
        batch, places, rows = self._batch, self._batch_places, self._batch_rows
        self._batch, self._batch_places, self._batch_rows = None, [], []
        self._batch_deliveries = 0
        if self._tally is not None and batch is not None:
            hashes = hash_of(batch.table["number"].to_numpy())
            subscribers = np.repeat(places, [len(each) for each in rows])
            self._tally.add_pairs(subscribers, hashes[np.concatenate(rows)], self._batch_hops)

    async def complete(self, timeout_s: float) -> bool:
        """Wait for what is expected."""
        assert self._tally is not None
        try:
            async with asyncio.timeout(timeout_s):
                await self._tally.complete.wait()
        except TimeoutError:
            return False
        return True

    async def report(self) -> HostReport:
        """What came."""
        assert self._tally is not None
        self._count_batch()
        return self._tally.report()

    async def bytes_out(self) -> int | None:
        """Of all links, framing included, without what TCP and IP add."""
        links = self.node.status()["connections"]["links"].values()
        total: int = sum(link["bytes_out"] for link in links)
        return total

    async def counters(self) -> dict[str, int]:
        """What the node has counted: drops, refusals, links that were lost."""
        return self.node.counters.as_dict()

    async def close(self) -> None:
        """End at once."""
        if self._node is not None:
            await self._node.stop(leave=False)
            self._node = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def _delivery(publishing: Publishing) -> Delivery:
    return Delivery.AT_LEAST_ONCE if publishing.at_least_once else Delivery.BEST_EFFORT
