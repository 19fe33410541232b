"""The summary of a simulation for people: a page of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = ["histogram_lines", "report_lines"]

BAR_WIDTH: Final = 40
KINDS_SHOWN: Final = 8
_LABEL_WIDTH: Final = 14


def report_lines(summary: Mapping[str, Any]) -> Iterator[str]:
    """The lines of the report."""
    yield (
        f"{summary['overlay']}: {_count(summary['nodes'], 'node')}, "
        f"{_count(summary['subscriptions'], 'subscription')}, "
        f"{_count(summary['events'], 'event')}, seed {summary['seed']}, "
        f"{summary['virtual_ms'] / 1000:,.1f} s of virtual time"
    )
    yield ""
    yield from _delivery_lines(summary)
    yield from _cost_lines(summary)
    if len(summary["phases"]) > 1:
        yield ""
        yield from _phase_lines(summary["phases"])
    if summary["hops_histogram"]:
        yield ""
        yield "deliveries by hops"
        yield from histogram_lines(
            {int(hops): count for hops, count in summary["hops_histogram"].items()}
        )
    yield ""
    yield _verdict(summary)


def _row(label: str, text: str) -> str:
    return f"{label:<{_LABEL_WIDTH}}{text}"


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _delivery_lines(summary: Mapping[str, Any]) -> Iterator[str]:
    counts = ("expected", "delivered", "missed", "spurious", "duplicate")
    yield _row("deliveries", ", ".join(f"{summary[name]:,} {name}" for name in counts))
    further = [
        f"{summary[name]:,} {name.replace('_', ' ')}"
        for name in ("late", "excused", "repeated_after_crash")
        if summary[name]
    ]
    if further:
        yield _row("", ", ".join(further))
    if summary["promised"]:
        yield _row(
            "promises",
            f"{summary['promised']:,} at-least-once events, {summary['completed']:,} completed, "
            f"{summary['failed']:,} failed",
        )
    yield _row(
        "ratios",
        f"false positives {summary['false_positive_ratio']:.2%}, "
        f"false negatives {summary['false_negative_ratio']:.2%}, "
        f"relay share {summary['relay_share']:.2%}",
    )
    for name, label in (("hops", "hops"), ("latency_ms", "latency")):
        spread = summary[name]
        if spread:
            unit = " ms" if name == "latency_ms" else ""
            yield _row(
                label,
                f"mean {spread['mean']:.2f}{unit}, p50 {spread['p50']}, p99 {spread['p99']}, "
                f"max {spread['max']}",
            )


def _cost_lines(summary: Mapping[str, Any]) -> Iterator[str]:
    messages = summary["messages"]
    yield _row(
        "messages",
        f"{messages['total']:,}, of which {messages['data']:,} carry events: "
        f"{messages['per_event']:.1f} per event, {messages['per_delivery']:.2f} per delivery",
    )
    kinds = sorted(messages["by_kind"].items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{kind} {count:,}" for kind, count in kinds[:KINDS_SHOWN])
    more = len(kinds) - KINDS_SHOWN
    yield _row("", shown + (f" and {_count(more, 'more kind')}" if more > 0 else ""))
    control = summary["control"]
    changes = ("join", "leave", "crash", "subscribe", "unsubscribe")
    known = [
        f"{control[f'per_{change}']:.1f} per {change}"
        for change in changes
        if control[f"per_{change}"] is not None
    ]
    background = control["background_per_node_second"]
    if background is not None:
        known.append(f"{background:.2f} per node and second at rest")
    if known:
        yield _row("control", ", ".join(known))
    load, state = summary["load"], summary["state_bytes"]
    yield _row("load", f"Gini {load['gini']:.3f}, max / mean {load['max_over_mean']:.2f}")
    yield _row("state", f"mean {state['mean']:,.0f} bytes per node, max {state['max']:,}")
    if "overlay_figures" in summary:
        from peersub.overlays.registry import overlay_kind

        part = overlay_kind(summary["overlay"]).part("figures")
        assert part is not None, "they are its figures"
        yield _row(summary["overlay"], part.line(summary["overlay_figures"]))


def _phase_lines(phases: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    columns = ("events", "expected", "delivered", "missed", "messages")
    width = max([len(name) for name in phases] + [5])
    yield f"{'phase':<{width}}" + "".join(f"{column:>12}" for column in columns)
    for name, phase in phases.items():
        yield f"{name:<{width}}" + "".join(f"{phase[column]:>12,}" for column in columns)


def histogram_lines(counts: Mapping[int, int]) -> Iterator[str]:
    """A bar for each value from the least to the largest.

    >>> for line in histogram_lines({0: 1, 2: 4}): print(line)
      0 ██████████ 1
      1  0
      2 ████████████████████████████████████████ 4
    """
    most = max(counts.values())
    width = max(len(str(value)) for value in counts)
    for value in range(min(counts), max(counts) + 1):
        count = counts.get(value, 0)
        bar = "█" * round(BAR_WIDTH * count / most)
        yield f"{value:>{width + 2}} {bar} {count:,}"


def _verdict(summary: Mapping[str, Any]) -> str:
    if summary["violations"]:
        return f"{_count(summary['violations'], 'violation')}; {_spent(summary['cost'])}"
    checks, sample = summary["invariants"]["checks"], summary["invariants"]["sample"]
    checked = f" and {_count(checks, 'check')} of the overlay's invariants" if checks else ""
    if checked and sample:
        checked += f", each at {sample:,} nodes"
    return f"every delivery checked{checked}: nothing violated; {_spent(summary['cost'])}"


def _spent(cost: Mapping[str, Any]) -> str:
    memory = cost["memory_peak_mb"]
    return f"{cost['seconds']:.1f} s, {cost['microseconds_per_message']:.0f} µs per message" + (
        f", {memory:,} MB" if memory else ""
    )
