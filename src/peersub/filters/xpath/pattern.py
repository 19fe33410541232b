"""A tree pattern: what an XPath expression of the supported fragment asks of a document.

A `PatternNode` stands for an element: how it hangs below its parent (child or descendant), its
label (None is `*`), conditions on its attributes, its text nodes and its string value, and the
branches that must be found below it. A pattern is the node that hangs below the document
itself. A document matches iff its elements can be assigned to the nodes such that all of this
holds: an *embedding*.

An attribute and the string value are one text each, so their comparisons join into one
condition. An element has many text nodes, and `text() = 'a'` asks for one of them: each such
condition stands alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from peersub.filters.xpath.conditions import (
    ANY_TEXT,
    Condition,
    comparisons_of,
    condition_of,
    exact_union,
)

__all__ = [
    "PatternNode",
    "fewest_text_conditions",
    "labels_of",
    "nodes_of",
    "parts_of",
    "pattern_text",
    "text_node_condition",
]


@dataclass(frozen=True, slots=True)
class PatternNode:
    """One element that a pattern asks for, with all that hangs below it.

    Attributes:
        is_descendant: whether it may lie anywhere below its parent (`//`), not right below (`/`).
        label: the element's local name; None for any.
        attributes: conditions by attribute, sorted by name.
        value: the condition on the concatenation of all text below the element.
        texts: conditions that some text node of the element satisfies each.
        branches: what must be found below.
    """

    is_descendant: bool
    label: str | None
    attributes: tuple[tuple[str, Condition], ...] = ()
    value: Condition = ANY_TEXT
    texts: tuple[Condition, ...] = ()
    branches: tuple[PatternNode, ...] = ()

    @property
    def has_conditions(self) -> bool:
        """Whether something is asked of the element's attributes or texts."""
        return bool(self.attributes or self.texts) or self.value != ANY_TEXT

    @property
    def is_plain_wildcard(self) -> bool:
        """Whether nothing is asked of the element itself."""
        return self.label is None and not self.has_conditions

    def conditions_cover(self, other: PatternNode) -> bool:
        """Each element that meets the other node's conditions meets this one's."""
        if self.attributes:
            held = dict(other.attributes)
            for name, condition in self.attributes:
                if name not in held or not condition.covers(held[name]):
                    return False
        return self.value.covers(other.value) and all(
            any(condition.covers(text) for text in other.texts) for condition in self.texts
        )

    def with_axis(self, is_descendant: bool) -> PatternNode:
        """The same node, hung below its parent in the given way."""
        if is_descendant == self.is_descendant:
            return self
        return replace(self, is_descendant=is_descendant)


def text_node_condition(condition: Condition) -> Condition | None:
    """The condition as one on text nodes, which are never empty; None if none can satisfy it."""
    if condition.exactly == "":
        return None
    if "" not in condition.excluded:
        return condition
    # Excluding what cannot occur says nothing: allow it, so that equal demands are equal values.
    return exact_union(condition, condition_of("=", ""))


def fewest_text_conditions(conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    """The conditions that none of the others implies, in the order of their text."""
    kept: list[Condition] = []
    for condition in conditions:
        if any(condition.covers(other) for other in kept):
            continue
        kept = [other for other in kept if not other.covers(condition)]
        kept.append(condition)
    return tuple(sorted(kept, key=comparisons_of))


def nodes_of(pattern: PatternNode) -> Iterator[PatternNode]:
    """The pattern's nodes, each before those below it."""
    yield pattern
    for branch in pattern.branches:
        yield from nodes_of(branch)


def labels_of(pattern: PatternNode) -> frozenset[str]:
    """The labels that a document must have to match."""
    return frozenset(node.label for node in nodes_of(pattern) if node.label is not None)


def parts_of(pattern: PatternNode) -> int:
    """Steps and comparisons: the size that is bounded."""
    return sum(
        1
        + sum(max(1, len(comparisons_of(condition))) for _, condition in node.attributes)
        + sum(max(1, len(comparisons_of(condition))) for condition in node.texts)
        + len(comparisons_of(node.value))
        for node in nodes_of(pattern)
    )


def pattern_text(pattern: PatternNode) -> str:
    """The XPath expression of a pattern; parsing it gives the pattern again."""
    return _axis(pattern) + _written(pattern)[1]


def _axis(node: PatternNode) -> str:
    return "//" if node.is_descendant else "/"


def _written(node: PatternNode) -> tuple[int, str]:
    """The height of the node with what hangs below it, and its text.

    One of the highest branches goes on, others in brackets.
    """
    below = [(branch, *_written(branch)) for branch in node.branches]
    ahead = [each for each in below if not _is_compared_leaf(each[0])]
    trunk = max(reversed(ahead), key=lambda each: each[1], default=None)
    side = (_branch_text(each[0], each[2]) for each in below if each is not trunk)
    path = _step_text(node) + "".join(f"[{text}]" for text in side)
    height = 1 + max((each[1] for each in below), default=0)
    return height, path if trunk is None else path + _axis(trunk[0]) + trunk[2]


def _is_compared_leaf(branch: PatternNode) -> bool:
    """Whether it is best written as `[price > 10]`."""
    return not branch.branches and len(comparisons_of(branch.value)) == 1


def _branch_text(branch: PatternNode, path: str) -> str:
    axis = ".//" if branch.is_descendant else ""
    if _is_compared_leaf(branch):
        (comparison,) = comparisons_of(branch.value)
        return f"{axis}{_step_text(replace(branch, value=ANY_TEXT))} {comparison}"
    return axis + path


def _step_text(node: PatternNode) -> str:
    tests: list[str] = []
    for name, condition in node.attributes:
        tests += _tests_text(f"@{name}", condition)
    if node.value != ANY_TEXT:
        tests += _tests_text(".", node.value)
    texts: list[str] = []
    for condition in node.texts:
        written = comparisons_of(condition)
        if len(written) > 1:
            # One text node must satisfy them all; the bracket after text() says so.
            texts.append(f"text()[{' and '.join(f'. {comparison}' for comparison in written)}]")
        else:
            texts += _tests_text("text()", condition)
    return "".join([node.label or "*", *(f"[{test}]" for test in tests + texts)])


def _tests_text(subject: str, condition: Condition) -> list[str]:
    written = comparisons_of(condition)
    return [f"{subject} {comparison}" for comparison in written] or [subject]
