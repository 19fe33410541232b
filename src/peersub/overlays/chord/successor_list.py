"""`SuccessorList`: who follows a peer on the circle, without a gap, and how many it has to know.

The list is not stored: it is the first of the known members (`topology`), which are linked already,
so that the next one can be promoted when the successor is lost (section 5.1). But among the known
members are fingers far away, and a list with a member missing in the middle would promote the wrong
one. So the list ends at the *horizon*: no member stands nearer than that and is unknown. Each
member names its own list to others; if there is no gap between this peer and that member, there is
none up to the end of what it names either.

The length: the expected number of nodes that lose a whole list of r when half of N nodes fail is
N / 2^r. With log2 N entries, as the paper has it, one node is cut off; with twice as many hardly
ever one is. N is estimated from how close the list's own entries stand (`list_length`).

Invariant: a list that is complete depends on its own members only, not on what else is known.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence

from peersub.overlays.chord.messages import RingMember
from peersub.overlays.chord.topology import ChordTopology, list_length

__all__ = ["SuccessorList"]


class SuccessorList:
    """The successor list of one peer.

    `length` fixes how many entries it has to have; 0 takes it from the estimated size of the ring.
    """

    def __init__(self, topology: ChordTopology, length: int) -> None:
        self._topology = topology
        self._length = length
        self.horizon = 0
        """How far away the last member stands up to which all have been named; size: all are."""
        self._missing: dict[int, None] = {}
        """Keys of members that were named and are not known yet: the list ends before them."""

    def _offset(self, key: int) -> int:
        return (key - self._topology.key) % self._topology.size

    def _offsets(self) -> list[int]:
        """How far away the members up to the horizon stand, as long as none is missing.

        The successor is always one: whoever is known to be next has nobody in between.
        """
        successor = self._topology.successor
        if successor is None:
            return []
        nearest = self._offset(successor.key)
        end = min([self.horizon, *(self._offset(key) for key in self._missing)])
        return self._topology.offsets_up_to(max(nearest, end))

    def _enough(self, offsets: Sequence[int]) -> int | None:
        """How many of those that far away are enough; None if all are not."""
        wanted = self._length or list_length(offsets, self._topology.size)
        return wanted if wanted is not None and wanted <= len(offsets) else None

    # --- asking --------------------------------------------------------------------------------

    def members(self) -> list[RingMember]:
        """The list, nearest first."""
        offsets = self._offsets()
        return self._topology.successors(self._enough(offsets) or len(offsets))

    @property
    def is_complete(self) -> bool:
        """Whether the list is as long as it should be, or holds the whole ring."""
        if self.horizon >= self._topology.size and not self._missing:
            return True
        return self._enough(self._offsets()) is not None

    def wanted(self, candidates: Iterable[RingMember]) -> dict[RingMember, None]:
        """Those of the members not known yet that would be part of the list."""
        offsets = self._topology.offsets_up_to(self.horizon) or self._offsets()
        enough = self._enough(offsets)
        found: dict[RingMember, None] = {}
        for member in sorted(candidates, key=lambda member: self._offset(member.key)):
            offset = self._offset(member.key)
            if not offset:
                # It claims the key of this peer: that is to be settled between the two.
                found[member] = None
                continue
            last = offsets[(enough or len(offsets)) - 1] if offsets else self._topology.size
            if offset < last or (enough is None and offset <= self.horizon):
                found[member] = None
                insort(offsets, offset)
                enough = self._enough(offsets)
        return found

    # --- learning ------------------------------------------------------------------------------

    def learn(self, at: int, named: Sequence[RingMember]) -> None:
        """A member that stands so far away names those that follow it, without a gap."""
        offsets = self._offsets()
        if not offsets or at > max(offsets[-1], self.horizon):
            return
        size = self._topology.size
        end, beyond = (at, 0) if named else (size, 0)
        for member in named:
            offset = self._offset(member.key)
            if end < size and offset > end:
                end = offset
            elif end < size:
                # Once round: what follows is named from this peer on.
                end, beyond = size, offset
            elif offset > beyond:
                beyond = offset
            else:
                break
        self.horizon = max(self.horizon, end)
        # Whoever was named before and is not named any more in between is gone.
        for key in list(self._missing):
            if at < self._offset(key) <= end or self._offset(key) <= beyond:
                del self._missing[key]
        known = dict.fromkeys(member.key for member in self._topology.known)
        for member in named:
            if member.key not in known and 0 < self._offset(member.key) <= self.horizon:
                self._missing[member.key] = None

    def settle(self) -> None:
        """Members have become known, or went.

        No more is claimed than the list needs: beyond it newcomers do not make themselves known.
        """
        for member in self._topology.known:
            self._missing.pop(member.key, None)
        offsets = self._offsets()
        enough = self._enough(offsets)
        if enough is not None and enough < len(offsets):
            self.horizon = offsets[enough - 1]
        for key in [key for key in self._missing if self._offset(key) > self.horizon]:
            del self._missing[key]

    def give_up(self, key: int) -> None:
        """The member that was named cannot be reached, or took leave."""
        self._missing.pop(key, None)

    def doubt(self) -> None:
        """Another ring was met, or the peer moved: someone may stand in between anywhere."""
        self.horizon = 0
        self._missing.clear()
