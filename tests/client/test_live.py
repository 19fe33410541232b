"""The Python API over real nodes and TCP on this machine."""

import asyncio
import contextlib

import numpy as np
import pytest

import peersub
from client.turns import on_loop, until
from peersub import Publisher, connect, join
from peersub.client import (
    ClientError,
    ConnectError,
    PublishFailedError,
    SubscriptionEndedError,
)
from peersub.client.entrances import client_of
from peersub.overlays.settings import SettingsError
from peersub.runtime.limits import ServingLimits
from peersub.runtime.live_node import StartError
from peersub.runtime.security.errors import SecurityError
from peersub.runtime.serving import served_node
from peersub.runtime.settings import NodeSettings
from peersub.wire import encode, encode_batch
from peersub.wire.client_messages import (
    CLIENT_VERSION,
    Batch,
    ClientRefused,
    ClientWelcome,
    DeliveredBatch,
)


@contextlib.asynccontextmanager
async def somebody(answer):
    """A server that is no node: it answers what comes first with some bytes, and closes."""

    async def serve(reader, writer):
        await reader.read(10)
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("overlay", ["chord", "tree", "flood"])
@on_loop
async def test_three_nodes_and_a_light_client(overlay):
    async with (
        join(overlay=overlay, network="test") as first,
        join(first.node, overlay=overlay, network="test") as second,
        join([second.node], overlay=overlay, network="test") as third,
        connect(second.node, name="light") as light,
    ):
        assert (light.node, light.overlay, light.network) == (second.node, overlay, "test")
        async with (
            first.subscribe("n > 1") as above,
            light.subscribe("n < 3") as below,
            light.subscribe("n = 2") as two,
        ):
            for subscription in (above, below, two):
                await subscription.ready(timeout=20)
            await third.publish_many(({"id": n, "n": n} for n in range(5)), id_attribute="id")
            assert sorted([(await anext(above)).id for _ in range(3)]) == ["2", "3", "4"]
            assert sorted([(await anext(below)).id for _ in range(3)]) == ["0", "1", "2"]
            delivery = (await two.take())[0]
            assert delivery.event.id == "2" and delivery.hops >= 1
            status = await light.status()
            assert status["clients"]["client-2"]["name"] == "light"
            assert status["clients"]["client-2"]["subscriptions"] == 2


@on_loop
async def test_at_least_once_through_a_light_client():
    async with (
        join() as first,
        join(first.node) as second,
        connect(first.node) as light,
        second.subscribe("TRUE") as subscription,
    ):
        await subscription.ready(timeout=20)
        await light.publish({"a": 1}, id="sure", delivery="at_least_once", timeout=20)
        # It was confirmed: it is here already, or on the last step.
        assert (await anext(subscription)).id == "sure"


@on_loop
async def test_two_clients_that_publish_the_same_event_both_hear_of_its_end():
    async with (
        join() as first,
        join(first.node) as second,
        connect(first.node, publisher=(same := Publisher.random())) as one,
        connect(first.node, publisher=same) as two,
        second.subscribe("TRUE") as subscription,
    ):
        await subscription.ready(timeout=20)
        for n in range(20):
            publishing = [
                each.publish({}, id=f"e{n}", delivery="at_least_once", timeout=20)
                for each in (one, two)
            ]
            assert await asyncio.gather(*publishing) == [f"e{n}", f"e{n}"]
        assert [(await anext(subscription)).id for _ in range(20)] == [f"e{n}" for n in range(20)]


@on_loop
async def test_events_in_columns_through_a_light_client():
    async with (
        join() as first,
        join(first.node) as second,
        connect(first.node) as light,
        second.subscribe("n >= 500 AND s = 'x'", queue_max=5_000) as subscription,
        light.subscribe("n = 7") as own,
    ):
        await subscription.ready(timeout=20)
        await own.ready(timeout=20)
        events = [{"n": n, "s": "x" if n % 2 else "y"} for n in range(2_000)]
        summary = await light.publish_many(events, delivery="at_least_once")
        assert summary.published == 2_000
        taken = []
        while len(taken) < 750:
            taken += [delivery.event.attributes for delivery in await subscription.take()]
        assert taken == [event for event in events if event["n"] >= 500 and event["n"] % 2]
        assert (await anext(own)).attributes == {"n": 7, "s": "x"}


@on_loop
async def test_large_bodies_and_slow_readers():
    async with (
        join() as node,
        connect(node.node) as light,
        light.subscribe("TRUE", queue_max=1_000) as subscription,
    ):
        await subscription.ready(timeout=20)
        body = bytes(1_000_000)
        await light.publish_many(peersub.Event(f"e{n}", {"n": n}, body) for n in range(30))
        taken = []
        while len(taken) < 30:
            taken += [delivery.event for delivery in await subscription.take(3)]
        assert [event.id for event in taken] == [f"e{n}" for n in range(30)]
        assert all(event.body == body for event in taken) and subscription.dropped == 0


@on_loop
async def test_a_client_comes_back_to_a_node_that_does():
    node = await join()
    address = node.node
    async with connect(address) as light, light.subscribe("TRUE") as subscription:
        await subscription.ready(timeout=20)
        await node.close()
        await until(lambda: not light.is_connected)
        sure = asyncio.create_task(light.publish({"n": 1}, delivery="at_least_once"))
        node = await join(listen=address)
        await sure
        await until(lambda: light.is_connected)
        await subscription.ready(timeout=20)
        await node.publish({"n": 2}, id="e2")
        found = {(await anext(subscription)).attributes["n"]}
        if found == {1}:
            found.add((await anext(subscription)).attributes["n"])
        assert 2 in found and subscription.gaps == 1
        await node.close()


@on_loop
async def test_a_client_that_may_not_come_back_ends():
    node = await join()
    async with connect(node.node, reconnect=False) as light:
        subscription = light.subscribe("TRUE")
        await subscription.ready(timeout=20)
        await node.close()
        with pytest.raises(SubscriptionEndedError, match="was lost"):
            await anext(subscription)
        with pytest.raises(ClientError, match="was lost"):
            await light.publish({})


@on_loop
async def test_nobody_there():
    async with somebody(b"") as address:
        pass
    with pytest.raises(ConnectError, match=f"peersub node --listen {address}"):
        await connect(address)
    with pytest.raises(ValueError, match="is no address"):
        await connect("localhost")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", "no node can be reached"),
        (b"", "does it want a certificate, --tls FILE"),
        (b"HTTP/1.0 400 Bad Request\r\n\r\n", "no node can be reached"),
        (encode(ClientRefused("not on a Sunday")), "does not take this client: not on a Sunday"),
    ],
)
@on_loop
async def test_somebody_else_there(answer, message):
    async with somebody(answer) as address:
        with pytest.raises(ConnectError, match=message):
            await connect(address)


@on_loop
async def test_a_node_that_talks_nonsense_is_left():
    welcome = ClientWelcome("n", CLIENT_VERSION, "chord", "net")
    batch = Batch("b", np.arange(1, dtype=np.uint32), 1, packed=b"nonsense")
    answer = encode_batch([welcome, DeliveredBatch(batch, ((1, bytes(4)),), 1)])
    async with somebody(answer) as address:
        client = await connect(address, reconnect=False)
        with pytest.raises(SubscriptionEndedError, match="cannot be read"):
            await client.subscribe("TRUE").ready()
        await client.close()


@on_loop
async def test_a_node_that_cannot_begin_says_why():
    with pytest.raises(SettingsError, match="there is no overlay 'ring'"):
        await join(overlay="ring")
    async with join() as node:
        with pytest.raises(StartError, match="cannot listen"):
            await join(listen=node.node)


@on_loop
@pytest.mark.parametrize("listen", ["0.0.0.0:0", "192.0.2.9:7001"])
async def test_a_node_that_others_reach_wants_a_certificate_or_to_be_insecure(listen):
    with pytest.raises(SecurityError, match=r"without TLS .* insecure=True"):
        await join(listen=listen, advertise="127.0.0.1:7001")
    with pytest.raises(StartError, match="cannot listen on"):
        await join(listen="192.0.2.9:7001", insecure=True)


@on_loop
async def test_a_durable_subscription_outlives_its_consumer_and_its_node(tmp_path):
    node = await join(data=tmp_path, copies=1)
    address = node.node
    async with connect(address) as light, light.subscribe("n > 0", durable="d") as subscription:
        await subscription.ready(timeout=20)
        await node.publish_many(({"id": n, "n": n} for n in range(3)), id_attribute="id")
        assert [(await anext(subscription)).id for _ in range(2)] == ["1", "2"]
    await node.publish_many(({"id": n, "n": n} for n in range(3, 6)), id_attribute="id")
    await node.publish({"id": 6, "n": 6}, id="6", delivery="at_least_once")
    await node.close()
    async with join(listen=address, data=tmp_path) as node:
        async with node.subscribe("n > 0", durable="d") as subscription:
            assert [(await anext(subscription)).id for _ in range(4)] == ["3", "4", "5", "6"]
        async with node.subscribe("n > 0", durable="d", since="earliest") as subscription:
            assert (await anext(subscription)).attributes == {"id": 1, "n": 1}
            await subscription.close(forget=True)


@on_loop
async def test_a_durable_subscription_goes_on_while_its_node_restarts(tmp_path):
    node = await join(data=tmp_path)
    address = node.node
    async with connect(address) as light, light.subscribe("TRUE", durable="d") as subscription:
        await subscription.ready(timeout=20)
        await node.publish_many(({"id": n} for n in range(10)), id_attribute="id")
        assert [(await anext(subscription)).id for _ in range(4)] == ["0", "1", "2", "3"]
        await node.close()
        await until(lambda: not light.is_connected)
        node = await join(listen=address, data=tmp_path)
        await until(lambda: light.is_connected)
        await subscription.ready(timeout=20)
        await node.publish_many(({"id": n} for n in range(10, 20)), id_attribute="id")
        found = [(await anext(subscription)).id for _ in range(16)]
        assert found == [str(n) for n in range(4, 20)]
        assert await subscription.take(timeout=0.01) == [] and subscription.gaps == 0
    await node.close()


@on_loop
async def test_a_small_queue_loses_nothing_of_a_durable_subscription():
    async with (
        join() as node,
        connect(node.node) as light,
        light.subscribe("TRUE", durable="d", queue_max=5) as subscription,
    ):
        await subscription.ready(timeout=20)
        await node.publish_many(({"id": n} for n in range(600)), id_attribute="id")
        found = [(await anext(subscription)).id for _ in range(600)]
        assert found == [str(n) for n in range(600)] and subscription.dropped == 0


@on_loop
async def test_clients_that_leave_are_forgotten():
    async with join() as node:
        for _ in range(3):
            async with connect(node.node) as light, light.subscribe("TRUE") as subscription:
                await subscription.ready(timeout=20)

        async def is_alone():
            status = await node.status()
            return list(status["clients"]) == ["client-1"] and not status["subscriptions"]

        while not await is_alone():
            await asyncio.sleep(0.001)
        assert (await node.status())["connections"]["clients"] == 0


@on_loop
async def test_a_node_that_ends_by_itself_ends_its_own_client():
    client = await client_of(NodeSettings())
    subscription = client.subscribe("TRUE")
    await subscription.ready(timeout=20)
    await client._end()
    with pytest.raises(SubscriptionEndedError, match="the node has ended"):
        await anext(subscription)
    with pytest.raises(ClientError, match="the node has ended"):
        await client.publish({})
    await client.close()


@on_loop
async def test_what_a_client_says_while_its_node_ends_goes_to_the_next(monkeypatch):
    """The node closes its connections a moment after it has ended: what comes is not for it."""
    failures = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    node, _ = served_node(NodeSettings())
    await node.start()
    async with join() as other, connect([node.name, other.node]) as light:
        close, said = node._transport.close, []

        async def close_later():
            publishing = asyncio.create_task(light.publish({}, delivery="at_least_once"))
            said.extend((publishing, light.subscribe("TRUE")))
            await until(lambda: light.node == other.node)
            await close()

        monkeypatch.setattr(node._transport, "close", close_later)
        await node.stop()
        publishing, subscription = said
        await publishing
        await subscription.ready()
    assert failures == []


@on_loop
async def test_an_event_that_a_node_never_takes_is_refused_with_the_bound():
    limits = ServingLimits(client_bytes_max=200_000)
    client = await client_of(NodeSettings(limits=limits))
    async with connect(client.node) as light:
        heard = []
        light.on_connection(heard.append)
        for delivery in ("best_effort", "at_least_once"):
            with pytest.raises(
                PublishFailedError, match="too large for this node: it takes 198,976"
            ):
                await light.publish({}, body=bytes(5_000_000), delivery=delivery, timeout=20)
        await light.publish({}, body=bytes(190_000))
        assert heard == []
    await client.close()
