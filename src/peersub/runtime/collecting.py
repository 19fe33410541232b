"""Garbage collection and threads that do not hold up a node, however much it has to remember.

A full collection looks at every object: with the modules of a node and a hundred thousand rows that
takes a second, in which neighbours hear nothing. So what stays is set aside, whenever the process
has grown: collections do not look at it any more. It is still freed when nobody refers to it; only
circles among objects that were set aside stay, and that happens no more often than a process grows
beyond what it ever had.

Threads compile the filters of many subscriptions. Whenever the loop has waited for the network it
needs the interpreter back from them, which by default takes 5 ms each time: more than an event does
to cross a node. So they are asked for it sooner.

For processes that are a node and nothing else: others may have reasons of their own.
"""

from __future__ import annotations

import gc
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

__all__ = ["keep_waits_short"]

GROWTH_KB: Final = 8 * 1_024
"""Resident memory by which the process has to grow before more is set aside."""
THREAD_TURN_S: Final = 0.000_5
"""How long a thread keeps the interpreter when another wants it."""


class _Watch:
    """Is told when collections begin and end."""

    def __init__(self) -> None:
        self._most_kb = _most_kb()

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        # What came last has just been looked through: little of it is garbage.
        if phase == "stop" and info["generation"] and _most_kb() >= self._most_kb + GROWTH_KB:
            self._most_kb = _most_kb()
            gc.freeze()


def _most_kb() -> int:
    """The most memory that the process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@contextmanager
def keep_waits_short() -> Iterator[None]:
    """Let no collection, and no other thread, hold up this process for long, until the end."""
    watch, interval_s = _Watch(), sys.getswitchinterval()
    gc.freeze()
    gc.callbacks.append(watch)
    sys.setswitchinterval(THREAD_TURN_S)
    try:
        yield
    finally:
        # A program that runs a node for a while gets its own settings back.
        gc.callbacks.remove(watch)
        sys.setswitchinterval(interval_s)
