"""The gate between connections and doors."""

import asyncio

from client.fake_node import FakeNode
from client.turns import on_loop, settle, until
from peersub.filters import Filter
from peersub.runtime.client_gate import FULL_BYTES, STALLED_MS_MAX, ClientGate
from peersub.runtime.client_ports import DoorLimits, NetworkName, OpenRules
from peersub.runtime.connection import Connection, ConnectionSettings
from peersub.runtime.counters import Counters
from peersub.wire import FrameDecoder, encode, encode_batch
from peersub.wire.client_messages import (
    CLIENT_VERSION,
    ClientHello,
    Delivered,
    StateWanted,
    SubscribeWanted,
)


class Wire(asyncio.Transport):
    """A socket that keeps what is written until it is taken."""

    def __init__(self):
        super().__init__()
        self.written = bytearray()
        self.is_aborted = False

    def set_write_buffer_limits(self, high=None, low=None):
        pass

    def get_write_buffer_size(self):
        return len(self.written)

    def write(self, data):
        self.written += data

    def abort(self):
        self.is_aborted = True

    def close(self):
        self.is_aborted = True

    def pause_reading(self):
        """What it has read is with the connection already."""

    def resume_reading(self):
        """Nothing was held back."""

    def taken(self):
        data = bytes(self.written)
        self.written.clear()
        return FrameDecoder().feed(data)


class Handler:
    """The transport of a node, as far as a gate needs it."""

    def __init__(self):
        self.gate = None
        self.closed = []

    def on_opened(self, connection):
        pass

    def on_messages(self, connection, messages):
        connection.trust()
        assert self.gate(connection, messages) == isinstance(messages[0], ClientHello)

    def on_closed(self, connection, reason):
        self.closed.append(reason)

    def on_relieved(self, connection):
        pass


class Gated:
    """A client that connects to a gate, at a time that a test tells."""

    def __init__(self, rules=None):
        self.now_ms = 0
        self.node, self.handler, self.wire = FakeNode(), Handler(), Wire()
        self.gate = self.handler.gate = ClientGate(self.node, NetworkName("chord", "net"), rules)
        self.connection = Connection(
            self.handler, ConnectionSettings(), Counters(), lambda: self.now_ms
        )
        self.connection.connection_made(self.wire)

    def says(self, *messages):
        self.connection.data_received(encode_batch(messages))


@on_loop
async def test_a_client_may_be_silent_for_longer_than_a_node():
    here = Gated()
    here.says(ClientHello(CLIENT_VERSION))
    assert not here.connection.is_suspect(4_000)
    assert here.connection.is_suspect(20_000)


@on_loop
async def test_who_does_not_greet_is_no_client():
    here = Gated()
    here.says(StateWanted(1))
    assert here.wire.taken() == [] and here.gate.status()["clients"] == {}


@on_loop
async def test_frames_are_bounded_by_the_rules():
    here = Gated(OpenRules(DoorLimits(frame_bytes_max=1_000)))
    here.says(ClientHello(CLIENT_VERSION, (), "x" * 500))
    assert not here.wire.is_aborted
    here.connection.data_received(encode(ClientHello(CLIENT_VERSION, (), "x" * 2_000)))
    assert here.wire.is_aborted


@on_loop
async def test_a_lost_client_is_forgotten_and_the_transport_hears_of_it():
    here = Gated()
    here.says(ClientHello(CLIENT_VERSION), SubscribeWanted(1, Filter("TRUE"), credit=9))
    await until(lambda: here.node.sinks)
    assert list(here.gate.status()["clients"]) == ["client-1"]
    here.connection.connection_lost(None)
    assert here.gate.status()["clients"] == {} and not here.node.sinks
    assert here.handler.closed == ["the other side closed the connection"]


@on_loop
async def test_a_client_that_reads_nothing_gets_no_more_than_fits():
    here = Gated()
    wanted = SubscribeWanted(1, Filter("TRUE"), queue_max=1_000, credit=1_000)
    here.says(ClientHello(CLIENT_VERSION), wanted)
    await until(lambda: here.node.sinks)
    body = bytes(100_000)
    for number in range(100):
        here.node.emit_body(number, body)
        await asyncio.sleep(0)
    assert FULL_BYTES < here.connection.queued_bytes < FULL_BYTES + 600_000
    found = []
    while len(found) < 100:
        await until(lambda: here.wire.written)
        found += [message for message in here.wire.taken() if isinstance(message, Delivered)]
    assert [message.publication.id for message in found] == [f"e{n}" for n in range(100)]


@on_loop
async def test_what_has_come_of_large_frames_is_bounded_for_all_clients():
    """Each begins a large frame and never ends it: the node holds some of that, and not all."""
    first = Gated()
    clients = [first]
    budget = first.gate._usages.publishing
    budget.node_max, budget.client_max = 1_000_000, 400_000
    for _ in range(20):
        other = Gated()
        other.gate = other.handler.gate = first.gate
        clients.append(other)
    begun = (16_000_000).to_bytes(4, "big") + bytes(2) + bytes(300_000)
    for each in clients:
        each.says(ClientHello(CLIENT_VERSION))
        each.connection.data_received(begun)
    assert 600_000 < budget.used < 2 * budget.node_max
    kept = [each for each in clients if not each.wire.is_aborted]
    assert 2 <= len(kept) <= 6
    kept[0].connection.data_received(bytes(200_000))
    assert kept[0].wire.is_aborted
    for each in clients:
        each.connection.connection_lost(None)
    assert budget.used == 0


@on_loop
async def test_what_waits_on_full_connections_counts_and_who_takes_nothing_makes_room():
    here = Gated()
    budget = here.gate._usages.queued
    here.says(ClientHello(CLIENT_VERSION), SubscribeWanted(1, Filter("TRUE"), credit=10))
    await until(lambda: here.node.sinks)
    here.node.emit_body(1, bytes(3_000_000))
    await until(lambda: budget.used > 3_000_000)
    here.now_ms += STALLED_MS_MAX + 1
    await settle()
    assert not here.wire.is_aborted, "there is room for all"
    budget.node_max = 2_000_000
    await until(lambda: here.wire.is_aborted)
    here.connection.connection_lost(None)
    assert budget.used == 0


@on_loop
async def test_where_there_are_many_clients_less_waits_on_each_connection():
    here = Gated()
    few = here.gate.full_bytes
    here.gate._doors |= {object(): None for _ in range(1_024)}
    assert (few, here.gate.full_bytes) == (FULL_BYTES, FULL_BYTES // 4)
    here.gate._doors |= {object(): None for _ in range(9_000)}
    assert here.gate.full_bytes == 64 * 1_024
