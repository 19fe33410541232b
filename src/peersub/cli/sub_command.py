"""`peersub sub`: subscribe at a running node, and print what comes."""

from __future__ import annotations

import asyncio
import json
import sys
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from peersub.cli.failures import CommandError, ExitCode
from peersub.cli.light_client import with_node
from peersub.cli.output import note

if TYPE_CHECKING:
    from peersub.client import Delivery, NodeClient, Subscription

__all__ = ["SubOptions", "run_sub"]

EVENTS_AT_ONCE_MAX: Final = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class SubOptions:
    """The options of the command, as given."""

    node: str
    tls: str | None = None
    filter: str
    xpath: bool = False
    count: int | None = None
    wait: float | None = None
    durable: str | None = None
    since: str | None = None
    raw: bool = False
    quiet: bool = False
    as_json: bool = False


def run_sub(options: SubOptions) -> int:
    """Run the command; the result is its exit code."""
    from peersub.filters.filter import Filter

    if options.since is not None and options.durable is None:
        raise CommandError("--since is for durable subscriptions. Name one with --durable.")
    if options.raw and options.as_json:
        raise CommandError("--raw and --json do not go together. Choose one.")
    wanted = Filter.xpath(options.filter) if options.xpath else Filter(options.filter)

    async def work(node: NodeClient) -> int:
        durable, since = options.durable, options.since
        async with node.subscribe(
            wanted, name="peersub sub", durable=durable, since=since
        ) as subscription:
            if subscription.detail and not options.quiet:
                note(f"peersub: {subscription.detail}")
            telling = asyncio.create_task(_tell_when_ready(subscription, options))
            try:
                return await _print_all(subscription, options)
            finally:
                telling.cancel()
                await asyncio.gather(telling, return_exceptions=True)
                _tell_of_losses(subscription)

    return with_node(options.node, options.tls, "peersub sub", work)


async def _tell_when_ready(subscription: Subscription, options: SubOptions) -> None:
    await subscription.ready()
    if not options.quiet:
        note("peersub: ready: events published from now on come here")


def _tell_of_losses(subscription: Subscription) -> None:
    if subscription.dropped:
        lost = subscription.lost_through
        where = f" (the log had no room for them up to position {lost})" if lost else ""
        note(
            f"peersub: warning: {subscription.dropped:,} events were dropped: they came too fast"
            f"{where}"
        )
    if subscription.gaps:
        cause = "the node's disk lost events" if subscription.is_durable else "the connection was"
        lost_what = cause if subscription.is_durable else f"{cause} lost meanwhile"
        note(f"peersub: warning: {lost_what}; events may be missing")


async def _print_all(subscription: Subscription, options: SubOptions) -> int:
    loop = asyncio.get_running_loop()
    deadline = None if options.wait is None else loop.time() + options.wait
    left = options.count
    found = 0
    while left is None or found < left:
        timeout = None if deadline is None else max(deadline - loop.time(), 0)
        count = EVENTS_AT_ONCE_MAX if left is None else min(left - found, EVENTS_AT_ONCE_MAX)
        taken = await subscription.take(count, timeout)
        if not taken:
            break
        found += len(taken)
        _print(taken, options)
    if left is None:
        return ExitCode.DONE if found else ExitCode.TIMED_OUT
    if found < left:
        note(f"peersub: time is up: {found:,} of {left:,} events came in {options.wait:g} s")
        return ExitCode.TIMED_OUT
    return ExitCode.DONE


def _print(deliveries: list[Delivery], options: SubOptions) -> None:
    """One piece per batch; whoever reads a pipe gets whole lines."""
    if options.raw:
        pieces = [
            _text(each.event.attributes).encode() if each.event.body is None else each.event.body
            for each in deliveries
        ]
        sys.stdout.flush()
        sys.stdout.buffer.write(b"\n".join(pieces) + b"\n")
        sys.stdout.buffer.flush()
        return
    lines = [
        _text(_envelope(each) if options.as_json else each.event.attributes) for each in deliveries
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _envelope(delivery: Delivery) -> dict[str, Any]:
    event = delivery.event
    form: dict[str, Any] = {"id": event.id, "hops": delivery.hops}
    if delivery.position is not None:
        form["position"] = delivery.position
    form["attributes"] = event.attributes
    if event.body is not None:
        form["body"] = _body(event.body)
    return form


def _body(body: bytes) -> str | dict[str, str]:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(body).decode()}


def _text(value: Mapping[str, Any]) -> str:
    # Escaped: text with lone surrogates is printed, too, on any terminal.
    return json.dumps(value, default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)
