"""`ChordPeer`: a node's part in the Chord overlay.

It owns the topology and what maintains it, and a `RoutingEngine`, which does the rest: homes,
filters, notifications. Each cause goes to the part it concerns; then the topology is settled, and
whatever follows from that is done, before the effects are handed out.

A node that has not joined holds its publications back, and no subscription of it is ready before
its predecessor serves it: until then events would pass it by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from peersub.overlays.chord.joining import JOIN, Joining, answer_admission, key_of
from peersub.overlays.chord.locating import (
    FILTERS,
    LOOKUP,
    QUESTION_MERGE,
    QUESTION_SUCCESSOR,
    QUESTION_VERIFY,
    Locating,
)
from peersub.overlays.chord.messages import (
    Admission,
    AdmissionRequest,
    KeyTaken,
    Leaving,
    LinkNeeded,
    LinkUnneeded,
    Located,
    LookupRequest,
    Neighbourhood,
    NeighbourhoodRequest,
    Present,
    RingMember,
    RingsMeet,
)
from peersub.overlays.chord.ring import NEIGHBOURS_MAX, Ring
from peersub.overlays.chord.settings import ChordSettings
from peersub.overlays.chord.splits import MERGE, PROBE, REPLAY, Splits
from peersub.overlays.chord.stabilising import (
    FILL,
    LINKS,
    STABILISE,
    UNNEEDED,
    LinkUpkeep,
    Stabilising,
)
from peersub.overlays.chord.topology import ChordTopology
from peersub.overlays.core.causes import (
    Cause,
    ConnectFailed,
    Join,
    Leave,
    PeerConnected,
    PeerLost,
    Publish,
    PublishBatch,
    Received,
    ReplayWanted,
    Restored,
    Start,
    Timer,
    TimerFired,
)
from peersub.overlays.core.effects import HAS_LEFT, Drop, Effect, Notice, PublishFailed, SetTimer
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message, message_kind
from peersub.overlays.core.protocol import Overlay
from peersub.overlays.core.publication import Publication
from peersub.overlays.core.records import IdentityStored, NeighboursStored
from peersub.overlays.core.shell import PUBLICATIONS_HELD_MAX, Phase
from peersub.overlays.routing.engine import RoutingEngine

__all__ = ["ChordPeer"]

LEAVE = Timer("chord/leave")
TAKES_LEAVE = "takes leave"

_KEY_BYTES = 8


class ChordPeer(Overlay):
    """A node of the ring.

    Args:
        me: the peer.
        settings: of the ring, and of routing.
        seed: what keyed draws depend on; the network's, not the node's.
    """

    name = "chord"

    def __init__(self, me: PeerId, settings: ChordSettings, seed: int) -> None:
        self.me = me
        self.settings = settings
        self.phase = Phase.IDLE
        self.seed = seed
        self._key_attempts = 0
        key = key_of(me.node, seed, settings, 0)
        self.topology = ChordTopology(me, key, settings.key_bits)
        self.engine = RoutingEngine(me, self.topology, settings.routing, self._on_control)
        self.ring = Ring(settings, self.topology, self.engine)
        self.locating = Locating(self.ring, seed, self._on_answer, self._ask_for_me, self._on_news)
        self.joining = Joining(self.ring, self.locating)
        self.stabilising = Stabilising(self.ring, self.locating, seed)
        self.link_upkeep = LinkUpkeep(self.ring)
        self.splits = Splits(self.ring, self.locating, self.stabilising, seed)
        self._held_publications: list[Publication] = []
        self._leaves_soon = False
        self._is_ready_held = False
        self._hold_ready()
        self._messages: dict[type[Message], Callable[[PeerId, Any, int], None]] = {
            Present: self._on_present,
            LookupRequest: self._on_lookup_request,
            Located: self._on_located,
            AdmissionRequest: self._on_admission_request,
            Admission: self._on_admission,
            KeyTaken: self._on_key_taken,
            NeighbourhoodRequest: lambda peer, _m, _n: self.stabilising.on_neighbourhood_request(
                peer
            ),
            Neighbourhood: self.splits.on_neighbourhood,
            Leaving: self._on_leaving,
            LinkUnneeded: lambda peer, _m, _n: self.link_upkeep.on_link_unneeded(peer),
            LinkNeeded: lambda peer, _m, _n: self.link_upkeep.on_link_needed(peer),
            RingsMeet: self.splits.on_rings_meet,
        }
        self._timers: dict[Timer, Callable[[int], None]] = {
            JOIN: self.joining.on_timer,
            LOOKUP: self.locating.on_timer,
            FILTERS: lambda _now: self.locating.on_filters_timer(),
            STABILISE: self.stabilising.on_timer,
            FILL: lambda _now: self.stabilising.on_fill_timer(),
            LINKS: lambda _now: self.link_upkeep.on_timer(),
            PROBE: self.splits.on_probe_timer,
            MERGE: self.splits.on_merge_timer,
            REPLAY: self.splits.on_replay_timer,
            LEAVE: lambda _now: self._depart(),
        }

    # --- the interface -------------------------------------------------------------------------

    @property
    def key(self) -> int:
        """The place of the node on the circle."""
        return self.topology.key

    def handle(self, cause: Cause, now_ms: int) -> list[Effect]:
        """Take the cause in, and say what is to be done."""
        match cause:
            case Received(peer, messages):
                for message in messages:
                    if not self.engine.on_message(peer, message, now_ms):
                        self._on_message(peer, message, now_ms)
            case Publish(publications) if self.phase is not Phase.MEMBER:
                self._hold(publications)
            case PublishBatch(batch) if self.phase is not Phase.MEMBER:
                # Who publishes so much can wait, and try again.
                reason = "the node is not a member of the network: publish when it is"
                self.engine.emit(PublishFailed.of(batch, reason))
            case _:
                if not self.engine.handle_cause(cause, now_ms) or isinstance(cause, Restored):
                    self._on_change(cause, now_ms)
        self._go_on(now_ms)
        return self.engine.flush(now_ms)

    def greeting(self) -> bytes:
        """The key."""
        return self.topology.key.to_bytes(_KEY_BYTES, "big")

    def shared_settings(self) -> Mapping[str, str]:
        """All nodes of a ring have the same circle."""
        return {"key_bits": str(self.settings.key_bits)}

    def links(self) -> Iterable[PeerId]:
        """All linked peers: members clockwise, then the others by name."""
        return list(self.ring.in_order())

    def relays_for(self, node: str) -> Iterable[PeerId]:
        """Who is most likely to reach a node to which the link broke: those that stand near it."""
        return self.ring.by_distance(node)

    @property
    def takes_part(self) -> bool:
        """Whether it is a member of a ring."""
        return self.phase is Phase.MEMBER

    @property
    def is_joining(self) -> bool:
        """Whether this peer is on its way into a ring: whoever waits for quiet waits for it."""
        return self.joining.is_begun

    @property
    def missing_nodes(self) -> list[str]:
        """Nodes that should be in the ring, and are looked for."""
        return self.splits.probing.missing

    def waiting_on(self, subscription: str) -> tuple[PeerId, ...]:
        """The neighbours whose answer a subscription needs to be ready."""
        waiting = self.engine.maintenance.pending(subscription)
        predecessor = self.topology.predecessor
        if not waiting and self._is_ready_held and predecessor is not None:
            return (predecessor.peer,)
        return waiting

    def describe(self) -> Mapping[str, Any]:
        """The state as plain values."""
        topology = self.topology
        return {
            "fingers": [
                {"arc": list(edge.arc), "label": edge.label, "peer": str(edge.peer)}
                for edge in topology.fingers()
            ],
            "key": topology.key,
            "phase": self.phase.value,
            "predecessor": str(topology.predecessor.peer) if topology.predecessor else None,
            "publishers": {
                str(peer): list(scope) for peer, scope in sorted(self.engine.publishers().items())
            },
            "routing": self.engine.describe(),
            "successors": [str(member.peer) for member in self.ring.successor_list()],
        }

    def fingerprint(self) -> Any:
        """Changes whenever the state does, and until a change has been followed up everywhere."""
        return self.describe(), self.stabilising.rounds_to_go

    def peer_offers(self, peer: PeerId, features: tuple[str, ...]) -> None:
        """What a node offers to which a link is set up from outside."""
        self.engine.peer_offers(peer, features)

    def state_bytes(self) -> int:
        """Of the filters on its edges."""
        return self.engine.maintenance.state_bytes()

    def share_work(self, first: Overlay) -> None:
        """Ask the strategy of another what covers what."""
        assert isinstance(first, ChordPeer)
        self.engine.maintenance.strategy = first.engine.maintenance.strategy

    def install(self, key: int, members: Iterable[RingMember], horizon: int) -> None:
        """Be a member at this key that has these links: a state that is set (`converged`).

        All members that stand no farther than the horizon are among them.
        """
        assert self.phase is Phase.IDLE
        self.topology.key = key
        self.phase = Phase.MEMBER
        self.ring.install(members, horizon)
        self._is_ready_held = False
        self.engine.maintenance.hold_ready(False)
        self.locating.renew_filters()
        self.stabilising.begin()

    # --- what happens --------------------------------------------------------------------------

    def _on_change(self, cause: Cause, now_ms: int) -> None:
        match cause:
            case PeerConnected(peer, greeting):
                self._on_connected(peer, greeting, now_ms)
            case PeerLost(peer, reason):
                self._on_lost(peer, reason, now_ms)
            case ConnectFailed(node, _, refused):
                self.ring.on_connect_failed(node, now_ms)
                self.joining.on_connect_failed(node, now_ms, refused=refused)
            case TimerFired(timer):
                on_timer = self._timers.get(timer)
                if on_timer is not None:
                    on_timer(now_ms)
            case Restored(records):
                for record in records:
                    if isinstance(record, IdentityStored):
                        self._restore_key(record.identity)
                    elif isinstance(record, NeighboursStored):
                        self.stabilising.neighbours_stored = record.nodes
            case Start():
                self._join((), now_ms)
            case Join(contacts):
                self._join(contacts, now_ms)
            case Leave():
                self._leave()
            case ReplayWanted(since_ms):
                self.splits.ask_for_replay(now_ms, since_ms)
            case _:
                self.engine.emit(Drop(f"chord does not know {type(cause).__name__}"))

    def _go_on(self, now_ms: int) -> None:
        """Settle the topology, and do what follows."""
        self.ring.settle()
        if self.ring.is_reshaped:
            self.ring.is_reshaped = False
            self.locating.renew_filters()
            self.stabilising.after_change(now_ms)
            self.splits.after_change(now_ms)
            self.link_upkeep.look_later()
        if self.phase is Phase.JOINING:
            self.joining.step(now_ms)
            if self.joining.is_alone:
                self.joining.end()
                self.engine.emit(Notice("nobody to join was found: this node begins a network"))
                self.ring.begin_alone()
                self._become_member(now_ms)
        elif self.phase is Phase.LEAVING:
            if not self.engine.publishers() and not len(self.engine.delegations):
                self._depart()
        elif self._is_ready_held and self._is_served():
            self._is_ready_held = False
            self.engine.maintenance.hold_ready(False)

    def _is_served(self) -> bool:
        """Whether events reach this peer: its predecessor holds it responsible."""
        predecessor = self.topology.predecessor
        if self.ring.is_dialling or self.phase is not Phase.MEMBER:
            return False
        return predecessor is None or predecessor.peer in self.engine.publishers()

    # --- links ---------------------------------------------------------------------------------

    def _on_connected(self, peer: PeerId, greeting: bytes, now_ms: int) -> None:
        if self.phase is Phase.LEFT:
            return  # Somebody else on the node needs the link: the ring goes on without this peer.
        key = int.from_bytes(greeting, "big") if len(greeting) == _KEY_BYTES else None
        if self.ring.on_connected(peer, key):
            self.joining.on_connected(peer.node)
            self.splits.on_connected(peer, now_ms)
            self.link_upkeep.look_later()

    def _on_lost(self, peer: PeerId, reason: str, now_ms: int) -> None:
        link = self.ring.links.get(peer)
        if link is None:
            return
        was_member = link.is_member
        self.ring.on_lost(peer)
        if was_member and reason == UNNEEDED:
            # It came to be of use here while the other side closed it.
            self.ring.settle()
            assert link.key is not None
            if self.phase is Phase.MEMBER:
                self.ring.consider([RingMember(link.key, peer)], now_ms)
        elif was_member and reason != TAKES_LEAVE:
            self.engine.delegations.member_lost(now_ms)
            self.splits.remember(link, now_ms)

    def _on_message(self, peer: PeerId, message: Message, now_ms: int) -> None:
        on_message = self._messages.get(type(message))
        if on_message is None or peer not in self.ring.links:
            kind = message_kind(message)
            self.engine.emit(Drop(f"{kind} from a peer that is not linked", None, peer))
        elif self.phase not in (Phase.IDLE, Phase.LEFT):
            on_message(peer, message, now_ms)

    def _on_present(self, peer: PeerId, message: Present, now_ms: int) -> None:
        if 0 <= message.key < self.topology.size:
            if message.member:
                self.splits.probing.found(peer.node, now_ms)
            self.ring.on_present(peer, message)

    # --- lookups -------------------------------------------------------------------------------

    def _on_control(self, publication: Publication, now_ms: int) -> None:
        self.locating.on_control(publication, now_ms)

    def _on_news(self, news: str, meeting: str, node: str, now_ms: int, apart_ms: int) -> None:
        self.splits.on_news(news, meeting, node, now_ms, apart_ms)

    def _ask_for_me(self, target: int, question: int) -> None:
        self.joining.ask(target, question)

    def _on_lookup_request(self, peer: PeerId, message: LookupRequest, now_ms: int) -> None:
        if self.phase is Phase.LEAVING:
            self.engine.send(peer, self._leaving())
        elif self.phase is Phase.JOINING and message.question == QUESTION_SUCCESSOR:
            # Two that wait for each other: both are told so, and one of them begins.
            self.ring.present(peer)
        elif self.phase is Phase.MEMBER and 0 <= message.target < self.topology.size:
            self.locating.publish_location(message.target, peer.node, message.question, now_ms)

    def _on_located(self, peer: PeerId, message: Located, now_ms: int) -> None:
        if message.question == QUESTION_MERGE:
            self.splits.on_other_successor(message, now_ms)
        else:
            self.locating.on_located(peer, message, now_ms)

    def _on_answer(
        self, question: int, peer: PeerId | None, message: Located | None, now_ms: int
    ) -> None:
        if question >= QUESTION_VERIFY:
            self.splits.on_verified(question, peer, now_ms)
        elif question == QUESTION_SUCCESSOR and peer is not None and message is not None:
            if self.joining.contact is not None:
                self.splits.probing.found(self.joining.contact, now_ms)
            self.joining.on_successor_located(peer, message, now_ms)

    # --- joining -------------------------------------------------------------------------------

    def _restore_key(self, identity: bytes) -> None:
        key = int.from_bytes(identity, "big")
        if self.phase is Phase.IDLE and key < self.topology.size:
            self.ring.move(key)

    def _join(self, contacts: tuple[str, ...], now_ms: int) -> None:
        self.splits.probing.add_contacts(contacts, now_ms)
        if self.phase in (Phase.JOINING, Phase.MEMBER):
            self.joining.learn(contacts)
            return
        former = self.stabilising.neighbours_stored
        if any(node != self.me.node for node in (*contacts, *former)):
            self.phase = Phase.JOINING
            self.joining.begin(contacts, now_ms, former)
        else:
            self._become_member(now_ms)

    def _hold_ready(self) -> None:
        self._is_ready_held = True
        self.engine.maintenance.hold_ready(True)

    def _become_member(self, now_ms: int) -> None:
        self.phase = Phase.MEMBER
        self.ring.is_member = True
        self._hold_ready()
        self.engine.home.persist(IdentityStored(self.greeting()))
        self.ring.present_to_all()
        self.ring.settle()
        self.locating.renew_filters()
        if self.topology.successor is not None:
            self.locating.publish_join(now_ms)
        self.stabilising.begin()
        held, self._held_publications = self._held_publications, []
        if held:
            self.engine.handle_cause(Publish(tuple(held)), now_ms)
        if self._leaves_soon:
            self._leave()

    def _hold(self, publications: tuple[Publication, ...]) -> None:
        for publication in publications:
            if self._leaves_soon or self.phase in (Phase.LEAVING, Phase.LEFT):
                self.engine.emit(PublishFailed.of(publication, HAS_LEFT))
            elif len(self._held_publications) >= PUBLICATIONS_HELD_MAX:
                reason = "the node has not joined yet, and too much waits for that"
                self.engine.emit(PublishFailed.of(publication, reason))
            else:
                self._held_publications.append(publication)

    def _on_admission_request(self, peer: PeerId, message: AdmissionRequest, now_ms: int) -> None:
        if self.phase is Phase.LEAVING:
            self.engine.send(peer, self._leaving())
        elif self.phase is Phase.MEMBER and 0 <= message.key < self.topology.size:
            answer_admission(self.ring, peer, message.key)

    def _on_admission(self, peer: PeerId, message: Admission, now_ms: int) -> None:
        if self.phase is Phase.JOINING and self.joining.on_admission(peer, message, now_ms):
            self._become_member(now_ms)

    def _on_key_taken(self, peer: PeerId, message: KeyTaken, now_ms: int) -> None:
        """Another peer stands at this key: move, and join again at the new place."""
        if message.key != self.key or self.phase not in (Phase.JOINING, Phase.MEMBER):
            return
        if self.phase is Phase.MEMBER:
            self._say_leaving()
            self.phase = Phase.JOINING
            self.ring.is_member = False
            self.locating.renew_filters()
            self._hold_ready()
        has_moved = self._move()
        if has_moved and self.joining.is_begun:
            self.joining.on_key_taken(now_ms)
        elif not self.joining.is_begun:
            # One that was alone knows of no member but the one that has the key.
            known = (link.peer.node for link in self.ring.members.values())
            self.joining.begin((*known, peer.node), now_ms, self.splits.probing.sought)

    def _move(self) -> bool:
        """Take the next key that nobody is known to have; False, and stay, if none was found."""
        known = self.ring.members
        for _ in range(len(known) + 1):
            self._key_attempts += 1
            key = key_of(self.me.node, self.seed, self.settings, self._key_attempts)
            if key not in known:
                self.ring.move(key)
                return True
        self.engine.emit(Drop("no free key of the circle was found: the node tries again later"))
        return False

    # --- leaving -------------------------------------------------------------------------------

    def _leave(self) -> None:
        """Announce it, and go on serving those who count on this peer, for a while."""
        if self.phase is Phase.MEMBER:
            self.phase = Phase.LEAVING
            self.ring.is_member = False
            self._say_leaving()
            self.engine.emit(SetTimer(LEAVE, self.settings.leave_ms))
        elif self._held_publications:
            # What was published here goes out first, if the node joins in time.
            self._leaves_soon = True
            self.engine.emit(SetTimer(LEAVE, self.settings.leave_ms))
        elif self.phase in (Phase.IDLE, Phase.JOINING):
            self._depart()

    def _say_leaving(self) -> None:
        leaving = self._leaving()
        for peer in self.ring.links:
            self.engine.send(peer, leaving)

    def _leaving(self) -> Leaving:
        """Whom to turn to instead; the last of a ring leaves it to those who are joining."""
        predecessors, successors = self.ring.neighbourhood()
        if not successors:
            successors = tuple(
                RingMember(link.key or 0, link.peer)
                for link in sorted(self.ring.links.values(), key=lambda link: link.peer)
                if not link.is_member
            )[:NEIGHBOURS_MAX]
        return Leaving(predecessors, successors)

    def _depart(self) -> None:
        if self.phase is Phase.LEFT:
            return
        self.phase = Phase.LEFT
        self.joining.end()
        self.ring.is_frozen = True
        self.ring.is_member = False
        for publication in self._held_publications:
            self.engine.emit(PublishFailed.of(publication, HAS_LEFT))
        self._held_publications = []
        for peer in self.links():
            self.ring.disconnect(peer, TAKES_LEAVE)

    def _on_leaving(self, peer: PeerId, message: Leaving, now_ms: int) -> None:
        """Do without the peer; its neighbours may be of use."""
        self.splits.remember(self.ring.links[peer], now_ms, has_left=True)
        named = (*message.successors, *message.predecessors)
        if self.phase is Phase.JOINING:
            self.ring.forget_member(peer)
            if not named or named[0].peer == self.me:
                # It was the last member, and this node is the first of those who wanted to join.
                self.joining.end()
                self._become_member(now_ms)
            else:
                self.joining.learn(member.peer.node for member in named)
            return
        # What the one who leaves knew of those who follow it holds for this peer as well.
        self.ring.learn_following(peer, message.successors, now_ms)
        self.ring.forget_member(peer)
        self.ring.settle()
        self.ring.consider(named, now_ms)
