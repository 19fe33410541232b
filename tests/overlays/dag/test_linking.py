"""Edges between two members, where what they say crosses on the way."""

from __future__ import annotations

from typing import Any

from peersub.overlays.core.causes import PeerConnected, Received, Start, Timer, TimerFired
from peersub.overlays.core.effects import Send
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.dag.layer import Asked, Edge
from peersub.overlays.dag.linking import INVITE, SWAPS_SPARE_MAX
from peersub.overlays.dag.messages import LinkDown, LinkUpOk, Offer, RequestVal, Swap
from peersub.overlays.dag.peer import DagPeer
from peersub.overlays.dag.settings import DagSettings

ME, OTHER, THIRD = PeerId("a"), PeerId("b"), PeerId("c")


def member(*neighbours: PeerId, holds_token: bool = True) -> DagPeer:
    """A node with edges to these, whose lids are 10, 11, ..., and links to all others."""
    peer = DagPeer(ME, DagSettings(), 1)
    peer.handle(Start(), 0)
    for other in (OTHER, THIRD):
        peer.handle(PeerConnected(other), 0)
    for number, other in enumerate(neighbours):
        peer.layers[""].edges[other] = Edge(0, 10 + number, holds_token, 0)
    return peer


def told(peer: DagPeer, sender: PeerId, message: Message, now_ms: int = 10) -> list[Any]:
    """What the node says to others when it is told this."""
    return said_in(peer.handle(Received(sender, (message,)), now_ms))


def said_in(effects: list[Any]) -> list[Any]:
    return [
        (effect.peer, message)
        for effect in effects
        if isinstance(effect, Send)
        for message in effect.messages
    ]


def test_an_answer_to_an_offer_that_was_given_up_takes_the_edge_back():
    """Else one end would have an edge, and a token to lose, of which the other knows nothing."""
    peer = member(THIRD)
    label = peer.layers[""].label
    assert label is not None
    answer = LinkUpOk("", 0, 0, 0, 1, label, True, ())
    assert told(peer, OTHER, answer) == [(OTHER, LinkDown("", True))]
    assert OTHER not in peer.layers[""].edges


def test_who_gives_up_inviting_says_nothing_and_answers_the_offer_that_was_on_its_way():
    peer = member(THIRD)
    layer = peer.layers[""]
    layer.forming[OTHER] = Asked(swaps=SWAPS_SPARE_MAX)
    layer.inviting[OTHER] = None
    said = said_in(peer.handle(TimerFired(Timer(INVITE, "")), 5))
    assert not any(isinstance(message, LinkDown | Swap) for _, message in said)
    assert OTHER not in layer.forming
    label = layer.label
    said = told(peer, OTHER, Offer("", 0, 20, False, False, label, True))
    assert [type(m) for to, m in said if to == OTHER and isinstance(m, LinkUpOk)] == [LinkUpOk]
    assert layer.edges[OTHER].holds_token


def test_who_has_too_few_edges_lets_its_neighbour_find_somebody():
    """The neighbour sends the request on to one that is none of who asks."""
    peer = member(OTHER, THIRD)
    said = told(peer, OTHER, RequestVal("", OTHER, ()))
    assert (THIRD, RequestVal("", OTHER, (ME,))) in said
    assert told(member(OTHER), OTHER, RequestVal("", OTHER, ())) == [], "there is nobody else"
