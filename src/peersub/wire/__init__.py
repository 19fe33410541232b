"""The wire: messages to bytes and back, and the records of a node's store.

`frames` is the door: `encode`, `encode_batch`, `FrameDecoder`, and the same for records. `codec`
reads and writes one message, by plans that `fields` works out from its types; `tags` has the
numbers of all kinds; `publications` and `values` have the events, `limits` the bounds.

Versions: a reader ignores fields after those that it knows, gives missing last fields their
defaults, and skips messages that it does not know. Golden bytes of each version are in the tests.
"""

from peersub.wire.errors import FrameSizeError, UnknownMessageError, WireError
from peersub.wire.filter_bytes import Patterns
from peersub.wire.frames import (
    FrameDecoder,
    decode_record,
    encode,
    encode_batch,
    encode_record,
    may_be_dropped,
    patterns_held,
    patterns_seen,
)
from peersub.wire.publications import sealed
from peersub.wire.values import UnnamedValue, pack_attributes, unpack_attributes

__all__ = [
    "FrameDecoder",
    "FrameSizeError",
    "Patterns",
    "UnknownMessageError",
    "UnnamedValue",
    "WireError",
    "decode_record",
    "encode",
    "encode_batch",
    "encode_record",
    "may_be_dropped",
    "pack_attributes",
    "patterns_held",
    "patterns_seen",
    "sealed",
    "unpack_attributes",
]
