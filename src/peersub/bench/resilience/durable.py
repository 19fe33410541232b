"""The home of a durable subscription dies under load, and returns with its disk or without.

The consumer is a light client of the home and goes on trying to reach it. It must get every
acknowledged event once: what came while the home was down is at the mirror.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peersub.bench.resilience.cluster import Cluster, WorkerProcess
from peersub.bench.resilience.judging import Judgement, Notes
from peersub.bench.resilience.worker import now_ms
from peersub.client import Subscription, connect

__all__ = ["DURABLE_STORIES", "DurableSettings", "run_durable_trial"]

DURABLE_STORIES = ("home", "replaced")
"""The home of a durable subscription is killed and returns; or an empty node takes its address."""

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
    is_replaced: bool = False


class _Trial:
    def __init__(self, settings: DurableSettings, say: Callable[[str], None]) -> None:
        self.settings = settings
        self.say = say
        self.notes = Notes(symbols=1)
        self.cluster = Cluster(self._on_line)
        self._is_published = False

    def _on_line(self, _: WorkerProcess, line: dict[str, Any]) -> None:
        for event_id, begun_ms, ended_ms, failure in line.get("ended", ()):
            self.notes.ended(event_id, begun_ms, ended_ms, failure)
        if "published" in line:
            self._is_published = True

    async def run(self, folder: Path) -> Judgement:
        settings = self.settings
        async with self.cluster:
            for number in range(settings.nodes):
                await self.cluster.start(data=str(folder / f"n{number}"))
            publisher, home = self.cluster.workers[0], self.cluster.workers[-1]
            self.notes.subscribed(_NAME, "s0")
            async with (
                connect(home.name) as client,
                client.subscribe("symbol = 's0'", durable=_NAME) as subscription,
            ):
                await subscription.ready(timeout=30)
                self.notes.ready(_NAME, now_ms())
                consuming = asyncio.create_task(self._consume(subscription))
                await self._play(publisher, home, folder)
                consuming.cancel()
        return self.notes.judge()

    async def _play(self, publisher: WorkerProcess, home: WorkerProcess, folder: Path) -> None:
        settings = self.settings
        count = int(settings.rate * (settings.outage_s + 2 * settings.calm_s))
        publisher.command(do="publish", rate=settings.rate, count=count, symbols=1, prefix="e-")
        self.say(f"publishing {count:,} events")
        await asyncio.sleep(settings.calm_s)
        home.kill()
        self.say(f"kill {home.name}, the home of the durable subscription")
        await asyncio.sleep(settings.outage_s)
        data = folder / ("empty" if settings.is_replaced else f"n{home.number}")
        await self.cluster.start(listen=home.name, data=str(data))
        self.say("it is back" + (", with an empty disk" if settings.is_replaced else ""))
        deadline = now_ms() + (settings.calm_s + CATCH_UP_S) * 1_000
        while not (self._is_published and self.notes.judge().is_clean) and now_ms() < deadline:
            await asyncio.sleep(0.2)

    async def _consume(self, subscription: Subscription) -> None:
        async for event in subscription:
            self.notes.got(_NAME, event.id, now_ms())


async def run_durable_trial(settings: DurableSettings, say: Callable[[str], None]) -> Judgement:
    """Play the story, and judge it."""
    with tempfile.TemporaryDirectory(prefix="peersub-") as folder:
        return await _Trial(settings, say).run(Path(folder))
