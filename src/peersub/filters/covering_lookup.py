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

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, combinations, islice
from typing import Final, Generic, TypeVar

from peersub.events.kinds import comparable, is_missing
from peersub.filters.boxes import Path
from peersub.filters.covering_buckets import Bucket, Entry, Question
from peersub.filters.covering_postings import Postings, bounds, witness_domains
from peersub.filters.span_index import SPANNED_MIN, Answers, span_at
from peersub.filters.summary import IN_DOCUMENT, Subject, Summary, Value, Values

__all__ = ["Lookup"]

DEMANDS_ASKED_MAX: Final = 16
"""Attributes of a filter whose spans are compared to find the one that leaves fewest."""

Node = TypeVar("Node", bound=Summary)
_Key = tuple[frozenset[Path], tuple[Entry, ...]]
_Group = dict[Entry, Bucket[Node]]
"""The filters with a box that needs certain attributes, by a value that it lists, or None."""


class Lookup(Generic[Node]):
    """The groups and the postings."""

    __slots__ = (
        *("_demanding", "_groups", "_keys", "_known_by", "_listing", "_needed", "_next_number"),
        *("_nodes", "_nothing", "_numbers", "_opaque", "_witnessing"),
    )

    def __init__(self) -> None:
        self._nodes: dict[bytes, Node] = {}
        self._numbers: dict[bytes, int] = {}
        self._next_number = 0
        self._nothing: dict[bytes, Node] = {}
        self._opaque: dict[bytes, None] = {}
        self._groups: dict[frozenset[Path], _Group[Node]] = {}
        self._keys: dict[bytes, list[_Key]] = {}
        # Per group's rarest attribute, when it came, those that are known by it.
        self._known_by: dict[Path, dict[frozenset[Path], None]] = {}
        # By the first part of its name, each attribute that groups need: how many do.
        self._needed: dict[str, dict[Path, int]] = {}
        # Per demanded attribute, and per listed value: the digests with that demand.
        self._demanding = Postings(bounds)
        self._listing: dict[tuple[Path, Value | None], dict[bytes, None]] = {}
        # Of the filters with several boxes, what one of the boxes needs.
        self._witnessing = Postings(witness_domains)

    def add(self, node: Node) -> None:
        """Put a filter in; it must not be there."""
        self._nodes[node.digest] = node
        if node.is_nothing:
            self._nothing[node.digest] = node
        if node.has_tests:
            self._opaque[node.digest] = None
        number = self._numbers[node.digest] = self._next_number
        self._next_number += 1
        keys = [self._key(box) for box in node.boxes] or [(_NOTHING_NEEDED, (None,))]
        self._keys[node.digest] = keys
        for (needed, entries), domains in zip(keys, node.domains or ({},), strict=True):
            group = self._groups.get(needed)
            if group is None:
                group = self._groups[needed] = {}
                self._know(needed)
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
                self._listing.setdefault((path, value), {})[node.digest] = None

    def _know(self, needed: frozenset[Path]) -> None:
        """There is a group that needs these attributes."""
        for path in sorted(needed):
            uses = self._needed.setdefault(path[0], {})
            uses[path] = uses.get(path, 0) + 1
        rarest = min(sorted(needed), key=lambda path: self._needed[path[0]][path], default=_NO_PATH)
        self._known_by.setdefault(rarest, {})[needed] = None

    def _forget(self, needed: frozenset[Path]) -> None:
        """There is none any more."""
        for path in needed:
            uses = self._needed[path[0]]
            uses[path] -= 1
            if not uses[path]:
                del uses[path]
                if not uses:
                    del self._needed[path[0]]
        for path in (_NO_PATH, *needed):
            known = self._known_by.get(path, {})
            if needed in known:
                del known[needed]
                if not known:
                    del self._known_by[path]

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
        self._opaque.pop(node.digest, None)
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
                self._forget(needed)
        self._demanding.discard(node, node.demands)
        if node.has_several_boxes:
            self._witnessing.discard(node, node.boxes[node.witness])
        for path, values in node.listed.items():
            for value in values:
                listing = self._listing[path, value]
                listing.pop(node.digest, None)
                if not listing:
                    del self._listing[path, value]

    def possible_coverers(self, specific: Summary, names_max: int | None = None) -> Iterator[Node]:
        """Among which are all filters that cover the given one, which is not nothing.

        With `names_max` no place is asked for more than so many, the widest and the closest.
        """
        box, domains = specific.boxes[specific.witness], witness_domains(specific)
        question = Question(
            lambda path: span_at(specific.bounds, path),
            lambda path: span_at(domains, path),
            is_certain=not specific.has_tests,
            answers_max=names_max,
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
            yield from self._groups_among(frozenset(paths), paths)

    def _groups_among(
        self, available: frozenset[Path], paths: Iterable[Path]
    ) -> Iterator[_Group[Node]]:
        """The groups that need none but available attributes, each by the one it is known by."""
        for path in (_NO_PATH, *paths):
            for needed in self._known_by.get(path, ()):
                if needed <= available:
                    yield self._groups[needed]

    def possibly_covered(self, general: Summary, names_max: int | None = None) -> list[Node]:
        """Among which are all filters that the given one covers; of many only so many."""
        if not general.demands:
            touched = self._touched_by(general, names_max)
            if touched is None:
                return list(islice(self._nodes.values(), names_max))
            touched.update(islice(self._nothing, names_max))
            return [
                self._nodes[digest] for digest in sorted(touched, key=self._numbers.__getitem__)
            ]
        nothing = islice(self._nothing.values(), names_max)
        paths = general.demands
        postings = sorted((self._posting(general, path, names_max) for path in paths), key=len)
        within = self._fewer_within(general, len(postings[0]), names_max)
        names = islice(postings[0] if within is None else within, names_max)
        found = (name for name in names if all(name in posting for posting in postings))
        return [*nothing, *(self._nodes[digest] for digest in sorted(found))]

    def _posting(
        self, general: Summary, path: Path, names_max: int | None = None
    ) -> Collection[bytes]:
        """The filters that demand the attribute and no value that the given one does not list."""
        values = general.listed.get(path)
        if values is None:
            return self._demanding[path].digests
        listings = [self._listing.get((path, value), {}) for value in values]
        if len(listings) == 1:
            return listings[0]
        return dict.fromkeys(chain.from_iterable(islice(each, names_max) for each in listings))

    def _fewer_within(
        self, general: Summary, size_max: int, names_max: int | None = None
    ) -> Iterable[bytes] | None:
        """The filters within the bounds of the given one, by the attribute that leaves fewest.

        None if these are not fewer than the given number, or if that is small. If not all names
        are wanted, spans say which ones are: the widest, and the narrowest.
        """
        if size_max <= SPANNED_MIN:
            return None
        size_max += names_max is not None
        fewest: Answers[bytes] | None = None
        opaque: Mapping[bytes, None] = {}
        for path in general.demands[:DEMANDS_ASKED_MAX]:
            posting = self._demanding[path]
            found = posting.within(general)
            exempt = posting.opaque if general.has_several_boxes else {}
            if found is not None and found.size + len(exempt) < size_max:
                fewest, opaque, size_max = found, exempt, found.size + len(exempt)
        if fewest is None:
            return None
        return dict.fromkeys(chain(islice(opaque, names_max), fewest.names(names_max)))

    def _touched_by(self, general: Summary, names_max: int | None) -> set[bytes] | None:
        """The filters whose witness box shares an event with a box of the given one.

        A union whose boxes have no attribute in common has no bounds. None if one of its boxes
        needs no attribute at all.
        """
        if not all(general.boxes):
            return None
        found = set(islice(self._opaque, names_max))
        for needed, domains in zip(general.boxes, general.domains, strict=True):
            choices = []
            for path in needed:
                size, names = self._demanding[path].touching(domains, names_max)
                more, others = self._witnessing[path].touching(domains, names_max)
                choices.append((size + more, names, others))
            _, names, others = min(choices, key=lambda choice: choice[0])
            found.update(names, others)
        return found

    def reached(self, subject: Subject) -> Iterator[Node]:
        """Among which are all filters that match the event."""
        values = {path: subject.value(path) for path in self._askable(subject)}
        present = {path: (comparable(v),) for path, v in values.items() if not is_missing(v)}
        question = Question(subject.span, subject.span)
        entries = _entries(present)
        available = frozenset(present)
        return _visited(
            bucket.possible(question)
            for group in self._groups_among(available, present)
            for bucket in _chosen(group, entries)
        )

    def _askable(self, subject: Subject) -> Iterator[Path]:
        """The attributes that groups need and the event may have."""
        for name in (*subject.attributes, IN_DOCUMENT):
            yield from self._needed.get(name, ())

    def at_paths(self, paths: Iterable[Path]) -> Iterator[Node]:
        """The filters with a box that needs no attributes but these."""
        groups = self._groups_within(tuple(paths))
        return _visited(bucket.nodes.values() for group in groups for bucket in group.values())


_NOTHING_NEEDED: Final[frozenset[Path]] = frozenset()
_NO_PATH: Final[Path] = ()
"""What the group that needs no attribute is known by."""


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
