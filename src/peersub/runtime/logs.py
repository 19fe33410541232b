"""What a node says in its log: by Python's `logging`, and the same thing not too often.

Nothing here, or elsewhere in the library, sets logging up: that is for the program (`peersub node`
does it by `--log-level` and `--log-format`). Names and texts that others chose are escaped, so that
a line is one line, and what is said again and again is left out and counted: `SAID_MAX` times in
`PERIOD_S` for each thing that there is to say.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from peersub.events.printable import escape_line

__all__ = ["PERIOD_S", "SAID_MAX", "NodeLog"]

# A program that sets no logging up hears nothing: Python would print warnings to standard error.
logging.getLogger("peersub").addHandler(logging.NullHandler())

PERIOD_S: Final = 10.0
SAID_MAX: Final = 10
"""How often one thing is said in a period."""


class _Said:
    __slots__ = ("count", "left_out", "since_s")

    def __init__(self) -> None:
        self.count = self.left_out = 0
        self.since_s = float("-inf")


class NodeLog:
    """A logger that says each thing only so often.

    A thing is a template, which is the code's: there are no more than the code has; or what the
    caller calls it, of which there must not be many. Arguments may be what others chose.
    """

    def __init__(self, name: str, now_s: Callable[[], float] = time.monotonic) -> None:
        self._logger = logging.getLogger(name)
        self._now_s = now_s
        self._said: dict[str, _Said] = {}

    def error(self, template: str, *about: object, thing: str = "") -> None:
        """Something that somebody has to see to."""
        self._say(logging.ERROR, template, about, thing)

    def warning(self, template: str, *about: object, thing: str = "") -> None:
        """Something that is not as it should be."""
        self._say(logging.WARNING, template, about, thing)

    def info(self, template: str, *about: object, thing: str = "") -> None:
        """Something that happened."""
        self._say(logging.INFO, template, about, thing)

    def _say(self, level: int, template: str, about: tuple[object, ...], thing: str) -> None:
        if not self._logger.isEnabledFor(level):
            return
        said = self._said.setdefault(thing or template, _Said())
        now_s = self._now_s()
        if now_s - said.since_s >= PERIOD_S:
            said.since_s, said.count = now_s, 0
        if said.count >= SAID_MAX:
            said.left_out += 1
            return
        said.count += 1
        shown = tuple(escape_line(each) if isinstance(each, str) else each for each in about)
        if said.left_out:
            template += f" ({said.left_out:,} more like this were left out)"
            said.left_out = 0
        self._logger.log(level, template, *shown)
