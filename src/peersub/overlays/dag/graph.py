"""The graph that a layer converges to, by keyed draws: nearly regular, connected, at its start.

A layer of at most `degree + 1` members is complete. A larger one is the union of `degree // 2`
circles through all members, each in an order of its own, with a matching of neighbours in one more
order if the degree is odd. One circle alone connects the layer, so it is connected for sure, also
when any one edge or member is gone. Where circles share an edge its ends are short of a neighbour:
these are linked with each other if they can be, else with somebody who then has one too many. So
everybody has at least `degree` neighbours, and few have more.

Values are those of a layer in which nobody has taken a turn: every val is 0, and the lid of a
member is the smallest number that no neighbour has, taken one after the other in the order of the
first circle. All vals being equal, an edge points at the end with the smaller lid, which holds its
token: a directed cycle would need lids that fall all the way round.

Lids that are first free differ little between neighbours, so that few turns pass until everybody
had one: with lids drawn at random an event takes half as many rounds again.

Law: the graph is a function of the seed, the layer, the degree and the set of members. It costs a
few draws for each member, and one sort for each circle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from peersub.overlays.core.draws import draw
from peersub.overlays.dag.orientation import first_free_lid

__all__ = ["DEGREE", "LayerGraph", "layer_graph"]

DEGREE: Final = 4
"""Denser layers are slower, since a member waits for all its neighbours, and cost more copies."""


@dataclass(frozen=True, slots=True)
class LayerGraph:
    """A layer at its start. Members are numbered by their places in the given sequence."""

    neighbours: tuple[tuple[int, ...], ...]
    """Per member those that it has edges with, in the order of their names."""
    lids: tuple[int, ...]
    """Per member its lid. Every val is 0."""

    @property
    def edges(self) -> int:
        """How many edges there are, each counted once."""
        return sum(map(len, self.neighbours)) // 2

    def holds_token(self, member: int, neighbour: int) -> bool:
        """Whether the edge with this neighbour points at the member (Def. 3.2, vals equal).

        >>> graph = layer_graph(1, "", ["n0", "n1"])
        >>> graph.holds_token(0, 1) != graph.holds_token(1, 0)
        True
        """
        return self.lids[member] < self.lids[neighbour]


def layer_graph(seed: int, layer: str, members: Sequence[str], degree: int = DEGREE) -> LayerGraph:
    """The converged graph of a layer.

    Args:
        seed: the network's.
        layer: its name.
        members: the names of its nodes, each once, in any order.
        degree: how many neighbours members should have, at least 2.
    """
    assert degree >= 2, "a circle through all members has two edges at each"
    count = len(members)
    by_name = sorted(range(count), key=members.__getitem__)
    first = _order(seed, layer, members, by_name, 0)
    linked: list[dict[int, None]] = [{} for _ in members]
    if count <= degree + 1:
        for one in by_name:
            linked[one] = {other: None for other in by_name if other != one}
    else:
        for one, other in _circles(seed, layer, members, by_name, first, degree):
            linked[one][other] = linked[other][one] = None
        _fill(linked, first, degree)
    rank = [0] * count
    for place, member in enumerate(by_name):
        rank[member] = place
    return LayerGraph(
        tuple(tuple(sorted(others, key=rank.__getitem__)) for others in linked),
        tuple(_first_free_lids(linked, first)),
    )


def _order(
    seed: int, layer: str, members: Sequence[str], by_name: Sequence[int], circle: int
) -> list[int]:
    drawn = {member: draw(seed, "dag/graph", layer, members[member], circle) for member in by_name}
    return sorted(by_name, key=drawn.__getitem__)


def _circles(
    seed: int,
    layer: str,
    members: Sequence[str],
    by_name: Sequence[int],
    first: Sequence[int],
    degree: int,
) -> Iterator[tuple[int, int]]:
    """The edges of all circles, and of the matching if the degree is odd."""
    count = len(members)
    for circle in range(degree // 2):
        order = _order(seed, layer, members, by_name, circle) if circle else first
        for place, member in enumerate(order):
            yield member, order[(place + 1) % count]
    if degree % 2:
        order = _order(seed, layer, members, by_name, degree // 2)
        yield from zip(order[::2], order[1::2], strict=False)


def _fill(linked: list[dict[int, None]], first: Sequence[int], degree: int) -> None:
    """Link those that have too few neighbours, with each other before anybody else."""
    short = [member for member in first if len(linked[member]) < degree]
    for member in short:
        for other in short:
            if len(linked[member]) >= degree:
                break
            if other != member and other not in linked[member] and len(linked[other]) < degree:
                linked[member][other] = linked[other][member] = None
    place_of = {member: place for place, member in enumerate(first)} if short else {}
    for member in short:
        step = 1
        while len(linked[member]) < degree:
            # There are more than `degree` others, so this ends before it comes round to the member.
            step += 1
            other = first[(place_of[member] + step) % len(first)]
            linked[member][other] = linked[other][member] = None


def _first_free_lids(linked: Sequence[dict[int, None]], order: Sequence[int]) -> list[int]:
    lids = [-1] * len(linked)
    for member in order:
        lids[member] = first_free_lid(lids[other] for other in linked[member])
    return lids
