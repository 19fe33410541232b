"""The relations between unions of boxes: covering, overlap, merging.

Covering is decided by subtraction: what of the specific union is left after taking away the general
one, box by box. It is always sound. Without text tests it is also complete, as long as the pieces
stay within PIECES_MAX and the steps within an `Allowance`; beyond that the answer is "not proven",
which is False.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from peersub.events.kinds import KindClass
from peersub.filters.boxes import (
    ANY_TRUTH,
    Box,
    Path,
    box_covers,
    box_intersection,
    box_of,
    box_subtraction,
)
from peersub.filters.limits import COVERING_STEPS_MAX, MERGE_BOXES_MAX, PIECES_MAX
from peersub.filters.normal_form import Boxes, simplified

__all__ = [
    "Allowance",
    "Proof",
    "hull",
    "imperfect_merge",
    "is_proven",
    "perfect_merge",
    "union_covers",
    "union_overlaps",
]


MISSED_PER_STEP: Final = 4
"""Boxes that are asked about one event in the time of a step."""
UNION_STEPS: Final = 8
"""Steps of an allowance for many questions that one step with a union of boxes takes."""


Proof: TypeAlias = Generator[int, None, bool]
"""A question of covering that may be answered bit by bit, and whether it is proven at the end.

Before each bit it tells about how many steps follow, in those of an allowance for many questions.
"""


def is_proven(proof: Proof) -> bool:
    """The answer, without a stop."""
    try:
        while True:
            next(proof)
    except StopIteration as end:
        answer: bool = end.value
        return answer


class Allowance:
    """Steps that questions of covering may still take; several questions may share one."""

    __slots__ = ("left",)

    def __init__(self, steps: int = COVERING_STEPS_MAX) -> None:
        self.left = steps

    def proof(self, general: Sequence[Box], specific: Sequence[Box]) -> Proof:
        """That one union covers the other, with what is left, and within a question.

        Among many questions most are about single boxes: a step with unions counts as several.
        """
        question = Allowance(min(COVERING_STEPS_MAX, self.left // UNION_STEPS))
        before = question.left
        covers = yield from _proof(general, specific, question)
        self.left -= UNION_STEPS * (before - question.left)
        return covers


def union_covers(
    general: Sequence[Box], specific: Sequence[Box], allowance: Allowance | None = None
) -> bool:
    """Each event in one of the specific boxes lies in one of the general ones."""
    return is_proven(_proof(general, specific, allowance or Allowance()))


def _proof(general: Sequence[Box], specific: Sequence[Box], allowance: Allowance) -> Proof:
    if specific and len(general) > 1:
        # Most unions do not cover each other, and nearly always the first box tells.
        steps = 1 + len(general) // MISSED_PER_STEP
        allowance.left -= steps
        yield UNION_STEPS * steps
        if _is_missed(specific[0], general):
            return False
    tests = Counter(test.path for candidate in general for test in candidate.tests)
    for box in specific:
        steps = len(general) + _trials(tests, box)
        allowance.left -= steps
        if allowance.left < 0:
            return False
        yield UNION_STEPS * steps
        if any(box_covers(candidate, box) for candidate in general):
            continue
        if len(general) < 2 or _is_missed(box, general):
            return False
        if not (yield from _used_up(box, general, allowance)):
            return False
    return True


def _is_missed(box: Box, general: Iterable[Box]) -> bool:
    """Whether an event of the box, without what it need not have, lies in none of the general ones.

    One event refutes what a subtraction would take thousands of steps to.
    """
    if box.tests:
        return False
    places = {path: domain.first_place for path, domain in box.domains.items() if not domain.absent}
    return not any(
        all(domain.holds(places.get(path)) for path, domain in candidate.domains.items())
        for candidate in general
    )


def _trials(tests: Mapping[Path, int], box: Box) -> int:
    """Steps that it takes to try tests, so many of each attribute, on the strings of a box."""
    return sum(
        count * (1 + len(box.domain(path).sets[KindClass.STRING])) for path, count in tests.items()
    )


def _used_up(box: Box, general: Sequence[Box], allowance: Allowance) -> Proof:
    """That nothing is left of a box after taking away the general ones."""
    pieces = [box]
    for candidate in _most_constrained_last(general):
        trials = _trials(Counter(test.path for test in candidate.tests), box)
        # A piece is written anew for each constraint, and compares its text tests with each other.
        widths = sum(8 + len(piece.domains) + len(piece.tests) ** 2 for piece in pieces)
        steps = widths * (1 + len(candidate.domains) + trials) // 8
        allowance.left -= steps
        if allowance.left < 0:
            return False
        left: list[Box] = []
        for piece in pieces:
            yield UNION_STEPS * steps // len(pieces)
            left += box_subtraction(piece, candidate)
        pieces = left
        if not pieces:
            return True
        if len(pieces) > PIECES_MAX:
            return False
    return False


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
