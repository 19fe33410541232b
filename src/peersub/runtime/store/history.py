"""The deduplication history, and the events that came home and are not handed over yet.

Both only ever grow at the end and shrink at the front or by number, so neither needs an index:
which row has the event that was handed over, the writer knows.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from peersub.overlays.core.event_keys import name_of_key
from peersub.overlays.core.publication import Publication
from peersub.overlays.core.records import EventSeen, EventStored, Record
from peersub.runtime.store.failures import FailureKind, Refused
from peersub.runtime.store.rows import event_columns, event_of, names_of, packed
from peersub.runtime.store.settings import StoreSettings

__all__ = ["EventHistory", "restored_events"]


class EventHistory:
    """The writer's side: rows are collected, and written by `flush`."""

    def __init__(self, connection: sqlite3.Connection, settings: StoreSettings) -> None:
        self._connection = connection
        self._settings = settings
        self._last = 0
        self._number_of_kept: dict[str, int] = {}
        self._seen: list[tuple[int, str, int]] = []
        self._kept: list[tuple[Any, ...]] = []
        self._handed_over: list[tuple[int]] = []
        self.load()

    def load(self) -> None:
        """Begin with what the database has: after opening, or when a transaction failed.

        Numbers that a failed transaction took are not taken again: gaps do no harm.
        """
        execute = self._connection.execute
        (last,) = execute(
            "SELECT max((SELECT ifnull(max(number), 0) FROM history), "
            "(SELECT ifnull(max(number), 0) FROM kept))"
        ).fetchone()
        self._last = max(self._last, last)
        rows = execute("SELECT event_id, number FROM kept ORDER BY number")
        self._number_of_kept = dict(rows)
        self._seen, self._kept, self._handed_over = [], [], []

    def add(self, event_id: str, at_ms: int) -> int:
        """The event came home; returns the number of its row."""
        self._last += 1
        self._seen.append((self._last, event_id, at_ms))
        return self._last

    def keep(self, record: EventStored, logged_at: int | None) -> None:
        """The event came home and is to be handed over; if it is in the log, the log holds it."""
        publication = record.publication
        if publication.name in self._number_of_kept:
            return
        if len(self._number_of_kept) >= self._settings.kept_events_max:
            raise Refused(
                FailureKind.BOUND,
                f"{self._settings.kept_events_max:,} events wait to be handed over already",
            )
        number = self.add(name_of_key(publication.key), record.at_ms)
        self._number_of_kept[publication.name] = number
        columns = event_columns(publication) if logged_at is None else _only_name(publication)
        names = packed(record.subscriptions)
        self._kept.append((number, logged_at, names, record.at_ms, record.hops, *columns))

    def hand_over(self, event_id: str) -> None:
        """The event need not be kept any longer; its row in the history stays."""
        number = self._number_of_kept.pop(event_id, None)
        if number is not None:
            self._handed_over.append((number,))

    def flush(self) -> None:
        """Write what was collected."""
        many = self._connection.executemany
        if self._seen:
            many("INSERT INTO history VALUES (?, ?, ?)", self._seen)
            self._seen = []
        if self._kept:
            many("INSERT INTO kept VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", self._kept)
            self._kept = []
        if self._handed_over:
            many("DELETE FROM kept WHERE number = ?", self._handed_over)
            self._handed_over = []

    def trim(self, now_ms: int) -> None:
        """Forget what is too old, or too much."""
        execute, settings = self._connection.execute, self._settings
        execute(
            "DELETE FROM history WHERE number <= ? AND at_ms <= ?",
            (self._last - settings.history_events_max, now_ms - settings.history_retry_ms),
        )
        oldest = now_ms - settings.history_horizon_ms
        found = execute("SELECT at_ms FROM history ORDER BY number LIMIT 1").fetchone()
        if found is not None and found[0] < oldest:
            # Times rise with numbers but for jumps of the clock: stop at the first that is young.
            execute(
                "DELETE FROM history WHERE number < ifnull((SELECT number FROM history "
                "WHERE at_ms >= ? ORDER BY number LIMIT 1), ?)",
                (oldest, self._last + 1),
            )


def _only_name(publication: Publication) -> tuple[str, int, bytes, None, int]:
    return publication.name, publication.delivery, b"", None, 0


def restored_events(connection: sqlite3.Connection) -> list[Record]:
    """What a home is told after a restart, in the order in which it happened.

    Events that are kept are whole, the others are names. An event that is neither kept nor in the
    log any more (the log's bounds cut it off) counts as handed over.
    """
    kept: dict[int, EventStored] = {}
    for number, names, at_ms, hops, *columns in connection.execute(
        "SELECT kept.number, kept.subscriptions, kept.at_ms, kept.hops, kept.event_id, "
        "ifnull(log.delivery, kept.delivery), ifnull(log.attributes, kept.attributes), "
        "ifnull(log.body, kept.body), ifnull(log.checked, kept.checked) "
        "FROM kept LEFT JOIN log ON log.position = kept.position ORDER BY kept.number"
    ):
        publication = event_of(columns)
        if publication is not None:
            kept[number] = EventStored(publication, tuple(names_of(names)), at_ms, hops)
    records: list[Record] = []
    for number, event_id, at_ms in connection.execute("SELECT * FROM history ORDER BY number"):
        stored = kept.pop(number, None)
        records.append(EventSeen(event_id, at_ms) if stored is None else stored)
    return [*kept.values(), *records]
