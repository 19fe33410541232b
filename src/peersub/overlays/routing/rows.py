"""`Rows`: the content of a routing table, immutable and shared.

In a network many tables are equal: what a peer sent is what the other was told, and publishers that
are served by the same edges get the same rows. So a table's content is one immutable object that
all of them hold, and a change makes a new one.

A change costs as much as the rows that change, however many there are (`_Version`): the newest
version of a table has the rows in a dict, which it took over from the version before; an older one
has what differs in the next. So whoever held the older one learns what has changed without looking
at all rows, and may follow in steps (`towards`). Whoever still asks an old version about its rows
pays for a copy.

Rows for events (`entries`) are sorted by their key, name and digest of the filter, and no two have
the same key. Rows for control notifications (`control`) are one per reserved name, as intervals of
keys (`control_filters`), sorted by name. On the wire both are entries.

The digest is the sum of the hashes of all rows modulo 2^128: it does not depend on an order, and a
change of a few rows changes it by a few additions.

Law: `old.changed(*old.change_to(new)) == new`, and `old.towards(new, n)`, asked again from where
it led, leads to `new`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Final, TypeAlias
from weakref import ref

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

__all__ = [
    "NO_ROWS",
    "Change",
    "ControlRows",
    "Rows",
    "WireSizes",
    "control_change",
    "control_rows",
    "row_key",
]

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
many of them, and rows that change with each event never have one. It goes again when half as many
rows have changed as there are, and no event was asked about meanwhile."""
INDEXED_PER_EVENT: Final = 2
"""Rows, at least, that enter a new index with each event that is asked about."""
INDEXED_BY_EVENTS: Final = 128
"""Events by which all rows have entered: until then each asks those that have not."""
_FILTER_OF: Final = itemgetter(1)
"""The filter of an entry."""
LINKED_MIN: Final = 1_024
"""Changed rows that versions of a table stay linked for, or as many as the table has, or had, rows.
Beyond, an old version keeps a copy of the rows instead of all that changed since."""
SORTED_MAX: Final = 1_024
"""Rows that are sorted in one go."""
_DIGEST_HEX: Final = 2 * DIGEST_BYTES


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


_Places: TypeAlias = dict[EntryKey, Entry | None]
"""What keys lead to; None for no row."""
_Link: TypeAlias = "tuple[_Version | ref[_Version], _Places, _Places]"
"""The next version, and what the changed keys led to before, and lead to after it."""


class _Version:
    """The rows for events of a table, at one time.

    It has the rows in a dict, or as a sorted tuple, or both, or neither: then a later version has
    the dict, and `_later` leads there. A link has what each changed key led to before, and after.
    """

    __slots__ = (
        *("__weakref__", "_by_key", "_copied", "_later", "_linked", "_sorted", "_total"),
        *("asked", "count", "index", "number", "unasked", "unindexed"),
    )

    def __init__(
        self, entries: tuple[Entry, ...] | None, total: int | None = None, number: int = 0
    ) -> None:
        self._sorted = entries
        self.number = number
        self._by_key: dict[EntryKey, Entry] | None = None
        self._later: _Link | None = None
        self._linked = 0
        """Rows that changed since the dict was last copied."""
        self._copied = 0
        """How many rows there were then."""
        self._total = total
        self.count = 0 if entries is None else len(entries)
        self.asked = 0
        """Events that were asked row by row."""
        self.index: Matcher | None = None
        self.unasked = 0
        """Rows that have changed in the index since it was last asked."""
        self.unindexed: dict[EntryKey, None] = {}
        """The rows that are to enter the index."""

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All rows, sorted by key."""
        if self._sorted is None:
            by_key = self.by_key()
            self._sorted = tuple([by_key[key] for key in sorted(by_key)])
        return self._sorted

    @property
    def total(self) -> int:
        """The sum of the hashes of all rows."""
        if self._total is None:
            self._total = sum(map(_hash, self.entries)) % _MODULUS
        return self._total

    def values(self) -> Iterable[Entry]:
        """All rows, in no order."""
        return self._sorted if self._sorted is not None else self.by_key().values()

    def by_key(self) -> dict[EntryKey, Entry]:
        """All rows by their keys; not to be changed."""
        if self._by_key is None:
            if self._sorted is not None:
                self._by_key = {row_key(entry): entry for entry in self._sorted}
            else:
                self._by_key = self._rebuilt()
        return self._by_key

    def _rebuilt(self) -> dict[EntryKey, Entry]:
        """The rows of an old version: those of a later one, with the changes undone."""
        undone: list[_Places] = []
        version = self
        while version._by_key is None and version._sorted is None:
            assert version._later is not None
            later, before, _ = version._later
            assert isinstance(later, _Version), "who has no rows is linked with who has them"
            undone.append(before)
            version = later
        rows = dict(version.by_key())
        for before in reversed(undone):
            for key, entry in before.items():
                if entry is None:
                    del rows[key]
                else:
                    rows[key] = entry
        return rows

    def changed(self, added: Iterable[Entry], removed: Iterable[EntryKey]) -> _Version:
        """The version after a change; this one if nothing changes."""
        rows = self.by_key()
        before: _Places = {}
        after: _Places = {key: None for key in removed if key in rows}
        after.update((row_key(entry), entry) for entry in added)
        total = self.total
        for key, entry in after.items():
            known = rows.get(key)
            if known is not None and entry is not None and known.reach == entry.reach:
                continue
            before[key] = known
            total += (_hash(entry) if entry is not None else 0) - (_hash(known) if known else 0)
        if not before:
            return self
        version = _Version(None, total % _MODULUS, self.number + 1)
        self._hand_over(version, before, after)
        mine = version.by_key()
        for key in before:
            entry = after[key]
            if entry is None:
                del mine[key]
            else:
                mine[key] = entry
        version.count = len(mine)
        version._index_again(before)
        return version

    def _hand_over(self, version: _Version, before: _Places, after: _Places) -> None:
        """Give the next version the dict; or a copy, if another has it or links are many."""
        # No links from no rows: everything that begins there would stay as long as NO_ROWS does.
        if self._later is not None or not self.count:
            version._by_key = dict(self.by_key())
            version._copied = self.count
            return
        version.index, self.index = self.index, None
        version.asked, version.unasked = self.asked, self.unasked
        version.unindexed, self.unindexed = self.unindexed, {}
        linked = self._linked + len(before)
        if linked > max(LINKED_MIN, self.count, self._copied):
            version._by_key = dict(self.by_key())
            version._copied = self.count
            self._later = ref(version), before, after
        else:
            version._by_key, self._by_key = self._by_key, None
            version._linked, version._copied = linked, self._copied
            self._later = version, before, after

    def _index_again(self, before: Collection[EntryKey]) -> None:
        """Let the index follow the change, unless nobody asks it."""
        if self.index is None:
            return
        rows = self.by_key()
        self.unasked += len(before)
        if 2 * self.unasked > max(self.count, 2 * INDEX_FROM):
            self.index, self.asked, self.unindexed = None, 0, {}
            return
        for key in before:
            name, entry = _index_name(key), rows.get(key)
            self.unindexed.pop(key, None)
            if name in self.index:
                self.index.remove(name)
            if entry is not None:
                self.index.add(name, entry.filter)

    def begin_index(self) -> None:
        """Have an index from now on, which gets the rows bit by bit."""
        self.index = Matcher()
        self.unindexed = dict.fromkeys(self.by_key())

    def index_some(self) -> list[Entry]:
        """Let some rows enter the index; those that are still not in it."""
        index, rows = self.index, self.by_key()
        assert index is not None
        some = max(INDEXED_PER_EVENT, self.count // INDEXED_BY_EVENTS)
        for _ in range(min(some, len(self.unindexed))):
            key = self.unindexed.popitem()[0]
            index.add(_index_name(key), rows[key].filter)
        return [rows[key] for key in self.unindexed]

    def change_to(self, new: _Version) -> tuple[list[Entry], list[EntryKey]]:
        """What to add and to remove, sorted by key."""
        links = self._links_to(new)
        if links is None:
            found = [each for each in _differing(dict(self.by_key()), new.entries) if each]
            more = [entry for _, entry in found if entry is not None]
            return more, sorted(key for key, entry in found if entry is None)
        before: _Places = {}
        after: _Places = {}
        for _, known, changed in links:
            for key, entry in known.items():
                before.setdefault(key, entry)
                after[key] = changed[key]
        added: list[Entry] = []
        removed: list[EntryKey] = []
        for key in sorted(before):
            entry, was = after[key], before[key]
            if entry is None:
                if was is not None:
                    removed.append(key)
            elif was is None or was.reach != entry.reach:
                added.append(entry)
        return added, removed

    def towards(self, new: _Version, rows_max: int) -> _Version:
        """The first version after so many changed rows, if it comes before the new one."""
        changed = 0
        for later, before, _ in self._links_to(new) or ():
            changed += len(before)
            if changed >= rows_max and isinstance(later, _Version):
                return later
        return new

    def _links_to(self, new: _Version) -> list[_Link] | None:
        """The links that lead to a later version; None if none do."""
        links: list[_Link] = []
        version: _Version | None = self
        while version is not new:
            if version is None or version._later is None:
                return None
            links.append(version._later)
            later = version._later[0]
            version = later() if isinstance(later, ref) else later
        return links


def _index_name(key: EntryKey) -> str:
    return key[0] + key[1].hex()


class Rows:
    """The rows of a table. Make them with `of`, `changed` or `with_control`.

    >>> from peersub.filters.filter import Filter
    >>> rows = Rows.of([Entry("", Filter("a = 1"))])
    >>> len(rows), len(rows.changed([Entry("", Filter("a = 2"))], [])), len(NO_ROWS)
    (1, 2, 0)
    """

    __slots__ = ("_version", "_with_control", "control", "wire_bytes")

    def __init__(self, entries: tuple[Entry, ...] = (), control: ControlRows = ()) -> None:
        self._version = _Version(entries)
        self.control = control
        self._with_control: Rows | None = None
        self.wire_bytes = -1
        """What `WireSizes` has found, or -1."""

    @classmethod
    def of(cls, entries: Iterable[Entry], control: Mapping[str, Intervals] | None = None) -> Rows:
        """These rows, in any order; of several with the same key the last."""
        by_key = {row_key(entry): entry for entry in entries}
        sorted_entries = tuple(by_key[key] for key in sorted(by_key))
        return cls(sorted_entries, control_rows(control) if control else ())

    @classmethod
    def _of_version(cls, version: _Version, control: ControlRows) -> Rows:
        rows = cls.__new__(cls)
        rows._version, rows.control, rows._with_control = version, control, None
        rows.wire_bytes = -1
        return rows

    def with_control(self, control: ControlRows) -> Rows:
        """The same rows for events with these for control notifications."""
        if control == self.control:
            return self
        # Publishers that are sent the same rows share one object.
        known = self._with_control
        if known is None or known.control != control:
            known = self._with_control = Rows._of_version(self._version, control)
        return known

    def without_control(self) -> Rows:
        """The rows for events alone."""
        return self.with_control(())

    # --- asking --------------------------------------------------------------------------------

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The rows for events, sorted; costs as much as there are."""
        return self._version.entries

    @property
    def entry_count(self) -> int:
        """How many rows for events there are."""
        return self._version.count

    def __len__(self) -> int:
        return self._version.count + len(self.control)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rows):
            return NotImplemented
        if self is other:
            return True
        return self.control == other.control and (
            self.has_entries_of(other) or self.entries == other.entries
        )

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        shown = ", ".join(f"{entry.name}{entry.filter.text!r}" for entry in self.entries)
        return f"Rows([{shown}], {self.control!r})"

    def has_entries_of(self, other: Rows) -> bool:
        """Whether the rows for events are the same object."""
        return self._version is other._version

    @property
    def digest(self) -> bytes:
        """16 bytes that name the rows, whatever the order in which they came."""
        total = self._version.total
        for name, intervals in self.control:
            total += _control_hash(name, intervals)
        return (total % _MODULUS).to_bytes(DIGEST_BYTES)

    def find(self, key: EntryKey) -> Entry | None:
        """The row with this key."""
        return self._version.by_key().get(key)

    @property
    def _index(self) -> Matcher | None:
        return self._version.index

    def want(self, publication: Publication) -> bool:
        """Whether a row wants the event."""
        index, others = self._asked()
        return publication.matches_any(map(_FILTER_OF, others)) or (
            index is not None and index.matches_any(publication.event, publication.probe)
        )

    def wanting(self, publication: Publication) -> Iterator[Entry]:
        """The rows that want the event, in no order; found one by one, as far as is asked."""
        index, others = self._asked()
        for entry in others:
            if publication.matches(entry[1]):
                yield entry
        if index is not None:
            rows = self._version.by_key()
            for name in index.match(publication.event, publication.probe):
                yield rows[name[:-_DIGEST_HEX], bytes.fromhex(name[-_DIGEST_HEX:])]

    def _asked(self) -> tuple[Matcher | None, Iterable[Entry]]:
        """The index for one more event, if it pays, and the rows that are not in it."""
        version = self._version
        if version.index is None:
            version.asked += 1
            if version.count < INDEX_FROM or version.asked <= INDEX_AFTER:
                return None, version.values()
            version.begin_index()
        version.unasked = 0
        return version.index, version.index_some() if version.unindexed else ()

    def wire_entries(self) -> list[Entry]:
        """All rows as they travel, in no order."""
        return [
            *self._version.values(),
            *(Entry(name, filter_of(name, intervals)) for name, intervals in self.control),
        ]

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
        changed_control = _changed_control(self.control, control, names)
        version = self._version.changed(entries, keys) if entries or keys else self._version
        if version is self._version:
            return self.with_control(changed_control)
        return Rows._of_version(version, changed_control)

    def change_to(self, new: Rows) -> Change:
        """What to add and to remove to come from these rows to the others."""
        added, removed = self.entry_change_to(new)
        more, fewer = control_change(self.control, new.control)
        return (*added, *more), (*removed, *fewer)

    def entry_change_to(self, new: Rows) -> tuple[list[Entry], list[EntryKey]]:
        """`change_to` for the rows for events alone."""
        return self._version.change_to(new._version)

    def leads_to(self, new: Rows) -> bool:
        """Whether it is known what has changed from these rows to the others."""
        return self._version._links_to(new._version) is not None

    def differences_to(self, new: Rows) -> Iterator[tuple[EntryKey, Entry | None] | None]:
        """One by one what to add, and then what to remove; None for each row that stays.

        For tables of which nobody knows what has changed: they are compared as far as is asked.
        Few rows come sorted: then what is made of them does not depend on how the table grew.
        """
        entries = new.entries if new.entry_count <= SORTED_MAX else list(new._version.values())
        return _differing(dict(self._version.by_key()), entries)

    def keys(self) -> list[EntryKey]:
        """The keys of the rows for events, in no order."""
        return list(self._version.by_key())

    @property
    def version(self) -> int:
        """Of rows that became others by changes, the later ones have a larger number."""
        return self._version.number

    def towards(self, new: Rows, rows_max: int) -> Rows:
        """The new rows, or those after so many changed rows, or a few more, on the way to them."""
        version = self._version.towards(new._version, rows_max)
        return new if version is new._version else Rows._of_version(version, new.control)


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


def _differing(
    before: dict[EntryKey, Entry], entries: Iterable[Entry]
) -> Iterator[tuple[EntryKey, Entry | None] | None]:
    for entry in entries:
        key = row_key(entry)
        known = before.pop(key, None)
        yield None if known is not None and known.reach == entry.reach else (key, entry)
    for key in before:
        yield key, None


def control_rows(control: Mapping[str, Intervals]) -> ControlRows:
    """The rows for control notifications of these intervals, sorted by name."""
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
    return control_rows(rows)
