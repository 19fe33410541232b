"""Rows of batches by subscription: what is remembered of them, and how messages say it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from peersub.overlays.core.event_keys import name_in_unit, unit_of, unit_of_batch
from peersub.overlays.core.mirror_messages import (
    KeptRows,
    MirrorKept,
    MirrorRowsKept,
    MirrorRowsSafe,
    MirrorSafe,
    NamedRows,
)
from peersub.overlays.core.row_sets import NamedSets, numbers_in, pack_rows, unpack_rows

__all__ = [
    "RememberedRows",
    "add_ids",
    "add_to",
    "kept_rows",
    "only",
    "packed_rows",
    "said_rows",
    "sets_of",
    "union",
    "without",
]

_ENTRY_BYTES: Final = 200
"""What an entry takes besides its rows, roughly."""

_Key = tuple[str, str]
"""A home, and the unit of an event (`event_keys`)."""


class RememberedRows:
    """Sets of rows by home and batch, in so many bytes; the oldest are forgotten."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._sets: dict[_Key, dict[tuple[str, str], int]] = {}

    def add(self, key: _Key, sets: NamedSets, node: str = "") -> None:
        """Rows by subscription, of a node."""
        known = self._sets.pop(key, {})
        self._bytes -= _bytes_of(known)
        for name, rows in sets.items():
            known[node, name] = known.get((node, name), 0) | rows
        self._sets[key] = known
        self._bytes += _bytes_of(known)
        while self._bytes > self._bytes_max:
            self._bytes -= _bytes_of(self._sets.pop(next(iter(self._sets))))

    def forget(self, node: str) -> None:
        """All rows of a node."""
        its = [key for key, known in self._sets.items() if any(who == node for who, _ in known)]
        for key in its:
            for other, sets in self.pop(key).items():
                if other != node:
                    self.add(key, sets, other)

    def get(self, key: _Key) -> NamedSets:
        """Rows by subscription, where it is of no matter whose."""
        known = self._sets.get(key)
        return {name: rows for (_, name), rows in known.items()} if known is not None else {}

    def pop(self, key: _Key) -> dict[str, NamedSets]:
        """Rows by node and subscription; they are forgotten."""
        known = self._sets.pop(key, None)
        by_node: dict[str, NamedSets] = {}
        if known is not None:
            self._bytes -= _bytes_of(known)
            for (node, name), rows in known.items():
                by_node.setdefault(node, {})[name] = rows
        return by_node


def kept_rows(rows: Iterable[NamedRows]) -> NamedSets:
    """The rows by subscription, as a message says them."""
    return {each.name: unpack_rows(each.rows) for each in rows}


def said_rows(
    message: MirrorKept | MirrorSafe | MirrorRowsKept | MirrorRowsSafe,
) -> Iterator[tuple[str, NamedSets]]:
    """The batches, and what of each, that a message is about."""
    for each in message.kept:
        if isinstance(each, KeptRows):
            yield unit_of_batch(each.batch), kept_rows(each.rows)
            continue
        units: dict[str, int] = {}
        for event_id in each.event_ids:
            unit, number = unit_of(event_id)
            units[unit] = units.get(unit, 0) | 1 << number
        for unit, rows in units.items():
            yield unit, dict.fromkeys(each.names, rows)


def packed_rows(unit: str, sets: NamedSets) -> Iterator[KeptRows]:
    """What is said of a batch, each part small enough to count as one set of rows."""
    for name, rows in sets.items():
        yield KeptRows(unit[1:], (NamedRows(name, pack_rows(rows)),))


def add_ids(ids: dict[tuple[str, ...], list[str]], unit: str, sets: NamedSets) -> None:
    """The same, event by event: which names each is said for."""
    names_of: dict[int, list[str]] = {}
    for name in sorted(sets):
        for number in numbers_in(sets[name]):
            names_of.setdefault(number, []).append(name)
    for number, names in names_of.items():
        ids.setdefault(tuple(names), []).append(name_in_unit(unit, number))


def union(sets: Iterable[int]) -> int:
    """The rows of all sets."""
    rows = 0
    for each in sets:
        rows |= each
    return rows


def without(sets: NamedSets, others: Mapping[str, int]) -> NamedSets:
    """What of the sets is not among the others; none of them is empty."""
    left = {name: rows & ~others.get(name, 0) for name, rows in sets.items()}
    return {name: rows for name, rows in left.items() if rows}


def only(sets: NamedSets, among: int) -> NamedSets:
    """What of the sets is among these rows."""
    return {name: rows & among for name, rows in sets.items()}


def add_to(sets: NamedSets, more: NamedSets) -> None:
    """Put more rows into the sets."""
    for name, rows in more.items():
        sets[name] = sets.get(name, 0) | rows


def sets_of(name: str, disks: Iterable[NamedSets]) -> list[int]:
    """What disks have for a subscription."""
    return [had[name] for had in disks if name in had]


def _bytes_of(sets: Mapping[tuple[str, str], int]) -> int:
    return _ENTRY_BYTES + sum(_ENTRY_BYTES + rows.bit_length() // 8 for rows in sets.values())
