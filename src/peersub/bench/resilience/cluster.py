"""Processes with a node each: started, commanded, killed, stopped, and ended whatever happens."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import peersub

__all__ = ["Cluster", "NodeFailedError", "WorkerProcess", "environment", "free_addresses"]

LINE_BYTES_MAX = 16 * 1_024 * 1_024
PORTS_FROM = 12_000
PORTS = 18_000
CONTACTS = 3
"""Nodes that a joining one is told of."""


def free_addresses(count: int) -> list[str]:
    """Addresses of this machine at which nobody listens just now.

    No system gives their ports to outgoing connections by default: nodes that start soon find them
    free.
    """
    addresses: list[str] = []
    port = PORTS_FROM + os.getpid() * 97 % PORTS
    while len(addresses) < count:
        port = PORTS_FROM + (port + 1) % PORTS
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            addresses.append(f"127.0.0.1:{port}")
    return addresses


class NodeFailedError(RuntimeError):
    """A node did not start: the text is its own."""


class WorkerProcess:
    """One process; what it tells goes to `on_line`."""

    def __init__(self, number: int, process: asyncio.subprocess.Process) -> None:
        self.number = number
        self.name = ""
        self.process = process
        self.is_alive = True
        self.is_stopped = False

    def command(self, **command: Any) -> None:
        """Tell it to do something."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command).encode() + b"\n")

    def signal(self, number: int) -> None:
        """Send it a signal."""
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    def kill(self) -> None:
        """`kill -9`."""
        self.is_alive = False
        self.signal(signal.SIGKILL)

    def stop(self) -> None:
        """SIGSTOP: it lives, and does nothing."""
        self.is_stopped = True
        self.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        self.is_stopped = False
        self.signal(signal.SIGCONT)


def environment() -> dict[str, str]:
    """Workers run the code that started them, wherever it was imported from."""
    source = str(Path(peersub.__file__).parent.parent)
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


OnLine = Callable[[WorkerProcess, dict[str, Any]], None]


class Cluster:
    """Workers of one network.

    Use as an async context manager: at its end every process is gone.
    """

    def __init__(self, on_line: OnLine, settings: dict[str, Any] | None = None) -> None:
        self.workers: list[WorkerProcess] = []
        self._on_line = on_line
        self._settings = settings or {}
        self._readers: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.signal(signal.SIGCONT)
            worker.signal(signal.SIGKILL)
        for worker in self.workers:
            await worker.process.wait()
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    def living(self) -> list[WorkerProcess]:
        """Those that were not killed."""
        return [worker for worker in self.workers if worker.is_alive]

    async def start(
        self, listen: str = "127.0.0.1:0", prefix: Sequence[str] = (), **settings: Any
    ) -> WorkerProcess:
        """One more, which joins by the first living ones; returns when it takes part.

        `prefix` is what the command begins with, to run it elsewhere.
        """
        contacts = [worker.name for worker in self.living() if worker.name][:CONTACTS]
        given = {"listen": listen, "join": contacts, **self._settings, **settings}
        process = await asyncio.create_subprocess_exec(
            *prefix,
            sys.executable,
            "-m",
            "peersub.bench.resilience.worker",
            json.dumps(given),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
            limit=LINE_BYTES_MAX,
        )
        worker = WorkerProcess(len(self.workers), process)
        self.workers.append(worker)
        started = asyncio.get_running_loop().create_future()
        self._readers.append(asyncio.create_task(self._read(worker, started)))
        worker.name = await started
        return worker

    async def _read(self, worker: WorkerProcess, started: asyncio.Future[str]) -> None:
        assert worker.process.stdout is not None
        while raw := await worker.process.stdout.readline():
            line = json.loads(raw)
            if "started" in line:
                started.set_result(line["started"])
            elif "failed" in line:
                worker.is_alive = False
                started.set_exception(NodeFailedError(line["failed"]))
            else:
                self._on_line(worker, line)
        if not started.done():
            worker.is_alive = False
            started.set_exception(NodeFailedError("the node ended before it had started"))
        elif worker.is_alive:
            worker.is_alive = False
            self._on_line(worker, {"died": worker.name})
