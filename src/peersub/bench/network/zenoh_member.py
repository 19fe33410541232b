"""Zenoh in the benchmark: peers that connect to the publisher's, without scouting.

One key for all events (range), or one per symbol, of which hosts subscribe to those they need
(sym). Puts wait while a link is congested, so nothing is dropped; Zenoh batches by itself. A host
takes events from bounded channels, in a thread of its own: callbacks were no faster.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Any, Final

import zenoh

from peersub.bench.network.hosted import (
    COLLECT_S,
    HostedFilter,
    free_port,
    packed_table,
    subject_of,
    subjects_of,
)
from peersub.bench.network.members import (
    COLUMNS,
    PUBLISHER,
    Arm,
    Opening,
    PublisherReport,
    Publishing,
)
from peersub.bench.network.tally import HostReport
from peersub.bench.network.workload import generate_events

__all__ = ["ZenohMember"]

CHANNEL_SIZE: Final = 16_384
"""Events of a key that wait for a host; a channel that is full holds back the connection."""
_END_S_MAX: Final = 2.0
"""How long the thread may take to notice; it does not keep the process."""


class ZenohMember:
    """A Zenoh peer, and what it publishes or counts."""

    def __init__(self) -> None:
        self._session: Any = None
        self._opening: Opening | None = None
        self._publishers: dict[str, Any] = {}
        self._keys: list[str] = []
        self._messages: list[bytes] = []
        self._tables: list[Any] = []
        self._attributes: list[dict[str, Any]] = []
        self._channels: list[Any] = []
        self._filter: HostedFilter | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    async def open(self, opening: Opening) -> str:
        """Listen, or connect."""
        address = ""
        self._opening = opening
        config = zenoh.Config()
        settings: dict[str, Any] = {
            "mode": "peer",
            "scouting/multicast/enabled": False,
            "scouting/gossip/enabled": False,
            "listen/endpoints": [],
            # Hosts stand for machines. By default peers of one machine pass large messages, such
            # as packed tables, through shared memory.
            "transport/shared_memory/enabled": False,
        }
        if opening.role == PUBLISHER:
            address = f"tcp/127.0.0.1:{free_port()}"
            settings["listen/endpoints"] = [address]
        else:
            settings["connect/endpoints"] = [opening.contact]
        for name, value in settings.items():
            config.insert_json5(name, json.dumps(value))
        self._session = zenoh.open(config)
        return address

    async def subscribe(self) -> None:
        """Subscribe to the keys that are needed, and begin to take what comes."""
        opening = self._opening
        assert opening is not None
        self._filter = HostedFilter(opening)
        self._channels = [
            self._session.declare_subscriber(key, zenoh.handlers.FifoChannel(CHANNEL_SIZE))
            for key in subjects_of(opening.workload, opening.subscriptions)
        ]
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    # --- publishing ----------------------------------------------------------------------------

    async def prepare(self, publishing: Publishing) -> None:
        """Pack the events."""
        workload = publishing.workload
        events = generate_events(workload, publishing.events)
        if publishing.form == COLUMNS:
            table, rows = events.table(), publishing.batch_rows
            self._messages = []
            self._tables = [table.slice(start, rows) for start in range(0, len(events), rows)]
            self._keys = [subject_of(workload, 0)]
        else:
            self._messages = events.messages(0, len(events))
            self._keys = [subject_of(workload, symbol) for symbol in events.symbols.tolist()]
        if publishing.per_second is not None:
            self._attributes = events.attributes(0, len(events))
        for key in set(self._keys) - set(self._publishers):
            self._publishers[key] = self._session.declare_publisher(
                key, congestion_control=zenoh.CongestionControl.BLOCK
            )

    async def publish(self, publishing: Publishing) -> PublisherReport:
        """Publish what was prepared."""
        begin_ns = time.monotonic_ns()
        late_ns = 0
        if publishing.per_second is not None:
            late_ns = self._publish_by_the_clock(publishing.per_second, begin_ns)
        elif publishing.form == COLUMNS:
            put = self._publishers[self._keys[0]].put
            for table in self._tables:
                put(packed_table(table))
        elif len(set(self._keys)) == 1:
            put = self._publishers[self._keys[0]].put
            for message in self._messages:
                put(message)
        else:
            puts = {key: publisher.put for key, publisher in self._publishers.items()}
            for key, message in zip(self._keys, self._messages, strict=True):
                puts[key](message)
        return PublisherReport(begin_ns, time.monotonic_ns(), late_ns_max=late_ns)

    def _publish_by_the_clock(self, per_second: float, begin_ns: int) -> int:
        import msgspec

        encode, late_ns_max = msgspec.msgpack.Encoder().encode, 0
        for number, (key, event) in enumerate(zip(self._keys, self._attributes, strict=True)):
            due_ns = begin_ns + int(number * 1e9 / per_second)
            while (wait_ns := due_ns - time.monotonic_ns()) > 0:
                time.sleep(wait_ns / 1e9)
            now_ns = time.monotonic_ns()
            late_ns_max = max(late_ns_max, now_ns - due_ns)
            event["time"] = now_ns
            self._publishers[key].put(encode(event))
        return late_ns_max

    # --- receiving -----------------------------------------------------------------------------

    def _drain(self) -> None:
        """Take what comes until the end, in a thread."""
        hosted = self._filter
        assert hosted is not None
        channels = [channel.try_recv for channel in self._channels]
        try:
            while not self._is_closed:
                if hosted.at_once and len(channels) == 1:
                    hosted.take([self._channels[0].recv().payload.to_bytes()])
                    continue
                messages: list[bytes] = []
                for receive in channels:
                    while (sample := receive()) is not None:
                        messages.append(sample.payload.to_bytes())
                if messages:
                    hosted.take(messages)
                else:
                    time.sleep(COLLECT_S)
        except zenoh.ZError:
            return  # the session is closed

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
        """End at once."""
        self._is_closed = True
        if self._session is not None:
            self._session.close()
            self._session = None
        if self._thread is not None:
            self._thread.join(_END_S_MAX)
