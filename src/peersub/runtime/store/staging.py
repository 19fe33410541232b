"""Staged publications: they wait under a key, and are committed all at once or not at all.

A stage is OPEN, then COMMITTED (to be published, also after a restart), then PUBLISHED: its events
are gone, its key is remembered for a while, so that whoever repeats it learns that it was done.
"""

from __future__ import annotations

import sqlite3
from enum import IntEnum
from typing import Final

from peersub.overlays.core.publication import Publication
from peersub.runtime.store.failures import FailureKind, Refused
from peersub.runtime.store.rows import EVENT_ROW_BYTES, event_columns
from peersub.runtime.store.settings import StoreSettings

__all__ = ["StageState", "Staging"]

_ROW_BYTES: Final = f"({EVENT_ROW_BYTES} + length(attributes) + ifnull(length(body), 0))"


class StageState(IntEnum):
    """How far what was staged under a key is."""

    OPEN = 0
    COMMITTED = 1
    PUBLISHED = 2


class Staging:
    """The writer's side."""

    def __init__(self, connection: sqlite3.Connection, settings: StoreSettings) -> None:
        self._connection = connection
        self._settings = settings
        (self._bytes,) = connection.execute(
            f"SELECT ifnull(sum({_ROW_BYTES}), 0) FROM staged"
        ).fetchone()
        self._bytes_committed = self._bytes

    def load(self) -> None:
        """A transaction failed."""
        self._bytes = self._bytes_committed

    def committed(self) -> None:
        """All is in the database for good."""
        self._bytes_committed = self._bytes

    def stage(self, key: str, publications: tuple[Publication, ...], now_ms: int) -> None:
        """More publications wait under the key."""
        number, state = self._find(key)
        if number is not None and state is not StageState.OPEN:
            raise _already_committed(key)
        execute = self._connection.execute
        if number is None:
            number = execute(
                "INSERT INTO stages (key, state, at_ms) VALUES (?, ?, ?)",
                (key, StageState.OPEN, now_ms),
            ).lastrowid
        for publication in publications:
            columns = event_columns(publication)
            added = execute(
                "INSERT OR IGNORE INTO staged VALUES (NULL, ?, ?, ?, ?, ?, ?)", (number, *columns)
            ).rowcount
            if added:
                self._bytes += EVENT_ROW_BYTES + len(columns[2]) + len(columns[3] or b"")
        if publications and self._bytes > self._settings.staged_bytes_max:
            raise Refused(
                FailureKind.BOUND,
                f"staged publications would take more than {self._settings.staged_bytes_max:,} "
                "bytes: commit or abandon some first",
            )

    def commit(self, key: str, now_ms: int) -> None:
        """What waits under the key is to be published."""
        number, state = self._find(key)
        if number is None:
            raise Refused(FailureKind.NOTHING_STAGED, f"nothing is staged under the key {key!r}")
        if state is not StageState.OPEN:
            raise _already_committed(key)
        self._set_state(number, StageState.COMMITTED, now_ms)

    def abandon(self, key: str) -> None:
        """Forget what waits under the key."""
        number, state = self._find(key)
        if number is None:
            return
        if state is not StageState.OPEN:
            raise _already_committed(key)
        self._forget_events(number)
        self._connection.execute("DELETE FROM stages WHERE number = ?", (number,))

    def published(self, key: str, now_ms: int) -> None:
        """What was committed is published."""
        number, state = self._find(key)
        if number is None or state is StageState.OPEN:
            raise Refused(FailureKind.NOTHING_STAGED, f"the key {key!r} was not committed")
        if state is StageState.COMMITTED:
            self._forget_events(number)
            self._set_state(number, StageState.PUBLISHED, now_ms)

    def _find(self, key: str) -> tuple[int | None, StageState]:
        found = self._connection.execute(
            "SELECT number, state FROM stages WHERE key = ?", (key,)
        ).fetchone()
        return (None, StageState.OPEN) if found is None else (found[0], StageState(found[1]))

    def _set_state(self, number: int, state: StageState, now_ms: int) -> None:
        self._connection.execute(
            "UPDATE stages SET state = ?, at_ms = ? WHERE number = ?", (state, now_ms, number)
        )

    def _forget_events(self, number: int) -> None:
        execute = self._connection.execute
        (size,) = execute(
            f"SELECT ifnull(sum({_ROW_BYTES}), 0) FROM staged WHERE stage = ?", (number,)
        ).fetchone()
        self._bytes -= size
        execute("DELETE FROM staged WHERE stage = ?", (number,))

    def trim(self, now_ms: int) -> None:
        """Abandon what was never committed for long, and forget keys that are old, or too many."""
        execute, settings = self._connection.execute, self._settings
        for number, state in execute(
            "SELECT number, state FROM stages WHERE state = ? AND at_ms < ? "
            "UNION ALL SELECT number, state FROM stages WHERE state = ? AND at_ms < ?",
            (
                *(StageState.OPEN, now_ms - settings.staged_age_ms_max),
                *(StageState.PUBLISHED, now_ms - settings.keys_horizon_ms),
            ),
        ).fetchall():
            if state == StageState.OPEN:
                self._forget_events(number)
            execute("DELETE FROM stages WHERE number = ?", (number,))
        execute(
            "DELETE FROM stages WHERE number IN (SELECT number FROM stages WHERE state = ? "
            "ORDER BY at_ms DESC, number DESC LIMIT -1 OFFSET ?)",
            (StageState.PUBLISHED, settings.keys_max),
        )


def _already_committed(key: str) -> Refused:
    return Refused(FailureKind.ALREADY_COMMITTED, f"the key {key!r} was committed before")
