"""The second part of the demo: the same job on Spark, from files to the report.

A larger market goes through `peersub pipeline run`: every event is matched, the filters are
organised, overlays are planned, every event is sent over each of them, and what they deliver is
audited. Some events are then asked of every filter one by one, and must give the same deliveries.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from peersub import Filter
from peersub.cli.output import note, say
from peersub.demo.market import Market, draw_market
from peersub.demo.verification import differences, sample_rows

__all__ = ["PipelineDemo", "run_pipeline_demo", "show_pipeline_demo"]

SUBSCRIPTIONS: Final = 20_000
EVENTS: Final = 10_000
CHECKED_EVENTS: Final = 20
DIFFERENCES_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineDemo:
    """What the run did and found."""

    folder: str
    report: str
    """The report as text."""
    page: str
    """Where the report with plots is."""
    steps: dict[str, Any]
    findings: int
    events_checked: int
    differences: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether all was delivered as it should be, and nothing else."""
        return not self.differences and not self.findings


def run_pipeline_demo(
    seed: int, *, subscriptions: int = SUBSCRIPTIONS, events: int = EVENTS, master: str
) -> PipelineDemo:
    """Draw a market and take it through the pipeline, in a folder that stays for the reader."""
    from peersub.cli.pipeline_narration import TerminalNarrator
    from peersub.demo.run import write_market
    from peersub.pipeline.jobs import run_job
    from peersub.pipeline.options import PipelineOptions, Target

    started = time.perf_counter()
    folder = Path(tempfile.mkdtemp(prefix="peersub-demo-"))
    market = draw_market(subscriptions, events, seed)
    paths = write_market(market, folder)
    options = PipelineOptions(
        target=Target.RUN,
        out=str(folder / "run"),
        subscriptions=str(paths["subscriptions"]),
        events=str(paths["events"]),
        master=master,
    )
    command = "peersub pipeline run --subscriptions subscriptions.jsonl --events events.jsonl"
    note(f"peersub: {command} --out run")
    narrator = TerminalNarrator()
    try:
        outcome = run_job(options, narrator)
    finally:
        narrator.stop()
    assert outcome.report is not None
    checked = sample_rows(events, seed, CHECKED_EVENTS)
    return PipelineDemo(
        folder=outcome.folder,
        report=outcome.report.read_text("utf-8"),
        page=str(outcome.report.with_suffix(".html")),
        steps={name: dict(step.counts) for name, step in outcome.steps.items()},
        findings=outcome.findings,
        events_checked=len(checked),
        differences=_differences(market, checked, folder / "run")[:DIFFERENCES_SHOWN],
        seconds=time.perf_counter() - started,
    )


def _differences(market: Market, checked: list[int], run: Path) -> list[str]:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    events = [market.events[row] for row in checked]
    names = [event["id"] for event in events]
    found = pq.read_table(run / "deliveries", filters=pc.field("event_id").isin(names)).to_pydict()
    delivered: dict[str, set[str]] = {}
    for event, subscription in zip(found["event_id"], found["subscription_id"], strict=True):
        delivered.setdefault(event, set()).add(subscription)
    filters = {name: Filter(text) for name, text in market.filters.items()}
    return differences(events, filters, delivered)


def show_pipeline_demo(result: PipelineDemo) -> None:
    """Print the report, and whether it can be trusted."""
    say(result.report.rstrip())
    say()
    asked = f"{result.events_checked} events asked of every filter one by one"
    if result.differences:
        say(f"{asked}: THEY DIFFER:")
        for difference in result.differences:
            say(f"   {difference}")
    else:
        say(f"{asked}: the same deliveries. The run took {result.seconds:.0f} s.")
    say(f"The report with plots: {result.page}")
