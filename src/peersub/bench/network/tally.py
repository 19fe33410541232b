"""What a host counts: per subscriber, the events that came and the sum of their hashes."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import numpy as np

from peersub.bench.network.workload import hash_of_one

__all__ = ["HostReport", "Tally"]


@dataclass(frozen=True, slots=True)
class HostReport:
    """What a host saw of a run."""

    counts: np.ndarray
    """int64 per subscriber of the host."""
    checksums: np.ndarray
    complete_ns: int
    """When the last delivery that was expected came, by the machine's monotonic clock; 0: never."""
    latencies_ns: np.ndarray
    """From publisher to subscriber, per delivery, where that was asked for."""
    hops_min: int
    hops_max: int


class Tally:
    """Counts deliveries of one run at one host, in arrays.

    Args:
        subscribers: of this host, known by their place among them.
        expected: deliveries in all; when they have come, the host is `complete`.
        keep_latencies: whether to look at the time that each event carries.
        lose_one: a fault that is planted: one delivery is not counted.
    """

    def __init__(
        self,
        subscribers: int,
        *,
        expected: int,
        keep_latencies: bool = False,
        lose_one: bool = False,
    ) -> None:
        self.complete = asyncio.Event()
        self._counts = [0] * subscribers
        self._checksums = [0] * subscribers
        self._expected = expected
        self._received = 0
        self._complete_ns = 0
        self.keep_latencies = keep_latencies
        self._latencies: list[int] = []
        self._lose_one = lose_one
        self._hops = (0, 0)
        self._loop = asyncio.get_running_loop()
        if not expected:
            self._end()

    @property
    def missing(self) -> int:
        """How many deliveries have not come yet of those that are expected."""
        return self._expected - self._received

    def add_one(self, subscriber: int, number: int, hops: int = 1) -> None:
        """One event for one subscriber."""
        if self._lose_one:
            self._lose_one = False
            return
        self._counts[subscriber] += 1
        self._checksums[subscriber] += hash_of_one(number)
        self._saw(1, hops)

    def add_pairs(self, subscribers: np.ndarray, hashes: np.ndarray, hops: int = 1) -> None:
        """Events and subscribers, place by place."""
        if self._lose_one and len(hashes):
            subscribers, hashes, self._lose_one = subscribers[1:], hashes[1:], False
        size = len(self._counts)
        counts = np.bincount(subscribers, minlength=size)
        # Sums of fewer than 2^21 hashes of 32 bits are exact in a float.
        sums = np.bincount(subscribers, weights=hashes, minlength=size)
        self._counts = (counts + self._counts).tolist()
        self._checksums = (sums.astype(np.int64) + self._checksums).tolist()
        self._saw(len(hashes), hops)

    def add_latency(self, sent_ns: int) -> None:
        """A delivery, just now, of an event that was sent at this time."""
        self._latencies.append(time.monotonic_ns() - sent_ns)

    def _saw(self, count: int, hops: int) -> None:
        low, high = self._hops
        self._hops = (min(low, hops) if low else hops, max(high, hops))
        self._received += count
        if not self._complete_ns and self._received >= self._expected:
            self._end()

    def _end(self) -> None:
        self._complete_ns = time.monotonic_ns()
        # Zenoh's threads come by here too.
        self._loop.call_soon_threadsafe(self.complete.set)

    def report(self) -> HostReport:
        """What was seen so far."""
        latencies = np.array(self._latencies, np.int64)
        return HostReport(
            np.array(self._counts, np.int64),
            np.array(self._checksums, np.int64),
            self._complete_ns,
            latencies,
            *self._hops,
        )
