"""Threads, locks and processes for the matcher: with `storage`, its only contact with the machine."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, TypeVar

__all__ = ["exclusive", "processor_count", "thread_map"]

Item = TypeVar("Item")
Result = TypeVar("Result")


def exclusive() -> AbstractContextManager[Any]:
    """A lock that a thread may take again while it holds it."""
    return threading.RLock()


def processor_count() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_map(
    function: Callable[[Item], Result], items: Sequence[Item], threads: int
) -> list[Result]:
    """The function's results in the order of the items, several threads sharing the work."""
    if threads <= 1 or len(items) <= 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(threads, len(items))) as pool:
        return list(pool.map(function, items))
