"""Tables for the terminal, as benchmarks print them."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

__all__ = ["plain_table"]


def plain_table(
    title: str, first: Sequence[str], columns: Sequence[str], caption: str = ""
) -> Table:
    """A table with a title; the first columns are words, the others numbers."""
    table = Table(
        title=title,
        caption=caption or None,
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE,
        pad_edge=False,
        collapse_padding=True,
    )
    for column in first:
        table.add_column(column, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table
