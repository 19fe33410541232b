"""The memory of this process and all that it started, sampled while something runs.

Processes that map the same file share its pages: their resident memory counts these once for each.
The proportional set size counts them once in all, so the sum over processes is what they really
take. Both are read from /proc; without it nothing is known.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

__all__ = ["MemoryPeak", "MemorySampler"]

INTERVAL_S: Final = 1.0
_PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True)
class MemoryPeak:
    """The greatest sums that were seen, in bytes; 0 where nothing could be read."""

    proportional_bytes: int = 0
    resident_bytes: int = 0
    processes: int = 0

    def with_sample(self, sample: MemoryPeak) -> MemoryPeak:
        """The greater of both, in each respect."""
        return MemoryPeak(
            max(self.proportional_bytes, sample.proportional_bytes),
            max(self.resident_bytes, sample.resident_bytes),
            max(self.processes, sample.processes),
        )


class MemorySampler:
    """Samples from a thread of its own for as long as it is entered."""

    def __init__(self, sample: Callable[[], MemoryPeak] | None = None) -> None:
        self._sample = sample or (lambda: memory_of_tree(os.getpid()))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.peak = MemoryPeak()

    def __enter__(self) -> MemorySampler:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self.peak = self.peak.with_sample(self._sample())
            if self._ended.wait(INTERVAL_S):
                return


def memory_of_tree(root: int) -> MemoryPeak:
    """The memory of a process and its descendants, now."""
    proportional = resident = 0
    tree = _descendants(root)
    for process in tree:
        sizes = _sizes(process)
        proportional += sizes.get("Pss", 0)
        resident += sizes.get("Rss", 0)
    return MemoryPeak(proportional, resident, len(tree))


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in _PROC.glob("[0-9]*/stat"):
        try:
            # The name of the program, in parentheses, may hold anything.
            after_name = entry.read_text(errors="replace").rpartition(")")[2].split()
            children.setdefault(int(after_name[1]), []).append(int(entry.parent.name))
        except (OSError, IndexError, ValueError):
            continue  # it has ended
    tree = [root]
    for process in tree:
        tree += children.get(process, [])
    return tree


def _sizes(process: int) -> dict[str, int]:
    """The lines `Name: N kB` of a process, in bytes."""
    try:
        lines = (_PROC / str(process) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return {}
    sizes = {}
    for line in lines:
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[1] == "kB":
            sizes[name] = int(words[0]) * 1024
    return sizes
