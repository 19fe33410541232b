"""Permissions that change while subscriptions exist: nothing is handed over that they forbid."""

import asyncio
from contextlib import asynccontextmanager

import numpy as np
import pyarrow as pa
import pytest

from client.fake_node import FakeNode
from client.test_door import ENDED, READY, Listed, wanted
from client.test_secured import authority_in
from client.turns import on_loop, settle, until
from peersub import connect
from peersub.client import PublishFailedError, SubscriptionEndedError
from peersub.filters import Filter
from peersub.overlays.core.batch import Batch
from peersub.runtime.abandoning import forget_abandoned
from peersub.runtime.client_gate import ClientGate
from peersub.runtime.client_ports import NetworkName
from peersub.runtime.client_rules import PermittedRules
from peersub.runtime.counters import Counters
from peersub.runtime.durable import DurableSubscriptions
from peersub.runtime.filter_budget import FilterBudget
from peersub.runtime.security.permissions import Permissions, PermissionsError
from peersub.runtime.serving import served_node
from peersub.runtime.settings import NodeSettings
from peersub.runtime.sinks import DurableOptions
from peersub.runtime.store import MemoryStore
from peersub.wire.client_messages import (
    CLIENT_VERSION,
    ClientHello,
    ClientRefused,
    Credit,
    SubscriptionState,
)

ALL = "[default]\npublish = true\nsubscribe = true"
SOME = "[default]\npublish = 'n < 10'\nsubscribe = 'n < 3'"
NONE = "[default]\npublish = true"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return authority_in(tmp_path_factory.mktemp("ours"))


@asynccontextmanager
async def network(files, folder, text):
    """Two nodes with folders, of which the first goes by a file of permissions."""
    file = folder / "permissions.toml"
    file.write_text(text)
    settings = NodeSettings(data=folder / "data")
    first, gate = served_node(settings, files["n1"], file)
    await first.start()
    second, _ = served_node(NodeSettings(join=(first.name,), data=folder / "second"), files["n2"])
    await second.start()

    async def tighten(text):
        file.write_text(text)
        await gate.reload()

    try:
        yield first, second, tighten
    finally:
        await first.stop()
        await second.stop()


async def publish(node, numbers):
    for number in numbers:
        event = {"n": number}
        await node.publish(event, id=str(number), delivery="at_least_once", timeout=20)


def filter_at(node):
    """What the overlay there knows of ann's durable subscription: at its home, or its mirror."""
    overlay = node._running().node.overlay
    found = [f for name, f in overlay.engine.home.subscriptions.items() if "durable/ann" in name]
    return found[0].text if found else None


@pytest.mark.parametrize("is_restarted", [False, True])
@on_loop
async def test_a_durable_subscription_follows_permissions_that_tighten(
    files, tmp_path, is_restarted
):
    async with network(files, tmp_path, ALL) as (first, second, tighten):
        async with connect(first.name, tls=files["ann"]) as ann:
            subscription = ann.subscribe("n > 0", durable="d")
            await subscription.ready(timeout=20)
            await until(lambda: filter_at(second) == "n > 0")
            await subscription.close()
            await publish(ann, [1, 5, 2, 6])
        if not is_restarted:
            await tighten(SOME)
            await until(lambda: filter_at(second) != "n > 0")
            assert Filter(filter_at(second)).equivalent(Filter("n > 0 AND n < 3"))
            await _sees(first, files, ["1", "2", "0.5"])
    if is_restarted:
        async with network(files, tmp_path, SOME) as (first, second, _):
            assert Filter(filter_at(first)).equivalent(Filter("n > 0 AND n < 3"))
            await _sees(first, files, ["1", "2", "0.5"])


async def _sees(node, files, expected):
    """Ann sees these, and no more, of what waited and of what comes."""
    async with connect(node.name, tls=files["n2"]) as trusted:
        await publish(trusted, [7, 0.5, 8])
        async with (
            connect(node.name, tls=files["ann"]) as ann,
            ann.subscribe("n > 0", durable="d") as subscription,
        ):
            assert subscription.detail.startswith("narrowed to: ")
            taken = [await anext(subscription) for _ in expected]
            assert [event.id for event in taken] == expected
            await publish(trusted, [9, 1.5])
            assert (await anext(subscription)).id == "1.5"
        # What may not be seen counts as taken: nothing is left for the next consumer, or a mirror.
        store = node._store
        await until(lambda: not store.read_log("durable/ann/d", store.cursor("durable/ann/d"), 9))


@on_loop
async def test_consumers_of_every_kind_are_narrowed_ended_and_widened(files, tmp_path):
    async with (
        network(files, tmp_path, ALL) as (first, second, tighten),
        connect(first.name, tls=files["ann"]) as ann,
        connect(second.name, tls=files["n1"]) as trusted,
        ann.subscribe("n > 0", durable="d") as durable,
        ann.subscribe("n > 0") as plain,
        ann.subscribe("n > 5") as hopeless,
    ):
        for each in (durable, plain, hopeless):
            await each.ready(timeout=20)
        await publish(trusted, [4])
        for each in (durable, plain):
            assert (await anext(each)).id == "4"
        await tighten(SOME)
        # Else the mirror may still hold 5, and hand it over when it is allowed again.
        await until(lambda: filter_at(second) != "n > 0")
        await publish(trusted, [5, 2])
        for each in (durable, plain):
            assert (await anext(each)).id == "2"
            assert each.detail.startswith("narrowed to: ")
        with pytest.raises(SubscriptionEndedError, match="may only see n < 3"):
            await anext(hopeless)
        with pytest.raises(PublishFailedError, match="may only publish events with n < 10"):
            await ann.publish_many([{"n": 11}] * 3)
        await tighten(ALL)
        # What is wider has to reach publishers anew.
        await until(lambda: not durable.detail and not plain.detail)
        await durable.ready(timeout=20)
        await plain.ready(timeout=20)
        await publish(trusted, [6])
        assert (await anext(plain)).id == "6"
        # A mirror may have kept what came before it heard of the narrower filter: it may be seen.
        assert [event.id async for event in until_id(durable, "6")] in (["6"], ["5", "6"])
        await tighten(NONE)
        for each in (durable, plain):
            with pytest.raises(SubscriptionEndedError, match="ann may not subscribe"):
                await anext(each)
        with pytest.raises(PermissionsError, match="not known"):
            await tighten("[nobody]")
        with pytest.raises(SubscriptionEndedError, match="ann may not subscribe"):
            await ann.subscribe("n > 0").accepted()


@on_loop
async def test_a_node_ends_what_was_abandoned_while_it_was_down(files, tmp_path):
    async with network(files, tmp_path, ALL) as (first, _, _):
        async with connect(first.name, tls=files["ann"]) as ann:
            await ann.subscribe("n > 0", durable="d").ready(timeout=20)
        assert first.status()["durable_subscriptions"] == ["durable/ann/d"]
    async with network(files, tmp_path, f"{ALL}\nabandoned_days = 1e-9") as (first, _, _):
        await until(lambda: not first.status()["durable_subscriptions"])
        assert first.counters["a durable subscription that was abandoned for too long"] == 1


async def until_id(subscription, last):
    async for event in subscription:
        yield event
        if event.id == last:
            return


class Gated:
    """A gate with permissions, before a node that is none."""

    def __init__(self, text):
        self.node = FakeNode()
        self.rules = PermittedRules(Permissions.parse(text), lambda: 0)
        self.gate = ClientGate(self.node, NetworkName("chord", "net"), self.rules)

    def client(self, identity, *messages):
        connection = Listed(identity)
        door = self.gate.open(connection, self.rules)
        door.on_messages([ClientHello(CLIENT_VERSION), *messages])
        return door, connection


@pytest.mark.parametrize("durable", ["", "d"])
@on_loop
async def test_what_waits_for_a_slow_reader_is_withdrawn(durable):
    here = Gated(ALL)
    door, connection = here.client("ann", wanted(1, durable=durable, credit=1))
    here.node.emit(0, 1, 5, 2, 6)
    await settle()
    assert connection.events() == [("e0", 1)]
    await here.gate.use(Permissions.parse(SOME))
    here.node.emit(7, 0)
    door.on_messages([Credit(1, 100)])
    await settle()
    assert connection.events() == [("e1", 1), ("e2", 1), ("e0", 1)]
    (_, narrowed) = connection.taken(SubscriptionState)
    assert (narrowed.phase, narrowed.detail) == (READY, "narrowed to: n < 3")
    await here.gate.use(Permissions.parse(NONE))
    (ended,) = connection.taken(SubscriptionState)
    assert (ended.phase, ended.detail) == (ENDED, "client ann may not subscribe")


@on_loop
async def test_batches_that_wait_or_come_are_withdrawn_event_by_event():
    here = Gated(ALL)
    door, connection = here.client("ann", wanted(1, credit=0))
    here.node.emit_batch("a", [1, 5, 2])
    here.node.emit_batch("b", [5, 6])
    await here.gate.use(Permissions.parse(SOME))
    here.node.sinks["client-1/1"][1].deliver_batch(batch_of("c", [7, 0]), np.arange(2), 1)
    door.on_messages([Credit(1, 100)])
    await settle()
    assert connection.events() == [("a/0", 1), ("a/2", 1), ("c/1", 1)]
    assert door.status()["queued_events"] == 0 and here.gate.status()["clients"]


def batch_of(name, numbers):
    return Batch.of(name, pa.table({"n": numbers}))


@on_loop
async def test_who_is_not_taken_any_more_is_hung_up_on():
    here = Gated("[clients.ann]\nsubscribe = true")
    _, ann = here.client("ann", wanted(1))
    trusted = Listed("node:n1")
    here.gate.open(trusted).on_messages([ClientHello(CLIENT_VERSION), wanted(1)])
    await here.gate.use(Permissions.nobody())
    (refused,) = ann.taken(ClientRefused)
    assert "not ann" in refused.reason and ann.closed and not trusted.closed
    assert len(here.node.sinks) == 1


# --- how many, and for how long --------------------------------------------------------------


class Sink:
    def ready(self): ...
    def ended(self, reason): ...


EVERYTHING = Filter("TRUE")
DEAR = Filter("a RLIKE 'x+y' OR b RLIKE 'z+'")


class Kept:
    """Durable subscriptions under permissions, at a time that a test tells."""

    def __init__(self, text, durable_max=100):
        self.now_ms = 1_000
        self.durable_max = durable_max
        self.store = MemoryStore(now_ms=lambda: self.now_ms)
        self.rules = PermittedRules(Permissions.parse(text), lambda: 0)
        self.open()

    def open(self):
        clock = lambda: self.now_ms  # noqa: E731
        self.budget = FilterBudget()
        self.durables = DurableSubscriptions(
            self.store, clock, Counters(), self.rules, self.budget, self.durable_max
        )

    async def ended(self):
        """Those that were abandoned for too long."""
        names = []
        await forget_abandoned(self.durables, names.append, Counters())
        return names

    async def attach(self, name, wanted=EVERYTHING):
        self.durables.attach(name, wanted, Sink(), DurableOptions(), lambda _: None)
        await until(lambda: self.store.cursor(name) is not None)


@on_loop
async def test_durable_subscriptions_of_an_identity_are_counted_with_or_without_a_consumer():
    here = Kept("[default]\nsubscribe = true\ndurable_max = 2")
    await here.attach("durable/ann/a")
    await here.attach("durable/ann/b/c")
    here.durables.detach("durable/ann/a")
    with pytest.raises(ValueError, match="ann may have 2 durable subscriptions"):
        await here.attach("durable/ann/c")
    await here.attach("durable/ann/a")  # One that is there may be consumed again.
    for name in ("durable/bob/c", "durable/node:n1/c", "durable//c"):
        await here.attach(name)
    here.durables.remove("durable/ann/b/c")
    await here.attach("durable/ann/c")
    here.open()
    with pytest.raises(ValueError, match="ann may have 2 durable subscriptions"):
        await here.attach("durable/ann/d")


@on_loop
async def test_durable_subscriptions_of_clients_that_nobody_knows_are_bounded_as_well():
    here = Kept("[default]\nsubscribe = true", durable_max=4)
    names = [f"durable//{letter}" for letter in "abcd"]
    for name in names:
        await here.attach(name)
        here.durables.detach(name)
    for name in ("durable//e", "durable/ann/e", "durable/node:n1/e"):
        with pytest.raises(ValueError, match="this node has 4 durable subscriptions already"):
            await here.attach(name)
    await here.attach("audit")  # The node's own program is not bound.
    await here.attach(names[0])
    here.open()
    with pytest.raises(ValueError, match="--limit durable_max=N"):
        await here.attach("durable//e")
    here.durables.remove(names[0])
    await here.attach("durable//e")


@on_loop
async def test_a_durable_subscription_has_its_share_of_the_budget_from_its_begin_to_its_end():
    here = Kept("[default]\nsubscribe = true\nabandoned_days = 0.001")
    for name in ("durable/ann/a", "durable/bob/b", "durable//c", "audit"):
        await here.attach(name, DEAR)
        here.durables.detach(name)
    units = DEAR.price.surplus
    assert here.budget.spent == 3 * units > 0, "what the node's own program wants is not counted"
    here.durables.end("a restart")
    here.open()
    assert here.budget.spent == 3 * units, "nobody has attached yet"
    with pytest.raises(ValueError, match="this client's filters cost"):
        here.budget.take("ann", "another", DEAR, client_max=units)
    here.budget.take("ann", "durable/ann/a", DEAR, client_max=units)
    here.now_ms += 2 * 86_400
    await forget_abandoned(here.durables, here.durables.remove, Counters())
    assert here.budget.spent == units, "those of the identities were ended as abandoned"
    here.durables.remove("durable//c")
    assert here.budget.spent == 0


@on_loop
async def test_what_nobody_consumes_for_too_long_ends_over_restarts_too():
    here = Kept("[default]\nsubscribe = true\nabandoned_days = 0.001")
    day_ms = 86_400
    for name in ("durable/ann/old", "durable/ann/used", "durable/node:n1/old"):
        await here.attach(name)
        here.durables.detach(name)
    here.now_ms += day_ms - 10
    assert await here.ended() == []
    await here.attach("durable/ann/used")
    noted = lambda: {d.name for d in here.store.durable_subscriptions() if d.abandoned_ms}  # noqa: E731
    await until(lambda: noted() == {"durable/ann/old"})
    here.durables.end("a restart")
    here.open()
    here.now_ms += 20
    assert await here.ended() == ["durable/ann/old"]


@on_loop
async def test_filters_that_are_narrowed_anew_are_priced_anew(monkeypatch):
    monkeypatch.setattr("peersub.runtime.filter_budget.OFF_LOOP_UNITS", 10**9)
    here = Gated(ALL)
    budget = here.gate._budget
    dear, plain = " AND ".join(f"(a{n} = 1 OR b{n} = 1)" for n in range(7)), "n > 0"
    _, connection = here.client("ann", wanted(1, dear), wanted(2, plain))
    assert budget.spent == Filter(dear).price.units
    connection.taken(SubscriptionState)
    await here.gate.use(Permissions.parse("[default]\nsubscribe = 'p = 1 OR q = 1'"))
    (ended, narrowed) = connection.taken(SubscriptionState)
    assert ended.phase is ENDED and "may cost" in ended.detail
    assert narrowed.phase is READY and narrowed.detail
    assert budget.spent == 0, "what is left is plain"
    await here.gate.use(Permissions.parse(f"[default]\nsubscribe = '{OTHER}'"))
    (state,) = connection.taken(SubscriptionState)
    assert state.detail == f"narrowed to: {Filter(OTHER).intersection(Filter(plain)).text}"
    assert budget.spent == Filter(OTHER).intersection(Filter(plain)).price.units > 0


OTHER = "(p = 1 OR q = 1) AND (r = 1 OR s = 1) AND (t = 1 OR u = 1)"


@on_loop
async def test_many_dear_filters_are_narrowed_anew_by_turns(monkeypatch):
    monkeypatch.setattr("peersub.runtime.filter_budget.OFF_LOOP_UNITS", 10**9)
    here = Gated(ALL)
    dear = " AND ".join(f"(a{n} = 1 OR b{n} = 1)" for n in range(5))
    here.client("ann", *(wanted(n, f"{dear} AND c = {n}") for n in range(1, 9)))
    at_once = []
    narrow = here.rules.permit_subscribe
    monkeypatch.setattr(
        here.rules, "permit_subscribe", lambda *rest: at_once.append(None) or narrow(*rest)
    )
    work = asyncio.ensure_future(here.gate.use(Permissions.parse(SOME)))
    await asyncio.sleep(0)
    assert 0 < len(at_once) <= 3
    await work
    assert len(at_once) == 8
