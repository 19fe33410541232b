"""The processes of the benchmark: started once, asked over pipes, ended by their id whatever comes.

Each runs an asyncio loop and one `Member` at a time. A process ends when it is told to, or when its
pipe ends because the benchmark itself is gone. Pipes are no part of what is measured on loopback.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Final

from peersub.bench.network.members import Member, Opening, load_member

__all__ = ["Crew", "ProcessFailedError", "Worker", "call_all"]

ANSWER_S_MAX: Final = 180.0
END_S_MAX: Final = 5.0
ASKED_MAX: Final = 16
"""Requests that wait in a process: it is asked one by one."""
_END: Final = "end"


class ProcessFailedError(RuntimeError):
    """A process of the benchmark has failed; the text says how."""


class Worker:
    """One process, seen from the benchmark."""

    def __init__(self, name: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.name = name
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_run, args=(other,), name=name, daemon=True)
        self._process.start()
        other.close()

    @property
    def pid(self) -> int | None:
        """The id of the process."""
        return self._process.pid

    def ask(self, method: str, *arguments: Any) -> None:
        """Ask for something; `answer` has what came of it."""
        self._pipe.send((method, arguments))

    def answer(self, timeout_s: float = ANSWER_S_MAX) -> Any:
        """What came of what was asked.

        Raises:
            ProcessFailedError: it failed, or gave no answer in time.
        """
        try:
            if not self._pipe.poll(timeout_s):
                raise ProcessFailedError(f"{self.name} gave no answer for {timeout_s:g} s")
            is_answer, content = self._pipe.recv()
        except (EOFError, OSError):
            code = self._process.exitcode
            raise ProcessFailedError(f"{self.name} has ended, exit code {code}") from None
        if not is_answer:
            raise ProcessFailedError(f"{self.name}: {content}")
        return content

    def call(self, method: str, *arguments: Any) -> Any:
        """Ask, and wait for the answer. Raises what `answer` does."""
        self.ask(method, *arguments)
        return self.answer()

    def tell_end(self) -> None:
        """Ask it to end."""
        with suppress(OSError, ValueError):
            self._pipe.send((_END, ()))

    def end(self) -> None:
        """See to it that it has ended."""
        self._process.join(END_S_MAX)
        for stop in (self._process.terminate, self._process.kill):
            if self._process.is_alive():
                stop()
                self._process.join(END_S_MAX)
        self._pipe.close()


class Crew:
    """All processes of a run; a context manager that leaves none behind."""

    def __init__(self, *, hosts: int, relays: int) -> None:
        self.publisher: Worker
        self.relays: list[Worker] = []
        self.hosts: list[Worker] = []
        self._counts = (hosts, relays)
        self._all: list[Worker] = []

    def __enter__(self) -> Crew:
        hosts, relays = self._counts
        load_kernels()  # compiled once, and kept on disk for the processes
        try:
            self.publisher = self._start("publisher")
            self.relays = [self._start(f"relay {number}") for number in range(relays)]
            self.hosts = [self._start(f"host {number}") for number in range(hosts)]
            for worker in self._all:
                worker.answer()
        except BaseException:
            self._end()
            raise
        return self

    def _start(self, name: str) -> Worker:
        worker = Worker(name)
        self._all.append(worker)
        return worker

    @property
    def pids(self) -> list[int]:
        """The ids of all processes."""
        return [worker.pid for worker in self._all if worker.pid is not None]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        for worker in self._all:
            worker.tell_end()
        for worker in self._all:
            worker.end()


def call_all(workers: Iterable[Worker], method: str, arguments: Sequence[Any] = ()) -> list[Any]:
    """Ask all, each with its own argument if there are any, then wait for all answers."""
    asked = list(workers)
    for place, worker in enumerate(asked):
        worker.ask(method, *([arguments[place]] if arguments else []))
    return [worker.answer() for worker in asked]


# --- inside of a process -----------------------------------------------------------------------


def _run(pipe: Connection) -> None:
    """What a process does."""
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(pipe))
    # Threads of foreign libraries must not keep it.
    os._exit(0)


async def _serve(pipe: Connection) -> None:
    loop = asyncio.get_running_loop()
    asked: asyncio.Queue[tuple[str, tuple[Any, ...]]] = asyncio.Queue(ASKED_MAX)

    def read() -> None:
        try:
            asked.put_nowait(pipe.recv())
        except (EOFError, OSError):
            loop.remove_reader(pipe.fileno())
            asked.put_nowait((_END, ()))

    loop.add_reader(pipe.fileno(), read)
    process = _Process()
    load_kernels()
    pipe.send((True, None))
    while True:
        method, arguments = await asked.get()
        if method == _END:
            with suppress(Exception):
                await process.close()
            return
        try:
            answer = (True, await getattr(process, method)(*arguments))
        except Exception:
            answer = (False, traceback.format_exc())
        with suppress(OSError):
            pipe.send(answer)


def load_kernels() -> None:
    """Load what matching needs, before anybody waits for this process."""
    import pyarrow as pa

    from peersub.filters import Filter
    from peersub.matching.filter_batches import FilterBatches

    filters = FilterBatches()
    filters.use([Filter("symbol = 'S0001' AND price >= 1.5"), Filter("price < 2.5")])
    filters.match(pa.table({"symbol": ["S0001"], "price": [2.0], "number": [1]}))


class _Process:
    """The member of this process, by what it is asked."""

    def __init__(self) -> None:
        self._member: Member | None = None

    async def open(self, system: str, opening: Opening) -> str:
        """Become a member of a system, and of no other any more."""
        await self.close()
        self._member = load_member(system)
        return await self._member.open(opening)

    async def cpu_ns(self) -> int:
        """What this process has used of the processors, all threads together."""
        return time.process_time_ns()

    async def close(self) -> None:
        """Be a member of nothing."""
        member, self._member = self._member, None
        if member is not None:
            await member.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._member, name)
