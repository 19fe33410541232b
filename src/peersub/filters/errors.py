"""The one error of the filter languages: what was not understood, where, and what to do."""

from __future__ import annotations

__all__ = ["FilterError", "excerpt_of", "shown"]

_EXCERPT_CHARACTERS = 72
_QUOTED_CHARACTERS = 40


def excerpt_of(text: str, characters: int = _QUOTED_CHARACTERS) -> str:
    """The start of a text, for a message that must stay short."""
    return text if len(text) <= characters else text[:characters] + "…"


def shown(text: str) -> str:
    """The start of a text in quotes, its odd characters escaped."""
    return repr(excerpt_of(text))


class FilterError(ValueError):
    """A filter that was refused.

    `str(error)` shows the text with a caret below the position; `error.one_line()` says the same in
    one line, for tables and logs.

    Attributes:
        text: the filter as it was given.
        position: index of the first character that was not understood.
        problem: what was not understood.
        remedy: what to write instead, or what is supported.
        row: the filter's place in a list of many, where it came from one.
    """

    row: int | None = None

    def __init__(self, text: str, position: int, problem: str, remedy: str = "") -> None:
        self.text = text
        self.position = max(0, min(position, len(text)))
        self.problem = problem
        self.remedy = remedy
        excerpt, caret = self._excerpt()
        advice = f"\n{remedy}" if remedy else ""
        super().__init__(
            f"{problem} (at character {self.position + 1})\n  {excerpt}\n  {caret}^{advice}"
        )

    def _excerpt(self) -> tuple[str, str]:
        """The text around the position, on one line, and the blanks before its caret."""
        start = max(0, self.position - _EXCERPT_CHARACTERS // 2)
        end = min(len(self.text), start + _EXCERPT_CHARACTERS)
        shown = "".join(c if c.isprintable() else " " for c in self.text[start:end])
        left, right = "..." if start > 0 else "", "..." if end < len(self.text) else ""
        return f"{left}{shown}{right}", " " * (len(left) + self.position - start)

    def one_line(self) -> str:
        """The problem, its place and the remedy in one line.

        >>> FilterError("a ~ 1", 2, "'~' is not supported", "Use = or <>.").one_line()
        "'~' is not supported (at character 3 of 'a ~ 1'). Use = or <>."
        """
        excerpt, _ = self._excerpt()
        place = f"at character {self.position + 1} of {excerpt!r}"
        line = f"{self.problem} ({place})" + (f". {self.remedy}" if self.remedy else "")
        return " ".join(line.split())

    def __reduce__(self) -> tuple[object, ...]:
        return (FilterError, (self.text, self.position, self.problem, self.remedy))
