"""Containment of patterns by canonical models: complete on structure, exponential in the `//`
edges.

A pattern is contained in another iff the other matches each of its *canonical models*: the
documents made from it by giving each `*` a label that occurs nowhere, and stretching each `//`
by up to w + 1 such elements, where w is the longest chain of `*` nodes linked by `/` in the
containing pattern (Miklau and Suciu, J. ACM 2004). With d edges `//` there are (w +
2) ** d of them.

Conditions are tests of leaves: an element of a model meets what its node demands and nothing
else. This is sound; it is not complete where a comparison and its opposite would have to be
told apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from peersub.filters.xpath.containment import General, Specific, maps_into
from peersub.filters.xpath.pattern import PatternNode, nodes_of

__all__ = ["canonical_models", "covers_by_models", "models_count"]

_FRESH = "\0"  # no element can have this name
_STRETCH = PatternNode(False, _FRESH)


def _stretches(general: PatternNode, specific: PatternNode) -> tuple[int, int]:
    """How many lengths each `//` edge takes, and how many such edges there are."""
    return _longest_wildcard_chain(general) + 2, sum(n.is_descendant for n in nodes_of(specific))


def models_count(general: PatternNode, specific: PatternNode) -> int:
    """How many models the complete procedure looks at, at most."""
    lengths, edges = _stretches(general, specific)
    return int(lengths**edges)


def _longest_wildcard_chain(pattern: PatternNode) -> int:
    longest = 0

    def chain_below(node: PatternNode) -> int:
        """The chain of wildcards that starts at the node."""
        nonlocal longest
        below = [(branch, chain_below(branch)) for branch in node.branches]
        if node.label is not None:
            return 0
        chain = 1 + max((c for branch, c in below if not branch.is_descendant), default=0)
        longest = max(longest, chain)
        return chain

    chain_below(pattern)
    return longest


def canonical_models(pattern: PatternNode, stretch_max: int) -> Iterator[PatternNode]:
    """The models with each `//` stretched by 0 to `stretch_max` elements, as patterns without //
    and *.
    """
    edges = sum(node.is_descendant for node in nodes_of(pattern))
    for lengths in product(range(stretch_max + 1), repeat=edges):
        yield _model(pattern, iter(lengths))


def _model(node: PatternNode, lengths: Iterator[int]) -> PatternNode:
    stretch = next(lengths) if node.is_descendant else 0
    model = replace(
        node,
        is_descendant=False,
        label=_FRESH if node.label is None else node.label,
        branches=tuple(_model(branch, lengths) for branch in node.branches),
    )
    for _ in range(stretch):
        model = replace(_STRETCH, branches=(model,))
    return model


def covers_by_models(general: PatternNode, specific: PatternNode) -> bool:
    """Each document that matches the specific pattern matches the general one: decided."""
    lengths, _ = _stretches(general, specific)
    container = General(general, with_distances=False)
    return all(
        maps_into(container, Specific(model)) for model in canonical_models(specific, lengths - 1)
    )
