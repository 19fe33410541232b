"""Sets of values of one class, as sorted cuts: the algebra under every filter.

A *cut* is a place between values: `(value, 0)` is just before the value, `(value, 1)` just after
it; `LEAST` and `GREATEST` lie beyond all values. A set is a tuple of an even number of strictly
growing cuts; it holds what lies between the first and the second, the third and the fourth, and so
on. Open and closed ends, points, prefixes, complements and infinities are all just cuts, so that
one sweep over sorted cuts serves every operation.

Classes whose values have a direct successor use only `(value, 0)` (see `cut_after`): the set of
dates after May 1st and the set from May 2nd on are then one set and not two. The direct successor
of a string is itself with a NUL appended; the strings with a prefix are those from the prefix up to
its next sibling.

The law: for every value v and all sets a, b: v in union(a, b) iff v in a or v in b; likewise for
intersection and difference; equal sets are equal tuples.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, Final

from peersub.events.kinds import KindClass

__all__ = [
    "EMPTY",
    "FULL",
    "GREATEST",
    "LEAST",
    "Cut",
    "IntervalSet",
    "between",
    "complement",
    "contains_value",
    "cut_after",
    "cut_before",
    "difference",
    "intersection",
    "intersection_of",
    "is_subset",
    "point",
    "points",
    "prefix_range",
    "single_points",
    "union",
    "union_of",
]

# Looking up a member of an enum takes longer than the operations below.
_NUMBER, _STRING, _BOOLEAN = KindClass.NUMBER, KindClass.STRING, KindClass.BOOLEAN
_DATE, _TIMESTAMP = KindClass.DATE, KindClass.TIMESTAMP

Cut = tuple[Any, int]
IntervalSet = tuple[Cut, ...]


class _End:
    """A value beyond all values, on the side of its sign."""

    __slots__ = ("sign",)

    def __init__(self, sign: int) -> None:
        self.sign = sign

    def __eq__(self, other: object) -> bool:
        return self is other

    def __lt__(self, other: object) -> bool:
        return self.sign < 0 and self is not other

    def __le__(self, other: object) -> bool:
        return self.sign < 0 or self is other

    def __gt__(self, other: object) -> bool:
        return self.sign > 0 and self is not other

    def __ge__(self, other: object) -> bool:
        return self.sign > 0 or self is other

    def __hash__(self) -> int:
        return self.sign

    def __repr__(self) -> str:
        return "-oo" if self.sign < 0 else "+oo"

    def __reduce__(self) -> str:
        # Unpickled in another process, an end must again be the one end of its side.
        return "_LEAST_VALUE" if self.sign < 0 else "_GREATEST_VALUE"


_LEAST_VALUE: Final = _End(-1)
_GREATEST_VALUE: Final = _End(1)
LEAST: Final[Cut] = (_LEAST_VALUE, 0)
GREATEST: Final[Cut] = (_GREATEST_VALUE, 0)
EMPTY: Final[IntervalSet] = ()
FULL: Final[IntervalSet] = (LEAST, GREATEST)


def cut_before(kind_class: KindClass, key: Any) -> Cut:
    """The cut just below a value; below the least value of a class there is only LEAST."""
    if (kind_class is _STRING and key == "") or (kind_class is _BOOLEAN and key == 0):
        return LEAST
    return (key, 0)


def cut_after(kind_class: KindClass, key: Any) -> Cut:
    """The cut just above a value, written as the cut below its successor where there is one."""
    if kind_class is _NUMBER:
        return (key, 1)
    if kind_class is _STRING:
        return (key + "\0", 0)
    if kind_class is _BOOLEAN and key == 1:
        return GREATEST
    return (key + 1, 0)


def point(kind_class: KindClass, key: Any) -> IntervalSet:
    """The set of one value."""
    return (cut_before(kind_class, key), cut_after(kind_class, key))


def points(kind_class: KindClass, keys: Iterable[Any]) -> IntervalSet:
    """The set of some values.

    >>> points(KindClass.NUMBER, [3, 1, 3])
    ((1, 0), (1, 1), (3, 0), (3, 1))
    """
    cuts: list[Cut] = []
    for key in sorted(set(keys)):
        before, after = cut_before(kind_class, key), cut_after(kind_class, key)
        if cuts and cuts[-1] == before:
            cuts[-1] = after
        else:
            cuts += (before, after)
    return tuple(cuts)


def between(lower: Cut, upper: Cut) -> IntervalSet:
    """All values between two cuts."""
    return (lower, upper) if lower < upper else EMPTY


def prefix_range(prefix: str) -> IntervalSet:
    """The strings that start with the prefix.

    >>> prefix_range("ab")
    (('ab', 0), ('ac', 0))
    """
    lower = cut_before(_STRING, prefix)
    while prefix:
        following = ord(prefix[-1]) + 1
        if following == 0xD800:
            following = 0xE000  # no text holds surrogates, and no file could store the bound
        if following <= 0x10FFFF:
            return (lower, (prefix[:-1] + chr(following), 0))
        prefix = prefix[:-1]
    return (lower, GREATEST)


def contains_value(cuts: IntervalSet, key: Any) -> bool:
    """Whether the value lies in the set.

    >>> contains_value(between((1, 1), (5, 1)), 5), contains_value(between((1, 1), (5, 1)), 1)
    (True, False)
    """
    return bisect_right(cuts, (key, 0)) % 2 == 1


def _sweep(a: IntervalSet, b: IntervalSet, keep: tuple[bool, bool, bool, bool]) -> IntervalSet:
    """The set of places where keep[in a + 2 * in b]; one pass over both lists of cuts."""
    cuts: list[Cut] = []
    i = j = 0
    inside = keep[0]
    while i < len(a) or j < len(b):
        if j == len(b) or (i < len(a) and a[i] < b[j]):
            cut = a[i]
            i += 1
        else:
            cut = b[j]
            if i < len(a) and a[i] == cut:
                i += 1
            j += 1
        now = keep[(i & 1) + 2 * (j & 1)]
        if now != inside:
            cuts.append(cut)
            inside = now
    return tuple(cuts)


def union(a: IntervalSet, b: IntervalSet) -> IntervalSet:
    """What lies in a or in b.

    >>> union(between((1, 0), (2, 1)), between((2, 1), (3, 0)))
    ((1, 0), (3, 0))
    """
    if a == b or not b:
        return a
    return _sweep(a, b, (False, True, True, True)) if a else b


def intersection(a: IntervalSet, b: IntervalSet) -> IntervalSet:
    """What lies in both."""
    if a == b or b == FULL:
        return a
    return b if a == FULL else _sweep(a, b, (False, False, False, True))


def union_of(sets: Iterable[IntervalSet]) -> IntervalSet:
    """What lies in any of the sets; by sorting, so that thousands of them take no square time.

    >>> union_of([between((5, 0), (6, 0)), between((1, 0), (2, 0)), between((2, 0), (3, 0))])
    ((1, 0), (3, 0), (5, 0), (6, 0))
    """
    pairs = [pair for cuts in sets for pair in zip(cuts[::2], cuts[1::2], strict=True)]
    cuts: list[Cut] = []
    for lower, upper in sorted(pairs):
        if not cuts or cuts[-1] < lower:
            cuts += (lower, upper)
        elif cuts[-1] < upper:
            cuts[-1] = upper
    return tuple(cuts)


def complement(cuts: IntervalSet) -> IntervalSet:
    """What does not lie in the set."""
    lower = cuts[1:] if cuts and cuts[0] is LEAST else (LEAST, *cuts)
    return lower[:-1] if lower and lower[-1] is GREATEST else (*lower, GREATEST)


def intersection_of(sets: Iterable[IntervalSet]) -> IntervalSet:
    """What lies in all of the sets: outside of what lies outside of any."""
    return complement(union_of(map(complement, sets)))


def difference(a: IntervalSet, b: IntervalSet) -> IntervalSet:
    """What lies in a and not in b."""
    if not a or not b:
        return a
    return _sweep(a, b, (False, True, False, False))


def is_subset(a: IntervalSet, b: IntervalSet) -> bool:
    """Whether all of a lies in b."""
    if not a or a is b:
        return True
    if len(a) == len(b) == 2:
        # Decimals take their time to see that an end is no number: ends are known by identity.
        (a_low, a_high), (b_low, b_high) = a, b
        is_low = b_low[0] is _LEAST_VALUE or (a_low[0] is not _LEAST_VALUE and b_low <= a_low)
        return is_low and (
            b_high[0] is _GREATEST_VALUE or (a_high[0] is not _GREATEST_VALUE and a_high <= b_high)
        )
    if a == b or b == FULL:
        return True
    for start in range(0, len(a), 2):
        place = bisect_right(b, a[start])
        # a's interval must start inside of one of b's, and end no later than that one does.
        if place % 2 == 0 or a[start + 1] > b[place]:
            return False
    return True


def single_points(kind_class: KindClass, cuts: IntervalSet) -> list[Any] | None:
    """The values of a set that has finitely many by its cuts alone; None if it has not.

    >>> single_points(KindClass.STRING, points(KindClass.STRING, ["a", "b"]))
    ['a', 'b']
    """
    keys: list[Any] = []
    for start in range(0, len(cuts), 2):
        value: Any = "" if kind_class is _STRING and cuts[start] == LEAST else cuts[start][0]
        if kind_class is _BOOLEAN:
            first = 0 if cuts[start] == LEAST else 1
            keys += range(first, 2 if cuts[start + 1] == GREATEST else 1)
        elif isinstance(value, _End):
            return None
        elif kind_class in (_DATE, _TIMESTAMP):
            end = cuts[start + 1][0]
            if isinstance(end, _End) or end - value > 64:
                return None
            keys += range(value, end)
        elif cuts[start][1] == 0 and cuts[start + 1] == cut_after(kind_class, value):
            keys.append(value)
        else:
            return None
    return keys
