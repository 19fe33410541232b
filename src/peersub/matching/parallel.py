"""Threads, locks and processes: with `storage`, the matcher's only contact with the machine."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

__all__ = [
    "Background",
    "exclusive",
    "parallel_map_chunks",
    "processor_count",
    "rare_collection",
    "return_free_memory",
    "thread_map",
]

Item = TypeVar("Item")
Result = TypeVar("Result")


def exclusive() -> AbstractContextManager[Any]:
    """A lock that a thread may take again while it holds it."""
    return threading.RLock()


class Background:
    """One piece of work at a time, in a thread of its own."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def run(self, work: Callable[[], None]) -> None:
        """Start a piece of work when the one before is done; raises what that one raised."""
        self.wait()
        self._thread = threading.Thread(target=self._guarded, args=(work,), daemon=True)
        self._thread.start()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as failure:  # handed to whoever waits
            self._failure = failure

    def wait(self) -> None:
        """Wait for the work that runs; raises what it raised."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


def processor_count() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def return_free_memory() -> None:
    """Give memory that is free, but kept by the allocators, back to the machine.

    Building a large index frees far more than it keeps. The C library holds on to most of that, as
    Arrow's pool does, in case it is asked for again.
    """
    import ctypes

    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of the GNU C library
    if trim is not None:
        trim(0)


def thread_map(
    function: Callable[[Item], Result], items: Sequence[Item], threads: int
) -> list[Result]:
    """The function's results in the order of the items, several threads sharing the work."""
    if threads <= 1 or len(items) <= 1:
        return [function(item) for item in items]
    return list(_pool(threads).map(function, items))


# Starting threads takes as long as matching hundreds of events: they are kept, a pool per number.
# A forked process has none of its parent's threads, and must not wait for them.
_pools: dict[int, ThreadPoolExecutor] = {}
_pools_lock = threading.Lock()


def _forget_pools() -> None:
    global _pools_lock
    _pools.clear()
    _pools_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pools)


def _pool(threads: int) -> ThreadPoolExecutor:
    with _pools_lock:
        if threads not in _pools:
            _pools[threads] = ThreadPoolExecutor(threads, thread_name_prefix="peersub-match")
        return _pools[threads]


_WAITING_PER_PROCESS = 2
"""Chunks handed out ahead: enough to keep each process busy, few enough to keep memory small."""


_RARELY = (100_000, 50, 100)


def _collect_rarely() -> None:
    """Let a worker look for cyclic garbage less often: it makes many small plain objects."""
    import gc

    gc.freeze()
    gc.set_threshold(*_RARELY)


@contextmanager
def rare_collection() -> Iterator[None]:
    """Look for cyclic garbage less often for a while; parsing many filters takes a sixth less."""
    import gc

    before = gc.get_threshold()
    gc.set_threshold(*_RARELY)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def parallel_map_chunks(
    function: Callable[[Item], Result], chunks: Iterable[Item], processes: int
) -> Iterator[Result]:
    """The function's results in the order of the chunks, several processes sharing the work.

    The function must be importable by name; chunks and results travel pickled. With one process all
    of it happens in this one.

    Raises:
        RuntimeError: a process died.
    """
    if processes <= 1:
        yield from map(function, chunks)
        return
    # Imported here: a small node starts without them.
    import multiprocessing
    from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor

    # Spawned, not forked: this process may have threads, and its memory is none of theirs.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, _collect_rarely) as pool:
        waiting: deque[Future[Result]] = deque()
        try:
            for chunk in chunks:
                waiting.append(pool.submit(function, chunk))
                if len(waiting) > _WAITING_PER_PROCESS * processes:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool:
            raise RuntimeError(
                "a worker process ended before its work was done: memory may have run out, or the "
                "script that started it lacks `if __name__ == '__main__':`. "
                "With processes=1 no other process is needed."
            ) from None
        finally:
            for left in waiting:
                left.cancel()
