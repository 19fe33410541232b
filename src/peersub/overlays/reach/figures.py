"""What is worth knowing of a network of Reach beside what every overlay says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from peersub.overlays.reach.invariants import global_gap
from peersub.overlays.reach.peer import ReachPeer

__all__ = ["figures", "line"]


def figures(
    peers: Sequence[ReachPeer], messages: Mapping[str, int], events: int
) -> dict[str, float | int]:
    """Figures of a run, from the messages by kind and the peers that it ended with.

    An event visits its host, and the places that it is sent down to.
    """
    per_event = 1 / max(events, 1)
    interest = ("interest-told", "interest-changed")
    return {
        "global_gap": global_gap(peers),
        "places_visited_per_event": round(bool(events) + messages.get("spread", 0) * per_event, 3),
        "hops_to_host": round(messages.get("rendezvous", 0) * per_event, 3),
        "interest_messages": sum(messages.get(kind, 0) for kind in interest),
    }


def line(found: Mapping[str, float | int]) -> str:
    """The figures for people."""
    return (
        f"{found['places_visited_per_event']:.2f} places visited per event, "
        f"{found['hops_to_host']:.2f} hops to the host; {found['interest_messages']:,} messages "
        f"with interest; lengths of places differ by {found['global_gap']}"
    )
