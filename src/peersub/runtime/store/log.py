"""The log: the events that durable subscriptions matched, in the order of their positions.

Positions grow and are never given twice. Times never fall from one position to the next: a time is
when an event was logged, so that a time is found among positions by halving. What the log's bounds
cut off is decided in `trimming`.

Each event is in the log once for each subscription, however often it comes, as long as the log has
it: what a mirror hands over may have come home in another way.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any, Final

from peersub.overlays.core.publication import Publication
from peersub.runtime.store.changes import (
    DurableAbandoned,
    DurableStored,
    GapNoted,
    LossesTold,
    MoveCursor,
)
from peersub.runtime.store.facts import last_given, set_last_given
from peersub.runtime.store.rows import (
    EVENT_ROW_BYTES,
    event_columns,
    numbers_of,
    packed,
    seal_subscriptions,
)
from peersub.runtime.store.settings import StoreSettings
from peersub.runtime.store.trimming import ENTRY_BYTES, LogTrimming

__all__ = [
    "POSITIONS_SKIPPED",
    "EventLog",
    "next_position",
    "note_gaps",
]


POSITIONS_SKIPPED: Final = 1_000_000_000
"""More than are given between something that a disk, or a backup, has and something that it has
not: none of them is given again."""


def next_position(connection: sqlite3.Connection) -> int:
    """The position that the next event gets."""
    return last_given(connection, "log") + 1


def note_gaps(connection: sqlite3.Connection) -> None:
    """Events of any durable subscription may be missing, nobody knows how many."""
    connection.execute("UPDATE subscriptions SET gaps = gaps + 1")
    seal_subscriptions(connection)


class EventLog:
    """The writer's side: rows are collected, and written by `flush`."""

    def __init__(self, connection: sqlite3.Connection, settings: StoreSettings) -> None:
        self._connection = connection
        self.trimming = LogTrimming(connection, settings)
        self._bytes_committed = self.trimming.bytes
        self._next = 0
        self._number_of: dict[str, int] = {}
        self._rows: list[tuple[Any, ...]] = []
        self._entries: list[tuple[int, int]] = []
        self._collected: dict[str, set[int]] = {}
        self.load()

    def load(self) -> None:
        """Begin with what the database has: after opening, or when a transaction failed.

        Positions that a failed transaction took are not taken again: gaps do no harm.
        """
        execute = self._connection.execute
        self.trimming.bytes = self._bytes_committed
        self._next = max(self._next, next_position(self._connection))
        newest = execute("SELECT at_ms FROM log ORDER BY position DESC LIMIT 1").fetchone()
        self._last_ms = newest[0] if newest else 0
        self._number_of = dict(execute("SELECT name, number FROM subscriptions"))
        self.trimming.use(self._number_of)
        self._clear()

    def committed(self) -> None:
        """All that was flushed is in the database for good."""
        self._bytes_committed = self.trimming.bytes

    def _clear(self) -> None:
        self._rows, self._entries, self._collected = [], [], {}

    # --- events --------------------------------------------------------------------------------

    def append(
        self, publication: Publication, subscriptions: Iterable[str], at_ms: int, hops: int
    ) -> int | None:
        """The position of the event, or None if the log has it for all that are durable."""
        number_of = self._number_of
        if not number_of:
            return None
        wanting = {number_of[name] for name in subscriptions if name in number_of}
        if not wanting:
            return None
        new = sorted(wanting - self._logged_for(publication.name))
        if not new:
            return None
        position, self._next = self._next, self._next + 1
        self._last_ms = max(self._last_ms, at_ms)
        columns, numbers = event_columns(publication), packed(new)
        self._rows.append((position, self._last_ms, hops, numbers, *columns))
        self._entries.extend((number, position) for number in new)
        self._collected.setdefault(publication.name, set()).update(new)
        size = EVENT_ROW_BYTES + len(columns[2]) + len(columns[3] or b"")
        self.trimming.grow(new, size + ENTRY_BYTES * len(numbers))
        return position

    def _logged_for(self, name: str) -> set[int]:
        logged = set(self._collected.get(name, ()))
        for (numbers,) in self._connection.execute(
            "SELECT subscriptions FROM log WHERE event_id = ?", (name,)
        ):
            logged.update(numbers_of(numbers))
        return logged

    def flush(self) -> None:
        """Write what was collected."""
        if self._rows:
            many = self._connection.executemany
            many("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", self._rows)
            many("INSERT INTO log_entries VALUES (?, ?)", self._entries)
            self._clear()

    # --- subscriptions -------------------------------------------------------------------------

    def add_subscription(self, change: DurableStored) -> None:
        """A durable subscription is new, or has another filter; it begins at the log's end."""
        self.flush()
        self._connection.execute(
            "INSERT INTO subscriptions (name, filter, cursor, created_ms) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET filter = excluded.filter",
            (change.name, change.filter.to_bytes(), self._next - 1, change.created_ms),
        )
        found = self._connection.execute(
            "SELECT number FROM subscriptions WHERE name = ?", (change.name,)
        )
        (number,) = found.fetchone()
        self._number_of[change.name] = number
        self.trimming.add(number, change.name)
        seal_subscriptions(self._connection, number)

    def note_abandoned(self, change: DurableAbandoned) -> None:
        """A durable subscription has no consumer, or has one again."""
        self._connection.execute(
            "UPDATE subscriptions SET abandoned_ms = ? WHERE name = ?",
            (change.since_ms, change.name),
        )

    def remove_subscription(self, name: str) -> None:
        """A durable subscription ends. Events that only it wanted stay until the bounds cut."""
        self.flush()
        number = self._number_of.pop(name, None)
        if number is not None:
            self.trimming.remove(number)
            execute = self._connection.execute
            execute("DELETE FROM log_entries WHERE subscription = ?", (number,))
            execute("DELETE FROM subscriptions WHERE number = ?", (number,))

    def skip_positions(self) -> None:
        """Whatever was given before and is forgotten is not given again."""
        self._next += POSITIONS_SKIPPED
        set_last_given(self._connection, "log", self._next - 1)

    def move_cursor(self, change: MoveCursor) -> None:
        """A consumer has read on, or goes back; never beyond what there was."""
        number = self._number_of.get(change.subscription)
        if number is not None:
            condition = "" if change.may_go_back else " AND cursor < ?1"
            if change.may_go_back:
                self.trimming.go_back(number)
            self._connection.execute(
                f"UPDATE subscriptions SET cursor = ?1 WHERE number = ?2{condition}",
                (min(change.position, self._next - 1), number),
            )
            seal_subscriptions(self._connection, number)

    def note_gap(self, change: GapNoted) -> None:
        """Nobody kept events of a subscription for a while."""
        number = self._number_of.get(change.subscription)
        if number is not None:
            self._connection.execute(
                "UPDATE subscriptions SET gaps = gaps + 1 WHERE number = ?", (number,)
            )
            seal_subscriptions(self._connection, number)

    def tell_losses(self, change: LossesTold) -> None:
        """The consumer has heard of what it lost."""
        number = self._number_of.get(change.subscription)
        if number is not None:
            self._connection.execute(
                "UPDATE subscriptions SET trimmed_told = ?, gaps_told = ? WHERE number = ?",
                (change.trimmed, change.gaps, number),
            )
            seal_subscriptions(self._connection, number)

    def go_on_after(self, position: int) -> None:
        """Events were lost, nobody knows which: no position is given again up to this one."""
        self.flush()
        self._next = max(self._next, position + 1)
        set_last_given(self._connection, "log", self._next - 1)
        note_gaps(self._connection)

    def trim(self, now_ms: int) -> None:
        """Keep the log's bounds."""
        self.trimming.trim(now_ms)
