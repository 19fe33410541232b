"""The groups and the postings of an index with many filters: who may cover whom, or want an event.

Take an event of the covered filter with no attributes but those that one of its boxes needs, and no
value that it need not have. It lies in some box of the coverer, so the attributes that this box
needs are among them. Hence

* filters are grouped by the attributes that each of their boxes needs, and within a group by a
  listed value, into *buckets*; a coverer is found in the groups of the subsets of what one box of
  the covered filter needs;
* an event is led to the filters that want it by the same groups;
* the covered filters are found by intersecting the *postings* of the coverer's demands: for each
  attribute, and each listed value, all filters that demand it.

Where a bucket or a posting is large, spans (see `span_index`) say who is left:

* a filter of one box covers another only if, for each attribute, its span contains the other's
  bounding span;
* one of several boxes covers another only if it has a box that wants the event above, hence a box
  whose span touches that of the covered box, for each attribute; and only if its bounding span
  contains the other's.

The second needs an event that really exists. A box with text tests may be empty without this being
proven at once, and a union may still be proven to cover it: against a filter with text tests no
filter of several boxes is ruled out by spans. Of several attributes the one that leaves fewest is
taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import combinations
from typing import Final, Generic, TypeVar

from peersub.events.kinds import comparable, is_missing
from peersub.filters.boxes import Path
from peersub.filters.covering_buckets import Bucket, Entry, Question
from peersub.filters.covering_postings import Postings, bounds, witness_domains
from peersub.filters.span_index import SPANNED_MIN, Answers, span_at
from peersub.filters.summary import Subject, Summary, Value, Values

__all__ = ["Lookup"]

Node = TypeVar("Node", bound=Summary)
_Key = tuple[frozenset[Path], tuple[Entry, ...]]
_Group = dict[Entry, Bucket[Node]]
"""The filters with a box that needs certain attributes, by a value that it lists, or None."""


class Lookup(Generic[Node]):
    """The groups and the postings."""

    __slots__ = (
        *("_demanding", "_groups", "_keys", "_listing", "_needed", "_next_number", "_nodes"),
        *("_nothing", "_numbers", "_opaque", "_witnessing"),
    )

    def __init__(self) -> None:
        self._nodes: dict[bytes, Node] = {}
        self._numbers: dict[bytes, int] = {}
        self._next_number = 0
        self._nothing: dict[bytes, Node] = {}
        self._opaque: set[bytes] = set()
        self._groups: dict[frozenset[Path], _Group[Node]] = {}
        self._keys: dict[bytes, list[_Key]] = {}
        # How many groups need an attribute.
        self._needed: Counter[Path] = Counter()
        # Per demanded attribute, and per listed value: the digests with that demand.
        self._demanding = Postings(bounds)
        self._listing: dict[tuple[Path, Value | None], set[bytes]] = {}
        # Of the filters with several boxes, what one of the boxes needs.
        self._witnessing = Postings(witness_domains)

    def add(self, node: Node) -> None:
        """Put a filter in; it must not be there."""
        self._nodes[node.digest] = node
        if node.is_nothing:
            self._nothing[node.digest] = node
        if node.has_tests:
            self._opaque.add(node.digest)
        number = self._numbers[node.digest] = self._next_number
        self._next_number += 1
        keys = [self._key(box) for box in node.boxes] or [(_NOTHING_NEEDED, (None,))]
        self._keys[node.digest] = keys
        for (needed, entries), domains in zip(keys, node.domains or ({},), strict=True):
            group = self._groups.get(needed)
            if group is None:
                group = self._groups[needed] = {}
                self._needed.update(sorted(needed))
            for entry in entries:
                bucket = group.get(entry)
                if bucket is None:
                    bucket = group[entry] = Bucket(entry)
                bucket.add(number, node, domains)
        self._demanding.add(node, node.demands, self._nodes)
        if node.has_several_boxes:
            self._witnessing.add(node, node.boxes[node.witness], self._nodes)
        for path, values in node.listed.items():
            for value in values:
                self._listing.setdefault((path, value), set()).add(node.digest)

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
        """Take a filter out; it must be there."""
        del self._nodes[node.digest]
        self._nothing.pop(node.digest, None)
        self._opaque.discard(node.digest)
        number = self._numbers.pop(node.digest)
        for needed, entries in self._keys.pop(node.digest):
            # Several boxes may share an entry: the first of them clears it.
            group = self._groups.get(needed, {})
            for entry in entries:
                bucket = group.get(entry)
                if bucket is not None:
                    bucket.discard(number)
                    if not bucket.nodes:
                        del group[entry]
            if not group and self._groups.pop(needed, None) is not None:
                self._needed.subtract(needed)
        self._demanding.discard(node, node.demands)
        if node.has_several_boxes:
            self._witnessing.discard(node, node.boxes[node.witness])
        for path, values in node.listed.items():
            for value in values:
                listing = self._listing[path, value]
                listing.discard(node.digest)
                if not listing:
                    del self._listing[path, value]

    def possible_coverers(self, specific: Summary) -> Iterator[Node]:
        """Among which are all filters that cover the given one, which is not nothing."""
        box, domains = specific.boxes[specific.witness], witness_domains(specific)
        question = Question(
            lambda path: span_at(specific.bounds, path),
            lambda path: span_at(domains, path),
            is_certain=not specific.has_tests,
        )
        entries = _entries(box)
        return _visited(
            bucket.possible(question)
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
        """Among which are all filters that the given one covers."""
        if not general.demands:
            touched = self._touched_by(general)
            if touched is None:
                return list(self._nodes.values())
            touched.update(self._nothing)
            return [
                self._nodes[digest] for digest in sorted(touched, key=self._numbers.__getitem__)
            ]
        nothing = self._nothing.values()
        postings = sorted((self._posting(general, path) for path in general.demands), key=len)
        within = self._fewer_within(general, len(postings[0]))
        found = (postings[0] if within is None else within).intersection(*postings)
        return [*nothing, *(self._nodes[digest] for digest in sorted(found))]

    def _posting(self, general: Summary, path: Path) -> set[bytes]:
        """The filters that demand the attribute and no value that the given one does not list."""
        values = general.listed.get(path)
        if values is None:
            return self._demanding[path].digests
        if len(values) == 1:
            return self._listing.get((path, values[0]), set())
        return set().union(*(self._listing.get((path, value), ()) for value in values))

    def _fewer_within(self, general: Summary, size_max: int) -> set[bytes] | None:
        """The filters within the bounds of the given one, by the attribute that leaves fewest.

        None if these are not fewer than the given number, or if that is small.
        """
        if size_max <= SPANNED_MIN:
            return None
        fewest: Answers[bytes] | None = None
        opaque: set[bytes] = set()
        for path in general.demands:
            posting = self._demanding[path]
            found = posting.within(general)
            exempt = posting.opaque if general.has_several_boxes else set()
            if found is not None and found.size + len(exempt) < size_max:
                fewest, opaque, size_max = found, exempt, found.size + len(exempt)
        return None if fewest is None else opaque.union(fewest.names())

    def _touched_by(self, general: Summary) -> set[bytes] | None:
        """The filters whose witness box shares an event with a box of the given one.

        A union whose boxes have no attribute in common has no bounds. None if one of its boxes
        needs no attribute at all.
        """
        if not all(general.boxes):
            return None
        found = set(self._opaque)
        for needed, domains in zip(general.boxes, general.domains, strict=True):
            choices = []
            for path in needed:
                size, names = self._demanding[path].touching(domains)
                more, others = self._witnessing[path].touching(domains)
                choices.append((size + more, names, others))
            _, names, others = min(choices, key=lambda choice: choice[0])
            found.update(names, others)
        return found

    def reached(self, subject: Subject) -> Iterator[Node]:
        """Among which are all filters that match the event."""
        values = {path: subject.value(path) for path, uses in self._needed.items() if uses}
        present = {path: (comparable(v),) for path, v in values.items() if not is_missing(v)}
        question = Question(subject.span, subject.span)
        entries = _entries(present)
        available = frozenset(present)
        return _visited(
            bucket.possible(question)
            for needed, group in self._groups.items()
            if needed <= available
            for bucket in _chosen(group, entries)
        )

    def at_paths(self, paths: Iterable[Path]) -> Iterator[Node]:
        """The filters with a box that needs no attributes but these."""
        groups = self._groups_within(tuple(paths))
        return _visited(bucket.nodes.values() for group in groups for bucket in group.values())


_NOTHING_NEEDED: Final[frozenset[Path]] = frozenset()


def _entries(values: Mapping[Path, Values]) -> list[Entry]:
    """The entries of a group that attributes with these values, if they are listed, lead to."""
    return [
        None,
        *((path, value) for path, some in values.items() for value in some if value is not None),
    ]


def _chosen(group: _Group[Node], entries: list[Entry]) -> Iterator[Bucket[Node]]:
    return (group[entry] for entry in entries if entry in group)


def _visited(buckets: Iterable[Iterable[Node]]) -> Iterator[Node]:
    """The filters in the buckets, each once."""
    seen: set[bytes] = set()
    for nodes in buckets:
        for node in nodes:
            if node.digest not in seen:
                seen.add(node.digest)
                yield node
