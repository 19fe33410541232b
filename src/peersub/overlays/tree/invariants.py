"""What holds of a tree at rest: one root, mutual edges, and the same rows at both ends of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from peersub.overlays.core.checks import Checks
from peersub.overlays.tree.peer import TreePeer

__all__ = ["CHECKS", "check_quiet"]


def check_quiet(peers: Sequence[TreePeer]) -> list[str]:
    """Complaints about a network at rest, all of whose nodes can reach each other."""
    by_name = {peer.me: peer for peer in peers}
    complaints = []
    roots = [peer for peer in peers if peer.path == (peer.me.node,)]
    if len(roots) > 1:
        complaints.append(f"{len(roots)} roots: {', '.join(str(root.me) for root in roots)}")
    for peer in peers:
        if roots and not peer.path:
            complaints.append(f"{peer.me} has no way to the root")
        parent = by_name.get(peer.parent) if peer.parent else None
        if peer.parent is not None and parent is None:
            complaints.append(f"the parent of {peer.me}, {peer.parent}, is not there")
        if parent is not None and peer.me not in parent.children:
            complaints.append(f"{peer.me} is not a child of its parent {peer.parent}")
        if parent is not None and peer.path and peer.path != (peer.me.node, *parent.path):
            complaints.append(f"{peer.me} does not know its way to the root: {peer.path}")
        for edge in peer.topology.edges():
            other = by_name.get(edge)
            if other is None or peer.me not in other.topology.edges():
                complaints.append(f"the edge from {peer.me} to {edge} has no other end")
            elif peer.engine.maintenance.told(edge) != other.engine.maintenance.sent(peer.me):
                complaints.append(f"the rows on the edge from {peer.me} to {edge} differ")
    return complaints


CHECKS: Final = Checks(quiet=check_quiet)
