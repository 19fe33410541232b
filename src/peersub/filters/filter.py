"""`Filter`: what a subscriber wants, as one value with its relations.

A filter is a union of boxes (`normal_form`). Two filters are equal iff their normal forms are; the
digest of the normal form is their name on the wire. `Filter.xpath` gives a tree pattern over XML
with the same relations; a pattern and a SQL filter only meet where one of them is trivial.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Final

from peersub.events.envelope import Event
from peersub.filters.boxes import Box, Path, box_matches
from peersub.filters.errors import FilterError, excerpt_of
from peersub.filters.limits import (
    CONJUNCTS_MAX,
    CONSTRAINTS_MAX,
    PATTERN_CHARACTERS_MAX,
    TEXT_TESTS_MAX,
)
from peersub.filters.normal_form import (
    Boxes,
    TooManyConjunctsError,
    boxes_of,
    simplified,
    union_intersection,
)
from peersub.filters.price import ROW_PRICE_MAX, Price, price_of_boxes
from peersub.filters.relations import (
    imperfect_merge,
    perfect_merge,
    union_covers,
    union_overlaps,
)
from peersub.filters.sql_grammar import parse
from peersub.filters.sql_text import text_of_boxes
from peersub.filters.wire_form import BYTES_MAX, boxes_to_bytes, digest_of, read_bytes

__all__ = ["Filter", "Matchable", "attributes_of", "described"]

KEPT_BYTES_MAX: Final = 1_024
"""Of the normal form, which is asked for at each table and link; longer ones are made each time."""
Matchable = Mapping[str, Any] | Event | bytes | str
"""What a filter can be asked about: attributes, an event, or an XML document."""


def attributes_of(event: Matchable) -> Mapping[str, Any]:
    """The attributes that a SQL filter sees; an XML document alone has none."""
    if isinstance(event, Event):
        return event.attributes
    return event if isinstance(event, Mapping) else {}


class Filter:
    """A boolean expression over the content of events.

    >>> wanted = Filter("symbol = 'ACME' AND price > 10")
    >>> wanted.matches({"symbol": "ACME", "price": 12.5})
    True
    >>> wanted.covers(Filter("symbol = 'ACME' AND price > 20"))
    True

    Args:
        text: a SQL boolean expression; the language is described in docs/filters.md.

    Raises:
        FilterError: the text is not a filter; the error names the position and the remedy.
    """

    language = "sql"
    is_read = True
    """Whether the filter says all that it wants (`widened.UnreadFilter` does not)."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(f"a filter is text, not {type(text).__name__}")
        self.source = text
        try:
            self.boxes: Boxes = boxes_of(parse(text))
        except TooManyConjunctsError:
            raise FilterError(
                text,
                0,
                f"the filter multiplies out to more than {CONJUNCTS_MAX:,} conjunctions, or "
                f"{CONSTRAINTS_MAX:,} conditions in them",
                "Split it into several subscriptions, or use IN and BETWEEN in place of OR.",
            ) from None

    @classmethod
    def from_boxes(cls, boxes: Iterable[Box]) -> Filter:
        """The filter that holds what lies in any of the boxes."""
        return cls._of(simplified(boxes))

    @classmethod
    def _of(cls, boxes: Boxes) -> Filter:
        made = cls.__new__(cls)
        made.boxes = boxes
        made.source = ""
        return made

    @staticmethod
    def xpath(pattern: str) -> Filter:
        """A tree pattern over XML documents, such as `/nitf/body//p[@lede]`.

        Raises:
            FilterError: the pattern is outside of the supported fragment of XPath.
        """
        from peersub.filters.xpath import XPathFilter

        return XPathFilter(pattern)

    @staticmethod
    def from_bytes(data: bytes, price_max: int | None = None) -> Filter:
        """The filter that `to_bytes` wrote.

        Raises:
            TooDearError: it costs more than `price_max`; said before anything is built.
            ValueError: the bytes are no filter of a version that is understood.
        """
        form, price = read_bytes(data, price_max)
        if isinstance(form, str):
            return Filter.xpath(form)
        made = Filter._of(form)
        made.__dict__["price"] = price  # As the cached property holds it.
        return made

    def to_bytes(self) -> bytes:
        """The normal form as versioned MessagePack."""
        known: bytes | None = self.__dict__.get("_bytes")
        if known is None:
            known = boxes_to_bytes(self.boxes)
            if len(known) <= KEPT_BYTES_MAX:
                self.__dict__["_bytes"] = known
        return known

    @cached_property
    def digest(self) -> bytes:
        """16 bytes that name the filter: equal filters, and only those, have equal digests."""
        return self._measured[0]

    @cached_property
    def _measured(self) -> tuple[bytes, int]:
        """The digest and the size of the bytes, which are dear to write."""
        data = self.to_bytes()
        return digest_of(data), len(data)

    @cached_property
    def price(self) -> Price:
        """What the filter costs wherever it goes."""
        return price_of_boxes(self.boxes, self._measured[1])

    @cached_property
    def text(self) -> str:
        """The canonical text; parsing it gives an equal filter."""
        return text_of_boxes(self.boxes)

    @property
    def attributes(self) -> list[Path]:
        """The attributes that the filter speaks of, sorted."""
        return sorted({path for box in self.boxes for path in box.domains})

    def matches(self, event: Matchable) -> bool:
        """Whether the event is wanted. Never an error, whatever the event holds."""
        attributes = attributes_of(event)
        return any(box_matches(box, attributes) for box in self.boxes)

    @property
    def is_nothing(self) -> bool:
        """Whether no event can match."""
        return not self.boxes

    @property
    def is_everything(self) -> bool:
        """Whether each event matches, as far as covering proves it."""
        # An event without attributes tells at once for nearly all filters, which are not.
        return self.matches({}) and union_covers(self.boxes, (Box({}, {}),))

    def covers(self, other: Filter) -> bool:
        """Whether each event that matches `other` matches this filter; True only if proven."""
        if other.language != self.language:
            return other.is_nothing or self.is_everything
        return self.boxes == other.boxes or union_covers(self.boxes, other.boxes)

    def overlaps(self, other: Filter) -> bool:
        """Whether some event may match both; False only if it is proven that none can."""
        if other.language != self.language:
            return not (self.is_nothing or other.is_nothing)
        return union_overlaps(self.boxes, other.boxes)

    def equivalent(self, other: Filter) -> bool:
        """Whether both match the same events; True only if proven."""
        return self == other or (self.covers(other) and other.covers(self))

    def intersection(self, other: Filter) -> Filter:
        """The filter that matches iff both match, exactly.

        >>> Filter("price > 10 OR size = 5").intersection(Filter("size < 20")).text
        '(price > 10 AND size < 20) OR size = 5'

        Raises:
            FilterError: no filter within the bounds says so, or none of one language does.
        """
        # The last answer is kept: a node works it out off its loop, and is asked by each layer.
        known: tuple[Filter, Filter | FilterError] | None = self.__dict__.get("_narrowed")
        if known is None or known[0] is not other:
            try:
                known = other, self._narrowed_to(other)
            except FilterError as error:
                known = other, error
            self.__dict__["_narrowed"] = known
        if isinstance(known[1], FilterError):
            raise known[1].with_traceback(None)
        return known[1]

    def _narrowed_to(self, other: Filter) -> Filter:
        if self.covers(other):
            return other
        if other.covers(self):
            return self
        if other.language != self.language:
            raise self._no_intersection(
                other, "a SQL filter and an XPath pattern do not make one filter"
            )
        return self._joined(other)

    def _joined(self, other: Filter) -> Filter:
        """The intersection with a filter of the same language; neither covers the other."""
        try:
            both = Filter._of(union_intersection(self.boxes, other.boxes))
        except TooManyConjunctsError:
            raise self._no_intersection(
                other, f"both together multiply out to more than {CONJUNCTS_MAX:,} conjunctions"
            ) from None
        # The bounds of the language and of the wire: what is made here must be read elsewhere.
        patterns = {test for box in both.boxes for test in box.tests}
        if (
            len(patterns) > TEXT_TESTS_MAX
            or sum(len(test.pattern) for test in patterns) > PATTERN_CHARACTERS_MAX
        ):
            raise self._no_intersection(other, "both together have too many or too long patterns")
        if len(both.to_bytes()) > BYTES_MAX:
            raise self._no_intersection(other, f"both together take more than {BYTES_MAX:,} bytes")
        return both

    def _no_intersection(self, other: Filter, problem: str) -> FilterError:
        remedy = f"It is to be joined with {excerpt_of(described(other))}; use simpler filters."
        return FilterError(described(self), 0, problem, remedy)

    def merge(
        self, other: Filter, *, sample: Iterable[Matchable] = (), budget: float = 0.0
    ) -> Filter | None:
        """One filter for both, with fewer conjunctions than the two have together, or None.

        Where one covers the other it is the merged filter.
        Without a budget the merge is perfect: it matches what one of the two matches and nothing
        else. With one it may also match other events, at most the share `budget` of the sample's.

        >>> Filter("a = 1 AND b > 0").merge(Filter("a = 2 AND b > 0")).text
        'a IN (1, 2) AND b > 0'
        """
        if self.covers(other):
            return self
        if other.covers(self):
            return other
        if other.language != self.language:
            return None
        perfect = perfect_merge(self.boxes, other.boxes)
        if perfect is not None:
            return Filter._of(perfect)
        events = [attributes_of(event) for event in sample]
        if not events or budget <= 0:
            return None
        both = simplified((*self.boxes, *other.boxes))
        unwanted = [e for e in events if not any(box_matches(box, e) for box in both)]
        merged = imperfect_merge(
            both,
            len(both) - 1,
            lambda box: sum(box_matches(box, event) for event in unwanted),
            int(budget * len(events)),
        )
        return None if merged is None else Filter._of(merged)

    def similarity(self, other: Filter, sample: Iterable[Matchable]) -> float:
        """How alike two filters are on a sample: the mean of P(self|other) and P(other|self).

        1 if they match the same events of the sample, 0 if they share none or one matches none.
        """
        from peersub.filters.similarity import sample_bits, similarity_of_bits

        events = list(sample)
        return similarity_of_bits(sample_bits(self, events), sample_bits(other, events))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Filter) or other.language != self.language:
            return NotImplemented
        return self.boxes == other.boxes

    def __hash__(self) -> int:
        return hash(self.boxes)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Filter({self.text!r})"


def described(wanted: Filter) -> str:
    """The filter for people: its source or its text, unless writing that out would take long."""
    if wanted.source or wanted.price.units <= ROW_PRICE_MAX // 2:
        return wanted.source or wanted.text
    return f"a filter of {len(wanted.boxes):,} conjunctions"
