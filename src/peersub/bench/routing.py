"""The comparison of routing strategies: filter updates against notifications.

The paper leaves open (section 7) when it pays to merge filters, and how far. Large tables forward
events precisely and change often; small ones change rarely and let events through that nobody
wants. Here each strategy is measured in the simulator (`routing_trials`): once what a change of a
subscription costs, once what an event costs, for all distributions of both. What a network costs at
some ratio of events to changes, and the ratios at which another strategy becomes the cheaper one,
follow by arithmetic (`routing_costs`); that they really do is checked by trials that mix changes
and events at two ratios.

A second table measures what goes beyond the paper: rows that say where on the circle their owners
are (`exact_reach`), and keys placed by interest (`overlays/chord/placement`).
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

from peersub.bench.routing_costs import CostLine
from peersub.bench.routing_trials import Contender, EventCosts, Trial, TrialResult, run_trial
from peersub.overlays.chord.settings import PLACEMENTS
from peersub.workloads import Skew

__all__ = [
    "CONTENDERS",
    "BEYOND",
    "MEASURES",
    "MixCheck",
    "RoutingResult",
    "RoutingSettings",
    "Standing",
    "run_routing",
]


def _chord(name: str, strategy: str, **settings: object) -> Contender:
    is_sampling = strategy == "imperfect"
    return Contender(name, "chord", (("strategy", strategy), *settings.items()), is_sampling)


CONTENDERS = (
    _chord("simple", "simple"),
    _chord("identity", "identity"),
    _chord("covering", "covering"),
    _chord("perfect", "perfect"),
    _chord("imperfect 2 %", "imperfect", budget=0.02),
    _chord("imperfect 10 %", "imperfect", budget=0.1),
    _chord("imperfect 4 rows", "imperfect", budget=0.02, rows_max=4),
    _chord("imperfect 1 row", "imperfect", budget=0.02, rows_max=1),
    Contender("tree, covering", "tree", (("strategy", "covering"),)),
    Contender("flood", "flood"),
)
"""The strategies over Chord, and two other overlays for reference."""
MIXED = ("covering", "imperfect 10 %")
"""The contenders for which the arithmetic is checked."""
BEYOND = (
    ("paper", False, PLACEMENTS[0]),
    ("exact", True, PLACEMENTS[0]),
    ("keys evenly", False, PLACEMENTS[1]),
    ("keys by own interest", False, PLACEMENTS[2]),
    ("keys by own interest, exact", True, PLACEMENTS[2]),
    ("keys by all interests", False, PLACEMENTS[3]),
    ("keys by all interests, exact", True, PLACEMENTS[3]),
)
"""What goes beyond the paper: a name, whether reach is exact, and how keys are placed."""
MEASURES = ("messages", "bytes")
_FLOOD_EVENTS_SHARE = 8
_BEYOND_CHANGES_SHARE = 4
_UNRELATED_SHARE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingSettings:
    """The knobs of the comparison.

    Args:
        nodes: nodes of the network.
        subscriptions: live at any time, dealt to the nodes in turn.
        changes: subscriptions that end while another one begins, per trial.
        events: events per trial and distribution.
        share: the share of events that a subscription wants, on average.
        ratios: events per change for which totals are shown.
        skews: distributions; each of the subscriptions with each of the events.
        placement_shares: for which shares the second table is measured; none leaves it out.
        contenders: names out of `CONTENDERS`; all if empty.
        tolerance: by how much a mixed trial may differ from what the arithmetic says.
        seed: the only source of randomness.
        jobs: processes.

    Raises:
        ValueError: a knob is out of range; the message names it.
    """

    nodes: int = 256
    subscriptions: int = 512
    changes: int = 20
    events: int = 200
    share: float = 0.02
    ratios: tuple[float, ...] = (0.1, 1, 10, 100, 1000)
    skews: tuple[Skew, ...] = ("uniform", "zipf")
    placement_shares: tuple[float, ...] = (0.001, 0.01, 0.05, 0.25)
    contenders: tuple[str, ...] = ()
    tolerance: float = 0.1
    seed: int = 1
    jobs: int = 1

    def __post_init__(self) -> None:
        for name in ("nodes", "subscriptions", "changes", "events", "jobs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is at least 1, not {getattr(self, name)}")
        if self.events < self.changes:
            raise ValueError(f"there are at least as many events as changes, {self.changes}")
        for share in (self.share, *self.placement_shares):
            if not 0 < share < 1:
                raise ValueError(f"a share lies between 0 and 1, not {share}")
        if not self.ratios or min(self.ratios) <= 0:
            raise ValueError("ratios are above 0, and there is at least one")
        if not self.skews or any(skew not in ("uniform", "zipf") for skew in self.skews):
            raise ValueError(f"skews are uniform and zipf, not {', '.join(self.skews) or 'none'}")
        known = [contender.name for contender in CONTENDERS]
        for name in self.contenders:
            if name not in known:
                raise ValueError(f"there is no contender {name!r}; there are: {', '.join(known)}")

    @property
    def chosen(self) -> tuple[Contender, ...]:
        """The contenders that take part."""
        return tuple(
            each for each in CONTENDERS if not self.contenders or each.name in self.contenders
        )


@dataclass(frozen=True, slots=True)
class Standing:
    """How a contender did under one distribution of subscriptions and one of events."""

    subscription_skew: Skew
    event_skew: Skew
    result: TrialResult

    @property
    def name(self) -> str:
        """Of the contender."""
        return self.result.trial.contender.name

    @property
    def events(self) -> EventCosts:
        """What its events cost."""
        return self.result.by_skew[self.event_skew]

    def line(self, measure: str) -> CostLine:
        """Its costs in messages (filter updates, notifications) or in bytes (of all messages)."""
        result, events = self.result, self.events
        per_change = result.updates if measure == "messages" else result.change_bytes
        per_event = events.notifications if measure == "messages" else events.bytes_sent
        return CostLine(
            self.name, per_change / max(result.changes, 1), per_event / max(events.events, 1)
        )


@dataclass(frozen=True, slots=True)
class MixCheck:
    """A mixed trial against the arithmetic: updates and notifications per change, added up."""

    name: str
    ratio: float
    predicted: float
    measured: float
    tolerance: float

    @property
    def deviation(self) -> float:
        """How far the measured cost is from the predicted one, as a share of that."""
        return self.measured / self.predicted - 1 if self.predicted else float(self.measured > 0)

    @property
    def is_good(self) -> bool:
        """Whether the arithmetic holds."""
        return abs(self.deviation) <= self.tolerance


@dataclass(frozen=True, slots=True)
class BeyondRow:
    """What an option beyond the paper gains, in one world."""

    name: str
    world: str
    share: float
    result: TrialResult

    @property
    def events(self) -> EventCosts:
        """What its events cost."""
        (costs,) = self.result.by_skew.values()
        return costs


@dataclass(frozen=True, slots=True)
class RoutingResult:
    """All that was measured."""

    settings: RoutingSettings
    standings: tuple[Standing, ...]
    mixes: tuple[MixCheck, ...]
    beyond: tuple[BeyondRow, ...]
    trials: tuple[TrialResult, ...]

    def lines(self, subscription_skew: str, event_skew: str, measure: str) -> list[CostLine]:
        """The costs of all contenders under these distributions."""
        return [
            standing.line(measure)
            for standing in self.standings
            if (standing.subscription_skew, standing.event_skew) == (subscription_skew, event_skew)
        ]

    @property
    def is_good(self) -> bool:
        """Whether every delivery was right, and the arithmetic holds."""
        return all(trial.is_good for trial in self.trials) and all(
            mix.is_good for mix in self.mixes
        )


def run_routing(
    settings: RoutingSettings, progress: Callable[[str], None] = lambda _: None
) -> RoutingResult:
    """Carry out all trials, and put together what they say."""
    apart = list(_trials(settings))
    mixed = list(_mixed_trials(settings))
    beyond = list(_beyond_trials(settings))
    trials = [*apart, *mixed, *(trial for _, trial in beyond)]
    results = _run_all(trials, settings.jobs, progress)
    of_apart, rest = results[: len(apart)], results[len(apart) :]
    of_mixed, of_beyond = rest[: len(mixed)], rest[len(mixed) :]
    standings = sorted(
        (
            Standing(result.trial.subscription_skew, skew, result)
            for result in of_apart
            for skew in result.trial.event_skews
        ),
        key=lambda each: (
            settings.skews.index(each.subscription_skew),
            settings.skews.index(each.event_skew),
            settings.chosen.index(each.result.trial.contender),
        ),
    )
    return RoutingResult(
        settings=settings,
        standings=tuple(standings),
        mixes=tuple(_mix_check(result, standings, settings) for result in of_mixed),
        beyond=tuple(
            BeyondRow(name, result.trial.world, result.trial.share, result)
            for (name, _), result in zip(beyond, of_beyond, strict=True)
        ),
        trials=tuple(results),
    )


# --- the trials ----------------------------------------------------------------------------------


def _trials(settings: RoutingSettings) -> Iterator[Trial]:
    """Only strategies that look at a sample of events need a network for each kind of events."""
    for subscription_skew in settings.skews:
        for contender in settings.chosen:
            is_flood = contender.overlay == "flood"
            trial = Trial(
                contender=contender,
                world="thresholds",
                nodes=settings.nodes,
                subscriptions=settings.subscriptions,
                changes=settings.changes,
                # Flooding costs the same for every event, and very much.
                events=max(settings.events // (_FLOOD_EVENTS_SHARE if is_flood else 1), 1),
                share=settings.share,
                subscription_skew=subscription_skew,
                event_skews=settings.skews,
                seed=settings.seed,
            )
            if contender.is_sampling:
                for skew in settings.skews:
                    yield replace(trial, event_skews=(skew,))
            else:
                yield trial


def _mixed_trials(settings: RoutingSettings) -> Iterator[Trial]:
    """As many events as changes, and as many as there are, among the same changes."""
    skew = settings.skews[0]
    for contender in settings.chosen:
        for events in dict.fromkeys((settings.changes, settings.events)):
            if contender.name in MIXED:
                yield Trial(
                    contender=contender,
                    world="thresholds",
                    nodes=settings.nodes,
                    subscriptions=settings.subscriptions,
                    changes=settings.changes,
                    events=events,
                    share=settings.share,
                    subscription_skew=skew,
                    event_skews=(skew,),
                    seed=settings.seed,
                    mixed=True,
                )


def _beyond_trials(settings: RoutingSettings) -> Iterator[tuple[str, Trial]]:
    """One subscription per node, so that a node has an interest to be placed by."""
    worlds = [("wishes", share) for share in settings.placement_shares]
    if worlds:
        worlds.append(("unrelated", _UNRELATED_SHARE))
    for world, share in worlds:
        for name, exact, placement in BEYOND:
            contender = _chord(name, "covering", exact_reach=exact)
            yield (
                name,
                Trial(
                    contender=contender,
                    world=world,
                    nodes=settings.nodes,
                    subscriptions=settings.nodes,
                    changes=max(settings.changes // _BEYOND_CHANGES_SHARE, 1),
                    events=settings.events,
                    share=share,
                    subscription_skew=settings.skews[-1],
                    event_skews=(settings.skews[-1],),
                    seed=settings.seed,
                    placement=placement,
                ),
            )


def _run_all(
    trials: Sequence[Trial], jobs: int, progress: Callable[[str], None]
) -> list[TrialResult]:
    if jobs == 1:
        return list(_told(map(run_trial, trials), len(trials), progress))
    # A new interpreter for each process: forking one that has threads is not safe.
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        return list(_told(pool.map(run_trial, trials), len(trials), progress))


def _told(
    results: Iterable[TrialResult], count: int, progress: Callable[[str], None]
) -> Iterator[TrialResult]:
    for number, result in enumerate(results, 1):
        verdict = "" if result.is_good else ", WRONG"
        progress(f"{number}/{count} {result.trial.title}: {result.seconds:.1f} s{verdict}")
        yield result


def _mix_check(
    result: TrialResult, standings: Sequence[Standing], settings: RoutingSettings
) -> MixCheck:
    trial = result.trial
    (skew,) = trial.event_skews
    (standing,) = (
        each
        for each in standings
        if (each.name, each.subscription_skew, each.event_skew)
        == (trial.contender.name, trial.subscription_skew, skew)
    )
    ratio = trial.events / trial.changes
    return MixCheck(
        name=trial.contender.name,
        ratio=ratio,
        predicted=standing.line("messages").at(ratio),
        measured=(result.updates + result.by_skew[skew].notifications) / trial.changes,
        tolerance=settings.tolerance,
    )
