"""What has ended is freed at once, without the garbage collector: nothing is left in circles.

A node sets aside what lives (`runtime.collecting`), and circles among that are never collected.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from contextlib import asynccontextmanager, contextmanager

from client.turns import on_loop, until
from peersub.filters import Filter
from peersub.overlays.core.publication import Publication
from peersub.runtime.client_door import ClientDoor
from peersub.runtime.client_publications import ClientPublications
from peersub.runtime.client_queue import QueuedConsumer
from peersub.runtime.connection import Connection
from peersub.runtime.durable import DurableSubscriptions
from peersub.runtime.security.tls import client_context
from peersub.runtime.serving import served_node
from peersub.runtime.settings import NodeSettings
from peersub.wire import FrameDecoder, encode, sealed
from peersub.wire.client_messages import (
    CLIENT_VERSION,
    ClientHello,
    ClientWelcome,
    PublishEnded,
    PublishWanted,
    StatusGiven,
    StatusWanted,
    SubscribeWanted,
    SubscriptionPhase,
    SubscriptionState,
)
from runtime.scripted_peer import ScriptedPeer
from runtime.security.conftest import make_network

KINDS = (Connection, FrameDecoder, ClientDoor, ClientPublications, QueuedConsumer, Publication)
"""Of what ends when a client, or a neighbour, goes."""
TURNS = 300
"""In which all is freed."""
ASYNCIO = ("asyncio", "socket")
TIMES = 4
LOOKED_AT = Counter(Connection=1, FrameDecoder=1)
"""What the node looked at last, until it looks at the next."""


@contextmanager
def without_collector():
    """Let nothing be freed unless nobody refers to it."""
    while gc.collect():
        """What tests before have left; the loop's weak tables need several rounds."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def count_living() -> Counter[str]:
    return Counter(type(each).__name__ for each in gc.get_objects() if type(each) in KINDS)


async def freed(before: Counter[str]) -> None:
    """All that was made since `before` is gone after some turns of the loop."""
    for _ in range(TURNS):
        left = count_living() - before
        if left <= LOOKED_AT:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"never freed: {left}")


def circles() -> Counter[str]:
    """What only the collector would free, but for what asyncio leaves to it on the test's side."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return Counter(
            getattr(each, "__qualname__", type(each).__qualname__)
            for each in gc.garbage
            if (made := getattr(each, "__module__", None)) and not made.startswith(ASYNCIO)
        )
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


@asynccontextmanager
async def serving(folder, tls=None):
    node, gate = served_node(NodeSettings(listen="127.0.0.1:0", data=folder), tls)
    await node.start()
    try:
        yield node, gate
    finally:
        await node.stop()


def is_ready(state: SubscriptionState) -> bool:
    return state.phase is SubscriptionPhase.READY


async def use(node) -> None:
    """All that a client does, until it goes while events and filters of it wait."""
    async with ScriptedPeer(node.name) as peer:
        peer.say(encode(ClientHello(CLIENT_VERSION)))
        await peer.hear(ClientWelcome)
        for number, durable in enumerate(("", "audit")):
            peer.say(encode(SubscribeWanted(number, Filter("a = 1"), durable=durable, credit=0)))
            await peer.hear(SubscriptionState, is_ready)
        for number in range(5):
            event = sealed(Publication(f"e{number}", {"a": 1}, None))
            peer.say(encode(PublishWanted(event, number)))
            await peer.hear(PublishEnded)
        peer.say(encode(StatusWanted(1)))
        await peer.hear(StatusGiven)
        wanted = [encode(SubscribeWanted(number, Filter("b = 1"))) for number in range(2, 40)]
        peer.say(b"".join(wanted)[:-1])


async def check_clients_are_freed(folder) -> None:
    async with serving(folder) as (node, gate):
        await use(node)
        with without_collector():
            await until(lambda: not gate.status()["clients"])
            before = count_living()
            for _ in range(TIMES):
                await use(node)
            await freed(before)
            assert not circles()


@on_loop
async def test_clients_that_go_are_freed_with_their_subscriptions_and_what_waits_for_them(tmp_path):
    await check_clients_are_freed(tmp_path)


@on_loop
async def test_a_consumer_that_goes_before_its_feed_has_begun_is_freed(tmp_path, monkeypatch):
    wake = DurableSubscriptions.wake

    def wake_and_go(self, name):
        wake(self, name)
        self.detach(name)

    monkeypatch.setattr(DurableSubscriptions, "wake", wake_and_go)
    await check_clients_are_freed(tmp_path)


async def say(node, content: bytes) -> None:
    """Call, say this, and be hung up on."""
    async with ScriptedPeer(node.name) as peer:
        peer.say(content)
        await peer.closed()


@on_loop
async def test_callers_that_are_refused_are_freed(tmp_path):
    async with serving(tmp_path) as (node, _):
        with without_collector():
            before = count_living()
            for content in (encode(ClientHello((99, 0))), bytes(64), encode(StatusWanted(1))):
                for _ in range(TIMES):
                    await say(node, content)
            await freed(before)
            assert not circles()


async def use_with_tls(node, tls) -> None:
    async with ScriptedPeer(node.name, tls) as peer:
        peer.say(encode(ClientHello(CLIENT_VERSION)))
        await peer.hear(ClientWelcome)
        peer.say(encode(SubscribeWanted(1, Filter("a = 1"))))
        await peer.hear(SubscriptionState, is_ready)


@on_loop
async def test_clients_with_tls_and_those_who_do_not_agree_on_it_are_freed(tmp_path):
    network = make_network(tmp_path / "authority")
    tls = client_context(network.client)
    async with serving(tmp_path / "data", network.node) as (node, _):
        with without_collector():
            before = count_living()
            for _ in range(TIMES):
                await use_with_tls(node, tls)
                await say(node, bytes(64))
            await freed(before)


async def link(node, incarnation: int) -> None:
    """Be another node for a while, which nobody can call."""
    async with ScriptedPeer(node.name) as peer:
        await peer.open_as("127.0.0.1:1", incarnation)


@on_loop
async def test_links_that_end_are_freed_and_attempts_to_make_them_again_are(tmp_path):
    async with serving(tmp_path) as (node, _):
        with without_collector():
            before = count_living()
            for incarnation in range(TIMES):
                await link(node, incarnation)
            await freed(before)
            assert not circles()


@on_loop
async def test_both_ends_of_a_link_between_two_nodes_are_freed(tmp_path):
    async with serving(tmp_path / "first") as (first, _):
        with without_collector():
            before = count_living()["Connection"]
            for _ in range(TIMES):
                second, _ = served_node(NodeSettings(listen="127.0.0.1:0", join=(first.name,)))
                await second.start()
                await second.stop()
            await until(lambda: count_living()["Connection"] <= before + TIMES)
