"""The topic layers that a node is a member of: joining, founding, announcing, and being ready.

A node joins the layers that its subscriptions need. It asks a member that the directory lists, and
walks from there to a sink. If the directory knows nobody it founds the layer, alone, and announces
it by a wave over all nodes. Stewards of different parts of one layer hear of each other by their
waves: that of the smaller label links up with another, and holds the echo back until it has; that
of the larger label names itself in the echo. So when the wave of the largest is back every node
knows a member of the layer, all of whose members can reach each other.

A subscription is ready when its node is a member of all its layers and knows that they are
announced. From then on each event is published where it gets it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from peersub.overlays.core.effects import SubscriptionReady
from peersub.overlays.core.identity import PeerId
from peersub.overlays.dag.departures import Stage
from peersub.overlays.dag.layer import Layer
from peersub.overlays.dag.messages import Announce, Entry, Label, RequestVal
from peersub.overlays.dag.topics import EVERYBODY
from peersub.overlays.dag.waves import Key, key_of

if TYPE_CHECKING:
    from peersub.overlays.dag.peer import DagPeer

__all__ = ["Membership"]

REQUESTS_MAX: Final = 3
"""How often one member of a layer is asked in vain before the next one is."""


@dataclass(slots=True)
class _Joining:
    """On the way into a layer."""

    contact: PeerId | None = None
    asked: int = 0


@dataclass(slots=True)
class _Announcing:
    """The wave, and who leaves the layer when it is back."""

    key: Key
    gone: Label | None
    is_under_way: bool = True


class Membership:
    """The topic layers of a peer."""

    def __init__(self, peer: DagPeer) -> None:
        self._peer = peer
        self._needs: dict[str, dict[str, None]] = {}
        """Per layer, the subscriptions that need it."""
        self._layers_of: dict[str, tuple[str, ...]] = {}
        """Per subscription that is not ready, its layers."""
        self._joining: dict[str, _Joining] = {}
        self._announcing: dict[str, _Announcing] = {}
        self._merging: dict[str, PeerId] = {}
        """Per layer that this is a steward of, one with a larger label to link up with."""
        self._numbers = 0

    # --- subscriptions -------------------------------------------------------------------------

    def subscribe(self, name: str, layers: tuple[str, ...]) -> None:
        """A subscription needs these layers."""
        self._layers_of[name] = layers
        for layer_name in layers:
            if layer_name not in self._needs:
                self._peer.company.changed(layer_name, is_needed=True)
            self._needs.setdefault(layer_name, {})[name] = None
            self._need(layer_name)

    def unsubscribe(self, name: str, layers: tuple[str, ...]) -> None:
        """It needs them no more."""
        self._layers_of.pop(name, None)
        for layer_name in layers:
            needing = self._needs.get(layer_name)
            if needing is not None and needing.pop(name, name) is None and not needing:
                del self._needs[layer_name]
                self._peer.company.changed(layer_name, is_needed=False)
                layer = self._peer.layers.get(layer_name)
                if layer is not None:
                    self._peer.departures.linger(layer)

    def install(self, wanted: Mapping[str, tuple[str, ...]]) -> list[str]:
        """These subscriptions have always been ready; the layers that they need."""
        for name, layers in wanted.items():
            for layer_name in layers:
                self._needs.setdefault(layer_name, {})[name] = None
        return list(self._needs)

    def is_needed(self, layer: Layer) -> bool:
        """Whether a subscription needs the layer."""
        return layer.name in self._needs

    def needs(self, layer_name: str) -> bool:
        """Whether anybody here needs a layer of this name."""
        return layer_name in self._needs

    def needed(self) -> list[str]:
        """The layers that subscriptions need."""
        return list(self._needs)

    def look_at_subscription(self, name: str) -> None:
        """Say that it is ready, if it is and was not."""
        layers = self._layers_of.get(name)
        if layers is None or name not in self._peer.home.subscriptions:
            return
        if all(map(self._is_ready, layers)) and self._peer.is_stored(name):
            del self._layers_of[name]
            self._peer.emit(SubscriptionReady(name))

    def look(self, layer: Layer) -> None:
        """Something about a layer has changed."""
        if layer.is_announced and self._layers_of:
            for name in list(self._needs.get(layer.name, ())):
                self.look_at_subscription(name)

    def _is_ready(self, layer_name: str) -> bool:
        layer = self._peer.layers.get(layer_name)
        if layer is None or not layer.is_member or not layer.is_announced:
            return False
        # All nodes hear just now that there is no such layer: it is founded again after that.
        return self._peer.departures.stage(layer) is not Stage.WITHDRAWING

    def waiting_on(self, name: str) -> tuple[PeerId, ...]:
        """The peers whose answer a subscription needs."""
        peers: dict[PeerId, None] = {}
        everybody = self._peer.layers[EVERYBODY]
        for layer_name in self._layers_of.get(name, ()):
            if self._is_ready(layer_name):
                continue
            layer = self._peer.layers.get(layer_name)
            joining = self._joining.get(layer_name)
            announcing = self._announcing.get(layer_name)
            if layer is None or not everybody.is_member:
                peers.update(dict.fromkeys((*everybody.wishes, *everybody.edges)))
            elif announcing is not None:
                peers.update(dict.fromkeys(self._peer.waves.waiting_for(announcing.key)))
            elif layer.wishes or layer.offers:
                peers.update(dict.fromkeys((*layer.wishes, *layer.offers)))
            elif joining is not None and joining.contact is not None:
                peers[joining.contact] = None
            elif layer.label is not None and layer.label.steward != self._peer.me:
                peers[layer.label.steward] = None
        return tuple(sorted(peers))

    # --- joining and founding ------------------------------------------------------------------

    def _need(self, layer_name: str) -> None:
        layer = self._peer.layers.get(layer_name)
        if layer is not None:
            self._peer.departures.stay(layer)
            self.look(layer)
        else:
            layer = self._peer.layers[layer_name] = Layer(layer_name, self._peer.settings)
            self._joining[layer_name] = _Joining()
            self.join(layer)

    def begin(self) -> None:
        """The node has its place on the layer of everybody, and knows what others do."""
        for layer_name in list(self._joining):
            self.join(self._peer.layers[layer_name])

    def join(self, layer: Layer) -> None:
        """Ask a member, or found the layer if nobody is known."""
        peer = self._peer
        joining = self._joining.get(layer.name)
        if joining is None or not peer.knows_layers:
            return
        contacts = [each for each in peer.directory.contacts(layer.name) if each != peer.me]
        if joining.contact in contacts and joining.asked >= REQUESTS_MAX:
            peer.directory.forget(layer.name, joining.contact)
            contacts.remove(joining.contact)
        if not contacts:
            self._found(layer)
            return
        if joining.contact != contacts[0]:
            joining.contact, joining.asked = contacts[0], 0
        joining.asked += 1
        peer.send(contacts[0], RequestVal(layer.name, peer.me, ()))
        peer.tend_later(layer)

    def _found(self, layer: Layer) -> None:
        me = self._peer.me
        layer.label = Label(self._peer.directory.last_void(layer.name, me) + 1, me)
        self.became_member(layer)
        self.announce(layer)

    def became_member(self, layer: Layer) -> None:
        """The layer is founded, or the first edge is up."""
        layer.is_member = True
        if not layer.edges:
            layer.lid = self._peer.linking.draw_lid(layer)
        self._joining.pop(layer.name, None)

    def is_joining(self, layer: Layer) -> bool:
        """Whether the node is on its way into the layer."""
        return layer.name in self._joining

    def refused(self, layer: Layer, contact: PeerId) -> None:
        """Somebody is no member of the layer, or gone."""
        self._peer.directory.forget(layer.name, contact)
        joining = self._joining.get(layer.name)
        if joining is not None and joining.contact == contact and not layer.wishes:
            self.join(layer)

    def forget(self, layer: Layer) -> None:
        """The node has left the layer; if it is needed again meanwhile, it joins anew."""
        self._joining.pop(layer.name, None)
        self._announcing.pop(layer.name, None)
        self._merging.pop(layer.name, None)
        self._peer.waves.release(layer.name)
        if layer.name in self._needs:
            self._need(layer.name)

    # --- announcing ----------------------------------------------------------------------------

    def announce(self, layer: Layer, gone: Label | None = None) -> None:
        """Let all nodes know that this one is a member, and that another is not."""
        peer = self._peer
        assert layer.label is not None
        label = Label(layer.label.stamp, peer.me)
        before = self._announcing.get(layer.name)
        if gone is not None:
            # As at those who hear of it: else a line is pushed out for one that is void.
            peer.directory.withdraw(layer.name, gone)
        elif before is not None:
            gone = before.gone
        peer.directory.note(Entry(layer.name, label))
        self._numbers += 1
        wave = Announce(layer.name, peer.me, self._numbers, label, gone)
        announcing = self._announcing[layer.name] = _Announcing(key_of(wave), gone)

        def announced(is_whole: bool, larger: Label | None) -> None:
            if self._announcing.get(layer.name) is not announcing:
                return
            announcing.is_under_way = False
            if not is_whole:
                peer.tend_later(layer)
                return
            del self._announcing[layer.name]
            peer.departures.announced(layer)
            if not layer.is_named_after(peer.me):
                return  # it has linked up with another part, whose steward says when it is whole
            if larger is None:
                peer.repair.announced(layer)
            else:
                self._merge(layer, larger)

        peer.waves.begin(wave, peer.layers[EVERYBODY].edges, peer.now_ms, announced)
        peer.waves.settle(announcing.key)

    def note_announced(self, wave: Announce) -> None:
        """A wave comes by. If this is another steward of the layer, the two link up first."""
        peer = self._peer
        if wave.gone is not None:
            peer.directory.withdraw(wave.layer, wave.gone)
        if wave.label is None:
            return
        self.note(Entry(wave.layer, wave.label))
        layer = peer.layers.get(wave.layer)
        if layer is None or not layer.is_member or layer.label == wave.label:
            return
        if peer.departures.stage(layer) is Stage.WITHDRAWING:
            return
        if not layer.is_named_after(peer.me):
            return
        assert layer.label is not None
        if wave.label > layer.label:
            peer.waves.hold(key_of(wave), layer.name)
            self._merge(layer, wave.label)
        else:
            peer.waves.report(key_of(wave), layer.label)

    def _merge(self, layer: Layer, larger: Label) -> None:
        """Link up with the part of a larger label: one at a time, for it may know others."""
        if layer.name in self._merging:
            return
        if larger.steward in layer.edges:
            self._peer.repair.ask(layer, larger.steward.node)
        else:
            self._merging[layer.name] = larger.steward
            self._peer.linking.wish(layer, larger.steward, must=True, merges=True)

    def adopted(self, layer: Layer) -> None:
        """The part has another name. Who was its steward need not link up any more."""
        self._merging.pop(layer.name, None)
        self._peer.waves.release(layer.name)
        self.look(layer)

    def merging_ended(self, layer: Layer, other: PeerId) -> None:
        """A steward has linked up with another one, or cannot: it says again that it is there.

        Unless it is no steward any more. Its label may have become the larger one meanwhile, and
        there may be others whose waves it held back.
        """
        if self._merging.get(layer.name) == other:
            del self._merging[layer.name]
            self._peer.waves.release(layer.name)
            if layer.is_named_after(self._peer.me):
                self.announce(layer)

    def note(self, entry: Entry) -> bool:
        """A line for the directory. A steward of the layer compares labels with the other one."""
        peer = self._peer
        layer = peer.layers.get(entry.layer)
        steward = entry.label.steward
        if steward == peer.me and (layer is None or not layer.is_member):
            if entry.label.stamp > peer.directory.last_void(entry.layer, peer.me):
                self.withdraw(entry.layer, entry.label, None)
            return False
        return peer.directory.note(entry)

    def compare(self, entry: Entry) -> None:
        """A steward that hears of another one outside of a wave asks whether they are one part."""
        layer, me = self._peer.layers.get(entry.layer), self._peer.me
        if layer is None or not layer.is_member or not layer.is_named_after(me):
            return
        if entry.label.steward != me and entry.label.steward not in layer.edges:
            self._peer.repair.ask(layer, entry.label.steward.node)

    def compare_with(self, other: PeerId) -> None:
        """Somebody can be reached again: it may speak for other parts of layers than this one."""
        for name in self._peer.layers:
            for label in self._peer.directory.labels(name):
                if label.steward == other:
                    self.compare(Entry(name, label))

    def withdraw(self, layer_name: str, label: Label, layer: Layer | None) -> None:
        """Let all nodes know that this one is no member; if it was the last, there is none."""
        peer = self._peer
        gone = Label(label.stamp, peer.me)
        peer.directory.withdraw(layer_name, gone)
        self._numbers += 1
        wave = Announce(layer_name, peer.me, self._numbers, None, gone)

        def withdrawn(is_whole: bool, _: Label | None) -> None:
            if layer is not None:
                peer.departures.withdrawn(layer)

        peer.waves.begin(wave, peer.layers[EVERYBODY].edges, peer.now_ms, withdrawn)
        peer.waves.settle(key_of(wave))

    # --- time ----------------------------------------------------------------------------------

    def needs_tending(self, layer: Layer) -> bool:
        """Whether something is to be tried again."""
        announcing = self._announcing.get(layer.name)
        waits = announcing is not None and not announcing.is_under_way
        return waits or layer.name in self._joining

    def tend(self, layer: Layer) -> None:
        """Try again."""
        announcing = self._announcing.get(layer.name)
        if announcing is not None and not announcing.is_under_way:
            self.announce(layer, announcing.gone)
        if layer.name in self._joining and not layer.wishes and not layer.offers:
            self.join(layer)
