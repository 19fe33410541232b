"""TLS: handshakes in memory, in which all but the right certificates are refused."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest

from peersub.runtime.security.errors import SecurityError
from peersub.runtime.security.identity import PeerIdentity, Role, client_refusal, node_refusal
from peersub.runtime.security.settings import binding_refusal
from peersub.runtime.security.tls import (
    client_context,
    handshake_failure,
    own_identity,
    peer_identity,
    server_context,
)
from runtime.security.conftest import NOW

ROUNDS_MAX = 20


class Ends:
    """Both ends of a connection in memory, after the handshake; raises what either end does."""

    def __init__(
        self, server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost"
    ) -> None:
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client.wrap_bio(to_client, to_server, server_hostname=host)
        self.server = server.wrap_bio(to_server, to_client, server_side=True)
        waiting = [self.client, self.server]
        for _ in range(ROUNDS_MAX):
            for end in tuple(waiting):
                try:
                    end.do_handshake()
                    waiting.remove(end)
                except ssl.SSLWantReadError:
                    pass
            if not waiting:
                return
        raise AssertionError("the handshake does not end")


def lenient(context: ssl.SSLContext) -> ssl.SSLContext:
    """A dialler that believes anything, so that what is refused is refused by the node."""
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def bare(protocol: int = ssl.PROTOCOL_TLS_CLIENT) -> ssl.SSLContext:
    return lenient(ssl.SSLContext(protocol))


def with_files(context, settings):
    context.load_cert_chain(settings.certificate, settings.key)
    return context


def test_both_sides_learn_who_the_other_is(network):
    ends = Ends(server_context(network.node), client_context(network.client))
    assert ends.client.version() == "TLSv1.3"
    client, node = peer_identity(ends.server), peer_identity(ends.client)
    assert (client.role, client.name, client.hosts) == (Role.CLIENT, "c1", ())
    assert node == own_identity(network.node)
    assert (node.role, node.name, node.hosts) == (
        Role.NODE,
        "n1",
        ("localhost", "127.0.0.1", "::1"),
    )
    assert client.serial != node.serial


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_a_node_is_a_client_of_other_nodes(network, host):
    ends = Ends(server_context(network.node), client_context(network.node), host)
    assert peer_identity(ends.server).role is Role.NODE


def test_no_certificate_gets_nothing(network):
    with pytest.raises(ssl.SSLError) as refused:
        Ends(server_context(network.node), bare())
    assert handshake_failure(refused.value) == "the other side showed no certificate"


def test_another_authority_counts_for_nothing(network, other_network):
    with pytest.raises(ssl.SSLError) as refused:
        Ends(server_context(network.node), with_files(bare(), other_network.client))
    assert "not accepted" in handshake_failure(refused.value)
    with pytest.raises(ssl.SSLError) as refused:  # Nor does a node of another network.
        Ends(server_context(other_network.node), client_context(network.client))
    assert "not accepted" in handshake_failure(refused.value)


def test_an_expired_certificate_is_refused(network):
    with pytest.raises(ssl.SSLError) as refused:
        Ends(server_context(network.node), with_files(bare(), network.expired))
    assert "expired" in handshake_failure(refused.value)
    past = server_context(network.expired, NOW - timedelta(days=8))
    with pytest.raises(ssl.SSLError, match="expired"):
        Ends(past, client_context(network.client))


def test_a_client_cannot_act_as_a_node(network):
    with pytest.raises(SecurityError, match="is for a client"):
        server_context(network.client)
    # Not even with a program of its own: whoever dials refuses the certificate.
    server = with_files(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), network.client)
    dialler = client_context(network.node)
    dialler.check_hostname = False
    with pytest.raises(ssl.SSLError, match=r"unsuitable|unsupported|purpose"):
        Ends(server, dialler)


def test_tls_1_2_is_refused(network):
    old = with_files(bare(), network.client)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError) as refused:
        Ends(server_context(network.node), old)
    assert handshake_failure(refused.value) == "the other side does not speak TLS 1.3"


def test_a_node_under_another_host_is_refused(network):
    with pytest.raises(ssl.SSLError, match="Hostname mismatch"):
        Ends(server_context(network.node), client_context(network.client), "elsewhere.example")


def test_sessions_are_not_resumed(network):
    """A resumed one would not show its certificate again, revoked or not."""
    server, client = server_context(network.node), client_context(network.client)
    first = Ends(server, client)
    first.server.write(b"hello")
    assert first.client.read() == b"hello"  # Tickets would have come before this.
    assert first.client.session is None or not first.client.session.has_ticket


def test_failures_that_are_none_of_tls():
    assert handshake_failure(ConnectionResetError("gone")) == "gone"
    assert handshake_failure(TimeoutError()) == "TimeoutError"


@pytest.mark.parametrize("is_known", [True, False])
def test_over_sockets_of_this_machine(network, other_network, is_known):
    """A stranger's handshake seems to succeed, and then nothing comes but the end."""
    greeted = []

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        greeted.append(peer_identity(writer.get_extra_info("ssl_object")).name)
        writer.write(b"events")
        writer.close()
        await writer.wait_closed()

    async def visit() -> bytes:
        server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=server_context(network.node))
        async with server:
            port = server.sockets[0].getsockname()[1]
            tls = client_context(network.client) if is_known else bare()
            if not is_known:
                with_files(tls, other_network.client)
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=tls, server_hostname="127.0.0.1"
            )
            try:
                return await reader.read()
            except OSError:  # An alert that says why, or a reset that overtook it.
                return b""
            finally:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()

    assert asyncio.run(visit()) == (b"events" if is_known else b"")
    assert greeted == (["c1"] if is_known else [])


# --- files -------------------------------------------------------------------------------------


def test_files_that_do_not_fit_are_named(network, other_network, tmp_path):
    node = network.node
    junk = tmp_path / "junk.pem"
    junk.write_text("no PEM at all")
    cases = [
        (replace(node, key=network.client.key), "not the key of the certificate"),
        (replace(node, ca=other_network.node.ca), "issued by another authority"),
        (replace(node, ca=node.certificate), "no certificate of an authority"),
        (replace(node, certificate=node.ca), "the authority's own"),
        (replace(node, certificate=tmp_path / "no.pem"), "no.pem: there is no such file"),
        (replace(node, key=tmp_path), "cannot be read"),
        (replace(node, certificate=junk), "junk.pem: this is no certificate"),
        (replace(node, key=junk), "junk.pem: this is no private key"),
        (network.expired, "old.pem: expired on"),
    ]
    for settings, problem in cases:
        for context in (client_context, server_context):
            with pytest.raises(SecurityError, match=problem):
                context(settings)
    with pytest.raises(SecurityError, match="not valid before"):
        own_identity(node, NOW - timedelta(days=1))
    junk.write_bytes(bytes(70_000))
    with pytest.raises(SecurityError, match="too large"):
        own_identity(replace(node, key=junk))


# --- who may be what ---------------------------------------------------------------------------


def test_who_may_be_which_node():
    node = PeerIdentity(Role.NODE, "n1", 1, ("10.0.0.7", "::1", "a.example"))
    for address in ("10.0.0.7:7001", "[::1]:1", "[0:0::1]:1", "A.Example:80"):
        assert node_refusal(node, address) is None
    assert "not for 10.0.0.8" in node_refusal(node, "10.0.0.8:7001")
    assert "no address" in node_refusal(node, "n1")
    assert "is no node" in node_refusal(PeerIdentity(Role.CLIENT, "c", 1, ("a",)), "a:1")
    assert "no certificate" in node_refusal(None, "a:1")
    assert client_refusal(node) is None and client_refusal(None) is not None


@pytest.mark.parametrize(
    "uris", [[], ["https://a"], ["peersub:node"], ["peersub:boss:x"], ["peersub:node:a b"]]
)
def test_a_certificate_that_names_nobody_is_refused(uris):
    with pytest.raises(SecurityError):
        PeerIdentity.read(uris, 1, [])


def test_a_certificate_that_names_two_is_refused():
    with pytest.raises(SecurityError):
        PeerIdentity.read(["peersub:node:a", "peersub:client:a"], 1, [])


def test_binding_beyond_this_machine_needs_tls(network):
    for host in ("127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost", "LOCALHOST."):
        assert binding_refusal(host, None) is None
    for host in ("0.0.0.0", "::", "", "10.0.0.7", "localhost.example", "a.example", "[::]"):
        assert "--insecure" in binding_refusal(host, None)
        assert binding_refusal(host, network.node) is None
