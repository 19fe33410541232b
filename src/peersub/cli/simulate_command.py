"""`peersub simulate`: a network under a virtual clock, all deliveries checked, all costs counted.

One seed is one run. A run in which something went wrong ends with exit code 1 and the command that
gives the same run again.
"""

from __future__ import annotations

import json
import shlex
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, TextIO

from peersub.cli.failures import CommandError, ExitCode
from peersub.cli.output import note, print_json, say
from peersub.cli.progress import Progress, progress_bar
from peersub.cli.simulate_inputs import SimulateOptions, content_of, drawn_content, scenario_of
from peersub.cli.written_files import text_file
from peersub.files.deliveries import check_output
from peersub.files.errors import FileError
from peersub.files.formats import Format

if TYPE_CHECKING:
    from peersub.simulator.content import Content
    from peersub.simulator.engine import Simulation
    from peersub.simulator.meter import Meter
    from peersub.simulator.running import Outcome
    from peersub.trace.schema import Observer, TraceRecord

__all__ = ["SimulateOptions", "run_simulate"]

VIOLATIONS_SHOWN: Final = 10
VIOLATIONS_IN_JSON: Final = 100
_PARTS: Final = ("setting_up", "running", "checking")


def run_simulate(options: SimulateOptions) -> int:
    """Run the command; the result is its exit code."""
    from peersub.overlays.settings import SettingsError

    try:
        summary, outcome = _simulated(options)
    except SettingsError as error:
        raise CommandError(f"{error}.") from None
    if options.as_json:
        print_json(summary)
    else:
        from peersub.cli.simulate_report import report_lines

        for line in report_lines(summary):
            say(line)
    if outcome.is_good:
        return ExitCode.DONE
    for violation in outcome.violations[:VIOLATIONS_SHOWN]:
        note(f"peersub: violation of {violation.rule} at {violation.now_ms} ms: {violation.text}")
    count = summary["violations"]
    if count > VIOLATIONS_SHOWN:
        note(f"peersub: and {count - VIOLATIONS_SHOWN:,} more violations")
    note(f"peersub: replay with: {summary['replay']}")
    return ExitCode.FAILED


def _simulated(options: SimulateOptions) -> tuple[dict[str, Any], Outcome]:
    from peersub.overlays.registry import overlay_kind
    from peersub.simulator.interest import interest_for
    from peersub.simulator.meter import Meter
    from peersub.simulator.running import run_scenario
    from peersub.trace.checkers import DeliveryChecker

    _check_outputs(options)
    listed = content_of(options)
    scenario = scenario_of(options, listed)
    content: Content | None = listed or drawn_content(scenario)
    if options.chosen_bits:
        from peersub.cli.reach_map_command import with_chosen_bits
        from peersub.simulator.content import content_for

        if content is None:
            content = content_for(scenario.workload, scenario.seed, scenario.subscriptions)
        scenario = with_chosen_bits(scenario, content)
    checker = DeliveryChecker(
        interest_for(scenario.subscriptions),
        judges_misses=not overlay_kind(scenario.overlay).is_approximate,
    )
    meter = Meter()
    with ExitStack() as stack:
        observers: list[Observer] = [meter]
        if options.trace is not None:
            from peersub.trace.writing import TraceWriter

            stream = stack.enter_context(text_file(options.trace, "--trace"))
            observers.append(TraceWriter(stream, overlay=scenario.overlay, seed=scenario.seed))
        if options.deliveries is not None:
            stream = stack.enter_context(text_file(options.deliveries, "--deliveries"))
            observers.append(DeliveriesWriter(stream))
        progress = stack.enter_context(progress_bar("Simulating", quiet=options.quiet))
        started = time.perf_counter()
        outcome = run_scenario(
            scenario,
            content=content,
            checker=checker,
            observers=observers,
            progress=lambda simulation: _show(progress, simulation),
            # CPU time: what else the machine does is not what the simulation costs.
            stopwatch=time.process_time,
        )
        seconds = time.perf_counter() - started
    meter.finish()
    return _summary(options, outcome, meter, seconds), outcome


def _show(progress: Progress, simulation: Simulation) -> None:
    steps = simulation.counters.steps
    text = f"{simulation.now_ms / 1000:,.1f} s, {steps:,} steps" if steps else "setting up"
    progress.update(0, 0, text)


def _summary(
    options: SimulateOptions, outcome: Outcome, meter: Meter, seconds: float
) -> dict[str, Any]:
    from peersub.overlays.registry import overlay_kind
    from peersub.simulator.summary import state_bytes_of, summarise

    scenario = outcome.scenario
    about = {
        "overlay": scenario.overlay,
        "nodes": scenario.nodes,
        "seed": scenario.seed,
        "start": scenario.start,
        "subscriptions": scenario.subscriptions,
        "settings": dict(scenario.settings),
    }
    summary = summarise(
        outcome.checker,
        meter,
        about=about,
        state_bytes=[state_bytes_of(host.overlay) for host in outcome.simulation.living()],
        invariants_checked=outcome.invariant_checks,
        invariants_failed=outcome.invariant_failures,
        invariants_sample=outcome.invariant_sample,
    )
    part = overlay_kind(scenario.overlay).part("figures")
    if part is not None:
        peers = [host.overlay for host in outcome.simulation.living()]
        figures = part.figures(peers, summary["messages"]["by_kind"], summary["events"])
        summary["overlay_figures"] = figures
    unkept = outcome.checker.violations_count - len(outcome.checker.violations)
    summary["violations"] = len(outcome.violations) + unkept
    summary["violations_shown"] = [
        {
            "ms": violation.now_ms,
            "rule": str(violation.rule),
            "text": violation.text,
            "event_id": violation.event_id,
            "subscription_id": violation.subscription,
            "node": violation.node,
        }
        for violation in outcome.violations[:VIOLATIONS_IN_JSON]
    ]
    summary["replay"] = shlex.join(options.command())
    summary["cost"] = _cost(outcome, summary["messages"]["total"], seconds)
    return summary


def _cost(outcome: Outcome, messages: int, seconds: float) -> dict[str, Any]:
    """What this process spent: the only part of the summary that differs between two runs."""
    spent = {name: outcome.seconds.get(name, 0.0) for name in _PARTS}
    return {
        "seconds": round(seconds, 3),
        "cpu_seconds": round(sum(spent.values()), 3),
        **{f"cpu_seconds_{name}": round(part, 3) for name, part in spent.items()},
        "steps": outcome.simulation.counters.steps,
        "microseconds_per_message": round(spent["running"] * 1e6 / max(messages, 1), 2),
        "memory_peak_mb": _memory_peak_mb(),
    }


def _memory_peak_mb() -> int | None:
    try:
        import resource
    except ImportError:  # not on this system
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


# --- files ---------------------------------------------------------------------------------------


class DeliveriesWriter:
    """An observer that writes one JSON line for each delivery to a subscription."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def observe(self, record: TraceRecord) -> None:
        """Write the deliveries of a step."""
        from peersub.overlays.core.effects import Deliver

        for effect in getattr(record, "effects", ()):
            if type(effect) is Deliver:
                for subscription in effect.subscriptions:
                    line = {
                        "event_id": effect.publication.id,
                        "subscription_id": subscription,
                        "node": record.node,  # type: ignore[union-attr]
                        "hops": effect.hops,
                    }
                    if effect.again:
                        line["again"] = True
                    self._stream.write(json.dumps(line, ensure_ascii=False) + "\n")


def _check_outputs(options: SimulateOptions) -> None:
    """Whatever cannot be written is refused before any work is done."""
    inputs = [name for name in (options.subscriptions, options.events, options.scenario) if name]
    for name, option in ((options.deliveries, "--deliveries"), (options.trace, "--trace")):
        if name is None:
            continue
        if check_output(name, inputs) is not Format.JSON_LINES or name.lower().endswith(".gz"):
            raise FileError(name, f"{option} writes JSON Lines", "Let the name end in .jsonl.")
        if name == "-":
            raise FileError(name, f"{option} writes to a file", "Name one.")
    if options.trace is not None and options.trace == options.deliveries:
        raise CommandError("--trace and --deliveries name the same file. Name two.")
