"""One network that is opened, and the trials in it: publish, wait, compare with the oracle."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from peersub.bench.network.live_member import keys_for_hops
from peersub.bench.network.loopback import idle_bytes_per_s, loopback_bytes
from peersub.bench.network.members import (
    HOST,
    ONE_BY_ONE,
    PUBLISHER,
    RELAY,
    Arm,
    Opening,
    PublisherReport,
    Publishing,
)
from peersub.bench.network.processes import Crew, call_all
from peersub.bench.network.tally import HostReport
from peersub.bench.network.workload import (
    Events,
    Expected,
    Workload,
    expected,
    generate_events,
    subscriptions_of,
)
from peersub.overlays.core.event_keys import BATCH_ROWS_MAX

__all__ = ["Latencies", "Network", "Trial", "TrialResult"]

COMPLETE_S_MAX: Final = 60.0
SETTLE_S: Final = 0.05
"""After the last delivery that was expected: what comes now came too often."""
WARM_UP_EVENTS: Final = 2_048
WARM_UPS_MAX: Final = 40
WARM_UP_PAUSE_S: Final = 0.25
WARM_UP_S_MAX: Final = 5.0
LOST_S_MAX: Final = 0.5
"""How long to wait for what is known to be lost."""
TABLE_BYTES: Final = 4 * 1_024 * 1_024
"""Of the events of one table, where they travel in columns."""
MISMATCHES_MAX: Final = 5
"""Subscribers that are named for one trial."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What is measured.

    Args:
        system: peersub, zenoh or nats.
        workload: events and filters.
        events: how many are published.
        form: COLUMNS or ONE_BY_ONE.
        hops: from the publisher to each host.
        at_least_once: under which promise.
        per_second: at which rate; then it is latency that counts.
        copies: on so many disks before an event is acknowledged, to durable subscriptions; 0: on
            none.
    """

    system: str
    workload: Workload
    events: int
    form: str = ONE_BY_ONE
    hops: int = 1
    at_least_once: bool = False
    per_second: float | None = None
    copies: int = 0

    @property
    def title(self) -> str:
        """What stands in a table beside the workload."""
        words = [self.system, self.form]
        if self.copies:
            disks = f"on {self.copies} disk{'s' if self.copies > 1 else ''}"
            words.append(disks if self.system == "peersub" else f"JetStream, {disks}")
        elif self.system == "peersub":
            words.append(f"{self.hops} hop{'s' if self.hops > 1 else ''}")
            if self.at_least_once:
                words.append("at least once")
        return ", ".join(words)


@dataclass(frozen=True, slots=True)
class Latencies:
    """From publisher to subscriber, of all deliveries."""

    p50_ms: float
    p99_ms: float
    max_ms: float
    publisher_late_ms: float
    """How late the publisher itself was at most: what the machine adds."""


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What was measured."""

    trial: Trial
    seconds: float
    events_per_s: float
    deliveries: int
    loopback_bytes_per_event: float | None
    connection_bytes_per_event: float | None
    """By the counters of the connections, where a system has them: payload and frames only."""
    cpu_us_per_event: float
    """Processor time of all processes together. It depends less than events per second on what
    else the machine does."""
    latencies: Latencies | None
    mismatches: tuple[str, ...] = field(default=())


class Network:
    """Members of one system in all processes, with the subscriptions of one workload.

    Args:
        crew: the processes.
        system: which.
        workload: whose subscriptions; sizes of events may differ from trial to trial.
        hops: to each host.
        form: how events travel.
        copies: on how many disks events are to be, for durable subscriptions.
        progress: told what is being done.
        lose_one_at: a fault that is planted: this host loses one delivery per trial.
    """

    def __init__(
        self,
        crew: Crew,
        system: str,
        workload: Workload,
        *,
        hops: int = 1,
        form: str = ONE_BY_ONE,
        copies: int = 0,
        progress: Progress = lambda message: None,
        lose_one_at: int | None = None,
    ) -> None:
        self._crew = crew
        self.system = system
        self._workload = workload
        self._hops = hops
        self._form = form
        self._copies = copies
        self._hosts = crew.hosts[: workload.hosts]
        self._progress = progress
        self._lose_one_at = lose_one_at
        self._subscriptions = subscriptions_of(workload)
        self._members = [crew.publisher, *crew.relays[: hops - 1], *self._hosts]
        self._trials = 0
        self.idle_bytes_per_s = 0.0

    def __enter__(self) -> Network:
        keys = keys_for_hops(self._workload.hosts, self._hops)
        contact = ""
        began = time.monotonic()
        for place, worker in enumerate(self._members):
            host = place - self._hops
            role = PUBLISHER if not place else RELAY if host < 0 else HOST
            wishes = tuple(wish for wish in self._subscriptions if wish.host == host)
            opening = Opening(
                role=role,
                contact=contact,
                key=keys[place],
                subscriptions=wishes,
                form=self._form,
                workload=self._workload,
                copies=self._copies,
            )
            address = worker.call("open", self.system, opening)
            contact = contact or address
        joined = time.monotonic()
        call_all(self._hosts, "subscribe")
        self._progress(
            f"  joined in {joined - began:.1f} s, "
            f"{len(self._subscriptions):,} subscriptions ready in {time.monotonic() - joined:.1f} s"
        )
        self.idle_bytes_per_s = idle_bytes_per_s()
        return self

    def __exit__(self, *about: object) -> None:
        if about[0] is None:
            call_all(reversed(self._members), "close")

    def warm_up(self, trial: Trial, events: Events) -> None:
        """Publish a few events, unmeasured, until they take the way they should.

        What is compiled on first use is compiled then, and the ring finds its fingers.
        """
        few = replace(trial, events=min(WARM_UP_EVENTS, trial.events), per_second=None)
        answer = expected(events, self._subscriptions, few.events)
        for _ in range(WARM_UPS_MAX):
            run = self._run(few, answer, wait_s=WARM_UP_S_MAX)
            if not run.mismatches or self._lose_one_at is not None:
                return
            self._progress(f"  warm-up: {run.mismatches[0]}")
            time.sleep(WARM_UP_PAUSE_S)

    def measure(
        self, trial: Trial, answer: Expected | None = None, *, repeats: int = 1
    ) -> TrialResult:
        """Run a trial several times; the quickest counts, and any mismatch of any of them."""
        events = generate_events(trial.workload, trial.events)
        if answer is None:
            answer = expected(events, self._subscriptions, trial.events)
        self.warm_up(trial, events)
        runs = [self._run(trial, answer) for _ in range(repeats)]
        best = max(runs, key=lambda run: run.events_per_s)
        mismatches = tuple(dict.fromkeys(each for run in runs for each in run.mismatches))
        result = TrialResult(
            trial,
            best.seconds,
            best.events_per_s,
            best.deliveries,
            best.loopback_bytes_per_event,
            best.connection_bytes_per_event,
            min(run.cpu_us_per_event for run in runs),
            best.latencies,
            mismatches,
        )
        self._progress(f"  {trial.workload.name}: {trial.title}: {_in_words(result)}")
        return result

    def _run(self, trial: Trial, answer: Expected, wait_s: float = COMPLETE_S_MAX) -> TrialResult:
        crew, workload = self._crew, trial.workload
        self._trials += 1
        publishing = Publishing(
            label=f"t{self._trials}",
            workload=workload,
            events=trial.events,
            form=trial.form,
            at_least_once=trial.at_least_once,
            batch_rows=min(BATCH_ROWS_MAX, TABLE_BYTES // workload.payload_bytes),
            per_second=trial.per_second,
        )
        crew.publisher.call("prepare", publishing)
        arms = [
            Arm(
                label=publishing.label,
                expected=answer.of_host(workload, host),
                keep_latencies=trial.per_second is not None,
                lose_one=host == self._lose_one_at,
            )
            for host in range(workload.hosts)
        ]
        call_all(self._hosts, "arm", arms)
        cpu_before = sum(call_all(self._members, "cpu_ns"))
        own_before, before = self._bytes_out(), loopback_bytes()
        crew.publisher.ask("publish", publishing)
        if self._lose_one_at is not None:
            wait_s = LOST_S_MAX
        all_came = call_all(self._hosts, "complete", [wait_s] * len(self._hosts))
        published: PublisherReport = crew.publisher.answer()
        after, own_after = loopback_bytes(), self._bytes_out()
        cpu_ns = sum(call_all(self._members, "cpu_ns")) - cpu_before
        time.sleep(SETTLE_S)
        reports: list[HostReport] = call_all(self._hosts, "report")
        mismatches = [*published.failures, *_differences(workload, answer, reports)]
        if trial.system == "peersub" and not trial.copies:
            mismatches += _wrong_hops(trial.hops, reports)
        if mismatches:
            mismatches += self._counted()
        end_ns = max(published.end_ns, *(report.complete_ns for report in reports))
        if not all(all_came):
            end_ns = time.monotonic_ns()
        seconds = (end_ns - published.begin_ns) / 1e9
        return TrialResult(
            trial,
            seconds,
            trial.events / seconds,
            sum(int(report.counts.sum()) for report in reports),
            _per_event(before, after, trial.events),
            _per_event(own_before, own_after, trial.events),
            cpu_ns / 1e3 / trial.events,
            _latencies(reports, published) if trial.per_second is not None else None,
            tuple(mismatches),
        )

    def _counted(self) -> list[str]:
        """What the nodes counted that may explain a loss, of all of them together."""
        sums: Counter[str] = Counter()
        for counts in call_all(self._members, "counters"):
            sums.update(counts)
        return [f"nodes counted: {reason}: {count:,}" for reason, count in sorted(sums.items())]

    def _bytes_out(self) -> int | None:
        counts = call_all(self._members, "bytes_out")
        return None if None in counts else sum(counts)


def _per_event(before: int | None, after: int | None, events: int) -> float | None:
    return None if before is None or after is None else (after - before) / events


def _differences(workload: Workload, answer: Expected, reports: list[HostReport]) -> list[str]:
    """Subscribers that did not get exactly their events."""
    found: list[str] = []
    for host, report in enumerate(reports):
        counts = answer.counts[host :: workload.hosts]
        sums = answer.checksums[host :: workload.hosts]
        wrong = np.flatnonzero((report.counts != counts) | (report.checksums != sums))
        for place in wrong.tolist():
            found.append(
                f"host {host}, subscriber s{host + place * workload.hosts}: "
                f"{report.counts[place]:,} events, expected {counts[place]:,}"
                + (", other ones" if report.counts[place] == counts[place] else "")
            )
    if len(found) > MISMATCHES_MAX:
        found = [*found[:MISMATCHES_MAX], f"and {len(found) - MISMATCHES_MAX:,} subscribers more"]
    return found


def _wrong_hops(hops: int, reports: list[HostReport]) -> list[str]:
    seen = [(report.hops_min, report.hops_max) for report in reports if report.counts.any()]
    if all(pair == (hops, hops) for pair in seen):
        return []
    low, high = min(pair[0] for pair in seen), max(pair[1] for pair in seen)
    return [f"deliveries took {low} to {high} hops, not {hops}"]


def _latencies(reports: list[HostReport], published: PublisherReport) -> Latencies:
    all_ms = np.concatenate([report.latencies_ns for report in reports]) / 1e6
    if not len(all_ms):
        return Latencies(0.0, 0.0, 0.0, published.late_ns_max / 1e6)
    p50, p99, most = np.percentile(all_ms, [50, 99, 100]).tolist()
    return Latencies(p50, p99, most, published.late_ns_max / 1e6)


def _in_words(result: TrialResult) -> str:
    if result.latencies is not None:
        what = f"p50 {result.latencies.p50_ms:.2f} ms, p99 {result.latencies.p99_ms:.2f} ms"
    else:
        what = f"{result.events_per_s:,.0f} events/s, {result.cpu_us_per_event:,.1f} us each"
    return what if not result.mismatches else f"{what}, MISMATCH: {result.mismatches[0]}"
