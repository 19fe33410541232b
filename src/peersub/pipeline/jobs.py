"""A run of the pipeline: which steps it takes, in which order, and what each writes.

```
events ──────────┐
subscriptions ── index ── match ──┬─ organise ── plan:O ── route:O ── audit:O ──┐
                                  └─ audit:trace, audit:deliveries ─────────────┴─ report
```

Each step reads datasets of earlier steps from the folder of the run and writes its own
(`workspace`); a step that is finished is not done again. The steps themselves are in the modules
that they are named after. Nothing here looks at rows: only counts come to this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from peersub.pipeline.narration import Narrator, Silence
from peersub.pipeline.options import PipelineOptions, Target
from peersub.pipeline.overlay_steps import OverlaySteps
from peersub.pipeline.progress import watched
from peersub.pipeline.session import SessionSettings, spark_session
from peersub.pipeline.workspace import Counts, FinishedStep, Workspace, WorkspaceError

__all__ = ["Outcome", "run_job"]

GIVEN: Final = ("trace", "deliveries")
"""What may be audited beside the routes: the names of the options, and of the audits."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run."""

    folder: str
    steps: Mapping[str, FinishedStep]

    @property
    def report(self) -> Path | None:
        """The report as text, if the run went so far; `report.html` lies beside it."""
        place = Path(self.folder) / "report.txt"
        return place if "report" in self.steps else None

    def count(self, step: str, name: str) -> int:
        """A count of a step; 0 if it was not done."""
        found = self.steps.get(step)
        return 0 if found is None else int(found.counts.get(name) or 0)

    @property
    def quarantined(self) -> int:
        """Entries of the quarantine: rows, files and parts of files that could not be used."""
        return sum(self.count(step, "entries") for step in ("events", "subscriptions"))

    @property
    def examples(self) -> list[str]:
        """Some entries of the quarantine, each in a line."""
        steps = (self.steps.get(name) for name in ("subscriptions", "events"))
        return [line for step in steps if step for line in step.counts.get("examples", ())]

    @property
    def findings(self) -> int:
        """Differences between what was delivered and what should have been."""
        return sum(
            self.count(step, name)
            for step in self.steps
            if step.startswith("audit:")
            for name in ("missed", "spurious", "duplicates")
        )


def run_job(options: PipelineOptions, narrator: Narrator | None = None) -> Outcome:
    """Do what the options ask for, in the folder that they name.

    Raises:
        WorkspaceError: the folder cannot be used as asked.
        FileError: an input cannot be read.
    """
    with Workspace.opened(options.out, resume=options.resume) as workspace:
        return _Job(options, workspace, narrator or Silence()).carried_out()


@dataclass(frozen=True, slots=True)
class _Step:
    name: str
    settings: Mapping[str, Any]
    work: Callable[[Path], Counts]


class _Job:
    """One run. Steps are methods: they fill the folder they are given, and return counts."""

    def __init__(self, options: PipelineOptions, workspace: Workspace, narrator: Narrator) -> None:
        self.options = options
        self.workspace = workspace
        self.narrator = narrator
        self._session: Any = None
        self.steps = OverlaySteps(options, workspace, self._spark)

    def carried_out(self) -> Outcome:
        """Do all steps that are not finished."""
        steps = list(self._steps())
        finished = [self.workspace.is_finished(step.name, step.settings) for step in steps]
        if all(finished) and not self.options.resume:
            raise WorkspaceError(
                f"{self.workspace.folder} holds a finished run: name another folder with --out, "
                "or add --resume to see its result again."
            )
        for number, (step, was_done) in enumerate(zip(steps, finished, strict=True), 1):
            if not was_done:
                session = self._spark()
                self.narrator.begins(step.name, number, len(steps))
                show = self.narrator.works if self.narrator.wants_progress else None
                with watched(session, show):
                    self.workspace.run(step.name, step.settings, step.work)
            done = self.workspace.steps[step.name]
            self.narrator.ends(step.name, done, was_done=was_done)
        return Outcome(str(self.workspace.folder), dict(self.workspace.steps))

    def _spark(self) -> Any:
        """The session, started when the first step needs it."""
        if self._session is None:
            options = self.options
            self.narrator.starts_spark(options.master)
            log = None if options.master.startswith("sc://") else self.workspace.log
            settings = SessionSettings(options.master, options.spark, log=log)
            self._session = spark_session(settings)
        return self._session

    # --- what is to be done ----------------------------------------------------------------------

    def _steps(self) -> Iterator[_Step]:
        stages, steps = self.options.target.stages, self.steps
        yield from self._inputs()
        yield _Step("index", {"shards": self.options.shards}, steps.index)
        yield _Step("match", {"body_column": self.options.body_column}, steps.match)
        if Target.ORGANISE in stages and not self._only_given():
            options = self.options
            chosen = {
                "sample": options.sample,
                "seed": options.seed,
                "neighbours": options.neighbours,
            }
            yield _Step("organise", chosen, steps.organise)
        yield from self._overlay_steps()
        yield from self._audits_of_given()
        if Target.REPORT in stages:
            asked = {"overlays": list(self.options.overlays), "given": self._given()}
            yield _Step("report", asked, steps.report)

    def _overlay_steps(self) -> Iterator[_Step]:
        stages, steps, options = self.options.target.stages, self.steps, self.options
        if Target.ORGANISE not in stages or self._only_given():
            return
        yield _Step("placement", {"nodes": options.nodes}, steps.placement)
        if any(map(steps.hosts_members, options.overlays)):
            yield _Step("members", {"nodes": options.nodes}, steps.members)
        for overlay in options.overlays:
            chosen = {"nodes": options.nodes, "seed": options.seed, **steps.own(overlay)}
            yield _Step(f"plan:{overlay}", chosen, partial(steps.plan, overlay=overlay))
            if Target.ROUTE in stages:
                yield _Step(f"route:{overlay}", {}, partial(steps.route, overlay=overlay))
            if Target.AUDIT in stages:
                yield _Step(f"audit:{overlay}", {}, partial(steps.audit_route, overlay=overlay))

    def _only_given(self) -> bool:
        """Whether plans can be left out: who asks for an audit of a trace wants that alone."""
        return bool(self._given()) and self.options.target is Target.AUDIT

    def _given(self) -> list[str]:
        return [name for name in GIVEN if getattr(self.options, name) is not None]

    def _audits_of_given(self) -> Iterator[_Step]:
        if Target.AUDIT not in self.options.target.stages:
            return
        works = {"trace": self.steps.audit_trace, "deliveries": self.steps.audit_deliveries}
        for name in self._given():
            place = str(Path(getattr(self.options, name)).absolute())
            yield _Step(f"audit:{name}", {name: place}, works[name])

    def _inputs(self) -> Iterator[_Step]:
        options = self.options
        events = {
            "events_format": options.events_format,
            "records": options.records,
            "schema": options.schema,
        }
        subscriptions = {"subscriptions_format": options.subscriptions_format}
        yield self._input("events", options.events, events, self.steps.events)
        yield self._input(
            "subscriptions", options.subscriptions, subscriptions, self.steps.subscriptions
        )

    def _input(
        self,
        name: str,
        given: str | None,
        settings: Mapping[str, Any],
        work: Callable[[Path], Counts],
    ) -> _Step:
        """The step that reads an input; one that is read already need not be named again."""
        known = self.workspace.steps.get(name)
        if given is None:
            if known is None:
                raise WorkspaceError(
                    f"{self.workspace.folder} has no {name} yet: name them with --{name}."
                )
            return _Step(name, known.settings, work)
        return _Step(name, {name: str(Path(given).absolute()), **settings}, work)
