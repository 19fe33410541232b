"""What holds of a similarity graph at rest.

Links are known at both ends, and as what they are. A member has the near links that its rule asks
for, as far as it knows others, and r random ones where the network allows. Connected nodes hold one
sample. Nothing is said about who is reached: the graph is approximate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from peersub.overlays.core.checks import Checks
from peersub.overlays.core.identity import PeerId
from peersub.overlays.similarity.member import SimilarityMember
from peersub.overlays.similarity.peer import SimilarityPeer
from peersub.overlays.similarity.settings import NEAREST

__all__ = ["CHECKS", "check_quiet"]


def check_quiet(peers: Sequence[SimilarityPeer]) -> list[str]:
    """Complaints about a network at rest, all of whose nodes can reach each other."""
    members = {member.me: member for peer in peers for member in peer.members()}
    complaints: list[str] = []
    for member in members.values():
        complaints += _links(member, members)
        complaints += _degree(member, members)
    digests = {peer.me.node: peer.sample.digest for peer in peers}
    for member in members.values():
        for peer in member.neighbours():
            if digests.get(peer.node, digests[member.me.node]) != digests[member.me.node]:
                complaints.append(f"{member.me} and {peer} measure by different samples")
    return complaints


def _links(member: SimilarityMember, members: dict[PeerId, SimilarityMember]) -> list[str]:
    complaints = []
    for peers, kind in ((member.near, 0), (member.drawn, 1)):
        for peer in peers:
            other = members.get(peer)
            if other is None:
                complaints.append(f"{member.me} counts on {peer}, which is not there")
            elif not other.choosers.get(member.me, (False, False))[kind]:
                complaints.append(f"{member.me} counts on {peer}, which does not know it")
    for peer, kinds in member.choosers.items():
        other = members.get(peer)
        if other is None:
            complaints.append(f"{member.me} was chosen by {peer}, which is not there")
        elif kinds != (member.me in other.near, member.me in other.drawn):
            complaints.append(f"{member.me} was chosen by {peer}, which does not know it")
    return complaints


def _degree(member: SimilarityMember, members: dict[PeerId, SimilarityMember]) -> list[str]:
    settings = member.settings
    others = sum(peer.node != member.me.node for peer in members)
    complaints = []
    # A member judges by whom it knows; some may be gone that it never was linked with.
    if member.is_clique:
        if others <= settings.clique_up_to and len(member.near) != others:
            complaints.append(f"{member.me} is linked with {len(member.near)} of {others} others")
    elif not member.waiting_on():
        asked_for = min(settings.nearest, others)
        if len(member.near) > settings.nearest:
            complaints.append(f"{member.me} has {len(member.near)} near links, more than it may")
        elif settings.choice == NEAREST and len(member.near) < asked_for:
            complaints.append(f"{member.me} has {len(member.near)} of {asked_for} near links")
    if others > settings.clique_up_to and settings.random and not member.neighbours():
        complaints.append(f"{member.me} has no neighbour at all")
    if len(member.drawn) > settings.random:
        complaints.append(f"{member.me} has {len(member.drawn)} random links, more than it may")
    return complaints


CHECKS: Final = Checks(quiet=check_quiet)
