"""What another process takes of the machine, from /proc: nothing is known without it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["ProcessFigures", "can_look", "figures_of"]

_PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """Resident memory, open descriptors, and the processor time used so far."""

    resident_kb: int
    descriptors: int
    cpu_s: float = 0.0


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
    # The name in the second field may have blanks; user and system time are the 14th and 15th.
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return ProcessFigures(resident_kb, sum(1 for _ in (folder / "fd").iterdir()), cpu_s)
