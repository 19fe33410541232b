"""A progress bar for long work: on a terminal only, and only once the work has taken a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Progress", "progress_bar"]

SHOWN_AFTER_S = 1.0
UPDATES_PER_S = 10


class Progress:
    """Shows how far some work is; costs nothing where nobody looks."""

    def __init__(self, title: str, *, enabled: bool) -> None:
        self._title = title
        self._enabled = enabled
        self._started = time.monotonic()
        self._next = self._started + SHOWN_AFTER_S
        self._bar: Any = None
        self._task: Any = None

    def update(self, done: int, total: int, text: str = "") -> None:
        """Say how much is done; a total of 0 is unknown."""
        if not self._enabled:
            return
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + 1 / UPDATES_PER_S
        if self._bar is None:
            self._start()
        self._bar.update(self._task, completed=done, total=total or None, text=text)

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[text]}"),
            TimeRemainingColumn(),
        )
        self._bar = RichProgress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(self._title, text="")
        self._bar.start()

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


@contextmanager
def progress_bar(title: str, *, quiet: bool = False) -> Iterator[Progress]:
    """A progress bar that is gone when the work ends, however it ends."""
    progress = Progress(title, enabled=not quiet and sys.stderr.isatty())
    try:
        yield progress
    finally:
        progress.close()
