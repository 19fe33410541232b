"""What a node spends on each cause, and how much it keeps of what others send."""

from __future__ import annotations

import sys

from overlays.reach.reach_network import bits_of
from overlays.reach.test_holdings import OTHER, lone_peer, meet
from peersub.filters.filter import Filter
from peersub.overlays.core.causes import Received
from peersub.overlays.reach.identifiers import Place
from peersub.overlays.reach.messages import LoadAsked, RenewalWanted, SeatFact, Stored
from peersub.overlays.reach.peer import ReachPeer


def calls_of(peer: ReachPeer, now_ms: int = 2) -> int:
    """Calls of functions and steps of generators for a cause of which nothing follows."""
    counted = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal counted
        counted += event == "call"

    sys.setprofile(count)
    try:
        peer.handle(Received(OTHER, (LoadAsked(),)), now_ms)
    finally:
        sys.setprofile(None)
    return counted


def with_own_subscriptions(count: int, *facts: SeatFact) -> ReachPeer:
    peer = lone_peer()
    meet(peer, OTHER, *facts)
    peer.install_subscriptions({f"s{number}": Filter("a > 0") for number in range(count)})
    return peer


def test_a_cause_costs_the_same_however_many_subscriptions_live_here() -> None:
    assert calls_of(with_own_subscriptions(400)) == calls_of(with_own_subscriptions(4))


def test_what_is_not_confirmed_is_open_until_it_is() -> None:
    peer = with_own_subscriptions(2, SeatFact(Place(1, 1), 9, 1))
    registrations = peer.registrations
    assert not registrations.is_open
    peer.handle(Received(OTHER, (RenewalWanted(Place(1, 1), 9),)), 3)
    for name, number in (("s0", 1), ("s1", 2)):
        assert registrations.is_open
        assert registrations.pending(name) == [bits_of("a")]
        peer.handle(Received(OTHER, (Stored(name, bits_of("a"), number),)), 4)
    assert not registrations.is_open
    registrations.remove("s0")
    assert registrations.is_open, "it is withdrawn"
