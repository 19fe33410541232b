"""The mirror: durable subscriptions of other nodes, and the events retained for them.

An event is one row for each home, with the names it is for, until the home has it for all of them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from peersub.runtime.store.changes import (
    DroppedTold,
    MirrorRemoved,
    MirrorStored,
    ReleaseEvents,
    RetainBatch,
    RetainEvent,
)
from peersub.runtime.store.failures import FailureKind, Refused
from peersub.runtime.store.rows import EVENT_ROW_BYTES, event_columns, names_of, packed
from peersub.runtime.store.settings import StoreSettings
from peersub.runtime.store.trimming import SLACK, account_of

__all__ = ["Mirror"]

_ROW_BYTES: Final = (
    f"({EVENT_ROW_BYTES} + length(attributes) + ifnull(length(body), 0) + length(names))"
)

_INSERT: Final = "INSERT INTO retained VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_AT_ONCE: Final = 512
"""Events that one statement is about."""


class _Account(NamedTuple):
    """Whose bound a retained event counts towards."""

    home: str
    owner: str


class Mirror:
    """The writer's side."""

    def __init__(self, connection: sqlite3.Connection, settings: StoreSettings) -> None:
        self._connection = connection
        self._settings = settings
        (self.bytes,) = connection.execute(
            f"SELECT ifnull(sum({_ROW_BYTES}), 0) FROM retained"
        ).fetchone()
        self._bytes_committed = self.bytes
        self.dropped = 0
        """Events that bounds cut off, for each subscription that wanted them, since opening."""
        self._at_most: dict[_Account, int] = {}
        """By account; how much it is, is only found out when this is too much."""
        self._grown: set[_Account] = set()
        """Accounts whose bound is to be looked at."""
        self.load()

    def load(self) -> None:
        """Begin with what the database has: after opening, or when a transaction failed."""
        self.bytes = self._bytes_committed
        self._names: dict[str, set[str]] = {}
        for home, name in self._connection.execute("SELECT home, name FROM mirrored"):
            self._names.setdefault(home, set()).add(name)
            self._at_most.setdefault(_Account(home, account_of(name)), self.bytes)
        self._grown = set(self._at_most)

    def committed(self) -> None:
        """All is in the database for good."""
        self._bytes_committed = self.bytes

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
        self._at_most.setdefault(_Account(change.home, account_of(change.name)), self.bytes)
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

    def forget_dropped(self, change: DroppedTold) -> None:
        """The home was told of what its subscriptions lost here."""
        self._connection.execute(
            "UPDATE mirrored SET dropped = 0 WHERE home = ? AND dropped", (change.home,)
        )

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
                _INSERT, (change.home, change.at_ms, change.hops, names, *columns)
            )
            self._grow(EVENT_ROW_BYTES + len(columns[2]) + len(columns[3] or b""), names, change)
            return
        names = packed(sorted(wanting.union(names_of(found[0]))))
        self._connection.execute(
            "UPDATE retained SET names = ? WHERE home = ? AND event_id = ?", (names, *place)
        )
        self._grow(-len(found[0]), names, change)

    def _grow(self, size: int, names: bytes, change: RetainEvent) -> None:
        self._grow_for(change.home, names_of(names), size + len(names))

    def _grow_for(self, home: str, names: Iterable[str], size: int) -> None:
        self.bytes += size
        for account in {_Account(home, account_of(name)) for name in names}:
            self._at_most[account] += size
            self._grown.add(account)

    def retain_batch(self, change: RetainBatch) -> None:
        """Keep events of a batch, each for those of the names that are mirrored."""
        home = change.home
        known_names = self._names.get(home, set())
        wanted = {name: rows for name, rows in change.held.wanted if name in known_names}
        held = change.held.within(wanted)
        if held is None:
            return
        known = self._retained_of_batch(home, held.batch.name)
        rows: list[tuple[Any, ...]] = []
        sizes: dict[tuple[str, ...], int] = {}
        packed_names: dict[tuple[str, ...], bytes] = {}
        for each in held.one_by_one():
            if each.publication.name in known:
                self.retain(
                    RetainEvent(home, each.publication, each.names, change.at_ms, each.hops)
                )
                continue
            columns, names = event_columns(each.publication), each.names
            if names not in packed_names:
                packed_names[names] = packed(sorted(names))
            rows.append((home, change.at_ms, each.hops, packed_names[names], *columns))
            size = EVENT_ROW_BYTES + len(columns[2]) + len(columns[3] or b"")
            sizes[names] = sizes.get(names, 0) + size + len(packed_names[names])
        self._connection.executemany(_INSERT, rows)
        for names, size in sizes.items():
            self._grow_for(home, names, size)

    def _retained_of_batch(self, home: str, batch: str) -> set[str]:
        """Those of the events of a batch that are retained: all are named alike."""
        rows = self._connection.execute(
            "SELECT event_id FROM retained WHERE home = ? AND event_id > ? AND event_id < ?",
            (home, f"{batch}/", f"{batch}0"),
        )
        return {event_id for (event_id,) in rows}

    def release(self, change: ReleaseEvents) -> None:
        """The home has the events."""
        names = None if change.names is None else set(change.names)
        for start in range(0, len(change.event_ids), _AT_ONCE):
            part = change.event_ids[start : start + _AT_ONCE]
            places = ", ".join("?" * len(part))
            self._take_out(f"home = ? AND event_id IN ({places})", (change.home, *part), names)

    def _take_out(
        self, condition: str, values: tuple[str | int, ...], names: set[str] | None
    ) -> None:
        """Retain rows no longer for these names, or (None) for nobody."""
        rows = self._connection.execute(
            f"SELECT number, names, {_ROW_BYTES} FROM retained WHERE {condition}", values
        )
        changed: list[tuple[bytes, int]] = []
        gone: list[tuple[int]] = []
        for number, packed_names, size in rows.fetchall():
            left = [] if names is None else [n for n in names_of(packed_names) if n not in names]
            if left:
                again = packed(left)
                changed.append((again, number))
                self.bytes += len(again) - len(packed_names)
            else:
                gone.append((number,))
                self.bytes -= size
        many = self._connection.executemany
        many("UPDATE retained SET names = ? WHERE number = ?", changed)
        many("DELETE FROM retained WHERE number = ?", gone)

    # --- bounds --------------------------------------------------------------------------------

    def trim(self) -> None:
        """Drop what is too much: the oldest events of who has most of them (as `trimming` does)."""
        settings = self._settings
        bound = settings.mirror_bytes_per_client_max
        for account in self._grown:
            if self._at_most[account] > bound:
                total = self._bytes_by_account(account.home).get(account, 0)
                if total > bound:
                    total -= self._drop(account, total - bound + bound // SLACK)
                self._at_most[account] = total
        self._grown = set()
        if self.bytes > settings.mirror_bytes_max:
            self._drop_largest(settings.mirror_bytes_max - settings.mirror_bytes_max // SLACK)

    def _drop_largest(self, bound: int) -> None:
        totals: dict[_Account, int] = {}
        for home in self._names:
            totals.update(self._bytes_by_account(home))
        while self.bytes > bound and any(totals.values()):
            largest = max(totals, key=lambda account: totals[account])
            others = [size for account, size in totals.items() if account != largest]
            excess = totals[largest] - max(others, default=0) + bound // SLACK + 1
            dropped = self._drop(largest, min(self.bytes - bound, excess))
            totals[largest] = max(totals[largest] - dropped, 0) if dropped else 0
        self._at_most.update(totals)

    def _bytes_by_account(self, home: str) -> dict[_Account, int]:
        totals: dict[_Account, int] = {}
        for names, size in self._connection.execute(
            f"SELECT names, {_ROW_BYTES} FROM retained WHERE home = ?", (home,)
        ):
            for account in {_Account(home, account_of(name)) for name in names_of(names)}:
                totals[account] = totals.get(account, 0) + size
        return totals

    def _drop(self, account: _Account, wanted: int) -> int:
        """Drop its oldest events, count for whom; how many bytes it had of them."""
        dropped: dict[str, int] = {}
        rows: list[tuple[int, set[str]]] = []
        cut = 0
        for number, packed_names, size in self._connection.execute(
            f"SELECT number, names, {_ROW_BYTES} FROM retained WHERE home = ? ORDER BY number",
            (account.home,),
        ):
            if cut >= wanted:
                break
            names = {name for name in names_of(packed_names) if account_of(name) == account.owner}
            if names:
                rows.append((number, names))
                cut += size
                for name in names:
                    dropped[name] = dropped.get(name, 0) + 1
        for number, names in rows:
            self._take_out("number = ?", (number,), names)
        for name, count in dropped.items():
            self.dropped += count
            self._connection.execute(
                "UPDATE mirrored SET dropped = dropped + ? WHERE home = ? AND name = ?",
                (count, account.home, name),
            )
        return cut
