"""`peersub explain`: why a subscriber got an event, or did not, from a trace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from peersub.cli.failures import CommandError, ExitCode
from peersub.cli.output import print_json, say
from peersub.events.printable import escape_line

if TYPE_CHECKING:
    from peersub.trace.explain import Hop

__all__ = ["run_explain_delivery"]


def run_explain_delivery(
    trace: str, event: str, subscription: str, node: str | None, *, as_json: bool
) -> int:
    """Run the command; the result is its exit code."""
    from peersub.files.errors import FileError
    from peersub.trace.explain import Verdict, explain
    from peersub.trace.reading import TraceError

    try:
        found = explain(_forms(trace), event, subscription, node)
    except TraceError as error:
        raise CommandError(f"{trace}, {error}. Name a trace of peersub simulate --trace.") from None
    except FileError:
        raise  # It says by itself what is wrong with the file.
    except (KeyError, TypeError, ValueError) as error:
        raise CommandError(f"{trace}: this is no trace of this version ({error!r}).") from None
    if as_json:
        print_json(asdict(found))
    else:
        further = [*found.sentences[1:], *map(_hop_text, found.path)]
        for line in (f"{found.verdict}: {found.sentences[0]}", *(f"  {each}" for each in further)):
            say(escape_line(line))
    return ExitCode.DONE if found.verdict is Verdict.DELIVERED else ExitCode.NO_MATCH


def _forms(name: str) -> Iterator[dict[str, Any]]:
    from peersub.files.opening import open_bytes
    from peersub.trace.reading import trace_forms

    with open_bytes(name) as stream:
        yield from trace_forms(line.decode("utf-8", "replace") for line in stream)


def _hop_text(hop: Hop) -> str:
    sent = "" if hop.sent_ms is None else f", sent at {hop.sent_ms} ms"
    received = "never received" if hop.received_ms is None else f"received at {hop.received_ms} ms"
    scope = f", scope {list(hop.scope)}" if hop.scope else ""
    return f"{hop.sender} -> {hop.receiver}{sent}, {received}{scope}"
