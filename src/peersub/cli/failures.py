"""How commands end: the exit codes, and errors as one line that tells what to do."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["CommandError", "ExitCode", "message_of"]


class ExitCode(IntEnum):
    """What scripts can rely on."""

    DONE = 0
    FAILED = 1
    UNUSABLE = 2
    """Wrong usage, or input that cannot be read."""
    TIMED_OUT = 3
    NO_MATCH = 4
    """Nothing matched, or it does not cover."""
    QUARANTINE = 5
    """Finished, with rows in quarantine."""
    INTERRUPTED = 130
    READER_GONE = 141


class CommandError(Exception):
    """Ends a command with one line and an exit code."""

    def __init__(self, message: str, code: ExitCode = ExitCode.UNUSABLE) -> None:
        self.code = code
        super().__init__(message)


_EXTRA_OF_PACKAGE = {
    "cryptography": "tls",
    "duckdb": "bench",
    "numba": "matching",
    "numpy": "matching",
    "pyarrow": "matching",
    "pyspark": "spark",
}


_MODULES_OF_FORESEEN = (
    "peersub.client.",
    "peersub.overlays.",
    "peersub.pipeline.",
    "peersub.runtime.",
)
_FORESEEN = {
    "ClientError": ExitCode.FAILED,
    "ConnectError": ExitCode.FAILED,
    "JavaNotFoundError": ExitCode.FAILED,
    "NotReadyError": ExitCode.TIMED_OUT,
    "PermissionsError": ExitCode.UNUSABLE,
    "PipelineError": ExitCode.FAILED,
    "PublishFailedError": ExitCode.FAILED,
    "PublishTimedOutError": ExitCode.TIMED_OUT,
    "SecurityError": ExitCode.UNUSABLE,
    "SettingsError": ExitCode.UNUSABLE,
    "StartError": ExitCode.FAILED,
    "StoreError": ExitCode.FAILED,
    "SubscriptionEndedError": ExitCode.FAILED,
    "WorkspaceError": ExitCode.UNUSABLE,
}


def message_of(error: BaseException) -> tuple[str, ExitCode] | None:
    """The line and the exit code of an error that was foreseen; None if it was not."""
    from peersub.files.errors import FileError

    if isinstance(error, CommandError):
        return str(error), error.code
    if isinstance(error, FileError):
        return str(error), ExitCode.UNUSABLE
    if hasattr(error, "one_line"):
        # A FilterError; naming its class would import the filters for every small mistake.
        return str(error.one_line()), ExitCode.UNUSABLE
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.partition(".")[0]
        if package in _EXTRA_OF_PACKAGE:
            extra = _EXTRA_OF_PACKAGE[package]
            message = f"this needs {package}. Install it with: pip install 'peersub[{extra}]'"
            return message, ExitCode.FAILED
    # Naming the classes would import Spark's part, or the network's, for every small mistake.
    if type(error).__module__.startswith(_MODULES_OF_FORESEEN):
        code = _FORESEEN.get(type(error).__name__)
        if code is not None:
            return str(error), code
    if isinstance(error, MemoryError):
        return "memory ran out. Use smaller inputs, or fewer threads.", ExitCode.FAILED
    return None
