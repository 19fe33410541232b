"""Text of strangers, made safe to print: names, reasons and ids come from whoever sends them."""

from __future__ import annotations

__all__ = ["escape_line", "escape_lines"]


def escape_line(text: str) -> str:
    r"""The text as one line in which no character commands a terminal, or reorders what is read.

    Line ends, control characters (ANSI sequences begin with one), marks of direction, characters
    of no width and lone surrogates are written as Python writes them.

    >>> print(escape_line("a\x1b[2J\nb\u202e"))
    a\x1b[2J\nb\u202e
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def escape_lines(text: str) -> str:
    r"""The same for a text that may have several lines, and tabs.

    >>> print(escape_lines("a\x1b[2J\nb"))
    a\x1b[2J
    b
    """
    if text.isprintable():
        return text
    return "\n".join("\t".join(map(escape_line, line.split("\t"))) for line in text.split("\n"))
