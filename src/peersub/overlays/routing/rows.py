"""`Rows`: the content of a routing table, immutable and shared.

In a network many tables are equal: what a peer sent is what the other was told, and publishers that
are served by the same edges get the same rows. So a table's content is one immutable object that
all of them hold; a change makes a new one, at the cost of copying references.

Rows for events (`entries`) are sorted by their key, name and digest of the filter, and no two have
the same key. Rows for control notifications (`control`) are one per reserved name, as intervals of
keys (`control_filters`), sorted by name. On the wire both are entries.

The digest is the sum of the hashes of all rows modulo 2^128: it does not depend on an order, and a
change of a few rows changes it by a few additions.

Law: `old.changed(*old.change_to(new)) == new`.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Final, TypeAlias

from peersub.filters.filter import Filter
from peersub.matching.matcher import Matcher
from peersub.overlays.core.publication import Publication
from peersub.overlays.routing.control_filters import (
    Intervals,
    filter_of,
    intervals_of,
    is_control_name,
)
from peersub.overlays.routing.messages import Entry, EntryKey

__all__ = ["NO_ROWS", "Change", "ControlRows", "Rows", "WireSizes", "control_change", "row_key"]

ControlRows: TypeAlias = tuple[tuple[str, Intervals], ...]
Change: TypeAlias = tuple[tuple[Entry, ...], tuple[EntryKey, ...]]
"""Rows that come, in place of those with the same key if there are any; keys of those that go."""

DIGEST_BYTES: Final = 16
_MODULUS: Final = 1 << 8 * DIGEST_BYTES
FILTERS_MAX: Final = 65_536
"""Filters whose size is remembered."""
INDEX_FROM: Final = 16
"""Rows from which an index pays: below, each filter is asked."""
INDEX_AFTER: Final = 16
"""Events that are asked row by row before an index is made: making it costs as much as about so
many of them, and rows that change with each event never have one."""
_FILTER_OF: Final = itemgetter(1)
"""The filter of an entry."""
_FEW: Final = 8
"""Changes up to which each is looked up by itself."""


def row_key(entry: Entry) -> EntryKey:
    """The key by which rows are sorted: the same as `Entry.key`, and faster."""
    return entry[0], entry[1].digest


def _hash(entry: Entry) -> int:
    """A number that stands for the row in the digest of its table."""
    if not entry.name and not entry.reach:
        return int.from_bytes(entry.filter.digest)
    content = hashlib.blake2b(entry.filter.digest, digest_size=DIGEST_BYTES)
    content.update(repr((entry.name, entry.reach)).encode())
    return int.from_bytes(content.digest())


def _control_hash(name: str, intervals: Intervals) -> int:
    content = hashlib.blake2b(repr((name, intervals)).encode(), digest_size=DIGEST_BYTES)
    return int.from_bytes(content.digest())


class Rows:
    """The rows of a table. Make them with `of`, `changed` or `with_control`.

    >>> from peersub.filters.filter import Filter
    >>> rows = Rows.of([Entry("", Filter("a = 1"))])
    >>> len(rows), len(rows.changed([Entry("", Filter("a = 2"))], [])), len(NO_ROWS)
    (1, 2, 0)
    """

    __slots__ = ("_asked", "_entries_sum", "_index", "control", "entries", "wire_bytes")

    def __init__(
        self,
        entries: tuple[Entry, ...] = (),
        control: ControlRows = (),
        entries_sum: int | None = None,
    ) -> None:
        self.entries: Final = entries
        self.control: Final = control
        self._entries_sum = entries_sum
        self._asked = 0
        self._index: Matcher | None = None
        self.wire_bytes = -1
        """What `WireSizes` has found, or -1."""

    @classmethod
    def of(cls, entries: Iterable[Entry], control: Mapping[str, Intervals] | None = None) -> Rows:
        """These rows, in any order; of several with the same key the last."""
        by_key = {row_key(entry): entry for entry in entries}
        sorted_entries = tuple(by_key[key] for key in sorted(by_key))
        return cls(sorted_entries, _control_rows(control) if control else ())

    def with_control(self, control: ControlRows) -> Rows:
        """The same rows for events with these for control notifications."""
        if control == self.control:
            return self
        return Rows(self.entries, control, self._entries_sum)

    # --- asking --------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.entries) + len(self.control)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rows):
            return NotImplemented
        return self is other or (self.control == other.control and self.entries == other.entries)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        shown = ", ".join(f"{entry.name}{entry.filter.text!r}" for entry in self.entries)
        return f"Rows([{shown}], {self.control!r})"

    @property
    def digest(self) -> bytes:
        """16 bytes that name the rows, whatever the order in which they came."""
        total = self._sum()
        for name, intervals in self.control:
            total += _control_hash(name, intervals)
        return (total % _MODULUS).to_bytes(DIGEST_BYTES)

    def _sum(self) -> int:
        if self._entries_sum is None:
            self._entries_sum = sum(map(_hash, self.entries)) % _MODULUS
        return self._entries_sum

    def place(self, key: EntryKey) -> int:
        """Where a row with this key is, or would be, among the entries."""
        return bisect_left(self.entries, key, key=row_key)

    def find(self, key: EntryKey) -> Entry | None:
        """The row with this key."""
        place = self.place(key)
        if place < len(self.entries) and row_key(self.entries[place]) == key:
            return self.entries[place]
        return None

    def want(self, publication: Publication) -> bool:
        """Whether a row wants the event."""
        index = self._index if self._index is not None else self._index_if_it_pays()
        if index is None:
            return publication.matches_any(map(_FILTER_OF, self.entries))
        return index.matches_any(publication.event, publication.probe)

    def wanting(self, publication: Publication) -> Iterator[Entry]:
        """The rows that want the event, in no order; found one by one, as far as is asked."""
        index = self._index if self._index is not None else self._index_if_it_pays()
        if index is None:
            for entry in self.entries:
                if publication.matches(entry[1]):
                    yield entry
        else:
            for place in index.match(publication.event, publication.probe):
                yield self.entries[int(place)]

    def _index_if_it_pays(self) -> Matcher | None:
        self._asked += 1
        if len(self.entries) < INDEX_FROM or self._asked <= INDEX_AFTER:
            return None
        index = Matcher()
        for place, entry in enumerate(self.entries):
            index.add(str(place), entry.filter)
        self._index = index
        return index

    def wire_entries(self) -> tuple[Entry, ...]:
        """All rows as they travel."""
        return self.entries + tuple(Entry(name, filter_of(name, i)) for name, i in self.control)

    # --- changing ------------------------------------------------------------------------------

    def changed(self, added: Iterable[Entry], removed: Iterable[EntryKey]) -> Rows:
        """The rows after a change. A key to remove that is not there is no error here.

        Raises:
            ValueError: a row under a reserved name is no filter of control notifications.
        """
        entries = [entry for entry in added if not is_control_name(entry.name)]
        control = [entry for entry in added if is_control_name(entry.name)]
        keys = [key for key in removed if not is_control_name(key[0])]
        names = [key[0] for key in removed if is_control_name(key[0])]
        rows = self._with_entries(entries, keys)
        return rows.with_control(_changed_control(self.control, control, names))

    def _with_entries(self, added: list[Entry], removed: list[EntryKey]) -> Rows:
        if not added and not removed:
            return self
        if len(added) + len(removed) > _FEW:
            by_key = {row_key(entry): entry for entry in self.entries}
            for key in removed:
                by_key.pop(key, None)
            by_key.update((row_key(entry), entry) for entry in added)
            return Rows(tuple(by_key[key] for key in sorted(by_key)), self.control)
        entries, total = list(self.entries), self._sum()
        for key in removed:
            place = bisect_left(entries, key, key=row_key)
            if place < len(entries) and row_key(entries[place]) == key:
                total -= _hash(entries.pop(place))
        for entry in added:
            key = row_key(entry)
            place = bisect_left(entries, key, key=row_key)
            if place < len(entries) and row_key(entries[place]) == key:
                total += _hash(entry) - _hash(entries[place])
                entries[place] = entry
            else:
                entries.insert(place, entry)
                total += _hash(entry)
        return Rows(tuple(entries), self.control, total % _MODULUS)

    def change_to(self, new: Rows) -> Change:
        """What to add and to remove to come from these rows to the others."""
        added, removed = _difference(self.entries, new.entries)
        more, fewer = control_change(self.control, new.control)
        return (*added, *more), (*removed, *fewer)


NO_ROWS: Final = Rows()


class WireSizes:
    """What rows take on the wire, about; remembered per filter, up to FILTERS_MAX of them."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}

    def of_filter(self, wanted: Filter) -> int:
        """The bytes of the filter's normal form."""
        known = self._known.get(wanted.digest)
        if known is None:
            if len(self._known) >= FILTERS_MAX:
                self._known.clear()
            known = self._known[wanted.digest] = len(wanted.to_bytes())
        return known

    def of_entry(self, entry: Entry) -> int:
        """The bytes of a row."""
        return 8 + len(entry.name) + 9 * len(entry.reach) + self.of_filter(entry.filter)

    def of_rows(self, rows: Rows) -> int:
        """The bytes of a whole table; one that many peers share is added up once."""
        if rows.wire_bytes < 0:
            control = sum(32 + len(name) + 9 * len(i) for name, i in rows.control)
            rows.wire_bytes = control + sum(map(self.of_entry, rows.entries))
        return rows.wire_bytes


def _difference(
    old: tuple[Entry, ...], new: tuple[Entry, ...]
) -> tuple[list[Entry], list[EntryKey]]:
    # Most rows are the same objects in the same order: leave out the equal ends first.
    shorter = min(len(old), len(new))
    start = 0
    while start < shorter and old[start] is new[start]:
        start += 1
    end = 0
    while end < shorter - start and old[-1 - end] is new[-1 - end]:
        end += 1
    before = {row_key(entry): entry for entry in old[start : len(old) - end]}
    after = {row_key(entry): entry for entry in new[start : len(new) - end]}
    added = [
        entry
        for key, entry in after.items()
        if (known := before.get(key)) is None or known.reach != entry.reach
    ]
    return added, [key for key in before if key not in after]


def _control_rows(control: Mapping[str, Intervals]) -> ControlRows:
    return tuple((name, control[name]) for name in sorted(control) if control[name])


def control_change(old: ControlRows, new: ControlRows) -> Change:
    """What to add and to remove, as it travels; a row whose intervals change is added anew."""
    if old == new:
        return (), ()
    before, after = dict(old), dict(new)
    added = tuple(
        Entry(name, filter_of(name, intervals))
        for name, intervals in new
        if before.get(name) != intervals
    )
    removed = tuple(
        (name, filter_of(name, intervals).digest) for name, intervals in old if name not in after
    )
    return added, removed


def _changed_control(control: ControlRows, added: list[Entry], removed: list[str]) -> ControlRows:
    if not added and not removed:
        return control
    rows = dict(control)
    for name in removed:
        rows.pop(name, None)
    for entry in added:
        intervals = intervals_of(entry.name, entry.filter)
        if intervals is None:
            raise ValueError(f"the row {entry.name} is no filter of control notifications")
        rows[entry.name] = intervals
    return _control_rows(rows)
