"""Clients that make a node hold much: does its memory stay within what it promises?

One story for each bound in bytes. Attackers are connections that write frames and read nothing. A
node with small limits serves them, while events between others go on at a steady rate. Judged are
how much the node's memory grows, against the bound, and the deliveries, by brute force.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from peersub.bench.harness import Say
from peersub.bench.live_network import LiveNetwork
from peersub.bench.process_figures import figures_of
from peersub.bench.resilience.judging import Judgement
from peersub.bench.steady_traffic import SteadyTraffic
from peersub.filters.filter import Filter
from peersub.wire import encode
from peersub.wire.client_messages import (
    BATCHES,
    CLIENT_VERSION,
    Batch,
    ClientHello,
    Publication,
    PublishBatchWanted,
    PublishWanted,
    SubscribeWanted,
)

__all__ = ["STORIES", "MemoryResult", "run_memory_attack"]

_MEGABYTE: Final = 1_024 * 1_024
LIMITS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "queued_bytes_max": 64 * _MEGABYTE,
        "publishing_bytes_max": 64 * _MEGABYTE,
        "client_bytes_max": 24 * _MEGABYTE,
    }
)
MARGIN_BYTES: Final = 64 * _MEGABYTE
"""What a process takes beside what it holds: pieces that the allocator keeps, buffers."""
BODY_BYTES: Final = 16_000_000
CONNECTIONS: Final = 100
WELCOME_BYTES: Final = 4_096
"""More than a welcome has."""
RATE: Final = 100
CALM_S: Final = 2.0
TOLD_S: Final = 1.0
"""Processes tell what came within this time."""


class _Attackers:
    """Connections to a node."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self, count: int, *first: bytes) -> list[asyncio.StreamWriter]:
        """So many more; each says hello and, when it is welcome, the rest."""
        host, _, port = self._node.rpartition(":")
        opened: list[asyncio.StreamWriter] = []
        for _ in range(count):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(encode(ClientHello(CLIENT_VERSION, (BATCHES,))))
            await reader.read(WELCOME_BYTES)
            writer.writelines(first)
            opened.append(writer)
            self._writers.append(writer)
        return opened

    @staticmethod
    async def write(writer: asyncio.StreamWriter, data: bytes) -> None:
        """As much as the node takes."""
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(5):
                writer.write(data)
                await writer.drain()

    def close(self) -> None:
        """End them all."""
        for writer in self._writers:
            writer.transport.abort()


def _published(number: int, attributes: dict[str, Any], body: bytes) -> bytes:
    return encode(PublishWanted(Publication(f"m{number}", attributes, body), number))


def _wanted(text: str, credit: int) -> bytes:
    return encode(SubscribeWanted(1, Filter(text), queue_max=1_000_000, credit=credit))


async def _silent_readers(attackers: _Attackers) -> None:
    """They have granted credit, and read nothing of the largest events."""
    await attackers.open(CONNECTIONS, _wanted("kind = 'large'", 60_000))
    (publisher,) = await attackers.open(1)
    for number in range(3):
        await attackers.write(publisher, _published(number, {"kind": "large"}, bytes(BODY_BYTES)))


async def _without_credit(attackers: _Attackers) -> None:
    """Each wants events of its own, and grants no credit."""
    for number in range(CONNECTIONS):
        await attackers.open(1, _wanted(f"whose = {number}", 0))
    (publisher,) = await attackers.open(1)
    body = bytes(1_000_000)
    for number in range(6 * CONNECTIONS):
        attributes = {"whose": number % CONNECTIONS, "number": number}
        await attackers.write(publisher, _published(number, attributes, body))


async def _incomplete_frames(attackers: _Attackers) -> None:
    """Each begins a frame, and never ends it."""
    frame = _published(1, {}, bytes(BODY_BYTES))[:-10]
    for writer in await attackers.open(CONNECTIONS):
        await attackers.write(writer, frame)


async def _packed_columns(attackers: _Attackers) -> None:
    """Columns that would take some thousand times as much when they are unpacked."""
    import numpy as np
    import pyarrow as pa

    rows = 32
    table = pa.table({"x": pa.array([bytes(12_000_000)] * rows, pa.binary())})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write_table(table)
    packed = sink.getvalue().to_pybytes()
    batch = Batch("b", np.arange(rows, dtype=np.uint32), rows, packed=packed)
    for writer in await attackers.open(CONNECTIONS // 10):
        await attackers.write(writer, encode(PublishBatchWanted(batch, 1)))


STORIES: Final[Mapping[str, tuple[int, Callable[[_Attackers], Coroutine[Any, Any, None]]]]] = (
    MappingProxyType(
        {
            # The bodies once, and for each connection what its socket's buffer holds.
            "silent readers": (3 * BODY_BYTES + CONNECTIONS * 512 * 1_024, _silent_readers),
            "no credit": (2 * LIMITS["queued_bytes_max"], _without_credit),
            "incomplete frames": (2 * LIMITS["publishing_bytes_max"], _incomplete_frames),
            "packed columns": (64 * _MEGABYTE, _packed_columns),
        }
    )
)
"""What the node may hold, and who makes it."""


@dataclass(slots=True)
class MemoryResult:
    """What was seen of one story."""

    bound_bytes: int
    grown_bytes: int = 0
    """At most, above what the node took before."""
    judgement: Judgement = field(default_factory=Judgement)

    @property
    def problems(self) -> list[str]:
        """What is wrong, in words."""
        found = []
        if self.grown_bytes > self.bound_bytes + MARGIN_BYTES:
            found.append(
                f"memory has grown by {self.grown_bytes:,} bytes, beyond its bound of "
                f"{self.bound_bytes:,}"
            )
        if not self.judgement.is_clean or self.judgement.failed:
            found.append(f"deliveries: {self.judgement.as_dict()}")
        return found

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "bound_bytes": self.bound_bytes,
            "grown_bytes": self.grown_bytes,
            "deliveries": self.judgement.as_dict(),
            "problems": self.problems,
        }


@asynccontextmanager
async def _watched(process: int, result: MemoryResult) -> AsyncIterator[None]:
    """Note how much the memory of a process grows meanwhile."""
    before = figures_of(process).resident_kb

    async def watch() -> None:
        while True:
            grown = 1_024 * (figures_of(process).resident_kb - before)
            result.grown_bytes = max(result.grown_bytes, grown)
            await asyncio.sleep(0.02)

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()


async def run_memory_attack(story: str, say: Say) -> MemoryResult:
    """Play one story against a node of a live network, and judge what it made of it."""
    bound_bytes, attack = STORIES[story]
    result = MemoryResult(bound_bytes)
    async with LiveNetwork({"limits": dict(LIMITS), "columns": True}) as network:
        attacked, other = await network.start(), await network.start()
        traffic = SteadyTraffic(network, RATE)
        for worker in (attacked, other):
            await traffic.subscribe(worker)
        await traffic.publish(other, CALM_S)
        attackers = _Attackers(attacked.name)
        async with _watched(attacked.process.pid, result):
            attacking = asyncio.create_task(attack(attackers))
            while not attacking.done():
                await traffic.publish(other, 1.0)
            await attacking
            await traffic.publish(other, 1.0)
        attackers.close()
        await asyncio.sleep(TOLD_S)
        result.judgement = traffic.judge()
    return result
