"""What `pub`, `sub` and `status` share: the node they talk to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from peersub.cli.failures import CommandError

if TYPE_CHECKING:
    from peersub.client import NodeClient

__all__ = ["with_node"]


def with_node(address: str, name: str, work: Callable[[NodeClient], Awaitable[int]]) -> int:
    """Run the work as a client of the node; its result is the exit code."""
    from peersub.client import connect
    from peersub.runtime.addresses import split_address

    try:
        split_address(address)
    except ValueError as error:
        raise CommandError(f"--node: {error}.") from None

    async def run() -> int:
        async with connect(address, name=name) as node:
            return await work(node)

    return asyncio.run(run())
