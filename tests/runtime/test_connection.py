"""A connection without a socket: what heartbeats and full queues do to it."""

import asyncio

import pytest

from peersub.filters import Filter
from peersub.overlays.core.link_messages import Heartbeat
from peersub.overlays.core.publication import Publication
from peersub.runtime.connection import Connection, ConnectionSettings
from peersub.runtime.counters import Counters
from peersub.runtime.turns import Turns
from peersub.wire import encode
from peersub.wire.client_messages import Delivered, SubscribeWanted

HEARTBEAT = encode(Heartbeat())


class Listening:
    """A handler that keeps what it hears."""

    def __init__(self):
        self.messages = []

    def on_messages(self, connection, messages):
        self.messages += messages

    def on_opened(self, connection): ...

    def on_closed(self, connection, reason): ...

    def on_relieved(self, connection): ...


class Filled(asyncio.Transport):
    """A transport whose buffer holds what the test says."""

    def __init__(self):
        super().__init__()
        self.buffered = 0
        self.written = bytearray()

    def get_write_buffer_size(self):
        return self.buffered

    def set_write_buffer_limits(self, high=None, low=None): ...

    def write(self, data):
        self.written += data
        self.buffered += len(data)


def opened(now_ms=lambda: 0, **settings):
    connection = Connection(Listening(), ConnectionSettings(**settings), Counters(), now_ms)
    transport = Filled()
    connection.connection_made(transport)
    connection.trust()
    return connection, transport


@pytest.mark.parametrize("size", [1, 3, len(HEARTBEAT), len(HEARTBEAT) + 1, 64])
def test_heartbeats_are_heard_and_counted_however_they_are_cut(size):
    clock = [0]
    connection, _ = opened(lambda: clock[0])
    data = HEARTBEAT * 20
    for at in range(0, len(data), size):
        clock[0] += 100
        connection.data_received(data[at : at + size])
        assert not connection.is_in_doubt(clock[0])
    assert (connection.frames_in, connection.bytes_in) == (20, len(data))
    assert connection.handler.messages == []


@pytest.mark.parametrize("in_order", [False, True])
def test_heartbeats_among_what_waits_for_its_turn_are_no_messages(in_order):
    async def hear():
        turns = Turns()
        connection, _ = opened()
        connection.read_in_turns(turns, in_order=in_order)
        wanted = [SubscribeWanted(number, Filter("a > 1")) for number in range(3)]
        connection.data_received(b"".join(encode(each) + HEARTBEAT for each in wanted))
        assert connection.frames_in == 3, "heartbeats are read at once"
        while connection._has_waiting:
            await asyncio.sleep(0)
        assert connection.handler.messages == wanted
        assert connection.frames_in == 6

    asyncio.run(hear())


@pytest.mark.parametrize("congested_bytes", [100, 256 * 1_024, 1_024 * 1_024])
@pytest.mark.parametrize("is_paused", [False, True])
def test_a_connection_is_congested_when_more_waits_than_the_bound(congested_bytes, is_paused):
    connection, transport = opened(congested_bytes=congested_bytes)
    if is_paused:
        connection.pause_writing()
    # asyncio pauses before a buffer holds more than it was allowed to.
    room = 64 * 1_024 * 1_024 if is_paused else 256 * 1_024
    for transport.buffered in (0, 100, 101, 256 * 1_024, 1_024 * 1_024, 1_024 * 1_024 + 1):
        if transport.buffered <= room:
            assert connection.is_congested() == (transport.buffered > congested_bytes)


def test_a_large_event_is_copied_for_a_connection_only_as_fast_as_its_socket_takes_it():
    """One event for thousands who read nothing is in memory once."""
    connection, transport = opened()
    small, large = (
        Delivered(Publication("e", {}, bytes(size)), (1,), 0) for size in (9, 5_000_000)
    )
    messages = [small, large, small, small]
    transport_write, limit = transport.write, 256 * 1_024

    def write(data):
        transport_write(data)
        if transport.buffered > limit:
            connection.pause_writing()

    transport.write = write
    connection.send(messages)
    writes = 0
    while connection.queued_bytes:
        assert transport.buffered <= 2 * limit
        writes += 1
        transport.buffered = 0
        connection.resume_writing()
    assert writes > 5
    assert bytes(transport.written) == b"".join(map(encode, messages))
    assert connection.bytes_out == len(transport.written)


def test_a_connection_that_is_gone_holds_nothing():
    """Whoever else knows it, a node keeps no part of a frame that never was complete."""
    connection, _ = opened()
    connection.data_received((1_000_000).to_bytes(4, "big") + bytes(500_000))
    assert connection._decoder.waiting_bytes > 500_000
    connection.connection_lost(None)
    assert connection._decoder.waiting_bytes == 0
