"""Whatever a neighbour says, a node goes on: messages that make no sense are dropped.

Each message is one that the wire reads: of the types that its fields have, and nothing more.
"""

import types
import typing
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peersub.filters import Filter
from peersub.overlays.core.causes import (
    Leave,
    PeerConnected,
    PeerLost,
    Publish,
    Received,
    Start,
    Subscribe,
    Timer,
    TimerFired,
    Unsubscribe,
)
from peersub.overlays.core.effects import Drop, Send
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.publication import Publication
from peersub.overlays.reach import messages as reach
from peersub.overlays.reach.identifiers import Place
from peersub.overlays.reach.messages import (
    CopyTold,
    Detour,
    Interest,
    InterestTold,
    RenewalWanted,
    Routed,
    SeatFact,
    SeatGiven,
    SeatsTold,
    StoreAsked,
)
from peersub.overlays.reach.peer import ReachPeer
from peersub.overlays.reach.settings import ReachSettings

BITS = 6
ME = PeerId("m")
NEAR = {PeerId("a"): Place(2, 0b01), PeerId("b"): Place(2, 0b10), PeerId("c"): Place(2, 0b00)}
FILTERS = [Filter(text) for text in ("TRUE", "FALSE", "a > 0", "a > 0 AND b > 0 OR c > 0")]
KINDS = [
    kind
    for name in reach.__all__
    if isinstance(kind := getattr(reach, name), type) and issubclass(kind, Message)
]

_HUGE = [64, 1_000, 2**31, 2**63, 2**64 - 1, 2**256 - 1]
_numbers = st.integers(0, 7) | st.sampled_from([*_HUGE, 0b111111])
_fitting_places = st.integers(0, BITS).flatmap(
    lambda length: st.builds(Place, st.just(length), st.integers(0, (1 << length) - 1))
)
_places = (
    st.sampled_from([Place(2, 0b11), *NEAR.values(), Place(1, 1)])
    | _fitting_places
    | st.builds(Place, _numbers, _numbers)
)
_peers = st.sampled_from([ME, *NEAR, PeerId("a", 1), PeerId("stranger")])
_publications = st.builds(
    lambda number, letters: Publication(f"e{number}", dict.fromkeys(letters, 1)),
    st.integers(0, 5),
    st.text("abcdef", max_size=6),
)
_SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: _numbers,
    str: st.sampled_from(["m", "a", "b", "s", "", "stranger"]),
    Filter: st.sampled_from(FILTERS),
    Place: _places,
    PeerId: _peers,
    Publication: _publications,
}


def _of_type(hint: Any) -> st.SearchStrategy[Any]:
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is tuple:
        if arguments[-1] is Ellipsis:
            return st.lists(_of_type(arguments[0]), max_size=3).map(tuple)
        return st.tuples(*map(_of_type, arguments))
    if typing.get_origin(hint) is types.UnionType:
        return st.one_of(*map(_of_type, arguments))
    if hint is types.NoneType:
        return st.none()
    if hint is Message:
        return st.deferred(lambda: st.sampled_from(KINDS).flatmap(_instances))
    return _instances(hint)


def _instances(product: type) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(product)
    names = product._fields if hasattr(product, "_fields") else [f.name for f in fields(product)]
    return st.builds(product, **{name: _of_type(hints[name]) for name in names})


_received = st.builds(
    lambda peer, message: Received(peer, (message,)),
    st.sampled_from(list(NEAR)),
    st.sampled_from(KINDS).flatmap(_instances),
)
_others = st.one_of(
    st.builds(lambda publication: Publish((publication,)), _publications),
    st.sampled_from(list(NEAR)).map(PeerLost),
    st.sampled_from(list(NEAR)).map(PeerConnected),
    st.sampled_from(["reach/tick", "reach/renew", "reach/probe"]).map(
        lambda name: TimerFired(Timer(name))
    ),
    st.sampled_from([Subscribe("s", FILTERS[3]), Unsubscribe("s"), Leave()]),
)


def _settled() -> ReachPeer:
    """A node with the place 11, all neighbours of which are known."""
    chosen = ReachSettings(identifier_bits=BITS, attributes="a; b; c; d", push_above=1, load_ms=1)
    peer = ReachPeer(ME, chosen, 1)
    peer.handle(Start(), 0)
    for other, place in NEAR.items():
        peer.handle(PeerConnected(other), 1)
        peer.handle(Received(other, (SeatsTold((SeatFact(place, 9, 2),)),)), 1)
    for other in (PeerId("a"), PeerId("b")):
        told = InterestTold(NEAR[other], Place(2, 0b11), Interest((), 0), 1)
        peer.handle(Received(other, (told,)), 1)
    peer.handle(Subscribe("own", FILTERS[3]), 1)
    assert list(peer.holdings.seats) == [Place(2, 0b11)]
    return peer


@given(st.lists(st.one_of(_received, _received, _received, _others), max_size=20))
@settings(max_examples=120)
def test_no_message_of_a_neighbour_fails_a_node(causes):
    peer = _settled()
    for number, cause in enumerate(causes):
        peer.handle(cause, 2 + number * 300)


@pytest.mark.parametrize(
    "message",
    [
        SeatsTold((SeatFact(Place(2, 0b111), 99, 2),)),
        SeatsTold((SeatFact(Place(2**64, 0), 99, 2),)),
        SeatsTold((SeatFact(Place(BITS + 1, 0), 99, 2),)),
        SeatGiven(Place(2**64, 0), 1, ()),
        Detour(Publication("e", {}), 0, Place(2**64, 0), 0, 0),
        RenewalWanted(Place(2**64, 0), 1),
        InterestTold(Place(2, 0b01), Place(2, 0b11), Interest((1, 2), 2, (FILTERS[0],)), 1),
        InterestTold(Place(2, 0b01), Place(2, 0b11), Interest((1,), 2**64), 1),
        CopyTold(Place(2**64, 0), 1, True, (), 1),
        Routed(1 << BITS, 0, StoreAsked(reach.Entry(0, ME, "s", FILTERS[0], 1))),
        Routed(3, 0, StoreAsked(reach.Entry(1 << BITS, ME, "s", FILTERS[0], 1))),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_does_not_fit_is_dropped_and_changes_nothing(message):
    peer = _settled()
    before = peer.describe()
    effects = peer.handle(Received(PeerId("a"), (message,)), 2)
    assert any(isinstance(effect, Drop) for effect in effects)
    assert not any(isinstance(effect, Send) for effect in effects)
    assert peer.describe() == before


def test_a_subscription_may_end_while_its_node_waits_to_leave():
    peer = _settled()
    peer.handle(Leave(), 2)
    assert peer.holdings.seats, "it waits for an heir"
    peer.handle(Unsubscribe("own"), 3)
    peer.handle(Leave(), 4)
