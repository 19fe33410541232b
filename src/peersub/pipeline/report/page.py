"""The report as one HTML file that needs nothing else: no script, no font, no address.

Its policy forbids the browser to load anything. All text passes through `escape`. Colours follow
the reader's choice of light or dark; plots stand beside the tables that hold the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from peersub.pipeline.report.content import Report
from peersub.pipeline.report.sections import Section, Table, headlines, sections, verdicts

__all__ = ["html_page"]

ROWS_OPEN_MAX: Final = 26
"""Longer tables are folded until they are asked for."""

_STYLE: Final = """
:root {
  color-scheme: light dark;
  --ground: #ffffff; --card: #f6f7f9; --ink: #1b1f24; --soft: #57606a; --line: #d5dae0;
  --accent: #0b5cad;
  --series-0: #0b6fc2; --series-1: #c2570b; --series-2: #1a7f4b; --series-3: #8a3fc0;
  --series-4: #b0264a; --series-5: #5b6770; --series-6: #8a6d00;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #14171a; --card: #1d2125; --ink: #e8eaed; --soft: #a3adb8; --line: #373e46;
    --accent: #74b3f5;
    --series-0: #5aa9f0; --series-1: #f0954d; --series-2: #58c58c; --series-3: #c291ee;
    --series-4: #f27d9a; --series-5: #a5b1bc; --series-6: #d9bb48;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 76rem;
  background: var(--ground); color: var(--ink);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 0.5rem; }
h2 { font-size: 1.25rem; margin: 2.75rem 0 0.5rem; padding-top: 0.75rem;
     border-top: 1px solid var(--line); }
p { margin: 0.4rem 0; max-width: 46rem; }
ul.verdicts { margin: 0.5rem 0 0; padding-left: 1.2rem; }
dl.headlines { display: grid; gap: 0.6rem; margin: 1.2rem 0 0;
  grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); }
dl.headlines div { background: var(--card); border-radius: 0.5rem; padding: 0.7rem 0.9rem;
  display: flex; flex-direction: column-reverse; }
dl.headlines dd { margin: 0; font-size: 1.45rem; font-weight: 600; line-height: 1.2;
  font-variant-numeric: tabular-nums; }
dl.headlines dt { color: var(--soft); font-size: 0.85rem; }
.plots { display: grid; gap: 1rem; margin: 1rem 0;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 21rem), 1fr)); }
figure { margin: 0; background: var(--card); border-radius: 0.5rem; padding: 0.8rem; }
figcaption { font-weight: 600; font-size: 0.9rem; margin-bottom: 0.4rem; }
svg { display: block; width: 100%; max-width: 27rem; height: auto; font-size: 12px; }
svg text { fill: var(--ink); }
svg .tick, svg .axis { fill: var(--soft); font-size: 11px; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .even { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 1 4; fill: none; }
.tables { display: grid; gap: 1rem 2rem; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); }
.scroll { overflow-x: auto; max-width: 100%; }
.scroll:focus-visible { outline: 2px solid var(--accent); }
table { border-collapse: collapse; margin: 0.6rem 0; font-size: 0.9rem;
  min-width: min(100%, 24rem); }
caption { text-align: left; font-weight: 600; padding: 0.2rem 0; }
th, td { text-align: left; vertical-align: top; padding: 0.28rem 0.7rem 0.28rem 0;
  border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
thead th { color: var(--soft); font-weight: 600; overflow-wrap: normal; }
tbody th { font-weight: 500; }
tbody th:not(.number), td:not(.number) { min-width: 7.5rem; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap;
  padding-right: 0.3rem; padding-left: 1.2rem; }
td:last-child:not(.number) { padding-right: 0; }
small { display: block; color: var(--soft); font-weight: 400; }
summary { cursor: pointer; color: var(--accent); font-weight: 600; padding: 0.4rem 0; }
pre { background: var(--card); border-radius: 0.5rem; padding: 0.8rem; overflow-x: auto;
  font-size: 0.85rem; }
@media print { body { max-width: none; } details { display: block; } }
""".strip()

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


def html_page(report: Report) -> str:
    """The whole page; the same report gives the same text."""
    return "\n".join(_page(report)) + "\n"


def _page(report: Report) -> Iterator[str]:
    title = escape(report.title)
    yield "<!doctype html>"
    yield '<html lang="en">'
    yield "<head>"
    yield '<meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{title}</title>"
    yield f"<style>{_STYLE}</style>"
    yield "</head>"
    yield "<body>"
    yield f"<header><h1>{title}</h1>"
    sentences = "".join(f"<li>{escape(sentence)}</li>" for sentence in verdicts(report))
    if sentences:
        yield f'<ul class="verdicts">{sentences}</ul>'
    tiles = "".join(
        f"<div><dt>{escape(each.label)}</dt><dd>{escape(each.number)}</dd></div>"
        for each in headlines(report)
    )
    if tiles:
        yield f'<dl class="headlines">{tiles}</dl>'
    yield "</header>"
    yield "<main>"
    for section in sections(report):
        yield from _section(section)
    yield "</main>"
    yield "</body>"
    yield "</html>"


def _section(section: Section) -> Iterator[str]:
    yield "<section>"
    yield f"<h2>{escape(section.title)}</h2>"
    if section.text:
        yield f"<p>{escape(section.text)}</p>"
    if section.plots:
        figures = (
            f"<figure><figcaption>{escape(title)}</figcaption>{svg}</figure>"
            for title, svg in section.plots
        )
        yield f'<div class="plots">{"".join(figures)}</div>'
    if section.tables:
        wide = any(len(table.columns) > 4 for table in section.tables)
        yield '<div class="wide">' if wide else '<div class="tables">'
        for table in section.tables:
            yield from _table(table)
        yield "</div>"
    if section.lines:
        yield f"<pre>{escape(chr(10).join(section.lines))}</pre>"
    yield "</section>"


def _table(table: Table) -> Iterator[str]:
    is_long = len(table.rows) > ROWS_OPEN_MAX
    title = escape(table.title)
    if is_long:
        yield f"<details><summary>{title}</summary>"
    # Who has no mouse can reach and scroll a table that is wider than the page.
    yield f'<div class="scroll" role="region" tabindex="0" aria-label="{title}">'
    yield f"<table><caption>{title}</caption>"
    heads = "".join(
        f'<th scope="col"{_number_class(table, number)}>{escape(name)}</th>'
        for number, name in enumerate(table.columns)
    )
    yield f"<thead><tr>{heads}</tr></thead>"
    yield "<tbody>"
    for place, row in enumerate(table.rows):
        note = table.notes[place] if table.notes else ""
        yield _row(table, row, note)
    yield "</tbody></table></div>"
    if is_long:
        yield "</details>"


def _row(table: Table, row: tuple[str, ...], note: str) -> str:
    cells = []
    for number, text in enumerate(row):
        shown = escape(text)
        if number == 0:
            meaning = f"<small>{escape(note)}</small>" if note else ""
            cells.append(f'<th scope="row"{_number_class(table, 0)}>{shown}{meaning}</th>')
        else:
            cells.append(f"<td{_number_class(table, number)}>{shown}</td>")
    return f"<tr>{''.join(cells)}</tr>"


def _number_class(table: Table, number: int) -> str:
    return ' class="number"' if table.numbers_from <= number < table.numbers_to else ""
