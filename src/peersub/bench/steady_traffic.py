"""Events at a steady rate over a live network, and what became of them under attack."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from peersub.bench.harness import percentiles
from peersub.bench.live_network import LiveNetwork
from peersub.bench.resilience.cluster import WorkerProcess
from peersub.bench.resilience.judging import Judgement, Notes
from peersub.bench.resilience.worker import now_ms

__all__ = ["SteadyTraffic"]

SYMBOLS: Final = 10


class SteadyTraffic:
    """Publishes to subscribers on some nodes, and judges deliveries by brute force.

    Attributes:
        wishes: per subscription, its symbol; a subscription of worker N begins with `wN-`.
        published: how many events.
    """

    def __init__(self, network: LiveNetwork, rate: int) -> None:
        self.wishes: dict[str, str] = {}
        self.published = 0
        self._network = network
        self._rate = rate
        self._notes = Notes(SYMBOLS)

    async def subscribe(self, worker: WorkerProcess) -> None:
        """Half of the symbols are wanted on the worker's node."""
        names = [f"w{worker.number}-{number}" for number in range(SYMBOLS // 2)]
        for number, name in enumerate(names):
            self.wishes[name] = f"s{(worker.number + number) % SYMBOLS}"
            self._notes.subscribed(name, self.wishes[name])
        wishes = {name: {"filter": f"symbol = '{self.wishes[name]}'"} for name in names}
        await self._network.subscribe(worker, wishes)
        for name in names:
            self._notes.ready(name, now_ms())

    async def publish(self, publisher: WorkerProcess, seconds: float) -> range:
        """Publish at the rate for so long, wait until all has ended, and return the numbers."""
        count = max(1, int(self._rate * seconds))
        first, self.published = self.published, self.published + count
        publisher.command(
            do="publish", rate=self._rate, first=first, count=count, symbols=SYMBOLS, prefix="e-"
        )
        ended = self._network.ended
        ids = [f"e-{number}" for number in range(first, first + count)]
        await self._network.until(lambda: all(each in ended for each in ids), "publications end")
        return range(first, first + count)

    def latencies(self, names: Iterable[str], events: Sequence[range]) -> dict[str, float]:
        """Of deliveries to these subscriptions, of events with such numbers."""
        begun, wanted = self._network.begun_ms, set(names)
        return percentiles(
            (
                at_ms - begun[event]
                for (name, event), at_ms in self._network.arrivals_ms.items()
                if name in wanted and any(int(event.rpartition("-")[2]) in each for each in events)
            ),
            p50=0.5,
            p99=0.99,
        )

    def judge(self) -> Judgement:
        """What was delivered, against what should have been."""
        network, notes = self._network, self._notes
        for event, begun_ms in network.begun_ms.items():
            notes.ended(event, begun_ms, begun_ms, network.ended[event])
        for name, events in network.got.items():
            for event, times in events.items():
                for _ in range(times):
                    notes.got(name, event, network.arrivals_ms[name, event])
        return notes.judge()
