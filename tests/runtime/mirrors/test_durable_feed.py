"""A consumer of a durable subscription that is made anew at the same moment."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from peersub.filters import Filter
from peersub.overlays.core.publication import Publication
from peersub.overlays.core.records import EventHandedOver, EventStored, IdentityStored, Record
from peersub.runtime import store_questions
from peersub.runtime.counters import Counters
from peersub.runtime.durable import DurableSubscriptions
from peersub.runtime.sinks import DurableOptions, SubscriptionRefusedError
from peersub.runtime.store import MemoryStore, StoreError, StoreSettings
from peersub.runtime.store.changes import AppendToLog
from peersub.runtime.store_questions import StoreQuestions
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


def test_what_was_acknowledged_does_not_come_again_while_the_disk_is_full():
    async def story() -> None:
        store = MemoryStore(now_ms=lambda: 0)
        durables = DurableSubscriptions(store, lambda: 0, Counters())
        first, second, again = Noting(), Noting(), Noting()
        durables.attach("d", WANTED, first, DurableOptions(), lambda _: None)
        await until(lambda: store.cursor("d") is not None, "it is on disk")
        events = [sealed(Publication(f"e{number}", {"a": number})) for number in range(3)]
        durables.submit(
            [AppendToLog(each, ("d",), 0) for each in events], lambda: durables.wake("d")
        )
        await until(lambda: len(first.got) == 3, "all came")
        submit = store.submit
        store.submit = lambda changes, on_done: None  # type: ignore[method-assign]
        durables.acknowledge("d", 2)
        durables.detach("d")
        durables.attach("d", WANTED, second, DurableOptions(), lambda _: None)
        await until(lambda: second.got, "served")
        assert second.got == ["e2"] and store.cursor("d") == 0
        # Whoever wants to read again may.
        durables.detach("d")
        durables.attach("d", WANTED, again, DurableOptions("earliest"), lambda _: None)
        await until(lambda: len(again.got) == 3, "all came again")
        durables.end("over")
        store.submit = submit  # type: ignore[method-assign]
        store.close()

    asyncio.run(story())


def test_nobody_acknowledges_more_than_was_given():
    async def story() -> None:
        store = MemoryStore(now_ms=lambda: 0)
        durables = DurableSubscriptions(store, lambda: 0, Counters())
        first, second = Noting(), Noting()
        durables.attach("d", WANTED, first, DurableOptions(), lambda _: None)
        await until(lambda: store.cursor("d") is not None, "it is on disk")
        for number, consumer in enumerate((first, second)):
            event = sealed(Publication(f"e{number}", {"a": number}))
            durables.submit([AppendToLog(event, ("d",), 0)], lambda: durables.wake("d"))
            await until(lambda wanted=consumer: wanted.got, "it came")  # type: ignore[misc]
            assert consumer.got == [f"e{number}"]
            durables.acknowledge("d", 2**100)  # No disk holds such a number.
            durables.detach("d")
            durables.attach("d", WANTED, second, DurableOptions(), lambda _: None)
        durables.end("over")
        store.close()

    asyncio.run(story())


def test_acknowledgements_that_say_nothing_new_cost_the_disk_nothing():
    async def story() -> None:
        store = MemoryStore(now_ms=lambda: 0)
        durables = DurableSubscriptions(store, lambda: 0, Counters())
        consumer = Noting()
        durables.attach("d", WANTED, consumer, DurableOptions(), lambda _: None)
        event = sealed(Publication("e1", {"a": 1}))
        durables.submit([AppendToLog(event, ("d",), 0)], lambda: durables.wake("d"))
        await until(lambda: consumer.got, "it came")
        submit, submitted = store.submit, []
        store.submit = lambda *given: (submitted.append(given), submit(*given))  # type: ignore[method-assign]
        for position in (*range(100), 2**62, 1, 2**100):
            durables.acknowledge("d", position)
        assert len(submitted) == 1
        await until(lambda: store.cursor("d") == 1, "it is on disk")
        durables.end("over")
        store.close()

    asyncio.run(story())


def test_a_record_that_the_disk_refuses_is_reported_and_stalls_no_other():
    async def story() -> None:
        settings = StoreSettings(kept_events_max=1)
        store = MemoryStore(settings, now_ms=lambda: 0)
        durables = DurableSubscriptions(store, lambda: 0, Counters())
        durables.recreate("d", WANTED, lambda _: None)
        answers: dict[int, str | None] = {}

        def persist(*records: tuple[int, Record]) -> None:
            durables.persist(records, lambda token, refusal: answers.update({token: refusal}))

        def stored(name: str) -> EventStored:
            return EventStored(sealed(Publication(name, {"a": 1})), ("d",), 0)

        persist((1, stored("e1")), (2, stored("e2")), (3, IdentityStored(b"me")))
        await until(lambda: len(answers) == 3, "all are answered")
        assert answers[1] is None and answers[3] is None
        assert "wait to be handed over already" in (answers[2] or "")
        persist((4, EventHandedOver("e1")))
        persist((5, stored("e2")))
        await until(lambda: len(answers) == 5, "there is room again")
        assert answers[4] is None and answers[5] is None
        durables.end("over")
        store.close()

    asyncio.run(story())


class WatchedStore(MemoryStore):
    """A store that notes in which threads it is asked, and can refuse to answer."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []
        self.refusals = 0
        super().__init__(now_ms=lambda: 0)

    @contextmanager
    def _asking(self) -> Iterator[sqlite3.Connection]:
        self.threads.append(threading.current_thread())
        if self.refusals:
            self.refusals -= 1
            raise StoreError("the disk does not answer")
        with super()._asking() as connection:
            yield connection


def test_a_disk_is_asked_off_the_loop_and_again_when_it_does_not_answer(monkeypatch, caplog):
    async def story() -> None:
        store, counters = WatchedStore(), Counters()
        monkeypatch.setattr(store_questions, "RETRY_S", 0.0)
        durables = DurableSubscriptions(store, lambda: 0, counters)
        store.threads.clear()
        consumer, event = Noting(), sealed(Publication("e1", {"a": 1}))
        durables.recreate("d", WANTED, lambda _: None)
        durables.submit([AppendToLog(event, ("d",), 0)], lambda: setattr(store, "refusals", 3))
        await until(lambda: store.refusals, "it is on disk")
        durables.attach("d", WANTED, consumer, DurableOptions("earliest"), lambda _: None)
        await until(lambda: consumer.got == ["e1"], "it came though the disk had failed")
        with pytest.raises(SubscriptionRefusedError, match="the log ends at 1"):
            durables.attach("other", WANTED, consumer, DurableOptions("7"), lambda _: None)
        durables.tell_losses("d")
        assert counters.as_dict()["the disk could not be read"] == 3
        assert "the disk cannot be read, and is asked again" in caplog.text
        durables.end("over")
        store.close()
        assert threading.current_thread() not in store.threads and store.threads

    asyncio.run(story())


def test_one_answer_is_enough_for_all_who_ask_the_same():
    async def story() -> None:
        answered: list[int] = []
        questions = StoreQuestions(asyncio.get_running_loop(), Counters())
        for number in range(100):
            questions.ask("same", lambda: number, answered.append)  # noqa: B023 - the last counts
        questions.ask("other", lambda: -1, answered.append)
        await until(lambda: len(answered) == 2, "answered")
        assert answered == [99, -1]
        questions.end()
        questions.ask("same", lambda: 5, answered.append)
        await asyncio.sleep(0)
        assert answered == [99, -1]

    asyncio.run(story())
