"""How the events of a node travel: publishing, passing on, looking for the first that matches.

What passes between members of one node is free: a node that gets an event hands it to all its
subscriptions that want it, and all its members that match take part in passing it on.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.publication import Publication
from peersub.overlays.similarity.forwarding import STOPPED, event_draw, forward_share, left_of
from peersub.overlays.similarity.member import SimilarityMember
from peersub.overlays.similarity.messages import Profile, Routed, Sought
from peersub.overlays.similarity.summary import event_summary

if TYPE_CHECKING:
    from peersub.overlays.similarity.peer import SimilarityPeer

__all__ = ["Routing"]


class Routing:
    """The events that pass a node."""

    def __init__(self, host: SimilarityPeer) -> None:
        self._host = host
        self._settings = host.settings
        self._left: OrderedDict[tuple[int, bytes], int] = OrderedDict()
        """Per member and event, the greatest indulgence with which it was passed on, or STOPPED."""

    # --- where an event begins -----------------------------------------------------------------

    def publish(self, publication: Publication, now_ms: int) -> None:
        """A publisher on this node hands it over."""
        if self._host.home.see(publication.key, now_ms):
            self._host.home.hand_over(publication, 0)
        if self._begin(publication, 0, None):
            return
        member = self._most_general(self._host.members())
        if member is not None:
            self.seek(member, Sought(0, 0, publication, 0, ()))
        else:
            self._seek_elsewhere(Sought(0, 0, publication, 0, ()))

    def _begin(self, publication: Publication, hops: int, sender: PeerId | None) -> bool:
        """Let all members that match pass it on as its origins; whether one has somebody to.

        A member that has just come may have no neighbour yet.
        """
        matching = [m for m in self._host.members() if publication.matches(m.wanted)]
        for member in matching:
            if self._is_more(member, publication.key, self._settings.indulgence):
                left = self._settings.indulgence
                self._pass_on(member, publication, hops, left, sender, is_origin=True)
        return any(member.neighbours() for member in matching)

    def stand_in(self, message: Routed | Sought, now_ms: int) -> None:
        """Take what comes for a member that has just gone, before its neighbours know."""
        publication = message.publication
        if message.to in self._host.hosting.members or not publication.is_sound:
            return
        members = self._host.members()
        member = self._most_general(members)
        if isinstance(message, Sought) and member is None:
            self._seek_elsewhere(message)
        elif isinstance(message, Sought):
            assert member is not None
            self.on_sought(member, message, now_ms)
        elif member is not None and any(publication.matches(one.wanted) for one in members):
            sought = Sought(0, 0, publication, message.hops, ())
            self.on_sought(member, sought, now_ms)

    # --- looking for the first that matches ----------------------------------------------------

    def on_sought(self, member: SimilarityMember, message: Sought, now_ms: int) -> None:
        """An event comes that has met nobody who matches it."""
        publication = message.publication
        if not publication.is_sound:
            self._host.drop("its attributes cannot be read", member.me, publication.id)
            return
        if any(publication.matches(one.wanted) for one in self._host.members()):
            if self._host.home.see(publication.key, now_ms):
                self._host.home.hand_over(publication, message.hops)
            if self._begin(publication, message.hops, None):
                return
        self.seek(member, message)

    def seek(self, member: SimilarityMember, message: Sought) -> None:
        """Pass it on to the most general neighbour that it has not met, or to all in the end."""
        passed = (*message.passed, member.me)
        ahead = [peer for peer in member.neighbours() if peer not in passed]
        publication = message.publication
        if len(passed) > self._settings.seek_steps or not ahead:
            left = left_of(max(self._settings.indulgence, 1), False)
            if self._is_more(member, publication.key, left):
                self._pass_on(member, publication, message.hops, left, None, is_origin=True)
            return
        event_bits = self._event_bits(publication)

        def prospect(peer: PeerId) -> tuple[bool, tuple[int, int], PeerId]:
            profile = member.known[peer]
            return self._may_match(profile, event_bits), member.candidate(profile).rank, peer

        to = max(ahead, key=prospect)
        self._send_sought(to, Sought(to.slot, member.me.slot, publication, message.hops, passed))

    def _seek_elsewhere(self, message: Sought) -> None:
        """No member lives here: a member elsewhere begins."""
        to = self._host.contact()
        if to is None or message.hops > self._settings.seek_steps:
            reason = "no member is known that could pass it on"
            self._host.drop(reason, None, message.publication.id)
        else:
            publication, passed = message.publication, message.passed
            self._send_sought(to, Sought(to.slot, 0, publication, message.hops, passed))

    def _send_sought(self, to: PeerId, message: Sought) -> None:
        hops = message.hops + 1
        sought = Sought(message.to, message.sender, message.publication, hops, message.passed)
        self._host.send(to, sought)

    def _most_general(self, members: list[SimilarityMember]) -> SimilarityMember | None:
        return max(
            members,
            key=lambda m: (bool(m.neighbours()), m.candidate(m.profile).rank),
            default=None,
        )

    # --- passing on ----------------------------------------------------------------------------

    def on_routed(
        self, member: SimilarityMember, sender: PeerId, message: Routed, now_ms: int
    ) -> None:
        """A copy comes to a member."""
        publication = message.publication
        if not publication.is_sound:
            self._host.drop("its attributes cannot be read", sender, publication.id)
            return
        if self._host.home.see(publication.key, now_ms):
            self._host.home.hand_over(publication, message.hops)
            for other in self._host.members():
                if other is not member and publication.matches(other.wanted):
                    self._receive(other, sender, message)
        self._receive(member, sender, message)

    def _receive(self, member: SimilarityMember, sender: PeerId, message: Routed) -> None:
        publication = message.publication
        matches = publication.matches(member.wanted)
        left = left_of(message.indulgence, matches or not member.is_warm)
        if not self._is_more(member, publication.key, left):
            self._host.drop("seen before", sender, publication.id)
        elif left > STOPPED:
            self._pass_on(member, publication, message.hops, left, sender)

    def _is_more(self, member: SimilarityMember, event: bytes, left: int) -> bool:
        """Whether the member has not passed it on with as much; it has from now on."""
        key = (member.me.slot, event)
        before = self._left.get(key)
        if before is not None and before >= left:
            return False
        self._left[key] = left
        if len(self._left) > self._settings.home.seen_events_max:
            self._left.popitem(last=False)
        return True

    def _pass_on(
        self,
        member: SimilarityMember,
        publication: Publication,
        hops: int,
        left: int,
        sender: PeerId | None,
        *,
        is_origin: bool = False,
    ) -> None:
        settings = self._settings
        is_cold = not member.is_warm
        spreads = is_cold or (is_origin and settings.origin_spreads)
        share = 1.0 if spreads else settings.random_forward
        drawn = event_draw(self._host.seed, publication.id)
        event_bits = self._event_bits(publication)
        for peer in member.neighbours():
            if peer == sender:
                continue
            may_go_on = left > 0 or is_cold
            if not may_go_on and not self._may_match(member.known.get(peer), event_bits):
                continue
            if not member.is_near(peer) and share < 1:
                went = forward_share(drawn, member.place, member.place_of(peer))
                if went >= share:
                    continue
            routed = Routed(peer.slot, member.me.slot, publication, hops + 1, left)
            self._host.send(peer, routed)

    def _event_bits(self, publication: Publication) -> int:
        size = self._settings.summary_bytes
        return event_summary(publication, size) if size else 0

    def _may_match(self, profile: Profile | None, event_bits: int) -> bool:
        """False only if the neighbour's summary says that it cannot match."""
        if profile is None or len(profile.summary) != self._settings.summary_bytes:
            return True
        return not int.from_bytes(profile.summary, "little") & ~event_bits
