"""Whether a pattern embeds into a document: set at a time, from the leaves of the pattern up.

For each step of the pattern the set of elements at which it embeds with all that hangs below it is
computed from the sets of its branches: a child's parents, a descendant's ancestors. This takes time
O(steps x elements), mostly far less, since the sets start from the elements with the right label.

Steps are shared between equal parts of many patterns when they are compiled with one table, and
a memo per document then computes each set once.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from peersub.filters.xpath.conditions import ANY_TEXT, Condition
from peersub.filters.xpath.documents import Document
from peersub.filters.xpath.pattern import PatternNode

__all__ = ["Memo", "Step", "compiled", "embeds", "places_of"]

_NOWHERE: frozenset[int] = frozenset()


class Step:
    """A pattern node without its axis, made for matching. Equal ones of a table are identical."""

    __slots__ = ("attributes", "branches", "has_conditions", "label", "texts", "value")

    def __init__(self, node: PatternNode, branches: tuple[tuple[bool, Step], ...]) -> None:
        self.label = node.label
        self.attributes = node.attributes
        self.value: Condition | None = None if node.value == ANY_TEXT else node.value
        self.texts = node.texts
        self.has_conditions = node.has_conditions
        self.branches = branches

    def accepts(self, document: Document, place: int) -> bool:
        """Whether an element meets the step's own conditions."""
        held = document.attributes[place]
        for name, condition in self.attributes:
            text = held.get(name)
            if text is None or not condition.contains(text):
                return False
        if self.value is not None and not self.value.contains(document.value_of(place)):
            return False
        if self.texts:
            own = document.texts_of(place)
            return all(any(map(condition.contains, own)) for condition in self.texts)
        return True


Memo = dict[Step, AbstractSet[int]]
"""Where each step embeds, in one document."""


def compiled(node: PatternNode, shared: dict[object, Step]) -> Step:
    """The step of a pattern node; equal nodes compiled with one table give the identical step."""
    branches = tuple((branch.is_descendant, compiled(branch, shared)) for branch in node.branches)
    key = (node.label, node.attributes, node.value, node.texts, branches)
    step = shared.get(key)
    if step is None:
        step = shared[key] = Step(node, branches)
    return step


def embeds(is_descendant: bool, top: Step, document: Document, memo: Memo) -> bool:
    """Whether the document matches the pattern whose top step this is."""
    found = places_of(top, document, memo)
    return bool(found) if is_descendant else 0 in found


def places_of(step: Step, document: Document, memo: Memo) -> AbstractSet[int]:
    """The elements at which the step embeds with all its branches."""
    found = memo.get(step)
    if found is None:
        found = memo[step] = _places(step, document, memo)
    return found


def _places(step: Step, document: Document, memo: Memo) -> AbstractSet[int]:
    found: AbstractSet[int] = document.everywhere
    if step.label is not None:
        found = document.places.get(step.label, _NOWHERE)
        if not found:
            return found
    for is_descendant, branch in step.branches:
        below = places_of(branch, document, memo)
        if not below:
            return _NOWHERE
        found = found & _above(below, is_descendant, document)
        if not found:
            return found
    if step.has_conditions:
        return {place for place in found if step.accepts(document, place)}
    return found


def _above(places: AbstractSet[int], is_descendant: bool, document: Document) -> AbstractSet[int]:
    """The parents or all ancestors of some elements; may hold -1, the document itself."""
    if places is document.everywhere:
        return document.inner
    parents = document.parents
    if not is_descendant:
        return {parents[place] for place in places}
    above: set[int] = set()
    for place in places:
        place = parents[place]
        while place >= 0 and place not in above:
            above.add(place)
            place = parents[place]
    return above
