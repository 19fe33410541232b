"""The filters of control notifications, as intervals of keys (section 5.1).

A control notification is an ordinary event with two reserved attributes: its type, and a key, a
whole number below 2^64. A peer wants those of one type whose key lies in some intervals. On an edge
all that is wanted under one type is *one* row: the union of the intervals, in which the smallest
gaps are closed until at most CONTROL_INTERVALS_MAX are left. That is independent of the routing
strategy, and keeps the overlay's own tables short however large the network is.

Intervals are a flat tuple of whole numbers (low, high, low, high, ...), ends included, growing,
with at least one key between one high and the next low. Rows of tables keep this form: thousands of
tables have no equal intervals, and a filter object takes many times the memory. Between nodes the
row is a `Filter` like any other.

Laws: `united(a, b)` holds all keys of both, and equals `united(b, a)`; a key in neither is held
only where gaps were closed, and never if both have few intervals.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from peersub.events.kinds import KindClass
from peersub.filters.boxes import Box
from peersub.filters.domains import of_class
from peersub.filters.filter import Filter
from peersub.filters.intervals import point

__all__ = [
    "CONTROL_INTERVALS_MAX",
    "KEY_ATTRIBUTE",
    "KEY_MAX",
    "NOTIFICATION_ATTRIBUTE",
    "Intervals",
    "control_attributes",
    "control_filter",
    "filter_of",
    "holds_key",
    "intervals_of",
    "is_control_name",
    "normalised",
    "united",
]

Intervals: TypeAlias = tuple[int, ...]

CONTROL_INTERVALS_MAX: Final = 8
"""Intervals of keys in one row."""
KEY_MAX: Final = (1 << 64) - 1
NOTIFICATION_ATTRIBUTE: Final = "peersub.notification"
KEY_ATTRIBUTE: Final = "peersub.key"

_NOTIFICATION_PATH: Final = (NOTIFICATION_ATTRIBUTE,)
_KEY_PATH: Final = (KEY_ATTRIBUTE,)


def is_control_name(name: str) -> bool:
    """Whether a row of this name is for control notifications.

    Rows of subscriptions have no name, or one with a slash in it: the node's and its own.

    >>> is_control_name("node-join"), is_control_name(""), is_control_name("n1/s1")
    (True, False, False)
    """
    return bool(name) and "/" not in name


def control_attributes(notification: str, key: int, **more: Any) -> dict[str, Any]:
    """The attributes of a control notification.

    >>> wanted = control_filter("node-join", [(5, 9)])
    >>> wanted.matches(control_attributes("node-join", 9))
    True
    """
    assert is_control_name(notification)
    assert 0 <= key <= KEY_MAX
    return {NOTIFICATION_ATTRIBUTE: notification, KEY_ATTRIBUTE: key, **more}


def control_filter(notification: str, intervals: Iterable[tuple[int, int]]) -> Filter:
    """The filter of the notifications of a type whose key lies in one of the closed intervals.

    No interval, no filter that matches anything: callers set None in its place.
    """
    flat = [end for interval in intervals for end in interval]
    return filter_of(notification, normalised(flat))


def filter_of(notification: str, intervals: Intervals) -> Filter:
    """The filter of intervals in their normal form."""
    assert is_control_name(notification)
    if not intervals:
        return Filter.from_boxes([])
    cuts = tuple((key, place & 1) for place, key in enumerate(intervals))
    box = Box(
        {
            _KEY_PATH: of_class(KindClass.NUMBER, cuts),
            _NOTIFICATION_PATH: of_class(KindClass.STRING, point(KindClass.STRING, notification)),
        },
        {},
    )
    return Filter.from_boxes([box])


def intervals_of(notification: str, wanted: Filter) -> Intervals | None:
    """The intervals that a control filter stands for; None if it is no such filter.

    >>> intervals_of("node-join", control_filter("node-join", [(7, 9), (1, 2), (3, 3)]))
    (1, 3, 7, 9)
    """
    if wanted.is_nothing:
        return ()
    if wanted.language != "sql" or len(wanted.boxes) != 1:
        return None
    domain = wanted.boxes[0].domains.get(_KEY_PATH)
    if domain is None:
        return None
    keys = tuple(key for key, _ in domain.sets[KindClass.NUMBER])
    if not all(type(key) is int and 0 <= key <= KEY_MAX for key in keys):
        return None
    # Whatever else it may say, it must be the filter that these intervals would give.
    return keys if filter_of(notification, keys) == wanted else None


def normalised(flat: Iterable[int], intervals_max: int | None = None) -> Intervals:
    """Intervals in their normal form: sorted, joined where no key lies between them.

    >>> normalised([7, 9, 1, 2, 3, 3])
    (1, 3, 7, 9)
    """
    ends = list(flat)
    assert len(ends) % 2 == 0
    joined: list[int] = []
    for low, high in sorted(zip(ends[::2], ends[1::2], strict=True)):
        assert low <= high
        if joined and low <= joined[-1] + 1:
            if high > joined[-1]:
                joined[-1] = high
        else:
            joined += (low, high)
    if intervals_max is not None and len(joined) > 2 * intervals_max:
        return _without_small_gaps(joined, intervals_max)
    return tuple(joined)


def _without_small_gaps(ends: list[int], intervals_max: int) -> Intervals:
    """The intervals with their smallest gaps closed; of equal ones the first stay open."""
    # A gap lies behind the end at an odd place.
    gaps = sorted(range(1, len(ends) - 1, 2), key=lambda place: ends[place] - ends[place + 1])
    kept = sorted(gaps[: intervals_max - 1])
    bounds = [ends[0]]
    for place in kept:
        bounds += (ends[place], ends[place + 1])
    bounds.append(ends[-1])
    return tuple(bounds)


def united(first: Intervals, second: Intervals) -> Intervals:
    """All keys of both, and those in the smallest gaps if there are too many.

    >>> united((1, 3), (5, 9)), united((1, 3), (4, 9))
    ((1, 3, 5, 9), (1, 9))
    """
    if first == second or not second:
        return first
    if not first:
        return second
    return normalised(first + second, CONTROL_INTERVALS_MAX)


def holds_key(intervals: Intervals, key: object) -> bool:
    """Whether the key lies in one of the intervals.

    >>> holds_key((1, 3, 7, 9), 7), holds_key((1, 3, 7, 9), 4)
    (True, False)
    """
    if not isinstance(key, int):
        return False
    place = bisect_left(intervals, key)
    # Past a low end and not past its high end, or at one of the low ends.
    return place % 2 == 1 or (place < len(intervals) and intervals[place] == key)
