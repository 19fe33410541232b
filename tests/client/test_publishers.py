"""Ids belong to their publishers: nobody hides another's events, and repetitions are recognised."""

import asyncio
import stat

import pytest

from client.fake_node import FakeNode
from client.test_api import World
from client.test_door import door_of, wanted
from client.turns import on_loop, settle, until
from peersub import Publisher, connect, join
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.event_keys import (
    network_batch_key,
    network_key,
    publisher_key,
    token_of,
)
from peersub.overlays.core.publication import Publication
from peersub.wire import encode
from peersub.wire.client_messages import (
    CLIENT_VERSION,
    KEYS,
    TOKENS,
    ClientHello,
    ClientWelcome,
    Delivered,
    PublishedBefore,
    PublishEnded,
    PublishWanted,
)

OVERLAYS = ["chord", "tree", "flood", "containment", "similarity", "dag", "reach"]
PROMISES = [("chord", "at_least_once"), *((overlay, "best_effort") for overlay in OVERLAYS)]
IDS = [f"e{number}" for number in range(5)]


async def take_all(subscription, count):
    """So many events, and no more."""
    taken = []
    while len(taken) < count:
        found = await subscription.take(timeout=20)
        assert found, f"{len(taken)} of {count} came"
        taken += [(each.event.id, each.event.attributes["by"]) for each in found]
    taken += [each.event.id for each in await subscription.take(timeout=0.05)]
    return sorted(taken)


@pytest.mark.parametrize(("overlay", "delivery"), PROMISES)
@on_loop
async def test_nobody_hides_anothers_events_by_their_ids(overlay, delivery):
    async with (
        join(overlay=overlay) as first,
        join(first.node, overlay=overlay) as second,
        connect(first.node, moves=False) as beside,
        connect(second.node, moves=False) as elsewhere,
        first.subscribe("n = 1") as here,
        second.subscribe("n = 1") as there,
    ):
        await here.ready(timeout=20)
        await there.ready(timeout=20)
        for subscription in (here, there):
            # Both have links by then, also where that is a matter of chance.
            await first.publish({"n": 1, "by": "first"}, id="begin")
            assert await anext(subscription)
        for event_id in IDS:
            for by, client in (("beside", beside), ("elsewhere", elsewhere), ("owner", first)):
                done = await client.publish({"n": 1, "by": by}, id=event_id, delivery=delivery)
                assert done == event_id and not done.already_seen
                again = await client.publish({"n": 1, "by": by}, id=event_id, delivery=delivery)
                assert again.already_seen
        expected = sorted(
            (event_id, by) for event_id in IDS for by in ("beside", "elsewhere", "owner")
        )
        for subscription in (here, there):
            taken = await take_all(subscription, len(expected))
            assert [each for each in taken if each[0] != "begin"] == expected


@on_loop
async def test_a_named_publisher_is_recognised_by_another_process_at_another_node(tmp_path):
    async with (
        join() as first,
        join(first.node) as second,
        first.subscribe("TRUE") as subscription,
    ):
        await subscription.ready(timeout=20)
        for node in (first.node, second.node):
            publisher = Publisher.named("feed/1", tmp_path)
            async with connect(node, publisher=publisher) as client:
                await client.publish({"by": "a"}, id="e", delivery="at_least_once", timeout=20)
        async with connect(second.node) as stranger:
            await stranger.publish({"by": "b"}, id="e", delivery="at_least_once", timeout=20)
        assert await take_all(subscription, 2) == [("e", "a"), ("e", "b")]
    (path,) = tmp_path.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_secret_of_a_publisher_is_kept_or_given(tmp_path, monkeypatch):
    monkeypatch.setenv("PEERSUB_STATE", str(tmp_path))
    event = Publication("e", {})
    named = Publisher.named("feed").identify(event)
    assert Publisher.named("feed").identify(event).key == named.key
    assert Publisher.named("other").identify(event).key != named.key
    assert (tmp_path / "publishers" / "feed.key").exists()
    given = Publisher(b"sixteen bytes or more")
    assert given.identify(event).key == publisher_key(b"sixteen bytes or more", "e")
    assert Publisher.random().identify(event).key != Publisher.random().identify(event).key
    with pytest.raises(ValueError, match="16 to 64 bytes"):
        Publisher(b"short")
    with pytest.raises(ValueError, match="1 to 64 bytes"):
        Publisher.named("")
    (tmp_path / "publishers" / "feed.key").write_text("no secret")
    with pytest.raises(ValueError, match="holds no secret"):
        Publisher.named("feed")


@on_loop
async def test_a_client_cannot_choose_a_key_that_it_has_learned():
    node = FakeNode()
    victim, _ = door_of(node)
    claim = publisher_key(b"the secret of the victim", "e")
    victim.on_messages([PublishWanted(Publication("e", {}, key=claim), 1)])
    key = node.published[0].key
    attacker, _ = door_of(node)
    for learned in (key, network_key(key)):
        attacker.on_messages([PublishWanted(Publication("e", {}, key=learned), 1)])
    # A client of an earlier version gives ids alone, and may write whatever it likes in them.
    name = node.published[0].name
    attacker.on_messages([PublishWanted(Publication(name[:64], {}), 2)])
    assert [each.key == key for each in node.published] == [True, False, False, False]
    victim.on_messages([PublishWanted(Publication("e", {}, key=claim), 2)])
    assert node.published[-1].key == key


@on_loop
async def test_subscribers_see_the_id_and_never_the_key():
    node = FakeNode()
    door, connection = door_of(node)
    door.on_messages([wanted(1, credit=10)])
    event = Publication("e", {"n": 1}, key=network_key(b"claim"))
    node.deliver(event)
    await settle()
    (delivered,) = connection.taken(Delivered)
    assert delivered.publication.id == "e"
    assert delivered.publication.given_key is None
    assert encode(delivered) == encode(Delivered(Publication("e", {"n": 1}), (1,), delivered.hops))
    # A client that wants to tell events apart gets a token; from the key, and no key itself.
    door, connection = door_of(node, label="c2", features=(TOKENS,))
    door.on_messages([wanted(1, credit=10)])
    node.deliver(event)
    await settle()
    (delivered,) = connection.taken(Delivered)
    assert delivered.publication.id == "e"
    assert delivered.publication.key == token_of(event.key) != event.key


@on_loop
async def test_who_publishes_hears_what_was_not_new():
    here = World()
    await here.connect()
    here.node.seen = 1
    assert (await here.client.publish({}, id="e")).already_seen
    summary = await here.client.publish_many([{"n": 1}, {"n": 2}])
    assert (summary.published, summary.already_seen) == (2, 2)
    here.node.seen = 0
    done = await here.client.publish({}, id="f")
    assert (done, done.id, done.already_seen) == ("f", "f", False)
    # A client of an earlier version does not know the message.
    door, connection = door_of(here.node)
    here.node.seen = 1
    door.on_messages([PublishWanted(Publication("g", {}), 1)])
    await settle()
    assert connection.taken(PublishEnded) == [PublishEnded((1,))]
    assert connection.taken(PublishedBefore) == []
    door.on_messages([PublishWanted(Publication("g", {}), 2)])


@on_loop
async def test_what_is_sent_again_is_no_repetition():
    here = World()
    here.node.slow_answers = True
    await here.connect()
    sure = asyncio.create_task(here.client.publish({}, id="sure", delivery="at_least_once"))
    await until(lambda: here.node.published)
    here.lose()
    here.node.open.clear()
    here.node.seen = 1
    await here.connect()
    await until(lambda: len(here.node.published) == 2)
    here.node.answer()
    assert not (await sure).already_seen
    assert here.node.published[0].key == here.node.published[1].key


@on_loop
async def test_a_node_of_an_earlier_version_gets_the_key_that_others_would_make():
    here = World()
    await here.connect()
    session, secret = here.session, b"sixteen bytes or more"
    session.publisher = Publisher(secret)
    sent = []
    session.welcome = ClientWelcome("n", CLIENT_VERSION, "chord", "net")
    session._link.send = sent.extend
    owner = type("Owner", (), {"ended": lambda *_: None})()
    batch = Batch("b", [0], 1, packed=b"")
    session.publish([(Publication(64 * "e", {}), 1), (batch, 1)], owner)
    assert sent[0].publication.key == network_key(publisher_key(secret, 64 * "e"))
    assert len(sent[0].publication.name) == 64
    assert sent[1].batch.key == network_batch_key(publisher_key(secret, "b"))
    assert KEYS in ClientHello(CLIENT_VERSION, (KEYS,)).features


@on_loop
async def test_a_durable_consumer_gets_what_several_publishers_call_the_same():
    async with join() as node, connect(node.node) as one, connect(node.node) as other:
        subscription = one.subscribe("n >= 0", durable="d", auto_acknowledge=False)
        await subscription.ready(timeout=20)
        for number, publisher in enumerate((node, one, other)):
            await publisher.publish({"n": number}, id="same")
            await publisher.publish({"n": 10 + number})
        came = []
        while len(came) < 6 and (taken := await subscription.take(timeout=20)):
            came += taken
        assert [each.event.attributes["n"] for each in came] == [0, 10, 1, 11, 2, 12]
        # Each is acknowledged by itself.
        await subscription.acknowledge(came[0])
        await subscription.acknowledge(came[2])
        await subscription.close()
        again = other.subscribe("n >= 0", durable="d")
        async with asyncio.timeout(20):
            rest = [(await anext(again)).attributes["n"] for _ in range(3)]
        assert rest == [11, 2, 12]


@on_loop
async def test_after_a_reconnection_doubles_are_passed_over_and_others_of_the_same_id_are_not():
    here = await World().connect()
    by_one, by_other = (
        Publication("same", {"n": number}, key=network_key(secret))
        for number, secret in enumerate((b"one", b"other"))
    )
    subscription = here.client.subscribe("n >= 0", durable="d", auto_acknowledge=False)
    await subscription.ready()
    here.node.deliver(by_one)
    assert (await anext(subscription)).attributes["n"] == 0
    here.lose()
    here.node.deliver(by_other)
    await here.connect()
    # The first one comes again, since nobody acknowledged it.
    taken = await subscription.take(timeout=5)
    assert [each.event.attributes["n"] for each in taken] == [1]
    await subscription.acknowledge(taken[0])
    await settle()
    assert list(here.node.acknowledged.values()) == [2]
