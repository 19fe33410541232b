"""How far Spark is with what it does now: tasks and rows, told while it works.

A thread asks a session that was started here; a Connect server tells by itself. Both end up as
`Work`. The status that is asked is Spark's own record of stages, which it keeps with or without its
web page.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["Work", "watched"]

ASKED_EVERY_S: Final = 0.3


@dataclass(frozen=True, slots=True)
class Work:
    """What the stages that run now have done so far."""

    tasks_done: int
    tasks: int
    rows: int
    """Rows read or written, whichever is more; 0 where Spark does not tell."""


Show = Callable[[Work], None]


@contextmanager
def watched(spark: Any, show: Show | None) -> Iterator[None]:
    """While in this context, `show` is told how far the session's work is."""
    if show is None:
        yield
    elif hasattr(spark, "registerProgressHandler") and _is_connect(spark):
        with _handled(spark, show):
            yield
    else:
        with _asked(spark, show):
            yield


def _is_connect(spark: Any) -> bool:
    return "connect" in type(spark).__module__


@contextmanager
def _handled(spark: Any, show: Show) -> Iterator[None]:
    def handler(stages: Any = (), **_: Any) -> None:
        running = list(stages or ())
        show(
            Work(
                sum(stage.num_completed_tasks for stage in running),
                sum(stage.num_tasks for stage in running),
                0,
            )
        )

    spark.registerProgressHandler(handler)
    try:
        yield
    finally:
        spark.removeProgressHandler(handler)


@contextmanager
def _asked(spark: Any, show: Show) -> Iterator[None]:
    ended = threading.Event()

    def ask() -> None:
        while not ended.wait(ASKED_EVERY_S):
            try:
                work = _work_now(spark)
            except Exception:  # the session may end at any moment; then there is nothing to tell
                return
            if work is not None:
                show(work)

    thread = threading.Thread(target=ask, name="peersub-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _work_now(spark: Any) -> Work | None:
    stages = spark.sparkContext._jsc.sc().statusStore().activeStages()
    count = stages.size()
    if not count:
        return None
    done = tasks = rows = 0
    for place in range(count):
        stage = stages.apply(place)
        done += stage.numCompleteTasks()
        tasks += stage.numTasks()
        rows += max(stage.inputRecords(), stage.outputRecords(), stage.shuffleWriteRecords())
    return Work(done, tasks, rows)
