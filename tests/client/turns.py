"""Running tests on an event loop, and waiting for conditions."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

TOO_LONG_S = 20.0
"""No test takes this long; one that hangs ends."""


def on_loop(test: Callable[..., Awaitable[Any]]) -> Callable[..., None]:
    """A test that is a coroutine; tasks that it leaves behind make it fail."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        async def whole() -> None:
            async with asyncio.timeout(TOO_LONG_S):
                await test(*arguments, **named)
            await until(lambda: len(asyncio.all_tasks()) == 1)

        asyncio.run(whole())

    return run


async def until(condition: Callable[[], Any]) -> None:
    """Give others their turn until the condition holds."""
    while not condition():
        await asyncio.sleep(0.001)


async def settle() -> None:
    """Let everything that was planned for soon happen."""
    for _ in range(10):
        await asyncio.sleep(0)
