"""A bounded memory of identifiers: what was seen before, oldest forgotten first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

__all__ = ["History"]

Name = TypeVar("Name")


class History(Generic[Name]):
    """Names with the time they came; at most `size_max`, none older than `horizon_ms`.

    >>> history = History[str](size_max=2, horizon_ms=100)
    >>> history.add("a", 0), history.add("a", 1), history.add("b", 2), history.add("c", 3)
    (True, False, True, True)
    >>> "a" in history, "c" in history
    (False, True)
    """

    __slots__ = ("_times", "horizon_ms", "size_max")

    def __init__(self, size_max: int, horizon_ms: int) -> None:
        self.size_max = size_max
        self.horizon_ms = horizon_ms
        self._times: OrderedDict[Name, int] = OrderedDict()

    def add(self, name: Name, now_ms: int) -> bool:
        """Remember the name; whether it was new. A name seen again keeps its first time."""
        times = self._times
        if name in times:
            return False
        times[name] = now_ms
        if len(times) > self.size_max:
            times.popitem(last=False)
        self.forget(now_ms)
        return True

    def forget(self, now_ms: int) -> None:
        """Let go of what is older than the horizon."""
        times = self._times
        oldest = now_ms - self.horizon_ms
        while times and next(iter(times.values())) < oldest:
            times.popitem(last=False)

    def time_of(self, name: Name) -> int:
        """When a name that is remembered came."""
        return self._times[name]

    def discard(self, name: Name) -> None:
        """Forget a name; nothing if it is not there."""
        self._times.pop(name, None)

    def __contains__(self, name: object) -> bool:
        return name in self._times

    def __len__(self) -> int:
        return len(self._times)

    def __iter__(self) -> Iterator[Name]:
        return iter(self._times)
