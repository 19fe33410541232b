"""The home of a durable subscription dies under load, alone or with others, and returns.

The consumer is a light client of the home and goes on trying to reach it. It must get every
acknowledged event once: what came while the home was down is on the disks of other nodes.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peersub.bench.resilience.cluster import Cluster, WorkerProcess
from peersub.bench.resilience.disk_faults import fault_disk
from peersub.bench.resilience.judging import Judgement, Notes
from peersub.bench.resilience.worker import now_ms
from peersub.client import Subscription, connect

__all__ = ["DURABLE_STORIES", "DurableSettings", "run_durable_trial"]

DURABLE_STORIES = ("home", "replaced", "disk", "pair", "one-after-the-other", "all")
"""The home of a durable subscription is killed and returns; or an empty node takes its address; or
its disk has lost or damaged something that was stored; or its mirror is killed with it, or half a
second to 20 seconds before it; or all nodes are at once."""

LATER_S = (0.5, 20.0)
"""How long after its mirror a home is killed."""

CATCH_UP_S = 120.0
_NAME = "audit"


@dataclass(frozen=True, slots=True)
class DurableSettings:
    """How long, and how fast."""

    nodes: int = 4
    rate: int = 500
    outage_s: float = 60.0
    calm_s: float = 5.0
    """Before the home dies, and after it is back."""
    story: str = "home"
    seed: int = 1


class _Trial:
    def __init__(self, settings: DurableSettings, say: Callable[[str], None]) -> None:
        self.settings = settings
        self.say = say
        self.notes = Notes(symbols=1)
        self.cluster = Cluster(self._on_line)
        self._is_published = False
        self._mirrors: dict[str, Any] | None = None
        self._random = random.Random(settings.seed)

    def _on_line(self, _: WorkerProcess, line: dict[str, Any]) -> None:
        for event_id, begun_ms, ended_ms, failure in line.get("ended", ()):
            self.notes.ended(event_id, begun_ms, ended_ms, failure)
        if "published" in line:
            self._is_published = True
        if "status" in line:
            self._mirrors = line["status"]["mirrors"]

    async def run(self, folder: Path) -> Judgement:
        settings = self.settings
        async with self.cluster:
            for number in range(settings.nodes):
                await self.cluster.start(data=str(folder / f"n{number}"))
            home = self.cluster.workers[-1]
            self.notes.subscribed(_NAME, "s0")
            async with (
                connect(home.name) as client,
                client.subscribe("symbol = 's0'", durable=_NAME) as subscription,
            ):
                await subscription.ready(timeout=30)
                self.notes.ready(_NAME, now_ms())
                consuming = asyncio.create_task(self._consume(subscription))
                await self._play(home, folder)
                consuming.cancel()
        return self.notes.judge()

    async def _play(self, home: WorkerProcess, folder: Path) -> None:
        settings = self.settings
        victims = await self._victims(home)
        publisher = next(worker for worker in self.cluster.workers if worker not in victims[:-1])
        later_s = 0.0
        if settings.story == "one-after-the-other":
            later_s = self._random.uniform(*LATER_S)
        count = int(settings.rate * (settings.outage_s + 2 * settings.calm_s + later_s))
        self._publish(publisher, count, "e-")
        await asyncio.sleep(settings.calm_s)
        for victim in victims:
            if victim is home:
                await asyncio.sleep(later_s)
            victim.kill()
        names = ", ".join(worker.name for worker in victims)
        self.say(f"kill {names}; the last is the home of the durable subscription")
        await asyncio.sleep(settings.outage_s)
        self._random.shuffle(victims)
        for victim in victims:
            data = folder / ("empty" if settings.story == "replaced" else f"n{victim.number}")
            if settings.story == "disk":
                self.say(f"its disk: {fault_disk(data, self._random)}")
            await self.cluster.start(listen=victim.name, data=str(data))
        self.say("back" + (", with an empty disk" if settings.story == "replaced" else ""))
        if not publisher.is_alive:
            self._publish(self.cluster.living()[0], count, "f-")
        deadline = now_ms() + (settings.calm_s + CATCH_UP_S) * 1_000
        while not (self._is_published and self.notes.judge().is_clean) and now_ms() < deadline:
            await asyncio.sleep(0.2)

    def _publish(self, publisher: WorkerProcess, count: int, prefix: str) -> None:
        rate = self.settings.rate
        publisher.command(do="publish", rate=rate, count=count, symbols=1, prefix=prefix)
        self.say(f"publishing {count:,} events at {publisher.name}")

    async def _victims(self, home: WorkerProcess) -> list[WorkerProcess]:
        """Who is killed, the home being the last."""
        if self.settings.story == "all":
            return [*self.cluster.workers[:-1], home]
        if self.settings.story in ("home", "replaced", "disk"):
            return [home]
        home.command(do="status")
        while self._mirrors is None:
            await asyncio.sleep(0.05)
        mirror = self._mirrors["mirror"]
        return [*(worker for worker in self.cluster.workers if worker.name == mirror), home]

    async def _consume(self, subscription: Subscription) -> None:
        got: set[str] = set()
        async for event in subscription:
            # One that says that it may have come before may have.
            if event.id not in got or not getattr(event, "redelivered", False):
                got.add(event.id)
                self.notes.got(_NAME, event.id, now_ms())


async def run_durable_trial(settings: DurableSettings, say: Callable[[str], None]) -> Judgement:
    """Play the story, and judge it."""
    with tempfile.TemporaryDirectory(prefix="peersub-") as folder:
        return await _Trial(settings, say).run(Path(folder))
