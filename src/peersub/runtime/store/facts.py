"""Single facts of a store, by name: who the node is, which life of it this is, which log."""

from __future__ import annotations

import secrets
import sqlite3
from typing import Final

from peersub.overlays.core.store_marks import LIVES_MAX, Life

__all__ = [
    "IDENTITY",
    "INCARNATION",
    "LOG_EPOCH",
    "NEIGHBOURS",
    "NODE_NAME",
    "begin_life",
    "commits",
    "count_commit",
    "fact",
    "last_given",
    "new_epoch",
    "next_incarnation",
    "set_fact",
    "set_last_given",
]

NODE_NAME: Final = "node name"
IDENTITY: Final = "identity"
NEIGHBOURS: Final = "neighbours"
INCARNATION: Final = "incarnation"
LOG_EPOCH: Final = "log epoch"
_LIVES: Final = "lives"
_COMMITS: Final = "commits"
_EPOCH_BYTES: Final = 8
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


def new_epoch(connection: sqlite3.Connection) -> None:
    """The log begins an epoch of its own."""
    set_fact(connection, LOG_EPOCH, secrets.token_hex(_EPOCH_BYTES).encode())


def begin_life(connection: sqlite3.Connection, number: int) -> tuple[Life, ...]:
    """Remember with how many transactions a life of the node begins; the last lives, and this."""
    words = (fact(connection, _LIVES) or b"").split()
    numbers = [int(word) for word in words] if all(map(bytes.isdigit, words)) else []
    earlier = map(Life, numbers[::2], numbers[1::2])
    lives = (*earlier, Life(number, commits(connection)))[-LIVES_MAX:]
    text = " ".join(f"{life.number} {life.commits}" for life in lives)
    set_fact(connection, _LIVES, text.encode())
    return lives


def commits(connection: sqlite3.Connection) -> int:
    """How many transactions there were."""
    return last_given(connection, _COMMITS)


def count_commit(connection: sqlite3.Connection) -> None:
    """One more."""
    set_last_given(connection, _COMMITS, commits(connection) + 1)


# SQLite keeps the last number that a table gave in a table of its own. Numbers of ours are there as
# well: most transactions change that page anyway, and another page more is written by each.


def last_given(connection: sqlite3.Connection, what: str) -> int:
    """The last number that was given: to a row of a table, or to a transaction."""
    found = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (what,)).fetchone()
    return 0 if found is None else int(found[0])


def set_last_given(connection: sqlite3.Connection, what: str, number: int) -> None:
    """The next one is larger than this."""
    execute = connection.execute
    if not execute("UPDATE sqlite_sequence SET seq = ? WHERE name = ?", (number, what)).rowcount:
        execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (what, number))


def next_incarnation(stored: bytes | None, now_ms: int) -> int:
    """More than the stored one, and no less than the time, in hundredths of a second.

    A node that lost its disk so begins a life later than those that others may remember.

    >>> next_incarnation(b"7", 50), next_incarnation(b"7", 5_000), next_incarnation(None, 50)
    (8, 500, 5)
    """
    earlier = int(stored) if stored is not None and stored.isdigit() else -1
    return max(earlier + 1, now_ms // _HUNDREDTHS_MS)
