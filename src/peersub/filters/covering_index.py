"""Finding coverers among many filters without asking all of them.

A filter is summarised by its *demands*: the attributes that it constrains in every one of its boxes,
each with its bounding domain over the boxes. A filter can only cover another if its demands are among
the other's, and where it lists all the values of an attribute, so does the other. And take, of a
covered filter, an event that has no attribute but the demanded ones and no value that it needs not
have: it lies in a box of the coverer, and so meets all that this box demands. Hence

* each filter is kept under one *access key* per box, an attribute that the box demands, with the value
  if it lists them; a coverer is found by looking up the demands of one box of the covered filter;
* an event is led to the filters that want it by the same keys;
* the covered filters are found by intersecting the *postings* of the coverer's demands: for each
  attribute, and each listed value, all filters that demand it.

What the summary says is necessary, never sufficient: each candidate is then asked by itself. Filters
of different languages only meet where one of them matches nothing or everything. No result depends on
the order of a set: candidates are visited in the order of insertion or of their digests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from peersub.events.kinds import KindClass, comparable, is_missing, value_at
from peersub.filters.boxes import Box, Path
from peersub.filters.domains import Domain
from peersub.filters.filter import Filter, Matchable, attributes_of
from peersub.filters.intervals import EMPTY, IntervalSet, single_points

__all__ = ["CoveringIndex", "Summary", "bounding_domains"]

SCAN_MAX: Final = 8
"""Filters up to which asking each is cheaper than looking up."""
LISTED_VALUES_MAX: Final = 32
"""Values that a demand may list; one with more counts as a range."""
BOUNDING_CUTS_MAX: Final = 64
"""Cuts of a bounding domain; beyond, its gaps are closed."""

Value = tuple[KindClass, Any]
Values = tuple[Value | None, ...]
_ANY: Final = None
_ANY_VALUE: Final[Values] = (_ANY,)
"""Stands for the values of a demand that does not list them."""


class Summary:
    """What a filter demands, computed once.

    Attributes:
        demands: the attributes that each box constrains, sorted; covering reverses their inclusion.
        listed: for some demands, all the values that the filter accepts there.
        boxes: per box, the attributes that an event must have, with their values where it lists them.
    """

    __slots__ = (
        *("boxes", "demands", "digest", "filter", "is_everything", "is_nothing", "listed"),
        *("_demand_set",),
    )

    def __init__(self, wanted: Filter) -> None:
        self.filter = wanted
        self.digest = wanted.digest
        self.is_nothing = wanted.is_nothing
        self.boxes: list[dict[Path, Values]] = []
        self.listed: dict[Path, Values] = {}
        bounds: dict[Path, Domain] = {}
        if wanted.language == "sql":
            self.boxes = [_needed(box.domains) for box in wanted.boxes]
            bounds = bounding_domains(wanted.boxes)
            needed = self.boxes[0] if len(self.boxes) == 1 else _needed(bounds)
            self.listed = {path: values for path, values in needed.items() if values != _ANY_VALUE}
        self.demands: tuple[Path, ...] = tuple(sorted(bounds))
        self._demand_set = frozenset(bounds)
        self.is_everything = not bounds and not self.is_nothing and wanted.is_everything

    def may_cover(self, other: Summary) -> bool:
        """False only if this filter cannot cover the other."""
        if self.is_everything or other.is_nothing:
            return True
        return (
            self.filter.language == other.filter.language and self._demand_set <= other._demand_set
        )

    def covers(self, other: Summary) -> bool:
        """Whether the filter covers the other."""
        return self.may_cover(other) and self.filter.covers(other.filter)


def _needed(domains: Mapping[Path, Domain]) -> dict[Path, Values]:
    """The attributes that must be there, with the values that they must have if these are few."""
    return {path: _values(domain) for path, domain in domains.items() if not domain.absent}


def _values(domain: Domain) -> Values:
    """The values of a domain without "absent" that has only a few, else _ANY_VALUE."""
    if domain.other:
        return _ANY_VALUE
    values: list[Value] = []
    for kind_class, cuts in zip(KindClass, domain.sets, strict=True):
        if not cuts:
            continue
        keys = single_points(kind_class, cuts) if len(cuts) <= 2 * LISTED_VALUES_MAX else None
        if keys is None:
            return _ANY_VALUE
        values += ((kind_class, key) for key in keys)
    return tuple(values) if len(values) <= LISTED_VALUES_MAX else _ANY_VALUE


def bounding_domains(boxes: Sequence[Box]) -> dict[Path, Domain]:
    """The smallest domain of each attribute that holds its domains of all boxes, if it is not all.

    Where it would have many gaps they are closed: it is then larger than the smallest.
    """
    if not boxes:
        return {}
    narrowest = min(boxes, key=lambda box: len(box.domains))
    bounds = dict(narrowest.domains)
    for box in boxes:
        if box is narrowest:
            continue
        bounds = {
            path: _spanned(domain.union(box.domains[path]))
            for path, domain in bounds.items()
            if path in box.domains
        }
    return {path: domain for path, domain in bounds.items() if not domain.is_everything}


def _spanned(domain: Domain) -> Domain:
    if sum(map(len, domain.sets)) <= BOUNDING_CUTS_MAX:
        return domain
    number, string, boolean, date, timestamp = map(_span, domain.sets)
    return Domain(domain.absent, domain.other, (number, string, boolean, date, timestamp))


def _span(cuts: IntervalSet) -> IntervalSet:
    return (cuts[0], cuts[-1]) if cuts else EMPTY


Node = TypeVar("Node", bound=Summary)
_Bucket = dict[bytes, Node]


class CoveringIndex(Generic[Node]):
    """Some filters, by their digests, with the look-ups that covering and matching need."""

    __slots__ = ("_lookup", "nodes")

    def __init__(self) -> None:
        self.nodes: _Bucket[Node] = {}
        self._lookup: _Lookup[Node] | None = None

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes.values())

    def __contains__(self, digest: bytes) -> bool:
        return digest in self.nodes

    def add(self, node: Node) -> None:
        """Put a filter in; it must not be there."""
        assert node.digest not in self.nodes
        self.nodes[node.digest] = node
        if self._lookup is not None:
            self._lookup.add(node)
        elif len(self.nodes) > SCAN_MAX:
            self._lookup = _Lookup()
            for known in self.nodes.values():
                self._lookup.add(known)

    def discard(self, node: Node) -> None:
        """Take a filter out; it must be there."""
        del self.nodes[node.digest]
        if not self.nodes:
            self._lookup = None
        elif self._lookup is not None:
            self._lookup.discard(node)

    def coverer(self, specific: Summary) -> Node | None:
        """A filter that covers the given one, which itself is not in the index."""
        if self._lookup is None or specific.is_nothing:
            candidates: Iterable[Node] = self.nodes.values()
        else:
            candidates = self._lookup.possible_coverers(specific)
        return next((node for node in candidates if node.covers(specific)), None)

    def covered(self, general: Summary) -> list[Node]:
        """All the filters that the given one covers."""
        if self._lookup is None or general.is_everything:
            candidates: Iterable[Node] = self.nodes.values()
        else:
            candidates = self._lookup.possibly_covered(general)
        return [node for node in candidates if general.covers(node)]

    def matching(self, event: Matchable) -> Iterator[Node]:
        """The filters that match the event."""
        if self._lookup is None:
            candidates: Iterable[Node] = self.nodes.values()
        else:
            candidates = self._lookup.reached(event)
        return (node for node in candidates if node.filter.matches(event))

    def matching_only(self, paths: Iterable[Path]) -> list[Node]:
        """A superset of the filters that match an event which has no attributes but these."""
        if self._lookup is None:
            return list(self.nodes.values())
        return list(self._lookup.at_paths(paths))


_Buckets = dict[Value | None, _Bucket[Node]]


class _Lookup(Generic[Node]):
    """The access keys and the postings of an index with many filters."""

    __slots__ = ("_access", "_buckets", "_nodes", "_postings", "_unkeyed")

    def __init__(self) -> None:
        self._nodes: _Bucket[Node] = {}
        # Per attribute, and listed value or _ANY: the filters with that access key.
        self._buckets: dict[Path, _Buckets[Node]] = {}
        self._access: dict[bytes, list[tuple[Path, Values]]] = {}
        # Filters with a box that demands no attribute to be there: always candidates.
        self._unkeyed: _Bucket[Node] = {}
        # Per demanded attribute, and listed value or _ANY for all: the digests with that demand.
        self._postings: dict[tuple[Path, Value | None], set[bytes]] = {}

    def add(self, node: Node) -> None:
        self._nodes[node.digest] = node
        if node.boxes and all(node.boxes):
            keys = [min(box.items(), key=self._crowd) for box in node.boxes]
            self._access[node.digest] = keys
            for path, values in keys:
                buckets = self._buckets.setdefault(path, {})
                for value in values:
                    buckets.setdefault(value, {})[node.digest] = node
        else:
            self._unkeyed[node.digest] = node
        for key in _posting_keys(node):
            self._postings.setdefault(key, set()).add(node.digest)

    def _crowd(self, key: tuple[Path, Values]) -> int:
        """How many filters share an access key."""
        path, values = key
        buckets = self._buckets.get(path)
        return 0 if buckets is None else max(len(buckets.get(value, ())) for value in values)

    def discard(self, node: Node) -> None:
        del self._nodes[node.digest]
        self._unkeyed.pop(node.digest, None)
        for path, values in self._access.pop(node.digest, ()):
            # Several boxes may share a key: the first of them clears it.
            buckets = self._buckets.get(path, {})
            for value in values:
                buckets.get(value, {}).pop(node.digest, None)
                if not buckets.get(value):
                    buckets.pop(value, None)
            if not buckets:
                self._buckets.pop(path, None)
        for key in _posting_keys(node):
            self._postings[key].discard(node.digest)
            if not self._postings[key]:
                del self._postings[key]

    def possible_coverers(self, specific: Summary) -> Iterator[Node]:
        box = min(specific.boxes, key=len, default={})
        return self._visited(
            self._buckets[path].get(value, {})
            for path, values in box.items()
            if path in self._buckets
            for value in (values if values == _ANY_VALUE else (_ANY, *values))
        )

    def possibly_covered(self, general: Summary) -> list[Node]:
        if not general.demands:
            return list(self._nodes.values())
        postings = sorted((self._posting(general, path) for path in general.demands), key=len)
        nothing = [node for node in self._unkeyed.values() if node.is_nothing]
        found = set.intersection(*postings)
        return [*nothing, *(self._nodes[digest] for digest in sorted(found))]

    def _posting(self, general: Summary, path: Path) -> set[bytes]:
        values = general.listed.get(path, _ANY_VALUE)
        if len(values) == 1:
            return self._postings.get((path, values[0]), set())
        return set().union(*(self._postings.get((path, value), ()) for value in values))

    def reached(self, event: Matchable) -> Iterator[Node]:
        attributes = attributes_of(event)
        found: list[_Bucket[Node]] = []
        for path, buckets in self._buckets.items():
            value = value_at(attributes, path)
            if not is_missing(value):
                found.append(buckets.get(_ANY, {}))
                place = comparable(value)
                if place is not None:
                    found.append(buckets.get(place, {}))
        return self._visited(found)

    def at_paths(self, paths: Iterable[Path]) -> Iterator[Node]:
        return self._visited(
            bucket for path in paths for bucket in self._buckets.get(path, {}).values()
        )

    def _visited(self, buckets: Iterable[_Bucket[Node]]) -> Iterator[Node]:
        """The filters without an access key, then those in the buckets, each once."""
        yield from self._unkeyed.values()
        seen: set[bytes] = set()
        for bucket in buckets:
            for digest, node in bucket.items():
                if digest not in seen:
                    seen.add(digest)
                    yield node


def _posting_keys(node: Summary) -> Iterator[tuple[Path, Value | None]]:
    for path in node.demands:
        yield path, _ANY
        for value in node.listed.get(path, ()):
            yield path, value
