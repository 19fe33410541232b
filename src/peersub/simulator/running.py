"""A run: a scenario, its schedule carried out, and everybody who checks it.

Each phase marks its begin, does its actions at their times, and waits until all is quiet. Quiet
networks are asked for the invariants of their overlay, each side of a partition by itself. Whatever
is wrong becomes a violation: a checker's, an invariant's, a network that never gets quiet, or an
exception out of a protocol.
"""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.overlays.core.causes import Publish, Subscribe, Timer, TimerFired, Unsubscribe
from peersub.overlays.core.checks import Checks, StepCheck
from peersub.overlays.core.mirrors import MirrorSettings
from peersub.overlays.core.publication import Delivery, Publication
from peersub.overlays.registry import overlay_kind
from peersub.simulator import actions as do
from peersub.simulator.clients import Clients
from peersub.simulator.content import Content, content_for
from peersub.simulator.durables import Durables
from peersub.simulator.engine import MakeNode, Simulation
from peersub.simulator.hosts import Host
from peersub.simulator.nodes import keys_of, node_maker, sample_of, wire_passage
from peersub.simulator.quiescence import unrest
from peersub.simulator.scenario import Scenario
from peersub.simulator.schedule import schedule_of
from peersub.trace.checkers import HORIZON_MS, DeliveryChecker, Violation
from peersub.trace.client_checker import ClientChecker
from peersub.trace.durable_checker import DurableChecker
from peersub.trace.hops import TracedHops
from peersub.trace.schema import Observer, Step, TraceRecord

__all__ = ["Outcome", "PhaseOutcome", "Run", "run_scenario"]

TRACEBACK_LINES_MAX = 12
INVARIANT_NODES_MAX = 4_096
"""In larger networks of an overlay that can, some nodes are checked, drawn anew each time."""
INVARIANT_SAMPLE = 1_024
"""How many."""
STEP_NODES_MAX = 256
"""Networks up to this size are also checked at each step."""
STEP_COMPLAINTS_MAX = 20
COLLECTION_THRESHOLDS = (50_000, 20, 100)
"""Causes and messages are no cycles: looking for cycles among millions of objects is in vain."""
MIRROR_LOST_MS = 100
MIRROR_ANSWER_MS = 2_000
"""Mirrors are quicker than live ones: a run is quiet only when they have nothing left to say."""
_BEGIN = Timer("simulator/begin")
_DISTURBING = (
    do.JoinNode,
    do.LeaveNode,
    do.CrashNodes,
    do.StallNodes,
    do.RestartNode,
    do.Partition,
    do.Heal,
    do.BreakEdges,
    do.BreakLinks,
    do.MendEdges,
)


@dataclass(frozen=True, slots=True)
class PhaseOutcome:
    """When a phase began and ended, and whether the network was quiet then."""

    name: str
    began_ms: int
    ended_ms: int
    is_quiet: bool


@dataclass(slots=True)
class Outcome:
    """What came of a run."""

    scenario: Scenario
    schedule: do.Schedule
    simulation: Simulation
    checker: DeliveryChecker
    violations: list[Violation] = field(default_factory=list)
    phases: list[PhaseOutcome] = field(default_factory=list)
    invariant_checks: int = 0
    invariant_failures: int = 0
    invariant_sample: int = 0
    """Nodes looked at in a check of a large network; 0 if all nodes always were."""
    seconds: dict[str, float] = field(default_factory=dict)
    """By the stopwatch, what was spent on `setting_up`, `running` and `checking` invariants."""
    clients: Clients | None = None
    """Who subscribes, where the overlay proposes moves, and what became of the proposals."""
    client_checker: ClientChecker | None = None
    durable_checker: DurableChecker | None = None

    @property
    def is_good(self) -> bool:
        """Whether nothing was violated."""
        return not self.violations


def run_scenario(
    scenario: Scenario,
    *,
    content: Content | None = None,
    schedule: do.Schedule | None = None,
    checker: DeliveryChecker | None = None,
    observers: Sequence[Observer] = (),
    progress: Callable[[Simulation], None] | None = None,
    stopwatch: Callable[[], float] | None = None,
) -> Outcome:
    """Carry the scenario out, and say what came of it.

    Args:
        scenario: what is asked for.
        content: subscriptions and events, if they do not come from the scenario's workload.
        schedule: what is done, if it is not to be drawn from the scenario.
        checker: judges deliveries.
        observers: further ones, such as a writer of the trace.
        progress: is called now and then.
        stopwatch: seconds; no result depends on it but those of the outcome.

    Raises:
        SettingsError: the scenario cannot be carried out as it is.
    """
    if content is None:
        content = content_for(scenario.workload, scenario.seed, scenario.subscriptions)
    if schedule is None:
        schedule = schedule_of(scenario, content)
    keys = keys_of(scenario, content, schedule)
    kind = overlay_kind(scenario.overlay)
    make_node = node_maker(scenario, sample_of(scenario, content), keys)
    run = Run(
        scenario,
        schedule,
        make_node,
        checker or DeliveryChecker(judges_misses=not kind.is_approximate),
        observers,
        progress,
        stopwatch=stopwatch,
    )
    return run.carry_out()


class Run:
    """One run, from begin to end."""

    def __init__(
        self,
        scenario: Scenario,
        schedule: do.Schedule,
        make_node: MakeNode,
        checker: DeliveryChecker,
        observers: Sequence[Observer] = (),
        progress: Callable[[Simulation], None] | None = None,
        *,
        checks_invariants: bool = True,
        stopwatch: Callable[[], float] | None = None,
    ) -> None:
        self.scenario = scenario
        self.schedule = schedule
        passage = wire_passage(lambda: self.simulation.counters) if scenario.through_wire else None
        self._kind = overlay_kind(scenario.overlay)
        self._checks = self._kind.checks if checks_invariants else None
        self._step_complaints = 0
        self._clients, client_checker = self._movable_clients(checker)
        durables: Durables | None = None
        if scenario.durable_share:
            durables = Durables(self._mirror_settings(), DurableChecker(scenario.copies))
        self.simulation = Simulation(
            scenario.seed,
            make_node,
            scenario.network,
            self._with_hops(
                (
                    checker,
                    *self._step_checkers(),
                    *self._client_observers(client_checker),
                    *(() if durables is None else (durables, durables.checker)),
                    *observers,
                )
            ),
            through_wire=passage,
            steps_max=scenario.steps_max,
            progress=progress,
        )
        if self._clients is not None:
            self._clients.attach(self.simulation)
        if durables is not None:
            durables.attach(self.simulation)
            checker.may_fail = durables.may_fail
        self.outcome = Outcome(
            scenario,
            schedule,
            self.simulation,
            checker,
            clients=self._clients,
            client_checker=client_checker,
            durable_checker=None if durables is None else durables.checker,
        )
        self._stopwatch = stopwatch
        self._spent_until = 0.0 if stopwatch is None else stopwatch()

    def _with_hops(self, observers: tuple[Observer, ...]) -> tuple[Observer, ...]:
        """Observers of an overlay that says no hops are told those of the trace."""
        return observers if self._kind.says_hops else (TracedHops(observers),)

    def carry_out(self) -> Outcome:
        """Do all that is scheduled; exceptions of protocols become violations."""
        outcome = self.outcome
        is_quiet = False
        thresholds = gc.get_threshold()
        gc.set_threshold(*COLLECTION_THRESHOLDS)
        try:
            if self.schedule.given:
                self._begin_converged()
            is_quiet = True
            for phase in self.schedule.phases:
                is_quiet = self._carry_out_phase(phase, is_quiet)
        except Exception as error:
            lines = "".join(traceback.format_exception(error)).splitlines()
            self._report("exception", "\n".join(lines[-TRACEBACK_LINES_MAX:]))
            is_quiet = False
        finally:
            gc.set_threshold(*thresholds)
        self._spend("running")
        outcome.checker.finish(self.simulation.now_ms, settled=is_quiet)
        durables = self.simulation.durables
        outcome.violations[:0] = [
            each
            for each in outcome.checker.violations
            if durables is None or not durables.judges(each)
        ]
        if outcome.client_checker is not None:
            outcome.client_checker.finish(self.simulation.now_ms, settled=is_quiet)
            outcome.violations += outcome.client_checker.violations
        if outcome.durable_checker is not None:
            assert self.simulation.durables is not None
            self.simulation.durables.finish()
            if is_quiet:
                outcome.durable_checker.finish(self.simulation.now_ms)
            outcome.violations += outcome.durable_checker.violations
        outcome.violations.sort(key=lambda violation: violation.now_ms)
        return outcome

    def _spend(self, on: str) -> None:
        """What has been spent since this was last called was spent on that."""
        if self._stopwatch is not None:
            now, seconds = self._stopwatch(), self.outcome.seconds
            seconds[on] = seconds.get(on, 0.0) + now - self._spent_until
            self._spent_until = now

    # --- a start in a converged state ----------------------------------------------------------

    def _begin_converged(self) -> None:
        simulation = self.simulation
        simulation.mark("converged")
        part = self._kind.part("converged")
        assert part is not None, f"{self._kind.name} has no converged start"
        overlays = [simulation.add(node).overlay for node, _ in self.schedule.given]
        part.converge(
            overlays,
            {node: dict(given) for node, given in self.schedule.given},
            simulation.report_progress,
        )
        simulation.link_all()
        for node, given in self.schedule.given:
            simulation.give(node, given)
            # What the state that was set asks for, such as timers, comes out with the next cause.
            simulation.cause(node, TimerFired(_BEGIN))
        self._spend("setting_up")
        self._check_invariants()

    # --- phases --------------------------------------------------------------------------------

    def _carry_out_phase(self, phase: do.SchedulePhase, was_quiet: bool) -> bool:
        simulation = self.simulation
        began_ms = simulation.now_ms
        simulation.mark(phase.name, disturbed=not was_quiet or self._disturbs(phase))
        for timed in phase.actions:
            simulation.at(began_ms + timed.at_ms, self._act, timed.action)
        last_ms = phase.actions[-1].at_ms if phase.actions else 0
        simulation.run_for(max(phase.duration_ms, last_ms))
        acted_ms = simulation.now_ms
        is_quiet = False
        if phase.settles:
            is_quiet = simulation.run_until_quiet(
                self.scenario.quiet_limit_ms, self.scenario.settle_ms
            )
            if is_quiet:
                # Now, not later: peers that reorganise by the clock may begin again at any time.
                self._check_invariants()
                # No event is under way when the next phase begins, also for who does not know it.
                simulation.run_for(max(acted_ms + HORIZON_MS + 1 - simulation.now_ms, 0))
            else:
                what = unrest(simulation, self.scenario.settle_ms)
                limit_ms = self.scenario.quiet_limit_ms
                text = f"not quiet {limit_ms} ms after the phase {phase.name}: {what}"
                self._report("not-quiet", text)
        self.outcome.phases.append(PhaseOutcome(phase.name, began_ms, simulation.now_ms, is_quiet))
        return is_quiet

    def _disturbs(self, phase: do.SchedulePhase) -> bool:
        network = self.simulation.network
        return (
            self.scenario.network.loss > 0
            or network.is_partitioned
            or bool(network.blocked_pairs())
            or any(isinstance(timed.action, _DISTURBING) for timed in phase.actions)
        )

    def _check_invariants(self) -> None:
        if self._checks is None:
            return
        self._spend("running")
        sides: dict[int, list[Any]] = {}
        for host in self.simulation.living():
            sides.setdefault(host.group, []).append(host.overlay)
        for overlays in sides.values():
            self.outcome.invariant_checks += 1
            for text in self._complaints(self._checks, overlays):
                self.outcome.invariant_failures += 1
                self._report("invariant", text)
        self._spend("checking")

    def _complaints(self, checks: Checks, overlays: list[Any]) -> list[str]:
        """What the invariants say of nodes that can all reach each other; of many, of some."""
        if checks.sample is None or len(overlays) <= INVARIANT_NODES_MAX:
            return checks.quiet(overlays)
        self.outcome.invariant_sample = INVARIANT_SAMPLE
        seed, number = self.scenario.seed, self.outcome.invariant_checks
        drawn = Random(f"{seed}/invariants/{number}").sample(overlays, INVARIANT_SAMPLE)
        return checks.sample(overlays, drawn)

    def _mirror_settings(self) -> MirrorSettings:
        return MirrorSettings(
            copies=self.scenario.copies,
            away_max_ms=self.scenario.away_max_ms,
            lost_ms=MIRROR_LOST_MS,
            answer_ms=MIRROR_ANSWER_MS,
        )

    def _movable_clients(
        self, checker: DeliveryChecker
    ) -> tuple[Clients | None, ClientChecker | None]:
        if not self._kind.proposes_moves:
            return None, None
        judge = ClientChecker(checker.twin())
        return Clients(self.scenario.seed, self.scenario.moves, judge), judge

    def _client_observers(self, client_checker: ClientChecker | None) -> list[Observer]:
        """The checker first: it knows what was published before it hears who took it."""
        if self._clients is None or client_checker is None:
            return []
        return [client_checker, self._clients]

    def _step_checkers(self) -> list[Observer]:
        """Of an overlay's own."""
        if self._checks is None:
            return []
        watch = self._checks.watch
        check = self._checks.step if watch is None else watch(self._overlay_at)
        is_small = max(self.scenario.nodes, len(self.schedule.given)) <= STEP_NODES_MAX
        return [_StepChecker(self, check)] if check is not None and is_small else []

    def _overlay_at(self, node: str) -> Any | None:
        """The overlay peer on a node; None while it is off."""
        host = self.simulation.hosts.get(node)
        return None if host is None else host.overlay

    def check_step(self, check: StepCheck, step: Step) -> None:
        """What must always hold, after a step; the first complaints are reported."""
        self._spend("running")
        host = self.simulation.hosts[step.node]
        self.outcome.invariant_checks += 1
        for text in check(host.overlay, step.cause, step.effects):
            self.outcome.invariant_failures += 1
            if self._step_complaints < STEP_COMPLAINTS_MAX:
                self._step_complaints += 1
                self._report("invariant", text)
        self._spend("checking")

    def _report(self, rule: str, text: str) -> None:
        self.outcome.violations.append(Violation(self.simulation.now_ms, rule, text))

    # --- actions -------------------------------------------------------------------------------

    def _act(self, action: do.Action) -> None:
        """Do it, unless it makes no sense by now."""
        simulation = self.simulation
        match action:
            case do.PublishEvent(node, event, delivery):
                if self._takes_part(node):
                    simulation.cause(node, Publish((Publication.of(event, delivery),)))
            case do.PublishEvents(node, batch, events, delivery):
                if self._takes_part(node):
                    self._publish_together(node, batch, events, delivery)
            case do.SubscribeAt(node, subscription, wanted):
                if self._takes_part(node):
                    self._subscribe(node, subscription, wanted)
            case do.UnsubscribeAt(node, subscription):
                self._unsubscribe(node, subscription)
            case do.ChangeAt(node, subscription, wanted):
                for place in self._unsubscribe(node, subscription)[:1]:
                    self._subscribe(place, subscription, wanted)
            case do.JoinNode(node, contacts, as_given):
                if node not in simulation.hosts and as_given:
                    simulation.join(node, contacts)
                elif node not in simulation.hosts:
                    self._join(node, contacts)
            case do.LeaveNode(node):
                if self._takes_part(node) and self._goes_on_without([node]):
                    simulation.leave(node)
            case do.CrashNodes(nodes):
                on = [node for node in nodes if simulation.is_on(node)]
                if on and self._goes_on_without(on):
                    simulation.crash(on)
            case do.StallNodes(nodes, duration_ms):
                going = [node for node in nodes if self._takes_part(node)]
                if going:
                    simulation.stall(going, duration_ms)
            case do.RestartNode(node, contacts, disk, alone):
                if node in simulation.hosts and not simulation.is_on(node):
                    is_alone = alone and self._is_sought(node)
                    told = () if is_alone else self._reachable(node, contacts)
                    simulation.restart(node, told, disk)
            case _:
                self._act_on_network(action)

    def _subscribe(self, node: str, subscription: str, wanted: Filter) -> None:
        """A subscription, durable or not as is drawn from its name."""
        durables = self.simulation.durables
        drawn = Random(f"{self.scenario.seed}/durable/{subscription}").random()
        if durables is not None and drawn < self.scenario.durable_share:
            durables.make(self.simulation.hosts[node], subscription, wanted)
        else:
            self.simulation.cause(node, Subscribe(subscription, wanted))

    def _unsubscribe(self, node: str, subscription: str) -> list[str]:
        """End a subscription, wherever it is by now; the nodes that it was on."""
        if self._clients is not None:
            nodes = self._clients.nodes_of(subscription)
            places = [place for place in nodes if self._takes_part(place)]
            self._clients.end(subscription)
            return places
        if not self._takes_part(node):
            return []
        durables = self.simulation.durables
        if durables is not None and subscription in durables:
            durables.end(self.simulation.hosts[node], subscription)
        else:
            self.simulation.cause(node, Unsubscribe(subscription))
        return [node]

    def _publish_together(
        self, node: str, batch: str, events: Sequence[Event], delivery: Delivery
    ) -> None:
        """As a batch, or one by one where the node has no place in the network yet."""
        publications = tuple(Publication.of(event, delivery) for event in events)
        if self.simulation.hosts[node].overlay.takes_part:
            self.simulation.publish_batch(node, batch, publications)
        else:
            self.simulation.cause(node, Publish(publications))

    def _goes_on_without(self, nodes: Sequence[str]) -> bool:
        """Whether a network is left when these go: nodes on their way in or out are none."""
        others = [host for host in self.simulation.living() if host.name not in nodes]
        return any(self._is_member(host.name) for host in others) and not self._are_strangers(
            others
        )

    def _are_strangers(self, hosts: Sequence[Host]) -> bool:
        """Whether nodes are left of which none knows one of the others: they could never meet."""
        if any(host.overlay.missing_nodes is None for host in hosts):
            return False  # Nodes of these overlays wait for who is gone.
        known: dict[str, set[str]] = {host.name: set() for host in hosts}
        settled: list[str] = []
        for host in hosts:
            linked = [peer.node for peer in host.overlay.links()]
            others = {*linked, *host.overlay.missing_nodes}
            if others:  # One that neither has links nor looks for anybody is on its way in.
                settled.append(host.name)
            for other in others.intersection(known):
                known[host.name].add(other)
                known[other].add(host.name)
        reached: set[str] = set()
        ahead = settled[:1]
        while ahead:
            name = ahead.pop()
            reached.add(name)
            ahead += known[name] - reached
        return not reached.issuperset(settled)

    def _act_on_network(self, action: do.Action) -> None:
        simulation = self.simulation
        known = simulation.hosts
        match action:
            case do.Partition(groups):
                simulation.partition([[n for n in names if n in known] for names in groups])
            case do.Heal():
                simulation.heal()
            case do.BreakEdges(pairs):
                simulation.break_edges([pair for pair in pairs if pair[0] != pair[1]])
            case do.BreakLinks(node, count):
                if simulation.is_on(node):
                    peers = list(known[node].overlay.links())[:count]
                    simulation.break_edges([(node, peer.node) for peer in peers])
            case _:
                simulation.mend_edges()

    def _takes_part(self, node: str) -> bool:
        host = self.simulation.hosts.get(node)
        if host is None or not host.is_on:
            return False
        return not host.is_leaving and host.still_until_ms is None

    def _is_member(self, node: str) -> bool:
        """Whether the node is in the network, neither on its way in nor on its way out."""
        host = self.simulation.hosts.get(node)
        return self._takes_part(node) and not (host and host.overlay.is_joining)

    def _join(self, node: str, contacts: tuple[str, ...]) -> None:
        living = [host for host in self.simulation.living() if not host.is_leaving]
        if living:
            names = [contact for contact in contacts if self._takes_part(contact)]
            self.simulation.join(node, self._with_a_member(names, living))
        else:
            self.simulation.start(node)

    def _is_sought(self, node: str) -> bool:
        """Whether others look for a node that is off, and would find it."""
        return any(
            node in (host.overlay.missing_nodes or ())
            for host in self.simulation.living()
            if self._is_member(host.name)
        )

    def _reachable(self, node: str, contacts: tuple[str, ...]) -> list[str]:
        """The contacts that live, or whoever does and can be reached, or whoever does."""
        there = [contact for contact in contacts if self._takes_part(contact)]
        living = [host for host in self.simulation.living() if not host.is_leaving]
        host = self.simulation.hosts[node]
        near: list[Host] = [each for each in living if self.simulation.network.can_talk(host, each)]
        return self._with_a_member(there, near or living)

    def _with_a_member(self, names: list[str], others: Sequence[Host]) -> list[str]:
        """Contacts of which one is in the network: nodes that only know each other never join."""
        if any(self._is_member(name) for name in names):
            return names
        members = [host.name for host in others if self._is_member(host.name)]
        return [*names, *(members or [host.name for host in others])[:1]]


class _StepChecker:
    """Asks the overlay's own invariants after each step."""

    def __init__(self, run: Run, check: StepCheck) -> None:
        self._run = run
        self._check = check

    def observe(self, record: TraceRecord) -> None:
        """Look at the step."""
        if isinstance(record, Step):
            self._run.check_step(self._check, record)
