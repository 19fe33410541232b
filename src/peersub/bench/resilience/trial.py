"""One story: a network, a publisher that goes on, and nodes that die, come back, or stand still.

A story is a function of a trial (`_PLAYS`): it starts nodes, lets them subscribe and one of them
publish, and lets things happen. What follows is the same for all: publications end, what is late
comes, and the judge looks at it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from peersub.bench.resilience.cluster import Cluster, WorkerProcess, free_addresses
from peersub.bench.resilience.judging import Judgement, Notes
from peersub.bench.resilience.namespaces import Sides, reason_not
from peersub.bench.resilience.slow_ways import SlowWays
from peersub.bench.resilience.worker import now_ms
from peersub.runtime.addresses import split_address

__all__ = ["SIDED_STORIES", "STORIES", "TrialSettings", "run_trial"]

TIMEOUT_S = 60
CATCH_UP_S = 20
START_APART_S = 3.0
"""How long it takes until the last node of a cold start is started."""


@dataclass(frozen=True, slots=True)
class TrialSettings:
    """How large, how fast, how long."""

    nodes: int = 16
    subscriptions_per_node: int = 10
    rate: int = 500
    symbols: int = 50
    calm_s: float = 2.0
    """Before the first fault, and between a restart and the next."""
    fault_s: float = 3.0
    """From a fault to the return of those who failed."""
    story: str = "kill"
    seed: int = 1


class _Trial:
    def __init__(self, settings: TrialSettings, say: Callable[[str], None]) -> None:
        self.settings = settings
        self.notes = Notes(settings.symbols)
        self.random = random.Random(settings.seed)
        self.say = say
        self.cluster = Cluster(self._on_line)
        self.sides: Sides | None = None
        self.ways: SlowWays | None = None
        self.statuses: dict[str, Any] = {}
        self._names: dict[int, list[str]] = {}
        self._published = False

    def _on_line(self, worker: WorkerProcess, line: dict[str, Any]) -> None:
        if "got" in line:
            for name, event_id, _, at_ms in line["got"]:
                self.notes.got(name, event_id, at_ms)
        elif "ended" in line:
            for event_id, begun_ms, ended_ms, failure in line["ended"]:
                self.notes.ended(event_id, begun_ms, ended_ms, failure)
        elif "ready" in line:
            self.notes.ready(line["ready"], now_ms())
        elif "published" in line:
            self._published = True
        elif "status" in line:
            self.statuses[worker.name] = line["status"]

    async def run(self) -> Judgement:
        async with AsyncExitStack() as stack:
            if self.settings.story in SIDED_STORIES:
                if self.settings.story == "slow" and (reason := reason_not(slow=True)):
                    self.say(f"bytes go through slow proxies, without netem: {reason}")
                    self.ways = await stack.enter_async_context(SlowWays(self.settings.seed))
                else:
                    self.sides = stack.enter_context(Sides())
            await stack.enter_async_context(self.cluster)
            await _PLAYS[self.settings.story](self)
            await self._until(lambda: self._published, "all publications end")
            # What was acknowledged to those who were cut off comes when they are back.
            await self._wait_for(lambda: self.notes.judge().is_clean, CATCH_UP_S)
            await self._ask_all()
        return self.notes.judge()

    # --- stories -------------------------------------------------------------------------------

    async def play_faults(self) -> None:
        """A quarter of the nodes fails and returns; if they are killed, then half of them."""
        settings = self.settings
        for number in range(settings.nodes):
            await self._start(number)
        self.say(f"{settings.nodes} nodes")
        await self._subscribe(self.cluster.workers)
        self._publish(0, 3 * settings.calm_s + 2 * (settings.fault_s + 2 * settings.calm_s))
        await asyncio.sleep(settings.calm_s)
        await self._fault("a quarter", settings.nodes // 4)
        await asyncio.sleep(settings.calm_s)
        if settings.story == "kill":
            await self._fault("half", settings.nodes // 2)

    async def play_slow(self) -> None:
        """A quarter is killed and returns while packets take long, and some are lost."""
        if self.sides is not None:
            self.sides.slow_down()
        await self.play_faults()

    async def play_seed(self) -> None:
        """The node that began the network is killed, and started again as it was at first."""
        settings = self.settings
        for number in range(settings.nodes):
            await self._start(number)
        await self._subscribe(self.cluster.workers)
        self._publish(1, 3 * settings.calm_s + settings.fault_s)
        await asyncio.sleep(settings.calm_s)
        seed = self.cluster.workers[0]
        begin_ms = now_ms()
        self._kill([seed], begin_ms)
        self.say(f"kill the seed: {seed.name}")
        # As long as somebody takes who looks, or as a supervisor that starts it at once.
        await asyncio.sleep(self.random.choice((0.05, settings.fault_s)))
        self.notes.fault("kill the seed", begin_ms, now_ms())
        back = await self.cluster.start(listen=seed.name, join=[])
        self.say("it is back, and was told of nobody")
        await self._subscribe([back])

    async def play_cold(self) -> None:
        """All start at once, in any order, each told of all; subscribers and publisher at once."""
        settings = self.settings
        addresses = free_addresses(settings.nodes)

        async def start(address: str) -> None:
            await asyncio.sleep(self.random.random() * START_APART_S)
            await self.cluster.start(listen=address, join=addresses)

        order = self.random.sample(addresses, len(addresses))
        await asyncio.gather(*(start(address) for address in order))
        self.say(f"{settings.nodes} nodes started")
        await self._subscribe(self.cluster.workers)
        self._publish(0, 3 * settings.calm_s)

    def _publish(self, number: int, seconds: float) -> None:
        """Let a node publish for so long."""
        settings = self.settings
        count = int(settings.rate * seconds)
        self.cluster.workers[number].command(
            do="publish", rate=settings.rate, count=count, symbols=settings.symbols, prefix="e-"
        )
        self.say(f"publishing {count:,} events")

    # --- what stories are made of --------------------------------------------------------------

    async def _start(self, number: int) -> None:
        if self.ways is not None:
            await self._start_behind(await self.ways.open())
            return
        if self.sides is None:
            await self.cluster.start()
            return
        # The first three, whom everyone asks to be let in, and the publisher are on one side.
        side = int(number >= self.settings.nodes - self.settings.nodes // 4)
        host, prefix = self.sides.hosts[side], self.sides.prefix(side)
        await self.cluster.start(listen=f"{host}:0", prefix=prefix)

    async def _start_behind(self, proxy: str) -> WorkerProcess:
        """Start a node that others reach by a proxy."""
        assert self.ways is not None
        return await self.cluster.start(self.ways.listen_of(proxy), advertise=proxy)

    async def _start_again(self, worker: WorkerProcess) -> WorkerProcess:
        """Start a node as it was started at first."""
        if self.ways is not None:
            return await self._start_behind(worker.name)
        prefix: list[str] = []
        if self.sides is not None:
            host, _ = split_address(worker.name)
            prefix = self.sides.prefix(self.sides.hosts.index(host))
        return await self.cluster.start(worker.name, prefix)

    def _kill(self, victims: Sequence[WorkerProcess], at_ms: float) -> None:
        for worker in victims:
            worker.kill()
        for worker in victims:
            for name in self._names[worker.number]:
                self.notes.gone(name, at_ms)

    async def _subscribe(self, workers: Sequence[WorkerProcess]) -> None:
        names: list[str] = []
        for worker in workers:
            for number in range(self.settings.subscriptions_per_node):
                symbol = f"s{self.random.randrange(self.settings.symbols)}"
                name = f"w{worker.number}-{number}"
                self.notes.subscribed(name, symbol)
                worker.command(do="subscribe", name=name, filter=f"symbol = '{symbol}'")
                self._names.setdefault(worker.number, []).append(name)
                names.append(name)
        if not await self._wait_for(lambda: all(map(self.notes.is_ready, names)), TIMEOUT_S):
            raise TimeoutError(await self._not_ready())
        self.say(f"{len(names)} subscriptions ready")

    async def _not_ready(self) -> str:
        """Which subscriptions are not ready, and whose answer they wait for."""
        await self._ask_all()
        told = [
            f"{name} at {node} waits for {', '.join(nodes) or 'nobody'}"
            for node, status in self.statuses.items()
            for name, nodes in status["waiting"].items()
        ]
        return f"not ready after {TIMEOUT_S} s: {'; '.join(told)}"

    async def _ask_all(self) -> None:
        """Let every node that lives tell its state."""
        self.statuses.clear()
        for worker in self.cluster.living():
            worker.command(do="status")
        await self._until(
            lambda: len(self.statuses) >= len(self.cluster.living()), "every node answers"
        )

    async def _fault(self, what: str, count: int) -> None:
        """Let some nodes fail, never the publisher; later they come back."""
        candidates = [worker for worker in self.cluster.living() if worker.number]
        if self.settings.story == "cut":
            victims = candidates[-count:]
        else:
            victims = self.random.sample(candidates, count)
        begin_ms = now_ms()
        if self.settings.story in ("kill", "slow"):
            self._kill(victims, begin_ms)
        elif self.sides is not None:
            self.sides.cut()
        else:
            for worker in victims:
                worker.stop()
        self.say(f"{self.settings.story} {what}: {', '.join(w.name for w in victims)}")
        await asyncio.sleep(self.settings.fault_s)
        self.notes.fault(f"{self.settings.story} {what}", begin_ms, now_ms())
        if self.settings.story in ("kill", "slow"):
            back = [await self._start_again(worker) for worker in victims]
            self.say(f"{len(back)} nodes are back")
            await self._subscribe(back)
        else:
            if self.sides is not None:
                self.sides.mend()
            for worker in victims:
                worker.go_on()
            for worker in victims:
                for name in self._names[worker.number]:
                    self.notes.stood_still(name)

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        if not await self._wait_for(holds, TIMEOUT_S):
            raise TimeoutError(f"waited {TIMEOUT_S} s until {what}")

    async def _wait_for(self, holds: Callable[[], bool], seconds: float) -> bool:
        deadline = now_ms() + seconds * 1_000
        while not holds():
            if now_ms() > deadline:
                return False
            await asyncio.sleep(0.1)
        return True


_PLAYS: dict[str, Callable[[_Trial], Awaitable[None]]] = {
    "kill": _Trial.play_faults,
    "stop": _Trial.play_faults,
    "cut": _Trial.play_faults,
    "slow": _Trial.play_slow,
    "seed": _Trial.play_seed,
    "cold": _Trial.play_cold,
}
STORIES = tuple(_PLAYS)
"""`kill -9` of a quarter and of half of the nodes, which come back; a quarter that stands still for
a while (SIGSTOP); a network that is cut in two for a while, a quarter on one side; one with long
ways and losses in which a quarter is killed; its first node that is killed and started again as it
was; all nodes that start at once."""
SIDED_STORIES = ("cut", "slow")
"""Those that are played in network namespaces; `slow` also without."""


async def run_trial(settings: TrialSettings, say: Callable[[str], None]) -> Judgement:
    """Play the story, and judge it."""
    trial = _Trial(settings, say)
    judgement = await trial.run()
    counters: dict[str, int] = {}
    for status in trial.statuses.values():
        for reason, count in status["counters"].items():
            counters[reason] = counters.get(reason, 0) + count
    say(f"counted: {counters}")
    pauses = [f"{fault} {pause:,.0f} ms" for fault, pause in judgement.pauses_ms.items()]
    say(f"longest pauses: {', '.join(pauses) or 'none'}")
    return judgement
