"""One pattern for what two patterns both match, where a pattern can say it.

A document has one root element. Two patterns that both begin there (`/`) ask for the same element,
and their demands join. One that begins anywhere (`//`) may be found at the root or below it: where
the other pattern rules out the root, it is a branch below. Else both ways are open, which is a
union of patterns and not a pattern; nor is there one for two patterns that begin anywhere.
"""

from __future__ import annotations

from dataclasses import replace

from peersub.filters.xpath.conditions import conjunction
from peersub.filters.xpath.pattern import PatternNode, fewest_text_conditions

__all__ = ["NoPatternError", "intersection_pattern", "same_element"]


class NoPatternError(ValueError):
    """No single pattern matches exactly what both match."""


def intersection_pattern(first: PatternNode, second: PatternNode) -> PatternNode | None:
    """A pattern that matches iff both match; None if no document can.

    >>> from peersub.filters.xpath.grammar import parse_pattern
    >>> from peersub.filters.xpath.pattern import pattern_text
    >>> both = intersection_pattern(parse_pattern("/a[@x]"), parse_pattern("//b"))
    >>> pattern_text(both)
    '/a[@x]//b'

    Raises:
        NoPatternError: it takes more than one pattern to say so.
    """
    first, second = _from_root(first), _from_root(second)
    if first.is_descendant and second.is_descendant:
        raise NoPatternError("of two patterns that begin with //, either may be found in the other")
    if not first.is_descendant and not second.is_descendant:
        return same_element(first, second)
    root, anywhere = (second, first) if first.is_descendant else (first, second)
    if same_element(root, anywhere) is not None:
        raise NoPatternError("what the one finds anywhere (//) may also be the other's root")
    return replace(root, branches=(*root.branches, anywhere))


def _from_root(pattern: PatternNode) -> PatternNode:
    """The pattern so that it begins at the root, if it can: `//*/b` asks for the same as `/*//b`.

    The canonical form prefers the former.
    """
    if not (pattern.is_descendant and pattern.is_plain_wildcard and len(pattern.branches) == 1):
        return pattern
    return replace(pattern.with_axis(False), branches=(pattern.branches[0].with_axis(True),))


def same_element(first: PatternNode, second: PatternNode) -> PatternNode | None:
    """What one element must be to meet the demands of both nodes; None if none can.

    The axis is the first one's.
    """
    if None not in (first.label, second.label) and first.label != second.label:
        return None
    value = conjunction(first.value, second.value)
    if value is None:
        return None
    attributes = dict(first.attributes)
    for name, condition in second.attributes:
        if name in attributes:
            both = conjunction(attributes[name], condition)
            if both is None:
                return None
            condition = both
        attributes[name] = condition
    return PatternNode(
        first.is_descendant,
        first.label if first.label is not None else second.label,
        tuple(sorted(attributes.items())),
        value,
        fewest_text_conditions([*first.texts, *second.texts]),
        (*first.branches, *second.branches),
    )
