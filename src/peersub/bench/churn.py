"""A live network in which nodes and subscriptions come and go: does anything grow that should not?

Some nodes stay. All others leave, crash and return at their addresses with their folders, and
subscriptions are made and ended everywhere, while one of those that stay publishes at least once.
Those that stay are looked at every so often: resident memory, descriptors beside their connections,
tasks and timers of the event loop, files in their folder. After a time to warm up, the middle of
what was seen early is compared with the middle of what was seen late: a leak grows with each
change, a busy moment does not.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, Final

from peersub.bench.live_network import LiveNetwork
from peersub.bench.process_figures import figures_of
from peersub.bench.resilience.cluster import WorkerProcess
from peersub.bench.resilience.judging import Judgement, Notes
from peersub.bench.resilience.worker import now_ms

__all__ = ["ChurnResult", "ChurnSettings", "Growth", "run_churn"]

SYMBOLS: Final = 20
STAYING_SHARE: Final = 0.25
WARM_UP_SHARE: Final = 0.25
"""Of the samples: caches and histories fill first."""
SAMPLES: Final = 60
"""Looks at the nodes that stay, all in all."""
CONSUMERS_MAX: Final = 200
"""Subscriptions that come and go, at any time."""

SMALL_HISTORIES: Final[Mapping[str, int]] = MappingProxyType(
    {
        "replay_events_max": 512,
        "seen_events_max": 2_048,
        # What was confirmed is remembered for as long as a publication may take.
        "give_up_ms": 20_000,
        "replay_horizon_ms": 20_000,
        "history_horizon_ms": 40_000,
    }
)
"""What is bounded fills during the warm-up, so that what goes on growing is not."""

MAY_GROW: Final[Mapping[str, tuple[float, float]]] = MappingProxyType(
    {
        "resident_kb": (2 * 1_024, 0.0),
        "descriptors": (2, 0.0),
        "tasks": (3, 0.0),
        "timers": (20, 0.25),
        "files": (2, 0.0),
    }
)
"""By how much a measure may be greater at the end: by this, and by this share of what it was.
Memory comes in pieces; timers follow the links."""


@dataclass(frozen=True, slots=True)
class ChurnSettings:
    """How large, how long, how wild."""

    nodes: int = 24
    seconds: float = 300.0
    changes_per_second: float = 4.0
    rate: int = 50
    overlay: str = "chord"
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Growth:
    """A measure early and late."""

    first: float
    last: float
    allowed: float

    @property
    def is_flat(self) -> bool:
        """Whether it has not grown by more than it may."""
        return self.last - self.first <= self.allowed


@dataclass(slots=True)
class ChurnResult:
    """What was seen."""

    changes: Counter[str] = field(default_factory=Counter)
    growths: dict[str, dict[str, Growth]] = field(default_factory=dict)
    """Per node that stayed, each measure."""
    judgement: Judgement = field(default_factory=Judgement)
    measures: tuple[str, ...] = tuple(MAY_GROW)

    @property
    def problems(self) -> list[str]:
        """What is wrong, in words."""
        found = []
        if not self.judgement.is_clean or self.judgement.failed:
            found.append(f"deliveries: {self.judgement.as_dict()}")
        for node, growths in self.growths.items():
            for name, growth in growths.items():
                if not growth.is_flat:
                    found.append(
                        f"{node}: {name} has grown from {growth.first:,.0f} to {growth.last:,.0f}"
                    )
        return found

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "changes": dict(self.changes),
            "nodes": {
                node: {name: [each.first, each.last] for name, each in growths.items()}
                for node, growths in self.growths.items()
            },
            "deliveries": self.judgement.as_dict(),
            "problems": self.problems,
        }


def growth_of(samples: list[float], name: str) -> Growth:
    """The middle of the early samples against that of the late ones, without the warm-up.

    >>> growth_of([9, 5, 5, 5, 6, 5, 5, 5], "descriptors").is_flat
    True
    >>> growth_of([5, 5, 6, 7, 8, 9, 10, 11], "descriptors").is_flat
    False
    """
    seen = samples[int(len(samples) * WARM_UP_SHARE) :]
    third = max(1, len(seen) // 3)
    first, last = median(seen[:third]), median(seen[-third:])
    amount, share = MAY_GROW[name]
    return Growth(first, last, amount + share * first)


class _Trial:
    def __init__(self, settings: ChurnSettings, folder: Path, say: Callable[[str], None]) -> None:
        self.settings = settings
        self.folder = folder
        self.say = say
        self.random = random.Random(settings.seed)
        self.network = LiveNetwork(
            {"overlay": settings.overlay, "overlay_settings": dict(SMALL_HISTORIES)}
        )
        self.notes = Notes(SYMBOLS)
        self.result = ChurnResult()
        self.staying: list[WorkerProcess] = []
        self.going: list[WorkerProcess] = []
        self.away: list[tuple[str, Path]] = []
        self.consumers: list[tuple[WorkerProcess, str]] = []
        self.folders: dict[int, Path] = {}
        self.names = 0
        self.published = 0
        self.samples: dict[str, dict[str, list[float]]] = {}

    async def run(self) -> ChurnResult:
        settings = self.settings
        async with self.network:
            for _ in range(settings.nodes):
                await self._start(self.folder / f"node{len(self.folders)}")
            staying = max(2, round(settings.nodes * STAYING_SHARE))
            self.staying, self.going = self.going[:staying], self.going[staying:]
            for worker in self.staying:
                await self._stay_subscribed(worker)
            self.say(f"{settings.nodes} nodes, of which {staying} stay")
            end_ms = now_ms() + settings.seconds * 1_000
            async with asyncio.TaskGroup() as group:
                group.create_task(self._publish_until(end_ms))
                group.create_task(self._change_until(end_ms))
                group.create_task(self._look_until(end_ms))
            await self._judge()
        return self.result

    async def _start(self, folder: Path, listen: str = "127.0.0.1:0") -> None:
        worker = await self.network.start(listen, data=str(folder))
        self.folders[worker.number] = folder
        self.going.append(worker)

    async def _stay_subscribed(self, worker: WorkerProcess) -> None:
        for number in range(2):
            name = f"stay{worker.number}-{number}"
            symbol = f"s{self.random.randrange(SYMBOLS)}"
            self.notes.subscribed(name, symbol)
            await self.network.subscribe(worker, {name: {"filter": f"symbol = '{symbol}'"}})
            self.notes.ready(name, now_ms())

    # --- what goes on ----------------------------------------------------------------------------

    async def _publish_until(self, end_ms: float) -> None:
        publisher, ended = self.staying[0], self.network.ended
        while now_ms() < end_ms:
            first, count = self.published, self.settings.rate
            self.published += count
            publisher.command(
                do="publish", rate=count, first=first, count=count, symbols=SYMBOLS, prefix="e-"
            )
            ids = [f"e-{number}" for number in range(first, first + count)]
            await self.network.until(
                lambda ids=ids: all(each in ended for each in ids),  # type: ignore[misc]
                "publications end",
            )

    async def _change_until(self, end_ms: float) -> None:
        pause_s = 1 / self.settings.changes_per_second
        while now_ms() < end_ms:
            begin_ms = now_ms()
            name, change = self.random.choice(self._possible())
            await change()
            self.result.changes[name] += 1
            await asyncio.sleep(max(0.0, pause_s - (now_ms() - begin_ms) / 1_000))

    def _possible(self) -> list[tuple[str, Callable[[], Any]]]:
        """What may happen next, as often as it should be drawn."""
        least = (self.settings.nodes - len(self.staying)) // 2
        found: list[tuple[str, Callable[[], Any]]] = []
        if len(self.consumers) < CONSUMERS_MAX:
            found += 2 * [("subscribed", self._subscribe)]
        if self.consumers:
            found += 2 * [("unsubscribed", self._unsubscribe)]
        if len(self.going) > least:
            found += [("left", self._leave), ("crashed", self._crash)]
        if self.away:
            found += 2 * [("returned", self._return)]
        return found

    async def _subscribe(self) -> None:
        worker = self.random.choice(self.staying + self.going)
        self.names += 1
        name, symbol = f"come{self.names}", f"s{self.random.randrange(SYMBOLS)}"
        self.consumers.append((worker, name))
        worker.command(do="subscribe", name=name, filter=f"symbol = '{symbol}' AND number > 0")

    async def _unsubscribe(self) -> None:
        worker, name = self.consumers.pop(self.random.randrange(len(self.consumers)))
        worker.command(do="unsubscribe", name=name)

    def _take_away(self) -> WorkerProcess:
        worker = self.going.pop(self.random.randrange(len(self.going)))
        self.consumers = [each for each in self.consumers if each[0] is not worker]
        self.away.append((worker.name, self.folders[worker.number]))
        return worker

    async def _leave(self) -> None:
        await self.network.leave([self._take_away()])

    async def _crash(self) -> None:
        await self.network.crash([self._take_away()])

    async def _return(self) -> None:
        name, folder = self.away.pop(0)
        await self._start(folder, name)

    # --- looking ---------------------------------------------------------------------------------

    async def _look_until(self, end_ms: float) -> None:
        pause_s = self.settings.seconds / SAMPLES
        while now_ms() < end_ms:
            await self._look()
            await asyncio.sleep(pause_s)

    async def _look(self) -> None:
        for worker, status in zip(
            self.staying, await self.network.status(self.staying), strict=True
        ):
            figures = figures_of(worker.process.pid)
            connections = status["connections"]
            dialling = len(connections["dialling"])
            open_now = len(connections["links"]) + connections["unnamed"] + dialling
            seen = {
                "resident_kb": figures.resident_kb,
                "descriptors": figures.descriptors - open_now,
                "tasks": status["process"]["tasks"] - dialling,
                "timers": status["timers"],
                "files": sum(1 for _ in self.folders[worker.number].rglob("*")),
            }
            samples = self.samples.setdefault(worker.name, {})
            for name, value in seen.items():
                samples.setdefault(name, []).append(value)

    async def _judge(self) -> None:
        network, result = self.network, self.result
        await network.status(self.staying)
        result.growths = {
            node: {name: growth_of(seen, name) for name, seen in samples.items()}
            for node, samples in self.samples.items()
        }
        for event, begun_ms in network.begun_ms.items():
            self.notes.ended(event, begun_ms, begun_ms, network.ended[event])
        for name, events in network.got.items():
            if name.startswith("stay"):
                for event, times in events.items():
                    for _ in range(times):
                        self.notes.got(name, event, network.arrivals_ms[name, event])
        result.judgement = self.notes.judge()


async def run_churn(settings: ChurnSettings, say: Callable[[str], None]) -> ChurnResult:
    """Let nodes come and go, and say what grew."""
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="peersub-churn-"))
        return await _Trial(settings, Path(folder), say).run()
