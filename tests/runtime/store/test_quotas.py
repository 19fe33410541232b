"""Whose events the bounds cut off: of whoever has most, never of others; and it is told."""

import random

import pytest

from peersub.runtime.store import MemoryStore, Store, StoreSettings
from peersub.runtime.store.changes import MirrorStored, MoveCursor, RetainEvent
from runtime.store.store_helpers import (
    BEGIN_MS,
    WANTED,
    Clock,
    durable,
    event,
    logged,
    stored,
    write,
)

VICTIM, GREEDY = "durable/ann/orders", "durable/bob/all"
ANONYMOUS = ("durable//orders", "durable//all")


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


@pytest.mark.parametrize(("victim", "greedy"), [(VICTIM, GREEDY), ANONYMOUS])
def test_a_greedy_client_loses_its_own_events_only(victim, greedy):
    told = []
    with MemoryStore(StoreSettings(log_bytes_max=100_000), Clock()) as store:
        store.on_cut = told.extend
        write(store, durable(victim), durable(greedy))
        write(store, *(stored(name, victim, size=1_000) for name in names("v", 20)))
        for name in names("g", 1_200):
            write(store, stored(name, greedy, size=1_000))
        assert logged(store, victim) == names("v", 20)
        assert store.losses(victim).trimmed == 0
        left = logged(store, greedy)
        assert left == names("g", 1_200)[-len(left) :] and 30 < len(left) < 100
        losses = store.losses(greedy)
        assert losses.trimmed == 1_200 - len(left)
        assert losses.through == store.read_log(greedy, 0, 1)[0].position - 1
        assert {cut.subscription for cut in told} == {greedy}
        assert [name for cut in told for name in cut.event_ids] == names("g", losses.trimmed)
        assert told[-1].through == losses.through
        assert store.status()["log_bytes"] <= 100_000


def test_a_client_has_a_bound_of_its_own_over_its_subscriptions():
    settings = StoreSettings(log_bytes_per_client_max=50_000)
    with MemoryStore(settings, Clock()) as store:
        write(store, durable(VICTIM), durable(GREEDY), durable("durable/bob/more"))
        for number in range(60):
            write(store, stored(f"v{number}", VICTIM))
            write(store, stored(f"g{number}", GREEDY, size=1_000))
            write(store, stored(f"m{number}", "durable/bob/more", size=1_000))
        assert len(logged(store, VICTIM)) == 60
        left = len(logged(store, GREEDY)) + len(logged(store, "durable/bob/more"))
        assert 30 < left < 50
        assert store.status()["log_trimmed_unread"] == 120 - left


def test_a_client_that_reads_loses_nothing_and_what_all_have_read_goes_first():
    with MemoryStore(StoreSettings(log_bytes_max=50_000), Clock()) as store:
        write(store, durable(VICTIM), durable(GREEDY))
        write(store, stored("first", VICTIM, size=1_000))
        for number in range(200):
            write(store, stored(f"g{number}", GREEDY, size=1_000))
            write(store, MoveCursor(GREEDY, store.last_position()))
        assert store.losses(GREEDY).trimmed == store.losses(VICTIM).trimmed == 0
        assert logged(store, VICTIM) == ["first"]
        assert 30 < len(logged(store, GREEDY)) < 50


def test_an_event_of_both_is_lost_to_the_greedy_one_alone():
    settings = StoreSettings(log_bytes_per_client_max=20_000)
    with MemoryStore(settings, Clock()) as store:
        write(store, durable(VICTIM), durable(GREEDY))
        write(store, *(stored(name, VICTIM, GREEDY, size=1_000) for name in names("b", 10)))
        write(store, *(stored(name, GREEDY, size=1_000) for name in names("g", 100)))
        assert logged(store, VICTIM) == names("b", 10)
        assert not set(names("b", 10)) & set(logged(store, GREEDY))


def test_reading_again_counts_what_is_read_again():
    settings = StoreSettings(log_bytes_per_client_max=20_000)
    with MemoryStore(settings, Clock()) as store:
        write(store, durable(GREEDY))
        for number in range(50):
            write(store, stored(f"g{number}", GREEDY, size=1_000))
            write(store, MoveCursor(GREEDY, store.last_position()))
        assert len(logged(store, GREEDY)) == 50
        write(store, MoveCursor(GREEDY, 0, may_go_back=True))
        assert len(logged(store, GREEDY)) < 20
        assert store.losses(GREEDY).trimmed == 50 - len(logged(store, GREEDY))


@pytest.mark.parametrize("seed", range(8))
def test_the_log_and_its_entries_agree_whatever_is_cut(tmp_path, seed):
    """A store that did not say the same twice would be taken for damaged when it is opened."""
    drawn = random.Random(seed)
    settings = StoreSettings(log_bytes_max=40_000, log_bytes_per_client_max=20_000)
    subscriptions = [f"durable/{who}/{number}" for who in "ab" for number in range(2)]
    with Store(tmp_path, settings, Clock()) as store:
        write(store, *map(durable, subscriptions))
        for number in range(150):
            wanting = drawn.sample(subscriptions, drawn.randrange(1, 4))
            write(store, stored(f"e{number}", *wanting, size=drawn.randrange(2_000)))
            if drawn.random() < 0.3:
                position = drawn.randrange(store.last_position() + 1)
                change = MoveCursor(drawn.choice(subscriptions), position, drawn.random() < 0.2)
                write(store, change)
        kept = store.status()["log_bytes"]
        assert kept <= 40_000
    with Store(tmp_path, settings, Clock()) as store:
        assert store.notices == []
        assert store.status()["log_bytes"] == kept


@pytest.mark.parametrize(
    "settings",
    [
        StoreSettings(mirror_bytes_max=100_000),
        StoreSettings(mirror_bytes_per_client_max=60_000),
    ],
)
def test_a_greedy_client_of_another_node_loses_its_own_events_only(settings):
    with MemoryStore(settings, Clock()) as store:
        for home, name in (("n1", VICTIM), ("n1", GREEDY), ("n2", VICTIM)):
            write(store, MirrorStored(home, name, WANTED, b"", BEGIN_MS))
        for home in ("n1", "n2"):
            for name in names("v", 10):
                change = RetainEvent(home, event(name, bytes(1_000)), (VICTIM,), BEGIN_MS)
                write(store, change)
        both = RetainEvent("n1", event("both", bytes(1_000)), (VICTIM, GREEDY), BEGIN_MS)
        write(store, both)
        for name in names("g", 1_200):
            write(store, RetainEvent("n1", event(name, bytes(1_000)), (GREEDY,), BEGIN_MS))
        for home in ("n1", "n2"):
            retained = store.retained_events(home, 0, 10_000)
            kept = [each.publication.id for each in retained if VICTIM in each.names]
            assert kept[:10] == names("v", 10)
        greedy = [each for each in store.retained_events("n1", 0, 10_000) if GREEDY in each.names]
        assert 30 < len(greedy) < 100
        dropped = {(each.home, each.name): each.dropped for each in store.mirrored_subscriptions()}
        assert dropped.pop(("n1", GREEDY)) == 1_201 - len(greedy)
        assert not any(dropped.values())
        assert store.status()["mirror_bytes"] <= 100_000
