"""Filters against a live node: do events between other nodes arrive as before?

A network of node processes; one is attacked, and shares a core with its attackers, a process of
their own. The other nodes, who measures, and all events that are judged, are on a second core. In
rounds events are published in peace, and then while attackers send hostile filters
(`hostile_filters`) as fast as the node answers, through the API and as raw bytes
(`filter_attackers`). Judged are deliveries, by brute force,
their latency against that in peace, and the longest turn of any node's loop, as it tells itself.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from peersub.bench.harness import Say, run_on_second_core
from peersub.bench.live_network import PATIENCE_S, LiveNetwork
from peersub.bench.resilience.cluster import WorkerProcess, environment
from peersub.bench.resilience.judging import Judgement
from peersub.bench.resilience.worker import now_ms
from peersub.bench.steady_traffic import SteadyTraffic

__all__ = ["FilterAttackResult", "FilterAttackSettings", "run_filter_attack"]

P99_RATIO_MAX: Final = 2.0
TURN_CPU_MS_MAX: Final = 100.0
PERMISSIONS: Final = """
[default]
publish = true
subscribe = "(p = 1 OR q = 'k') AND (r > 5 OR s IS NULL)"
"""
"""What the attackers may see, in the trial with permissions."""


@dataclass(frozen=True, slots=True)
class FilterAttackSettings:
    """How many filters, against how large a network."""

    filters: int = 1_000
    nodes: int = 4
    rate: int = 100
    rounds: int = 4
    calm_s: float = 8.0
    seed: int = 1
    has_permissions: bool = False


@dataclass(slots=True)
class FilterAttackResult:
    """What was seen."""

    answers: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    judgement: Judgement = field(default_factory=Judgement)
    calm_ms: dict[str, float] = field(default_factory=dict)
    attacked_ms: dict[str, float] = field(default_factory=dict)
    turns_cpu_ms_max: dict[str, float] = field(default_factory=dict)
    attack_s: float = 0.0
    is_pinned: bool = False

    @property
    def p99_ratio(self) -> float:
        """Attacked, against in peace."""
        return round(self.attacked_ms["p99"] / self.calm_ms["p99"], 2)

    @property
    def problems(self) -> list[str]:
        """What is wrong, in words."""
        found = []
        if not self.judgement.is_clean or self.judgement.failed:
            found.append(f"deliveries: {self.judgement.as_dict()}")
        if self.p99_ratio > P99_RATIO_MAX:
            found.append(f"p99 is {self.p99_ratio} times what it is in peace")
        found += [
            f"{name} had a turn of {turn_ms} ms of its processor"
            for name, turn_ms in self.turns_cpu_ms_max.items()
            if turn_ms > TURN_CPU_MS_MAX
        ]
        unanswered = self.answers["no answer"]
        return [*found, f"{unanswered} filters had no answer"] if unanswered else found

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "filters": self.kinds.total(),
            "kinds": dict(sorted(self.kinds.items())),
            "answers": dict(sorted(self.answers.items())),
            "deliveries": self.judgement.as_dict(),
            "latency_ms_calm": self.calm_ms,
            "latency_ms_attacked": self.attacked_ms,
            "p99_ratio": self.p99_ratio,
            "turns_cpu_ms_max": self.turns_cpu_ms_max,
            "attack_s": round(self.attack_s, 1),
            "is_pinned": self.is_pinned,
            "problems": self.problems,
        }


async def run_filter_attack(settings: FilterAttackSettings, say: Say) -> FilterAttackResult:
    """Attack a node of a live network with filters, and judge what others noticed."""
    with run_on_second_core() as prefix:
        async with LiveNetwork() as network:
            return await _Trial(settings, network, prefix, say).run()


class _Trial:
    def __init__(
        self,
        settings: FilterAttackSettings,
        network: LiveNetwork,
        prefix: tuple[str, ...],
        say: Say,
    ) -> None:
        self.settings = settings
        self.network = network
        self.prefix = prefix
        self.say = say
        self.traffic = SteadyTraffic(network, settings.rate)
        self.result = FilterAttackResult(is_pinned=bool(prefix))

    async def run(self) -> FilterAttackResult:
        settings, result, traffic = self.settings, self.result, self.traffic
        with TemporaryDirectory() as folder:
            attacked = await self._start_attacked(Path(folder))
            others = [await self.network.start() for _ in range(settings.nodes - 1)]
            for worker in others:
                await traffic.subscribe(worker)
            await traffic.publish(others[0], 1.0)
            calm, during = [], []
            for number in range(settings.rounds):
                self.say(f"round {number + 1} of {settings.rounds}")
                calm.append(await traffic.publish(others[0], settings.calm_s))
                during += await self._attack(attacked.name, others[0], settings.seed + number)
            result.calm_ms = traffic.latencies(traffic.wishes, calm)
            result.attacked_ms = traffic.latencies(traffic.wishes, during)
            statuses = await self.network.status([attacked, *others])
            names = ["the attacked node", *(f"node {n + 2}" for n in range(len(others)))]
            for name, status in zip(names, statuses, strict=True):
                result.turns_cpu_ms_max[name] = status["loop"]["turn_cpu_ms_max"]
            result.judgement = traffic.judge()
        return result

    async def _start_attacked(self, folder: Path) -> WorkerProcess:
        bound = {}
        if self.settings.has_permissions:
            file = folder / "permissions.toml"
            file.write_text(PERMISSIONS)
            bound["permissions"] = str(file)
        async with asyncio.timeout(PATIENCE_S):
            return await self.network.cluster.start(prefix=self.prefix, **bound)

    async def _attack(self, node: str, publisher: WorkerProcess, seed: int) -> list[range]:
        """Let attackers loose, and publish until they are done; what was published meanwhile."""
        begun_ms = now_ms()
        process = await asyncio.create_subprocess_exec(
            *(*self.prefix, sys.executable, "-m", "peersub.bench.filter_attackers"),
            *(node, str(seed), str(self.settings.filters // self.settings.rounds)),
            stdout=subprocess.PIPE,
            env=environment(),
        )
        told = asyncio.create_task(process.communicate())
        events = []
        try:
            while not told.done():
                events.append(await self.traffic.publish(publisher, 1.0))
            seen = json.loads((await told)[0])
        finally:
            if process.returncode is None:
                process.kill()
        self.result.attack_s += (now_ms() - begun_ms) / 1_000
        self.result.answers += Counter(seen["answers"])
        self.result.kinds += Counter(seen["kinds"])
        return events
