"""Events of durable subscriptions that may come a second time say so, and no others."""

from __future__ import annotations

import threading
import time

from client.fake_node import FakeNode
from client.test_door import Listed, wanted
from client.turns import on_loop, settle
from peersub import Filter, connect, join
from peersub.overlays.core.publication import Publication
from peersub.runtime.client_door import ClientDoor
from peersub.runtime.client_ports import NetworkName
from peersub.runtime.store import Store
from peersub.runtime.store.changes import AppendToLog, DurableStored
from peersub.wire import sealed
from peersub.wire.client_messages import (
    CLIENT_VERSION,
    REDELIVERIES,
    ClientHello,
    Delivered,
    DeliveredAgain,
)


async def take(subscription, count):
    """The next events: their numbers, and whether they may have come before."""
    events = [await anext(subscription) for _ in range(count)]
    return [(event.attributes["n"], event.redelivered) for event in events]


async def publish(node, numbers):
    for number in numbers:
        await node.publish({"n": number})


@on_loop
async def test_what_another_consumer_did_not_acknowledge_comes_again_and_says_so():
    async with join() as node:
        async with connect(node.node) as first:
            subscription = first.subscribe("n >= 0", durable="d", auto_acknowledge=False)
            await subscription.ready(timeout=20)
            await publish(node, range(4))
            assert await take(subscription, 4) == [(n, False) for n in range(4)]
            await subscription.acknowledge()
            await publish(node, range(4, 6))
            assert await take(subscription, 2) == [(4, False), (5, False)]
        await publish(node, [6])
        async with connect(node.node) as second:
            subscription = second.subscribe("n >= 0", durable="d")
            assert await take(subscription, 3) == [(4, True), (5, True), (6, False)]
            await publish(node, [7])
            assert await take(subscription, 1) == [(7, False)]


@on_loop
async def test_after_a_restart_all_that_waits_may_have_come_before(tmp_path):
    async with join(data=tmp_path / "n", settings={}) as node:
        subscription = node.subscribe("n >= 0", durable="d", auto_acknowledge=False)
        await subscription.ready(timeout=20)
        await publish(node, range(2))
        assert await take(subscription, 2) == [(0, False), (1, False)]
    async with join(data=tmp_path / "n") as node:
        subscription = node.subscribe("n >= 0", durable="d")
        await subscription.ready(timeout=20)
        await publish(node, [2])
        assert await take(subscription, 3) == [(0, True), (1, True), (2, False)]


@on_loop
async def test_a_slow_consumer_gets_nothing_twice_and_no_mark():
    """Its queue at the node is full again and again: what it did not get waits in the log."""
    async with join() as node, connect(node.node) as light:
        subscription = light.subscribe("n >= 0", durable="d", queue_max=4)
        await subscription.ready(timeout=20)
        await publish(node, range(30))
        assert await take(subscription, 30) == [(n, False) for n in range(30)]


@on_loop
async def test_clients_that_do_not_know_of_it_get_the_event_as_ever():
    for features, kind in (((), Delivered), ((REDELIVERIES,), DeliveredAgain)):
        node, connection = FakeNode(), Listed()
        door = ClientDoor(node, connection, NetworkName("chord", "net"), label="c1")
        door.on_messages([ClientHello(CLIENT_VERSION, features), wanted(1, durable="d")])
        event = Publication("e", {"n": 1})
        event.again = True
        node.deliver(event)
        await settle()
        (message,) = connection.taken(kind)
        assert (message.publication.id, message.numbers, message.positions) == ("e", (1,), (1,))


def test_a_log_is_read_in_pieces_of_bytes(tmp_path):
    with Store(tmp_path) as store:
        done, now_ms = threading.Event(), int(time.time() * 1_000)
        changes = [DurableStored("d", Filter("TRUE"), now_ms)]
        for number in range(8):
            event = sealed(Publication(f"e{number}", {}, bytes(4_000)))
            changes.append(AppendToLog(event, ("d",), now_ms, 1))
        store.submit(changes, lambda _: done.set())
        assert done.wait(20)
        sizes, after = [], 0
        while events := store.read_log("d", after, 256, 10_000):
            sizes.append(len(events))
            after = events[-1].position
        assert sizes == [3, 3, 2]
