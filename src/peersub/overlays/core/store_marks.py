"""Marks: how far a node's disk is, as others remember it, and what a disk that lies gives away.

A file system may lose what it said was on the disk: the last transactions vanish, and what is left
looks whole. So each transaction is counted, and the count is told to others (the mirrors of a node
remember it, and so does a small file beside the database). A node that starts with fewer
transactions than somebody remembers has lost the rest.

What a disk can lose, for whoever draws faults:

- the last transactions, from any one on (a lost fsync, a write-ahead file cut at a commit);
- any transaction or row, where pages are torn or bits flipped: checksums notice, the node salvages
  the rest and its log begins a new epoch;
- never a transaction in the midst without one of these: transactions are kept in order.

What follows from a loss: the log begins a new epoch after all positions that were ever given, so
that none is given twice; consumers of durable subscriptions are told of a gap; what others hold is
copied back, and what they say of subscriptions that the node does not know is believed.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["StoreMark"]


class StoreMark(NamedTuple):
    """How far a store is."""

    epoch: str
    """Names the log; marks of two epochs say nothing about each other."""
    commits: int
    """Transactions of this store, which only grow."""
    position: int
    """The last position that the log has given."""

    def missing_in(self, found: StoreMark) -> int:
        """How many transactions a store has lost that was once as far as this mark says.

        >>> told = StoreMark("a", 17, 200)
        >>> told.missing_in(StoreMark("a", 15, 190)), told.missing_in(StoreMark("a", 18, 200))
        (2, 0)
        >>> told.missing_in(StoreMark("b", 1, 0))
        0
        """
        return max(0, self.commits - found.commits) if self.epoch == found.epoch else 0
