"""Doubts: links that are up and may not work, and what the peers are told of that.

Between the first silence and the certainty that a node is gone lies most of the time that a failure
costs: a driver waits before it gives a connection up, and a search for a way round takes a while.
Peers that know of the doubt need not wait for its end. A link is in doubt while it has no path, or
while nothing is heard over the first connection of its path.

Invariant: per link, a peer gets PeerInDoubt and then PeerHeard, PeerResumed or PeerLost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peersub.overlays.core.causes import PeerConnected, PeerHeard, PeerInDoubt
from peersub.overlays.core.link import Link, LinkState

if TYPE_CHECKING:
    from peersub.overlays.core.links import Links

__all__ = ["Doubts"]


class Doubts:
    """The doubts of one node about its links."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._silent: dict[str, None] = {}
        """Nodes to which there is a connection over which nothing comes."""

    def silent(self, node: str) -> None:
        """Nothing is heard over the connection to a node, says the driver."""
        link = self._links.table.get(node)
        if link is not None and link.is_connected and node not in self._silent:
            self._silent[node] = None
            self._weigh_all(node)

    def heard(self, node: str) -> None:
        """Something is heard again, says the driver."""
        if node in self._silent:
            del self._silent[node]
            self._weigh_all(node)

    def forget(self, node: str) -> None:
        """The connection is gone: what its end means for links is known, or looked for."""
        self._silent.pop(node, None)

    def _weigh_all(self, node: str) -> None:
        for link in list(self._links.table.values()):
            if link.path == node:
                self.weigh(link)

    def weigh(self, link: Link) -> None:
        """Tell the peers whether the link is in doubt, if that has changed."""
        in_doubt = link.state is LinkState.UP and (link.path is None or link.path in self._silent)
        if in_doubt != link.in_doubt:
            link.in_doubt = in_doubt
            self._tell(link.holders, link)

    def connected(self, slots: tuple[int, ...], link: Link, *, is_new: bool = True) -> None:
        """Show peers a link, and those that did not know of it the doubt, if there is one."""
        self._links.tell(slots, PeerConnected(link.peer, link.greeting, link.features))
        if link.in_doubt and is_new:
            self._tell(slots, link)

    def _tell(self, slots: tuple[int, ...], link: Link) -> None:
        cause = PeerInDoubt(link.peer) if link.in_doubt else PeerHeard(link.peer)
        self._links.tell(slots, cause)
