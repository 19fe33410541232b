"""How edges come up: wishes, offers, invitations (Modules 3 and 4 between processes).

* An *offer* is an edge that points from the offerer to the other, who answers at once. Until then
  the offerer takes no turn and no edge: its value and lid stay as they were said.
* Only a sink takes an offer: it has no edge that points away, so no cycle can lead through it. It
  must also fit the values: Definition 3.2 and the token must say the same of the new edge.
* Whoever is no sink answers `Later`, and *invites* all who wait when it is one: it holds its turn
  until each has offered, declined, or had its time. Who is invited and does not fit takes turns
  until it does, meanwhile the sink stands still.
* Values go round: one of two members that keep in step may never fit the other. After its time the
  sink asks to be invited instead (`Swap`), and turns are held for longer. Whichever of the two is
  ahead, if that one stands still the other catches up with it, since nobody whom it waits for is
  ahead of it. In a layer that has grown together at several places each may be ahead of the other:
  then they give up. Where the layer can do without the edge they change roles at once, so that no
  event waits for it.
* A member without edges fits everybody: it takes the value and lid that it is given, and offers to
  one at a time. A sink without edges takes the ones that fit the offer.
* If two offer to each other at once, the smaller one answers and the larger one's offer counts.

Law: between two members at most one of them waits for an invitation of the other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Protocol

from peersub.overlays.core.causes import Timer
from peersub.overlays.core.draws import draw_share
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
    Swap,
)
from peersub.overlays.dag.orientation import VALUES, first_free_lid, newcomer_value, points_at
from peersub.overlays.dag.settings import DagSettings

__all__ = ["FORMING_MAX", "KNOWN_TOLD_MAX", "Linking"]

FORMING_MAX: Final = 64
"""Members that may wait for an edge with one; others are told that there is none."""
KNOWN_TOLD_MAX: Final = 16
"""Members that a new neighbour is told of."""
HOLD_DOUBLINGS_MAX: Final = 3
"""A turn is held twice as long after each change of roles, up to here."""
SWAPS_MAX: Final = 6
"""How often two members change roles before they give up: where layers have grown together at
several places each of the two may be ahead of the other, on different ways."""
SWAPS_SPARE_MAX: Final = 1
"""How often for an edge that the layer does not need: events wait for turns that are held."""
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
        layer.offers[peer] = layer.turns
        is_fresh = not layer.edges
        offer = Offer(
            layer.name,
            layer.val,
            layer.lid,
            is_fresh,
            wish.must,
            layer.label,
            layer.is_announced,
            wish.merges,
        )
        self._host.send(peer, offer)

    def offer_where_it_fits(self, layer: Layer) -> None:
        """Offer to those who stand still for this member, if values allow it now."""
        for peer, (val, lid) in list(layer.invited.items()):
            if not layer.edges or points_at(val, lid, layer.val, layer.lid):
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
        if is_near:
            return
        if not host.takes_edges(layer) or len(layer.forming) >= FORMING_MAX:
            host.send(origin, LinkDown(layer.name, True, tuple(layer.edges)[:KNOWN_TOLD_MAX]))
            return
        if origin not in layer.wishes:
            layer.forming[origin] = Asked(path)
            host.touch(layer)

    def on_offer(self, layer: Layer, peer: PeerId, offer: Offer) -> None:
        """Take the edge if this is a sink and the values fit; else say when, or that never."""
        host = self._host
        if peer in layer.offers:
            if host.me > peer:
                return  # the other one answers
            del layer.offers[peer]
        layer.wishes.pop(peer, None)
        layer.invited.pop(peer, None)
        if peer in layer.edges:
            layer.drop(peer)  # it would not ask: should it have lost the edge, it is gone
        crowded = len(layer.edges) >= host.settings.degree_max and not offer.must
        crowded = crowded and peer not in layer.forming
        if not host.takes_edges(layer) or (crowded and not offer.is_fresh and layer.edges):
            layer.drop(peer)
            host.send(peer, LinkDown(layer.name, True))
        elif layer.is_sink and self._accept(layer, peer, offer):
            pass
        elif peer in layer.forming or len(layer.forming) < FORMING_MAX:
            asked = layer.forming.get(peer) or Asked((), offer.must, merges=offer.merges)
            if layer.is_sink:
                # Standing still does not help: its own turn comes first, and another lid.
                asked = replace(asked, lid=offer.lid, turns=layer.turns)
                layer.inviting.pop(peer, None)
            layer.forming[peer] = asked
            host.send(peer, Later(layer.name))
        else:
            host.send(peer, LinkDown(layer.name, True))
        host.touch(layer)

    def _accept(self, layer: Layer, peer: PeerId, offer: Offer) -> bool:
        host = self._host
        val, lid = offer.val, offer.lid
        if offer.is_fresh:
            lid = first_free_lid([layer.lid, *(edge.lid for edge in layer.edges.values())])
            val = newcomer_value(layer.val, layer.lid, lid)
        elif not layer.edges:
            layer.val = (val + VALUES - 1) % VALUES
            layer.lid = first_free_lid([lid])
        else:
            fitting = layer.fitting_lid(val, lid)
            if fitting is None:
                return False
            layer.lid = fitting
        known = tuple(o for o in {**layer.edges, **layer.known} if o != peer)[:KNOWN_TOLD_MAX]
        layer.drop(peer)
        layer.edges[peer] = Edge(val, lid, True, layer.turns)
        host.edge_up(layer, peer, offer.label, offer.is_announced)
        assert layer.label is not None
        announced = layer.is_announced
        answer = LinkUpOk(layer.name, layer.val, layer.lid, val, lid, layer.label, announced, known)
        host.send(peer, answer)
        return True

    # --- answers -------------------------------------------------------------------------------

    def on_link_up_ok(self, layer: Layer, peer: PeerId, message: LinkUpOk) -> None:
        """The edge is there."""
        turns = layer.offers.pop(peer, None)
        if turns is None:
            if peer not in layer.edges:
                # The offer was given up meanwhile: no edge of which one end knows nothing.
                self._host.send(peer, LinkDown(layer.name, True))
            return
        if not layer.edges:
            layer.val, layer.lid = message.your_val, message.your_lid
        layer.drop(peer)
        layer.edges[peer] = Edge(message.val, message.lid, False, turns)
        self._host.learn(layer, message.known)
        self._host.edge_up(layer, peer, message.label, message.is_announced)
        if len(layer.edges) == 1:
            for other in list(layer.wishes):
                if other not in layer.invited:
                    self._offer(layer, other)
            self.offer_where_it_fits(layer)
        self._host.touch(layer)

    def on_later(self, layer: Layer, peer: PeerId) -> None:
        """The offer is off, until the other one is a sink."""
        if layer.offers.pop(peer, None) is not None:
            self.offer_next(layer, peer)
            self._host.touch(layer)

    def offer_next(self, layer: Layer, last: PeerId) -> None:
        """A member without edges tries those who stand still for it, then the next one."""
        if layer.edges:
            return
        self.offer_where_it_fits(layer)
        others = list(layer.wishes)
        for peer in others[others.index(last) + 1 :] if last in others else others:
            self._offer(layer, peer)

    def on_swap(self, layer: Layer, peer: PeerId, message: Swap) -> None:
        """The two change roles: who was to invite is invited now."""
        if peer in layer.offers or peer in layer.edges:
            return  # this one's offer is on its way
        host = self._host
        wish, asked = layer.wishes.get(peer), layer.forming.get(peer)
        layer.drop(peer)
        if asked is not None:
            layer.wishes[peer] = Wish(host.now_ms, asked.must, message.swaps, asked.merges)
        elif wish is not None and host.takes_edges(layer):
            layer.forming[peer] = Asked((), message.must, message.swaps, message.merges)
        else:
            host.send(peer, LinkDown(layer.name, True))
        host.touch(layer)

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
                    doublings = max(each.swaps for each in layer.forming.values())
                    hold_ms = host.settings.invite_ms << min(doublings, HOLD_DOUBLINGS_MAX)
                    delay_ms = int((0.5 + share) * hold_ms)
                    host.set_timer(Timer(INVITE, layer.name), max(delay_ms, 1))
                layer.inviting[peer] = None
                host.send(peer, Invite(layer.name, layer.val, layer.lid, asked.path))
        return bool(layer.inviting)

    def on_invite(self, layer: Layer, peer: PeerId, message: Invite) -> None:
        """A sink waits for this member."""
        host = self._host
        if peer in layer.offers or peer in layer.edges:
            return
        if peer not in layer.wishes:
            if not host.wanted(layer, peer):
                host.send(peer, LinkDown(layer.name, True))
                return
            layer.forming.pop(peer, None)
            layer.inviting.pop(peer, None)
            layer.wishes[peer] = Wish(host.now_ms)
            host.tend_later(layer)
        host.learn(layer, message.path)
        layer.invited[peer] = (message.val, message.lid)
        self.offer_where_it_fits(layer)
        wish = layer.wishes[peer]
        if layer.edges and not wish.must and peer not in layer.offers:
            self._not_now(layer, peer, wish)
        host.touch(layer)

    def _not_now(self, layer: Layer, peer: PeerId, wish: Wish) -> None:
        """An edge that the layer can do without is not worth a turn that is held for long."""
        layer.drop(peer)
        if wish.swaps >= SWAPS_MAX:
            self._host.send(peer, LinkDown(layer.name, True))
            self._host.wish_failed(layer, peer, wish, True)
        else:
            layer.forming[peer] = Asked((), False, wish.swaps + 1)
            self._host.send(peer, Swap(layer.name, wish.swaps + 1, False))

    def on_invite_timer(self, layer: Layer) -> None:
        """The time of those who were invited is up: change roles with them."""
        if not layer.is_sink or not layer.inviting:
            layer.inviting.clear()
            return
        host = self._host
        for peer in list(layer.inviting):
            asked = layer.forming[peer]
            layer.drop(peer)
            # Who gives up says nothing: an offer may be on its way, and has one answer.
            if asked.swaps < (SWAPS_MAX if asked.must else SWAPS_SPARE_MAX):
                layer.wishes[peer] = Wish(host.now_ms, asked.must, asked.swaps + 1, asked.merges)
                host.tend_later(layer)
                swap = Swap(layer.name, asked.swaps + 1, asked.must, asked.merges)
                host.send(peer, swap)
        host.touch(layer)
