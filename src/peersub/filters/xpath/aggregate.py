"""One pattern for two: their union where a pattern can say it, else common generalisations.

*Union.* An embedding exists with one condition or with the other iff it exists with either: two
patterns that differ in one condition of one node join by joining that condition.

*Upper bounds* (after Chan, Fan, Felber, Garofalakis and Rastogi, VLDB 2002). Two nodes
generalise to one with their common label or `*`, the upper bounds of the conditions that both
have, and the generalisations of pairs of their branches: by a child edge if both are children,
else by a descendant edge. A branch also pairs with equal labels deeper in the other pattern,
which gives `/a//c` for `/a/b/c` and `/a/c`. Leaving out a branch is always sound, so sizes are
bounded by leaving out.
"""

from __future__ import annotations

from peersub.filters.xpath.conditions import ANY_TEXT, Condition, exact_union, upper_bound
from peersub.filters.xpath.limits import PATTERN_PARTS_MAX
from peersub.filters.xpath.minimise import minimise
from peersub.filters.xpath.pattern import (
    PatternNode,
    fewest_text_conditions,
    nodes_of,
    parts_of,
    pattern_text,
    text_node_condition,
)

__all__ = ["union_pattern", "upper_bounds"]

_BRANCHES_MAX = 8
"""Branches of a generalised node; the ones that say most are kept."""
_PAIRS_MAX = 128
"""Pairs of nodes that are looked at; beyond it, pairs generalise to nothing."""


def union_pattern(first: PatternNode, second: PatternNode) -> PatternNode | None:
    """A pattern that matches exactly what one of the two matches, if one condition makes them
    differ.

    >>> from peersub.filters.xpath.grammar import parse_pattern
    >>> pattern_text(union_pattern(parse_pattern("/a[@b > 5]"), parse_pattern("/a[@b = 5]")))
    '/a[@b >= 5]'
    """
    if first == second:
        return first
    if first.is_descendant != second.is_descendant or first.label != second.label:
        return None
    same = [
        first.attributes == second.attributes,
        first.value == second.value,
        first.texts == second.texts,
        set(first.branches) == set(second.branches),
    ]
    if sum(same) != len(same) - 1:
        return None
    attributes, value, texts, branches = first.attributes, first.value, first.texts, first.branches
    if not same[0]:
        joined = _union_of_attributes(dict(first.attributes), dict(second.attributes))
        if joined is None:
            return None
        attributes = joined
    elif not same[1]:
        either = exact_union(first.value, second.value)
        if either is None:
            return None
        value = either
    elif not same[2]:
        either = _union_of_texts(set(first.texts), set(second.texts))
        if either is None:
            return None
        texts = fewest_text_conditions([*(set(texts) & set(second.texts)), either])
    else:
        branch = _union_of_branches(set(first.branches), set(second.branches))
        if branch is None:
            return None
        branches = (*(b for b in branches if b in second.branches), branch)
    return PatternNode(first.is_descendant, first.label, attributes, value, texts, branches)


def _union_of_attributes(
    first: dict[str, Condition], second: dict[str, Condition]
) -> tuple[tuple[str, Condition], ...] | None:
    if first.keys() != second.keys():
        return None
    different = [name for name in first if first[name] != second[name]]
    if len(different) != 1:
        return None
    (name,) = different
    either = exact_union(first[name], second[name])
    return None if either is None else tuple(sorted((first | {name: either}).items()))


def _union_of_texts(first: set[Condition], second: set[Condition]) -> Condition | None:
    alone, other = first - second, second - first
    if len(alone) != 1 or len(other) != 1:
        return None
    either = exact_union(alone.pop(), other.pop())
    return None if either is None else text_node_condition(either)


def _union_of_branches(first: set[PatternNode], second: set[PatternNode]) -> PatternNode | None:
    alone, other = first - second, second - first
    if len(alone) != 1 or len(other) != 1:
        return None
    return union_pattern(alone.pop(), other.pop())


def upper_bounds(first: PatternNode, second: PatternNode) -> list[PatternNode]:
    """Patterns that each cover both, minimised, those that say most first; never empty.

    >>> from peersub.filters.xpath.grammar import parse_pattern
    >>> pattern_text(upper_bounds(parse_pattern("/a/b/c"), parse_pattern("/a/c"))[0])
    '/a//c'
    """
    found = _Generaliser().branches((first,), (second,))
    fitting = [bound for bound in found if parts_of(bound) <= PATTERN_PARTS_MAX]
    return fitting or [PatternNode(False, None)]


def _weight(node: PatternNode) -> tuple[int, str]:
    """How much a pattern says: what is heaviest goes first. Its text makes the order total."""
    weight = sum(
        (3 if n.label is not None else 1)
        + 2 * (len(n.attributes) + len(n.texts) + (n.value != ANY_TEXT))
        - n.is_descendant
        for n in nodes_of(node)
    )
    return -weight, pattern_text(node)


class _Generaliser:
    """Generalises pairs of nodes, each pair once, and no more pairs than the bound."""

    def __init__(self) -> None:
        self.known: dict[tuple[PatternNode, PatternNode], PatternNode] = {}

    def branches(
        self, first: tuple[PatternNode, ...], second: tuple[PatternNode, ...]
    ) -> list[PatternNode]:
        """What two lists of branches have in common, minimised, the heaviest first."""
        found: list[PatternNode] = []
        for a in first:
            for b in second:
                is_descendant = a.is_descendant or b.is_descendant
                found.append(self.node(a, b).with_axis(is_descendant))
                found += (self.node(a, n).with_axis(True) for n in _deeper(b, a.label))
                found += (self.node(n, b).with_axis(True) for n in _deeper(a, b.label))
        return sorted(dict.fromkeys(map(minimise, found)), key=_weight)[:_BRANCHES_MAX]

    def node(self, first: PatternNode, second: PatternNode) -> PatternNode:
        """What two nodes have in common; the axis is the first's and has to be set."""
        known = self.known.get((first, second))
        if known is not None:
            return known
        if len(self.known) >= _PAIRS_MAX:
            return PatternNode(True, None)
        # A place holder: no pair comes up below itself, but the count of pairs must see it.
        self.known[first, second] = PatternNode(True, None)
        held = dict(second.attributes)
        texts = (text_node_condition(upper_bound(a, b)) for a in first.texts for b in second.texts)
        common = PatternNode(
            first.is_descendant,
            first.label if first.label == second.label else None,
            tuple((n, upper_bound(c, held[n])) for n, c in first.attributes if n in held),
            upper_bound(first.value, second.value),
            fewest_text_conditions(text for text in texts if text is not None),
            self._bounded(self.branches(first.branches, second.branches)),
        )
        self.known[first, second] = common
        return common

    @staticmethod
    def _bounded(branches: list[PatternNode]) -> tuple[PatternNode, ...]:
        kept: list[PatternNode] = []
        room = PATTERN_PARTS_MAX // 2
        for branch in branches:
            room -= parts_of(branch)
            if room >= 0:
                kept.append(branch)
        return tuple(kept)


def _deeper(node: PatternNode, label: str | None) -> list[PatternNode]:
    """The nodes below a node with the given label."""
    if label is None:
        return []
    return [n for branch in node.branches for n in nodes_of(branch) if n.label == label]
