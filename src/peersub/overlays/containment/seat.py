"""`Seat`: a member's place in the tree. Whom it has above and below, and what they tell each other.

A member has at most one upward edge, `up`; for a while after a move also the one it had before, in
`former_ups`, which events still use. Downward edges are in the order in which they came.

What is told along edges, and only when it changes (`Ancestry`):

* `path`, over EQUAL edges to the root of the class, over TOP edges to the crown. A member without
  a path takes nobody, and nobody takes one that is on its path: so no circle is ever closed
  knowingly, and one that two moves at once close shows in the paths, and is opened again.
  CHILD edges need none: they go along a strict order that is proven.
* the nearest ancestors over edges of all kinds, for repair.
* next to the crown also its heirs, in order: whom to turn to when the crown is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from peersub.filters.filter import Filter
from peersub.overlays.containment.messages import Ancestry, Departing, Detach, Handed
from peersub.overlays.containment.settings import ContainmentSettings
from peersub.overlays.containment.structure import EdgeKind, contains
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.publication import Publication
from peersub.overlays.semantic.hosting import ANY_LIFE

__all__ = ["HEIRS_MAX", "KEEPER_SLOT", "Above", "Below", "Host", "Seat", "is_meant"]

KEEPER_SLOT = 1
"""Where the keeper of each node lives."""

HEIRS_MAX = 4
"""Who may follow the crown, in order."""

_HEIR_ORDER = (EdgeKind.TOP, EdgeKind.EQUAL, EdgeKind.CHILD, EdgeKind.VISIT)


def is_meant(peer: PeerId, lost: PeerId) -> bool:
    """Whether a loss concerns a member: of itself, of its node, or of a life of that node."""
    lives = (peer.incarnation, lost.incarnation)
    is_life = ANY_LIFE in lives or lives[0] == lives[1]
    return peer.node == lost.node and is_life and lost.slot in (0, peer.slot)


class Host(Protocol):
    """What a node offers to its members."""

    settings: ContainmentSettings
    seed: int
    now_ms: int

    def send(self, to: PeerId, message: Message) -> None:
        """Say something to another member."""

    def reach(self, peer: PeerId) -> None:
        """See to it that there is a link to a member, before there is anything to say."""

    def set_timer(self, purpose: str, member: PeerId, delay_ms: int) -> None:
        """The member hears of it after so long; a later one replaces it."""

    def deliver(self, member: PeerId, publication: Publication, hops: int) -> None:
        """Hand an event to the subscriptions of a member."""

    def is_new(self, member: PeerId, publication: Publication, *, expected: bool) -> bool:
        """Whether a member sees the event for the first time; `expected` that it may not."""

    def is_new_in_list(self, member: PeerId, parent: PeerId, publication: Publication) -> bool:
        """Whether a member passes an event along the list of a parent for the first time."""

    def remember(self, node: str) -> None:
        """A node was lost: it may be in another part of the network."""

    def losses_of_leaver(self) -> tuple[str, ...]:
        """The nodes that this one lost, if it takes leave."""

    def answered(self, node: str) -> None:
        """A node that was lost is there, and its tree has a crown."""

    def learn(self, nodes: Iterable[str]) -> None:
        """These take part: they may be of use when all others are lost."""

    def known_nodes(self) -> tuple[str, ...]:
        """Some nodes that take part."""

    def contacts(self) -> tuple[PeerId, ...]:
        """Keepers of nodes to turn to when no ancestor is left."""

    def matches(self, wanted: Filter) -> int:
        """How many events of the sample the filter matches."""

    def seated(self, member: PeerId) -> None:
        """A member has found a place."""

    def crowned(self, member: PeerId) -> None:
        """A member has become a crown."""

    def keeper_address(self) -> PeerId | None:
        """The keeper of the node, unless the node takes leave."""

    def gone(self, member: PeerId) -> None:
        """A member has left."""


@dataclass(slots=True)
class Above:
    """An upward edge."""

    peer: PeerId
    kind: EdgeKind
    wanted: Filter | None
    number: int
    """Of the request on which the place was given."""
    path: tuple[PeerId, ...] = ()


@dataclass(slots=True)
class Below:
    """A downward edge; the filter is known for giving places, and never used for routing."""

    kind: EdgeKind
    wanted: Filter | None
    number: int = 0
    """Of the request on which it was taken."""
    is_departing: bool = False
    """It only waits for those below it to go."""
    told: Ancestry | None = None


class Seat:
    """A member's place."""

    def __init__(self, me: PeerId, wanted: Filter | None, host: Host) -> None:
        self.me = me
        self.wanted = wanted
        self.host = host
        self.settings = host.settings
        self.is_crown = False
        self.is_leaving = False
        self.has_left = False
        """It has taken leave, and only passes on what is under way."""
        self.is_vacating = False
        """It is about to leave the top level: those below it there go first."""
        self.is_going_down = False
        """It has asked for a place that is not at the top level."""
        self.up: Above | None = None
        self.former_ups: dict[PeerId, tuple[Above, int]] = {}
        """Edges from before a move, each with the time at which it ends."""
        self.down: dict[PeerId, Below] = {}
        self.path: tuple[PeerId, ...] = ()
        self.ancestors: tuple[PeerId, ...] = ()
        self.heirs: tuple[PeerId, ...] = ()
        self.was_seated = False
        self.number = 0
        """Of its last request."""

    # --- what it is ----------------------------------------------------------------------------

    @property
    def is_keeper(self) -> bool:
        """Whether it stands for its node, and wants nothing."""
        return self.wanted is None

    @property
    def is_seated(self) -> bool:
        """Whether it has a place in the tree."""
        return self.is_crown or self.up is not None

    @property
    def is_top_level(self) -> bool:
        """Whether it is a class root that nobody contains."""
        return self.is_crown or (self.up is not None and self.up.kind is EdgeKind.TOP)

    def contains(self, other: Filter | None) -> bool:
        """Whether it is proven that this one's filter contains the other."""
        return self.wanted is not None and other is not None and contains(self.wanted, other)

    def is_contained_in(self, other: Filter | None) -> bool:
        """Whether it is proven that the other contains this one's filter."""
        return self.wanted is not None and other is not None and contains(other, self.wanted)

    def below(self, *kinds: EdgeKind) -> list[PeerId]:
        """Those below over edges of these kinds, in the order in which they came."""
        return [peer for peer, edge in self.down.items() if edge.kind in kinds]

    def ups(self) -> Iterator[tuple[PeerId, EdgeKind]]:
        """All upward edges that events use."""
        if self.up is not None:
            yield self.up.peer, self.up.kind
        for peer, (above, _) in self.former_ups.items():
            if self.up is None or peer != self.up.peer:
                yield peer, above.kind

    def neighbours(self) -> Iterator[PeerId]:
        """All members that an edge leads to."""
        for peer, _ in self.ups():
            yield peer
        yield from self.down

    def send(self, to: PeerId, message: Message) -> None:
        """Say something to another member."""
        self.host.send(to, message)

    # --- changes -------------------------------------------------------------------------------

    def sit(self, above: Above, ancestors: tuple[PeerId, ...], heirs: tuple[PeerId, ...]) -> None:
        """Take a place below another; the edge from before is kept for a while."""
        self.leave_up(above.peer)
        self.is_crown = False
        self.up = above
        self._hear_of(ancestors, heirs)
        self.former_ups.pop(above.peer, None)
        self._seated()

    def become_crown(self) -> None:
        """Take the place above all."""
        self.leave_up(None)
        self.is_crown = True
        self.ancestors = self.heirs = ()
        self._seated()
        self.host.crowned(self.me)

    def _seated(self) -> None:
        self.was_seated = True
        self.refresh()
        self.host.seated(self.me)

    def leave_up(self, other_than: PeerId | None) -> None:
        """Keep the upward edge as one from before, which ends after a while."""
        if self.up is not None and self.up.peer != other_than:
            until_ms = self.host.now_ms + self.settings.overlap_ms
            self.former_ups[self.up.peer] = (self.up, until_ms)
            self.host.set_timer("overlap", self.me, self.settings.overlap_ms)
        self.up = None

    def on_overlap_timer(self) -> None:
        """End the edges from before whose time has come."""
        now_ms = self.host.now_ms
        for peer, (above, until_ms) in list(self.former_ups.items()):
            if until_ms <= now_ms:
                del self.former_ups[peer]
                self.detach(above)
        if self.former_ups:
            least_ms = min(until_ms for _, until_ms in self.former_ups.values())
            self.host.set_timer("overlap", self.me, least_ms - now_ms)

    def detach(self, above: Above) -> None:
        """Give a place back; not a later one below the same member."""
        self.send(above.peer, Detach(above.peer.slot, self.me.slot, above.number))

    def lose_up(self) -> None:
        """The upward edge is gone; what it told stays, to find another."""
        self.up = None
        self.refresh()

    def add_below(self, peer: PeerId, kind: EdgeKind, wanted: Filter | None, number: int) -> None:
        """Somebody stands below this one from now on."""
        known = self.down.get(peer)
        if known is not None and known.kind is kind:
            known.wanted, known.number = wanted, number
        else:
            self.down.pop(peer, None)
            self.down[peer] = Below(kind, wanted, number)
        # What it is told comes with the acceptance.
        self.down[peer].told = self.told(peer)
        self.refresh()

    def remove_below(self, peer: PeerId, number: int | None = None) -> bool:
        """Somebody does not any more, if it was taken on a request up to this; whether it did."""
        edge = self.down.get(peer)
        if edge is None or (number is not None and number < edge.number):
            return False
        del self.down[peer]
        self.refresh()
        return True

    def install(self, above: Seat | None, kind: EdgeKind) -> None:
        """Have this place from the start, told to nobody; the one above has its own already."""
        self.was_seated = True
        if above is None:
            self.is_crown = True
        else:
            above.down[self.me] = edge = Below(kind, self.wanted)
            self.up = Above(above.me, kind, above.wanted, 0)
            edge.told = told = above.told(self.me)
            self.up.path = told.path
            self.ancestors = told.ancestors
        self.path = self._path()

    def tell_departing(self, departs: bool = True) -> None:
        """Let the one above know that nobody should be sent here, or that they should."""
        if self.up is not None:
            above = self.up.peer
            self.send(above, Departing(above.slot, self.me.slot, departs))

    def on_departing(self, sender: PeerId, departs: bool) -> None:
        """One below is about to go, or stays after all."""
        edge = self.down.get(sender)
        if edge is not None:
            edge.is_departing = departs
            self.refresh()

    def staying(self, kind: EdgeKind, other_than: PeerId) -> list[PeerId]:
        """Those below over such edges that are not about to go, but for one."""
        return [
            peer
            for peer, edge in self.down.items()
            if edge.kind is kind and not edge.is_departing and peer != other_than
        ]

    def members_on_top(self, other_than: PeerId) -> list[PeerId]:
        """Those that stay at the top level below this one and are no keepers, but for one."""
        staying = self.staying(EdgeKind.TOP, other_than)
        return [peer for peer in staying if self.down[peer].wanted is not None]

    def hand_over_top(self) -> None:
        """Let those below at the top level stand elsewhere: one in this place, others below it."""
        assert self.up is not None
        for place, peer in enumerate(below := self.below(EdgeKind.TOP)):
            instead = below[0] if place else self.up.peer
            self.send(peer, Handed(peer.slot, self.me.slot, instead, in_my_place=not place))

    # --- what those below are told -------------------------------------------------------------

    def on_ancestry(self, sender: PeerId, message: Ancestry) -> bool:
        """Take in what the one above says; False if it has come to be below this one."""
        if self.up is None or self.up.peer != sender:
            return True
        self.up.path = message.path
        self._hear_of(message.ancestors, message.heirs)
        if self.me in message.path or self.me in message.ancestors:
            self.detach(self.up)
            self.lose_up()
            return False
        self.refresh()
        return True

    def _hear_of(self, ancestors: tuple[PeerId, ...], heirs: tuple[PeerId, ...]) -> None:
        self.ancestors, self.heirs = ancestors, heirs
        self.host.learn(peer.node for peer in (*ancestors, *heirs))

    def refresh(self) -> None:
        """Work out the path, and tell those below what has changed for them."""
        self.path = self._path()
        for peer, edge in self.down.items():
            told = self.told(peer)
            if told != edge.told:
                edge.told = told
                self.send(peer, told)

    def _path(self) -> tuple[PeerId, ...]:
        if self.is_crown:
            return (self.me,)
        if self.up is None:
            return ()
        if self.up.kind is EdgeKind.CHILD:
            return (self.me,)
        if self.up.kind is EdgeKind.VISIT:
            # Two keepers that are crowns may come to stand below each other.
            return (self.me, *self.up.path)
        return (self.me, *self.up.path) if self.up.path else ()

    def told(self, peer: PeerId) -> Ancestry:
        """What one below is to know of those above it."""
        kind = self.down[peer].kind
        path: tuple[PeerId, ...] = ()
        if kind is EdgeKind.TOP:
            path = self.path if self.is_top_level else ()
        elif kind is EdgeKind.VISIT and self.is_keeper:
            path = self.path
        elif kind is EdgeKind.EQUAL and self.path:
            is_root = self.up is None or self.up.kind is not EdgeKind.EQUAL
            path = (self.me,) if is_root else self.path
        known = () if not self.is_seated else self.ancestors
        ancestors = (self.me, *known)[: self.settings.ancestors]
        heirs: tuple[PeerId, ...] = ()
        if self.is_crown:
            heirs = self.own_heirs()
        elif self.up is not None and len(ancestors) == len(known) + 1:
            heirs = self.heirs
        return Ancestry(peer.slot, self.me.slot, path, ancestors, heirs)

    def own_heirs(self) -> tuple[PeerId, ...]:
        """Who would follow this one if it were the crown and were lost."""
        staying = {peer: edge.kind for peer, edge in self.down.items() if not edge.is_departing}
        found = [peer for kind in _HEIR_ORDER for peer in staying if staying[peer] is kind]
        return tuple(found[:HEIRS_MAX])
