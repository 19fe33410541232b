"""`peersub pub`: publish an event, or one per line of standard input, through a running node."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from peersub.cli.failures import CommandError, ExitCode
from peersub.cli.light_client import with_node
from peersub.cli.output import note, print_json
from peersub.files.formats import STANDARD_INPUT
from peersub.files.json_rows import row_of_line

if TYPE_CHECKING:
    from peersub.client import NodeClient
    from peersub.events.envelope import Event

__all__ = ["PubOptions", "run_pub"]

READ_BYTES: Final = 256 * 1_024
LINE_BYTES_MAX: Final = 20 * 1_024 * 1_024
"""A longer line holds no event that could travel."""
BAD_LINES_SHOWN: Final = 20
EVENTS_AT_ONCE_MAX: Final = 4_096
PATIENCE_S: Final = 3.0
"""After this time without an answer the command says that it waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PubOptions:
    """The options of the command, as given."""

    node: str
    tls: str | None = None
    event: str | None = None
    count: int | None = None
    rate: float | None = None
    delivery: str = "best_effort"
    id: str | None = None
    id_attribute: str | None = None
    publisher: str | None = None
    body: str | None = None
    quiet: bool = False
    as_json: bool = False


@dataclass(slots=True)
class _Outcome:
    published: int = 0
    already_seen: int = 0
    failed: int = 0
    bad_lines: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    last_id: str | None = None

    @property
    def code(self) -> ExitCode:
        if self.failed:
            return ExitCode.FAILED
        return ExitCode.UNUSABLE if self.bad_lines else ExitCode.DONE


def run_pub(options: PubOptions) -> int:
    """Run the command; the result is its exit code."""
    from peersub.client.outgoing import promise_named

    try:
        promise_named(options.delivery)
    except ValueError as error:
        raise CommandError(f"--delivery: {error}.") from None
    given = options.event is not None and options.event != STANDARD_INPUT
    if not given and (options.id is not None or options.body is not None):
        raise CommandError("--id and --body are for one event. Give it as an argument.")
    outcome = _Outcome()
    source = _Copies(options, outcome) if given else _Lines(options, outcome)

    async def work(node: NodeClient) -> int:
        await _publish_all(node, source, options, outcome)
        return outcome.code

    code = with_node(options.node, options.tls, "peersub pub", work, options.publisher)
    _report(options, outcome)
    return code


def _report(options: PubOptions, outcome: _Outcome) -> None:
    for event_id, reason in outcome.failures[:BAD_LINES_SHOWN]:
        note(f"peersub: error: the event {event_id!r} was not published: {reason}")
    if options.as_json:
        counts: dict[str, Any] = {
            "published": outcome.published,
            "already_seen": outcome.already_seen,
            "failed": outcome.failed,
            "bad_lines": outcome.bad_lines,
        }
        if outcome.published == 1 and outcome.last_id is not None:
            counts["id"] = outcome.last_id
        print_json(counts)
    elif not options.quiet:
        events = "1 event" if outcome.published == 1 else f"{outcome.published:,} events"
        seen = f", {outcome.already_seen:,} of them already seen" if outcome.already_seen else ""
        note(f"peersub: published {events}{seen}")


async def _publish_all(
    node: NodeClient, source: _Copies | _Lines, options: PubOptions, outcome: _Outcome
) -> None:
    from peersub.client import PublishFailedError

    async for events in _paced(source, options.rate):
        waiting = asyncio.get_running_loop().call_later(PATIENCE_S, _say_waiting, options)
        try:
            summary = await node.publish_many(events, delivery=options.delivery)  # type: ignore[arg-type]
        except PublishFailedError as error:
            outcome.published += error.published
            outcome.already_seen += error.already_seen
            outcome.failed += error.failed
            outcome.failures += error.failures[: BAD_LINES_SHOWN - len(outcome.failures)]
        else:
            outcome.published += summary.published
            outcome.already_seen += summary.already_seen
        finally:
            waiting.cancel()
        outcome.last_id = events[-1].id


def _say_waiting(options: PubOptions) -> None:
    if not options.quiet:
        note("peersub: not acknowledged yet; waiting")


async def _paced(source: _Copies | _Lines, rate: float | None) -> AsyncIterator[list[Event]]:
    """The events as they come, or as many as are due at this rate."""
    if rate is None:
        async for events in source:
            yield events
        return
    loop = asyncio.get_running_loop()
    begin, sent = loop.time(), 0
    async for events in source:
        while events:
            # Counted from the beginning: a late turn is made up for.
            due = int((loop.time() - begin) * rate) + 1 - sent
            if due <= 0:
                await asyncio.sleep(max(begin + sent / rate - loop.time(), 0))
                continue
            yield events[:due]
            sent += len(events[:due])
            events = events[due:]


class _Copies:
    """The event of the command line, as often as asked for."""

    def __init__(self, options: PubOptions, outcome: _Outcome) -> None:
        try:
            self._attributes = row_of_line((options.event or "").encode())
        except ValueError as error:
            raise CommandError(f"the event is {error}") from None
        except UnicodeEncodeError:
            raise CommandError("the event is no Unicode text") from None
        self._id = options.id
        self._id_attribute = options.id_attribute
        self._count = 1 if options.count is None else options.count
        self._body = None if options.body is None else _content(options.body)

    async def __aiter__(self) -> AsyncIterator[list[Event]]:
        from peersub.events.envelope import identifier_of

        given = None if self._id_attribute is None else self._attributes.get(self._id_attribute)
        name = self._id or identifier_of(given)
        for start in range(0, self._count, EVENTS_AT_ONCE_MAX):
            numbers = range(start, min(self._count, start + EVENTS_AT_ONCE_MAX))
            # The same id again would be the same event.
            yield [
                _event(self._attributes, name and f"{name}#{n}" if n else name, self._body)
                for n in numbers
            ]


class _Lines:
    """The events of standard input, one JSON object per line, as they arrive."""

    def __init__(self, options: PubOptions, outcome: _Outcome) -> None:
        self._outcome = outcome
        self._id_attribute = options.id_attribute
        self._left = options.count
        self._number = 0
        self._rest = b""

    async def __aiter__(self) -> AsyncIterator[list[Event]]:
        stream: Any = sys.stdin.buffer
        while self._left is None or self._left > 0:
            # What is there, without waiting for more: a person may be typing.
            data = await asyncio.to_thread(stream.read1, READ_BYTES)
            if not data:
                break
            *lines, self._rest = (self._rest + data).split(b"\n")
            if len(self._rest) > LINE_BYTES_MAX:
                raise CommandError(f"line {self._number + len(lines) + 1} is too long for an event")
            events = self._events(lines)
            if events:
                yield events
        if self._rest:
            events = self._events([self._rest])
            if events:
                yield events

    def _events(self, lines: list[bytes]) -> list[Event]:
        events: list[Event] = []
        for line in lines:
            self._number += 1
            if not line.strip() or self._left == 0:
                continue
            try:
                events.append(_event(row_of_line(line), id_attribute=self._id_attribute))
            except ValueError as error:
                self._outcome.bad_lines += 1
                if self._outcome.bad_lines <= BAD_LINES_SHOWN:
                    note(f"peersub: error: line {self._number}: {error}")
            else:
                if self._left is not None:
                    self._left -= 1
        return events


def _event(
    attributes: dict[str, Any],
    event_id: str | None = None,
    body: bytes | None = None,
    *,
    id_attribute: str | None = None,
) -> Event:
    """The event, if it can travel; a ValueError says why not."""
    from peersub.client.outgoing import promise_named, publication_of

    promise = promise_named("best_effort")
    return publication_of(attributes, promise, event_id, body, id_attribute).event


def _content(name: str) -> bytes:
    from peersub.files.opening import open_bytes

    with open_bytes(name) as stream:
        return stream.read(LINE_BYTES_MAX)
