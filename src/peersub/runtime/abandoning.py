"""Durable subscriptions that nobody has consumed for longer than their owners may leave them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from peersub.runtime.counters import Counters
from peersub.runtime.durable import DurableSubscriptions

__all__ = ["forget_abandoned", "watch_abandoned"]

CHECK_S: Final = 60.0
"""How often it is looked which they are."""
CHECKED_AT_ONCE: Final = 256
"""Subscriptions that are looked at in one turn of the loop."""


async def watch_abandoned(
    durables: DurableSubscriptions, end: Callable[[str], None], counters: Counters
) -> None:
    """End them now and then, until cancelled."""
    while True:
        await forget_abandoned(durables, end, counters)
        await asyncio.sleep(CHECK_S)


async def forget_abandoned(
    durables: DurableSubscriptions, end: Callable[[str], None], counters: Counters
) -> None:
    """End those that have been abandoned for too long, and count them."""
    names = list(durables.filters())
    for start in range(0, len(names), CHECKED_AT_ONCE):
        for name in durables.abandoned(names[start : start + CHECKED_AT_ONCE]):
            counters.add("a durable subscription that was abandoned for too long")
            end(name)
        await asyncio.sleep(0)
