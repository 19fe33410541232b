"""`Ring`: the links of a Chord peer, which of them lead to members, and what follows from that.

Everything about the shape of the network is a function of the *known* members: those to which a
link is up, and which have said `Present` (`topology`). So maintaining the graph means to be linked
to the right peers, and nothing else: a finger is replaced when a better one becomes known, and the
first of the successor list is promoted when the successor is lost, because it is known already.

A link alone makes nobody known. Whoever opens one to a peer that it holds for one of its own ring
says `Present`, and is answered; to try a former peer, or to ask for help, one does not. That keeps
apart what a split has parted, until the rings merge on purpose (`splits`).

When the known members change, `settle` computes the topology anew and tells the routing engine who
inherits the scopes of lost edges and whose rows new edges copy: changes are made before they break.

Invariants: known members have different keys, and none has this peer's; every edge is linked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from peersub.overlays.chord import arcs
from peersub.overlays.chord.messages import KeyTaken, LinkNeeded, Present, RingMember
from peersub.overlays.chord.settings import ChordSettings
from peersub.overlays.chord.successor_list import SuccessorList
from peersub.overlays.chord.topology import ChordTopology
from peersub.overlays.core.effects import Connect, Disconnect, Drop
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.routing.engine import RoutingEngine

__all__ = ["DIALLING_MAX", "LETTERS_MAX", "NEIGHBOURS_MAX", "Link", "Ring"]

DIALLING_MAX = 1_024
"""Nodes to which a connection is being made."""
LETTERS_MAX = 128
"""Messages that wait for one connection."""
NEIGHBOURS_MAX = 64
"""Members that a neighbourhood names each way."""
MORE_PREDECESSORS = 4
"""Predecessors named beyond the length of the successor list: the lists of others may be longer."""
UNREACHABLE_MAX = 256
"""Nodes that could not be reached, and are not tried again at once."""
UNREACHABLE_LOOKUPS = 4
"""For how many times `lookup_ms`."""

_NOT_TOLD, _TOLD_JOINING, _TOLD_MEMBER, _TOLD_OTHER_KEY = 0, 1, 2, 3


class Link:
    """What this peer knows of a peer it is linked to."""

    __slots__ = (
        "claims",
        "is_outside",
        "key",
        "member",
        "peer",
        "told",
        "unneeded_here",
        "unneeded_there",
        "unused",
    )

    def __init__(self, peer: PeerId, key: int | None) -> None:
        self.peer = peer
        self.key = key
        self.claims = False
        """It has said that it is a member of the same ring, and has not taken leave."""
        self.is_outside = False
        """It has said that it is on its way into a ring, or out of one."""
        self.member: RingMember | None = None
        """Its place, if it counts as a member: nobody else stands at its key."""
        self.told = _NOT_TOLD
        """What it was told of this peer."""
        self.unused = False
        """It was of no use when the links were last looked through."""
        self.unneeded_here = False
        """It was told that the link is of no use here."""
        self.unneeded_there = False

    @property
    def is_member(self) -> bool:
        """Whether it is a known member."""
        return self.member is not None


class _Dial:
    """A connection that is being made, and what to say once it is."""

    __slots__ = ("key", "letters", "present")

    def __init__(self) -> None:
        self.present = False
        self.key: int | None = None
        """Where the node stands, if others say that it is a member."""
        self.letters: list[Message] = []


class Ring:
    """Links and known members of one peer."""

    def __init__(
        self, settings: ChordSettings, topology: ChordTopology, engine: RoutingEngine
    ) -> None:
        self.settings = settings
        self.topology = topology
        self.engine = engine
        self.me = topology.me
        self.links: dict[PeerId, Link] = {}
        self.following = SuccessorList(topology, settings.successors)
        self.members: dict[int, Link] = {}
        """The known members, by key."""
        self.is_member = False
        """Whether this peer is a member itself."""
        self.is_frozen = False
        """While a peer gathers its first fingers, changes wait."""
        self.is_reshaped = False
        """The topology was computed anew, and what follows from that is still to be done."""
        self.lost_fingers: dict[int, None] = {}
        """The k whose finger was lost, and for which none was looked up yet."""
        self._nodes: dict[str, PeerId] = {}
        self._dialling: dict[str, _Dial] = {}
        self._unreachable: dict[str, int] = {}
        self._is_changed = False

    # --- links ---------------------------------------------------------------------------------

    def linked(self, node: str) -> PeerId | None:
        """The peer of the node, if a link to it is up."""
        return self._nodes.get(node)

    @property
    def is_dialling(self) -> bool:
        """Whether connections are being made to nodes of the ring.

        One that is asked for help, or that was lost and is tried again, is waited for by nobody.
        """
        return any(dial.present for dial in self._dialling.values())

    def reach(self, node: str, *letters: Message, present: bool = True) -> None:
        """Link to the node if there is no link yet, and say this.

        Args:
            node: whom to reach.
            letters: what to say once the link is up.
            present: whether it is held for one of the same ring, and told so.
        """
        if node == self.me.node:
            return
        peer = self._nodes.get(node)
        if peer is not None:
            if present:
                self.present(peer)
            for letter in letters:
                self.engine.send(peer, letter)
            return
        dial = self._dialling.get(node)
        if dial is None:
            if len(self._dialling) >= DIALLING_MAX:
                self.engine.emit(Drop(f"too many connections are being made: {node} has to wait"))
                return
            dial = self._dialling[node] = _Dial()
            self.engine.emit(Connect(node))
        dial.present = dial.present or present
        dial.letters += letters[: LETTERS_MAX - len(dial.letters)]

    def on_connected(self, peer: PeerId, greeting_key: int | None) -> bool:
        """A link is up; False if it was before."""
        is_new = peer not in self.links
        if is_new:
            former_life = self._nodes.get(peer.node)
            if former_life is not None:
                self.on_lost(former_life)
            self.links[peer] = Link(peer, greeting_key)
            self._nodes[peer.node] = peer
            self.engine.peer_connected(peer)
        dial = self._dialling.pop(peer.node, None)
        if dial is not None:
            if dial.present:
                self.present(peer)
            for letter in dial.letters:
                self.engine.send(peer, letter)
        return is_new

    def on_connect_failed(self, node: str, now_ms: int) -> None:
        """A node cannot be reached: for a while it is not tried again on hearsay."""
        dial = self._dialling.pop(node, None)
        if dial is not None and dial.key is not None:
            self.following.give_up(dial.key)
        self._unreachable.pop(node, None)
        self._unreachable[node] = now_ms + UNREACHABLE_LOOKUPS * self.settings.lookup_ms
        if len(self._unreachable) > UNREACHABLE_MAX:
            del self._unreachable[next(iter(self._unreachable))]

    def on_lost(self, peer: PeerId) -> Link | None:
        """A link is gone; None if it was none."""
        link = self.links.pop(peer, None)
        if link is None:
            return None
        if self._nodes.get(peer.node) == peer:
            del self._nodes[peer.node]
        self._forget_member(link)
        if link.key is not None:
            self.following.give_up(link.key)
        self.engine.peer_gone(peer)
        return link

    def disconnect(self, peer: PeerId, reason: str) -> None:
        """Close a link."""
        if peer in self.links:
            # In this order: what was said to it goes out before.
            self.engine.emit(Disconnect(peer, reason))
            self.on_lost(peer)

    # --- members -------------------------------------------------------------------------------

    def present(self, peer: PeerId) -> None:
        """Tell the peer where this one stands, unless it knows."""
        link = self.links[peer]
        told = _TOLD_MEMBER if self.is_member else _TOLD_JOINING
        if link.told != told:
            link.told = told
            self.engine.send(peer, Present(self.topology.key, self.is_member))

    def present_to_all(self) -> None:
        """Tell all who know of this peer that it is a member now."""
        for link in self.links.values():
            if link.told or link.is_member:
                self.present(link.peer)

    def begin_alone(self) -> None:
        """Begin a ring, of which nobody is who knows that this peer was on its way.

        They may be members of another by now, and are told nothing until the rings meet.
        """
        for link in self.links.values():
            link.told = _NOT_TOLD

    def on_present(self, peer: PeerId, message: Present) -> None:
        """The peer holds this one for one of its ring, and says whether it is a member."""
        link = self.links[peer]
        if message.key != link.key or not message.member:
            self._forget_member(link)
            link.key = message.key
        link.claims = message.member
        link.is_outside = not message.member
        if message.member:
            self.add_member(link)
        self.present(peer)

    def add_member(self, link: Link) -> None:
        """The peer can serve an arc. Of two with one key the later by name has to move."""
        key = link.key
        assert key is not None
        if key == self.topology.key:
            if link.peer > self.me:
                self.engine.send(link.peer, KeyTaken(key))
            return
        other = self.members.get(key)
        if other is not None and other is not link:
            loser_link = max(other, link, key=lambda claimant: claimant.peer)
            self.engine.send(loser_link.peer, KeyTaken(key))
            if loser_link is link:
                return
            self._forget_member(other)
        if not link.is_member:
            link.member = RingMember(key, link.peer)
            link.is_outside = False
            self.members[key] = link
            self._is_changed = True

    def forget_member(self, peer: PeerId) -> None:
        """The peer takes leave: do without it, though the link is up."""
        link = self.links.get(peer)
        if link is not None:
            link.claims = False
            link.is_outside = True
            self._forget_member(link)
            if link.key is not None:
                self.following.give_up(link.key)

    def _forget_member(self, link: Link) -> None:
        if not link.is_member:
            return
        assert link.key is not None
        topology = self.topology
        if topology.label_or_none(link.peer) is not None:
            for k in range(1, topology.bits + 1):
                finger = topology.finger(k)
                if finger is not None and finger.peer == link.peer:
                    self.lost_fingers[k] = None
        link.member = None
        del self.members[link.key]
        self._is_changed = True

    def move(self, key: int) -> None:
        """Stand at another key. Nobody knows this peer there yet; those who knew it will hear."""
        assert not self.is_member
        assert key not in self.members
        before = self._arcs()
        self.following.doubt()
        self.topology.move(key)
        self._tell_engine(before)
        for link in list(self.links.values()):
            link.told = _TOLD_OTHER_KEY if link.told else _NOT_TOLD
            if link.claims and not link.is_member and link.key != key:
                # Most likely the one that has the key which this peer could not keep.
                self.add_member(link)

    # --- what follows --------------------------------------------------------------------------

    def settle(self) -> None:
        """Compute the topology anew if members came or went."""
        if not self._is_changed or self.is_frozen:
            return
        self._is_changed = False
        self.is_reshaped = True
        before = self._arcs()
        self.topology.know(link.member for link in self.members.values() if link.member)
        self._tell_engine(before)
        self.following.settle()
        released = [link for link in self.links.values() if link.unneeded_here]
        if released:
            needed = self.needed()
            for link in released:
                if link.peer in needed:
                    link.unneeded_here = False
                    self.engine.send(link.peer, LinkNeeded())

    def _arcs(self) -> _Arcs:
        return [(edge.peer, edge.arc) for edge in self.topology.fingers()]

    def _tell_engine(self, before: _Arcs) -> None:
        after, size = self._arcs(), self.topology.size
        if before != after:
            self.engine.edges_changed(_heirs(before, after, size), _sources(before, after, size))

    # --- neighbours ----------------------------------------------------------------------------

    def successor_list(self) -> list[RingMember]:
        """The members that follow this peer, all of them up to the last, nearest first."""
        return self.following.members()

    def successors_wanted(self) -> int:
        """How long the successor list is to be, as far as can be told from those known."""
        return len(self.successor_list()) + (not self.following.is_complete)

    def neighbourhood(self) -> tuple[tuple[RingMember, ...], tuple[RingMember, ...]]:
        """Predecessors and successors to tell others, nearest first.

        The successors are all that there are up to the last; of the predecessors some may be
        missing.
        """
        following = self.successor_list()[:NEIGHBOURS_MAX]
        before = min(len(following) + MORE_PREDECESSORS, NEIGHBOURS_MAX)
        return tuple(self.topology.predecessors(before)), tuple(following)

    def learn_following(self, peer: PeerId, successors: Sequence[RingMember], now_ms: int) -> None:
        """A member has named those that follow it, all of them up to the last."""
        link = self.links.get(peer)
        if link is not None and link.is_member and link.key is not None:
            offset = (link.key - self.topology.key) % self.topology.size
            named = [one for one in successors if not self._is_unreachable(one.peer.node, now_ms)]
            if named or not successors:
                self.following.learn(offset, named)

    def consider(
        self, candidates: Iterable[RingMember], now_ms: int, *, is_new: bool = False
    ) -> None:
        """Link to those of the members that others name which this peer has a use for.

        One that is new also links to those that will have a use for it: its predecessors.
        """
        unknown = [member for member in candidates if self._is_news(member, now_ms)]
        if not unknown:
            return
        wanted = self.following.wanted(unknown)
        for member in unknown:
            if (
                member in wanted
                or self._is_before(member.key, is_new)
                or self.topology.adopts_at(member.key)
            ):
                self.reach(member.peer.node)
                dial = self._dialling.get(member.peer.node)
                if dial is not None:
                    dial.key = member.key

    def _is_news(self, member: RingMember, now_ms: int) -> bool:
        """Whether the member is unknown, and not one that could not be reached just now."""
        key, peer = member
        if peer.node == self.me.node or not 0 <= key < self.topology.size:
            return False
        if self._is_unreachable(peer.node, now_ms):
            return False
        linked = self._nodes.get(peer.node)
        return linked is None or not self.links[linked].is_member

    def _is_unreachable(self, node: str, now_ms: int) -> bool:
        return bool(self._unreachable) and self._unreachable.get(node, now_ms) > now_ms

    def _is_before(self, key: int, is_new: bool) -> bool:
        """Whether a member at this key would be the predecessor, or is to know this newcomer."""
        topology = self.topology
        count = len(self.successor_list()) + MORE_PREDECESSORS if is_new else 1
        before = topology.predecessors(count)
        distance = (topology.key - key) % topology.size
        return not before or distance < (topology.key - before[-1].key) % topology.size

    def needed(self) -> dict[PeerId, None]:
        """The peers to which this one has a use for a link."""
        topology = self.topology
        near = [*self.successor_list(), *topology.predecessors(1)]
        return {
            **dict.fromkeys(topology.edges()),
            **dict.fromkeys(member.peer for member in near),
            **dict.fromkeys(self.engine.publishers()),
        }

    def by_distance(self, node: str) -> list[PeerId]:
        """The known members, those that stand nearest to the node first: who may reach it."""
        target = self._nodes.get(node)
        key = self.links[target].key if target is not None else None
        if key is None:
            return [member.peer for member in self.topology.known]
        size = self.topology.size

        def distance(member: RingMember) -> tuple[int, int]:
            ahead = (member.key - key) % size
            return (min(ahead, size - ahead), ahead)

        return [member.peer for member in sorted(self.topology.known, key=distance)]

    def install(self, members: Iterable[RingMember], horizon: int) -> None:
        """Be linked to these members, and a member that they know: a state that is set.

        All members up to the horizon are among them.
        """
        self.is_member = True
        known = list(members)
        for member in known:
            link = self.links[member.peer] = Link(member.peer, member.key)
            link.member = member
            link.claims = True
            link.told = _TOLD_MEMBER
            self.members[member.key] = link
            self._nodes[member.peer.node] = member.peer
        self.topology.know(known)
        self.following.horizon = horizon

    def in_order(self) -> Iterator[PeerId]:
        """All linked peers: members clockwise, then the others by name."""
        yield from (self.members[key].peer for key in self._clockwise())
        yield from sorted(link.peer for link in self.links.values() if not link.is_member)

    def _clockwise(self) -> list[int]:
        size, own = self.topology.size, self.topology.key
        return sorted(self.members, key=lambda key: (key - own) % size)


_Arcs = list[tuple[PeerId, arcs.Arc]]


def _heirs(before: _Arcs, after: _Arcs, size: int) -> dict[PeerId, PeerId | None]:
    """Per lost edge the one that serves what it served, from its start on.

    That is its counter-clockwise neighbour. The counter-clockwise neighbour of the successor is
    this peer itself, which can serve nothing: then it is the first edge within the lost arc.
    """
    stayed = {peer for peer, _ in after}
    heirs: dict[PeerId, PeerId | None] = {}
    for peer, lost in before:
        if peer not in stayed:
            heirs[peer] = _serving(lost[0], after, size)
            if heirs[peer] is None:
                within = [(arc[0] - lost[0]) % size for _, arc in after]
                nearest = min(range(len(after)), key=within.__getitem__, default=None)
                if nearest is not None and within[nearest] < lost[1]:
                    heirs[peer] = after[nearest][0]
    return heirs


def _sources(before: _Arcs, after: _Arcs, size: int) -> dict[PeerId, PeerId | None]:
    """Per new edge the one that served its place so far; none if that was this peer itself."""
    old = {peer for peer, _ in before}
    return {peer: _serving(arc[0], before, size) for peer, arc in after if peer not in old}


def _serving(key: int, edges: _Arcs, size: int) -> PeerId | None:
    for peer, arc in edges:
        if arcs.contains(arc, key, size):
            return peer
    return None
