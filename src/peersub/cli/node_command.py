"""`peersub node`: run a node until it is told to leave (SIGTERM, SIGINT).

SIGHUP makes it read its certificate and the permissions again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from peersub.cli.failures import CommandError, ExitCode
from peersub.cli.light_client import tls_settings
from peersub.cli.node_logging import set_up_logging
from peersub.cli.node_options import NodeOptions, node_settings, with_file
from peersub.cli.output import say
from peersub.files.errors import FileError, one_line

if TYPE_CHECKING:
    from peersub.overlays.core.causes import Cause
    from peersub.overlays.core.effects import Effect
    from peersub.runtime.client_gate import ClientGate
    from peersub.runtime.live_node import LiveNode
    from peersub.runtime.settings import NodeSettings

__all__ = ["run_node"]

_log = logging.getLogger(__name__)

LOOK_S: Final = 0.005
"""How often it is looked whether the node listens, while it starts."""


def run_node(options: NodeOptions, config: str | None, *, as_json: bool) -> int:
    """Run the command; the result is its exit code."""
    from peersub.runtime.collecting import keep_waits_short
    from peersub.runtime.serving import served_node

    options = with_file(options, config)
    set_up_logging(options.log_level or "info", options.log_format or "text")
    settings = node_settings(options)
    tls = tls_settings(options.tls, options.tls_key, options.tls_ca)
    if options.permissions is not None and tls is None:
        raise CommandError("--permissions go by the names in certificates. Give --tls as well.")
    with _traced(options.trace, settings) as trace:
        observer = None if trace is None else trace.observe
        permissions = None if options.permissions is None else Path(options.permissions)
        insecure = bool(options.insecure)
        node, gate = served_node(settings, tls, permissions, observer, insecure=insecure)
        if trace is not None:
            trace.node = node
        with keep_waits_short():
            return asyncio.run(_serve(node, gate, as_json=as_json))


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


async def _serve(node: LiveNode, gate: ClientGate, *, as_json: bool) -> int:
    from peersub.runtime.serving import reload_files

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    reloads: set[asyncio.Task[None]] = set()

    def reload() -> None:
        task = loop.create_task(reload_files(node, gate))
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    loop.add_signal_handler(signal.SIGHUP, reload)
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
        for notice in node.notices:
            _log.info("%s", one_line(notice))
        _tell(node, "member", "takes part", as_json=as_json)
        await stop
        _log.info("node %s leaves", node.name)
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
        said = {"overlay": settings.overlay, "network": settings.network}
        say(json.dumps({event: node.name, **said}))
        sys.stdout.flush()
    about = f"(overlay {settings.overlay}, network {settings.network!r})"
    _log.info("node %s %s %s", node.name, words, about)
