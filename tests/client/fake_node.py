"""A node without a network, for tests of what stands before it: matching by brute force.

It is ready, congested or unwilling when a test says so. Durable subscriptions have a log: the list
of all events that came, whose positions count from 1.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from peersub.filters import Filter
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.publication import Delivery, Publication
from peersub.runtime.body_reading import BodyReader
from peersub.runtime.open_publications import OnEnded
from peersub.runtime.since import parse_since
from peersub.runtime.sinks import DurableOptions, Sink, SubscriptionRefusedError


class FakeNode:
    def __init__(self, name: str = "fake:1") -> None:
        self.name = name
        self.sinks: dict[str, tuple[Filter, Sink, bool]] = {}
        self.log: list[Publication] = []
        self.acknowledged: dict[str, int] = {}
        self.durable_filters: dict[str, Filter] = {}
        self.durable_options: list[DurableOptions] = []
        self.published: list[Publication] = []
        self.moved: dict[str, bool] = {}
        self.batches: list[Batch] = []
        self.is_ready_at_once = True
        self.slow_answers = False
        self.open: list[tuple[str, OnEnded | None]] = []
        self.waiting: tuple[str, ...] = ()
        self.refusal: str | None = None
        self.seen = 0
        self.congested = False
        self.relieved = asyncio.Event()
        self.bodies = BodyReader()

    # --- for doors -------------------------------------------------------------------------------

    def publish(
        self,
        publications: Sequence[Publication],
        on_ended: OnEnded | None = None,
        source: str = "",
    ) -> None:
        for publication in publications:
            self.published.append(publication)
            self.deliver(publication)
            if self.slow_answers:
                self.open.append((publication.name, on_ended))
            elif on_ended is not None:
                on_ended(publication.name, self.refusal_of(publication), self.seen)

    takes_batches = False
    proposes_moves = False

    def publish_batch(
        self, batch: Batch, on_ended: OnEnded | None = None, source: str = ""
    ) -> None:
        self.batches.append(batch)
        for publication in batch.publications():
            self.published.append(publication)
            self.deliver(publication)
        if self.slow_answers:
            self.open.append((batch.name, on_ended))
        elif on_ended is not None:
            on_ended(batch.name, None, self.seen)

    def refusal_of(self, publication: Publication) -> str | None:
        return "no promise" if publication.attributes.get("unwanted") else None

    def is_congested(self) -> bool:
        return self.congested

    async def relief(self) -> None:
        await self.relieved.wait()

    def subscribe(
        self,
        name: str,
        wanted: Filter,
        sink: Sink,
        *,
        durable: DurableOptions | None = None,
        moved: bool = False,
    ) -> None:
        self.moved[name] = moved
        if self.refusal is not None:
            raise SubscriptionRefusedError(self.refusal)
        if name in self.sinks:
            raise SubscriptionRefusedError(f"there is a subscription {name!r} already")
        self.sinks[name] = (wanted, sink, durable is not None)
        if self.is_ready_at_once:
            sink.ready()
        if durable is None:
            return
        self.durable_filters[name] = wanted
        self.durable_options.append(durable)
        if name not in self.acknowledged:
            since = parse_since(durable.since)
            start = {"earliest": 0, None: len(self.log)}.get(since, since)
            assert isinstance(start, int)
            self.acknowledged[name] = start
        for position in range(self.acknowledged[name] + 1, len(self.log) + 1):
            publication = self.log[position - 1]
            if name in self.sinks and publication.matches(wanted):
                sink.deliver(publication, 1, position)

    def detach(self, name: str) -> None:
        del self.sinks[name]

    def unsubscribe(self, name: str) -> None:
        self.sinks.pop(name, None)
        self.acknowledged.pop(name, None)
        self.durable_filters.pop(name, None)

    def change_filter(self, name: str, wanted: Filter) -> None:
        _, sink, is_durable = self.sinks[name]
        self.sinks[name] = (wanted, sink, is_durable)

    async def narrow_durables(self) -> None:
        pass

    def acknowledge(self, name: str, position: int) -> None:
        self.acknowledged[name] = max(position, self.acknowledged[name])

    def waiting_on(self, name: str) -> tuple[str, ...]:
        assert name in self.sinks
        return self.waiting

    def status(self) -> dict[str, Any]:
        return {"node": self.name, "subscriptions": len(self.sinks), "long": "x" * 100_000}

    # --- for tests -------------------------------------------------------------------------------

    def deliver(self, publication: Publication) -> None:
        self.log.append(publication)
        for _, (wanted, sink, is_durable) in sorted(self.sinks.items()):
            if publication.matches(wanted):
                sink.deliver(publication, 2, len(self.log) if is_durable else None)

    def emit(self, *numbers: int, promise: Delivery = Delivery.BEST_EFFORT) -> None:
        for number in numbers:
            self.deliver(Publication(f"e{number}", {"n": number}, delivery=promise))

    def emit_body(self, number: int, body: bytes) -> None:
        self.deliver(Publication(f"e{number}", {"n": number}, body))

    def emit_batch(self, name: str, numbers: Iterable[int]) -> None:
        """Subscription by subscription, as a node hands batches over."""
        table = pa.table({"n": list(numbers)})
        batch = Batch.of(name, table)
        events = list(batch.publications())
        for _, (wanted, sink, _) in sorted(self.sinks.items()):
            rows = [row for row, event in enumerate(events) if event.matches(wanted)]
            if rows:
                sink.deliver_batch(batch, np.array(rows), 2)

    def be_ready(self) -> None:
        for _, sink, _ in list(self.sinks.values()):
            sink.ready()

    def answer(self, failure: str | None = None) -> None:
        for event_id, on_ended in self.open:
            if on_ended is not None:
                on_ended(event_id, failure, self.seen)
        self.open.clear()
