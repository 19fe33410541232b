"""Rings that are two and should be one: finding each other, and merging.

The paper leaves network splits to the applications. After one, each side repairs its own ring, and
no stabilisation ever crosses. A ring may also be begun twice: by nodes that do not find each other
when they start, or by one that starts again and knows nobody. So a peer goes on trying the members
it lost, those that took leave, and the contacts it was given (`core.probing`).

When one of them, f, is reached, the question is whether it is in the same ring: the key of f is
looked up. If f itself answers, it is. If someone else does, two rings meet. A node in a new life
may be about to join by itself: it is asked for its neighbourhood first, which only members tell.

1. Both sides publish `rings-meet` in their rings, with the other as the contact.
2. Every node asks the contact for the node that follows it in the other ring, and links to that
   node and its neighbourhood as far as it has a use for them: so it knows the members around it of
   both rings, and its successor is right. Stabilisation does the rest.
3. A node whose edges changed by this waits until nothing has changed for `merge_settle_ms`, and up
   to as long again, and until it is settled: each edge has told its filters, and whoever publishes
   over this node has confirmed them. Then it publishes `ring-merged`, unless it has heard that from
   another node while it was settled. Whoever hears of it locates its fingers anew and publishes its
   acknowledged events again, from a margin before the rings parted on, as far as anybody knows when
   that was; those who have them already notice (`home`).

So a `ring-merged` follows after the last node has settled, and then the filters on every way are
complete. A replay that comes before that may miss subscribers: filters that a lossy link holds up
for seconds are not rare.

A node that has heard of a meeting probes nobody until it is over, so that a healed split leads to a
few meetings and not to one per pair of former peers.
"""

from __future__ import annotations

from peersub.overlays.chord.locating import QUESTION_MERGE, QUESTION_VERIFY, Locating
from peersub.overlays.chord.messages import (
    Located,
    LookupRequest,
    Neighbourhood,
    NeighbourhoodRequest,
    RingMember,
    RingsMeet,
)
from peersub.overlays.chord.ring import Link, Ring
from peersub.overlays.chord.stabilising import Stabilising
from peersub.overlays.core.causes import Timer
from peersub.overlays.core.draws import draw_below
from peersub.overlays.core.effects import Notice, SetTimer
from peersub.overlays.core.history import History
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.probing import PROBES_MAX, Probing

__all__ = ["MERGE", "PROBE", "REPLAY", "RINGS_MEET", "RING_MERGED", "Splits"]

PROBE = Timer("chord/probe")
MERGE = Timer("chord/merge")
REPLAY = Timer("chord/replay")
RINGS_MEET = "rings-meet"
RING_MERGED = "ring-merged"

MEETINGS_MAX = 256
"""Meetings whose repetition is noticed."""
MEETINGS_HORIZON_MS = 600_000
"""For how long it is."""
MERGE_PATIENCE = 16
"""For how many times `merge_settle_ms` after a meeting a new edge counts as its result."""
REPLAY_PATIENCE = 4
"""How many times `merge_settle_ms` a replay waits for the last who says that the rings merged."""
REPLAY_MARGIN = 10
"""How many times `merge_settle_ms` before a loss was noticed events may have missed somebody."""
MERGE_ATTEMPTS_MAX = 3
"""How often a node asks a contact who follows it in the other ring."""


class Splits:
    """What one member does about splits."""

    def __init__(self, ring: Ring, locating: Locating, stabilising: Stabilising, seed: int) -> None:
        self._ring = ring
        self._engine = ring.engine
        self._locating = locating
        self._stabilising = stabilising
        self._seed = seed
        self.probing = Probing(ring.me, seed, PROBE, ring.settings.probe_ms, ring.engine.emit)
        self._questions = 0
        self._verifying: dict[int, RingMember] = {}
        """Nodes that were reached, by the question that was asked about each."""
        self._meetings: History[str] = History(MEETINGS_MAX, MEETINGS_HORIZON_MS)
        self._contacts: dict[str, int] = {}
        """Nodes of another ring that were asked who follows this one there, and how often."""
        self._busy_until_ms = 0
        self._merging_until_ms = -1
        self._seen_version = 0
        self._apart_since_ms: int | None = None
        self._replay_since_ms: int | None = None
        self._replay_by_ms = 0
        self._is_news_due = False
        """Edges have changed while rings merged, and nobody has said since that they have."""

    # --- nodes that may be in another ring -----------------------------------------------------

    def remember(self, link: Link, now_ms: int, *, has_left: bool = False) -> None:
        """A member was lost, or has taken leave: it may be back one day, and know nobody."""
        if link.key is not None:
            self.probing.lost(link.peer, now_ms, link.key)
            if has_left:
                # A link to it that comes up in this life of it is no sign of another ring.
                self.probing.sought[link.peer.node].peer = None

    def on_probe_timer(self, now_ms: int) -> None:
        """Try the nodes whose turn it is."""
        due = self.probing.take_due(now_ms)
        if not self._ring.is_member or now_ms < self._busy_until_ms:
            return
        for node in due:
            linked = self._ring.linked(node)
            if linked is None:
                self._ring.reach(node, present=False)
            elif self._ring.links[linked].is_member:
                self.probing.found(node, now_ms)
            elif self.probing.sought[node].peer == linked:
                self._verify(linked, now_ms)
            else:
                self._engine.send(linked, NeighbourhoodRequest())

    def on_connected(self, peer: PeerId, now_ms: int) -> None:
        """A link is up; if it is to a former peer, find out whether that is in the same ring."""
        sought = self.probing.sought.get(peer.node)
        if sought is None:
            return
        if sought.peer == peer:
            self._verify(peer, now_ms)
        else:
            self.probing.soon(peer.node, now_ms)
            if self._ring.is_member:
                self._engine.send(peer, NeighbourhoodRequest())

    def on_neighbourhood(self, peer: PeerId, message: Neighbourhood, now_ms: int) -> None:
        """A member names those next to it; one that may be of another ring is looked up."""
        if self._ring.links[peer].is_member or peer.node not in self.probing.sought:
            self._stabilising.on_neighbourhood(peer, message, now_ms)
        else:
            self._verify(peer, now_ms)

    def _verify(self, peer: PeerId, now_ms: int) -> None:
        """Ask who stands at the key of a node that is linked, and no known member."""
        link, sought = self._ring.links[peer], self.probing.sought[peer.node]
        key = sought.key if link.key is None and sought.peer == peer else link.key
        if key is None or link.is_outside:
            return
        if sought.peer == peer:
            # It may say that it is present, and be an edge again, before the answer is there.
            self._begin_merging(now_ms, sought.lost_ms)
        if now_ms >= self._busy_until_ms and self._ring.is_member:
            question = QUESTION_VERIFY + self._questions % PROBES_MAX
            self._questions += 1
            self._verifying[question] = RingMember(key, peer)
            self._locating.look_up(question, key, now_ms)

    def on_verified(self, question: int, peer: PeerId | None, now_ms: int) -> None:
        """Someone stands first at or after the key of the other node in this ring."""
        member = self._verifying.pop(question, None)
        if member is None or self._ring.linked(member.peer.node) != member.peer:
            return
        other = member.peer
        sought = self.probing.sought.get(other.node)
        if peer == other:
            if sought is not None and sought.peer == other:
                # The ring went on with it, but events may have passed it by on the way over here.
                self._begin_merging(now_ms, sought.lost_ms)
                self._ring.present(other)
            self.probing.found(other.node, now_ms)
        elif now_ms >= self._busy_until_ms:
            self._begin_merging(now_ms, None if sought is None else sought.lost_ms)
            meeting = f"{self._ring.me}#{self._questions}"
            apart_ms = self._apart_ms(now_ms)
            self._engine.send(other, RingsMeet(meeting, apart_ms))
            self._locating.publish_news(RINGS_MEET, meeting, other.node, now_ms, apart_ms)

    # --- merging -------------------------------------------------------------------------------

    def on_rings_meet(self, peer: PeerId, message: RingsMeet, now_ms: int) -> None:
        """The other side of a meeting: tell this ring."""
        if self._ring.is_member:
            self._locating.publish_news(
                RINGS_MEET, message.meeting, peer.node, now_ms, message.apart_ms
            )

    def on_news(self, news: str, meeting: str, node: str, now_ms: int, apart_ms: int = 0) -> None:
        """What was told to all of this ring."""
        if news == RINGS_MEET:
            self._on_meeting(meeting, node, now_ms, apart_ms)
        elif news == RING_MERGED:
            if self._engine.maintenance.is_settled:
                self._is_news_due = False
            self._stabilising.refresh_fingers(now_ms)
            self._replay_soon(now_ms, apart_ms)

    def ask_for_replay(self, now_ms: int, since_ms: int) -> None:
        """Let all publish their acknowledged events again: some may have missed a node.

        They are told as when rings have merged: nobody else has to hear of it.
        """
        if self._ring.is_member:
            me = self._ring.me
            self._locating.publish_news(RING_MERGED, str(me), me.node, now_ms, since_ms)

    def _replay_soon(self, now_ms: int, apart_ms: int) -> None:
        """Replay once for all that say that the rings have merged, when nobody says so any more.

        If they go on saying so for long, replay all the same.
        """
        settle_ms = self._ring.settings.merge_settle_ms
        since_ms = now_ms - apart_ms - REPLAY_MARGIN * settle_ms if apart_ms else 0
        if self._replay_since_ms is None:
            self._replay_since_ms = since_ms
            self._replay_by_ms = now_ms + REPLAY_PATIENCE * settle_ms
        self._replay_since_ms = min(self._replay_since_ms, since_ms)
        delay_ms = min(settle_ms, max(0, self._replay_by_ms - now_ms))
        self._engine.emit(SetTimer(REPLAY, delay_ms))

    def on_replay_timer(self, now_ms: int) -> None:
        """Nobody has said for a while that the rings have merged."""
        if self._replay_since_ms is not None:
            self._engine.emit(Notice("networks have merged: acknowledged events are replayed"))
            self._engine.replay(now_ms, self._replay_since_ms)
            self._replay_since_ms = None

    def _on_meeting(self, meeting: str, contact: str, now_ms: int, apart_ms: int) -> None:
        # Both rings tell of the meeting, and either may reach this node once they have begun to
        # merge: a meeting is another one for another contact.
        if not self._meetings.add(f"{meeting} {contact}", now_ms):
            return
        self._busy_until_ms = now_ms + 2 * self._ring.settings.merge_settle_ms
        self._engine.emit(Notice("two networks meet and merge, by way of", contact))
        self._begin_merging(now_ms, now_ms - apart_ms if apart_ms else None)
        self._ring.following.doubt()
        if contact != self._ring.me.node:
            self._contacts[contact] = 0
            self._ask(contact)
            self._wait()

    def _begin_merging(self, now_ms: int, apart_since_ms: int | None) -> None:
        if now_ms > self._merging_until_ms:
            self._apart_since_ms = None
            self._seen_version = self._engine.maintenance.version
        patience_ms = MERGE_PATIENCE * self._ring.settings.merge_settle_ms
        self._merging_until_ms = now_ms + patience_ms
        known_ms = self._apart_since_ms
        if apart_since_ms is not None and (known_ms is None or apart_since_ms < known_ms):
            self._apart_since_ms = apart_since_ms

    def _apart_ms(self, now_ms: int) -> int:
        """For how long the rings that merge have been two, as far as this node knows; else 0."""
        return 0 if self._apart_since_ms is None else max(1, now_ms - self._apart_since_ms)

    def _ask(self, contact: str) -> None:
        self._contacts[contact] += 1
        topology = self._ring.topology
        request = LookupRequest((topology.key + 1) % topology.size, QUESTION_MERGE)
        self._ring.reach(contact, request, present=False)

    def on_other_successor(self, message: Located, now_ms: int) -> None:
        """A node of the other ring follows this one, and names those next to it."""
        self._contacts.clear()
        self._ring.settle()
        named = (*message.successors, *message.predecessors)
        self._ring.consider(named, now_ms, is_new=True)

    def after_change(self, now_ms: int) -> None:
        """The known members may have changed: while rings merge, note it if the edges have."""
        version = self._engine.maintenance.version
        if now_ms <= self._merging_until_ms and version != self._seen_version:
            self._seen_version = version
            self._is_news_due = True
            self._wait()

    def _wait(self) -> None:
        self._wait_for(self._ring.settings.merge_settle_ms)

    def _wait_for(self, least_ms: int) -> None:
        me = self._ring.me
        about = (me.node, me.incarnation, self._questions)
        late_ms = draw_below(least_ms, self._seed, "merge", *about)
        self._engine.emit(SetTimer(MERGE, least_ms + late_ms))

    def on_merge_timer(self, now_ms: int) -> None:
        """Nothing changed for a while: ask again whoever has not answered, or be done."""
        if not self._ring.is_member:
            if now_ms <= self._merging_until_ms:
                # It may be on its way to another key.
                self._wait()
            return
        waiting = [node for node, asked in self._contacts.items() if asked < MERGE_ATTEMPTS_MAX]
        if waiting:
            for contact in waiting:
                self._ask(contact)
            self._wait()
            return
        self._contacts.clear()
        if self._is_news_due:
            if now_ms <= self._merging_until_ms and not self._engine.maintenance.is_settled:
                self._wait_for(self._ring.settings.lookup_ms)
                return
            self._is_news_due = False
            me = self._ring.me
            apart_ms = self._apart_ms(now_ms)
            self._locating.publish_news(RING_MERGED, str(me), me.node, now_ms, apart_ms)
