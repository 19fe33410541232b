"""Durable subscriptions whose home goes away: nothing is missed, and nothing comes twice."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from peersub.overlays.core.publication import Delivery
from peersub.runtime.live_node import SubscriptionRefusedError
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
        assert bool(consumer.marked) == (data == "empty")  # With its disk the node knows better.

    run(tmp_path, story)


def test_a_folder_that_comes_back_as_it_was_earlier_forgets_nothing_that_mirrors_know(tmp_path):
    """Its mark is older as well, so that the node alone cannot notice."""

    async def story(network: Network) -> None:
        first = await begin(network)
        await network.kill("h")
        shutil.copytree(tmp_path / "h", tmp_path / "earlier")
        home = await network.start("h")
        first.attach(home, "orders", WANTED)
        later = Consumer(acknowledges=False).attach(home, "later", WANTED)
        await until(lambda: first.is_ready and later.is_ready, "ready")
        published = network.publish("x", 20, AT_LEAST_ONCE)
        await network.acknowledged()
        await later.gets(20)
        await network.kill("h")
        home = await network.start("h", data="earlier")
        await until(lambda: "later" in home.status()["durable_subscriptions"], "known again")
        again, other = Consumer(), Consumer()
        again.attach(home, "later", WANTED)
        other.attach(home, "orders", WANTED)
        await again.gets(20)
        assert again.got == Counter(published)
        assert again.marked == set(published)  # The first consumer had them all.
        assert home.status()["counters"]["the disk lost what other nodes know that it had"] == 1
        await until(lambda: other.losses == [(0, 0, 1)], "told of the gap")

    run(tmp_path, story)


def test_a_home_that_comes_and_goes_under_load(tmp_path):
    """What reaches the home directly and over the mirror at the same time comes once."""

    async def story(network: Network) -> None:
        consumer = await begin(network, "xyzh")
        published: list[str] = []
        for _ in range(3):
            published += network.publish("x", 100, AT_LEAST_ONCE)
            await network.kill("h")
            published += network.publish("y", 100, AT_LEAST_ONCE)
            home, _ = await asyncio.gather(network.start("h"), network.acknowledged())
            published += network.publish("z", 100, AT_LEAST_ONCE)
            consumer.attach(home, "orders", WANTED)
        published += network.publish("x", 100, AT_LEAST_ONCE)
        await network.acknowledged()
        await until(lambda: len(consumer.got) >= len(published), "all")
        await nothing_retained(network)
        assert set(consumer.got) == set(published)
        assert consumer.got == Counter(published)

    run(tmp_path, story)


def test_when_the_mirror_dies_another_gets_all_that_the_consumer_has_not_taken(tmp_path):
    async def story(network: Network) -> None:
        for name in "xyzh":
            await network.start(name)
        slow = Consumer(acknowledges=False).attach(network.nodes["h"], "orders", WANTED)
        await until(lambda: slow.is_ready, "ready")
        published = network.publish("h", 200, AT_LEAST_ONCE)
        await network.acknowledged()
        await until(lambda: len(slow.got) == 200, "all, unacknowledged")
        first = network.mirror_of("h")
        assert first is not None
        await network.kill(first)
        await until(lambda: network.mirror_of("h") not in (None, first), "another mirror")
        second = network.nodes[network.mirror_of("h") or ""]
        home = network.nodes["h"].name
        await until(lambda: len(second._store.retained_events(home, 0, 999)) == 200, "copies")
        await network.kill("h")
        consumer = Consumer().attach(await network.start("h", data="empty"), "orders", WANTED)
        await until(lambda: len(consumer.got) >= 200, "all from the second mirror")
        await nothing_retained(network)
        assert consumer.got == Counter(published)
        assert consumer.marked == set(published)

    run(tmp_path, story)


def test_a_former_mirror_hands_over_and_is_let_go(tmp_path):
    """Both were down; the home has another mirror when the one comes back that knows more."""

    async def story(network: Network) -> None:
        network.mirrors = replace(network.mirrors, reserves=0)
        consumer = await begin(network)
        first = network.mirror_of("h")
        assert first is not None
        other = "y" if first == "x" else "x"
        await network.kill("h")
        published = network.publish(other, 50, AT_LEAST_ONCE)
        await network.acknowledged()
        await network.kill(first)
        consumer.attach(await network.start("h"), "orders", WANTED)
        await until(lambda: network.mirror_of("h") == other, "another mirror")
        await until(lambda: consumer.is_ready, "ready")
        published += network.publish(other, 50, AT_LEAST_ONCE)
        # The other one held while the home was away: what came before may come from it as well.
        await until(lambda: set(published[50:]) <= set(consumer.got), "what came after")
        await network.start(first)
        await until(lambda: len(consumer.got) >= 100, "what the former mirror has")
        await until(lambda: not network.status(first)["homes"], "it is let go")
        # It may go on watching; it holds nothing.
        await nothing_retained(network)
        assert consumer.got == Counter(published)
        assert network.mirror_of("h") == other

    run(tmp_path, story)


def test_nothing_is_left_of_a_subscription_that_ended(tmp_path):
    async def story(network: Network) -> None:
        await begin(network)
        slow = Consumer(acknowledges=False).attach(network.nodes["h"], "more", "symbol = 'b'")
        await until(lambda: slow.is_ready, "ready")
        network.publish("x", 10, AT_LEAST_ONCE, symbol="b")
        await network.acknowledged()
        first = network.mirror_of("h")
        assert first is not None
        store = network.nodes[first]._store
        home = network.nodes["h"].name
        await until(lambda: len(store.retained_events(home, 0, 99)) == 10, "retained")
        network.nodes["h"].unsubscribe("more")
        await until(lambda: network.status(first)["homes"] == {home: 1}, "one is left")
        await until(lambda: not store.retained_events(home, 0, 1), "nothing retained")
        # The other one ends while the mirror is away: it learns it when it comes back.
        await network.kill(first)
        network.nodes["h"].unsubscribe("orders")
        await network.start(first)
        await until(lambda: not network.status(first)["homes"], "none is left")
        store = network.nodes[first]._store
        await until(lambda: not store.mirrored_subscriptions(), "nor on disk")
        overlay = network.nodes[first].status()["overlay"]
        assert overlay["routing"]["subscriptions"] == []
        assert network.status("h")["durable"] == network.status("h")["mirrored"] == 0

    run(tmp_path, story)


def test_two_nodes_are_each_others_mirrors_and_both_come_back(tmp_path):
    async def story(network: Network) -> None:
        # Of two nodes only one is there while the other is away: with one copy, it watches first,
        # and holds when it notices. What is not acknowledged may come before that.
        network.mirrors = replace(network.mirrors, copies=1)
        consumers = {}
        for name in "xh":
            await network.start(name)
        for name in "xh":
            consumers[name] = Consumer().attach(network.nodes[name], "orders", WANTED)
        for name in "xh":
            await until(partial(getattr, consumers[name], "is_ready"), "ready")
        published: list[str] = []
        for away, here in ("xh", "hx"):
            await network.kill(away)
            published += network.publish(here, 40, AT_LEAST_ONCE)
            await network.acknowledged()
            await consumers[here].gets(len(published))
            consumers[away].attach(await network.start(away), "orders", WANTED)
            await consumers[away].gets(len(published))
        for consumer in consumers.values():
            assert consumer.got == Counter(published)

    run(tmp_path, story)


def test_a_mirror_that_restarts_goes_on(tmp_path):
    """Home and mirror are down at the same time, after the mirror alone had the events."""

    async def story(network: Network) -> None:
        consumer = await begin(network)
        first = network.mirror_of("h")
        assert first is not None
        other = "y" if first == "x" else "x"
        await network.kill("h")
        published = network.publish(other, 30, AT_LEAST_ONCE)
        await network.acknowledged()
        await network.kill(first)
        await network.start(first)
        published += network.publish(other, 30, AT_LEAST_ONCE)
        await network.acknowledged()
        consumer.attach(await network.start("h"), "orders", WANTED)
        await until(lambda: len(consumer.got) >= 60, "all")
        await nothing_retained(network)
        assert consumer.got == Counter(published)
        # Both held while it was away: either is asked again.
        assert network.mirror_of("h") in (first, other)

    run(tmp_path, story)


def test_batches_are_mirrored_as_well(tmp_path):
    async def story(network: Network) -> None:
        consumer = await begin(network)
        await network.kill("h")
        published = network.publish_batch("x", 500, AT_LEAST_ONCE)
        published += network.publish_batch("y", 100, BEST_EFFORT)
        await network.acknowledged()
        consumer.attach(await network.start("h"), "orders", WANTED)
        await until(lambda: len(consumer.got) >= 600, "all")
        await nothing_retained(network)
        assert consumer.got == Counter(published)

    run(tmp_path, story)


def test_a_home_that_is_away_for_too_long_is_not_waited_for_and_its_consumer_hears_of_it(tmp_path):
    async def story(network: Network) -> None:
        network.mirrors = replace(network.mirrors, away_max_ms=1_000)
        consumer = await begin(network)
        await network.kill("h")
        peers = [node._mirroring.peer for node in network.nodes.values()]
        wards = [ward for peer in peers for ward in peer.duties._homes.values()]
        await until(lambda: all(ward.suspended_ms is not None for ward in wards), "suspended")
        network.publish("x", 5, AT_LEAST_ONCE)
        await network.acknowledged()
        consumer.attach(await network.start("h"), "orders", WANTED)
        await until(lambda: any(gaps for _, _, gaps in consumer.losses), "told")
        await until(lambda: consumer.is_ready, "ready")
        again = network.publish("x", 5, AT_LEAST_ONCE)
        await network.acknowledged()
        await consumer.gets(5)
        assert consumer.got == Counter(again)

    run(tmp_path, story)


def test_a_mirrors_name_is_not_for_subscribers(tmp_path):
    async def story(network: Network) -> None:
        await network.start("h")
        with pytest.raises(SubscriptionRefusedError, match="mirrors use"):
            Consumer().attach(network.nodes["h"], "mirror:x:y", WANTED)

    run(tmp_path, story)


def test_a_node_that_is_alone_waits_for_no_mirror(tmp_path):
    async def story(network: Network) -> None:
        consumer = await begin(network, "h")
        published = network.publish("h", 5, AT_LEAST_ONCE)
        await until(lambda: len(consumer.got) == 5, "all")
        # A mirror is taken as soon as there is one, and gets what waits.
        network.nodes["h"].detach("orders")
        published += network.publish("h", 5, AT_LEAST_ONCE)
        await network.start("x")
        store, home = network.nodes["x"]._store, network.nodes["h"].name
        await until(lambda: len(store.retained_events(home, 0, 9)) == 5, "what nobody took")
        await network.kill("h")
        consumer.attach(await network.start("h", data="empty"), "orders", WANTED)
        await until(lambda: len(consumer.got) >= 10, "all")
        assert consumer.got == Counter(published)

    run(tmp_path, story)


@pytest.mark.parametrize("overlay", ["flood", "tree"])
def test_where_nothing_is_promised_a_mirror_does_what_it_can(tmp_path, overlay):
    """Best effort: what a mirror gets while the home is down."""

    async def story(network: Network) -> None:
        network.overlay = overlay
        consumer = await begin(network)
        first = network.mirror_of("h")
        assert first is not None
        await network.kill("h")
        published = network.publish(first, 50, BEST_EFFORT)
        await network.acknowledged()
        consumer.attach(await network.start("h", data="empty"), "orders", WANTED)
        await consumer.gets(50)
        await nothing_retained(network)
        assert consumer.got == Counter(published)

    run(tmp_path, story)
