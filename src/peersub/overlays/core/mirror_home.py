"""The home's side of mirrors: which nodes look after the durable subscriptions of this one.

The same nodes look after all of them: `copies - 1` mirrors, which hold events, and witnesses, which
only watch. Reserves know of them, and do nothing as long as one of the others is there. All of them
are drawn among the linked nodes, and kept while they can be reached. A helper that is in doubt, or
out of reach, for `lost_ms` is replaced, a mirror first of all by a witness, which has the
subscriptions already; so is one whose link the overlay closes again and again. When a former one
shows up, it hands over what it has, and is then told to forget it. A node that has come back takes
those that offer themselves because they looked after it before. A node without a disk holds nothing
for one that has a disk: it only watches.

A node that has lost its log (another *epoch*) takes the subscriptions over that others offer; one
that has its log knows better: what it does not have was ended. Helpers also remember how far the
disk of the node was (`store_marks`): one that is behind that has lost the rest, says so, and takes
over what it is offered.

A node that starts again does not know whether anybody has watched while it was away: all who know
of its subscriptions may have died with it. A helper that has lived since then says how far the disk
was in an earlier life. If none has, publishers replay what they have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from peersub.filters.filter import Filter
from peersub.overlays.core.causes import ReplayWanted
from peersub.overlays.core.draws import draw
from peersub.overlays.core.effects import Connect, Drop, Effect, MirrorWork, TellOverlay
from peersub.overlays.core.messages import Message
from peersub.overlays.core.mirror_copies import IDS_PER_MESSAGE_MAX, Copies, Group
from peersub.overlays.core.mirror_facts import DurableKept, StoreMarked
from peersub.overlays.core.mirror_links import MirrorLinks
from peersub.overlays.core.mirror_messages import (
    MirrorEnded,
    MirrorRecruit,
    MirrorReleased,
    MirrorSuspended,
    MirrorWanted,
    NamedFilter,
)
from peersub.overlays.core.mirror_settings import MirrorSettings
from peersub.overlays.core.mirror_tasks import (
    NameLoss,
    NoteGap,
    ReadMark,
    RecreateDurables,
    SayReady,
)
from peersub.overlays.core.mirror_walks import WalkKey, Walks
from peersub.overlays.core.store_marks import Life, LifeMark

__all__ = ["SUBSCRIPTIONS_PER_MESSAGE_MAX", "HomeSide", "parts_of"]

SUBSCRIPTIONS_PER_MESSAGE_MAX: Final = 8
"""As many of the largest filters as a frame has room for."""
LOSSES_MAX: Final = 3
"""How often the link to a helper may be lost before a steadier one is looked for."""
STEADY_MS: Final = 60_000
"""A link that has lasted so long is steady: earlier losses are forgotten."""
DIAL_TICKS_MAX: Final = 4
"""The longest pause, in ticks, before helpers that are out of reach are dialled again."""
FORMER_MAX: Final = 1_024
"""Former mirrors that are remembered until they are told to forget."""


def parts_of(
    subscriptions: Iterable[NamedFilter], size: int = SUBSCRIPTIONS_PER_MESSAGE_MAX
) -> Iterable[tuple[NamedFilter, ...]]:
    """The same in parts that a message holds."""
    listed = list(subscriptions)
    for start in range(0, len(listed), size):
        yield tuple(listed[start : start + size])


@dataclass(slots=True)
class _Helper:
    """A node that looks after the subscriptions of this one."""

    stores: bool
    linked_ms: int
    ready: dict[str, None] = field(default_factory=dict)
    """Names whose events it gets."""
    away_ms: int | None = None
    """Since when it is in doubt, or out of reach."""
    losses: int = 0


class HomeSide:
    """What a node does so that its durable subscriptions are looked after.

    Args:
        me: the name of this node.
        epoch: of its log.
        lives: of this node, as its disk has them; the present one is the last.
        links: the nodes that offer to be mirrors and that there are links to.
        send: takes messages for one of those.
    """

    def __init__(
        self,
        me: str,
        epoch: str,
        lives: Sequence[Life],
        settings: MirrorSettings,
        walks: Walks,
        links: MirrorLinks,
        send: Callable[[str, Message], None],
        emit: Callable[[Effect], None],
    ) -> None:
        self._me = me
        self._lives = lives
        self._mark = self._told = LifeMark(epoch, *lives[-1])
        self._is_loss_named = False
        self._settings = settings
        self._walks = walks
        self._links = links
        self._send = send
        self._emit = emit
        self.copies: Copies = None  # type: ignore[assignment]
        """Set right after construction: each of the two asks the other."""
        self._helpers: dict[str, _Helper] = {}
        self._durables: dict[str, Filter] = {}
        self._unready: dict[str, int] = {}
        """Names that the overlay serves, and that wait for helpers: until when."""
        self._chosen_before: dict[str, None] = {}
        self._choose_from_ms = 0
        self._dial_ms = self._pause_ms = 0
        self._reserves: dict[str, None] = {}
        self._lingering: dict[str, int] = {}
        """Nodes that are needed no more, and watch until then."""
        self._recreating: dict[str, int | None] = {}
        """Names that are made anew, and since when nobody kept their events, if that is so."""
        self._unwatched: dict[str, None] = {}
        """Names for which perhaps nobody has watched, until the overlay serves them again."""
        self._replay_ms: int | None = None
        """From when on publishers are asked to replay what nobody watched for."""
        self._is_watched = False
        """Whether somebody has been there all the while."""
        self._former: dict[str, bool] = {}
        """Nodes that hold something, and are no helper any more: whether they said all."""

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to look after."""
        return not self._durables

    @property
    def names(self) -> tuple[str, ...]:
        """The durable subscriptions, in the order in which they came."""
        return tuple(self._durables)

    @property
    def mirror(self) -> str | None:
        """The first of the mirrors, if there is one."""
        return next(iter(self._nodes(stores=True)), None)

    @property
    def witnesses(self) -> list[str]:
        """The nodes that only watch."""
        return self._nodes(stores=False)

    @property
    def mirrored(self) -> int:
        """How many of them all mirrors look after."""
        mirrors = [each for each in self._helpers.values() if each.stores]
        return min((len(each.ready) for each in mirrors), default=0)

    def has(self, name: str) -> bool:
        """Whether there is a durable subscription of this name."""
        return name in self._durables

    def waits_for(self, name: str) -> str | None:
        """The node whose answer a subscription needs to be ready."""
        if name in self._unready:
            for node, helper in self._helpers.items():
                if name not in helper.ready:
                    return node
        return None

    def group(self) -> Group | None:
        """Name this node and its helpers."""
        if not self._durables:
            return None
        there = [node for node in self._helpers if self._links.counts_copies(node)]
        holders = tuple([node for node in there if self._helpers[node].stores])
        watching = [node for node in self._lingering if self._links.counts_copies(node)]
        former = frozenset((*self._former, *self._lingering))
        copies = self._settings.copies
        return Group(self._me, True, holders, (*there, *watching), copies, former=former)

    def _nodes(self, *, stores: bool) -> list[str]:
        return [node for node, helper in self._helpers.items() if helper.stores is stores]

    # --- what happens on this node -------------------------------------------------------------

    def kept(self, fact: DurableKept, now_ms: int) -> None:
        """There is a durable subscription, or its filter is another."""
        known = self._durables.get(fact.name)
        if known is not None and known.digest == fact.filter.digest:
            return
        if fact.restored and not self._durables:
            self._choose_from_ms = now_ms + self._settings.grace_ms
        if (fact.restored or fact.name in self._recreating) and not self._is_watched:
            self._unwatched[fact.name] = None
        self._durables[fact.name] = fact.filter
        since_ms = self._recreating.pop(fact.name, None)
        if since_ms is not None:
            self._emit(MirrorWork(NoteGap((fact.name,), since_ms)))
        for node, helper in self._helpers.items():
            helper.ready.pop(fact.name, None)
            if node in self._links:
                self._ask(node, helper, (NamedFilter(fact.name, fact.filter),))
        for node in self._reserves:
            self._ask(node, _Helper(False, now_ms), (NamedFilter(fact.name, fact.filter),))
        self._choose(now_ms)

    def ended(self, name: str) -> None:
        """A durable subscription is no more."""
        self._unready.pop(name, None)
        self._recreating.pop(name, None)
        self._unwatched.pop(name, None)
        if self._durables.pop(name, None) is None:
            return
        self.copies.ended(self._me, (name,))
        for helper in self._helpers.values():
            helper.ready.pop(name, None)
        # A former mirror serves it until it is let go, which may be long after.
        told = (*self._helpers, *self._reserves, *self._former, *self._lingering)
        for node in dict.fromkeys(told):
            self._send(node, MirrorEnded((name,)))

    def served(self, name: str, now_ms: int) -> None:
        """The overlay serves it; it is ready when the helpers get its events, too."""
        if name in self._unwatched:
            del self._unwatched[name]
            self._replay_ms = now_ms + self._settings.grace_ms
        nobody = not self._helpers and not self._links
        if nobody or name not in self._durables or self._is_ready(name):
            self._emit(MirrorWork(SayReady(name)))
        else:
            self._unready[name] = now_ms + self._settings.ready_ms

    def _is_ready(self, name: str) -> bool:
        helpers = self._helpers.values()
        return bool(helpers) and all(name in helper.ready for helper in helpers)

    def taken(self, name: str, event_ids: tuple[str, ...]) -> None:
        """A consumer has taken events. A mirror that does not hear of it will ask."""
        for node in self._nodes(stores=True):
            self.release(node, name, event_ids)

    def release(self, node: str, name: str, event_ids: tuple[str, ...]) -> None:
        """Let a node that holds events forget them."""
        for start in range(0, len(event_ids), IDS_PER_MESSAGE_MAX):
            part = event_ids[start : start + IDS_PER_MESSAGE_MAX]
            self._send(node, MirrorReleased(name, part))

    # --- links ---------------------------------------------------------------------------------

    def connected(self, node: str, now_ms: int) -> None:
        """A link is up."""
        helper = self._helpers.get(node)
        if helper is not None and helper.stores and not self._may_hold(node):
            del self._helpers[node]  # It was a mirror, and has come back without a disk.
        elif helper is not None:
            # It may be another life of it, which knows nothing: all is asked for anew.
            helper.away_ms, helper.linked_ms = None, now_ms
            helper.ready.clear()
            self._ask_for_all(node, helper)
        self._choose(now_ms)

    def lost(self, node: str, now_ms: int) -> None:
        """A link is gone: it is made again, if that is possible."""
        self._reserves.pop(node, None)
        helper = self._helpers.get(node)
        if helper is not None:
            is_steady = now_ms - helper.linked_ms >= STEADY_MS
            helper.losses = 1 if is_steady else helper.losses + 1
            self.doubted(node, now_ms)
            self._choose(now_ms)
            if node in self._helpers:
                self._emit(Connect(node))

    def doubted(self, node: str, now_ms: int) -> None:
        """Nothing is heard of a node."""
        helper = self._helpers.get(node)
        if helper is not None and helper.away_ms is None:
            helper.away_ms = now_ms

    def heard(self, node: str) -> None:
        """A node that was in doubt is heard again."""
        helper = self._helpers.get(node)
        if helper is not None and node in self._links:
            helper.away_ms = None

    # --- the choice ----------------------------------------------------------------------------

    def _choose(self, now_ms: int) -> None:
        """Have as many mirrors and witnesses as there should be, if there are nodes for it."""
        if now_ms < self._choose_from_ms or not self._durables:
            return
        changed = False
        for stores, wanted in ((True, self._settings.copies - 1), (False, self._witnesses_wanted)):
            while len([n for n in self._nodes(stores=stores) if not self._is_lost(n, now_ms)]) < (
                wanted
            ):
                node = self._candidate(stores=stores)
                if node is None:
                    break
                self._replace_lost(stores, now_ms)
                self._take(node, stores, now_ms)
                changed = True
        if changed:
            self._tell_members()
        while len(self._reserves) < self._settings.reserves:
            node = self._candidate(stores=False)
            if node is None or node in self._reserves:
                break
            self._reserve(node, now_ms)

    def _reserve(self, node: str, now_ms: int) -> None:
        """Let a node know the subscriptions, in case that all helpers are away together."""
        self._reserves[node] = None
        self._ask_for_all(node, _Helper(False, now_ms))

    @property
    def _witnesses_wanted(self) -> int:
        return self._settings.witnesses

    def _is_lost(self, node: str, now_ms: int) -> bool:
        helper = self._helpers[node]
        if helper.away_ms is None:
            return False
        return now_ms - helper.away_ms >= self._settings.lost_ms or helper.losses >= LOSSES_MAX

    def _candidate(self, *, stores: bool) -> str | None:
        """Who is to help: a witness that is to hold, or another node."""
        if stores:
            for node in self._nodes(stores=False):
                if self._links.is_reachable(node) and self._may_hold(node):
                    return node
        free = [
            node
            for node in self._links.reachable()
            if node not in self._helpers
            # A former one is let go first: it would hold what nobody tells it to release.
            and (
                self._may_hold(node)
                if stores
                else self._links.counts_copies(node) and node not in self._former
            )
        ]
        if not free:
            return None
        unknown = [node for node in free if node not in self._reserves]
        free = unknown or free
        fresh = [node for node in free if node not in self._chosen_before]
        if not fresh:
            for node in free:
                del self._chosen_before[node]
        return min(fresh or free, key=lambda node: draw(0, "mirror", self._me, node))

    def _may_hold(self, node: str) -> bool:
        """Whether a node is as safe a place as this one."""
        return self._links.has_disk(node) or not self._links.has_disk_here

    def _replace_lost(self, stores: bool, now_ms: int) -> None:
        """Another one comes in the place of one that is lost."""
        for node in self._nodes(stores=stores):
            if self._is_lost(node, now_ms):
                del self._helpers[node]
                self._note_former(node, has_said_all=False)
                return

    def _take(self, node: str, stores: bool, now_ms: int) -> None:
        """Have a helper from now on, or let a witness hold."""
        for nodes in (self._former, self._reserves, self._lingering):
            nodes.pop(node, None)
        self._chosen_before[node] = None
        before = self._helpers.get(node)
        helper = self._helpers[node] = _Helper(stores, now_ms)
        if before is not None:
            helper.ready = before.ready
            for name in helper.ready:
                self._copy(node, name, now_ms)
        self._ask_for_all(node, helper)
        if stores:
            self.copies.push_all(self._me, node)

    def _linger(self, node: str, now_ms: int) -> None:
        """A node goes on watching for a while: it is told what is safe as a helper is."""
        if len(self._lingering) < FORMER_MAX:
            self._lingering[node] = now_ms + self._settings.linger_ms

    def _note_former(self, node: str, *, has_said_all: bool) -> None:
        self._former[node] = has_said_all
        if len(self._former) > FORMER_MAX:
            del self._former[next(iter(self._former))]

    def _ask_for_all(self, node: str, helper: _Helper) -> None:
        every = (NamedFilter(name, wanted) for name, wanted in self._durables.items())
        self._ask(node, helper, every)

    def _ask(self, node: str, helper: _Helper, subscriptions: Iterable[NamedFilter]) -> None:
        for part in parts_of(subscriptions):
            if self._links.counts_copies(node):
                self._send(node, self._recruit(helper, part))
            elif helper.stores:
                self._send(node, MirrorWanted(str(self._mark), part))

    def _recruit(self, helper: _Helper, part: tuple[NamedFilter, ...]) -> MirrorRecruit:
        holders, witnesses = self._nodes(stores=True), self._nodes(stores=False)
        mark = str(self._mark)
        return MirrorRecruit(self._me, mark, part, helper.stores, tuple(holders), tuple(witnesses))

    def _tell_members(self) -> None:
        """Let all helpers know who the others are."""
        for node, helper in self._helpers.items():
            if self._links.counts_copies(node):
                self._send(node, self._recruit(helper, ()))
        for node in self._reserves:
            self._send(node, self._recruit(_Helper(False, 0), ()))

    # --- what helpers say ----------------------------------------------------------------------

    def on_offer(
        self,
        node: str,
        epoch: str,
        subscriptions: tuple[NamedFilter, ...],
        now_ms: int,
        *,
        stores: bool,
    ) -> None:
        """A node has looked after subscriptions of this one, as a mirror or as a witness."""
        mark = LifeMark.read(epoch)
        is_other_log = mark.epoch != self._mark.epoch
        is_lost = not is_other_log and mark.is_lost(self._lives)
        if is_lost:
            self._name_loss()
        if not subscriptions:
            if mark.life != self._mark.life:
                # It has lived since, and knows who else did: it watches when nobody else does.
                self._is_watched = True
                self._unwatched.clear()
                self._replay_ms = None
            return
        unknown = tuple([each for each in subscriptions if each.name not in self._durables])
        if unknown and (is_other_log or is_lost):
            for each in unknown:
                self._recreating.setdefault(each.name, None)
            self._emit(MirrorWork(RecreateDurables(unknown)))
        elif unknown:
            self._send(node, MirrorEnded(tuple(each.name for each in unknown)))
            if len(unknown) == len(subscriptions):
                return
        helper = self._helpers.get(node)
        if helper is not None and (helper.stores or not stores):
            return
        if node in self._reserves and stores:
            del self._reserves[node]
        if helper is not None:
            # It was taken for a witness, and holds: it hands that over, and is let go first.
            del self._helpers[node]
            self._note_former(node, has_said_all=False)
            return
        wanted = self._settings.copies - 1 if stores else self._witnesses_wanted
        there = [n for n in self._nodes(stores=stores) if not self._is_lost(n, now_ms)]
        if len(there) < wanted and (self._may_hold(node) or not stores):
            self._replace_lost(stores, now_ms)
            self._take(node, stores, now_ms)
            self._tell_members()
        elif not stores and (
            node in self._reserves or len(self._reserves) < self._settings.reserves
        ):
            self._linger(node, now_ms)
            self._reserve(node, now_ms)
        else:
            # A witness holds nothing: it has nothing to say before it may forget.
            self._note_former(node, has_said_all=not stores)

    def _name_loss(self) -> None:
        """The disk was once further: once for each epoch."""
        if not self._is_loss_named:
            self._is_loss_named = True
            self._emit(Drop("the disk lost what other nodes know that it had"))
            self._emit(MirrorWork(NameLoss()))

    def marked(self, fact: StoreMarked) -> None:
        """Know how far the disk is; helpers are told with the next words, or at a tick."""
        if fact.epoch != self._mark.epoch:
            self._is_loss_named = False
        self._mark = LifeMark(fact.epoch, self._mark.life, fact.commits)

    def on_ready(self, node: str, names: Iterable[str], now_ms: int) -> None:
        """A helper gets the events of these; a mirror also gets what came before."""
        helper = self._helpers.get(node)
        if helper is None:
            return
        for name in names:
            if name in self._durables and name not in helper.ready:
                helper.ready[name] = None
                if helper.stores:
                    self._copy(node, name, now_ms)
                if name in self._unready and self._is_ready(name):
                    del self._unready[name]
                    self._emit(MirrorWork(SayReady(name)))

    def on_suspended(self, message: MirrorSuspended) -> None:
        """Nobody waited for subscriptions any more, since this node was away for so long."""
        names = tuple(name for name in message.names if name in self._durables)
        if names:
            self._emit(MirrorWork(NoteGap(names, message.since_ms)))
        for name in filter(self._recreating.__contains__, message.names):
            before_ms = self._recreating[name]
            since_ms = message.since_ms if before_ms is None else min(before_ms, message.since_ms)
            self._recreating[name] = since_ms

    def _copy(self, node: str, name: str, now_ms: int) -> None:
        """Let a mirror have what the consumer of a subscription has not taken."""
        self._walks.begin(WalkKey(node, self._me, name), now_ms, stays=False)

    def on_all_said(self, node: str, now_ms: int) -> None:
        """A node has gone through all that it holds for this one.

        If it is a former mirror, the present ones get that, too, before the other may forget it.
        """
        if self._former.get(node) is False:
            self._former[node] = True
            for mirror in self._nodes(stores=True):
                for name in self._helpers[mirror].ready:
                    self._copy(mirror, name, now_ms)

    # --- time ----------------------------------------------------------------------------------

    def on_tick(self, now_ms: int) -> None:
        """Choose, look for those that are lost, let former ones go, keep nobody waiting."""
        for name, until_ms in list(self._unready.items()):
            if now_ms >= until_ms:
                del self._unready[name]
                self._emit(Drop("a durable subscription is ready without its mirror"))
                self._emit(MirrorWork(SayReady(name)))
        if not self._durables:
            return
        self._choose(now_ms)
        if self._replay_ms is not None and now_ms >= self._replay_ms:
            self._replay_ms = None
            self._emit(TellOverlay(ReplayWanted(0)))
        if self._told != self._mark:
            self._told = self._mark
            self._tell_members()
        self._emit(MirrorWork(ReadMark()))
        if now_ms >= self._dial_ms:
            away = [node for node in self._helpers if node not in self._links]
            tick_ms = self._settings.tick_ms
            pause_ms = min(2 * self._pause_ms or tick_ms, DIAL_TICKS_MAX * tick_ms)
            self._pause_ms = pause_ms if away else 0
            self._dial_ms = now_ms + self._pause_ms
            for node in away:
                self._emit(Connect(node))
        for node, until_ms in list(self._lingering.items()):
            if now_ms >= until_ms:
                del self._lingering[node]
        self._let_former_go(now_ms)

    def _let_former_go(self, now_ms: int) -> None:
        """Let former mirrors forget what the present ones have."""
        mirrors = self._nodes(stores=True)
        for node in mirrors:
            helper = self._helpers[node]
            is_behind = len(helper.ready) < len(self._durables) or self._walks.is_busy(node)
            if helper.away_ms is not None or is_behind:
                return
        if len(mirrors) < self._settings.copies - 1:
            return
        for node, has_said_all in list(self._former.items()):
            if has_said_all and node in self._links:
                del self._former[node]
                self._linger(node, now_ms)
                if self._links.counts_copies(node):
                    # It goes on watching: it has to know whom to turn to when this node is away.
                    self._send(node, self._recruit(_Helper(False, now_ms), ()))
                self._send(node, MirrorEnded(()))
