"""Who holds what in a whole network, and where events go in it: for checkers outside the protocol.

`NetworkWatch` looks at all nodes after each step of one. It says

- that no two nodes hold one identifier, as long as no link was ever lost without a goodbye, and
  nothing had to be sent again over one. After that two may claim a place, each for good reasons,
  until they hear of each other (`directory`): who waits long to hear of a holder takes it for gone;
- of an event that was published while the network was *settled*, and that came to an end before
  anything changed: that its way to the host of its bits was no longer than the Hamming distance
  (§3.1); that it visited no place twice, and only places that host subsets of its bits; and all of
  those, unless events are quenched (§3.2, §4.5).

A network is settled if its places are a complete suffix code, no node has two, all tables are those
of the rule, and no connection between neighbours is broken. Other events are left out, and counted:
those that were under way while something changed, were lost or doubled by a link, or went through a
tunnel, and those of nodes that have no place yet.

What a node means to do is not asked: visits are the messages that come in, and an event has come to
an end when all that were sent have arrived.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from peersub.overlays.core.causes import (
    Cause,
    ConnectFailed,
    PeerLost,
    Publish,
    PublishBatch,
    Received,
    TimerFired,
)
from peersub.overlays.core.effects import Effect, Send
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.link_messages import Goodbye, Hello, Tunnelled, unwrapped
from peersub.overlays.core.links import RESEND
from peersub.overlays.core.messages import Message
from peersub.overlays.core.publication import Publication
from peersub.overlays.reach.identifiers import (
    EMPTY_PLACE,
    Place,
    are_neighbours,
    missing_parts,
)
from peersub.overlays.reach.messages import Detour, Rendezvous, Spread
from peersub.overlays.reach.peer import ReachPeer

__all__ = ["EVENTS_WATCHED_MAX", "NetworkWatch", "PeerAt"]

PeerAt: TypeAlias = Callable[[str], ReachPeer | None]
"""The peer on a node, if the node is on."""
EVENTS_WATCHED_MAX: Final = 4_096
"""Events that are under way at once; those that were lost stay until others take their room."""

_Table: TypeAlias = tuple[tuple[Place, tuple[tuple[Place, PeerId], ...]], ...]
_Way: TypeAlias = tuple[Place | None, str]
"""The place that a message is for, None if it is on its way to a rendezvous; and to which node."""


@dataclass(slots=True)
class _Journey:
    """An event in a network that is settled."""

    bits: int
    steps_max: int
    """The distance from the publisher to the host."""
    steps: int = 0
    visits: Counter[Place] = field(default_factory=Counter)
    sent: Counter[_Way] = field(default_factory=Counter)
    """Messages that have not arrived."""


class NetworkWatch:
    """What the nodes hold, and the events that are under way between them."""

    def __init__(self, peer_at: PeerAt) -> None:
        self.judged = 0
        """Events that came to an end in a network that was settled."""
        self.left_out = 0
        """Other events."""
        self._peer_at = peer_at
        self._tables: dict[str, _Table] = {}
        self._settled: dict[Place, ReachPeer] | None = None
        self._is_looked_at = False
        """Whether `_settled` is worked out from the tables as they are."""
        self._broken: dict[tuple[str, str], None] = {}
        """Connections that were lost, and over which no greeting has come since."""
        self._parted: dict[tuple[str, str], None] = {}
        """Who has got a goodbye from whom."""
        self._any_lost = False
        self._journeys: dict[str, _Journey] = {}

    def check(self, peer: ReachPeer, cause: Cause, effects: Sequence[Effect]) -> list[str]:
        """Complaints about a step."""
        node = peer.me.node
        self._look_at_links(node, cause)
        complaints = [*self._look_at_tables(peer)]
        touched: dict[str, None] = {}
        match cause:
            case Publish(publications):
                for publication in publications:
                    self._begin(peer, publication, touched)
            case PublishBatch(batch):
                for publication in batch.publications():
                    self._begin(peer, publication, touched)
            case Received(_, messages):
                for message in messages:
                    self._arrived(peer, message, touched)
        for effect in effects:
            if isinstance(effect, Send):
                for message in effect.messages:
                    self._sent(effect.peer.node, message)
                if isinstance(cause, TimerFired) and cause.timer.purpose == RESEND:
                    self._any_lost = True
        for event in touched:
            complaints += self._judge(event, peer)
        return complaints

    # --- who holds what ------------------------------------------------------------------------

    def _look_at_links(self, node: str, cause: Cause) -> None:
        """Which connections are whole, and whether any ended without a goodbye."""
        match cause:
            case PeerLost(other):
                self._broken[node, other.node] = None
                if (node, other.node) not in self._parted:
                    self._any_lost = True
                self._unsettle()
            case ConnectFailed():
                self._any_lost = True
            case Received(other, messages):
                for message in messages:
                    if isinstance(message, Hello):
                        self._parted.pop((node, other.node), None)
                        if self._broken.pop((node, other.node), 0) is None:
                            self._unsettle()
                    elif isinstance(unwrapped(message), Goodbye):
                        self._parted[node, other.node] = None

    def _look_at_tables(self, peer: ReachPeer) -> Iterator[str]:
        table = _table(peer)
        if self._tables.get(peer.me.node) == table:
            return
        self._tables[peer.me.node] = table
        self._unsettle()
        if self._any_lost:
            return
        for node in self._tables:
            other = self._peer_at(node)
            if other is None or other is peer:
                continue
            for place in peer.holdings.seats:
                for theirs in other.holdings.seats:
                    if place.overlaps(theirs):
                        yield f"{peer.me} and {other.me} host the same: {place}, {theirs}"

    def _unsettle(self) -> None:
        self._is_looked_at = False
        self._settled = None
        self.left_out += len(self._journeys)
        self._journeys.clear()

    def _places(self) -> dict[Place, ReachPeer] | None:
        """All places, if the network is settled."""
        if not self._is_looked_at:
            self._is_looked_at = True
            self._settled = self._work_out()
        if self._settled is None:
            return None
        alive = all(self._peer_at(peer.me.node) is peer for peer in self._settled.values())
        return self._settled if alive else None

    def _work_out(self) -> dict[Place, ReachPeer] | None:
        held: dict[Place, ReachPeer] = {}
        nodes = list(self._tables)
        for node in nodes:  # It grows: at the begin of a run nobody has taken a step.
            peer = self._peer_at(node)
            if peer is None:
                continue
            table = self._tables[node] = _table(peer)
            if len(table) > 1 or any(place in held for place, _ in table):
                return None
            for place, near in table:
                held[place] = peer
                for _, other in near:
                    if (node, other.node) in self._broken:
                        return None
                    if other.node not in self._tables:
                        self._tables[other.node] = ()
                        nodes.append(other.node)
        return held if _is_settled(held) else None

    # --- where events go -----------------------------------------------------------------------

    def _begin(self, peer: ReachPeer, publication: Publication, touched: dict[str, None]) -> None:
        own = list(peer.holdings.seats)  # Who has none may know nobody to turn to.
        if self._places() is None or len(own) != 1 or publication.id in self._journeys:
            self.left_out += 1
            return
        bits = peer.bits.event_bits(publication.attributes)
        journey = _Journey(bits, _differing(own[0], bits))
        if not journey.steps_max:
            journey.visits[own[0]] += 1
        self._journeys[publication.id] = journey
        if len(self._journeys) > EVENTS_WATCHED_MAX:
            self._leave_out(next(iter(self._journeys)))
        touched[publication.id] = None

    def _arrived(self, peer: ReachPeer, message: Message, touched: dict[str, None]) -> None:
        inner = unwrapped(message)
        if not isinstance(inner, Rendezvous | Spread | Detour):
            return
        event = inner.publication.id
        journey = self._journeys.get(event)
        if journey is None:
            return
        way = _way(inner, peer.me.node)
        if isinstance(message, Tunnelled) or not journey.sent[way]:
            self._leave_out(event)  # It went another way, or was doubled.
            return
        journey.sent[way] -= 1
        touched[event] = None
        if isinstance(inner, Spread):
            journey.visits[inner.place] += 1
        else:
            journey.steps += 1
            hosts = [place for place in peer.holdings.seats if not _differing(place, journey.bits)]
            journey.visits.update(hosts)

    def _sent(self, node: str, message: Message) -> None:
        inner = unwrapped(message)
        if isinstance(inner, Rendezvous | Spread | Detour):
            journey = self._journeys.get(inner.publication.id)
            if journey is None:
                return
            if isinstance(message, Tunnelled) or isinstance(inner, Detour):
                self._leave_out(inner.publication.id)
                return
            journey.sent[_way(inner, node)] += 1

    def _leave_out(self, event: str) -> None:
        del self._journeys[event]
        self.left_out += 1

    def _judge(self, event: str, peer: ReachPeer) -> Iterator[str]:
        """Complaints about an event that has come to an end."""
        journey = self._journeys.get(event)
        places = self._places()
        if journey is None or places is None or any(journey.sent.values()):
            return
        del self._journeys[event]
        self.judged += 1
        if journey.steps > journey.steps_max:
            yield f"{event} took {journey.steps} steps to its host, over {journey.steps_max} bits"
        twice = [str(place) for place, count in journey.visits.items() if count > 1]
        if twice:
            yield f"{event} visited {', '.join(twice)} more than once"
        subsets = [place for place in places if _hosts_subset(place, journey.bits)]
        others = [str(place) for place in journey.visits if place not in subsets]
        if others:
            yield f"{event} visited {', '.join(others)}, without a subset of {journey.bits:b}"
        missed = [str(place) for place in subsets if place not in journey.visits]
        if missed and not peer.settings.quench:
            yield f"{event} did not visit {', '.join(missed)}, with a subset of {journey.bits:b}"


def _table(peer: ReachPeer) -> _Table:
    return tuple((p, tuple(seat.near.items())) for p, seat in peer.holdings.seats.items())


def _way(message: Rendezvous | Spread | Detour, node: str) -> _Way:
    return (None if isinstance(message, Rendezvous) else message.place, node)


def _is_settled(held: dict[Place, ReachPeer]) -> bool:
    """Whether these are a complete suffix code, and everybody knows who is next to its places."""
    if sum(2.0**-place.length for place in held) != 1 or missing_parts(EMPTY_PLACE, held):
        return False
    return all(
        peer.holdings.seats[place].near
        == {other: its.me for other, its in held.items() if are_neighbours(place, other)}
        for place, peer in held.items()
    )


def _differing(place: Place, bits: int) -> int:
    """The Hamming distance of a place from an identifier, as far as the place goes."""
    return ((place.bits ^ bits) & ((1 << place.length) - 1)).bit_count()


def _hosts_subset(place: Place, bits: int) -> bool:
    return place.bits & ~bits == 0
