"""Joining a ring (section 5.1; step by step as in the paper, with an admission at the end).

1. The newcomer x asks a contact to publish a node-location for x's key. The node w that answers is
   to be its successor; it names its neighbourhood, and x links to those it has a use for.
2. x has the fingers located that may lie beyond w, all at once.
3. x computes its topology and sends a responsibility-change to each finger; each answers with the
   filters of its arc. From then on x could serve.
4. x asks its successor for *admission*. If a member stands between them, x is told, makes that its
   successor, and asks there. Else x is its predecessor from now on.
5. x is a member: it says so to its peers, wants control notifications, publishes node-join, and
   whoever should point to it adopts it. Until its predecessor does, no subscription is ready
   (`peer`), and stabilisation repeats the node-join.

The contacts need not be there. A newcomer begins a ring by itself when none of them can be reached
in the second round either, or those that can are on their way in as well and stand behind it by
name, so that of nodes that start together one begins and the others follow; or when none has
answered for long. It goes on looking for all of them, and the rings merge (`splits`). Only contacts
that refuse it for good, all of them, are no reason to begin.

Departures from the paper. The admission makes two newcomers in one gap take turns: without it both
may have the same successor, and the one in front would serve an arc without knowing the other
inside. A node whose key is taken is told so by whoever knows both, and draws another.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from peersub.overlays.chord.locating import QUESTION_SUCCESSOR, Locating
from peersub.overlays.chord.messages import (
    Admission,
    AdmissionRequest,
    KeyTaken,
    Located,
    LookupRequest,
)
from peersub.overlays.chord.ring import Ring
from peersub.overlays.chord.settings import ChordSettings
from peersub.overlays.core.causes import Timer
from peersub.overlays.core.draws import draw
from peersub.overlays.core.effects import CancelTimer, SetTimer
from peersub.overlays.core.identity import PeerId

__all__ = ["JOIN", "Joining", "Stage", "answer_admission", "key_of"]

JOIN = Timer("chord/join")
PAUSE_DOUBLINGS_MAX = 4
SILENT_ROUNDS_MAX = 4
"""Rounds without an answer, each longer than the last, after which a newcomer begins alone."""
CONTACTS_MAX = 32
"""Nodes to turn to."""
KEY_DRAWS_MAX = 16
"""After so many draws a node tries one key after the other: on a crowded circle that ends."""


def key_of(node: str, seed: int, settings: ChordSettings, attempt: int) -> int:
    """The key that a node tries to take; the first attempt is number 0.

    A key that was given is tried first, and then those that follow it: near by, where it was meant.

    >>> key_of("n1", 7, ChordSettings(key_bits=8, key=250), 6)
    0
    """
    if settings.key >= 0:
        return (settings.key + attempt) % settings.size
    draws = min(attempt, KEY_DRAWS_MAX)
    about = (node, draws) if draws else (node,)
    return (draw(seed, "key", *about) + attempt - draws) % settings.size


def answer_admission(ring: Ring, peer: PeerId, key: int) -> None:
    """Let a newcomer in front of this member if nobody stands in between.

    It counts as a member from now on, so that whoever asks next is told of it.
    """
    link, topology = ring.links[peer], ring.topology
    holder = ring.members.get(key)
    if key == topology.key or (holder is not None and holder is not link):
        ring.engine.send(peer, KeyTaken(key))
        return
    ring.settle()
    distance = (topology.key - key) % topology.size
    is_next = all(
        member.peer == peer or (topology.key - member.key) % topology.size > distance
        for member in topology.predecessors(2)
    )
    ring.engine.send(peer, Admission(is_next, *ring.neighbourhood()))
    if is_next:
        if link.key != key:
            ring.forget_member(peer)
            link.key = key
        ring.add_member(link)


class Stage(Enum):
    """How far a newcomer has come."""

    SEEKING = "looks for its successor"
    LOCATING = "looks for its fingers"
    TABLES = "waits for the filters of its fingers"
    ADMISSION = "waits to be admitted"
    DONE = "is a member, or none of this has begun"


class Joining:
    """The way of one peer into a ring."""

    def __init__(self, ring: Ring, locating: Locating) -> None:
        self._ring = ring
        self._engine = ring.engine
        self._locating = locating
        self.stage = Stage.DONE
        self._contacts: tuple[str, ...] = ()
        self._given: tuple[str, ...] = ()
        self._failed: dict[str, bool] = {}
        """Contacts that cannot be reached, and whether that is because they refuse."""
        self._turn = 0
        self._rounds = 0
        self._silent_rounds = 0
        """Of these, those since somebody of a ring was last heard."""
        self._asked: PeerId | None = None

    def begin(self, contacts: Iterable[str], now_ms: int, more: Iterable[str] = ()) -> None:
        """Take part in the ring of these nodes, or of `more` that were once known."""
        me = self._ring.me.node
        self._given = tuple(node for node in contacts if node != me)
        known = dict.fromkeys((*self._given, *(node for node in more if node != me)))
        self._contacts = tuple(known)[:CONTACTS_MAX]
        self._failed = {}
        self._turn = self._rounds = self._silent_rounds = 0
        self._seek(now_ms)
        self._wait()

    def end(self) -> None:
        """The way is at its end, whichever."""
        if self.stage is not Stage.DONE:
            self.stage = Stage.DONE
            self._ring.is_frozen = False
            self._engine.emit(CancelTimer(JOIN))

    @property
    def is_begun(self) -> bool:
        """Whether this peer is on its way."""
        return self.stage is not Stage.DONE

    @property
    def contact(self) -> str | None:
        """Whom to ask: those that were named and, in turn, members met on the way."""
        met = [member.peer.node for member in self._ring.topology.known]
        nodes = [*self._contacts, *(node for node in met if node not in self._contacts)]
        return nodes[self._turn % len(nodes)] if nodes else None

    def ask(self, target: int, question: int) -> None:
        """Let a contact look something up."""
        contact = self.contact
        if contact is not None:
            self._ring.reach(contact, LookupRequest(target, question), present=False)

    def _seek(self, now_ms: int) -> None:
        self.stage = Stage.SEEKING
        self._ring.is_frozen = True
        self._asked = None
        self._locating.forget()
        self._locating.look_up(QUESTION_SUCCESSOR, self._ring.topology.key, now_ms)

    # --- answers -------------------------------------------------------------------------------

    def on_successor_located(self, peer: PeerId, message: Located, now_ms: int) -> None:
        """Step 1 is done: this one follows; who else is near?"""
        if self.stage is not Stage.SEEKING:
            return
        ring = self._ring
        ring.is_frozen = False
        ring.settle()
        ring.is_frozen = True
        if ring.topology.successor is None:
            return
        self._silent_rounds = 0
        self.stage = Stage.LOCATING
        ring.learn_following(peer, message.successors, now_ms)
        ring.consider((*message.successors, *message.predecessors), now_ms, is_new=True)
        for k in self._locating.fingers_apart():
            self._locating.look_up_finger(k, now_ms)

    def on_admission(self, peer: PeerId, message: Admission, now_ms: int) -> bool:
        """Whether this peer is a member now."""
        if self.stage is not Stage.ADMISSION or peer != self._asked:
            return False
        self._ring.settle()
        self._ring.learn_following(peer, message.successors, now_ms)
        named = (*message.predecessors, *message.successors)
        self._ring.consider(named, now_ms, is_new=True)
        successor = self._ring.topology.successor
        if message.granted and successor is not None and successor.peer == peer:
            self.end()
            return True
        self.stage = Stage.TABLES
        return False

    def on_connect_failed(self, node: str, now_ms: int, *, refused: bool) -> None:
        """A contact cannot be reached: ask the next, once each, and all others meanwhile."""
        is_asked = node == self.contact
        if self.stage is not Stage.DONE and node in self._contacts:
            self._failed[node] = refused
        if self.stage is Stage.SEEKING and is_asked:
            self._turn += 1
            if self._turn % max(1, len(self._contacts)):
                self._seek(now_ms)
            self._ask_all()

    def _ask_all(self) -> None:
        """Ask all contacts that are not known to be out of reach: the one that was asked is not."""
        request = LookupRequest(self._ring.topology.key, QUESTION_SUCCESSOR)
        for node in self._contacts:
            if node not in self._failed and node != self.contact:
                self._ring.reach(node, request, present=False)

    def on_connected(self, node: str) -> None:
        """A contact can be reached."""
        self._failed.pop(node, None)

    @property
    def is_alone(self) -> bool:
        """Whether there is nobody to join by, and this newcomer is to begin a ring."""
        if self.stage is not Stage.SEEKING or self._ring.members or not self._contacts:
            return False
        if self._given and all(self._failed.get(node, False) for node in self._given):
            return False
        rounds = self._silent_rounds
        is_no_way_in = all(map(self._is_no_way, self._contacts))
        return rounds >= SILENT_ROUNDS_MAX or (rounds > 0 and is_no_way_in)

    def _is_no_way(self, node: str) -> bool:
        """Whether a contact is out of reach, or waits for this newcomer itself."""
        peer = self._ring.linked(node)
        if peer is None:
            return node in self._failed
        return self._ring.links[peer].is_outside and self._ring.me.node < node

    def learn(self, nodes: Iterable[str]) -> None:
        """More nodes to turn to: one that was asked takes leave."""
        self._silent_rounds = 0
        more = dict.fromkeys((*nodes, *self._contacts))
        more.pop(self._ring.me.node, None)
        self._contacts = tuple(more)[:CONTACTS_MAX]

    def on_key_taken(self, now_ms: int) -> None:
        """There is a new key: begin again."""
        self._silent_rounds = 0
        self._seek(now_ms)

    def on_timer(self, now_ms: int) -> None:
        """Something takes long: ask again, or ask someone else."""
        if self.stage is Stage.DONE:
            return
        self._turn += 1
        self._rounds += 1
        self._silent_rounds += 1
        if self.stage is Stage.SEEKING:
            self._failed = {}
            self._seek(now_ms)
            self._ask_all()
        elif self.stage is Stage.LOCATING:
            # Fingers can be found later as well: it is the successor that matters.
            self._take_up_tables()
        else:
            self._asked = None
        self._wait()

    def _wait(self) -> None:
        # Lookups are repeated by themselves before another contact is tried.
        pause_ms = self._ring.settings.lookup_ms << min(self._rounds + 1, PAUSE_DOUBLINGS_MAX)
        self._engine.emit(SetTimer(JOIN, pause_ms))

    def _take_up_tables(self) -> None:
        self.stage = Stage.TABLES
        self._ring.is_frozen = False
        self._ring.settle()

    # --- going on ------------------------------------------------------------------------------

    def step(self, now_ms: int) -> None:
        """Go on as far as what is known allows; called after everything else was handled."""
        if self.stage is Stage.LOCATING and not (
            self._locating.has_pending_fingers or self._ring.is_dialling
        ):
            self._take_up_tables()
        if self.stage not in (Stage.TABLES, Stage.ADMISSION):
            return
        topology = self._ring.topology
        successor = topology.successor
        if successor is None:
            self._seek(now_ms)
            return
        if self._asked == successor.peer:
            return
        self.stage = Stage.TABLES
        if all(self._engine.maintenance.is_told(peer) for peer in topology.edges()):
            self.stage = Stage.ADMISSION
            self._asked = successor.peer
            self._engine.send(successor.peer, AdmissionRequest(topology.key))
