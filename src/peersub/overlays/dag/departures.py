"""Leaving a layer so that nothing is lost: not an event, and not the layer's coherence.

A node stays in a layer that no subscription of it needs for a while (`linger_ms`), and then goes in
steps:

1. If others would turn to it (the directory lists it, or the part is named after it), a neighbour
   that stays announces itself in its place. The last member withdraws the layer.
2. It tells its neighbours of each other. Each links up with the next one of them, and agrees. Two
   neighbours do not leave at once: the smaller one goes first.
3. When it is on turn it passes on what it has, and drops its edges in place of turning them.

Law: in step 3 it holds all tokens, so nothing is on its way to it; and whatever its
neighbours say after that takes the edges of step 2, which are up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from peersub.overlays.core.draws import draw
from peersub.overlays.core.identity import PeerId
from peersub.overlays.dag.layer import Layer
from peersub.overlays.dag.messages import (
    Inherit,
    Inherited,
    Label,
    LeaveOk,
    LeaveWait,
    Leaving,
    LinkDown,
)

if TYPE_CHECKING:
    from peersub.overlays.dag.peer import DagPeer

__all__ = ["Departures", "Stage"]

ATTEMPT_MS: Final = 10_000
"""How long neighbours have to agree before they are asked again."""


class Stage(IntEnum):
    """How far a node is out of a layer."""

    LINGERING = 0
    HANDING_OVER = 1
    ASKING = 2
    READY = 3
    WITHDRAWING = 4


@dataclass(slots=True)
class _Departure:
    due_ms: int
    """When the next step is due, if nothing happens before."""
    stage: Stage = Stage.LINGERING
    began_ms: int = 0
    attempt: int = 0
    heir: PeerId | None = None
    tried: dict[PeerId, None] = field(default_factory=dict)
    waiting: dict[PeerId, None] = field(default_factory=dict)


class Departures:
    """The layers that a peer is about to leave, and the departures of its neighbours."""

    def __init__(self, peer: DagPeer) -> None:
        self._peer = peer
        self._departures: dict[str, _Departure] = {}
        self._owed: dict[str, dict[tuple[PeerId, PeerId], int]] = {}
        """Per layer: who leaves, with whom an edge is to be up first, and which attempt it is."""
        self._heirs: dict[str, dict[PeerId, None]] = {}
        """Per layer, those in whose place this member announces itself."""
        self._attempts = 0

    def stage(self, layer: Layer) -> Stage | None:
        """How far the node is out of the layer; None if it stays."""
        departure = self._departures.get(layer.name)
        return None if departure is None else departure.stage

    def is_going(self, layer: Layer) -> bool:
        """Whether the member takes no edges any more."""
        departure = self._departures.get(layer.name)
        return departure is not None and departure.stage >= Stage.ASKING

    def needs_tending(self, layer: Layer) -> bool:
        """Whether something is to be done or tried again."""
        return layer.name in self._departures or layer.name in self._owed

    # --- one's own -----------------------------------------------------------------------------

    def linger(self, layer: Layer) -> None:
        """No subscription needs the layer any more."""
        if layer.name not in self._departures:
            due_ms = self._peer.now_ms + self._peer.settings.linger_ms
            self._departures[layer.name] = _Departure(due_ms)
            self._peer.tend_later(layer)

    def stay(self, layer: Layer) -> None:
        """A subscription needs the layer again."""
        departure = self._departures.get(layer.name)
        if departure is not None and departure.stage is not Stage.WITHDRAWING:
            del self._departures[layer.name]

    def forget(self, layer: Layer) -> None:
        """The node has left."""
        self._departures.pop(layer.name, None)
        self._owed.pop(layer.name, None)
        self._heirs.pop(layer.name, None)

    def tend(self, layer: Layer) -> None:
        """Take the next step, if it is due."""
        self._link_up_as_owed(layer)
        departure = self._departures.get(layer.name)
        peer = self._peer
        if departure is None or departure.due_ms > peer.now_ms:
            return
        if not layer.is_member:
            peer.leave_layer(layer)
            return
        if departure.stage is Stage.LINGERING:
            departure.stage = Stage.HANDING_OVER
            departure.began_ms = peer.now_ms
        if departure.stage is not Stage.WITHDRAWING:
            self._step(layer, departure)

    def _step(self, layer: Layer, departure: _Departure) -> None:
        peer = self._peer
        departure.stage = Stage.HANDING_OVER
        departure.due_ms = peer.now_ms + peer.settings.tend_ms
        if peer.now_ms - departure.began_ms > peer.settings.depart_ms:
            peer.leave_layer(layer, tuple(sorted(layer.edges)))
        elif peer.repair.is_due(layer) or layer.forming or layer.offers:
            return  # first things first
        elif not layer.edges:
            departure.stage = Stage.WITHDRAWING
            assert layer.label is not None
            peer.membership.withdraw(layer.name, layer.label, layer)
        elif self._is_relied_on(layer):
            self._hand_over(layer, departure)
        else:
            self._ask(layer, departure)

    def _is_relied_on(self, layer: Layer) -> bool:
        me = self._peer.me
        return layer.is_named_after(me) or self._peer.directory.lists(layer.name, me)

    def _hand_over(self, layer: Layer, departure: _Departure) -> None:
        """Ask the neighbours, one after the other, to be the steward."""
        if departure.heir in layer.edges:
            return
        left = [each for each in sorted(layer.edges) if each not in departure.tried]
        if not left:
            departure.tried.clear()  # all are leaving: let them go first
            return
        departure.heir = left[0]
        departure.tried[left[0]] = None
        self._peer.send(left[0], Inherit(layer.name))

    def on_inherited(self, layer: Layer, sender: PeerId, message: Inherited) -> None:
        """A neighbour is the steward now, and all know; or it cannot be."""
        departure = self._departures.get(layer.name)
        if departure is None or departure.heir != sender:
            return
        departure.heir = None
        if departure.stage is Stage.HANDING_OVER:
            self._step(layer, departure)

    def _ask(self, layer: Layer, departure: _Departure) -> None:
        peer = self._peer
        self._attempts += 1
        departure.stage = Stage.ASKING
        departure.attempt = self._attempts
        departure.due_ms = peer.now_ms + ATTEMPT_MS
        for other in (*layer.wishes, *layer.forming):
            peer.send(other, LinkDown(layer.name, True))
        for other in (*layer.wishes, *layer.forming):
            layer.drop(other)
        # Another order each time: two that cannot link up need not be next to each other.
        order = [(draw(peer.seed, "dag/leaving", self._attempts, *o), o) for o in layer.edges]
        others = tuple(other for _, other in sorted(order))
        departure.waiting = dict.fromkeys(others)
        for other in others:
            peer.send(other, Leaving(layer.name, departure.attempt, others))

    def on_leave_ok(self, layer: Layer, sender: PeerId, message: LeaveOk) -> None:
        """A neighbour agrees."""
        departure = self._departures.get(layer.name)
        if departure is None or departure.attempt != message.attempt:
            return
        departure.waiting.pop(sender, None)
        if departure.stage is Stage.ASKING and not departure.waiting:
            departure.stage = Stage.READY
            layer.is_pressed = True
            self._peer.touch(layer)

    def on_leave_wait(self, layer: Layer, sender: PeerId, message: LeaveWait) -> None:
        """A neighbour goes first."""
        departure = self._departures.get(layer.name)
        if departure is not None and departure.attempt == message.attempt:
            self._step_back(departure)

    def _step_back(self, departure: _Departure) -> None:
        if departure.stage in (Stage.ASKING, Stage.READY):
            departure.stage = Stage.HANDING_OVER
            departure.attempt = 0
            departure.due_ms = self._peer.now_ms + self._peer.settings.tend_ms

    def may_go(self, layer: Layer) -> bool:
        """Whether the coming turn is the last one."""
        departure = self._departures.get(layer.name)
        return departure is not None and departure.stage is Stage.READY

    def edges_changed(self, layer: Layer) -> None:
        """What the neighbours agreed to is no longer what there is."""
        departure = self._departures.get(layer.name)
        if departure is not None:
            self._step_back(departure)

    def withdrawn(self, layer: Layer) -> None:
        """All nodes know that the layer is no more."""
        if self._peer.layers.get(layer.name) is layer and layer.name in self._departures:
            if layer.edges or layer.forming or layer.offers:
                # Somebody came after all, and was taken in.
                del self._departures[layer.name]
                self._peer.membership.announce(layer)
                if not self._peer.membership.is_needed(layer):
                    self.linger(layer)
            else:
                self._peer.leave_layer(layer)

    # --- those of neighbours -------------------------------------------------------------------

    def on_inherit(self, layer: Layer | None, sender: PeerId, message: Inherit) -> None:
        """A neighbour wants this member to be the steward in its place."""
        peer = self._peer
        if layer is None or not layer.is_member or layer.name in self._departures:
            peer.send(sender, Inherited(message.layer, False))
            return
        assert layer.label is not None
        self._heirs.setdefault(layer.name, {})[sender] = None
        gone = Label(layer.label.stamp, sender)
        peer.repair.rename(layer, Label(layer.label.stamp + 1, peer.me))
        peer.membership.announce(layer, gone)

    def announced(self, layer: Layer) -> None:
        """All nodes know of this member."""
        for other in self._heirs.pop(layer.name, ()):
            self._peer.send(other, Inherited(layer.name, True))

    def on_leaving(self, layer: Layer, sender: PeerId, message: Leaving) -> None:
        """A neighbour leaves: link up with the next of its neighbours, then agree."""
        peer = self._peer
        departure = self._departures.get(layer.name)
        if departure is not None and departure.stage in (Stage.ASKING, Stage.READY):
            if peer.me < sender:
                peer.send(sender, LeaveWait(layer.name, message.attempt))
                return
            self._step_back(departure)
        place = message.others.index(peer.me) + 1 if peer.me in message.others else 0
        after = message.others[place] if place < len(message.others) else None
        owed = self._owed.pop(layer.name, {})
        owed = {pair: attempt for pair, attempt in owed.items() if pair[0] != sender}
        if owed:
            self._owed[layer.name] = owed
        if after is None or after == peer.me or after in layer.edges:
            peer.send(sender, LeaveOk(layer.name, message.attempt))
            return
        owed[(sender, after)] = message.attempt
        self._owed[layer.name] = owed
        peer.linking.wish(layer, after, must=True)
        peer.tend_later(layer)

    def edge_up(self, layer: Layer, other: PeerId) -> None:
        """An edge that somebody waits for may be there."""
        owed = self._owed.get(layer.name)
        if owed:
            for (leaver, wanted), attempt in list(owed.items()):
                if wanted == other:
                    self._agree(layer, owed, leaver, wanted, attempt)

    def _agree(
        self,
        layer: Layer,
        owed: dict[tuple[PeerId, PeerId], int],
        leaver: PeerId,
        wanted: PeerId,
        attempt: int,
    ) -> None:
        del owed[(leaver, wanted)]
        if not owed:
            self._owed.pop(layer.name, None)
        if leaver in layer.edges:
            self._peer.send(leaver, LeaveOk(layer.name, attempt))

    def gone(self, layer: Layer, other: PeerId) -> None:
        """Somebody is no member any more: no edge with it is to be waited for."""
        owed = self._owed.get(layer.name)
        if owed:
            for (leaver, wanted), attempt in list(owed.items()):
                if other in (leaver, wanted):
                    self._agree(layer, owed, leaver, wanted, attempt)
        departure = self._departures.get(layer.name)
        if departure is not None and departure.heir == other:
            departure.heir = None
        heirs = self._heirs.get(layer.name)
        if heirs is not None:
            heirs.pop(other, None)

    def _link_up_as_owed(self, layer: Layer) -> None:
        for leaver, wanted in list(self._owed.get(layer.name, ())):
            if leaver not in layer.edges:
                self.gone(layer, leaver)
            elif not self.is_going(layer):
                self._peer.linking.wish(layer, wanted, must=True)
