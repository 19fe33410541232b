"""What the protocol asks to persist, and what of it needs a disk.

Of events, only those that a durable subscription wants: a subscription that ends with its consumer
has nothing to remember. Records of one turn are written together. If the disk refuses one of them,
each is tried by itself, and whoever asked for that one hears why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from peersub.overlays.core.event_keys import event_id_of
from peersub.overlays.core.records import (
    BatchHandedOver,
    BatchStored,
    EventHandedOver,
    EventStored,
    IdentityStored,
    NeighboursStored,
    Record,
)
from peersub.runtime.store.changes import Change, KeepRecord

__all__ = ["OnPersisted", "RecordKeeping"]

OnPersisted = Callable[[int, str | None], None]
"""Takes the token of a record that is on disk, or never will be, and why."""


class _Submit(Protocol):
    def __call__(
        self, changes: Sequence[Change], then: Callable[[], None], refused: Callable[[str], None]
    ) -> None: ...


class RecordKeeping:
    """Writes records of the protocol.

    Args:
        is_durable: whether a subscription outlives its consumer.
        submit: `DurableSubscriptions.submit`.
        loop: on which answers are given.
    """

    def __init__(
        self,
        is_durable: Callable[[str], bool],
        submit: _Submit,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._is_durable = is_durable
        self._submit = submit
        self._loop = loop
        self._kept: set[str] = set()
        """Events on disk that were not handed over; bounded by the unfinished tasks of the node."""

    def persist(self, records: Sequence[tuple[int, Record]], then: OnPersisted) -> None:
        """Keep what of the records needs a disk.

        `then` runs for each, with its token, when it is there, or with the reason for which it
        never will be.
        """
        self._write([(token, list(self._changes(record))) for token, record in records], then)

    def _write(self, parts: list[tuple[int, list[Change]]], then: OnPersisted) -> None:
        """Write the changes of records together, or one record at a time if one is refused."""
        changes = [change for _, part in parts for change in part]

        def stored() -> None:
            for token, _ in parts:
                then(token, None)

        def refused(reason: str) -> None:
            if len(parts) > 1:
                # One of them is to blame, and the others have nothing to do with it.
                for part in parts:
                    self._write([part], then)
            else:
                self._forget_kept(changes)
                then(parts[0][0], reason)

        if changes:
            self._submit(changes, stored, refused)
        else:
            self._loop.call_soon(stored)

    def _forget_kept(self, changes: Iterable[Change]) -> None:
        """Events are not on disk after all."""
        for change in changes:
            if isinstance(change, KeepRecord) and isinstance(change.record, EventStored):
                self._kept.discard(change.record.publication.name)

    def _changes(self, record: Record) -> Iterator[Change]:
        match record:
            case IdentityStored() | NeighboursStored():
                yield KeepRecord(record)
            case EventStored(publication, names):
                if any(self._is_durable(name) for name in names):
                    self._kept.add(publication.name)
                    yield KeepRecord(record)
            case EventHandedOver(event_id):
                if event_id in self._kept:
                    self._kept.discard(event_id)
                    yield KeepRecord(record)
            case BatchStored():
                for stored in self._stored_of_batch(record):
                    yield from self._changes(stored)
            case BatchHandedOver(batch_id, numbers):
                for number in numbers:
                    event_id = event_id_of(batch_id, number)
                    if event_id in self._kept:
                        self._kept.discard(event_id)
                        yield KeepRecord(EventHandedOver(event_id))
            case _:
                pass

    def _stored_of_batch(self, record: BatchStored) -> Iterator[EventStored]:
        """The events of a batch that durable subscriptions want, one by one."""
        names_of: dict[int, list[str]] = {}
        for name, numbers in record.wanted:
            if self._is_durable(name):
                for number in numbers:
                    names_of.setdefault(number, []).append(name)
        if not names_of:
            return
        batch = record.batch
        for number, event in zip(batch.numbers.tolist(), batch.publications(), strict=True):
            if number in names_of:
                yield EventStored(event, tuple(names_of[number]), record.at_ms, record.hops)
