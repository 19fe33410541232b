"""Reading a trace back: its lines, and what the checkers say about it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from peersub.trace.checkers import DeliveryChecker
from peersub.trace.schema import TRACE_VERSION

__all__ = ["TraceError", "check_trace", "trace_forms", "trace_header"]

_PARTS = (("node", "cause", "effects"), ("node", "given"), ("fault",), ("phase",))


class TraceError(ValueError):
    """A line is no part of a trace; the text names the line and says why."""


def trace_header(first_line: str) -> dict[str, Any]:
    """What the first line says about the trace.

    Raises:
        TraceError: this is no trace, or one of a version that is not understood.
    """
    header = _object(first_line, 1)
    version = header.get("trace")
    if version is None:
        raise TraceError('line 1: not a trace: it begins with {"trace": 1, ...}')
    if version != TRACE_VERSION:
        raise TraceError(f"line 1: a trace of version {version!r}, only {TRACE_VERSION} is known")
    return header


def trace_forms(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The records of a trace in their plain form, without its header.

    Raises:
        TraceError: a line that is no record.
    """
    numbered = enumerate(lines, start=1)
    for _, line in numbered:
        trace_header(line)
        break
    else:
        raise TraceError("line 1: the trace is empty")
    for number, line in numbered:
        form = _object(line, number)
        if "ms" not in form or not any(all(name in form for name in part) for part in _PARTS):
            raise TraceError(f"line {number}: neither a step nor a fault nor a phase")
        yield form


def _object(line: str, number: int) -> dict[str, Any]:
    try:
        form = json.loads(line)
    except ValueError as error:
        raise TraceError(f"line {number}: not JSON ({error})") from None
    if not isinstance(form, dict):
        raise TraceError(f"line {number}: not a JSON object")
    return form


def check_trace(
    lines: Iterable[str], checker: DeliveryChecker | None = None, *, settled: bool = True
) -> DeliveryChecker:
    """What the checker of deliveries says about a trace.

    Raises:
        TraceError: a line that is no record.
    """
    checker = DeliveryChecker() if checker is None else checker
    now_ms = 0
    for number, form in enumerate(trace_forms(lines), start=2):
        now_ms = form["ms"]
        try:
            checker.observe_form(form)
        except (KeyError, TypeError, ValueError) as error:
            raise TraceError(f"line {number}: not a record of this version ({error!r})") from None
    checker.finish(now_ms, settled=settled)
    return checker
