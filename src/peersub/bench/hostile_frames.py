"""What somebody may send to a node who means no good, drawn from a seed.

An *act* is a connection: bytes, and what becomes of it. Each kind has the reasons by which the node
must count it, one of them for each act. What was drawn and happens to be a proper greeting is drawn
again: it is no attack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final

from peersub.filters.filter import Filter
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.link_messages import (
    Acknowledgement,
    BetweenSlots,
    Carried,
    Goodbye,
    Hello,
    LinkAccepted,
    LinkOpen,
    LinkWanted,
    Tunnelled,
    TunnelRequest,
)
from peersub.overlays.core.messages import Message
from peersub.overlays.core.publication import Publication
from peersub.overlays.flood.messages import Flooded, Neighbours
from peersub.overlays.routing.messages import Notify
from peersub.wire import FrameDecoder, WireError, encode
from peersub.wire.client_messages import ClientHello, SubscribeWanted
from peersub.wire.limits import FRAME_BYTES_MAX

__all__ = ["Act", "Ending", "Target", "hostile_acts"]

_PREFIX_BYTES: Final = 4
_UNKNOWN_TAGS: Final = (19, 39, 99, 120)
"""Numbers that no message has."""
_NONSENSE_MAX: Final = 40
"""Messages that one connection sends out of place."""

CUT_OFF: Final = "a frame that was cut off"
MALFORMED: Final = "a malformed frame"
TOO_LARGE: Final = "a frame that is too large"
UNKNOWN: Final = "a message of an unknown kind"
UNEXPECTED: Final = "an unexpected first message"
REFUSED: Final = "a node that was refused"
REPEATED: Final = "an old connection that was repeated"
NOTHING_SAID: Final = "a connection that said nothing"
TOO_MANY: Final = "a connection too many"
_ANY: Final = (CUT_OFF, MALFORMED, TOO_LARGE, UNKNOWN, UNEXPECTED, REFUSED, NOTHING_SAID)


class Ending(Enum):
    """What becomes of the connection once all is said."""

    CLOSED = "closed"
    """The attacker closes it."""
    HELD = "held"
    """The attacker waits until the node closes it."""


@dataclass(frozen=True, slots=True)
class Act:
    """One connection of somebody hostile."""

    kind: str
    data: bytes
    ending: Ending
    reasons: tuple[str, ...]
    """By one of these the node must count it."""
    frames: int = 1


@dataclass(frozen=True, slots=True)
class Target:
    """What attackers know of a node: its name, and what they recorded of a neighbour of it."""

    node: str
    neighbour: str


def _samples() -> tuple[Message, ...]:
    """Messages of every sort, as they travel."""
    event = Publication("e1", {"symbol": "ACME", "price": 12.5, "deep": {"er": [1, None, "x"]}})
    document = Publication("e2", {}, b"<nitf><body/></nitf>")
    peer = PeerId("127.0.0.1:9", 3)
    hello = Hello(peer, 4, "elsewhere", (1, 1), ("tunnels",), "chord", bytes(16), (("a", "b"),))
    notify = Notify(event, (0, 1 << 63), 1)
    return (
        hello,
        notify,
        Notify(document, (1, 2), 3, 77),
        Carried(1, 2, 3, 0, BetweenSlots(0, 1, LinkWanted())),
        Carried(4, 1, 1, 9, TunnelRequest("127.0.0.1:8")),
        Acknowledgement(1, 2, 3),
        Goodbye(1, 2, "leaves"),
        Tunnelled("127.0.0.1:8", peer, hello),
        Tunnelled("127.0.0.1:8", peer, notify),
        Flooded(event, 2),
        Neighbours(("127.0.0.1:7", "127.0.0.1:6")),
        LinkAccepted("127.0.0.1:9", 3),
    )


class _Attacker:
    def __init__(self, seed: int, target: Target) -> None:
        self.random = Random(f"{seed}/hostile")
        self.target = target
        self.messages = _samples()
        self.frames = tuple(map(encode, self.messages))
        self.numbers = 0

    def _frame(self) -> bytes:
        return self.random.choice(self.frames)

    # --- kinds -----------------------------------------------------------------------------------

    def garbage(self) -> Act:
        data = self.random.randbytes(self.random.randint(1, 200))
        return Act("garbage", data, Ending.CLOSED, _ANY)

    def malformed(self) -> Act:
        """The length is right, and nothing else."""
        payload = bytes(2) + self.random.randbytes(self.random.randint(1, 300))
        return Act("malformed", _framed(payload), Ending.HELD, (MALFORMED, UNKNOWN))

    def truncated(self) -> Act:
        frame = self._frame()
        data = frame[: self.random.randint(1, len(frame) - 1)]
        return Act("truncated", data, Ending.CLOSED, (CUT_OFF,))

    def oversized(self) -> Act:
        length = self.random.choice((65_537, FRAME_BYTES_MAX + 1, (1 << 32) - 1, 1 << 31))
        data = length.to_bytes(_PREFIX_BYTES, "big") + self.random.randbytes(64)
        return Act("oversized", data, Ending.HELD, (TOO_LARGE,))

    def flipped(self) -> Act:
        data = bytearray(self._frame())
        for _ in range(self.random.randint(1, 8)):
            data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
        return Act("flipped", bytes(data), Ending.CLOSED, _ANY)

    def unknown(self) -> Act:
        """Kinds that a later version may have: skipped, and then nothing is said."""
        tag = self.random.choice(_UNKNOWN_TAGS)
        frame = _framed(bytes(2) + bytes((0x92, tag, self.random.randrange(128))))
        count = self.random.randint(1, 20)
        return Act("unknown", frame * count, Ending.CLOSED, (UNKNOWN,), count)

    def unexpected(self) -> Act:
        return Act("unexpected", self._frame(), Ending.HELD, (UNEXPECTED,))

    def deep(self) -> Act:
        """Lists in lists in lists."""
        depth = self.random.randint(200, 20_000)
        payload = bytes(2) + b"\x92\x02" + b"\x91" * depth + b"\x00"
        return Act("deep", _framed(payload), Ending.HELD, (MALFORMED,))

    def client(self) -> Act:
        """A client that says things which are none."""
        hello = encode(ClientHello((1, 0))) if self.random.random() < 0.5 else b""
        wanted = bytearray(encode(SubscribeWanted(1, Filter("price > 1"))))
        wanted[self.random.randrange(6, len(wanted))] ^= 0xFF
        return Act("client", hello + bytes(wanted), Ending.CLOSED, ())

    def replayed(self) -> Act:
        """The greeting of a neighbour, recorded when it made its first connection."""
        data = encode(LinkOpen(self.target.neighbour, 1, 0))
        return Act("replayed", data, Ending.HELD, (REPEATED, REFUSED))

    def impersonated(self) -> Act:
        data = encode(LinkOpen(self.target.node, 9, 9))
        return Act("impersonated", data, Ending.HELD, (REFUSED,))

    def nonsense(self) -> Act:
        """A node by its greeting, which then says whatever messages there are, out of place."""
        self.numbers += 1
        # Addresses at which nobody listens, in case that the node dials back.
        name = f"127.0.{self.numbers // 250 % 250}.{2 + self.numbers % 250}:1"
        said = [self._frame() for _ in range(self.random.randint(1, _NONSENSE_MAX))]
        data = encode(LinkOpen(name, self.numbers, 1)) + b"".join(said)
        return Act("nonsense", data, Ending.CLOSED, (), len(said))

    def silent(self) -> Act:
        return Act("silent", b"", Ending.HELD, (NOTHING_SAID, TOO_MANY))

    def lingering(self) -> Act:
        """Half a frame, and no end."""
        data = self._frame()[:7]
        return Act("lingering", data, Ending.HELD, (NOTHING_SAID, TOO_MANY))


_KINDS: Final[tuple[tuple[Callable[[_Attacker], Act], int], ...]] = (
    (_Attacker.garbage, 8),
    (_Attacker.malformed, 8),
    (_Attacker.truncated, 8),
    (_Attacker.oversized, 8),
    (_Attacker.flipped, 12),
    (_Attacker.unknown, 4),
    (_Attacker.unexpected, 6),
    (_Attacker.deep, 2),
    (_Attacker.client, 6),
    (_Attacker.replayed, 6),
    (_Attacker.impersonated, 3),
    (_Attacker.nonsense, 4),
    (_Attacker.silent, 1),
    (_Attacker.lingering, 1),
)
"""Kinds of acts, and how often each is drawn."""


def hostile_acts(seed: int, target: Target, frames: int) -> Iterator[Act]:
    """Acts of at least so many frames together."""
    attacker = _Attacker(seed, target)
    kinds = [kind for kind, _ in _KINDS]
    weights = [weight for _, weight in _KINDS]
    sent = 0
    while sent < frames:
        act = attacker.random.choices(kinds, weights)[0](attacker)
        if act.reasons and act.kind not in ("replayed", "impersonated") and _greets(act.data):
            continue
        sent += act.frames
        yield act


def _framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(_PREFIX_BYTES, "big") + payload


def _greets(data: bytes) -> bool:
    """Whether the first thing said is what nodes and clients say first."""
    try:
        messages = FrameDecoder().feed(data)
    except WireError as error:
        messages = list(error.messages_before)
    return bool(messages) and isinstance(messages[0], LinkOpen | ClientHello)
