"""The writer: one thread that turns many submissions into few transactions.

While a transaction is on its way to the disk, submissions gather; all of them are the next one.
A submission is stored as a whole or not at all, and one that cannot be stored costs the others
nothing: the transaction is done again without it. When the disk itself refuses, each submission is
tried by itself, so that a small one may still find room.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from peersub.runtime.store.applying import Applier
from peersub.runtime.store.changes import Change, bytes_of
from peersub.runtime.store.failures import FailureKind, StoreFailure, explained
from peersub.runtime.store.settings import StoreSettings

__all__ = ["OnDone", "Writer", "WriterCounters"]

OnDone: TypeAlias = Callable[[StoreFailure | None], None]
"""Told that a submission is on disk (None), or why nothing of it is. It must not raise."""

_ADVICE_FULL: Final = "the disk is slower than what comes in; try again later"


@dataclass(slots=True)
class WriterCounters:
    """What the writer did since the store was opened."""

    transactions: int = 0
    changes_written: int = 0
    submissions_failed: int = 0
    backlog_full: int = 0
    """Submissions that failed because too much waited already."""
    callbacks_failed: int = 0


class _Submission(NamedTuple):
    changes: Sequence[Change]
    on_done: OnDone
    size: int


class Writer:
    """Owns the connection that writes. `exclusion` is held while a transaction is under way."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        applier: Applier,
        settings: StoreSettings,
        place: str,
        exclusion: AbstractContextManager[Any],
    ) -> None:
        self.counters = WriterCounters()
        self._connection = connection
        self._applier = applier
        self._settings = settings
        self._place = place
        self._exclusion = exclusion
        self._waiting: deque[_Submission] = deque()
        self._backlog_changes = 0
        self._backlog_bytes = 0
        self._is_closing = False
        self._is_astray = False
        """Whether what the applier believes may differ from what the database has."""
        self._changed = threading.Condition(threading.Lock())
        self._thread = threading.Thread(target=self._run, name="peersub store", daemon=True)
        self._thread.start()

    @property
    def backlog(self) -> int:
        """Changes that are not on disk yet."""
        return self._backlog_changes

    def submit(self, changes: Sequence[Change], on_done: OnDone) -> None:
        """Ask for the changes to be stored; never waits.

        `on_done` is called on the writer's thread, or, if there is no room or the store is closed,
        at once on the caller's.
        """
        size = sum(map(bytes_of, changes))
        settings = self._settings
        with self._changed:
            if self._is_closing:
                failure = StoreFailure(FailureKind.CLOSED, f"the store in {self._place} is closed")
            elif self._backlog_changes and (
                self._backlog_changes + len(changes) > settings.backlog_changes_max
                or self._backlog_bytes + size > settings.backlog_bytes_max
            ):
                self.counters.backlog_full += 1
                failure = StoreFailure(
                    FailureKind.BACKLOG_FULL,
                    f"{self._backlog_changes:,} changes wait for the store in {self._place} "
                    f"already: {_ADVICE_FULL}",
                )
            else:
                self._waiting.append(_Submission(changes, on_done, size))
                self._backlog_changes += len(changes)
                self._backlog_bytes += size
                self._changed.notify()
                return
        self._tell(on_done, failure)

    def close(self) -> None:
        """Write what waits, then end; what is submitted from now on fails."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join()

    # --- on the writer's thread ------------------------------------------------------------------

    def _run(self) -> None:
        while group := self._next_group():
            failures = self._write(group)
            # Whoever hears that there is room again finds it.
            with self._changed:
                for submission in group:
                    self._backlog_changes -= len(submission.changes)
                    self._backlog_bytes -= submission.size
            for submission in group:
                self._tell(submission.on_done, failures.get(id(submission)))

    def _next_group(self) -> list[_Submission]:
        """What is to be written together; empty when all is written and the store closes."""
        with self._changed:
            while not self._waiting and not self._is_closing:
                self._changed.wait()
            group: list[_Submission] = []
            count = 0
            while self._waiting and count < self._settings.group_changes_max:
                submission = self._waiting.popleft()
                group.append(submission)
                count += len(submission.changes)
            return group

    def _write(self, group: list[_Submission]) -> dict[int, StoreFailure]:
        """Write the group; the failures of those that could not be, by the submission's id."""
        failures: dict[int, StoreFailure] = {}
        left = group
        while left:
            culprit, error = self._attempt(left)
            if error is None:
                break
            if culprit is None and len(left) > 1:
                # The disk refused the whole: whom it would take, only trying each can tell.
                for submission in left:
                    failures.update(self._write([submission]))
                break
            failed = culprit or left[0]
            left = [submission for submission in left if submission is not failed]
            failures[id(failed)] = explained(error, self._place)
        return failures

    def _attempt(self, group: list[_Submission]) -> tuple[_Submission | None, Exception | None]:
        """Write the group in one transaction; else, what was wrong, and with which if known."""
        applier, execute = self._applier, self._connection.execute
        applied: _Submission | None = None
        with self._exclusion:
            try:
                if self._is_astray:
                    applier.rolled_back()
                    self._is_astray = False
                execute("BEGIN IMMEDIATE")
                for applied in group:
                    applier.apply(applied.changes)
                applied = None
                applier.finish()
                execute("COMMIT")
            except Exception as error:
                # Whatever it is, nobody but this group may suffer from it.
                self._roll_back()
                return (None if isinstance(error, sqlite3.Error) else applied), error
            applier.committed()
        self.counters.transactions += 1
        self.counters.changes_written += sum(len(submission.changes) for submission in group)
        return None, None

    def _roll_back(self) -> None:
        self._is_astray = True
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self._applier.rolled_back()
        except sqlite3.Error:
            # The file cannot be read either: nothing is written until it can.
            return
        self._is_astray = False

    def _tell(self, on_done: OnDone, failure: StoreFailure | None) -> None:
        if failure is not None:
            self.counters.submissions_failed += 1
        try:
            on_done(failure)
        except Exception:
            # The writer must outlive whoever it tells.
            self.counters.callbacks_failed += 1
