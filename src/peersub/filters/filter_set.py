"""`FilterSet`: the filters that one entry of a routing table holds, each with its owners.

The filters form a *forest* by covering: each filter lies below one that covers it, and the roots
are the cover set, what a router forwards. A new filter goes down below its coverers; where it finds
none it stays and takes the filters it covers below itself. When a filter leaves, those below it
move up and are placed again, so an unsubscribed root exposes what it covered. `add` and `remove`
tell how the roots changed, because routing tables travel as changes.

Invariants:

* each filter below another is covered by it;
* no root covers another root; of several equivalent filters the one with the least digest is the
  root, so the roots depend on the content alone and not on the order of operations (as far as
  covering is transitive: where it is not proven to be, between some text tests and tree patterns,
  one root more may be kept; it does no harm);
* a filter goes down at most DEPTH_MAX levels and stays there unordered: a long chain (`price > 1`,
  `price > 2`, ...) does not make each operation as long.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from peersub.filters.boxes import Box, box_intersection, box_of
from peersub.filters.covering_index import CoveringIndex, Subject, Summary
from peersub.filters.domains import ABSENT
from peersub.filters.filter import Filter, Matchable
from peersub.filters.merging import merged_filters
from peersub.filters.relations import union_covers

__all__ = ["Change", "FilterSet"]

DEPTH_MAX: Final = 32
"""Levels that a filter goes down when it is placed."""
UNION_BOXES_MAX: Final = 512
"""Conjunctions of roots that together may be tried as one coverer."""
MERGED_KEPT_MAX: Final = 4
"""Results of `merged` that are remembered."""

Owner = TypeVar("Owner", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Change:
    """How the roots changed, each side sorted by digest."""

    added_roots: tuple[Filter, ...] = ()
    removed_roots: tuple[Filter, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added_roots or self.removed_roots)


class _Node(Summary):
    """A filter's place in the forest."""

    __slots__ = ("below", "owners", "parent")

    def __init__(self, wanted: Filter) -> None:
        super().__init__(wanted)
        self.owners: dict[Any, None] = {}
        self.parent: _Node | None = None
        self.below: CoveringIndex[_Node] | None = None


class _Roots:
    """Collects the changes of the roots during one operation."""

    def __init__(self) -> None:
        self.added: dict[bytes, Filter] = {}
        self.removed: dict[bytes, Filter] = {}

    def add(self, node: _Node) -> None:
        if self.removed.pop(node.digest, None) is None:
            self.added[node.digest] = node.filter

    def remove(self, node: _Node) -> None:
        if self.added.pop(node.digest, None) is None:
            self.removed[node.digest] = node.filter

    def change(self) -> Change:
        return Change(_by_digest(self.added.values()), _by_digest(self.removed.values()))


def _by_digest(filters: Iterable[Filter]) -> tuple[Filter, ...]:
    return tuple(sorted(filters, key=lambda wanted: wanted.digest))


class FilterSet(Generic[Owner]):
    """Filters with their owners, and the few of them that cover all the others.

    An owner is whatever names who wants a filter: a subscription, a neighbour.

    >>> entry = FilterSet[str]()
    >>> entry.add("s1", Filter("price > 20")).added_roots
    (Filter('price > 20'),)
    >>> change = entry.add("s2", Filter("price > 10"))
    >>> change.added_roots, change.removed_roots
    ((Filter('price > 10'),), (Filter('price > 20'),))
    >>> entry.remove("s2", Filter("price > 10")).added_roots
    (Filter('price > 20'),)
    """

    def __init__(self) -> None:
        self._nodes: dict[bytes, _Node] = {}
        self._top: CoveringIndex[_Node] = CoveringIndex()
        self._owned: dict[Owner, dict[bytes, None]] = {}
        self._digest: bytes | None = None
        self._merged: OrderedDict[
            tuple[object, ...], tuple[Sequence[Matchable], tuple[Filter, ...]]
        ]
        self._merged = OrderedDict()

    # --- changing ------------------------------------------------------------------------------

    def add(self, owner: Owner, wanted: Filter) -> Change:
        """The owner wants the filter; adding it again changes nothing."""
        roots = _Roots()
        node = self._nodes.get(wanted.digest)
        if node is None:
            node = _Node(wanted)
            self._nodes[node.digest] = node
            self._digest = None
            self._place(node, None, 0, roots)
        node.owners[owner] = None
        self._owned.setdefault(owner, {})[node.digest] = None
        return roots.change()

    def remove(self, owner: Owner, wanted: Filter) -> Change:
        """The owner no longer wants the filter; it stays while another owner does.

        Raises:
            KeyError: the owner does not have this filter.
        """
        if wanted.digest not in self._owned.get(owner, ()):
            raise KeyError(f"{owner!r} does not have the filter {wanted.text!r}")
        roots = _Roots()
        self._disown(owner, wanted.digest, roots)
        return roots.change()

    def remove_owner(self, owner: Owner) -> Change:
        """The owner wants nothing any more.

        Raises:
            KeyError: the owner has no filters.
        """
        if owner not in self._owned:
            raise KeyError(f"{owner!r} has no filters")
        roots = _Roots()
        for digest in list(self._owned[owner]):
            self._disown(owner, digest, roots)
        return roots.change()

    def _disown(self, owner: Owner, digest: bytes, roots: _Roots) -> None:
        owned = self._owned[owner]
        del owned[digest]
        if not owned:
            del self._owned[owner]
        node = self._nodes[digest]
        del node.owners[owner]
        if not node.owners:
            self._unplace(node, roots)

    # --- the forest ----------------------------------------------------------------------------

    def _level(self, parent: _Node | None) -> CoveringIndex[_Node]:
        if parent is None:
            return self._top
        if parent.below is None:
            parent.below = CoveringIndex()
        return parent.below

    def _place(self, node: _Node, parent: _Node | None, depth: int, roots: _Roots) -> None:
        """Put a filter, with what lies below it, in the tree of the parent, which covers it."""
        level = self._level(parent)
        while depth < DEPTH_MAX:
            coverer = level.coverer(node)
            if coverer is None:
                break
            if node.digest < coverer.digest and node.covers(coverer):
                break  # equivalent, and first by name: it takes the coverer's place
            parent, level, depth = coverer, self._level(coverer), depth + 1
        adopted = level.covered(node) if depth < DEPTH_MAX else []
        for other in adopted:
            self._detach(other, roots)
        self._attach(node, parent, roots)
        for other in adopted:
            self._place(other, node, depth + 1, roots)

    def _attach(self, node: _Node, parent: _Node | None, roots: _Roots) -> None:
        node.parent = parent
        self._level(parent).add(node)
        if parent is None:
            roots.add(node)

    def _detach(self, node: _Node, roots: _Roots) -> None:
        self._level(node.parent).discard(node)
        if node.parent is None:
            roots.remove(node)
        elif not node.parent.below:
            node.parent.below = None

    def _unplace(self, node: _Node, roots: _Roots) -> None:
        """Take a filter out; those below it move up."""
        del self._nodes[node.digest]
        self._digest = None
        self._detach(node, roots)
        depth = sum(1 for _ in self._above(node))
        for child in list(node.below or ()):
            self._place(child, node.parent, depth, roots)

    @staticmethod
    def _above(node: _Node) -> Iterator[_Node]:
        parent = node.parent
        while parent is not None:
            yield parent
            parent = parent.parent

    # --- asking --------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Filter]:
        return (self._nodes[digest].filter for digest in sorted(self._nodes))

    def __contains__(self, wanted: object) -> bool:
        return isinstance(wanted, Filter) and wanted.digest in self._nodes

    @property
    def digest(self) -> bytes:
        """16 bytes that name the filters of the set, whatever the order in which they came."""
        if self._digest is None:
            content = hashlib.blake2b(b"".join(sorted(self._nodes)), digest_size=16)
            self._digest = content.digest()
        return self._digest

    def owners(self, wanted: Filter) -> tuple[Owner, ...]:
        """Who has the filter, in the order in which they added it; nobody if it is not there."""
        node = self._nodes.get(wanted.digest)
        return () if node is None else tuple(node.owners)

    def roots(self) -> tuple[Filter, ...]:
        """The filters that together cover all and do not cover each other, sorted by digest."""
        return _by_digest(node.filter for node in self._top)

    def children(self, wanted: Filter) -> tuple[Filter, ...]:
        """The filters directly below one, sorted by digest.

        Raises:
            KeyError: the filter is not in the set.
        """
        return _by_digest(node.filter for node in self._nodes[wanted.digest].below or ())

    def covers(self, wanted: Filter) -> bool:
        """Whether the set matches each event that the filter matches; True only if proven."""
        if wanted.digest in self._nodes or wanted.is_nothing:
            return True
        if self._top.coverer(Summary(wanted)) is not None:
            return True
        if len(self._top) < 2 or wanted.language != "sql":
            return False
        return all(self._roots_cover(box) for box in wanted.boxes)

    def _roots_cover(self, box: Box) -> bool:
        """Whether the union of the roots holds the box."""
        # First the part of the box whose events lack all attributes that it does not name: only few
        # roots reach it, and if they leave something of it the answer is known.
        near = _boxes_of(self._top.matching_only(box.domains))
        elsewhere = {path for root in near for path in root.domains if path not in box.domains}
        bare = box_of({**box.domains, **dict.fromkeys(sorted(elsewhere), ABSENT)}, box.tests)
        if bare is None or not union_covers(_overlapping(bare, near), (bare,)):
            return False
        return union_covers(_overlapping(box, _boxes_of(self._top)), (box,))

    def matches(self, event: Matchable) -> bool:
        """Whether one of the filters matches; only roots need to be asked."""
        return next(self._top.matching(Subject(event)), None) is not None

    def matching_owners(self, event: Matchable) -> list[Owner]:
        """The owners of filters that match, each once; looks below a filter only if it matches."""
        found: dict[Owner, None] = {}
        levels, subject = [self._top], Subject(event)
        while levels:
            for node in levels.pop().matching(subject):
                found.update(node.owners)
                if node.below is not None:
                    levels.append(node.below)
        return list(found)

    def merged(self, budget: float = 0.0, sample: Sequence[Matchable] = ()) -> tuple[Filter, ...]:
        """Fewer filters, each of one conjunction or pattern, that together cover the whole set.

        Without a budget they match exactly what the set matches. With one they may also match
        others: at most the share `budget` of the sample's events. The result depends on the filters
        of the set alone, and is sorted by digest.
        """
        if budget <= 0 or not sample:
            budget, sample = 0.0, ()
        if not isinstance(sample, tuple):
            # A list may change under the same id: its result is not remembered.
            return merged_filters(self, budget, sample)
        key = (self.digest, budget, id(sample))
        known = self._merged.get(key)
        if known is not None:
            return known[1]
        result = merged_filters(self, budget, sample)
        self._merged[key] = (sample, result)  # holding the sample keeps its id
        while len(self._merged) > MERGED_KEPT_MAX:
            self._merged.popitem(last=False)
        return result


def _boxes_of(nodes: Iterable[_Node]) -> list[Box]:
    return [box for node in nodes if node.filter.language == "sql" for box in node.filter.boxes]


def _overlapping(box: Box, others: Iterable[Box]) -> list[Box]:
    """The widest of the boxes that share events with the box."""
    found = [other for other in others if box_intersection(box, other) is not None]
    return sorted(found, key=lambda other: len(other.domains) + len(other.tests))[:UNION_BOXES_MAX]
