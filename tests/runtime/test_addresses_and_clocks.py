"""Names whose address changes, IPv6, a machine that slept, and clocks that jump."""

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from peersub.bench.resilience.cluster import free_addresses
from peersub.runtime.addresses import split_address
from peersub.runtime.clock import Clock
from peersub.runtime.live_node import LiveNode
from peersub.runtime.settings import NodeSettings
from runtime.live_network import until
from runtime.test_starting import stop_all, until_one

HOUR_MS = 3_600_000


class JumpingClock(Clock):
    """A clock that can be set forward while a node goes by it."""

    __slots__ = ("jumped_ms",)

    def __init__(self) -> None:
        super().__init__()
        self.jumped_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.jumped_ms


def node(listen: str = "127.0.0.1:0", *join: str, advertise: str = "") -> LiveNode:
    settings = NodeSettings(listen=listen, join=join, advertise=advertise, columns=False)
    return LiveNode(settings)


def on_nodes(play: Callable[[list[LiveNode]], Coroutine[Any, Any, None]]) -> None:
    """Play, and stop all nodes of the list in the end."""

    async def run() -> None:
        nodes: list[LiveNode] = []
        try:
            await play(nodes)
        finally:
            await stop_all(nodes)

    asyncio.run(run())


async def pair(nodes: list[LiveNode], listen: str = "127.0.0.1:0") -> tuple[LiveNode, LiveNode]:
    first = node(listen)
    nodes.append(first)
    await first.start()
    second = node(listen, first.name)
    nodes.append(second)
    await second.start()
    await until_one(nodes)
    return first, second


def test_nodes_listen_on_addresses_of_version_6() -> None:
    async def play(nodes: list[LiveNode]) -> None:
        first, _ = await pair(nodes, "[::1]:0")
        assert first.name.startswith("[::1]:")

    on_nodes(play)


def test_a_name_is_looked_up_at_each_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node comes back at another address under its name, and is found."""
    (address,) = free_addresses(1)
    _, port = split_address(address)
    place = ["127.0.0.1"]
    look_up = socket.getaddrinfo

    def look_up_here(host: Any, *arguments: Any, **options: Any) -> Any:
        return look_up(place[0] if host == "moving.test" else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up_here)
    name = f"moving.test:{port}"

    async def play(nodes: list[LiveNode]) -> None:
        nodes.append(node(f"127.0.0.1:{port}", advertise=name))
        await nodes[0].start()
        nodes.append(node("127.0.0.1:0", name))
        await nodes[1].start()
        await until_one(nodes)
        await nodes[0].stop(leave=False)
        place[0] = "127.0.0.2"
        nodes[0] = node(f"127.0.0.2:{port}", advertise=name)
        await nodes[0].start()
        await until_one(nodes)

    on_nodes(play)


def test_a_machine_that_slept_is_in_the_network_again() -> None:
    """While it slept the others gave it up: all its connections are dead at once."""

    async def play(nodes: list[LiveNode]) -> None:
        first, second = await pair(nodes)
        transport = second._transport
        assert transport is not None
        dead = transport.links[first.name].connection
        transport.close_where(lambda _: True, "the machine slept")
        await until(
            lambda: (
                first.name in transport.links and transport.links[first.name].connection is not dead
            ),
            "another connection",
        )
        await until_one(nodes)

    on_nodes(play)


def test_a_node_whose_clock_jumps_doubts_itself_and_not_the_others() -> None:
    async def play(nodes: list[LiveNode]) -> None:
        first, second = node(), node()
        clock = second._clock = JumpingClock()
        nodes += [first, second]
        await first.start()
        second.settings = NodeSettings(join=(first.name,), columns=False)
        await second.start()
        await until_one(nodes)
        heard = second.status()["connections"]["links"][first.name]["bytes_in"]
        clock.jumped_ms = HOUR_MS

        def has_heard_more() -> bool:
            links = second.status()["connections"]["links"]
            assert first.name in links, "the link was given up"
            return bool(links[first.name]["bytes_in"] > heard + 500)

        await until(has_heard_more, "heartbeats go on")
        assert second.counters["a silent link that was given up"] == 0
        assert second.counters["a link in doubt"] == 0

    on_nodes(play)


def test_the_wall_clock_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    before_ms = clock.now_ms()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert before_ms <= clock.now_ms() < before_ms + HOUR_MS
