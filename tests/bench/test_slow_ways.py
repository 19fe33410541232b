"""Proxies that are slow: what goes in comes out, in order, and some of it stalls."""

import asyncio
import random

from peersub.bench.resilience.slow_ways import SEGMENT_BYTES, TIMEOUT_MS, SlowWays, stall_s
from peersub.runtime.addresses import split_address


def test_one_segment_in_a_hundred_stalls_for_a_time_out_or_more() -> None:
    drawn = random.Random(1)
    stalls = [stall_s(SEGMENT_BYTES, drawn) for _ in range(20_000)]
    lost = [each for each in stalls if each]
    assert 150 < len(lost) < 250
    assert min(lost) == TIMEOUT_MS / 1_000
    assert max(lost) >= 3 * TIMEOUT_MS / 1_000  # Lost twice.
    assert stall_s(10_000 * SEGMENT_BYTES, drawn) > 20


def test_bytes_come_in_order_and_a_closed_end_closes_the_other() -> None:
    sent = random.Random(2).randbytes(300_000)
    heard: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while sum(map(len, heard)) < len(sent):
            heard.append(await reader.read(4_096))
        writer.write(b"all of it")
        await writer.drain()
        writer.close()

    async def run() -> None:
        async with SlowWays(seed=9) as ways:
            proxy = await ways.open()
            server = await asyncio.start_server(answer, *split_address(ways.listen_of(proxy)))
            async with server:
                reader, writer = await asyncio.open_connection(*split_address(proxy))
                for start in range(0, len(sent), 50_000):
                    writer.write(sent[start : start + 50_000])
                    await writer.drain()
                assert await reader.read() == b"all of it"
                writer.close()

    asyncio.run(run())
    assert b"".join(heard) == sent


def test_a_node_that_is_not_there_ends_the_connection() -> None:
    async def run() -> bytes:
        async with SlowWays(seed=1) as ways:
            reader, writer = await asyncio.open_connection(*split_address(await ways.open()))
            ended = await reader.read()
            writer.close()
            return ended

    assert asyncio.run(run()) == b""
