"""Perfect merging of the rows of two tables, without looking at all of them anew.

Two conjunctions that are equal but for one constraint have a union that is again a conjunction
(Mühl). A table is *merged* if no two of its rows are so, each row is one conjunction or one tree
pattern, and no row covers another. To a merged table rows are added one by one, in the order of
their digests: a row that another one covers is left out; rows that it covers are dropped; if it
fuses with a row, that row leaves and their union is added in place of both, else it stays.

Partners are found by *keys*: a row has one per constraint, made of all its other constraints, and
two rows that fuse have a key in common. Coverers are found in the covering order that all tables
share. So the cost is that of the rows that come, not of those that are there.

`filters.merging` merges a whole set at once; which of several possible fusions it takes may differ,
what the result matches does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from peersub.filters.boxes import Box, box_of
from peersub.filters.domains import Domain
from peersub.filters.filter import Filter
from peersub.overlays.routing.covering_order import CoveringOrder, OrderNode

__all__ = ["PerfectMerging", "fused"]

FILTERS_MAX: Final = 65_536
"""Filters whose keys are remembered."""
FUSED_CUTS_MAX: Final = 2_048
"""Cuts of a domain that comes from fusing; rows with more stay apart."""

_Key: TypeAlias = tuple[Any, tuple[int, ...]]
"""What a constraint is about, and the numbers of all other constraints."""


def fused(first: Box, second: Box) -> Box | None:
    """The union of two boxes that are equal but for one constraint; None if they are not.

    >>> one, other = Filter("a = 1 AND b = 5").boxes[0], Filter("a = 2 AND b = 5").boxes[0]
    >>> Filter.from_boxes([fused(one, other)]).text
    'a IN (1, 2) AND b = 5'
    """
    if first.domains.keys() != second.domains.keys() or first.tests.keys() != second.tests.keys():
        return None
    domains: dict[Any, Any] = {p: d for p, d in first.domains.items() if second.domains[p] != d}
    tests: dict[Any, Any] = {
        t: truth for t, truth in first.tests.items() if second.tests[t] != truth
    }
    if len(domains) + len(tests) != 1:
        return None
    for path in domains:
        union: Domain = first.domains[path].union(second.domains[path])
        if sum(map(len, union.sets)) > FUSED_CUTS_MAX:
            return None
        return box_of({**first.domains, path: union}, first.tests)
    (test,) = tests
    return box_of(first.domains, {**first.tests, test: first.tests[test] | second.tests[test]})


class PerfectMerging:
    """Perfect merging; to be shared by all peers of a process."""

    def __init__(self, order: CoveringOrder) -> None:
        self._order = order
        self._numbers: dict[tuple[Any, Any], int] = {}
        self._keys: dict[bytes, tuple[_Key, ...]] = {}
        self._held: dict[bytes, OrderNode] = {}

    def merged(self, known: Sequence[Filter], more: Iterable[Filter]) -> list[Filter]:
        """A merged table with further rows, merged again; sorted by digest."""
        if len(self._keys) + len(known) > FILTERS_MAX:
            self._keys.clear()
            self._numbers.clear()
            for node in self._held.values():
                self._order.let_go(node)
            self._held.clear()
        table = _Table(self, known)
        singles = {one.digest: one for wanted in more for one in _singles(wanted)}
        for digest in sorted(singles):
            table.add(singles[digest])
        return [table.rows[digest] for digest in sorted(table.rows)]

    def keys(self, row: Filter) -> tuple[_Key, ...]:
        """The keys of a row; a pattern has none."""
        known = self._keys.get(row.digest)
        if known is None:
            known = self._box_keys(row.boxes[0]) if row.language == "sql" else ()
            self._keys[row.digest] = known
        return known

    def _box_keys(self, box: Box) -> tuple[_Key, ...]:
        numbers = self._numbers
        constraints = [*box.domains.items(), *box.tests.items()]
        ids = [numbers.setdefault(constraint, len(numbers)) for constraint in constraints]
        return tuple(
            (name, tuple(sorted(ids[:place] + ids[place + 1 :])))
            for place, (name, _) in enumerate(constraints)
        )

    def coverers(self, row: Filter) -> Iterable[bytes]:
        """The filters above a row in the covering order."""
        return self._node(row).above

    def covered(self, row: Filter) -> Iterable[bytes]:
        """The filters below a row in the covering order."""
        return self._node(row).below

    def _node(self, row: Filter) -> OrderNode:
        node = self._held.get(row.digest)
        if node is None:
            node = self._held[row.digest] = self._order.node(row)
            self._order.hold(node)
        return node


class _Table:
    """A merged table that grows."""

    __slots__ = ("_holders", "_merging", "rows")

    def __init__(self, merging: PerfectMerging, rows: Iterable[Filter]) -> None:
        self._merging = merging
        self.rows = {row.digest: row for row in rows}
        self._holders: dict[_Key, bytes] = {}
        for digest, row in self.rows.items():
            for key in merging.keys(row):
                self._holders[key] = digest

    def add(self, row: Filter | None) -> None:
        """Add a row, and what it becomes by fusing."""
        merging = self._merging
        while row is not None and row.digest not in self.rows:
            keys = merging.keys(row)
            if any(digest in self.rows for digest in merging.coverers(row)):
                return
            for digest in [digest for digest in merging.covered(row) if digest in self.rows]:
                self._remove(digest)
            partners = {self._holders[key]: None for key in keys if key in self._holders}
            union = next(filter(None, (self._union(row, d) for d in sorted(partners))), None)
            if union is None:
                self.rows[row.digest] = row
                for key in keys:
                    self._holders.setdefault(key, row.digest)
            row = union

    def _union(self, row: Filter, digest: bytes) -> Filter | None:
        """What the row and a partner fuse to; the partner then leaves."""
        box = fused(self.rows[digest].boxes[0], row.boxes[0])
        if box is None:
            return None
        self._remove(digest)
        return Filter.from_boxes([box])

    def _remove(self, digest: bytes) -> None:
        for key in self._merging.keys(self.rows.pop(digest)):
            if self._holders.get(key) == digest:
                del self._holders[key]


def _singles(wanted: Filter) -> list[Filter]:
    """The filter's conjunctions, each as a filter."""
    if wanted.language != "sql" or len(wanted.boxes) == 1:
        return [wanted]
    return [Filter.from_boxes([box]) for box in wanted.boxes]
