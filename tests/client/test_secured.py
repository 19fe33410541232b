"""Nodes with certificates, and clients that may do some things and not others."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from client.turns import on_loop, until
from peersub import connect, join
from peersub.client import ConnectError, PublishFailedError, SubscriptionEndedError
from peersub.overlays.core.mirror_settings import MirrorSettings
from peersub.overlays.core.publication import Publication
from peersub.runtime.accepting import MADE_ROOM
from peersub.runtime.addresses import split_address
from peersub.runtime.client_rules import PermittedRules
from peersub.runtime.live_node import StartError
from peersub.runtime.security.authority import Authority
from peersub.runtime.security.identity import Role
from peersub.runtime.security.permissions import Permissions
from peersub.runtime.security.settings import TlsSettings
from peersub.runtime.security.tls import client_context
from peersub.runtime.serving import reload_files, served_node
from peersub.runtime.settings import NodeSettings
from peersub.runtime.transport import TransportSettings

NAMES = {"n1": Role.NODE, "n2": Role.NODE, "ann": Role.CLIENT, "bob": Role.CLIENT}


def authority_in(folder):
    """The files of all that an authority lets in, by name."""
    now = datetime.now(UTC)
    authority = Authority.create(folder, "test", now)
    for name, role in NAMES.items():
        authority.issue(name, role, now)
    return {name: TlsSettings.beside(folder / f"{name}.pem") for name in NAMES}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return authority_in(tmp_path_factory.mktemp("ours"))


@asynccontextmanager
async def second_node(files, first):
    """Another node of the same network."""
    node, _ = served_node(NodeSettings(join=(first.name,)), files["n2"])
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    return authority_in(tmp_path_factory.mktemp("theirs"))


@on_loop
async def test_a_certificate_that_is_read_again_is_shown_from_then_on(tmp_path, caplog):
    files, now = authority_in(tmp_path), datetime.now(UTC)
    node, gate = served_node(NodeSettings(columns=False), files["n1"])
    await node.start()

    async def serial_shown():
        await (await connect(node.name, tls=files["ann"])).close()
        host, port = split_address(node.name)
        context = client_context(files["ann"])
        _, writer = await asyncio.open_connection(host, port, ssl=context)
        serial = writer.get_extra_info("peercert")["serialNumber"]
        writer.close()
        return serial

    try:
        first = await serial_shown()
        for name in ("n1.pem", "n1.key"):
            (tmp_path / name).unlink()
        Authority(tmp_path).issue("n1", Role.NODE, now)
        assert await serial_shown() == first
        await reload_files(node, gate)
        second = await serial_shown()
        assert second != first
        (tmp_path / "n1.pem").write_text("nonsense")
        await reload_files(node, gate)
        assert "the certificate stays as it is" in caplog.text
        assert await serial_shown() == second
    finally:
        await node.stop()


@asynccontextmanager
async def serving(files, permissions=None):
    """A node with a certificate."""
    settings = NodeSettings(mirrors=MirrorSettings(copies=1))
    node, _ = served_node(settings, files["n1"], permissions)
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


@on_loop
async def test_with_certificates_all_is_as_without(files):
    async with (
        join(tls=files["n1"], permissions=Permissions.unbounded()) as first,
        join(first.node, tls=files["n2"]) as second,
        connect(first.node, tls=files["ann"]) as light,
        light.subscribe("n > 1") as subscription,
    ):
        await subscription.ready(timeout=20)
        await second.publish({"n": 2}, id="e", delivery="at_least_once", timeout=20)
        assert (await anext(subscription)).id == "e"
        status = await light.status()
        assert status["clients"]["client-2"]["identity"] == "ann"


@on_loop
async def test_a_joined_node_takes_no_clients_but_those_of_its_permissions(files, tmp_path):
    file = tmp_path / "permissions.toml"
    file.write_text("[clients.ann]\nsubscribe = 'public = TRUE'")
    async with (
        join(tls=files["n1"]) as closed,
        join(closed.node, tls=files["n2"], permissions=file) as open_,
        connect(open_.node, tls=files["ann"]) as ann,
        connect(closed.node, tls=files["n2"]) as trusted,
        ann.subscribe("TRUE") as some,
        trusted.subscribe("TRUE") as everything,
    ):
        for name in ("ann", "bob"):
            with pytest.raises(ConnectError, match=f"takes no clients .* not {name}"):
                await connect(closed.node, tls=files[name])
        await some.ready(timeout=20)
        await everything.ready(timeout=20)
        await closed.publish({"public": False}, id="1")
        await closed.publish({"public": True}, id="2")
        assert (await anext(some)).id == "2"
        assert [(await anext(everything)).id for _ in range(2)] == ["1", "2"]
        with pytest.raises(PublishFailedError, match="may not publish"):
            await ann.publish({"public": True})


def test_permissions_need_certificates(tmp_path):
    with pytest.raises(ValueError, match="give tls="):
        join(permissions=tmp_path / "permissions.toml")


@on_loop
async def test_clients_see_what_is_their_own_unless_they_may_observe(files, tmp_path):
    (tmp_path / "permissions.toml").write_text(
        "[default]\nsubscribe = true\npublish = true\n[clients.bob]\nobserve = true"
    )
    async with (
        serving(files, tmp_path / "permissions.toml") as node,
        second_node(files, node) as second,
        connect(node.name, tls=files["ann"], name="mine") as ann,
        connect(node.name, tls=files["ann"], name="mine too") as again,
        connect(node.name, tls=files["bob"], name="other") as bob,
        again.subscribe("TRUE", durable="orders"),
        bob.subscribe("TRUE", durable="secret"),
    ):
        await until(lambda: second.name in node.status()["links"])
        status = await ann.status()
        assert {each["name"] for each in status["clients"].values()} == {"mine", "mine too"}
        assert status["durable_subscriptions"] == ["durable/ann/orders"]
        assert status["subscriptions"] == 1 and status["overlay"] == {"name": "chord"}
        shown = str(status)
        assert not any(each in shown for each in ("bob", "other", "secret", second.name))
        assert await ann.introduce() == (node.name,)
        observed = await bob.status()
        assert len(observed["clients"]) == 3 and second.name in observed["links"]
        assert second.name in await bob.introduce()


@on_loop
async def test_all_connections_of_a_client_share_its_subscriptions(files, tmp_path):
    (tmp_path / "permissions.toml").write_text("[default]\nsubscribe = true\nsubscriptions_max = 3")
    async with (
        serving(files, tmp_path / "permissions.toml") as node,
        connect(node.name, tls=files["ann"]) as first,
        connect(node.name, tls=files["ann"]) as second,
        connect(node.name, tls=files["bob"]) as bob,
    ):
        taken = [first.subscribe(f"n = {number}") for number in range(2)]
        for subscription in taken:
            await subscription.accepted()
        third = second.subscribe("n = 2")
        await third.accepted()
        for client in (first, second):
            with pytest.raises(SubscriptionEndedError, match="client ann may have 3 subscrip"):
                await client.subscribe("n = 3").accepted()
        await bob.subscribe("n = 3").accepted()
        await taken[0].close()
        await second.subscribe("n = 3").accepted()
        # What a lost connection had is free again.
        await first.close()
        await until(lambda: node.status()["connections"]["clients"] == 2)
        await second.subscribe("n = 4").accepted()
        with pytest.raises(SubscriptionEndedError, match="over all of its connections"):
            await second.subscribe("n = 5").accepted()


@on_loop
async def test_who_has_no_certificate_gets_nothing(files, foreign):
    async with join(tls=files["n1"]) as node:
        for tls in (None, foreign["ann"]):
            with pytest.raises(ConnectError):
                await connect(node.node, tls=tls)
        refused = served_node(NodeSettings(join=(node.node,)), foreign["n1"])
        with pytest.raises(StartError):
            await refused[0].start()
        assert (await node.status())["links"] == {}


@on_loop
async def test_a_client_that_asks_for_a_certificate_talks_to_no_other(files):
    async with join() as node:
        with pytest.raises(ConnectError):
            await connect(node.node, tls=files["ann"])


@on_loop
async def test_two_clients_see_only_what_they_may(files, tmp_path):
    (tmp_path / "permissions.toml").write_text(
        """
        [clients.ann]
        publish = "source = 'ann'"
        subscribe = "public = TRUE"
        [clients.bob]
        subscribe = true
        """
    )
    async with (
        serving(files, tmp_path / "permissions.toml") as node,
        connect(node.name, tls=files["ann"]) as ann,
        connect(node.name, tls=files["bob"]) as bob,
        connect(node.name, tls=files["n2"]) as trusted,
        ann.subscribe("TRUE") as some,
        bob.subscribe("TRUE") as everything,
    ):
        assert some.detail.startswith("narrowed to: ") and everything.detail == ""
        await some.ready(timeout=20)
        await everything.ready(timeout=20)
        await ann.publish({"source": "ann", "public": False}, id="1")
        await ann.publish({"source": "ann", "public": True}, id="2")
        with pytest.raises(PublishFailedError, match="ann may only publish"):
            await ann.publish({"source": "bob", "public": True}, id="3")
        with pytest.raises(PublishFailedError, match="bob may not publish"):
            await bob.publish({}, id="4")
        with pytest.raises(SubscriptionEndedError, match="may only see"):
            await ann.subscribe("public = FALSE").accepted()
        await trusted.publish({"public": True}, id="5")
        assert [(await anext(some)).id for _ in range(2)] == ["2", "5"]
        assert [(await anext(everything)).id for _ in range(3)] == ["1", "2", "5"]


@on_loop
async def test_a_certificate_that_was_taken_back_opens_nothing(files):
    authority = Authority(files["ann"].ca.parent)
    async with (
        serving(files) as first,
        second_node(files, first) as second,
        connect(second.name, tls=files["ann"]) as ann,
        ann.subscribe("n > 1") as subscription,
        connect(first.name, tls=files["bob"]) as bob,
    ):
        await subscription.ready(timeout=20)
        (revocation,) = authority.revoke(1, name="ann")
        forged = replace(revocation, serial=revocation.serial + 1)
        with pytest.raises(ValueError, match="has not signed"):
            await bob.tell_revocation(forged.to_json())
        assert len(first.security.revocations) == 0
        await bob.tell_revocation(revocation.to_json())
        # The other node hears of it, and ends the connection that it has.
        await until(lambda: len(second.security.revocations) == 1)
        await until(lambda: second.counters["a connection with a certificate that was taken back"])
        for node in (first, second):
            with pytest.raises(ConnectError, match="client ann was taken back"):
                await connect(node.name, tls=files["ann"])
        await bob.publish({"n": 2}, delivery="at_least_once", timeout=20)


def test_all_connections_of_a_client_share_its_rate():
    now_ms = 0
    permissions = Permissions.parse("[clients.ann]\npublish = true\nevents_per_second = 2")
    rules = PermittedRules(permissions, lambda: now_ms)
    event = Publication("e", {})
    answers = [rules.permit_publish("ann", event) for _ in range(3)]
    assert answers == [None, None, "client ann may publish 2 events per second"]
    now_ms = 1_000
    assert rules.permit_publish("ann", event) is None
    assert "may not publish" in rules.permit_publish("bob", event)
    assert rules.limits("ann").subscriptions_max == 10_000


@on_loop
async def test_a_client_whose_certificate_was_renewed_connects_with_it_again(tmp_path):
    files = authority_in(tmp_path)
    authority = Authority(tmp_path)
    async with (
        serving(files) as node,
        connect(node.name, tls=files["ann"]) as ann,
        ann.subscribe("TRUE", durable="d") as subscription,
        connect(node.name, tls=files["bob"]) as bob,
    ):
        await subscription.ready(timeout=20)
        (former,) = authority.revoke(1, name="ann")
        authority.issue("ann", Role.CLIENT, datetime.now(UTC), force=True)
        await bob.tell_revocation(former.to_json())
        await bob.publish({}, id="e", delivery="at_least_once", timeout=20)
        assert (await anext(subscription)).id == "e"
        assert node.counters["a connection with a certificate that was taken back"] == 1


def test_a_key_that_others_can_read_is_noticed(tmp_path):
    files = authority_in(tmp_path)["n1"]
    assert files.key.stat().st_mode & 0o777 == 0o600
    assert served_node(NodeSettings(), files)[0].notices == []
    files.key.chmod(0o640)
    (notice,) = served_node(NodeSettings(), files)[0].notices
    assert "chmod 600" in notice


@on_loop
async def test_a_client_hangs_up_on_a_node_whose_certificate_expires(files, monkeypatch):
    async with serving(files) as node, connect(node.name, tls=files["ann"]) as ann:
        monkeypatch.setattr("peersub.client.remote.time.time", lambda: 1e11)
        await until(lambda: not node.status()["connections"]["clients"])
        monkeypatch.undo()
        await ann.publish({}, delivery="at_least_once", timeout=20)


@on_loop
async def test_a_certificate_that_expires_ends_its_connections(files):
    expired = "a connection with a certificate that has expired"
    async with (
        serving(files) as first,
        second_node(files, first) as second,
        connect(first.name, tls=files["ann"], reconnect=False) as ann,
    ):
        await until(lambda: second.name in first.status()["connections"]["links"])
        assert not first.counters[expired]
        first.security.now_s = lambda: datetime.now(UTC).timestamp() + 366 * 86_400
        # Nobody else notices: to others the certificates are as good as before.
        await until(lambda: first.counters[expired] >= 2)
        await until(lambda: not first.status()["connections"]["clients"])
        with pytest.raises(ConnectError):
            await ann.status()


@on_loop
async def test_callers_that_never_agree_on_tls_make_room_for_those_who_do(files):
    """Each of them is connected, and says nothing at all."""
    settings = NodeSettings(transport=TransportSettings(unnamed_max=4, strangers_per_second=1_000))
    node, _ = served_node(settings, files["n1"])
    await node.start()
    silent = []
    try:
        for _ in range(6):
            silent.append(await asyncio.open_connection(*split_address(node.name)))
        await until(lambda: MADE_ROOM in node.counters.as_dict())
        for _ in range(3):
            async with connect(node.name, tls=files["ann"]) as light:
                assert light.node == node.name
    finally:
        for _, writer in silent:
            writer.transport.abort()
        await node.stop(leave=False)
