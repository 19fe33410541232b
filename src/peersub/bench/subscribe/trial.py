"""One network: clients of one node subscribe, more each time, while others exchange events.

Per number of subscriptions: calm, in which the events between others are measured; then the clients
subscribe, and the same events go on; then sampled events are checked by brute force; then the
process with the clients is killed, and all that they had asked for has to go, while the same events
go on.

Where latency is judged, the clients and their node have a core to themselves, calm or not; the
other nodes and who measures are on the second. So what the clients take of a processor, which in a
real network is another machine's, holds up nobody.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from peersub.bench.harness import Say, percentiles, run_on_second_core
from peersub.bench.live_network import LiveNetwork
from peersub.bench.process_figures import ProcessFigures, figures_of
from peersub.bench.resilience.cluster import WorkerProcess, environment
from peersub.bench.resilience.worker import now_ms

__all__ = ["Point", "SubscribeResult", "SubscribeSettings", "run_subscribe"]

SYMBOLS: Final = 5
PUBLISH_S: Final = 0.5
"""Events between others are published for so long at a time."""
CHECKED_EVENTS: Final = 20
CPU_RATIO_MAX: Final = 2.0
"""CPU per subscription where there are most, against where there are fewest."""
LATENCY_RATIO_MAX: Final = 2.0
"""The slowest hundredth of the events between others while clients subscribe, against calm."""
LATENCY_EVENTS_MIN: Final = 500
"""Fewer events have no slowest hundredth to speak of."""
JUDGED_NODES_MAX: Final = 4
"""Nodes up to which latency is judged: more processes than that wait for the processors anyway."""
LARGE: Final = 1_000_000
"""Distinct filters for which the need is extrapolated."""
WITHOUT_PROGRESS_S: Final = 60.0
"""How long no row of clients that are gone may go, while some are left."""
CONTROL_ROWS: Final = 8
"""Rows of a table that may have come with the ring itself meanwhile."""


@dataclass(frozen=True, slots=True)
class SubscribeSettings:
    """How many of what."""

    sizes: tuple[int, ...] = (1_000, 10_000, 100_000)
    clients: int = 1
    nodes: int = 3
    rate: int = 100
    """Events per second between others."""
    calm_s: float = 10.0
    seed: int = 1


@dataclass(slots=True)
class Point:
    """What so many subscriptions took."""

    subscriptions: int
    ready_s: float = 0.0
    cpu_us: float = 0.0
    """Of all nodes, per subscription, without what the events between others take."""
    client_cpu_us: float = 0.0
    messages: float = 0.0
    """Between nodes, per subscription."""
    bytes_per_row: float = 0.0
    """Memory of a node, per subscription; each node has a row for each."""
    ended_s: float = 0.0
    ended_cpu_us: float = 0.0
    calm_ms: dict[str, float] = field(default_factory=dict)
    meanwhile_ms: dict[str, float] = field(default_factory=dict)
    ending_ms: dict[str, float] = field(default_factory=dict)
    """Of events between others while what the clients had asked for went."""
    events: int = 0
    ending_events: int = 0
    failed: int = 0
    """Events between others that were not acknowledged."""
    check: dict[str, int] = field(default_factory=dict)
    gaps: int = 0

    @property
    def latency_ratio(self) -> float:
        """The slowest hundredth while clients subscribe, against calm."""
        calm = self.calm_ms.get("p99", 0.0)
        return self.meanwhile_ms.get("p99", 0.0) / calm if calm else 0.0

    @property
    def ending_ratio(self) -> float:
        """The same while subscriptions end."""
        calm = self.calm_ms.get("p99", 0.0)
        return self.ending_ms.get("p99", 0.0) / calm if calm else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        shown = {name: getattr(self, name) for name in Point.__slots__}
        rounded = {n: round(v, 4) if isinstance(v, float) else v for n, v in shown.items()}
        ratios = {name: round(getattr(self, name), 2) for name in ("latency_ratio", "ending_ratio")}
        return {**rounded, **ratios}


@dataclass(slots=True)
class SubscribeResult:
    """What a network showed."""

    nodes: int
    clients: int
    points: list[Point] = field(default_factory=list)
    is_pinned: bool = False
    """Whether the clients and their node had a core to themselves."""

    @property
    def cpu_ratio(self) -> float:
        """CPU per subscription where there are most, against where there are fewest."""
        first, last = self.points[0].cpu_us, self.points[-1].cpu_us
        return last / first if len(self.points) > 1 and first else 0.0

    @property
    def extrapolated(self) -> dict[str, float]:
        """What `LARGE` distinct filters would need, by the largest number that was measured."""
        last = self.points[-1]
        return {
            "filters": LARGE,
            "gigabytes_per_node": round(last.bytes_per_row * LARGE / 1e9, 1),
            "cpu_s_of_all_nodes": round(last.cpu_us * LARGE / 1e6),
            "ready_s": round(last.ready_s * LARGE / last.subscriptions),
        }

    @property
    def problems(self) -> list[str]:
        """What is wrong, in words."""
        found = []
        if self.cpu_ratio > CPU_RATIO_MAX:
            few, many = self.points[0].subscriptions, self.points[-1].subscriptions
            found.append(
                f"a subscription takes {self.cpu_ratio:.1f} times as much CPU of {many:,} as of "
                f"{few:,}"
            )
        for point in self.points:
            named = f"{point.subscriptions:,} subscriptions"
            phases = (
                ("", point.events, point.latency_ratio),
                (" while they end", point.ending_events, point.ending_ratio),
            )
            for when, events, ratio in phases:
                is_judged = self.nodes <= JUDGED_NODES_MAX and events >= LATENCY_EVENTS_MIN
                if is_judged and ratio > LATENCY_RATIO_MAX:
                    found.append(
                        f"{named}: p99 of events between others{when} is {ratio:.1f} times what it "
                        "is without"
                    )
            if point.failed:
                found.append(f"{named}: {point.failed} events between others failed")
            if point.check.get("missed") or point.check.get("too_many"):
                found.append(f"{named}: deliveries {point.check}")
            if point.gaps:
                found.append(f"{named}: clients lost their connection, and began again")
        return found

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "nodes": self.nodes,
            "clients": self.clients,
            "is_pinned": self.is_pinned,
            "points": [point.as_dict() for point in self.points],
            "cpu_ratio": round(self.cpu_ratio, 2),
            "extrapolated": self.extrapolated,
        }


class _ClientProcess:
    """The process with the clients."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(
        cls, node: str, settings: SubscribeSettings, prefix: Sequence[str]
    ) -> _ClientProcess:
        given = {"node": node, "clients": settings.clients, "seed": settings.seed}
        process = await asyncio.create_subprocess_exec(
            *(*prefix, sys.executable, "-m", "peersub.bench.subscribe.client", json.dumps(given)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
        )
        return cls(process)

    async def ask(self, **command: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        answer: dict[str, Any] = json.loads(await self._process.stdout.readline() or b"{}")
        if not answer or "failed" in answer:
            raise RuntimeError(f"{command['do']}: {answer.get('failed', 'the clients ended')}")
        return answer

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


class _Trial:
    def __init__(self, settings: SubscribeSettings, prefix: Sequence[str], say: Say) -> None:
        self.settings = settings
        self.prefix = prefix
        self.say = say
        self.network = LiveNetwork({"overlay": "chord", "columns": True})
        self.result = SubscribeResult(settings.nodes, settings.clients, is_pinned=bool(prefix))
        self.workers: Sequence[WorkerProcess] = ()
        self.published = 0
        self._cpu_rate = 0.0
        self._message_rate = 0.0

    async def run(self) -> SubscribeResult:
        settings = self.settings
        async with self.network as network:
            home = await network.start(prefix=self.prefix)
            others = [await network.start() for _ in range(settings.nodes - 1)]
            self.workers = [home, *others]
            self.say(f"{settings.nodes} nodes")
            wishes = {f"w{n}": {"filter": f"symbol = 's{n}'"} for n in range(SYMBOLS)}
            await network.subscribe(self.workers[2], wishes)
            for size in settings.sizes:
                self.result.points.append(await self._measure(size))
        return self.result

    async def _measure(self, size: int) -> Point:
        point = Point(size)
        events = await self._calm()
        point.calm_ms = self._latencies(events)
        rows = await self._rows_left()
        client = await _ClientProcess.start(self.workers[0].name, self.settings, self.prefix)
        try:
            await self._subscribe(point, client)
            other = self.workers[1].name
            point.check = await client.ask(do="check", events=CHECKED_EVENTS, publish_at=other)
        finally:
            await client.kill()
        await self._end(point, rows)
        p99 = [each.get("p99", 0) for each in (point.calm_ms, point.meanwhile_ms, point.ending_ms)]
        shown = "p99 {:.2f} ms calm, {:.2f} meanwhile, {:.2f} ending".format(*p99)
        self.say(f"{size:,}: ready in {point.ready_s:.1f} s, {point.cpu_us:.0f} µs each, {shown}")
        return point

    async def _calm(self) -> range:
        """Publish between others, and see what that takes."""
        first, cpu_s, messages, begun_ms = self.published, *await self._used(), now_ms()
        await self._publish(self.settings.calm_s)
        cpu_after_s, messages_after = await self._used()
        seconds = (now_ms() - begun_ms) / 1_000
        self._cpu_rate = (cpu_after_s - cpu_s) / seconds
        self._message_rate = (messages_after - messages) / seconds
        return range(first, self.published)

    async def _subscribe(self, point: Point, client: _ClientProcess) -> None:
        first, cpu_s, messages, begun_ms = self.published, *await self._used(), now_ms()
        before = self._figures()
        asking = asyncio.create_task(client.ask(do="subscribe", count=point.subscriptions))
        while not asking.done():
            await self._publish(PUBLISH_S)
        answer = await asking
        # First all figures: telling the state of a large node takes a moment itself.
        after = self._figures()
        cpu_after_s = sum(each.cpu_s for each in after)
        seconds = (now_ms() - begun_ms) / 1_000
        _, messages_after = await self._used()
        count = point.subscriptions
        point.ready_s, point.gaps = answer["ready_s"], answer["gaps"]
        point.client_cpu_us = answer["client_cpu_s"] * 1e6 / count
        point.cpu_us = max(0.0, cpu_after_s - cpu_s - self._cpu_rate * seconds) * 1e6 / count
        sent = messages_after - messages - self._message_rate * seconds
        point.messages = max(0.0, sent) / count
        grown = sum(a.resident_kb - b.resident_kb for a, b in zip(after, before, strict=True))
        point.bytes_per_row = grown * 1_024 / count / len(self.workers)
        events = range(first, self.published)
        point.events = len(events)
        point.meanwhile_ms = self._latencies(events)
        point.failed += self._failures(events)

    async def _end(self, point: Point, rows: int) -> None:
        """The clients are gone: wait until as few rows are left as there were before.

        Rows of control notifications come and go with the ring: some more, or fewer, do not count.
        """
        cpu_s = sum(each.cpu_s for each in self._figures())
        begun_ms = now_ms()
        first = self.published
        fewest = sys.maxsize
        async with asyncio.timeout(WITHOUT_PROGRESS_S) as waiting:
            while (left := await self._rows_left()) > rows + CONTROL_ROWS:
                if left < fewest:
                    fewest = left
                    waiting.reschedule(asyncio.get_running_loop().time() + WITHOUT_PROGRESS_S)
                await self._publish(PUBLISH_S)
        point.ended_s = (now_ms() - begun_ms) / 1_000
        used_s = sum(each.cpu_s for each in self._figures()) - cpu_s
        spent_s = max(0.0, used_s - self._cpu_rate * point.ended_s)
        point.ended_cpu_us = spent_s * 1e6 / point.subscriptions
        events = range(first, self.published)
        point.ending_events = len(events)
        point.ending_ms = self._latencies(events)
        point.failed += self._failures(events)

    async def _rows_left(self) -> int:
        """Rows that others have of the clients' node, and changes of them that it waits for.

        Asked of that node: others would tell it while they pass events on.
        """
        (status,) = await self.network.status(self.workers[:1])
        others = status["overlay"]["routing"]["filters"]["publishers"].values()
        return max((each["rows"] + each["unconfirmed"] for each in others), default=0)

    def _figures(self) -> list[ProcessFigures]:
        return [figures_of(worker.process.pid) for worker in self.workers]

    async def _used(self) -> tuple[float, int]:
        """CPU of all nodes so far, and messages between them."""
        statuses = await self.network.status(self.workers)
        links = [link for each in statuses for link in each["connections"]["links"].values()]
        cpu_s = sum(each.cpu_s for each in self._figures())
        return cpu_s, sum(link["messages_in"] for link in links)

    async def _publish(self, seconds: float) -> None:
        """Publish between others for so long, and wait until all has ended."""
        count = max(1, int(self.settings.rate * seconds))
        first, self.published = self.published, self.published + count
        self.workers[1].command(
            do="publish",
            rate=self.settings.rate,
            first=first,
            count=count,
            symbols=SYMBOLS,
            prefix="e-",
        )
        ended = self.network.ended
        ids = [f"e-{number}" for number in range(first, first + count)]
        await self.network.until(lambda: all(each in ended for each in ids), "publications end")

    def _failures(self, events: range) -> int:
        ended = self.network.ended
        return sum(1 for number in events if ended[f"e-{number}"] is not None)

    def _latencies(self, events: range) -> dict[str, float]:
        arrived, begun = self.network.arrivals_ms, self.network.begun_ms
        found = [
            arrived[f"w{number * 7919 % SYMBOLS}", f"e-{number}"] - begun[f"e-{number}"]
            for number in events
            if (f"w{number * 7919 % SYMBOLS}", f"e-{number}") in arrived
        ]
        return percentiles(found, p50=0.5, p99=0.99)


async def run_subscribe(settings: SubscribeSettings, say: Say) -> SubscribeResult:
    """Run one network through all sizes."""
    if settings.nodes > JUDGED_NODES_MAX:
        return await _Trial(settings, (), say).run()
    with run_on_second_core() as prefix:
        return await _Trial(settings, prefix, say).run()
