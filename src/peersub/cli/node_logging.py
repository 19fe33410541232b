"""The log of `peersub node` on standard error: as text, or a line of JSON for each record."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Final

from peersub.cli.failures import CommandError

__all__ = ["FORMATS", "LEVELS", "set_up_logging"]

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("text", "json")


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        message = f"{_time(record)} {record.levelname:<7} {record.name}: {record.getMessage()}"
        return f"{message}\n{self.formatException(record.exc_info)}" if record.exc_info else message


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        shown = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            shown["error"] = self.formatException(record.exc_info)
        return json.dumps(shown)


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def set_up_logging(level: str, form: str) -> None:
    """Let the log of this process go to standard error.

    Raises:
        CommandError: there is no such level, or form.
    """
    if level not in LEVELS:
        raise CommandError(f"--log-level: one of {', '.join(LEVELS)}, not {level!r}.")
    if form not in FORMATS:
        raise CommandError(f"--log-format: one of {', '.join(FORMATS)}, not {form!r}.")
    handler = logging.StreamHandler()
    handler.setFormatter(_Json() if form == "json" else _Text())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("peersub").setLevel(level.upper())
