"""`LocalRows`: the rows of a peer's own subscriptions, changed one by one.

A subscription that comes or goes changes one row, or none where another has an equal filter: the
rows are never made anew, however many subscriptions there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TypeAlias

from peersub.filters.filter import Filter
from peersub.filters.widened import parts_of
from peersub.overlays.routing.messages import Entry, EntryKey
from peersub.overlays.routing.rows import NO_ROWS, ControlRows, Rows, row_key
from peersub.overlays.routing.topology import Scope

__all__ = ["LocalRows", "MakeEntry"]

MakeEntry: TypeAlias = Callable[[str, Filter, Scope], Entry]
"""The row of a subscription: its name, its filter, and where this peer is."""


class LocalRows:
    """The subscriptions of a peer, and their rows."""

    def __init__(self, make_entry: MakeEntry) -> None:
        self._make_entry = make_entry
        self._subscriptions: dict[str, tuple[Filter, ...]] = {}
        """Per subscription what others are told of it."""
        self._uses: dict[EntryKey, int] = {}
        """How many subscriptions have the row."""
        self._changed: dict[EntryKey, Filter] = {}
        """Rows that may have come or gone since they were last worked out."""
        self._reach: Scope = ()
        self._rows = NO_ROWS

    def __len__(self) -> int:
        return len(self._subscriptions)

    def __contains__(self, name: str) -> bool:
        return name in self._subscriptions

    def add(self, name: str, wanted: Filter) -> None:
        """A subscription begins, or has another filter from now on.

        A dear filter has several rows, which together cover it: the home matches exactly.
        """
        self.discard(name)
        parts = self._subscriptions[name] = parts_of(wanted)
        self._count(name, parts, 1)

    def discard(self, name: str) -> bool:
        """A subscription ends; False if there is none."""
        parts = self._subscriptions.pop(name, None)
        if parts is not None:
            self._count(name, parts, -1)
        return parts is not None

    def _count(self, name: str, parts: Iterable[Filter], more: int) -> None:
        for wanted in parts:
            if not wanted.is_nothing:
                key = row_key(self._make_entry(name, wanted, ()))
                self._uses[key] = self._uses.get(key, 0) + more
                self._changed[key] = wanted

    @property
    def is_behind(self) -> bool:
        """Whether rows have changed that were not worked out yet."""
        return bool(self._changed)

    def is_worked_out(self, name: str) -> bool:
        """Whether the rows have all that others are told of a subscription."""
        parts = self._subscriptions.get(name, ())
        keys = (row_key(self._make_entry(name, wanted, ())) for wanted in parts)
        return not any(key in self._changed for key in keys)

    def rows(self, control: ControlRows, reach: Scope = (), changes_max: int | None = None) -> Rows:
        """The rows now, with these for control notifications; or with so many changes more."""
        if reach != self._reach:
            self._reach = reach
            self._rows = Rows.of(
                self._make_entry(name, wanted, reach)
                for name, parts in self._subscriptions.items()
                for wanted in parts
                if not wanted.is_nothing
            )
        added, removed = [], []
        for key in list(islice(self._changed, changes_max)):
            wanted = self._changed.pop(key)
            if self._uses[key]:
                added.append(Entry(key[0], wanted, reach))
            else:
                removed.append(key)
                del self._uses[key]
        self._rows = self._rows.changed(added, removed).with_control(control)
        return self._rows or NO_ROWS
