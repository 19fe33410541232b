"""Places that are claimed twice, copies of them, and newcomers that wait their turn."""

from __future__ import annotations

from overlays.reach.reach_network import ReachNetwork
from overlays.reach.test_peer import assert_all_get_what_they_want, with_subscriptions
from peersub.filters.filter import Filter
from peersub.overlays.core.causes import PeerConnected, PeerLost, Received, Start, Subscribe
from peersub.overlays.core.effects import Drop, Send
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.publication import Publication
from peersub.overlays.reach.identifiers import EMPTY_PLACE, Place
from peersub.overlays.reach.invariants import global_gap
from peersub.overlays.reach.messages import (
    CopyDropped,
    CopyTold,
    EntriesGiven,
    Entry,
    JoinAsked,
    SeatFact,
    SeatGiven,
    SeatsTold,
    SeatTaken,
    Spread,
)
from peersub.overlays.reach.peer import ReachPeer
from peersub.overlays.reach.settings import ReachSettings

OTHER, RIVAL = PeerId("n1", 0), PeerId("n2", 0)


def lone_peer() -> ReachPeer:
    settings = ReachSettings(identifier_bits=8, attributes="a; b; c")
    peer = ReachPeer(PeerId("n0", 0), settings, 1)
    peer.handle(Start(), 0)
    return peer


def meet(peer: ReachPeer, other: PeerId, *facts: SeatFact) -> None:
    peer.handle(PeerConnected(other), 1)
    peer.handle(Received(other, (SeatsTold(tuple(facts)),)), 1)


def test_who_loses_a_part_of_a_place_keeps_the_rest() -> None:
    """Else the rest would have no host until somebody misses it."""
    peer = lone_peer()
    peer.handle(Subscribe("s1", Filter("b > 0")), 0)
    meet(peer, OTHER, SeatFact(Place(2, 0b01), 9, 2))
    assert sorted(peer.holdings.seats) == [Place(1, 0), Place(2, 0b11)]
    kept = peer.holdings.seats[Place(1, 0)].entries()
    assert [entry.name for entry in kept] == ["s1"]


def test_a_rival_does_not_replace_the_copy_of_a_place() -> None:
    peer, place = lone_peer(), Place(1, 1)
    entry = Entry(1, OTHER, "s1", Filter("a > 0"), 1)
    meet(peer, OTHER)
    meet(peer, RIVAL)
    peer.handle(Received(OTHER, (CopyTold(place, 5, True, (entry,), 1),)), 2)
    peer.handle(Received(RIVAL, (CopyTold(place, 4, True, (), 1),)), 2)
    copy = peer.holdings.copy_of(place)
    assert copy is not None and list(copy.seat.entries()) == [entry]
    peer.handle(Received(RIVAL, (CopyDropped(place),)), 2)
    assert list(peer.holdings.copies) == [(OTHER, place)]


def test_a_copy_from_before_the_last_claim_is_no_copy() -> None:
    """It may lack what came since: an heir that has only this one asks for renewal."""
    peer, place = lone_peer(), Place(1, 1)
    meet(peer, OTHER, SeatFact(place, 1, 1))
    peer.handle(Received(OTHER, (CopyTold(place, 5, True, (), 1),)), 2)
    assert peer.holdings.copy_of(place) is not None
    peer.handle(Received(OTHER, (SeatsTold((SeatFact(place, 7, 1),)),)), 3)
    peer.handle(PeerLost(OTHER, "crash"), 4)
    assert peer.holdings.copy_of(place) is None


def test_many_join_at_once_one_after_the_other_where_changes_are_limited() -> None:
    """§3.3: the limit delays; all have a place in the end, and lengths differ by little."""
    needed_ms = {}
    for limit in (0, 1):
        network = ReachNetwork(seed=3, changes_per_beat=limit, beat_ms=2_000)
        for _ in range(12):
            network.join()
        assert network.simulation.run_until(lambda n=network: len(n.places()) == 12, 120_000)
        needed_ms[limit] = network.simulation.now_ms
        network.settle()
        assert network.complaints() == []
        assert global_gap(network.peers) <= 2
    assert needed_ms[1] > needed_ms[0] + 2_000


def test_who_is_alone_has_no_gap() -> None:
    network = ReachNetwork.joined(1)
    assert list(network.places()) == [EMPTY_PLACE]
    assert global_gap(network.peers) == 0


def test_an_heir_does_not_take_old_copies_for_forgotten_subscriptions() -> None:
    """A copy is as old as the subscription: the heir waits for renewals from when it takes over."""
    network = with_subscriptions(ReachNetwork.joined(8, seed=2, renew_ms=4_000), 16)
    network.simulation.run_for(60_000)
    for _ in range(2):
        network.crash(network.random.choice(network.nodes))
        network.settle()
        assert network.complaints() == []
    assert_all_get_what_they_want(network)


def test_an_event_for_a_place_follows_the_half_that_was_given_away_and_taken() -> None:
    """The sender is further away than the newcomer, and has not heard of the split."""
    peer, newcomer = lone_peer(), PeerId("n3", 0)
    meet(peer, OTHER, SeatFact(Place(1, 0), 9, 1))
    peer.handle(Received(OTHER, (JoinAsked("n3", 1),)), 2)
    meet(peer, newcomer)
    (half,), claim = peer.holdings.given, peer.holdings.given[Place(2, 0b11)].seat.claim
    taken = SeatTaken(half, claim), SeatsTold((SeatFact(half, claim, 2),))
    peer.handle(Received(newcomer, taken), 3)
    event = Publication("e", {"a": 1, "b": 1})
    effects = peer.handle(Received(OTHER, (Spread(event, 0b11, Place(1, 1), 1),)), 4)
    sent = [effect for effect in effects if isinstance(effect, Send)]
    assert [(each.peer, each.messages) for each in sent] == [
        (newcomer, (Spread(event, 0b11, half, 2),))
    ]
    effects = peer.handle(Received(OTHER, (Spread(event, 0b11, Place(8, 0b10), 1),)), 5)
    assert not any(isinstance(effect, Drop) for effect in effects), "a neighbour has it"


def test_nodes_agree_on_how_often_subscriptions_are_renewed() -> None:
    """A host would forget a subscription whose node renews it more seldom."""
    said = [
        ReachPeer(OTHER, ReachSettings(renew_ms=each), 1).shared_settings() for each in (0, 15_000)
    ]
    assert said[0] != said[1]


def test_what_comes_with_a_place_that_is_held_already_is_copied_and_told() -> None:
    """Who has a copy may answer for the place, and would not know of it."""
    peer, place = lone_peer(), Place(1, 1)
    meet(peer, OTHER, SeatFact(Place(1, 0), 9, 1))
    assert list(peer.holdings.seats) == [place]
    entry = Entry(1, RIVAL, "s1", Filter("a > 0"), 1)
    given = EntriesGiven(place, (entry,)), SeatGiven(place, 9, ())
    effects = peer.handle(Received(OTHER, given), 2)
    sent = [each for effect in effects if isinstance(effect, Send) for each in effect.messages]
    assert [each.entries for each in sent if isinstance(each, CopyTold)] == [(entry,)]
