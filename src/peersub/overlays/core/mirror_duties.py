"""The other side: looking after durable subscriptions of other nodes, as a mirror or as a witness.

While a home is out of reach, it is dialled again and again. When it is linked, it is offered what
is looked after, and all that is retained for it is gone through.

While a home is out of reach, the first of its group that is not *stands in* for it: it holds, even
if it was a witness, and has as many others hold as there should be copies, and one watch, as the
home would. What it retains goes to those who hold from now on. A home that is away for very long is
*suspended*: publishers wait for its subscriptions no more. One that is never seen is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from peersub.overlays.core.causes import ReplayWanted, Subscribe, Unsubscribe
from peersub.overlays.core.draws import draw
from peersub.overlays.core.effects import Connect, Drop, Effect, MirrorWork, TellOverlay
from peersub.overlays.core.messages import Message
from peersub.overlays.core.mirror_copies import ASKED_MAX, Copies, Group
from peersub.overlays.core.mirror_facts import Held
from peersub.overlays.core.mirror_home import parts_of
from peersub.overlays.core.mirror_links import MirrorLinks
from peersub.overlays.core.mirror_messages import (
    MirrorOffer,
    MirrorReady,
    MirrorRecruit,
    MirrorSuspended,
    MirrorWanted,
    MirrorWitness,
    NamedFilter,
)
from peersub.overlays.core.mirror_names import overlay_name
from peersub.overlays.core.mirror_settings import MirrorSettings
from peersub.overlays.core.mirror_tasks import (
    ForgetDropped,
    LetGo,
    LookAfter,
    ReadDropped,
    ReleaseRetained,
    RetainEvents,
)
from peersub.overlays.core.mirror_walks import WalkKey, Walks
from peersub.overlays.core.mirror_wards import Duty, Mirrored, Ward

__all__ = ["MirrorSide", "Mirrored"]

DIALLED_AT_ONCE: Final = 8
"""Homes out of reach that are dialled at a tick; the others have their turn at the next."""
TOLD_TICKS: Final = 2
"""How long a home is there before it has surely noted what it was told."""
MEMBERS_MAX: Final = 16
"""Other nodes that hold for a home, as far as they are known here."""


def _others(nodes: tuple[str, ...], node: str) -> tuple[str, ...]:
    return tuple([each for each in nodes if each != node])


class MirrorSide:
    """The homes that a node looks after; `known` ones it did before it started again."""

    def __init__(
        self,
        me: str,
        settings: MirrorSettings,
        walks: Walks,
        links: MirrorLinks,
        send: Callable[[str, Message], None],
        emit: Callable[[Effect], None],
        known: Iterable[Mirrored],
    ) -> None:
        self._me = me
        self._settings = settings
        self._walks = walks
        self._links = links
        self._send = send
        self._emit = emit
        self.copies: Copies = None  # type: ignore[assignment]
        """Set right after construction: each of the two asks the other."""
        self._homes: dict[str, Ward] = {}
        self._names: dict[str, tuple[str, str]] = {}
        """From the names in the overlay to homes, and the names there."""
        for each in known:
            first = Ward(each.stores, recruiter=each.home, is_unsure=True)
            ward = self._homes.setdefault(each.home, first)
            ward.stores = ward.stores or each.stores
            ward.suspended_ms = each.suspended_ms
            ward.duties[each.name] = Duty(each)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is looked after."""
        return not self._homes

    def looks_after(self, home: str) -> bool:
        """Whether something of that node is."""
        return home in self._homes

    def belongs(self, home: str, node: str) -> bool:
        """Whether a node may speak for a home: it is that, or helps it as this one does."""
        ward = self._homes.get(home)
        if ward is None:
            return False
        named = (home, ward.recruiter, *ward.holders, *ward.witnesses)
        return node in (*named, *ward.askers, *ward.silent)

    def place(self, subscription: str) -> tuple[str, str] | None:
        """The home and the name there of a subscription in the overlay."""
        return self._names.get(subscription)

    def names(self, home: str) -> Iterable[str]:
        """What is looked after of a home."""
        ward = self._homes.get(home)
        return () if ward is None else ward.duties

    def describe(self) -> Mapping[str, Any]:
        """How many subscriptions of which node."""
        wards = sorted(self._homes.items())
        return {home: len(ward.duties) for home, ward in wards if not ward.is_let_go}

    def watched(self) -> list[str]:
        """The homes for which this node is a witness."""
        return sorted(
            home for home, ward in self._homes.items() if not (ward.stores or ward.is_reserve)
        )

    # --- the group -----------------------------------------------------------------------------

    def group(self, home: str) -> Group | None:
        """Who looks after a home, as this node sees it; None where nobody waits for it."""
        ward = self._homes.get(home)
        if ward is None or ward.is_suspended:
            return None
        if not ward.counts:
            return Group(self._me, ward.stores)
        copies = self._settings.copies
        if self._links.counts_copies(home):
            return Group(home, ward.stores, (home,), (home,), copies)
        counts = self._links.counts_copies
        told = dict.fromkeys((*ward.holders, *ward.witnesses))
        others = tuple(node for node in told if node != self._me and counts(node))
        # By a draw, not by what each was told: two must not take each other for the leader. Who is
        # needed no more leads nobody, and who has no disk leads nobody who has one.
        able = others if ward.is_reserve and others else (self._me, *others)
        has_disk = self._links.has_disk
        leader = min(able, key=lambda node: (not has_disk(node), draw(0, "stand-in", home, node)))
        holders = tuple(node for node in others if node in ward.holders)
        # What others said when this node was let go may be long past.
        asked_max = 1 if ward.is_let_go else ASKED_MAX
        asking = filter(counts, ward.asking)
        return Group(leader, ward.stores, holders, (*others, *asking), copies, asked_max)

    def meet(self, home: str, node: str, *, holds: bool, asks: bool) -> None:
        """A node speaks of the copies of a home: it helps it, too, whoever has asked it to.

        After faults there may be several groups that do not know of each other. One that only
        `asks` may have been let go: it holds nothing and leads nobody, and whoever took it for the
        leader would wait for one that waits for him. It is answered, and asked itself once it says
        more; if it was silent, only if it `holds`.
        """
        ward = self._homes.get(home)
        if ward is None or node == home:
            return
        if holds:
            ward.silent = _others(ward.silent, node)
        if asks and not self.belongs(home, node):
            ward.askers = (*ward.askers[1 - MEMBERS_MAX :], node)
        elif not asks and (node in ward.asking or not self.belongs(home, node)):
            ward.holders = (*ward.holders[1 - MEMBERS_MAX :], node)

    def forget_member(self, home: str, node: str) -> None:
        """A node that was told to look after the home does not; it may go on asking.

        The home knows who does, or that nothing is to be looked after any more.
        """
        ward = self._homes.get(home)
        if ward is not None:
            if home not in self._links:
                self._emit(Connect(home))
            ward.holders = _others(ward.holders, node)
            ward.witnesses = _others(ward.witnesses, node)
            ward.askers = _others(ward.askers, node)
            ward.silent = (*_others(ward.silent, node)[1 - MEMBERS_MAX :], node)

    # --- links ---------------------------------------------------------------------------------

    def begin(self) -> None:
        """The node starts again: what it looked after is in the overlay before it has links."""
        for home, ward in self._homes.items():
            for duty in ward.duties.values() if not ward.is_suspended else ():
                self._subscribe(home, duty)

    def connected(self, home: str, now_ms: int) -> None:
        """A link is up: offer what there is."""
        ward = self._homes.get(home)
        if ward is None:
            return
        if ward.stores:
            self._emit(MirrorWork(ReadDropped(home, ward.away_ms or now_ms)))
        ward.away_ms, ward.back_ms = None, now_ms
        ward.in_memory = not self._links.has_disk(home)
        ward.is_unsure = False  # Its home sees to that.
        ward.pause_ms = ward.dial_ms = 0
        if ward.mark and self._links.counts_copies(home):
            self._send(home, MirrorWitness(ward.mark, ()))
        offer = MirrorOffer if ward.stores else MirrorWitness
        for epoch, subscriptions in ward.by_life():
            for part in parts_of(subscriptions):
                self._send(home, offer(epoch, part))
        if ward.suspended_ms is not None:
            self._resume(home, ward, now_ms)
        self._walks.begin(WalkKey(home, home, ""), now_ms, stays=True)

    def lost(self, home: str, now_ms: int) -> None:
        """A link is gone, or in doubt."""
        ward = self._homes.get(home)
        if ward is not None and ward.away_ms is None:
            ward.away_ms = now_ms
            if ward.stores and ward.back_ms is None:
                # While it was there it had all of them itself.
                self._emit(MirrorWork(ForgetDropped(home)))
            for node in (*ward.holders, *ward.witnesses):
                if node not in self._links and node != self._me:
                    self._emit(Connect(node))
        self._watch_members(now_ms)

    def heard(self, home: str) -> None:
        """A home that was in doubt is heard again."""
        ward = self._homes.get(home)
        if ward is not None and home in self._links:
            ward.away_ms = None

    # --- what homes say, and who stands in for them ---------------------------------------------

    def on_wanted(self, home: str, message: MirrorWanted, now_ms: int) -> None:
        """A home of an earlier version has these looked after."""
        ward = self._ward(home, stores=True)
        ward.counts, ward.recruiter = False, home
        self._take_on(home, ward, message.epoch, message.subscriptions, now_ms)

    def on_recruit(self, node: str, message: MirrorRecruit, now_ms: int) -> None:
        """Look after these, and know who else does."""
        home = message.home
        if home == self._me:
            return  # Somebody stood in for this node, and has not heard that it is back.
        known = self._homes.get(home)
        if not message.subscriptions and (known is None or known.is_let_go):
            return
        ward = self._ward(home, stores=message.stores)
        ward.is_let_go = False
        ward.counts, ward.recruiter = True, node
        if node == home:
            ward.mark = message.epoch
        ward.holders, ward.witnesses, ward.silent = message.holders, message.witnesses, ()
        is_member = message.stores or self._me in message.witnesses
        self._set_reserve(home, ward, not is_member and not ward.stores, now_ms)
        if message.stores and not ward.stores:
            self._hold(home, ward)
        if message.subscriptions and ward.is_suspended:
            # Whoever asks has not suspended it: it has seen the home since.
            ward.away_ms = now_ms
            self._serve_again(home, ward, now_ms)
        self._take_on(home, ward, message.epoch, message.subscriptions, now_ms)

    def _set_reserve(self, home: str, ward: Ward, is_reserve: bool, now_ms: int) -> None:
        """Only know the subscriptions, after a while, or watch again."""
        was, ward.is_reserve, ward.alone_ms = ward.is_reserve, is_reserve, None
        if not is_reserve:
            ward.lingers_ms = None
            for duty in ward.duties.values() if was else ():
                self._subscribe(home, duty)
        elif any(duty.in_overlay is not None for duty in ward.duties.values()) and not was:
            ward.lingers_ms = now_ms + self._settings.linger_ms

    def _end_lingering(self, now_ms: int) -> None:
        """Watch no longer where others have watched for long enough."""
        for home, ward in list(self._homes.items()):
            if ward.lingers_ms is not None and now_ms >= ward.lingers_ms:
                ward.lingers_ms = None
                if ward.is_let_go:
                    self._forget(home, tuple(ward.duties))
                else:
                    for name, duty in ward.duties.items():
                        self._unsubscribe(home, name, duty)

    def _watch_members(self, now_ms: int) -> None:
        """A reserve watches as soon as none of those can be reached who should."""
        for home, ward in self._homes.items():
            if not ward.is_reserve:
                continue
            if any(map(self._links.counts_copies, (home, *ward.holders, *ward.witnesses))):
                ward.alone_ms = None
            elif ward.alone_ms is None:
                ward.alone_ms = now_ms
            elif now_ms - ward.alone_ms >= self._settings.lost_ms:
                ward.away_ms = ward.away_ms or ward.alone_ms
                ward.unwatched_ms = ward.alone_ms if ward.lingers_ms is None else None
                ward.is_let_go = False
                self._set_reserve(home, ward, False, now_ms)

    def _ask_for_replays(self, now_ms: int) -> None:
        """Let publishers replay what nobody watched for, once this node watches."""
        watched = [
            ward
            for ward in self._homes.values()
            if ward.unwatched_ms is not None
            and all(duty.is_served for duty in ward.duties.values())
        ]
        since_ms = min((ward.unwatched_ms or 0 for ward in watched), default=None)
        if since_ms is not None:
            # Once for all homes: the whole network hears of it.
            self._emit(TellOverlay(ReplayWanted(max(1, now_ms - since_ms))))
            for ward in watched:
                ward.unwatched_ms = None

    def _ward(self, home: str, *, stores: bool) -> Ward:
        ward = self._homes.get(home)
        if ward is None:
            in_memory = not (self._links.has_disk(home) and self._links.sees_disks())
            ward = self._homes[home] = Ward(stores, in_memory=in_memory)
        return ward

    def _hold(self, home: str, ward: Ward) -> None:
        """Hold from now on what was only watched."""
        ward.stores = True
        for epoch, subscriptions in ward.by_life():
            for name, wanted in ((each.name, each.filter) for each in subscriptions):
                ward.duties[name].mirrored = Mirrored(home, epoch, name, wanted)
            self._emit(MirrorWork(LookAfter(home, epoch, tuple(subscriptions), True)))
        self.copies.hold_all(home)

    def _take_on(
        self,
        home: str,
        ward: Ward,
        epoch: str,
        subscriptions: tuple[NamedFilter, ...],
        now_ms: int,
    ) -> None:
        changed: list[NamedFilter] = []
        ready: list[str] = []
        for each in subscriptions:
            wanted = Mirrored(home, epoch, each.name, each.filter, ward.stores, ward.suspended_ms)
            known = ward.duties.get(each.name)
            is_same = known is not None and known.mirrored.filter.digest == each.filter.digest
            if known is None or not is_same or known.mirrored != wanted:
                changed.append(each)
            if known is None:
                known = ward.duties[each.name] = Duty(wanted)
            known.mirrored = wanted
            if known.is_served and is_same:
                ready.append(each.name)
        if changed:
            task = LookAfter(home, epoch, tuple(changed), ward.stores, ward.suspended_ms)
            self._emit(MirrorWork(task))
        if ready:
            self._send(ward.recruiter, MirrorReady(tuple(ready)))
        if home in self._links and WalkKey(home, home, "") not in self._walks:
            self._walks.begin(WalkKey(home, home, ""), now_ms, stays=True)

    def looked_after(self, home: str, names: Iterable[str]) -> None:
        """It is on disk that these are looked after: now the overlay may serve them."""
        ward = self._homes.get(home)
        if ward is not None and not (ward.is_suspended or ward.is_reserve):
            for name in names:
                duty = ward.duties.get(name)
                if duty is not None:
                    self._subscribe(home, duty)

    def _subscribe(self, home: str, duty: Duty) -> None:
        name, wanted = duty.mirrored.name, duty.mirrored.filter
        if duty.in_overlay is not None and duty.in_overlay.digest == wanted.digest:
            return
        # Another filter comes in the place of the one before: nobody is without in between.
        self._unsubscribe(home, name, duty)
        duty.in_overlay = wanted
        here = overlay_name(home, name)
        self._names[here] = (home, name)
        self._emit(TellOverlay(Subscribe(here, wanted, durable=True)))

    def _unsubscribe(self, home: str, name: str, duty: Duty) -> None:
        if duty.in_overlay is not None:
            duty.in_overlay, duty.is_served = None, False
            self._names.pop(overlay_name(home, name), None)
            self._emit(TellOverlay(Unsubscribe(overlay_name(home, name))))

    def served(self, subscription: str) -> None:
        """The overlay serves a subscription that is looked after."""
        home, name = self._names.get(subscription, ("", ""))
        ward = self._homes.get(home)
        duty = None if ward is None else ward.duties.get(name)
        if ward is not None and duty is not None and not duty.is_served:
            duty.is_served = True
            self._send(ward.recruiter, MirrorReady((name,)))

    def delivered(self, event: Held) -> None:
        """Events without a promise: who holds keeps them as well."""
        names_of: dict[str, dict[str, str]] = {}
        for here in event.names:
            home, name = self._names.get(here, ("", ""))
            if home and self._homes[home].stores:
                names_of.setdefault(home, {})[here] = name
        for home, names in names_of.items():
            self._emit(MirrorWork(RetainEvents(home, (event.renamed(names),))))

    def on_ended(self, home: str, names: tuple[str, ...], now_ms: int) -> None:
        """Look after these no more; none means all, for others do."""
        ward = self._homes.get(home)
        if ward is None:
            return
        if names:
            self._forget(home, names)
        else:
            self._let_go(home, ward, now_ms)

    def _let_go(self, home: str, ward: Ward, now_ms: int) -> None:
        """Hold nothing any more, and watch for a while what comes late."""
        if ward.stores:
            ward.stores = False
            self._emit(MirrorWork(LetGo(home, tuple(ward.duties))))
            for epoch, subscriptions in ward.by_life():
                self._emit(MirrorWork(LookAfter(home, epoch, tuple(subscriptions), False)))
            self.copies.hold_none(home)
        self._set_reserve(home, ward, True, now_ms)
        ward.is_let_go = True
        ward.lingers_ms = ward.lingers_ms or now_ms

    def _forget(self, home: str, names: tuple[str, ...]) -> None:
        ward = self._homes[home]
        gone = [name for name in names if name in ward.duties]
        for name in gone:
            self._unsubscribe(home, name, ward.duties.pop(name))
        if not ward.duties:
            del self._homes[home]
            self._walks.end_home(home)
        if gone:
            self._emit(MirrorWork(LetGo(home, tuple(gone))))
            self.copies.ended(home, gone)

    def on_released(self, home: str, name: str, event_ids: tuple[str, ...]) -> None:
        """The consumer has these."""
        if name in self.names(home):
            self._emit(MirrorWork(ReleaseRetained(home, name, event_ids)))

    # --- standing in ---------------------------------------------------------------------------

    def stand_in(self, now_ms: int) -> None:
        """Where a home is out of reach and this node is the first of its group: do as it would."""
        self._watch_members(now_ms)
        for home, ward in self._homes.items():
            group = self.group(home)
            if (
                ward.is_reserve
                or group is None
                or not ward.counts
                or self._links.counts_copies(home)
            ):
                continue
            away_ms = 0 if ward.away_ms is None else now_ms - ward.away_ms
            if away_ms >= self._settings.lost_ms and group.leader == self._me:
                self._fill_group(home, ward, group, now_ms)
                if ward.is_unsure and away_ms >= self._settings.grace_ms:
                    ward.is_unsure, ward.unwatched_ms = False, 0

    def _fill_group(self, home: str, ward: Ward, group: Group, now_ms: int) -> None:
        def may_hold(node: str) -> bool:
            return ward.in_memory or self._links.has_disk(node)

        if not ward.stores and may_hold(self._me):
            self._hold(home, ward)
        holders = [node for node in (self._me, *group.holders) if may_hold(node)]
        asking = ward.asking
        members = [node for node in (self._me, *group.members) if node not in asking]
        witnesses = [node for node in members if node not in holders]
        recruits: list[str] = []
        while len(holders) < self._settings.copies:
            node = next(filter(may_hold, witnesses), None)
            node = node or self._recruit_for(home, [*holders, *witnesses], may_hold)
            if node is None:
                break
            if node in witnesses:
                witnesses.remove(node)
            holders.append(node)
            recruits.append(node)
        while len(witnesses) < self._settings.witnesses:
            node = self._recruit_for(home, [*holders, *witnesses], lambda _: True)
            if node is None:
                break
            witnesses.append(node)
            recruits.append(node)
        told = tuple(sorted(holders)), tuple(sorted(witnesses))
        if recruits or (ward.holders, ward.witnesses) != told:
            # Who is away and was told to hold says so to the home when both are back.
            ward.holders, ward.witnesses = told
            for node in recruits:
                ward.silent = _others(ward.silent, node)
            self._tell_group(home, ward, recruits)
        for node in recruits:
            if node in holders:
                self.copies.push_all(home, node)
                self._walks.begin(WalkKey(node, home, ""), now_ms, stays=False)

    def _recruit_for(self, home: str, members: list[str], may: Callable[[str], bool]) -> str | None:
        free = [
            node
            for node in self._links.reachable()
            if self._links.counts_copies(node) and node not in (home, *members) and may(node)
        ]
        return min(free, key=lambda node: draw(0, "mirror", home, node), default=None)

    def _tell_group(self, home: str, ward: Ward, recruits: list[str]) -> None:
        for node in (*ward.holders, *ward.witnesses):
            if node == self._me:
                continue
            known = ward.by_life() if node in recruits else ()
            parts = [(epoch, part) for epoch, all_ in known for part in parts_of(all_)]
            for epoch, part in parts or [("", ())]:
                stores = node in ward.holders
                message = MirrorRecruit(home, epoch, part, stores, ward.holders, ward.witnesses)
                self._send(node, message)

    def _suspend(self, home: str, ward: Ward, now_ms: int) -> None:
        self._emit(Drop("the subscriptions of a node that is away for too long are suspended"))
        self._note_suspended(home, ward, ward.suspended_ms or now_ms)
        for name, duty in ward.duties.items():
            self._unsubscribe(home, name, duty)
        self.copies.ended(home)

    def _note_suspended(self, home: str, ward: Ward, suspended_ms: int | None) -> None:
        """Keep on disk since when nobody waits: the consumer is told even after a restart."""
        ward.suspended_ms, ward.told_ms = suspended_ms, None
        for epoch, subscriptions in ward.by_life():
            task = LookAfter(home, epoch, tuple(subscriptions), ward.stores, suspended_ms)
            self._emit(MirrorWork(task))

    def _resume(self, home: str, ward: Ward, now_ms: int) -> None:
        assert ward.suspended_ms is not None
        self._send(home, MirrorSuspended(tuple(ward.duties), ward.suspended_ms))
        self._serve_again(home, ward, now_ms)

    def _serve_again(self, home: str, ward: Ward, now_ms: int) -> None:
        """Wait for its subscriptions again; that nobody did is still to be told to the home."""
        ward.told_ms = now_ms
        for duty in ward.duties.values():
            self._subscribe(home, duty)

    def _note_told(self, now_ms: int) -> None:
        """Forget what a home was told, once it has been there for long enough to have noted it."""
        before_ms = now_ms - TOLD_TICKS * self._settings.tick_ms
        for home, ward in self._homes.items():
            if ward.back_ms is None or ward.back_ms > before_ms or home not in self._links:
                continue
            ward.back_ms = None
            if ward.told_ms is not None:
                self._note_suspended(home, ward, None)
            if ward.stores:
                self._emit(MirrorWork(ForgetDropped(home)))

    def _forget_unseen(self, now_ms: int) -> None:
        """Give up homes that are linked no more to this node, which only is a reserve."""
        for home, ward in list(self._homes.items()):
            if home in self._links or not ward.is_reserve:
                ward.unseen_ms = None
            elif ward.unseen_ms is None:
                ward.unseen_ms = now_ms
            elif now_ms - ward.unseen_ms >= self._settings.horizon_ms:
                self._forget(home, tuple(ward.duties))

    # --- time ----------------------------------------------------------------------------------

    def on_tick(self, now_ms: int) -> None:
        """Dial homes that are out of reach; suspend them, and give up those that are for ever."""
        away = [
            home
            for home, ward in self._homes.items()
            if home not in self._links and not ward.is_reserve
        ]
        for home in away:
            ward = self._homes[home]
            if ward.away_ms is None:
                ward.away_ms = now_ms
            away_ms = now_ms - ward.away_ms
            if away_ms >= self._settings.horizon_ms:
                self._emit(Drop("subscriptions of a node that was not seen for too long"))
                self._forget(home, tuple(ward.duties))
            elif away_ms >= self._settings.away_max_ms and not ward.is_suspended:
                self._suspend(home, ward, now_ms)
        due = [home for home in away if home in self._homes and self._homes[home].is_due(now_ms)]
        for home in due[:DIALLED_AT_ONCE]:
            self._homes[home].put_off(now_ms, self._settings.tick_ms)
            self._emit(Connect(home))
        self._note_told(now_ms)
        self._forget_unseen(now_ms)
        self._end_lingering(now_ms)
        self.stand_in(now_ms)
        self._ask_for_replays(now_ms)
