"""What goes wrong in a run, in a line that says what to do.

An error in a worker arrives as a Java exception with a Python traceback inside of it. If its last
line names one of this project's own errors, that line is the message; otherwise the reader gets the
last line and the place of Spark's log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from peersub.files.errors import FileError, one_line
from peersub.pipeline.java import JavaNotFoundError
from peersub.pipeline.options import PipelineOptions
from peersub.pipeline.workspace import WorkspaceError

__all__ = ["PipelineError", "explained", "words_of_worker"]

_OWN_ERRORS = re.compile(r"^(?:peersub\.[\w.]+\.)?(FileError|FilterError|WorkspaceError): (.+)$")
_ERROR_LINE = re.compile(r"^[\w.]*(?:Error|Exception|Interrupt)\b.*$")


class PipelineError(Exception):
    """A run that failed; the message says why, and what to do."""


@contextmanager
def explained(options: PipelineOptions) -> Iterator[None]:
    """Turns what Spark raises into errors for people; others pass as they are."""
    try:
        yield
    except (FileError, WorkspaceError, PipelineError, JavaNotFoundError):
        raise
    except Exception as error:
        message = _message(error, options)
        if message is None:
            raise
        raise PipelineError(message) from error


def _message(error: Exception, options: PipelineOptions) -> str | None:
    module = type(error).__module__
    if not module.startswith(("pyspark", "py4j", "grpc")):
        return None
    text = str(error)
    if "UNAVAILABLE" in text or "failed to connect" in text.lower():
        return f"no Spark answers at {options.master}. Check --master, and that it runs."
    if "JAVA_GATEWAY_EXITED" in text:
        return "Java ended before Spark had started. Run it again with --debug to see its words."
    words, is_own = words_of_worker(text)
    if is_own:
        return words
    if "OutOfMemoryError" in text:
        return "Java ran out of memory. Give it more: --conf spark.driver.memory=4g"
    if "No module named 'peersub'" in text:
        return (
            f"the workers of {options.master} have no peersub. Install it there: "
            "pip install 'peersub[spark]'"
        )
    return f"Spark failed: {words}. Run it again with --resume --debug to see all of it."


def words_of_worker(text: str) -> tuple[str, bool]:
    r"""The line that matters of a worker's traceback, and whether the error is one of our own.

    >>> words_of_worker("...\npeersub.files.errors.FileError: a.csv: no rows\n\n\tat java.x")
    ('a.csv: no rows', True)
    """
    last = ""
    for line in text.splitlines():
        own = _OWN_ERRORS.match(line.strip())
        if own:
            return own[2], True
        if _ERROR_LINE.match(line) and not line.startswith(("org.", "java.", "scala.")):
            last = line
    return one_line(last or (text.splitlines() or [""])[0])[:300], False
