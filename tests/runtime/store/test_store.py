"""What a store keeps, in a folder and in memory: one suite for both."""

import threading

import pyarrow as pa
import pytest

from peersub.filters import Filter
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.mirror_facts import HeldBatch
from peersub.overlays.core.publication import Delivery
from peersub.overlays.core.records import (
    DurableSubscriptionStored,
    EventSeen,
    EventStored,
    IdentityStored,
    SubscriptionRemoved,
    SubscriptionStored,
)
from peersub.runtime.store import (
    FailureKind,
    LogTime,
    StageState,
    StoreError,
    StoreSettings,
)
from peersub.runtime.store.changes import (
    AbandonStaged,
    AppendToLog,
    CommitStaged,
    DroppedTold,
    DurableRemoved,
    KeepRecord,
    MirrorRemoved,
    MirrorStored,
    MoveCursor,
    NameNode,
    ReleaseEvents,
    RetainBatch,
    RetainEvent,
    StagedPublished,
    StagePublications,
)
from runtime.store.store_helpers import (
    BEGIN_MS,
    WAIT_SECONDS,
    WANTED,
    Clock,
    Gate,
    described,
    durable,
    event,
    handed_over,
    logged,
    make,
    outcome,
    seen_name,
    stored,
    together,
    write,
)


@pytest.fixture(params=["folder", "memory"])
def kind(request):
    return request.param


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def opened(kind, tmp_path, clock):
    """Makes stores with settings; all are closed in the end."""
    stores = []

    def make_one(**settings):
        stores.append(make(kind, tmp_path / str(len(stores)), StoreSettings(**settings), clock))
        return stores[-1]

    yield make_one
    for one in stores:
        one.close()


@pytest.fixture
def store(opened):
    return opened()


# --- identity ----------------------------------------------------------------------------------


def test_a_new_store_knows_nothing(store):
    assert store.restored_records() == ()
    assert store.node_name is None
    assert store.notices == []
    assert store.durable_subscriptions() == []
    assert store.last_position() == 0


def test_name_and_identity_are_the_last_ones_said(store):
    write(store, NameNode("10.0.0.1:7001"), KeepRecord(IdentityStored(b"one")))
    write(store, NameNode("10.0.0.2:7001"), KeepRecord(IdentityStored(b"two")))
    assert store.node_name == "10.0.0.2:7001"
    assert store.restored_records() == (IdentityStored(b"two"),)


def test_an_incarnation_is_no_less_than_the_time(store, clock):
    assert store.incarnation == clock.ms // 10


# --- the history -------------------------------------------------------------------------------


def test_an_event_is_kept_until_it_is_handed_over_and_remembered_after(store):
    write(store, stored("e1", "s", "t"), stored("e2", at_ms=BEGIN_MS + 1))
    first, second = store.restored_records()
    assert described(first.publication) == described(event("e1"))
    assert (first.subscriptions, first.at_ms, first.hops) == (("s", "t"), BEGIN_MS, 2)
    assert isinstance(second, EventStored)
    write(store, handed_over("e1"))
    seen, second = store.restored_records()
    assert seen == EventSeen(seen_name("e1"), BEGIN_MS)
    assert second.publication.id == "e2"


def test_events_are_stored_and_handed_over_in_one_submission(store):
    write(store, stored("e1"), handed_over("e1"), handed_over("never heard of"))
    assert store.restored_records() == (EventSeen(seen_name("e1"), BEGIN_MS),)


def test_an_event_that_is_kept_is_not_kept_twice(store):
    write(store, stored("e1"), stored("e1"))
    assert len(store.restored_records()) == 1


def test_subscriptions_that_are_not_durable_are_not_restored(store):
    write(store, KeepRecord(SubscriptionStored("s", WANTED)), durable("d"))
    write(store, KeepRecord(SubscriptionRemoved("d")))
    assert store.restored_records() == (DurableSubscriptionStored("d", WANTED),)


def test_the_history_is_bounded_by_count(opened):
    store = opened(history_events_max=3, history_retry_ms=0)
    for number in range(10):
        write(store, stored(f"e{number}"), handed_over(f"e{number}"))
    assert [seen.event_id for seen in store.restored_records()] == [
        *map(seen_name, ("e7", "e8", "e9"))
    ]


def test_the_history_is_bounded_by_age(opened, clock):
    store = opened(history_horizon_ms=1_000)
    write(store, stored("e1"), handed_over("e1"))
    write(store, stored("e2", at_ms=BEGIN_MS + 900), handed_over("e2"))
    clock.ms = BEGIN_MS + 1_000
    write(store)
    assert [seen.event_id for seen in store.restored_records()] == [*map(seen_name, ("e1", "e2"))]
    clock.ms = BEGIN_MS + 1_001
    write(store)
    assert [seen.event_id for seen in store.restored_records()] == [seen_name("e2")]
    clock.ms = BEGIN_MS + 5_000
    write(store)
    assert store.restored_records() == ()


def test_an_event_to_be_handed_over_outlives_the_history(opened):
    store = opened(history_events_max=2, history_retry_ms=0)
    write(store, *(stored(f"e{number}") for number in range(4)), handed_over("e3"))
    names = [getattr(r, "event_id", None) or r.publication.id for r in store.restored_records()]
    assert names == ["e0", "e1", "e2", seen_name("e3")]


def test_events_to_be_handed_over_are_bounded(opened):
    store = opened(kept_events_max=2)
    write(store, stored("e1"), stored("e2"))
    assert outcome(store, stored("e3")).kind is FailureKind.BOUND
    write(store, handed_over("e1"), stored("e3"))
    assert [record.publication.id for record in store.restored_records()[1:]] == ["e2", "e3"]


# --- the log -----------------------------------------------------------------------------------


def test_events_of_durable_subscriptions_are_logged_in_order(store):
    write(store, durable("d"), durable("f"))
    write(store, stored("e1", "d", "s"), stored("e2", "s"), stored("e3", "d", "f"))
    write(store, AppendToLog(event("e4"), ("f", "s"), BEGIN_MS + 5, 3))
    assert logged(store, "d") == ["e1", "e3"]
    assert logged(store, "f") == ["e3", "e4"]
    assert logged(store, "s") == []
    last = store.read_log("f", 0, 9)[-1]
    assert described(last.publication) == described(event("e4"))
    assert (last.position, last.hops, last.at_ms) == (store.last_position(), 3, BEGIN_MS + 5)


def test_the_log_is_read_in_parts(store):
    write(store, durable("d"), *(stored(f"e{number}", "d") for number in range(5)))
    first = store.read_log("d", 0, 2)
    assert [entry.publication.id for entry in first] == ["e0", "e1"]
    assert [e.publication.id for e in store.read_log("d", first[-1].position, 2)] == ["e2", "e3"]
    assert store.read_log("d", store.last_position(), 2) == []


def test_a_logged_event_is_restored_whole_until_it_is_handed_over_and_stays_in_the_log(store):
    write(store, durable("d"), KeepRecord(EventStored(event("e1", b"body"), ("d",), BEGIN_MS)))
    _, record = store.restored_records()
    assert described(record.publication) == described(event("e1", b"body"))
    write(store, handed_over("e1"))
    assert store.restored_records()[1:] == (EventSeen(seen_name("e1"), BEGIN_MS),)
    assert logged(store, "d") == ["e1"]


def test_an_event_is_logged_once_for_each_subscription_however_it_comes(store):
    write(store, durable("d"), durable("f"))
    write(store, stored("e1", "d"), AppendToLog(event("e1"), ("d",), BEGIN_MS))
    write(store, AppendToLog(event("e1"), ("d", "f"), BEGIN_MS))
    write(store, stored("e1", "d", "f"))
    assert logged(store, "d") == ["e1"]
    assert logged(store, "f") == ["e1"]


def test_a_subscription_begins_where_the_log_ends(store):
    write(store, durable("d"), stored("e1", "d"), durable("f"), stored("e2", "d", "f"))
    assert store.cursor("f") == store.read_log("d", 0, 1)[0].position
    assert logged(store, "f") == ["e2"]
    assert store.cursor("unknown") is None


def test_cursors_move_forward_and_back_only_if_said_so(store):
    write(store, durable("d"), *(stored(f"e{number}", "d") for number in range(3)))
    write(store, MoveCursor("d", 2), MoveCursor("unknown", 2))
    assert store.cursor("d") == 2
    write(store, MoveCursor("d", 1))
    assert store.cursor("d") == 2
    write(store, MoveCursor("d", 1, may_go_back=True))
    assert store.cursor("d") == 1


def test_a_subscription_with_another_filter_keeps_cursor_and_log(store):
    write(store, durable("d"), stored("e1", "d"), stored("e2", "d"), MoveCursor("d", 1))
    write(store, durable("d", Filter("a = 2")))
    (found,) = store.durable_subscriptions()
    assert (found.name, found.filter, found.cursor) == ("d", Filter("a = 2"), 1)
    assert found.created_ms == BEGIN_MS
    assert logged(store, "d") == ["e1", "e2"]


def test_a_removed_subscription_comes_back_empty(store):
    write(store, durable("d"), durable("f"), stored("e1", "d", "f"), DurableRemoved("d"))
    assert [found.name for found in store.durable_subscriptions()] == ["f"]
    assert store.position_for("d", "earliest") is None
    write(store, durable("d"), DurableRemoved("never heard of"))
    assert logged(store, "d") == []
    assert logged(store, "f") == ["e1"]


def test_since_is_a_position_a_time_the_earliest_or_the_cursor(store):
    write(store, durable("d"))
    for number, at_ms in enumerate([10, 20, 20, 30]):
        write(store, stored(f"e{number}", "d", at_ms=BEGIN_MS + at_ms))
    write(store, MoveCursor("d", 2))
    assert store.position_for("d", 3) == 3
    assert store.position_for("d", None) == 2
    assert logged(store, "d", store.position_for("d", "earliest")) == ["e0", "e1", "e2", "e3"]
    for at_ms, expected in [(0, 4), (10, 4), (11, 3), (20, 3), (21, 1), (30, 1), (31, 0)]:
        position = store.position_for("d", LogTime(BEGIN_MS + at_ms))
        assert len(logged(store, "d", position)) == expected


def test_times_in_the_log_never_fall(store):
    write(store, durable("d"), stored("e1", "d"), stored("e2", "d", at_ms=BEGIN_MS - 10))
    assert [entry.at_ms for entry in store.read_log("d", 0, 9)] == [BEGIN_MS, BEGIN_MS]


def test_the_log_is_bounded_in_bytes_and_counts_what_nobody_had_read(opened):
    store = opened(log_bytes_max=20_000)
    write(store, durable("d"), durable("f"))
    for number in range(100):
        write(store, stored(f"e{number}", "d", size=1_000), handed_over(f"e{number}"))
        if number == 9:
            write(store, MoveCursor("d", 5))
    left = logged(store, "d")
    assert 10 < len(left) < 20
    assert left == [f"e{number}" for number in range(100 - len(left), 100)]
    assert store.trimmed_unread("d") == 100 - len(left) - 5
    assert store.trimmed_unread("f") == 0
    assert store.status()["log_trimmed_unread"] == store.trimmed_unread("d")
    assert store.last_position() == 100


def test_the_log_is_bounded_in_age(opened, clock):
    store = opened(log_age_ms_max=1_000)
    write(store, durable("d"), stored("e1", "d"), stored("e2", "d", at_ms=BEGIN_MS + 500))
    clock.ms = BEGIN_MS + 1_200
    write(store)
    assert logged(store, "d") == ["e2"]
    assert store.trimmed_unread("d") == 1


def test_positions_are_not_given_again_when_the_log_is_empty(opened, clock):
    store = opened(log_age_ms_max=1_000)
    write(store, durable("d"), stored("e1", "d"))
    clock.ms += 10_000
    write(store)
    assert logged(store, "d") == []
    assert store.position_for("d", LogTime(0)) == 1
    write(store, stored("e2", "d", at_ms=clock.ms))
    assert [entry.position for entry in store.read_log("d", 0, 9)] == [2]


def test_an_event_larger_than_the_log_is_counted_and_loses_nobody_else(opened):
    store = opened(log_bytes_max=2_000)
    write(store, durable("d"), stored("large", "d", size=5_000))
    assert logged(store, "d") == []
    assert store.trimmed_unread("d") == 1
    write(store, stored("small", "d"))
    assert logged(store, "d") == ["small"]


# --- the mirror --------------------------------------------------------------------------------


def mirror(home, name, wanted=WANTED):
    return MirrorStored(home, name, wanted, b"options", BEGIN_MS)


def retained(store, home):
    return [(entry.publication.id, entry.names) for entry in store.retained_events(home, 0, 1_000)]


def test_events_are_retained_for_mirrored_subscriptions_until_released(store):
    write(store, mirror("n1", "d"), mirror("n1", "f"), mirror("n2", "d"))
    write(store, RetainEvent("n1", event("e1", b"b"), ("f", "d", "unknown"), BEGIN_MS, 4))
    write(store, RetainEvent("n2", event("e1", b"b"), ("d",), BEGIN_MS))
    write(store, RetainEvent("n1", event("e2"), ("d",), BEGIN_MS))
    write(store, RetainEvent("n3", event("e2"), ("d",), BEGIN_MS))
    assert retained(store, "n1") == [("e1", ("d", "f")), ("e2", ("d",))]
    assert retained(store, "n2") == [("e1", ("d",))]
    assert retained(store, "n3") == []
    first = store.retained_events("n1", 0, 1)[0]
    assert described(first.publication) == described(event("e1", b"b"))
    assert (first.hops, first.at_ms) == (4, BEGIN_MS)
    assert [e.publication.id for e in store.retained_events("n1", first.number, 9)] == ["e2"]
    write(store, ReleaseEvents("n1", ("e1",), ("d",)), ReleaseEvents("n1", ("e2", "e9")))
    assert retained(store, "n1") == [("e1", ("f",))]
    assert retained(store, "n2") == [("e1", ("d",))]


def test_a_retained_event_is_one_however_often_it_comes(store):
    write(store, mirror("n1", "d"), mirror("n1", "f"))
    for names in (("d",), ("d", "f"), ("f",)):
        write(store, RetainEvent("n1", event("e1"), names, BEGIN_MS))
    assert retained(store, "n1") == [("e1", ("d", "f"))]


def test_a_batch_is_retained_as_its_events_are(store):
    table = pa.table({"a": list(range(9))})
    batch = Batch.of("b", table, None, Delivery.AT_LEAST_ONCE)
    held = HeldBatch(batch, (("f", 0b000_111), ("d", 0b101_110), ("unknown", 0b111_111)), 4)
    write(store, *(mirror(home, name) for home in ("n1", "n2") for name in ("d", "f")))
    # Something of it came alone before, and it comes twice.
    first = list(held.one_by_one())[1]
    for home in ("n1", "n2"):
        write(store, RetainEvent(home, first.publication, ("f",), BEGIN_MS, 4))
    write(store, RetainBatch("n1", held, BEGIN_MS), RetainBatch("n1", held, BEGIN_MS))
    for each in held.one_by_one():
        write(store, RetainEvent("n2", each.publication, each.names, BEGIN_MS, each.hops))
    assert retained(store, "n1") == retained(store, "n2")
    assert retained(store, "n1")[0] == ("b/1", ("d", "f"))
    ours, theirs = (store.retained_events(home, 0, 99) for home in ("n1", "n2"))
    assert [described(e.publication) for e in ours] == [described(e.publication) for e in theirs]
    grown = store.status()["mirror_bytes"]
    for home in ("n1", "n2"):
        write(store, ReleaseEvents(home, tuple(f"b/{number}" for number in range(9)), ("d",)))
    assert (
        retained(store, "n1")
        == retained(store, "n2")
        == [
            ("b/1", ("f",)),
            ("b/0", ("f",)),
            ("b/2", ("f",)),
        ]
    )
    for home in ("n1", "n2"):
        write(store, ReleaseEvents(home, ("b/0", "b/1", "b/2")))
    assert grown > 0 and store.status()["mirror_bytes"] == 0


def test_a_store_says_which_of_some_events_it_has(store):
    write(store, durable("d"), durable("f"), mirror("n1", "d"), mirror("n1", "f"))
    write(store, AppendToLog(event("e1"), ("d",), BEGIN_MS), stored("e2", "d", "f"))
    first, second = [entry.position for entry in store.read_log("d", 0, 9)]
    assert store.log_positions("d", ["e2", "e3", "e1"]) == {"e1": first, "e2": second}
    assert store.log_positions("f", ["e1", "e2"]) == {"e2": second}
    assert store.log_positions("unknown", ["e1"]) == {}
    write(store, RetainEvent("n1", event("e1"), ("d",), BEGIN_MS))
    write(store, RetainEvent("n1", event("e2"), ("d", "f"), BEGIN_MS))
    assert store.retained_among("n1", "d", ["e1", "e2", "e3"]) == {"e1", "e2"}
    assert store.retained_among("n1", "f", ["e1", "e2"]) == {"e2"}
    assert store.retained_among("n2", "d", ["e1"]) == set()


def steps_of(store, question) -> int:
    """How many thousand steps SQLite takes to answer: not time, and the same on every machine."""
    steps = []
    store._reading.set_progress_handler(lambda: steps.append(1), 100)
    question()
    store._reading.set_progress_handler(None, 0)
    return len(steps)


def test_questions_about_a_few_events_cost_the_same_however_many_there_are(store):
    write(store, durable("d"), mirror("n1", "d"), mirror("n2", "d"))
    costs = []
    for size in (200, 4_000):
        known = store.last_position()
        for number in range(known, size):
            changes = [RetainEvent(home, event(f"e{number}"), ("d",), 0) for home in ("n1", "n2")]
            store.submit([stored(f"e{number}", "d"), *changes], lambda _: None)
        write(store)
        ids = [f"e{number}" for number in range(40)]
        costs.append(
            (
                steps_of(store, lambda: store.retained_events("n1", 0, 40)),
                steps_of(store, lambda ids=ids: store.retained_among("n1", "d", ids)),
                steps_of(store, lambda ids=ids: store.log_positions("d", ids)),
                steps_of(store, lambda: store.read_log("d", 0, 40)),
            )
        )
    small, large = costs
    assert all(more <= 2 * less + 10 for less, more in zip(small, large, strict=True)), costs


def test_mirrored_subscriptions_are_listed_changed_and_removed(store):
    write(store, mirror("n1", "d"), mirror("n1", "f"), mirror("n2", "d"))
    write(store, mirror("n1", "d", Filter("a = 2")))
    found = [(entry.home, entry.name) for entry in store.mirrored_subscriptions()]
    assert found == [("n1", "d"), ("n1", "f"), ("n2", "d")]
    first = store.mirrored_subscriptions("n1")[0]
    assert (first.filter, first.options, first.created_ms) == (
        Filter("a = 2"),
        b"options",
        BEGIN_MS,
    )
    write(store, RetainEvent("n1", event("e1"), ("d", "f"), BEGIN_MS))
    write(store, MirrorRemoved("n1", "d"))
    assert retained(store, "n1") == [("e1", ("f",))]
    write(store, MirrorRemoved("n1"), MirrorRemoved("n9"))
    assert [entry.home for entry in store.mirrored_subscriptions()] == ["n2"]
    assert retained(store, "n1") == []


def test_the_mirror_is_bounded_and_counts_what_it_dropped(opened):
    store = opened(mirror_bytes_max=10_000, mirror_subscriptions_max=2)
    write(store, mirror("n1", "d"), mirror("n2", "d"))
    assert outcome(store, mirror("n3", "d")).kind is FailureKind.BOUND
    write(store, mirror("n2", "d"))
    for number in range(20):
        write(store, RetainEvent("n1", event(f"e{number}", bytes(1_000)), ("d",), BEGIN_MS))
    left = retained(store, "n1")
    assert 5 < len(left) < 10
    assert left[-1][0] == "e19"
    first, second = store.mirrored_subscriptions()
    assert (first.dropped, second.dropped) == (20 - len(left), 0)
    assert store.status()["mirror_dropped"] == 20 - len(left)
    write(store, DroppedTold("n2"))
    assert store.mirrored_subscriptions("n1")[0].dropped == 20 - len(left)
    write(store, DroppedTold("n1"))
    assert store.mirrored_subscriptions("n1")[0].dropped == 0
    write(store, ReleaseEvents("n1", tuple(name for name, _ in left)))
    for number in range(5):
        write(store, RetainEvent("n1", event(f"f{number}", bytes(1_000)), ("d",), BEGIN_MS))
    assert len(retained(store, "n1")) == 5


# --- staged publications -----------------------------------------------------------------------


def staged(store, key):
    return [entry.publication.id for entry in store.staged_events(key, 0, 1_000)]


def stage(key, *names):
    return StagePublications(key, tuple(event(name) for name in names))


def test_a_stage_is_committed_published_and_remembered(store):
    write(store, stage("k", "e1", "e2"), stage("k", "e1", "e3"))
    assert store.stage_state("k") is StageState.OPEN
    assert store.committed_keys() == []
    write(store, CommitStaged("k"))
    assert store.committed_keys() == ["k"]
    assert staged(store, "k") == ["e1", "e2", "e3"]
    write(store, StagedPublished("k"), StagedPublished("k"))
    assert store.stage_state("k") is StageState.PUBLISHED
    assert store.committed_keys() == []
    assert staged(store, "k") == []


@pytest.mark.parametrize("is_published", [False, True])
def test_a_key_that_was_committed_says_so_and_stages_nothing(store, is_published):
    write(store, stage("k", "e1"), CommitStaged("k"))
    if is_published:
        write(store, StagedPublished("k"))
    before = staged(store, "k")
    for change in (stage("k", "e2"), CommitStaged("k"), AbandonStaged("k")):
        assert outcome(store, change).kind is FailureKind.ALREADY_COMMITTED
    assert staged(store, "k") == before


def test_an_abandoned_stage_never_was(store):
    write(store, stage("k", "e1"), stage("l", "e1"))
    write(store, AbandonStaged("k"), AbandonStaged("never heard of"))
    assert store.stage_state("k") is None
    assert outcome(store, CommitStaged("k")).kind is FailureKind.NOTHING_STAGED
    assert outcome(store, StagedPublished("l")).kind is FailureKind.NOTHING_STAGED
    write(store, stage("k", "e5"), CommitStaged("k"))
    assert staged(store, "k") == ["e5"]
    assert staged(store, "l") == ["e1"]


def test_an_empty_stage_can_be_committed(store):
    write(store, stage("k"), CommitStaged("k"))
    assert store.committed_keys() == ["k"]


def test_a_refused_submission_changes_nothing_and_costs_the_others_nothing(store):
    write(store, stage("k", "e1"), CommitStaged("k"), durable("d"))
    answers = together(
        store,
        [
            [stored("a", "d")],
            [stored("b", "d"), stage("l", "e2"), CommitStaged("k")],
            [stage("m", "e3"), CommitStaged("nothing")],
            [stored("c", "d")],
        ],
    )
    assert [answer and answer.kind for answer in answers] == [
        *(None, FailureKind.ALREADY_COMMITTED, FailureKind.NOTHING_STAGED, None)
    ]
    assert logged(store, "d") == ["a", "c"]
    assert [r.publication.id for r in store.restored_records()[1:]] == ["a", "c"]
    assert store.stage_state("l") is None and store.stage_state("m") is None
    write(store, stored("b", "d"))
    assert logged(store, "d") == ["a", "c", "b"]
    assert [r.publication.id for r in store.restored_records()[1:]] == ["a", "c", "b"]


def test_staged_bytes_are_bounded(opened):
    store = opened(staged_bytes_max=10_000)
    large = StagePublications("k", (event("e1", bytes(6_000)),))
    write(store, large)
    other = StagePublications("l", (event("e2", bytes(6_000)),))
    assert outcome(store, other).kind is FailureKind.BOUND
    assert store.stage_state("l") is None
    write(store, CommitStaged("k"), StagedPublished("k"))
    # Neither what was published nor what was abandoned takes room.
    for _ in range(3):
        write(store, other)
        write(store, AbandonStaged("l"))


def test_open_stages_and_published_keys_are_forgotten_after_their_while(opened, clock):
    store = opened(staged_age_ms_max=1_000, keys_horizon_ms=5_000)
    write(store, stage("open", "e1"), stage("committed", "e2"), CommitStaged("committed"))
    write(store, stage("k", "e3"), CommitStaged("k"), StagedPublished("k"))
    clock.ms += 1_001
    write(store, stage("other", "e4"))
    assert store.stage_state("open") is None
    assert store.stage_state("k") is StageState.PUBLISHED
    clock.ms += 4_000
    write(store, stage("another", "e5"))
    assert store.stage_state("k") is None
    assert store.committed_keys() == ["committed"]
    assert staged(store, "committed") == ["e2"]


def test_remembered_keys_are_bounded(opened, clock):
    store = opened(keys_max=2)
    for number in range(4):
        clock.ms += 1
        write(store, stage(f"k{number}"), CommitStaged(f"k{number}"), StagedPublished(f"k{number}"))
    assert [store.stage_state(f"k{number}") for number in range(4)] == [
        *(None, None, StageState.PUBLISHED, StageState.PUBLISHED)
    ]


# --- the writer --------------------------------------------------------------------------------


def test_submissions_that_wait_become_one_transaction(store):
    before = store.status()["transactions"]
    assert together(store, [[stored(f"e{number}")] for number in range(50)]) == [None] * 50
    # One for the gate, one for all that waited behind it.
    assert store.status()["transactions"] == before + 2
    assert len(store.restored_records()) == 50


def test_a_full_backlog_fails_the_submission_at_once(opened):
    store = opened(backlog_changes_max=3)
    gate = Gate(store)
    answers = []
    store.submit([stored("e1"), stored("e2")], answers.append)
    store.submit([stored("e3"), stored("e4")], answers.append)
    assert [answer.kind for answer in answers] == [FailureKind.BACKLOG_FULL]
    assert store.status()["backlog"] == 2
    gate.open()
    while len(answers) < 2:
        write(store)
    write(store, stored("e5"))
    assert [answer and answer.kind for answer in answers] == [FailureKind.BACKLOG_FULL, None]
    assert [r.publication.id for r in store.restored_records()] == ["e1", "e2", "e5"]
    assert store.status()["backlog_full"] == 1


def test_the_backlog_is_bounded_in_bytes_too(opened):
    store = opened(backlog_bytes_max=10_000)
    gate = Gate(store)
    answers = []
    written = threading.Event()
    store.submit([stored("e1", size=8_000)], lambda _: written.set())
    store.submit([stored("e2", size=8_000)], answers.append)
    assert [answer.kind for answer in answers] == [FailureKind.BACKLOG_FULL]
    gate.open()
    assert written.wait(WAIT_SECONDS)
    # What is larger than the bound is taken when nothing else waits.
    write(store, stored("e3", size=20_000))


def test_closing_writes_what_waits_and_then_refuses(store):
    gate = Gate(store)
    answers = []
    for number in range(20):
        store.submit([stored(f"e{number}")], answers.append)
    closing = threading.Thread(target=store.close)
    closing.start()
    gate.open()
    closing.join(WAIT_SECONDS)
    assert answers == [None] * 20
    store.submit([stored("late")], answers.append)
    assert answers[-1].kind is FailureKind.CLOSED
    with pytest.raises(StoreError, match="closed"):
        store.restored_records()
    store.close()


def test_what_cannot_be_written_fails_alone(store):
    answers = together(store, [[stored("a")], [stored("b", at_ms=2**70)], [stored("c")]])
    assert [answer and answer.kind for answer in answers] == [None, FailureKind.INVALID, None]
    assert [record.publication.id for record in store.restored_records()] == ["a", "c"]


def test_a_callback_that_raises_does_not_end_the_writer(store):
    def fail(_):
        raise ValueError("the loop is gone")

    store.submit([stored("e1")], fail)
    write(store, stored("e2"))
    assert store.status()["callbacks_failed"] == 1
    assert len(store.restored_records()) == 2
