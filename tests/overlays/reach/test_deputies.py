"""Deputies answer for hot identifiers: everybody gets the same, whoever is gone meanwhile."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from overlays.reach.reach_network import LETTERS, ReachNetwork, bits_of
from peersub.overlays.core.causes import Received
from peersub.overlays.core.effects import Send
from peersub.overlays.core.identity import PeerId
from peersub.overlays.reach.deputies import LoadMeter
from peersub.overlays.reach.messages import Handed, LoadAsked, Notified, Spread
from peersub.overlays.reach.seats import Seat
from peersub.trace.schema import Step, TraceRecord

HOT = "ab"
"""What the events have that come in crowds, all to one host."""
WISHES = ("ab", "abe", "abf", "abg")
"""Identifiers that are kept there."""
BEAT_MS = 1_000
NODES = 16


class Loads:
    """Messages with events that nodes send, by kind and node."""

    def __init__(self) -> None:
        self.sent: dict[type, Counter[str]] = {}
        self.told = 0
        self.passed_on = 0

    def observe(self, record: TraceRecord) -> None:
        if not isinstance(record, Step):
            return
        handed = isinstance(record.cause, Received) and all(
            isinstance(message, Handed) for message in record.cause.messages
        )
        for effect in record.effects:
            for message in effect.messages if isinstance(effect, Send) else ():
                self.told += 1
                self.sent.setdefault(type(message), Counter())[record.node] += 1
                self.passed_on += handed and isinstance(message, (Spread, Handed))


class Crowd:
    """A network in which many nodes want one thing: the host of that has too much to do."""

    def __init__(self, seed: int = 3, **settings: object) -> None:
        chosen = {"push_above": 20, "load_ms": BEAT_MS, "renew_ms": 0, "replicas": 0, **settings}
        self.network = ReachNetwork.converged(NODES, seed, **chosen)
        self.loads = Loads()
        self.network.watchers.append(self.loads)
        self.random = Random(seed)
        for number, node in enumerate(self.network.nodes):
            self.network.subscribe(node, WISHES[number % 4])
            self.network.subscribe(node, WISHES[(number + 1) % 4])
            self.network.subscribe(node, "".join(self.random.sample(LETTERS, 2)))
        self.network.settle()

    @property
    def giver(self) -> str:
        return self.network.holder(bits_of(HOT)).me.node

    @property
    def seat(self) -> Seat:
        found = self.network.peer(self.giver).holdings.seat_of(bits_of(HOT))
        assert found is not None
        return found

    @property
    def deputies(self) -> list[PeerId]:
        return list(self.seat.deputies)

    def publish(self, count: int, every_ms: int = 40) -> None:
        """Events that contain what is hot, more than that, and other events; all arrive."""
        sent = self.start(count, every_ms)
        self.network.settle()
        self.assert_all_arrived(sent)

    def start(self, count: int, every_ms: int = 40) -> dict[str, str]:
        sent = {}
        for number in range(count):
            more = "".join(self.random.sample("defgh", number % 4))
            letters = more if number % 5 == 4 else "".join(sorted({*HOT, *more}))
            node = self.random.choice(self.network.nodes)
            sent[self.network.publish(node, letters)] = letters
            self.network.simulation.run_for(every_ms)
        return sent

    def assert_all_arrived(self, sent: dict[str, str]) -> None:
        for event, letters in sent.items():
            assert self.network.delivered[event] == self.network.wanting(letters)


@pytest.fixture
def crowd() -> Crowd:
    made = Crowd()
    made.publish(80)
    assert made.deputies
    return made


def test_deputies_relieve_the_giver_and_change_no_delivery(crowd: Crowd) -> None:
    plain = Crowd(push_above=0)
    plain.publish(80)
    assert plain.deputies == []
    giver = crowd.giver
    counts = {}
    for each in (plain, crowd):
        before = sum(counter[giver] for counter in each.loads.sent.values())
        each.publish(60)
        counts[each] = sum(counter[giver] for counter in each.loads.sent.values()) - before
    assert counts[crowd] < 0.7 * counts[plain]
    assert crowd.network.complaints() == []


def test_a_deputy_sends_nothing_further_and_events_that_contain_more_come_to_it(
    crowd: Crowd,
) -> None:
    before = crowd.loads.sent[Handed][crowd.giver]
    handed_out = {each for deputy in crowd.seat.deputies.values() for each in deputy.identifiers}
    for _ in range(10):
        event = crowd.network.publish(crowd.network.nodes[0], LETTERS)
        crowd.network.settle()
        assert crowd.network.delivered[event] == crowd.network.wanting(LETTERS)
    assert bits_of(LETTERS) not in handed_out, "none is labelled with what was handed out"
    assert crowd.loads.sent[Handed][crowd.giver] - before >= 10
    assert crowd.loads.passed_on == 0


def test_what_is_new_is_answered_by_deputies_and_what_has_ended_is_not(crowd: Crowd) -> None:
    network = crowd.network
    new = network.subscribe("n1", HOT)
    ended = [name for name, (node, _) in network.wanted.items() if node == "n2"]
    for name in ended:
        network.unsubscribe(name)
    network.settle()
    assert new in network.ready
    before = crowd.loads.sent[Notified].copy()
    event = network.publish("n2", HOT)
    network.settle()
    assert network.delivered[event] == network.wanting(HOT)
    assert crowd.loads.sent[Notified].total() - before.total() <= len(network.wanting(HOT))
    assert crowd.deputies
    for deputy in crowd.deputies:
        copy = network.peer(deputy.node).holdings.copies[
            network.peer(crowd.giver).me, crowd.seat.place
        ]
        assert not any(entry.subscriber.node == "n2" for entry in copy.seat.entries())


def test_a_subscription_is_confirmed_when_deputies_have_it(crowd: Crowd) -> None:
    network = crowd.network
    simulation = network.simulation
    for deputy in crowd.deputies:
        simulation.network.stand_still(simulation.hosts[deputy.node], 160)
    node = crowd.giver
    name = network.subscribe(node, HOT)
    simulation.run_for(120)
    assert name not in network.ready
    sent = {network.publish(node, HOT): HOT}
    network.settle()
    assert name in network.ready
    for event in sent:
        assert network.delivered[event] >= network.wanting(HOT) - Counter([name])


@pytest.mark.parametrize("is_sudden", [True, False])
def test_deputies_that_crash_or_leave_are_passed_over(crowd: Crowd, is_sudden: bool) -> None:
    network = crowd.network
    for deputy in crowd.deputies:
        if is_sudden:
            network.crash(deputy.node)
        else:
            network.leave(deputy.node)
        # Some come before anybody knows.
        sent = crowd.start(12)
        network.simulation.run_for(4_000)
        crowd.assert_all_arrived(sent)
        network.settle()
    assert network.complaints() == []
    crowd.publish(20)


@pytest.mark.parametrize("seed", range(2))
def test_a_giver_that_splits_crashes_or_leaves_loses_nothing(seed: int) -> None:
    crowd = Crowd(seed)
    crowd.publish(60)
    assert crowd.deputies
    network = crowd.network
    network.crash(crowd.giver)
    sent = crowd.start(8)
    network.simulation.run_for(4_000)
    crowd.assert_all_arrived(sent)
    network.settle()
    crowd.publish(60)
    before = crowd.seat.place
    for _ in range(NODES):
        network.join()
        crowd.start(3, 20)
    network.settle()
    assert crowd.seat.place != before
    crowd.publish(60)
    network.leave(crowd.giver)
    crowd.publish(40)
    assert network.complaints() == []


def test_what_is_no_longer_of_use_is_taken_back_and_idle_nodes_are_silent(crowd: Crowd) -> None:
    network = crowd.network
    told = crowd.loads.told
    network.simulation.run_for(60_000)
    assert crowd.loads.told == told, "nobody says anything"
    network.publish(network.nodes[0], HOT)
    network.settle()
    assert crowd.deputies == [], "an event came, after a long time"
    asked = crowd.loads.sent[LoadAsked].total()
    crowd.publish(5, every_ms=2_000)
    assert crowd.loads.sent[LoadAsked].total() == asked
    for peer in network.peers:
        keepers = {copy for seat in peer.holdings.seats.values() for copy in seat.copied}
        assert len(keepers) <= network.settings.copies
    assert network.complaints() == []


def test_who_has_no_copy_sends_back_and_is_deputy_no_more(crowd: Crowd) -> None:
    network = crowd.network
    lost = crowd.deputies
    for deputy in lost:
        network.peer(deputy.node).holdings.copies.clear()
    event = network.publish(crowd.deputies[0].node, LETTERS)
    network.settle()
    assert network.delivered[event] == network.wanting(LETTERS)
    assert not set(lost) & set(crowd.deputies)


def test_a_load_is_that_of_the_last_beat() -> None:
    meter = LoadMeter(1_000)
    for _ in range(30):
        meter.count()
    assert meter.load(900) == 0
    assert meter.load(1_000) == 30
    assert not meter.begin_anew(900)
    assert meter.begin_anew(1_500)
    assert meter.load(1_600) == 20
    meter.count()
    assert meter.load(11_500) == 0
