"""Who is told how a run gets on: begun and finished steps, and how far the one under way is."""

from __future__ import annotations

from typing import Protocol

from peersub.pipeline.progress import Work
from peersub.pipeline.workspace import FinishedStep

__all__ = ["Narrator", "Silence"]


class Narrator(Protocol):
    """Is told what happens; whoever writes to a terminal implements it."""

    wants_progress: bool

    def begins(self, name: str, number: int, count: int) -> None:
        """The step with this number, from 1, of so many begins."""
        ...

    def works(self, work: Work) -> None:
        """Spark is so far with it."""
        ...

    def ends(self, name: str, step: FinishedStep, *, was_done: bool) -> None:
        """The step is finished; `was_done` if it was before this run."""
        ...

    def starts_spark(self, master: str) -> None:
        """Spark is being started, which takes some seconds."""
        ...


class Silence:
    """Nobody listens."""

    wants_progress = False

    def begins(self, name: str, number: int, count: int) -> None:
        """Nothing."""

    def works(self, work: Work) -> None:
        """Nothing."""

    def ends(self, name: str, step: FinishedStep, *, was_done: bool) -> None:
        """Nothing."""

    def starts_spark(self, master: str) -> None:
        """Nothing."""
