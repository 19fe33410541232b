"""Thousands of subscriptions of one client: in turns, told together, never begun anew."""

import asyncio

import pytest

from client.fake_node import FakeNode
from client.test_api import World
from client.test_door import Listed, wanted
from client.turns import on_loop, settle, until
from peersub.client import NotReadyError
from peersub.client import session as session_module
from peersub.client import subscription as subscription_module
from peersub.overlays.core.publication import Publication
from peersub.runtime import turns as turns_module
from peersub.runtime.client_door import ClientDoor
from peersub.runtime.client_inbox import CHANGES_AT_ONCE
from peersub.runtime.client_ports import NetworkName
from peersub.runtime.turns import Turns
from peersub.wire import sealed
from peersub.wire.client_messages import (
    CLIENT_VERSION,
    PHASES,
    ClientHello,
    PublishWanted,
    SubscriptionPhase,
    SubscriptionPhases,
    SubscriptionState,
    UnsubscribeWanted,
)

MANY = 500


def door_with_phases(node):
    connection = Listed("")
    door = ClientDoor(node, connection, NetworkName("chord", "net"), label="c1")
    door.on_messages([ClientHello(CLIENT_VERSION, (PHASES,), "me")])
    return door, connection


@on_loop
async def test_many_subscriptions_have_their_turns_and_nothing_is_read_meanwhile():
    node = FakeNode()
    door, connection = door_with_phases(node)
    event = sealed(Publication("e1", {"n": 1}))
    door.on_messages([*map(wanted, range(MANY)), PublishWanted(event, MANY)])
    assert len(node.sinks) == CHANGES_AT_ONCE
    assert connection.is_held
    assert not node.published, "what was said after the subscriptions comes after them"
    door.on_messages([wanted(MANY + 1)])
    await until(lambda: len(node.sinks) == MANY + 1)
    await settle()
    assert not connection.is_held
    ((_, *numbers),) = connection.events()
    assert sorted(numbers) == list(range(MANY))


@on_loop
async def test_work_that_fails_ends_nobody_elses_turns():
    failures, done = [], []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
    turns = Turns()
    turns.ask(lambda: bool(1 // 0))
    turns.ask(lambda: done.append(1) or len(done) < 3)
    await until(lambda: len(done) == 3)
    turns.ask(lambda: bool(done.clear()))
    await until(lambda: not done)
    assert [type(failure) for failure in failures] == [ZeroDivisionError]


@on_loop
async def test_what_has_become_of_many_is_told_in_few_messages(monkeypatch):
    monkeypatch.setattr(turns_module, "SLICE_S", 60.0)
    node = FakeNode()
    door, connection = door_with_phases(node)
    door.on_messages([*map(wanted, range(MANY))])
    await until(lambda: len(node.sinks) == MANY)
    await settle()
    told = connection.taken(SubscriptionPhases)
    assert connection.taken(SubscriptionState) == []
    assert len(told) == 2, "of the first, and of all that one slice of time was enough for"
    ready = [n for each in told if each.phase is SubscriptionPhase.READY for n in each.numbers]
    assert sorted(ready) == list(range(MANY))
    door.on_messages([UnsubscribeWanted(number) for number in range(MANY)])
    await until(lambda: not node.sinks)
    await settle()
    ended = connection.taken(SubscriptionPhases)
    assert {each.phase for each in ended} == {SubscriptionPhase.ENDED}
    assert sorted(n for each in ended for n in each.numbers) == list(range(MANY))


@on_loop
async def test_clients_that_do_not_know_of_phases_hear_of_each():
    node, connection = FakeNode(), Listed("")
    door = ClientDoor(node, connection, NetworkName("chord", "net"), label="c1")
    door.on_messages([ClientHello(CLIENT_VERSION, (), "me"), *map(wanted, range(MANY))])
    await until(lambda: len(node.sinks) == MANY)
    await settle()
    assert connection.taken(SubscriptionPhases) == []
    assert len({state.number for state in connection.taken(SubscriptionState)}) == MANY


@on_loop
async def test_the_subscriptions_of_a_lost_client_end_in_turns_and_get_nothing_more():
    node = FakeNode()
    door, connection = door_with_phases(node)
    door.on_messages([*map(wanted, range(MANY))])
    await until(lambda: len(node.sinks) == MANY)
    await settle()
    connection.sent.clear()
    door.on_lost("gone")
    assert len(node.sinks) == MANY - 1
    node.publish([sealed(Publication("e1", {"n": 1}))])
    await until(lambda: not node.sinks)
    await settle()
    assert connection.sent == []


@on_loop
async def test_a_client_asks_for_a_bounded_number_at_a_time(monkeypatch):
    monkeypatch.setattr(session_module, "SUBSCRIPTIONS_ASKED_MAX", 20)
    world = await World().connect()
    asked = []
    send = world.link.send
    world.link.send = lambda messages: (asked.append(len(messages)), send(messages))
    subscriptions = [world.client.subscribe(f"n = {number}") for number in range(MANY)]
    assert sum(asked) == 20
    for subscription in subscriptions:
        await subscription.ready(timeout=5)
    assert sum(asked) == MANY
    assert all(subscription.gaps == 0 for subscription in subscriptions)
    await world.client.close()


class Expiring:
    """A time-out that ends when the test says so."""

    def __init__(self):
        self.task = None

    def __call__(self, seconds):
        return self

    async def __aenter__(self):
        self.task = asyncio.current_task()

    async def __aexit__(self, kind, error, traceback):
        self.task = None
        if kind is asyncio.CancelledError:
            raise TimeoutError

    async def expire(self):
        await until(lambda: self.task is not None)
        self.task.cancel()
        await settle()


@on_loop
async def test_the_time_out_counts_from_the_last_progress(monkeypatch):
    world = await World().connect()
    world.node.is_ready_at_once = False
    subscriptions = [world.client.subscribe(f"n = {number}") for number in range(8)]
    await until(lambda: len(world.node.sinks) == 8)
    time_out = Expiring()
    monkeypatch.setattr(subscription_module.asyncio, "timeout", time_out)
    waiting = asyncio.create_task(subscriptions[-1].ready(timeout=1))
    await until(lambda: time_out.task is not None)
    for _, sink, _ in list(world.node.sinks.values())[:-2]:
        sink.ready()
        await until(lambda: world.session.unready < 8)
        await settle()
        await time_out.expire()
        assert not waiting.done(), "another one is ready: that is progress"
    assert len(world.node.sinks) == 8, "nothing was begun anew"
    await time_out.expire()
    monkeypatch.undo()
    with pytest.raises(NotReadyError):
        await waiting
    await world.client.close()
