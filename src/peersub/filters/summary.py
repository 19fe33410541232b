"""What a filter demands of an event, and what an event has: the ground of every look-up.

A filter is summarised by its *demands*: the attributes that it constrains in every one of its
boxes, each with its bounding domain. It can only cover another filter if its demands are among the
other's, and where it lists all the values of an attribute, so does the other.

What the summary says is necessary, never sufficient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from peersub.events.kinds import KindClass, value_at
from peersub.filters.boxes import Box, Path, box_covers
from peersub.filters.domains import CLASSES, Domain
from peersub.filters.filter import Filter, Matchable, attributes_of
from peersub.filters.intervals import EMPTY, IntervalSet, single_points
from peersub.filters.relations import Allowance, Proof
from peersub.filters.span_index import Span, span_of_value

if TYPE_CHECKING:
    from peersub.filters.xpath.documents import Document

__all__ = ["ANY_VALUE", "IN_DOCUMENT", "Subject", "Summary", "Value", "Values", "bounding_domains"]

LISTED_VALUES_MAX: Final = 32
"""Values that a demand may list; one with more counts as a range."""
BOUNDING_CUTS_MAX: Final = 64
"""Cuts of a bounding domain; beyond, its gaps are closed."""

Value = tuple[KindClass, Any]
Values = tuple[Value | None, ...]
IN_DOCUMENT: Final = "//"
"""The first part of the paths that stand for the labels of a document."""
ANY_VALUE: Final[Values] = (None,)
"""Stands for the values of a demand that does not list them."""


class Summary:
    """What a filter demands, computed once.

    Attributes:
        demands: the attributes that each box constrains, sorted; covering reverses their inclusion.
        listed: for some demands, all the values that the filter accepts there. boxes: per box, the
        attributes that an event must have, with their values where it lists them. domains: per box,
        its domains; a pattern has none. bounds: the bounding domains.
    """

    __slots__ = (
        *("boxes", "demands", "digest", "filter", "is_everything", "is_nothing", "listed"),
        *("bounds", "domains", "has_tests", "_box", "_demand_set"),
    )

    def __init__(self, wanted: Filter) -> None:
        self.filter = wanted
        self.digest = wanted.digest
        self.is_nothing = wanted.is_nothing
        self.boxes: list[dict[Path, Values]] = []
        self.listed: dict[Path, Values] = {}
        self.domains: Sequence[Mapping[Path, Domain]] = ({},)
        self.bounds: Mapping[Path, Domain] = {}
        self.has_tests = False
        self._box: Box | None = None
        if wanted.language == "sql":
            if len(wanted.boxes) == 1 and wanted.is_read:
                self._box = wanted.boxes[0]
            self.boxes = [_needed(box.domains) for box in wanted.boxes]
            self.domains = [box.domains for box in wanted.boxes]
            self.bounds = bounding_domains(wanted.boxes)
            self.has_tests = any(box.tests for box in wanted.boxes)
            needed = self.boxes[0] if len(self.boxes) == 1 else _needed(self.bounds)
            self.listed = {path: values for path, values in needed.items() if values != ANY_VALUE}
            self.demands: tuple[Path, ...] = tuple(sorted(self.bounds))
        else:
            # An embedding keeps labels: a pattern demands that they occur in the document.
            self.demands = tuple((IN_DOCUMENT, label) for label in sorted(_labels(wanted)))
            self.boxes = [dict.fromkeys(self.demands, ANY_VALUE)]
        self._demand_set = frozenset(self.demands)
        self.is_everything = not self.demands and not self.is_nothing and wanted.is_everything

    @property
    def has_boxes(self) -> bool:
        """Whether boxes are all that the filter is."""
        return self.filter.language == "sql" and self.filter.is_read

    @property
    def has_several_boxes(self) -> bool:
        """Whether the filter is a union: then none of its boxes alone need cover what it covers."""
        return len(self.domains) > 1

    @property
    def witness(self) -> int:
        """The place of the first box that needs fewest attributes; the filter is not nothing.

        Its events without other attributes are found by a look-up for few.
        """
        return min(range(len(self.boxes)), key=lambda at: len(self.boxes[at]))

    def may_cover(self, other: Summary) -> bool:
        """False only if this filter cannot cover the other."""
        if self.is_everything or other.is_nothing:
            return True
        return (
            self.filter.language == other.filter.language and self._demand_set <= other._demand_set
        )

    def covers(self, other: Summary) -> bool:
        """Whether the filter covers the other."""
        if not self.may_cover(other):
            return False
        if self._box is not None and other._box is not None and not self.has_tests:
            # By far the most common case, without the detour through unions.
            return box_covers(self._box, other._box)
        return self.filter.covers(other.filter)

    def proof(self, other: Summary, allowance: Allowance) -> Proof:
        """That the filter covers the other, within the steps of an allowance."""
        if not self.may_cover(other):
            return False
        steps = 1 + len(self.demands) // 8
        allowance.left -= steps
        yield steps
        is_simple = self._box is not None and other._box is not None and not self.has_tests
        if is_simple or not (self.has_boxes and other.has_boxes):
            return self.covers(other)
        if self.filter.boxes == other.filter.boxes:
            return True
        return (yield from allowance.proof(self.filter.boxes, other.filter.boxes))


def _labels(pattern: Filter) -> frozenset[str]:
    from peersub.filters.xpath.pattern import labels_of
    from peersub.filters.xpath.xpath_filter import XPathFilter

    assert isinstance(pattern, XPathFilter)
    return frozenset() if pattern.pattern is None else labels_of(pattern.pattern)


def _needed(domains: Mapping[Path, Domain]) -> dict[Path, Values]:
    """The attributes that must be there, with the values that they must have if these are few."""
    return {path: _values(domain) for path, domain in domains.items() if not domain.absent}


def _values(domain: Domain) -> Values:
    """The values of a domain without "absent" that has only a few, else ANY_VALUE."""
    if domain.other:
        return ANY_VALUE
    values: list[Value] = []
    for number, cuts in enumerate(domain.sets):
        if not cuts:
            continue
        kind_class = CLASSES[number]
        keys = single_points(kind_class, cuts) if len(cuts) <= 2 * LISTED_VALUES_MAX else None
        if keys is None:
            return ANY_VALUE
        values += ((kind_class, key) for key in keys)
    return tuple(values) if len(values) <= LISTED_VALUES_MAX else ANY_VALUE


def bounding_domains(boxes: Sequence[Box]) -> Mapping[Path, Domain]:
    """The smallest domain of each attribute that holds its domains of all boxes, if it is not all.

    Where it would have many gaps they are closed: it is then larger than the smallest.
    """
    if not boxes:
        return {}
    if len(boxes) == 1:
        return boxes[0].domains
    narrowest = min(boxes, key=lambda box: len(box.domains))
    bounds = dict(narrowest.domains)
    for box in boxes:
        if box is narrowest:
            continue
        bounds = {
            path: _spanned(domain.union(box.domains[path]))
            for path, domain in bounds.items()
            if path in box.domains
        }
    return {path: domain for path, domain in bounds.items() if not domain.is_everything}


def _spanned(domain: Domain) -> Domain:
    if sum(map(len, domain.sets)) <= BOUNDING_CUTS_MAX:
        return domain
    number, string, boolean, date, timestamp = map(_span, domain.sets)
    return Domain(domain.absent, domain.other, (number, string, boolean, date, timestamp))


def _span(cuts: IntervalSet) -> IntervalSet:
    return (cuts[0], cuts[-1]) if cuts else EMPTY


class Subject:
    """An event that many filters are asked about: its document, if it has one, is parsed once."""

    __slots__ = ("_document", "_event", "attributes")

    def __init__(self, event: Matchable) -> None:
        self._event = event
        self.attributes = attributes_of(event)
        self._document: Any = _UNREAD

    @property
    def document(self) -> Document | None:
        """The event's document, None if it has none that can be read."""
        if self._document is _UNREAD:
            from peersub.filters.xpath.documents import DocumentError, document_of

            try:
                self._document = document_of(self._event)
            except DocumentError:
                self._document = None
        found: Document | None = self._document
        return found

    def value(self, path: Path) -> object:
        """The value of an attribute; for a label just something, if it occurs in the document."""
        if path[0] != IN_DOCUMENT:
            return value_at(self.attributes, path)
        return () if self.document is not None and path[1] in self.document.places else None

    def span(self, path: Path) -> Span:
        """Where the value of an attribute lies."""
        return span_of_value(self.value(path))

    def is_matched_by(self, wanted: Filter) -> bool:
        """Whether the filter matches the event."""
        if wanted.language == "sql":
            return wanted.matches(self.attributes)
        matches: Callable[[Document], bool] = wanted.matches  # type: ignore[assignment]
        return self.document is not None and matches(self.document)


_UNREAD: Final = object()
