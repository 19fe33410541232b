"""Which of several containers is the better parent: the rules of the paper, and ours.

The paper's f_c(I, I') is the depth of the candidate parent I if it contains I', plus infinity if
both are equivalent. So equivalent ones come first, then the deepest ("depth"), then who has fewer
children; "selectivity" asks first who matches fewest events of the sample. Digests decide the rest.
That a parent has fewer children is a reason to join it, but none to move to it: two members
would change places for ever.
"""

from __future__ import annotations

from collections.abc import Iterable

from peersub.overlays.containment.messages import Candidate
from peersub.overlays.containment.settings import ContainmentSettings

__all__ = ["best_of", "is_better"]


def best_of(
    candidates: Iterable[Candidate | None], settings: ContainmentSettings
) -> Candidate | None:
    """The first in the order of the rule; of equivalent ones the one with the smallest address."""
    found = [each for each in candidates if each is not None]
    return min(found, key=lambda each: _order(each, settings), default=None)


def is_better(one: Candidate, other: Candidate, settings: ContainmentSettings) -> bool:
    """Whether a member that stands below `other` should move to `one`, which is not equivalent."""
    quality, present = _quality(one, settings), _quality(other, settings)
    if settings.ties == "digest":
        return (*quality, one.digest) < (*present, other.digest)
    return quality < present


def _order(candidate: Candidate, settings: ContainmentSettings) -> tuple[object, ...]:
    if candidate.is_equal:
        return (0, candidate.peer)
    children = candidate.children if settings.ties == "children" else 0
    return (1, *_quality(candidate, settings), children, candidate.digest, candidate.peer)


def _quality(candidate: Candidate, settings: ContainmentSettings) -> tuple[int, ...]:
    if settings.rule == "selectivity":
        return (candidate.matches, -candidate.depth)
    return (-candidate.depth,)
