"""A similarity graph that is already there: the best choice of each member, made with all known.

Joins and exchanges lead towards the near links of this graph. Random links are keyed draws here,
and ends of walks there: as many, and to others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from peersub.filters.filter import Filter
from peersub.overlays.similarity.choosing import chosen, drawn_random
from peersub.overlays.similarity.member import SimilarityMember
from peersub.overlays.similarity.peer import SimilarityPeer

__all__ = ["converge"]


def converge(
    peers: Sequence[SimilarityPeer],
    subscriptions: Mapping[str, Mapping[str, Filter]],
    progress: Callable[[], None] = lambda: None,
) -> None:
    """Give the peers their subscriptions, and link the members of all of them.

    The peers hold the sample that the settings give: nothing else can be known at the start.
    """
    members: list[SimilarityMember] = []
    for peer in peers:
        members += peer.install(subscriptions.get(peer.me.node, {}))
    members.sort(key=lambda member: member.me)
    addresses = [member.me for member in members]
    by_address = dict(zip(addresses, members, strict=True))
    for member in members:
        progress()
        me = member.candidate(member.profile)
        others = [
            member.candidate(other.profile) for other in members if other.me.node != member.me.node
        ]
        settings = member.settings
        near = [one.peer for one in chosen(me, others, settings)]
        neighbourless = [one for one in addresses if one.node == member.me.node]
        drawn = []
        if len(near) < len(others):
            places = drawn_random(
                member.seed, member.me, addresses, (*near, *neighbourless), settings.random
            )
            drawn = [addresses[place] for place in places]
        member.install(
            [by_address[peer].profile for peer in near],
            [by_address[peer].profile for peer in drawn],
            is_clique=len(others) <= settings.clique_up_to,
        )
        for address in near:
            by_address[address].install_chooser(member.profile, False)
        for address in drawn:
            by_address[address].install_chooser(member.profile, True)
    for peer in peers:
        peer.install_links(peers)
