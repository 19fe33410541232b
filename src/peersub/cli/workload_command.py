"""`peersub workload`: generated documents and patterns, in the form that other commands read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from peersub.cli.failures import CommandError, ExitCode
from peersub.cli.output import note, print_json, say, warn
from peersub.cli.written_files import text_file
from peersub.files.deliveries import check_output
from peersub.files.errors import FileError
from peersub.files.formats import Format
from peersub.files.subscriptions import original_of_filter

if TYPE_CHECKING:
    from peersub.workloads.xml import DocumentSettings, PatternSettings, Schema

__all__ = ["Range", "SchemaChoice", "run_documents", "run_xpaths", "settings_of"]

S = TypeVar("S")

DIGITS: Final = 7
"""Of a document's number in the name of its file: names sort like numbers."""


def settings_of(kind: type[S], **values: Any) -> S:
    """Settings with these values; one that is not allowed ends the command."""
    try:
        return kind(**values)
    except ValueError as error:
        raise CommandError(f"{error}.") from None


@dataclass(frozen=True, slots=True)
class Range:
    """Which numbers to draw."""

    first: int
    count: int

    def numbers(self) -> range:
        """The numbers."""
        return range(self.first, self.first + self.count)


@dataclass(frozen=True, slots=True)
class SchemaChoice:
    """The schema that is asked for."""

    file: str | None
    root: str | None

    def schema(self) -> Schema:
        """Read it; tell what of it was left out."""
        from peersub.files.xml_schemas import read_schema_file
        from peersub.workloads.xml import news_schema

        if self.file is None:
            if self.root is not None:
                raise CommandError("--root goes with --schema. Name the file.")
            return news_schema()
        schema = read_schema_file(self.file, self.root)
        for each in schema.notes:
            warn(f"{self.file}: {each}")
        return schema


def run_documents(
    choice: SchemaChoice,
    settings: DocumentSettings,
    wanted: Range,
    folder: str,
    *,
    force: bool,
    as_json: bool,
) -> int:
    """Write documents into a folder; the result is the exit code."""
    from peersub.workloads.xml import DocumentGenerator, SchemaError

    schema = choice.schema()
    try:
        documents = DocumentGenerator(schema, settings)
    except SchemaError as error:
        raise CommandError(f"{error}.") from None
    _prepare(folder, force=force)
    size = 0
    for number in wanted.numbers():
        content = documents.text(number).encode()
        size += len(content)
        _write(os.path.join(folder, f"document-{number:0{DIGITS}}.xml"), content)
    if as_json:
        print_json({"documents": wanted.count, "bytes": size, "folder": folder})
    else:
        say(f"{wanted.count:,} documents, {size:,} bytes, in {folder}")
    return ExitCode.DONE


def _prepare(folder: str, *, force: bool) -> None:
    try:
        os.makedirs(folder, exist_ok=True)
        occupied = bool(os.listdir(folder))
    except OSError as error:
        reason = error.strerror or str(error)
        raise FileError(
            folder, f"it cannot be used as a folder ({reason})", "Name another with --out."
        ) from None
    if occupied and not force:
        raise FileError(
            folder, "the folder is not empty", "Name another with --out, or add --force."
        )


def _write(name: str, content: bytes) -> None:
    try:
        with open(name, "wb") as stream:
            stream.write(content)
    except OSError as error:
        reason = error.strerror or str(error)
        raise FileError(name, f"it cannot be written ({reason})", "Check --out.") from None


def run_xpaths(
    choice: SchemaChoice,
    settings: PatternSettings,
    wanted: Range,
    out: str | None,
    *,
    as_json: bool,
) -> int:
    """Write patterns as subscriptions; the result is the exit code."""
    from peersub.workloads.xml import PatternGenerator, SchemaError

    if out == "-":
        out = None
    if out is not None and (
        check_output(out, [choice.file] if choice.file else []) is not Format.JSON_LINES
        or out.lower().endswith(".gz")
    ):
        raise FileError(out, "--out writes JSON Lines", "Let the name end in .jsonl.")
    schema = choice.schema()
    try:
        patterns = PatternGenerator(schema, settings)
    except SchemaError as error:
        raise CommandError(f"{error}.") from None
    distinct: set[str] = set()

    def line(number: int) -> str:
        text = patterns.filter(number).text
        distinct.add(text)
        return original_of_filter(f"s{number}", "xpath", text)

    if out is None:
        for number in wanted.numbers():
            say(line(number))
    else:
        with text_file(out, "--out") as stream:
            for number in wanted.numbers():
                stream.write(line(number) + "\n")
    result = {"patterns": wanted.count, "distinct": len(distinct), "file": out}
    if out is None:
        note(f"{wanted.count:,} patterns, {len(distinct):,} of them distinct")
    elif as_json:
        print_json(result)
    else:
        say(f"{wanted.count:,} patterns, {len(distinct):,} of them distinct, in {out}")
    return ExitCode.DONE
