"""Whether a layer is in one piece, and what puts it together again.

Each connected part of a layer has a *label*, which all its members know. Where an edge joins two
parts the larger label spreads over both. A member that loses a neighbour cannot know whether its
part is still one: after a while it counts the part, by a wave that gives it a new label, unless
another who lost somebody did so meanwhile. When the wave is back it asks who should be in the same
part: the former steward, those whom the directory lists, and on the layer of everybody some of the
nodes that it knows. Whoever answers with another label gets an edge. If the one whom the directory
lists first is not left, it announces itself to all nodes in its place; other stewards of the layer
that hear of it link up with it. Nodes that were neighbours on the layer of everybody are tried now
and then, so that the sides of a partition find each other.

Invariant: at rest, two members of a layer that can reach each other over edges have one label.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from peersub.overlays.core.causes import Timer
from peersub.overlays.core.draws import draw, draw_share
from peersub.overlays.core.identity import PeerId
from peersub.overlays.dag.layer import Layer
from peersub.overlays.dag.messages import (
    Announce,
    Census,
    Label,
    LabelAsked,
    Labelled,
    LabelTold,
)
from peersub.overlays.dag.topics import EVERYBODY
from peersub.overlays.dag.waves import key_of
from peersub.overlays.semantic.hosting import ANY_LIFE

if TYPE_CHECKING:
    from peersub.overlays.dag.peer import DagPeer

__all__ = ["ASKED_AGAIN_MAX", "CHECK", "Repair"]

CHECK: Final = "dag/check"

ASKED_AGAIN_MAX: Final = 3
"""How often somebody of another, larger label is asked again before it gets an edge."""


@dataclass(slots=True)
class _Check:
    """The part of a layer is in doubt, or was counted and is compared with others."""

    due_ms: int
    """When to count, or to ask again."""
    label: Label | None = None
    """The label that the count gave the part."""
    rendezvous: Label | None = None
    """The label of the part before it was in doubt: its steward is asked."""
    is_back: bool = False
    """Whether the wave is back."""
    asked: dict[str, int] = field(default_factory=dict)
    """Nodes whose answer is open, and how often each was asked."""
    is_recheck: bool = False
    """Whether the part need not be counted, only be compared."""
    is_listed: bool = False
    """Whether the directory lists somebody first who is in the part, or was linked with it.

    Further lines may have been pushed out of the directories of others.
    """
    is_outdated: bool = False
    """Whether parts of the network have met since, so that there may be others to compare with."""


class Repair:
    """The parts of all layers of a peer."""

    def __init__(self, peer: DagPeer) -> None:
        self._peer = peer
        self._checks: dict[str, _Check] = {}
        self._numbers = 0

    def is_due(self, layer: Layer) -> bool:
        """Whether something is open about the part."""
        return layer.name in self._checks

    @property
    def is_idle(self) -> bool:
        """Whether no part is in doubt."""
        return not self._checks

    def forget(self, layer: Layer) -> None:
        """The member leaves."""
        self._checks.pop(layer.name, None)

    # --- doubt and counting --------------------------------------------------------------------

    def doubt(self, layer: Layer) -> None:
        """A neighbour is lost: the part may have come apart."""
        peer = self._peer
        if layer.label is None:
            return
        self._numbers += 1
        about = (layer.name, *peer.me, self._numbers)
        # The largest of three draws: of many who lost somebody few begin to count at first.
        share = max(draw_share(peer.seed, "dag/repair", *about, each) for each in range(3))
        delay_ms = int((0.5 + 3 * share) * peer.settings.repair_ms)
        before = self._checks.get(layer.name)
        if before is not None:
            # Somebody else is lost while the part is counted: nobody has asked that steward yet.
            layer.former_label = layer.former_label or before.rendezvous
        layer.former_label = layer.former_label or layer.label
        self._checks[layer.name] = _Check(peer.now_ms + delay_ms)
        peer.set_timer(Timer(CHECK, layer.name), delay_ms)

    def recheck(self) -> None:
        """Parts of the network have met: so may those of the layers of which this is a steward."""
        for layer in self._peer.layers.values():
            check = self._checks.get(layer.name)
            if check is not None:
                check.is_outdated = True
            elif layer.is_member and layer.is_named_after(self._peer.me):
                self._recheck_later(layer)

    def _recheck_later(self, layer: Layer) -> None:
        if layer.name not in self._checks and layer.name != EVERYBODY:
            due_ms = self._peer.now_ms + self._peer.settings.repair_ms
            self._checks[layer.name] = _Check(due_ms, is_recheck=True)
            self._peer.tend_later(layer)

    def tend(self, layer: Layer) -> None:
        """Do what is due."""
        check = self._checks.get(layer.name)
        if check is None or check.due_ms > self._peer.now_ms:
            return
        if layer.label is None:
            del self._checks[layer.name]
        elif check.is_recheck and layer.former_label is None:
            if layer.is_named_after(self._peer.me):
                check.label = layer.label
                check.is_recheck = False
                self._counted(layer, check, is_whole=True)
            else:
                del self._checks[layer.name]  # whoever it is named after sees to it
        elif check.label is None:
            if layer.former_label is None:
                del self._checks[layer.name]  # somebody else has counted
            else:
                self._count(layer, check)
        elif check.is_back:
            self._ask_again(layer, check)

    def _count(self, layer: Layer, check: _Check) -> None:
        peer = self._peer
        assert layer.label is not None
        label = check.label = Label(layer.label.stamp + 1, peer.me)
        check.rendezvous = layer.former_label
        layer.label = label
        layer.former_label = None
        check.due_ms = peer.now_ms + peer.settings.wish_ms

        def counted(is_whole: bool, _: Label | None) -> None:
            self._counted(layer, check, is_whole)

        wave = Census(layer.name, label)
        peer.waves.begin(wave, layer.edges, peer.now_ms, counted)
        peer.waves.settle(key_of(wave))

    def on_census(self, layer: Layer, sender: PeerId, wave: Census) -> None:
        """The part is counted; a smaller label than the member's is not taken."""
        peer = self._peer
        if peer.waves.hear(wave, sender, layer.edges, peer.now_ms):
            if layer.label is None or wave.label > layer.label:
                layer.label = wave.label
                layer.former_label = None
                self._renamed(layer)
            else:
                peer.send(sender, Labelled(layer.name, layer.label, layer.is_announced))
            peer.waves.settle(key_of(wave))

    def _counted(self, layer: Layer, check: _Check, is_whole: bool) -> None:
        if self._checks.get(layer.name) is not check:
            return
        if layer.label != check.label:
            del self._checks[layer.name]  # a larger label came: whoever gave it sees to the rest
            return
        if not is_whole:
            self.doubt(layer)
            return
        check.is_back = True
        nodes = {} if check.rendezvous is None else {check.rendezvous.steward.node: None}
        if layer.name == EVERYBODY:
            nodes |= dict.fromkeys(self._peer.acquaintances(self._peer.settings.probes))
        else:
            listed = self._peer.directory.contacts(layer.name)
            nodes |= {each.node: None for each in listed}
            check.is_listed = listed[:1] == [self._peer.me]
        nodes.pop(self._peer.me.node, None)
        for node in nodes:
            check.asked[node] = 0
            self._ask(layer, node)
        self._conclude(layer, check)

    # --- comparing -----------------------------------------------------------------------------

    def ask(self, layer: Layer, node: str) -> None:
        """Compare the label with that of a node, outside of a count."""
        self._ask(layer, node)

    def _ask(self, layer: Layer, node: str) -> None:
        assert layer.label is not None
        self._peer.send(PeerId(node, ANY_LIFE), LabelAsked(layer.name, layer.label))

    def _ask_again(self, layer: Layer, check: _Check) -> None:
        """Those who do not answer in time are gone; those with a larger label may have told us."""
        for node, times in list(check.asked.items()):
            if times == 0:
                del check.asked[node]
            else:
                self._ask(layer, node)
        check.due_ms = self._peer.now_ms + self._peer.settings.wish_ms
        self._conclude(layer, check)

    def on_label_asked(self, layer: Layer | None, sender: PeerId, message: LabelAsked) -> None:
        """Say which part this member is in."""
        label = None if layer is None or not layer.is_member else layer.label
        if self._peer.is_leaving:
            label = None
        is_sure = layer is not None and layer.former_label is None
        self._peer.send(sender, LabelTold(message.layer, label, is_sure))

    def on_label_told(self, layer: Layer, sender: PeerId, message: LabelTold) -> None:
        """Link up with whoever is in another part."""
        peer = self._peer
        label = message.label
        check = self._checks.get(layer.name)
        if label is None:
            if layer.name != EVERYBODY:
                peer.directory.forget(layer.name, sender)
        elif label != layer.label:
            larger = layer.label is not None and label > layer.label
            times = 0 if check is None else check.asked.get(sender.node, 0)
            is_merging = any(wish.merges for wish in layer.wishes.values())
            if not is_merging and (check is None or not larger or times >= ASKED_AGAIN_MAX):
                peer.linking.wish(layer, sender, must=True, merges=True)
            if check is not None:
                # It may be of the same part, and the news on its way, or soon be: ask again.
                check.asked[sender.node] = times + 1
                check.due_ms = peer.now_ms + peer.settings.repair_ms
                return
            if is_merging:
                self._recheck_later(layer)
        else:
            if message.is_sure:
                peer.same_part(layer, sender)
            if check is not None and peer.directory.contacts(layer.name)[:1] == [sender]:
                check.is_listed = True
        if check is not None:
            check.asked.pop(sender.node, None)
            self._conclude(layer, check)

    def lost(self, layer: Layer, node: str) -> None:
        """A node that was asked cannot be reached."""
        check = self._checks.get(layer.name)
        if check is not None and check.asked.pop(node, None) is not None:
            self._conclude(layer, check)

    def _conclude(self, layer: Layer, check: _Check) -> None:
        if not check.is_back or check.asked or self._checks.get(layer.name) is not check:
            return
        del self._checks[layer.name]
        self._peer.touch(layer)
        if layer.name == EVERYBODY:
            return
        if check.is_listed:
            self.announced(layer)
        else:
            self._peer.membership.announce(layer)
        if check.is_outdated:
            self._recheck_later(layer)

    # --- labels --------------------------------------------------------------------------------

    def meet(self, layer: Layer, other: PeerId, label: Label | None, is_announced: bool) -> None:
        """There is a new edge: the larger label spreads over the part of the smaller one."""
        if label is None:
            return
        if layer.label is None or label > layer.label:
            self._adopt(layer, label, is_announced, other)
        elif label < layer.label or (layer.is_announced and not is_announced):
            self._peer.send(other, Labelled(layer.name, layer.label, layer.is_announced))
        elif is_announced and not layer.is_announced:
            self._adopt(layer, label, is_announced, other)

    def on_labelled(self, layer: Layer, sender: PeerId, message: Labelled) -> None:
        """A neighbour's part has this name."""
        if sender in layer.edges:
            self.meet(layer, sender, message.label, message.is_announced)

    def _adopt(self, layer: Layer, label: Label, is_announced: bool, source: PeerId) -> None:
        is_news = label != layer.label
        layer.label = label
        layer.is_announced = is_announced
        self._tell(layer, (peer for peer in layer.edges if peer != source))
        if not is_news:
            self._peer.membership.look(layer)
            return
        self._renamed(layer)
        if layer.name == EVERYBODY:
            self.recheck()

    def _renamed(self, layer: Layer) -> None:
        """Those with whom edges are wanted since they are in other parts may be in this one now."""
        for other in self._peer.linking.give_up_merging(layer):
            self._ask(layer, other.node)
        self._peer.membership.adopted(layer)

    def rename(self, layer: Layer, label: Label) -> None:
        """Give the part another name."""
        layer.label = label
        self._tell(layer, layer.edges)

    def announced(self, layer: Layer) -> None:
        """All nodes know of the part: so do its members now."""
        if not layer.is_announced:
            layer.is_announced = True
            self._tell(layer, layer.edges)
            self._peer.membership.look(layer)

    def _tell(self, layer: Layer, peers: Iterable[PeerId]) -> None:
        assert layer.label is not None
        message = Labelled(layer.name, layer.label, layer.is_announced)
        for each in peers:
            self._peer.send(each, message)

    def on_announce(self, sender: PeerId, wave: Announce) -> None:
        """Somebody says to all that it is a member of a layer, or that another is not."""
        peer = self._peer
        everybody = peer.layers[EVERYBODY]
        if not peer.waves.hear(wave, sender, everybody.edges, peer.now_ms):
            return
        peer.learn(everybody, (wave.origin,))
        peer.membership.note_announced(wave)
        peer.waves.settle(key_of(wave))

    def draw_order(self, nodes: Iterable[str], purpose: str) -> list[str]:
        """Nodes in an order of this peer's own."""
        peer = self._peer
        self._numbers += 1
        number = self._numbers
        return sorted(nodes, key=lambda node: draw(peer.seed, purpose, *peer.me, number, node))
