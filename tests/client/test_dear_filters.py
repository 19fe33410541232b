"""Filters that cost much: what doors and connections make of them, and who gets a budget."""

import asyncio
import threading

import pytest

from client.fake_node import FakeNode
from client.test_door import ENDED, Listed, door_of
from client.turns import on_loop, settle, until
from peersub import FilterError, connect
from peersub.client import SubscriptionEndedError
from peersub.filters import Filter
from peersub.filters.price import FILTER_PRICE_MAX
from peersub.filters.widened import UnreadFilter
from peersub.overlays.core.link_messages import BetweenSlots, Carried
from peersub.overlays.core.mirrors import MIRROR_SLOT
from peersub.overlays.core.publication import Publication
from peersub.runtime.client_door import ClientDoor
from peersub.runtime.client_ports import DoorLimits, NetworkName, OpenRules
from peersub.runtime.client_rules import PermittedRules
from peersub.runtime.connection import Connection, ConnectionSettings
from peersub.runtime.counters import Counters
from peersub.runtime.filter_budget import FilterBudget
from peersub.runtime.security.permissions import Permissions
from peersub.runtime.serving import served_node
from peersub.runtime.settings import NodeSettings
from peersub.runtime.turns import REST_SHARE, SLICE_S, TICK_S, LoopMonitor, Turns
from peersub.wire import FrameDecoder, encode, sealed
from peersub.wire.client_messages import (
    CLIENT_VERSION,
    ClientHello,
    PublishWanted,
    StateWanted,
    SubscribeWanted,
    SubscriptionState,
    UnsubscribeWanted,
)
from peersub.wire.frames import FILTER_TAGS
from peersub.wire.tags import MESSAGES
from wire import samples


def product(pairs: int, value: str = "k") -> Filter:
    return Filter(" AND ".join(f"(a{n} = '{value}' OR b{n} = '{value}')" for n in range(pairs)))


TOO_DEAR, DEAR = product(10), product(7)


@pytest.fixture
def on_loop_only(monkeypatch):
    """Dear filters are worked out where they come."""
    monkeypatch.setattr("peersub.runtime.filter_budget.OFF_LOOP_UNITS", 10**9)


def received(message):
    """The message as it comes over a wire."""
    (read,) = FrameDecoder().feed(encode(message))
    return read


def sharing(budget, identity="", label="c1", node=None, rules=None):
    connection = Listed(identity)
    door = ClientDoor(
        node or FakeNode(),
        connection,
        NetworkName("chord", "net"),
        label=label,
        budget=budget,
        rules=rules,
    )
    door.on_messages([ClientHello(CLIENT_VERSION)])
    return door, connection


def refusals(connection):
    return [s.detail for s in connection.taken(SubscriptionState) if s.phase is ENDED]


class Forbidding(PermittedRules):
    """Rules that must not be asked about a filter."""

    def permit_subscribe(self, identity, wanted):
        raise AssertionError("permission was asked for what is too dear")


# --- one filter ------------------------------------------------------------------------------


@pytest.mark.usefixtures("on_loop_only")
@on_loop
@pytest.mark.parametrize("is_read", [True, False])
async def test_what_is_too_dear_is_refused_before_permission_is_asked(is_read):
    node = FakeNode()
    rules = Forbidding(Permissions.unbounded(), lambda: 0)
    door, connection = door_of(node, rules=rules)
    message = SubscribeWanted(1, TOO_DEAR)
    door.on_messages([message if is_read else received(message)])
    (reason,) = refusals(connection)
    assert "may c" in reason or "may have" in reason
    assert "Split it into several subscriptions" in reason
    assert not node.sinks and connection.closed is None, "and the client goes on"


def test_what_is_too_dear_is_not_read_from_the_wire():
    assert isinstance(received(SubscribeWanted(1, TOO_DEAR)).filter, UnreadFilter)
    assert received(SubscribeWanted(1, DEAR)).filter == DEAR


def test_a_product_with_a_permission_is_priced_before_it_is_built(monkeypatch):
    permission = Permissions.parse(
        """
        [clients.ann]
        subscribe = "(p = 1 OR q = 1) AND (r = 1 OR s = 1) AND (t = 1 OR u = 1)"
        """
    ).of("ann")
    monkeypatch.setattr(Filter, "intersection", lambda *_: pytest.fail("it was built"))
    with pytest.raises(ValueError, match=r"narrowing the filter to that would cost .* units"):
        permission.narrow(DEAR)


@pytest.mark.usefixtures("on_loop_only")
@on_loop
async def test_what_is_too_dear_once_narrowed_is_refused():
    rules = PermittedRules(
        Permissions.parse("""[default]\nsubscribe = "p = 1 OR q = 1" """), lambda: 0
    )
    door, connection = door_of(FakeNode(), identity="ann", rules=rules)
    door.on_messages([SubscribeWanted(1, product(6)), SubscribeWanted(2, DEAR)])
    told = connection.taken(SubscriptionState)
    assert [state.number for state in told if state.phase is ENDED] == [2]
    assert "units" in told[-1].detail


def test_text_that_multiplies_out_is_refused_by_the_language():
    with pytest.raises(FilterError, match="multiplies out to more than 1,024"):
        Filter(" AND ".join(f"(a{n} = 1 OR b{n} = 1)" for n in range(11)))


# --- budgets ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("on_loop_only")
@on_loop
async def test_a_client_has_a_budget_and_gets_it_back():
    units = DEAR.price.units
    budget = FilterBudget()
    rules = OpenRules(DoorLimits(price_max=2 * units))
    door, connection = sharing(budget, rules=rules)
    many = [SubscribeWanted(n, product(7, "xyz"[n - 1])) for n in range(1, 4)]
    door.on_messages([*many, SubscribeWanted(9, Filter("a = 1"))])
    (reason,) = refusals(connection)
    assert f"the bound is {2 * units:,}" in reason and "End other subscriptions" in reason
    assert budget.spent == 2 * units
    door.on_messages([UnsubscribeWanted(1), many[2]])
    assert refusals(connection) == [""], "only the end of the first is told"
    assert budget.spent == 2 * units
    door.on_lost("gone")
    assert budget.spent == 0 and budget.status()["refused"] == 1


@pytest.mark.usefixtures("on_loop_only")
@on_loop
async def test_all_clients_share_the_budget_of_a_node_and_identities_share_theirs():
    units = DEAR.price.units
    budget = FilterBudget(node_max=2 * units)
    node = FakeNode()
    rules = OpenRules(DoorLimits(price_max=units))
    first, told = sharing(budget, "ann", "c1", node, rules)
    again, told_again = sharing(budget, "ann", "c2", node, rules)
    other, _ = sharing(budget, "bob", "c3", node, rules)
    third, refused = sharing(budget, "eve", "c4", node, rules)
    for door in (first, again, other, third):
        door.on_messages([SubscribeWanted(1, DEAR)])
    assert not refusals(told) and "this client's filters" in refusals(told_again)[0]
    assert "all filters at this node" in refusals(refused)[0]
    other.on_lost("gone")
    third.on_messages([SubscribeWanted(2, DEAR)])
    assert not refusals(refused) and budget.spent == 2 * units


@pytest.mark.usefixtures("on_loop_only")
@on_loop
async def test_a_durable_subscription_that_is_not_changed_keeps_the_share_it_had():
    budget, node = FilterBudget(), FakeNode()
    door, connection = sharing(budget, "ann", "c1", node)
    door.on_messages([SubscribeWanted(1, product(3), durable="d"), UnsubscribeWanted(1)])
    assert budget.spent == product(3).price.units > 0
    assert refusals(connection) == [""]
    node.refusal = "not now"
    door.on_messages([SubscribeWanted(2, DEAR, durable="d")])
    assert refusals(connection) == ["not now"]
    assert budget.spent == product(3).price.units


@pytest.mark.usefixtures("on_loop_only")
@on_loop
async def test_what_a_client_is_told_of_a_narrowed_filter_fits_into_a_message():
    long = Filter("a IN (" + ", ".join(f"'{n:03}{'x' * 180}'" for n in range(150)) + ") OR b = 1")
    rules = PermittedRules(Permissions.parse("[default]\nsubscribe = 'n < 3'"), lambda: 0)
    door, connection = sharing(FilterBudget(), "ann", rules=rules)
    door.on_messages([received(SubscribeWanted(1, long))])
    (state,) = connection.taken(SubscriptionState)
    assert state.detail.startswith("narrowed to: ") and len(encode(state)) < 16_384


@pytest.mark.usefixtures("on_loop_only")
@on_loop
async def test_a_durable_subscription_keeps_its_share_until_it_is_given_up():
    budget, node = FilterBudget(), FakeNode()
    door, _ = sharing(budget, "ann", "c1", node)
    door.on_messages([SubscribeWanted(1, DEAR, durable="d")])
    door.on_lost("gone")
    assert budget.spent == DEAR.price.units
    door, _ = sharing(budget, "ann", "c2", node)
    door.on_messages([SubscribeWanted(1, DEAR, durable="d")])
    assert budget.spent == DEAR.price.units, "it is the same one"
    door.on_messages([UnsubscribeWanted(1, forget=True)])
    assert budget.spent == 0


@pytest.mark.usefixtures("on_loop_only")
@on_loop
async def test_a_subscription_that_the_node_refuses_takes_no_share():
    budget, node = FilterBudget(), FakeNode()
    door, connection = sharing(budget, "ann", "c1", node)
    door.on_messages([SubscribeWanted(1, DEAR, durable="d")])
    node.subscribe = lambda *_, **__: (_ for _ in ()).throw(ValueError("full"))
    door.on_messages([SubscribeWanted(2, DEAR), SubscribeWanted(3, product(7, "x"), durable="e")])
    assert refusals(connection) == ["full", "full"]
    assert budget.spent == DEAR.price.units


# --- in slices -------------------------------------------------------------------------------


class Stopping(asyncio.Transport):
    """A transport of which reading can be paused."""

    is_paused = False
    is_aborted = False

    def abort(self):
        self.is_aborted = True

    def pause_reading(self):
        self.is_paused = True

    def resume_reading(self):
        self.is_paused = False

    def get_write_buffer_size(self):
        return 0

    def set_write_buffer_limits(self, high=None, low=None): ...


class Taking:
    def __init__(self):
        self.taken = []

    @property
    def groups(self):
        return [[message.number for message in messages] for messages in self.taken]

    def on_messages(self, connection, messages):
        self.taken.append(list(messages))

    def on_opened(self, connection): ...

    def on_closed(self, connection, reason): ...

    def on_relieved(self, connection): ...


def connection_with(turns=None, *, in_order=True):
    connection = Connection(Taking(), ConnectionSettings(), Counters(), lambda: 0)
    connection.connection_made(Stopping())
    connection.trust()
    if turns is not None:
        connection.read_in_turns(turns, in_order=in_order)
    return connection, connection.handler, connection._transport


class Asked:
    """Turns that come when the test says so."""

    def __init__(self):
        self.works = []
        self.ask = self.works.append

    def run_off_loop(self, work, on_done):
        done = asyncio.get_running_loop().create_future()
        done.set_result(work())
        on_done(done)

    def give_way(self): ...

    def come(self):
        """One part of the work that was asked for."""
        self.works.pop(0)()


def three_around_a_filter():
    filters = [encode(SubscribeWanted(2, DEAR)), encode(StateWanted(3))]
    return b"".join([encode(StateWanted(1)), *filters])


@on_loop
async def test_filters_wait_for_their_turn_and_what_follows_waits_behind_them():
    turns = Asked()
    connection, handler, _ = connection_with(turns)
    connection.data_received(three_around_a_filter())
    connection.data_received(encode(StateWanted(4)))
    await settle()
    assert handler.groups == [[1]]
    turns.come()
    connection.data_received(encode(StateWanted(5)))
    assert handler.groups == [[1]], "read in one part of the work, and handled in the next"
    while turns.works:
        turns.come()
    assert handler.groups == [[1], [2], [3], [4], [5]]


@on_loop
async def test_events_overtake_filters_of_another_node_and_nothing_else_does():
    turns = Asked()
    connection, handler, _ = connection_with(turns, in_order=False)
    connection.data_received(three_around_a_filter())
    connection.data_received(encode(PublishWanted(sealed(Publication("e", {"a": 1})), 4)))
    assert handler.groups == [[1], [4]]
    while turns.works:
        turns.come()
    assert handler.groups == [[1], [4], [2], [3]]


@on_loop
@pytest.mark.parametrize(
    "name", ["confirm", "mirror-kept", "mirror-safe", "mirror-rows-kept", "mirror-rows-safe"]
)
async def test_words_about_events_overtake_filters_of_another_node(name):
    """A publisher waits for them: no number of filters that a client changes is before them."""
    turns, word = Asked(), samples.MESSAGES[name]
    connection, handler, _ = connection_with(turns, in_order=False)
    sent = word if name == "confirm" else BetweenSlots(MIRROR_SLOT, MIRROR_SLOT, word)
    if word.reliable:
        sent = Carried(1, 2, 3, 0, sent)
    connection.data_received(b"".join(encode(samples.MESSAGES["filter-update"]) for _ in range(99)))
    connection.data_received(encode(sent))
    assert handler.taken == [[sent]]
    connection.data_received(encode(Carried(1, 2, 3, 0, sent)))
    assert handler.taken == [[sent]], "what a session carries waits for what it carries before"


@on_loop
async def test_what_waits_for_its_turn_is_bounded(monkeypatch):
    monkeypatch.setattr("peersub.runtime.connection.ORDERED_BYTES_MAX", 100)
    turns = Asked()
    connection, handler, transport = connection_with(turns)
    wanted = [SubscribeWanted(n, Filter(f"a = {n}")) for n in range(5)]
    connection.data_received(b"".join(map(encode, wanted)))
    assert transport.is_paused, "nothing more is read"
    connection.pause_reading()
    turns.come()
    assert not turns.works and not handler.groups, "nothing is wanted of it"
    connection.resume_reading()
    while turns.works:
        turns.come()
    assert handler.groups == [[0], [1], [2], [3], [4]]
    assert not transport.is_paused


@on_loop
async def test_what_cannot_be_read_ends_a_connection_after_all_before_it(monkeypatch):
    connection, handler, transport = connection_with(Turns())
    wanted = [SubscribeWanted(n, Filter(f"a = {n}")) for n in range(5)]
    connection.data_received(b"".join(map(encode, wanted)) + bytes(8))
    assert not transport.is_aborted
    await until(lambda: transport.is_aborted)
    assert handler.groups == [[0], [1], [2], [3], [4]]


PART_S = 0.6 * SLICE_S


@on_loop
async def test_work_rests_while_events_pass_and_not_otherwise(monkeypatch):
    loop = asyncio.get_running_loop()
    clock, rests, ticks = [0.0], [], []
    turns = Turns(lambda: clock[0])
    call_later = loop.call_later

    def noted(delay_s, then, *about):
        if then == turns._next:
            (ticks if delay_s == TICK_S else rests).append(delay_s)
        return call_later(delay_s, then, *about)

    monkeypatch.setattr(loop, "call_later", noted)
    done = []

    def part():
        clock[0] += PART_S
        done.append(clock[0])
        return len(done) % 4 > 0

    turns.ask(part)
    await until(lambda: len(done) == 4)
    assert rests == ticks == [], "nobody waits"
    turns.give_way()
    turns.ask(part)
    await until(lambda: len(done) == 8)
    assert ticks, "the event goes first"
    assert rests == [pytest.approx(REST_SHARE * 2 * PART_S)], "two parts are a slice"
    turns.ask(part)
    await until(lambda: len(done) == 12)
    assert len(rests) == 3, "also what comes in the meantime rests"
    assert rests[1:] == [pytest.approx(REST_SHARE * 2 * PART_S)] * 2
    clock[0] += 1.0
    turns.ask(part)
    await until(lambda: len(done) == 16)
    assert len(rests) == 3, "the events are long gone"


@on_loop
async def test_an_event_is_written_before_work_that_is_due_and_work_gets_on_all_the_same():
    clock, happened = [0.0], []
    turns = Turns(lambda: clock[0])

    def part():
        clock[0] += SLICE_S
        happened.append("work")
        return happened.count("work") < 3

    def pass_event():
        turns.give_way()
        asyncio.get_running_loop().call_soon(happened.append, "written")

    turns.ask(part)
    pass_event()
    await until(lambda: "work" in happened)
    assert happened[:2] == ["written", "work"]
    assert happened.count("work") == 1, "each is a slice"

    def has_ended():
        pass_event()
        return happened.count("work") == 3

    await until(has_ended)


@on_loop
async def test_a_long_burst_is_handled_over_several_turns_and_in_order(monkeypatch):
    monkeypatch.setattr("peersub.runtime.connection.READ_S", -1.0)
    monkeypatch.setattr("peersub.runtime.connection.SLICE_S", -1.0)
    connection, handler, transport = connection_with()
    connection.data_received(b"".join(encode(StateWanted(n)) for n in range(20)))
    assert handler.groups == [[0]] and transport.is_paused
    connection.pause_reading()
    await settle()
    assert handler.groups == [[0]], "held back, also what has come already"
    connection.resume_reading()
    await until(lambda: len(handler.groups) == 20)
    assert handler.groups == [[n] for n in range(20)] and not transport.is_paused


@on_loop
async def test_of_a_stranger_one_message_is_read_at_a_time(monkeypatch):
    connection, handler, _ = connection_with()
    connection._liveness = None
    connection.data_received(b"".join(encode(StateWanted(n)) for n in range(3)))
    assert handler.groups == [[0], [1], [2]]


def test_the_messages_that_bring_filters_are_known():
    kinds = {MESSAGES[tag].__name__ for tag in FILTER_TAGS}
    assert {"SubscribeWanted", "FilterUpdate"} <= kinds
    assert "StateWanted" not in kinds and "Notify" not in kinds


@on_loop
async def test_the_longest_turn_of_the_loop_is_told():
    monitor = LoopMonitor.of_running_loop()
    assert monitor is LoopMonitor.of_running_loop(), "nodes of one loop share it"
    await settle()
    monitor.turn_cpu_s_max = 0.0
    sum(range(300_000))
    await settle()
    assert monitor.status()["turn_cpu_ms_max"] > 1


# --- off the loop ------------------------------------------------------------------------------


SOME, OTHERS = (
    Permissions.parse(f'[default]\npublish = true\nsubscribe = "{name} = 1 OR q = 1"')
    for name in "po"
)


class Thread:
    """Does what turns have it do when the test says so."""

    def __init__(self, monkeypatch):
        self.works = []
        turns = Turns.of_running_loop()
        monkeypatch.setattr(turns, "run_off_loop", lambda *work: self.works.append(work))

    def end_one(self):
        work, on_done = self.works.pop(0)
        done = asyncio.get_running_loop().create_future()
        done.set_result(work())
        on_done(done)


def note_threads(monkeypatch, owner, name):
    """The threads in which a method is called from now on."""
    threads, method = [], getattr(owner, name)
    monkeypatch.setattr(
        owner, name, lambda *given: threads.append(threading.current_thread()) or method(*given)
    )
    return threads


@on_loop
async def test_a_dear_filter_is_worked_out_off_the_loop_and_nothing_overtakes_it(monkeypatch):
    node, rules = FakeNode(), PermittedRules(SOME, lambda: 0)
    door, connection = door_of(node, identity="ann", rules=rules)
    threads = note_threads(monkeypatch, Filter, "_joined")
    event = sealed(Publication("e", {}))
    door.on_messages([SubscribeWanted(1, product(5)), PublishWanted(event, 1)])
    door.on_messages([SubscribeWanted(2, Filter("b = 1"))])
    assert not node.sinks and not node.published and connection.is_held
    await until(lambda: len(node.sinks) == 2)
    assert [name.rpartition("/")[2] for name in node.sinks] == ["1", "2"]
    assert node.published == [event] and not connection.is_held
    assert len(threads) == 2 and threads[0] is not threading.main_thread()
    assert threads[1] is threading.main_thread(), "of the cheap one"


@on_loop
async def test_permissions_that_change_while_a_filter_is_worked_out_hold(monkeypatch):
    thread, node, rules = Thread(monkeypatch), FakeNode(), PermittedRules(SOME, lambda: 0)
    door, _ = door_of(node, identity="ann", rules=rules)
    door.on_messages([SubscribeWanted(1, product(4))])
    rules.use(OTHERS)
    door.renew_limits()
    thread.end_one()
    await until(lambda: node.sinks)
    ((wanted, _, _),) = node.sinks.values()
    assert wanted == product(4).intersection(OTHERS.of("ann").subscribe)


@on_loop
async def test_a_client_that_goes_while_its_filter_is_worked_out_leaves_nothing(monkeypatch):
    thread, node, budget = Thread(monkeypatch), FakeNode(), FilterBudget()
    door, _ = sharing(budget, node=node)
    door.on_messages([SubscribeWanted(1, product(4)), SubscribeWanted(2, Filter("b = 1"))])
    door.on_lost("gone")
    thread.end_one()
    await settle()
    assert not node.sinks and not thread.works and budget.spent == 0


@on_loop
@pytest.mark.parametrize("is_sound", [True, False])
async def test_large_frames_of_clients_are_read_off_the_loop_in_order(monkeypatch, is_sound):
    threads = note_threads(monkeypatch, FrameDecoder, "read")
    connection, handler, transport = connection_with(Turns())
    dear = bytearray(encode(SubscribeWanted(1, DEAR)))
    if not is_sound:
        dear[-200:] = bytes(200)
    connection.data_received(bytes(dear) + encode(StateWanted(2)))
    connection.data_received(encode(StateWanted(3)))
    assert handler.groups == []
    if is_sound:
        await until(lambda: len(handler.groups) == 3)
        assert handler.groups == [[1], [2], [3]] and connection.frames_in == 3
    else:
        await until(lambda: transport.is_aborted)
    assert threads[0] is not threading.main_thread()


@on_loop
async def test_what_is_read_when_its_connection_is_gone_is_dropped(monkeypatch):
    thread = Thread(monkeypatch)
    connection, handler, _ = connection_with(Turns.of_running_loop())
    connection.data_received(encode(SubscribeWanted(1, DEAR)) * 2)
    await until(lambda: thread.works)
    connection.connection_lost(None)
    thread.end_one()
    await settle()
    assert handler.groups == [] and not thread.works


@on_loop
async def test_a_thread_rests_between_its_works_while_events_pass():
    rests, clock, done = [], [0.0], []
    loop, turns = asyncio.get_running_loop(), Turns(lambda: clock[0])

    def work():
        clock[0] += 0.01

    later = loop.call_later

    def rest(delay_s, then, *given):
        if then == turns._begin_off_loop:
            rests.append(delay_s)
            delay_s = 0
        return later(delay_s, then, *given)

    loop.call_later = rest
    try:
        for _ in range(2):
            turns.run_off_loop(work, done.append)
        await until(lambda: len(done) == 2)
        assert rests == [0, 0]
        turns.give_way()
        for _ in range(3):
            turns.run_off_loop(work, done.append)
        await until(lambda: len(done) == 5)
        assert rests[2:] == [pytest.approx(REST_SHARE * 0.01)] * 3
    finally:
        del loop.call_later


# --- a live node -----------------------------------------------------------------------------


@on_loop
async def test_a_live_node_refuses_what_is_too_dear_and_serves_the_rest():
    node, gate = served_node(NodeSettings())
    await node.start()
    try:
        async with connect(node.name) as client:
            refused = client.subscribe(TOO_DEAR)
            with pytest.raises(SubscriptionEndedError, match="Split it"):
                await refused.ready()
            async with client.subscribe(DEAR) as wanted:
                await wanted.ready()
                await client.publish({f"a{n}": "k" for n in range(7)})
                await client.publish({"a0": "k"})
                await client.publish({f"b{n}": "k" for n in range(7)})
                got = [await anext(aiter(wanted)) for _ in range(2)]
                assert [sorted(event.attributes) for event in got] == [
                    [f"{letter}{n}" for n in range(7)] for letter in "ab"
                ]
                status = await client.status()
                assert status["filters"]["price"] == DEAR.price.units <= FILTER_PRICE_MAX
                assert status["loop"]["turn_cpu_ms_max"] > 0
            await until(lambda: gate.status()["filters"]["price"] == 0)
    finally:
        await node.stop()
