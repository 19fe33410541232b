"""What can go wrong with a file: the whole of it, or one of its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

__all__ = ["BadRow", "FileError", "Report", "first_repeated", "one_line", "refuse_row"]


def one_line(text: str) -> str:
    r"""The text with each run of blanks, line ends and control characters as one blank.

    >>> one_line("a\n  b\x00c")
    'a b c'
    """
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def first_repeated(names: Iterable[str]) -> str | None:
    """The first name that was there before; None if each is there once.

    >>> first_repeated(["a", "b", "a"])
    'a'
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


class FileError(ValueError):
    """A file that cannot be read or written.

    Attributes:
        name: the file.
        problem: what is wrong with it.
        remedy: what to do.
        place: where in the file, as `line 7`; empty if that is not known, or all of it is meant.
    """

    def __init__(self, name: str, problem: str, remedy: str = "", place: str = "") -> None:
        self.name, self.problem, self.remedy, self.place = name, problem, remedy, place
        where = f"{name}, {place}" if place else name
        super().__init__(one_line(f"{where}: {self.advice}"))

    @property
    def advice(self) -> str:
        """What is wrong and what to do, without the place."""
        return f"{self.problem}. {self.remedy}" if self.remedy else self.problem

    def __reduce__(self) -> tuple[object, ...]:
        return (FileError, (self.name, self.problem, self.remedy, self.place))


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be used: where it is, why, and what it says."""

    name: str
    place: str
    reason: str
    original: str

    def one_line(self) -> str:
        """The place and the reason in one line.

        >>> BadRow("s.jsonl", "line 3", "not JSON. Write one object per line.", "{").one_line()
        's.jsonl, line 3: not JSON. Write one object per line.'
        """
        where = f"{self.name}, {self.place}" if self.place else self.name
        return one_line(f"{where}: {self.reason}")


Report = Callable[[BadRow], None]
"""Told of each bad row; it may raise, and then reading ends."""


def refuse_row(row: BadRow) -> None:
    """The report that ends reading at the first bad row."""
    raise FileError(row.name, row.reason, place=row.place)
