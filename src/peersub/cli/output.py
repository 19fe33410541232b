"""What commands print: results to standard output, notes to standard error."""

from __future__ import annotations

import json
import sys
from typing import Any

from peersub.events.printable import escape_line, escape_lines

__all__ = ["note", "print_json", "say", "warn"]


def say(line: str = "") -> None:
    """A line of the result, or several; what could command a terminal is escaped."""
    line = escape_lines(line)
    try:
        print(line)
    except UnicodeEncodeError:
        print(line.encode("ascii", "backslashreplace").decode())


def print_json(value: Any) -> None:
    """The result as one JSON value."""
    print(json.dumps(value, default=str))


def note(line: str) -> None:
    """A line for the reader, not for the next program; it stays one, whatever is in it."""
    line = escape_line(line)
    try:
        print(line, file=sys.stderr)
    except UnicodeEncodeError:
        print(line.encode("ascii", "backslashreplace").decode(), file=sys.stderr)


def warn(line: str) -> None:
    """A line about something that is probably not meant."""
    from peersub.files.errors import one_line

    note(f"peersub: warning: {one_line(line)}")
