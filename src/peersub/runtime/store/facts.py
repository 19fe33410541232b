"""Single facts of a store, by name: who the node is, which life of it this is, which log."""

from __future__ import annotations

import sqlite3
from typing import Final

__all__ = [
    "EPOCH_BYTES",
    "IDENTITY",
    "INCARNATION",
    "LOG_EPOCH",
    "NODE_NAME",
    "fact",
    "next_incarnation",
    "set_fact",
]

NODE_NAME: Final = "node name"
IDENTITY: Final = "identity"
INCARNATION: Final = "incarnation"
LOG_EPOCH: Final = "log epoch"
EPOCH_BYTES: Final = 8
_HUNDREDTHS_MS: Final = 10


def fact(connection: sqlite3.Connection, name: str) -> bytes | None:
    """The value, if there is one."""
    found = connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    return None if found is None else bytes(found[0])


def set_fact(connection: sqlite3.Connection, name: str, value: bytes) -> None:
    """The value from now on."""
    connection.execute(
        "INSERT INTO facts VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (name, value),
    )


def next_incarnation(stored: bytes | None, now_ms: int) -> int:
    """More than the stored one, and no less than the time, in hundredths of a second.

    A node that lost its disk so begins a life later than those that others may remember.

    >>> next_incarnation(b"7", 50), next_incarnation(b"7", 5_000), next_incarnation(None, 50)
    (8, 500, 5)
    """
    earlier = int(stored) if stored is not None and stored.isdigit() else -1
    return max(earlier + 1, now_ms // _HUNDREDTHS_MS)
