"""`peersub node`: run a node until it is told to leave (SIGTERM, SIGINT)."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from peersub.cli.failures import CommandError, ExitCode
from peersub.cli.node_options import NodeOptions, node_settings, with_file
from peersub.cli.output import note, say
from peersub.files.errors import FileError

if TYPE_CHECKING:
    from peersub.overlays.core.causes import Cause
    from peersub.overlays.core.effects import Effect
    from peersub.runtime.driver import Observer
    from peersub.runtime.live_node import LiveNode
    from peersub.runtime.settings import NodeSettings

__all__ = ["run_node"]

LOOK_S: Final = 0.005
"""How often it is looked whether the node listens, while it starts."""


def run_node(options: NodeOptions, config: str | None, *, as_json: bool) -> int:
    """Run the command; the result is its exit code."""
    options = with_file(options, config)
    settings = node_settings(options)
    _check_security(options)
    with _traced(options.trace, settings) as trace:
        return asyncio.run(_serve(settings, trace, as_json=as_json))


def _check_security(options: NodeOptions) -> None:
    if options.tls_ca or options.tls_certificate or options.tls_key or options.permissions:
        raise CommandError("TLS and permissions are not part of this version.", ExitCode.FAILED)


class _Trace:
    """Writes what happens at the node, once its name is known."""

    def __init__(self, stream: Any, settings: NodeSettings) -> None:
        from peersub.trace.writing import TraceWriter

        self.node: LiveNode | None = None
        self._writer = TraceWriter(stream, overlay=settings.overlay, seed=settings.seed)

    def observe(self, now_ms: int, cause: Cause, effects: list[Effect]) -> None:
        from peersub.trace.schema import Step

        assert self.node is not None
        self._writer.observe(Step(now_ms, self.node.name, cause, effects))


@contextmanager
def _traced(name: str | None, settings: NodeSettings) -> Iterator[_Trace | None]:
    if name is None:
        yield None
        return
    try:
        with open(name, "w", encoding="utf-8", errors="backslashreplace") as stream:
            yield _Trace(stream, settings)
    except OSError as error:
        reason = error.strerror or str(error)
        raise FileError(name, f"it cannot be written ({reason})", "Check --trace.") from None


async def _serve(settings: NodeSettings, trace: _Trace | None, *, as_json: bool) -> int:
    from peersub.runtime.client_gate import ClientGate
    from peersub.runtime.client_ports import NetworkName
    from peersub.runtime.live_node import LiveNode

    observer: Observer | None = None if trace is None else trace.observe
    node = LiveNode(settings, observer=observer)
    if trace is not None:
        trace.node = node
    node.on_client_connection = ClientGate(node, NetworkName(settings.overlay, settings.network))
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stopping.set)
    starting = asyncio.create_task(_start(node, as_json=as_json))
    stop = asyncio.create_task(stopping.wait())
    await asyncio.wait((starting, stop), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        with suppress(asyncio.CancelledError):
            await starting
        await node.stop(leave=False)
        return ExitCode.DONE
    try:
        starting.result()
        _tell(node, "member", "takes part", as_json=as_json)
        await stop
        note(f"peersub: node {node.name} leaves")
    finally:
        stop.cancel()
        await node.stop()
    return ExitCode.DONE


async def _start(node: LiveNode, *, as_json: bool) -> None:
    """Start, and say so as soon as the node listens: others may join by it from then on."""
    start = asyncio.create_task(node.start())
    try:
        while not node.name and not start.done():
            await asyncio.sleep(LOOK_S)
        if node.name:
            _tell(node, "listening", "listens", as_json=as_json)
        await start
    finally:
        start.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await start


def _tell(node: LiveNode, event: str, words: str, *, as_json: bool) -> None:
    settings = node.settings
    if as_json:
        about = {"overlay": settings.overlay, "network": settings.network}
        say(json.dumps({event: node.name, **about}))
        sys.stdout.flush()
    note(
        f"peersub: node {node.name} {words} "
        f"(overlay {settings.overlay}, network {settings.network!r})"
    )
