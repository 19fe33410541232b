"""`peersub bench resilience`: a live network with faults, and what subscribers noticed of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table

from peersub.bench.harness import Finished, Say, Trial, plain_table, report, run_trials
from peersub.cli.failures import CommandError
from peersub.cli.output import note

if TYPE_CHECKING:
    from peersub.bench.resilience.judging import Judgement

__all__ = ["run_bench_resilience"]

PAUSES_MS_MAX: Final[Mapping[str, int]] = {
    "kill a quarter": 1_000,
    "kill half": 2_000,
    "stop a quarter": 1_000,
    "cut a quarter": 1_000,
    "slow a quarter": 5_000,
    "kill the seed": 1_000,
}
"""What subscribers may notice of each fault."""


def run_bench_resilience(options: Mapping[str, Any]) -> int:
    """Play the stories, each with every seed; 1 if something was missed, doubled, or too late."""
    from peersub.bench.resilience.durable import DURABLE_STORIES
    from peersub.bench.resilience.namespaces import reason_not
    from peersub.bench.resilience.trial import STORIES

    stories = [story.strip() for story in options["stories"].split(",") if story.strip()]
    known = (*STORIES, *DURABLE_STORIES)
    unknown = [story for story in stories if story not in known]
    if unknown:
        raise CommandError(f"There is no story {unknown[0]!r}; there are {', '.join(known)}.")
    if options["nodes"] < 4:
        raise CommandError("--nodes is at least 4: a quarter of them fails.")
    if "cut" in stories and (missing := reason_not()) is not None:
        note(f"cut is left out, it needs network namespaces: {missing}")
        stories.remove("cut")

    trials = [
        Trial(story, seed, partial(_play, options, story, seed))
        for story in stories
        for seed in range(options["first"], options["first"] + options["seeds"])
    ]
    finished = run_trials(trials)
    return report(
        finished,
        as_json=options["as_json"],
        tables=lambda: [_table(finished)],
        facts={"pauses_ms_max": dict(PAUSES_MS_MAX)},
    )


@dataclass(frozen=True, slots=True)
class _Noticed:
    """What subscribers noticed of a story."""

    judgement: Judgement

    @property
    def problems(self) -> list[str]:
        found = [] if self.judgement.is_clean else [f"deliveries: {self.judgement.as_dict()}"]
        return found + [
            f"{fault}: subscribers waited {pause:,.0f} ms, at most {PAUSES_MS_MAX[fault]:,}"
            for fault, pause in self.judgement.pauses_ms.items()
            if pause > PAUSES_MS_MAX[fault]
        ]

    def as_dict(self) -> dict[str, Any]:
        return self.judgement.as_dict()


async def _play(options: Mapping[str, Any], story: str, seed: int, say: Say) -> _Noticed:
    from peersub.bench.resilience.durable import (
        DURABLE_STORIES,
        DurableSettings,
        run_durable_trial,
    )
    from peersub.bench.resilience.trial import TrialSettings, run_trial

    if story in DURABLE_STORIES:
        durable = DurableSettings(
            rate=options["rate"], outage_s=options["outage"], story=story, seed=seed
        )
        return _Noticed(await run_durable_trial(durable, say))
    settings = TrialSettings(
        nodes=options["nodes"],
        subscriptions_per_node=options["subscriptions"],
        rate=options["rate"],
        story=story,
        seed=seed,
    )
    return _Noticed(await run_trial(settings, say))


def _table(finished: list[Finished[_Noticed]]) -> Table:
    columns = ("seed", "expected", "missed", "twice", "wrong", "p50 ms", "pauses, ms")
    table = plain_table("What subscribers noticed", ("story",), columns)
    for each in finished:
        noticed = each.outcome.as_dict()
        table.add_row(
            each.trial.name,
            str(each.trial.seed),
            f"{noticed['expected']:,}",
            str(noticed["missed"]),
            str(noticed["doubled"]),
            str(noticed["spurious"]),
            f"{noticed['latency_ms_p50']:.1f}",
            "; ".join(f"{fault}: {pause:,}" for fault, pause in noticed["pauses_ms"].items()),
        )
    return table
