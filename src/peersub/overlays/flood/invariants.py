"""What holds of a flood at rest: links are mutual, and lead from each node to all others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from peersub.overlays.core.checks import Checks
from peersub.overlays.core.shell import Shell

__all__ = ["CHECKS", "check_quiet"]


def check_quiet(peers: Sequence[Shell]) -> list[str]:
    """Complaints about a network at rest, all of whose nodes can reach each other."""
    by_name = {peer.me: peer for peer in peers}
    complaints = []
    for peer in peers:
        for other in peer.links():
            if other not in by_name:
                complaints.append(f"{peer.me} counts on {other}, which is not there")
            elif peer.me not in by_name[other].links():
                complaints.append(f"{peer.me} counts on {other}, but not the other way round")
    if peers and not complaints:
        reached = {peers[0].me: None}
        ahead = [peers[0]]
        while ahead:
            for other in ahead.pop().links():
                if other not in reached:
                    reached[other] = None
                    ahead.append(by_name[other])
        if len(reached) < len(peers):
            complaints.append(f"only {len(reached)} of {len(peers)} nodes are connected")
    return complaints


CHECKS: Final = Checks(quiet=check_quiet)
