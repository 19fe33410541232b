"""What commands print: results to standard output, notes to standard error."""

from __future__ import annotations

import json
import sys
from typing import Any

__all__ = ["note", "print_json", "say", "warn"]


def say(line: str = "") -> None:
    """A line of the result."""
    try:
        print(line)
    except UnicodeEncodeError:
        print(line.encode("ascii", "backslashreplace").decode())


def print_json(value: Any) -> None:
    """The result as one JSON value."""
    print(json.dumps(value, default=str))


def note(line: str) -> None:
    """A line for the reader, not for the next program."""
    try:
        print(line, file=sys.stderr)
    except UnicodeEncodeError:
        print(line.encode("ascii", "backslashreplace").decode(), file=sys.stderr)


def warn(line: str) -> None:
    """A line about something that is probably not meant."""
    from peersub.files.errors import one_line

    note(f"peersub: warning: {one_line(line)}")
