"""NATS in the benchmark: one `nats-server`, and a client of it in each process.

The publisher's process runs the server. One subject for all events (range), or one per symbol, of
which hosts subscribe to those they need (sym). A server drops what a slow client does not take in
time: its bound is raised, so that none is lost here.

Where events are to be on a disk, they are published to a stream of JetStream in a file, with
`sync_interval: always`: its acknowledgement comes after fsync. As many publications are under way
as for peersub. Each host has a durable consumer, from which it pulls; it acknowledges what it took.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import msgspec
import nats
from nats.js.api import AckPolicy, ConsumerConfig, StorageType

from peersub.bench.network.hosted import (
    COLLECT_S,
    HostedFilter,
    free_port,
    subject_of,
    subjects_of,
)
from peersub.bench.network.live_member import GROUP, UNCONFIRMED_MAX
from peersub.bench.network.members import (
    PUBLISHER,
    Arm,
    Opening,
    PublisherReport,
    Publishing,
    nats_server,
)
from peersub.bench.network.tally import HostReport
from peersub.bench.network.workload import generate_events

__all__ = ["NatsMember"]

SERVER_PENDING_BYTES: Final = 1 << 30
COLLECTED_MAX: Final = 1 << 20
"""Events that wait for a host's filter."""
PUBLISHED_AT_ONCE: Final = 512
"""Events after which the client is given a turn to write."""
STREAM: Final = "bench"
UNDER_WAY_MAX: Final = UNCONFIRMED_MAX * GROUP
"""Publications that the stream has not acknowledged."""
PULLED_AT_ONCE: Final = 512
_START_S_MAX: Final = 10.0


class NatsMember:
    """A client of the server, and what it publishes or counts."""

    def __init__(self) -> None:
        self._server: asyncio.subprocess.Process | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._client: Any = None
        self._stream: Any = None
        self._opening: Opening | None = None
        self._subjects: list[str] = []
        self._messages: list[bytes] = []
        self._attributes: list[dict[str, Any]] = []
        self._filter: HostedFilter | None = None
        self._collected: list[bytes] = []
        self._drainer: asyncio.Task[None] | None = None

    async def open(self, opening: Opening) -> str:
        """Start the server, if this is the publisher; connect."""
        address = opening.contact
        self._opening = opening
        if opening.role == PUBLISHER:
            address = await self._start_server(is_durable=bool(opening.copies))
        self._client = await nats.connect(
            address, allow_reconnect=False, pending_size=64 * 1024 * 1024
        )
        if opening.copies:
            self._stream = self._client.jetstream(publish_async_max_pending=UNDER_WAY_MAX)
            if opening.role == PUBLISHER:
                await self._stream.add_stream(
                    name=STREAM, subjects=["bench.>"], storage=StorageType.FILE
                )
        return address

    async def subscribe(self) -> None:
        """Subscribe to the subjects that are needed, and begin to take what comes."""
        opening = self._opening
        assert opening is not None
        self._filter = HostedFilter(opening)
        subjects = subjects_of(opening.workload, opening.subscriptions)
        if self._stream is not None:
            name = opening.subscriptions[0].name
            consumer = await self._stream.pull_subscribe(
                "",
                durable=name,
                stream=STREAM,
                config=ConsumerConfig(
                    ack_policy=AckPolicy.ALL,
                    filter_subjects=[subject.replace("/", ".") for subject in subjects],
                    max_ack_pending=COLLECTED_MAX,
                ),
            )
            loop = asyncio.get_running_loop()
            self._drainer = loop.create_task(self._pull(consumer, self._filter))
            return
        for subject in subjects:
            await self._client.subscribe(
                subject.replace("/", "."),
                cb=self._on_message,
                pending_msgs_limit=COLLECTED_MAX,
                pending_bytes_limit=SERVER_PENDING_BYTES,
            )
        # The server has taken the subscriptions when it answers what was asked after them.
        await self._client.flush()
        self._drainer = asyncio.get_running_loop().create_task(self._drain(self._filter))

    async def _pull(self, consumer: Any, hosted: HostedFilter) -> None:
        while True:
            try:
                messages = await consumer.fetch(PULLED_AT_ONCE, timeout=1)
            except TimeoutError:
                continue
            hosted.take([message.data for message in messages])
            await messages[-1].ack()

    async def _start_server(self, *, is_durable: bool) -> str:
        path = nats_server()
        if path is None:
            raise RuntimeError("there is no nats-server")
        port = free_port()
        self._folder = tempfile.TemporaryDirectory(prefix="peersub-bench-")
        config = Path(self._folder.name) / "server.conf"
        config.write_text(
            f'listen: "127.0.0.1:{port}"\n'
            f"max_pending: {SERVER_PENDING_BYTES}\n"
            'write_deadline: "60s"\n'
            + (
                f'jetstream {{ store_dir: "{self._folder.name}", sync_interval: always }}\n'
                if is_durable
                else ""
            )
        )
        self._server = await asyncio.create_subprocess_exec(
            *(path, "-c", str(config)),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(_START_S_MAX):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(0.02)
                    continue
                writer.close()
                return f"nats://127.0.0.1:{port}"

    # --- publishing ----------------------------------------------------------------------------

    async def prepare(self, publishing: Publishing) -> None:
        """Pack the events."""
        workload = publishing.workload
        events = generate_events(workload, publishing.events)
        self._messages = events.messages(0, len(events))
        self._subjects = [
            subject_of(workload, symbol).replace("/", ".") for symbol in events.symbols.tolist()
        ]
        if publishing.per_second is not None:
            self._attributes = events.attributes(0, len(events))

    async def publish(self, publishing: Publishing) -> PublisherReport:
        """Publish what was prepared."""
        begin_ns = time.monotonic_ns()
        late_ns, publish = 0, self._client.publish
        if publishing.per_second is not None:
            late_ns = await self._publish_by_the_clock(publishing.per_second, begin_ns)
        elif self._stream is not None:
            for subject, message in zip(self._subjects, self._messages, strict=True):
                await self._stream.publish_async(subject, message)
            await self._stream.publish_async_completed()
        else:
            pairs = zip(self._subjects, self._messages, strict=True)
            for number, (subject, message) in enumerate(pairs, 1):
                await publish(subject, message)
                if not number % PUBLISHED_AT_ONCE:
                    await asyncio.sleep(0)
        await self._client.flush()
        return PublisherReport(begin_ns, time.monotonic_ns(), late_ns_max=late_ns)

    async def _publish_by_the_clock(self, per_second: float, begin_ns: int) -> int:
        encode, late_ns_max = msgspec.msgpack.Encoder().encode, 0
        for number, (subject, event) in enumerate(
            zip(self._subjects, self._attributes, strict=True)
        ):
            due_ns = begin_ns + int(number * 1e9 / per_second)
            while (wait_ns := due_ns - time.monotonic_ns()) > 0:
                await asyncio.sleep(wait_ns / 1e9)
            now_ns = time.monotonic_ns()
            late_ns_max = max(late_ns_max, now_ns - due_ns)
            event["time"] = now_ns
            await self._client.publish(subject, encode(event))
        return late_ns_max

    # --- receiving -----------------------------------------------------------------------------

    async def _on_message(self, message: Any) -> None:
        assert self._filter is not None
        if self._filter.at_once:
            self._filter.take([message.data])
        else:
            while len(self._collected) >= COLLECTED_MAX:
                await asyncio.sleep(COLLECT_S)
            self._collected.append(message.data)

    async def _drain(self, hosted: HostedFilter) -> None:
        while True:
            await asyncio.sleep(COLLECT_S)
            messages, self._collected = self._collected, []
            hosted.take(messages)

    async def arm(self, arm: Arm) -> None:
        """A trial begins."""
        assert self._filter is not None
        self._filter.arm(arm)

    async def complete(self, timeout_s: float) -> bool:
        """Wait for what is expected."""
        assert self._filter is not None
        return await self._filter.complete(timeout_s)

    async def report(self) -> HostReport:
        """What came."""
        assert self._filter is not None
        return self._filter.report()

    async def bytes_out(self) -> int | None:
        """It does not say."""
        return None

    async def counters(self) -> dict[str, int]:
        """Nothing."""
        return {}

    async def close(self) -> None:
        """End at once, the server too."""
        if self._drainer is not None:
            self._drainer.cancel()
        if self._client is not None:
            await self._client.close()
            self._client = None
        if self._server is not None:
            self._server.terminate()
            await self._server.wait()
            self._server = None
        if self._folder is not None:
            self._folder.cleanup()
