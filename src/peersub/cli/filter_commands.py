"""`peersub filter check | explain | covers`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from peersub.cli.failures import CommandError, ExitCode
from peersub.cli.output import note, print_json, say
from peersub.files.errors import BadRow, one_line

if TYPE_CHECKING:
    from peersub import Filter
    from peersub.events.arrow import Schema
    from peersub.filters.sql_grammar import Leaf, Tree

__all__ = ["CheckOptions", "run_check", "run_covers", "run_explain"]


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """The options of `filter check`, as given."""

    text: str | None
    xpath: bool
    file: str | None
    events: str | None
    events_format: str | None
    records: str | None
    schema: str | None
    as_json: bool


def _filter(text: str, *, xpath: bool) -> Filter:
    from peersub import Filter

    return Filter.xpath(text) if xpath else Filter(text)


# --- check -------------------------------------------------------------------------------------


def run_check(options: CheckOptions) -> int:
    """Check one filter, or all of a file."""
    if (options.text is None) == (options.file is None):
        raise CommandError("give either a FILTER or --file. See peersub filter check --help.")
    schema = _schema_of_events(options)
    if options.file is not None:
        return _check_file(options, schema)
    assert options.text is not None
    verdict = _verdict(options.text, schema, xpath=options.xpath)
    if options.as_json:
        print_json(verdict)
    elif verdict["ok"]:
        say(verdict["canonical"])
        for finding in verdict["findings"]:
            note(f"peersub: warning: {_finding_line(options.text, finding)}")
    else:
        raise CommandError(verdict["error"])
    return ExitCode.DONE if verdict["ok"] else ExitCode.UNUSABLE


def _schema_of_events(options: CheckOptions) -> Schema | None:
    if options.events is None:
        return None
    from peersub.cli.match_command import event_source
    from peersub.events.arrow import joined_schemas, schema_of_table
    from peersub.files.events import read_events

    source = event_source(options.events, options.events_format, options.records, options.schema)
    return joined_schemas(schema_of_table(table) for table in read_events(source))


def _verdict(text: str, schema: Schema | None, *, xpath: bool) -> dict[str, Any]:
    from peersub import FilterError

    try:
        made = _filter(text, xpath=xpath)
    except FilterError as error:
        return {
            "ok": False,
            "error": error.one_line(),
            "position": error.position,
            "problem": error.problem,
            "remedy": error.remedy,
        }
    findings = [] if xpath else _findings(text, schema)
    return {
        "ok": True,
        "canonical": made.text,
        "digest": made.digest.hex(),
        "findings": findings,
    }


def _findings(text: str, schema: Schema | None) -> list[dict[str, Any]]:
    from peersub.filters.lint import lint

    return [
        {"code": found.code, "start": found.start, "end": found.end, "message": found.message}
        for found in lint(text, schema)
    ]


def _finding_line(text: str, finding: Mapping[str, Any]) -> str:
    part = one_line(text[finding["start"] : finding["end"]])
    message = one_line(finding["message"])
    return f"{message} [{finding['code']}, at character {finding['start'] + 1}: {part}]"


def _check_file(options: CheckOptions, schema: Schema | None) -> int:
    from peersub.files.subscriptions import read_subscriptions

    assert options.file is not None
    bad: list[BadRow] = []
    subscriptions = read_subscriptions(options.file, None, bad.append)
    results = []
    for row, (name, text) in enumerate(zip(subscriptions.ids, subscriptions.texts, strict=True)):
        verdict = _verdict(text, schema, xpath=subscriptions.languages[row] == "xpath")
        results.append({"id": name} | verdict)
        if not verdict["ok"]:
            bad.append(subscriptions.bad(row, verdict["error"]))
    good = sum(1 for result in results if result["ok"])
    if options.as_json:
        refused = [{"place": r.place, "reason": r.reason, "original": r.original} for r in bad]
        print_json({"good": good, "bad": len(bad), "filters": results, "refused": refused})
        return ExitCode.UNUSABLE if bad else ExitCode.DONE
    for row_report in bad:
        note(f"peersub: error: {row_report.one_line()}")
    for name, text, result in zip(subscriptions.ids, subscriptions.texts, results, strict=True):
        for finding in result.get("findings", ()):
            note(f"peersub: warning: {name}: {_finding_line(text, finding)}")
    say(f"{good:,} good, {len(bad):,} bad")
    return ExitCode.UNUSABLE if bad else ExitCode.DONE


# --- explain -----------------------------------------------------------------------------------


def run_explain(text: str, event: str | None, *, xpath: bool, as_json: bool) -> int:
    """Show the meaning of a filter and, with an event, the outcome of each of its parts."""
    made = _filter(text, xpath=xpath)
    result: dict[str, Any] = {
        "filter": text,
        "language": made.language,
        "canonical": made.text,
        "digest": made.digest.hex(),
    }
    attributes = None if event is None or xpath else _event_of(event)
    if not xpath:
        result |= _sql_explanation(text, made, attributes)
    if event is not None:
        result["matches"] = made.matches(event if attributes is None else attributes)
    if as_json:
        print_json(result)
    else:
        for line in _explanation_lines(result):
            say(line)
    return ExitCode.NO_MATCH if result.get("matches") is False else ExitCode.DONE


def _event_of(text: str) -> dict[str, Any]:
    try:
        event = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CommandError(
            f"--event is not JSON ({error}). Write an object: '{{\"price\": 12}}'."
        ) from None
    if not isinstance(event, dict):
        raise CommandError("--event is not an object. Write: '{\"price\": 12}'.")
    return event


def _sql_explanation(
    text: str, made: Filter, attributes: Mapping[str, Any] | None
) -> dict[str, Any]:
    from peersub.filters.sql_grammar import parse
    from peersub.filters.sql_text import name_text, text_of_boxes

    return {
        "attributes": [name_text(path) for path in made.attributes],
        "conjunctions": [text_of_boxes([box]) for box in made.boxes],
        "tree": _tree(text, parse(text), attributes),
    }


def _tree(text: str, tree: Tree, attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    from peersub.filters.sql_grammar import Conjunction, Leaf

    if isinstance(tree, Leaf):
        return _leaf(text, tree, attributes)
    word = "AND" if isinstance(tree, Conjunction) else "OR"
    parts = [_tree(text, part, attributes) for part in tree.parts]
    node: dict[str, Any] = {"node": word, "parts": parts}
    if attributes is not None:
        outcomes = [part["holds"] for part in parts]
        node["holds"] = all(outcomes) if word == "AND" else any(outcomes)
    return node


def _leaf(text: str, leaf: Leaf, attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    from peersub.filters.boxes import box_matches
    from peersub.filters.sql_text import text_of_boxes

    written = text[leaf.start : leaf.end]
    # Below a NOT the leaf is the opposite of what is written: show what is asked of the event.
    asked = f"{written} (never true)" if leaf.box is None else text_of_boxes([leaf.box])
    node: dict[str, Any] = {"node": "predicate", "text": asked}
    if attributes is not None:
        node["holds"] = leaf.box is not None and box_matches(leaf.box, attributes)
        node["why"] = _why(leaf, attributes, holds=node["holds"])
    return node


def _why(leaf: Leaf, attributes: Mapping[str, Any], *, holds: bool) -> str:
    """Why a predicate holds, fails, or is unknown."""
    from peersub.events.kinds import comparable, kind_of, value_at
    from peersub.filters.sql_text import name_text

    if leaf.box is None or not leaf.box.domains:
        return "always" if holds else "fails for every event"
    ((path, domain),) = leaf.box.domains.items()
    value, name = value_at(attributes, path), name_text(path)
    kind = kind_of(value)
    shown = json.dumps(value, default=str)[:60]
    if holds:
        return f"holds: {name} is {'missing' if kind == 'missing' else shown}"
    if kind == "missing" and not domain.absent:
        return f"unknown: {name} is missing"
    place = comparable(value)
    if place is None or not domain.sets[place[0]]:
        wanted = domain.only_class
        if wanted is not None and (place is None or place[0] is not wanted):
            return f"unknown: {name} is {shown} ({kind}), compared with a {wanted.name.lower()}"
    return f"fails: {name} is {shown}"


def _explanation_lines(result: Mapping[str, Any]) -> Iterator[str]:
    yield f"filter        {one_line(result['filter'])}"
    yield f"canonical     {result['canonical']}"
    yield f"digest        {result['digest']}"
    if "tree" in result:
        yield f"attributes    {', '.join(result['attributes']) or 'none'}"
        yield "normal form   any of" if result["conjunctions"] else "normal form   nothing"
        for number, conjunction in enumerate(result["conjunctions"], 1):
            yield f"  {number}. {conjunction}"
        yield "tree"
        yield from _tree_lines(result["tree"], "  ")
    if "matches" in result:
        yield "the event matches" if result["matches"] else "the event does not match"


def _tree_lines(node: Mapping[str, Any], indent: str) -> Iterator[str]:
    mark = "" if "holds" not in node else ("[x] " if node["holds"] else "[ ] ")
    if node["node"] == "predicate":
        why = f"   -- {node['why']}" if "why" in node else ""
        yield f"{indent}{mark}{node['text']}{why}"
        return
    yield f"{indent}{mark}{node['node']}"
    for part in node["parts"]:
        yield from _tree_lines(part, indent + "  ")


# --- covers ------------------------------------------------------------------------------------


def run_covers(general: str, specific: str, *, xpath: bool, as_json: bool) -> int:
    """Whether one filter covers another; if not, an event that shows it."""
    from peersub.cli.counterexamples import counterexample

    wide, narrow = (
        _named(general, "GENERAL", xpath=xpath),
        _named(specific, "SPECIFIC", xpath=xpath),
    )
    covered = wide.covers(narrow)
    example = None if covered or xpath else counterexample(wide, narrow)
    if as_json:
        print_json({"covers": covered, "overlaps": wide.overlaps(narrow), "example": example})
    elif covered:
        say("covers: each event that matches the second filter matches the first")
    elif example is not None:
        shown = json.dumps(example, default=str)
        say(f"does not cover: the second matches {shown}, the first does not")
    else:
        say("does not cover, as far as can be proven")
    return ExitCode.DONE if covered else ExitCode.NO_MATCH


def _named(text: str, which: str, *, xpath: bool) -> Filter:
    from peersub import FilterError

    try:
        return _filter(text, xpath=xpath)
    except FilterError as error:
        raise CommandError(f"{which}: {error.one_line()}") from None
