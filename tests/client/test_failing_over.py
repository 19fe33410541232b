"""Clients whose connection fails: another node, what programs hear, ends in good order."""

from __future__ import annotations

import asyncio
import inspect
import threading

import pytest

from client.turns import on_loop, until
from peersub import connect, join
from peersub.client import ConnectError, ConnectionEvent, SubscriptionEndedError
from peersub.client.leg import LegOwner
from peersub.client.node_client import NodeClient
from peersub.client.subscription import Subscription
from peersub.client.sync import SyncNodeClient, SyncSubscription
from peersub.client.sync import connect as sync_connect
from peersub.client.sync import join as sync_join

NOBODY = "127.0.0.1:1"


@on_loop
async def test_a_client_of_several_nodes_goes_on_with_another():
    heard: list[ConnectionEvent] = []
    async with join() as second:
        first = await join(second.node)
        async with (
            connect([NOBODY, first.node, second.node]) as light,
            light.subscribe("n >= 0") as subscription,
        ):
            light.on_connection(heard.append)
            events = light.connection_events()
            lost, node = first.node, second.node
            assert light.node == lost
            await subscription.ready(timeout=20)
            await light.publish({"n": 0}, delivery="at_least_once", timeout=20)
            await first.close()
            assert (await anext(events)).kind == "disconnected"
            assert await anext(events) == ConnectionEvent("connected", node)
            assert light.node == node and subscription.gaps == 1
            await subscription.ready(timeout=20)
            await light.publish({"n": 1}, delivery="at_least_once", timeout=20)
            assert [(await anext(subscription)).attributes["n"] for _ in range(2)] == [0, 1]
    assert [each.kind for each in heard] == ["disconnected", "connected", "closed"]
    assert heard[0].node == lost and heard[0].reason
    assert await anext(events) == ConnectionEvent("closed", node)
    with pytest.raises(StopAsyncIteration):
        await anext(events)


@on_loop
async def test_positions_of_one_log_are_not_acknowledged_in_another():
    async with join() as second:
        first = await join(second.node)
        async with connect([first.node, second.node]) as light:
            subscription = light.subscribe("n >= 0", durable="d", auto_acknowledge=False)
            await subscription.ready(timeout=20)
            for number in range(5):
                await first.publish({"n": number})
            got = [await anext(subscription) for _ in range(5)]
            await first.close()
            await until(lambda: light.node == second.node)
            await subscription.ready(timeout=20)
            assert subscription.gaps == 1
            with pytest.raises(ValueError, match="does not wait"):
                await subscription.acknowledge(got[-1])
            await second.publish({"n": 7})
            assert (await anext(subscription)).attributes["n"] == 7
            await subscription.acknowledge()


@on_loop
async def test_who_closes_or_makes_a_connection_can_be_cancelled():
    """Also at the moment at which it waits for tasks that it has cancelled itself."""
    async with join() as node:
        light = await connect(node.node)
        closing = asyncio.create_task(light.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        light = await connect(node.node)
        subscription = light.subscribe("TRUE")
        moving = asyncio.create_task(asyncio.sleep(1_000))
        light._moves._moving[subscription] = moving
        staying = asyncio.create_task(light._moves.stay(subscription))
        await asyncio.sleep(0)
        staying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await staying
        assert moving.cancelled()
        await light.close()


@on_loop
async def test_whoever_waits_hears_that_the_node_is_gone_for_good():
    first = await join()
    light = await connect(first.node, give_up_after=0.05)
    subscription = light.subscribe("TRUE")
    await subscription.ready(timeout=20)
    waiting = asyncio.create_task(anext(subscription))
    publishing = asyncio.create_task(light.flush())
    await first.close()
    with pytest.raises(SubscriptionEndedError, match="no connection for"):
        await waiting
    await publishing
    with pytest.raises(Exception, match="no connection for"):
        await light.publish({"n": 1})
    await light.close()


@on_loop
async def test_no_node_of_several_is_an_error_that_names_one():
    with pytest.raises(ConnectError, match=r"no node can be reached at 127\.0\.0\.1:2"):
        await connect([NOBODY, "127.0.0.1:2"])


@on_loop
async def test_a_listener_that_fails_disturbs_nobody():
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    node = await join()
    heard: list[ConnectionEvent] = []

    def fail(_: ConnectionEvent) -> None:
        raise ZeroDivisionError

    node.on_connection(fail)
    stop = node.on_connection(heard.append)
    node.on_connection(heard.append)
    stop()
    await node.close()
    assert len(failures) == 1 and [each.kind for each in heard] == ["closed"]


@on_loop
async def test_flush_waits_for_what_others_publish():
    async with join() as node, node.subscribe("TRUE") as subscription:
        await subscription.ready(timeout=20)
        tasks = [
            asyncio.create_task(node.publish({"n": n}, delivery="at_least_once")) for n in range(20)
        ]
        await asyncio.sleep(0)
        await node.flush(timeout=20)
        assert all(task.done() for task in tasks) or not node._session._open
        await asyncio.gather(*tasks)


@pytest.mark.parametrize("durable", [None, "d"])
@on_loop
async def test_draining_takes_what_has_come_and_ends(durable):
    async with join() as node:
        light = await connect(node.node)
        subscription = light.subscribe("n >= 0", durable=durable)
        await subscription.ready(timeout=20)
        for number in range(5):
            await node.publish({"n": number})
        await until(lambda: subscription.waiting == 5)
        draining = asyncio.create_task(light.drain(timeout=20))
        assert [event.attributes["n"] async for event in subscription] == list(range(5))
        await draining
        assert not light.is_connected
        if durable:
            await node.publish({"n": 5})
            async with connect(node.node) as again, again.subscribe("n >= 0", durable="d") as more:
                assert (await anext(more)).attributes["n"] == 5


@on_loop
async def test_draining_ends_in_time_when_nobody_takes():
    async with join() as node:
        subscription = node.subscribe("TRUE")
        await subscription.ready(timeout=20)
        await node.publish({"n": 1})
        await until(lambda: subscription.waiting)
        with pytest.raises(TimeoutError, match="1 events"):
            await subscription.drain(timeout=0.01)
        assert subscription.is_over


# --- the synchronous facade ----------------------------------------------------------------------


def surface(cls: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(cls) if not name.startswith("_")}


def attributes(cls: type) -> set[str]:
    """Those that `__init__` sets, as its source says."""
    source = inspect.getsource(cls.__init__)
    return {line.split()[0][5:].rstrip(":") for line in source.splitlines() if _sets(line)}


def _sets(line: str) -> bool:
    return line.strip().startswith("self.") and "=" in line and line.strip()[5] != "_"


def test_the_facade_has_what_the_asynchronous_clients_have():
    for_legs = surface(LegOwner) | {"step", "stands_on", "settle_on", "step_back"}
    theirs = {name.removeprefix(".") for name in attributes(Subscription)}
    wanted = (surface(Subscription) | theirs) - for_legs
    assert wanted - surface(SyncSubscription) == set()
    assert surface(NodeClient) - surface(SyncNodeClient) == set()


def test_the_facade_takes_flushes_and_drains():
    with sync_join() as node, sync_connect([NOBODY, node.node]) as light:
        heard: list[ConnectionEvent] = []
        light.on_connection(heard.append)
        events = light.connection_events()
        subscription = light.subscribe("n >= 0")
        subscription.ready(timeout=20)
        assert (light.overlay, light.is_connected, subscription.is_durable) == (
            "chord",
            True,
            False,
        )
        for number in range(3):
            node.publish({"n": number}, delivery="at_least_once", timeout=20)
        node.flush(timeout=20)
        taken = []
        while len(taken) < 3:
            taken += subscription.take(2, timeout=20)
        assert [each.event.attributes["n"] for each in taken] == [0, 1, 2]
        light.drain(timeout=20)
        assert [each.kind for each in heard] == ["closed"]
        with pytest.raises(RuntimeError, match="closed"):
            light.status()
    with pytest.raises(RuntimeError, match="closed"):
        next(events)


def test_a_thread_that_waits_hears_that_the_client_was_closed():
    with sync_join() as node:
        light = sync_connect(node.node)
        kinds: list[str] = []

        def follow() -> None:
            kinds.extend(event.kind for event in light.connection_events())

        thread = threading.Thread(target=follow)
        thread.start()
        while not light._inner._session.connection_events._listeners:
            light.is_connected  # noqa: B018 - until the other thread follows
        light.close()
        thread.join(20)
        assert not thread.is_alive() and kinds in (["closed"], [])
