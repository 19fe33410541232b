"""The sorted bounds of one slot, and the code of a value among them.

With the distinct bounds b_0 < b_1 < ... of all predicates on a slot, the code of a value is

    2 * i + 1                                if it equals b_i,
    2 * (how many bounds lie below it)       if it equals none,

so that each interval between two cuts is one closed interval of codes, and n bounds give 2 * n + 1
codes. Three kinds of slots differ in how bounds are kept and searched:

* `OrderedBounds`: numbers, dates, timestamps. All are searched as doubles. Bound b is kept as the
  least double whose place in the order of numbers is b or above (`least_double`), with a flag that
  says whether that double *is* b. This is exact for every double, for every integer up to 2**53 and
  for every decimal of up to 15 digits; wider numbers are compared with the exact bounds where their
  double falls together with that of a bound.
* `TextBounds`: strings, as UTF-8, whose byte order is the order of code points.
* `FixedCodes`: booleans and presence, where each value is its own code.

Bounds are arrays, made to be saved and mapped into memory: nothing loops over them when they are
opened. What a search wants besides is derived at its first use. They never change.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import pairwise
from math import inf, isinf, nextafter
from typing import Any, Final

import numpy as np

from peersub.events.kinds import INT64_MAX, INT64_MIN, number_key

__all__ = [
    "Bounds",
    "FixedCodes",
    "OrderedBounds",
    "TextBounds",
    "least_double",
    "merged",
    "read_only",
]

IS_DOUBLE: Final = 1
"""The bound is the place of its threshold, exactly."""
IS_INTEGER: Final = 2
"""The bound is a 64-bit integer."""
BEYOND_INTEGERS: Final = 4
"""The bound lies above all 64-bit integers."""
EXACT_INTEGER_MAX: Final = 2**53
"""Up to here each integer is a double."""

_LISTED_MAX: Final = 8_192
"""Up to so many bounds are searched as a Python list, which is fast; more where they lie."""
_DECODED_TEXTS_MAX: Final = 65_536
"""Up to so many texts are kept as Python strings for single events."""
_REMEMBERED_TEXTS_MAX: Final = 65_536
"""Where texts are not decoded: codes of texts seen lately, forgotten all at once when full."""


def read_only(array: np.ndarray) -> np.ndarray:
    """A contiguous read-only view: what compiled loops take, so that each is compiled once."""
    view = np.ascontiguousarray(array).view(np.ndarray)
    view.flags.writeable = False
    return view


def least_double(key: Any) -> tuple[float, bool]:
    """The least double whose `number_key` is `key` or above, and whether it is `key` itself.

    >>> least_double(3), least_double(2**53 + 1), least_double(Decimal("0.1"))
    ((3.0, True), (9007199254740994.0, False), (0.1, True))
    """
    try:
        near = float(key)
    except OverflowError:
        near = inf if key > 0 else -inf
    # Rounding keeps the order, so the double before `near` lies below the key in any case.
    place = number_key(near)
    if place < key:
        return nextafter(near, inf) + 0.0, False
    return near + 0.0, place == key


class OrderedBounds:
    """Bounds of numbers, dates or timestamps.

    `integers` and `texts` stay empty where each bound is a double: they can then be derived.
    """

    def __init__(
        self,
        thresholds: np.ndarray,
        flags: np.ndarray,
        integers: np.ndarray,
        texts: Utf8Column,
    ) -> None:
        self.thresholds = thresholds
        """float64[n]: the least double at or above each bound."""
        self.flags = flags
        """uint8[n]: IS_DOUBLE, IS_INTEGER, BEYOND_INTEGERS."""
        self.stored_integers = integers
        """int64[n], or none: see `integers`."""
        self.texts = texts
        """The bounds that are neither doubles nor 64-bit integers, as decimal text."""

    @classmethod
    def from_keys(cls, keys: Sequence[Any]) -> OrderedBounds:
        """The bounds with these sorted distinct keys."""
        if all(type(key) is int and INT64_MIN <= key <= INT64_MAX for key in keys):
            return cls.from_integers(np.array(keys, np.int64))
        places = [least_double(key) for key in keys]
        thresholds = np.array([place[0] for place in places], np.float64)
        flags = np.array([place[1] for place in places], np.uint8) * np.uint8(IS_DOUBLE)
        if all(place[1] for place in places):
            return cls.from_doubles(thresholds)
        integers = np.empty(len(keys), np.int64)
        for index, key in enumerate(keys):
            integers[index], flag = _least_integer(key)
            flags[index] |= flag
        wide = [str(key) for key, flag in zip(keys, flags, strict=True) if not flag & 3]
        return cls(thresholds, flags, integers, Utf8Column.from_texts(wide))

    @classmethod
    def from_doubles(cls, thresholds: np.ndarray) -> OrderedBounds:
        """The bounds at the places of these sorted distinct doubles."""
        whole = np.floor(thresholds) == thresholds
        inside = (thresholds >= -(2.0**63)) & (thresholds < 2.0**63)
        flags = np.full(len(thresholds), IS_DOUBLE, np.uint8)
        flags[whole & inside] |= IS_INTEGER
        flags[thresholds >= 2.0**63] |= BEYOND_INTEGERS
        return cls(thresholds, flags, np.empty(0, np.int64), Utf8Column.from_texts([]))

    @classmethod
    def from_integers(cls, integers: np.ndarray) -> OrderedBounds:
        """The bounds at these sorted distinct 64-bit integers."""
        near = integers.astype(np.float64)
        inside = near < 2.0**63
        rounded = np.where(inside, near, 0.0).astype(np.int64)
        low = inside & (rounded < integers)
        exact = inside & (rounded == integers)
        if exact.all():
            return cls.from_doubles(near)
        flags = np.where(exact, IS_DOUBLE | IS_INTEGER, IS_INTEGER).astype(np.uint8)
        thresholds = np.where(low, np.nextafter(near, inf), near)
        return cls(thresholds, flags, integers, Utf8Column.from_texts([]))

    @property
    def count(self) -> int:
        """How many bounds there are."""
        return len(self.thresholds)

    @property
    def code_count(self) -> int:
        """How many codes there are."""
        return 2 * len(self.thresholds) + 1

    @property
    def are_doubles(self) -> bool:
        """Whether each bound is a double."""
        return not len(self.stored_integers)

    @property
    def are_integers(self) -> bool:
        """Whether each bound is a 64-bit integer."""
        return bool(np.all(self.flags & IS_INTEGER))

    @cached_property
    def integers(self) -> np.ndarray:
        """int64[]: the least integer at or above each bound that is not BEYOND_INTEGERS."""
        reachable = self.count - int(np.count_nonzero(self.flags & BEYOND_INTEGERS))
        if not self.are_doubles:
            return self.stored_integers[:reachable]
        # A double that is not whole lies on the same side of each integer as its place.
        least: np.ndarray = np.ceil(np.maximum(self.thresholds[:reachable], -(2.0**63)))
        return least.astype(np.int64)

    def key(self, index: int) -> Any:
        """The bound as a key of its class."""
        flag = self.flags[index]
        if flag & IS_DOUBLE:
            return number_key(float(self.thresholds[index]))
        if flag & IS_INTEGER:
            return int(self.stored_integers[index])
        position = int(np.searchsorted(self._text_positions, index))
        return number_key(Decimal(self.texts.text(position)))

    def keys(self) -> list[Any]:
        """All bounds, in order."""
        return [self.key(index) for index in range(self.count)]

    @cached_property
    def _text_positions(self) -> np.ndarray:
        return np.flatnonzero((self.flags & (IS_DOUBLE | IS_INTEGER)) == 0)

    @cached_property
    def _places(self) -> Sequence[float]:
        """The thresholds as `bisect` reads them fastest."""
        return np.asarray(self.thresholds).data

    @cached_property
    def _flag_bytes(self) -> Sequence[int]:
        return np.asarray(self.flags).data

    @cached_property
    def _steps(self) -> list[float] | None:
        """Where the code of a double grows by one, for bounds that are not too many."""
        if self.count > _LISTED_MAX:
            return None
        with np.errstate(over="ignore"):  # infinity comes after the greatest finite double
            following = np.nextafter(self.thresholds, inf)
        after = np.where(self.flags & IS_DOUBLE, following, self.thresholds)
        steps: list[float] = np.stack([self.thresholds, after], axis=1).ravel().tolist()
        if self.count and self.thresholds[-1] == inf and self.flags[-1] & IS_DOUBLE:
            steps.pop()  # no double comes after infinity
        return steps

    def code_of_double(self, value: float) -> int:
        """The code of a double that is not NaN."""
        steps = self._steps
        if steps is not None:
            return bisect_right(steps, value)
        places = self._places
        index = bisect_right(places, value)
        if index and places[index - 1] == value and self._flag_bytes[index - 1] & IS_DOUBLE:
            return 2 * index - 1
        return 2 * index

    def code_of_key(self, key: Any) -> int:
        """The code of a key: an integer of any size, a decimal or an infinity."""
        if type(key) is int and -EXACT_INTEGER_MAX <= key <= EXACT_INTEGER_MAX:
            return self.code_of_double(float(key))
        double, exact = least_double(key)
        if exact:
            return self.code_of_double(double)
        # Bounds with a lower threshold lie below the key, those with a higher one above it.
        start = bisect_left(self._places, double)
        end = bisect_right(self._places, double, start)
        index = start + bisect_left(range(start, end), key, key=self.key)
        return 2 * index + (index < end and bool(self.key(index) == key))

    def codes_of_integers(self, values: np.ndarray) -> np.ndarray:
        """The codes of int64 values of any size."""
        index = np.searchsorted(self.integers, values, side="right")
        codes = 2 * index.astype(np.int32)
        if len(self.integers):
            before = np.maximum(index - 1, 0)
            equal = (self.integers[before] == values) & (self.flags[before] & IS_INTEGER != 0)
            codes -= equal
        return codes

    @cached_property
    def search_arguments(self) -> tuple[Any, ...]:
        """What the compiled search takes: thresholds, flags, then the parts of `Buckets`."""
        buckets = Buckets.of(self.thresholds)
        arrays = (self.thresholds, self.flags, buckets.starts)
        return (*map(read_only, arrays), buckets.base, buckets.scale, buckets.by_place)


def _least_integer(key: Any) -> tuple[int, int]:
    """The least 64-bit integer at or above a key, and its flag."""
    if isinstance(key, float):  # an infinity
        return (INT64_MAX, BEYOND_INTEGERS) if key > 0 else (INT64_MIN, 0)
    if key > INT64_MAX:
        return INT64_MAX, BEYOND_INTEGERS
    if key < INT64_MIN:
        return INT64_MIN, 0
    whole = int(key)
    if whole == key:
        return whole, IS_INTEGER
    return whole + (key > whole), 0


@dataclass(frozen=True, slots=True)
class Buckets:
    """Equal steps over sorted doubles: bucket k holds `starts[k]:starts[k + 1]` of them.

    The bucket of x is `(image(x) - base) * scale`, cut to the range. The image is x itself, or the
    place of x among all doubles, which spreads values of very different sizes; whichever leaves
    less to search. Both keep the order, so only x's own bucket can hold its neighbours.
    """

    starts: np.ndarray
    """int32[buckets + 1]"""
    base: float
    scale: float
    by_place: bool

    @classmethod
    def of(cls, sorted_doubles: np.ndarray) -> Buckets:
        """Buckets over sorted doubles, two for each of them."""
        count = len(sorted_doubles)
        finite = sorted_doubles[np.isfinite(sorted_doubles)]
        best = cls(np.array([0, count], np.int32), 0.0, 0.0, False)
        least_work = float(count) ** 2
        if len(finite) < 4:
            return best
        for by_place in (False, True):
            image = doubles_in_order(finite).astype(np.float64) if by_place else finite
            base = float(image[0])
            with np.errstate(over="ignore"):
                span = float(image[-1] - image[0])
            if isinf(span) or 2 * count / span == inf:
                continue
            scale = 2 * count / span
            buckets = np.minimum((image - base) * scale, 2 * count - 1).astype(np.int64)
            # Infinities fall into the outermost buckets.
            below = int(np.count_nonzero(sorted_doubles == -inf))
            above = count - below - len(finite)
            sizes = np.bincount(buckets, minlength=2 * count)
            sizes[0] += below
            sizes[-1] += above
            work = float(np.square(sizes, dtype=np.float64).sum())
            if work < least_work:
                starts = np.zeros(2 * count + 1, np.int32)
                np.cumsum(sizes, out=starts[1:])
                best, least_work = cls(starts, base, scale, by_place), work
        return best


def doubles_in_order(values: np.ndarray) -> np.ndarray:
    """int64 places that order as the doubles do; both zeros have one place.

    >>> places = doubles_in_order(np.array([-1.0, 0.0, 5e-324, 2.0]))
    >>> bool(np.all(places[:-1] < places[1:]))
    True
    """
    bits = np.ascontiguousarray(values, np.float64).view(np.int64)
    return np.where(bits < 0, np.int64(INT64_MIN) - bits, bits)


@dataclass(frozen=True)
class Utf8Column:
    """Texts end to end as UTF-8; lone surrogates, which no file can hold, keep their place too."""

    offsets: np.ndarray
    """int64[n + 1]"""
    data: np.ndarray
    """uint8[]"""

    @classmethod
    def from_texts(cls, texts: Iterable[str]) -> Utf8Column:
        """The column of these texts."""
        return cls.from_bytes([text.encode("utf-8", "surrogatepass") for text in texts])

    @classmethod
    def from_bytes(cls, encoded: Sequence[bytes]) -> Utf8Column:
        """The column of these texts."""
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(text) for text in encoded], out=offsets[1:])
        return cls(offsets, np.frombuffer(b"".join(encoded), np.uint8))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> bytes:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self.data[self.offsets[index] : self.offsets[index + 1]].tobytes()

    def text(self, index: int) -> str:
        """One of the texts."""
        return self[index].decode("utf-8", "surrogatepass")

    def all_bytes(self) -> list[bytes]:
        """Each of the texts as UTF-8."""
        joined, offsets = self.data.tobytes(), self.offsets.tolist()
        return [joined[a:b] for a, b in pairwise(offsets)]


class TextBounds:
    """Bounds of strings.

    Where no predicate tells the values that equal no bound from each other (there are only `=`,
    `<>`, IN and the like), `gaps_alike` is set, and they all get the last code: a failed lookup
    then needs no search.
    """

    def __init__(self, column: Utf8Column, gaps_alike: bool) -> None:
        self.column = column
        self.gaps_alike = gaps_alike
        self._remembered: dict[str, int] = {}

    @classmethod
    def from_keys(cls, keys: Iterable[str], gaps_alike: bool) -> TextBounds:
        """The bounds with these sorted distinct keys."""
        return cls(Utf8Column.from_texts(keys), gaps_alike)

    @property
    def count(self) -> int:
        """How many bounds there are."""
        return len(self.column)

    @property
    def code_count(self) -> int:
        """How many codes there are."""
        return 2 * len(self.column) + 1

    def key(self, index: int) -> str:
        """The bound as a key of its class."""
        return self.column.text(index)

    def keys(self) -> list[str]:
        """All bounds, in order."""
        return [text.decode("utf-8", "surrogatepass") for text in self.column.all_bytes()]

    @cached_property
    def _decoded(self) -> list[str]:
        return self.keys()

    @cached_property
    def _exact_codes(self) -> dict[str, int] | None:
        """The codes of the bounds themselves, if they are not too many."""
        if self.count > _DECODED_TEXTS_MAX:
            return None
        return {key: 2 * index + 1 for index, key in enumerate(self._decoded)}

    def code_of_key(self, key: str) -> int:
        """The code of a string."""
        exact = self._exact_codes
        if exact is None:
            return self._code_by_bytes(key)
        code = exact.get(key)
        if code is not None:
            return code
        return 2 * len(exact) if self.gaps_alike else 2 * bisect_left(self._decoded, key)

    def _code_by_bytes(self, key: str) -> int:
        known = self._remembered.get(key)
        if known is not None:
            return known
        encoded = key.encode("utf-8", "surrogatepass")
        index = bisect_left(self.column, encoded)
        if index < self.count and self.column[index] == encoded:
            code = 2 * index + 1
        else:
            code = 2 * (self.count if self.gaps_alike else index)
        if len(self._remembered) >= _REMEMBERED_TEXTS_MAX:
            self._remembered.clear()
        self._remembered[key] = code
        return code

    @cached_property
    def search_arguments(self) -> tuple[Any, ...]:
        """What the compiled search takes: offsets, data, a hash table, whether gaps are alike."""
        from peersub.matching.kernels.encode import text_table

        arrays = read_only(self.column.offsets), read_only(self.column.data)
        return (*arrays, read_only(text_table(*arrays)), self.gaps_alike)


@dataclass(frozen=True, slots=True)
class FixedCodes:
    """Each value is its own code: there are no bounds."""

    code_count: int
    count: int = 0


Bounds = OrderedBounds | TextBounds | FixedCodes


def merged(parts: Sequence[Bounds]) -> tuple[Bounds, list[np.ndarray]]:
    """The bounds of all parts together, and for each part where its bounds went: int64[n]."""
    first = parts[0]
    if isinstance(first, FixedCodes):
        return first, [np.empty(0, np.int64) for _ in parts]
    if len(parts) == 1:
        return first, [np.arange(first.count)]
    if isinstance(first, TextBounds):
        return _merged_texts([part for part in parts if isinstance(part, TextBounds)])
    return _merged_ordered([part for part in parts if isinstance(part, OrderedBounds)])


def _places(place: dict[Any, int], keys: Sequence[Any]) -> np.ndarray:
    return np.fromiter((place[key] for key in keys), np.int64, len(keys))


def _merged_texts(parts: Sequence[TextBounds]) -> tuple[TextBounds, list[np.ndarray]]:
    lists = [part.column.all_bytes() for part in parts]
    together = sorted(set().union(*lists))
    place = {text: index for index, text in enumerate(together)}
    positions = [_places(place, texts) for texts in lists]
    gaps_alike = all(part.gaps_alike for part in parts)
    return TextBounds(Utf8Column.from_bytes(together), gaps_alike), positions


def _merged_ordered(parts: Sequence[OrderedBounds]) -> tuple[OrderedBounds, list[np.ndarray]]:
    splits = np.cumsum([part.count for part in parts])[:-1]
    if all(part.are_doubles for part in parts):
        doubles, inverse = np.unique(
            np.concatenate([part.thresholds for part in parts]), return_inverse=True
        )
        return OrderedBounds.from_doubles(doubles), np.split(inverse, splits)
    if all(part.are_integers for part in parts):
        integers, inverse = np.unique(
            np.concatenate([part.integers for part in parts]), return_inverse=True
        )
        return OrderedBounds.from_integers(integers), np.split(inverse, splits)
    lists = [part.keys() for part in parts]
    together = sorted(set().union(*lists))
    place = {key: index for index, key in enumerate(together)}
    positions = [_places(place, keys) for keys in lists]
    return OrderedBounds.from_keys(together), positions
