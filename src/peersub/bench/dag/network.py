"""One layer of real peers in the simulator: idle, busy, and after many of its members crashed.

Every node subscribes to the one topic, so that every event is for everybody: an event that does not
reach a member is a missed delivery. The network starts converged, is left alone, gets events one
after the other, loses a share of its nodes at once, repairs itself, and gets events again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import process_time
from typing import Any, Final

from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.overlays.core.draws import draw, draw_below
from peersub.overlays.core.effects import Send
from peersub.overlays.core.identity import numbered_node
from peersub.overlays.core.link_messages import unwrapped
from peersub.simulator import actions as do
from peersub.simulator.meter import Meter
from peersub.simulator.running import Outcome, run_scenario
from peersub.simulator.scenario import Scenario
from peersub.simulator.summary import Spread, spread_of
from peersub.trace.checkers import DeliveryChecker
from peersub.trace.hops import event_ids_in
from peersub.trace.schema import Step, TraceRecord

__all__ = ["NetworkPoint", "NetworkTrial", "measure_network"]

IDLE_MS: Final = 120_000
BUSY_MS: Final = 10_000
WANTED: Final = Filter("symbol = 'A'")
LAYER: Final = "string:A"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkTrial:
    """What is done to a network.

    Args:
        nodes: how many, all of them members of the one layer.
        degree: edges of each member in the converged start.
        events: that the busy network gets in its ten seconds, and the repaired one after them.
        crashed_share: of the nodes, at once.
        seed: of all draws.
    """

    nodes: int
    degree: int = 4
    events: int = 50
    crashed_share: float = 0.3
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPoint:
    """What came of it."""

    trial: NetworkTrial
    edges: int
    copies_max: int
    """Of one event, before the crash."""
    expected: int
    missed: int
    """Deliveries before the crash."""
    hops: Spread | None
    delay_ms: Spread | None
    """From publication to delivery, before the crash."""
    idle_messages_per_second: float
    busy_messages_per_second: float
    crashed: int
    repaired_ms: int
    """How long the network took to come to rest after the crash."""
    repaired_expected: int
    repaired_missed: int
    violations: tuple[str, ...]
    seconds: float

    @property
    def idle_share(self) -> float:
        """Messages of the idle network / those of the busy one, in the same time."""
        return self.idle_messages_per_second / max(self.busy_messages_per_second, 1e-9)


class CopyCounter:
    """An observer that counts, for each event, the messages that carry it."""

    def __init__(self) -> None:
        self.copies: dict[str, int] = {}

    def observe(self, record: TraceRecord) -> None:
        """Count what a step sends."""
        if isinstance(record, Step):
            for effect in record.effects:
                if type(effect) is Send:
                    for message in effect.messages:
                        for event_id in event_ids_in(unwrapped(message)):
                            self.copies[event_id] = self.copies.get(event_id, 0) + 1


def measure_network(trial: NetworkTrial) -> NetworkPoint:
    """Carry the trial out."""
    started = process_time()
    names = [numbered_node(number) for number in range(trial.nodes)]
    order = sorted(names, key=lambda name: draw(trial.seed, "bench/crash", name))
    crashed = tuple(order[: round(trial.crashed_share * trial.nodes)])
    living = [name for name in names if name not in frozenset(crashed)]
    phases = (
        do.SchedulePhase("idle", (), settles=False, duration_ms=IDLE_MS),
        do.SchedulePhase(
            "busy", _published(trial, "busy", names), settles=False, duration_ms=BUSY_MS
        ),
        do.SchedulePhase("rest", ()),
        do.SchedulePhase("crash", (do.TimedAction(0, do.CrashNodes(crashed)),)),
        do.SchedulePhase("repaired", _published(trial, "repaired", living)),
    )
    schedule = do.Schedule(phases, tuple((name, ((f"s-{name}", WANTED),)) for name in names))
    scenario = Scenario(
        name="bench dag",
        seed=trial.seed,
        overlay="dag",
        settings={"degree": trial.degree},
        nodes=trial.nodes,
        start="converged",
        subscriptions=trial.nodes,
    )
    meter, copies = Meter(), CopyCounter()
    outcome = run_scenario(
        scenario, schedule=schedule, checker=DeliveryChecker(), observers=(meter, copies)
    )
    meter.finish()
    return _point(trial, outcome, meter, copies, len(crashed), process_time() - started)


def _published(trial: NetworkTrial, phase: str, nodes: Sequence[str]) -> tuple[do.TimedAction, ...]:
    every_ms = BUSY_MS // trial.events
    return tuple(
        do.TimedAction(
            number * every_ms,
            do.PublishEvent(
                nodes[draw_below(len(nodes), trial.seed, "bench/publisher", phase, number)],
                Event(f"{phase}-{number}", {"symbol": "A", "number": number}),
            ),
        )
        for number in range(trial.events)
    )


def _point(
    trial: NetworkTrial,
    outcome: Outcome,
    meter: Meter,
    copies: CopyCounter,
    crashed: int,
    seconds: float,
) -> NetworkPoint:
    from peersub.overlays.dag.graph import layer_graph

    counts: Any = outcome.checker.phases
    before, after = counts["busy"], counts["repaired"]
    (crash,) = (phase for phase in outcome.phases if phase.name == "crash")
    names = [numbered_node(number) for number in range(trial.nodes)]
    return NetworkPoint(
        trial=trial,
        edges=layer_graph(trial.seed, LAYER, names, trial.degree).edges,
        copies_max=max(count for name, count in copies.copies.items() if name.startswith("busy-")),
        expected=before.expected,
        missed=before.missed,
        hops=spread_of(before.hops),
        delay_ms=spread_of(meter.phases["busy"].latency_ms),
        idle_messages_per_second=meter.phases["idle"].messages * 1000 / IDLE_MS,
        busy_messages_per_second=meter.phases["busy"].messages * 1000 / BUSY_MS,
        crashed=crashed,
        repaired_ms=crash.ended_ms - crash.began_ms,
        repaired_expected=after.expected,
        repaired_missed=after.missed,
        violations=tuple(f"{each.rule}: {each.text}" for each in outcome.violations[:5]),
        seconds=seconds,
    )
