"""What a disk can do to the data of a node that was killed: lies that a file system tells.

Each fault takes the folder and a generator, and says what it did. `core/store_marks` says what can
follow from them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

from peersub.runtime.store.folder import DATABASE, beside
from peersub.runtime.store.mark_file import MARK
from peersub.runtime.store.schema import PAGE_BYTES

__all__ = ["DISK_FAULTS", "commits_of", "cut_at_commit", "fault_disk"]

_FRAME_BYTES: Final = PAGE_BYTES + 24
_SECTOR_BYTES: Final = 512
_LOST_MAX: Final = 50


def commits_of(ahead: bytes) -> list[int]:
    """Where the transactions of a write-ahead file end."""
    places = range(32, len(ahead) - _FRAME_BYTES + 1, _FRAME_BYTES)
    return [at + _FRAME_BYTES for at in places if int.from_bytes(ahead[at + 4 : at + 8], "big")]


def cut_at_commit(folder: Path, lost: int) -> None:
    """Take the last transactions away: what is left looks whole."""
    ahead = beside(folder / DATABASE, "-wal")
    content = ahead.read_bytes()
    ends = [0, *commits_of(content)]
    ahead.write_bytes(content[: ends[max(0, len(ends) - 1 - lost)]])


def _lose_fsync(folder: Path, drawn: random.Random) -> str:
    lost = drawn.randrange(1, _LOST_MAX)
    cut_at_commit(folder, lost)
    return f"the last {lost} transactions are lost"


def _forget_all(folder: Path, drawn: random.Random) -> str:
    (folder / MARK).unlink(missing_ok=True)
    return f"{_lose_fsync(folder, drawn)}, and nothing tells of it"


def _flip_bit(folder: Path, drawn: random.Random) -> str:
    target = folder / drawn.choice([DATABASE, f"{DATABASE}-wal"])
    content = bytearray(target.read_bytes())
    place = drawn.randrange(len(content))
    content[place] ^= 1 << drawn.randrange(8)
    target.write_bytes(content)
    return f"a bit of {target.name} is flipped at {place:,}"


def _tear_page(folder: Path, drawn: random.Random) -> str:
    target = folder / DATABASE
    content = bytearray(target.read_bytes())
    place = drawn.randrange(len(content) // _SECTOR_BYTES) * _SECTOR_BYTES
    content[place : place + _SECTOR_BYTES] = bytes(_SECTOR_BYTES)
    target.write_bytes(content)
    return f"a sector of {target.name} is empty at {place:,}"


DISK_FAULTS: Final[dict[str, Callable[[Path, random.Random], str]]] = {
    "lost fsync": _lose_fsync,
    "forgotten": _forget_all,
    "flipped bit": _flip_bit,
    "torn page": _tear_page,
}


def fault_disk(folder: Path, drawn: random.Random) -> str:
    """One of the faults; what happened, in words."""
    return DISK_FAULTS[drawn.choice(sorted(DISK_FAULTS))](folder, drawn)
