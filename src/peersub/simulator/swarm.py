"""The swarm: a whole scenario drawn from one number.

Every option is on in some scenarios and off in others, because the mistakes that many options hide
show when few are on. Networks are small and keys are few, so that collisions, wrap-arounds and
nodes without neighbours are common. What an overlay does not promise is not asked of it (`_TRAITS`)
and each scenario ends mended: partitions heal, edges mend, and the network gets quiet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from peersub.overlays.containment.settings import REORGANISATIONS
from peersub.overlays.registry import OVERLAYS, overlay_kind
from peersub.simulator import activities as asked
from peersub.simulator.content import WorkloadChoice
from peersub.simulator.scenario import Scenario, ScenarioPhase
from peersub.simulator.settings import NetworkSettings

__all__ = [
    "BATCHES_FROM",
    "LAYERS_FROM",
    "MIRRORS_FROM",
    "MOVES_FROM",
    "NODES_DRAWN_MAX",
    "SPLITS_FROM",
    "STALLS_FROM",
    "STARTS_FROM",
    "SUBSETS_FROM",
    "TURNS_FROM",
    "swarm_scenario",
]

BATCHES_FROM = 1_000_000
"""Seeds from here on publish batches: what the seeds before mean does not change."""

SPLITS_FROM = 20_000
"""Seeds from here on split containment trees: what the seeds before mean does not change."""

LAYERS_FROM = 30_000
"""Seeds from here on may draw the overlay `dag`: what the seeds before mean does not change."""

MOVES_FROM = 60_000
"""Seeds from here on have topics that their filters name, and subscribers that change their minds
or refuse to move, where the overlay proposes that: what the seeds before mean does not change."""

STALLS_FROM = 40_000
"""Seeds from here on let nodes stand still: what the seeds before mean does not change."""

SUBSETS_FROM = 70_000
"""Seeds from here on draw Reach as well: what the seeds before mean does not change."""

STARTS_FROM = 80_000
"""Seeds from here on start nodes that know of nobody, or of all before any is there, where the
overlay merges networks: what the seeds before mean does not change."""

MIRRORS_FROM = 3_000_000
"""Seeds from here on have durable subscriptions with copies, which may be suspended, on chord: what
the seeds before mean does not change."""

TURNS_FROM = 9_000_000
"""Seeds from here on let events overtake filters on links, and slice work finely: what the seeds
before mean does not change."""

NODES_DRAWN_MAX = 40
STEPS_DRAWN_MAX = 3_000_000
NEWCOMERS_MAX = 32
"""More than join in any scenario that is drawn."""
_SIZES = ((1, 3), (4, 9), (10, 16), (17, NODES_DRAWN_MAX))
_SIZE_WEIGHTS = (3, 6, 3, 1)
DISKS = ("kept", "kept", "kept", "lost", "lost", "tail-lost")
MERGING = ("perfect", "imperfect")
STRATEGIES = ("simple", "identity", "covering", *MERGING)


@dataclass(frozen=True, slots=True)
class _Traits:
    """What can be asked of an overlay."""

    weight: int
    faults: tuple[str, ...]
    routes_by_filters: bool
    restarts_all: bool = False
    """Whether it gets whole again only if all who crashed come back."""
    is_whole_when_split: bool = True
    """Whether each side of a partition is a network that works."""
    later_faults: tuple[str, ...] = ()
    """Those that only seeds from `SPLITS_FROM` on have."""
    stalls: bool = False
    """Whether seeds from `STALLS_FROM` on let nodes stand still."""


_TRAITS = {
    "chord": _Traits(
        weight=6,
        faults=(
            *("crash", "restart", "partition", "split", "edges", "churn", "leave", "join"),
            "storm",
        ),
        routes_by_filters=True,
        stalls=True,
    ),
    # Without its root a tree waits for it: whoever crashes comes back, and nobody leaves.
    "tree": _Traits(
        weight=2,
        faults=("restart", "partition", "join"),
        routes_by_filters=True,
        restarts_all=True,
        is_whole_when_split=False,
    ),
    "flood": _Traits(
        weight=2,
        faults=("restart", "join", "partition"),
        routes_by_filters=False,
        is_whole_when_split=False,
    ),
    # It loses no more than events: whoever is left finds new neighbours.
    "similarity": _Traits(
        weight=2,
        faults=("crash", "restart", "partition", "churn", "leave", "join", "storm"),
        routes_by_filters=False,
        is_whole_when_split=False,
    ),
    "containment": _Traits(
        weight=3,
        faults=("crash", "restart", "partition", "churn", "leave", "join", "storm"),
        routes_by_filters=False,
        later_faults=("split", "edges"),
    ),
    "dag": _Traits(
        weight=3,
        faults=(
            *("crash", "restart", "partition", "split", "edges", "churn", "leave", "join"),
            "storm",
        ),
        routes_by_filters=False,
    ),
    "reach": _Traits(
        weight=3,
        faults=(
            *("crash", "restart", "partition", "split", "edges", "churn", "leave", "join"),
            "storm",
        ),
        routes_by_filters=False,
    ),
}
_FIRST_SEEDS = {"dag": LAYERS_FROM, "reach": SUBSETS_FROM}
"""Overlays that only seeds from these on draw."""


def swarm_scenario(seed: int, overlay: str | None = None) -> Scenario:
    """The scenario of a number; of one overlay if it is named.

    >>> swarm_scenario(3) == swarm_scenario(3), swarm_scenario(3) == swarm_scenario(4)
    (True, False)
    """
    random = Random(f"swarm/{seed}")
    names = [name for name in _TRAITS if seed >= _FIRST_SEEDS.get(name, 0)]
    drawn = random.choices(names, [_TRAITS[name].weight for name in names])[0]
    scenario = _Drawing(random, seed, overlay or drawn).scenario()
    if seed >= MOVES_FROM and overlay_kind(scenario.overlay).proposes_moves:
        scenario = _with_moves(scenario)
    if seed >= STARTS_FROM and scenario.overlay == "chord":
        scenario = _with_starts(scenario)
    if seed >= MIRRORS_FROM and scenario.overlay == "chord":
        scenario = _with_mirrors(scenario)
    if seed >= TURNS_FROM:
        scenario = _with_turns(scenario)
    return scenario if seed < BATCHES_FROM else _with_batches(scenario)


def _with_turns(scenario: Scenario) -> Scenario:
    """The same, with filters that events overtake, and work in small slices."""
    random = Random(f"swarm/{scenario.seed}/turns")
    network = replace(scenario.network, turn_ms=random.choice((0, 2, 20, 60)))
    settings = dict(scenario.settings)
    if _TRAITS[scenario.overlay].routes_by_filters:
        settings |= {
            "rows_per_turn": random.choice((64, 2, 1)),
            "rows_told_per_turn": random.choice((1_024, 16, 1)),
            "rows_per_lot": random.choice((512, 16, 1)),
            "rows_per_message": random.choice((256, 8, 1)),
        }
    return replace(scenario, network=network, settings=settings)


def _with_mirrors(scenario: Scenario) -> Scenario:
    """The same, with durable subscriptions, and others who look after them."""
    random = Random(f"swarm/{scenario.seed}/mirrors")
    return replace(
        scenario,
        start="joined" if scenario.start == "converged" else scenario.start,
        durable_share=random.choice((0.2, 0.5, 1.0)),
        copies=random.choice((1, 2, 2, 2, 3)),
        away_max_ms=random.choice((86_400_000, 86_400_000, 20_000)),
    )


def _with_moves(scenario: Scenario) -> Scenario:
    """The same, with several layers, and subscribers that come, move and change their minds."""
    random = Random(f"swarm/{scenario.seed}/moves")

    def changing(phase: ScenarioPhase) -> ScenarioPhase:
        if random.random() < 0.5:
            return phase
        steps: list[asked.Activity] = []
        for kind in (asked.SubscribeActivity, asked.ChangeActivity):
            count, every_ms = random.randint(1, 6), random.choice((0, 100, 2_000))
            steps.append(kind(at_ms=random.choice((0, 500)), count=count, every_ms=every_ms))
        return replace(phase, steps=(*phase.steps, *steps))

    # No filter names the last one: then there is the catch-all layer alone.
    topic = random.choice(("s", "s", "a", "a", "r.x", "symbol"))
    return replace(
        scenario,
        settings={**scenario.settings, "topic": topic},
        moves=random.choice((0.0, 0.5, 1.0, 1.0, 1.0)),
        phases=tuple(changing(phase) for phase in scenario.phases),
    )


def _with_starts(scenario: Scenario) -> Scenario:
    """The same, with nodes that begin the network several times, and have to find each other."""
    random = Random(f"swarm/{scenario.seed}/starts")

    def alone(step: asked.Activity) -> asked.Activity:
        if isinstance(step, asked.RestartActivity) and random.random() < 0.6:
            return replace(step, alone=True)
        return step

    phases = tuple(
        replace(phase, steps=tuple(alone(step) for step in phase.steps))
        for phase in scenario.phases
    )
    is_cold = scenario.start == "joined" and random.random() < 0.5
    return replace(scenario, phases=phases, start="cold" if is_cold else scenario.start)


def _with_batches(scenario: Scenario) -> Scenario:
    """The same, with events that are published together, and nodes that do not know of that."""
    random = Random(f"swarm/{scenario.seed}/batches")

    def together(step: asked.Activity) -> asked.Activity:
        if not isinstance(step, asked.PublishActivity):
            return step
        count = step.count * random.choice((1, 1, 4))
        return replace(step, count=count, batch_events=random.choice((1, 2, 5, 20, 60)))

    phases = tuple(
        replace(phase, steps=tuple(together(step) for step in phase.steps))
        for phase in scenario.phases
    )
    share = random.choice((0.0, 0.3, 0.7, 0.9, 1.0, 1.0))
    return replace(scenario, phases=phases, batch_share=share)


class _Drawing:
    """The draws of one scenario, in a fixed order."""

    def __init__(self, random: Random, seed: int, overlay: str) -> None:
        assert overlay in OVERLAYS
        self._random = random
        self._seed = seed
        self._overlay = overlay
        self._kind = overlay_kind(overlay)
        self._traits = _TRAITS[overlay]
        # Most mistakes show in small networks, and large ones take most of the time.
        low, high = random.choices(_SIZES, _SIZE_WEIGHTS)[0]
        self._nodes = random.randint(low, high)
        self._deliveries = ["best_effort"]
        if self._kind.promises_at_least_once:
            self._deliveries += ["at_least_once", "mixed", "at_least_once"]

    def scenario(self) -> Scenario:
        network = self._network()
        links = self._links(network)
        return Scenario(
            name=f"swarm {self._seed}",
            seed=self._seed,
            overlay=self._overlay,
            settings=self._settings(),
            links=links,
            nodes=self._nodes,
            start="converged" if self._random.random() < 0.25 else "joined",
            subscriptions=self._random.randint(0, 2 * self._nodes),
            join_every_ms=self._random.choice((0, 20, 200, 1_000)),
            through_wire=self._random.random() < 0.25,
            network=network,
            workload=WorkloadChoice(
                values=self._random.choice((3, 10, 30)),
                xpath_share=self._random.choice((0.0, 0.0, 0.0, 0.3)),
            ),
            settle_ms=8_000,
            quiet_limit_ms=200_000,
            steps_max=STEPS_DRAWN_MAX,
            phases=tuple(self._phases(tunnels=bool(links.get("tunnels")))),
        )

    def _share(self, share_max: float, chance: float) -> float:
        """Mostly none; else up to a share, in steps that are easy to read."""
        on = self._random.random() < chance
        drawn = self._random.randint(1, 20)
        return round(drawn * share_max / 20, 4) if on else 0.0

    def _network(self) -> NetworkSettings:
        faulty = self._random.random() < 0.5
        return NetworkSettings(
            latency_ms=self._random.choice((1, 5, 20, 60)),
            jitter_ms=self._random.choice((0, 5, 50)),
            loss=self._share(0.1, 0.6 if faulty else 0),
            duplicate=self._share(0.1, 0.4 if faulty else 0),
            reorder=self._share(0.2, 0.4 if faulty else 0),
            detection_ms=self._random.choice((20, 200, 1_000)),
            detection_jitter_ms=self._random.choice((0, 50, 500)),
            disk_ms=self._random.choice((1, 5, 50)),
            consumer_ms=self._random.choice((1, 20)),
            doubt_ms=self._random.choice((0, 20, 100, 500)) if self._may_stall else 0,
        )

    def _links(self, network: NetworkSettings) -> dict[str, object]:
        acknowledge = not network.is_reliable or self._random.random() < 0.5
        tunnels = acknowledge and self._random.random() < 0.6
        return {"acknowledge": acknowledge, "tunnels": tunnels}

    def _slices(self) -> dict[str, object]:
        """How changes of filters are taken in; drawn apart: the other draws stay what they were."""
        random = Random(f"swarm/{self._seed}/slices")
        return {
            "burst_ms": random.choice((0, 0, 5)),
            "rows_per_turn": random.choice((64, 2)),
            "pooled_from": random.choice((256, 1)),
        }

    def _settings(self) -> dict[str, object]:
        random = self._random
        settings: dict[str, object] = {}
        if self._traits.routes_by_filters:
            settings["strategy"] = random.choice(STRATEGIES)
            settings["rows_max"] = random.choice((4, 16, 64))
            settings["coalesce_ms"] = random.choice((0, 0, 20))
            settings |= self._slices()
        match self._overlay:
            case "chord":
                # Crowded, so that keys collide, but with a place for each that may come.
                least = (self._nodes + NEWCOMERS_MAX).bit_length()
                settings |= {
                    "key_bits": random.choice((least, least + 2, 16, 63)),
                    "exact_reach": random.random() < 0.4 and settings["strategy"] not in MERGING,
                    "stabilise_ms": random.choice((1_500, 4_000)),
                    "probe_ms": 3_000,
                    "merge_settle_ms": 3_000,
                    "link_idle_ms": 5_000,
                }
            case "tree":
                settings["children_max"] = random.choice((2, 3, 4))
            case "containment":
                settings |= {
                    "rule": random.choice(("depth", "depth", "selectivity")),
                    "ties": random.choice(("children", "digest")),
                    "reorganise": random.choice(REORGANISATIONS),
                    "share": random.choice((0.1, 0.5)),
                    "period_ms": random.choice((5_000, 20_000)),
                    "equal_degree": random.choice((1, 2, 4)),
                    "top_degree": random.choice((1, 2, 4)),
                    "ancestors": random.choice((1, 3)),
                    "confine": random.random() < 0.2,
                    "sibling_threshold": random.choice((0, 0, 1, 2)),
                }
            case "reach":
                settings |= {
                    "identifier_bits": random.choice((8, 12, 32)),
                    "attributes": random.choice(
                        ("", "a; b; s; r.x", "a: 2, 5, 12; s # 3; b", "r.x; b # 2; a: 3, 8")
                    ),
                    "quench": random.random() < 0.7,
                    "summary": random.choice((0, 2, 96)),
                    "summary_filters": self._seed % 3 != 0,
                    "answer_share": 0.8 if self._seed % 2 else 0.0,
                    "orders": random.choice((0, 2, 4)),
                    "renew_ms": random.choice((3_000, 15_000)),
                    "resend_ms": 5_000 if self._seed // 2 % 4 else 0,
                    "changes_per_beat": random.choice((0, 4, 1)),
                }
                settings |= {"push_above": 4, "load_ms": 300} if self._seed % 5 < 2 else {}
                settings["replicas"] = self._seed // 4 % 3 if settings["orders"] else 0
            case "similarity":
                settings |= {
                    "nearest": random.choice((1, 3, 6)),
                    "random": random.choice((0, 1, 3)),
                    "choice": random.choice(("nearest", "climb")),
                    "clique_up_to": random.choice((0, 5, 200, 200)),
                    "warm_up_events": random.choice((0, 4, 32)),
                    "proximity": random.choice(("mean", "jaccard", "well-connected")),
                    "indulgence": random.choice((0, 0, 2)),
                    "random_forward": random.choice((0.0, 0.5, 1.0)),
                    "summary_bytes": random.choice((0, 0, 1, 32)),
                    "sample_events": random.choice((4, 32, 256)),
                    "candidates_max": random.choice((4, 64)),
                }
            case "dag":
                settings |= {
                    "topic": random.choice(("symbol", "category", "absent")),
                    "degree": random.choice((2, 4, 4)),
                    "degree_min": random.choice((1, 2, 3)),
                    "skip_sender": random.random() < 0.8,
                    "hold_ms": random.choice((500, 5_000, 30_000)),
                    "invite_ms": random.choice((200, 1_000)),
                    "linger_ms": random.choice((100, 1_000, 10_000)),
                    "turn_events_max": random.choice((1, 4, 1_024)),
                    "walk_steps_max": random.choice((1, 3, 16)),
                }
            case _:
                settings["degree"] = random.choice((2, 3, 5))
        return settings

    # --- phases --------------------------------------------------------------------------------

    def _phases(self, *, tunnels: bool) -> list[ScenarioPhase]:
        random = self._random
        phases = [ScenarioPhase(name="calm", steps=tuple(self._traffic()))]
        possible = self._traits.faults
        if self._seed >= SPLITS_FROM:
            possible += self._traits.later_faults
        if self._may_stall:
            possible += ("stall", "stall")
        faults = [fault for fault in possible if random.random() < 0.5]
        random.shuffle(faults)
        if "edges" in faults:
            faults.remove("edges")
            if tunnels and self._edges_max:
                # While the network has its full size: the promise is about that.
                faults.insert(0, "edges")
        for fault in faults[: random.choice((1, 1, 2, 3))]:
            phases += self._fault_phases(fault)
        phases.append(ScenarioPhase(name="after", steps=(self._publish(),)))
        if random.random() < 0.3:
            last = (asked.UnsubscribeActivity(count=0, every_ms=random.choice((0, 5))),)
            phases.append(ScenarioPhase(name="unsubscribed", steps=last))
        return phases

    @property
    def _may_stall(self) -> bool:
        return self._seed >= STALLS_FROM and self._traits.stalls

    @property
    def _edges_max(self) -> int:
        """As many edges as may fail under the promise: log2 N - 1."""
        return max(self._nodes.bit_length() - 2, 0)

    def _publish(self, at_ms: int = 0) -> asked.PublishActivity:
        random = self._random
        return asked.PublishActivity(
            at_ms=at_ms,
            count=random.randint(1, 15),
            every_ms=random.choice((0, 10, 200)),
            delivery=random.choice(self._deliveries),
        )

    def _traffic(self) -> list[asked.Activity]:
        """Events, and perhaps subscriptions that come and go meanwhile."""
        steps: list[asked.Activity] = [self._publish(at_ms=self._random.choice((0, 50)))]
        if self._random.random() < 0.4:
            per_second = self._random.choice((1.0, 5.0, 20.0))
            duration_ms = self._random.choice((500, 2_000))
            steps.append(
                asked.SubscriptionChurnActivity(duration_ms=duration_ms, per_second=per_second)
            )
        return steps

    def _fault_phases(self, fault: str) -> list[ScenarioPhase]:
        random = self._random
        traffic = self._traffic()
        later = random.choice((0, 50, 300, 2_000))
        match fault:
            case "crash":
                crash = asked.CrashActivity(at_ms=later, fraction=random.choice((0.1, 0.3, 0.5)))
                return [ScenarioPhase(name="crash", steps=(crash, *traffic))]
            case "stall":
                return [self._stall_phase(later, traffic)]
            case "restart":
                return [self._restart_phase(later, traffic)]
            case "partition":
                split = asked.PartitionActivity(at_ms=later, sides=random.choice((2, 2, 3)))
                lasting_ms = random.choice((100, 1_000, 10_000))
                heal = asked.HealActivity(at_ms=later + lasting_ms)
                return [ScenarioPhase(name="partition", steps=(split, heal, *traffic))]
            case "split":
                split = asked.PartitionActivity(at_ms=later)
                during = (split, *traffic)
                healed = (asked.HealActivity(), *self._traffic())
                return [
                    ScenarioPhase(name="split", steps=during),
                    ScenarioPhase(name="healed", steps=healed),
                ]
            case "edges":
                return self._edge_phases(later, traffic)
            case "storm":
                return [ScenarioPhase(name="storm", steps=(*self._storm(), *traffic))]
            case _:
                return [ScenarioPhase(name=fault, steps=(self._coming(fault, later), *traffic))]

    def _stall_phase(self, later: int, traffic: list[asked.Activity]) -> ScenarioPhase:
        random = self._random
        stall = asked.StallActivity(
            at_ms=later,
            fraction=random.choice((0.1, 0.25, 0.25, 0.5)),
            duration_ms=random.choice((100, 600, 3_000, 12_000)),
        )
        return ScenarioPhase(name="stall", steps=(stall, *traffic))

    def _restart_phase(self, later: int, traffic: list[asked.Activity]) -> ScenarioPhase:
        random = self._random
        crash = asked.CrashActivity(at_ms=later, fraction=random.choice((0.1, 0.3, 0.5)))
        restart = asked.RestartActivity(
            at_ms=later + random.choice((10, 500, 5_000)),
            count=0 if self._traits.restarts_all else random.choice((0, 1, 3)),
            every_ms=random.choice((0, 50)),
            disk=random.choice(DISKS),
        )
        return ScenarioPhase(name="restart", steps=(crash, restart, *traffic))

    def _storm(self) -> list[asked.Activity]:
        """Several things at once."""
        random = self._random
        steps: list[asked.Activity] = []
        if random.random() < 0.6:
            at_ms, lasting_ms = random.choice((0, 300, 2_000)), random.choice((200, 3_000, 15_000))
            steps.append(asked.PartitionActivity(at_ms=at_ms))
            steps.append(asked.HealActivity(at_ms=at_ms + lasting_ms))
        if random.random() < 0.7:
            at_ms, later = random.choice((0, 200, 2_500)), random.choice((20, 700, 4_000))
            steps.append(asked.CrashActivity(at_ms=at_ms, fraction=random.choice((0.1, 0.3))))
            if random.random() < 0.7:
                disk, every_ms = random.choice(DISKS), random.choice((0, 100))
                restart = asked.RestartActivity(at_ms=at_ms + later, disk=disk, every_ms=every_ms)
                steps.append(restart)
        for kind in (asked.JoinActivity, asked.LeaveActivity):
            if random.random() < 0.4:
                at_ms, count = random.choice((0, 1_000)), random.randint(1, 3)
                steps.append(kind(at_ms=at_ms, count=count, every_ms=100))
        return steps

    def _edge_phases(self, later: int, traffic: list[asked.Activity]) -> list[ScenarioPhase]:
        random = self._random
        broken = asked.BreakEdgesActivity(
            at_ms=later,
            count=random.randint(1, self._edges_max),
            links_of=random.choice(("", "?", "?")),
        )
        return [
            ScenarioPhase(name="edges", steps=(broken, *traffic)),
            ScenarioPhase(name="mended", steps=(asked.MendEdgesActivity(), *self._traffic())),
        ]

    def _coming(self, fault: str, later: int) -> asked.Activity:
        random = self._random
        if fault == "churn":
            return asked.NodeChurnActivity(
                at_ms=later,
                duration_ms=random.choice((2_000, 10_000)),
                per_second=random.choice((0.5, 2.0)),
                crash_share=random.choice((0.0, 0.5, 1.0)),
            )
        count, every_ms = random.randint(1, 5), random.choice((0, 30, 1_000))
        if fault == "leave":
            return asked.LeaveActivity(at_ms=later, count=count, every_ms=every_ms)
        return asked.JoinActivity(at_ms=later, count=count, every_ms=every_ms)
