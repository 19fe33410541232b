"""What can go wrong with a store: failures of one submission, and errors of the store itself."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from enum import Enum
from typing import Final

__all__ = [
    "FailureKind",
    "Refused",
    "StoreError",
    "StoreFailure",
    "error_code",
    "explained",
    "is_damage",
]


class StoreError(RuntimeError):
    """The store cannot be opened or read: the text says why, and what to do."""


class FailureKind(Enum):
    """Why a submission failed."""

    BACKLOG_FULL = "backlog full"
    """More waits for the disk than may wait; try again later."""
    CLOSED = "closed"
    DISK = "disk"
    """The disk is full, or cannot be written; writing goes on when it can be."""
    DAMAGED = "damaged"
    """The file is damaged; opening it again salvages what can be read."""
    INVALID = "invalid"
    """The submission holds what cannot be written; trying again is of no use."""
    BOUND = "bound"
    """It would pass a bound of the settings."""
    ALREADY_COMMITTED = "already committed"
    """The key was committed before: what it staged then is or will be published."""
    NOTHING_STAGED = "nothing staged"
    """The key is not known: nothing was staged under it, or it was abandoned."""


@dataclass(frozen=True, slots=True)
class StoreFailure:
    """Nothing of the submission was stored. `reason` is a sentence for people."""

    kind: FailureKind
    reason: str


class Refused(Exception):  # noqa: N818 - not an error of the store: the answer to one submission
    """A change that the present state does not allow; its submission fails alone."""

    def __init__(self, kind: FailureKind, reason: str) -> None:
        super().__init__(reason)
        self.failure = StoreFailure(kind, reason)


_PRIMARY_CODE: Final = 0xFF
"""SQLite's extended codes have the plain one in their lowest byte."""
_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def error_code(error: sqlite3.Error) -> int | None:
    """SQLite's plain code of an error, if it has one."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & _PRIMARY_CODE


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the error says that the file is no longer as SQLite wrote it."""
    return error_code(error) in _DAMAGE


def explained(error: Exception, place: str) -> StoreFailure:
    """The failure that an exception amounts to, for a store at this place."""
    if isinstance(error, Refused):
        return error.failure
    if not isinstance(error, sqlite3.Error) or isinstance(error, sqlite3.ProgrammingError):
        return StoreFailure(FailureKind.INVALID, f"this cannot be stored: {error}")
    if isinstance(error, sqlite3.InterfaceError | sqlite3.IntegrityError | sqlite3.DataError):
        return StoreFailure(FailureKind.INVALID, f"this cannot be stored: {error}")
    if is_damage(error):
        return StoreFailure(
            FailureKind.DAMAGED,
            f"the store in {place} is damaged ({error}): restart the node, which salvages all "
            "that can be read",
        )
    full = error_code(error) == sqlite3.SQLITE_FULL
    what = "is full" if full else f"cannot be written ({error})"
    remedy = "free space on that disk" if full else "check that disk, its space and its permissions"
    return StoreFailure(
        FailureKind.DISK,
        f"the store in {place} {what}: {remedy}. What was stored is safe, and writing goes on by "
        "itself once it is possible",
    )
