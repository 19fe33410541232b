"""From changes to rows: each kind of change has one way into the tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from peersub.overlays.core.records import (
    EventHandedOver,
    EventSeen,
    EventStored,
    IdentityStored,
    NeighboursStored,
    Record,
)
from peersub.runtime.store import changes as kinds
from peersub.runtime.store.facts import (
    IDENTITY,
    NEIGHBOURS,
    NODE_NAME,
    count_commit,
    new_epoch,
    set_fact,
)
from peersub.runtime.store.history import EventHistory
from peersub.runtime.store.log import EventLog, note_gaps
from peersub.runtime.store.mark_file import MarkFile
from peersub.runtime.store.mirror import Mirror
from peersub.runtime.store.reading import store_mark
from peersub.runtime.store.settings import StoreSettings
from peersub.runtime.store.staging import Staging
from peersub.runtime.store.trimming import Cut
from peersub.wire import encode_record

__all__ = ["Applier"]


class Applier:
    """Applies changes within a transaction that the writer begins and ends.

    `finish` comes before the commit, and then `committed`, or `rolled_back` if there is none.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        settings: StoreSettings,
        now_ms: Callable[[], int],
        mark_file: MarkFile | None = None,
    ) -> None:
        self._connection = connection
        self._mark_file = mark_file
        self.on_cut: Callable[[Sequence[Cut]], object] | None = None
        """Hears which events the log's bounds cut off unread, once they are gone for good."""
        self._now_ms = now_ms
        self.history = EventHistory(connection, settings)
        self.log = EventLog(connection, settings)
        self.mirror = Mirror(connection, settings)
        self.staging = Staging(connection, settings)
        self._staging_changed = True
        self.mark = store_mark(connection)
        """How far what is committed goes; read by other threads."""
        self._ways: dict[type, Callable[[Any], None]] = {
            kinds.KeepRecord: lambda change: self._keep(change.record),
            kinds.AppendToLog: self._append,
            kinds.MoveCursor: self.log.move_cursor,
            kinds.DurableStored: self.log.add_subscription,
            kinds.DurableAbandoned: self.log.note_abandoned,
            kinds.DurableRemoved: lambda change: self.log.remove_subscription(change.name),
            kinds.GapNoted: self.log.note_gap,
            kinds.LossesTold: self.log.tell_losses,
            kinds.CommitsLost: self._begin_epoch,
            kinds.MirrorStored: self.mirror.add,
            kinds.MirrorRemoved: self.mirror.remove,
            kinds.DroppedTold: self.mirror.forget_dropped,
            kinds.RetainEvent: self.mirror.retain,
            kinds.RetainBatch: self.mirror.retain_batch,
            kinds.ReleaseEvents: self.mirror.release,
            kinds.StagePublications: self._stage,
            kinds.CommitStaged: self._commit_staged,
            kinds.AbandonStaged: self._abandon_staged,
            kinds.StagedPublished: self._staged_published,
            kinds.NameNode: lambda change: set_fact(connection, NODE_NAME, change.name.encode()),
        }

    def apply(self, changes: Iterable[kinds.Change]) -> None:
        """Take the changes of a submission in.

        Raises:
            Refused: the present state does not allow one of them.
            sqlite3.Error: the disk does not.
            ValueError: one of them cannot be written at all.
        """
        ways = self._ways
        for change in changes:
            ways[type(change)](change)

    def finish(self) -> None:
        """Write what is left, and keep the bounds."""
        self.history.flush()
        self.log.flush()
        now_ms = self._now_ms()
        self.history.trim(now_ms)
        self.log.trim(now_ms)
        self.mirror.trim()
        if self._staging_changed:
            self.staging.trim(now_ms)
        count_commit(self._connection)

    def committed(self) -> None:
        """The transaction is in the database for good."""
        self._staging_changed = False
        for part in (self.log, self.mirror, self.staging):
            part.committed()
        cuts, self.log.trimming.cuts = self.log.trimming.cuts, []
        if cuts and self.on_cut is not None:
            self.on_cut(cuts)
        self.mark = store_mark(self._connection)
        if self._mark_file is not None:
            self._mark_file.write(self.mark)

    def rolled_back(self) -> None:
        """The transaction never happened."""
        for part in (self.history, self.log, self.mirror, self.staging):
            part.load()

    # --- changes -------------------------------------------------------------------------------

    def _keep(self, record: Record) -> None:
        if isinstance(record, EventStored):
            position = self.log.append(
                record.publication, record.subscriptions, record.at_ms, record.hops
            )
            self.history.keep(record, position)
        elif isinstance(record, EventHandedOver):
            self.history.hand_over(record.event_id)
        elif isinstance(record, EventSeen):
            self.history.add(record.event_id, record.at_ms)
        elif isinstance(record, IdentityStored):
            set_fact(self._connection, IDENTITY, record.identity)
        elif isinstance(record, NeighboursStored):
            set_fact(self._connection, NEIGHBOURS, encode_record(record))

    def _append(self, change: kinds.AppendToLog) -> None:
        self.log.append(change.publication, change.subscriptions, change.at_ms, change.hops)

    def _begin_epoch(self, change: kinds.CommitsLost) -> None:
        if change.mark is None:
            new_epoch(self._connection)
            self.log.flush()
            self.log.skip_positions()
            note_gaps(self._connection)
        elif change.mark.missing_in(store_mark(self._connection)):
            new_epoch(self._connection)
            self.log.go_on_after(change.mark.position)

    def _stage(self, change: kinds.StagePublications) -> None:
        self._staging_changed = True
        self.staging.stage(change.key, change.publications, self._now_ms())

    def _commit_staged(self, change: kinds.CommitStaged) -> None:
        self.staging.commit(change.key, self._now_ms())

    def _abandon_staged(self, change: kinds.AbandonStaged) -> None:
        self.staging.abandon(change.key)

    def _staged_published(self, change: kinds.StagedPublished) -> None:
        self._staging_changed = True
        self.staging.published(change.key, self._now_ms())
