"""Mistakes of callers: an error at the call, that says what to do; the connection goes on."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from client.turns import on_loop
from peersub import connect, join
from peersub.client import SubscriptionEndedError
from peersub.client.arguments import since_text
from peersub.events.envelope import Event

BAD_PUBLICATIONS = [
    ({"body": "text"}, TypeError, r"text\.encode\(\)"),
    ({"body": 5}, TypeError, "bytes, not int"),
    ({"body": bytes(16 * 1_024 * 1_024 + 1)}, ValueError, "larger than"),
    ({"id": 5}, TypeError, r"id=str\(5\)"),
    ({"id": ""}, ValueError, "1 to 64 bytes"),
    ({"id": "x" * 65}, ValueError, "1 to 64 bytes"),
    ({"id": "\udc00"}, ValueError, "Unicode"),
    ({"delivery": "exactly_once"}, ValueError, "best_effort or at_least_once"),
]
BAD_SUBSCRIPTIONS = [
    ({"since": 2**63}, ValueError, "a position is between"),
    ({"since": -1}, ValueError, "a position is between"),
    ({"since": "9" * 10_000}, ValueError, "a position is between"),
    ({"since": 1.5}, TypeError, "not float"),
    ({"since": "next week"}, ValueError, "neither a position"),
    ({"durable": 5}, TypeError, "not int"),
    ({"durable": "x" * 129}, ValueError, "128 bytes"),
    ({"name": b"x"}, TypeError, "not bytes"),
    ({"queue_max": "many"}, TypeError, "not str"),
    ({"queue_max": 2**40}, ValueError, "below"),
    ({"overflow": None}, ValueError, "drop_oldest"),
]


@on_loop
async def test_a_mistake_is_an_error_at_the_call_and_nothing_else():
    async with join() as node, connect(node.node) as light:
        for name, client in (("here", node), ("there", light)):
            for options, error, words in BAD_PUBLICATIONS:
                with pytest.raises(error, match=words):
                    await client.publish({"n": 1}, **options)
            with pytest.raises(TypeError, match=r"encode\(\)"):
                await client.publish(Event("e", {}, "text"))
            with pytest.raises(TypeError, match=r"encode\(\)"):
                await client.publish_many([Event("e", {}, "text")])
            for options, error, words in BAD_SUBSCRIPTIONS:
                with pytest.raises(error, match=words):
                    client.subscribe("TRUE", **({"durable": "d"} | options))
            with pytest.raises(TypeError, match="SQL text or a Filter"):
                client.subscribe(5)
            # All goes on.
            async with client.subscribe("n = 2") as subscription:
                await subscription.ready(timeout=20)
                await client.publish({"n": 2}, id=name, body=bytearray(b"x"))
                event = await anext(subscription)
                assert (event.id, event.body) == (name, b"x")


@on_loop
async def test_a_place_that_the_log_has_not_reached_is_refused():
    async with join() as node:
        with pytest.raises(SubscriptionEndedError, match="the log ends at 0"):
            async with node.subscribe("TRUE", durable="d", since=10**15):
                pass
        async with node.subscribe("TRUE", durable="d", since=0) as subscription:
            await subscription.ready(timeout=20)


def test_times_may_be_times():
    assert since_text(datetime(2026, 1, 2, tzinfo=UTC)) == "2026-01-02T00:00:00+00:00"
    naive = datetime(2026, 1, 2, tzinfo=UTC).replace(tzinfo=None)
    assert since_text(naive) == "2026-01-02T00:00:00+00:00"
