"""A live node under attack: does it go on serving, as fast as before, and count what came?

A small network delivers events at a steady rate, first in peace, then in rounds: attackers send
hostile frames (`hostile_frames`) to a bystander, a node of another network on the machine, then
to one of its own nodes, and again. Judged are the deliveries, by brute force, the latency of
those to subscribers on the node that is attacked, its memory, its descriptors, and whether each act
was counted by a reason.

The bystander tells what the attack costs from what attackers cost: they, the network and whoever
measures share the machine's cores, so latency is compared with that of the times when all of them
were just as busy, but the frames went elsewhere. The rounds are there because a machine is not
equally quick for minutes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from peersub.bench.hostile_frames import Act, Ending, Target, hostile_acts
from peersub.bench.live_network import LiveNetwork
from peersub.bench.process_figures import ProcessFigures, figures_of
from peersub.bench.resilience.cluster import WorkerProcess
from peersub.bench.resilience.judging import Judgement
from peersub.bench.resilience.worker import now_ms
from peersub.bench.steady_traffic import SteadyTraffic

__all__ = ["HostileResult", "HostileSettings", "run_hostile"]

HELD_MAX: Final = 128
"""Connections that attackers hold at once: the node turns away more than it can greet."""
GREETING_MS: Final = 1_000
HELD_S_MAX: Final = 20 * GREETING_MS / 1_000
"""How long an attacker waits until the node closes the connection."""
RESIDENT_GROWTH_KB_MAX: Final = 64 * 1_024
LATENCY_RATIO_MAX: Final[Mapping[str, float]] = MappingProxyType({"p50": 1.15, "p99": 1.5})
"""What still passes for unchanged: medians of one machine differ by a tenth from run to run, and
the slowest hundredth by more."""
DESCRIPTORS_LEFT_MAX: Final = 4
"""Descriptors that a node may have more afterwards: a link to a neighbour may be made anew."""


@dataclass(frozen=True, slots=True)
class HostileSettings:
    """How many frames, how fast."""

    frames: int = 100_000
    frames_per_second: int = 2_000
    nodes: int = 3
    rate: int = 200
    calm_s: float = 10.0
    elsewhere_share: float = 1.0
    """Of the frames: as many more go to the bystander."""
    rounds: int = 5
    overlay: str = "chord"
    seed: int = 1


@dataclass(slots=True)
class HostileResult:
    """What was seen."""

    acts: Counter[str] = field(default_factory=Counter)
    frames: int = 0
    counted: dict[str, int] = field(default_factory=dict)
    uncounted: list[str] = field(default_factory=list)
    """Kinds of acts that the node did not count as often as they came."""
    judgement: Judgement = field(default_factory=Judgement)
    calm_ms: dict[str, float] = field(default_factory=dict)
    elsewhere_ms: dict[str, float] = field(default_factory=dict)
    attacked_ms: dict[str, float] = field(default_factory=dict)
    before: ProcessFigures | None = None
    after: ProcessFigures | None = None
    descriptors_max: int = 0
    kept: int = 0
    """Connections that the node should have closed, and did not."""
    seconds: float = 0.0

    @property
    def latency_ratios(self) -> dict[str, float]:
        """Attacked, against the time when the same frames went to the bystander."""
        return {
            name: round(self.attacked_ms[name] / elsewhere, 3)
            for name, elsewhere in self.elsewhere_ms.items()
            if name in self.attacked_ms
        }

    @property
    def problems(self) -> list[str]:
        """What is wrong, in words."""
        found = []
        for name, ratio in self.latency_ratios.items():
            if ratio > LATENCY_RATIO_MAX[name]:
                found.append(
                    f"latency: {name} is {ratio:.2f} times what it is when others are attacked"
                )
        if not self.judgement.is_clean or self.judgement.failed:
            found.append(f"deliveries: {self.judgement.as_dict()}")
        if self.uncounted:
            found.append(f"not counted: {', '.join(self.uncounted)}")
        if self.kept:
            found.append(f"{self.kept} connections were not closed")
        if self.before is not None and self.after is not None:
            growth_kb = self.after.resident_kb - self.before.resident_kb
            if growth_kb > RESIDENT_GROWTH_KB_MAX:
                found.append(f"memory has grown by {growth_kb:,} KB")
            left = self.after.descriptors - self.before.descriptors
            if left > DESCRIPTORS_LEFT_MAX:
                found.append(f"{left} descriptors were left open")
        return found

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        before, after = self.before, self.after
        return {
            "frames": self.frames,
            "connections": self.acts.total(),
            "acts": dict(sorted(self.acts.items())),
            "counted": self.counted,
            "deliveries": self.judgement.as_dict(),
            "latency_ms_calm": self.calm_ms,
            "latency_ms_elsewhere": self.elsewhere_ms,
            "latency_ms_attacked": self.attacked_ms,
            "latency_ratios": self.latency_ratios,
            "resident_kb": [each.resident_kb for each in (before, after) if each is not None],
            "descriptors": [each.descriptors for each in (before, after) if each is not None],
            "descriptors_max": self.descriptors_max,
            "seconds": round(self.seconds, 1),
            "problems": self.problems,
        }


class _Trial:
    def __init__(self, settings: HostileSettings, say: Callable[[str], None]) -> None:
        self.settings = settings
        self.say = say
        self.result = HostileResult()
        connection = {"greeting_ms": GREETING_MS}
        self.node_settings = {"overlay": settings.overlay, "connection": connection}
        self.network = LiveNetwork(dict(self.node_settings))
        self.traffic = SteadyTraffic(self.network, settings.rate)

    async def run(self) -> HostileResult:
        settings, result = self.settings, self.result
        async with self.network as network:
            workers = [await network.start() for _ in range(settings.nodes)]
            target, publisher = workers[0], workers[-1]
            for worker in workers:
                await self.traffic.subscribe(worker)
            on_target = {name for name in self.traffic.wishes if name.startswith("w0-")}
            events = await self.traffic.publish(publisher, settings.calm_s)
            result.calm_ms = self.traffic.latencies(on_target, [events])
            async with LiveNetwork(dict(self.node_settings)) as others:
                bystanders = [await others.start(), await others.start()]
                result.before = figures_of(target.process.pid)
                counters = (await network.status([target]))[0]["counters"]
                expected = await self._attack_both(publisher, workers[:2], bystanders, on_target)
            await self._judge(target, counters, expected)
        return result

    async def _attack_both(
        self,
        publisher: WorkerProcess,
        attacked: list[WorkerProcess],
        bystanders: list[WorkerProcess],
        on_target: set[str],
    ) -> list[tuple[str, ...]]:
        """Attack the bystander and the target in turn; what the target must have counted."""
        settings, result = self.settings, self.result
        frames = settings.frames // settings.rounds
        frames_elsewhere = int(frames * settings.elsewhere_share)
        expected: list[tuple[str, ...]] = []
        elsewhere_events, attacked_events = [], []
        for number in range(settings.rounds):
            self.say(f"round {number + 1} of {settings.rounds}: {frames:,} hostile frames")
            # Each drawn from a seed of its own: what the target gets it has never seen.
            seed = settings.seed + 2 * number
            if frames_elsewhere:
                _, events = await self._attack(publisher, bystanders, frames_elsewhere, seed + 1)
                elsewhere_events.append(events)
            begin_ms = now_ms()
            attack, events = await self._attack(publisher, attacked, frames, seed)
            result.seconds += (now_ms() - begin_ms) / 1_000
            attacked_events.append(events)
            expected += attack.expected_reasons
            result.acts += attack.acts
            result.frames += attack.frames
            result.kept += attack.kept
        result.elsewhere_ms = self.traffic.latencies(on_target, elsewhere_events)
        result.attacked_ms = self.traffic.latencies(on_target, attacked_events)
        return expected

    async def _attack(
        self, publisher: WorkerProcess, nodes: list[WorkerProcess], frames: int, seed: int
    ) -> tuple[_Attack, range]:
        """Attack the first of two neighbours; the attack, and the events published meanwhile."""
        first = self.traffic.published
        attack = _Attack(frames, self.settings.frames_per_second, seed)
        attacking = asyncio.create_task(attack.run(nodes[0].name, nodes[1].name))
        while not attacking.done():
            await self.traffic.publish(publisher, 1.0)
            seen = figures_of(nodes[0].process.pid).descriptors
            self.result.descriptors_max = max(self.result.descriptors_max, seen)
        await attacking
        return attack, range(first, self.traffic.published)

    async def _judge(
        self, target: WorkerProcess, counters: dict[str, int], expected: list[tuple[str, ...]]
    ) -> None:
        network, result = self.network, self.result
        status: dict[str, Any] = {}

        # Connections that were held end when the node has waited long enough for a word.
        for _ in range(1_000):
            (status,) = await network.status([target])
            if not status["connections"]["unnamed"] and not status["connections"]["clients"]:
                break
        result.after = figures_of(target.process.pid)
        await network.status(network.cluster.living())
        result.counted = {
            reason: count - counters.get(reason, 0)
            for reason, count in status["counters"].items()
            if count > counters.get(reason, 0)
        }
        result.uncounted = _uncounted(expected, result.counted)
        result.judgement = self.traffic.judge()


class _Attack:
    """Hostile frames for one node: so many, at such a pace, over connections of their own.

    Attributes:
        acts: how many of each kind were committed.
        expected_reasons: per act that the node must count, the reasons it may give.
        kept: connections that the node should have closed, and did not.
    """

    def __init__(self, frames_wanted: int, frames_per_second: int, seed: int) -> None:
        self.acts: Counter[str] = Counter()
        self.frames = 0
        self.kept = 0
        self.expected_reasons: list[tuple[str, ...]] = []
        self._frames_wanted = frames_wanted
        self._frames_per_second = frames_per_second
        self._seed = seed
        self._room = asyncio.Semaphore(HELD_MAX)

    async def run(self, node: str, neighbour: str) -> None:
        """Commit all acts; `neighbour` is whom some of them pretend to be."""
        begin_ms = now_ms()
        async with asyncio.TaskGroup() as group:
            for act in hostile_acts(self._seed, Target(node, neighbour), self._frames_wanted):
                self.acts[act.kind] += 1
                self.frames += act.frames
                due_ms = begin_ms + 1_000 * self.frames / self._frames_per_second
                await asyncio.sleep(max(0.0, due_ms - now_ms()) / 1_000)
                await self._room.acquire()
                if act.reasons:
                    self.expected_reasons.append(act.reasons)
                group.create_task(self._commit(act, node))

    async def _commit(self, act: Act, node: str) -> None:
        """One connection, from its begin to its end."""
        host, _, port = node.rpartition(":")
        try:
            with suppress(ConnectionError):
                reader, writer = await asyncio.open_connection(host, int(port))
                try:
                    writer.write(act.data)
                    if act.ending is Ending.HELD:
                        async with asyncio.timeout(HELD_S_MAX):
                            while await reader.read(65_536):
                                pass
                    else:
                        writer.write_eof()
                        await writer.drain()
                finally:
                    writer.close()
                    await writer.wait_closed()
        except TimeoutError:
            self.kept += 1
        finally:
            self._room.release()


def _uncounted(expected: list[tuple[str, ...]], counted: dict[str, int]) -> list[str]:
    """Sets of reasons of which fewer were counted than there were acts with no other reason."""
    found = []
    for reasons in sorted(set(expected)):
        acts = sum(1 for each in expected if set(each) <= set(reasons))
        seen = sum(counted.get(reason, 0) for reason in reasons)
        if seen < acts:
            found.append(f"{acts} acts, {seen} times {' or '.join(reasons)}")
    return found


async def run_hostile(settings: HostileSettings, say: Callable[[str], None]) -> HostileResult:
    """Attack a node of a live network, and judge what it made of it."""
    return await _Trial(settings, say).run()
