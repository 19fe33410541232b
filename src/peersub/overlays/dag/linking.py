"""How edges come up: wishes, offers, invitations (Modules 3 and 4 between processes).

* An *offer* is an edge that points from the offerer to the other, who answers at once. Until then
  the offerer takes no turn and no edge: its value and lid stay as they were said.
* Only a sink takes an offer: it has no edge that points away, so no cycle can lead through it,
  whatever the values at the other end (Lemma 3.3).
* Whoever is no sink answers `Later`, and *invites* all who wait when it is one: it holds its turn
  until each has offered or declined, or its time is up. Who is invited offers at once.
* Values say of an edge what the token says from the start: the two ends agree by how much each
  *shifts* the values of the other. Module 4 refuses edges whose values do not happen to fit, and
  between members that keep in step they may never do. Lids have to differ, and are drawn from very
  many: two members hardly ever have the same.
* A member without edges takes the value and lid that it is given, and offers to one at a time.
* If two offer to each other at once, the smaller one answers and the larger one's offer counts. Of
  those who invite each other in a ring the larger ones stay sinks: who is inviting offers to larger
  ones at once, and to smaller ones when it is done.

Laws:

* Each offer has one answer: `LinkUpOk`, `Later`, or `LinkDown` with the offer's number. Where two
  offers cross, that of the larger one is the answer. `LinkDown` without a number is news, and
  leaves open offers alone.
* Between two members at most one of them waits for an invitation of the other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Protocol

from peersub.overlays.core.causes import Timer
from peersub.overlays.core.draws import draw_below, draw_share
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.dag.layer import Asked, Edge, Layer, Wish
from peersub.overlays.dag.messages import (
    Invite,
    Label,
    Later,
    LinkDown,
    LinkUpOk,
    Offer,
    RequestVal,
)
from peersub.overlays.dag.orientation import VALUES, first_free_lid, newcomer_value
from peersub.overlays.dag.settings import DagSettings

__all__ = ["FORMING_MAX", "KNOWN_TOLD_MAX", "Linking"]

FORMING_MAX: Final = 64
"""Members that may wait for an edge with one; others are told that there is none."""
KNOWN_TOLD_MAX: Final = 16
"""Members that one who wants an edge is told of."""
INVITATIONS_MAX: Final = 4
"""How often a member is invited that does not answer in time."""
LIDS: Final = 1 << 32
"""Lids are drawn below this."""
INVITE: Final = "dag/invite"


class LayerHost(Protocol):
    """What the linking of a layer asks of the peer."""

    me: PeerId
    settings: DagSettings
    seed: int
    now_ms: int

    def send(self, peer: PeerId, message: Message) -> None:
        """Say something to another node's peer."""

    def set_timer(self, timer: Timer, delay_ms: int) -> None:
        """Hear of it later."""

    def touch(self, layer: Layer) -> None:
        """Something changed: see what the layer can do once the cause is handled."""

    def tend_later(self, layer: Layer) -> None:
        """Look after the layer again in a while: what takes too long is to be given up."""

    def takes_edges(self, layer: Layer) -> bool:
        """Whether the member may have more edges: not if it is about to leave."""

    def learn(self, layer: Layer, peers: tuple[PeerId, ...]) -> None:
        """These are, or were, members."""

    def wanted(self, layer: Layer, peer: PeerId) -> bool:
        """Whether an edge that somebody invites to is welcome, though none was asked for."""

    def edge_up(self, layer: Layer, peer: PeerId, label: Label | None, is_announced: bool) -> None:
        """There is a new edge; the other end was in this part."""

    def wish_failed(self, layer: Layer, peer: PeerId, wish: Wish, is_member: bool) -> None:
        """There will be no such edge."""


class Linking:
    """The edges of all layers of a peer, as they come up."""

    def __init__(self, host: LayerHost) -> None:
        self._host = host
        self._rounds = 0
        """What was drawn, so that each draw is another one."""
        self._offered = 0
        """The number of the last offer, on whatever layer."""

    # --- wishes --------------------------------------------------------------------------------

    def wish(self, layer: Layer, peer: PeerId, *, must: bool = False, merges: bool = False) -> None:
        """Have an edge with this one, if it can be."""
        if peer in layer.edges or peer == self._host.me:
            return
        known = layer.wishes.get(peer)
        if known is not None:
            known.merges = merges and (known.merges or not known.must)
            known.must = known.must or must
            return
        asked = layer.forming.get(peer)
        if asked is not None:
            merges = merges and (asked.merges or not asked.must)
            layer.forming[peer] = replace(asked, must=asked.must or must, merges=merges)
            self._host.touch(layer)
            return  # it wants one too, and is invited when this member is a sink
        layer.wishes[peer] = Wish(self._host.now_ms, must, merges=merges)
        self._host.tend_later(layer)
        self._offer(layer, peer)

    def _offer(self, layer: Layer, peer: PeerId) -> None:
        wish = layer.wishes.get(peer)
        if wish is None or peer in layer.offers:
            return
        if not layer.edges and layer.offers:
            return  # it takes the values that it is given once, and offers to others after that
        layer.invited.pop(peer, None)
        self._offered += 1
        layer.offers[peer] = self._offered
        offer = Offer(
            layer.name,
            self._offered,
            layer.val,
            layer.lid,
            not layer.edges,
            wish.must,
            layer.label,
            layer.is_announced,
            wish.merges,
        )
        self._host.send(peer, offer)

    def offer_to_waiting(self, layer: Layer) -> None:
        """Offer to those who stand still for this member, unless it does so for others."""
        if not layer.inviting:
            for peer in list(layer.invited):
                self._offer(layer, peer)

    def link_up_after(self, layer: Layer, others: tuple[PeerId, ...]) -> None:
        """A neighbour is gone: those that it had link up, each with the next."""
        after = [other for other in others if other > self._host.me]
        if after and self._host.takes_edges(layer):
            self.wish(layer, after[0], must=True)

    def give_up_merging(self, layer: Layer) -> list[PeerId]:
        """The part has another name: with whom edges were wanted since they were in another."""
        wanted: dict[PeerId, Wish | Asked] = {**layer.wishes, **layer.forming}
        given_up = [
            peer
            for peer, wish in wanted.items()
            if wish.merges and layer.edges and peer not in layer.offers and peer not in layer.edges
        ]
        for peer in given_up:
            self._host.send(peer, LinkDown(layer.name, True))
            layer.drop(peer)
        self._host.touch(layer)
        return given_up

    def expire(self, layer: Layer) -> None:
        """Give up wishes that take too long."""
        oldest_ms = self._host.now_ms - self._host.settings.wish_ms
        for peer, wish in list(layer.wishes.items()):
            if wish.since_ms < oldest_ms and peer not in layer.offers:
                self._host.send(peer, LinkDown(layer.name, True))
                layer.drop(peer)
                self._host.wish_failed(layer, peer, wish, True)

    # --- being asked ---------------------------------------------------------------------------

    def on_request_val(self, layer: Layer, message: RequestVal) -> None:
        """Somebody who lacks edges asks for one: invite it, send it on, or let it wait here."""
        host = self._host
        origin = message.origin
        if origin == host.me:
            return
        host.learn(layer, (origin,))
        path = (*message.path, host.me)
        is_near = origin in layer.edges
        if (is_near or not layer.is_sink) and len(path) < host.settings.walk_steps_max:
            ahead = layer.way_on(host.seed, host.me, origin, path)
            if ahead is not None:
                host.send(ahead, RequestVal(layer.name, origin, path))
                return
        if is_near or origin in layer.offers:
            return  # nor is it told that there is none: it may have taken what is offered
        if not host.takes_edges(layer) or len(layer.forming) >= FORMING_MAX:
            host.send(origin, LinkDown(layer.name, True, self._told(layer, origin)))
            return
        if origin not in layer.wishes:
            layer.forming[origin] = Asked(path)
            host.touch(layer)

    def on_offer(self, layer: Layer, peer: PeerId, offer: Offer) -> None:
        """Take the edge if this is a sink; else say when, or that never."""
        host = self._host
        if peer in layer.offers:
            if host.me > peer:
                return  # the other one answers
            del layer.offers[peer]
        wanted = layer.wanted_edge(peer)
        layer.wishes.pop(peer, None)
        layer.invited.pop(peer, None)
        if peer in layer.edges:
            layer.drop(peer)  # it would not ask: should it have lost the edge, it is gone
        must, merges = offer.must, offer.merges
        if wanted is not None and wanted.must:
            must, merges = True, merges and wanted.merges
        crowded = len(layer.edges) >= host.settings.degree_max and not must
        crowded = crowded and peer not in layer.forming
        if not host.takes_edges(layer) or (crowded and not offer.is_fresh and layer.edges):
            layer.drop(peer)
            host.send(peer, LinkDown(layer.name, True, number=offer.number))
        elif layer.is_sink:
            self._accept(layer, peer, offer)
        elif peer in layer.forming or len(layer.forming) < FORMING_MAX:
            asked = replace(layer.forming.get(peer) or Asked(), must=must, merges=merges)
            layer.forming[peer] = asked
            host.send(peer, Later(layer.name, offer.number))
        else:
            host.send(peer, LinkDown(layer.name, True, number=offer.number))
        host.touch(layer)

    def _accept(self, layer: Layer, peer: PeerId, offer: Offer) -> None:
        host = self._host
        val, lid, shift = offer.val, offer.lid, 0
        if offer.is_fresh:
            lid = self.draw_lid(layer)
            val = newcomer_value(layer.val, layer.lid, lid)
        else:
            fitting = layer.lid_beside(lid)
            if fitting is None:
                layer.drop(peer)
                host.send(peer, LinkDown(layer.name, True, number=offer.number))
                return
            layer.lid = fitting
            shift = (newcomer_value(layer.val, layer.lid, lid) - val) % VALUES
        known = self._told(layer, peer)
        layer.drop(peer)
        layer.edges[peer] = Edge((val + shift) % VALUES, lid, True, layer.turns, shift)
        assert layer.label is not None
        answer = LinkUpOk(
            layer.name,
            offer.number,
            layer.val,
            layer.lid,
            val,
            lid,
            -shift % VALUES,
            layer.label,
            layer.is_announced,
            known,
        )
        # First of all: what is said over an edge before the other end knows of it is not heard.
        host.send(peer, answer)
        host.edge_up(layer, peer, offer.label, offer.is_announced)

    def _told(
        self, layer: Layer, peer: PeerId, path: tuple[PeerId, ...] = ()
    ) -> tuple[PeerId, ...]:
        """Whom one that wants an edge hears of: if this member is gone soon, it asks these."""
        others = {**dict.fromkeys(path), **layer.edges, **layer.known}
        return tuple(other for other in others if other != peer)[:KNOWN_TOLD_MAX]

    def draw_lid(self, layer: Layer) -> int:
        """A lid for a newcomer or founder: not that of this member, nor of those around it."""
        around = {layer.lid, *(edge.lid for edge in layer.edges.values())}
        self._rounds += 1
        about = (layer.name, *self._host.me, self._rounds)
        lid = draw_below(LIDS, self._host.seed, "dag/lid", *about)
        return lid if lid not in around else first_free_lid(around, above=lid)

    # --- answers -------------------------------------------------------------------------------

    def on_link_up_ok(self, layer: Layer, peer: PeerId, message: LinkUpOk) -> None:
        """The edge is there."""
        if layer.offers.get(peer) != message.number:
            if not layer.concerns(peer):
                # The offer was given up meanwhile: no edge of which one end knows nothing.
                self._host.send(peer, LinkDown(layer.name, True))
            return
        if not layer.edges:
            layer.val, layer.lid = message.your_val, message.your_lid
        layer.drop(peer)
        seen = (message.val + message.shift) % VALUES
        layer.edges[peer] = Edge(seen, message.lid, False, layer.turns, message.shift)
        self._host.learn(layer, message.known)
        self._host.edge_up(layer, peer, message.label, message.is_announced)
        if len(layer.edges) == 1:
            for other in list(layer.wishes):
                if other not in layer.invited:
                    self._offer(layer, other)
            self.offer_to_waiting(layer)
        self._host.touch(layer)

    def on_later(self, layer: Layer, peer: PeerId, message: Later) -> None:
        """The offer is off, until the other one is a sink."""
        if layer.offers.get(peer) == message.number:
            del layer.offers[peer]
            self.offer_next(layer, peer)
            self._host.touch(layer)

    def is_beside_the_point(self, layer: Layer, peer: PeerId, message: LinkDown) -> bool:
        """Whether an offer is on its way there, of which this says nothing, or given up since."""
        is_news, is_open = not message.number, peer in layer.offers
        if is_news and is_open:
            layer.forming.pop(peer, None)
            layer.inviting.pop(peer, None)
        return is_open if is_news else layer.offers.get(peer) != message.number

    def offer_next(self, layer: Layer, last: PeerId) -> None:
        """A member without edges tries those who stand still for it, then the next one."""
        if layer.edges:
            return
        self.offer_to_waiting(layer)
        others = list(layer.wishes)
        for peer in others[others.index(last) + 1 :] if last in others else others:
            self._offer(layer, peer)

    # --- invitations ---------------------------------------------------------------------------

    def invite(self, layer: Layer) -> bool:
        """A sink holds its turn for those who wait; whether there are any."""
        host = self._host
        for peer, asked in layer.forming.items():
            if peer not in layer.inviting and asked.turns != layer.turns:
                if not layer.inviting:
                    self._rounds += 1
                    about = (layer.name, *host.me, self._rounds)
                    share = draw_share(host.seed, "dag/invite", *about)
                    delay_ms = int((0.5 + share) * host.settings.invite_ms)
                    host.set_timer(Timer(INVITE, layer.name), max(delay_ms, 1))
                layer.inviting[peer] = None
                host.send(peer, Invite(layer.name, self._told(layer, peer, asked.path)))
        return bool(layer.inviting)

    def on_invite(self, layer: Layer, peer: PeerId, message: Invite) -> None:
        """A sink waits for this member."""
        host = self._host
        if peer in layer.offers or peer in layer.edges:
            return
        host.learn(layer, message.known)
        if peer not in layer.wishes:
            if peer in layer.inviting and host.me > peer:
                return  # both invite, and the other one offers
            if not host.wanted(layer, peer):
                host.send(peer, LinkDown(layer.name, True))
                return
            asked = layer.forming.pop(peer, Asked())
            layer.inviting.pop(peer, None)
            layer.wishes[peer] = Wish(host.now_ms, asked.must, asked.merges)
            host.tend_later(layer)
        layer.invited[peer] = None
        if not layer.inviting or host.me < peer:
            self._offer(layer, peer)
        host.touch(layer)

    def on_invite_timer(self, layer: Layer) -> None:
        """The time of those who were invited is up: they are invited again after the next turn."""
        for peer in list(layer.inviting):
            asked = layer.forming[peer]
            if asked.invitations == INVITATIONS_MAX:
                layer.drop(peer)
                self._host.send(peer, LinkDown(layer.name, True))
            else:
                turns = layer.turns if layer.edges else asked.turns
                again = replace(asked, turns=turns, invitations=asked.invitations + 1)
                layer.forming[peer] = again
        layer.inviting.clear()
        if not layer.edges:
            self.offer_to_waiting(layer)
        self._host.touch(layer)
