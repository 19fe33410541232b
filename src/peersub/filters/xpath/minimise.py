"""The canonical form of a pattern: equal forms for patterns that are seen to ask the same.

Three rewritings, from the leaves up: `//` in a chain of `*` without conditions moves to its
start, for only the number of steps counts, and vanishes where the chain ends in a `*` leaf; a
branch that another branch implies is dropped; branches are sorted by their text. Each keeps the
meaning, and doing it twice changes nothing.
"""

from __future__ import annotations

from dataclasses import replace

from peersub.filters.xpath.containment import General, Specific, maps_into
from peersub.filters.xpath.pattern import PatternNode, pattern_text

__all__ = ["minimise"]


def minimise(pattern: PatternNode) -> PatternNode:
    """A pattern that matches the same documents: sorted, and without parts that say nothing.

    >>> from peersub.filters.xpath.grammar import parse_pattern
    >>> pattern_text(minimise(parse_pattern("/a[.//c][b][b/c]/*//d")))
    '/a[.//*/d]/b/c'
    """
    branches = tuple(map(minimise, pattern.branches))
    if len(branches) > 1:
        branches = _without_implied(branches)
    if branches != pattern.branches:
        pattern = replace(pattern, branches=branches)
    return _chain_normalised(pattern)


def _without_implied(branches: tuple[PatternNode, ...]) -> tuple[PatternNode, ...]:
    """The branches that no other implies, sorted; of some that imply each other, the first."""
    ordered = [branch for _, branch in sorted({pattern_text(b): b for b in branches}.items())]
    views = [(General(b, with_distances=True), Specific(b)) for b in ordered]
    kept = list(range(len(ordered)))
    for place in reversed(range(len(ordered))):
        if any(maps_into(views[place][0], views[other][1]) for other in kept if other != place):
            kept.remove(place)
    return tuple(ordered[place] for place in kept)


def _chain_normalised(node: PatternNode) -> PatternNode:
    """The node with the `//` of a wildcard chain that starts here at its start; those below are."""
    if not node.is_plain_wildcard or len(node.branches) > 1:
        return node
    if _ends_in_wildcard(node):
        return node.with_axis(False)
    (branch,) = node.branches
    if not branch.is_descendant:
        return node
    return replace(node, is_descendant=True, branches=(branch.with_axis(False),))


def _ends_in_wildcard(node: PatternNode) -> bool:
    while node.is_plain_wildcard and len(node.branches) == 1:
        (node,) = node.branches
    return node.is_plain_wildcard and not node.branches
