"""The tables of a store, and the shapes of their rows.

Whatever matters stands in tables with a rowid, whose rows can be told from each other by the kinds
of their columns alone: rows found on a page that no tree leads to any more find their table by
their shape (`salvage`). What is not such a table (`log_entries`, indexes) follows from the others.
A change here is a step of the format as well (`formats`).

An event is five columns everywhere: id, delivery, attributes, body, and a checksum of these, since
SQLite notices damage to its own structure, not to the content of a row. A subscription has a
checksum of all its columns.
"""

from __future__ import annotations

import sqlite3
from typing import Final, NamedTuple

__all__ = [
    "APPLICATION_ID",
    "EVENT_COLUMNS",
    "PAGE_BYTES",
    "TABLES",
    "Table",
    "create",
]

APPLICATION_ID: Final = 0x70737562
"""Says in the file's header whose database it is: "psub"."""
PAGE_BYTES: Final = 4_096

EVENT_COLUMNS: Final = "event_id, delivery, attributes, body, checked"
_EVENT: Final = (
    "event_id TEXT NOT NULL, delivery INTEGER NOT NULL, attributes BLOB NOT NULL, body BLOB, "
    "checked INTEGER NOT NULL"
)
_EVENT_SHAPE: Final = "TIBbI"


class Table(NamedTuple):
    """A table, and the kinds of its columns as they are on a page.

    N: NULL, where the rowid itself is the column; I: an integer; T: a text; B: bytes; i and b:
    these, or NULL.
    """

    columns: str
    shape: str
    definition: str

    @property
    def names(self) -> list[str]:
        """The columns by name."""
        return self.columns.split(", ")


TABLES: Final[dict[str, Table]] = {
    "facts": Table("name, value", "TB", "name TEXT NOT NULL UNIQUE, value BLOB NOT NULL"),
    "history": Table(
        "number, event_id, at_ms",
        "NTI",
        "number INTEGER PRIMARY KEY, event_id TEXT NOT NULL, at_ms INTEGER NOT NULL",
    ),
    "kept": Table(
        f"number, position, subscriptions, at_ms, hops, {EVENT_COLUMNS}",
        f"NiBII{_EVENT_SHAPE}",
        "number INTEGER PRIMARY KEY, position INTEGER, subscriptions BLOB NOT NULL, "
        f"at_ms INTEGER NOT NULL, hops INTEGER NOT NULL, {_EVENT}",
    ),
    "subscriptions": Table(
        "number, name, filter, cursor, created_ms, trimmed_unread, trimmed_through, trimmed_told, "
        "gaps, gaps_told, checked, abandoned_ms",
        "NTBIIIIIIIII",
        "number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, "
        "filter BLOB NOT NULL, cursor INTEGER NOT NULL, created_ms INTEGER NOT NULL, "
        "trimmed_unread INTEGER NOT NULL DEFAULT 0, trimmed_through INTEGER NOT NULL DEFAULT 0, "
        "trimmed_told INTEGER NOT NULL DEFAULT 0, gaps INTEGER NOT NULL DEFAULT 0, "
        "gaps_told INTEGER NOT NULL DEFAULT 0, checked INTEGER NOT NULL DEFAULT 0, "
        "abandoned_ms INTEGER NOT NULL DEFAULT 0",
    ),
    "log": Table(
        f"position, at_ms, hops, subscriptions, {EVENT_COLUMNS}",
        f"NIIB{_EVENT_SHAPE}",
        "position INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL, "
        f"hops INTEGER NOT NULL, subscriptions BLOB NOT NULL, {_EVENT}",
    ),
    "mirrored": Table(
        "number, home, name, filter, options, created_ms, dropped",
        "NTTBBII",
        "number INTEGER PRIMARY KEY, home TEXT NOT NULL, name TEXT NOT NULL, "
        "filter BLOB NOT NULL, options BLOB NOT NULL, created_ms INTEGER NOT NULL, "
        "dropped INTEGER NOT NULL DEFAULT 0, UNIQUE (home, name)",
    ),
    "retained": Table(
        f"number, home, at_ms, hops, names, {EVENT_COLUMNS}",
        f"NTIIB{_EVENT_SHAPE}",
        "number INTEGER PRIMARY KEY AUTOINCREMENT, home TEXT NOT NULL, at_ms INTEGER NOT NULL, "
        f"hops INTEGER NOT NULL, names BLOB NOT NULL, {_EVENT}, UNIQUE (home, event_id)",
    ),
    "stages": Table(
        "number, key, state, at_ms",
        "NTII",
        "number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, "
        "state INTEGER NOT NULL, at_ms INTEGER NOT NULL",
    ),
    "staged": Table(
        f"number, stage, {EVENT_COLUMNS}",
        f"NI{_EVENT_SHAPE}",
        f"number INTEGER PRIMARY KEY, stage INTEGER NOT NULL, {_EVENT}, UNIQUE (stage, event_id)",
    ),
}

_DERIVED: Final = """
CREATE TABLE log_entries (
    subscription INTEGER NOT NULL, position INTEGER NOT NULL, PRIMARY KEY (subscription, position)
) WITHOUT ROWID;
CREATE INDEX log_by_event ON log (event_id);
CREATE INDEX retained_by_home ON retained (home)
"""


def create(connection: sqlite3.Connection, version: int) -> None:
    """Make all tables in an empty database of this format."""
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("BEGIN")
    for name, table in TABLES.items():
        connection.execute(f"CREATE TABLE {name} ({table.definition})")
    for statement in _DERIVED.split(";"):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.execute("COMMIT")
