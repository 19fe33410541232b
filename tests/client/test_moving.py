"""Subscriptions that move between nodes, and change: each event once, none missed, or no move.

Two fake nodes, through real gates and doors, within the process: what one of them is told, the
other is told as well, sooner or later.
"""

import asyncio

import pytest

from client.fake_node import FakeNode
from client.turns import on_loop, settle, until
from peersub import FilterError
from peersub.client import ConnectError, NodeClient, NotReadyError, SubscriptionEndedError, moving
from peersub.client.local import LocalLink
from peersub.client.moving import Moves
from peersub.client.session import Session
from peersub.filters.filter import Filter
from peersub.overlays.core.event_keys import network_key
from peersub.overlays.core.publication import Publication
from peersub.runtime.client_gate import ClientGate
from peersub.runtime.client_ports import NetworkName, OpenRules
from peersub.wire.client_messages import ClientHello, MoveProposed, SubscribeWanted


class Narrowing(OpenRules):
    """Lets clients see little."""

    def permit_subscribe(self, identity, wanted):
        return wanted.intersection(Filter("n < 3"))


class Place:
    """A fake node and its gate."""

    def __init__(self, name, network="net"):
        self.node = FakeNode(name)
        self.node.proposes_moves = True
        self.gate = ClientGate(self.node, NetworkName("dag", network))
        self.links = []
        self.rules = None

    def link(self, session, on_lost=None):
        link = LocalLink.__new__(LocalLink)
        opened = self.gate.open
        self.gate.open = lambda connection: opened(connection, self.rules)
        link.__init__(session, self.gate, on_lost)
        self.gate.open = opened
        self.links.append(link)
        return link

    def sink_names(self):
        return list(self.node.sinks)

    def propose(self, node):
        for _, sink, _ in self.node.sinks.values():
            sink.move_proposed(node)


class World:
    """A client at home, and another node that it can reach."""

    def __init__(self, network="net"):
        self.home = Place("home:1")
        self.other = Place("other:1", network)
        self.session = Session("tester", moves=True)
        self.is_reachable = True
        self.dialled = 0
        self.client = NodeClient(self.session, self.end, Moves(self.session, self.dial))

    async def end(self):
        pass

    async def dial(self, node):
        self.dialled += 1
        await asyncio.sleep(0)
        if not self.is_reachable or node != "other:1":
            raise ConnectError(f"no node at {node}")
        session = Session("tester", moves=True)
        await session.greet(self.other.link(session, session.close))
        return session, self.end

    def emit(self, *numbers):
        """Events that are published somewhere: all nodes get them."""
        self.home.node.emit(*numbers)
        self.other.node.emit(*numbers)

    async def moved(self, subscription):
        """Let the subscription move, as far as it does."""
        self.home.propose("other:1")
        await settle()
        await until(lambda: not self.client._moves.is_moving(subscription))


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(moving, "OVERLAP_S", 0)


async def world(**options):
    made = World(**options)
    await made.session.greet(made.home.link(made.session))
    return made


async def numbers(subscription):
    await settle()
    return [delivery.event.attributes["n"] for delivery in await subscription.take(timeout=0)]


@on_loop
async def test_a_subscription_moves_and_its_reader_notices_nothing():
    here = await world()
    async with here.client, here.client.subscribe("n > 0", name="all") as subscription:
        here.emit(1, 2)
        assert subscription.node == "home:1"
        await here.moved(subscription)
        assert subscription.node == "other:1"
        assert (here.home.sink_names(), len(here.other.sink_names())) == ([], 1)
        assert list(here.other.node.moved.values()) == [True], "it is not to be sent on"
        here.emit(3)
        assert await numbers(subscription) == [1, 2, 3]
        assert (subscription.gaps, subscription.dropped) == (0, 0)
        assert here.client.node == "home:1"
        assert (await here.client.introduce())[:2] == ("home:1", "other:1")
    assert here.other.sink_names() == []


@on_loop
async def test_events_that_come_on_both_ways_are_handed_out_once(monkeypatch):
    monkeypatch.setattr(moving, "OVERLAP_S", 3_600)
    here = await world()
    async with here.client, here.client.subscribe("n > 0") as subscription:
        here.home.node.emit(1)
        here.home.propose("other:1")
        await until(lambda: here.other.sink_names())
        # What the old node had before the new one was asked, comes there, too, and later.
        here.other.node.emit(1, 2)
        here.home.node.emit(2, 3)
        assert await numbers(subscription) == [1, 2, 3]
        assert len(here.home.sink_names()) == len(here.other.sink_names()) == 1


@on_loop
async def test_what_another_publisher_calls_the_same_is_handed_out_as_well(monkeypatch):
    monkeypatch.setattr(moving, "OVERLAP_S", 3_600)
    here = await world()
    events = [Publication("e", {"n": n}, key=network_key(bytes(n))) for n in (1, 2)]
    async with here.client, here.client.subscribe("n > 0") as subscription:
        here.home.propose("other:1")
        await until(lambda: here.other.sink_names())
        for node in (here.home.node, here.other.node):
            for event in events:
                node.deliver(event)
        assert await numbers(subscription) == [1, 2]


@pytest.mark.parametrize("trouble", ["unreachable", "refused", "not-ready", "narrowed", "foreign"])
@on_loop
async def test_whatever_is_wrong_with_the_other_node_all_stays_as_it_was(trouble, monkeypatch):
    monkeypatch.setattr(moving, "READY_S", 0.001 if trouble == "not-ready" else 60)
    here = await world(network="another" if trouble == "foreign" else "net")
    here.is_reachable = trouble != "unreachable"
    here.other.node.refusal = "there are enough" if trouble == "refused" else None
    here.other.node.is_ready_at_once = trouble != "not-ready"
    here.other.rules = Narrowing() if trouble == "narrowed" else None
    async with here.client, here.client.subscribe("n > 0") as subscription:
        await here.moved(subscription)
        assert here.dialled == 1
        here.emit(1, 5)
        assert await numbers(subscription) == [1, 5]
        assert (subscription.node, subscription.gaps) == ("home:1", 0)
        assert (len(here.home.sink_names()), here.other.sink_names()) == (1, [])
        await until(lambda: not here.client._moves._away)


@on_loop
async def test_a_subscription_whose_new_node_is_lost_goes_home():
    here = await world()
    async with here.client, here.client.subscribe("n > 0") as subscription:
        await here.moved(subscription)
        here.other.links[-1].lose("cut")
        await subscription.ready()
        here.emit(1)
        assert await numbers(subscription) == [1]
        assert (subscription.node, subscription.gaps) == ("home:1", 1)
        # It may move again: there is a new link for that.
        await here.moved(subscription)
        assert (subscription.node, here.dialled) == ("other:1", 2)


@on_loop
async def test_a_client_whose_own_node_is_lost_meanwhile_stands_on_the_new_one(monkeypatch):
    monkeypatch.setattr(moving, "OVERLAP_S", 3_600)
    here = await world()
    async with here.client, here.client.subscribe("n > 0") as subscription:
        here.home.propose("other:1")
        await until(lambda: here.other.sink_names())
        await settle()
        here.home.links[0].lose("cut")
        assert (subscription.node, subscription.gaps) == ("other:1", 1)
        here.emit(1)
        assert await numbers(subscription) == [1]


@on_loop
async def test_several_subscriptions_share_the_links_and_end_them():
    here = await world()
    async with here.client:
        one, two = here.client.subscribe("n > 0"), here.client.subscribe("n > 1")
        await two.ready()
        here.home.propose("other:1")
        await until(lambda: one.node == two.node == "other:1")
        assert here.dialled == 1
        here.emit(1, 2)
        assert (await numbers(one), await numbers(two)) == ([1, 2], [2])
        await one.close()
        assert here.client._moves.nodes == ("other:1",)
        await two.close()
        assert here.client._moves.nodes == ()


@on_loop
async def test_more_events_than_the_window_come_on_a_leg_that_moved():
    here = await world()
    async with here.client, here.client.subscribe("n > 0", queue_max=8) as subscription:
        await here.moved(subscription)
        for number in range(1, 60):
            here.emit(number)
            assert await numbers(subscription) == [number]
        assert subscription.dropped == 0


@on_loop
async def test_durable_subscriptions_stay_where_their_log_is():
    here = await world()
    async with here.client, here.client.subscribe("n > 0", durable="d") as subscription:
        here.home.propose("other:1")
        await settle()
        assert (here.dialled, subscription.node) == (0, "home:1")


@pytest.mark.parametrize("features", [("moves",), ("batches",), ()])
@on_loop
async def test_only_clients_that_ask_for_it_hear_of_other_nodes(features):
    place, heard = Place("home:1"), []

    class Connection:
        identity = ""

        def send(self, messages):
            heard.extend(messages)

    door = place.gate.open(Connection())
    door.on_messages((ClientHello((1, 0), features), SubscribeWanted(7, Filter("n > 0"))))
    place.propose("other:1")
    told = [message for message in heard if isinstance(message, MoveProposed)]
    assert told == ([MoveProposed(7, "other:1")] if "moves" in features else [])


# --- changing --------------------------------------------------------------------------------


@on_loop
async def test_a_subscriber_changes_its_mind():
    here = await world()
    async with here.client, here.client.subscribe("n < 5") as subscription:
        here.emit(1, 7)
        here.home.node.is_ready_at_once = False
        changing = asyncio.ensure_future(subscription.change("n > 3"))
        await settle()
        # What matches both filters comes once, also now that there are two wishes.
        here.emit(2, 4, 8)
        assert await numbers(subscription) == [1, 2, 4, 8]
        for _, sink, _ in list(here.home.node.sinks.values()):
            sink.ready()
        await changing
        here.emit(3, 9)
        assert await numbers(subscription) == [9]
        assert (subscription.filter, subscription.gaps) == (Filter("n > 3"), 0)
        assert len(here.home.sink_names()) == 1
        assert not any(here.home.node.moved.values()), "the new wish may be sent elsewhere"
        await here.moved(subscription)
        here.emit(5)
        assert (await numbers(subscription), subscription.node) == ([5], "other:1")


@on_loop
async def test_a_change_that_cannot_be_leaves_all_as_it_was():
    here = await world()
    async with here.client, here.client.subscribe("n < 5") as subscription:
        with pytest.raises(FilterError):
            await subscription.change("n <")
        here.home.node.refusal = "there are enough"
        with pytest.raises(SubscriptionEndedError, match="there are enough"):
            await subscription.change("n > 5")
        here.home.node.refusal, here.home.node.is_ready_at_once = None, False
        with pytest.raises(NotReadyError):
            await subscription.change("n > 5", timeout=0.001)
        here.emit(1, 7)
        assert await numbers(subscription) == [1]
        assert (subscription.filter, len(here.home.sink_names())) == (Filter("n < 5"), 1)
    here = await world()
    async with here.client, here.client.subscribe("n < 5", durable="d") as subscription:
        with pytest.raises(ValueError, match="a durable subscription keeps its filter"):
            await subscription.change("n > 5")
