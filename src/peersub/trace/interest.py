"""Who wants an event: brute force, and the small sets of numbers that checkers count with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from peersub.events.envelope import Event
from peersub.filters.filter import Filter

__all__ = ["Interest", "NaiveInterest", "NumberSet"]


class Interest(Protocol):
    """Numbered filters, asked about events. A checker trusts it, so it is as simple as can be."""

    def add(self, number: int, wanted: Filter) -> None:
        """The filter counts from now on."""
        ...

    def remove(self, number: int) -> None:
        """The filter of this number, which was added, counts no more."""
        ...

    def matching(self, event: Event) -> Iterable[int]:
        """The numbers of the filters that match."""
        ...


class NaiveInterest:
    """Every filter is asked, equal ones once."""

    def __init__(self) -> None:
        self._numbers: dict[Filter, dict[int, None]] = {}
        self._filters: dict[int, Filter] = {}

    def add(self, number: int, wanted: Filter) -> None:
        """The filter counts from now on."""
        self._filters[number] = wanted
        self._numbers.setdefault(wanted, {})[number] = None

    def remove(self, number: int) -> None:
        """The filter of this number, which was added, counts no more."""
        wanted = self._filters.pop(number)
        sharing = self._numbers[wanted]
        del sharing[number]
        if not sharing:
            del self._numbers[wanted]

    def matching(self, event: Event) -> Iterator[int]:
        """The numbers of the filters that match."""
        for wanted, numbers in self._numbers.items():
            if wanted.matches(event):
                yield from numbers


class NumberSet:
    """A set of small whole numbers, one bit each, in the order of the numbers.

    >>> some = NumberSet([9, 2])
    >>> some.add(2), some.add(3), list(some), len(some), 9 in some, 8 in some
    (False, True, [2, 3, 9], 3, True, False)
    """

    __slots__ = ("_bits", "_size")

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self._bits = bytearray()
        self._size = 0
        for number in numbers:
            self.add(number)

    def add(self, number: int) -> bool:
        """Add the number; whether it is new."""
        place, bit = number >> 3, 1 << (number & 7)
        if place >= len(self._bits):
            self._bits.extend(bytes(place + 1 - len(self._bits)))
        if self._bits[place] & bit:
            return False
        self._bits[place] |= bit
        self._size += 1
        return True

    def __contains__(self, number: int) -> bool:
        place = number >> 3
        return place < len(self._bits) and bool(self._bits[place] & 1 << (number & 7))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[int]:
        for place, byte in enumerate(self._bits):
            if byte:
                yield from (place * 8 + bit for bit in range(8) if byte >> bit & 1)
