"""`peersub pipeline`: from options to a run, and from what came of it to the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from peersub.cli.failures import CommandError, ExitCode
from peersub.cli.output import note, print_json, say
from peersub.cli.pipeline_narration import TerminalNarrator, told_counts

if TYPE_CHECKING:
    from peersub.pipeline.jobs import Outcome
    from peersub.pipeline.options import PipelineOptions

__all__ = ["run_pipeline"]


def run_pipeline(target: str, given: Mapping[str, Any]) -> int:
    """Run a command; the result is its exit code."""
    from peersub.pipeline.failures import explained
    from peersub.pipeline.jobs import run_job

    options = _options(target, given)
    narrator = None if given["quiet"] else TerminalNarrator()
    try:
        with explained(options):
            outcome = run_job(options, narrator)
    finally:
        if narrator is not None:
            narrator.stop()
    if given["as_json"]:
        print_json(_as_json(outcome))
    else:
        _show(outcome, quiet=given["quiet"])
    return _code(options, outcome)


def _code(options: PipelineOptions, outcome: Outcome) -> ExitCode:
    if outcome.quarantined:
        return ExitCode.QUARANTINE
    if outcome.findings:
        return ExitCode.FAILED
    if options.target == "match" and not outcome.count("match", "deliveries"):
        return ExitCode.NO_MATCH
    return ExitCode.DONE


# --- options -----------------------------------------------------------------------------------


def _options(target: str, given: Mapping[str, Any]) -> PipelineOptions:
    """The options, checked as far as that is possible before Spark starts."""
    from peersub.cli.match_command import chosen_format
    from peersub.files.events import kinds_of_text
    from peersub.overlays.registry import overlay_kind
    from peersub.overlays.settings import SettingsError, settings_from, settings_table
    from peersub.pipeline.options import DEFAULT_OVERLAYS, PipelineOptions, Target

    overlays = tuple(dict.fromkeys(given["overlay"] or DEFAULT_OVERLAYS))
    settings = _pairs("--set", given["settings"])
    try:
        classes = [overlay_kind(name).settings_class for name in overlays]
    except SettingsError as error:
        raise CommandError(f"--overlay: {error}.") from None
    known = [settings_table(each) for each in classes]
    for name in settings:
        if not any(name in table for table in known):
            raise CommandError(f"--set {name}: none of {', '.join(overlays)} has this setting.")
    try:
        for overlay, each, table in zip(overlays, classes, known, strict=True):
            given_here = {name: settings[name] for name in settings if name in table}
            own: Any = settings_from(each, given_here)
            hosting: Any = overlay_kind(overlay).part("planning")
            if hosting is not None:
                hosting.check(own)
    except SettingsError as error:
        raise CommandError(f"--set: {error}.") from None
    try:
        kinds_of_text(given["schema"] or "")
    except ValueError as error:
        raise CommandError(f"--schema: {error}.") from None
    for option in ("events_format", "subscriptions_format"):
        chosen_format(given[option], f"--{option.replace('_', '-')}")
    for option in ("events", "subscriptions", "trace", "deliveries"):
        _check_there(option, given[option])
    return PipelineOptions(
        target=Target(target),
        out=given["out"],
        subscriptions=given["subscriptions"],
        events=given["events"],
        events_format=given["events_format"],
        subscriptions_format=given["subscriptions_format"],
        records=given["records"],
        schema=given["schema"],
        body_column=given["body_column"],
        overlays=overlays,
        nodes=given["nodes"],
        seed=given["seed"],
        settings=settings,
        shards=given["shards"],
        sample=given["sample"],
        neighbours=given["neighbours"],
        trace=given["trace"],
        deliveries=given["deliveries"],
        master=given["master"],
        spark=_pairs("--conf", given["conf"]),
        resume=given["resume"],
    )


def _check_there(option: str, name: str | None) -> None:
    import os

    from peersub.files.errors import FileError

    if name == "-":
        raise CommandError(f"--{option}: Spark cannot read standard input. Name a file.")
    if name is not None and not os.path.exists(name):
        raise FileError(name, "there is no such file or folder", f"Check --{option}.")


def _pairs(option: str, given: Sequence[str] | None) -> dict[str, str]:
    pairs = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise CommandError(f"{option} {text}: write NAME=VALUE.")
        pairs[name.strip()] = value.strip()
    return pairs


# --- results -----------------------------------------------------------------------------------


def _as_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "folder": outcome.folder,
        "quarantined": outcome.quarantined,
        "findings": outcome.findings,
        "steps": {
            name: dict(step.counts) | {"seconds": step.seconds}
            for name, step in outcome.steps.items()
        },
    }


def _show(outcome: Outcome, *, quiet: bool) -> None:
    if outcome.report is not None:
        say(outcome.report.read_text("utf-8").rstrip())
    else:
        for name in ("match", *(name for name in outcome.steps if name.startswith("audit:"))):
            say(f"{name}: {', '.join(told_counts(outcome.steps[name].counts))}")
    if quiet:
        return
    if outcome.report is not None:
        note(f"peersub: the same with plots: {outcome.report.with_suffix('.html')}")
    _tell_what_is_amiss(outcome)
    note(f"peersub: everything is in {outcome.folder}")


def _tell_what_is_amiss(outcome: Outcome) -> None:
    examples = outcome.examples
    for line in examples:
        note(f"peersub: not used: {line}")
    if outcome.quarantined > len(examples):
        note(f"peersub: … and {outcome.quarantined - len(examples):,} more")
    if outcome.quarantined:
        note(f"peersub: all {outcome.quarantined:,} of them are in {outcome.folder}/quarantine")
    if outcome.findings:
        note(f"peersub: {outcome.findings:,} findings are in {outcome.folder}/findings")
