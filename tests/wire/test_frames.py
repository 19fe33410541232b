"""Frames: messages back to back, however the bytes arrive, and events that nobody unpacks."""

import tracemalloc
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peersub.filters import Filter
from peersub.overlays.core.link_messages import Carried, Tunnelled
from peersub.overlays.core.publication import Delivery, Publication
from peersub.overlays.core.records import EventStored
from peersub.overlays.routing.messages import Confirm, FilterConfirmed, Notify
from peersub.wire import (
    FrameDecoder,
    WireError,
    decode_record,
    encode,
    encode_batch,
    encode_record,
    sealed,
)
from peersub.wire.frames import tag_told
from peersub.wire.limits import ATTRIBUTES_BYTES_MAX, BODY_BYTES_MAX, FRAME_BYTES_MAX
from strategies import examples
from wire import samples
from wire.message_strategies import messages, plain

UNKNOWN = bytes.fromhex("0000000400009163")
MALFORMED = bytes.fromhex("0000000500009217c0")


def fed(pieces: list[bytes]) -> tuple[list[Any], int, str | None]:
    """The messages, how many were unknown, and what ended it."""
    decoder, found = FrameDecoder(), []
    try:
        for piece in pieces:
            found += decoder.feed(piece)
    except WireError as error:
        found += error.messages_before
        return found, decoder.unknown_count, str(error)
    return found, decoder.unknown_count, None


def cut(data: bytes, places: list[int]) -> list[bytes]:
    bounds = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(bounds)]


@pytest.mark.parametrize("name", samples.MESSAGES)
def test_the_tag_of_a_message_is_known_without_its_bytes(name):
    told: list[int] = []
    decoder = FrameDecoder()
    decoder.puts_aside = lambda tag: bool(told.append(tag))
    for message in (samples.MESSAGES[name], Carried(1, 2, 3, 0, samples.MESSAGES[name])):
        decoder.feed(encode(message))
        assert told.pop() == tag_told(message)


# --- batches and pieces ----------------------------------------------------------------------


@examples(100)
@given(st.lists(messages(1), max_size=5), st.lists(st.integers(0, 10_000), max_size=6))
def test_pieces_give_what_the_whole_gives(batch, places):
    data = encode_batch(batch)
    assert data == b"".join(map(encode, batch))
    found, unknown, failure = fed(cut(data, places))
    assert [plain(message) for message in found] == [plain(message) for message in batch]
    assert unknown == 0 and failure is None


@examples(100)
@given(
    st.lists(
        st.sampled_from(
            [UNKNOWN, MALFORMED, encode(FilterConfirmed(1)), b"\0\0\0\1\0", b"\xff" * 9]
        )
        | st.binary(max_size=9),
        max_size=5,
    ),
    st.lists(st.integers(0, 1_000), max_size=6),
)
def test_pieces_of_anything_give_what_the_whole_gives(parts, places):
    data = b"".join(parts)
    assert fed(cut(data, places)) == fed([data]) == fed([bytes([byte]) for byte in data])


def test_byte_by_byte():
    data = encode_batch(samples.MESSAGES.values())
    found, _, _ = fed([bytes([byte]) for byte in data])
    assert [plain(message) for message in found] == [*map(plain, samples.MESSAGES.values())]


def test_other_buffers_are_read_and_not_kept():
    data = bytearray(encode(samples.MESSAGES["notify-delegated"]))
    for buffer in (data, memoryview(data)):
        (message,) = FrameDecoder().feed(buffer)
        assert type(message.publication.body) is bytes
        assert plain(message) == plain(samples.MESSAGES["notify-delegated"])


def test_unknown_messages_are_counted_and_skipped():
    decoder = FrameDecoder()
    one, two = encode(FilterConfirmed(1)), encode(FilterConfirmed(2))
    assert decoder.feed(UNKNOWN + one + UNKNOWN + two) == [FilterConfirmed(1), FilterConfirmed(2)]
    assert (decoder.unknown_count, decoder.unknown_tag) == (2, 99)


def test_nothing_is_read_after_a_malformed_frame():
    decoder = FrameDecoder()
    with pytest.raises(WireError, match="tag 23 cannot be read") as caught:
        decoder.feed(encode(FilterConfirmed(1)) + MALFORMED + encode(FilterConfirmed(2)))
    assert caught.value.messages_before == [FilterConfirmed(1)]
    with pytest.raises(WireError, match="tag 23 cannot be read") as caught:
        decoder.feed(encode(FilterConfirmed(3)))
    assert list(caught.value.messages_before) == []


# --- bounds ----------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, FRAME_BYTES_MAX + 1, 2**31, 2**32 - 1])
def test_a_length_out_of_bounds_is_refused_at_once(length):
    with pytest.raises(WireError, match="a frame cannot have"):
        FrameDecoder().feed(length.to_bytes(4, "big") + b"\0\0")


def test_a_frame_is_looked_at_when_six_bytes_are_in():
    decoder = FrameDecoder()
    assert decoder.feed(b"\0\0\0\2\0") == []
    with pytest.raises(WireError, match="truncated"):
        decoder.feed(b"\0")


def test_a_header_does_not_reach_into_the_next_frame():
    frame = UNKNOWN[:4] + b"\0\3" + UNKNOWN[6:]
    with pytest.raises(WireError, match="the header is longer than the message"):
        FrameDecoder().feed(frame + encode(FilterConfirmed(1)))


HOSTILE = {
    "a list of 2**32 items": b"\xdd\xff\xff\xff\xff",
    "a tagged list of 2**32 items": b"\xdd\xff\xff\xff\xff\x17",
    "numbers without end": b"\x93\x19\x01\xdd\xff\xff\xff\xff",
    "text without end": b"\x92\x17\xdb\xff\xff\xff\xff",
    "an inner message without end": b"\x96\x02\1\1\1\1\xc6\xff\xff\xff\xff",
    "a record without end": b"\x92\x17\xdf\xff\xff\xff\xff",
    "lists in lists": b"\x91" * 50_000,
    "lists in lists in a field of a later version": b"\x93\x17\x09" + b"\x91" * 50_000,
    "lists in lists in a message of a later version": b"\x92\x63" + b"\x91" * 50_000,
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_claimed_size_allocates_nothing(content):
    frame = (len(content) + 2).to_bytes(4, "big") + b"\0\0" + content
    decoder = FrameDecoder()
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            decoder.feed(frame)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


def test_the_buffer_holds_no_more_than_a_frame():
    decoder = FrameDecoder()
    frame = encode(samples.MESSAGES["notify"])
    for _ in range(50):
        decoder.feed(frame + frame[:20])
        decoder.feed(frame[20:])
        assert len(decoder._buffer) == 0
    decoder.feed(frame * 100 + frame[:-1])
    assert len(decoder._buffer) == len(frame) - 1


def test_the_largest_event_passes_also_through_a_tunnel():
    attributes = {"a": "x" * (ATTRIBUTES_BYTES_MAX - 10)}
    largest = Notify(Publication("e" * 64, attributes, bytes(BODY_BYTES_MAX)), (1, 2), 1)
    tunnelled = Tunnelled("n" * 255, samples.PEER, largest)
    (back,), _, _ = fed([encode(tunnelled)])
    assert len(back.message.publication.body) == BODY_BYTES_MAX
    assert back.message.publication.attributes == attributes


def test_an_event_that_cannot_travel_is_refused_at_the_door():
    for publication, problem in [
        (Publication("e1", {}, bytes(BODY_BYTES_MAX + 1)), "the body of the event 'e1' has"),
        (Publication("\ud800", {}), "is no Unicode"),
        (Publication("é" * 33, {}), "1 to 64 bytes, this one has 66"),
        (Publication("", {}), "1 to 64 bytes"),
        (Publication("e1", {"a": "x" * ATTRIBUTES_BYTES_MAX}), "put large content into the body"),
    ]:
        with pytest.raises(WireError, match=problem):
            sealed(publication)
    with pytest.raises(WireError, match="'e1' cannot be sent: its body of"):
        encode(Notify(Publication("e1", {}, bytes(BODY_BYTES_MAX + 1)), (), 0))


# --- events that nobody unpacks --------------------------------------------------------------


def test_a_relay_unpacks_nothing(monkeypatch):
    def refuse(packed: bytes) -> dict[str, Any]:
        raise AssertionError("a relay unpacked attributes")

    monkeypatch.setattr("peersub.wire.publications.unpack_attributes", refuse)
    monkeypatch.setattr("peersub.wire.publications.pack_attributes", refuse)
    # These attributes are none: whoever looks at them fails.
    attributes, body = b"\xc1 no attributes", b"\xff no body"
    publication = Publication("e1", None, body, packed=attributes, unpack=refuse)
    sent = Notify(publication, (5, 6), 1, 7)
    (received,), _, _ = fed([encode(sent)])
    assert received.publication.packed == attributes
    forwarded = Notify(received.publication, (5, 3), 2, 8)
    (arrived,), _, _ = fed([encode(Tunnelled("n2", samples.PEER, forwarded))])
    assert (arrived.message.scope, arrived.message.hops) == ((5, 3), 2)
    assert arrived.message.publication.packed == attributes
    assert arrived.message.publication.body == body
    stored = decode_record(encode_record(EventStored(received.publication, ("s1",), 1)))
    assert (stored.publication.packed, stored.publication.body) == (attributes, body)
    with pytest.raises(AssertionError, match="a relay unpacked"):
        _ = arrived.message.publication.attributes


def test_attributes_are_packed_once():
    publication = sealed(Publication("e1", {"a": 1}))
    packed = publication.packed
    assert packed == b"\x81\xa1a\x01"
    encode(Notify(publication, (), 0))
    assert publication.packed is packed


def test_a_filter_reads_what_came_over_the_wire():
    publication = Publication("e1", {"price": 12.5}, b"<a/>", delivery=Delivery.AT_LEAST_ONCE)
    (received,), _, _ = fed([encode(Notify(publication, (), 0))])
    assert received.publication.matches(Filter("price > 12"))
    assert received.publication.matches(Filter.xpath("/a"))
    assert not received.publication.matches(Filter("price > 13"))
    assert received.publication.delivery is Delivery.AT_LEAST_ONCE


def test_attributes_that_cannot_be_read_are_found_when_asked_for():
    broken = Publication("e1", None, packed=b"\xc1", unpack=dict)
    (received,), _, _ = fed([encode(Notify(broken, (), 0))])
    with pytest.raises(WireError, match="no attributes"):
        _ = received.publication.attributes


def test_no_body_and_an_empty_body_are_told_apart():
    for body in (None, b""):
        (received,), _, _ = fed([encode(Notify(Publication("e1", {}, body), (), 0))])
        assert received.publication.body == body


def test_light_messages_are_small():
    assert len(encode(Confirm("e1", 7))) < 20
    event = Publication("0123456789abcdef0123456789abcdef", {"a": 1})
    assert len(encode(Notify(event, (2**63, 2**62), 3))) < 80
