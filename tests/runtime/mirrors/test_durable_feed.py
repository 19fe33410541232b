"""A consumer of a durable subscription that is made anew at the same moment."""

from __future__ import annotations

import asyncio
from typing import Any

from peersub.filters import Filter
from peersub.overlays.core.publication import Publication
from peersub.runtime.counters import Counters
from peersub.runtime.durable import DurableSubscriptions
from peersub.runtime.sinks import DurableOptions
from peersub.runtime.store import MemoryStore
from peersub.runtime.store.changes import AppendToLog
from peersub.wire import sealed
from runtime.live_network import until

WANTED = Filter("TRUE")


class Noting:
    """A consumer that acknowledges nothing."""

    def __init__(self) -> None:
        self.got: list[str] = []

    def deliver(self, publication: Publication, hops: int, position: int | None) -> None:
        self.got.append(publication.id)

    def deliver_batch(self, batch: Any, rows: Any, hops: int) -> None:
        raise AssertionError

    def ready(self) -> None: ...

    def lost(self, count: int, through: int, gaps: int) -> None: ...

    def move_proposed(self, node: str) -> None:
        """It stays."""

    def ended(self, reason: str) -> None: ...


def test_nobody_is_served_before_it_is_known_where_to_begin():
    async def story() -> None:
        store = MemoryStore(now_ms=lambda: 0)
        durables = DurableSubscriptions(store, lambda: 0, Counters())
        submit, held = store.submit, []
        # The disk answers when the test lets it.
        store.submit = lambda changes, on_done: submit(  # type: ignore[method-assign]
            changes, lambda failure: held.append((on_done, failure))
        )

        async def let(place: int) -> None:
            await until(lambda: len(held) > place, "the disk has answered")
            held[place][0](held[place][1])
            for _ in range(20):  # Whoever would be served by mistake is served now.
                await asyncio.to_thread(int)

        consumer = Noting()
        durables.recreate("d", WANTED, lambda _: None)
        event = sealed(Publication("e1", {"a": 1}))
        durables.submit([AppendToLog(event, ("d",), 0)], lambda: durables.wake("d"))
        durables.attach("d", WANTED, consumer, DurableOptions(), lambda _: None)
        await let(0)
        await let(1)
        assert consumer.got == []
        await let(2)
        await until(lambda: consumer.got, "served")
        for _ in range(20):
            await asyncio.to_thread(int)
        assert consumer.got == ["e1"]
        durables.end("over")
        store.submit = submit  # type: ignore[method-assign]
        store.close()

    asyncio.run(story())
