"""The mirror's side: looking after durable subscriptions of other nodes.

While a home is out of reach, it is dialled again and again. When it is linked, it is offered what
is looked after, and all that is retained for it is gone through. A home that was not seen for very
long is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, KeysView, Mapping
from dataclasses import dataclass
from typing import Any, Final

from peersub.filters.filter import Filter
from peersub.overlays.core.effects import Connect, Drop, Effect
from peersub.overlays.core.messages import Message
from peersub.overlays.core.mirror_home import parts_of
from peersub.overlays.core.mirror_keeper import MirrorKeeper
from peersub.overlays.core.mirror_messages import (
    MirrorOffer,
    MirrorReady,
    MirrorWanted,
    NamedFilter,
)
from peersub.overlays.core.mirror_settings import MirrorSettings
from peersub.overlays.core.mirror_walks import WalkKey, Walks

__all__ = ["MirrorSide", "Mirrored"]

DIALLED_AT_ONCE: Final = 8
"""Homes out of reach that are dialled at a tick; the others have their turn at the next."""


@dataclass(frozen=True, slots=True)
class Mirrored:
    """A subscription of another node that is looked after here."""

    home: str
    epoch: str
    name: str
    filter: Filter


@dataclass(slots=True)
class _Duty:
    mirrored: Mirrored
    is_served: bool = False


class MirrorSide:
    """The homes that a node is the mirror of; `known` ones it was before it started again."""

    def __init__(
        self,
        settings: MirrorSettings,
        keeper: MirrorKeeper,
        walks: Walks,
        linked: Callable[[], KeysView[str]],
        send: Callable[[str, Message], None],
        emit: Callable[[Effect], None],
        known: Iterable[Mirrored],
    ) -> None:
        self._settings = settings
        self._keeper = keeper
        self._walks = walks
        self._linked = linked
        self._send = send
        self._emit = emit
        self._homes: dict[str, dict[str, _Duty]] = {}
        self._away_since_ms: dict[str, int] = {}
        for each in known:
            self._homes.setdefault(each.home, {})[each.name] = _Duty(each)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is looked after."""
        return not self._homes

    def looks_after(self, home: str) -> bool:
        """Whether something of that node is."""
        return home in self._homes

    def describe(self) -> Mapping[str, Any]:
        """How many subscriptions of which node."""
        return {home: len(self._homes[home]) for home in sorted(self._homes)}

    # --- links ---------------------------------------------------------------------------------

    def connected(self, home: str, now_ms: int) -> None:
        """A link is up: offer what there is."""
        duties = self._homes.get(home)
        self._away_since_ms.pop(home, None)
        if duties is None:
            return
        by_epoch: dict[str, list[NamedFilter]] = {}
        for name, duty in duties.items():
            offered = NamedFilter(name, duty.mirrored.filter)
            by_epoch.setdefault(duty.mirrored.epoch, []).append(offered)
        for epoch, subscriptions in by_epoch.items():
            for part in parts_of(subscriptions):
                self._send(home, MirrorOffer(epoch, part))
        self._walks.begin(WalkKey(home, home, ""), now_ms, stays=True)

    def lost(self, home: str, now_ms: int) -> None:
        """A link is gone."""
        if home in self._homes:
            self._away_since_ms[home] = now_ms

    # --- what homes say ------------------------------------------------------------------------

    def on_wanted(self, home: str, message: MirrorWanted, now_ms: int) -> None:
        """Look after these."""
        duties = self._homes.setdefault(home, {})
        changed: list[NamedFilter] = []
        ready: list[str] = []
        for each in message.subscriptions:
            wanted = Mirrored(home, message.epoch, each.name, each.filter)
            known = duties.get(each.name)
            is_same = known is not None and known.mirrored.filter.digest == each.filter.digest
            if known is None or not is_same or known.mirrored.epoch != message.epoch:
                changed.append(each)
            is_served = known is not None and is_same and known.is_served
            duties[each.name] = _Duty(wanted, is_served)
            if is_served:
                ready.append(each.name)
        if changed:
            self._keeper.look_after(home, message.epoch, changed)
        if ready:
            self._send(home, MirrorReady(tuple(ready)))
        if WalkKey(home, home, "") not in self._walks:
            self._walks.begin(WalkKey(home, home, ""), now_ms, stays=True)

    def served(self, home: str, name: str) -> None:
        """The overlay serves the mirror's own subscription."""
        duty = self._homes.get(home, {}).get(name)
        if duty is not None and not duty.is_served:
            duty.is_served = True
            self._send(home, MirrorReady((name,)))

    def on_ended(self, home: str, names: tuple[str, ...]) -> None:
        """Look after these no more; none means all."""
        duties = self._homes.get(home, {})
        gone = [name for name in names or tuple(duties) if duties.pop(name, None) is not None]
        if gone:
            self._keeper.let_go(home, gone)
        if home in self._homes and not duties:
            del self._homes[home]
            self._away_since_ms.pop(home, None)
            self._walks.end(home, home)

    def on_released(self, home: str, name: str, event_ids: tuple[str, ...]) -> None:
        """The consumer has these."""
        if name in self._homes.get(home, {}):
            self._keeper.release(home, name, event_ids)

    # --- time ----------------------------------------------------------------------------------

    def on_tick(self, now_ms: int) -> None:
        """Dial homes that are out of reach; give up those that are for ever."""
        linked = self._linked()
        away = [home for home in self._homes if home not in linked]
        for home in away:
            since_ms = self._away_since_ms.setdefault(home, now_ms)
            if now_ms - since_ms >= self._settings.horizon_ms:
                self._emit(Drop("subscriptions of a node that was not seen for too long"))
                self.on_ended(home, ())
        turn = now_ms // self._settings.tick_ms * DIALLED_AT_ONCE
        for place in range(min(DIALLED_AT_ONCE, len(away))):
            home = away[(turn + place) % len(away)]
            if home in self._homes:
                self._emit(Connect(home))
