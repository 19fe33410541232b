"""One trial of a routing strategy in the simulator: what changes and events cost, each by itself.

A trial begins in a converged network with its subscriptions. First come *changes*, one after the
other: a subscription ends and another one begins on the same node, so that as many live as before.
Then events are published. A *mixed* trial does both at the same time. Periodic maintenance of the
ring is off, so all that is sent in a phase is sent because of what happens in it.

Every delivery is checked against brute force, and in small networks the overlay's invariants too;
what the checks find is part of the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from time import process_time
from typing import Any

from peersub.bench.routing_workload import World, WorldSettings, draw_world
from peersub.overlays.chord.placement import keys_for
from peersub.overlays.chord.settings import KEY_BITS_MAX, PLACEMENTS
from peersub.overlays.core.effects import Send
from peersub.simulator import actions as do
from peersub.simulator.engine import MakeNode
from peersub.simulator.meter import Meter, PhaseMeter
from peersub.simulator.nodes import node_maker
from peersub.simulator.running import Outcome, Run
from peersub.simulator.scenario import Scenario
from peersub.simulator.summary import load_figures, spread_of
from peersub.trace.checkers import DeliveryChecker, DeliveryCounts
from peersub.trace.schema import Phase, Step, TraceRecord
from peersub.wire import encode_batch
from peersub.workloads import Skew

__all__ = ["Contender", "EventCosts", "Trial", "TrialResult", "run_trial"]

CHANGE_EVERY_MS = 1_000
"""Long enough for all updates that a change causes to arrive before the next one."""
EVENT_EVERY_MS = 20
VIOLATIONS_SHOWN_MAX = 3
INVARIANT_NODES_MAX = 64
"""In larger networks the invariants of the overlay would take most of the time."""

_CHANGES = "changes"
_MIXED = "mixed"
_UPDATE = "filter-update"
_CONFIRMED = "filter-confirmed"


@dataclass(frozen=True, slots=True)
class Contender:
    """An overlay with settings, under a name for tables."""

    name: str
    overlay: str = "chord"
    settings: tuple[tuple[str, object], ...] = ()
    is_sampling: bool = False
    """Whether what it does depends on the sample of events that it is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """All that determines a trial."""

    contender: Contender
    world: str
    nodes: int
    subscriptions: int
    changes: int
    events: int
    share: float
    subscription_skew: Skew
    event_skews: tuple[Skew, ...]
    """For each of them a phase of so many events."""
    seed: int
    placement: str = PLACEMENTS[0]
    mixed: bool = False
    """Whether changes and events come at the same time; then there is one skew of events."""

    @property
    def title(self) -> str:
        """For people who wait for it."""
        skews = f"{self.subscription_skew} subscriptions, {' and '.join(self.event_skews)} events"
        parts = [self.contender.name, f"{self.share:.1%} interest", skews]
        if self.placement != PLACEMENTS[0]:
            parts.append(f"keys placed: {self.placement}")
        if self.mixed:
            parts.append(f"{self.changes} changes among {self.events} events")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventCosts:
    """What the events of a phase cost, and whom they reached."""

    events: int
    notifications: int
    bytes_sent: int
    receivers: int
    matching_receivers: int
    depth_mean: float
    depth_max: int

    @property
    def relay_share(self) -> float:
        """The receivers that did not want the event / all receivers."""
        return 1 - self.matching_receivers / self.receivers if self.receivers else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """What was counted in a trial."""

    trial: Trial
    changes: int
    updates: int
    confirmations: int
    change_bytes: int
    """Bytes of all messages of the changes; in a mixed trial, of all messages."""
    by_skew: Mapping[str, EventCosts]
    table_bytes_mean: float
    table_bytes_max: int
    rows_per_edge: float
    load_max_over_mean: float
    """The messages with events that the busiest node received, by the mean of all nodes."""
    other_messages: int
    """Messages that are neither updates, confirmations nor events: there should be none."""
    expected: int
    missed: int
    spurious: int
    duplicate: int
    invariant_checks: int
    violations: tuple[str, ...]
    seconds: float

    @property
    def is_good(self) -> bool:
        """Whether everybody got what they wanted, once, and all invariants held."""
        return not (self.missed or self.spurious or self.duplicate or self.violations)


def run_trial(trial: Trial) -> TrialResult:
    """Carry the trial out."""
    started = process_time()
    worlds = {skew: _world(trial, skew) for skew in trial.event_skews}
    schedule = _schedule(trial, worlds)
    scenario = Scenario(
        name=trial.title,
        seed=trial.seed,
        overlay=trial.contender.overlay,
        settings=_overlay_settings(trial),
        nodes=trial.nodes,
        start="converged",
        subscriptions=trial.subscriptions,
    )
    meter, sizes = Meter(), WireMeter()
    sample = tuple(worlds[trial.event_skews[0]].sample)
    make_node = _node_maker(trial, scenario, schedule, sample)
    run = Run(
        scenario,
        schedule,
        make_node,
        DeliveryChecker(),
        (meter, sizes),
        checks_invariants=trial.nodes <= INVARIANT_NODES_MAX,
    )
    outcome = run.carry_out()
    meter.finish()
    return _result(trial, outcome, meter, sizes, process_time() - started)


class WireMeter:
    """Counts the bytes that the messages of each phase take on the wire, with their frames."""

    def __init__(self) -> None:
        self.bytes_sent: dict[str, int] = {}
        self._phase = ""

    def observe(self, record: TraceRecord) -> None:
        """Count what the record tells."""
        if isinstance(record, Step):
            for effect in record.effects:
                if type(effect) is Send:
                    size = len(encode_batch(effect.messages))
                    self.bytes_sent[self._phase] = self.bytes_sent.get(self._phase, 0) + size
        elif isinstance(record, Phase):
            self._phase = record.name


# --- what is done --------------------------------------------------------------------------------


def _world(trial: Trial, event_skew: Skew) -> World:
    return draw_world(
        WorldSettings(
            kind=trial.world,
            subscriptions=trial.subscriptions + trial.changes,
            events=trial.events,
            share=trial.share,
            subscription_skew=trial.subscription_skew,
            event_skew=event_skew,
            seed=trial.seed,
        )
    )


def _overlay_settings(trial: Trial) -> dict[str, object]:
    settings = dict(trial.contender.settings)
    if trial.contender.overlay == "chord":
        successors = 2 * max(trial.nodes - 1, 1).bit_length()
        settings |= {"stabilise_ms": 0, "probe_ms": 0, "successors": successors}
    return settings


def _schedule(trial: Trial, worlds: Mapping[Skew, World]) -> do.Schedule:
    nodes = [f"n{number}" for number in range(trial.nodes)]
    subscriptions = worlds[trial.event_skews[0]].subscriptions
    given: dict[str, list[tuple[str, Any]]] = {node: [] for node in nodes}
    homes: dict[str, str] = {}
    for number, (name, wanted) in enumerate(subscriptions[: trial.subscriptions]):
        homes[name] = nodes[number % len(nodes)]
        given[homes[name]].append((name, wanted))
    changes = _changes(trial, homes, subscriptions[trial.subscriptions :])
    phases: list[do.SchedulePhase] = []
    if trial.mixed:
        (skew,) = trial.event_skews
        span_ms = trial.changes * CHANGE_EVERY_MS
        events = _publications(trial, nodes, worlds[skew], span_ms // max(trial.events, 1))
        actions = sorted([*changes, *events], key=lambda timed: timed.at_ms)
        phases.append(do.SchedulePhase(_MIXED, tuple(actions)))
    else:
        phases.append(do.SchedulePhase(_CHANGES, tuple(changes)))
        for skew, world in worlds.items():
            events = _publications(trial, nodes, world, EVENT_EVERY_MS)
            phases.append(do.SchedulePhase(skew, tuple(events)))
    return do.Schedule(tuple(phases), tuple((node, tuple(dealt)) for node, dealt in given.items()))


def _changes(
    trial: Trial, homes: Mapping[str, str], following: Sequence[tuple[str, Any]]
) -> list[do.TimedAction]:
    """Changes that follow each other: a subscription ends, another begins on its node."""
    random = Random(f"{trial.seed}/changes")
    living = dict(homes)
    actions: list[do.TimedAction] = []
    for number, (name, wanted) in enumerate(following):
        ended = random.choice(list(living))
        node = living.pop(ended)
        living[name] = node
        at_ms = number * CHANGE_EVERY_MS
        actions.append(do.TimedAction(at_ms, do.UnsubscribeAt(node, ended)))
        at_ms += CHANGE_EVERY_MS // 2
        actions.append(do.TimedAction(at_ms, do.SubscribeAt(node, name, wanted)))
    return actions


def _publications(
    trial: Trial, nodes: Sequence[str], world: World, every_ms: int
) -> list[do.TimedAction]:
    random = Random(f"{trial.seed}/publishers")
    return [
        do.TimedAction(number * every_ms, do.PublishEvent(random.choice(nodes), event))
        for number, event in enumerate(world.events)
    ]


def _node_maker(
    trial: Trial, scenario: Scenario, schedule: do.Schedule, sample: tuple[Mapping[str, Any], ...]
) -> MakeNode:
    filters = {node: [wanted for _, wanted in given] for node, given in schedule.given}
    keys = keys_for(trial.placement, filters, sample, bits=KEY_BITS_MAX, seed=trial.seed)
    return node_maker(scenario, sample if trial.contender.is_sampling else (), keys)


# --- what came of it -----------------------------------------------------------------------------


def _result(
    trial: Trial, outcome: Outcome, meter: Meter, sizes: WireMeter, seconds: float
) -> TrialResult:
    changes_phase = _MIXED if trial.mixed else _CHANGES
    changed = meter.phases.get(changes_phase, PhaseMeter())
    tables = _Tables()
    for host in outcome.simulation.living():
        tables.add(host.overlay)
    counts = outcome.checker.counts
    return TrialResult(
        trial=trial,
        changes=changed.causes.get("subscribe", 0),
        updates=changed.sent.get(_UPDATE, 0),
        confirmations=changed.sent.get(_CONFIRMED, 0),
        change_bytes=sizes.bytes_sent.get(changes_phase, 0),
        by_skew={
            skew: _event_costs(outcome.checker, meter, sizes, _MIXED if trial.mixed else skew)
            for skew in trial.event_skews
        },
        table_bytes_mean=sum(tables.bytes_kept) / max(len(tables.bytes_kept), 1),
        table_bytes_max=max(tables.bytes_kept, default=0),
        rows_per_edge=tables.rows / max(tables.edges, 1),
        load_max_over_mean=float(load_figures(meter.received_events)["max_over_mean"]),
        other_messages=sum(map(_other_messages, meter.phases.values())),
        expected=counts.expected,
        missed=counts.missed,
        spurious=counts.spurious,
        duplicate=counts.duplicate,
        invariant_checks=outcome.invariant_checks,
        violations=tuple(
            f"{violation.rule}: {violation.text}"
            for violation in outcome.violations[:VIOLATIONS_SHOWN_MAX]
        ),
        seconds=seconds,
    )


def _other_messages(phase: PhaseMeter) -> int:
    expected = (_UPDATE, _CONFIRMED, *phase.data)
    return sum(count for kind, count in phase.sent.items() if kind not in expected)


@dataclass(slots=True)
class _Tables:
    """What the filter tables of all nodes take."""

    bytes_kept: list[int] = field(default_factory=list)
    rows: int = 0
    edges: int = 0

    def add(self, overlay: Any) -> None:
        """Count those of one node; flooding has none."""
        maintenance = getattr(getattr(overlay, "engine", None), "maintenance", None)
        self.bytes_kept.append(0 if maintenance is None else maintenance.state_bytes())
        if maintenance is not None:
            for peer in overlay.topology.edges():
                self.edges += 1
                self.rows += len(maintenance.told(peer).entries)


def _event_costs(
    checker: DeliveryChecker, meter: Meter, sizes: WireMeter, phase: str
) -> EventCosts:
    totals = meter.phases[phase].totals
    spread = spread_of(checker.phases.get(phase, DeliveryCounts()).hops)
    return EventCosts(
        events=totals.events,
        notifications=totals.copies,
        bytes_sent=sizes.bytes_sent.get(phase, 0),
        receivers=totals.receivers,
        matching_receivers=totals.matching_receivers,
        depth_mean=spread.mean if spread else 0.0,
        depth_max=spread.largest if spread else 0,
    )
