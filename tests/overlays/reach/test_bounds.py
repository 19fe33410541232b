"""What a node spends on each cause, and how much it keeps of what others send."""

from __future__ import annotations

import sys
from typing import TypeVar

import pytest

from overlays.reach.reach_network import ReachNetwork, bits_of
from overlays.reach.test_holdings import OTHER, lone_peer, meet
from peersub.filters.filter import Filter
from peersub.overlays.core.causes import (
    PeerLost,
    Publish,
    Received,
    Timer,
    TimerFired,
)
from peersub.overlays.core.effects import Connect, Drop, Effect, Send
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.outbox import Outbox
from peersub.overlays.core.publication import Publication
from peersub.overlays.reach import copies, holdings, journeys, post
from peersub.overlays.reach.identifiers import Order, Place, fixed_order
from peersub.overlays.reach.messages import (
    CopyDropped,
    CopyHeard,
    CopyTold,
    Detour,
    EntriesGiven,
    Entry,
    LeaveAgreed,
    LoadAsked,
    Rendezvous,
    RenewalWanted,
    SeatFact,
    SeatGiven,
    SeatsTold,
    Stored,
)
from peersub.overlays.reach.peer import ReachPeer
from peersub.overlays.reach.post import Post
from peersub.overlays.reach.renewals import RENEWALS_BEAT_MS, RENEWALS_PER_BEAT_MAX
from peersub.overlays.reach.replicas import CopyRule, copy_bits
from peersub.overlays.reach.seats import Seat
from peersub.overlays.reach.settings import ReachSettings

M = TypeVar("M", bound=Message)


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


# --- what others send ----------------------------------------------------------------------------


def sent_in(effects: list[Effect], kind: type[M]) -> list[M]:
    return [
        message
        for effect in effects
        if isinstance(effect, Send)
        for message in effect.messages
        if isinstance(message, kind)
    ]


def entry(number: int) -> Entry:
    return Entry(1, OTHER, f"s{number}", Filter("a > 0"), number)


def test_of_places_that_a_peer_never_gives_the_last_one_is_kept() -> None:
    peer = lone_peer()
    meet(peer, OTHER, SeatFact(Place(1, 0), 9, 1))
    for length in range(1, 8):
        given = EntriesGiven(Place(length, 1), (entry(length),))
        peer.handle(Received(OTHER, (given,)), 2)
    assert [each.place for each in peer.holdings._arriving.values()] == [Place(7, 1)]
    peer.handle(PeerLost(OTHER, "gone"), 3)
    assert not peer.holdings._arriving


def test_what_is_too_much_of_a_place_that_comes_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(holdings, "ARRIVING_MAX", 3)
    for count in (3, 4):
        peer = lone_peer()
        meet(peer, OTHER, SeatFact(Place(1, 0), 9, 1))
        given = [EntriesGiven(Place(1, 1), (entry(each),)) for each in range(count)]
        effects = peer.handle(Received(OTHER, (*given, SeatGiven(Place(1, 1), 9, ()))), 2)
        kept = peer.holdings.seats[Place(1, 1)].entries()
        assert [each.name for each in kept] == ["s0", "s1", "s2"]
        assert bool(sent_in(effects, RenewalWanted)) == (count > 3)


def test_who_stays_keeps_no_agreements_to_leave() -> None:
    peer = lone_peer()
    meet(peer, OTHER, SeatFact(Place(1, 0), 9, 1))
    for length in range(1, 8):
        peer.handle(Received(OTHER, (LeaveAgreed(Place(length, 1)),)), 2)
    assert not peer.leaving._agreed


def test_numbers_of_what_was_told_go_with_the_neighbours() -> None:
    seat = Seat(Place(1, 1), 1)
    for length in range(1, 8):
        seat.set_near({Place(length, 0): OTHER})
        seat.interest_numbers[Place(length, 0)] = 1
    assert list(seat.interest_numbers) == [Place(7, 0)]


def test_links_that_are_waited_for_are_not_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(post, "ADDRESSEES_MAX", 2)
    out = Outbox()
    letters = Post(OTHER, out, 64)
    for node in "abc":
        letters.send(node, LoadAsked())
    effects = out.take()
    assert [each.node for each in effects if isinstance(each, Connect)] == ["a", "b", "c"]
    assert len([each for each in effects if isinstance(each, Drop)]) == 1
    for node in "ac":
        letters.connected(PeerId(node, 0), SeatsTold(()))
    sent = [each.peer.node for each in out.take() if isinstance(each, Send) if each.messages[1:]]
    assert sent == ["c"]


# --- events that may have to go again ------------------------------------------------------------


def sending_peer(nodes: int) -> ReachPeer:
    """It publishes events for places of others: `sent_by`."""
    peer = lone_peer()
    for number in range(nodes):
        other = PeerId(f"o{number}", 0)
        meet(peer, other, SeatFact(Place(number + 1, 1 << number), 9, 8))
    return peer


def publish(peer: ReachPeer, event: str, place: int, now_ms: int) -> None:
    letters = "abc"[place : place + 1]
    peer.handle(Publish((Publication(event, dict.fromkeys(letters, 1)),)), now_ms)


def events_in(effects: list[Effect]) -> list[str | None]:
    """Events that go another way, or are given up."""
    sent = [
        each.publication.id for each in (*sent_in(effects, Rendezvous), *sent_in(effects, Detour))
    ]
    return [*sent, *(each.event_id for each in effects if isinstance(each, Drop))]


@pytest.mark.parametrize("bound", [2, 3])
def test_events_that_may_go_again_are_few_in_all(
    bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journeys, "SENT_KEPT_OF_ALL_MAX", bound)
    peer = sending_peer(3)
    for number in range(3):
        publish(peer, f"e{number}", number, 10)
    again = [
        event
        for number in range(3)
        for event in events_in(peer.handle(PeerLost(PeerId(f"o{number}", 0), "crash"), 11))
    ]
    assert {f"e{number}" for number in range(3 - bound, 3)} == set(again)


@pytest.mark.parametrize("timer", ["reach/tick", "reach/renew"])
def test_events_that_have_arrived_are_forgotten_when_none_follow(timer: str) -> None:
    peer = sending_peer(3)
    for number in range(3):
        publish(peer, f"e{number}", number, 10 + number)
    due_ms = 12 + peer.settings.resend_ms
    peer.handle(TimerFired(Timer(timer)), due_ms)
    assert list(peer.journeys._sent) == ["o2"]
    peer.handle(TimerFired(Timer(timer)), due_ms + 1)
    assert not peer.journeys._sent


# --- copies --------------------------------------------------------------------------------------


def test_a_keeper_without_room_says_so_and_keeps_what_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(copies, "COPIES_MAX", 2)
    peer = sending_peer(3)
    owners = [(PeerId(f"o{number}", 0), Place(number + 1, 1 << number)) for number in range(3)]
    told = [(owner, CopyTold(place, 9, True, (), 1)) for owner, place in owners]
    answers = [peer.handle(Received(owner, (each,)), 2) for owner, each in told]
    assert [len(sent_in(each, CopyHeard)) for each in answers] == [1, 1, 0]
    assert [len(sent_in(each, CopyDropped)) for each in answers] == [0, 0, 1]
    assert list(peer.holdings.copies) == owners[:2]
    owner, last = told[2]
    peer.handle(Received(owners[0][0], (SeatsTold(()),)), 3)
    assert sent_in(peer.handle(Received(owner, (last,)), 4), CopyHeard), "one is held no more"
    assert list(peer.holdings.copies) == owners[1:]


def test_a_later_heir_keeps_what_an_earlier_one_has_no_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is confirmed before it has the copy."""
    network = ReachNetwork.joined(8, seed=2, copies=1, replicas=0, renew_ms=0)
    host = network.holder(bits_of("ab"))
    (seat,) = host.holdings.seats.values()
    (first,) = seat.copied
    refusing = network.peer(first.node)
    with monkeypatch.context() as patched:
        patched.setattr(copies, "COPIES_MAX", 0)
        seat.copied.clear()
        host.holdings.changed = True
        home = next(node for node in network.nodes if node not in (host.me.node, first.node))
        patched.setattr(
            copies.Copies,
            "_make_room",
            lambda self: self is not refusing.copies,
        )
        name = network.subscribe(home, "ab")
        network.settle()
    (second,) = seat.copied
    assert second != first
    kept = network.peer(second.node).holdings.whole_copy(host.me, seat.place)
    assert kept is not None and [each.name for each in kept.seat.entries()] == [name]
    assert refusing.holdings.whole_copy(host.me, seat.place) is None
    assert name in network.ready
    assert network.complaints() == []
    network.crash(host.me.node)
    network.settle()
    event = network.publish(home, "ab")
    network.settle()
    assert network.delivered[event] == network.wanting("ab")


def test_who_has_replicas_is_worked_out_once_for_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked with each event, for each place below that there is a copy of."""
    rule, place = CopyRule(2, 4, 2), Place(40, 0b1011)
    found = rule.replica_bits(place)
    assert found == copy_bits(place, map(fixed_order, range(4)), 2)
    ranked: list[int] = []
    monkeypatch.setattr(Order, "rank", lambda _, bit: ranked.append(bit) or bit)
    assert [rule.replica_bits(place) for _ in range(8)] == [found] * 8
    assert not ranked


# --- losses of places ----------------------------------------------------------------------------


def passed_on(peer: ReachPeer, wanted: RenewalWanted, sender: str, now_ms: int = 2) -> bool:
    effects = peer.handle(Received(PeerId(sender, 0), (wanted,)), now_ms)
    assert bool(sent_in(effects, RenewalWanted)) != any(isinstance(e, Drop) for e in effects)
    return bool(sent_in(effects, RenewalWanted))


def test_of_one_neighbour_only_so_many_losses_are_passed_on_in_a_while() -> None:
    peer = sending_peer(2)
    count = RENEWALS_PER_BEAT_MAX + 5
    lost = [RenewalWanted(Place(8, number), 1) for number in range(count + 1)]
    at_ms = 2 * RENEWALS_BEAT_MS
    assert sum(passed_on(peer, each, "o0", at_ms) for each in lost[:count]) == RENEWALS_PER_BEAT_MAX
    assert passed_on(peer, lost[count - 1], "o1", at_ms), "it comes over another link"
    assert passed_on(peer, lost[count], "o0", at_ms + RENEWALS_BEAT_MS)


def test_the_loss_of_what_cannot_be_a_place_is_not_passed_on() -> None:
    peer = ReachPeer(PeerId("n0", 0), ReachSettings(identifier_bits=8), 1)
    peer.install(Seat(Place(6, 0), 9), {OTHER: SeatsTold((SeatFact(Place(6, 1), 9, 6),))})
    assert passed_on(peer, RenewalWanted(Place(2, 3), 10), OTHER.node)
    assert not passed_on(peer, RenewalWanted(Place(1, 1), 10), OTHER.node), "half of everything"
    assert not passed_on(peer, RenewalWanted(Place(6, 3), 0), OTHER.node), "nobody claims by 0"
