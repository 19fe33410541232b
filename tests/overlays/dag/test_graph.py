"""The converged graph of a layer: connected, nearly regular, acyclic, one for all who draw it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peersub.overlays.dag.graph import LayerGraph, layer_graph
from strategies import examples


def names(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


def reached(graph: LayerGraph, start: int, *, without: int = -1) -> set[int]:
    found, ahead = {start}, [start]
    while ahead:
        for other in graph.neighbours[ahead.pop()]:
            if other not in found and other != without:
                found.add(other)
                ahead.append(other)
    return found


@examples(60)
@given(st.integers(0, 2**32), st.integers(1, 80), st.integers(2, 9))
def test_laws_of_the_graph(seed: int, count: int, degree: int) -> None:
    graph = layer_graph(seed, "stocks", names(count), degree)
    assert len(graph.neighbours) == len(graph.lids) == count
    wanted = min(degree, count - 1)
    for member, others in enumerate(graph.neighbours):
        assert len(set(others)) == len(others) >= wanted
        assert member not in others
        assert all(member in graph.neighbours[other] for other in others)
        assert list(others) == sorted(others, key=lambda other: f"n{other}")
        taken = {graph.lids[other] for other in others}
        assert graph.lids[member] not in taken
        assert all(
            graph.holds_token(member, other) != graph.holds_token(other, member) for other in others
        )
        # First free: each smaller number was taken by somebody.
        assert set(range(graph.lids[member])) <= taken
    assert len(reached(graph, 0)) == count
    if count > 2:
        assert len(reached(graph, 0, without=count - 1)) == count - 1


@examples(20)
@given(st.integers(0, 2**32), st.permutations(range(30)))
def test_the_order_of_members_does_not_matter(seed: int, order: list[int]) -> None:
    given_in_order = layer_graph(seed, "", names(30))
    shuffled = layer_graph(seed, "", [f"n{number}" for number in order])
    for place, number in enumerate(order):
        others = tuple(order[other] for other in shuffled.neighbours[place])
        assert others == given_in_order.neighbours[number]
        assert shuffled.lids[place] == given_in_order.lids[number]


def test_each_seed_layer_and_degree_has_its_own_graph() -> None:
    graph = layer_graph(1, "a", names(40))
    others = (layer_graph(2, "a", names(40)), layer_graph(1, "b", names(40)))
    assert all(graph.neighbours != other.neighbours for other in others)
    assert graph == layer_graph(1, "a", names(40), 4)
    assert layer_graph(1, "a", names(40), 5).edges > graph.edges


@pytest.mark.parametrize("degree", [2, 3, 4, 8])
def test_a_large_layer_is_nearly_regular(degree: int) -> None:
    for seed in range(5):
        graph = layer_graph(seed, "large", names(1_000), degree)
        degrees = [len(others) for others in graph.neighbours]
        assert min(degrees) == degree
        assert max(degrees) <= degree + 2
        assert sum(degrees) <= 1_000 * degree + 4


def test_a_small_layer_is_complete() -> None:
    for count in range(1, 6):
        graph = layer_graph(1, "", names(count))
        assert all(len(others) == count - 1 for others in graph.neighbours)
        assert sorted(graph.lids) == list(range(count))
    assert layer_graph(1, "", []).neighbours == ()
