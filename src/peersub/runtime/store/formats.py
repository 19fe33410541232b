"""The formats of a store, one after the other: how a database of an earlier one becomes today's.

A database says its format in its header (`user_version`). `STEPS` lead from each format to the next
one, the first from format 1 to format 2. Whoever changes a table adds a step, and changes `schema`
in the same way: a new database is made by `schema` alone, an old one goes through the steps.

A step also says which rows earlier formats had where a table's shape changes. A salvage cannot ask
a damaged header for the format, and SQLite leaves rows as they are when a column is added: so each
row is recognised by its own shape, and brought forward step by step (`brought_forward`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from peersub.runtime.store.pages import has_shape
from peersub.runtime.store.rows import seal_subscriptions, subscription_checksum
from peersub.runtime.store.schema import TABLES

__all__ = ["FORMAT_VERSION", "STEPS", "EarlierRow", "Step", "brought_forward", "migrate", "tables"]


class EarlierRow(NamedTuple):
    """A row as formats before a step had it, and how it looks after the step.

    `table` is where it belongs after the step; no other row of any format may have this shape.
    """

    table: str
    shape: str
    bring_forward: Callable[[tuple[Any, ...]], tuple[Any, ...]]


class Step(NamedTuple):
    """From one format to the next, within one transaction."""

    change: Callable[[sqlite3.Connection], None]
    adds: frozenset[str] = frozenset()
    """Tables that are new."""
    earlier: tuple[EarlierRow, ...] = ()


_NEW_IN_2: Final = ("trimmed_through", "trimmed_told", "gaps", "gaps_told", "checked")


def _check_subscriptions(connection: sqlite3.Connection) -> None:
    """Subscriptions know what they lost, and of what their consumer heard."""
    for column in _NEW_IN_2:
        connection.execute(
            f"ALTER TABLE subscriptions ADD COLUMN {column} INTEGER NOT NULL DEFAULT 0"
        )
    seal_subscriptions(connection)


def _checked_subscription(values: tuple[Any, ...]) -> tuple[Any, ...]:
    values = (*values, *(0 for _ in _NEW_IN_2))
    return (*values[:-1], subscription_checksum(*values[1:-1]))


def _note_abandoned(connection: sqlite3.Connection) -> None:
    connection.execute(
        "ALTER TABLE subscriptions ADD COLUMN abandoned_ms INTEGER NOT NULL DEFAULT 0"
    )


STEPS: Final = (
    Step(
        _check_subscriptions,
        earlier=(EarlierRow("subscriptions", "NTBIII", _checked_subscription),),
    ),
    Step(
        _note_abandoned,
        earlier=(EarlierRow("subscriptions", "NTBIIIIIIII", lambda values: (*values, 0)),),
    ),
)
FORMAT_VERSION: Final = 1 + len(STEPS)


def tables(version: int) -> frozenset[str]:
    """The tables that a database of a format has, of those of today."""
    return frozenset(TABLES).difference(*(step.adds for step in STEPS[version - 1 :]))


def migrate(connection: sqlite3.Connection, version: int) -> None:
    """Bring a sound database of a format to that of today, wholly or not at all.

    Raises:
        sqlite3.Error: it cannot be done; nothing has changed.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in STEPS[version - 1 :]:
            step.change(connection)
        connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
        connection.execute("COMMIT")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def brought_forward(values: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]] | None:
    """The table of today that a row of any format belongs to, and the row as it stands there."""
    for step in STEPS:
        for earlier in step.earlier:
            if has_shape(values, earlier.shape):
                values = earlier.bring_forward(values)
                break
    for name, table in TABLES.items():
        if has_shape(values, table.shape):
            return name, values
    return None
