"""The Python API over a fake node, through a real gate and door, within the process."""

import asyncio

import pyarrow as pa
import pytest

from client.fake_node import FakeNode
from client.turns import on_loop, settle, until
from peersub import Event, Filter, FilterError
from peersub.client import (
    ClientError,
    ConnectError,
    NodeClient,
    NotReadyError,
    PublishFailedError,
    PublishTimedOutError,
    SubscriptionEndedError,
)
from peersub.client import session as session_module
from peersub.client.local import LocalLink
from peersub.client.session import Session
from peersub.overlays.core.effects import HAS_LEFT
from peersub.overlays.routing.settings import RoutingSettings
from peersub.runtime.client_gate import ClientGate
from peersub.runtime.client_ports import NetworkName


class World:
    """A fake node, and a client of it whose link can break."""

    def __init__(self):
        self.node = FakeNode()
        self.gate = ClientGate(self.node, NetworkName("chord", "net"))
        self.session = Session("tester")
        self.link = None
        self.client = NodeClient(self.session, self.end)
        self.is_ended = False

    async def end(self):
        self.is_ended = True

    async def connect(self):
        self.link = LocalLink(self.session, self.gate)
        await self.session.greet(self.link)
        return self

    def lose(self, reason="cut"):
        self.link.lose(reason)


async def world():
    return await World().connect()


def ids(deliveries):
    return [delivery.event.id for delivery in deliveries]


# --- subscribing -----------------------------------------------------------------------------


@on_loop
async def test_events_come_as_published():
    here = await world()
    async with here.client.subscribe("price > 10") as subscription:
        await subscription.ready()
        assert subscription.is_ready and not subscription.is_durable
        await here.client.publish({"price": 5})
        event_id = await here.client.publish({"price": 12.5, "symbol": "ACME"}, body=b"<a/>")
        assert await anext(subscription) == Event(
            event_id, {"price": 12.5, "symbol": "ACME"}, b"<a/>"
        )
    assert not here.node.sinks


@on_loop
async def test_deliveries_say_how_they_came():
    here = await world()
    async with here.client.subscribe("TRUE") as subscription:
        here.node.emit(1)
        async for delivery in subscription.deliveries():
            assert (delivery.event.id, delivery.hops, delivery.position) == ("e1", 2, None)
            break


@on_loop
async def test_a_closed_subscription_hands_out_what_it_has_and_ends():
    here = await world()
    subscription = here.client.subscribe("TRUE")
    here.node.emit(1, 2)
    await until(lambda: subscription.waiting == 2)
    await subscription.close()
    await subscription.close()
    assert [event.id async for event in subscription] == ["e1", "e2"]
    assert await subscription.take() == []
    assert subscription.status()["phase"] == "ended"


@on_loop
async def test_closing_wakes_who_waits():
    here = await world()
    subscription = here.client.subscribe("TRUE")
    waiting = asyncio.create_task(subscription.take())
    await settle()
    await here.client.close()
    assert await waiting == [] and here.is_ended
    with pytest.raises(ClientError, match="closed"):
        here.client.subscribe("TRUE")
    with pytest.raises(ClientError, match="closed"):
        await here.client.publish({})


@on_loop
async def test_a_filter_that_is_none_is_refused_at_once():
    here = await world()
    with pytest.raises(FilterError):
        here.client.subscribe("price >")
    with pytest.raises(ValueError, match="durable="):
        here.client.subscribe("TRUE", since="earliest")
    with pytest.raises(ValueError, match="drop_oldest, drop_newest, end"):
        here.client.subscribe("TRUE", overflow="spill")
    with pytest.raises(ValueError, match="at least 1"):
        here.client.subscribe("TRUE", queue_max=0)
    assert not here.node.sinks


@on_loop
async def test_a_refused_subscription_says_why_wherever_it_is_asked():
    here = await world()
    here.node.refusal = "this node is full"
    with pytest.raises(SubscriptionEndedError, match="this node is full"):
        async with here.client.subscribe("TRUE"):
            pass
    with pytest.raises(SubscriptionEndedError, match="this node is full"):
        await here.client.subscribe("TRUE").ready()
    with pytest.raises(SubscriptionEndedError, match="this node is full"):
        await anext(here.client.subscribe("TRUE"))


@on_loop
async def test_ready_names_who_has_not_answered():
    here = await world()
    here.node.is_ready_at_once, here.node.waiting = False, ("n7:1", "n8:1")
    async with here.client.subscribe("TRUE") as subscription:
        with pytest.raises(NotReadyError, match="n7:1, n8:1") as caught:
            await subscription.ready(timeout=0)
        assert caught.value.waiting_on == ("n7:1", "n8:1")
        assert isinstance(caught.value, TimeoutError)
        waiting = asyncio.create_task(subscription.ready())
        await settle()
        assert not waiting.done()
        here.node.be_ready()
        await waiting


@on_loop
async def test_take_waits_for_the_first_only():
    here = await world()
    async with here.client.subscribe("TRUE") as subscription:
        assert await subscription.take(timeout=0) == []
        here.node.emit(*range(5))
        await until(lambda: subscription.waiting == 5)
        assert ids(await subscription.take(3)) == ["e0", "e1", "e2"]
        assert ids(await subscription.take()) == ["e3", "e4"]


@on_loop
async def test_what_is_not_taken_waits_in_bounds_and_is_counted():
    here = await world()
    async with (
        here.client.subscribe("TRUE", queue_max=10) as slow,
        here.client.subscribe("TRUE", queue_max=10_000) as other,
    ):
        here.node.emit(*range(100))
        await settle()
        assert slow.waiting == 10
        taken = ids(await slow.take())
        while len(taken) < 20:
            taken += ids(await slow.take())
        # Ten were on the way, and the last ten waited at the node.
        assert taken == [f"e{n}" for n in [*range(10), *range(90, 100)]]
        await until(lambda: slow.dropped)
        assert slow.dropped == 80 and other.dropped == 0
        assert len(await other.take()) == 100


@on_loop
async def test_a_subscription_may_end_when_too_much_waits():
    here = await world()
    async with here.client.subscribe("TRUE", queue_max=1, overflow="end") as subscription:
        here.node.emit(1, 2, 3)
        with pytest.raises(SubscriptionEndedError, match="queue of 1 events was full"):
            async for _ in subscription:
                pass
        assert subscription.dropped == 1


@on_loop
async def test_credit_is_given_back_for_ever():
    here = await world()
    async with here.client.subscribe("TRUE") as subscription:
        for start in range(0, 10_000, 500):
            here.node.emit(*range(start, start + 500))
            taken = []
            while len(taken) < 500:
                taken += ids(await subscription.take(7))
            assert taken == [f"e{n}" for n in range(start, start + 500)]
        assert subscription.dropped == 0


@on_loop
async def test_xpath_filters():
    here = await world()
    async with here.client.subscribe(Filter.xpath("/news/p")) as subscription:
        await here.client.publish({}, body=b"<news/>")
        wanted = await here.client.publish({}, body=b"<news><p/></news>")
        assert (await anext(subscription)).id == wanted


# --- publishing ------------------------------------------------------------------------------


@on_loop
async def test_who_names_an_event():
    here = await world()
    assert await here.client.publish({"id": 7}) != "7"
    assert await here.client.publish({"id": 7}, id="mine") == "mine"
    assert await here.client.publish(Event("own", {"id": 7})) == "own"
    # An attribute is the id only where the publisher says so.
    await here.client.publish_many([{"id": 8, "name": 9}], id_attribute="name")
    assert here.node.published[-1].id == "9"
    drawn = {await here.client.publish({"a": 1}) for _ in range(5)}
    assert len(drawn) == 5 and all(len(name) == 32 for name in drawn)
    assert here.node.published[0].attributes == {"id": 7}


@on_loop
async def test_what_cannot_travel_is_refused():
    here = await world()
    with pytest.raises(ValueError, match="64 bytes"):
        await here.client.publish({}, id="x" * 65)
    with pytest.raises(ValueError, match="put large content into the body"):
        await here.client.publish({"a": "x" * 2_000_000})
    with pytest.raises(TypeError, match="not str"):
        await here.client.publish("price = 1")
    with pytest.raises(ValueError, match="best_effort or at_least_once"):
        await here.client.publish({}, delivery="exactly_once")
    assert not here.node.published


@on_loop
async def test_a_promise_that_is_not_kept_raises():
    here = await world()
    with pytest.raises(PublishFailedError, match="'e' was not published: no promise") as caught:
        await here.client.publish({"unwanted": True}, id="e")
    assert caught.value.failures == (("e", "no promise"),)
    here.node.slow_answers = True
    with pytest.raises(PublishTimedOutError, match="within 0 s"):
        await here.client.publish({}, delivery="at_least_once", timeout=0)


@on_loop
async def test_an_acknowledged_event_waits_for_its_end():
    here = await world()
    here.node.slow_answers = True
    publishing = asyncio.create_task(here.client.publish({}, id="e", delivery="at_least_once"))
    await settle()
    assert not publishing.done() and here.node.published[0].delivery == 1
    here.node.answer()
    assert await publishing == "e"


@on_loop
async def test_many_events_at_once():
    here = await world()
    summary = await here.client.publish_many({"n": n} for n in range(1_000))
    assert summary.published == 1_000 and summary.failed == 0
    assert [each.attributes["n"] for each in here.node.published] == list(range(1_000))
    await here.client.publish_many([])


@on_loop
async def test_a_table_is_published_row_by_row():
    here = await world()
    table = pa.table({"id": ["a", "b"], "price": [1.5, None]})
    assert (await here.client.publish_many(table, id_attribute="id")).published == 2
    assert [(each.id, dict(each.attributes)) for each in here.node.published] == [
        ("a", {"id": "a", "price": 1.5}),
        ("b", {"id": "b", "price": None}),
    ]


def rows_of(count, **more):
    return [{"n": n, "s": "x", **more} for n in range(count)]


@on_loop
async def test_many_events_that_are_alike_travel_in_columns():
    here = World()
    here.node.takes_batches = True
    await here.connect()
    events = [*rows_of(1_500), {"n": "mixed", "s": None}]
    async with here.client.subscribe("TRUE", queue_max=10_000) as subscription:
        assert (await here.client.publish_many(iter(events))).published == 1_501
        assert [len(batch) for batch in here.node.batches] == [1_024, 477]
        taken = []
        while len(taken) < 1_501:
            taken += await subscription.take()
    assert [delivery.event.attributes for delivery in taken] == events
    assert len({delivery.event.id for delivery in taken}) == 1_501
    table = pa.table({"n": range(3_000)})
    assert (await here.client.publish_many(table, delivery="at_least_once")).published == 3_000
    assert [len(batch) for batch in here.node.batches[2:]] == [1_024, 1_024, 952]
    assert all(batch.delivery == 1 for batch in here.node.batches[2:])


@pytest.mark.parametrize(
    "events",
    [
        rows_of(20),
        rows_of(200, name="given"),
        [*rows_of(200), {"n": 1}],
        [*rows_of(200), {"n": 1, "s": b"bytes"}],
        [*rows_of(200), {"n": 2**70, "s": ""}],
        [*rows_of(200), {"n": [1], "s": ""}],
        [*rows_of(200), Event("e", {"n": 1, "s": ""})],
        rows_of(200, long="x" * 10_000),
        [{} for _ in range(200)],
        pa.table({"name": range(200)}),
    ],
    ids=lambda events: str(len(events)),
)
@on_loop
async def test_other_events_travel_one_by_one(events):
    here = World()
    here.node.takes_batches = True
    await here.connect()
    count = len(events)
    named = "name" if "name" in str(events) else None
    assert (await here.client.publish_many(events, id_attribute=named)).published == count
    assert not here.node.batches
    assert len(here.node.published) == (1 if "given" in str(events) else count)


@on_loop
async def test_batches_under_way_are_sent_again_or_fail_with_the_connection():
    here = World()
    here.node.takes_batches = here.node.slow_answers = True
    await here.connect()
    quick = asyncio.create_task(here.client.publish_many(rows_of(200)))
    sure = asyncio.create_task(here.client.publish_many(rows_of(200), delivery="at_least_once"))
    await until(lambda: len(here.node.batches) == 2)
    here.lose()
    with pytest.raises(PublishFailedError, match="200 of 200 events"):
        await quick
    here.node.open.clear()
    await here.connect()
    await until(lambda: len(here.node.batches) == 3)
    here.node.answer()
    assert (await sure).published == 200
    assert here.node.batches[1] == here.node.batches[2]


@on_loop
async def test_some_of_many_may_fail():
    here = await world()
    rows = [{"id": n, "unwanted": n % 3 == 0} for n in range(9)]
    with pytest.raises(PublishFailedError, match=r"3 of 9 events .*'0': no promise") as caught:
        await here.client.publish_many(rows, id_attribute="id")
    assert caught.value.failed == 3 and caught.value.published == 6
    assert [name for name, _ in caught.value.failures] == ["0", "3", "6"]


@on_loop
async def test_what_comes_before_an_event_that_cannot_travel_is_published():
    here = await world()
    with pytest.raises(TypeError):
        await here.client.publish_many([{"n": 1}, {"n": 2}, 3, {"n": 4}])
    assert [each.attributes["n"] for each in here.node.published] == [1, 2]


@on_loop
async def test_never_more_than_a_window_is_under_way(monkeypatch):
    monkeypatch.setattr(session_module, "PUBLICATIONS_OPEN_MAX", 600)
    here = await world()
    here.node.slow_answers = True
    taken = 0

    def events():
        nonlocal taken
        for n in range(2_000):
            taken += 1
            yield {"n": n}

    publishing = asyncio.create_task(here.client.publish_many(events()))
    while not publishing.done():
        await settle()
        under_way = len(here.node.open)
        assert under_way <= 600 + 256 and taken <= len(here.node.published) + 256
        here.node.answer()
    assert (await publishing).published == 2_000


# --- durable ---------------------------------------------------------------------------------


@on_loop
async def test_an_event_counts_as_taken_when_the_next_is_asked_for():
    here = await world()
    async with here.client.subscribe("TRUE", durable="d") as subscription:
        here.node.emit(1, 2, 3)
        await until(lambda: subscription.waiting == 3)
        assert ids(await subscription.take()) == ["e1", "e2", "e3"]
        await settle()
        assert here.node.acknowledged == {"durable//d": 0}
        waiting = asyncio.create_task(subscription.take())
        await settle()
        assert here.node.acknowledged == {"durable//d": 3}
        here.node.emit(4)
        assert (await waiting)[0].position == 4
    # Left in good order: the last one was taken, too.
    assert here.node.acknowledged == {"durable//d": 4}


@on_loop
async def test_an_event_whose_handling_fails_comes_again():
    here = await world()
    here.node.emit(1, 2)

    async def fail_at_the_second():
        async with here.client.subscribe("TRUE", durable="d", since="earliest") as subscription:
            async for event in subscription:
                1 / (event.attributes["n"] - 2)

    with pytest.raises(ZeroDivisionError):
        await fail_at_the_second()
    async with here.client.subscribe("TRUE", durable="d") as subscription:
        assert (await anext(subscription)).id == "e2"


@on_loop
async def test_acknowledging_by_hand():
    here = await world()
    options = {"durable": "d", "since": 0, "auto_acknowledge": False}
    here.node.emit(1, 2, 3, 4)
    async with here.client.subscribe("TRUE", **options) as subscription:
        first, second, third, _ = await subscription.take(4)
        await subscription.acknowledge(second)
        assert here.node.acknowledged == {"durable//d": 2}
        with pytest.raises(ValueError, match="'e1' does not wait"):
            await subscription.acknowledge(first)
        await subscription.acknowledge(third.event)
        assert here.node.acknowledged == {"durable//d": 3}
        await subscription.acknowledge()
        assert here.node.acknowledged == {"durable//d": 4}
        await subscription.acknowledge()
    async with here.client.subscribe("TRUE") as ephemeral:
        await ephemeral.acknowledge()


@on_loop
async def test_a_durable_subscription_can_be_given_up():
    here = await world()
    subscription = here.client.subscribe("TRUE", durable="d")
    await subscription.accepted()
    await subscription.close(forget=True)
    assert not here.node.durable_filters


# --- lost connections ------------------------------------------------------------------------


@on_loop
async def test_a_durable_subscription_goes_on_without_doubles():
    here = await world()
    async with here.client.subscribe("TRUE", durable="d") as subscription:
        here.node.emit(1, 2, 3, 4)
        await until(lambda: subscription.waiting == 4)
        assert (await anext(subscription)).id == "e1"
        assert (await anext(subscription)).id == "e2"
        here.lose()
        assert not here.node.sinks and not here.client.is_connected
        here.node.emit(5)
        await here.connect()
        here.node.emit(6)
        found = [(await anext(subscription)).id for _ in range(4)]
        assert found == ["e3", "e4", "e5", "e6"]
        assert await subscription.take(timeout=0) == []
        assert subscription.gaps == 0
    assert here.node.acknowledged == {"durable//d": 6}


@on_loop
async def test_doubles_use_up_no_credit():
    here = await world()
    options = {"durable": "d", "queue_max": 4, "auto_acknowledge": False}
    async with here.client.subscribe("TRUE", **options) as subscription:
        here.node.emit(1, 2, 3, 4)
        assert [(await anext(subscription)).id for _ in range(4)] == ["e1", "e2", "e3", "e4"]
        here.lose()
        await here.connect()
        here.node.emit(5)
        assert (await anext(subscription)).id == "e5"


@on_loop
async def test_other_subscriptions_are_made_anew_and_count_a_gap():
    here = await world()
    async with here.client.subscribe("TRUE") as subscription:
        await subscription.ready()
        here.node.emit(1)
        await until(lambda: subscription.waiting)
        here.lose()
        here.node.emit(2)
        assert not subscription.is_ready
        await here.connect()
        await subscription.ready()
        here.node.emit(3)
        assert (await anext(subscription)).id == "e1"
        assert (await anext(subscription)).id == "e3"
        assert subscription.gaps == 1


@on_loop
async def test_credit_survives_a_lost_connection():
    here = await world()
    async with here.client.subscribe("TRUE", queue_max=8) as subscription:
        for start in (0, 100, 200):
            here.node.emit(*range(start, start + 5))
            await until(lambda: subscription.waiting == 5)
            here.lose()
            await here.connect()
            await subscription.accepted()
            here.node.emit(*range(start + 5, start + 12))
            await settle()
            assert subscription.waiting == 8  # There is credit for no more.
            taken = []
            while len(taken) < 12:
                taken += ids(await subscription.take())
            assert taken == [f"e{n}" for n in range(start, start + 12)]


@on_loop
async def test_what_nodes_may_have_forgotten_is_not_sent_again(monkeypatch):
    routing = RoutingSettings()
    repeated_ms = routing.delegations.give_up_ms + routing.replay_horizon_ms
    assert session_module.SEND_AGAIN_MS + repeated_ms <= routing.home.history_horizon_ms
    here = await world()
    here.node.slow_answers, now_ms = True, 0
    monkeypatch.setattr(here.session, "_now_ms", lambda: now_ms)
    first = asyncio.create_task(here.client.publish({}, id="a", delivery="at_least_once"))
    await settle()
    now_ms = 1
    second = asyncio.create_task(here.client.publish({}, id="b", delivery="at_least_once"))
    await settle()
    here.lose()
    third = asyncio.create_task(here.client.publish({}, id="c", delivery="at_least_once"))
    await settle()
    now_ms += session_module.SEND_AGAIN_MS
    await here.connect()
    with pytest.raises(PublishFailedError, match="for too long"):
        await first
    await settle()
    assert [each.id for each in here.node.published] == ["a", "b", "b", "c"]
    here.node.answer()
    assert (await second, await third) == ("b", "c")


@on_loop
async def test_acknowledged_publications_are_sent_again_and_others_fail():
    here = await world()
    here.node.slow_answers = True
    sure = asyncio.create_task(here.client.publish({}, id="sure", delivery="at_least_once"))
    quick = asyncio.create_task(here.client.publish({}, id="quick"))
    await settle()
    here.lose("a tractor")
    with pytest.raises(PublishFailedError, match="a tractor"):
        await quick
    with pytest.raises(PublishFailedError, match="no connection"):
        await here.client.publish({})
    later = asyncio.create_task(here.client.publish({}, id="later", delivery="at_least_once"))
    await settle()
    here.node.open.clear()
    await here.connect()
    await settle()
    assert [each.id for each in here.node.published] == ["sure", "quick", "sure", "later"]
    here.node.answer()
    assert (await sure, await later) == ("sure", "later")


@on_loop
async def test_what_a_node_did_not_take_because_it_leaves_goes_to_the_next():
    here = await world()
    here.node.slow_answers = True
    sure = asyncio.create_task(here.client.publish({}, id="sure", delivery="at_least_once"))
    quick = asyncio.create_task(here.client.publish({}, id="quick"))
    await settle()
    here.node.answer(HAS_LEFT)
    with pytest.raises(PublishFailedError, match="taken leave"):
        await quick
    here.lose()
    await here.connect()
    await settle()
    assert [each.id for each in here.node.published] == ["sure", "quick", "sure"]
    here.node.answer()
    assert await sure == "sure"


@on_loop
async def test_status_comes_whole_or_not_at_all():
    here = await world()
    async with here.client.subscribe("TRUE"):
        status = await here.client.status()
    assert status["node"] == "fake:1" and len(status["long"]) == 100_000
    assert status["clients"]["client-1"]["name"] == "tester"
    assert status["clients"]["client-1"]["subscriptions"] == 1
    asking = asyncio.create_task(here.client.status())
    await asyncio.sleep(0)
    here.lose()
    with pytest.raises(ConnectError):
        await asking
    with pytest.raises(ConnectError):
        await here.client.status()
