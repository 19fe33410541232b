"""Events that may come a second time say so, and no others.

Those of durable subscriptions by what their node knows, others by what the client remembers.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from client.fake_node import FakeNode
from client.test_api import world
from client.test_door import Listed, wanted
from client.turns import on_loop, settle, until
from peersub import Filter, Publisher, connect, join
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.event_keys import key_of_id
from peersub.overlays.core.home import HomeSettings
from peersub.overlays.core.publication import Publication
from peersub.runtime.client_door import ClientDoor
from peersub.runtime.client_ports import NetworkName
from peersub.runtime.handed_events import HORIZON_MS, HandedEvents
from peersub.runtime.store import Store
from peersub.runtime.store.changes import AppendToLog, DurableStored
from peersub.runtime.store.mark_file import MARK
from peersub.wire import sealed
from peersub.wire.client_messages import (
    CLIENT_VERSION,
    REDELIVERIES,
    ClientHello,
    Delivered,
    DeliveredAgain,
    SubscribeWanted,
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
async def test_a_disk_that_has_lost_something_does_not_know_what_was_handed_over(tmp_path):
    async with join(data=tmp_path / "n") as node:
        await node.subscribe("n >= 0", durable="d").ready(timeout=20)
    (tmp_path / "n" / MARK).unlink()
    async with join(data=tmp_path / "n") as node:
        subscription = node.subscribe("n >= 0", durable="d")
        await subscription.ready(timeout=20)
        await publish(node, [0])
        assert await take(subscription, 1) == [(0, True)]


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


# --- subscriptions that are not durable -----------------------------------------------------------


@on_loop
async def test_what_a_publisher_repeats_after_a_fail_over_says_so():
    """The second node has never seen the event: its history cannot turn it into once."""
    publisher = Publisher(bytes(32))

    async def publish(client, number):
        event, name = {"n": number}, f"e{number}"
        await client.publish(event, id=name, delivery="at_least_once", timeout=20)

    async with join() as second, connect(second.node, publisher=publisher) as feed:
        first = await join(second.node)
        async with (
            connect([first.node, second.node]) as light,
            light.subscribe("n >= 0") as subscription,
        ):
            await subscription.ready(timeout=20)
            await publish(feed, 0)
            assert await take(subscription, 1) == [(0, False)]
            await first.close()
            await until(lambda: light.node == second.node)
            await subscription.ready(timeout=20)
            for number in (1, 0):
                await publish(feed, number)
            assert await take(subscription, 2) == [(1, False), (0, True)]


@pytest.mark.parametrize("in_batches", [False, True])
@on_loop
async def test_what_came_over_a_lost_connection_says_so_if_it_comes_again(in_batches):
    here = await world()

    def emit(*numbers):
        if in_batches:
            here.node.emit_batch(f"b{min(numbers) // 10}", numbers)
        else:
            here.node.emit(*numbers)

    first, second = here.client.subscribe("n >= 0"), here.client.subscribe("n >= 5")
    await first.ready()
    emit(0, 5)
    assert await take(first, 2) == [(0, False), (5, False)]
    assert await take(second, 1) == [(5, False)]  # For another one it is no repetition.
    here.lose()
    await here.connect()
    await second.ready()
    emit(0, 5)
    emit(10, 15)
    marked = [(0, True), (5, True), (10, False), (15, False)]
    assert await take(first, 4) == marked
    assert await take(second, 3) == marked[1:]


def test_events_are_remembered_for_as_long_as_they_are_repeated():
    assert HomeSettings().history_horizon_ms == HORIZON_MS
    handed, (a, b, c) = HandedEvents(), map(key_of_id, "abc")
    assert not handed.add(a, 0)
    handed.on_lost(100)
    assert [handed.add(key, 200) for key in (a, a, b, b)] == [True, True, False, False]
    handed.on_lost(300)
    assert [handed.add(key, 400) for key in (b, c, a)] == [True, False, True]
    assert not handed.add(a, 301 + HORIZON_MS)


def test_events_of_a_batch_are_known_alone_and_together():
    handed, batch = HandedEvents(), Batch.of("b", pa.table({"n": [0, 1, 2]}))
    keys = [event.key for event in batch.publications()]
    assert handed.add_batch(batch.part(np.array([0])), 0) == [False]
    assert not handed.add(keys[2], 0)
    handed.on_lost(0)
    assert handed.add_batch(batch, 1) == [True, False, True]
    assert [handed.add(key, 2) for key in keys] == [True, False, True]


def test_where_there_was_no_room_to_remember_nothing_is_known_to_be_new():
    handed = HandedEvents(bytes_max=1_000)
    keys = [key_of_id(str(number)) for number in range(200)]
    assert not any(handed.add(key, 0) for key in keys)
    handed.on_lost(0)
    assert handed.add(keys[0], 1) and handed.add(key_of_id("new"), 1)
    # A second loss does not make it known.
    handed.on_lost(HORIZON_MS - 1)
    assert handed.add(key_of_id("newer"), HORIZON_MS)
    assert not handed.add(key_of_id("newest"), 3 * HORIZON_MS)


# --- durable subscriptions at several nodes -------------------------------------------------------


@on_loop
async def test_what_waits_at_another_node_may_have_come_at_the_first():
    """The name is known at both, and the client remembers fewer events than wait there."""
    async with join(settings={}) as second:
        first = await join(second.node)
        async with connect(second.node) as light:
            await light.subscribe("n >= 0", durable="d").ready(timeout=20)
        async with connect([first.node, second.node]) as light:
            subscription = light.subscribe("n >= 0", durable="d")
            await subscription.ready(timeout=20)
            await publish(second, range(2))
            assert await take(subscription, 2) == [(0, False), (1, False)]
            subscription._seen.clear()  # As if very many had come since.
            await first.close()
            await until(lambda: light.node == second.node)
            assert await take(subscription, 2) == [(0, True), (1, True)]
            await publish(second, [2])
            assert await take(subscription, 1) == [(2, False)]


@on_loop
async def test_a_node_of_an_earlier_version_hears_nothing_of_other_nodes():
    here = await world()
    subscription = here.client.subscribe("TRUE", durable="d")
    await subscription.ready()
    here.lose()
    here.node.name = "fake:2"
    await here.connect()
    await subscription.ready()
    assert [each.was_elsewhere for each in here.node.durable_options] == [False, True]
    here.session.welcome = replace(here.session.welcome, features=())
    subscription._leg.on_other_node()
    assert [type(each) for each in subscription._leg.begin()] == [SubscribeWanted]
