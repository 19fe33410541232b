"""Keys placed by interest: nodes that want the same events stand together on the circle.

The paper draws keys. An event then visits many nodes that do not want it, only because they stand
on the way to those that do. Nodes that want an event and stand next to each other share that way:
a run of k of them costs k messages and about half a logarithm of the ring's size in relays, however
large k is. So the fewer runs the nodes that want an event form on the circle, the fewer relays.

What nodes want is measured on a *sample* of events that all nodes know. Two ways to a key:

* `interest_key` needs a node's own filters only, so each node can choose its key when it joins. On
  each attribute the sample's events have a rank, from 0 to 1. The attribute on which the events
  that the node wants lie closest together gives it an equal part of the circle, their mean rank
  there the place in that part, the next attribute the place among nodes at the same place, and a
  keyed draw the rest. An event then meets about one run of nodes for each attribute.
* `placed_keys` needs the filters of all nodes, and spreads keys evenly. The runs of all events of
  the sample together are half the sum, around the circle, of the events that one of two neighbours
  wants and the other does not. The order of nodes is a tour that keeps this sum small: always on to
  the nearest node that is left. It takes time that grows with the square of the number of nodes.

A node that wants no event of the sample, or something of everything, is placed by a draw.

Invariants: a key is a function of the arguments. Keys of `placed_keys` are distinct and at equal
distances, and nodes with equal interests stand in one run; by `interest_key` their keys lie within
one cell, 1 / (attributes · PLACES²) of the circle.
Departure from the paper: keys are not uniform (`interest_key`), and no longer independent of what
is published; the routing needs neither, but the depth of the trees does not come with a proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from peersub.events.kinds import comparable
from peersub.filters.filter import Filter, Matchable, attributes_of
from peersub.overlays.chord.settings import PLACEMENTS
from peersub.overlays.core.draws import draw

__all__ = ["InterestMap", "interest_key", "keys_for", "placed_keys"]

PLACES: Final = 64
"""Places on an attribute. Nodes at one place are told apart by another attribute."""
UNFOCUSED: Final = 0.9
"""Who wants events that are spread nearly as wide as all events on every attribute, this share of
it or more, has no place: mean ranks would crowd in the middle of an attribute."""
FILTERS_MAX: Final = 65_536
"""Filters of which the map remembers what they want."""
_SPREAD_OF_ALL: Final = 1 / 12
"""The variance of ranks that are spread evenly from 0 to 1."""

_Path = tuple[str, ...]


class _Rank(NamedTuple):
    """Where a value stands among the sample's: the middle of its share, and that share."""

    middle: float
    width: float


class _Focus(NamedTuple):
    """How close together some events lie on an attribute, and where; the closest sorts first."""

    spread: float
    attribute: int
    mean: float


class InterestMap:
    """What a sample of events says about filters; made once, asked for many nodes.

    Args:
        sample: events, or their attributes, like those that will be published. All nodes of a
            network use the same.
    """

    def __init__(self, sample: Sequence[Matchable]) -> None:
        self._sample = tuple(sample)
        self._ranks = _ranks_of(self._sample)
        self._wanted: dict[bytes, int] = {}

    def wanted(self, filters: Iterable[Filter]) -> int:
        """The events of the sample that one of the filters wants, a bit for each."""
        bits = 0
        for one in filters:
            known = self._wanted.get(one.digest)
            if known is None:
                if len(self._wanted) >= FILTERS_MAX:
                    self._wanted.clear()
                known = self._wanted[one.digest] = self._ask(one)
            bits |= known
        return bits

    def _ask(self, wanted: Filter) -> int:
        return sum(1 << place for place, event in enumerate(self._sample) if wanted.matches(event))

    def key(self, filters: Iterable[Filter], *, bits: int, seed: int, node: str) -> int:
        """The key of a node with these filters; see `interest_key`."""
        drawn = draw(seed, "placement", node)
        wanted = self.wanted(filters)
        if not wanted or not self._ranks:
            return drawn >> 64 - bits
        first, *others = self._focuses(wanted)
        if first.spread > UNFOCUSED * _SPREAD_OF_ALL:
            return drawn >> 64 - bits
        place = _place(first.mean)
        among = _place(others[0].mean if others else first.mean * PLACES - place)
        # Whole numbers from here on: a key has more digits than a float.
        cell = (first.attribute * PLACES + place) * PLACES + among
        cells = len(self._ranks) * PLACES * PLACES
        start, end = (cell << bits) // cells, (cell + 1 << bits) // cells
        return min(start + ((end - start) * drawn >> 64), (1 << bits) - 1)

    def _focuses(self, wanted: int) -> list[_Focus]:
        """How close together these events lie on each attribute, the closest first."""
        places = list(_places_of(wanted))
        focuses: list[_Focus] = []
        for attribute, ranks in enumerate(self._ranks):
            mean = sum(ranks[place].middle for place in places) / len(places)
            # A value that many events have is spread over its share of the ranks.
            spread = sum(
                (ranks[place].middle - mean) ** 2 + ranks[place].width ** 2 / 12 for place in places
            )
            focuses.append(_Focus(round(spread / len(places), 9), attribute, mean))
        return sorted(focuses)


def _place(share: float) -> int:
    return min(int(share * PLACES), PLACES - 1)


def interest_key(
    filters: Iterable[Filter], sample: Sequence[Matchable], *, bits: int, seed: int, node: str
) -> int:
    """The key of a node that knows its own filters only: near to those who want the same.

    >>> sample = [{"price": price} for price in range(100)]
    >>> def share(text, node):
    ...     return interest_key([Filter(text)], sample, bits=10, seed=1, node=node) / 1024
    >>> share("price < 20", "a") < 0.2 < share("price < 60", "b") < 0.4 < share("price > 60", "c")
    True
    """
    return InterestMap(sample).key(filters, bits=bits, seed=seed, node=node)


def placed_keys(
    filters: Mapping[str, Iterable[Filter]], sample: Sequence[Matchable], *, bits: int, seed: int
) -> dict[str, int]:
    """Keys for all nodes, by their names, in the order given; at equal distances on the circle.

    Raises:
        ValueError: there are more nodes than keys.
    """
    if len(filters) > 1 << bits:
        raise ValueError(f"{len(filters):,} nodes do not fit on a circle of 2^{bits} keys")
    interests = InterestMap(sample)
    wanted = {node: interests.wanted(its) for node, its in filters.items()}
    turn = draw(seed, "placement/turn") >> 64 - bits
    places = {node: place for place, node in enumerate(_tour(wanted, seed))}
    return {node: (turn + (places[node] << bits) // len(places)) % (1 << bits) for node in filters}


def keys_for(
    placement: str,
    filters: Mapping[str, Iterable[Filter]],
    sample: Sequence[Matchable],
    *,
    bits: int,
    seed: int,
) -> dict[str, int]:
    """The keys that a placement (one of PLACEMENTS) gives to nodes; none where keys are drawn.

    >>> keys_for("drawn", {"n1": [Filter("a = 1")]}, [], bits=8, seed=1)
    {}

    Raises:
        ValueError: the nodes are to stand at equal distances, and there are more nodes than keys.
    """
    drawn, evenly, interest, _ = PLACEMENTS
    assert placement in PLACEMENTS
    if placement == drawn:
        return {}
    if placement == interest:
        interests = InterestMap(sample)
        return {
            node: interests.key(own, bits=bits, seed=seed, node=node)
            for node, own in filters.items()
        }
    wanted = dict.fromkeys(filters, ()) if placement == evenly else filters
    return placed_keys(wanted, sample, bits=bits, seed=seed)


def _tour(wanted: Mapping[str, int], seed: int) -> list[str]:
    """The nodes, each followed by the one left that differs least; equal ones by a draw."""
    left = sorted(wanted, key=lambda node: (draw(seed, "placement", node), node))
    if not left:
        return []
    here = max(left, key=lambda node: wanted[node].bit_count())
    tour = [here]
    left.remove(here)
    while left:
        bits = wanted[here]
        nearest = min(range(len(left)), key=lambda place: (bits ^ wanted[left[place]]).bit_count())
        here = left.pop(nearest)
        tour.append(here)
    return tour


def _places_of(bits: int) -> Iterator[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


# --- ranks of the sample's values ----------------------------------------------------------------


def _ranks_of(sample: Sequence[Matchable]) -> list[list[_Rank]]:
    """Per attribute that tells events apart, in the order of names, the rank of each event."""
    rows = [dict(_leaves(attributes_of(event))) for event in sample]
    paths = sorted({path: None for row in rows for path in row})
    columns = [[_order_of(row.get(path)) for row in rows] for path in paths]
    return [_ranks(column) for column in columns if any(value != column[0] for value in column)]


def _leaves(record: Mapping[str, Any], path: _Path = ()) -> Iterator[tuple[_Path, Any]]:
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*path, str(name)))
        else:
            yield (*path, str(name)), value


def _order_of(value: object) -> tuple[int, Any]:
    """Missing values, and those that do not compare, come first; then kind by kind."""
    known = comparable(value)
    return (-1, 0) if known is None else (int(known[0]), known[1])


def _ranks(column: Sequence[tuple[int, Any]]) -> list[_Rank]:
    count = len(column)
    ordered = sorted(column)
    ranks: dict[tuple[int, Any], _Rank] = {}
    start = 0
    while start < count:
        end = start
        while end < count and ordered[end] == ordered[start]:
            end += 1
        ranks[ordered[start]] = _Rank((start + end) / 2 / count, (end - start) / count)
        start = end
    return [ranks[value] for value in column]
