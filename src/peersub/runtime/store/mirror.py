"""The mirror: durable subscriptions of other nodes, and the events retained for them.

An event is one row for each home, with the names it is for, until the home has it for all of them.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from peersub.runtime.store.changes import MirrorRemoved, MirrorStored, ReleaseEvents, RetainEvent
from peersub.runtime.store.failures import FailureKind, Refused
from peersub.runtime.store.rows import EVENT_ROW_BYTES, event_columns, names_of, packed
from peersub.runtime.store.settings import StoreSettings

__all__ = ["Mirror"]

_ROW_BYTES: Final = (
    f"({EVENT_ROW_BYTES} + length(attributes) + ifnull(length(body), 0) + length(names))"
)


class Mirror:
    """The writer's side."""

    def __init__(self, connection: sqlite3.Connection, settings: StoreSettings) -> None:
        self._connection = connection
        self._settings = settings
        (self._bytes,) = connection.execute(
            f"SELECT ifnull(sum({_ROW_BYTES}), 0) FROM retained"
        ).fetchone()
        self._bytes_committed = self._bytes
        self.dropped = 0
        """Events that bounds cut off, for each subscription that wanted them, since opening."""
        self.load()

    def load(self) -> None:
        """Begin with what the database has: after opening, or when a transaction failed."""
        self._bytes = self._bytes_committed
        self._names: dict[str, set[str]] = {}
        for home, name in self._connection.execute("SELECT home, name FROM mirrored"):
            self._names.setdefault(home, set()).add(name)

    def committed(self) -> None:
        """All is in the database for good."""
        self._bytes_committed = self._bytes

    # --- subscriptions -------------------------------------------------------------------------

    def add(self, change: MirrorStored) -> None:
        """Look after a subscription; one that is known gets the filter and the options."""
        names = self._names.setdefault(change.home, set())
        bound = self._settings.mirror_subscriptions_max
        if change.name not in names and sum(map(len, self._names.values())) >= bound:
            raise Refused(
                FailureKind.BOUND, f"{bound:,} subscriptions of other nodes are mirrored already"
            )
        names.add(change.name)
        self._connection.execute(
            "INSERT INTO mirrored (home, name, filter, options, created_ms) "
            "VALUES (?, ?, ?, ?, ?) ON CONFLICT (home, name) DO UPDATE SET "
            "filter = excluded.filter, options = excluded.options",
            (change.home, change.name, change.filter.to_bytes(), change.options, change.created_ms),
        )

    def remove(self, change: MirrorRemoved) -> None:
        """Look after it no longer."""
        home, name = change.home, change.name
        names = self._names.get(home, set())
        gone = set(names) if name is None else names & {name}
        for one in sorted(gone):
            self._connection.execute(
                "DELETE FROM mirrored WHERE home = ? AND name = ?", (home, one)
            )
        names -= gone
        if gone:
            self._take_out("home = ?", (home,), gone)

    # --- events --------------------------------------------------------------------------------

    def retain(self, change: RetainEvent) -> None:
        """Keep an event for those of the names that are mirrored."""
        wanting = self._names.get(change.home, set()).intersection(change.names)
        if not wanting:
            return
        columns = event_columns(change.publication)
        place = (change.home, columns[0])
        found = self._connection.execute(
            "SELECT names FROM retained WHERE home = ? AND event_id = ?", place
        ).fetchone()
        if found is None:
            names = packed(sorted(wanting))
            self._connection.execute(
                "INSERT INTO retained VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (change.home, change.at_ms, change.hops, names, *columns),
            )
            self._bytes += EVENT_ROW_BYTES + len(columns[2]) + len(columns[3] or b"") + len(names)
            return
        names = packed(sorted(wanting.union(names_of(found[0]))))
        self._connection.execute(
            "UPDATE retained SET names = ? WHERE home = ? AND event_id = ?", (names, *place)
        )
        self._bytes += len(names) - len(found[0])

    def release(self, change: ReleaseEvents) -> None:
        """The home has the events."""
        names = None if change.names is None else set(change.names)
        for event_id in change.event_ids:
            self._take_out("home = ? AND event_id = ?", (change.home, event_id), names)

    def _take_out(self, condition: str, values: tuple[str, ...], names: set[str] | None) -> None:
        """Retain rows no longer for these names, or (None) for nobody."""
        execute = self._connection.execute
        rows = execute(
            f"SELECT number, names, {_ROW_BYTES} FROM retained WHERE {condition}", values
        )
        for number, packed_names, size in rows.fetchall():
            left = [] if names is None else [n for n in names_of(packed_names) if n not in names]
            if left:
                again = packed(left)
                execute("UPDATE retained SET names = ? WHERE number = ?", (again, number))
                self._bytes += len(again) - len(packed_names)
            else:
                execute("DELETE FROM retained WHERE number = ?", (number,))
                self._bytes -= size

    # --- bounds --------------------------------------------------------------------------------

    def trim(self) -> None:
        """Drop the oldest events if there is too much, and count for whom."""
        if self._bytes <= self._settings.mirror_bytes_max:
            return
        execute = self._connection.execute
        cut = 0
        dropped: dict[tuple[str, str], int] = {}
        for number, home, names, size in execute(
            f"SELECT number, home, names, {_ROW_BYTES} FROM retained ORDER BY number"
        ):
            if self._bytes <= self._settings.mirror_bytes_max:
                break
            cut = number
            self._bytes -= size
            for name in names_of(names):
                dropped[home, name] = dropped.get((home, name), 0) + 1
        execute("DELETE FROM retained WHERE number <= ?", (cut,))
        for (home, name), count in dropped.items():
            self.dropped += count
            execute(
                "UPDATE mirrored SET dropped = dropped + ? WHERE home = ? AND name = ?",
                (count, home, name),
            )
