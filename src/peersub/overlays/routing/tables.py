"""`EdgeTable`: the rows on one publishing edge, f(u -> v), as the peer at its end wants them.

A table has the rows that the peer *told*, and rows that are *held* (digest section 7, "make before
break"): those of a lost edge whose scope this one takes over, or of a neighbour whose scope is
split. Held rows stay until the peer has told its rows for the present scope, so that no filter is
missing in between.

An update may come in chunks; nothing of it is used before the last one is there. Then the rows must
have the digest that the update names. If they have not, both the old and the new rows are held, and
the peer is asked for the whole table.

What the table does with an event: rows for control notifications answer for those, and rows for
events for the rest; a subscription to everything does not attract the overlay's own traffic. A
table of which nothing is known yet, told or held, wants everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from peersub.overlays.core.publication import Publication
from peersub.overlays.routing.control_filters import KEY_ATTRIBUTE, holds_key
from peersub.overlays.routing.folding import joined_control
from peersub.overlays.routing.messages import Entry, EntryKey, FilterUpdate
from peersub.overlays.routing.rows import NO_ROWS, Rows, row_key
from peersub.overlays.routing.topology import NOWHERE, Reach, Scope

__all__ = ["CHUNKS_MAX", "EdgeTable", "Outcome"]

CHUNKS_MAX: Final = 4_096
"""Chunks of one update that are collected."""


class Outcome(Enum):
    """What became of an update."""

    INCOMPLETE = "incomplete"
    APPLIED = "applied"
    MISMATCH = "mismatch"
    WHOLE_MISMATCH = "whole table mismatch"


class EdgeTable:
    """The rows on one edge.

    Args:
        version: the responsibility that the peer was last told; updates for others before the
            table was made are none for it.
    """

    __slots__ = (
        *("_held", "_held_until", "_joined", "_since", "_staged", "_told", "_whole"),
        *("is_known", "scope", "told_version", "version"),
    )

    def __init__(self, scope: Scope, version: int) -> None:
        self.scope = scope
        self.version = version
        self.is_known = False
        """Whether the peer has told its rows since the table was made."""
        self.told_version = 0
        """The responsibility that the told rows were worked out for."""
        self._since = version
        self._told = NO_ROWS
        self._held = NO_ROWS
        self._held_until = 0
        self._joined: Rows | None = None
        self._staged: list[FilterUpdate] = []
        """What has come of an update."""
        self._whole: Rows | None = None
        """The rows of it, if it is a whole table: large ones are not made in one go."""

    # --- what it holds -------------------------------------------------------------------------

    @property
    def told(self) -> Rows:
        """The rows that the peer told."""
        return self._told

    @property
    def held(self) -> Rows:
        """The rows that are kept until the peer has told those for its present scope."""
        return self._held

    @property
    def rows(self) -> Rows:
        """All rows, told and held."""
        if not self._held:
            return self._told
        if not self._told:
            return self._held
        if self._joined is None:
            self._joined = _both(self._told, self._held)
        return self._joined

    # --- changing ------------------------------------------------------------------------------

    def assign(self, scope: Scope, version: int) -> None:
        """The peer is told another scope; what is held now stays until it has answered."""
        self.scope = scope
        self.version = version
        if self._held:
            self._held_until = version

    def restart(self, version: int) -> None:
        """A fresh link: what was on its way over the old one will not come."""
        self._since = version
        self._begin_update(is_whole=False)

    def hold(self, rows: Rows) -> None:
        """Keep these rows as well, until the peer has told those for its present scope."""
        if not rows:
            return
        self._held = _both(self._held, rows) if self._held else rows
        self._held_until = self.version
        self._joined = None

    def install(self, rows: Rows) -> None:
        """These rows were told."""
        self._told = rows
        self.is_known = True
        self.told_version = self.version

    def apply(self, update: FilterUpdate) -> Outcome:
        """Take in an update, or a chunk of one.

        Raises:
            ValueError: it makes no sense; the reason is for people.
        """
        if update.responsibility < self._since:
            raise ValueError("the update is for a responsibility that was taken back")
        if update.first:
            self._begin_update(is_whole=True)
        elif len(self._staged) >= CHUNKS_MAX:
            self._begin_update(is_whole=False)
            raise ValueError(f"the update has more than {CHUNKS_MAX:,} chunks")
        self._staged.append(update)
        if self._whole is not None:
            self._whole = _applied(self._whole, [update])
        if not update.last:
            return Outcome.INCOMPLETE
        is_whole = self._whole is not None
        rows = _applied(self._told, self._staged) if self._whole is None else self._whole
        self._begin_update(is_whole=False)
        if rows.digest != update.digest:
            self.hold(self.rows)
            self._told = rows
            self._joined = None
            return Outcome.WHOLE_MISMATCH if is_whole else Outcome.MISMATCH
        self._told = rows
        self._joined = None
        self.is_known = True
        self.told_version = update.responsibility
        if self._held and update.responsibility >= self._held_until:
            self._held = NO_ROWS
        return Outcome.APPLIED

    def _begin_update(self, *, is_whole: bool) -> None:
        self._staged = []
        self._whole = NO_ROWS if is_whole else None

    @property
    def wants_everything(self) -> bool:
        """Whether nothing is known yet, told or held."""
        return not self.is_known and not self._held

    def describe(self) -> Mapping[str, Any]:
        """How many rows, and which, as plain values."""
        return {
            "digest": self.rows.digest.hex(),
            "held": len(self.held),
            "rows": len(self.rows),
            "scope": list(self.scope),
        }

    # --- asking --------------------------------------------------------------------------------

    def matches(
        self, publication: Publication, part: Scope, reach: Reach | None, control: str = ""
    ) -> bool:
        """Whether a row wants the publication; where rows have a reach, one that meets the part."""
        if self.wants_everything:
            return True
        rows = self.rows
        if control:
            key = publication.attributes.get(KEY_ATTRIBUTE)
            for name, intervals in rows.control:
                if name == control:
                    return holds_key(intervals, key)
            return False
        if reach is None:
            return rows.want(publication)
        return any(reach.meets(entry.reach, part) for entry in rows.wanting(publication))


def _applied(told: Rows, chunks: list[FilterUpdate]) -> Rows:
    """The rows after all chunks of an update: a key that is removed and added stays."""
    added: dict[EntryKey, Entry] = {}
    removed: dict[EntryKey, None] = {}
    for chunk in chunks:
        removed.update(dict.fromkeys(chunk.removed))
        added.update((row_key(entry), entry) for entry in chunk.added)
    return told.changed(list(added.values()), list(removed))


def _both(first: Rows, second: Rows) -> Rows:
    """The rows of both; one that both have with different reaches is of unknown reach."""
    entries = {row_key(entry): entry for entry in first.entries}
    for entry in second.entries:
        key = row_key(entry)
        known = entries.get(key)
        if known is None:
            entries[key] = entry
        elif known.reach != entry.reach:
            entries[key] = Entry(entry.name, entry.filter, NOWHERE)
    control = joined_control(first.control, second.control)
    return Rows(tuple(entries[key] for key in sorted(entries)), control)
