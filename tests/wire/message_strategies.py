"""Random messages and records, built from the types of their fields, and a way to compare them.

Nothing here asks the wire how it reads a type.
"""

import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any

import msgspec
import numpy as np
from hypothesis import strategies as st

from peersub.filters import Filter
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.event_keys import BATCH_ROWS_MAX
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.publication import Delivery, Publication
from peersub.wire.tags import MESSAGES, RECORDS
from strategies import events

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MESSAGE_CLASSES: list[type] = list(MESSAGES.values())
RECORD_CLASSES: list[type] = list(RECORDS.values())

FILTERS = [
    *map(Filter, ("TRUE", "FALSE", "a = 1", "a > 1.5 AND b LIKE 'x%y'", "NOT (a IN ('p', 'q'))")),
    *map(Filter, ("d >= DATE '2024-05-01' OR n.x IS NULL", "s RLIKE '^a+$'", "k = 1" + "0" * 70)),
    Filter.xpath("/nitf/body//p[@lede = 'true']"),
    Filter.xpath("//*"),
]

# Of all lengths that MessagePack writes differently, and the bounds of 64 bits and beyond.
_EDGES = [0, 1, 127, 128, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**63 - 1, 2**63]
numbers = st.sampled_from([*_EDGES, 2**64 - 1, 2**64, 2**160 - 1, 2**256 - 1]) | st.integers(0, 99)
texts = st.sampled_from(["", "a", "é", "日本語", "\0", "x" * 40]) | st.text(max_size=5)
names = st.text(min_size=1, max_size=8) | st.sampled_from(["e" * 64, "日" * 21])
bodies = st.none() | st.binary(max_size=20) | st.sampled_from([b"<a/>", bytes(300)])
peers = st.builds(PeerId, texts, st.integers(0, 2**64 - 1), st.integers(0, 300))

publications = st.builds(
    Publication, names, events(), bodies, delivery=st.sampled_from(list(Delivery))
)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Parts of batches; what is in the columns is no affair of the wire."""
    total = draw(st.integers(1, BATCH_ROWS_MAX))
    numbers = sorted(draw(st.sets(st.integers(0, total - 1), max_size=5)))
    return Batch(
        draw(st.text("abc/é", min_size=1, max_size=20)),
        np.array(numbers, np.uint32),
        total,
        delivery=draw(st.sampled_from(list(Delivery))),
        packed=draw(st.binary(max_size=30)),
    )


def of_type(hint: Any, depth: int = 2) -> st.SearchStrategy[Any]:
    """Values of a type, messages in messages up to so deep."""
    simple = {
        bool: st.booleans(),
        float: st.floats(allow_nan=False),
        int: numbers,
        str: texts,
        bytes: st.binary(max_size=24),
        Filter: st.sampled_from(FILTERS),
        PeerId: peers,
        Publication: publications,
        Batch: batches(),
    }
    if hint in simple:
        return simple[hint]
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is tuple:
        if arguments[-1] is Ellipsis:
            return st.lists(of_type(arguments[0], depth), max_size=4).map(tuple)
        return st.tuples(*(of_type(argument, depth) for argument in arguments))
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return st.one_of(*(of_type(argument, depth) for argument in arguments))
    if hint is types.NoneType:
        return st.none()
    if hint is Message:
        return st.deferred(lambda: messages(depth - 1))
    if issubclass(hint, IntEnum):
        return st.sampled_from(list(hint))
    return instances(hint, depth)


def instances(product: type, depth: int = 2) -> st.SearchStrategy[Any]:
    """Instances of a dataclass or a named tuple."""
    hints = typing.get_type_hints(product)
    if is_dataclass(product):
        hints = {field.name: hints[field.name] for field in fields(product)}
    return st.builds(product, **{name: of_type(hint, depth) for name, hint in hints.items()})


def holds_message(message_class: type) -> bool:
    return Message in typing.get_type_hints(message_class).values()


def messages(depth: int = 2) -> st.SearchStrategy[Any]:
    """Any message, with others in it up to so deep."""
    chosen = [kind for kind in MESSAGE_CLASSES if depth > 0 or not holds_message(kind)]
    return st.sampled_from(chosen).flatmap(lambda kind: instances(kind, depth))


records = st.sampled_from(RECORD_CLASSES).flatmap(instances)


def plain(value: Any) -> Any:
    """A value that equals another's iff both are the same in every part, also within events."""
    if isinstance(value, Batch):
        numbers = value.numbers.tolist()
        return ("Batch", value.id, value.delivery, value.total, numbers, value.packed)
    if isinstance(value, Publication):
        return ("Publication", value.id, value.delivery, spelled(value.attributes), value.body)
    if is_dataclass(value):
        parts = [(field.name, plain(getattr(value, field.name))) for field in fields(value)]
        return (type(value).__name__, *parts)
    if isinstance(value, tuple):
        return (type(value).__name__, *map(plain, value))
    # A damaged float may be no number, which equals nothing.
    return (type(value).__name__, repr(value) if isinstance(value, float) else value)


def spelled(value: Any) -> Any:
    """A value of an event as text that tells kinds apart, and timestamps only by their instant."""
    if isinstance(value, Mapping):
        return {name: spelled(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [spelled(item) for item in value]
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        # Python finds a local time that comes twice a year unequal to all times of other zones.
        return ("datetime", aware - EPOCH)
    if isinstance(value, msgspec.msgpack.Ext):
        # Its repr names an address, not what it holds.
        return ("extension", value.code, value.data)
    return repr(value)
