"""A node of the previous minor version, as a script: what it says are its golden bytes.

Version 1.0 had no drivers: a live network begins with LinkOpen, which 1.1 brought. What follows on
a connection may be older, from HELLO on.
"""

import asyncio
from pathlib import Path

from peersub.bench.live_network import LiveNetwork
from peersub.overlays.core.link_messages import Carried, Hello
from peersub.overlays.core.publication import Publication
from peersub.overlays.flood.messages import Flooded, NeighboursWanted
from runtime.scripted_peer import ScriptedPeer, changed

GOLDEN = Path(__file__).parents[1] / "wire" / "golden" / "v1_0.txt"
PATIENT = {"liveness": {"heartbeat_ms": 200, "silence_ms_min": 10_000, "silence_ms_max": 20_000}}
OLD, INCARNATION, EPOCH = "127.0.0.1:1", 3, 4


def golden() -> dict[str, bytes]:
    lines = GOLDEN.read_text(encoding="ascii").splitlines()
    return {
        name: bytes.fromhex(digits) for name, _, digits in (line.partition(" ") for line in lines)
    }


def hello_of(node: Hello) -> bytes:
    """The golden HELLO of a flood, under this name, in the network of the node."""
    return changed(
        golden()["hello-short"],
        at_1=[OLD, INCARNATION, 0],
        at_2=EPOCH,
        at_3=node.network,
        at_7=node.settings_digest,
        at_8=[list(each) for each in node.settings],
        at_10=node.epoch,
    )


def test_a_node_of_version_1_0_gets_and_gives_events():
    asyncio.run(_meet())


async def _meet() -> None:
    async with LiveNetwork({"overlay": "flood", "connection": PATIENT}) as network:
        node = await network.start(columns=True)
        await network.subscribe(node, {"s": {"filter": "symbol = 'ACME'"}})
        async with ScriptedPeer(node.name) as old:
            assert (await old.open_as(OLD, INCARNATION)).node == node.name
            hello = await old.hear(Hello)
            assert hello.version == (1, 1)
            assert hello.overlay == "flood"
            old.say(hello_of(hello))
            # The link is up: the flood of the node asks the newcomer whom it knows.
            asked = await old.hear(
                Carried, lambda frame: isinstance(frame.message, NeighboursWanted)
            )
            assert (asked.epoch, asked.sender_epoch) == (EPOCH, hello.epoch)

            events = [Publication(f"b/{number}", {"symbol": "ACME"}) for number in range(3)]
            network.publish(node, [Publication("single", {"symbol": "BOLT"})])
            network.publish(node, events, batch="b")
            came = [(await old.hear(Flooded)).publication for _ in range(4)]
            assert [each.id for each in came] == ["single", "b/0", "b/1", "b/2"]
            assert [each.attributes["symbol"] for each in came] == ["BOLT"] + 3 * ["ACME"]

            old.say(golden()["flooded"])
            await network.until(lambda: network.got["s"]["e1"] == 1, "the old node's event comes")
            # All else that the version could say, in whatever state: none of it ends the node.
            for name, frame in golden().items():
                if (
                    not name.startswith(("hello", "goodbye"))
                    and len(frame) > 4
                    and _is_message(frame)
                ):
                    old.say(frame)
            old.say(changed_event(golden()["flooded"]))
            await network.until(lambda: network.got["s"]["e9"] == 1, "the link still works")
        (status,) = await network.status([node])
        assert status["counters"]
        assert set(network.got["s"]) == {"e1", "e9", "b/0", "b/1", "b/2"}


def _is_message(frame: bytes) -> bool:
    """Records of a store are no frames: they have no length before them."""
    return int.from_bytes(frame[:4], "big") == len(frame) - 4


def changed_event(frame: bytes) -> bytes:
    """The same event under another name of the same length."""
    return frame.replace(b"\xa2e1", b"\xa2e9")
