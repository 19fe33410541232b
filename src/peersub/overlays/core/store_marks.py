"""Marks: how far a node's disk is, as others remember it, and what a disk that lies gives away.

A file system may lose what it said was on the disk: the last transactions vanish, and what is left
looks whole. So each transaction is counted, and the count is told to others (the mirrors of a node
remember it, and so does a small file beside the database). A node that starts with fewer
transactions than somebody remembers has lost the rest. It may hear of that late, after further
transactions, or in a later life still: so it keeps on disk with how many each life began.

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

from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["LIVES_MAX", "Life", "LifeMark", "StoreMark"]

LIVES_MAX: Final = 64
"""Lives of a node whose beginnings are remembered."""
_NUMBER_DIGITS_MAX: Final = 20


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


class Life(NamedTuple):
    """A life of a node, by its incarnation, and the transactions that its disk had by then."""

    number: int
    commits: int


class LifeMark(NamedTuple):
    """How far a store was in one life of its node, as the mirrors of the node remember it.

    To them it is a text that they return, in the place of the epoch that nodes of earlier versions
    tell.
    """

    epoch: str
    life: int = -1
    commits: int = 0

    def __str__(self) -> str:
        """
        >>> str(LifeMark("a7", 3, 17)), LifeMark.read("a7~3~17") == LifeMark("a7", 3, 17)
        ('a7~3~17', True)
        """
        return f"{self.epoch}~{self.life}~{self.commits}"

    @staticmethod
    def read(text: str) -> LifeMark:
        """Whatever others send; what is no mark names an epoch alone."""
        epoch, *numbers = text.rsplit("~", 2)
        if len(numbers) == 2 and all(
            each.isascii() and each.isdigit() and len(each) <= _NUMBER_DIGITS_MAX
            for each in numbers
        ):
            return LifeMark(epoch, int(numbers[0]), int(numbers[1]))
        return LifeMark(text)

    def is_lost(self, lives: Sequence[Life]) -> bool:
        """Whether a disk with these lives, the present one last, has not kept what it had.

        The life after that of the mark must have begun with all that the mark says.

        >>> lives = (Life(1, 0), Life(2, 15), Life(3, 40))
        >>> [LifeMark("a", 1, commits).is_lost(lives) for commits in (15, 17)]
        [False, True]
        >>> LifeMark("a", 3, 99).is_lost(lives), LifeMark("a", 4, 1).is_lost(lives)
        (False, True)
        """
        for life in lives:
            if life.number > self.life:
                return self.commits > life.commits
        return self.life > lives[-1].number
