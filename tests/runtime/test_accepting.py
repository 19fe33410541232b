"""Whoever calls a node: taken one by one, strangers within a budget, nobody left on the line."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from peersub.runtime.accepting import MADE_ROOM, least_welcome
from peersub.runtime.addresses import split_address
from peersub.runtime.live_node import LiveNode
from peersub.runtime.settings import NodeSettings
from peersub.runtime.transport import TransportSettings
from runtime.live_network import until
from runtime.scripted_peer import ScriptedPeer

PATIENCE_S = 20
JUNK = b"\xff" * 64
PAUSED = "a pause because too many strangers call"


def is_closed(caller: socket.socket) -> bool:
    try:
        return caller.recv(1) == b""
    except ConnectionError:
        return True


def with_node(
    story: Callable[[LiveNode], Awaitable[None]], transport: TransportSettings | None = None
) -> None:
    async def whole() -> None:
        settings = NodeSettings(listen="127.0.0.1:0", transport=transport or TransportSettings())
        node = LiveNode(settings)
        await node.start()
        try:
            await story(node)
        finally:
            await node.stop(leave=False)

    asyncio.run(whole())


@pytest.mark.parametrize("turns", range(6))
def test_who_calls_while_the_node_ends_is_hung_up_on(turns):
    """`turns` of the loop lie between the call and the end: asyncio needs some to hand it over."""
    callers: list[socket.socket] = []

    async def story(node: LiveNode) -> None:
        callers.extend(
            socket.create_connection(split_address(node.name), PATIENCE_S) for _ in range(5)
        )
        for _ in range(turns):
            await asyncio.sleep(0)
        transport = node._transport
        await node.stop(leave=False)
        assert transport is not None
        assert not transport._open

    with_node(story)
    try:
        assert all(is_closed(caller) for caller in callers)
    finally:
        for caller in callers:
            caller.close()


async def call_with_junk(node: LiveNode) -> None:
    async with ScriptedPeer(node.name) as peer:
        peer.say(JUNK)
        await peer.closed()


def test_strangers_beyond_the_budget_wait_and_none_is_lost():
    settings = TransportSettings(unnamed_max=3, strangers_per_second=20)

    async def story(node: LiveNode) -> None:
        for _ in range(3):
            await call_with_junk(node)
        # Whatever the clock says, three strangers are within the budget of three.
        for _ in range(5):
            await call_with_junk(node)
        counted = node.counters.as_dict()
        assert counted["a frame that is too large"] == 8
        assert counted[PAUSED] >= 1

    with_node(story, settings)


def test_callers_that_say_who_they_are_use_up_nothing():
    # In the long run one stranger in 1,000 seconds: the story would never end.
    settings = TransportSettings(unnamed_max=2, strangers_per_second=0.001)

    async def story(node: LiveNode) -> None:
        for number in range(20):
            async with ScriptedPeer(node.name) as peer:
                await peer.open_as(f"127.0.0.1:{number + 1}", 1)
        assert PAUSED not in node.counters.as_dict()
        for _ in range(2):
            await call_with_junk(node)
        async with ScriptedPeer(node.name):
            await until(lambda: PAUSED in node.counters.as_dict(), "a stranger too many")

    with_node(story, settings)


def test_a_stranger_holds_up_no_link():
    """While the node takes no stranger, those that are connected are served."""
    settings = TransportSettings(unnamed_max=2, strangers_per_second=0.001)

    async def story(node: LiveNode) -> None:
        got = []
        async with ScriptedPeer(node.name) as neighbour:
            await neighbour.open_as("127.0.0.1:1", 1)
            for _ in range(2):
                await call_with_junk(node)
            async with ScriptedPeer(node.name):
                await until(lambda: PAUSED in node.counters.as_dict(), "a stranger too many")
                neighbour.say(JUNK)
                await neighbour.closed()
                got.append(node.counters.as_dict()["a frame that is too large"])
        assert got == [3]

    with_node(story, settings)


def test_silent_callers_make_room_for_those_who_speak():
    settings = TransportSettings(unnamed_max=4, strangers_per_second=1_000)

    async def story(node: LiveNode) -> None:
        silent = [ScriptedPeer(node.name) for _ in range(4)]
        for each in silent:
            await each.__aenter__()
        transport = node._transport
        assert transport is not None
        await until(lambda: len(transport._unnamed) == 4, "all are taken")
        for number in range(6):
            async with ScriptedPeer(node.name) as newcomer:
                await newcomer.open_as(f"127.0.0.1:{number + 1}", 1)
        await silent[0].closed()
        assert node.counters.as_dict()[MADE_ROOM] >= 1
        for each in silent:
            await each.__aexit__()

    with_node(story, settings)


def test_who_calls_most_makes_room_first():
    callers = ["b1", "a1", "a2", "b2", "a3"]
    assert least_welcome(callers, lambda caller: caller[0]) == "a1"
