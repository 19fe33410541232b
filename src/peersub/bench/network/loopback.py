"""Bytes over the loopback interface, as the kernel counts them: headers and acknowledgements too.

Whatever else runs on the machine is counted along. What it amounts to while the benchmark is silent
is measured and reported.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

__all__ = ["idle_bytes_per_s", "loopback_bytes"]

_COUNTERS: Final = Path("/proc/self/net/dev")
_IDLE_S: Final = 0.2


def loopback_bytes(counters: Path = _COUNTERS) -> int | None:
    """All bytes that loopback has carried so far; None where the kernel does not say."""
    try:
        lines = counters.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, separator, numbers = line.partition(":")
        if separator and name.strip() == "lo":
            return int(numbers.split()[0])
    return None


def idle_bytes_per_s() -> float:
    """What others send over loopback."""
    before = loopback_bytes()
    time.sleep(_IDLE_S)
    after = loopback_bytes()
    return 0.0 if before is None or after is None else (after - before) / _IDLE_S
