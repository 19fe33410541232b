"""Building a matcher from a Parquet file in a fresh process, and what that takes.

`measure_build` starts this module as a process of its own. It first builds and asks a small
matcher, so that libraries are loaded and kernels compiled; then it reads the file, builds, and
reports the growth of its resident memory and the time, as one line of JSON. What was only
needed on the way, the table of texts above all, is released before the memory is read.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from peersub.pipeline.kernels.warming import warm_up


@dataclass(frozen=True, slots=True)
class BuildMeasure:
    """From a Parquet file of texts to a ready matcher."""

    subscriptions: int
    seconds: float
    resident_bytes: int

    @property
    def bytes_per_subscription(self) -> float:
        """Growth of resident memory per subscription, ids included."""
        return self.resident_bytes / max(self.subscriptions, 1)


def measure_build(parquet: Path) -> BuildMeasure:
    """Build from the file in a fresh process.

    Raises:
        RuntimeError: the process failed; the message ends with what it said.
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    run = subprocess.run(
        [sys.executable, "-m", "peersub.bench.resident", str(parquet)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise RuntimeError(f"building from {parquet.name} failed: {run.stderr.strip()[-500:]}")
    return BuildMeasure(**json.loads(run.stdout))


def resident_bytes() -> int:
    """The resident memory of this process now."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    # Without /proc only the peak is known, which is an upper bound.
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


def build_and_measure(parquet: Path) -> BuildMeasure:
    """Build from the file in this process."""
    pq.read_schema(parquet)  # An unreadable file fails before the long part.
    warm_up()
    _release()
    before = resident_bytes()
    start = time.perf_counter()
    matcher = build_from_parquet(parquet)
    seconds = time.perf_counter() - start
    _release()
    return BuildMeasure(len(matcher), seconds, resident_bytes() - before)


def build_from_parquet(parquet: Path) -> Any:
    """A matcher of the subscriptions in a Parquet file with columns `id` and `filter`."""
    from peersub.matching.matcher import Matcher

    table = pq.read_table(parquet, columns=["id", "filter"])
    return Matcher.from_texts(table["id"], table["filter"])


def _release() -> None:
    gc.collect()
    pa.default_memory_pool().release_unused()


if __name__ == "__main__":
    print(json.dumps(asdict(build_and_measure(Path(sys.argv[1])))))
