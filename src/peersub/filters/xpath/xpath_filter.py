"""`XPathFilter`: a tree pattern over XML as a filter, with the same relations as a SQL filter.

Two filters are equal iff the canonical forms of their patterns are (`minimise`). A pattern that
no document can match is the filter of nothing, whatever it was. An event matches by its body;
one without a well-formed body within the bounds of `documents` matches no pattern, so that even
`/*` does not match every event.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Final, Literal, get_args

from peersub.filters.boxes import Path
from peersub.filters.errors import FilterError
from peersub.filters.filter import Filter, Matchable
from peersub.filters.price import Price, price_of_tree_pattern
from peersub.filters.wire_form import pattern_to_bytes
from peersub.filters.xpath.aggregate import union_pattern, upper_bounds
from peersub.filters.xpath.canonical_models import covers_by_models, models_count
from peersub.filters.xpath.containment import General, Specific, maps_into
from peersub.filters.xpath.documents import Document, DocumentError, document_of
from peersub.filters.xpath.embedding import Step, compiled, embeds
from peersub.filters.xpath.grammar import parse_pattern
from peersub.filters.xpath.intersection import (
    NoPatternError,
    intersection_pattern,
    same_element,
)
from peersub.filters.xpath.limits import MODELS_MAX, PATTERN_CHARACTERS_MAX, PATTERN_PARTS_MAX
from peersub.filters.xpath.minimise import minimise
from peersub.filters.xpath.pattern import PatternNode, labels_of, parts_of, pattern_text

__all__ = ["Containment", "XPathFilter"]

Containment = Literal["distance", "homomorphism", "complete"]
"""How covering is decided: by distance edges, plainly, or by canonical models if they are few."""

NOTHING_TEXT: Final = "/*[. = 0 and . = 1]"


class XPathFilter(Filter):
    """A tree pattern over XML documents.

    >>> wanted = XPathFilter("/nitf/body//p[@lede = 'true']")
    >>> wanted.matches(b"<nitf><body><block><p lede='true'>News</p></block></body></nitf>")
    True
    >>> XPathFilter("//p").covers(wanted)
    True

    Args:
        pattern: an XPath expression of the fragment that `grammar` describes.

    Raises:
        FilterError: the pattern is outside of that fragment; the error names the position.
    """

    language = "xpath"

    def __init__(self, pattern: str) -> None:
        if not isinstance(pattern, str):
            raise TypeError(f"a pattern is text, not {type(pattern).__name__}")
        self.source = pattern
        parsed = parse_pattern(pattern)
        self.pattern: PatternNode | None = None if parsed is None else minimise(parsed)
        # Writing out adds a blank or a bracket here and there, but never doubles a text.
        if 2 * len(pattern) > PATTERN_CHARACTERS_MAX and len(self.text) > PATTERN_CHARACTERS_MAX:
            problem = (
                f"written out, the pattern has more than {PATTERN_CHARACTERS_MAX:,} characters"
            )
            raise FilterError(pattern, 0, problem, "Split it into several patterns.")

    @classmethod
    def from_pattern(cls, pattern: PatternNode | None) -> XPathFilter:
        """The filter of a tree pattern."""
        made = cls.__new__(cls)
        made.source = ""
        made.pattern = None if pattern is None else minimise(pattern)
        return made

    @cached_property
    def text(self) -> str:
        """The canonical pattern; parsing it gives an equal filter."""
        return NOTHING_TEXT if self.pattern is None else pattern_text(self.pattern)

    def to_bytes(self) -> bytes:
        """The canonical pattern as versioned MessagePack."""
        return pattern_to_bytes(self.text)

    @cached_property
    def price(self) -> Price:
        """What the pattern costs wherever it goes."""
        return price_of_tree_pattern(self.text)

    @property
    def attributes(self) -> list[Path]:
        """None: a pattern speaks of the body, not of attributes."""
        return []

    @property
    def is_nothing(self) -> bool:
        """Whether no document can match."""
        return self.pattern is None

    @property
    def is_everything(self) -> bool:
        """Never: an event without an XML body matches no pattern."""
        return False

    # --- matching ------------------------------------------------------------------------------

    @cached_property
    def _compiled(self) -> tuple[frozenset[str], bool, Step]:
        assert self.pattern is not None
        return labels_of(self.pattern), self.pattern.is_descendant, compiled(self.pattern, {})

    def matches(self, event: Matchable | Document) -> bool:
        """Whether the event's document is wanted. Never an error: what is no document is not
        wanted.
        """
        if self.pattern is None:
            return False
        try:
            document = document_of(event)
        except DocumentError:
            return False
        answer = document.answers.get(self.text) if document.answers else None
        if answer is not None:
            return answer
        labels, is_descendant, top = self._compiled
        return labels <= document.places.keys() and embeds(is_descendant, top, document, {})

    # --- relations -----------------------------------------------------------------------------

    @cached_property
    def _general(self) -> General:
        assert self.pattern is not None
        return General(self.pattern, with_distances=True)

    @cached_property
    def _specific(self) -> Specific:
        assert self.pattern is not None
        return Specific(self.pattern)

    def covers(self, other: Filter, containment: Containment = "distance") -> bool:
        """Whether each document that matches `other` matches this pattern; True only if proven.

        "homomorphism" proves less and is transitive. "complete" decides the structure of the
        patterns, where that takes no more than MODELS_MAX canonical models.
        """
        if containment not in get_args(Containment):
            known = ", ".join(get_args(Containment))
            raise ValueError(f"containment {containment!r} is not known; it is one of {known}")
        if other.is_nothing:
            return True
        if not isinstance(other, XPathFilter) or self.pattern is None or other.pattern is None:
            return False
        if containment == "homomorphism":
            return maps_into(General(self.pattern, with_distances=False), other._specific)
        if maps_into(self._general, other._specific):
            return True
        return (
            containment == "complete"
            and models_count(self.pattern, other.pattern) <= MODELS_MAX
            and covers_by_models(self.pattern, other.pattern)
        )

    def overlaps(self, other: Filter) -> bool:
        """Whether some document may match both; False only if it is proven that none can.

        Documents have one root: two patterns that ask opposite things of it share none.
        """
        if not isinstance(other, XPathFilter):
            return not (self.is_nothing or other.is_nothing)
        if self.pattern is None or other.pattern is None:
            return False
        if self.pattern.is_descendant or other.pattern.is_descendant:
            return True
        return same_element(self.pattern, other.pattern) is not None

    def _joined(self, other: Filter) -> Filter:
        assert isinstance(other, XPathFilter)
        assert self.pattern is not None
        assert other.pattern is not None
        try:
            both = XPathFilter.from_pattern(intersection_pattern(self.pattern, other.pattern))
        except NoPatternError as error:
            raise self._no_intersection(other, str(error)) from None
        if both.pattern is not None and (
            parts_of(both.pattern) > PATTERN_PARTS_MAX or len(both.text) > PATTERN_CHARACTERS_MAX
        ):
            raise self._no_intersection(other, "both together are too large for one pattern")
        return both

    def merge(
        self,
        other: Filter,
        *,
        sample: Iterable[Matchable | Document] = (),
        budget: float = 0.0,
    ) -> Filter | None:
        """One pattern for both, or None.

        Without a budget it matches what one of the two matches and nothing else. With one it
        may also match other documents, at most the share `budget` of the sample's.

        >>> XPathFilter("/a[@b > 5]").merge(XPathFilter("/a[@b = 5]")).text
        '/a[@b >= 5]'
        """
        if self.covers(other):
            return self
        if other.covers(self):
            return other
        if not isinstance(other, XPathFilter):
            return None
        assert self.pattern is not None
        assert other.pattern is not None
        union = union_pattern(self.pattern, other.pattern)
        if union is not None:
            return XPathFilter.from_pattern(union)
        documents = list(_documents(sample))
        events = len(documents)
        if budget <= 0 or not events:
            return None
        unwanted = [
            document
            for document in documents
            if document is not None and not self.matches(document) and not other.matches(document)
        ]
        return self._imperfect_merge(other, unwanted, int(budget * events))

    def _imperfect_merge(
        self, other: XPathFilter, unwanted: list[Document], allowed: int
    ) -> XPathFilter | None:
        """The upper bound that matches the fewest unwanted documents, if they are few enough."""
        assert self.pattern is not None
        assert other.pattern is not None
        best: tuple[int, XPathFilter] | None = None
        for bound in upper_bounds(self.pattern, other.pattern):
            candidate = XPathFilter.from_pattern(bound)
            if len(candidate.text) > PATTERN_CHARACTERS_MAX:
                continue
            # Whoever routes by the merged filter relies on a proof, not on how it was made.
            if not (candidate.covers(self) and candidate.covers(other)):
                continue
            cost = sum(candidate.matches(document) for document in unwanted)
            if best is None or cost < best[0]:
                best = (cost, candidate)
        return best[1] if best is not None and best[0] <= allowed else None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, XPathFilter):
            return NotImplemented
        return self.pattern == other.pattern

    def __hash__(self) -> int:
        return hash(self.text)

    def __reduce__(self) -> tuple[object, ...]:
        return (XPathFilter, (self.text,))

    def __repr__(self) -> str:
        return f"Filter.xpath({self.text!r})"


def _documents(sample: Iterable[Matchable | Document]) -> Iterable[Document | None]:
    for event in sample:
        try:
            yield document_of(event)
        except DocumentError:
            yield None
