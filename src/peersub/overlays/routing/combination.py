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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final, Protocol
from weakref import finalize

from peersub.filters.filter import Filter
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.publication import Publication
from peersub.overlays.routing.covering_order import CoveringOrder, Entering, OrderNode
from peersub.overlays.routing.folding import Fold, Source, joined_control
from peersub.overlays.routing.messages import Entry, EntryKey
from peersub.overlays.routing.rows import NO_ROWS, ControlRows, Rows, row_key
from peersub.overlays.routing.topology import NOWHERE, Reach, Scope

__all__ = ["Combination", "Combined", "Pool", "Source"]

VIEWS_MAX: Final = 64
"""Sets of served edges for which rows are kept: more than a peer has publishers. Beyond, the oldest
goes: most likely its publisher is gone."""
LOG_MAX: Final = 128
"""Changed rows that a view may lag behind; then it follows. One that nobody asks for goes when it
has followed as many as it has rows: to make it anew costs no more."""


class Combined(Protocol):
    """The rows for events of any choice of sources."""

    follows_changes: bool
    """Whether it looks at the rows that change only, not at whole tables."""

    @property
    def is_complete(self) -> bool:
        """Whether all that has changed was taken in."""
        ...

    def replace(self, source: Source, old: Rows, new: Rows) -> None:
        """The rows of a source change: note what is to be taken in."""
        ...

    def work(self, rows_max: int | None) -> dict[Source, None]:
        """Take in so many changed rows, or all; the sources that they are of."""
        ...

    @property
    def is_indexed(self) -> bool:
        """Whether `wants` knows."""
        ...

    def wants(self, source: Source, publication: Publication) -> bool | None:
        """Whether a row of the source wants the event; None if that is not known here."""
        ...

    def rows(
        self, served: Sequence[PeerId], scope: Scope, since: Rows | None = None
    ) -> Rows | None:
        """The rows for who is served by these edges, without those for control notifications.

        With `since`, the rows that were told before, None until `work` has looked at all of many.
        """
        ...


class Combination:
    """All rows of a peer's sources, and what publishers get of them."""

    __slots__ = ("_combined", "_control", "_sources")

    def __init__(self, combined: Combined) -> None:
        self._combined = combined
        self._control: Fold[ControlRows] = Fold(joined_control)
        self._sources: dict[Source, Rows] = {}

    def replace(self, source: Source, new: Rows) -> None:
        """The rows of a source are these from now on; NO_ROWS if it is gone."""
        self.begin(source, new)
        self.work(None)

    def begin(self, source: Source, new: Rows, rows_max: int | None = None) -> Rows:
        """The same, but for the work with the rows that change: `work` does it, in parts.

        With `rows_max` as far as so many changed rows, or a few more; the rows that it comes to.
        """
        old = self._sources.get(source, NO_ROWS)
        if new is old:
            return new
        if rows_max is not None and self._combined.follows_changes:
            new = old.towards(new, rows_max)
        if new is NO_ROWS:
            del self._sources[source]
        else:
            self._sources[source] = new
        self._combined.replace(source, old, new)
        if new.control != old.control:
            self._control.replace(source, new.control or None)
        return new

    @property
    def is_complete(self) -> bool:
        """Whether all that has begun is done: else some rows are those from before."""
        return self._combined.is_complete

    def work(self, rows_max: int | None) -> dict[Source, None]:
        """Take in so many changed rows, or all; the sources that they are of."""
        return self._combined.work(rows_max)

    @property
    def is_indexed(self) -> bool:
        """Whether `wants` knows."""
        return self._combined.is_indexed

    def wants(self, source: Source, publication: Publication) -> bool | None:
        """Whether a row of the source wants the event; None if only its table knows."""
        return self._combined.wants(source, publication)

    def rows(self, served: Sequence[PeerId], scope: Scope = NOWHERE) -> Rows:
        """What a publisher is sent who gave this scope and is served by these edges."""
        rows = self.rows_since(None, served, scope)
        assert rows is not None
        return rows

    def rows_since(
        self, sent: Rows | None, served: Sequence[PeerId], scope: Scope = NOWHERE
    ) -> Rows | None:
        """The same for one who was sent these; None until `work` has looked at all of many."""
        entries = self._combined.rows(served, scope, sent)
        return None if entries is None else entries.with_control(self._control.folded(served))


# --- choosing among rows -----------------------------------------------------------------------


PENDING_ASKED_MAX: Final = 16
"""Rows of a source that are not taken in yet, up to which each is asked about an event; a source
with more wants everything for that while: asking more takes longer than sending the event."""


LOOKED_AT_ONCE: Final = 256
"""Rows of a table, or of a view, that are looked at when it is new."""
LOOKED_AT_PER_ROW: Final = 16
"""Rows that are looked at in the time for a changed row."""
STEPS_PER_ROW: Final = 128
"""Steps of covering that a row may take of the time for changed rows: a dear one takes that of
several, and is taken in later."""


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

    __slots__ = ("at", "rows", "unasked", "unjudged")

    def __init__(self, rows: Rows, unjudged: Iterator[EntryKey] | None) -> None:
        self.rows = rows
        self.unjudged = unjudged
        """What is to be looked at before these are the rows; None if that was done."""
        self.at = 0
        self.unasked = 0
        """Changed rows that it followed since a publisher was last sent its rows."""

    @property
    def pays(self) -> bool:
        """Whether to follow costs less than to make it anew when it is asked for."""
        return self.unjudged is not None or self.unasked <= max(LOG_MAX, self.rows.entry_count)


class Pool:
    """The rows of all sources, from which each publisher gets a choice.

    Args:
        order: the order by which rows that another one covers are left out; None leaves out none.
        reach: the arithmetic of reaches, if rows say where their owners are.
    """

    follows_changes = True

    def __init__(self, order: CoveringOrder | None, reach: Reach | None) -> None:
        self._order = order
        self._reach = reach
        self._bits: dict[Source, int] = {}
        self._free: list[int] = []
        self._cells: dict[EntryKey, _Cell] = {}
        self._log: list[EntryKey] = []
        self._views: dict[tuple[int, Scope], _View] = {}
        self._pending: dict[Source, dict[EntryKey, Entry | None]] = {}
        """Per source the rows that are to be taken in, last ones first; None where one goes. The
        rows themselves: the table may have changed by then, and old versions are dear to ask."""
        self._differences: dict[Source, Iterator[tuple[EntryKey, Entry | None] | None]] = {}
        """Per source whose table is another one altogether, what differs, as far as it is not
        pending; None for each row that does not."""
        self._gone: dict[Source, None] = {}
        """Sources that are to have no rows in the end."""
        self._entering: Entering | None = None
        """The filter that is next, while it is put into the covering order."""
        self._named = 0
        """Rows with a name: the covering order knows filters, not names."""
        self._asked: tuple[Publication, int] | None = None
        """The event that was last asked about, and the sources that want it."""
        if order is not None:
            # Peers of a simulation share the order, and come and go.
            finalize(self, _let_go, order, self._cells).atexit = False

    @property
    def is_complete(self) -> bool:
        """Whether all that has changed was taken in, and all rows that are asked for are known."""
        return not self._pending and all(view.unjudged is None for view in self._views.values())

    def replace(self, source: Source, old: Rows, new: Rows) -> None:
        """The rows of a source change: note what is to be taken in."""
        self._asked = None
        self._bit(source)
        self._gone.pop(source, None)
        if new is NO_ROWS:
            self._gone[source] = None
        pending = self._pending.setdefault(source, {})
        self._look(source, None)
        if not old.leads_to(new):
            self._differences[source] = old.differences_to(new)
            self._look(source, LOOKED_AT_ONCE)
            self._end_if_done(source)
            return
        added, removed = old.entry_change_to(new)
        # The last ones are taken in first: what comes is there before anything goes.
        for key in removed:
            pending.pop(key, None)
            pending[key] = None
        for entry in reversed(added):
            key = row_key(entry)
            pending.pop(key, None)
            pending[key] = entry
        self._end_if_done(source)

    def work(self, rows_max: int | None) -> dict[Source, None]:
        """Take in so many changed rows, or all; the sources that they are of."""
        touched: dict[Source, None] = {}
        changed: dict[EntryKey, _Cell] = {}
        looked_at = None if rows_max is None else LOOKED_AT_PER_ROW * rows_max
        if rows_max is None:
            for source in list(self._differences):
                self._look(source, None)
        left = sum(map(len, self._pending.values())) if rows_max is None else rows_max
        steps_left = None if rows_max is None else STEPS_PER_ROW * rows_max
        # Nothing goes before all has come: a row that moves from one source to another is never
        # missing, and a publisher is not told so.
        for comes in (True, False):
            for source in list(self._pending):
                pending, bit = self._pending[source], self._bits[source]
                touched[source] = None
                if comes and (not pending or pending[next(reversed(pending))] is None):
                    self._look(source, looked_at)
                while pending and left > 0:
                    key = next(reversed(pending))
                    entry = pending[key]
                    if (entry is not None) is not comes:
                        break
                    if entry is not None and key not in self._cells:
                        steps_left = self._enter(entry.filter, steps_left)
                        if self._entering is not None:
                            left = 0
                            break
                    left -= 1
                    del pending[key]
                    cell = self._take_in(key, entry, bit)
                    if cell is not None:
                        changed[key] = cell
                self._end_if_done(source)
                if source in self._differences:
                    left = 0
                if left <= 0:
                    break
        self._asked = None
        self._note(changed)
        for key_of_view, view in self._views.items():
            if view.unjudged is not None:
                self._judge_some(view, *key_of_view, looked_at)
                if rows_max is not None:
                    break
        return touched

    def _look(self, source: Source, rows_max: int | None) -> None:
        """Find what differs among so many rows of a source that has another table, or among all."""
        differences = self._differences.get(source)
        if differences is None:
            return
        seen = list(islice(differences, rows_max))
        if rows_max is None or len(seen) < rows_max:
            del self._differences[source]
        # The last ones are taken in first: what comes, and then what goes.
        pending = self._pending[source]
        found = {**pending, **dict(difference for difference in seen if difference is not None)}
        pending.clear()
        pending.update((key, None) for key, entry in found.items() if entry is None)
        pending.update((key, entry) for key, entry in reversed(found.items()) if entry is not None)

    def _enter(self, wanted: Filter, steps_left: int | None) -> int | None:
        """Put a filter into the covering order, or go on with it; how many steps are left."""
        if self._order is None or self._order.known(wanted) is not None:
            self._entering = None
            return steps_left
        entering = self._entering
        if entering is None or entering.filter.digest != wanted.digest:
            entering = self._entering = Entering(self._order, wanted)
        taken = entering.go_on(steps_left)
        if entering.node is not None:
            self._entering = None
        return None if steps_left is None else steps_left - taken

    def _end_if_done(self, source: Source) -> None:
        if not self._pending[source] and source not in self._differences:
            del self._pending[source]
            if self._gone.pop(source, ...) is None:
                self._free.append(self._bits.pop(source))

    def _take_in(self, key: EntryKey, entry: Entry | None, bit: int) -> _Cell | None:
        """The source with this bit has the row from now on, or not; None if nothing changes."""
        cell = self._cells.get(key)
        if entry is None:
            if cell is None or not cell.holders & bit:
                return None
            cell.holders &= ~bit
            if self._reach is not None:
                del cell.reaches[bit]
            if not cell.holders:
                del self._cells[key]
                self._named -= bool(key[0])
                if self._order is not None and cell.order is not None:
                    self._order.let_go(cell.order)
                    self._order.take_out_idle()
            return cell
        if cell is None:
            cell = self._cells[key] = _Cell(entry)
            self._named += bool(key[0])
            if self._reach is not None:
                cell.reaches = {}
            if self._order is not None:
                cell.order = self._order.node(entry.filter)
                self._order.hold(cell.order)
        cell.holders |= bit
        if self._reach is not None:
            cell.reaches[bit] = entry.reach
        return cell

    @property
    def is_indexed(self) -> bool:
        """Whether `wants` knows: the covering order has all rows, whatever their reach."""
        return self._order is not None and self._reach is None and not self._named

    def wants(self, source: Source, publication: Publication) -> bool | None:
        """Whether a row of the source wants the event; None if that is not known here.

        The covering order finds the rows of all sources at once, and follows each change: an index
        of a large table by itself would have to be made anew, or grow, with every subscription.
        """
        if self._order is None or not self.is_indexed:
            return None
        if source in self._differences:
            return True
        pending = self._pending.get(source)
        if pending:
            if len(pending) > PENDING_ASKED_MAX:
                return True
            rows = (entry.filter for entry in pending.values() if entry is not None)
            if publication.matches_any(rows):
                return True
        if self._asked is None or self._asked[0] is not publication:
            self._asked = publication, self._sources_wanting(self._order, publication)
        return bool(self._asked[1] & self._bits.get(source, 0))

    def _sources_wanting(self, order: CoveringOrder, publication: Publication) -> int:
        found = 0
        for wanted in order.matching(publication.event):
            cell = self._cells.get(("", wanted.digest))
            if cell is not None:
                found |= cell.holders
        return found

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
            self._views = {key: view for key, view in self._views.items() if view.pays}
            for (mask, scope), view in self._views.items():
                view.unasked += len(self._log) - view.at
                self._refresh(view, mask, scope)
                view.at = 0
            self._log.clear()

    def rows(
        self, served: Sequence[PeerId], scope: Scope, since: Rows | None = None
    ) -> Rows | None:
        """The rows for who is served by these edges; with `since`, None until they are known."""
        mask = self._bits.get(None, 0)
        for source in served:
            mask |= self._bits.get(source, 0)
        key = (mask, scope if self._reach is not None else NOWHERE)
        view = self._views.get(key)
        if view is None:
            if len(self._views) >= VIEWS_MAX:
                del self._views[next(iter(self._views))]
            view = self._views[key] = self._view(NO_ROWS if since is None else since)
            if since is not None:
                self._judge_some(view, *key, LOOKED_AT_ONCE)
        view.unasked = 0
        if view.unjudged is not None:
            if since is not None:
                return None
            self._judge_some(view, *key, None)
        if view.at < len(self._log):
            self._refresh(view, mask, scope)
        return view.rows

    def _view(self, since: Rows) -> _View:
        """A view that begins with the rows of somebody, who then learns what differs."""
        rows = since.without_control()
        view = _View(rows, chain(rows.keys(), list(self._cells)))
        view.at = len(self._log)
        return view

    def _refresh(self, view: _View, mask: int, scope: Scope) -> None:
        """Judge again what has changed since the view was worked out."""
        self._judge(view, dict.fromkeys(self._log[view.at :]), mask, scope)
        view.at = len(self._log)

    def _judge_some(self, view: _View, mask: int, scope: Scope, rows_max: int | None) -> None:
        """Look at so many rows that a new view has not seen yet, or at all."""
        assert view.unjudged is not None
        keys = list(islice(view.unjudged, rows_max))
        self._judge(view, dict.fromkeys(keys), mask, scope)
        if rows_max is None or len(keys) < rows_max:
            view.unjudged = None

    def _judge(self, view: _View, keys: Iterable[EntryKey], mask: int, scope: Scope) -> None:
        added, removed = [], []
        for key in keys:
            cell = self._cells.get(key)
            row = None if cell is None else self._judged(cell, mask, scope)
            known = view.rows.find(key)
            if row is None:
                if known is not None:
                    removed.append(key)
            elif known is None or known.reach != row.reach:
                added.append(row)
        view.rows = view.rows.changed(added, removed)

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


def _let_go(order: CoveringOrder, cells: Mapping[EntryKey, _Cell]) -> None:
    """A pool is gone."""
    for cell in cells.values():
        if cell.order is not None:
            order.let_go(cell.order)


def _united_reach(cell: _Cell, mask: int, scope: Scope, reach: Reach) -> Scope | None:
    """Where, within the scope, the owners are that the chosen sources know of."""
    parts = [reach.clipped(known, scope) for bit, known in cell.reaches.items() if bit & mask]
    found: Scope | None = None
    # Sorted: where gaps are closed the order of uniting shows, and it must not be that of arrival.
    for part in sorted(part for part in parts if part is not None):
        found = part if found is None else reach.united(found, part)
    return found
