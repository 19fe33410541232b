"""A home: matching here, once for each event, and what a crash leaves behind."""

from collections.abc import Callable

import numpy as np

from overlays.core.batch_rows import batch_of
from peersub.filters import Filter
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.effects import Deliver, DeliverBatch, Effect, Persist
from peersub.overlays.core.event_keys import key_of_id, name_of_key, network_key, publisher_key
from peersub.overlays.core.home import MATCHER_FROM, Home, HomeSettings
from peersub.overlays.core.publication import Delivery, Publication
from peersub.overlays.core.records import EventHandedOver, EventSeen, EventStored


def _event(name: str, **attributes: object) -> Publication:
    return Publication(name, attributes, delivery=Delivery.AT_LEAST_ONCE)


class _Driver:
    """Keeps the effects of a home, and plays its disk."""

    def __init__(self, settings: HomeSettings | None = None) -> None:
        self.effects: list[Effect] = []
        self.home = Home(settings or HomeSettings(), self.effects.append)
        self.synced = 0

    def sync(self) -> None:
        while self.synced < len(self.effects):
            effect = self.effects[self.synced]
            self.synced += 1
            if isinstance(effect, Persist):
                self.home.on_persisted(effect.token)

    @property
    def delivered(self) -> list[tuple[str, tuple[str, ...], bool]]:
        return [
            (effect.publication.id, effect.subscriptions, effect.again)
            for effect in self.effects
            if isinstance(effect, Deliver)
        ]

    @property
    def records(self) -> tuple:
        return tuple(e.record for e in self.effects if isinstance(e, Persist))


def test_the_index_gives_what_asking_each_filter_gives():
    few, many = _Driver(), _Driver()
    for number in range(4 * MATCHER_FROM):
        many.home.subscribe(f"s{number}", Filter(f"a = {number % 7}"))
        if number < MATCHER_FROM - 1:
            few.home.subscribe(f"s{number}", Filter(f"a = {number % 7}"))
    event = _event("e", a=3)
    expected = sorted(f"s{n}" for n in range(4 * MATCHER_FROM) if n % 7 == 3)
    assert list(many.home.matching(event)) == expected
    assert list(few.home.matching(event)) == [
        name for name in expected if int(name[1:]) < MATCHER_FROM - 1
    ]
    many.home.unsubscribe(expected[0])
    assert list(many.home.matching(event)) == expected[1:]


def test_an_acknowledged_event_is_handed_over_only_once_it_is_on_disk():
    driver = _Driver()
    driver.home.subscribe("s", Filter("a = 1"))
    driver.sync()
    done = []
    assert driver.home.store(_event("e", a=1), 2, 0, lambda: done.append("e"))
    assert driver.delivered == []
    assert done == []
    driver.sync()
    assert driver.delivered == [("e", ("s",), False)]
    assert done == ["e"]
    assert driver.records[-1] == EventHandedOver("e")


def test_an_event_that_the_disk_refuses_fails_and_is_new_when_it_comes_again():
    driver = _Driver()
    driver.home.subscribe("s", Filter("a >= 0"))
    driver.sync()
    batch = batch_of([{"a": 1}, {"a": 2}], delivery=Delivery.AT_LEAST_ONCE)
    wanted = (("s", np.array([0, 1])),)

    def ask(done: list[str]) -> None:
        then, failed = lambda: done.append("stored"), done.append
        assert driver.home.store(_event("e", a=1), 2, 0, then, failed)
        assert driver.home.store(_event("x/3", a=1), 2, 0, then, failed)
        assert driver.home.store_batch(batch, wanted, 2, 0, then, failed)

    first: list[str] = []
    ask(first)
    for effect in driver.effects[driver.synced :]:
        assert isinstance(effect, Persist)
        driver.home.on_persist_failed(effect.token, "no room")
    driver.synced = len(driver.effects)
    assert first == ["no room"] * 3 and driver.delivered == []
    again: list[str] = []
    ask(again)
    driver.sync()
    assert again == ["stored"] * 3


def test_who_repeats_an_event_waits_for_the_same_disk_and_then_for_nothing():
    driver = _Driver()
    driver.home.subscribe("s", Filter("a = 1"))
    done = []
    driver.home.store(_event("e", a=1), 0, 0, lambda: done.append(1))
    assert driver.home.store(_event("e", a=1), 0, 0, lambda: done.append(2))
    driver.sync()
    assert done == [1, 2]
    assert not driver.home.store(_event("e", a=1), 0, 0, lambda: done.append(3))
    driver.sync()
    assert [event for event, _, _ in driver.delivered] == ["e"]


def test_an_event_that_nobody_wants_is_not_stored():
    driver = _Driver()
    driver.home.subscribe("s", Filter("a = 1"))
    assert not driver.home.store(_event("e", a=2), 0, 0, lambda: None)
    assert not any(isinstance(record, EventStored) for record in driver.records)


def test_after_a_crash_what_was_stored_and_not_handed_over_comes_again_and_says_so():
    driver = _Driver()
    driver.home.subscribe("s", Filter("a = 1"))
    driver.sync()
    driver.home.store(_event("e", a=1), 1, 5, lambda: None)
    on_disk = driver.records  # the event is stored, Persisted was never handled

    reborn = _Driver()
    reborn.home.restore(on_disk, 10)
    assert reborn.delivered == [("e", ("s",), True)]
    assert not reborn.home.store(_event("e", a=1), 1, 11, lambda: None)

    again = _Driver()
    again.home.restore((*on_disk, *reborn.records), 20)
    assert again.delivered == []


def test_what_the_disk_has_seen_is_not_stored_again_until_the_horizon():
    reborn = _Driver(HomeSettings(history_horizon_ms=100))
    reborn.home.restore((EventSeen("old", 0), EventSeen("e", 50)), 120)
    reborn.home.subscribe("s", Filter("a = 1"))
    assert not reborn.home.store(_event("e", a=1), 0, 120, lambda: None)
    assert reborn.home.store(_event("old", a=1), 0, 120, lambda: None)
    assert reborn.delivered == []


def test_ended_subscriptions_stay_ended_after_a_restart():
    driver = _Driver()
    driver.home.subscribe("s", Filter("a = 1"))
    driver.home.unsubscribe("s")
    driver.home.subscribe("t", Filter("a = 2"))
    reborn = _Driver()
    reborn.home.restore(driver.records, 0)
    assert list(reborn.home.subscriptions) == ["t"]


def test_a_name_is_taken_once():
    driver = _Driver()
    assert driver.home.subscribe("s", Filter("a = 1"))
    assert not driver.home.subscribe("s", Filter("a = 2"))
    assert not driver.home.unsubscribe("unknown")


def test_a_best_effort_event_is_seen_once_within_the_horizon():
    driver = _Driver(HomeSettings(seen_events_max=10, history_horizon_ms=100))
    assert driver.home.see(key_of_id("e"), 0)
    assert not driver.home.see(key_of_id("e"), 100)
    assert driver.home.see(key_of_id("f"), 101)
    assert driver.home.see(key_of_id("e"), 102)


def test_events_of_two_publishers_under_one_id_are_two():
    driver = _Driver()
    driver.home.subscribe("s", Filter("a = 1"))
    for publisher in (b"one", b"two", b"one"):
        event = _event("e", a=1).with_key(network_key(publisher_key(publisher, "e")))
        driver.home.store(event, 2, 0, lambda: None)
    driver.home.store(_event("e", a=1), 2, 0, lambda: None)
    driver.sync()
    assert driver.delivered == 3 * [("e", ("s",), False)]
    reborn = _Driver()
    reborn.home.restore(driver.records, 0)
    for publisher in (b"one", b"two"):
        event = _event("e", a=1).with_key(network_key(publisher_key(publisher, "e")))
        assert not reborn.home.store(event, 2, 0, lambda: None)


def test_what_an_earlier_version_remembered_by_its_id_is_known_under_any_key():
    driver = _Driver()
    driver.home.restore([EventSeen("e", 0), EventSeen(name_of_key(key_of_id("f")), 0)], 0)
    driver.home.subscribe("s", Filter("a = 1"))
    for name in ("e", "f"):
        event = _event(name, a=1).with_key(network_key(publisher_key(b"one", name)))
        driver.home.store(event, 2, 0, lambda: None)
    driver.sync()
    # What this version remembers hides nothing of other publishers.
    assert driver.delivered == [("f", ("s",), False)]


# --- batches -----------------------------------------------------------------------------------


def _store(driver: _Driver, batch: Batch, then: Callable[[], None], *, name: str = "s") -> bool:
    """Take all of a batch home, for a subscription that wants all of it."""
    return driver.home.store_batch(batch, ((name, np.arange(len(batch))),), 1, 0, then)


def _batch(*numbers: int) -> Batch:
    whole = batch_of([{"a": 1} for _ in range(6)], delivery=Delivery.AT_LEAST_ONCE)
    return whole.part(np.array(numbers))


def _handed_over(driver: _Driver) -> list[str]:
    """The events that were handed over, each for one subscription, in order."""
    ids: list[str] = []
    for effect in driver.effects:
        if isinstance(effect, DeliverBatch):
            ids += [effect.batch.event_id(row) for _, rows in effect.wanted for row in rows]
        elif isinstance(effect, Deliver):
            ids += [effect.publication.id for _ in effect.subscriptions]
    return ids


def test_who_brings_an_event_alone_that_is_being_stored_in_a_batch_waits_for_it():
    driver = _Driver()
    driver.home.subscribe("s", Filter("a = 1"))
    driver.sync()
    told: list[str] = []
    assert _store(driver, _batch(1, 3), lambda: told.append("batch"))
    assert driver.home.store(_event("b/3", a=1), 2, 0, lambda: told.append("alone"))
    assert told == [] and _handed_over(driver) == []
    driver.sync()
    assert told == ["batch", "alone"] and _handed_over(driver) == ["b/1", "b/3"]
    assert not driver.home.store(_event("b/3", a=1), 2, 0, lambda: told.append("late"))


def test_who_brings_a_batch_of_which_one_event_is_being_stored_alone_waits_for_it():
    driver = _Driver()
    driver.home.subscribe("s", Filter("a = 1"))
    driver.sync()
    told: list[str] = []
    assert driver.home.store(_event("b/3", a=1), 2, 0, lambda: told.append("alone"))
    assert _store(driver, _batch(3), lambda: told.append("one"))
    assert _store(driver, _batch(2, 3), lambda: told.append("two"))
    assert _store(driver, _batch(2, 3), lambda: told.append("repeated"))
    assert told == []
    driver.sync()
    assert told == ["alone", "one", "two", "repeated"]
    assert _handed_over(driver) == ["b/3", "b/2"]
    assert not _store(driver, _batch(2, 3), lambda: told.append("late"))
    assert _store(driver, _batch(2, 3, 4), lambda: told.append("more"))
    driver.sync()
    assert _handed_over(driver) == ["b/3", "b/2", "b/4"]


def test_after_a_crash_the_events_of_a_stored_batch_are_handed_over_again_one_by_one():
    driver = _Driver()
    for name in ("s", "t"):
        driver.home.subscribe(name, Filter("a = 1"))
    driver.sync()
    wanted = (("s", np.array([0, 1])), ("t", np.array([1])))
    driver.home.store_batch(_batch(2, 5), wanted, 3, 0, lambda: None)
    crashed, again = _Driver(), _Driver()
    crashed.home.restore(driver.records, 0)
    assert crashed.delivered == [("b/2", ("s",), True), ("b/5", ("s", "t"), True)]
    assert not _store(crashed, _batch(2, 5), lambda: None)
    driver.sync()
    again.home.restore(driver.records, 0)
    assert again.delivered == [] and not _store(again, _batch(2, 5), lambda: None)
