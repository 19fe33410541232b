"""One command line per node serves its first start, restarts, and a start of all at once."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from peersub.bench.resilience.cluster import free_addresses
from peersub.runtime import driver
from peersub.runtime.addresses import is_own_address
from peersub.runtime.live_node import LiveNode, StartError
from peersub.runtime.logs import NodeLog
from peersub.runtime.settings import NodeSettings
from runtime.live_network import until


def node(
    listen: str, join: list[str], overlay: str = "chord", data: Path | None = None
) -> LiveNode:
    settings = NodeSettings(
        listen=listen, join=tuple(join), overlay=overlay, data=data, columns=False
    )
    return LiveNode(settings)


def neighbours(each: LiveNode) -> set[str]:
    """The nodes with which it is in one network, when the network is small."""
    described = each.status()["overlay"]
    named = described.get("successors") or described.get("neighbours") or ()
    return {name.partition("~")[0] for name in named}


async def until_one(nodes: list[LiveNode]) -> None:
    everybody = {each.name for each in nodes}
    await until(
        lambda: all({each.name, *neighbours(each)} == everybody for each in nodes),
        "one network",
    )


async def stop_all(nodes: list[LiveNode]) -> None:
    for each in nodes:
        await each.stop(leave=False)


def alias(address: str) -> str:
    """Another address of the same node."""
    return address.replace("127.0.0.1", "localhost")


@pytest.mark.parametrize("named", [str, alias], ids=["names", "other-addresses"])
@pytest.mark.parametrize("overlay", ["chord", "flood"])
def test_three_nodes_with_one_list_start_at_once(overlay: str, named: Callable[[str], str]) -> None:
    async def run() -> None:
        addresses = free_addresses(3)
        nodes = [node(each, [*map(named, addresses)], overlay) for each in addresses]
        try:
            await asyncio.gather(*(each.start() for each in nodes))
            await until_one(nodes)
        finally:
            await stop_all(nodes)

    asyncio.run(run())


@pytest.mark.parametrize("overlay", ["tree", "containment", "similarity", "dag", "reach"])
def test_where_networks_do_not_merge_the_first_of_the_list_begins(overlay: str) -> None:
    async def run() -> None:
        addresses = free_addresses(2)
        first, second = (node(each, addresses, overlay) for each in addresses)
        starting = asyncio.create_task(second.start())
        try:
            await first.start()
            await starting
            assert second.status()["links"].keys() == {first.name}
        finally:
            await stop_all([first, second])

    asyncio.run(run())


@pytest.mark.parametrize("has_data", [True, False], ids=["data", "no-data"])
@pytest.mark.parametrize("takes_leave", [True, False], ids=["leave", "kill"])
def test_a_seed_that_starts_again_as_it_did_first_is_in_the_network_again(
    tmp_path: Path,
    has_data: bool,
    takes_leave: bool,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.WARNING, "peersub")
    # What nodes of other tests have said a moment ago leaves nothing out.
    monkeypatch.setattr(driver, "_log", NodeLog(driver.__name__))

    async def run() -> None:
        addresses = free_addresses(3)
        data = tmp_path / "seed" if has_data else None
        nodes = [node(addresses[0], [], data=data)]
        nodes += [node(each, addresses[:1]) for each in addresses[1:]]
        try:
            for each in nodes:
                await each.start()
            await until_one(nodes)
            await nodes[0].stop(leave=takes_leave)
            await until_one(nodes[1:])
            if not takes_leave:
                assert f"the link with {addresses[0]} is lost" in caplog.text
            nodes[0] = node(addresses[0], [], data=data)
            await nodes[0].start()
            await until_one(nodes)
        finally:
            await stop_all(nodes)

    asyncio.run(run())


@pytest.mark.parametrize("overlay", ["flood", "tree", "containment", "similarity", "dag", "reach"])
def test_others_find_a_first_node_that_starts_again(overlay: str) -> None:
    async def run() -> None:
        addresses = free_addresses(2)
        nodes = [node(addresses[0], [], overlay), node(addresses[1], addresses[:1], overlay)]
        try:
            for each in nodes:
                await each.start()
            await nodes[0].stop(leave=False)
            nodes[0] = node(addresses[0], [], overlay)
            await nodes[0].start()
            await until(lambda: addresses[1] in nodes[0].status()["links"], "a link")
        finally:
            await stop_all(nodes)

    asyncio.run(run())


def test_a_node_that_takes_leave_does_not_wait_for_those_who_connect_again() -> None:
    async def run() -> None:
        settings = NodeSettings(columns=False, leave_timeout_ms=3_600_000)
        leaving = LiveNode(settings)
        await leaving.start()
        other = LiveNode(replace(settings, join=(leaving.name,)))
        await other.start()
        transport = other._transport
        assert transport is not None
        disconnect = transport.disconnect

        def connect_again(node: str, reason: str) -> None:
            disconnect(node, reason)
            transport.connect(node)

        transport.disconnect = connect_again  # type: ignore[method-assign]
        try:
            async with asyncio.timeout(30):
                await leaving.stop()
        finally:
            await other.stop(leave=False)

    asyncio.run(run())


def test_a_node_says_that_nobody_answers_and_finds_them_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        addresses = free_addresses(2)
        nodes = [node(each, addresses) for each in addresses]
        try:
            with caplog.at_level(logging.WARNING, "peersub"):
                await nodes[0].start()
            assert f"cannot join via {addresses[1]}" in caplog.text
            assert "beginning a network" in caplog.text
            await nodes[1].start()
            await until_one(nodes)
        finally:
            await stop_all(nodes)

    asyncio.run(run())


def test_a_node_without_a_certificate_is_told_what_the_network_may_want(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A node with certificates hangs up on it: what comes is no handshake."""

    async def run() -> None:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        plain = node("127.0.0.1:0", [f"{host}:{port}"])
        try:
            with caplog.at_level(logging.WARNING, "peersub"):
                await plain.start()
            assert "does it want a certificate, --tls FILE?" in caplog.text
        finally:
            await stop_all([plain])
            server.close()

    asyncio.run(run())


def test_a_node_of_another_network_does_not_start() -> None:
    async def run() -> None:
        first = node("127.0.0.1:0", [])
        await first.start()
        other = LiveNode(NodeSettings(join=(first.name,), network="other", columns=False))
        try:
            with pytest.raises(StartError, match=r"cannot join via .*network differs"):
                await other.start()
        finally:
            await stop_all([first, other])

    asyncio.run(run())


def test_a_node_that_names_itself_in_other_words_begins_alone() -> None:
    async def run() -> None:
        (address,) = free_addresses(1)
        alone = node(address, [address.replace("127.0.0.1", "localhost")])
        try:
            await alone.start()
            assert neighbours(alone) == set()
        finally:
            await stop_all([alone])

    asyncio.run(run())


@pytest.mark.parametrize(
    "overlay", ["chord", "flood", "tree", "containment", "similarity", "dag", "reach"]
)
def test_one_joins_by_another_address_of_the_first_which_is_not_there_yet(overlay: str) -> None:
    async def run() -> None:
        first, second = free_addresses(2)
        named = [alias(first), alias(second)]
        joining, beginning = node(second, named, overlay), node(first, named, overlay)
        starting = asyncio.create_task(joining.start())
        try:
            await beginning.start()
            await starting

            def is_linked_by_its_name() -> bool:
                # The other names are tried now and then, and seen for a moment then.
                links = joining.status()["links"]
                return first in links and not any(each in links for each in named)

            await until(is_linked_by_its_name, "linked by its name, and by no other")
        finally:
            await stop_all([joining, beginning])

    asyncio.run(run())


@pytest.mark.parametrize(
    ("address", "listen", "is_own"),
    [
        ("localhost:1", "127.0.0.1:1", True),
        ("localhost:1", "0.0.0.0:1", True),
        ("localhost:2", "127.0.0.1:1", False),
        ("127.0.0.2:1", "127.0.0.1:1", False),
        ("192.0.2.9:1", "0.0.0.0:1", False),
        ("no address", "127.0.0.1:1", False),
        ("x" * 300 + ":1", "127.0.0.1:1", False),
    ],
)
def test_which_addresses_are_the_nodes_own(address: str, listen: str, is_own: bool) -> None:
    assert asyncio.run(is_own_address(address, listen)) == is_own
