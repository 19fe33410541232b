"""What another process takes of the machine, from /proc: nothing is known without it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["ProcessFigures", "can_look", "figures_of"]

_PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """Resident memory, and open descriptors."""

    resident_kb: int
    descriptors: int


def can_look() -> bool:
    """Whether this machine tells."""
    return (_PROC / "self" / "fd").is_dir()


def figures_of(process: int) -> ProcessFigures:
    """Of a process that lives.

    Raises:
        OSError: it does not, or nothing is known.
    """
    folder = _PROC / str(process)
    resident_kb = 0
    for line in (folder / "status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            resident_kb = int(line.split()[1])
    return ProcessFigures(resident_kb, sum(1 for _ in (folder / "fd").iterdir()))
