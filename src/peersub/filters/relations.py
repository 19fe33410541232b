"""The relations between unions of boxes: covering, overlap, merging.

Covering is decided by subtraction: what of the specific union is left after taking away the general
one, box by box. It is always sound. Without text tests it is also complete, as long as the pieces
stay within PIECES_MAX; beyond that the answer is "not proven", which is False.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from peersub.filters.boxes import (
    ANY_TRUTH,
    Box,
    box_covers,
    box_intersection,
    box_of,
    box_subtraction,
)
from peersub.filters.limits import MERGE_BOXES_MAX, PIECES_MAX, SUBTRACTIONS_MAX
from peersub.filters.normal_form import Boxes, simplified

__all__ = ["hull", "imperfect_merge", "perfect_merge", "union_covers", "union_overlaps"]


def union_covers(general: Sequence[Box], specific: Sequence[Box]) -> bool:
    """Each event in one of the specific boxes lies in one of the general ones."""
    budget = SUBTRACTIONS_MAX
    for box in specific:
        if any(box_covers(candidate, box) for candidate in general):
            continue
        if len(general) < 2:
            return False
        pieces = [box]
        for candidate in _most_constrained_last(general):
            budget -= len(pieces)
            pieces = [left for piece in pieces for left in box_subtraction(piece, candidate)]
            if not pieces:
                break
            if len(pieces) > PIECES_MAX or budget < 0:
                return False
        else:
            return False
    return True


def _most_constrained_last(boxes: Iterable[Box]) -> list[Box]:
    """Boxes with few constraints take much away and leave few pieces: they go first."""
    return sorted(boxes, key=lambda box: len(box.domains) + len(box.tests))


def union_overlaps(first: Sequence[Box], second: Sequence[Box]) -> bool:
    """Whether an event may lie in both; False only if it is proven that none can."""
    return any(box_intersection(a, b) is not None for a in first for b in second)


def hull(first: Box, second: Box) -> Box:
    """The smallest box that covers both: constraints of either alone are dropped, others united."""
    domains = {
        path: domain.union(second.domains[path])
        for path, domain in first.domains.items()
        if path in second.domains
    }
    tests = {test: truth | second.tests.get(test, ANY_TRUTH) for test, truth in first.tests.items()}
    box = box_of(domains, tests)
    assert box is not None
    return box


def perfect_merge(first: Boxes, second: Boxes) -> Boxes | None:
    """Exactly the union, by fewer boxes than both have together; None if it takes as many."""
    together = (*first, *second)
    merged = list(simplified(together))
    # Fusing sees boxes that differ in one constraint. A hull may also be filled by several boxes.
    index = 0 if len(merged) <= MERGE_BOXES_MAX else len(merged)
    while index < len(merged):
        for other in range(index + 1, len(merged)):
            candidate = hull(merged[index], merged[other])
            if union_covers(merged, (candidate,)):
                rest = [box for place, box in enumerate(merged) if place not in (index, other)]
                merged = list(simplified((*rest, candidate)))
                index = -1
                break
        index += 1
    return tuple(merged) if len(merged) < len(first) + len(second) else None


def imperfect_merge(
    boxes: Boxes, boxes_max: int, false_positives: Callable[[Box], int], allowed: int
) -> Boxes | None:
    """A union with at most `boxes_max` boxes that covers the given one, or None.

    Takes the pair whose hull brings the fewest false positives, again and again. `false_positives`
    counts the sample's events that a box holds and the given union does not; their sum over all
    hulls (an upper bound for the union) stays within `allowed`.
    """
    merged = list(boxes)
    costs = [0] * len(merged)
    while len(merged) > boxes_max:
        best: tuple[int, int, int, Box] | None = None
        # Boxes are sorted by their names: near ones are alike, and far ones need not be tried.
        for i in range(len(merged)):
            for j in range(i + 1, min(i + 1 + MERGE_BOXES_MAX, len(merged))):
                candidate = hull(merged[i], merged[j])
                cost = false_positives(candidate)
                if best is None or cost < best[0]:
                    best = (cost, i, j, candidate)
        assert best is not None
        cost, i, j, candidate = best
        if sum(costs) - costs[i] - costs[j] + cost > allowed:
            return None
        merged = [box for place, box in enumerate(merged) if place not in (i, j)] + [candidate]
        costs = [old for place, old in enumerate(costs) if place not in (i, j)] + [cost]
    return simplified(merged)
