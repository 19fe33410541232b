"""`peersub bench resilience`: a live network with faults, and what subscribers noticed of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from peersub.cli.failures import CommandError
from peersub.cli.output import print_json

__all__ = ["run_bench_resilience"]

PAUSES_MS_MAX: Final[Mapping[str, int]] = {
    "kill a quarter": 1_000,
    "kill half": 2_000,
    "stop a quarter": 1_000,
    "cut a quarter": 1_000,
}
"""What subscribers may notice of each fault."""


def run_bench_resilience(options: Mapping[str, Any]) -> int:
    """Play the stories, each with every seed; 1 if something was missed, doubled, or too late."""
    from peersub.bench.resilience.durable import (
        DURABLE_STORIES,
        DurableSettings,
        run_durable_trial,
    )
    from peersub.bench.resilience.namespaces import reason_not
    from peersub.bench.resilience.trial import STORIES, TrialSettings, run_trial

    error_console = Console(stderr=True)
    stories = [story.strip() for story in options["stories"].split(",") if story.strip()]
    known = (*STORIES, *DURABLE_STORIES)
    unknown = [story for story in stories if story not in known]
    if unknown:
        raise CommandError(f"There is no story {unknown[0]!r}; there are {', '.join(known)}.")
    if options["nodes"] < 4:
        raise CommandError("--nodes is at least 4: a quarter of them fails.")
    if "cut" in stories and (missing := reason_not()) is not None:
        error_console.print(f"cut is left out, it needs network namespaces: {missing}")
        stories.remove("cut")

    def say(line: str) -> None:
        error_console.print(f"  {line}", style="dim", highlight=False, markup=False)

    trials: list[dict[str, Any]] = []
    for story in stories:
        for seed in range(options["first"], options["first"] + options["seeds"]):
            error_console.print(f"{story}, seed {seed}", highlight=False)
            if story in DURABLE_STORIES:
                durable = DurableSettings(
                    rate=options["rate"],
                    outage_s=options["outage"],
                    is_replaced=story == "replaced",
                )
                judgement = asyncio.run(run_durable_trial(durable, say))
            else:
                settings = TrialSettings(
                    nodes=options["nodes"],
                    subscriptions_per_node=options["subscriptions"],
                    rate=options["rate"],
                    story=story,
                    seed=seed,
                )
                judgement = asyncio.run(run_trial(settings, say))
            found = {"story": story, "seed": seed, **judgement.as_dict()}
            found["is_clean"] = judgement.is_clean
            found["is_in_time"] = all(
                pause <= PAUSES_MS_MAX[fault] for fault, pause in judgement.pauses_ms.items()
            )
            trials.append(found)
    is_good = all(trial["is_clean"] and trial["is_in_time"] for trial in trials)
    if options["as_json"]:
        print_json({"trials": trials, "pauses_ms_max": dict(PAUSES_MS_MAX), "is_good": is_good})
    else:
        _show(trials)
    return 0 if is_good else 1


def _show(trials: list[dict[str, Any]]) -> None:
    table = Table(title="What subscribers noticed")
    for name in ("story", "seed", "expected", "missed", "twice", "wrong", "p50 ms", "pauses, ms"):
        table.add_column(name, justify="left" if name in ("story", "pauses, ms") else "right")
    for trial in trials:
        pauses = [
            f"{fault}: {pause:,}" + ("" if pause <= PAUSES_MS_MAX[fault] else " (too long)")
            for fault, pause in trial["pauses_ms"].items()
        ]
        table.add_row(
            trial["story"],
            str(trial["seed"]),
            f"{trial['expected']:,}",
            str(trial["missed"]),
            str(trial["doubled"]),
            str(trial["spurious"]),
            f"{trial['latency_ms_p50']:.1f}",
            "; ".join(pauses),
        )
    Console().print(table)
