"""The normal form: a filter as a union of boxes, simplified until nothing changes.

`boxes_of` multiplies out conjunctions of disjunctions, with a bound on all boxes that are made on
the way. `simplified` then fuses boxes that differ in one constraint only (their union is again a
box: Mühl's perfect merging) and drops those that another one covers. It is a fixpoint: simplifying
a simplified union changes nothing, and the result does not depend on the order of the boxes.

Fusing is the costly part, and strangers choose the input. A first pass fuses whole groups, each in
one step. What then still fuses is found through a table of what is left of each box without each of
its constraints: every box is looked up once per constraint, however long a chain of fusions gets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from peersub.filters.boxes import (
    UNIVERSE,
    Box,
    Path,
    box_covers,
    box_intersection,
    box_of,
    intersection_of_boxes,
)
from peersub.filters.domains import union_of
from peersub.filters.limits import (
    ABSORPTION_MAX,
    CONJUNCTS_MAX,
    CONSTRAINTS_MAX,
    PRODUCTS_MAX,
)
from peersub.filters.patterns import TextTest
from peersub.filters.sql_grammar import Conjunction, Disjunction, Leaf, Tree

__all__ = [
    "Boxes",
    "TooManyConjunctsError",
    "boxes_of",
    "simplified",
    "sort_key",
    "union_intersection",
]

Boxes = tuple[Box, ...]
Constraint = Path | TextTest


class TooManyConjunctsError(ValueError):
    """Multiplying out would need more boxes, or more constraints in them, than allowed."""


def boxes_of(tree: Tree) -> Boxes:
    """The normal form of a tree.

    Raises:
        TooManyConjunctsError: it has more than CONJUNCTS_MAX boxes.
    """
    return _bounded(_Multiplication().boxes(tree))


def union_intersection(first: Boxes, second: Boxes) -> Boxes:
    """The normal form of what lies in a box of the first and in one of the second.

    Raises:
        TooManyConjunctsError: it has more than CONJUNCTS_MAX boxes, or takes too many to find.
    """
    return _bounded(_Multiplication().pairs(list(first), list(second)))


def _bounded(boxes: list[Box]) -> Boxes:
    if len(boxes) > CONJUNCTS_MAX:
        boxes = _fused(boxes)
        if len(boxes) > CONJUNCTS_MAX:
            raise TooManyConjunctsError(len(boxes))
    if _constraints_of(boxes) > CONSTRAINTS_MAX:
        raise TooManyConjunctsError(len(boxes))
    return simplified(boxes)


class _Multiplication:
    """Multiplies out a tree; `made` counts the boxes of all products, `wide` their constraints."""

    __slots__ = ("made", "wide")

    def __init__(self) -> None:
        self.made = 0
        self.wide = 0

    def boxes(self, tree: Tree) -> list[Box]:
        if isinstance(tree, Leaf):
            return [] if tree.box is None else [tree.box]
        if isinstance(tree, Conjunction):
            return self.product(tree)
        return [box for part in _flat(tree) for box in self.boxes(part)]

    def product(self, tree: Conjunction) -> list[Box]:
        single: list[Box] = []
        unions: list[list[Box]] = []
        for part in _flat(tree):
            boxes = self.boxes(part)
            if not boxes:
                return []
            if len(boxes) > 1:
                boxes = _fused(boxes)
            if len(boxes) == 1:
                single.append(boxes[0])
            else:
                unions.append(boxes)
        common = intersection_of_boxes(single) if single else UNIVERSE
        result = [] if common is None else [common]
        # Narrow unions first: what they exclude need not be multiplied with the wide ones.
        for boxes in sorted(unions, key=len):
            result = self.pairs(result, boxes)
        return result

    def pairs(self, first: list[Box], second: list[Box]) -> list[Box]:
        """What lies in one of the first and in one of the second."""
        # Text tests count as well: each is compared with each in the boxes that are made.
        self.made += len(first) * (len(second) + _tests(second)) + len(second) * _tests(first)
        self.wide += len(first) * _constraints_of(second) + len(second) * _constraints_of(first)
        if self.made > PRODUCTS_MAX or self.wide > 2 * CONSTRAINTS_MAX:
            raise TooManyConjunctsError(self.made)
        pairs = (box_intersection(left, right) for left in first for right in second)
        return _fused([box for box in pairs if box is not None])


def _tests(boxes: list[Box]) -> int:
    return sum(len(box.tests) for box in boxes)


def _constraints_of(boxes: list[Box]) -> int:
    return sum(len(box.domains) for box in boxes) + _tests(boxes)


def _flat(tree: Conjunction | Disjunction) -> Iterator[Tree]:
    """The parts, with those of parts of the same kind in their place."""
    kind = type(tree)
    for part in tree.parts:
        if type(part) is kind:
            yield from _flat(part)
        else:
            yield part


def sort_key(box: Box) -> tuple[Any, ...]:
    """A total order of boxes that compares no values of different classes."""
    domains, tests = box.key
    return (
        [path for path, _ in domains],
        tests,
        # Cuts of one class compare with each other; sets with fewer cuts come first.
        [(absent, other, list(map(len, sets)), sets) for _, (absent, other, sets) in domains],
    )


def simplified(boxes: Iterable[Box]) -> Boxes:
    """The same set of events by fewer boxes, sorted."""
    current = list(boxes)
    if len(current) < 2:
        return tuple(current)
    current = _Fusion(_fused(sorted(set(current), key=sort_key))).boxes()
    if len(current) <= ABSORPTION_MAX:
        current = _absorbed(current)
    return tuple(sorted(current, key=sort_key))


def _absorbed(boxes: list[Box]) -> list[Box]:
    """Without the boxes that another one covers."""
    # A box can only cover another if it constrains nothing that the other leaves free, except that
    # a text test may be implied by a domain: compare the paths of domains alone.
    paths = [box.domains.keys() for box in boxes]
    kept: list[int] = []
    order = sorted(range(len(boxes)), key=lambda index: len(paths[index]))
    for index in order:
        if not any(
            paths[other] <= paths[index] and box_covers(boxes[other], boxes[index])
            for other in kept
        ):
            kept = [
                other
                for other in kept
                if not (paths[index] <= paths[other] and box_covers(boxes[index], boxes[other]))
            ]
            kept.append(index)
    return [boxes[index] for index in sorted(kept)]


def _constraints(box: Box) -> Iterator[tuple[Constraint, Any]]:
    yield from box.domains.items()
    yield from box.tests.items()


def _united(boxes: list[Box], name: Constraint) -> Box:
    """The union of boxes that are equal but for one constraint."""
    first = boxes[0]
    if isinstance(name, TextTest):
        truth = 0
        for box in boxes:
            truth |= box.tests[name]
        united = box_of(first.domains, {**first.tests, name: truth})
    else:
        domain = union_of([box.domains[name] for box in boxes])
        united = box_of({**first.domains, name: domain}, first.tests)
    assert united is not None
    return united


class _Numbering:
    """A bit for each constraint: a box is then a mask, and masks compare faster than domains."""

    __slots__ = ("_bits",)

    def __init__(self) -> None:
        self._bits: dict[tuple[Constraint, Any], int] = {}

    def of(self, box: Box) -> dict[Constraint, int]:
        """The bit of each constraint of the box."""
        bits = self._bits
        return {item[0]: 1 << bits.setdefault(item, len(bits)) for item in _constraints(box)}


def _fused(boxes: list[Box]) -> list[Box]:
    """Fuse boxes that are equal but for one constraint, in one pass over the constraints."""
    if len(boxes) < 2:
        return boxes
    numbering = _Numbering()
    current: dict[int, tuple[Box, dict[Constraint, int], int]] = {}
    holders: dict[Constraint, list[int]] = {}
    for place, box in enumerate(boxes):
        bits = numbering.of(box)
        current[place] = (box, bits, sum(bits.values()))
        for name in bits:
            holders.setdefault(name, []).append(place)
    shared = [name for name, places in holders.items() if len(places) > 1]
    for name in sorted(shared, key=_order):
        groups: dict[int, list[int]] = {}
        for place in holders[name]:
            held = current.get(place)
            if held is not None and name in held[1]:
                groups.setdefault(held[2] - held[1][name], []).append(place)
        for group in groups.values():
            if len(group) > 1:
                united = _united([current.pop(place)[0] for place in group], name)
                bits = numbering.of(united)
                current[group[0]] = (united, bits, sum(bits.values()))
    return [box for box, _, _ in current.values()]


def _order(name: Constraint) -> tuple[Any, ...]:
    """Domains by their paths, then tests: no order of boxes shows in what is fused."""
    if isinstance(name, TextTest):
        return (1, name.path, name.operator, name.pattern)
    return (0, name)


class _Fusion:
    """Fuses until no two boxes are equal but for one constraint.

    Each box that stays is entered under (the constraint left out, the rest of its constraints). A
    box that comes finds its partner there; the two leave, and their union comes in their place.
    """

    def __init__(self, boxes: list[Box]) -> None:
        self.numbering = _Numbering()
        self.entered = 0
        self.coming = boxes[::-1]
        self.partner: dict[tuple[Constraint, int], int] = {}
        self.staying: dict[int, tuple[Box, list[tuple[Constraint, int]]]] = {}

    def boxes(self) -> list[Box]:
        while self.coming:
            box = self.coming.pop()
            keys = self._keys(box)
            found = next((key for key in keys if key in self.partner), None)
            if found is not None:
                other = self._leave(self.partner[found])
                self.coming.append(_united([other, box], found[0]))
            elif not keys:
                return [UNIVERSE]
            else:
                self.entered += 1
                self.staying[self.entered] = (box, keys)
                self.partner.update(dict.fromkeys(keys, self.entered))
        return [box for box, _ in self.staying.values()]

    def _keys(self, box: Box) -> list[tuple[Constraint, int]]:
        bits = self.numbering.of(box)
        mask = sum(bits.values())
        return [(name, mask - bit) for name, bit in bits.items()]

    def _leave(self, place: int) -> Box:
        box, keys = self.staying.pop(place)
        for key in keys:
            del self.partner[key]
        return box
