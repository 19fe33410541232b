"""A host of a system that knows subjects only: it gets events whole, and filters by itself.

It is the toughest baseline that is fair. What has come is collected and matched in batches, by this
project's compiled index. Of a MessagePack message only the attributes that filters ask for and the
number are unpacked; the publisher's messages are packed before the clock starts.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from peersub.bench.network.members import COLUMNS, Arm, Opening
from peersub.bench.network.tally import HostReport, Tally
from peersub.bench.network.workload import Subscription, Workload, hash_of, symbol_name
from peersub.filters import Filter
from peersub.matching.filter_batches import FilterBatches
from peersub.matching.matcher import Matcher

__all__ = ["COLLECT_S", "HostedFilter", "free_port", "packed_table", "subject_of", "subjects_of"]

COLLECT_S: Final = 0.002
"""How long a host lets events come together when it has matched all that had come."""
MATCHED_AT_ONCE_MAX: Final = 4_096
_EVERYTHING: Final = "bench/all"


class _Priced(msgspec.Struct, gc=False):
    """What of an event a price filter needs."""

    price: float
    number: int
    time: int


class _Named(msgspec.Struct, gc=False):
    """What of an event a filter on symbol and price needs."""

    symbol: str
    price: float
    number: int
    time: int


def subject_of(workload: Workload, symbol: int) -> str:
    """Under which subject an event travels, with `/` between its levels."""
    return f"bench/{symbol_name(symbol)}" if workload.kind == "sym" else _EVERYTHING


def subjects_of(workload: Workload, subscriptions: Sequence[Subscription]) -> list[str]:
    """The subjects that a host needs."""
    symbols = (wish.symbol or 0 for wish in subscriptions)
    return sorted({subject_of(workload, symbol) for symbol in symbols})


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def packed_table(table: pa.Table) -> bytes:
    """A table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


class HostedFilter:
    """Filters what comes, and counts."""

    def __init__(self, opening: Opening) -> None:
        self._subscriptions = opening.subscriptions
        self._is_columns = opening.form == COLUMNS
        self._needs_symbol = opening.workload.kind == "sym"
        kind: Any = _Named if self._needs_symbol else _Priced
        self._decode = msgspec.msgpack.Decoder(kind).decode
        filters = [Filter(wish.text) for wish in opening.subscriptions]
        self._filters = FilterBatches()
        # No two are equal: the number of a filter is the place of its subscriber.
        self._filters.use(filters)
        self._matcher = Matcher()
        for place, wanted in enumerate(filters):
            self._matcher.add(str(place), wanted)
        self._tally: Tally | None = None

    @property
    def at_once(self) -> bool:
        """Whether each event is to be looked at when it comes: latency counts, not throughput."""
        return self._tally is not None and self._tally.keep_latencies

    def arm(self, arm: Arm) -> None:
        """A trial begins."""
        self._tally = Tally(
            len(self._subscriptions),
            expected=arm.expected,
            keep_latencies=arm.keep_latencies,
            lose_one=arm.lose_one,
        )

    def take(self, messages: Sequence[bytes]) -> None:
        """Messages that have come."""
        if self._tally is None or not messages:
            return
        if self.at_once:
            for message in messages:
                self._take_one(self._tally, message)
        elif self._is_columns:
            for message in messages:
                with pa.ipc.open_stream(pa.py_buffer(message)) as stream:
                    self._match(self._tally, stream.read_all())
        else:
            for start in range(0, len(messages), MATCHED_AT_ONCE_MAX):
                part = messages[start : start + MATCHED_AT_ONCE_MAX]
                self._match(self._tally, self._table([self._decode(each) for each in part]))

    def _take_one(self, tally: Tally, message: bytes) -> None:
        event = self._decode(message)
        attributes: dict[str, Any] = {"price": event.price}
        if self._needs_symbol:
            attributes["symbol"] = event.symbol
        for place in self._matcher.match(attributes):
            tally.add_latency(event.time)
            tally.add_one(int(place), event.number)

    def _table(self, events: list[Any]) -> pa.Table:
        count = len(events)
        columns: dict[str, Any] = {
            "price": np.fromiter((event.price for event in events), np.float64, count),
            "number": np.fromiter((event.number for event in events), np.int64, count),
        }
        if self._needs_symbol:
            columns["symbol"] = pa.array([event.symbol for event in events], pa.string())
        return pa.table(columns)

    def _match(self, tally: Tally, table: pa.Table) -> None:
        wanted = self._filters.match(table)
        if len(wanted.rows):
            hashes = hash_of(table["number"].to_numpy())
            tally.add_pairs(wanted.filters, hashes[wanted.rows])

    async def complete(self, timeout_s: float) -> bool:
        """Wait for what is expected."""
        assert self._tally is not None
        try:
            async with asyncio.timeout(timeout_s):
                await self._tally.complete.wait()
        except TimeoutError:
            return False
        return True

    def report(self) -> HostReport:
        """What came."""
        assert self._tally is not None
        return self._tally.report()
