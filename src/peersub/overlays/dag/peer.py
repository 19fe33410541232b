"""`DagPeer`: a node's part in the anonymous overlay, on all its layers.

The layer of everybody ("", the paper's l0) links all nodes: waves over it announce layers, and its
members keep the directory. A node is a member of the layers that its subscriptions need. An event
is published on the layer of its topic and on the catch-all layer: by turns if the node is a member
there, else through a member that publishes it as its own (`Relay`). Nothing that members of a layer
send each other says who published what.

What is not anonymous: membership, and a relayed event towards the one who relays it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from peersub.filters.filter import Filter
from peersub.overlays.core.causes import (
    Cause,
    ConnectFailed,
    Join,
    Leave,
    PeerConnected,
    PeerLost,
    Persisted,
    Publish,
    PublishBatch,
    Received,
    Restored,
    Start,
    Subscribe,
    Timer,
    TimerFired,
    Unsubscribe,
)
from peersub.overlays.core.effects import Drop, Effect, SetTimer
from peersub.overlays.core.home import Home
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.outbox import Outbox
from peersub.overlays.core.protocol import Overlay
from peersub.overlays.dag import messages as said
from peersub.overlays.dag.company import Company
from peersub.overlays.dag.departures import Departures
from peersub.overlays.dag.directory import Directory
from peersub.overlays.dag.everybody import PROBE, Everybody
from peersub.overlays.dag.frequent import FREQUENT, Frequent
from peersub.overlays.dag.layer import Layer, Wish
from peersub.overlays.dag.linking import INVITE, Linking
from peersub.overlays.dag.membership import Membership
from peersub.overlays.dag.publishing import Publishing
from peersub.overlays.dag.relaying import Relaying
from peersub.overlays.dag.repair import CHECK, Repair
from peersub.overlays.dag.settings import DagSettings
from peersub.overlays.dag.tending import TEND, Tending
from peersub.overlays.dag.topics import EVERYBODY, layers_of, topic_path
from peersub.overlays.dag.waves import Waves
from peersub.overlays.semantic.hosting import IDLE, Hosting

__all__ = ["DagPeer"]

HOLD: Final = "dag/hold"
LOSSES_MAX: Final = 64
"""How often within one step a message may turn out to be for somebody who is gone."""


class DagPeer(Overlay):
    """A node's part in the layers."""

    name = "dag"

    def __init__(self, me: PeerId, settings: DagSettings, seed: int) -> None:
        self.me = me
        self.settings = settings
        self.seed = seed
        self.now_ms = 0
        self.layers: dict[str, Layer] = {EVERYBODY: Layer(EVERYBODY, settings)}
        self.is_leaving = False
        self._out = Outbox()
        self.emit = self._out.emit
        self.home = Home(settings.home, self._out.emit)
        self.hosting: Hosting[Any] = Hosting(me, settings.hosting, self._out, self._is_needed)
        self.hosting.add(me, self)
        self.directory = Directory(settings.layers_known_max)
        self.linking = Linking(self)
        self.waves = Waves(self.send)
        self.repair = Repair(self)
        self.membership = Membership(self)
        self.departures = Departures(self)
        self.everybody = Everybody(self)
        self.company = Company(self)
        self.frequent = Frequent(self)
        self.relaying = Relaying(self)
        self.publishing = Publishing(self)
        self.tending = Tending(self)
        self.topic = topic_path(settings.topic)
        self._touched: dict[str, Layer] = {}
        self._storing: dict[str, None] = {}
        """Subscriptions that are not on disk yet."""

    # --- the interface -------------------------------------------------------------------------

    def handle(self, cause: Cause, now_ms: int) -> list[Effect]:
        """Take the cause in, and say what is to be done."""
        self.now_ms = now_ms
        match cause:
            case Received(peer, messages):
                for message in messages:
                    self.hosting.on_message(peer, message, now_ms)
            case TimerFired(timer):
                self._on_timer(timer)
            case Publish(publications):
                for publication in publications:
                    self.publishing.publish(publication)
            case PublishBatch(batch):
                self.publishing.publish_batch(batch)
            case Subscribe(name, wanted, moved):
                self._subscribe(name, wanted, moved=moved)
            case Unsubscribe(name):
                self._unsubscribe(name)
            case Persisted(token):
                self.home.on_persisted(token)
            case Restored(records):
                self.home.restore(records, now_ms)
                for name, wanted in self.home.subscriptions.items():
                    self.membership.subscribe(name, layers_of(wanted, self.topic))
                    self.membership.look_at_subscription(name)
            case _:
                self._on_change_of_links(cause)
        for _ in range(LOSSES_MAX):
            self._advance_all()
            self.company.tell()
            self.hosting.run(now_ms)
            if not self._touched:
                break  # else somebody whom a message was for is gone, and this may be a sink
        return self._out.take()

    def shared_settings(self) -> Mapping[str, str]:
        """What all nodes must agree on: which layer an event is published on."""
        return {"topic": self.settings.topic}

    def links(self) -> Iterable[PeerId]:
        """The nodes that there are links to, by name."""
        return self.hosting.links()

    @property
    def takes_part(self) -> bool:
        """Whether it is a member of the layer of everybody."""
        return self.layers[EVERYBODY].is_member

    @property
    def is_joining(self) -> bool:
        """Whether it is on its way into the network."""
        return self.everybody.is_joining

    @property
    def is_mending(self) -> bool:
        """Whether a layer may have come apart, or an edge is missing that would tear it."""
        return not self.is_leaving and (
            not self.repair.is_idle
            or any(wish.must for layer in self.layers.values() for wish in layer.wishes.values())
        )

    def waiting_on(self, subscription: str) -> tuple[PeerId, ...]:
        """The peers whose answer a subscription needs to be ready."""
        return self.membership.waiting_on(subscription)

    def describe(self) -> Mapping[str, Any]:
        """The state as plain values."""
        return {
            "layers": {
                name: {
                    "edges": sorted(map(str, layer.edges)),
                    "label": "" if layer.label is None else f"{layer.label[0]}/{layer.label[1]}",
                    "lid": layer.lid,
                    "member": layer.is_member,
                    "turns": layer.turns,
                    "val": layer.val,
                }
                for name, layer in sorted(self.layers.items())
            },
            "layers_known": len(self.directory),
            "subscriptions": sorted(self.home.subscriptions),
        }

    def fingerprint(self) -> object:
        """The description without what turns change: sinks that have nothing to say take turns.

        But with what is under way: events that wait for turns, and edges that are wanted.
        """
        return (
            [
                (
                    name,
                    layer.label,
                    layer.is_announced,
                    sorted(layer.edges),
                    len(layer.queued),
                    sorted(layer.wishes),
                )
                for name, layer in sorted(self.layers.items())
            ],
            self.directory.digest,
            self.home.version,
        )

    # --- what the parts ask of the peer --------------------------------------------------------

    def send(self, peer: PeerId, message: Message) -> None:
        """Say something to another node's peer; it waits for a link if there is none."""
        self.hosting.send(peer, message, self.now_ms)

    def set_timer(self, timer: Timer, delay_ms: int) -> None:
        """Hear of it later."""
        self._out.emit(SetTimer(timer, delay_ms))

    def touch(self, layer: Layer) -> None:
        """See what the layer can do once the cause is handled."""
        self._touched[layer.name] = layer

    def tend_later(self, layer: Layer) -> None:
        """Look after the layer again in a while."""
        self.tending.later(layer)

    def is_stored(self, subscription: str) -> bool:
        """Whether a subscription would survive a crash."""
        return subscription not in self._storing

    @property
    def knows_layers(self) -> bool:
        """Whether it has its place among all nodes, and heard what layers there are."""
        return self.everybody.knows_layers

    def acquaintances(self, count: int) -> list[str]:
        """Some of the nodes that this one has heard of."""
        return self.everybody.acquaintances(count)

    def takes_edges(self, layer: Layer) -> bool:
        """Whether the member may have more edges."""
        return layer.is_member and not self.departures.is_going(layer) and not self.is_leaving

    def wanted(self, layer: Layer, peer: PeerId) -> bool:
        """Whether an edge that somebody invites to is welcome."""
        if not layer.is_member:
            return True
        return self.takes_edges(layer) and (
            peer in layer.forming or len(layer.edges) < self.settings.degree_min
        )

    def learn(self, layer: Layer, peers: Iterable[PeerId]) -> None:
        """These are, or were, members."""
        known = layer.known
        for peer in peers:
            if peer != self.me and peer not in known:
                known[peer] = -self.settings.wish_ms
                if len(known) > self.settings.known_nodes_max:
                    del known[next(iter(known))]

    def edge_up(
        self, layer: Layer, peer: PeerId, label: said.Label | None, is_announced: bool
    ) -> None:
        """There is a new edge."""
        is_first = not layer.is_member
        layer.searches = 0
        self.learn(layer, (peer,))
        self.repair.meet(layer, peer, label, is_announced)
        if is_first:
            self.membership.became_member(layer)
        self.membership.merging_ended(layer, peer)
        if layer.name == EVERYBODY:
            self.everybody.edge_up(peer)
            self.company.edge_up(peer)
        else:
            self.membership.look(layer)
        self.departures.edge_up(layer, peer)
        self.departures.edges_changed(layer)
        self.tending.look(layer)

    def wish_failed(self, layer: Layer, peer: PeerId, wish: Wish, is_member: bool) -> None:
        """There will be no such edge."""
        self.membership.merging_ended(layer, peer)
        # Nor does it help to ask again: whoever has too many edges seldom has fewer later.
        layer.known.pop(peer, None)
        if wish.merges and is_member and layer.label is not None:
            self.repair.ask(layer, peer.node)
        elif wish.must:
            self.repair.doubt(layer)
        if not is_member:
            self.departures.gone(layer, peer)
            if layer.name != EVERYBODY:
                self.directory.forget(layer.name, peer)
        self.tending.look(layer)

    def same_part(self, layer: Layer, peer: PeerId) -> None:
        """Somebody who was asked is in the same part."""
        if layer.name == EVERYBODY:
            self.everybody.same_part(peer)

    def leave_layer(self, layer: Layer, others: tuple[PeerId, ...] = ()) -> None:
        """Be a member no more."""
        for peer in {**layer.edges, **layer.wishes, **layer.forming}:
            self.send(peer, said.LinkDown(layer.name, False, others))
        self._discard(layer)

    def _discard(self, layer: Layer) -> None:
        del self.layers[layer.name]
        self._touched.pop(layer.name, None)
        self.repair.forget(layer)
        self.departures.forget(layer)
        for peer in layer.edges:
            self.waves.lost(peer, layer.name)
        self.membership.forget(layer)

    # --- a start that is set -------------------------------------------------------------------

    def install(self, subscriptions: Mapping[str, Filter]) -> list[str]:
        """Have these subscriptions from the start; the layers that they need."""
        self.home.install(subscriptions)
        wanted = {name: layers_of(each, self.topic) for name, each in subscriptions.items()}
        for name in self.membership.install(wanted):
            self.layers[name] = Layer(name, self.settings)
        self.everybody.knows_layers = True
        return self.membership.needed()

    def install_links(self, directory: Directory) -> None:
        """Have links to all neighbours, and know what all know."""
        self.directory.copy(directory)
        peers = {peer: None for layer in self.layers.values() for peer in layer.edges}
        for peer in sorted(peers):
            self.hosting.adopt(peer)
        for layer in self.layers.values():
            self.touch(layer)

    # --- subscriptions -------------------------------------------------------------------------

    def _subscribe(self, name: str, wanted: Filter, *, moved: bool) -> None:
        if not self.home.subscribe(name, wanted, lambda: self._stored(name)):
            self._out.emit(Drop(f"the subscription {name} exists already"))
            return
        self._storing[name] = None
        layers = layers_of(wanted, self.topic)
        if not moved:
            self.company.propose(name, layers)
        self.membership.subscribe(name, layers)

    def _stored(self, name: str) -> None:
        self._storing.pop(name, None)
        self.membership.look_at_subscription(name)

    def _unsubscribe(self, name: str) -> None:
        wanted = self.home.subscriptions.get(name)
        if wanted is not None and self.home.unsubscribe(name):
            self._storing.pop(name, None)
            self.membership.unsubscribe(name, layers_of(wanted, self.topic))

    # --- messages ------------------------------------------------------------------------------

    def on_message(self, sender: PeerId, message: Any, now_ms: int) -> None:
        """Another node's peer says something."""
        handler = _HANDLERS.get(type(message))
        if handler is not None:
            layer = None if self.is_leaving else self.layers.get(message.layer)
            if layer is not None:
                handler(self, layer, sender, message)
            else:
                self._on_message_to_stranger(sender, message)
            return
        general = _GENERAL_HANDLERS.get(type(message))
        if general is None:
            reason = f"dag does not know {type(message).__name__}"
            self._out.emit(Drop(reason, None, sender))
        else:
            general(self, sender, message)

    def _on_message_to_stranger(self, sender: PeerId, message: Any) -> None:
        """Something about a layer that this node is no member of."""
        match message:
            case said.Offer(layer, number):
                self.send(sender, said.LinkDown(layer, False, (), number))
            case said.Invite(layer):
                self.send(sender, said.LinkDown(layer, False))
            case said.RequestVal(layer, origin):
                self.send(origin, said.LinkDown(layer, False))
            case said.Census(_, label):
                key = (message.layer, True, label.steward, label.stamp)
                self.send(sender, said.Echo(*key, True))
            case _:
                pass

    def _on_turn(self, layer: Layer, peer: PeerId, message: said.Turn) -> None:
        edge = layer.edges.get(peer)
        if edge is not None:
            layer.token_came(edge, message.val, message.lid)
            self._touched[layer.name] = layer

    def _on_want_turn(self, layer: Layer, peer: PeerId, message: said.WantTurn) -> None:
        edge = layer.edges.get(peer)
        if edge is not None and edge.holds_token:
            layer.is_pressed = True
            self._touched[layer.name] = layer

    def _on_link_down(self, layer: Layer, peer: PeerId, message: said.LinkDown) -> None:
        self.learn(layer, message.others)
        if self.linking.is_beside_the_point(layer, peer, message):
            return
        wish = layer.wanted_edge(peer)
        was_edge = layer.drop(peer)
        if was_edge:
            self._edge_gone(layer, peer)
        if not message.is_member:
            self.departures.gone(layer, peer)
            layer.known.pop(peer, None)
        if wish is not None:
            self.wish_failed(layer, peer, wish, message.is_member)
        if not layer.is_member and layer.name != EVERYBODY:
            self.membership.refused(layer, peer)
        elif was_edge and (message.others or message.is_member):
            # Who leaves without a word about others has seen to it that they are linked.
            self.linking.link_up_after(layer, message.others)
            self.repair.doubt(layer)
        self.linking.offer_next(layer, peer)
        self.tending.look(layer)
        self.touch(layer)

    def _edge_gone(self, layer: Layer, peer: PeerId) -> None:
        layer.searches = 0
        self.waves.lost(peer, layer.name)
        if layer.name == EVERYBODY:
            self.company.edge_gone(peer)
        self.departures.edges_changed(layer)
        self.touch(layer)

    # --- links and time ------------------------------------------------------------------------

    def _on_change_of_links(self, cause: Cause) -> None:
        match cause:
            case Start():
                self.everybody.start()
            case Join(contacts):
                self.everybody.join(contacts)
            case PeerConnected(peer):
                self.hosting.on_connected(peer, self.now_ms)
                self.relaying.connected(peer)
            case PeerLost(peer):
                self.hosting.on_lost(peer, self.now_ms)
            case ConnectFailed(node):
                self.hosting.on_connect_failed(node, self.now_ms)
            case Leave():
                self._leave()
            case _:
                pass

    def on_lost(self, peer: PeerId, now_ms: int) -> None:
        """A node cannot be reached any more."""
        for layer in list(self.layers.values()):
            if self.layers.get(layer.name) is not layer:
                continue
            wish = layer.wanted_edge(peer)
            if layer.drop(peer):
                self._edge_gone(layer, peer)
                self.repair.doubt(layer)
            # Without an offer to this one the member may be a sink.
            self.touch(layer)
            layer.known.pop(peer, None)
            self.departures.gone(layer, peer)
            self.repair.lost(layer, peer.node)
            if wish is not None:
                self.wish_failed(layer, peer, wish, is_member=False)
                self.linking.offer_next(layer, peer)
            if not layer.is_member and layer.name != EVERYBODY:
                self.membership.refused(layer, peer)
            self.tending.look(layer)
        self.everybody.lost(peer)
        self.relaying.lost(peer)

    def _on_timer(self, timer: Timer) -> None:
        if timer == IDLE:
            self.hosting.on_idle_timer(self.now_ms)
            return
        if timer == PROBE:
            self.everybody.probe()
            return
        if timer.purpose == TEND:
            self.tending.on_timer(timer.about)
            return
        layer = self.layers.get(timer.about)
        if timer.purpose == FREQUENT:
            self.frequent.on_timer(timer.about)
        elif layer is None:
            pass
        elif timer.purpose == HOLD:
            layer.holding = False
            if layer.edges and layer.is_sink:
                layer.is_pressed = True
                self.touch(layer)
        elif timer.purpose == CHECK:
            self.repair.tend(layer)
            self.tending.look(layer)
        elif timer.purpose == INVITE:
            self.linking.on_invite_timer(layer)

    def _is_needed(self, node: str) -> bool:
        return any(
            peer.node == node
            for layer in self.layers.values()
            for peers in (layer.edges, layer.offers, layer.wishes, layer.forming, layer.invited)
            for peer in peers
        )

    def _leave(self) -> None:
        for layer in self.layers.values():
            if layer.is_sink:
                layer.pass_on_all(self.send)
            others = tuple(sorted(layer.edges))
            for peer in {**layer.edges, **layer.wishes, **layer.forming}:
                self.send(peer, said.LinkDown(layer.name, False, others))
            layer.edges.clear()
        self.is_leaving = True
        self.hosting.close("leaves")

    # --- turns ---------------------------------------------------------------------------------

    def _advance_all(self) -> None:
        while self._touched:
            touched, self._touched = self._touched, {}
            for layer in touched.values():
                if self.layers.get(layer.name) is layer and not self.is_leaving:
                    self._advance(layer)

    def _advance(self, layer: Layer) -> None:
        """Take a turn, hold it, or ask for it."""
        if not layer.edges:
            if layer.forming and not layer.offers and layer.is_member:
                self.linking.invite(layer)
            is_alone = not (layer.wishes or layer.forming or self.repair.is_due(layer))
            if layer.is_member and is_alone:
                layer.queued.clear()
            layer.is_pressed = False
        elif not layer.is_sink:
            layer.inviting.clear()
            if layer.wants_turn:
                layer.press(self.send)
        elif layer.forming and self.linking.invite(layer):
            pass
        elif layer.wants_turn:
            if self.departures.may_go(layer):
                layer.pass_on_all(self.send)
                self.leave_layer(layer)
                return
            layer.take_turn(self.send)
            self.linking.offer_to_waiting(layer)
            if layer.wants_turn:
                layer.press(self.send)
        elif not layer.holding:
            layer.holding = True
            self.set_timer(Timer(HOLD, layer.name), self.settings.hold_ms)


Handler = Callable[[DagPeer, Layer, PeerId, Any], None]

_HANDLERS: dict[type, Handler] = {
    said.Passed: lambda peer, layer, sender, m: peer.publishing.on_passed(layer, sender, m),
    said.Turn: DagPeer._on_turn,
    said.WantTurn: DagPeer._on_want_turn,
    said.RequestVal: lambda peer, layer, _, m: peer.linking.on_request_val(layer, m),
    said.Invite: lambda peer, layer, sender, m: peer.linking.on_invite(layer, sender, m),
    said.Offer: lambda peer, layer, sender, m: peer.linking.on_offer(layer, sender, m),
    said.LinkUpOk: lambda peer, layer, sender, m: peer.linking.on_link_up_ok(layer, sender, m),
    said.Later: lambda peer, layer, sender, m: peer.linking.on_later(layer, sender, m),
    said.LinkDown: DagPeer._on_link_down,
    said.Labelled: lambda peer, layer, sender, m: peer.repair.on_labelled(layer, sender, m),
    said.LabelTold: lambda peer, layer, sender, m: peer.repair.on_label_told(layer, sender, m),
    said.Census: lambda peer, layer, sender, m: peer.repair.on_census(layer, sender, m),
    said.Inherited: lambda peer, layer, sender, m: peer.departures.on_inherited(layer, sender, m),
    said.Leaving: lambda peer, layer, sender, m: peer.departures.on_leaving(layer, sender, m),
    said.LeaveOk: lambda peer, layer, sender, m: peer.departures.on_leave_ok(layer, sender, m),
    said.LeaveWait: lambda peer, layer, sender, m: peer.departures.on_leave_wait(layer, sender, m),
}
"""What is said about a layer that the node is a member of, or on its way into."""

_GENERAL_HANDLERS: dict[type, Callable[[DagPeer, PeerId, Any], None]] = {
    said.Echo: lambda peer, sender, m: peer.waves.on_echo(sender, m),
    said.Announce: lambda peer, sender, m: peer.repair.on_announce(sender, m),
    said.LabelAsked: lambda peer, sender, m: peer.repair.on_label_asked(
        peer.layers.get(m.layer), sender, m
    ),
    said.Inherit: lambda peer, sender, m: peer.departures.on_inherit(
        peer.layers.get(m.layer), sender, m
    ),
    said.LayersTold: lambda peer, sender, m: peer.company.on_layers_told(sender, m),
    said.Relay: lambda peer, sender, m: peer.relaying.on_relay(sender, m),
    said.DirectoryState: lambda peer, sender, m: peer.everybody.on_state(sender, m),
    said.DirectoryEntries: lambda peer, sender, m: peer.everybody.on_entries(sender, m),
}
"""What is said whether or not the node is a member of the layer."""
