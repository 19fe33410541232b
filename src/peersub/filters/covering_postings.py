"""Filters by the attributes that they speak of, and which of them lie within, or touch, a domain.

The *demands* of a filter are in one `Postings`, each with its bounding domain. In another is, of
the filters with several boxes, what their witness box needs: these may have no demand at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from peersub.filters.boxes import Path
from peersub.filters.span_index import (
    SPANNED_MIN,
    Answers,
    Domains,
    Span,
    SpanIndex,
    span_at,
    span_of,
    spans_of,
)
from peersub.filters.summary import IN_DOCUMENT, Summary

__all__ = ["Posting", "Postings", "bounds", "witness_domains"]


class Posting:
    """Filters that speak of an attribute, by their digests, each with its domain there."""

    __slots__ = ("_domains", "_path", "_spans", "digests", "opaque")

    def __init__(self, path: Path, domains: Callable[[Summary], Domains]) -> None:
        self._path = path
        self._domains = domains
        self.digests: dict[bytes, None] = {}
        # Those with text tests: a union may cover them wherever they lie.
        self.opaque: dict[bytes, None] = {}
        self._spans: SpanIndex[bytes] | None = None

    def add(self, node: Summary, known: Mapping[bytes, Summary]) -> None:
        """Put a filter in; it is among the known ones."""
        self.digests[node.digest] = None
        if node.has_tests:
            self.opaque[node.digest] = None
        if self._spans is not None:
            self._spans.add(self._span(node), node.digest)
        elif len(self.digests) > SPANNED_MIN and self._path[0] != IN_DOCUMENT:
            self._spans = SpanIndex()
            for digest in sorted(self.digests):
                self._spans.add(self._span(known[digest]), digest)

    def discard(self, node: Summary) -> None:
        """Take a filter out."""
        del self.digests[node.digest]
        self.opaque.pop(node.digest, None)
        if self._spans is not None:
            self._spans.discard(self._span(node), node.digest)

    def _span(self, node: Summary) -> Span:
        return span_at(self._domains(node), self._path)

    def within(self, general: Summary) -> Answers[bytes] | None:
        """Those whose values lie within the bounds of a filter; None if spans are not kept."""
        if self._spans is None:
            return None
        domain = general.bounds[self._path]
        return self._spans.within(spans_of(domain), span_of(domain)[1])

    def touching(
        self, domains: Domains, names_max: int | None = None
    ) -> tuple[int, Iterable[bytes]]:
        """Those whose values may be among those of a box, and how many they are at most."""
        if self._spans is None:
            return len(self.digests), islice(self.digests, names_max)
        found = self._spans.touching(span_at(domains, self._path))
        return found.size, found.names(names_max)


def bounds(node: Summary) -> Domains:
    """The bounding domains of a filter."""
    return node.bounds


def witness_domains(node: Summary) -> Domains:
    """The domains of the witness box of a filter."""
    return node.domains[node.witness]


class Postings:
    """A posting per attribute, and the changes of all of them."""

    __slots__ = ("_domains", "_postings")

    def __init__(self, domains: Callable[[Summary], Domains]) -> None:
        self._domains = domains
        self._postings: dict[Path, Posting] = {}

    def __getitem__(self, path: Path) -> Posting:
        return self._postings.get(path) or Posting(path, self._domains)

    def __contains__(self, path: Path) -> bool:
        return path in self._postings

    def add(self, node: Summary, paths: Iterable[Path], known: Mapping[bytes, Summary]) -> None:
        """Put a filter, which is among the known ones, in the postings of some attributes."""
        for path in paths:
            posting = self._postings.get(path)
            if posting is None:
                posting = self._postings[path] = Posting(path, self._domains)
            posting.add(node, known)

    def discard(self, node: Summary, paths: Iterable[Path]) -> None:
        """Take a filter out of the postings of these attributes."""
        for path in paths:
            posting = self._postings[path]
            posting.discard(node)
            if not posting.digests:
                del self._postings[path]
