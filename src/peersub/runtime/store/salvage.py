"""Salvage: all rows of a damaged database that can be read, into a new one.

Rows are taken from the pages of the file and of its write-ahead file, first along the trees of the
tables, then from leaves that no tree leads to. A row belongs to the table whose shape it has, and
is taken if its content is sound. What is derived (the entries of the log, indexes) is made anew.
"""

from __future__ import annotations

import mmap
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final

from peersub.filters.filter import Filter
from peersub.runtime.store.facts import set_last_given
from peersub.runtime.store.formats import brought_forward
from peersub.runtime.store.log import note_gaps
from peersub.runtime.store.pages import DatabasePages, Row, has_shape
from peersub.runtime.store.rows import is_sound, numbers_of, subscription_checksum
from peersub.runtime.store.schema import EVENT_COLUMNS, PAGE_BYTES, TABLES
from peersub.runtime.store.write_ahead import WriteAhead, read_write_ahead

__all__ = ["Salvaged", "content_damage", "salvage"]

_SEQUENCE_SHAPE: Final = "TI"
_SEQUENCED: Final = ("log", "retained", "stages", "subscriptions")
_WORDS: Final = {
    "facts": "facts about the node",
    "history": "names of seen events",
    "kept": "events to be handed over",
    "log": "events of the log",
    "mirrored": "subscriptions of other nodes",
    "retained": "events for other nodes",
    "staged": "staged publications",
    "stages": "keys of stages",
    "subscriptions": "durable subscriptions",
}


@dataclass(slots=True)
class Salvaged:
    """What was found."""

    rows: Counter[str] = field(default_factory=Counter)
    unsound: Counter[str] = field(default_factory=Counter)
    """Rows that were found, and whose content is damaged."""

    def described(self) -> str:
        """The counts in words."""
        words = [f"{count:,} {_WORDS[name]}" for name, count in sorted(self.rows.items())]
        lost = [f"{count:,} {_WORDS[name]}" for name, count in sorted(self.unsound.items())]
        text = ", ".join(words) or "nothing"
        return f"{text} (damaged themselves: {', '.join(lost)})" if lost else text


def salvage(database: Path, write_ahead: Path, target: sqlite3.Connection) -> Salvaged:
    """Write all that can be read of a database into the empty tables of another."""
    found = Salvaged()
    sequences: dict[str, int] = {}
    with _pages(database, write_ahead) as pages:
        trees = [pages.tree(root) for root in pages.roots().values()]
        target.execute("BEGIN")
        for rowid, values in chain(*trees, pages.orphans()):
            if has_shape(values, _SEQUENCE_SHAPE) and values[0] in _SEQUENCED:
                sequences[values[0]] = max(values[1], sequences.get(values[0], 0))
                continue
            _take(target, (rowid, values), found)
    _derive(target, sequences)
    target.execute("COMMIT")
    return found


@contextmanager
def _pages(database: Path, write_ahead: Path) -> Iterator[DatabasePages]:
    ahead = write_ahead.read_bytes() if write_ahead.exists() else b""
    newest = read_write_ahead(ahead, PAGE_BYTES)
    with open(database, "rb") as file:
        size = file.seek(0, 2)
        if size:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                yield _database(content, size, ahead, newest)
        else:
            yield _database(b"", 0, ahead, newest)


def _database(content: Any, size: int, ahead: bytes, newest: WriteAhead) -> DatabasePages:
    places = newest.place_of_page
    count = max(-(-size // PAGE_BYTES), max(places, default=0))

    def page(number: int) -> bytes:
        place = places.get(number)
        if place is not None:
            return ahead[place : place + PAGE_BYTES]
        begin = (number - 1) * PAGE_BYTES
        return bytes(content[begin : begin + PAGE_BYTES]).ljust(PAGE_BYTES, b"\0")

    return DatabasePages(page, max(count, 1), PAGE_BYTES)


def _take(target: sqlite3.Connection, row: Row, found: Salvaged) -> None:
    rowid, values = row
    place = brought_forward(values)
    if place is None:
        return
    name, values = place
    table = TABLES[name]
    if table.shape[0] == "N":
        values = (rowid, *values[1:])
    if content_damage(name, values) is not None:
        found.unsound[name] += 1
        return
    # What a tree led to came first, and stays.
    places = ", ".join("?" * len(values))
    done = target.execute(f"INSERT OR IGNORE INTO {name} VALUES ({places})", values)
    found.rows[name] += done.rowcount


def content_damage(name: str, values: tuple[Any, ...]) -> str | None:
    """What is wrong with the content of a row of a table, or None."""
    table = TABLES[name]
    columns = table.names
    damage = f"some {_WORDS[name]} are not as they were written"
    if any(isinstance(value, str) and not _is_text(value) for value in values):
        return damage
    if "filter" in columns:
        try:
            Filter.from_bytes(values[columns.index("filter")])
        except (ValueError, RecursionError):
            named = values[columns.index("name")]
            return f"the filter of the subscription {named!r} cannot be read"
    if table.columns.endswith(EVENT_COLUMNS):
        in_log = "position" in columns[1:] and values[columns.index("position")] is not None
        is_whole = in_log or is_sound(*values[-len(EVENT_COLUMNS.split(", ")) :])
    elif "checked" in columns:
        place = columns.index("checked")
        is_whole = subscription_checksum(*values[1:place]) == values[place]
    else:
        is_whole = True
    return None if is_whole else damage


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _derive(target: sqlite3.Connection, sequences: dict[str, int]) -> None:
    """The entries of the log, and numbers that are larger than all that were ever given."""
    known = {number for (number,) in target.execute("SELECT number FROM subscriptions")}
    entries = (
        (number, position)
        for position, numbers in target.execute("SELECT position, subscriptions FROM log")
        for number in numbers_of(numbers)
        if number in known
    )
    target.executemany("INSERT OR IGNORE INTO log_entries VALUES (?, ?)", entries)
    note_gaps(target)
    (cursor,) = target.execute("SELECT ifnull(max(cursor), 0) FROM subscriptions").fetchone()
    sequences["log"] = max(cursor, sequences.get("log", 0))
    for name, number in sequences.items():
        key = TABLES[name].names[0]
        (last,) = target.execute(f"SELECT ifnull(max({key}), 0) FROM {name}").fetchone()
        set_last_given(target, name, max(last, number))
