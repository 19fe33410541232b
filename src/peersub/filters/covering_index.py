"""Finding coverers among many filters without asking all of them.

A filter is summarised by its *demands*: the attributes that it constrains in every one of its
boxes, each with its bounding domain. It can only cover another filter if its demands are among the
other's, and where it lists all the values of an attribute, so does the other. Also: take an event
of the covered filter with no attributes but those that one of its boxes needs, and no value that it
need not have. It lies in some box of the coverer, so the attributes that this box needs are among
them. Hence

* filters are grouped by the attributes that each of their boxes needs, and within a group by a
  listed value; a coverer is found in the groups of the subsets of what one box of the covered
  filter needs;
* an event is led to the filters that want it by the same groups;
* the covered filters are found by intersecting the *postings* of the coverer's demands: for each
  attribute, and each listed value, all filters that demand it.

What the summary says is necessary, never sufficient: each candidate is then asked by itself.
Filters of different languages only meet where one of them matches nothing or everything. No result
depends on the order of a set: candidates are visited in the order of insertion or of their digests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from peersub.events.kinds import KindClass, comparable, is_missing, value_at
from peersub.filters.boxes import Box, Path, box_covers
from peersub.filters.domains import Domain
from peersub.filters.filter import Filter, Matchable, attributes_of
from peersub.filters.intervals import EMPTY, IntervalSet, single_points

if TYPE_CHECKING:
    from peersub.filters.xpath.documents import Document

__all__ = ["CoveringIndex", "Subject", "Summary", "bounding_domains"]

SCAN_MAX: Final = 8
"""Filters up to which asking each is cheaper than looking up."""
LISTED_VALUES_MAX: Final = 32
"""Values that a demand may list; one with more counts as a range."""
BOUNDING_CUTS_MAX: Final = 64
"""Cuts of a bounding domain; beyond, its gaps are closed."""

Value = tuple[KindClass, Any]
Values = tuple[Value | None, ...]
_IN_DOCUMENT: Final = "//"
"""The first part of the paths that stand for the labels of a document."""
_ANY: Final = None
_ANY_VALUE: Final[Values] = (_ANY,)
"""Stands for the values of a demand that does not list them."""


class Summary:
    """What a filter demands, computed once.

    Attributes:
        demands: the attributes that each box constrains, sorted; covering reverses their inclusion.
        listed: for some demands, all the values that the filter accepts there. boxes: per box, the
        attributes that an event must have, with their values where it lists them.
    """

    __slots__ = (
        *("boxes", "demands", "digest", "filter", "is_everything", "is_nothing", "listed"),
        *("_box", "_demand_set"),
    )

    def __init__(self, wanted: Filter) -> None:
        self.filter = wanted
        self.digest = wanted.digest
        self.is_nothing = wanted.is_nothing
        self.boxes: list[dict[Path, Values]] = []
        self.listed: dict[Path, Values] = {}
        self._box: Box | None = None
        if wanted.language == "sql":
            self._box = wanted.boxes[0] if len(wanted.boxes) == 1 else None
            self.boxes = [_needed(box.domains) for box in wanted.boxes]
            bounds = bounding_domains(wanted.boxes)
            needed = self.boxes[0] if len(self.boxes) == 1 else _needed(bounds)
            self.listed = {path: values for path, values in needed.items() if values != _ANY_VALUE}
            self.demands: tuple[Path, ...] = tuple(sorted(bounds))
        else:
            # An embedding keeps labels: a pattern demands that they occur in the document.
            self.demands = tuple((_IN_DOCUMENT, label) for label in sorted(_labels(wanted)))
            self.boxes = [dict.fromkeys(self.demands, _ANY_VALUE)]
        self._demand_set = frozenset(self.demands)
        self.is_everything = not self.demands and not self.is_nothing and wanted.is_everything

    def may_cover(self, other: Summary) -> bool:
        """False only if this filter cannot cover the other."""
        if self.is_everything or other.is_nothing:
            return True
        return (
            self.filter.language == other.filter.language and self._demand_set <= other._demand_set
        )

    def covers(self, other: Summary) -> bool:
        """Whether the filter covers the other."""
        if not self.may_cover(other):
            return False
        if self._box is not None and other._box is not None:
            # By far the most common case, without the detour through unions.
            return box_covers(self._box, other._box)
        return self.filter.covers(other.filter)


def _labels(pattern: Filter) -> frozenset[str]:
    from peersub.filters.xpath.pattern import labels_of
    from peersub.filters.xpath.xpath_filter import XPathFilter

    assert isinstance(pattern, XPathFilter)
    return frozenset() if pattern.pattern is None else labels_of(pattern.pattern)


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


class Subject:
    """An event that many filters are asked about: its document, if it has one, is parsed once."""

    __slots__ = ("_document", "_event", "attributes")

    def __init__(self, event: Matchable) -> None:
        self._event = event
        self.attributes = attributes_of(event)
        self._document: Any = _UNREAD

    @property
    def document(self) -> Document | None:
        """The event's document, None if it has none that can be read."""
        if self._document is _UNREAD:
            from peersub.filters.xpath.documents import DocumentError, document_of

            try:
                self._document = document_of(self._event)
            except DocumentError:
                self._document = None
        found: Document | None = self._document
        return found

    def value(self, path: Path) -> object:
        """The value of an attribute; for a label just something, if it occurs in the document."""
        if path[0] != _IN_DOCUMENT:
            return value_at(self.attributes, path)
        return () if self.document is not None and path[1] in self.document.places else None

    def is_matched_by(self, wanted: Filter) -> bool:
        """Whether the filter matches the event."""
        if wanted.language == "sql":
            return wanted.matches(self.attributes)
        matches: Callable[[Document], bool] = wanted.matches  # type: ignore[assignment]
        return self.document is not None and matches(self.document)


_UNREAD: Final = object()

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

    def coverers(self, specific: Summary) -> list[Node]:
        """All the filters that cover the given one."""
        if self._lookup is None or specific.is_nothing:
            candidates: Iterable[Node] = self.nodes.values()
        else:
            candidates = self._lookup.possible_coverers(specific)
        return [node for node in candidates if node.covers(specific)]

    def covered(self, general: Summary) -> list[Node]:
        """All the filters that the given one covers."""
        if self._lookup is None or general.is_everything:
            candidates: Iterable[Node] = self.nodes.values()
        else:
            candidates = self._lookup.possibly_covered(general)
        return [node for node in candidates if general.covers(node)]

    def matching(self, subject: Subject) -> Iterator[Node]:
        """The filters that match the event."""
        if self._lookup is None:
            candidates: Iterable[Node] = self.nodes.values()
        else:
            candidates = self._lookup.reached(subject)
        return (node for node in candidates if subject.is_matched_by(node.filter))

    def matching_only(self, paths: Iterable[Path]) -> list[Node]:
        """A superset of the filters that match an event which has no attributes but these."""
        if self._lookup is None:
            return list(self.nodes.values())
        return list(self._lookup.at_paths(paths))


_Group = dict[tuple[Path, Value] | None, _Bucket[Node]]
"""The filters with a box that needs certain attributes, by a value that it lists, or None."""
_Key = tuple[frozenset[Path], tuple[tuple[Path, Value] | None, ...]]


class _Lookup(Generic[Node]):
    """The groups and the postings of an index with many filters."""

    __slots__ = ("_groups", "_keys", "_needed", "_nodes", "_postings")

    def __init__(self) -> None:
        self._nodes: _Bucket[Node] = {}
        self._groups: dict[frozenset[Path], _Group[Node]] = {}
        self._keys: dict[bytes, list[_Key]] = {}
        # How many groups need an attribute.
        self._needed: Counter[Path] = Counter()
        # Per demanded attribute, and listed value or _ANY for all: the digests with that demand.
        self._postings: dict[tuple[Path, Value | None], set[bytes]] = {}

    def add(self, node: Node) -> None:
        self._nodes[node.digest] = node
        keys = [self._key(box) for box in node.boxes] or [(_NOTHING_NEEDED, (None,))]
        self._keys[node.digest] = keys
        for needed, entries in keys:
            group = self._groups.get(needed)
            if group is None:
                group = self._groups[needed] = {}
                self._needed.update(sorted(needed))
            for entry in entries:
                group.setdefault(entry, {})[node.digest] = node
        for key in _posting_keys(node):
            self._postings.setdefault(key, set()).add(node.digest)

    def _key(self, box: dict[Path, Values]) -> _Key:
        """The group of a box, and its entries there: the values of its most telling attribute."""
        needed = frozenset(box)
        group = self._groups.get(needed, {})
        listings = [
            [(path, value) for value in values if value is not None] for path, values in box.items()
        ]
        chosen = min(
            filter(None, listings),
            key=lambda entries: max(len(group.get(entry, ())) for entry in entries),
            default=None,
        )
        return needed, (None,) if chosen is None else tuple(chosen)

    def discard(self, node: Node) -> None:
        del self._nodes[node.digest]
        for needed, entries in self._keys.pop(node.digest):
            # Several boxes may share an entry: the first of them clears it.
            group = self._groups.get(needed, {})
            for entry in entries:
                group.get(entry, {}).pop(node.digest, None)
                if not group.get(entry):
                    group.pop(entry, None)
            if not group and self._groups.pop(needed, None) is not None:
                self._needed.subtract(needed)
        for key in _posting_keys(node):
            self._postings[key].discard(node.digest)
            if not self._postings[key]:
                del self._postings[key]

    def possible_coverers(self, specific: Summary) -> Iterator[Node]:
        box = min(specific.boxes, key=len, default={})
        entries = _entries(box)
        return _visited(
            bucket
            for group in self._groups_within(tuple(box))
            for bucket in _chosen(group, entries)
        )

    def _groups_within(self, paths: Collection[Path]) -> Iterator[_Group[Node]]:
        """The groups that need no attributes but these."""
        if 1 << min(len(paths), 64) <= len(self._groups):
            for size in range(len(paths) + 1):
                for subset in combinations(paths, size):
                    group = self._groups.get(frozenset(subset))
                    if group is not None:
                        yield group
        else:
            available = frozenset(paths)
            yield from (group for needed, group in self._groups.items() if needed <= available)

    def possibly_covered(self, general: Summary) -> list[Node]:
        if not general.demands:
            return list(self._nodes.values())
        postings = sorted((self._posting(general, path) for path in general.demands), key=len)
        unneeding = self._groups.get(_NOTHING_NEEDED, {}).get(None, {})
        nothing = [node for node in unneeding.values() if node.is_nothing]
        found = set.intersection(*postings)
        return [*nothing, *(self._nodes[digest] for digest in sorted(found))]

    def _posting(self, general: Summary, path: Path) -> set[bytes]:
        values = general.listed.get(path, _ANY_VALUE)
        if len(values) == 1:
            return self._postings.get((path, values[0]), set())
        return set().union(*(self._postings.get((path, value), ()) for value in values))

    def reached(self, subject: Subject) -> Iterator[Node]:
        values = {path: subject.value(path) for path, uses in self._needed.items() if uses}
        present = {path: (comparable(v),) for path, v in values.items() if not is_missing(v)}
        entries = _entries(present)
        available = frozenset(present)
        return _visited(
            bucket
            for needed, group in self._groups.items()
            if needed <= available
            for bucket in _chosen(group, entries)
        )

    def at_paths(self, paths: Iterable[Path]) -> Iterator[Node]:
        groups = self._groups_within(tuple(paths))
        return _visited(bucket for group in groups for bucket in group.values())


_NOTHING_NEEDED: Final[frozenset[Path]] = frozenset()


def _entries(values: Mapping[Path, Values]) -> list[tuple[Path, Value] | None]:
    """The entries of a group that attributes with these values, if they are listed, lead to."""
    return [
        None,
        *((path, value) for path, some in values.items() for value in some if value is not None),
    ]


def _chosen(group: _Group[Node], entries: list[Any]) -> Iterator[_Bucket[Node]]:
    return (group[entry] for entry in entries if entry in group)


def _visited(buckets: Iterable[_Bucket[Node]]) -> Iterator[Node]:
    """The filters in the buckets, each once."""
    seen: set[bytes] = set()
    for bucket in buckets:
        for node in bucket.values():
            if node.digest not in seen:
                seen.add(node.digest)
                yield node


def _posting_keys(node: Summary) -> Iterator[tuple[Path, Value | None]]:
    for path in node.demands:
        yield path, _ANY
        for value in node.listed.get(path, ()):
            yield path, value
