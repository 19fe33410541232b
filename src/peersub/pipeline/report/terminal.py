"""The report as tables in the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from peersub.pipeline.report.content import Report
from peersub.pipeline.report.sections import Section, Table, sections, verdicts

__all__ = ["terminal_report"]


def terminal_report(report: Report) -> Group:
    """What `rich.print` shows. Text of the data is shown as it is: never as markup."""
    parts: list[Any] = [_text(report.title, "bold")]
    parts.extend(_text(sentence) for sentence in verdicts(report))
    for section in sections(report):
        parts.extend(_section(section))
    return Group(*parts)


def _section(section: Section) -> Iterator[Any]:
    yield Text()
    yield _text(section.title, "bold underline")
    if section.text:
        yield _text(section.text)
    for table in section.tables:
        yield _table(table)
        hidden = len(table.rows) - table.rows_first
        if hidden > 0:
            yield Text(f"… and {hidden:,} more rows", style="dim")
    for line in section.lines:
        yield _text(f"  {line}")


def _table(table: Table) -> RichTable:
    shown = RichTable(title=_text(table.title), title_justify="left", title_style="italic")
    for number, name in enumerate(table.columns):
        is_number = table.numbers_from <= number < table.numbers_to
        shown.add_column(_text(name), justify="right" if is_number else "left", overflow="fold")
    for row in table.rows[: table.rows_first]:
        shown.add_row(*(_text(cell) for cell in row))
    return shown


def _text(text: str, style: str = "") -> Text:
    return Text(_visible(text), style=style)


def _visible(text: str) -> str:
    r"""The text without characters that would steer the terminal.

    >>> _visible("a\x1b[31mb")
    'a�[31mb'
    """
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
