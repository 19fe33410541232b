"""The home's side of mirrors: which node looks after the durable subscriptions of this one.

One mirror looks after all of them. It is drawn among the linked nodes, and kept while it can be
reached. A node that has come back takes the one that offers itself because it did so before. A
mirror that is out of reach for too long, or whose link the overlay closes again and again, is
replaced; when the former one shows up, it first hands over what it has, and is then told to forget
it.

A node that has lost its log (another *epoch*) takes the subscriptions over that mirrors offer; one
that has its log knows better: what it does not have was ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, KeysView
from typing import Final

from peersub.filters.filter import Filter
from peersub.overlays.core.draws import draw
from peersub.overlays.core.effects import Connect, Drop, Effect
from peersub.overlays.core.messages import Message
from peersub.overlays.core.mirror_facts import DurableKept
from peersub.overlays.core.mirror_keeper import MirrorKeeper
from peersub.overlays.core.mirror_messages import (
    MirrorEnded,
    MirrorOffer,
    MirrorReleased,
    MirrorWanted,
    NamedFilter,
)
from peersub.overlays.core.mirror_settings import MirrorSettings
from peersub.overlays.core.mirror_walks import WalkKey, Walks

__all__ = ["IDS_PER_MESSAGE_MAX", "SUBSCRIPTIONS_PER_MESSAGE_MAX", "HomeSide", "parts_of"]

SUBSCRIPTIONS_PER_MESSAGE_MAX: Final = 8
"""As many of the largest filters as a frame has room for."""
IDS_PER_MESSAGE_MAX: Final = 4_096
LOSSES_MAX: Final = 3
"""How often the link to a mirror may be lost before a steadier one is looked for."""
STEADY_MS: Final = 60_000
"""A link that has lasted so long is steady: earlier losses are forgotten."""
FORMER_MAX: Final = 1_024
"""Former mirrors that are remembered until they are told to forget."""


def parts_of(
    subscriptions: Iterable[NamedFilter], size: int = SUBSCRIPTIONS_PER_MESSAGE_MAX
) -> Iterable[tuple[NamedFilter, ...]]:
    """The same in parts that a message holds."""
    listed = list(subscriptions)
    for start in range(0, len(listed), size):
        yield tuple(listed[start : start + size])


class HomeSide:
    """What a node does so that its durable subscriptions are looked after.

    Args:
        me: the name of this node.
        epoch: of its log.
        linked: the nodes that offer to be mirrors and that there are links to.
        send: takes messages for one of those.
    """

    def __init__(
        self,
        me: str,
        epoch: str,
        settings: MirrorSettings,
        keeper: MirrorKeeper,
        walks: Walks,
        linked: Callable[[], KeysView[str]],
        send: Callable[[str, Message], None],
        emit: Callable[[Effect], None],
    ) -> None:
        self._me = me
        self._epoch = epoch
        self._settings = settings
        self._keeper = keeper
        self._walks = walks
        self._linked = linked
        self._send = send
        self._emit = emit
        self.mirror: str | None = None
        self._durables: dict[str, Filter] = {}
        self._mirrored: dict[str, None] = {}
        """Names that the present mirror gets the events of."""
        self._unready: dict[str, int] = {}
        """Names that the overlay serves, and that wait for the mirror: until when."""
        self._lost_ms: int | None = None
        self._linked_ms = 0
        self._losses = 0
        self._chosen_before: dict[str, None] = {}
        self._choose_from_ms = 0
        self._former: dict[str, bool] = {}
        """Nodes that hold something, and are no mirror any more: whether they said all."""

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to look after."""
        return not self._durables

    @property
    def names(self) -> tuple[str, ...]:
        """The durable subscriptions, in the order in which they came."""
        return tuple(self._durables)

    @property
    def mirrored(self) -> int:
        """How many of them the mirror looks after."""
        return len(self._mirrored)

    def waits_for(self, name: str) -> str | None:
        """The node whose answer a subscription needs to be ready."""
        return self.mirror if name in self._unready else None

    # --- what happens on this node -------------------------------------------------------------

    def kept(self, fact: DurableKept, now_ms: int) -> None:
        """There is a durable subscription, or its filter is another."""
        known = self._durables.get(fact.name)
        if known is not None and known.digest == fact.filter.digest:
            return
        if fact.restored and not self._durables:
            self._choose_from_ms = now_ms + self._settings.grace_ms
        self._durables[fact.name] = fact.filter
        self._mirrored.pop(fact.name, None)
        if self.mirror is None:
            self._choose(now_ms)
        elif self._is_linked(self.mirror):
            self._ask((NamedFilter(fact.name, fact.filter),))

    def ended(self, name: str) -> None:
        """A durable subscription is no more."""
        self._unready.pop(name, None)
        self._mirrored.pop(name, None)
        if self._durables.pop(name, None) is not None and self._is_linked(self.mirror):
            self._send(self.mirror or "", MirrorEnded((name,)))

    def served(self, name: str, now_ms: int) -> None:
        """The overlay serves it; it is ready when the mirror gets its events, too."""
        nobody = self.mirror is None and not self._linked()
        if name in self._mirrored or nobody or name not in self._durables:
            self._keeper.ready(name)
        else:
            self._unready[name] = now_ms + self._settings.ready_ms

    def taken(self, name: str, event_ids: tuple[str, ...]) -> None:
        """A consumer has taken events. A mirror that does not hear of it will ask."""
        if self.mirror is not None and self._is_linked(self.mirror):
            self.release(self.mirror, name, event_ids)

    def release(self, node: str, name: str, event_ids: tuple[str, ...]) -> None:
        """Let a node that holds events forget them."""
        for start in range(0, len(event_ids), IDS_PER_MESSAGE_MAX):
            part = event_ids[start : start + IDS_PER_MESSAGE_MAX]
            self._send(node, MirrorReleased(name, part))

    # --- links ---------------------------------------------------------------------------------

    def connected(self, node: str, now_ms: int) -> None:
        """A link is up."""
        if node == self.mirror:
            # It may be another life of it, which knows nothing: all is asked for anew.
            self._lost_ms = None
            self._linked_ms = now_ms
            self._mirrored.clear()
            self._ask_for_all()
        elif self.mirror is None and self._durables:
            self._choose(now_ms)

    def lost(self, node: str, now_ms: int) -> None:
        """A link is gone."""
        if node == self.mirror and self._lost_ms is None:
            self._lost_ms = now_ms
            is_steady = now_ms - self._linked_ms >= STEADY_MS
            self._losses = 1 if is_steady else self._losses + 1

    def _is_linked(self, node: str | None) -> bool:
        return node is not None and node in self._linked()

    # --- the choice ----------------------------------------------------------------------------

    def _choose(self, now_ms: int) -> None:
        if now_ms < self._choose_from_ms:
            return
        candidates = [node for node in self._linked() if node != self.mirror]
        if not candidates:
            return
        fresh = [node for node in candidates if node not in self._chosen_before]
        if not fresh:
            self._chosen_before.clear()
        chosen = min(fresh or candidates, key=lambda node: draw(0, "mirror", self._me, node))
        self._take(chosen, now_ms)

    def _take(self, node: str, now_ms: int) -> None:
        """Have a mirror from now on, in place of the one before."""
        if self.mirror is not None:
            self._note_former(self.mirror, has_said_all=False)
        self._former.pop(node, None)
        self._chosen_before[node] = None
        self.mirror = node
        self._lost_ms = None
        self._linked_ms = now_ms
        self._losses = 0
        self._mirrored.clear()
        self._ask_for_all()

    def _note_former(self, node: str, *, has_said_all: bool) -> None:
        self._former[node] = has_said_all
        if len(self._former) > FORMER_MAX:
            del self._former[next(iter(self._former))]

    def _ask_for_all(self) -> None:
        self._ask(NamedFilter(name, wanted) for name, wanted in self._durables.items())

    def _ask(self, subscriptions: Iterable[NamedFilter]) -> None:
        assert self.mirror is not None
        for part in parts_of(subscriptions):
            self._send(self.mirror, MirrorWanted(self._epoch, part))

    # --- what mirrors say ----------------------------------------------------------------------

    def on_offer(self, node: str, message: MirrorOffer, now_ms: int) -> None:
        """A node has looked after subscriptions of this one."""
        unknown = [each for each in message.subscriptions if each.name not in self._durables]
        if unknown and message.epoch != self._epoch:
            self._keeper.recreate(unknown)
        elif unknown:
            self._send(node, MirrorEnded(tuple(each.name for each in unknown)))
            if len(unknown) == len(message.subscriptions):
                return
        if self.mirror is None:
            self._take(node, now_ms)
        elif node != self.mirror:
            self._note_former(node, has_said_all=False)

    def on_ready(self, node: str, names: Iterable[str], now_ms: int) -> None:
        """A mirror gets the events of these; what came before goes over as well."""
        if node != self.mirror:
            return
        for name in names:
            if name in self._durables and name not in self._mirrored:
                self._mirrored[name] = None
                self._copy(name, now_ms)
                if self._unready.pop(name, None) is not None:
                    self._keeper.ready(name)

    def _copy(self, name: str, now_ms: int) -> None:
        """Let the mirror have what the consumer of a subscription has not taken."""
        assert self.mirror is not None
        self._walks.begin(WalkKey(self.mirror, self._me, name), now_ms, stays=False)

    def on_all_said(self, node: str, now_ms: int) -> None:
        """A node has gone through all that it holds for this one.

        If it is a former mirror, the present one gets that, too, before the other may forget it.
        """
        if self._former.get(node) is False:
            self._former[node] = True
            for name in self._mirrored:
                self._copy(name, now_ms)

    # --- time ----------------------------------------------------------------------------------

    def on_tick(self, now_ms: int) -> None:
        """Choose, look for the one that is lost, let former ones go, keep nobody waiting."""
        for name, until_ms in list(self._unready.items()):
            if now_ms >= until_ms:
                del self._unready[name]
                self._emit(Drop("a durable subscription is ready without its mirror"))
                self._keeper.ready(name)
        if not self._durables:
            return
        if self.mirror is None:
            self._choose(now_ms)
        elif self._lost_ms is not None:
            is_over = now_ms - self._lost_ms >= self._settings.lost_ms
            if is_over or self._losses >= LOSSES_MAX:
                self._choose(now_ms)
            if self._lost_ms is not None:
                self._emit(Connect(self.mirror))
        self._let_former_go()

    def _let_former_go(self) -> None:
        """Let former mirrors forget what the present one has."""
        has_all = self._lost_ms is None and len(self._mirrored) == len(self._durables)
        if has_all and self.mirror is not None and not self._walks.is_busy(self.mirror):
            for node, has_said_all in list(self._former.items()):
                if has_said_all and self._is_linked(node):
                    del self._former[node]
                    self._send(node, MirrorEnded(()))
