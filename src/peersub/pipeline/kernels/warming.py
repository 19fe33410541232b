"""The matcher's kernels, compiled by one worker of a machine while the others wait.

Compiling takes half a minute and its result is kept on disk, beside the source or in the user's
cache. Workers that start at once would all compile the same. So the first takes a lock, compiles on
a small workload and leaves a note; whoever finds the note goes on without a lock.

The note bears the name of this very source. If it says more than is true (somebody emptied the
cache), workers compile side by side: slower, and correct.
"""

from __future__ import annotations

import fcntl
import gc
import hashlib
import os
import tempfile
from pathlib import Path

from peersub.workloads import WorkloadSettings, generate

__all__ = ["compile_once", "warm_up"]

_READY = b"ready"
# Floats, equal filters and text tests, so that what only those need is compiled as well.
_WORKLOAD = WorkloadSettings(
    subscriptions=5_000, events=64, float_attributes=5, duplicates_share=0.2, opaque_share=0.1
)
_compiled: set[str] = set()
"""Notes that this process has seen; there is one, but for tests."""


def warm_up() -> None:
    """Load what matching needs and compile its kernels, on a small workload."""
    from peersub.events.arrow import rows_of_table
    from peersub.matching.matcher import Matcher

    workload = generate(_WORKLOAD)
    texts = workload.texts()
    matcher = Matcher.from_texts(texts["id"], texts["filter"], processes=1)
    matcher.match_batch(workload.events, threads=1)
    for event in rows_of_table(workload.events):
        matcher.match(event)


def compile_once(folder: str | None = None) -> None:
    """Return when the kernels are compiled on this machine.

    Args:
        folder: where the note lies; among the temporary files unless given.
    """
    note = Path(folder or tempfile.gettempdir()) / f"peersub-{os.getuid()}-{_source_name()}"
    if str(note) in _compiled:
        return
    if not _is_ready(note):
        try:
            descriptor = os.open(note, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
        except OSError:
            return  # no place for a note: each worker compiles for itself
        with os.fdopen(descriptor, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if file.read() != _READY:
                warm_up()
                file.seek(0)
                file.write(_READY)
    _compiled.add(str(note))
    _stay()


def _stay() -> None:
    """Let what is loaded be no garbage ever.

    Spark collects garbage after each task. To look through all of numba takes longer than a small
    task does.
    """
    from peersub.matching import segment  # noqa: F401

    gc.freeze()


def _is_ready(note: Path) -> bool:
    try:
        return note.read_bytes() == _READY
    except OSError:
        return False


def _source_name() -> str:
    """A name for the compiled sources as they are now, and for what compiles them."""
    import sys

    import peersub.matching

    folder = Path(peersub.matching.__file__).parent / "kernels"
    facts = [str(folder), sys.version, os.environ.get("NUMBA_CACHE_DIR", "")]
    facts += [f"{path.name} {path.stat().st_mtime_ns}" for path in sorted(folder.glob("*.py"))]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
