"""Places as a plan, over which each event is routed as in a network at rest.

The sources of the plan are the distinct filters of all subscriptions, and after them the bits of an
event's *word*: what else of an event decides its way (`word_of`). So who routes needs neither the
event nor its name.

The law: receivers, the messages that each gets, and the deliveries are those of the simulator (one
latency for all links, no faults). So are the first senders and the hops of all nodes that get one
message of an event. Who gets several is said to have the one with the fewest hops first, and of
equals the one that is further up; the simulator also looks at how long a host needs to dial a
subscriber that it has had nothing to say to before. Deputies come of loads over time (`deputies`):
there are none in a plan, and with `push_above` set the simulator has messages that a plan has not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from peersub.filters.filter import Filter
from peersub.overlays.bulk import PlaceSources, Plan, Receipts, Sets, Subscriptions
from peersub.overlays.bulk_building import edges_of, no_keys, subscriptions_needed
from peersub.overlays.bulk_routing import wanted_by
from peersub.overlays.reach.attributes import AttributeMap
from peersub.overlays.reach.balancing import (
    ANSWER_BITS,
    answer_number,
    answers,
    is_last,
)
from peersub.overlays.reach.converged import grown_places
from peersub.overlays.reach.identifiers import (
    IDENTIFIER_BITS_MAX,
    Order,
    Place,
    event_order,
    low_bits,
    set_bits,
)
from peersub.overlays.reach.interest import Wish, leads_to
from peersub.overlays.reach.messages import Interest
from peersub.overlays.reach.replicas import CopyRule
from peersub.overlays.reach.routes import WAYS, Layout, Visit, way_of
from peersub.overlays.reach.settings import ReachSettings

__all__ = ["needs_subscriptions", "plan", "route", "word_of", "word_sources"]

EVENTS_PER_PART: Final = 512
"""Events whose receipts are held at once."""
_WIDTHS: Final = (IDENTIFIER_BITS_MAX, 64, (WAYS - 1).bit_length(), ANSWER_BITS)
"""Of the parts of a word: bits, order, way, number."""


def needs_subscriptions(settings: ReachSettings) -> bool:
    """Always: where filters are kept decides where events end."""
    return True


def word_of(event_id: str, bits: int, seed: int, settings: ReachSettings) -> int:
    """An event's bits, the order in which they are cleared, the way to their host, and the number
    by which answers are drawn.
    """
    word = 0
    order = event_order(event_id, settings.orders)
    parts = (answer_number(event_id), way_of(event_id, seed), order.seed, bits)
    for part, width in zip(parts, reversed(_WIDTHS), strict=True):
        word = word << width | part
    return word


def _parts_of(word: int) -> list[int]:
    """Bits, order, way and number, as they are in a word."""
    parts = []
    for width in _WIDTHS:
        parts.append(word & low_bits(width))
        word >>= width
    return parts


def word_sources(word: int, filters: int) -> list[int]:
    """The numbers of a word's bits among the sources of a plan with so many filters."""
    return [filters + bit for bit in set_bits(word)]


def plan(
    nodes: Sequence[str],
    seed: int,
    settings: ReachSettings,
    *,
    keys: Sequence[int] | None = None,
    subscriptions: Subscriptions | None = None,
) -> Plan:
    """The places that joins in this order lead to, and what is kept there."""
    no_keys("reach", keys)
    given = subscriptions_needed("reach", subscriptions)
    held = grown_places(nodes, seed, settings.identifier_bits)
    layout = Layout(held)
    near = [[layout.numbers[other] for other in layout.near[place]] for place in held]
    homes: dict[Filter, dict[int, None]] = {}
    for number, node in enumerate(nodes):
        for wanted in given.get(node, {}).values():
            homes.setdefault(wanted, {})[number] = None
    bits = AttributeMap(settings.identifier_bits, settings.attributes)
    identifiers = [bits.identifiers(wanted) for wanted in homes]
    return Plan(
        overlay="reach",
        names=tuple(nodes),
        keys=None,
        edges=edges_of(
            np.append(0, np.cumsum([len(each) for each in near])),
            np.array([other for each in near for other in each], np.int32),
        ),
        sources=PlaceSources(
            filters=tuple(wanted.to_bytes() for wanted in homes),
            lengths=np.array([place.length for place in held], np.int32),
            bits=np.array([place.bits for place in held], np.int64),
            identifiers=Sets.of(identifiers, np.int64),
            homes=Sets.of([list(each) for each in homes.values()]),
            quench=settings.quench,
            summary=settings.summary,
            summary_filters=settings.summary_filters,
            copies=settings.copies,
            orders=settings.orders,
            replicas=settings.replicas,
            answer_share=settings.answer_share,
        ),
    )


def route(plan: Plan, publishers: np.ndarray, interested: Sets, wanted: Sets) -> Iterator[Receipts]:
    """Route events: `interested` are the filters that match, and the bits of the word."""
    ways = _Ways(plan)
    for start in range(0, len(publishers), EVENTS_PER_PART):
        events = np.arange(start, min(start + EVENTS_PER_PART, len(publishers)))
        yield ways.receipts(events, publishers, interested, wanted)


_Arrival = tuple[int, int, int]
"""The node, the one that it came from, and the hops."""


class _Ways:
    """The places of a plan with what is kept there, and how events go among them."""

    def __init__(self, plan: Plan) -> None:
        sources = plan.sources
        assert isinstance(sources, PlaceSources)
        self._nodes = len(plan.names)
        self._filters = [Filter.from_bytes(data) for data in sources.filters]
        self._identifiers = _lists(sources.identifiers)
        self._homes = _lists(sources.homes)
        places = zip(sources.lengths.tolist(), sources.bits.tolist(), strict=True)
        self._layout = Layout([Place(length, bits) for length, bits in places])
        self._interests = self._told(sources) if sources.quench else None
        self._rule = CopyRule(sources.copies, sources.orders, sources.replicas)
        self._answer_share = sources.answer_share

    def _told(self, sources: PlaceSources) -> Mapping[Place, Interest]:
        kept: dict[Place, list[Wish]] = {}
        for wanted, identifiers in zip(self._filters, self._identifiers, strict=True):
            for identifier in identifiers:
                kept.setdefault(self._layout.host(identifier), []).append((identifier, wanted))
        return self._layout.interests(kept, sources.summary, with_filters=sources.summary_filters)

    def receipts(
        self, events: np.ndarray, publishers: np.ndarray, interested: Sets, wanted: Sets
    ) -> Receipts:
        """The receipts of some events."""
        rows: list[tuple[int, int, int, int, int]] = []
        sizes = []
        for event in events.tolist():
            publisher = int(publishers[event])
            found: dict[int, tuple[int, int, int]] = {publisher: (-1, 0, 0)}
            numbers = interested.numbers[interested.starts[event] : interested.starts[event + 1]]
            for node, sender, hops in self._arrivals(publisher, numbers.tolist()):
                first = found.get(node, (sender, hops, 0))
                found[node] = (first[0], first[1], first[2] + 1)
            rows += [(event, node, *found[node]) for node in sorted(found)]
            sizes.append(len(found))
        columns = [np.array(column) for column in zip(*rows, strict=True)]
        nodes = columns[1].astype(np.int32)
        return Receipts(
            events=columns[0],
            nodes=nodes,
            senders=columns[2].astype(np.int32),
            hops=columns[3].astype(np.int32),
            messages=columns[4].astype(np.int32),
            wanted=wanted_by(wanted, self._nodes, events, np.array(sizes), nodes),
        )

    def _arrivals(self, publisher: int, sources: Sequence[int]) -> list[_Arrival]:
        """All messages with an event, by hops."""
        count = len(self._filters)
        matching = [number for number in sources if number < count]
        word = sum(1 << number - count for number in sources if number >= count)
        event, order_seed, first, answer = _parts_of(word)
        order = Order(order_seed)
        numbers = self._layout.numbers
        start = self._layout.held[publisher]
        way = [start, *self._layout.way(start, event, first)]
        arrivals = [
            (numbers[place], numbers[before], hops)
            for hops, (before, place) in enumerate(pairwise(way), 1)
        ]
        served = self._served(matching, event)
        notified: list[_Arrival] = []
        matches = {self._filters[number] for number in matching}.__contains__
        for visit in self._visits(event, order, matches):
            place, parent, steps = visit
            hops = len(way) - 1 + steps
            server = place
            if parent is not None and self._is_answered(visit, event, order, answer, matches):
                server, hops = parent, hops - 1
            elif parent is not None:
                arrivals.append((numbers[place], numbers[parent], hops))
            notified += [
                (node, numbers[server], hops + 1)
                for node in served.get(place, ())
                if node != numbers[server]
            ]
        return sorted([*arrivals, *notified], key=lambda arrival: arrival[2])

    def _visits(self, event: int, order: Order, matches: Callable[[Filter], bool]) -> list[Visit]:
        interests = self._interests
        if interests is None:
            return self._layout.visits(event, order)
        return self._layout.visits(
            event, order, lambda place: leads_to(place, event, order, interests[place], matches)
        )

    def _is_answered(
        self,
        visit: Visit,
        event: int,
        order: Order,
        answer: int,
        matches: Callable[[Filter], bool],
    ) -> bool:
        """Whether the parent answers for a place, out of the copy that it has."""
        if self._interests is None or not self._answer_share or visit.parent is None:
            return False
        return (
            answers(visit.parent, visit.place, answer, self._answer_share)
            and self._rule.has_copy(visit.parent, visit.place)
            and is_last(visit.place, event, order, self._interests[visit.place], matches)
        )

    def _served(self, matching: Sequence[int], event: int) -> dict[Place, dict[int, None]]:
        """By place the nodes with subscriptions kept there that want the event.

        Of several identifiers of a filter that the event has, the first one counts.
        """
        served: dict[Place, dict[int, None]] = {}
        for number in matching:
            for identifier in self._identifiers[number]:
                if identifier & ~event == 0:
                    nodes = dict.fromkeys(self._homes[number])
                    served.setdefault(self._layout.host(identifier), {}).update(nodes)
                    break
        return served


def _lists(sets: Sets) -> list[list[int]]:
    numbers = sets.numbers.tolist()
    return [numbers[start:end] for start, end in pairwise(sets.starts.tolist())]
