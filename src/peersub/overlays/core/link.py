"""One link of a node, as data, and the settings of all links.

A link is to a *node*; the peers on it share the link. It goes from DIALLING (a connection is asked
for) over GREETING (HELLO is under way) to UP, and ends at once, or over CLOSING (the other side is
told in order that it ends) or REFUSED (both sides learn why there can be none).

The *path* is where messages for the node go: straight to it, over a relay, or nowhere for now. A
link may change its path without the overlay hearing of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.session import Session

__all__ = [
    "ADOPTED_EPOCH",
    "EARLY_LIGHT_MAX",
    "TUNNEL_CANDIDATES_MAX",
    "Link",
    "LinkSettings",
    "LinkState",
    "Search",
    "adopted_epoch",
]

EPOCHS_PER_LIFE = 1 << 22
"""Epochs of different lives of a node differ: what its former life sent is never of use."""

ADOPTED_EPOCH = 1
"""The epoch, within a life, of links that were set up from outside; others are later."""

EARLY_LIGHT_MAX = 64
"""Light messages that may come before peers know of a link; of more, the last are dropped."""

TUNNEL_CANDIDATES_MAX = 32
"""The most nodes that may be asked for a tunnel at once."""


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """How a node treats its links.

    The driver knows what its connections are: `acknowledge` is for those that lose, double or
    reorder messages, and for tunnels, which must go on where a broken connection stopped.
    """

    acknowledge: bool = False
    """Whether links have sessions. All nodes of a network must agree."""
    resend_ms: int = 400
    """How long to wait for an acknowledgement, or for a HELLO, the first time."""
    resends_max: int = 8
    """How often to try again without any progress before the link counts as lost."""
    tunnels: bool = False
    """Whether to reach a node over others when the direct way fails; needs `acknowledge`."""
    tunnel_candidates: int = 16
    """How many nodes to ask for a way round at once. Each edge that fails beside the one between
    two nodes spoils at most one of them: with log N - 1 failed edges, log N - 1 are enough."""
    tunnel_timeout_ms: int = 4_000
    """How long to look for a way round before the link counts as lost."""
    direct_retry_ms: int = 5_000
    """How often to try the direct way while a tunnel is in use."""

    def __post_init__(self) -> None:
        for name in ("resend_ms", "resends_max", "tunnel_timeout_ms", "direct_retry_ms"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is at least 1")
        if not 1 <= self.tunnel_candidates <= TUNNEL_CANDIDATES_MAX:
            raise ValueError(f"tunnel_candidates is from 1 to {TUNNEL_CANDIDATES_MAX}")
        if self.tunnels and not self.acknowledge:
            raise ValueError(
                "tunnels need acknowledge: without sessions, what was under way when a connection "
                "broke is lost and cannot go on over another path"
            )


class LinkState(Enum):
    """Where a link is in its life."""

    DIALLING = "dialling"
    GREETING = "greeting"
    UP = "up"
    CLOSING = "closing"
    REFUSED = "refused"


class Search:
    """The search for a way to a node that cannot be reached directly."""

    __slots__ = ("direct_pending", "ready", "waiting")

    def __init__(self, candidates: Sequence[str], *, direct_pending: bool) -> None:
        self.waiting: dict[str, None] = dict.fromkeys(candidates)
        """Nodes that were asked and have not answered."""
        self.ready: list[str] = []
        """Nodes that said yes; the first is in use or about to be."""
        self.direct_pending = direct_pending
        """Whether a direct connection is being tried as well."""

    @property
    def is_hopeless(self) -> bool:
        """Whether nobody can say yes any more."""
        return not self.waiting and not self.ready and not self.direct_pending


class Link:
    """The link to one node. There are many: what only some need is None or empty in the others."""

    __slots__ = (
        "address",
        "asked",
        "attempts",
        "early",
        "epoch",
        "epoch_there",
        "features",
        "greeting",
        "held",
        "holders",
        "in_doubt",
        "is_connected",
        "path",
        "peer",
        "search",
        "session",
        "shown",
        "state",
        "timer_is_set",
        "wanted",
        "wanted_told",
    )

    def __init__(self, peer: PeerId, epoch: int, state: LinkState) -> None:
        self.peer = peer
        """The node's peer in slot 0; what the driver says of it until HELLO says more."""
        self.address = peer
        """As the driver names it."""
        self.state = state
        self.epoch = epoch
        self.epoch_there = 0
        """The other side's epoch, 0 until heard."""
        self.is_connected = False
        """Whether the driver has a connection to the node."""
        self.path: str | None = None
        """The node itself, a relay, or None while there is no way to it."""
        self.in_doubt = False
        """Whether its holders were told that it may not work."""
        self.session: Session | None = None
        self.asked: tuple[int, ...] = ()
        """Slots whose peers wait for PeerConnected or ConnectFailed."""
        self.holders: tuple[int, ...] = ()
        """Slots whose peers know of the link, and have not given it up."""
        self.shown = False
        """Whether peers were told of the link since it began."""
        self.wanted = False
        """Whether the overlay wants the link, here or there; else it is the nodes' own."""
        self.wanted_told = False
        """Whether the other side knows: it said so, or our HELLO that says so cannot get lost."""
        self.features: tuple[str, ...] = ()
        self.greeting = b""
        self.attempts = 0
        """How often HELLO was repeated."""
        self.timer_is_set = False
        self.search: Search | None = None
        self.held: list[Message] | None = None
        """Light messages that wait for a path."""
        self.early: list[Message] | None = None
        """Light messages that came before peers here were told of the link: those there were."""

    @property
    def node(self) -> str:
        """The name of the node at the other end."""
        return self.peer.node

    @property
    def is_direct(self) -> bool:
        """Whether the link is up without a relay, so that it can serve as one for others."""
        return self.state is LinkState.UP and self.is_connected and self.path == self.peer.node

    def open_session(self, resend_ms: int) -> None:
        """Begin a session under the epochs of both sides."""
        self.session = Session(self.epoch, self.epoch_there, resend_ms)


def adopted_epoch(peer: PeerId) -> int:
    """The epoch of all links of a peer that were set up from outside."""
    return peer.incarnation * EPOCHS_PER_LIFE + ADOPTED_EPOCH
