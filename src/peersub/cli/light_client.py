"""What `pub`, `sub` and `status` share: the node they talk to, and their certificate."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from peersub.cli.failures import CommandError

if TYPE_CHECKING:
    from peersub.client import NodeClient
    from peersub.runtime.security.settings import TlsSettings

__all__ = ["tls_settings", "with_node"]


def tls_settings(
    certificate: str | None, key: str | None = None, authority: str | None = None
) -> TlsSettings | None:
    """The files of a certificate, as options name them; None if there is none."""
    from pathlib import Path

    from peersub.runtime.security.settings import TlsSettings

    if certificate is None:
        if key is not None or authority is not None:
            raise CommandError("--tls-key and --tls-ca belong to a certificate. Give --tls, too.")
        return None
    return TlsSettings.beside(
        Path(certificate),
        key=None if key is None else Path(key),
        ca=None if authority is None else Path(authority),
    )


def with_node(
    address: str,
    tls: str | None,
    name: str,
    work: Callable[[NodeClient], Awaitable[int]],
    publisher: str | None = None,
) -> int:
    """Run the work as a client of the node; its result is the exit code."""
    from peersub.client import Publisher, connect
    from peersub.runtime.addresses import split_address

    try:
        split_address(address)
    except ValueError as error:
        raise CommandError(f"--node: {error}.") from None
    try:
        named = None if publisher is None else Publisher.named(publisher)
    except (OSError, ValueError) as error:
        raise CommandError(f"--publisher: {error}.") from None

    async def run() -> int:
        async with connect(address, tls=tls_settings(tls), name=name, publisher=named) as node:
            return await work(node)

    return asyncio.run(run())
