"""Shrinking: from a schedule that fails to a small one that fails in the same way.

Delta debugging on the actions: take out halves, then quarters, and so on down to single actions,
and keep what still fails; before, whole phases, and simpler settings (a network without faults, no
wire format). "In the same way" means that a violation of the same rule is found. The number of
reruns is bounded; the smallest so far is what comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial

from peersub.simulator.actions import Schedule, SchedulePhase, TimedAction
from peersub.simulator.scenario import Scenario, ScenarioPhase
from peersub.simulator.settings import NetworkSettings
from peersub.trace.checkers import Violation

__all__ = ["RERUNS_MAX", "Shrunk", "explicit_scenario", "shrink"]

RERUNS_MAX = 400

Rerun = Callable[[Scenario, Schedule], Sequence[Violation]]


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest failing run that was found."""

    scenario: Scenario
    schedule: Schedule
    violations: tuple[Violation, ...]
    reruns: int

    def to_toml(self) -> str:
        """A scenario file with explicit actions that replays it."""
        return explicit_scenario(self.scenario, self.schedule).to_toml()


def explicit_scenario(scenario: Scenario, schedule: Schedule) -> Scenario:
    """The scenario that does exactly what the schedule says.

    A start in a converged state is set up from the numbers of nodes and subscriptions, as before.
    """
    phases = tuple(
        ScenarioPhase(
            name=phase.name,
            actions=phase.actions,
            settles=phase.settles,
            duration_ms=phase.duration_ms,
        )
        for phase in schedule.phases
    )
    start = "converged" if schedule.given else "empty"
    return replace(scenario, start=start, phases=phases)


def shrink(
    scenario: Scenario,
    schedule: Schedule,
    violations: Sequence[Violation],
    rerun: Rerun,
    reruns_max: int = RERUNS_MAX,
) -> Shrunk:
    """A small schedule that still violates one of the rules that this one violates."""
    assert violations, "only a failing run can be shrunk"
    search = _Search(scenario, schedule, tuple(violations), rerun, reruns_max)
    search.simplify_settings()
    search.drop_phases()
    search.drop_actions()
    search.simplify_settings()
    return Shrunk(search.scenario, search.schedule, search.violations, search.reruns)


class _Search:
    """The smallest failing run so far."""

    def __init__(
        self,
        scenario: Scenario,
        schedule: Schedule,
        violations: tuple[Violation, ...],
        rerun: Rerun,
        reruns_max: int,
    ) -> None:
        self.scenario = scenario
        self.schedule = schedule
        self.violations = violations
        self.reruns = 0
        self._rules = frozenset(violation.rule for violation in violations)
        self._rerun = rerun
        self._reruns_max = reruns_max

    def _still_fails(self, scenario: Scenario, schedule: Schedule) -> bool:
        """Try a smaller run, and keep it if it fails as well."""
        if self.reruns >= self._reruns_max:
            return False
        self.reruns += 1
        found = [v for v in self._rerun(scenario, schedule) if v.rule in self._rules]
        if not found:
            return False
        self.scenario, self.schedule, self.violations = scenario, schedule, tuple(found)
        return True

    def simplify_settings(self) -> None:
        """Take out what is not needed of the network's faults, one after the other."""
        for simpler in _simpler(self.scenario):
            self._still_fails(simpler(self.scenario), self.schedule)

    def drop_phases(self) -> None:
        """Take out whole phases, the last ones first."""
        place = len(self.schedule.phases) - 1
        while place >= 0:
            phases = self.schedule.phases
            fewer = phases[:place] + phases[place + 1 :]
            if len(phases) > 1:
                self._still_fails(self.scenario, replace(self.schedule, phases=fewer))
            place -= 1

    def drop_actions(self) -> None:
        """Take out ever smaller pieces of the actions until no single one can go."""
        size = max(self.schedule.actions // 2, 1)
        while self.reruns < self._reruns_max:
            dropped = self._drop_pieces(size)
            if size == 1 and not dropped:
                return
            if size > 1:
                size = max(size // 2, 1)

    def _drop_pieces(self, size: int) -> bool:
        dropped = False
        # From the end: what comes late hardly ever matters for what comes before.
        end = self.schedule.actions
        while end > 0:
            begin = max(end - size, 0)
            if self._still_fails(self.scenario, without(self.schedule, begin, end)):
                dropped = True
            end = begin
        return dropped


def without(schedule: Schedule, begin: int, end: int) -> Schedule:
    """The schedule without the actions from `begin` to before `end`, counted over all phases."""
    phases: list[SchedulePhase] = []
    place = 0
    for phase in schedule.phases:
        kept: list[TimedAction] = []
        for timed in phase.actions:
            if not begin <= place < end:
                kept.append(timed)
            place += 1
        if kept or not phase.actions:
            phases.append(replace(phase, actions=tuple(kept)))
    return replace(schedule, phases=tuple(phases))


def _simpler(scenario: Scenario) -> Iterator[Callable[[Scenario], Scenario]]:
    """Changes that make a scenario simpler, where it is not simple already."""
    if scenario.through_wire:
        yield lambda s: replace(s, through_wire=False)
    for name in ("reorder", "duplicate", "loss"):
        if getattr(scenario.network, name):
            yield partial(_without_fault, name)
    calm = NetworkSettings(latency_ms=10, jitter_ms=0, detection_jitter_ms=0)
    if scenario.network != calm:
        yield lambda s: replace(s, network=calm)
    for name in scenario.settings:
        if name.endswith("_ms") or name in ("exact_reach", "rows_max"):
            yield partial(_without_setting, name)


def _without_fault(name: str, scenario: Scenario) -> Scenario:
    network = {each.name: getattr(scenario.network, each.name) for each in fields(scenario.network)}
    return replace(scenario, network=NetworkSettings(**(network | {name: 0.0})))


def _without_setting(name: str, scenario: Scenario) -> Scenario:
    kept = {each: value for each, value in scenario.settings.items() if each != name}
    return replace(scenario, settings=kept)
