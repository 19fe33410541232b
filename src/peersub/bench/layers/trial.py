"""One network: clients gather at super-peers, then nodes come and go while events are published.

The paper leaves to the future what its §5 plans: "to measure the delay between a news publication
and its reception which is obviously dependent on network topology changes", and "the impact of the
system self-organization". A trial has three parts:

gathering   clients come to nodes at random, one after the other, and with clusters some of them
            follow the proposals of their super-peers; then the layers per super-peer are counted;
churn       nodes crash, take leave and join at a rate, new clients come in place of those whose
            nodes went, and events are published at nodes at random: these are measured;
after       the network has come to rest: whoever lives gets every event, which is checked.

The delay of an event at a client is the time from its publication until the client has it, on
whichever of its nodes. Its turns are the links that it came over, as the trace has them: each is
passed in a turn of a member, but for the one to whom a node that is no member hands it.

Every delivery is judged by brute force, at nodes and at clients. Under churn best effort may miss
somebody: that is counted, and not judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from time import process_time
from typing import Final

from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.overlays.core.causes import Publish
from peersub.overlays.core.effects import Deliver
from peersub.simulator.activities import (
    Activity,
    NodeChurnActivity,
    PublishActivity,
    SubscribeActivity,
)
from peersub.simulator.nodes import node_maker
from peersub.simulator.running import Outcome, Run
from peersub.simulator.scenario import Scenario, ScenarioPhase
from peersub.simulator.schedule import schedule_of
from peersub.trace.checkers import DeliveryChecker
from peersub.trace.schema import Step, TraceRecord

__all__ = ["LayersPoint", "LayersTrial", "run_trial"]

SECTORS: Final = 8
SYMBOLS: Final = 64
SYMBOLS_PER_CLIENT_MAX: Final = 3
PRICES: Final = 20
CRASH_SHARE: Final = 0.5
"""Of the nodes that go; the others take leave."""
COMING_EVERY_MS: Final = 250
"""A client comes so often while they gather."""
AFTER_EVENTS: Final = 40
LINGER_MS: Final = 5_000
"""How long a super-peer stays in a layer that no client of it needs: less than trials last."""
_WEIGHTS: Final = [1 / (place + 1) for place in range(SYMBOLS // SECTORS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayersTrial:
    """What is done to a network.

    Args:
        nodes: super-peers at the begin.
        clients: that come to them.
        changes_per_second: nodes that go or come, in turns.
        seconds: how long they do.
        events_per_second: that are published meanwhile.
        clusters: whether clients are proposed to move.
        seed: of all draws.
    """

    nodes: int
    clients: int
    changes_per_second: float
    seconds: int
    events_per_second: int
    clusters: bool
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LayersPoint:
    """What came of it."""

    trial: LayersTrial
    delay_ms: Mapping[int, int]
    """How many events came to clients after so long."""
    turns: Mapping[int, int]
    layers: tuple[int, ...]
    """Per super-peer, the layers that its clients need, when they have gathered."""
    expected: int
    missed: int
    """Under churn, at clients."""
    after_expected: int
    proposed: int
    moved: int
    messages: int
    violations: tuple[str, ...]
    seconds: float


class MarketContent:
    """Clients that want a few symbols of one sector, some of them by price; and trades."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def subscription(self, number: int) -> tuple[str, Filter]:
        """What a client wants."""
        random = Random(f"{self._seed}/client/{number}")
        sector = random.randrange(SECTORS)
        count = random.randint(1, SYMBOLS_PER_CLIENT_MAX)
        names = sorted({self._symbol(random, sector) for _ in range(count)})
        listed = ", ".join(f"'{name}'" for name in names)
        wish = random.choice(("", f" AND price >= {random.randrange(PRICES)}"))
        return f"s{number}", Filter(f"symbol IN ({listed}){wish}")

    def event(self, number: int) -> Event:
        """A trade."""
        random = Random(f"{self._seed}/trade/{number}")
        symbol = self._symbol(random, random.randrange(SECTORS))
        return Event(f"e{number}", {"symbol": symbol, "price": random.randrange(PRICES)})

    def _symbol(self, random: Random, sector: int) -> str:
        place = random.choices(range(len(_WEIGHTS)), _WEIGHTS)[0]
        return f"S{sector}{place}"


@dataclass(slots=True)
class Delays:
    """An observer: how long, and over how many links, events came to clients, the first time."""

    delay_ms: Counter[int] = field(default_factory=Counter)
    turns: Counter[int] = field(default_factory=Counter)
    is_measuring: bool = False
    _published: dict[str, int] = field(default_factory=dict)
    _taken: dict[tuple[str, str], None] = field(default_factory=dict)

    def observe(self, record: TraceRecord) -> None:
        """Look at a step."""
        if not isinstance(record, Step):
            return
        if isinstance(record.cause, Publish) and self.is_measuring:
            for publication in record.cause.publications:
                self._published[publication.id] = record.now_ms
        for effect in record.effects:
            if type(effect) is Deliver:
                published_ms = self._published.get(effect.publication.id)
                if published_ms is not None:
                    self._on_deliver(effect, record.now_ms - published_ms)

    def _on_deliver(self, effect: Deliver, delay_ms: int) -> None:
        for name in effect.subscriptions:
            key = (effect.publication.id, name)
            if key not in self._taken:
                self._taken[key] = None
                self.delay_ms[delay_ms] += 1
                self.turns[effect.hops] += 1


def run_trial(trial: LayersTrial) -> LayersPoint:
    """Carry the trial out."""
    started = process_time()
    scenario = _scenario(trial)
    content = MarketContent(trial.seed)
    schedule = schedule_of(scenario, content)
    delays = Delays()
    run = Run(
        scenario,
        schedule,
        node_maker(scenario),
        DeliveryChecker(),
        (delays, layers := _Gathered(), _Begin(delays)),
        checks_invariants=False,
    )
    layers.run = run
    outcome = run.carry_out()
    return _point(trial, outcome, delays, layers, process_time() - started)


def _scenario(trial: LayersTrial) -> Scenario:
    steps: list[Activity] = [
        PublishActivity(
            count=trial.seconds * trial.events_per_second,
            every_ms=1_000 // trial.events_per_second,
        )
    ]
    if trial.changes_per_second:
        steps.append(
            NodeChurnActivity(
                duration_ms=trial.seconds * 1_000,
                per_second=trial.changes_per_second,
                crash_share=CRASH_SHARE,
            )
        )
        # Half of the changes take a node's clients away.
        lost = trial.changes_per_second / 2 * trial.seconds * trial.clients / trial.nodes
        if round(lost):
            every_ms = trial.seconds * 1_000 // round(lost)
            steps.append(SubscribeActivity(count=round(lost), every_ms=every_ms))
    gathering = SubscribeActivity(count=trial.clients, every_ms=COMING_EVERY_MS)
    return Scenario(
        name="bench layers",
        seed=trial.seed,
        overlay="dag",
        settings={"clusters": trial.clusters, "linger_ms": LINGER_MS},
        nodes=trial.nodes,
        start="converged",
        subscriptions=0,
        phases=(
            ScenarioPhase(name="gathering", steps=(gathering,)),
            ScenarioPhase(name="churn", steps=tuple(steps)),
            ScenarioPhase(name="after", steps=(PublishActivity(count=AFTER_EVENTS, every_ms=100),)),
        ),
    )


class _Begin:
    """Lets delays be measured in the middle phase."""

    def __init__(self, delays: Delays) -> None:
        self._delays = delays

    def observe(self, record: TraceRecord) -> None:
        """Look for phases."""
        name = getattr(record, "name", None)
        if name is not None:
            self._delays.is_measuring = name == "churn"


class _Gathered:
    """Counts the layers of each super-peer when the clients have gathered."""

    def __init__(self) -> None:
        self.run: Run | None = None
        self.layers: tuple[int, ...] = ()

    def observe(self, record: TraceRecord) -> None:
        """Look for the end of the gathering."""
        if getattr(record, "name", None) == "churn" and self.run is not None:
            living = self.run.simulation.living()
            self.layers = tuple(len(host.overlay.membership.needed()) for host in living)


def _point(
    trial: LayersTrial, outcome: Outcome, delays: Delays, gathered: _Gathered, seconds: float
) -> LayersPoint:
    clients, judged = outcome.clients, outcome.client_checker
    assert clients is not None
    assert judged is not None
    phases = judged.checker.phases
    return LayersPoint(
        trial=trial,
        delay_ms=dict(delays.delay_ms),
        turns=dict(delays.turns),
        layers=gathered.layers,
        expected=phases["churn"].expected,
        missed=phases["churn"].missed,
        after_expected=phases["after"].expected if "after" in phases else 0,
        proposed=clients.proposed,
        moved=clients.moved,
        messages=sum(host.sent for host in outcome.simulation.hosts.values()),
        violations=tuple(f"{each.rule}: {each.text}" for each in outcome.violations[:5]),
        seconds=seconds,
    )
