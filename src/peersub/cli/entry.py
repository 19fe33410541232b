"""The entry: runs a command and turns whatever happens into an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from peersub.cli.failures import ExitCode, message_of
from peersub.cli.output import note

__all__ = ["main"]

DEBUG_OPTION = "--debug"
DEBUG_VARIABLE = "PEERSUB_DEBUG"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `peersub` with the given arguments, those of the process by default."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = os.environ.get(DEBUG_VARIABLE, "") not in ("", "0")
    if DEBUG_OPTION in given:
        # Wherever it stands: people add it to the end of a command that failed.
        debug = True
        given = [argument for argument in given if argument != DEBUG_OPTION]
    try:
        code = _run(given or ["--help"])
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _forget_stdout()
        return ExitCode.READER_GONE
    except SystemExit as stop:
        # typer ends the process by itself when nobody reads the output any more.
        if isinstance(stop.__context__, BrokenPipeError):
            _forget_stdout()
            return ExitCode.READER_GONE
        return stop.code if isinstance(stop.code, int) else ExitCode.FAILED
    except KeyboardInterrupt:
        _complain("interrupted", prefix="peersub")
        return ExitCode.INTERRUPTED
    except Exception as error:
        if debug:
            raise
        return _failed(error)


def _run(arguments: list[str]) -> int:
    result = _command()(args=arguments, prog_name="peersub", standalone_mode=False)
    return int(result) if isinstance(result, int) else ExitCode.DONE


@cache
def _command() -> Any:
    """The tree of all commands: it takes longer to build than most of them to run."""
    from typer.main import get_command

    from peersub.cli.app import app

    return get_command(app)


def _failed(error: Exception) -> int:
    if hasattr(error, "format_message"):
        return _wrong_usage(error)
    foreseen = message_of(error)
    if foreseen is not None:
        _complain(foreseen[0])
        return foreseen[1]
    if type(error).__name__ == "Abort":
        _complain("interrupted", prefix="peersub")
        return ExitCode.INTERRUPTED
    what = f"{type(error).__name__}: {error}"
    _complain(f"this was not foreseen: {what}. Run it again with {DEBUG_OPTION} and report it.")
    return ExitCode.FAILED


def _wrong_usage(error: Exception) -> int:
    """What the parser of the command line refuses."""
    context = getattr(error, "ctx", None)
    command = "peersub" if context is None else context.command_path
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.format_message(), file=sys.stderr)  # type: ignore[attr-defined]
        return ExitCode.UNUSABLE
    message = error.format_message().rstrip(".")  # type: ignore[attr-defined]
    _complain(f"{message}. See {command} --help.")
    return ExitCode.UNUSABLE


def _complain(message: str, prefix: str = "peersub: error") -> None:
    from peersub.files.errors import one_line

    note(f"{prefix}: {one_line(message)}")


def _forget_stdout() -> None:
    """Nobody reads it any more: without this Python complains when it flushes at the end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
