"""Many seeds of the swarm, in several processes: `python -m peersub.simulator.fuzz --seeds 1000`.

Prints each seed that fails with what it violates and the one command that replays it, and ends with
exit code 1 if there is any.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from peersub.overlays.registry import OVERLAYS
from peersub.simulator.running import run_scenario
from peersub.simulator.shrink import Shrunk, shrink
from peersub.simulator.swarm import swarm_scenario
from peersub.trace.checkers import Violation

__all__ = ["SeedResult", "main", "replay_command", "run_seed", "shrink_seed"]

SEEDS_PER_TASK = 8
VIOLATIONS_SHOWN_MAX = 3
PROGRESS_EVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class SeedResult:
    """What came of one seed."""

    seed: int
    violations: tuple[Violation, ...]
    steps: int
    seconds: float


def run_seed(seed: int, overlay: str | None = None) -> SeedResult:
    """Run the scenario of a seed."""
    began_s = time.perf_counter()
    outcome = run_scenario(swarm_scenario(seed, overlay))
    return SeedResult(
        seed,
        tuple(outcome.violations[:VIOLATIONS_SHOWN_MAX]),
        outcome.simulation.counters.steps,
        time.perf_counter() - began_s,
    )


def shrink_seed(seed: int, overlay: str | None = None) -> Shrunk | None:
    """The seed's run made small; None if it does not fail."""
    outcome = run_scenario(swarm_scenario(seed, overlay))
    if outcome.is_good:
        return None
    return shrink(
        outcome.scenario,
        outcome.schedule,
        outcome.violations,
        lambda scenario, schedule: run_scenario(scenario, schedule=schedule).violations,
    )


def replay_command(seed: int, overlay: str | None = None) -> str:
    """The command that runs this seed again."""
    return f"peersub simulate --swarm {seed}" + (f" --overlay {overlay}" if overlay else "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run many seeds; the number of those that fail decides the exit code."""
    options = _options(arguments)
    began_s = time.perf_counter()
    failed: list[SeedResult] = []
    steps = 0
    shown_s = began_s
    for done, result in enumerate(_results(options), start=1):
        steps += result.steps
        if result.violations:
            failed.append(result)
            _show_failure(result, options.overlay)
        now_s = time.perf_counter()
        if now_s - shown_s >= PROGRESS_EVERY_S or done == options.seeds:
            shown_s = now_s
            _say(
                f"{done:,} of {options.seeds:,} seeds, {len(failed)} failed, "
                f"{steps:,} steps, {now_s - began_s:.0f} s"
            )
    if failed and options.shrink:
        _shrink_first(min(failed, key=lambda each: each.seed).seed, options)
    seeds = ", ".join(str(each.seed) for each in sorted(failed, key=lambda each: each.seed))
    _say(f"violations in the seeds {seeds}" if failed else "no violation")
    return 1 if failed else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fuzz", description="Run many seeds of the swarm.")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--overlay", choices=sorted(OVERLAYS), help="only this overlay")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--shrink", action="store_true", help="make the first failure small")
    parser.add_argument("--out", type=Path, default=Path(), help="folder for shrunk scenarios")
    return parser.parse_args(arguments)


def _results(options: argparse.Namespace) -> Iterator[SeedResult]:
    seeds = range(options.first, options.first + options.seeds)
    if options.jobs <= 1:
        for seed in seeds:
            yield run_seed(seed, options.overlay)
        return
    tasks = [
        seeds[place : place + SEEDS_PER_TASK] for place in range(0, len(seeds), SEEDS_PER_TASK)
    ]
    with ProcessPoolExecutor(options.jobs) as pool:
        running = [pool.submit(_run_seeds, task, options.overlay) for task in tasks]
        for finished in as_completed(running):
            yield from finished.result()


def _run_seeds(seeds: range, overlay: str | None) -> list[SeedResult]:
    return [run_seed(seed, overlay) for seed in seeds]


def _show_failure(result: SeedResult, overlay: str | None) -> None:
    _say(f"seed {result.seed} fails; replay it with: {replay_command(result.seed, overlay)}")
    for violation in result.violations:
        _say(f"  at {violation.now_ms} ms, {violation.rule}: {violation.text}")


def _shrink_first(seed: int, options: argparse.Namespace) -> None:
    shrunk = shrink_seed(seed, options.overlay)
    if shrunk is None:
        _say(f"seed {seed} does not fail when run again: the run is not deterministic")
        return
    file = options.out / f"swarm-{seed}.toml"
    file.write_text(shrunk.to_toml(), encoding="utf-8")
    _say(
        f"{shrunk.schedule.actions} actions are enough, found in {shrunk.reruns} reruns; replay "
        f"them with: peersub simulate --scenario {file}"
    )


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
