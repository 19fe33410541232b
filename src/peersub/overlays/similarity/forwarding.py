"""Who passes an event on to whom: the routing rule, without state.

A member that gets a copy with indulgence γ passes it on if it matches, with γ, or if γ > 0, with
γ - 1 (Algorithm 1 and §4.2 of the paper). It passes it on to all neighbours but the sender: always
over links that somebody made for what the other wants, with probability ρ over random ones.

The copy carries γ. Of two copies the one with more may come last: a member that has passed on a
copy with less passes on the one with more as well. So which members an event reaches does not
depend on which copy was faster.
"""

from __future__ import annotations

from typing import Final

from peersub.overlays.core.draws import draw
from peersub.overlays.similarity.proximity import pair_hash

__all__ = ["STOPPED", "event_draw", "forward_share", "left_of"]

STOPPED: Final = -1
"""Less than no indulgence: the copy is not passed on."""


def left_of(indulgence: int, matches: bool) -> int:
    """The indulgence with which a copy goes on.

    >>> left_of(0, True), left_of(1, False), left_of(0, False)
    (0, 0, -1)
    """
    return indulgence if matches else indulgence - 1


def event_draw(seed: int, event_id: str) -> int:
    """The part of an event in its draws over random links."""
    return draw(seed, "similarity/forward", event_id)


def forward_share(drawn: int, sender: int, receiver: int) -> float:
    """From 0 up to 1: over a random link, an event goes from one place to another if below ρ."""
    return (pair_hash(drawn ^ sender, receiver) >> 11) / (1 << 53)
