"""Random programs of changes, against a store of plain dictionaries and lists."""

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from peersub.overlays.core.records import DurableSubscriptionStored, EventStored
from peersub.runtime.store import FailureKind, StoreSettings
from peersub.runtime.store.changes import (
    AbandonStaged,
    AppendToLog,
    CommitStaged,
    DurableRemoved,
    KeepRecord,
    MirrorRemoved,
    MirrorStored,
    MoveCursor,
    ReleaseEvents,
    RetainEvent,
    StagedPublished,
    StagePublications,
)
from runtime.store.store_helpers import (
    BEGIN_MS,
    WANTED,
    Clock,
    durable,
    event,
    handed_over,
    make,
    outcome,
    seen_name,
    write,
)
from strategies import examples

HISTORY_MAX = 6
subscriptions = st.sampled_from(["d", "f", "g"])
several = st.lists(st.sampled_from(["d", "f", "g", "s"]), min_size=1, unique=True).map(tuple)
events = st.sampled_from([f"e{number}" for number in range(8)])
homes = st.sampled_from(["n1", "n2"])
keys = st.sampled_from(["k", "l"])


class Model:
    """What a store should hold."""

    def __init__(self) -> None:
        self.position = 0
        self.durables: dict[str, int] = {}
        self.log: dict[str, list[tuple[int, str]]] = {}
        self.history: list[str] = []
        self.kept: dict[str, tuple[str, ...]] = {}
        self.mirrored: set[tuple[str, str]] = set()
        self.retained: dict[tuple[str, str], set[str]] = {}
        self.stages: dict[str, list[Any]] = {}

    def append(self, name: str, wanting: tuple[str, ...]) -> None:
        new = [
            one
            for one in wanting
            if one in self.durables and name not in [had for _, had in self.log[one]]
        ]
        if new:
            self.position += 1
            for one in new:
                self.log[one].append((self.position, name))


class StoreMachine(RuleBasedStateMachine):
    @initialize(kind=st.sampled_from(["folder", "memory"]))
    def begin(self, kind):
        self.kind = kind
        self.temporary = tempfile.TemporaryDirectory()
        self.clock = Clock()
        self.model = Model()
        self.open()

    def open(self):
        settings = StoreSettings(history_events_max=HISTORY_MAX, history_retry_ms=0)
        self.store = make(self.kind, Path(self.temporary.name), settings, self.clock)

    def teardown(self):
        if hasattr(self, "store"):
            self.store.close()
            self.temporary.cleanup()

    @rule()
    def open_again(self):
        if self.kind == "folder":
            epoch, life = self.store.log_epoch, self.store.incarnation
            self.store.close()
            self.open()
            assert self.store.log_epoch == epoch
            assert self.store.incarnation > life
            assert self.store.notices == []

    # --- events and the log --------------------------------------------------------------------

    @rule(name=events, wanting=several)
    def store_event(self, name, wanting):
        write(self.store, KeepRecord(EventStored(event(name), wanting, BEGIN_MS, 1)))
        self.model.append(name, wanting)
        if name not in self.model.kept:
            self.model.kept[name] = wanting
            self.model.history.append(name)

    @rule(names=st.lists(events, max_size=4))
    def hand_over(self, names):
        write(self.store, *map(handed_over, names))
        for name in names:
            self.model.kept.pop(name, None)

    @rule(name=events, wanting=several)
    def append(self, name, wanting):
        write(self.store, AppendToLog(event(name), wanting, BEGIN_MS))
        self.model.append(name, wanting)

    @rule(name=subscriptions)
    def subscribe(self, name):
        write(self.store, durable(name))
        self.model.durables.setdefault(name, self.model.position)
        self.model.log.setdefault(name, [])

    @rule(name=subscriptions)
    def unsubscribe(self, name):
        write(self.store, DurableRemoved(name))
        self.model.durables.pop(name, None)
        self.model.log.pop(name, None)

    @rule(name=subscriptions, position=st.integers(0, 20), back=st.booleans())
    def move_cursor(self, name, position, back):
        write(self.store, MoveCursor(name, position, back))
        # A cursor beyond all positions would pass over events that are still to come.
        position = min(position, self.model.position)
        if name in self.model.durables and (back or position > self.model.durables[name]):
            self.model.durables[name] = position

    # --- the mirror ----------------------------------------------------------------------------

    @rule(home=homes, name=subscriptions)
    def mirror(self, home, name):
        write(self.store, MirrorStored(home, name, WANTED, b"", BEGIN_MS))
        self.model.mirrored.add((home, name))

    @rule(home=homes, name=st.none() | subscriptions)
    def stop_mirroring(self, home, name):
        write(self.store, MirrorRemoved(home, name))
        gone = {pair for pair in self.model.mirrored if pair[0] == home and name in (None, pair[1])}
        self.model.mirrored -= gone
        self.release_in_model(home, None, {one for _, one in gone})

    @rule(home=homes, name=events, wanting=several)
    def retain(self, home, name, wanting):
        write(self.store, RetainEvent(home, event(name), wanting, BEGIN_MS))
        known = {one for one in wanting if (home, one) in self.model.mirrored}
        if known:
            self.model.retained.setdefault((home, name), set()).update(known)

    @rule(home=homes, names=st.lists(events, max_size=3).map(tuple), wanting=st.none() | several)
    def release(self, home, names, wanting):
        write(self.store, ReleaseEvents(home, names, wanting))
        self.release_in_model(home, names, None if wanting is None else set(wanting))

    def release_in_model(self, home, names, wanting):
        for place in list(self.model.retained):
            if place[0] == home and (names is None or place[1] in names):
                self.model.retained[place] -= (
                    set(self.model.retained[place]) if wanting is None else wanting
                )
                if not self.model.retained[place]:
                    del self.model.retained[place]

    # --- stages --------------------------------------------------------------------------------

    @rule(key=keys, names=st.lists(events, max_size=3))
    def stage(self, key, names):
        found = self.model.stages.get(key, ["open", []])
        answer = outcome(self.store, StagePublications(key, tuple(map(event, names))))
        if found[0] != "open":
            assert answer.kind is FailureKind.ALREADY_COMMITTED
            return
        assert answer is None
        found[1] += [name for name in dict.fromkeys(names) if name not in found[1]]
        self.model.stages[key] = found

    @rule(key=keys, other=events)
    def commit(self, key, other):
        found = self.model.stages.get(key)
        # With an event in the same submission: it is stored only if the commit is.
        answer = outcome(self.store, handed_over(other), CommitStaged(key))
        if found is None:
            assert answer.kind is FailureKind.NOTHING_STAGED
        elif found[0] != "open":
            assert answer.kind is FailureKind.ALREADY_COMMITTED
        else:
            assert answer is None
            found[0] = "committed"
            self.model.kept.pop(other, None)

    @rule(key=keys)
    def abandon(self, key):
        found = self.model.stages.get(key)
        answer = outcome(self.store, AbandonStaged(key))
        if found is not None and found[0] != "open":
            assert answer.kind is FailureKind.ALREADY_COMMITTED
        else:
            assert answer is None
            self.model.stages.pop(key, None)

    @rule(key=keys)
    def publish(self, key):
        found = self.model.stages.get(key)
        answer = outcome(self.store, StagedPublished(key))
        if found is None or found[0] == "open":
            assert answer.kind is FailureKind.NOTHING_STAGED
        else:
            assert answer is None
            self.model.stages[key] = ["published", []]

    # --- the same answers ----------------------------------------------------------------------

    @invariant()
    def answers_are_the_models(self):
        if not hasattr(self, "store"):
            return
        store, model = self.store, self.model
        cursors = {found.name: found.cursor for found in store.durable_subscriptions()}
        assert cursors == model.durables
        for name, log in model.log.items():
            entries = store.read_log(name, 0, 1_000)
            assert [(entry.position, entry.publication.id) for entry in entries] == log
        self.check_restored()
        found = {(one.home, one.name) for one in store.mirrored_subscriptions()}
        assert found == model.mirrored
        for home in ("n1", "n2"):
            retained = store.retained_events(home, 0, 1_000)
            assert {(home, one.publication.id): set(one.names) for one in retained} == {
                place: names for place, names in model.retained.items() if place[0] == home
            }
        for key in ("k", "l"):
            state, names = model.stages.get(key, (None, []))
            answer = store.stage_state(key)
            assert (None if answer is None else answer.name.lower()) == state
            staged = store.staged_events(key, 0, 1_000)
            assert [one.publication.id for one in staged] == names

    def check_restored(self):
        records = [
            record
            for record in self.store.restored_records()
            if not isinstance(record, DurableSubscriptionStored)
        ]
        kept = {
            record.publication.id: record.subscriptions
            for record in records
            if isinstance(record, EventStored)
        }
        assert kept == self.model.kept
        names = [
            seen_name(record.publication.id) if isinstance(record, EventStored) else record.event_id
            for record in records
        ]
        # What is kept is there beyond the bound of the history.
        assert names[len(names) - min(HISTORY_MAX, len(self.model.history)) :] == [
            seen_name(name) for name in self.model.history[-HISTORY_MAX:]
        ]


StoreMachine.TestCase.settings = examples(40)
TestStoreMachine = StoreMachine.TestCase
