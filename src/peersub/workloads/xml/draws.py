"""Random numbers that belong to one numbered thing: what else is drawn changes nothing."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

import numpy as np

__all__ = ["Draws"]

_BLOCK: Final = 256


class Draws:
    """The random numbers of one document or pattern: by seed, purpose and number alone."""

    __slots__ = ("_generator", "_left")

    def __init__(self, seed: int, purpose: int, number: int) -> None:
        self._generator = np.random.default_rng((seed, purpose, number))
        self._left: list[float] = []

    def share(self) -> float:
        """A number from 0 up to, but not, 1."""
        if not self._left:
            self._left = self._generator.random(_BLOCK).tolist()
        return self._left.pop()

    def below(self, count: int) -> int:
        """A whole number from 0 to count - 1."""
        return int(self.share() * count)

    def weighted(self, cumulative: Sequence[float]) -> int:
        """A place, by weights of which these are the running sums."""
        return min(bisect_right(cumulative, self.share() * cumulative[-1]), len(cumulative) - 1)
