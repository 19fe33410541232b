"""A layer as one member sees it: its edges, their tokens, and its turns (Modules 1 and 5).

The paper's modules read the variables of neighbours at once with their own. Between processes an
edge's direction is a *token*: whoever holds it is pointed at, and may rely on the neighbour's value
and lid, since the neighbour changes them only while it holds all its tokens itself. Values and lids
are the checked shadow of the tokens: `turned` asserts at each turn that they agree. What one end
takes for the other's value is shifted by what they agreed on when their edge came up: members of a
layer need not have begun with the same value, as those of the paper do. R2 of Module 1 takes the
smallest lid above those of neighbours ahead; here a lid that is above them stays as it is.

Law: which of two neighbours has the larger lid does not change while they are neighbours. So no lid
changes by turns, however long a layer lives.

A member that holds all tokens and has offered no edge is a sink: `is_sink`. Its turn sends what is
queued, and all its tokens. Whoever has something to say, or knows of somebody who does, *wants* a
turn, and tells those who hold its tokens (`WantTurn`); a sink that nobody told holds its turn. An
event presses like a WantTurn, so that a busy layer needs none.

Law: an event that a member has not passed on yet leaves with its next turn to all neighbours but
the one it came from. A turn of one layer touches no other layer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from peersub.overlays.core.draws import draw
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.publication import Publication
from peersub.overlays.dag.messages import Label, Passed, Turn, WantTurn
from peersub.overlays.dag.orientation import (
    VALUES,
    Neighbour,
    turned,
)
from peersub.overlays.dag.settings import DagSettings

__all__ = ["Asked", "Edge", "Layer", "Wish"]


@dataclass(slots=True)
class Edge:
    """An edge, and its other end as it was last told."""

    val: int
    """Of the other end, with the shift."""
    lid: int
    holds_token: bool
    turns_before: int
    """The turns that this member had taken when the edge came up."""
    shift: int = 0
    """What to add to the other end's values, as agreed when the edge came up."""
    is_pressed: bool = False
    """The neighbour has the token, and was told not to hold its turn."""


@dataclass(slots=True)
class Wish:
    """An edge that this member wants, and waits to be invited to."""

    since_ms: int
    must: bool = False
    merges: bool = False
    """Whether the other one is in another part, as far as is known."""


@dataclass(frozen=True, slots=True)
class Asked:
    """An edge that another one wants, and waits to be invited to."""

    path: tuple[PeerId, ...] = ()
    """Whom its request came by."""
    must: bool = False
    merges: bool = False
    invitations: int = 0
    """How often it was invited and did not answer in time."""
    turns: int = -1
    """The turns that were taken the last time: it is invited again after the next one."""


class Layer:
    """One member's part of a layer."""

    __slots__ = (
        "edges",
        "former_label",
        "forming",
        "holding",
        "invited",
        "inviting",
        "is_announced",
        "is_member",
        "is_pressed",
        "known",
        "label",
        "lid",
        "name",
        "offers",
        "queued",
        "searches",
        "settings",
        "turns",
        "val",
        "wishes",
    )

    def __init__(self, name: str, settings: DagSettings) -> None:
        self.name = name
        self.settings = settings
        self.val = 0
        self.lid = 0
        self.turns = 0
        """Turns taken since it became a member."""
        self.edges: dict[PeerId, Edge] = {}
        self.offers: dict[PeerId, int] = {}
        """Edges offered and not answered, with the offers' numbers: they point away from us."""
        self.wishes: dict[PeerId, Wish] = {}
        self.forming: dict[PeerId, Asked] = {}
        """Who wants an edge that points at us."""
        self.inviting: dict[PeerId, None] = {}
        """Whom the turn is held for."""
        self.invited: dict[PeerId, None] = {}
        """Sinks that hold their turns for us, and to whom we have not offered yet."""
        self.queued: dict[bytes, tuple[Publication, PeerId | None]] = {}
        """Events that leave with the next turn, and the neighbours that they came from."""
        self.is_pressed = False
        """Somebody waits for this member's turn."""
        self.holding = False
        """Whether the timer that ends a hold is set."""
        self.label: Label | None = None
        """The part of the layer that the member is in, if it is in one."""
        self.former_label: Label | None = None
        """The label when an edge was lost, until the part was counted since."""
        self.is_announced = False
        """Whether all nodes know a member of the part."""
        self.is_member = False
        """Whether it was founded here, or had an edge: before, the node is on its way into it."""
        self.searches = 0
        """How often its neighbours were asked for others since an edge came or went."""
        self.known: dict[PeerId, int] = {}
        """Others that are or were members, and when an edge with each was last tried."""

    # --- what holds ----------------------------------------------------------------------------

    @property
    def is_sink(self) -> bool:
        """Whether it is on turn: every edge points at it, and none is offered."""
        if self.offers:
            return False
        for edge in self.edges.values():  # noqa: SIM110
            if not edge.holds_token:
                return False
        return True

    @property
    def wants_turn(self) -> bool:
        """Whether it should not hold a turn."""
        return bool(self.queued or self.is_pressed or self.forming or self.invited)

    def is_named_after(self, peer: PeerId) -> bool:
        """Whether this is the steward of the part that the member is in."""
        return self.label is not None and self.label.steward == peer

    def neighbours(self) -> list[Neighbour]:
        """Values and lids of the other ends."""
        return [(edge.val, edge.lid) for edge in self.edges.values()]

    # --- events --------------------------------------------------------------------------------

    def queue(self, publication: Publication, sender: PeerId | None) -> bool:
        """An event leaves with the next turn; False if there are too many."""
        if len(self.queued) >= self.settings.queued_events_max:
            return False
        self.queued[publication.key] = (publication, sender)
        return True

    def take_turn(self, send: Callable[[PeerId, Message], None]) -> None:
        """What is queued, and all tokens, go to the neighbours (Module 5, then Module 1)."""
        name, queued = self.name, self.queued
        leaving: list[tuple[Passed, PeerId | None]] = []
        if queued:
            for publication, sender in islice(queued.values(), self.settings.turn_events_max):
                leaving.append((Passed(name, publication), sender))
            if len(leaving) == len(queued):
                queued.clear()
            else:
                for message, _ in leaving:
                    del queued[message.publication.key]
        self.val, lid = turned(self.val, self.lid, self.neighbours())
        self.lid = max(self.lid, lid)
        self.turns += 1
        self.is_pressed = False
        turn = Turn(name, self.val, self.lid)
        skips = self.settings.skip_sender
        for peer, edge in self.edges.items():
            edge.holds_token = edge.is_pressed = False
            for message, sender in leaving:
                if sender != peer or not skips:
                    send(peer, message)
                    edge.is_pressed = True
            send(peer, turn)

    def pass_on_all(self, send: Callable[[PeerId, Message], None]) -> None:
        """What is queued goes to the neighbours, from a sink that leaves: its tokens end here."""
        for publication, sender in self.queued.values():
            message = Passed(self.name, publication)
            for peer in self.edges:
                if sender != peer or not self.settings.skip_sender:
                    send(peer, message)
        self.queued.clear()

    def press(self, send: Callable[[PeerId, Message], None]) -> None:
        """Tell those who hold the tokens, and do not know it, that a turn is wanted."""
        wanted = None
        for peer, edge in self.edges.items():
            if not edge.holds_token and not edge.is_pressed:
                edge.is_pressed = True
                if wanted is None:
                    wanted = WantTurn(self.name)
                send(peer, wanted)

    def way_on(
        self, seed: int, me: PeerId, origin: PeerId, path: tuple[PeerId, ...]
    ) -> PeerId | None:
        """The neighbour to whom a request walks on: along an edge that points away.

        From a neighbour of who asks along any edge: whoever can give it another one is further on.
        """
        anywhere = origin in self.edges
        ahead = [
            peer
            for peer, edge in self.edges.items()
            if (anywhere or not edge.holds_token) and peer not in path and peer != origin
        ]
        if not ahead:
            return None
        about = (self.name, *me, *origin, len(path))
        return min(ahead, key=lambda peer: draw(seed, "dag/walk", *about, *peer))

    # --- edges ---------------------------------------------------------------------------------

    def token_came(self, edge: Edge, val: int, lid: int) -> None:
        """The other end took its turn, and is at this value and lid now."""
        edge.val = (val + edge.shift) % VALUES
        edge.lid = lid
        edge.holds_token = True
        edge.is_pressed = False

    def lid_beside(self, lid: int) -> int | None:
        """The lid with which this sink can have an edge to a member of such a lid, if there is one.

        It has to be above those of neighbours that are ahead, and below those of the others. A sink
        may change its lid so: its neighbours hear of it with its turn, and do not look before.
        """
        if self.lid != lid:
            return self.lid
        around = self.neighbours()
        lowest = max((other for val, other in around if val != self.val), default=-1) + 1
        highest = min((other for val, other in around if val == self.val), default=lid + 2) - 1
        for other in (lid + 1, lid - 1):
            if lowest <= other <= highest:
                return other
        return None

    def wanted_edge(self, peer: PeerId) -> Wish | None:
        """What this member wants with another one, whoever is to invite."""
        asked = self.forming.get(peer)
        if asked is not None and asked.must:
            return Wish(0, must=True, merges=asked.merges)
        return self.wishes.get(peer)

    def drop(self, peer: PeerId) -> bool:
        """There is no edge with this one, nor will there be; whether there was one."""
        self.offers.pop(peer, None)
        self.wishes.pop(peer, None)
        self.forming.pop(peer, None)
        self.inviting.pop(peer, None)
        self.invited.pop(peer, None)
        return self.edges.pop(peer, None) is not None

    def concerns(self, peer: PeerId) -> bool:
        """Whether a link to this one is needed."""
        return (
            peer in self.edges
            or peer in self.offers
            or peer in self.wishes
            or peer in self.forming
            or peer in self.invited
        )
