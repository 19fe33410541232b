"""A door between a fake node and a client that is a list of messages."""

import numpy as np
import pyarrow as pa
import pytest

from client.fake_node import FakeNode
from client.turns import on_loop, settle, until
from peersub.filters import Filter
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.publication import Delivery, Publication
from peersub.runtime.byte_budget import ENTRY_BYTES
from peersub.runtime.client_door import ClientDoor
from peersub.runtime.client_ports import DoorLimits, NetworkName, OpenRules
from peersub.runtime.client_shares import DurableHolders
from peersub.runtime.client_status import STATUS_WAITING_MAX
from peersub.wire import sealed
from peersub.wire.client_messages import (
    BATCHES,
    CLIENT_VERSION,
    ELSEWHERE,
    KEYS,
    Acknowledged,
    ClientHello,
    ClientRefused,
    ClientWelcome,
    Credit,
    Delivered,
    DeliveredBatch,
    Overflow,
    PublishBatchWanted,
    PublishEnded,
    PublishWanted,
    StateWanted,
    StatusGiven,
    StatusWanted,
    SubscribeWanted,
    SubscriptionPhase,
    SubscriptionState,
    UnsubscribeWanted,
)

EVERYTHING = Filter("TRUE")
READY, PENDING, ENDED = (
    SubscriptionPhase.READY,
    SubscriptionPhase.PENDING,
    SubscriptionPhase.ENDED,
)


class Listed:
    """A connection that keeps what is sent."""

    def __init__(self, identity=""):
        self.identity = identity
        self.sent = []
        self.closed = None
        self.full = False
        self.then = None
        self.is_held = False

    def send(self, messages):
        self.sent += messages

    def close(self, reason):
        self.closed = reason

    def is_full(self):
        return self.full

    def when_relieved(self, then):
        self.then = then

    def hold_reading(self, *, hold):
        self.is_held = hold

    def taken(self, kind):
        """The messages of a kind; they are not there any more."""
        found = [message for message in self.sent if isinstance(message, kind)]
        self.sent = [message for message in self.sent if not isinstance(message, kind)]
        return found

    def events(self):
        return [(message.publication.id, *message.numbers) for message in self.taken(Delivered)]


def door_of(node, identity="", rules=None, holders=None, label="c1", features=()):
    connection = Listed(identity)
    door = ClientDoor(
        node, connection, NetworkName("chord", "net"), label=label, rules=rules, holders=holders
    )
    door.on_messages([ClientHello(CLIENT_VERSION, features, "me")])
    assert connection.taken(ClientWelcome) == [
        ClientWelcome("fake:1", CLIENT_VERSION, "chord", "net", (ELSEWHERE, KEYS))
    ]
    return door, connection


def wanted(number, text="TRUE", **options):
    return SubscribeWanted(number, Filter(text), **({"credit": 100} | options))


def publication(number, promise=Delivery.BEST_EFFORT, **attributes):
    return sealed(Publication(f"e{number}", {"n": number, **attributes}, delivery=promise))


# --- greeting --------------------------------------------------------------------------------


@on_loop
async def test_a_client_of_another_major_version_is_refused():
    node, connection = FakeNode(), Listed()
    door = ClientDoor(node, connection, NetworkName("chord", "net"), label="c1")
    door.on_messages([ClientHello((9, 3)), wanted(1)])
    (refused,) = connection.taken(ClientRefused)
    assert "9.3" in refused.reason and "1.0" in refused.reason
    assert connection.closed and not node.sinks


@on_loop
async def test_who_does_not_greet_is_refused():
    node, connection = FakeNode(), Listed()
    door = ClientDoor(node, connection, NetworkName("chord", "net"), label="c1")
    door.on_messages([wanted(1)])
    assert connection.taken(ClientRefused) and connection.closed and not node.sinks


@on_loop
async def test_what_is_said_after_a_refusal_waits_for_nobody():
    door, connection = door_of(FakeNode())
    door.refuse("enough")
    door.on_messages([StatusWanted(1)])
    await settle()
    assert not connection.is_held and connection.taken(StatusGiven) == []


@on_loop
async def test_what_only_nodes_say_is_refused():
    node = FakeNode()
    door, connection = door_of(node)
    door.on_messages([wanted(1), PublishEnded((1,)), wanted(2)])
    assert "publish-ended" in connection.taken(ClientRefused)[0].reason
    assert connection.closed and not node.sinks


# --- subscriptions ---------------------------------------------------------------------------


@on_loop
async def test_a_subscription_is_pending_and_then_ready():
    node = FakeNode()
    node.is_ready_at_once, node.waiting = False, ("n7", "n8")
    door, connection = door_of(node)
    door.on_messages([wanted(5)])
    assert connection.taken(SubscriptionState) == [SubscriptionState(5, PENDING)]
    door.on_messages([StateWanted(5)])
    assert connection.taken(SubscriptionState) == [
        SubscriptionState(5, PENDING, waiting_on=("n7", "n8"))
    ]
    node.be_ready()
    node.be_ready()
    assert connection.taken(SubscriptionState) == [SubscriptionState(5, READY)]


@on_loop
async def test_what_is_ready_at_once_says_so_once():
    door, connection = door_of(FakeNode())
    door.on_messages([wanted(5)])
    assert connection.taken(SubscriptionState) == [SubscriptionState(5, READY)]


@on_loop
async def test_a_refused_subscription_ends_with_the_reason():
    node = FakeNode()
    node.refusal = "too many"
    door, connection = door_of(node)
    door.on_messages([wanted(5)])
    assert connection.taken(SubscriptionState) == [SubscriptionState(5, ENDED, "too many")]
    node.refusal = None
    door.on_messages([wanted(5)])
    assert connection.taken(SubscriptionState) == [SubscriptionState(5, READY)]


@on_loop
async def test_an_event_for_several_subscriptions_travels_once():
    node = FakeNode()
    door, connection = door_of(node)
    door.on_messages([wanted(1), wanted(2, "n > 1"), wanted(3, "n < 2")])
    node.emit(1, 2)
    assert connection.events() == []
    await settle()
    assert connection.events() == [("e1", 1, 3), ("e2", 1, 2)]


@on_loop
async def test_two_clients_may_use_the_same_numbers():
    node = FakeNode()
    one, first = door_of(node, label="c1")
    two, second = door_of(node, label="c2")
    one.on_messages([wanted(1, "n = 1")])
    two.on_messages([wanted(1, "n = 2")])
    node.emit(1, 2)
    await settle()
    assert first.events() == [("e1", 1)] and second.events() == [("e2", 1)]


@on_loop
async def test_what_is_unsubscribed_ends_at_the_node():
    node = FakeNode()
    door, connection = door_of(node)
    door.on_messages([wanted(1), wanted(2)])
    node.emit(1)
    door.on_messages([UnsubscribeWanted(1), UnsubscribeWanted(77)])
    assert len(node.sinks) == 1
    node.emit(2)
    await settle()
    assert connection.events() == [("e1", 1, 2), ("e2", 2)]
    assert connection.taken(SubscriptionState)[-1] == SubscriptionState(1, ENDED)


@on_loop
async def test_a_lost_client_leaves_nothing_behind():
    node = FakeNode()
    door, connection = door_of(node)
    door.on_messages([wanted(1), wanted(2)])
    node.emit(1)
    door.on_lost("gone")
    door.on_lost("gone again")
    node.emit(2)
    await settle()
    assert not node.sinks and connection.events() == []
    door.on_messages([wanted(3)])
    assert not node.sinks


@on_loop
async def test_limits_and_permissions_bind():
    class Rules(OpenRules):
        def permit_subscribe(self, identity, wanted):
            assert identity == "ann"
            if wanted.is_everything:
                return Filter("n < 3")
            raise ValueError(f"{identity} may not see this")

        def permit_publish(self, identity, publication):
            return None if publication.attributes["n"] < 3 else "not yours"

    node = FakeNode()
    door, connection = door_of(node, "ann", Rules(DoorLimits(subscriptions_max=1)))
    door.on_messages([wanted(1, "n = 9"), wanted(2), wanted(3)])
    refused, narrowed, too_many = connection.taken(SubscriptionState)
    assert refused == SubscriptionState(1, ENDED, "ann may not see this")
    assert narrowed == SubscriptionState(2, READY, "narrowed to: n < 3")
    assert too_many.phase is ENDED and "1 subscription" in too_many.detail
    door.on_messages([PublishWanted(publication(n), n) for n in (2, 3)])
    await settle()
    assert connection.events() == [("e2", 2)]
    assert connection.taken(PublishEnded) == [PublishEnded((2,), ((3, "not yours"),))]
    assert [each.id for each in node.published] == ["e2"]


@on_loop
async def test_events_of_batches_travel_once_and_in_order():
    node = FakeNode()
    door, connection = door_of(node)
    door.on_messages([wanted(1, "n > 3"), wanted(2, "n < 6"), wanted(3, "n = 5", credit=0)])
    node.emit_batch("a", range(10))
    node.emit(10)
    node.emit_batch("b", [3, 4, 5])
    await settle()
    assert connection.events() == [
        *[(f"a/{n}", 2) for n in range(4)],
        *[(f"a/{n}", 1, 2) for n in (4, 5)],
        *[(f"a/{n}", 1) for n in range(6, 10)],
        ("e10", 1),
        ("b/0", 2),
        ("b/1", 1, 2),
        ("b/2", 1, 2),
    ]
    node.emit_batch("c", [5, 7])
    door.on_messages([Credit(3, 9)])
    node.emit_batch("d", [5])
    await settle()
    sent = connection.events()
    assert [name for name, *numbers in sent if 3 in numbers] == ["a/5", "b/2", "c/0", "d/0"]
    assert [name for name, *numbers in sent if 1 in numbers] == ["c/0", "c/1", "d/0"]


@on_loop
async def test_a_client_that_takes_columns_gets_a_batch_once():
    node, connection = FakeNode(), Listed()
    door = ClientDoor(node, connection, NetworkName("chord", "net"), label="c1")
    asked = [wanted(1, "n > 3"), wanted(2, "n < 6"), wanted(3, "n = 5", credit=0)]
    door.on_messages([ClientHello(CLIENT_VERSION, (BATCHES,)), *asked])
    node.emit(7)
    node.emit_batch("a", [9, 5, 1])
    node.emit_batch("b", [0])
    node.emit(8)
    await settle()
    kinds = (Delivered, DeliveredBatch)
    sent = [message for message in connection.sent if isinstance(message, kinds)]
    before, first, second, after = sent
    assert before.publication.id == "e7" and after.publication.id == "e8"
    assert first.batch.id == "a" and len(first.batch) == 3
    places = {number: np.frombuffer(rows, "<u4").tolist() for number, rows in first.wanted}
    assert places == {1: [0, 1], 2: [1, 2]} and first.hops == 2
    assert second.batch.numbers.tolist() == [0] and second.wanted == ((2, bytes(4)),)
    connection.sent.clear()
    door.on_messages([Credit(3, 3)])
    await settle()
    assert connection.events() == [("a/1", 3)]
    # There is credit for two: they go in columns, and the third waits.
    node.emit_batch("c", [5, 5, 5])
    await settle()
    (batch,) = connection.taken(DeliveredBatch)
    assert dict(batch.wanted)[3] == np.array([0, 1], "<u4").tobytes()
    assert connection.events() == []
    door.on_messages([Credit(3, 1)])
    await settle()
    assert connection.events() == [("c/2", 3)]


# --- flow ------------------------------------------------------------------------------------


@on_loop
async def test_credit_bounds_what_is_sent_and_order_is_kept():
    node = FakeNode()
    door, connection = door_of(node)
    door.on_messages([wanted(1, credit=2), wanted(2, credit=9)])
    node.emit(*range(6))
    await settle()
    sent = connection.events()
    assert [name for name, *numbers in sent if 1 in numbers] == ["e0", "e1"]
    assert [name for name, *numbers in sent if 2 in numbers] == [f"e{n}" for n in range(6)]
    door.on_messages([Credit(1, 3)])
    node.emit(6)
    await settle()
    assert connection.events() == [("e2", 1), ("e3", 1), ("e4", 1), ("e6", 2)]
    door.on_messages([Credit(1, 9)])
    await settle()
    assert connection.events() == [("e5", 1), ("e6", 1)]


@pytest.mark.parametrize(
    ("overflow", "kept"),
    [(Overflow.DROP_OLDEST, [7, 8, 9]), (Overflow.DROP_NEWEST, [1, 2, 3])],
)
@on_loop
async def test_a_full_queue_drops_as_it_is_told(overflow, kept):
    node = FakeNode()
    door, connection = door_of(node)
    door.on_messages([wanted(1, credit=1, queue_max=3, overflow=overflow), wanted(2)])
    connection.taken(SubscriptionState)
    node.emit(*range(10))
    await settle()
    assert [name for name, *numbers in connection.events() if 2 in numbers] == [
        f"e{n}" for n in range(10)
    ]
    door.on_messages([Credit(1, 10)])
    await settle()
    assert connection.events() == [(f"e{n}", 1) for n in kept]
    assert connection.taken(SubscriptionState) == [SubscriptionState(1, READY, dropped=6)]
    assert door.status()["dropped_events"] == 6
    door.on_messages([Credit(1, 1)])
    assert connection.taken(SubscriptionState) == []


@on_loop
async def test_a_full_queue_may_end_the_subscription():
    node = FakeNode()
    door, connection = door_of(node)
    door.on_messages([wanted(1, credit=0, queue_max=3, overflow=Overflow.END)])
    node.emit(*range(5))
    state = connection.taken(SubscriptionState)[-1]
    assert state.phase is ENDED and "3 events" in state.detail and state.dropped == 1
    assert not node.sinks


@on_loop
async def test_large_events_count_by_their_size():
    node = FakeNode()
    door, _ = door_of(node)
    door.on_messages([wanted(1, credit=0, queue_max=100)])
    body = bytes(16 * 1_024 * 1_024)
    for number in range(6):
        node.deliver(Publication(f"e{number}", {}, body))
    assert door.status() | {"name": ""} == {
        "name": "",
        "identity": "",
        "subscriptions": 1,
        "queued_events": 3,
        "queued_bytes": 3 * (len(body) + ENTRY_BYTES + 2),
        "dropped_events": 3,
        "publications_under_way": 0,
    }


@on_loop
async def test_a_large_event_takes_the_place_of_several():
    node = FakeNode()
    door, _ = door_of(node)
    door.on_messages([wanted(1, credit=0, queue_max=100)])
    small, large = bytes(12 * 1_024 * 1_024), bytes(30 * 1_024 * 1_024)
    for number, body in enumerate([small] * 5 + [large]):
        node.emit_body(number, body)
    assert door.status()["queued_events"] == 3 and door.status()["dropped_events"] == 3


@on_loop
async def test_a_full_connection_holds_events_back_and_goes_on():
    node = FakeNode()
    door, connection = door_of(node)
    door.on_messages([wanted(1), wanted(2)])
    connection.full = True
    node.emit(1)
    await settle()
    node.emit(2, 3)
    await settle()
    assert connection.events() == [("e1", 1, 2)]
    connection.full = False
    connection.then()
    node.emit(4)
    await settle()
    found = connection.events()
    assert sorted(found) == sorted([("e2", 1), ("e3", 1), ("e2", 2), ("e3", 2), ("e4", 1, 2)])


@on_loop
async def test_what_has_waited_overtakes_nothing():
    node = FakeNode()
    door, connection = door_of(node)
    door.on_messages([wanted(1, "n > 1", credit=0), wanted(2, credit=0)])
    node.emit(1, 2, 3)
    door.on_messages([Credit(1, 9), Credit(2, 9)])
    await settle()
    sent = connection.events()
    assert [name for name, *numbers in sent if 1 in numbers] == ["e2", "e3"]
    assert [name for name, *numbers in sent if 2 in numbers] == ["e1", "e2", "e3"]


# --- durable ---------------------------------------------------------------------------------


@on_loop
async def test_a_durable_subscription_is_left_and_found_again():
    node = FakeNode()
    door, connection = door_of(node, "ann")
    door.on_messages([wanted(1, durable="orders")])
    node.emit(1, 2)
    await settle()
    first, second = connection.taken(Delivered)
    assert first.positions == (1,) and second.positions == (2,)
    door.on_messages([Acknowledged(1, 1)])
    door.on_lost("gone")
    assert not node.sinks and list(node.durable_filters) == ["durable/ann/orders"]
    node.emit(3)
    again, connection = door_of(node, "ann")
    again.on_messages([wanted(8, durable="orders")])
    await settle()
    assert connection.events() == [("e2", 8), ("e3", 8)]
    again.on_messages([UnsubscribeWanted(8)])
    assert node.durable_filters and not node.sinks
    again.on_messages([wanted(9, durable="orders"), UnsubscribeWanted(9, forget=True)])
    assert not node.durable_filters and not node.sinks


@on_loop
async def test_a_slow_durable_consumer_loses_nothing():
    node = FakeNode()
    door, connection = door_of(node)
    door.on_messages([wanted(1, durable="d", queue_max=4, credit=1)])
    node.emit(*range(1, 40))
    got = []
    while len(got) < 39:
        await settle()
        before = len(got)
        for message in connection.taken(Delivered):
            assert door.status()["queued_events"] <= 5
            got.append(message.publication.id)
            door.on_messages([Acknowledged(1, message.positions[0]), Credit(1, 1)])
        assert len(got) > before, "nothing moves"
    await settle()
    assert got == [f"e{n}" for n in range(1, 40)] and connection.events() == []
    assert door.status()["dropped_events"] == 0


@on_loop
async def test_the_last_consumer_of_a_durable_subscription_has_it():
    node, holders = FakeNode(), DurableHolders()
    former, first = door_of(node, holders=holders)
    later, second = door_of(node, holders=holders, label="c2")
    former.on_messages([wanted(1, durable="d")])
    later.on_messages([wanted(1, durable="d")])
    assert first.taken(SubscriptionState)[-1].phase is ENDED
    assert second.taken(SubscriptionState)[-1].phase is READY
    former.on_lost("gone")
    node.emit(1)
    await settle()
    assert first.events() == [] and second.events() == [("e1", 1)]


@on_loop
async def test_durable_names_belong_to_identities():
    node, holders = FakeNode(), DurableHolders()
    one, first = door_of(node, "ann", holders=holders)
    two, _ = door_of(node, "bob", holders=holders)
    one.on_messages([wanted(1, durable="d")])
    two.on_messages([wanted(1, durable="d")])
    assert [state.phase for state in first.taken(SubscriptionState)] == [READY]
    assert sorted(node.durable_filters) == ["durable/ann/d", "durable/bob/d"]


# --- publishing ------------------------------------------------------------------------------


@on_loop
async def test_answers_about_publications_come_together():
    node = FakeNode()
    door, connection = door_of(node)
    messages = [PublishWanted(publication(n, unwanted=n == 2), 10 + n) for n in range(4)]
    door.on_messages(messages)
    await settle()
    assert connection.taken(PublishEnded) == [PublishEnded((10, 11, 13), ((12, "no promise"),))]


@on_loop
async def test_an_event_published_twice_ends_twice():
    node = FakeNode()
    node.slow_answers = True
    door, connection = door_of(node)
    door.on_messages([PublishWanted(publication(1), 10), PublishWanted(publication(1), 11)])
    assert len(node.published) == 1
    node.answer()
    await settle()
    assert connection.taken(PublishEnded) == [PublishEnded((10, 11))]


@on_loop
async def test_a_subscription_asked_for_after_an_event_does_not_get_it():
    node = FakeNode()
    door, connection = door_of(node)
    door.on_messages(
        [
            wanted(1),
            PublishWanted(publication(1), 10),
            wanted(2),
            PublishWanted(publication(2), 11),
        ]
    )
    await settle()
    assert connection.events() == [("e1", 1), ("e2", 1, 2)]


@on_loop
async def test_a_congested_node_is_not_pressed():
    node = FakeNode()
    node.congested = True
    door, connection = door_of(node)
    door.on_messages([PublishWanted(publication(1), 1)])
    await settle()
    door.on_messages([PublishWanted(publication(2), 2)])
    await settle()
    assert not node.published and connection.is_held
    node.congested = False
    node.relieved.set()
    await until(lambda: len(node.published) == 2)
    await settle()
    assert not connection.is_held
    assert [each.id for each in node.published] == ["e1", "e2"]
    door.on_messages([PublishWanted(publication(3), 3)])
    assert len(node.published) == 3


@on_loop
async def test_a_relief_that_nobody_tells_of_is_noticed():
    node = FakeNode()
    node.congested = True
    door, _ = door_of(node)
    door.on_messages([PublishWanted(publication(1), 1)])
    await settle()
    node.congested = False
    await until(lambda: node.published)


@on_loop
async def test_attributes_that_cannot_be_read_are_refused():
    node = FakeNode()
    door, connection = door_of(node)

    def unpack(_):
        raise ValueError("nonsense")

    door.on_messages([PublishWanted(Publication("e1", None, packed=b"\xc1", unpack=unpack), 1)])
    await settle()
    assert connection.taken(PublishEnded) == [
        PublishEnded((), ((1, "its attributes cannot be read"),))
    ]
    assert not node.published


@on_loop
async def test_open_publications_are_bounded():
    node = FakeNode()
    node.slow_answers = True
    door, connection = door_of(node, rules=OpenRules(DoorLimits(publications_open_max=2)))
    door.on_messages([PublishWanted(publication(n), n) for n in range(3)])
    await settle()
    ((number, reason),) = connection.taken(PublishEnded)[0].failures
    assert number == 2 and "more than 2" in reason


@on_loop
async def test_an_event_that_comes_again_and_again_counts_each_time():
    node = FakeNode()
    node.slow_answers = True
    door, connection = door_of(node, rules=OpenRules(DoorLimits(publications_open_max=2)))
    door.on_messages([PublishWanted(publication(1), n) for n in range(3)])
    await settle()
    assert [number for number, _ in connection.taken(PublishEnded)[0].failures] == [2]
    node.answer()
    door.on_messages([PublishWanted(publication(2), 3)])
    node.answer()
    await settle()
    assert connection.taken(PublishEnded) == [PublishEnded((0, 1, 3))]


@on_loop
async def test_batches_wait_for_a_congested_node_in_their_order():
    node = FakeNode()
    node.takes_batches = node.congested = True
    connection = Listed()
    door = ClientDoor(node, connection, NetworkName("chord", "net"), label="c1")
    door.on_messages([ClientHello(CLIENT_VERSION)])
    assert connection.taken(ClientWelcome)[0].features == (ELSEWHERE, KEYS, BATCHES)
    batch = Batch.of("b", pa.table({"n": [1, 2]}))
    messages = [PublishWanted(publication(1), 1), PublishBatchWanted(batch, 2)]
    door.on_messages([*messages, PublishWanted(publication(3), 3)])
    await settle()
    assert not node.published and connection.is_held
    node.congested = False
    node.relieved.set()
    await until(lambda: len(node.published) == 4)
    assert [each.id for each in node.published] == ["e1", "b/0", "b/1", "e3"]
    await settle()
    assert connection.taken(PublishEnded) == [PublishEnded((1, 2, 3))]


@on_loop
async def test_batches_are_not_for_clients_whose_events_are_looked_at():
    class Rules(OpenRules):
        def bounds_publishing(self, identity):
            return True

    node = FakeNode()
    node.takes_batches = True
    door, connection = door_of(node, rules=Rules())
    door.on_messages([PublishBatchWanted(Batch.of("b", pa.table({"n": [1]})), 2)])
    await settle()
    assert connection.taken(PublishEnded)[0].failures[0][0] == 2 and not node.published


@on_loop
async def test_a_batch_that_cannot_be_read_is_refused():
    node = FakeNode()
    node.takes_batches = True
    connection = Listed()
    door = ClientDoor(node, connection, NetworkName("chord", "net"), label="c1")
    batch = Batch("b", np.arange(1, dtype=np.uint32), 1, packed=b"nonsense")
    door.on_messages([ClientHello(CLIENT_VERSION), PublishBatchWanted(batch, 2)])
    await settle()
    assert connection.taken(PublishEnded) == [PublishEnded((), ((2, "its events cannot be read"),))]


# --- status ----------------------------------------------------------------------------------


@on_loop
async def test_questions_about_the_node_are_answered_one_at_a_time():
    door, connection = door_of(FakeNode())
    door.on_messages([StatusWanted(number) for number in range(STATUS_WAITING_MAX + 1)])
    await settle()
    assert {each.number for each in connection.taken(StatusGiven)} == {0}
    connection.full = True
    await until(lambda: connection.then is not None)
    assert not connection.taken(StatusGiven)
    connection.full = False
    connection.then()
    await settle()
    assert {each.number for each in connection.taken(StatusGiven)} == {1}
    door.on_messages([StatusWanted(100), StatusWanted(101)])
    assert connection.taken(ClientRefused) and connection.closed


@on_loop
async def test_a_long_status_comes_in_parts():
    door, connection = door_of(FakeNode())
    door.on_messages([StatusWanted(4)])
    parts = connection.taken(StatusGiven)
    assert [(part.number, part.last) for part in parts] == [(4, False), (4, True)]
    assert b"".join(part.content for part in parts).startswith(b'{"node": "fake:1"')
