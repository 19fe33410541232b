"""Filters by their bytes: one filter crosses many edges, and is worked out once.

What somebody holds anyway, such as a routing table, is remembered for as long as it is held; of the
others only the last few, so that a node whose neighbours come and go does not collect what they
once wanted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from weakref import WeakValueDictionary

from peersub.filters.filter import Filter
from peersub.filters.price import TooDearError
from peersub.filters.widened import UnreadFilter
from peersub.wire.errors import WireError
from peersub.wire.limits import FILTERS_HELD_MAX, REMEMBERED_FILTER_BYTES_MAX

__all__ = ["FilterMemory", "Patterns"]


class Patterns:
    """Patterns, as long as somebody else holds them; each object by itself."""

    __slots__ = ("_by_id",)

    def __init__(self) -> None:
        self._by_id: WeakValueDictionary[int, Filter] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Filter]:
        # Other threads may read patterns meanwhile: a list of the references is made in one go.
        held = [reference() for reference in self._by_id.valuerefs()]
        return iter([pattern for pattern in held if pattern is not None])

    def note(self, pattern: Filter) -> None:
        """There is one more."""
        self._by_id[id(pattern)] = pattern


class FilterMemory:
    """The filters that were read and written last, or are in use. It changes no answer.

    Args:
        price_max: filters that cost more are not read (`UnreadFilter`); None for what a node has
            written itself.

    Attributes:
        has_patterns: whether a pattern was ever read: events may have to be read as documents.
        patterns: those that were read, while somebody holds them.
    """

    __slots__ = ("_filter_of", "_last", "_price_max", "has_patterns", "patterns")

    def __init__(self, price_max: int | None = None) -> None:
        self.has_patterns = False
        self.patterns = Patterns()
        self._price_max = price_max
        self._filter_of: WeakValueDictionary[bytes, Filter] = WeakValueDictionary()
        self._last: deque[Filter] = deque(maxlen=FILTERS_HELD_MAX)

    def filter_of(self, data: bytes) -> Filter:
        """The filter that the bytes stand for; equal bytes give the same object while remembered.

        Raises:
            WireError: they stand for none.
        """
        known = self._filter_of.get(data)
        if known is None:
            try:
                known = Filter.from_bytes(data, self._price_max)
            except TooDearError as error:
                if self._price_max is None:
                    raise WireError(f"a filter that cannot be read: {error}") from None
                known = UnreadFilter(data, str(error))
            except (ValueError, RecursionError) as error:
                raise WireError(f"a filter that cannot be read: {error}") from None
            # Every table asks for its name; here it is worked out for one filter at a time.
            _ = known.digest
            if known.language != "sql":
                self.has_patterns = True
                self.patterns.note(known)
            if len(data) <= REMEMBERED_FILTER_BYTES_MAX:
                # The filter keeps its bytes, too: nearly always they are these, and one object.
                written = known.to_bytes()
                self._filter_of[written if written == data else data] = known
                self._last.append(known)
        return known
