"""Moving over TCP and TLS: the client's certificate and permissions count at the new node as well.

The overlay is a flood that proposes a neighbour to each subscription, and at the end the anonymous
one, which does so by itself.
"""

import asyncio
from dataclasses import replace

import pytest

from client.test_secured import authority_in
from client.turns import on_loop, until
from peersub import connect, join
from peersub.client import ConnectError, moving
from peersub.overlays.core.causes import Subscribe
from peersub.overlays.core.effects import ProposeMove
from peersub.overlays.core.shell import Shell
from peersub.overlays.flood import router
from peersub.overlays.registry import OVERLAYS
from peersub.runtime.serving import served_node
from peersub.runtime.settings import NodeSettings


class ProposingFlood(Shell):
    """Proposes a neighbour to each subscription that comes to it first."""

    def handle(self, cause, now_ms):
        effects = super().handle(cause, now_ms)
        if isinstance(cause, Subscribe) and not cause.moved and self.linked:
            effects.append(ProposeMove(cause.subscription, min(self.linked)))
        return effects


@pytest.fixture(autouse=True)
def _proposing(monkeypatch):
    monkeypatch.setitem(OVERLAYS, "flood", replace(OVERLAYS["flood"], proposes_moves=True))
    monkeypatch.setattr(router, "Shell", ProposingFlood)
    monkeypatch.setattr(moving, "OVERLAP_S", 0.05)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return authority_in(tmp_path_factory.mktemp("ours"))


@on_loop
async def test_no_event_is_lost_or_doubled_while_subscriptions_move():
    async with (
        join(overlay="flood") as first,
        join(first.node, overlay="flood") as second,
        connect(first.node) as light,
        connect(first.node, moves=False) as settled,
    ):
        subscription, other = light.subscribe("n >= 0"), settled.subscribe("n >= 0")
        await asyncio.gather(subscription.ready(timeout=20), other.ready(timeout=20))
        sent, taken = 0, []
        while subscription.node != second.node or sent < 100:
            await second.publish({"n": sent}, id=str(sent))
            sent += 1
            # What comes in time is taken; what is lost or doubled shows at the end.
            taken += [delivery.event.attributes["n"] for delivery in await subscription.take()]
        while len(taken) < sent:
            taken += [delivery.event.attributes["n"] for delivery in await subscription.take()]
        assert taken == list(range(sent))
        await until(lambda: other.waiting == sent)
        assert subscription.waiting == 0
        for each in (subscription, other):
            assert each.gaps == each.dropped == 0
        assert other.node == first.node


@pytest.mark.parametrize("may", ["n >= 0", "n < 3"])
@on_loop
async def test_certificates_and_permissions_apply_at_the_new_node(files, may, tmp_path):
    def permitted(filter_text):
        file = tmp_path / f"{len(filter_text)}.toml"
        file.write_text(f'[clients.ann]\nsubscribe = "{filter_text}"\npublish = "n >= 0"\n')
        return file

    here, _ = served_node(NodeSettings(overlay="flood"), files["n1"], permitted("n >= 0"))
    await here.start()
    settings = NodeSettings(overlay="flood", join=(here.name,))
    there, _ = served_node(settings, files["n2"], permitted(may))
    await there.start()
    try:
        async with connect(here.name, tls=files["ann"], name="ann") as light:
            subscription = light.subscribe("n >= 0")
            await subscription.ready(timeout=20)
            await until(lambda: not light._moves.is_moving(subscription))
            assert (subscription.node == there.name) == (may == "n >= 0")
            await light.publish({"n": 5})
            assert (await anext(subscription)).attributes["n"] == 5
    finally:
        await there.stop()
        await here.stop()


@on_loop
async def test_a_client_joins_through_another():
    async with join(overlay="flood") as first, join(first.node, overlay="flood") as second:
        async with connect(first.node) as pioneer:
            assert await pioneer.introduce() == (first.node, second.node)
            async with connect(pioneer) as friend:
                assert friend.node == first.node
            addresses = ("127.0.0.1:1", *await pioneer.introduce())
        async with connect(addresses) as friend:
            assert friend.node == first.node
        with pytest.raises(ConnectError):
            await connect(["127.0.0.1:1"])
        with pytest.raises(ValueError, match="no address to connect to"):
            connect([])


@on_loop
async def test_clients_of_the_anonymous_overlay_gather_where_others_want_the_same():
    async with (
        join(overlay="dag") as first,
        join(first.node, overlay="dag") as second,
        second.subscribe("symbol = 'ACME'") as there,
        connect(first.node) as light,
    ):
        await there.ready(timeout=20)
        subscription = light.subscribe("symbol IN ('ACME', 'BOLT') AND price > 5")
        await subscription.ready(timeout=20)
        sent = 0
        while subscription.node != second.node:
            sent += 1
            await first.publish({"symbol": "ACME", "price": 5 + sent}, id=str(sent))
            assert (await anext(subscription)).id == str(sent)
        await first.publish({"symbol": "ACME", "price": 1}, id="cheap")
        await first.publish({"symbol": "ACME", "price": 9}, id="last")
        assert (await anext(subscription)).id == "last"
        assert (subscription.gaps, subscription.waiting) == (0, 0)
        # A new wish is proposed anew: nobody else wants that, and it stays.
        await subscription.change("symbol = 'BOLT'")
        await first.publish({"symbol": "BOLT"}, id="bolt")
        assert (await anext(subscription)).id == "bolt"
        assert subscription.node == second.node
