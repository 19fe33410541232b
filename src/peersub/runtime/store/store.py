"""`Store`: what a node keeps, so that it can keep its word.

Changes are submitted, and written by one thread (`writer`); questions are answered from another
connection, which sees what is committed and waits for nobody. `MemoryStore` is the same in memory,
for a node that is given no folder: what it promises, it promises until it ends.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

from peersub.overlays.core.records import Record
from peersub.overlays.core.store_marks import StoreMark
from peersub.runtime.store import reading
from peersub.runtime.store.applying import Applier
from peersub.runtime.store.changes import Change, CommitsLost
from peersub.runtime.store.facts import (
    INCARNATION,
    NODE_NAME,
    begin_life,
    fact,
    next_incarnation,
    set_fact,
)
from peersub.runtime.store.failures import StoreError, explained
from peersub.runtime.store.folder import DATABASE, create_database, locked, opened, prepared
from peersub.runtime.store.mark_file import MARK, MarkFile, read_mark
from peersub.runtime.store.reading import (
    DurableSubscription,
    LoggedEvent,
    Losses,
    MirroredSubscription,
    RetainedEvent,
    Since,
    StagedEvent,
    store_mark,
)
from peersub.runtime.store.settings import StoreSettings
from peersub.runtime.store.staging import StageState
from peersub.runtime.store.trimming import Cut
from peersub.runtime.store.writer import OnDone, Writer

__all__ = ["MemoryStore", "Store"]

_IN_MEMORY: Final = "memory"


def _wall_clock_ms() -> int:
    return int(time.time() * 1_000)


class Store:
    """A store in a folder. `Store(folder)` opens it, `close` writes what waits and gives it back.

    Questions may be asked from any thread; they raise StoreError if the file cannot be read.

    Args:
        folder: where; it is made if it is not there.
        settings: its bounds.
        now_ms: the clock by which things grow old.

    Raises:
        StoreError: another process uses the folder, a newer version wrote it, or it cannot be used.

    Attributes:
        notices: what people should know about the opening, as sentences: a salvage, above all.
        on_cut: hears, on the writer's thread, which events the log's bounds cut off unread.
        incarnation: the number of this life of the node, larger than those of all earlier ones.
        lives: of the node, this one last, and with how many transactions each began.
        is_complete: whether all is there that earlier lives stored, as far as this folder can tell.
    """

    def __init__(
        self,
        folder: str | Path,
        settings: StoreSettings | None = None,
        now_ms: Callable[[], int] = _wall_clock_ms,
    ) -> None:
        settings = settings or StoreSettings()
        target = Path(folder)
        with ExitStack() as undo:
            undo.enter_context(locked(target))
            try:
                self.notices = prepared(target, settings)
                writing = undo.enter_context(
                    closing(opened(target / DATABASE, settings, writes=True))
                )
                reading = undo.enter_context(
                    closing(opened(target / DATABASE, settings, writes=False))
                )
                remembered, was_closed = read_mark(target / MARK)
                mark_file = undo.enter_context(closing(MarkFile(target / MARK)))
                applier = Applier(writing, settings, now_ms, mark_file)
                found = store_mark(writing)
                is_known = was_closed and remembered is not None and remembered.epoch == found.epoch
                if found.commits and not is_known:
                    applier.log.skip_positions()
                self._begin(str(target), settings, now_ms, applier, (writing, reading), remembered)
            except sqlite3.Error as error:
                raise StoreError(explained(error, str(target)).reason) from error
            except OSError as error:
                raise StoreError(f"{target} cannot be used: {error.strerror or error}") from error
            undo.callback(lambda: mark_file.write_closed(store_mark(writing)))
            # The last connection carries the write-ahead file over into the database.
            self._giving_back = undo.pop_all()

    def _begin(
        self,
        place: str,
        settings: StoreSettings,
        now_ms: Callable[[], int],
        applier: Applier,
        connections: tuple[sqlite3.Connection, sqlite3.Connection],
        remembered: StoreMark | None = None,
    ) -> None:
        writing, self._reading = connections
        self.on_cut: Callable[[Sequence[Cut]], None] | None = None
        applier.on_cut = lambda cuts: self.on_cut(cuts) if self.on_cut is not None else None
        self._place = place
        self._settings = settings
        self._applier = applier
        self._is_closed = False
        # Readers take turns on their connection; in memory there is but one, the writer's.
        self._turn = threading.Lock()
        self.incarnation = next_incarnation(fact(writing, INCARNATION), now_ms())
        if not settings.fsync:
            self.notices.append(
                f"{place} is written without fsync: what was acknowledged in the last seconds is "
                "lost when the machine loses its power"
            )
        found = store_mark(writing)
        lost = 0 if remembered is None else remembered.missing_in(found)
        self.is_complete = remembered is not None and remembered.epoch == found.epoch and not lost
        writing.execute("BEGIN IMMEDIATE")
        if remembered is not None and lost:
            applier.apply([CommitsLost(remembered)])
            self.notices.append(
                f"{place} lost the last {lost:,} transactions that were stored there: its disk "
                "does not keep what it says it keeps. The log begins a new epoch, and consumers of "
                "durable subscriptions are told of a gap"
            )
        set_fact(writing, INCARNATION, str(self.incarnation).encode())
        self.lives = begin_life(writing, self.incarnation)
        applier.finish()
        writing.execute("COMMIT")
        applier.committed()
        in_memory = self._reading is writing
        exclusion: AbstractContextManager[Any] = self._turn if in_memory else nullcontext()
        self._writer = Writer(writing, applier, settings, place, exclusion)

    # --- writing -------------------------------------------------------------------------------

    def submit(self, changes: Sequence[Change], on_done: OnDone) -> None:
        """Store the changes, all or none; never waits.

        `on_done(None)` follows when they would survive a crash of the machine, on the writer's
        thread; `on_done(failure)` if nothing of them is stored: on the writer's thread as well, or
        at once if too much waits already, or the store is closed.
        """
        self._writer.submit(changes, on_done)

    def close(self) -> None:
        """Write what waits, and give the folder back."""
        if self._is_closed:
            return
        self._is_closed = True
        self._writer.close()
        with self._turn:
            self._giving_back.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- the node ------------------------------------------------------------------------------

    @property
    def node_name(self) -> str | None:
        """The name by which others knew the node last."""
        with self._asking() as connection:
            name = fact(connection, NODE_NAME)
        return None if name is None else name.decode()

    @property
    def mark(self) -> StoreMark:
        """How far the store is, without asking the disk; `CommitsLost`: it was once further."""
        return self._applier.mark

    @property
    def log_epoch(self) -> str:
        """Names the log; positions of another epoch mean nothing in this one."""
        return self.mark.epoch

    def restored_records(self) -> tuple[Record, ...]:
        """What the protocol is told when it starts again.

        Its identity, durable subscriptions, and the events of the history: whole where they are not
        known to be handed over, else by name.
        """
        with self._asking() as connection:
            return reading.restored_records(connection)

    def status(self) -> dict[str, int]:
        """Numbers for people: what waits, what was written, what failed, what bounds cut off."""
        counters = self._writer.counters
        return {
            "fsync": self._settings.fsync,
            "backlog": self._writer.backlog,
            "transactions": counters.transactions,
            "changes_written": counters.changes_written,
            "submissions_failed": counters.submissions_failed,
            "backlog_full": counters.backlog_full,
            "callbacks_failed": counters.callbacks_failed,
            "log_bytes": self._applier.log.trimming.bytes,
            "log_trimmed_unread": self._applier.log.trimming.trimmed_unread,
            "mirror_bytes": self._applier.mirror.bytes,
            "mirror_dropped": self._applier.mirror.dropped,
        }

    # --- the log -------------------------------------------------------------------------------

    def durable_subscriptions(self) -> list[DurableSubscription]:
        """All, in the order of their creation."""
        with self._asking() as connection:
            return reading.durable_subscriptions(connection)

    def read_log(
        self, subscription: str, after: int, limit: int, bytes_max: int | None = None
    ) -> list[LoggedEvent]:
        """The first events of a durable subscription after a position, as `reading` says."""
        with self._asking() as connection:
            return reading.read_log(connection, subscription, after, limit, bytes_max)

    def position_for(self, subscription: str, since: Since) -> int | None:
        """The position after which to read; None if there is no such subscription."""
        with self._asking() as connection:
            return reading.position_for(connection, subscription, since)

    def cursor(self, subscription: str) -> int | None:
        """How far the consumer is; None if there is no such subscription."""
        return self.position_for(subscription, None)

    def log_positions(self, subscription: str, event_ids: Sequence[str]) -> dict[str, int]:
        """The positions of those of the events that the log has for a durable subscription."""
        with self._asking() as connection:
            return reading.log_positions(connection, subscription, event_ids)

    def last_position(self) -> int:
        """The position of the newest event that was ever in the log."""
        return self.mark.position

    def trimmed_unread(self, subscription: str) -> int:
        """How many events the log's bounds cut off before the consumer had read them."""
        losses = self.losses(subscription)
        return 0 if losses is None else losses.trimmed

    def losses(self, subscription: str) -> Losses | None:
        """What a durable subscription lost; None if there is no such subscription."""
        with self._asking() as connection:
            return reading.losses(connection, subscription)

    # --- the mirror ----------------------------------------------------------------------------

    def mirrored_subscriptions(self, home: str | None = None) -> list[MirroredSubscription]:
        """Those of one home, or of all."""
        with self._asking() as connection:
            return reading.mirrored_subscriptions(connection, home)

    def retained_events(self, home: str, after: int, limit: int) -> list[RetainedEvent]:
        """The first events retained for a home after a number."""
        with self._asking() as connection:
            return reading.retained_events(connection, home, after, limit)

    def retained_among(self, home: str, name: str, event_ids: Sequence[str]) -> set[str]:
        """Those of the events that are retained for a subscription of a home."""
        with self._asking() as connection:
            return reading.retained_among(connection, home, name, event_ids)

    # --- staged publications -------------------------------------------------------------------

    def stage_state(self, key: str) -> StageState | None:
        """How far the key is; None if it is not known, or forgotten."""
        with self._asking() as connection:
            return reading.stage_state(connection, key)

    def committed_keys(self) -> list[str]:
        """Keys that are committed and not yet published: to be published after a restart."""
        with self._asking() as connection:
            return reading.committed_keys(connection)

    def staged_events(self, key: str, after: int, limit: int) -> list[StagedEvent]:
        """The first publications under a key after a number."""
        with self._asking() as connection:
            return reading.staged_events(connection, key, after, limit)

    @contextmanager
    def _asking(self) -> Iterator[sqlite3.Connection]:
        with self._turn:
            if self._is_closed:
                raise StoreError(f"the store in {self._place} is closed")
            try:
                yield self._reading
            except sqlite3.Error as error:
                raise StoreError(explained(error, self._place).reason) from error


class MemoryStore(Store):
    """The same without a disk: all of it ends with the process."""

    def __init__(
        self, settings: StoreSettings | None = None, now_ms: Callable[[], int] = _wall_clock_ms
    ) -> None:
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        create_database(connection)
        settings = settings or StoreSettings()
        self.notices = []
        applier = Applier(connection, settings, now_ms)
        self._begin(_IN_MEMORY, settings, now_ms, applier, (connection, connection))
        self._giving_back = ExitStack()
        self._giving_back.callback(connection.close)
