"""Ending tasks."""

from __future__ import annotations

import asyncio

__all__ = ["end_tasks"]


async def end_tasks(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks, and wait until they have ended.

    Awaiting a cancelled task, and passing over its `CancelledError`, would pass over the one that
    is meant for who waits, too: it could not be cancelled.
    """
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
