"""`peersub bench hostile`, `churn` and `operations`: what a live network withstands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table

from peersub.bench.harness import Finished, Trial, plain_table, report, run_trials
from peersub.cli.bench_routing_command import listed
from peersub.cli.failures import CommandError

FULL_SIZES: Final = "1000,10000,100000"

if TYPE_CHECKING:
    from peersub.bench.churn import ChurnResult
    from peersub.bench.filter_attack import FilterAttackResult
    from peersub.bench.hostile import HostileResult
    from peersub.bench.operations.checking import Verdict
    from peersub.bench.subscribe.trial import SubscribeResult

__all__ = ["run_bench_churn", "run_bench_hostile", "run_bench_operations", "run_bench_subscribe"]


def _check_machine() -> None:
    from peersub.bench.process_figures import can_look

    if not can_look():
        raise CommandError("This benchmark reads /proc, which this machine does not have.")


def run_bench_hostile(options: Mapping[str, Any]) -> int:
    """Attack; 1 if something was missed, not counted, or left behind."""
    from peersub.bench.hostile import HostileSettings, run_hostile

    if options["filters"]:
        return _run_filter_attack(options)
    _check_machine()
    if options["memory"]:
        return _run_memory_attack(options)
    settings = HostileSettings(
        frames=options["frames"],
        frames_per_second=options["frames_per_second"],
        nodes=options["nodes"],
        rate=options["rate"],
        overlay=options["overlay"],
        seed=options["seed"],
    )
    trial = Trial("hostile", settings.seed, lambda say: run_hostile(settings, say))
    (finished,) = run_trials([trial])
    shown = partial(_show_hostile, finished.outcome)
    return report([finished], as_json=options["as_json"], tables=shown)


def _run_memory_attack(options: Mapping[str, Any]) -> int:
    """Make a node hold much; 1 if it holds more than it promises, or others noticed."""
    from peersub.bench.memory_attack import STORIES, run_memory_attack

    trials = [Trial(story, options["seed"], partial(run_memory_attack, story)) for story in STORIES]
    finished = run_trials(trials)

    def tables() -> Iterator[Table | str]:
        table = plain_table("memory of the attacked node, MB", ("",), ("bound", "grown at most"))
        for each in finished:
            figures = (each.outcome.bound_bytes, each.outcome.grown_bytes)
            table.add_row(each.trial.name, *(f"{value / 1e6:,.0f}" for value in figures))
        yield table

    return report(finished, as_json=options["as_json"], tables=tables)


def _run_filter_attack(options: Mapping[str, Any]) -> int:
    """Attack with filters; 1 if others noticed."""
    from peersub.bench.filter_attack import FilterAttackSettings, run_filter_attack

    _check_machine()
    settings = FilterAttackSettings(seed=options["seed"], nodes=max(options["nodes"], 4))
    if options["quick"]:
        settings = replace(settings, filters=120, rounds=1, calm_s=4.0)
    trials = [
        Trial(name, settings.seed, partial(run_filter_attack, each))
        for name, each in (
            ("without permissions", settings),
            ("with permissions", replace(settings, seed=settings.seed + 100, has_permissions=True)),
        )
    ]
    finished = run_trials(trials)
    return report(finished, as_json=options["as_json"], tables=partial(_show_attacks, finished))


def _show_attacks(finished: list[Finished[FilterAttackResult]]) -> Iterator[Table | str]:
    table = plain_table(
        "hostile filters",
        ("",),
        ("filters", "accepted", "refused", "p99 in peace", "attacked", "ratio", "longest turn"),
        "Milliseconds; turns of loops in time of their processors, as nodes tell them.",
    )
    for each in finished:
        result = each.outcome
        table.add_row(
            each.trial.name,
            f"{result.kinds.total():,}",
            f"{result.answers['accepted']:,}",
            f"{result.kinds.total() - result.answers['accepted']:,}",
            f"{result.calm_ms['p99']:.1f}",
            f"{result.attacked_ms['p99']:.1f}",
            f"{result.p99_ratio:.2f}",
            f"{max(result.turns_cpu_ms_max.values()):.0f}",
        )
    yield table
    for each in finished:
        yield f"deliveries, {each.trial.name}: {each.outcome.judgement.as_dict()}"


def _show_hostile(result: HostileResult) -> Iterator[Table | str]:
    title = f"{result.frames:,} hostile frames, {result.acts.total():,} connections"
    table = plain_table(title, ("counted as",), ("times",))
    for reason, count in result.counted.items():
        table.add_row(reason, f"{count:,}")
    yield table
    shown = result.as_dict()
    for name in ("calm", "elsewhere", "attacked"):
        yield f"latency, {name}: {shown[f'latency_ms_{name}']}"
    for name in ("latency_ratios", "resident_kb", "descriptors"):
        yield f"{name.replace('_', ' ')}: {shown[name]}"


def run_bench_churn(options: Mapping[str, Any]) -> int:
    """Let nodes come and go; 1 if something was missed, or grows."""
    from peersub.bench.churn import ChurnSettings, run_churn

    _check_machine()
    settings = ChurnSettings(
        nodes=options["nodes"],
        seconds=options["minutes"] * 60,
        changes_per_second=options["per_second"],
        rate=options["rate"],
        seed=options["seed"],
    )
    trial = Trial("churn", settings.seed, lambda say: run_churn(settings, say))
    (finished,) = run_trials([trial])
    shown = partial(_show_churn, finished.outcome)
    return report([finished], as_json=options["as_json"], tables=shown)


def _show_churn(result: ChurnResult) -> Iterator[Table | str]:
    title = f"{result.changes.total():,} changes; nodes that stayed, first and last"
    table = plain_table(title, ("node",), [name.replace("_", " ") for name in result.measures])
    for node, growths in result.growths.items():
        shown = [f"{each.first:,.0f} to {each.last:,.0f}" for each in growths.values()]
        table.add_row(node, *shown)
    yield table
    yield f"changes: {dict(result.changes)}"
    yield f"deliveries: {result.judgement.as_dict()}"


def run_bench_operations(options: Mapping[str, Any]) -> int:
    """Play weeks; 1 if something was lost, doubled, or seen by who may not."""
    from peersub.bench.operations.week import WeekSettings, run_week

    def trial(seed: int) -> Trial[Verdict]:
        settings = WeekSettings(options["minutes"], options["nodes"], options["rate"], seed)
        return Trial("week", seed, partial(run_week, settings))

    first, seeds = options["first"], options["seeds"]
    finished = run_trials([trial(seed) for seed in range(first, first + seeds)])
    tables = partial(_show_weeks, finished)
    return report(finished, as_json=options["as_json"], tables=tables, facts={})


def _show_weeks(finished: Sequence[Finished[Verdict]]) -> Iterator[Table]:
    shown = [each.as_dict() for each in finished]
    columns = [name for name in shown[0] if name not in ("trial", "broken")]
    table = plain_table("Weeks of operations", (), columns)
    for each in shown:
        table.add_row(*(f"{each[name]:,}" for name in columns))
    yield table


def run_bench_subscribe(options: Mapping[str, Any]) -> int:
    """Let clients subscribe; 1 if it costs too much, holds up others, or misses an event."""
    from peersub.bench.subscribe.trial import SubscribeSettings, run_subscribe

    _check_machine()
    is_quick = options["quick"]
    sizes = listed("sizes", options["sizes"] or ("1000,5000" if is_quick else FULL_SIZES), int)
    clients = listed("clients", options["clients"] or ("1" if is_quick else "1,10"), int)
    nodes = listed("nodes", options["nodes"] or ("3" if is_quick else "3,16"), int)
    if min((*sizes, *clients)) < 1 or min(nodes) < 3:
        raise CommandError("--sizes and --clients are at least 1, --nodes at least 3.")

    def trial(count: int, seed: int, its: int) -> Trial[SubscribeResult]:
        calm_s = 5.0 if is_quick else 10.0
        settings = SubscribeSettings(sizes, its, count, options["rate"], calm_s, seed)
        return Trial(f"{count} nodes, {its} clients", seed, partial(run_subscribe, settings))

    seeds = range(options["first"], options["first"] + options["seeds"])
    trials = [trial(count, seed, its) for count in nodes for its in clients for seed in seeds]
    finished = run_trials(trials)
    tables = partial(_show_subscribing, finished)
    return report(finished, as_json=options["as_json"], tables=tables, facts={})


def _show_subscribing(finished: Sequence[Finished[SubscribeResult]]) -> Iterator[Table | str]:
    costs = plain_table(
        "Subscribing",
        ("network",),
        ("count", "ready s", "CPU µs", "client µs", "messages", "bytes", "ended s", "ended µs"),
        "Per subscription: CPU of all nodes, CPU of the client, messages, bytes per node.",
    )
    waits = plain_table(
        "p99 of events between others, in ms",
        ("network",),
        ("count", "calm", "subscribing", "ratio", "ending", "ratio"),
        "Before clients subscribe, meanwhile, and while their subscriptions end.",
    )
    for each in finished:
        for point in each.outcome.points:
            costs.add_row(
                each.trial.name,
                f"{point.subscriptions:,}",
                f"{point.ready_s:,.1f}",
                f"{point.cpu_us:,.0f}",
                f"{point.client_cpu_us:,.0f}",
                f"{point.messages:.3f}",
                f"{point.bytes_per_row:,.0f}",
                f"{point.ended_s:,.1f}",
                f"{point.ended_cpu_us:,.0f}",
            )
            waits.add_row(
                each.trial.name,
                f"{point.subscriptions:,}",
                f"{point.calm_ms['p99']:.2f}",
                f"{point.meanwhile_ms.get('p99', 0):.2f}",
                f"{point.latency_ratio:.1f}",
                f"{point.ending_ms.get('p99', 0):.2f}",
                f"{point.ending_ratio:.1f}",
            )
    yield costs
    yield waits
    for each in finished:
        need = each.outcome.extrapolated
        yield (
            f"{each.trial.name}: {need['filters']:,.0f} distinct filters would need about "
            f"{need['gigabytes_per_node']} GB per node, {need['cpu_s_of_all_nodes']:,.0f} s of CPU "
            f"of all nodes, {need['ready_s']:,.0f} s until ready (extrapolated, not measured)"
        )
        if len(each.outcome.points) > 1:
            ratio = each.outcome.cpu_ratio
            yield f"{each.trial.name}: CPU each is {ratio:.2f} times that of the fewest"
