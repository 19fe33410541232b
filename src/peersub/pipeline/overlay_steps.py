"""The steps of a run that are about overlays: plans, routes, audits, and the report."""

from __future__ import annotations

import json
import shlex
from itertools import islice
from pathlib import Path
from typing import Any, Final

from peersub.overlays.registry import overlay_kind
from peersub.overlays.semantic.bulk_members import member_overlay
from peersub.overlays.settings import settings_table
from peersub.pipeline.plans import PlanSettings, make_plan, placement, planned_by_a_worker
from peersub.pipeline.steps import Steps
from peersub.pipeline.workspace import Counts

__all__ = ["OverlaySteps"]

MERGING_SAMPLE_MAX: Final = 256
"""Events by which imperfect merging is measured; each is held as a dict."""
TASKS_PER_PROCESSOR: Final = 4
"""Events differ in how far they spread: a task more or less evens that out."""
FORMATS: Final = {".parquet": "parquet", ".csv": "csv", ".jsonl": "json", ".ndjson": "json"}


class OverlaySteps(Steps):
    """Steps for one overlay have its name as their last argument."""

    # --- plans -----------------------------------------------------------------------------------

    def plan_settings(self, overlay: str) -> PlanSettings:
        """What the plan of an overlay depends on, but the subscriptions."""
        options, own = self.options, self.own(overlay)
        return PlanSettings(
            overlay=overlay,
            nodes=options.nodes,
            seed=options.seed,
            settings=own,
            sample=self._merging_sample() if own.get("strategy") == "imperfect" else (),
        )

    def _merging_sample(self) -> tuple[dict[str, Any], ...]:
        """Some events of the sample, as dicts: it is small, whatever there is to be routed."""
        from peersub.events.arrow import rows_of_table
        from peersub.pipeline.kernels.blocks import unpacked

        tables = self.read("sample").orderBy("block").select("table").collect()
        rows = (row for one in tables for row in rows_of_table(unpacked(bytes(one[0]))))
        return tuple(islice(rows, MERGING_SAMPLE_MAX))

    def own(self, overlay: str) -> dict[str, Any]:
        """The given settings that this overlay has."""
        known = settings_table(overlay_kind(overlay).settings_class)
        return {name: value for name, value in self.options.settings.items() if name in known}

    def placement(self, folder: Path) -> Counts:
        """Where each subscription lives, for all plans."""
        frame = placement(self.read("subscriptions"), self.options.nodes)
        return {"subscriptions": self._written(frame, folder / "placement").count()}

    def members(self, folder: Path) -> Counts:
        """Who takes part in overlays whose nodes host a member per filter."""
        from peersub.pipeline.members import members_of, membership_of

        subscriptions, nodes = self.read("subscriptions"), self.options.nodes
        members = self._written(members_of(subscriptions, nodes), folder / "members")
        self._written(membership_of(subscriptions, members, nodes), folder / "membership")
        return {"members": members.count()}

    def hosts_members(self, overlay: str) -> bool:
        """Whether the nodes of an overlay host a member per filter."""
        return member_overlay(overlay) is not None

    def plan(self, folder: Path, overlay: str) -> Counts:
        """The converged network of an overlay, to `plans/OVERLAY`."""
        from peersub.pipeline.kernels.plan_files import write_plan

        settings = self.plan_settings(overlay)
        target = folder / "plans" / overlay
        if self.hosts_members(overlay):
            return self._plan_of_members(settings, target)
        if settings.needs_subscriptions:
            planned = planned_by_a_worker(self.read("subscriptions"), settings, str(target))
            row = planned.first().asDict()
        else:
            (row,) = write_plan(make_plan(settings), str(target)).to_pylist()
        return {name: value for name, value in row.items() if isinstance(value, int)}

    def _plan_of_members(self, settings: PlanSettings, target: Path) -> Counts:
        from peersub.pipeline.kernels.member_graphs import EXACT_MEMBERS_MAX
        from peersub.pipeline.members import Organised, planned

        place, steps = self.workspace.path, self.workspace.steps
        organise = steps["organise"].counts
        organised = Organised(
            members=place("members"),
            classes=place("classes"),
            coverings=place("coverings"),
            similar=place("similar"),
            scratch=str(self.workspace.scratch(f"society-{settings.overlay}")),
            members_count=steps["members"].counts["members"],
            is_complete=bool(organise.get("is_complete")),
        )
        row = planned(self.spark, settings, organised, str(target)).first().asDict()
        is_tree = settings.overlay == "containment"
        is_small = organised.members_count <= EXACT_MEMBERS_MAX
        return {
            **{name: value for name, value in row.items() if isinstance(value, int)},
            "members": organised.members_count,
            "is_exact": organised.is_complete if is_tree else is_small,
        }

    # --- routes ----------------------------------------------------------------------------------

    def route(self, folder: Path, overlay: str) -> Counts:
        """Every event over the plan: `receipts/OVERLAY` and `overlay_deliveries/OVERLAY`.

        Where nodes host members also `outcomes/OVERLAY`.
        """
        from peersub.pipeline.route import overlay_deliveries, receipts

        if self.hosts_members(overlay):
            return self._route_among_members(folder, overlay)

        deliveries, homes = self.read("deliveries"), self.read("placement")
        routed = receipts(
            self.read("events"),
            deliveries,
            homes,
            self.plan_settings(overlay),
            self.workspace.path("plans", overlay),
            body_column=self.options.body_column,
        )
        received = self._written(routed, folder / "receipts" / overlay)
        handed = self._written(
            overlay_deliveries(received, deliveries, homes),
            folder / "overlay_deliveries" / overlay,
        )
        return {"receipts": received.count(), "deliveries": handed.count()}

    def _route_among_members(self, folder: Path, overlay: str) -> Counts:
        from peersub.pipeline import members

        deliveries, membership = self.read("deliveries"), self.read("membership")
        routed = members.routed_among_members(
            self.read("events"),
            deliveries,
            membership,
            self.plan_settings(overlay),
            self.workspace.path("plans", overlay),
            self.processors() * TASKS_PER_PROCESSOR,
        )
        kept = self._keep(f"routed-{overlay}", routed)
        received = self._written(members.receipts_of(kept), folder / "receipts" / overlay)
        outcomes = self._written(members.outcomes_of(kept), folder / "outcomes" / overlay, files=1)
        handed = self._written(
            members.deliveries_of_members(kept, membership, self.read("placement")),
            folder / "overlay_deliveries" / overlay,
        )
        return {
            "receipts": received.count(),
            "deliveries": handed.count(),
            **{f"member_{name}": value for name, value in members.summary_of(outcomes).items()},
        }

    # --- audits ----------------------------------------------------------------------------------

    def audit_route(self, folder: Path, overlay: str) -> Counts:
        """What an overlay's route delivered, against what match says."""
        from peersub.pipeline.trace_reading import deliveries_of

        handed = self.read("overlay_deliveries", overlay)
        return self._audited(folder, overlay, deliveries_of(handed), None)

    def audit_deliveries(self, folder: Path) -> Counts:
        """A file of deliveries, against what match says."""
        from peersub.files.errors import FileError
        from peersub.pipeline.trace_reading import deliveries_of

        name = self.options.deliveries
        assert name is not None
        try:
            given = deliveries_of(self._frame_of_file(name))
        except ValueError as error:
            raise FileError(name, str(error), "Check --deliveries.") from None
        return self._audited(folder, "deliveries", given, None)

    def _frame_of_file(self, name: str) -> Any:
        from peersub.files.errors import FileError

        path = Path(name)
        ending = path.suffix if path.suffix != ".gz" else Path(path.stem).suffix
        if path.is_dir():
            ending = ".parquet"
        if ending not in FORMATS:
            raise FileError(
                name, "the name does not tell the format", "Use .jsonl, .csv, .parquet."
            )
        reader = self.spark.read.option("header", "true")
        return reader.format(FORMATS[ending]).load(str(path.absolute()))

    def audit_trace(self, folder: Path) -> Counts:
        """What a trace shows, against what match says, with causes."""
        from peersub.pipeline.evidence import Evidence
        from peersub.pipeline.trace_reading import delivered_in, trace_facts, trace_lines

        assert self.options.trace is not None
        path = str(Path(self.options.trace).absolute())
        facts = self._written(trace_facts(trace_lines(self.spark, path)), folder / "trace")
        return self._audited(folder, "trace", delivered_in(facts), Evidence(facts))

    def _audited(self, folder: Path, name: str, delivered: Any, evidence: Any) -> Counts:
        from peersub.pipeline.audit import Population, findings, judged
        from peersub.pipeline.metrics import delivery_totals

        events = self.read("events").selectExpr("explode(names) AS event_id")
        population = Population(events, self.read("subscriptions").select("subscription_id"))
        expected = self.read("deliveries")
        judgements = self._written(
            judged(expected, delivered, evidence, population), folder / "judgements" / name
        )
        self._written(findings(judgements, evidence), folder / "findings" / name, files=1)
        totals = delivery_totals(judgements).first().asDict()
        return {key: int(value or 0) for key, value in totals.items()}

    # --- report ----------------------------------------------------------------------------------

    def report(self, folder: Path) -> Counts:
        """All figures, as `report.json`, `report.txt` and one page `report.html`."""
        from rich.console import Console

        from peersub.pipeline.report.page import html_page
        from peersub.pipeline.report.terminal import terminal_report

        report = self.gathered()
        (folder / "report.json").write_text(json.dumps(report.as_json(), indent=1), "utf-8")
        (folder / "report.html").write_text(html_page(report), "utf-8")
        with (folder / "report.txt").open("w", encoding="utf-8") as stream:
            Console(file=stream, width=100, no_color=True).print(terminal_report(report))
        return {"overlays": len(report.overlays)}

    def gathered(self) -> Any:
        """The report as plain values."""
        from peersub.pipeline.report.content import FilterFigures, InputCount, Report, StepTaken
        from peersub.pipeline.report.gathering import (
            cause_counts,
            findings_shown,
            match_figures,
            reason_counts,
        )

        steps = self.workspace.steps
        counts = {name: step.counts for name, step in steps.items()}
        audits = [name.partition(":")[2] for name in steps if name.startswith("audit:")]
        found = {name: self.read("findings", name) for name in audits}
        return Report(
            settings=tuple(self.workspace_settings()),
            reproduce=(self.command(),),
            steps=tuple(
                StepTaken(name, _rows(step.counts), step.seconds) for name, step in steps.items()
            ),
            inputs=tuple(
                InputCount(
                    name,
                    str(steps[name].settings[name]),
                    counts[name]["rows"],
                    counts[name][name],
                    counts[name]["quarantined"],
                )
                for name in ("events", "subscriptions")
            ),
            reasons=reason_counts(self.quarantine()),
            match=match_figures(
                self.read("deliveries"),
                events=counts["events"]["events"],
                subscriptions=counts["subscriptions"]["subscriptions"],
            ),
            filters=FilterFigures(**counts["organise"]) if "organise" in counts else None,
            overlays=tuple(self._measured(name) for name in audits),
            causes=tuple(one for name in audits for one in cause_counts(name, found[name])),
            findings=tuple(one for name in audits for one in findings_shown(name, found[name])),
            findings_count=sum(
                counts[f"audit:{name}"][key]
                for name in audits
                for key in ("missed", "spurious", "duplicates")
            ),
        )

    def command(self) -> str:
        """A command that makes the same run, into another folder."""
        options, steps = self.options, self.workspace.steps
        words = ["peersub", "pipeline", "run", "--out", "FOLDER"]
        for name in ("subscriptions", "events"):
            for option, value in steps[name].settings.items():
                if value is not None:
                    words += [f"--{option.replace('_', '-')}", str(value)]
        for overlay in options.overlays:
            words += ["--overlay", overlay]
        words += ["--nodes", str(options.nodes), "--seed", str(options.seed)]
        words += ["--sample", str(options.sample), "--neighbours", str(options.neighbours)]
        for name, value in options.settings.items():
            words += ["--set", f"{name}={value}"]
        return shlex.join(words)

    def workspace_settings(self) -> Any:
        """What the run was asked for, for the report."""
        options = self.options
        yield "nodes", f"{options.nodes:,}"
        yield "seed", str(options.seed)
        yield "sample", f"{options.sample:,} events"
        for name, value in options.settings.items():
            yield name, str(value)

    def _measured(self, name: str) -> Any:
        from peersub.pipeline.metrics import measured
        from peersub.pipeline.trace_reading import receipts_in

        judgements = self.read("judgements", name)
        if name == "trace":
            received = self._keep("receipts", receipts_in(self.read("trace")))
            nodes = received.select("node").distinct().count()
            return measured(name, nodes, judgements=judgements, receipts=received)
        if name == "deliveries":
            return measured(name, self.options.nodes, judgements=judgements)
        return measured(
            name,
            self.options.nodes,
            judgements=judgements,
            receipts=self.read("receipts", name),
            deliveries=self.read("overlay_deliveries", name),
        )


def _rows(counts: Counts) -> int | None:
    return next((value for value in counts.values() if isinstance(value, int)), None)
