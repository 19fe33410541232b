"""Lint against a schema: names that no event has, comparisons that no kind of value passes.

The schema says which kinds of values were seen per attribute. A leaf confines its attribute to some
classes; if none of them was seen it can never match. The messages tell the spelling that would.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

from peersub.events.kinds import Kind, KindClass
from peersub.filters.boxes import Path
from peersub.filters.domains import Domain
from peersub.filters.sql_grammar import Leaf
from peersub.filters.sql_text import name_text
from peersub.filters.sql_tokens import Role, Word

__all__ = ["schema_findings"]

SUGGESTED_NAMES_MAX: Final = 1_000
"""Names of the schema that are searched for a similar one."""

Found = tuple[int, int, str, str]
"""Start, end, code and message."""
_PLURALS = {
    KindClass.NUMBER: "numbers",
    KindClass.STRING: "strings",
    KindClass.BOOLEAN: "booleans",
    KindClass.DATE: "dates",
    KindClass.TIMESTAMP: "timestamps",
}
_NUMERIC = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")
_TYPED = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ")


def schema_findings(
    words: Sequence[Word], leaves: Iterable[Leaf], schema: Mapping[Path, frozenset[Kind]]
) -> Iterator[Found]:
    """What the schema says against the leaves of a filter."""
    starting = {word.start: place for place, word in enumerate(words)}
    for leaf in leaves:
        first = last = starting[leaf.start]
        while words[last].end < leaf.end:
            last += 1
        inside = words[first : last + 1]
        name = _name(inside)
        if name is None:
            continue
        path, start, end = name
        kinds = _kinds(path, schema)
        if kinds is None:
            yield start, end, "unknown-attribute", _unknown(path, schema)
        elif leaf.box is not None and path in leaf.box.domains:
            advice = _advice(leaf.box.domains[path], kinds, path, inside)
            if advice is not None:
                yield leaf.start, leaf.end, "kind", advice


def _name(words: Sequence[Word]) -> tuple[Path, int, int] | None:
    """The attribute of a leaf and its place; a constant has none."""
    for place, word in enumerate(words):
        typed = place + 1 < len(words) and words[place + 1].role is Role.STRING
        if word.role is Role.QUOTED_NAME or (
            word.role is Role.NAME and not (typed and word.text.upper() in _TYPED)
        ):
            last = place
            while last + 2 < len(words) and words[last + 1].role is Role.DOT:
                last += 2
            return (
                tuple(part.text for part in words[place : last + 1 : 2]),
                word.start,
                words[last].end,
            )
    return None


def _kinds(path: Path, schema: Mapping[Path, frozenset[Kind]]) -> frozenset[Kind] | None:
    """The kinds seen at a path, None if it was not seen; what has fields is a record."""
    kinds = schema.get(path)
    if kinds is not None:
        return kinds - {Kind.MISSING}
    if any(known[: len(path)] == path for known in schema):
        return frozenset({Kind.RECORD})
    return None


def _unknown(path: Path, schema: Mapping[Path, frozenset[Kind]]) -> str:
    name = name_text(path)
    message = f"No event has an attribute {name}"
    names = [name_text(known) for known in list(schema)[:SUGGESTED_NAMES_MAX]]
    for known in names:
        if known.lower() == name.lower():
            return f"{message}: names are case-sensitive, write {known}."
    close = get_close_matches(name, names, n=1)
    return f"{message}: did you mean {close[0]}?" if close else f"{message}: check the name."


def _advice(
    domain: Domain, kinds: frozenset[Kind], path: Path, words: Sequence[Word]
) -> str | None:
    """What to write in place of a comparison that no value of these kinds passes."""
    wanted = [kind_class for kind_class in KindClass if domain.sets[kind_class]]
    classes = {kind.kind_class for kind in kinds} - {None}
    if not kinds or domain.absent or domain.other or not classes.isdisjoint(wanted):
        return None
    name = name_text(path)
    if not classes:
        if Kind.RECORD in kinds:
            return f"{name} is a record and is never equal to a value: name one of its fields."
        return f"{name} holds arrays or binary data, which cannot be compared: use IS NOT NULL."
    seen = [kind_class for kind_class in KindClass if kind_class in classes]
    holds = " and ".join(_PLURALS[kind_class] for kind_class in seen)
    literals = [word for word in words if word.role in (Role.STRING, Role.NUMBER)]
    remedy = _remedy(wanted[0], seen[0], literals[0].text if literals else "")
    return f"{name} holds {holds}, so this is never true: {remedy}"


def _remedy(wanted: KindClass, seen: KindClass, literal: str) -> str:
    match wanted, seen:
        case KindClass.DATE | KindClass.TIMESTAMP, KindClass.STRING:
            return f"compare with a string, '{literal}'; ISO dates sort as text."
        case KindClass.DATE, KindClass.TIMESTAMP:
            return f"compare with TIMESTAMP '{literal} 00:00:00'."
        case KindClass.TIMESTAMP, KindClass.DATE:
            return f"compare with DATE '{literal[:10]}'."
        case KindClass.STRING, KindClass.NUMBER if _NUMERIC.fullmatch(literal):
            return f"write {literal.strip()} without quotes."
        case KindClass.STRING, KindClass.DATE:
            return f"compare with a date, DATE '{literal[:10] or '2024-12-31'}'."
        case KindClass.STRING, KindClass.TIMESTAMP:
            return f"compare with a timestamp, TIMESTAMP '{literal or '2024-12-31 00:00:00'}'."
        case KindClass.STRING, KindClass.BOOLEAN:
            return "compare with TRUE or FALSE, without quotes."
        case KindClass.NUMBER, KindClass.STRING:
            return f"write '{literal}' in quotes; strings sort as text, so '10' comes before '9'."
        case KindClass.BOOLEAN, KindClass.STRING:
            return "compare with a string, for example 'true'."
        case KindClass.BOOLEAN, KindClass.NUMBER:
            return "compare with a number, for example <> 0."
        case _, KindClass.BOOLEAN:
            return "compare with TRUE or FALSE."
        case _:
            return f"compare with {_PLURALS[seen]}."
