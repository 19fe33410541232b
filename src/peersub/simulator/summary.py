"""The summary of a run: who got what, and what it cost, as plain JSON values.

Deliveries come from the checker (`trace.checkers`), messages from the meter (`meter`). Definitions,
the same for every overlay:

* false-positive ratio: nodes that received an event and did not want it, as a share of all living
  nodes; the mean over events. False-negative ratio: missed / expected deliveries. Relay share: the
  receivers that did not want it / all receivers, over all events;
* messages per event: data messages / events; per delivery: data messages / deliveries to
  subscriptions; copies per receiver: data messages / nodes that received and wanted it (best: 1);
* control messages per join (leave, crash, subscribe, unsubscribe): all messages but data of the
  phases in which that happened and nothing else but publishing did, divided by how often. What goes
  on at all times anyway is in it, and shown by itself as `background`;
* load: messages received per node; Gini coefficient, largest / mean, Jain's index;
* state: bytes of filters in their wire form, and of links.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from peersub.overlays.core.protocol import Overlay
from peersub.simulator.meter import EventTotals, Meter, PhaseMeter
from peersub.trace.checkers import DeliveryChecker, DeliveryCounts

__all__ = [
    "Spread",
    "gini",
    "jain",
    "load_figures",
    "spread_of",
    "state_bytes_of",
    "summarise",
]

LINK_BYTES: Final = 32
"""What a link counts in the state of a node: the peer, its incarnation, a sequence number."""
_CHANGES: Final = ("join", "leave", "crash", "subscribe", "unsubscribe")
_DIGITS: Final = 6


@dataclass(frozen=True, slots=True)
class Spread:
    """How values lie: their mean, the middle, one in a hundred, the largest."""

    mean: float
    p50: int
    p99: int
    largest: int

    def as_json(self) -> dict[str, float | int]:
        """With the names that the summary uses."""
        return {"mean": _short(self.mean), "p50": self.p50, "p99": self.p99, "max": self.largest}


def spread_of(histogram: Mapping[int, int]) -> Spread | None:
    """The spread of values that are counted; None if there are none.

    The p-th percentile is the least value that at least p of a hundred do not exceed.

    >>> spread_of({1: 50, 3: 49, 9: 1})
    Spread(mean=2.06, p50=1, p99=3, largest=9)
    """
    count = sum(histogram.values())
    if not count:
        return None
    values = sorted(histogram)
    mean = sum(value * histogram[value] for value in values) / count

    def percentile(share: int) -> int:
        passed = 0
        for value in values:
            passed += histogram[value]
            if passed * 100 >= count * share:
                return value
        return values[-1]

    return Spread(mean, percentile(50), percentile(99), values[-1])


def gini(values: Iterable[int]) -> float:
    """How unequal values are: 0 if all are equal, near 1 if one has all.

    G = Σ(2i - N - 1)·x_i / (N·Σx), with x sorted and i from 1.

    >>> gini([5, 5, 5]), gini([0, 0, 0, 8])
    (0.0, 0.75)
    """
    ordered = sorted(values)
    size, total = len(ordered), sum(ordered)
    if not total:
        return 0.0
    weighted = sum((2 * place - size - 1) * value for place, value in enumerate(ordered, 1))
    return weighted / (size * total)


def jain(values: Sequence[int]) -> float:
    """Jain's index of fairness, (Σx)² / (N·Σx²): 1 if all are equal, 1/N if one has all.

    >>> jain([5, 5, 5]), jain([0, 0, 0, 8])
    (1.0, 0.25)
    """
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def load_figures(values: Sequence[int]) -> dict[str, float | int]:
    """How messages are spread over nodes."""
    mean = sum(values) / max(len(values), 1)
    largest = max(values, default=0)
    return {
        "gini": _short(gini(values)),
        "max_over_mean": _short(largest / mean) if mean else 0.0,
        "jain": _short(jain(values)),
        "mean": _short(mean),
        "max": largest,
    }


def state_bytes_of(overlay: Overlay) -> int:
    """What an overlay keeps for others: bytes of filters in their wire form, and of links."""
    return LINK_BYTES * sum(1 for _ in overlay.links()) + overlay.state_bytes()


# --- the summary ---------------------------------------------------------------------------------


def summarise(
    checker: DeliveryChecker,
    meter: Meter,
    *,
    about: Mapping[str, Any],
    state_bytes: Sequence[int] = (),
    invariants_checked: int = 0,
    invariants_failed: int = 0,
    invariants_sample: int = 0,
) -> dict[str, Any]:
    """The whole summary; `about` (overlay, nodes, seed, ...) comes first.

    Both observers must be finished. The result depends on the run alone, not on the machine.
    """
    counts, totals = checker.counts, EventTotals()
    for phase in meter.phases.values():
        totals.add(phase.totals)
    latency = _added(phase.latency_ms for phase in meter.phases.values())
    return {
        **about,
        "virtual_ms": meter.now_ms,
        **_deliveries(counts),
        **_ratios(counts, totals),
        "hops": _spread_json(counts.hops),
        "latency_ms": _spread_json(latency),
        "messages": _messages(meter, counts, totals),
        "control": _control(meter),
        "load": load_figures(meter.received),
        "event_load": load_figures(meter.received_events),
        "state_bytes": {
            "mean": _short(sum(state_bytes) / max(len(state_bytes), 1)),
            "max": max(state_bytes, default=0),
        },
        "invariants": {
            "checks": invariants_checked,
            "failed": invariants_failed,
            "sample": invariants_sample,
        },
        "violations": checker.violations_count,
        "phases": {
            name: _phase_json(checker.phases.get(name, DeliveryCounts()), phase)
            for name, phase in meter.phases.items()
        },
        "hops_histogram": {str(hops): count for hops, count in sorted(counts.hops.items())},
    }


def _deliveries(counts: DeliveryCounts) -> dict[str, Any]:
    return {
        "events": counts.events,
        "expected": counts.expected,
        "delivered": counts.delivered,
        "missed": counts.missed,
        "spurious": counts.spurious,
        "duplicate": counts.duplicate,
        "repeated_after_crash": counts.repeated,
        "late": counts.late,
        "excused": counts.excused,
        "promised": counts.promised,
        "completed": counts.completed,
        "failed": counts.failed,
    }


def _ratios(counts: DeliveryCounts, totals: EventTotals) -> dict[str, float]:
    in_vain = totals.receivers - totals.matching_receivers
    return {
        "false_positive_ratio": _share(totals.false_positive_shares, totals.events),
        "false_negative_ratio": _share(counts.missed, counts.expected),
        "relay_share": _share(in_vain, totals.receivers),
    }


def _messages(meter: Meter, counts: DeliveryCounts, totals: EventTotals) -> dict[str, Any]:
    by_kind = _added(phase.sent for phase in meter.phases.values())
    return {
        "total": sum(by_kind.values()),
        "data": sum(sum(phase.data.values()) for phase in meter.phases.values()),
        "by_kind": dict(sorted(by_kind.items())),
        "per_event": _share(totals.copies, totals.events),
        "per_delivery": _share(totals.copies, counts.delivered),
        "copies_per_receiver": _share(totals.copies, totals.matching_receivers),
    }


def _control(meter: Meter) -> dict[str, Any]:
    """Control messages per change, from the phases in which only such changes happened."""
    costs: dict[str, Any] = {}
    for change in _CHANGES:
        alone = [
            phase
            for phase in meter.phases.values()
            if [each for each in _CHANGES if phase.causes.get(each)] == [change]
        ]
        times = sum(phase.causes[change] for phase in alone)
        if not times:
            costs[f"per_{change}"] = None
            continue
        by_kind = _added(_control_kinds(phase) for phase in alone)
        costs[f"per_{change}"] = _share(sum(by_kind.values()), times)
        costs[f"per_{change}_by_kind"] = {
            kind: _share(count, times) for kind, count in sorted(by_kind.items())
        }
    quiet = [phase for phase in meter.phases.values() if not any(map(phase.causes.get, _CHANGES))]
    messages = sum(sum(_control_kinds(phase).values()) for phase in quiet)
    seconds = sum(phase.node_ms for phase in quiet) / 1000
    costs["background_per_node_second"] = _share(messages, seconds) if seconds else None
    return costs


def _control_kinds(phase: PhaseMeter) -> dict[str, int]:
    return {kind: count for kind, count in phase.sent.items() if kind not in phase.data}


def _phase_json(counts: DeliveryCounts, phase: PhaseMeter) -> dict[str, Any]:
    return {
        "begun_ms": phase.begun_ms,
        **_deliveries(counts),
        **_ratios(counts, phase.totals),
        "hops": _spread_json(counts.hops),
        "messages": phase.messages,
        "messages_by_kind": dict(sorted(phase.sent.items())),
        "causes": dict(sorted(phase.causes.items())),
    }


# --- small things --------------------------------------------------------------------------------


def _spread_json(histogram: Mapping[int, int]) -> dict[str, float | int] | None:
    spread = spread_of(histogram)
    return None if spread is None else spread.as_json()


def _added(histograms: Iterable[Mapping[Any, int]]) -> dict[Any, int]:
    total: dict[Any, int] = {}
    for histogram in histograms:
        for value, count in histogram.items():
            total[value] = total.get(value, 0) + count
    return total


def _share(part: float, whole: float) -> float:
    return _short(part / whole) if whole else 0.0


def _short(value: float) -> float:
    return round(value, _DIGITS)
