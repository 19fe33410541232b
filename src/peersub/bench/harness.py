"""What every benchmark command needs: trials with seeds, tables, JSON and an exit code.

A command makes `Trial`s (a name, a seed, what to run), lets `run_trials` run them one after the
other, and ends with `report`: JSON, or tables and the problems in red; the exit code is 1 if a
trial has problems.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from rich import box
from rich.console import Console
from rich.table import Table

from peersub.cli.output import print_json

__all__ = [
    "Finished",
    "Outcome",
    "Say",
    "Trial",
    "percentiles",
    "plain_table",
    "report",
    "run_on_second_core",
    "run_trials",
    "stderr_progress",
    "stdout_console",
]

PIPED_WIDTH: Final = 110

_PIN: Final = "import os, sys; os.sched_setaffinity(0, {%d}); os.execv(sys.argv[1], sys.argv[1:])"

Say = Callable[[str], None]
"""Takes a line about what happens now."""


class Outcome(Protocol):
    """What a trial found."""

    @property
    def problems(self) -> list[str]:
        """What is wrong, in words; none if all is well."""
        ...

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        ...


O_co = TypeVar("O_co", bound=Outcome, covariant=True)


@dataclass(frozen=True, slots=True)
class Trial(Generic[O_co]):
    """One run of a benchmark."""

    name: str
    seed: int
    run: Callable[[Say], Coroutine[Any, Any, O_co]]


@dataclass(frozen=True, slots=True)
class Finished(Generic[O_co]):
    """A trial with its outcome."""

    trial: Trial[O_co]
    outcome: O_co

    @property
    def problems(self) -> list[str]:
        """The problems of the outcome, with the trial's name and seed."""
        named = f"{self.trial.name}, seed {self.trial.seed}"
        return [f"{named}: {problem}" for problem in self.outcome.problems]

    def as_dict(self) -> dict[str, Any]:
        """Plain values: name and seed, then the outcome's own."""
        return {"trial": self.trial.name, "seed": self.trial.seed, **self.outcome.as_dict()}


def run_trials(trials: Iterable[Trial[O_co]], say: Say | None = None) -> list[Finished[O_co]]:
    """Run trials one after the other, each on an event loop of its own; say on stderr how far."""
    tell = say or stderr_progress()
    finished = []
    for trial in trials:
        tell(f"{trial.name}, seed {trial.seed}")
        outcome = asyncio.run(trial.run(lambda line: tell(f"  {line}")))
        finished.append(Finished(trial, outcome))
    return finished


@contextmanager
def run_on_second_core() -> Iterator[tuple[str, ...]]:
    """Let this process, and those that it starts, use the second core only, until the end.

    Yields what a command begins with that is to use the first core; nothing where there is but one,
    and everybody shares it.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        yield ()
        return
    os.sched_setaffinity(0, {cores[1]})
    try:
        yield (sys.executable, "-c", _PIN % cores[0])
    finally:
        os.sched_setaffinity(0, cores)


def report(
    finished: Sequence[Finished[Outcome]],
    *,
    as_json: bool,
    tables: Callable[[], Iterable[Table | str]],
    facts: Mapping[str, Any] | None = None,
    problems: Sequence[str] = (),
) -> int:
    """Print the result of all trials; the exit code.

    Args:
        finished: the trials; in JSON, a single one without `facts` is printed as it is.
        as_json: whether to print JSON instead of tables.
        tables: tables and lines for people.
        facts: what JSON has beside the trials.
        problems: those of no single trial.
    """
    found = [*(each for one in finished for each in one.problems), *problems]
    if as_json:
        if len(finished) == 1 and facts is None:
            print_json(finished[0].outcome.as_dict())
        else:
            trials = [each.as_dict() for each in finished]
            print_json({"trials": trials, **(facts or {}), "problems": found, "is_good": not found})
    else:
        console = stdout_console()
        for shown in tables():
            console.print(shown, markup=False) if isinstance(shown, str) else console.print(shown)
        for problem in found:
            console.print(problem, style="bold red", markup=False)
    return 1 if found else 0


def percentiles(values: Iterable[float], **places: float) -> dict[str, float]:
    """The values at these places of the sorted order, by name; nothing if there are no values.

    >>> percentiles([4, 1, 3, 2], p50=0.5, p99=0.99)
    {'p50': 3, 'p99': 4}
    """
    found = sorted(values)
    return {
        name: round(found[min(int(len(found) * place), len(found) - 1)], 2)
        for name, place in places.items()
        if found
    }


def plain_table(
    title: str, first: Sequence[str], columns: Sequence[str], caption: str = ""
) -> Table:
    """A table with a title; the first columns are words, the others numbers."""
    table = Table(
        title=title,
        caption=caption or None,
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE,
        pad_edge=False,
        collapse_padding=True,
    )
    for column in first:
        table.add_column(column, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def stderr_progress() -> Say:
    """A progress function that writes a line per step to standard error."""
    console = Console(stderr=True, highlight=False)
    return lambda message: console.print(message, style="dim", markup=False)


def stdout_console(width: int = PIPED_WIDTH) -> Console:
    """Wide enough for the tables, also where standard output is a file or a pipe."""
    console = Console(highlight=False)
    return Console(highlight=False, width=max(console.width if console.is_terminal else 0, width))
