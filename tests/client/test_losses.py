"""What durable subscriptions lose, and that their consumers hear of it; over TCP."""

import shutil
from pathlib import Path

from client.turns import on_loop
from peersub import connect
from peersub.bench.resilience.disk_faults import cut_at_commit
from peersub.client.entrances import client_of
from peersub.overlays.core.mirror_settings import MirrorSettings
from peersub.runtime.settings import NodeSettings
from peersub.runtime.store import StoreSettings

LOG_BYTES = 400_000
EVENT_BYTES = 10_000


def settings(folder: Path) -> NodeSettings:
    return NodeSettings(
        data=folder,
        store=StoreSettings(log_bytes_max=LOG_BYTES),
        mirrors=MirrorSettings(copies=1),
    )


@on_loop
async def test_a_greedy_client_costs_another_no_acknowledged_event(tmp_path):
    node = await client_of(settings(tmp_path))
    async with connect(node.node) as victim, connect(node.node) as greedy:
        for client, wanted, name in ((victim, "small = 1", "v"), (greedy, "large = 1", "g")):
            async with client.subscribe(wanted, durable=name) as subscription:
                await subscription.ready(timeout=20)
        for number in range(20):
            await victim.publish({"small": 1, "number": number}, delivery="at_least_once")
        for number in range(120):
            body = bytes(EVENT_BYTES)
            event = {"large": 1, "number": number}
            await greedy.publish(event, body=body, delivery="at_least_once")
        async with victim.subscribe("small = 1", durable="v") as subscription:
            got = [(await anext(subscription)).attributes["number"] for _ in range(20)]
            assert got == list(range(20))
            assert (subscription.dropped, subscription.gaps) == (0, 0)
        async with greedy.subscribe("large = 1", durable="g") as subscription:
            (first,) = await subscription.take(1)
            lost = first.event.attributes["number"]
            assert 80 < lost < 120
            assert subscription.dropped == lost
            assert subscription.lost_through == first.position - 1
            store = (await node.status())["store"]
            assert store["log_trimmed_unread"] == lost
            assert store["log_bytes"] <= LOG_BYTES
    # What was told once is not told again.
    async with (
        connect(node.node) as greedy,
        greedy.subscribe("large = 1", durable="g") as subscription,
    ):
        await anext(subscription)
        assert (subscription.dropped, subscription.lost_through) == (0, 0)
    await node.close()


@on_loop
async def test_a_consumer_that_is_there_hears_of_its_losses_as_they_happen(tmp_path):
    node = await client_of(settings(tmp_path))
    async with (
        connect(node.node) as greedy,
        connect(node.node) as publisher,
        greedy.subscribe("TRUE", durable="g", queue_max=1) as subscription,
    ):
        await subscription.ready(timeout=20)
        for number in range(120):
            event, body = {"number": number}, bytes(EVENT_BYTES)
            await publisher.publish(event, body=body, delivery="at_least_once")
        got = 1
        while (await anext(subscription)).attributes["number"] < 119:
            got += 1
        assert subscription.dropped
        assert subscription.lost_through
        assert got + subscription.dropped >= 120
    await node.close()


@on_loop
async def test_a_consumer_hears_that_the_disk_lost_events(tmp_path):
    node = await client_of(settings(tmp_path / "living"))
    async with node.subscribe("TRUE", durable="d") as subscription:
        await subscription.ready(timeout=20)
    for number in range(10):
        await node.publish({"number": number}, delivery="at_least_once")
    shutil.copytree(tmp_path / "living", tmp_path / "crashed")
    await node.close()
    cut_at_commit(tmp_path / "crashed", 3)
    node = await client_of(settings(tmp_path / "crashed"))
    async with node.subscribe("TRUE", durable="d") as subscription:
        assert (await anext(subscription)).attributes["number"] == 0
        assert subscription.gaps == 1
    async with node.subscribe("TRUE", durable="d") as subscription:
        await subscription.ready(timeout=20)
        assert subscription.gaps == 0
    await node.close()
