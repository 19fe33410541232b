"""What waits for clients: in columns, in bounds of bytes, each at its own cost."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from client.fake_node import FakeNode
from client.test_door import EVERYTHING, Listed, door_of, wanted
from client.turns import on_loop, settle
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.publication import Delivery, Publication
from peersub.runtime.byte_budget import ByteBudget
from peersub.runtime.client_door import ClientDoor
from peersub.runtime.client_ports import NetworkName
from peersub.runtime.client_shares import Usage
from peersub.wire import sealed
from peersub.wire.client_messages import (
    BATCHES,
    CLIENT_VERSION,
    Acknowledged,
    ClientHello,
    Credit,
    DeliveredBatch,
    Overflow,
    PublishEnded,
    PublishWanted,
    SubscriptionPhase,
    SubscriptionState,
)
from peersub.wire.publications import publication_of

KILOBYTE = 1_024


def client_of(node, queued, publishing=None, *, columns=False):
    """A door whose client has these shares, and its connection."""
    connection = Listed()
    usage = Usage(queued.share(), (publishing or ByteBudget(10**9, 10**9)).share())
    door = ClientDoor(node, connection, NetworkName("chord", "net"), label="c", usage=usage)
    door.label = f"c{id(door)}"
    door.on_messages([ClientHello(CLIENT_VERSION, (BATCHES,) if columns else (), "")])
    connection.sent.clear()
    return door, connection


def rows_of(connection):
    """The events that came in columns, and for whom."""
    return [
        (message.batch.event_id(row), number)
        for message in connection.taken(DeliveredBatch)
        for number, places in message.wanted
        for row in memoryview(places).cast("I")
    ]


@on_loop
async def test_events_that_wait_stay_in_columns(monkeypatch):
    node = FakeNode()
    door, connection = client_of(node, ByteBudget(10**6, 10**6), columns=True)
    door.on_messages([wanted(1, credit=0), wanted(2, "n < 20", credit=0)])
    batch = Batch.of("a", pa.table({"n": range(500)}))
    monkeypatch.setattr(Batch, "publications", lambda _: pytest.fail("a batch fell apart"))
    for (_, sink, _), count in zip(node.sinks.values(), (500, 20), strict=True):
        sink.deliver_batch(batch, np.arange(count), 2)
    door.on_messages([Credit(1, 300), Credit(2, 90)])
    await settle()
    first = [(f"a/{n}", 1) for n in range(300)]
    assert rows_of(connection) == [*first, *[(f"a/{n}", 2) for n in range(20)]]
    door.on_messages([Credit(1, 900)])
    await settle()
    assert rows_of(connection) == [(f"a/{n}", 1) for n in range(300, 500)]


@on_loop
async def test_waiting_rows_and_events_keep_their_order():
    node = FakeNode()
    door, connection = door_of(node)
    door.on_messages([wanted(1, credit=1)])
    node.emit_batch("a", range(3))
    node.emit(7)
    node.emit_batch("b", range(2))
    await settle()
    door.on_messages([Credit(1, 100)])
    await settle()
    assert [name for name, _ in connection.events()] == ["a/0", "a/1", "a/2", "e7", "b/0", "b/1"]


@pytest.mark.parametrize(
    ("overflow", "kept"),
    [
        (Overflow.DROP_OLDEST, ["e1", "b/0", "b/1"]),
        (Overflow.DROP_NEWEST, ["a/0", "a/1", "e1"]),
    ],
)
@on_loop
async def test_rows_overflow_as_events_do(overflow, kept):
    node = FakeNode()
    door, connection = door_of(node)
    door.on_messages([wanted(1, credit=0, queue_max=3, overflow=overflow)])
    node.emit_batch("a", range(2))
    node.emit(1)
    node.emit_batch("b", range(2))
    door.on_messages([Credit(1, 9)])
    await settle()
    assert [name for name, _ in connection.events()] == kept
    assert connection.taken(SubscriptionState)[-1].dropped == 2


@on_loop
async def test_rows_beyond_the_queue_end_a_subscription_that_wants_it_so():
    node = FakeNode()
    door, connection = door_of(node)
    door.on_messages([wanted(1, credit=0, queue_max=3, overflow=Overflow.END)])
    node.emit_batch("a", range(4))
    ended = connection.taken(SubscriptionState)[-1]
    assert ended.phase is SubscriptionPhase.ENDED and ended.dropped and not node.sinks


@on_loop
async def test_a_client_is_bounded_over_all_of_its_subscriptions_and_alone_pays():
    node, budget = FakeNode(), ByteBudget(100 * KILOBYTE, 60 * KILOBYTE)
    greedy, its = client_of(node, budget)
    modest, others = client_of(node, budget)
    greedy.on_messages([wanted(n, f"n = {n}", credit=0) for n in range(10)])
    modest.on_messages([wanted(1, "n = 77", credit=0)])
    for turn in range(20):
        for number in range(10):
            node.emit_body(number, bytes(4 * KILOBYTE))
        if turn % 5 == 0:
            node.emit_body(77, bytes(4 * KILOBYTE))
    assert budget.used <= 2 * budget.node_max
    greedy.on_messages([Credit(n, 1_000) for n in range(10)])
    modest.on_messages([Credit(1, 1_000)])
    await settle()
    assert len(others.events()) == 4 and others.taken(SubscriptionState)[-1].dropped == 0
    came = len(its.events())
    told = {state.number: state.dropped for state in its.taken(SubscriptionState)}
    assert came < 15 and came + sum(told.values()) == 200
    assert budget.used == 0


@on_loop
async def test_what_a_durable_subscription_has_no_bytes_for_waits_in_the_log():
    node, budget = FakeNode(), ByteBudget(100 * KILOBYTE, 20 * KILOBYTE)
    door, connection = client_of(node, budget)
    door.on_messages([wanted(1, durable="d", credit=0)])
    for number in range(50):
        node.emit_body(number, bytes(4 * KILOBYTE))
    assert budget.used <= 20 * KILOBYTE
    taken: list[str] = []
    for _ in range(30):
        door.on_messages([Credit(1, 2)])
        await settle()
        taken += [name for name, _ in connection.events()]
        door.on_messages([Acknowledged(1, len(taken))])
    assert taken == [f"e{number}" for number in range(50)]
    assert budget.used == 0


@on_loop
async def test_a_lost_client_gives_all_back():
    node, budget = FakeNode(), ByteBudget(100 * KILOBYTE, 60 * KILOBYTE)
    door, _ = client_of(node, budget)
    door.on_messages([wanted(1, credit=0), wanted(2, durable="d", credit=0)])
    node.emit(*range(20))
    node.emit_batch("a", range(3))
    assert budget.used
    door.on_lost("gone")
    assert budget.used == 0


@on_loop
async def test_events_that_wait_are_not_unpacked():
    node = FakeNode()
    door, connection = door_of(node)
    door.on_messages([wanted(1, credit=0)])
    packed = sealed(Publication("e1", {"n": [[]] * 1_000})).packed
    event = publication_of("e1", Delivery.BEST_EFFORT, packed, None)
    assert event.matches(EVERYTHING) and event._attributes is not None
    node.deliver(event)
    assert event._attributes is None and event._event is None
    door.on_messages([Credit(1, 1)])
    await settle()
    assert connection.events() == [("e1", 1)]


@on_loop
async def test_publications_that_have_not_ended_are_bounded_in_bytes():
    node = FakeNode()
    node.slow_answers = True
    budget = ByteBudget(100 * KILOBYTE, 20 * KILOBYTE)
    door, connection = client_of(node, ByteBudget(10**6, 10**6), budget)
    events = [sealed(Publication(f"e{n}", {"n": n}, bytes(4 * KILOBYTE))) for n in range(10)]
    door.on_messages([PublishWanted(event, n) for n, event in enumerate(events)])
    await settle()
    assert len(node.published) == 4 and budget.used <= 20 * KILOBYTE
    (refused,) = connection.taken(PublishEnded)
    assert [number for number, _ in refused.failures] == list(range(4, 10))
    assert "bytes have not ended" in refused.failures[0][1]
    node.answer()
    assert budget.used == 0
    connection.sent.clear()
    large = sealed(Publication("large", {}, bytes(20 * KILOBYTE)))
    door.on_messages([PublishWanted(large, 11)])
    await settle()
    (refused,) = connection.taken(PublishEnded)
    assert "too large" in refused.failures[0][1] and "19,456 bytes" in refused.failures[0][1]
    door.on_messages([PublishWanted(events[9], 10)])
    door.on_lost("gone")
    assert budget.used == 0
