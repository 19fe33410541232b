"""Edges between two members, where what they say crosses on the way."""

from __future__ import annotations

from typing import Any

import pytest

from peersub.filters import Filter
from peersub.overlays.core.causes import (
    PeerConnected,
    Received,
    Start,
    Subscribe,
    Timer,
    TimerFired,
)
from peersub.overlays.core.effects import Send
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.dag.layer import Asked, Edge, Layer, Wish
from peersub.overlays.dag.linking import FORMING_MAX, INVITATIONS_MAX, INVITE
from peersub.overlays.dag.messages import (
    Invite,
    Label,
    Later,
    LayersTold,
    LinkDown,
    LinkUpOk,
    Offer,
    RequestVal,
    Turn,
)
from peersub.overlays.dag.orientation import points_at
from peersub.overlays.dag.peer import DagPeer
from peersub.overlays.dag.settings import DagSettings

ME, OTHER, THIRD = PeerId("a"), PeerId("b"), PeerId("c")


def member(*neighbours: PeerId, holds_token: bool = True) -> DagPeer:
    """A node with edges to these, whose lids are 10, 11, ..., and links to all others."""
    peer = DagPeer(ME, DagSettings(), 1)
    peer.handle(Start(), 0)
    peer.layers[""].lid = 0
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
    answer = LinkUpOk("", 7, 0, 0, 0, 1, 0, label, True, ())
    assert told(peer, OTHER, answer) == [(OTHER, LinkDown("", True))]
    assert OTHER not in peer.layers[""].edges


def offering(peer: DagPeer, *, number: int = 3) -> None:
    peer.layers[""].wishes[OTHER] = Wish(0)
    peer.layers[""].offers[OTHER] = number


def test_news_that_crosses_an_offer_leaves_it_open():
    peer = member(THIRD)
    offering(peer)
    assert told(peer, OTHER, LinkDown("", True)) == []
    assert peer.layers[""].offers == {OTHER: 3}
    told(peer, OTHER, LinkDown("", True, number=3))
    assert not peer.layers[""].offers and not peer.layers[""].wishes


@pytest.mark.parametrize("answer", [Later("", 2), LinkDown("", True, number=2)])
def test_an_answer_to_an_earlier_offer_is_none_to_this_one(answer):
    peer = member(THIRD)
    offering(peer)
    told(peer, OTHER, answer)
    assert peer.layers[""].offers == {OTHER: 3}


@pytest.mark.parametrize("val", range(3))
@pytest.mark.parametrize("lid", [0, 1, 20])
def test_a_sink_takes_every_offer_and_values_agree_with_the_token_from_turn_to_turn(val, lid):
    """The offerer, played by the test, has other edges: it keeps its value and lid."""
    peer = member(THIRD)
    layer = peer.layers[""]
    said = told(peer, OTHER, Offer("", 5, val, lid, False, False, layer.label, True))
    (answer,) = [m for to, m in said if to == OTHER and isinstance(m, LinkUpOk)]
    edge = layer.edges[OTHER]
    assert answer.number == 5 and answer.lid != lid
    assert edge.holds_token and points_at(layer.val, layer.lid, edge.val, edge.lid)
    assert (answer.shift + edge.shift) % 3 == 0
    for turn in range(1, 7):
        layer.take_turn(lambda to, message: None)
        assert points_at(edge.val, edge.lid, layer.val, layer.lid), "it points away now"
        for each in layer.edges.values():
            shifted = (val if each is edge else 0) + turn
            layer.token_came(each, shifted % 3, each.lid)
        assert points_at(layer.val, layer.lid, edge.val, edge.lid), "and here again"


@pytest.mark.parametrize(
    ("around", "expected"),
    [
        ([(0, 10)], 6),
        ([(0, 6)], 4),
        ([(0, 6), (1, 3)], 4),
        ([(0, 6), (1, 4)], None),
        ([(1, 4)], 6),
    ],
)
def test_a_sink_of_the_same_lid_takes_another_that_turns_no_edge_and_no_order(around, expected):
    layer = Layer("", DagSettings())
    layer.lid = 5
    for number, (val, lid) in enumerate(around):
        layer.edges[PeerId(str(number))] = Edge(val, lid, True, 0)
    assert layer.lid_beside(7) == 5
    assert layer.lid_beside(5) == expected


def test_who_does_not_answer_an_invitation_is_invited_again_and_given_up_after_a_while():
    peer = member(THIRD)
    layer = peer.layers[""]
    layer.forming[OTHER] = Asked(must=True)
    peer.linking.invite(layer)
    for attempt in range(INVITATIONS_MAX):
        assert OTHER in layer.inviting
        said = said_in(peer.handle(TimerFired(Timer(INVITE, "")), 5))
        assert any(isinstance(message, Turn) for _, message in said), f"held for ever: {attempt}"
        said = told(peer, THIRD, Turn("", (attempt + 1) % 3, 10))
        assert any(to == OTHER and isinstance(m, Invite) for to, m in said)
    said = said_in(peer.handle(TimerFired(Timer(INVITE, "")), 5))
    assert (OTHER, LinkDown("", True)) in said
    assert OTHER not in layer.forming


def test_of_two_that_invite_each_other_the_smaller_one_offers():
    for me, other in ((ME, OTHER), (THIRD, OTHER)):
        peer = DagPeer(me, DagSettings(), 1)
        peer.handle(Start(), 0)
        peer.handle(PeerConnected(other), 0)
        layer = peer.layers[""]
        layer.forming[other] = Asked()
        peer.linking.invite(layer)
        said = told(peer, other, Invite("", ()))
        assert any(isinstance(message, Offer) for _, message in said) == (me < other)


def test_who_has_too_few_edges_lets_its_neighbour_find_somebody():
    """The neighbour sends the request on to one that is none of who asks."""
    peer = member(OTHER, THIRD)
    said = told(peer, OTHER, RequestVal("", OTHER, ()))
    assert (THIRD, RequestVal("", OTHER, (ME,))) in said
    assert told(member(OTHER), OTHER, RequestVal("", OTHER, ())) == [], "there is nobody else"


def test_who_takes_an_edge_says_so_before_anything_else():
    """What comes before the other end knows of the edge, it does not heed: layers, labels."""
    peer = member(THIRD)
    peer.handle(Subscribe("s1", Filter("TRUE")), 5)
    said = told(peer, OTHER, Offer("", 5, 0, 7, False, False, Label(9, OTHER), True))
    to_other = [message for to, message in said if to == OTHER]
    assert isinstance(to_other[0], LinkUpOk)
    assert LayersTold(("*",)) in to_other[1:]
    assert peer.layers[""].label == Label(9, OTHER)


def test_a_request_of_one_who_may_have_taken_the_offer_is_no_reason_to_say_that_there_is_no_edge():
    """It would drop the edge, and the answer that is on its way bring up the other half of it."""
    peer = member(THIRD)
    offering(peer)
    for number in range(FORMING_MAX):
        peer.layers[""].forming[PeerId(f"m{number}")] = Asked()
    assert told(peer, THIRD, RequestVal("", OTHER, (THIRD,))) == []
