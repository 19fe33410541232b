"""Differences of interest: they say as much as all of it, and who cannot use one asks for all."""

from collections import Counter
from itertools import combinations
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from overlays.reach.reach_network import ReachNetwork
from overlays.reach.test_interest import FILTERS
from peersub.overlays.core.causes import Received
from peersub.overlays.reach.differences import changed, difference, interest_of, wishes_of
from peersub.overlays.reach.interest import SOMETHING
from peersub.overlays.reach.messages import Interest, InterestAsked, InterestChanged, InterestTold
from peersub.overlays.reach.seats import NOTHING
from peersub.trace.schema import Step, TraceRecord

wishes = st.sets(st.tuples(st.integers(0, 15), st.sampled_from([None, *FILTERS])), max_size=8)
interests = st.one_of(
    st.sampled_from([NOTHING, SOMETHING]), st.builds(interest_of, wishes, st.integers(0, 5))
)


@given(interests, interests)
def test_a_difference_leads_from_one_interest_to_the_other(
    before: Interest, after: Interest
) -> None:
    ended, begun = difference(before, after)
    assert changed(before, ended, begun) == after
    assert set(wishes_of(begun)) == set(wishes_of(after)) - set(wishes_of(before))
    assert len(ended) == len(set(wishes_of(before)) - set(wishes_of(after)))


class TellingNetwork(ReachNetwork):
    """Counts in which way interest is told."""

    def __init__(self, seed: int = 1, **settings: Any) -> None:
        self.counts: Counter[type] = Counter()
        self.wishes = 0
        super().__init__(seed, **settings)

    def observe(self, record: TraceRecord) -> None:
        super().observe(record)
        if isinstance(record, Step) and isinstance(record.cause, Received):
            for message in record.cause.messages:
                self.counts[type(message)] += 1
                if isinstance(message, InterestChanged):
                    self.wishes += len(message.ended) + len(message.begun.identifiers)


def at_rest() -> TellingNetwork:
    made = TellingNetwork.converged(16)
    assert isinstance(made, TellingNetwork)
    for number, letters in enumerate(("ab", "cd", "a", "h", "efg", "bd")):
        made.subscribe(f"n{number}", letters)
    made.settle()
    made.counts.clear()
    made.wishes = 0
    return made


def test_what_changes_is_told_and_nothing_else() -> None:
    network = at_rest()
    first = network.subscribe("n9", "ce")
    network.settle()
    assert network.counts[InterestChanged] > 0
    assert network.counts[InterestTold] == 0
    assert network.wishes == network.counts[InterestChanged]
    again = network.counts.copy()
    network.subscribe("n10", "ce")
    network.settle()
    assert network.counts[InterestChanged] == again[InterestChanged]
    network.unsubscribe(first)
    network.settle()
    assert network.counts[InterestChanged] == again[InterestChanged]


def test_who_cannot_use_a_difference_asks_for_all() -> None:
    network = at_rest()
    for name in network.nodes:
        peer = network.peer(name)
        for seat in peer.holdings.seats.values():
            for below in seat.interest:
                seat.interest_numbers[below] = -1
    network.subscribe("n9", "ce")
    network.settle()
    assert network.counts[InterestAsked] > 0
    assert network.counts[InterestTold] > 0
    event = network.publish("n3", "ce")
    network.settle()
    assert network.delivered[event].total() == 1


def test_what_changes_while_something_is_on_its_way_is_told_together() -> None:
    one_by_one, together = at_rest(), at_rest()
    # So that many come to the same places, and no two are the same.
    wanted = [
        (f"n{number}", f"c{one}{two}") for number, (one, two) in enumerate(combinations("defgh", 2))
    ]
    for node, letters in wanted:
        one_by_one.subscribe(node, letters)
        one_by_one.settle()
        together.subscribe(node, letters)
    together.settle()
    assert together.complaints() == one_by_one.complaints() == []
    assert together.ready.keys() == one_by_one.ready.keys()
    told = [each.counts[InterestChanged] for each in (one_by_one, together)]
    assert told[1] < 0.7 * told[0]


def test_subscriptions_become_ready_while_others_begin_and_end_all_the_time() -> None:
    """Each waits for what was told when it began, not for what was told since."""
    letters, every_ms, kept = "abcdefgh", 10, 40
    network = ReachNetwork.converged(12)
    live: list[str] = []
    for number in range(200):
        start = number * 5 % 7
        live.append(network.subscribe(f"n{number % 12}", letters[start : start + 1 + number % 3]))
        if len(live) > kept:
            assert live[0] in network.ready, f"after {kept * every_ms} ms"
            network.unsubscribe(live.pop(0))
        network.simulation.run_for(every_ms)
    waiting = [len(seat.waiting) for peer in network.peers for seat in peer.holdings.seats.values()]
    assert 0 < max(waiting) < kept
    network.settle()
    assert network.complaints() == []
    assert {*live} <= {*network.ready}
    assert not any(seat.waiting for peer in network.peers for seat in peer.holdings.seats.values())
