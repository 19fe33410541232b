"""Garbage collection and threads that do not hold up a node, however much it has to remember.

A full collection looks at every object: with the modules of a node and a hundred thousand rows that
takes a second, in which neighbours hear nothing. So what stays is set aside whenever the process
has grown a little: collections do not look at it any more, and each takes a fraction of a
millisecond. It is still freed when nobody refers to it; only circles among objects that were set
aside stay, and that happens no more often than the process grows.

Threads compile the filters of many subscriptions. Whenever the loop has waited for the network it
needs the interpreter back from them, which by default takes 5 ms each time: more than an event does
to cross a node. So they are asked for it sooner.

For processes that are a node and nothing else: others may have reasons of their own.
"""

from __future__ import annotations

import gc
import mmap
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

__all__ = ["keep_waits_short"]

GROWTH_PAGES: Final = 256
"""Pages of memory by which the process has to grow before more is set aside."""
YOUNG_MAX: Final = (350, 2, 20)
"""New objects before they are looked through, and how often that happens before those that stayed
are looked through once more: fewer at a time than by default."""
THREAD_TURN_S: Final = 0.000_5
"""How long a thread keeps the interpreter when another wants it."""


class _Watch:
    """Is told when collections begin and end."""

    def __init__(self) -> None:
        self._pages = _resident_pages()

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        # What came last has just been looked through: little of it is garbage.
        if phase == "stop" and info["generation"]:
            pages = _resident_pages()
            if pages >= self._pages + GROWTH_PAGES:
                gc.freeze()
                self._pages = pages


def _resident_pages() -> int:
    """Memory of the process; where the system does not tell, the most that it ever had."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            return int(file.read().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024 // mmap.PAGESIZE


@contextmanager
def keep_waits_short() -> Iterator[None]:
    """Let no collection, and no other thread, hold up this process for long, until the end."""
    watch, interval_s, thresholds = _Watch(), sys.getswitchinterval(), gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*YOUNG_MAX)
    gc.callbacks.append(watch)
    sys.setswitchinterval(THREAD_TURN_S)
    try:
        yield
    finally:
        # A program that runs a node for a while gets its own settings back.
        gc.callbacks.remove(watch)
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(interval_s)
