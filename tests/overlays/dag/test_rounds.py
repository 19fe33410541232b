"""Rounds as arrays against members one by one, and the bounds on rounds and copies."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peersub.overlays.dag.graph import LayerGraph, layer_graph
from peersub.overlays.dag.orientation import is_sink, turned
from peersub.overlays.dag.rounds import NEVER, LayerRounds, spread
from strategies import examples


@dataclass
class Member:
    """A member that knows its values, and what it has got, from whom, and sent."""

    val: int
    lid: int
    got: dict[int, tuple[int, int]] = field(default_factory=dict)
    sent: dict[int, int] = field(default_factory=dict)


class SlowLayer:
    """The naive twin: Module 1 and Module 5, one member after the other."""

    def __init__(self, graph: LayerGraph) -> None:
        self.graph = graph
        self.members = [Member(0, lid) for lid in graph.lids]
        self.rounds = 0

    def around(self, number: int) -> list[tuple[int, int]]:
        others = (self.members[other] for other in self.graph.neighbours[number])
        return [(other.val, other.lid) for other in others]

    def publish(self, number: int, event: int) -> None:
        self.members[number].got[event] = (self.rounds, NEVER)

    def take_turns(self) -> list[int]:
        sinks = [
            number
            for number, member in enumerate(self.members)
            if self.graph.neighbours[number]
            and is_sink(member.val, member.lid, self.around(number))
        ]
        self.rounds += 1
        batches = {
            n: [e for e in self.members[n].got if e not in self.members[n].sent] for n in sinks
        }
        for number in sinks:
            member = self.members[number]
            member.val, member.lid = turned(member.val, member.lid, self.around(number))
            for event in batches[number]:
                member.sent[event] = self.rounds
                for other in self.graph.neighbours[number]:
                    self.members[other].got.setdefault(event, (self.rounds, number))
        return sinks


@examples(40)
@given(
    st.integers(0, 2**32),
    st.integers(1, 40),
    st.integers(2, 6),
    st.lists(st.tuples(st.integers(0, 39), st.integers(0, 12)), min_size=1, max_size=5),
)
def test_rounds_are_those_of_members_one_by_one(
    seed: int, count: int, degree: int, published: list[tuple[int, int]]
) -> None:
    graph = layer_graph(seed, "layer", [f"n{number}" for number in range(count)], degree)
    publishers = np.array([number % count for number, _ in published])
    begins = np.array([begin for _, begin in published])
    last = 100
    layer = LayerRounds(graph)
    found = spread(layer, publishers, begins, last)
    slow = SlowLayer(graph)
    turns = 0
    while slow.rounds < layer.rounds:
        for event in np.flatnonzero(begins == slow.rounds).tolist():
            slow.publish(int(publishers[event]), event)
        turns += len(slow.take_turns())
    for number, member in enumerate(slow.members):
        assert (member.val, member.lid) == (layer.vals[number], layer.lids[number])
        for event in range(len(published)):
            got = member.got.get(event, (NEVER, NEVER))
            assert got == (found.arrivals[number, event], found.senders[number, event])
            assert member.sent.get(event, NEVER) == found.sent[number, event]
    assert found.sinks_share == pytest.approx(turns / (count * slow.rounds))
    if count > 1:
        everybody = [max(m.got[e][0] for m in slow.members) for e in range(len(published))]
        assert found.rounds.tolist() == (np.array(everybody) - begins).tolist()
        assert found.copies.tolist() == [2 * graph.edges] * len(published)
        assert (found.copies_without_senders == 2 * graph.edges - (count - 1)).all()


@examples(60)
@given(st.integers(0, 2**32), st.integers(2, 20), st.integers(2, 6))
def test_a_round_from_any_values_is_that_of_members_one_by_one(
    seed: int, count: int, degree: int
) -> None:
    """Also from values that only joins lead to, where a member lifts its lid above all others."""
    random = Random(seed)
    slow = SlowLayer(layer_graph(seed, "", [f"n{number}" for number in range(count)], degree))
    layer = LayerRounds(slow.graph)
    first = random.randrange(3)
    for number, lid in enumerate(random.sample(range(2 * count), count)):
        slow.members[number] = Member((first + random.randrange(2)) % 3, lid)
    layer.vals[:] = [member.val for member in slow.members]
    layer.lids[:] = [member.lid for member in slow.members]
    for _ in range(4):
        assert layer.take_turns().tolist() == slow.take_turns()
        assert layer.vals.tolist() == [member.val for member in slow.members]
        assert layer.lids.tolist() == [member.lid for member in slow.members]


@examples(20)
@given(st.integers(0, 2**32), st.integers(2, 60), st.integers(2, 8))
def test_neighbours_take_turns_strictly_in_turn(seed: int, count: int, degree: int) -> None:
    layer = LayerRounds(layer_graph(seed, "", [f"n{number}" for number in range(count)], degree))
    for _ in range(60):
        sinks = layer.take_turns()
        assert len(sinks), "a layer without a cycle has a sink"
        assert not np.isin(layer.targets[np.isin(layer.origins, sinks)], sinks).any()
        assert (layer.lids[layer.origins] != layer.lids[layer.targets]).all()
        assert np.abs(layer.turns[layer.origins] - layer.turns[layer.targets]).max() <= 1
    assert layer.turns.min() > 0


def test_a_member_alone_takes_no_turns() -> None:
    layer = LayerRounds(layer_graph(1, "", ["n0"]))
    found = spread(layer, np.array([0]), np.array([0]), 5)
    assert layer.turns.tolist() == [0]
    assert found.rounds.tolist() == [0]
    assert found.copies.tolist() == [0]


def test_giving_up_leaves_members_without_the_event() -> None:
    layer = LayerRounds(layer_graph(1, "", [f"n{number}" for number in range(50)]))
    found = spread(layer, np.array([0]), np.array([0]), 3)
    assert found.rounds.tolist() == [NEVER]
    assert (found.arrivals == NEVER).any()
    assert (found.senders[found.arrivals == NEVER] == NEVER).all()


def test_a_thousand_members_are_reached_within_the_rounds_of_the_digest() -> None:
    count = 1_000
    for seed in range(3):
        graph = layer_graph(seed, "", [f"n{number}" for number in range(count)])
        layer = LayerRounds(graph)
        publishers = np.arange(0, count, 20)
        begins = np.arange(len(publishers)) % 10
        found = spread(layer, publishers, begins, 100)
        assert found.rounds.min() > 0
        assert found.rounds.mean() <= 22
        assert (found.copies_without_senders <= 2 * graph.edges - (count - 1)).all()
        assert np.abs(layer.turns[layer.origins] - layer.turns[layer.targets]).max() <= 1
