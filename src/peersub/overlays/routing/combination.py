"""`Combination`: the rows that one peer sends to its publishers, kept up to date as tables change.

A peer has *sources*: its own filters, and the table of each edge. A publisher is served by some of
the edges (`Topology.serves`), and what it is sent is worked out from the rows of these and the own
ones. Publishers that are served by the same edges get the same rows, the same object.

Two ways to keep that up to date, by strategy:

* `Pool`, for strategies that choose among the rows (simple, identity, covering). Whether a row goes
  to a publisher depends only on which sources hold it, and which hold a row above it: two masks per
  row with a bit per source. When a table changes, the rows that changed, and those below them, are
  judged again, and no others. In Chord the served edges are a prefix of the edges; nothing here
  depends on that.
* `Fold`, for strategies that make new rows (perfect and imperfect merging): the rows for edges 1 to
  j are those for 1 to j - 1 merged with the table of edge j. Results are kept per prefix, and only
  those that hold a changed table are worked out again.

Rows for control notifications are folded likewise under every strategy.

Law: the result is that of a combination which was given the present tables only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from peersub.overlays.core.identity import PeerId
from peersub.overlays.routing.control_filters import united
from peersub.overlays.routing.covering_order import CoveringOrder, OrderNode
from peersub.overlays.routing.messages import Entry, EntryKey
from peersub.overlays.routing.rows import NO_ROWS, ControlRows, Rows, row_key
from peersub.overlays.routing.topology import NOWHERE, Reach, Scope

__all__ = ["Combination", "Combined", "Fold", "FoldedRows", "Pool", "Source", "joined_control"]

Source: TypeAlias = PeerId | None
"""An edge; None is the peer's own filters."""

VIEWS_MAX: Final = 64
"""Sets of served edges for which rows are kept: more than a peer has publishers. Beyond, the oldest
goes: most likely its publisher is gone."""
LOG_MAX: Final = 4_096
"""Changed rows that a view may lag behind before all are worked out anew."""
FOLDS_MAX: Final = 4_096
"""Prefixes of served edges for which a fold is kept."""


class Combined(Protocol):
    """The rows for events of any choice of sources."""

    def replace(self, source: Source, old: Rows, new: Rows) -> None:
        """The rows of a source change."""
        ...

    def rows(self, served: Sequence[PeerId], scope: Scope) -> Rows:
        """The rows for who is served by these edges, without those for control notifications."""
        ...


class Combination:
    """All rows of a peer's sources, and what publishers get of them."""

    __slots__ = ("_combined", "_control", "_results", "_sources")

    def __init__(self, combined: Combined) -> None:
        self._combined = combined
        self._control: Fold[ControlRows] = Fold(joined_control)
        self._sources: dict[Source, Rows] = {}
        # Publishers with the same rows share one object.
        self._results: dict[tuple[Sequence[PeerId], Scope], tuple[Rows, ControlRows, Rows]] = {}

    def replace(self, source: Source, new: Rows) -> None:
        """The rows of a source are these from now on; NO_ROWS if it is gone."""
        old = self._sources.get(source, NO_ROWS)
        if new is old:
            return
        if new is NO_ROWS:
            del self._sources[source]
        else:
            self._sources[source] = new
        self._combined.replace(source, old, new)
        if new.control != old.control:
            self._control.replace(source, new.control or None)

    def rows(self, served: Sequence[PeerId], scope: Scope = NOWHERE) -> Rows:
        """What a publisher is sent who gave this scope and is served by these edges."""
        entries = self._combined.rows(served, scope)
        control = self._control.folded(served)
        key = (tuple(served), scope)
        known = self._results.get(key)
        if known is not None and known[0] is entries and known[1] is control:
            return known[2]
        if known is None and len(self._results) >= VIEWS_MAX:
            del self._results[next(iter(self._results))]
        result = entries.with_control(control)
        self._results[key] = (entries, control, result)
        return result


# --- choosing among rows -----------------------------------------------------------------------


class _Cell:
    """A row of some sources."""

    __slots__ = ("entry", "holders", "order", "reaches")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.order: OrderNode | None = None
        self.holders = 0
        """A bit for each source that has the row."""
        self.reaches: dict[int, Scope] = _NO_REACHES
        """Per holder's bit the reach, if rows say it."""


_NO_REACHES: Final[dict[int, Scope]] = {}


class _View:
    """The rows for one choice of sources, as of some place in the log of changes."""

    __slots__ = ("at", "rows")

    def __init__(self, rows: Rows, at: int) -> None:
        self.rows = rows
        self.at = at


class Pool:
    """The rows of all sources, from which each publisher gets a choice.

    Args:
        order: the order by which rows that another one covers are left out; None leaves out none.
        reach: the arithmetic of reaches, if rows say where their owners are.
    """

    def __init__(self, order: CoveringOrder | None, reach: Reach | None) -> None:
        self._order = order
        self._reach = reach
        self._bits: dict[Source, int] = {}
        self._free: list[int] = []
        self._cells: dict[EntryKey, _Cell] = {}
        self._log: list[EntryKey] = []
        self._views: dict[tuple[int, Scope], _View] = {}
        if order is not None:
            order.add_user(self)

    def digests(self) -> Iterator[bytes]:
        """The filters that the covering order must keep."""
        return (digest for _, digest in self._cells)

    def replace(self, source: Source, old: Rows, new: Rows) -> None:
        """The rows of a source change."""
        bit = self._bit(source)
        added, removed = Rows(old.entries).change_to(Rows(new.entries))
        changed: dict[EntryKey, _Cell] = {}
        for entry in added:
            key = row_key(entry)
            cell = self._cells.get(key)
            if cell is None:
                cell = self._cells[key] = _Cell(entry)
                if self._reach is not None:
                    cell.reaches = {}
                if self._order is not None:
                    cell.order = self._order.node(entry.filter)
            cell.holders |= bit
            if self._reach is not None:
                cell.reaches[bit] = entry.reach
            changed[key] = cell
        for key in removed:
            cell = changed[key] = self._cells[key]
            cell.holders &= ~bit
            if self._reach is not None:
                del cell.reaches[bit]
            if not cell.holders:
                del self._cells[key]
        self._note(changed)
        if new is NO_ROWS:
            self._free.append(self._bits.pop(source))

    def _bit(self, source: Source) -> int:
        bit = self._bits.get(source)
        if bit is None:
            bit = self._free.pop() if self._free else 1 << len(self._bits)
            self._bits[source] = bit
        return bit

    def _note(self, changed: dict[EntryKey, _Cell]) -> None:
        """Remember which rows are to be judged again: the changed ones, and those below them."""
        if not self._views:
            return
        again = dict.fromkeys(changed)
        for cell in changed.values():
            for digest in cell.order.below if cell.order is not None else ():
                if ("", digest) in self._cells:
                    again["", digest] = None
        self._log += again
        if len(self._log) > LOG_MAX:
            self._views.clear()
            self._log.clear()

    def rows(self, served: Sequence[PeerId], scope: Scope) -> Rows:
        """The rows for who is served by these edges."""
        mask = self._bits.get(None, 0)
        for source in served:
            mask |= self._bits.get(source, 0)
        key = (mask, scope if self._reach is not None else NOWHERE)
        view = self._views.get(key)
        if view is None:
            if len(self._views) >= VIEWS_MAX:
                del self._views[next(iter(self._views))]
            rows = Rows(self._chosen(sorted(self._cells), mask, scope))
            view = self._views[key] = _View(rows, len(self._log))
        elif view.at < len(self._log):
            self._refresh(view, mask, scope)
        return view.rows

    def _chosen(self, keys: Iterable[EntryKey], mask: int, scope: Scope) -> tuple[Entry, ...]:
        rows = (self._judged(self._cells[key], mask, scope) for key in keys)
        return tuple(row for row in rows if row is not None)

    def _refresh(self, view: _View, mask: int, scope: Scope) -> None:
        """Judge again what has changed since the view was worked out."""
        added, removed = [], []
        for key in dict.fromkeys(self._log[view.at :]):
            cell = self._cells.get(key)
            row = None if cell is None else self._judged(cell, mask, scope)
            known = view.rows.find(key)
            if row is None:
                if known is not None:
                    removed.append(key)
            elif known is None or known.reach != row.reach:
                added.append(row)
        view.rows = view.rows.changed(added, removed)
        view.at = len(self._log)

    def _judged(self, cell: _Cell, mask: int, scope: Scope) -> Entry | None:
        """The row of a cell for a choice of sources; None if they lack it, or have one above it."""
        if not cell.holders & mask:
            return None
        if self._reach is not None:
            return self._judged_with_reach(cell, mask, scope, self._reach)
        if cell.order is not None:
            cells = self._cells
            for digest in cell.order.above:
                above = cells.get(("", digest))
                if above is not None and above.holders & mask:
                    return None
        return cell.entry

    def _judged_with_reach(
        self, cell: _Cell, mask: int, scope: Scope, reach: Reach
    ) -> Entry | None:
        own = _united_reach(cell, mask, scope, reach)
        if own is None:
            return None
        for digest in cell.order.above if cell.order is not None else ():
            above = self._cells.get(("", digest))
            if above is not None and above.holders & mask:
                wider = _united_reach(above, mask, scope, reach)
                if wider is not None and reach.within(own, wider):
                    return None
        return Entry(cell.entry.name, cell.entry.filter, own)


def _united_reach(cell: _Cell, mask: int, scope: Scope, reach: Reach) -> Scope | None:
    """Where, within the scope, the owners are that the chosen sources know of."""
    parts = [reach.clipped(known, scope) for bit, known in cell.reaches.items() if bit & mask]
    found: Scope | None = None
    # Sorted: where gaps are closed the order of uniting shows, and it must not be that of arrival.
    for part in sorted(part for part in parts if part is not None):
        found = part if found is None else reach.united(found, part)
    return found


# --- folding -----------------------------------------------------------------------------------

T = TypeVar("T")


class Fold(Generic[T]):
    """Values of sources, joined one by one in the order in which they serve.

    The join begins with the value of the own filters. It may be given None for "nothing".
    """

    __slots__ = ("_join", "_prefixes", "_values")

    def __init__(self, join: Callable[[T | None, T | None], T]) -> None:
        self._join = join
        self._values: dict[Source, T] = {}
        self._prefixes: dict[tuple[PeerId, ...], T] = {}

    def replace(self, source: Source, value: T | None) -> None:
        """The value of a source changes; None if it is gone."""
        if value is None:
            self._values.pop(source, None)
        else:
            self._values[source] = value
        if source is None:
            self._prefixes.clear()
            return
        for prefix in [prefix for prefix in self._prefixes if source in prefix]:
            del self._prefixes[prefix]

    def folded(self, served: Sequence[PeerId]) -> T:
        """The join over these edges."""
        served = tuple(served)
        known = len(served)
        while known and served[:known] not in self._prefixes:
            known -= 1
        value = self._prefixes.get(served[:known])
        if value is None:
            value = self._join(None, self._values.get(None))
            self._keep((), value)
        for end in range(known, len(served)):
            value = self._join(value, self._values.get(served[end]))
            self._keep(served[: end + 1], value)
        return value

    def _keep(self, prefix: tuple[PeerId, ...], value: T) -> None:
        if len(self._prefixes) >= FOLDS_MAX:
            self._prefixes.clear()
        self._prefixes[prefix] = value


class FoldedRows:
    """Rows for events under a strategy that makes new rows out of those of two tables."""

    __slots__ = ("_fold",)

    def __init__(self, join: Callable[[Rows | None, Rows | None], Rows]) -> None:
        self._fold: Fold[Rows] = Fold(join)

    def replace(self, source: Source, old: Rows, new: Rows) -> None:
        """The rows of a source change."""
        if new.entries is not old.entries:
            self._fold.replace(source, Rows(new.entries) if new.entries else None)

    def rows(self, served: Sequence[PeerId], scope: Scope) -> Rows:
        """The rows for who is served by these edges."""
        return self._fold.folded(served)


def joined_control(rows: ControlRows | None, table: ControlRows | None) -> ControlRows:
    """The rows for control notifications of both: per name, the united intervals."""
    if not rows or not table or rows is table:
        return rows or table or ()
    joined = dict(rows)
    for name, intervals in table:
        joined[name] = united(joined.get(name, ()), intervals)
    return tuple((name, joined[name]) for name in sorted(joined))
