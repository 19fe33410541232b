"""`SimilarityMember`: one filter's part in the graph, and how it finds and keeps its neighbours.

Links are symmetric: a member makes some (*near* ones by `choosing`, *drawn* ones at random) and
others make some to it (*choosers*). The maker asks and the other end gives; either end of a link
passes events on over it, and both know whether it is for what the other wants.

* Join: a best-first search. The nearest member known is asked whom it knows that is good for the
  newcomer, and so on, until `beam` answers in a row brought nothing better (`_search`).
* It searches again when the sample has come to say something, and then now and then.
* Keeping: now and then it compares lists with a neighbour (T-Man): each tells the other its
  neighbours that are best for it. Only neighbours are told on, never hearsay, so that whoever is
  gone is soon forgotten everywhere.
* New before old: links that are not wanted any more are dropped when no answer is owed.
* Random links lead to the ends of random walks; when walks end at neighbours again and again, one
  of the members known is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from peersub.filters.filter import Filter
from peersub.overlays.core.draws import draw, draw_below
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.semantic.hosting import ANY_LIFE
from peersub.overlays.similarity import messages as say
from peersub.overlays.similarity.choosing import Candidate, chosen, place_of, ranked
from peersub.overlays.similarity.messages import Profile
from peersub.overlays.similarity.proximity import connection_factor
from peersub.overlays.similarity.summary import filter_summary

if TYPE_CHECKING:
    from peersub.overlays.similarity.peer import SimilarityPeer

__all__ = ["SimilarityMember"]

REFRESHED_PER_TICK = 2
"""Members that are asked how they are, since their profile is about another sample."""
SEARCH_TICKS = 60
"""Ticks between searches, beside the one when the sample says something for the first time."""
STEADY_TICKS = 3
"""Ticks without a change of near links after which they are relied on for the first time,"""
WARM_TICKS_MAX = 15
"""or so many, whatever changes."""
CANDIDATE_TICKS = 120
"""Ticks after which a candidate that nobody names any more is forgotten."""
CALM_TICKS = 8
"""Ticks without a change after which lists are compared more rarely,"""
CALM_EVERY = 4
"""at every so manieth tick."""


class SimilarityMember:
    """A member of the graph. `host` is the peer of its node."""

    def __init__(self, host: SimilarityPeer, me: PeerId, wanted: Filter) -> None:
        self.me = me
        self.wanted = wanted
        self.place = place_of(host.seed, me)
        self.near: dict[PeerId, None] = {}
        self.drawn: dict[PeerId, None] = {}
        self.choosers: dict[PeerId, tuple[bool, bool]] = {}
        """Per member that made links to this one: whether near, whether random."""
        self.known: dict[PeerId, Profile] = {}
        """All neighbours, and candidates."""
        self.is_clique = True
        """Whether it is linked with all that it knows."""
        self.is_warm = not host.is_cold
        """Whether its links were chosen by a sample that says something; else it passes all on."""
        self._warm_ticks = 0
        self._steady_ticks = 0
        """Since the sample says something, and since a near link last changed."""
        self.settings = host.settings
        self.seed = host.seed
        self._host = host
        self._asked: dict[tuple[PeerId, bool], int] = {}
        """Links that were asked for, and until when an answer is waited for."""
        self._places: dict[PeerId, int] = {}
        self._judged: dict[PeerId, tuple[Profile, bytes, Candidate]] = {}
        self._heard: dict[PeerId, int] = {}
        """The tick at which somebody last named a member that is known."""
        self._profile: Profile | None = None
        self._waiting: dict[PeerId, int] = {}
        self._consulted: dict[PeerId, None] = {}
        self._in_vain = 0
        self._is_searching = False
        self._has_searched = False
        self._walk: tuple[int, int] | None = None
        """The number of the walk that is under way, and until when it is waited for."""
        self._walks = 0
        self._ticks = 0
        self._calm = 0
        self._on_ready: list[Callable[[], None]] = []

    # --- what it is ----------------------------------------------------------------------------

    @property
    def profile(self) -> Profile:
        """What others are told of it; a new version whenever that changes."""
        host, settings = self._host, self.settings
        before = self._profile
        sample = host.sample
        if before is not None and before.sample == sample.digest:
            return before
        size = settings.summary_bytes
        summary = filter_summary(self.wanted, size).to_bytes(size, "little") if size else b""
        bits = sample.bits(self.wanted)
        self._profile = Profile(
            self.me,
            0 if before is None else before.version + 1,
            sample.digest,
            bits.to_bytes((len(sample) + 7) // 8, "little"),
            sample.marks,
            summary,
            settings.position_x_ms,
            settings.position_y_ms,
            settings.bandwidth_mbit,
        )
        return self._profile

    def neighbours(self) -> list[PeerId]:
        """All members that it has a link with, in order."""
        return sorted({**self.near, **self.drawn, **self.choosers})

    def is_near(self, peer: PeerId) -> bool:
        """Whether the link was made, by one of the two, for what the other wants."""
        return peer in self.near or self.choosers.get(peer, (False, False))[0]

    def candidate(self, profile: Profile) -> Candidate:
        """Another member as this one judges it; worked out once per profile and sample."""
        judged = self._judged.get(profile.peer)
        digest = self._host.sample.digest
        if judged is not None and judged[0] is profile and judged[1] == digest:
            return judged[2]
        sample = self._host.sample
        told = int.from_bytes(profile.bits, "little")
        read = sample.translated(told, profile.sample) or sample.marked(told, profile.marks)
        present, common = read
        # About events that only this sample has nothing is known: they speak neither way.
        bits = present | (sample.bits(self.wanted) & ~common)
        connection = connection_factor(self.profile, profile)
        made = Candidate(profile.peer, self.place_of(profile.peer), bits, connection)
        if profile.peer in self.known:
            self._judged[profile.peer] = (profile, digest, made)
        return made

    def place_of(self, peer: PeerId) -> int:
        """The draw by which members are told apart; worked out once."""
        place = self._places.get(peer)
        if place is None:
            place = self._places[peer] = place_of(self.seed, peer)
        return place

    # --- readiness -----------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether it has looked for neighbours, and all that it asked have answered."""
        return self._has_searched and not any(not is_random for _, is_random in self._asked)

    def when_ready(self, then: Callable[[], None]) -> None:
        """Call when it is ready, or at once."""
        self._on_ready.append(then)
        self._say_ready()

    def _say_ready(self) -> None:
        if self.is_ready:
            waiting, self._on_ready = self._on_ready, []
            for then in waiting:
                then()

    def waiting_on(self) -> tuple[PeerId, ...]:
        """The members whose answer it needs to be ready."""
        return tuple(sorted({*self._waiting, *(peer for peer, _ in self._asked)}))

    def needs(self, node: str) -> bool:
        """Whether it needs the link to a node."""
        return any(
            peer.node == node
            for peers in (self.near, self.drawn, self.choosers, self._waiting)
            for peer in peers
        ) or any(peer.node == node for peer, _ in self._asked)

    # --- messages ------------------------------------------------------------------------------

    def on_message(self, sender: PeerId, message: Message, now_ms: int) -> None:
        """Another member says something."""
        match message:
            case say.Routed():
                self._host.on_routed(self, sender, message, now_ms)
            case say.Sought():
                self._host.on_sought(self, message, now_ms)
            case say.Asked(profile=profile):
                self.learn((profile,))
                self._send(sender, say.Named(sender.slot, self.me.slot, self._best_for(profile)))
            case say.Named(profiles=profiles):
                self._on_named(sender, profiles, now_ms)
            case say.Exchanged():
                self._on_exchanged(sender, message, now_ms)
            case say.ProfileTold(profile=profile):
                self.learn((profile,))
                self.choose(now_ms)
            case say.Walked():
                self._on_walked(message)
            case say.WalkEnded(walk=walk, profile=profile):
                self._on_walk_ended(walk, profile, now_ms)
            case say.MemberLeaves(profiles=profiles):
                self.learn(profiles)
                self.on_lost(sender, now_ms)
            case _:
                self._on_link_message(sender, message, now_ms)

    def _on_link_message(self, sender: PeerId, message: Message, now_ms: int) -> None:
        match message:
            case say.LinkAsked(is_random=is_random, profile=profile):
                self._on_link_asked(sender, is_random, profile)
            case say.LinkGiven(is_random=is_random, profile=profile):
                self._on_link_given(sender, is_random, profile, now_ms)
            case say.LinkRefused(is_random=is_random):
                self._on_link_refused(sender, is_random, now_ms)
            case say.LinkDropped(is_random=is_random):
                self._set_chooser(sender, is_random, is_on=False)
            case _:
                self._host.drop(f"a member does not know {type(message).__name__}", sender)

    def _send(self, to: PeerId, message: Message) -> None:
        self._host.send(to, message)

    def _best_for(self, profile: Profile) -> tuple[Profile, ...]:
        """Its own profile, and those of the neighbours that are best for another member."""
        asker = self.candidate(profile)
        others = [
            self.candidate(self.known[peer])
            for peer in self.neighbours()
            if peer != profile.peer and peer in self.known
        ]
        settings = self.settings
        best = chosen(asker, others, settings, is_cold=self._host.is_cold)
        taken = {one.peer for one in best}
        best += [one for one in ranked(asker, others, settings) if one.peer not in taken]
        if len(others) > max(settings.clique_up_to, settings.answer_profiles):
            best = best[: settings.answer_profiles]
        return (self.profile, *(self.known[one.peer] for one in best))

    # --- what it knows -------------------------------------------------------------------------

    def learn(self, profiles: tuple[Profile, ...]) -> bool:
        """Remember these members; whether one was new."""
        is_new = False
        for profile in profiles:
            peer = profile.peer
            if peer.node == self.me.node:
                continue  # What passes between members of one node needs no link.
            before = self.known.get(peer)
            if before is None or before.version < profile.version:
                is_new = is_new or before is None
                self.known[peer] = profile
            self._heard[peer] = self._ticks
        self._prune()
        return is_new

    def _prune(self) -> None:
        """Keep the candidates that are good for it, in bounds."""
        settings = self.settings
        room = max(settings.candidates_max, settings.clique_up_to)
        linked = {**self.near, **self.drawn, **self.choosers, **self._waiting}
        spare = [peer for peer in self.known if peer not in linked]
        if len(spare) <= 2 * room:
            return
        me = self.candidate(self.profile)
        others = [self.candidate(self.known[peer]) for peer in spare]
        best = chosen(me, others, settings, is_cold=self._host.is_cold)
        kept = {one.peer for one in (*best, *ranked(me, others, settings)[:room])}
        for peer in spare:
            if peer not in kept:
                self._forget_candidate(peer)

    def _forget_candidate(self, peer: PeerId) -> None:
        self.known.pop(peer, None)
        self._places.pop(peer, None)
        self._heard.pop(peer, None)
        self._judged.pop(peer, None)

    # --- the search ----------------------------------------------------------------------------

    def search(self, now_ms: int) -> None:
        """Look for the best neighbours, from those that are known."""
        if not self._is_searching:
            self._is_searching = True
            self._consulted.clear()
            self._waiting.clear()
            self._in_vain = 0
        self._search(now_ms)

    def _search(self, now_ms: int) -> None:
        settings = self.settings
        while self._is_searching and len(self._waiting) < settings.beam:
            unasked = [peer for peer in self.known if peer not in self._consulted]
            is_small = len(self.known) <= settings.clique_up_to
            is_over = len(self._consulted) >= settings.search_steps_max or (
                self._in_vain >= settings.beam and not is_small
            )
            if is_over or not unasked:
                if not self._waiting or is_over:
                    self._end_search(now_ms)
                return
            me = self.candidate(self.profile)
            best = ranked(me, [self.candidate(self.known[peer]) for peer in unasked], settings)[0]
            self._consulted[best.peer] = None
            self._waiting[best.peer] = now_ms + settings.answer_ms
            self._send(best.peer, say.Asked(best.peer.slot, self.me.slot, self.profile))

    def _on_named(self, sender: PeerId, profiles: tuple[Profile, ...], now_ms: int) -> None:
        before = self._wanted()
        self.learn(profiles)
        if self._waiting.pop(sender, None) is None:
            return
        self._in_vain = self._in_vain + 1 if self._wanted() == before else 0
        self._search(now_ms)

    def _end_search(self, now_ms: int) -> None:
        self._is_searching = False
        self._has_searched = True
        self._waiting.clear()
        self.choose(now_ms)

    # --- near links ----------------------------------------------------------------------------

    def _wanted(self) -> list[PeerId]:
        # What it knows comes and goes: whoever left the clique does not return for little.
        bound = self.settings.clique_up_to
        self.is_clique = len(self.known) <= (bound if self.is_clique else bound // 2)
        others = [self.candidate(profile) for profile in self.known.values()]
        me = self.candidate(self.profile)
        best = chosen(
            me, others, self.settings, is_clique=self.is_clique, is_cold=self._host.is_cold
        )
        return [one.peer for one in best]

    def choose(self, now_ms: int) -> None:
        """Ask for the links that are wanted now; let go of others when no answer is owed."""
        if self._is_searching or not self._has_searched or self._host.is_leaving:
            return
        wanted = dict.fromkeys(self._wanted())
        for peer in wanted:
            if peer not in self.near and (peer, False) not in self._asked:
                self._ask_for_link(peer, False, now_ms)
        if not any(not is_random for _, is_random in self._asked):
            for peer in [peer for peer in self.near if peer not in wanted]:
                self._calm = self._steady_ticks = 0
                del self.near[peer]
                self._send(peer, say.LinkDropped(peer.slot, self.me.slot, False))
        self._draw_links(now_ms)
        self._say_ready()

    def _ask_for_link(self, peer: PeerId, is_random: bool, now_ms: int) -> None:
        self._calm = 0
        self._steady_ticks = self._steady_ticks if is_random else 0
        self._asked[peer, is_random] = now_ms + self.settings.answer_ms
        self._send(peer, say.LinkAsked(peer.slot, self.me.slot, is_random, self.profile))

    def _on_link_asked(self, sender: PeerId, is_random: bool, profile: Profile) -> None:
        is_full = len(self.choosers) >= self.settings.choosers_max
        if self._host.is_leaving or (is_full and sender not in self.choosers):
            self._send(sender, say.LinkRefused(sender.slot, self.me.slot, is_random))
            return
        self._set_chooser(sender, is_random, is_on=True)
        self.learn((profile,))
        answer = say.LinkGiven(sender.slot, self.me.slot, is_random, self.profile)
        self._send(sender, answer)

    def _set_chooser(self, peer: PeerId, is_random: bool, *, is_on: bool) -> None:
        near, random = self.choosers.pop(peer, (False, False))
        kinds = (near, is_on) if is_random else (is_on, random)
        self._calm = 0
        if any(kinds):
            self.choosers[peer] = kinds

    def _on_link_given(
        self, sender: PeerId, is_random: bool, profile: Profile, now_ms: int
    ) -> None:
        links = self.drawn if is_random else self.near
        if self._asked.pop((sender, is_random), None) is None:
            if sender not in links:
                # It came too late: the link is not counted on.
                self._send(sender, say.LinkDropped(sender.slot, self.me.slot, is_random))
            return
        self._calm = 0
        links[sender] = None
        self.learn((profile,))
        self.choose(now_ms)

    def _on_link_refused(self, sender: PeerId, is_random: bool, now_ms: int) -> None:
        self._asked.pop((sender, is_random), None)
        (self.drawn if is_random else self.near).pop(sender, None)
        if sender not in self.neighbours():
            self._forget_candidate(sender)
        self.choose(now_ms)

    # --- random links --------------------------------------------------------------------------

    def _draw_links(self, now_ms: int) -> None:
        """Let go of random links that are near ones too, and look for as many as are missing."""
        for peer in [peer for peer in self.drawn if peer in self.near]:
            del self.drawn[peer]
            self._send(peer, say.LinkDropped(peer.slot, self.me.slot, True))
        pending = sum(is_random for _, is_random in self._asked)
        missing = self.settings.random - len(self.drawn) - pending
        others = [peer for peer in self.known if peer not in self.near and peer not in self.drawn]
        if missing <= 0 or self._walk is not None or not others:
            return
        self._walks += 1
        if self._walks % 2:
            self._walk = (self._walks, now_ms + self.settings.answer_ms)
            self._step(say.Walked(0, 0, self.me, self._walks, self.settings.walk_steps))
        else:
            others.sort()
            place = draw_below(len(others), self.seed, "similarity/draw", *self.me, self._walks)
            self._ask_for_link(others[place], True, now_ms)

    def _step(self, walked: say.Walked) -> None:
        neighbours = self.neighbours()
        if walked.steps <= 0 or not neighbours:
            if walked.walker == self.me:
                self._walk = None
            else:
                to = walked.walker
                self._send(to, say.WalkEnded(to.slot, self.me.slot, walked.walk, self.profile))
            return
        seed, about = self.seed, (*walked.walker, walked.walk, walked.steps)
        to = neighbours[draw_below(len(neighbours), seed, "similarity/walk", *about)]
        self._send(
            to, say.Walked(to.slot, self.me.slot, walked.walker, walked.walk, walked.steps - 1)
        )

    def _on_walked(self, message: say.Walked) -> None:
        self._step(message)

    def _on_walk_ended(self, walk: int, profile: Profile, now_ms: int) -> None:
        if self._walk is None or self._walk[0] != walk:
            return
        self._walk = None
        self.learn((profile,))
        peer = profile.peer
        is_new = peer != self.me and peer not in self.near and peer not in self.drawn
        if is_new and peer in self.known:
            self._ask_for_link(peer, True, now_ms)

    # --- as time goes by -----------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Compare lists with a neighbour, and do without answers that did not come."""
        self._ticks += 1
        self._calm += 1
        self._warm_up()
        before = self._profile
        if before is not None and self.profile is not before:
            self._calm = 0
            for peer in self.neighbours():
                self._send(peer, say.ProfileTold(peer.slot, self.me.slot, self.profile))
        self._expire(now_ms)
        is_first = not self.is_warm and self._warm_ticks == 1
        if self._has_searched and (is_first or self._ticks % SEARCH_TICKS == 0):
            # What it wants is measured by other events than when it came.
            self.search(now_ms)
        self._refresh()
        neighbours = self.neighbours()
        if neighbours and (self._calm < CALM_TICKS or self._ticks % CALM_EVERY == 0):
            seed = self.seed
            turn = draw(seed, "similarity/exchange", *self.me, self._ticks)
            to = neighbours[turn * len(neighbours) >> 64]
            self._tell_list(to, is_answer=False)
        self.choose(now_ms)

    def _refresh(self) -> None:
        """Ask the best of those whose profile is about another sample how they are now.

        About events that came since nothing is known of them.
        """
        digest = self._host.sample.digest
        stale = [self.candidate(each) for each in self.known.values() if each.sample != digest]
        if stale:
            best = ranked(self.candidate(self.profile), stale, self.settings)
            for one in best[:REFRESHED_PER_TICK]:
                self._send(one.peer, say.Asked(one.peer.slot, self.me.slot, self.profile))

    def _warm_up(self) -> None:
        """Rely on near links once they have been chosen by the sample, and stay as they are."""
        if self.is_warm or self._host.is_cold:
            return
        self._warm_ticks += 1
        self._steady_ticks += 1
        if self._steady_ticks > STEADY_TICKS or self._warm_ticks > WARM_TICKS_MAX:
            self.is_warm = True

    def _expire(self, now_ms: int) -> None:
        late = [peer for peer, until_ms in self._waiting.items() if until_ms <= now_ms]
        for peer in late:
            del self._waiting[peer]
            self._forget_candidate(peer)
        for asked in [each for each, until_ms in self._asked.items() if until_ms <= now_ms]:
            del self._asked[asked]
            peer, is_random = asked
            self._send(peer, say.LinkDropped(peer.slot, self.me.slot, is_random))
            if peer not in self.neighbours():
                self._forget_candidate(peer)
        if self._walk is not None and self._walk[1] <= now_ms:
            self._walk = None
        oldest = self._ticks - CANDIDATE_TICKS
        linked = {**self.near, **self.drawn, **self.choosers, **self._waiting}
        for peer in [peer for peer, heard in self._heard.items() if heard < oldest]:
            if peer not in linked:
                self._forget_candidate(peer)
        if late:
            self._search(now_ms)

    def _tell_list(self, to: PeerId, *, is_answer: bool) -> None:
        profile = self.known.get(to)
        if profile is not None:
            kinds = (
                to in self.near or (to, False) in self._asked,
                to in self.drawn or (to, True) in self._asked,
            )
            best = self._best_for(profile)
            self._send(to, say.Exchanged(to.slot, self.me.slot, best, is_answer, *kinds))

    def _on_exchanged(self, sender: PeerId, message: say.Exchanged, now_ms: int) -> None:
        kinds = (message.is_near, message.is_random)
        if self.choosers.get(sender, (False, False)) != kinds:
            # What was said of the link was lost with an earlier one.
            self._set_chooser(sender, False, is_on=message.is_near)
            self._set_chooser(sender, True, is_on=message.is_random)
        if self.learn(message.profiles):
            self._calm = 0
        if not message.is_answer:
            self._tell_list(sender, is_answer=True)
        self.choose(now_ms)

    # --- leaving and losses --------------------------------------------------------------------

    def leave(self) -> None:
        """Tell the neighbours; each gets those of the others that are good for it."""
        for peer in self.neighbours():
            profile = self.known.get(peer)
            best = () if profile is None else self._best_for(profile)[1:]
            self._send(peer, say.MemberLeaves(peer.slot, self.me.slot, best))

    def on_lost(self, peer: PeerId, now_ms: int) -> None:
        """A member, or with slot 0 all of a node, cannot be reached: do without."""

        def is_gone(other: PeerId) -> bool:
            return (
                other.node == peer.node
                and peer.incarnation in (other.incarnation, ANY_LIFE)
                and peer.slot in (other.slot, 0)
            )

        for peers in (self.near, self.drawn, self.choosers, self._waiting, self._places):
            for gone in [other for other in peers if is_gone(other)]:
                self._calm = 0
                del peers[gone]
        for asked in [asked for asked in self._asked if is_gone(asked[0])]:
            del self._asked[asked]
        for gone in [other for other in self.known if is_gone(other)]:
            self._forget_candidate(gone)
        self._search(now_ms)
        self.choose(now_ms)

    def install(self, near: list[Profile], drawn: list[Profile], *, is_clique: bool) -> None:
        """Have these links: for a start that is set."""
        for profiles, links in ((near, self.near), (drawn, self.drawn)):
            for profile in profiles:
                self.known[profile.peer] = profile
                links[profile.peer] = None
        self._has_searched = True
        self.is_clique = is_clique
        self.is_warm = not self._host.is_cold

    def install_chooser(self, profile: Profile, is_random: bool) -> None:
        """Be chosen by this member: for a start that is set."""
        self.known[profile.peer] = profile
        self._set_chooser(profile.peer, is_random, is_on=True)
