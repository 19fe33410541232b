"""Every message and record: there and back, across versions, and damaged on the way."""

import importlib
import pkgutil
import typing
from dataclasses import MISSING, dataclass, fields
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import peersub.overlays
from peersub.filters import Filter
from peersub.overlays.chord.messages import RingMember, RingsMeet
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.link_messages import BetweenSlots, Carried, Hello, Tunnelled
from peersub.overlays.core.messages import Message, content_of
from peersub.overlays.core.publication import Delivery, Publication
from peersub.overlays.core.records import EventStored, Record
from peersub.overlays.routing.messages import (
    Confirm,
    Entry,
    FilterConfirmed,
    FilterUpdate,
    Notify,
    ResponsibilityChange,
)
from peersub.wire import (
    FrameDecoder,
    UnknownMessageError,
    WireError,
    decode_record,
    encode,
    encode_record,
    may_be_dropped,
)
from peersub.wire.codec import Codec
from peersub.wire.fields import FieldCodecs
from peersub.wire.filter_bytes import FilterMemory
from peersub.wire.limits import FILTERS_HELD_MAX, LIST_ITEMS_MAX, MESSAGE_NESTING_MAX
from peersub.wire.tags import MESSAGES, RECORDS
from strategies import examples
from wire import samples
from wire.message_strategies import (
    MESSAGE_CLASSES,
    RECORD_CLASSES,
    instances,
    messages,
    plain,
    records,
)

pack = msgspec.msgpack.encode
unpack = msgspec.msgpack.decode

every_message = pytest.mark.parametrize("kind", MESSAGE_CLASSES, ids=lambda kind: kind.__name__)


def read(frame: bytes) -> Any:
    decoder = FrameDecoder()
    found = decoder.feed(frame)
    if decoder.unknown_tag is not None:
        raise UnknownMessageError(decoder.unknown_tag)
    (message,) = found
    return message


def frame_of(fields: list[Any]) -> bytes:
    """A frame without a header, written by hand."""
    content = pack(fields)
    return (len(content) + 2).to_bytes(4, "big") + b"\0\0" + content


def list_of(message: Message) -> list[Any]:
    frame = encode(message)
    assert frame[4:6] == b"\0\0"
    found: list[Any] = unpack(frame[6:])
    return found


# --- the registry ----------------------------------------------------------------------------


def message_classes_of_overlays() -> list[type]:
    found: dict[type, None] = {}
    for module in pkgutil.walk_packages(peersub.overlays.__path__, "peersub.overlays."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, Message) and value is not Message:
                found[value] = None
    return list(found)


def test_every_message_has_a_tag():
    classes = message_classes_of_overlays()
    assert Hello in classes and Notify in classes
    assert [kind for kind in classes if kind not in MESSAGE_CLASSES] == []


def test_every_record_has_a_tag():
    assert [kind for kind in typing.get_args(Record) if kind not in RECORD_CLASSES] == []


def test_tags_are_small_and_given_once():
    classes = [*MESSAGES.values(), *RECORDS.values()]
    assert len(set(classes)) == len(classes)
    assert not MESSAGES.keys() & RECORDS.keys()
    assert all(0 < tag < 512 for tag in [*MESSAGES, *RECORDS])


def test_a_message_without_a_tag_is_a_mistake_that_is_named():
    class Forgotten(Message):
        pass

    with pytest.raises(TypeError, match="Forgotten has no tag"):
        encode(Forgotten())


@pytest.mark.parametrize("hint", [dict[str, int], set[int], list[int], object, int | str])
def test_a_type_without_a_codec_is_a_mistake_that_is_named(hint):
    codecs = FieldCodecs(FilterMemory(), lambda data, depth: None, lambda message: b"")
    with pytest.raises(TypeError, match="messages are not made of"):
        codecs.of(hint)


def test_a_default_that_would_not_read_as_itself_is_a_mistake_that_is_named():
    @dataclass(frozen=True, slots=True)
    class Partial(Message):
        peer: PeerId = samples.PEER

    with pytest.raises(TypeError, match=r"the default of Partial\.peer"):
        Codec({1: Partial}, FilterMemory())


@dataclass(frozen=True, slots=True)
class Inner:
    """What a message may hold besides what the present ones do."""

    members: tuple[RingMember, ...]
    wanted: Filter | None
    promise: Delivery = Delivery.BEST_EFFORT


@dataclass(frozen=True, slots=True)
class Outer(Message):
    share: float
    inner: Inner
    several: tuple[tuple[Inner, int], ...]
    number: int | None = None
    peer: PeerId | None = None
    publications: tuple[Publication, ...] = ()
    message: Message | None = None


@examples(50)
@given(instances(Outer))
def test_a_codec_is_worked_out_from_any_such_types(message):
    codec = Codec({1: Outer, **{tag + 1: kind for tag, kind in MESSAGES.items()}}, FilterMemory())
    assert plain(codec.read(codec.payload(message))) == plain(message)


def test_a_codec_without_messages_about_events_refuses_headers():
    codec = Codec({1: FilterConfirmed}, FilterMemory())
    with pytest.raises(WireError, match="a header where there should be none"):
        codec.read(b"\0\1\x90")


# --- there and back --------------------------------------------------------------------------


@every_message
def test_a_message_comes_back(kind):
    @examples(25)
    @given(instances(kind))
    def comes_back(message):
        frame = encode(message)
        back = read(frame)
        assert plain(back) == plain(message)
        assert encode(back) == frame

    comes_back()


@examples(100)
@given(records)
def test_a_record_comes_back(record):
    data = encode_record(record)
    back = decode_record(data)
    assert plain(back) == plain(record)
    assert encode_record(back) == data


def test_the_bytes_are_as_documented():
    assert encode(FilterConfirmed(9)).hex() == "00000005" + "0000" + "92" + "17" + "09"
    assert encode(RingsMeet("m1")).hex() == "00000008" + "0000" + "93" + "47" + "a26d31" + "00"
    assert list_of(ResponsibilityChange(3, (7, 2**64))) == [25, 3, [7, b"\1" + bytes(8)]]
    assert list_of(samples.MESSAGES["hello-short"]) == [
        *(1, ["10.0.0.7:7001", 3, 0], 1, "", [1, 0], [], "flood", b"", [], b"", 0, True)
    ]
    wanted = Filter("a = 1")
    update = FilterUpdate(1, 2, (Entry("s", wanted),), (("", b"d"),), b"e")
    added, removed = [["s", wanted.to_bytes(), []]], [["", b"d"]]
    assert list_of(update) == [22, 1, 2, added, removed, b"e", False, True]
    carried = Carried(1, 2, 3, 4, FilterConfirmed(9))
    assert list_of(carried) == [2, 1, 2, 3, 4, b"\0\0" + pack([23, 9])]


def test_an_event_lies_behind_its_header():
    frame = encode(samples.MESSAGES["notify-delegated"])
    header_length = int.from_bytes(frame[4:6], "big")
    header, blocks = frame[6 : 6 + header_length], frame[6 + header_length :]
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert unpack(header) == [20, "story-2", 1, 1, 20, [], 0, 77, "node-join"]
    assert blocks == pack({}) + b"<nitf><body/></nitf>"


def test_equal_filters_are_one_object():
    one, two = read(encode(samples.MESSAGES["filter-update"])).added
    again, _ = read(encode(samples.MESSAGES["filter-update"])).added
    assert again.filter is one.filter is not two.filter


def test_the_memory_holds_what_is_in_use_and_a_few_more():
    memory = FilterMemory()
    written = [Filter(f"a = {number}").to_bytes() for number in range(3 * FILTERS_HELD_MAX)]
    used = [memory.filter_of(data) for data in written[:3]]
    for data in written:
        assert memory.filter_of(data).to_bytes() == data
    assert len(memory._filter_of) == FILTERS_HELD_MAX + len(used)
    assert [memory.filter_of(data) for data in written[:3]] == used
    assert memory.filter_of(written[1]) is used[1]
    assert memory.filter_of(written[5]) == Filter("a = 5")


def test_long_filters_are_not_remembered():
    memory = FilterMemory()
    long = Filter("a = '" + "x" * 5_000 + "'")
    assert memory.filter_of(long.to_bytes()) is not memory.filter_of(long.to_bytes())
    assert long.to_bytes() is not long.to_bytes()


# --- versions --------------------------------------------------------------------------------


def without_header(kind: type) -> bool:
    return not any(name == "publication" for name in typing.get_type_hints(kind))


in_a_list = pytest.mark.parametrize(
    "kind", list(filter(without_header, MESSAGE_CLASSES)), ids=lambda kind: kind.__name__
)


@in_a_list
def test_fields_of_a_later_version_are_ignored(kind):
    @examples(5)
    @given(instances(kind, 1))
    def ignored(message):
        later = [*list_of(message), 7, ["later"], {"b": None}]
        assert plain(read(frame_of(later))) == plain(message)

    ignored()


@in_a_list
def test_missing_last_fields_get_their_defaults(kind):
    optional = [field for field in fields(kind) if field.default is not MISSING]

    @examples(5)
    @given(instances(kind, 1), st.integers(0, len(optional)))
    def defaults(message, count):
        given_fields = list_of(message)
        read_back = read(frame_of(given_fields[: len(given_fields) - count]))
        absent = optional[len(optional) - count :]
        for field in fields(kind):
            sent = field.default if field in absent else getattr(message, field.name)
            assert plain(getattr(read_back, field.name)) == plain(sent)

    defaults()


def test_a_missing_field_without_a_default_is_refused():
    with pytest.raises(WireError, match="tag 21 cannot be read: Expected `array`"):
        read(frame_of([21, "e1"]))


def test_the_header_of_an_event_may_grow_and_shrink():
    frame = encode(samples.MESSAGES["notify"])
    length = int.from_bytes(frame[4:6], "big")
    fields, blocks = unpack(frame[6 : 6 + length]), frame[6 + length :]
    for changed in ([*fields, "later"], fields[:-1], fields[:-2]):
        header = pack(changed)
        size = (2 + len(header) + len(blocks)).to_bytes(4, "big")
        again = size + len(header).to_bytes(2, "big") + header + blocks
        assert plain(read(again)) == plain(samples.MESSAGES["notify"])


def test_an_entry_may_grow_and_shrink():
    wanted = Filter("a = 1").to_bytes()
    for entry in (["s", wanted], ["s", wanted, [], "later"]):
        update = read(frame_of([22, 1, 2, [entry], [], b""]))
        assert update == FilterUpdate(1, 2, (Entry("s", Filter("a = 1")),), (), b"")


def test_a_message_of_a_later_version_is_told_apart():
    for later in ([99], [999, "a", {}], [2**40]):
        with pytest.raises(UnknownMessageError) as caught:
            read(frame_of(later))
        assert caught.value.tag == later[0]
    with pytest.raises(UnknownMessageError):
        read(frame_of([2, 1, 2, 3, 4, b"\0\0" + pack([99, 1])]))
    with pytest.raises(UnknownMessageError):
        decode_record(b"\0\0" + pack([119]))


def test_a_record_is_no_message_and_a_message_no_record():
    record = encode_record(samples.RECORDS["subscription-removed"])
    with pytest.raises(UnknownMessageError):
        read(len(record).to_bytes(4, "big") + record)
    with pytest.raises(UnknownMessageError):
        decode_record(encode(Confirm("e1", 1))[4:])


# --- malformed -------------------------------------------------------------------------------

LONG = "x" * 300
MALFORMED: dict[str, Any] = {
    "no list": 7,
    "a record": {"tag": 21},
    "an empty list": [],
    "a tag that is text": ["21", "e1", 1],
    "a tag that is true": [True, "e1", 1],
    "a tag that is a float": [21.0, "e1", 1],
    "bytes for text": [21, b"e1", 1],
    "text for a number": [21, "e1", "1"],
    "true for a number": [21, "e1", True],
    "a float for a number": [21, "e1", 1.0],
    "nil for a number": [21, "e1", None],
    "a negative number": [21, "e1", -1],
    "a small number as bytes": [21, "e1", b"\x07"],
    "a wide number with a leading zero": [21, "e1", b"\0\1" + bytes(8)],
    "no bytes for a number": [21, "e1", b""],
    "too wide a number": [21, "e1", b"\1" * 33],
    "too long a text": [21, "x" * 70_000, 1],
    "a number for a truth": [8, "n1", 1],
    "a list that is too long": [25, 1, list(range(LIST_ITEMS_MAX + 1))],
    "a small number as bytes in a list": [25, 1, [1, b"\x07"]],
    "a negative number in a list": [25, 1, [1, -2]],
    "a pair of three": [1, ["n"], 1, "", [1, 0, 0], [], "", b""],
    "a pair of one": [1, ["n"], 1, "", [1], [], "", b""],
    "a peer without a name": [1, [], 1, "", [1, 0], [], "", b""],
    "a peer with too long a name": [1, [LONG], 1, "", [1, 0], [], "", b""],
    "a peer with too long a name in bytes": [1, ["日" * 100], 1, "", [1, 0], [], "", b""],
    "a peer of a negative life": [1, ["n", -1], 1, "", [1, 0], [], "", b""],
    "an entry that is no list": [22, 1, 2, ["e"], [], b""],
    "a filter that is text": [22, 1, 2, [["s", "a = 1"]], [], b""],
    "a filter that is none": [22, 1, 2, [["s", b"nonsense"]], [], b""],
    "a filter that is empty": [22, 1, 2, [["s", b""]], [], b""],
    "a filter of a later version": [22, 1, 2, [["s", pack([2, "sql", []])]], [], b""],
    "a filter that is too long": [22, 1, 2, [["s", bytes(600_000)]], [], b""],
    "a filter that is too deep": [22, 1, 2, [["s", b"\x91" * 9_000]], [], b""],
    "a pattern that is none": [22, 1, 2, [["s", pack([1, "xpath", "]["])]], [], b""],
    "an inner message that is cut off": [2, 1, 2, 3, 4, b"\0"],
    "an inner message that is empty": [2, 1, 2, 3, 4, b""],
    "an inner message that is a list": [2, 1, 2, 3, 4, [23, 9]],
    "an inner message that is malformed": [2, 1, 2, 3, 4, b"\0\0" + pack([23, "x"])],
    "an inner header that is too long": [2, 1, 2, 3, 4, b"\0\x09" + pack([23, 9])],
    "an event without a header": [20, "e1", 0, 0, None, [], 1],
}


@pytest.mark.parametrize("content", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_message_is_refused(content):
    with pytest.raises(WireError) as caught:
        read(frame_of(content))
    assert not isinstance(caught.value, UnknownMessageError)


HEADERS: dict[str, tuple[list[Any], bytes]] = {
    "a long body": ([20, "e", 0, 1, 1, [], 1], b"\x80ab"),
    "a short body": ([20, "e", 0, 1, 2, [], 1], b"\x80a"),
    "no body where one is": ([20, "e", 0, 1, None, [], 1], b"\x80a"),
    "long attributes": ([20, "e", 0, 9, None, [], 1], b"\x80"),
    "negative attributes": ([20, "e", 0, -1, 2, [], 1], b"\x80"),
    "huge attributes": ([20, "e", 0, 2**31, None, [], 1], b"\x80"),
    "a huge body": ([20, "e", 0, 1, 2**62, [], 1], b"\x80"),
    "no identifier": ([20, "", 0, 1, None, [], 1], b"\x80"),
    "a long identifier": ([20, "e" * 65, 0, 1, None, [], 1], b"\x80"),
    "a long identifier in bytes": ([20, "日" * 22, 0, 1, None, [], 1], b"\x80"),
    "an unknown promise": ([20, "e", 2, 1, None, [], 1], b"\x80"),
    "a promise that is true": ([20, "e", True, 1, None, [], 1], b"\x80"),
    "no event": ([21, "e1", 7], b"\x80"),
}


@pytest.mark.parametrize(("header", "blocks"), HEADERS.values(), ids=HEADERS)
def test_a_malformed_header_is_refused(header, blocks):
    written = pack(header)
    payload = len(written).to_bytes(2, "big") + written + blocks
    with pytest.raises(WireError) as caught:
        read(len(payload).to_bytes(4, "big") + payload)
    assert not isinstance(caught.value, UnknownMessageError)


def test_messages_are_nested_up_to_a_bound():
    message: Message = FilterConfirmed(9)
    for _ in range(MESSAGE_NESTING_MAX - 1):
        message = Tunnelled("n", samples.PEER, message)
    assert read(encode(message)) == message
    with pytest.raises(WireError, match="nested deeper than 4 levels"):
        read(encode(Tunnelled("n", samples.PEER, message)))


def test_text_that_is_no_unicode_is_refused_before_it_is_sent():
    with pytest.raises(WireError, match="lone surrogates"):
        encode(Confirm("\ud800", 1))


def test_a_message_that_is_too_large_is_refused_before_it_is_sent():
    entries = tuple(("", bytes(60_000)) for _ in range(400))
    with pytest.raises(WireError, match=r"FilterUpdate of .* is larger .*: send it in parts"):
        encode(FilterUpdate(1, 1, (), entries, b""))
    with pytest.raises(WireError, match="'e1' cannot be sent: a header of"):
        encode(Notify(samples.TRADE, (2**40,) * 9_000, 1))


def test_a_record_about_an_event_may_be_as_large_as_a_message():
    subscriptions = tuple(f"subscription {number}" for number in range(9_000))
    stored = EventStored(samples.STORY, subscriptions, 1)
    assert plain(decode_record(encode_record(stored))) == plain(stored)


# --- damage ----------------------------------------------------------------------------------


def read_or_refuse(frame: bytes) -> None:
    decoder = FrameDecoder()
    try:
        found = decoder.feed(frame)
    except WireError as error:
        found = list(error.messages_before)
    for message in found:
        again = encode(message)
        try:
            expected = plain(message)
        except WireError:
            continue  # attributes are looked at when they are asked for
        assert plain(read(again)) == expected


@examples(400)
@given(messages(), st.data())
def test_a_damaged_message_is_read_or_refused(message, data):
    frame = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(4, len(frame) - 1))
        frame[place] ^= 1 << data.draw(st.integers(0, 7))
    read_or_refuse(bytes(frame))


@examples(200)
@given(messages(), st.data())
def test_a_message_that_is_cut_off_is_refused(message, data):
    frame = encode(message)
    payload = frame[4 : data.draw(st.integers(4, len(frame) - 1))]
    with pytest.raises(WireError):
        # The zeros belong to the next frame: a decoder waits for six bytes before it looks.
        FrameDecoder().feed(len(payload).to_bytes(4, "big") + payload + bytes(2))


@examples(300)
@given(st.binary(max_size=40))
def test_any_payload_is_read_or_refused(payload):
    read_or_refuse(len(payload).to_bytes(4, "big") + payload)


@examples(300)
@given(
    st.sampled_from(sorted(MESSAGES)),
    st.lists(
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers(-5, 2**64 - 1)
            | st.floats()
            | st.text(max_size=3)
            | st.binary(max_size=12),
            lambda inner: st.lists(inner, max_size=4),
            max_leaves=6,
        ),
        max_size=9,
    ),
)
def test_any_list_is_read_or_refused(tag, content):
    read_or_refuse(frame_of([tag, *content]))


# --- messages that bring events ----------------------------------------------------------------


def test_a_message_that_brings_an_event_says_so():
    for kind in MESSAGES.values():
        hints = typing.get_type_hints(kind)
        holders = {
            each.name for each in fields(kind) if hints[each.name] in (Publication, Batch, Message)
        }
        assert holders == ({kind.brings} if kind.brings else set()), kind.__name__


CARRIES_EVENTS = {
    "Detour",
    "Flooded",
    "Forwarded",
    "Handed",
    "Notified",
    "Notify",
    "NotifyBatch",
    "Rendezvous",
    "Routed",
    "Sought",
    "Spread",
}
"""Light messages: their protocols live with a loss."""


def test_under_pressure_light_events_go_and_carried_ones_are_sent_again():
    light = carried = 0
    for message in samples.MESSAGES.values():
        if not isinstance(message, Message) or content_of(message) is None:
            continue
        kind = type(message)
        is_light = not kind.reliable and kind.brings != "message"
        if is_light:
            assert kind.__name__ in CARRIES_EVENTS
        assert may_be_dropped(BetweenSlots(0, 1, message)) == may_be_dropped(message)
        if kind.brings == "message":
            continue
        light += may_be_dropped(message)
        assert may_be_dropped(message) == is_light
        wrapped = Tunnelled("n", samples.PEER, Carried(1, 2, 3, 0, message))
        assert may_be_dropped(wrapped), "its session sends it again"
        carried += not is_light
    assert light > len(CARRIES_EVENTS) and carried > 5
    assert not may_be_dropped(Carried(1, 2, 3, 0, samples.MESSAGES["filter-update"]))
