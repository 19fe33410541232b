"""The folder that a run writes to: datasets that are whole, and a record of what is finished.

A step writes into a folder of its own below `.work`. When it is done, what it wrote is moved to its
place, and only then the record `run.json` says that the step is finished. Whatever happens between,
`kill -9` included, leaves a folder from which the run can go on: steps on record are kept, the
traces of the one that was under way are cleared away, and it is done again from its inputs.

A step is finished *for* its settings, and for the settings of the steps it builds on. Asking for
the same step with other settings is refused: a folder holds one run, never a mixture of two.

Only one process at a time works in a folder; the lock is the operating system's, and ends with the
process that holds it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

__all__ = ["FinishedStep", "Workspace", "WorkspaceError"]

VERSION: Final = 1
_RECORD: Final = "run.json"
_WORK: Final = ".work"
_LOCK: Final = ".lock"

Counts = dict[str, Any]


class WorkspaceError(ValueError):
    """The folder cannot be used as asked; the message says what to do."""


@dataclass(frozen=True, slots=True)
class FinishedStep:
    """What the record says of a step."""

    settings: Mapping[str, Any]
    outputs: tuple[str, ...]
    counts: Counts
    seconds: float


@dataclass(slots=True)
class Workspace:
    """A run's folder. Make one with `opened`."""

    folder: Path
    steps: dict[str, FinishedStep] = field(default_factory=dict)
    under_way: str | None = None
    """The step that was begun last and has not ended."""

    # --- opening ---------------------------------------------------------------------------------

    @classmethod
    @contextmanager
    def opened(cls, folder: str | Path, *, resume: bool = False) -> Iterator[Workspace]:
        """The workspace of a folder, which is made if it is not there, locked while in use.

        Raises:
            WorkspaceError: another process works in it, it holds something else, or a run in it
                was interrupted and is not to be resumed.
        """
        target = Path(folder)
        if target.exists() and not target.is_dir():
            raise WorkspaceError(f"{target} is a file: name a folder with --out.")
        if target.is_dir() and not (target / _RECORD).exists():
            others = [name.name for name in target.iterdir() if name.name not in (_WORK, _LOCK)]
            if others:
                raise WorkspaceError(
                    f"{target} holds other files ({sorted(others)[0]}, …): name an empty or new "
                    "folder with --out."
                )
        try:
            target.mkdir(parents=True, exist_ok=True)
            lock = open(target / _LOCK, "w", encoding="ascii")  # noqa: SIM115
        except OSError as error:
            reason = error.strerror or str(error)
            raise WorkspaceError(f"{target} cannot be written ({reason}): check --out.") from None
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise WorkspaceError(
                    f"another run works in {target}: wait for it, or name another folder."
                ) from None
            workspace = cls._read(target)
            if workspace.under_way is not None and not resume:
                raise WorkspaceError(
                    f"a run in {target} was interrupted in the step {workspace.under_way}: "
                    "add --resume to go on with it, or name another folder with --out."
                )
            workspace._clear_work()
            yield workspace

    @classmethod
    def _read(cls, folder: Path) -> Workspace:
        path = folder / _RECORD
        if not path.exists():
            return cls(folder)
        try:
            record = json.loads(path.read_text("utf-8"))
            version = record["version"]
            steps = {
                name: FinishedStep(
                    step["settings"], tuple(step["outputs"]), step["counts"], step["seconds"]
                )
                for name, step in record["steps"].items()
            }
            under_way = record["under_way"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise WorkspaceError(
                f"{path} cannot be understood: name another folder with --out."
            ) from None
        if version != VERSION:
            raise WorkspaceError(
                f"{folder} was written by version {version} of the pipeline, and this is "
                f"{VERSION}: name another folder with --out."
            )
        return cls(folder, steps, under_way)

    def _clear_work(self) -> None:
        """Remove what steps left that did not end: unfinished folders, moved but not recorded."""
        shutil.rmtree(self.folder / _WORK, ignore_errors=True)
        recorded = {output for step in self.steps.values() for output in step.outputs}
        if self.under_way is not None:
            for output in _outputs_below(self.folder):
                if output not in recorded:
                    _remove(self.folder / output)

    # --- steps -----------------------------------------------------------------------------------

    def path(self, *parts: str) -> str:
        """The place of a dataset or file of the run."""
        return str(self.folder.joinpath(*parts))

    @property
    def log(self) -> Path:
        """Where Spark writes what it has to say; kept only as long as the run may need it."""
        place = self.folder / _WORK / "spark.log"
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def scratch(self, name: str) -> Path:
        """A place for what only the step under way needs; it is gone when the step ends."""
        self._scratch.mkdir(parents=True, exist_ok=True)
        return self._scratch / name

    @property
    def _scratch(self) -> Path:
        return self.folder / _WORK / f"scratch-{os.getpid()}"

    def is_finished(self, name: str, settings: Mapping[str, Any]) -> bool:
        """Whether the step is on record.

        Raises:
            WorkspaceError: it is, for other settings.
        """
        step = self.steps.get(name)
        if step is None:
            return False
        settings = _plain(settings)
        if step.settings != settings:
            key = next(
                key
                for key in (*settings, *step.settings)
                if step.settings.get(key) != settings.get(key)
            )
            raise WorkspaceError(
                f"{self.folder} holds the step {name} for {key} = {step.settings.get(key)!r}, and "
                f"this asks for {settings.get(key)!r}: name another folder with --out."
            )
        return True

    def run(
        self, name: str, settings: Mapping[str, Any], work: Callable[[Path], Counts]
    ) -> FinishedStep:
        """Do a step that is not finished: `work` fills a folder, whose content becomes the run's.

        Args:
            name: the step.
            settings: what its result depends on, in plain values.
            work: writes datasets and files into the folder it is given, under the names that they
                shall have in the run's folder, and returns counts for the record.
        """
        started = time.monotonic()
        self.under_way = name
        self._write()
        # Workers of a run that was killed may write for a moment longer: never to this folder.
        staging = self.folder / _WORK / f"{name.replace(':', '-')}-{os.getpid()}"
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        try:
            counts = work(staging)
        except Exception:
            self._forget_if_empty()
            raise
        outputs = _outputs_below(staging)
        for output in outputs:
            target = self.folder / output
            target.parent.mkdir(parents=True, exist_ok=True)
            _remove(target)
            os.rename(staging / output, target)
        shutil.rmtree(self._scratch, ignore_errors=True)
        shutil.rmtree(staging, ignore_errors=True)
        seconds = round(time.monotonic() - started, 3)
        finished = FinishedStep(_plain(settings), tuple(outputs), _plain(counts), seconds)
        self.steps[name] = finished
        self.under_way = None
        self._write()
        return finished

    def _forget_if_empty(self) -> None:
        """After a first step that failed there is nothing to resume: the folder is as new."""
        if not self.steps:
            self.under_way = None
            shutil.rmtree(self.folder / _WORK, ignore_errors=True)
            (self.folder / _RECORD).unlink(missing_ok=True)

    def _write(self) -> None:
        """Put the record in its place, whole."""
        record = {
            "version": VERSION,
            "under_way": self.under_way,
            "steps": {
                name: {
                    "settings": step.settings,
                    "outputs": list(step.outputs),
                    "counts": step.counts,
                    "seconds": step.seconds,
                }
                for name, step in self.steps.items()
            },
        }
        draft = self.folder / f"{_RECORD}.part"
        with draft.open("w", encoding="utf-8") as stream:
            json.dump(record, stream, indent=1)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(draft, self.folder / _RECORD)


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as the record will give them back."""
    plain: dict[str, Any] = json.loads(json.dumps(dict(values), default=str))
    return plain


# A folder `plans/chord` is an output of its own: other steps put their own beside it.
_SHARED: Final = frozenset(
    {"findings", "judgements", "overlay_deliveries", "plans", "quarantine", "receipts"}
)


def _outputs_below(folder: Path) -> list[str]:
    """What a step wrote, by the names that are moved as one."""
    found = []
    for entry in sorted(folder.iterdir()):
        if entry.name in (_WORK, _LOCK, _RECORD, f"{_RECORD}.part"):
            continue
        if entry.name in _SHARED and entry.is_dir():
            found += [f"{entry.name}/{inner.name}" for inner in sorted(entry.iterdir())]
        else:
            found.append(entry.name)
    return found


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
