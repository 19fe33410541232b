"""Links, as a mirror peer sees them: to whom, who is in doubt, and who counts copies."""

from __future__ import annotations

from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.versions import COPIES_FEATURE, MEMORY_FEATURE

__all__ = ["MirrorLinks"]


class MirrorLinks:
    """The linked nodes that offer to be mirrors, of `me`, which may have no disk."""

    def __init__(self, me: str = "", *, in_memory: bool = False) -> None:
        self.has_disk_here = not in_memory
        self._me = me
        self.peers: dict[str, PeerId] = {}
        self._in_doubt: dict[str, None] = {}
        self._features: dict[str, tuple[str, ...]] = {}

    def __contains__(self, node: str) -> bool:
        return node in self.peers

    def __bool__(self) -> bool:
        return bool(self.peers)

    def add(self, peer: PeerId, features: tuple[str, ...]) -> None:
        """A link is up, to a node that offers these."""
        self.peers[peer.node] = peer
        self._features[peer.node] = features

    def remove(self, node: str) -> None:
        """A link is gone."""
        for each in (self.peers, self._in_doubt, self._features):
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
        return self.offers(node, COPIES_FEATURE) and node not in self._in_doubt

    def offers(self, node: str, feature: str) -> bool:
        """Whether a node is linked and offers this."""
        return feature in self._features.get(node, ())

    def has_disk(self, node: str) -> bool:
        """Whether a node keeps what it keeps on a disk; one that is not linked may."""
        if node == self._me:
            return self.has_disk_here
        return not self.offers(node, MEMORY_FEATURE)

    def sees_disks(self) -> bool:
        """Whether this node or one that is linked has a disk."""
        return self.has_disk_here or any(map(self.has_disk, self.peers))

    def reachable(self) -> list[str]:
        """The nodes that can be reached."""
        return [node for node in self.peers if node not in self._in_doubt]
