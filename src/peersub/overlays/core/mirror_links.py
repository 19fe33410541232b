"""Links, as a mirror peer sees them: to whom, who is in doubt, and who counts copies."""

from __future__ import annotations

from peersub.overlays.core.identity import PeerId

__all__ = ["MirrorLinks"]


class MirrorLinks:
    """The linked nodes that offer to be mirrors."""

    def __init__(self) -> None:
        self.peers: dict[str, PeerId] = {}
        self._in_doubt: dict[str, None] = {}
        self._counting: dict[str, None] = {}

    def __contains__(self, node: str) -> bool:
        return node in self.peers

    def __bool__(self) -> bool:
        return bool(self.peers)

    def add(self, peer: PeerId, *, counts_copies: bool) -> None:
        """A link is up."""
        self.peers[peer.node] = peer
        if counts_copies:
            self._counting[peer.node] = None
        else:
            self._counting.pop(peer.node, None)

    def remove(self, node: str) -> None:
        """A link is gone."""
        for each in (self.peers, self._in_doubt, self._counting):
            each.pop(node, None)

    def doubt(self, node: str, *, in_doubt: bool) -> None:
        """Nothing is heard over a link, or something is again."""
        if in_doubt and node in self.peers:
            self._in_doubt[node] = None
        else:
            self._in_doubt.pop(node, None)

    def is_reachable(self, node: str) -> bool:
        """Whether a node is linked, and not in doubt."""
        return node in self.peers and node not in self._in_doubt

    def counts_copies(self, node: str) -> bool:
        """Whether it can be reached, and says which events are on its disk."""
        return node in self._counting and node not in self._in_doubt

    def reachable(self) -> list[str]:
        """The nodes that can be reached."""
        return [node for node in self.peers if node not in self._in_doubt]
