"""A tiny summary of a filter: what an event must have to match, as a few hashed bits.

An option (`summary_bytes`), since it tells neighbours something of what a member wants, which the
paper's peers never learn. A filter demands *words*: the labels of a pattern's elements, the names
of attributes that every match has, and texts where only one will do. Each word is one bit of the
summary; an event has bits for all its words. Law: a filter that matches an event has no bit that
the event has not. So a copy that the summary holds back could not have matched, and the option
never causes a miss at that member by itself. Two words may share a bit: then a copy is sent in
vain.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Final

from peersub.events.kinds import KindClass, is_missing
from peersub.filters.filter import Filter
from peersub.filters.summary import ANY_VALUE, IN_DOCUMENT, Subject, Summary
from peersub.overlays.core.publication import Publication

__all__ = ["event_summary", "filter_summary"]

NESTED_MAX: Final = 16
"""Records within records whose names count; filters that ask deeper demand nothing."""


def filter_summary(wanted: Filter, size: int) -> int:
    """The bits of a filter, in so many bytes.

    >>> filter_summary(Filter("a = 'x' AND b > 1"), 8).bit_count()
    3
    >>> filter_summary(Filter("a = 1 OR b = 1"), 8)
    0
    """
    bits = 0
    for word in _demanded(wanted):
        bits |= _bit(word, size)
    return bits


def event_summary(publication: Publication, size: int) -> int:
    """The bits of an event."""
    bits = 0
    for word in _offered(publication):
        bits |= _bit(word, size)
    return bits


def _bit(word: str, size: int) -> int:
    digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8, person=b"word")
    return 1 << int.from_bytes(digest.digest(), "big") % (8 * size)


def _demanded(wanted: Filter) -> Iterator[str]:
    summary = Summary(wanted)
    if wanted.language != "sql":
        for _, label in summary.demands:
            yield _word(IN_DOCUMENT, label)
        return
    for path, domain in summary.bounds.items():
        if domain.absent or len(path) > NESTED_MAX:
            continue
        yield _word(*path)
        values = summary.listed.get(path, ANY_VALUE)
        if len(values) == 1 and values[0] is not None and values[0][0] is KindClass.STRING:
            yield _valued(path, values[0][1])


def _offered(publication: Publication) -> Iterator[str]:
    yield from _names(publication.attributes, ())
    document = Subject(publication.event).document
    if document is not None:
        for label in document.places:
            yield _word(IN_DOCUMENT, label)


def _names(record: Mapping[str, object], above: tuple[str, ...]) -> Iterator[str]:
    for name, value in record.items():
        if is_missing(value):
            continue
        path = (*above, name)
        yield _word(*path)
        if isinstance(value, str):
            yield _valued(path, value)
        elif isinstance(value, Mapping) and len(path) < NESTED_MAX:
            yield from _names(value, path)


def _word(*parts: str) -> str:
    return "".join(f"{len(part)}:{part}" for part in parts)


def _valued(path: tuple[str, ...], value: str) -> str:
    return f"{_word(*path)}={value}"
