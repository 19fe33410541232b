"""Who has a copy answers for places below: fewer visits, and the same deliveries."""

from random import Random

import pytest

from overlays.reach.reach_network import LETTERS, ReachNetwork
from peersub.overlays.core.identity import PeerId
from peersub.overlays.reach.identifiers import Place
from peersub.overlays.reach.messages import CopyTold


def letters_of(random: Random, most: int) -> str:
    return "".join(sorted(random.sample(LETTERS, random.randint(0, most))))


def drawn(share: float, seed: int = 4, **settings: object) -> ReachNetwork:
    """A network with subscriptions that were asked for, and confirmed."""
    chosen = {"summary_filters": True, "answer_share": share, "copies": 3, **settings}
    network = ReachNetwork.converged(24, seed, **chosen)
    random = Random(seed)
    for _ in range(40):
        network.subscribe(random.choice(network.nodes), letters_of(random, 3))
    network.settle()
    assert set(network.ready) == set(network.wanted)
    return network


def publish_some(network: ReachNetwork, count: int = 20, seed: int = 9) -> int:
    """How many places were visited; all that want an event get it, once."""
    random = Random(seed)
    before = sum(visits.total() for visits in network.visited.values())
    for _ in range(count):
        letters = letters_of(random, len(LETTERS))
        event = network.publish(random.choice(network.nodes), letters)
        network.settle()
        assert network.delivered[event] == network.wanting(letters)
    return sum(visits.total() for visits in network.visited.values()) - before


def test_answers_spare_visits_and_change_no_delivery() -> None:
    visits = {share: publish_some(drawn(share)) for share in (0.0, 0.5, 1.0)}
    assert visits[1.0] < visits[0.5] < visits[0.0]


def test_replicas_spare_more_visits_than_heirs_and_change_no_delivery() -> None:
    """Their copies are bounded by the orders, not by the places that are above."""
    visits = {
        replicas: publish_some(drawn(1.0, copies=2, orders=2, replicas=replicas))
        for replicas in (0, 1, 2)
    }
    assert visits[2] < visits[1] < visits[0]
    network = drawn(1.0, copies=2, orders=2, replicas=1)
    for peer in network.peers:
        for seat in peer.holdings.seats.values():
            # An heir for each copy, and for each order a place above, or both of its halves.
            assert len(seat.copied) <= 2 + 2 * 2
    assert network.complaints() == []


def test_without_quenching_nobody_knows_what_is_behind_a_place() -> None:
    plain, asked = drawn(0.0, quench=False), drawn(1.0, quench=False)
    assert publish_some(plain) == publish_some(asked)


@pytest.mark.parametrize("replicas", [0, 2])
@pytest.mark.parametrize("seed", range(2))
def test_what_is_new_or_gone_or_moved_is_answered_too(seed: int, replicas: int) -> None:
    network = drawn(1.0, seed, orders=2, replicas=replicas)
    random = Random(seed)
    for name in random.sample(sorted(network.wanted), 10):
        network.unsubscribe(name)
    for _ in range(10):
        network.subscribe(random.choice(network.nodes), letters_of(random, 2))
    network.settle()
    publish_some(network, 10)
    network.crash(random.choice(network.nodes))
    network.settle()
    network.leave(random.choice(network.nodes))
    network.settle()
    network.join()
    network.settle()
    assert network.complaints() == []
    publish_some(network, 10)


def test_a_copy_that_its_owner_has_not_told_anew_is_not_answered_from() -> None:
    network = drawn(1.0)
    answered = publish_some(network)
    for peer in network.peers:
        for copy in peer.holdings.copies.values():
            copy.is_whole = False
    assert publish_some(network) > answered


def test_a_copy_of_an_earlier_claim_is_not_answered_from() -> None:
    """Its owner has given the place away since, and got it back: who has a copy by now, it says."""
    network = drawn(1.0)
    answered = publish_some(network)
    for peer in network.peers:
        for copy in peer.holdings.copies.values():
            copy.seat.claim -= 1
    assert publish_some(network) > answered


def test_a_subscription_is_confirmed_when_replicas_have_it() -> None:
    network = ReachNetwork.converged(8, copies=0, orders=1, replicas=1, quench=False)
    host = network.holder(0)
    (seat,) = host.holdings.seats.values()
    (replica,) = seat.copied
    simulation = network.simulation
    simulation.network.stand_still(simulation.hosts[replica.node], 160)
    name = network.subscribe(host.me.node, "")
    simulation.run_for(120)
    assert name not in network.ready
    simulation.run_for(400)
    assert name in network.ready


def test_a_copy_is_whole_when_all_parts_have_come_and_no_more_when_the_link_is_lost() -> None:
    network = ReachNetwork.converged(4)
    peer, owner = network.peers[0], PeerId("n9")
    place = Place(9, 0)
    for begins, follows, is_whole in (
        (False, False, False),
        (True, True, False),
        (False, True, False),
        (False, False, True),
        (False, False, True),
        (True, False, True),
    ):
        told = CopyTold(place, 1, begins, (), 1, follows)
        peer.copies.on_told(owner, told, 0)
        assert peer.holdings.copies[owner, place].is_whole == is_whole
    peer.holdings.on_lost(owner)
    assert not peer.holdings.copies[owner, place].is_whole
    peer.copies.on_told(owner, CopyTold(place, 1, False, (), 2), 0)
    assert not peer.holdings.copies[owner, place].is_whole
