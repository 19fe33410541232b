"""What tests of the store share: events, submissions that are waited for, a clock to move."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peersub.filters import Filter
from peersub.overlays.core.event_keys import key_of_id, name_of_key
from peersub.overlays.core.publication import Delivery, Publication
from peersub.overlays.core.records import EventHandedOver, EventStored
from peersub.runtime.store import MemoryStore, Store, StoreFailure, StoreSettings
from peersub.runtime.store.changes import Change, DurableStored, KeepRecord
from peersub.wire import sealed

BEGIN_MS = 1_700_000_000_000
WANTED = Filter("a = 1")
WAIT_SECONDS = 60
"""Before a test gives up on what must happen; nothing is measured by it."""


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.ms = BEGIN_MS

    def __call__(self) -> int:
        return self.ms


def event(name: str, body: bytes | None = None, **attributes: Any) -> Publication:
    content = attributes or {"a": 1, "name": name}
    return sealed(Publication(name, content, body, delivery=Delivery.AT_LEAST_ONCE))


def stored(name: str, *subscriptions: str, at_ms: int = BEGIN_MS, size: int = 0) -> KeepRecord:
    body = bytes(size) if size else None
    return KeepRecord(EventStored(event(name, body), subscriptions or ("s",), at_ms, 2))


def handed_over(name: str) -> KeepRecord:
    return KeepRecord(EventHandedOver(name))


def durable(name: str, wanted: Filter = WANTED) -> DurableStored:
    return DurableStored(name, wanted, BEGIN_MS)


def outcome(store: Store, *changes: Change) -> StoreFailure | None:
    """Submit, and wait for the answer."""
    done = threading.Event()
    answers: list[StoreFailure | None] = []

    def on_done(failure: StoreFailure | None) -> None:
        answers.append(failure)
        done.set()

    store.submit(changes, on_done)
    assert done.wait(WAIT_SECONDS)
    assert len(answers) == 1
    return answers[0]


def write(store: Store, *changes: Change) -> None:
    assert outcome(store, *changes) is None


def logged(store: Store, subscription: str, after: int = 0) -> list[str]:
    return [entry.publication.id for entry in store.read_log(subscription, after, 1_000_000)]


def described(publication: Publication) -> tuple[Any, ...]:
    content = dict(publication.attributes)
    return publication.id, publication.delivery, content, publication.body


def make(kind: str, folder: Path, settings: StoreSettings, clock: Clock) -> Store:
    return MemoryStore(settings, clock) if kind == "memory" else Store(folder, settings, clock)


class Gate:
    """Holds the writer up: its first submission's answer waits until the gate opens."""

    def __init__(self, store: Store) -> None:
        self._open = threading.Event()
        self.is_reached = threading.Event()
        store.submit([], self._pass)
        assert self.is_reached.wait(WAIT_SECONDS)

    def _pass(self, _: StoreFailure | None) -> None:
        self.is_reached.set()
        assert self._open.wait(WAIT_SECONDS)

    def open(self) -> None:
        self._open.set()


def together(store: Store, submissions: Sequence[Sequence[Change]]) -> list[StoreFailure | None]:
    """The answers to submissions that become one transaction, if the writer does it right."""
    gate = Gate(store)
    answers: list[StoreFailure | None] = []
    done = threading.Event()
    for changes in submissions:
        store.submit(changes, answers.append)
    store.submit([], lambda _: done.set())
    gate.open()
    assert done.wait(WAIT_SECONDS)
    return answers


def seen_name(event_id: str) -> str:
    """What the history holds of an event whose key follows from its id."""
    return name_of_key(key_of_id(event_id))
