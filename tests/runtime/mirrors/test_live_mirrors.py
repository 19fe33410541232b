"""Durable subscriptions whose home goes away: nothing is missed, and nothing comes twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from peersub.overlays.core.publication import Delivery
from runtime.live_network import Consumer, Network, until

BEST_EFFORT, AT_LEAST_ONCE = Delivery.BEST_EFFORT, Delivery.AT_LEAST_ONCE
WANTED = "symbol = 'a'"


def run(folder: Path, story: Callable[[Network], Awaitable[None]]) -> None:
    async def whole() -> None:
        network = Network(folder)
        try:
            await story(network)
        finally:
            await network.stop()

    asyncio.run(whole())


async def begin(network: Network, names: str = "xyh") -> Consumer:
    """Nodes, and a durable subscription on the last."""
    for name in names:
        await network.start(name)
    consumer = Consumer().attach(network.nodes["h"], "orders", WANTED)
    await until(lambda: consumer.is_ready, "ready")
    return consumer


async def nothing_retained(network: Network) -> None:
    """All that the consumer took is released."""
    stores = [node._store for name, node in network.nodes.items() if name != "h"]
    home = network._addresses["h"]
    await until(lambda: not any(s.retained_events(home, 0, 1) for s in stores), "all released")


@pytest.mark.parametrize("data", ["h", "empty"], ids=["with its disk", "replaced by an empty node"])
def test_what_comes_while_the_home_is_down_reaches_the_consumer_once(tmp_path, data):
    async def story(network: Network) -> None:
        consumer = await begin(network)
        before = network.publish("x", 20, AT_LEAST_ONCE)
        await network.acknowledged()
        await until(lambda: len(consumer.got) == 20, "all before")
        await nothing_retained(network)
        await network.kill("h")
        during = network.publish("x", 300, AT_LEAST_ONCE) + network.publish("y", 30, BEST_EFFORT)
        network.publish("x", 5, AT_LEAST_ONCE, symbol="b")
        await network.acknowledged()
        home = await network.start("h", data=data)
        consumer.attach(home, "orders", WANTED)
        during += network.publish("y", 50, AT_LEAST_ONCE)
        await until(lambda: consumer.is_ready, "ready again")
        during += network.publish("x", 50, AT_LEAST_ONCE) + network.publish("x", 50, BEST_EFFORT)
        await network.acknowledged()
        await until(lambda: len(consumer.got) >= 500, "all")
        await nothing_retained(network)
        assert consumer.got == Counter(before + during)

    run(tmp_path, story)
