"""How a run of the pipeline gets on, on standard error: a bar per step, a line when it is done."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from peersub.cli.output import note

if TYPE_CHECKING:
    from peersub.pipeline.progress import Work
    from peersub.pipeline.workspace import FinishedStep

__all__ = ["TerminalNarrator", "told_counts"]


_UNTOLD = frozenset({"entries", "files", "rows"})


def told_counts(counts: Mapping[str, Any]) -> Iterator[str]:
    """The counts of a step that are worth a line: the first, and others that are not 0."""
    told = [
        (name, value)
        for name, value in counts.items()
        if isinstance(value, int) and name not in _UNTOLD
    ]
    for place, (name, value) in enumerate(told):
        if value or place == 0:
            yield f"{value:,} {name.replace('_', ' ')}"


class TerminalNarrator:
    """A bar with stages, tasks and rows on a terminal; elsewhere only the lines."""

    def __init__(self) -> None:
        self.wants_progress = sys.stderr.isatty()
        self._bar: Any = None
        self._task: Any = None

    def starts_spark(self, master: str) -> None:
        """A word about the pause that comes now."""
        note(f"peersub: starting Spark ({master}) ...")

    def begins(self, name: str, number: int, count: int) -> None:
        """Show the bar of the step."""
        if not self.wants_progress:
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("[{task.fields[place]}] {task.description}"),
            BarColumn(),
            TextColumn("{task.fields[text]}"),
            TimeElapsedColumn(),
        )
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(name, total=None, text="", place=f"{number}/{count}")
        self._bar.start()

    def works(self, work: Work) -> None:
        """Move the bar."""
        bar = self._bar
        if bar is not None:
            rows = f", {work.rows:,} rows" if work.rows else ""
            text = f"{work.tasks_done}/{work.tasks} tasks{rows}"
            bar.update(self._task, completed=work.tasks_done, total=work.tasks or None, text=text)

    def ends(self, name: str, step: FinishedStep, *, was_done: bool) -> None:
        """Take the bar away, and say in a line what came of the step."""
        self.stop()
        if was_done:
            note(f"peersub: {name}: done before")
            return
        counts = ", ".join(told_counts(step.counts))
        note(f"peersub: {name}: {counts}{' in ' if counts else ''}{step.seconds:,.1f} s")

    def stop(self) -> None:
        """Take the bar away, whatever happens next."""
        bar, self._bar = self._bar, None
        if bar is not None:
            with suppress(Exception):
                bar.stop()
