"""One network of Reach, routed from its structure: what events cost, and whom they load.

Every event goes to its host and down the subsets, place by place, as peers send it; hosts ask the
filters that they keep. Who gets an event in this way is compared with the compiled index, which
knows nothing of places.

The *load* of a node is the messages with events that it receives and sends for others: not what it
publishes, nor what its own subscriptions get.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal, TypeAlias

from peersub.bench.reach.workload import ReachWorkload
from peersub.filters.filter import Filter
from peersub.overlays.core.draws import draw_below
from peersub.overlays.core.identity import numbered_node
from peersub.overlays.reach.attributes import AttributeMap
from peersub.overlays.reach.balancing import (
    Heat,
    answer_number,
    answers,
    is_last,
    pushes,
)
from peersub.overlays.reach.converged import grown_places
from peersub.overlays.reach.identifiers import Order, Place, event_order
from peersub.overlays.reach.interest import leads_to
from peersub.overlays.reach.messages import Interest
from peersub.overlays.reach.replicas import CopyRule
from peersub.overlays.reach.routes import Layout, Visit, way_of
from peersub.overlays.reach.settings import ReachSettings
from peersub.simulator.summary import gini

__all__ = ["QUENCHINGS", "Network", "Outcome", "Quenching", "Replication"]

Quenching: TypeAlias = Literal["none", "bit", "identifiers", "filters"]
QUENCHINGS: Final[tuple[Quenching, ...]] = ("none", "bit", "identifiers", "filters")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    """Copies at parents.

    Args:
        orders: of bits, all that events have; 0 for one of its own for each event.
        depth: places above that keep copies, for each order.
        share: of the events that a parent answers, if it may.
        heirs: places that have copies in any case, should the holder of a place crash.
    """

    orders: int = ReachSettings().orders
    depth: int = ReachSettings().replicas
    share: float = ReachSettings().answer_share
    heirs: int = ReachSettings().copies

    @property
    def rule(self) -> CopyRule:
        """Who keeps copies."""
        return CopyRule(self.heirs, self.orders, self.depth)


@dataclass(slots=True)
class Outcome:
    """What all events together came to."""

    events: int = 0
    hops: int = 0
    """To the hosts of the events."""
    visited: int = 0
    messages: int = 0
    deliveries: int = 0
    copies: int = 0
    """Entries that parents keep for children, beside those of heirs."""
    pushed: int = 0
    """Identifiers that went to other nodes."""
    loads: Counter[Place] = field(default_factory=Counter)
    arrived: Counter[Place] = field(default_factory=Counter)
    heats: dict[Place, dict[int, Heat]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    gini: float = 0.0
    load_max: int = 0


class Network:
    """Nodes at rest with their subscriptions, under one map of attributes."""

    def __init__(
        self,
        workload: ReachWorkload,
        *,
        nodes: int,
        identifier_bits: int,
        attributes: str,
        summary: int,
        seed: int,
    ) -> None:
        self.workload = workload
        self.nodes = nodes
        self.seed = seed
        self.summary = summary
        self.attributes = attributes
        self.bits = AttributeMap(identifier_bits, attributes)
        names = [numbered_node(number) for number in range(nodes)]
        self.layout = Layout(grown_places(names, seed, identifier_bits))
        self.kept: dict[Place, dict[int, list[int]]] = {}
        """By place and identifier the subscriptions."""
        self._first: dict[int, tuple[int, ...]] = {}
        for number, wanted in enumerate(workload.filters):
            self._first[number] = self.bits.identifiers(wanted)
            for identifier in self._first[number]:
                kept = self.kept.setdefault(self.layout.host(identifier), {})
                kept.setdefault(identifier, []).append(number)
        self._event_bits = [self.bits.event_bits(event.attributes) for event in workload.events]
        self._interests: dict[Quenching, dict[Place, Interest]] = {}
        self._answers: list[dict[bytes, bool]] = [{} for _ in workload.events]

    def identifiers(self, number: int) -> tuple[int, ...]:
        """The identifiers of a subscription."""
        return self._first[number]

    def event_bits(self, event: int) -> int:
        """The bits of an event."""
        return self._event_bits[event]

    @property
    def fullest_share(self) -> float:
        """The share of the subscriptions that the place with the most of them keeps."""
        counts = [len(set().union(*kept.values())) for kept in self.kept.values()]
        return max(counts, default=0) / max(len(self.workload.filters), 1)

    @property
    def sample_visited(self) -> float:
        """Places visited per event of the sample, by which maps are chosen; nothing is quenched."""
        sample = self.workload.sample
        counts = [
            len(self.layout.subsets(self.bits.event_bits(event.attributes))) for event in sample
        ]
        return sum(counts) / max(len(counts), 1)

    def interests(self, quenching: Quenching) -> Mapping[Place, Interest]:
        """What places have told under a way to quench."""
        if quenching not in self._interests:
            filters = self.workload.filters
            wishes = {
                place: [
                    (identifier, filters[number])
                    for identifier, numbers in kept.items()
                    for number in numbers
                ]
                for place, kept in self.kept.items()
            }
            self._interests[quenching] = self.layout.interests(
                wishes,
                0 if quenching == "bit" else self.summary,
                with_filters=quenching == "filters",
            )
        return self._interests[quenching]

    def matches(self, event: int, wanted: Filter) -> bool:
        """Whether a filter matches; each is asked once about each event."""
        known = self._answers[event]
        digest = wanted.digest
        if digest not in known:
            known[digest] = wanted.matches(self.workload.events[event])
        return known[digest]

    def publisher(self, event: int) -> int:
        """The node that publishes an event."""
        return draw_below(self.nodes, self.seed, "publisher", self.workload.events[event].id)

    def order(self, event: int, orders: int = 0) -> Order:
        """The order in which an event clears bits."""
        return event_order(self.workload.events[event].id, orders)

    def visits(self, event: int, quenching: Quenching, orders: int = 0) -> list[Visit]:
        """The places that an event comes to."""
        bits, order = self._event_bits[event], self.order(event, orders)
        if quenching == "none":
            return self.layout.visits(bits, order)
        interests = self.interests(quenching)
        matches = partial(self.matches, event)
        return self.layout.visits(
            bits, order, lambda place: leads_to(place, bits, order, interests[place], matches)
        )

    def way(self, event: int) -> list[Place]:
        """The places on the way to the host of an event."""
        start = self.layout.held[self.publisher(event)]
        first = way_of(self.workload.events[event].id, self.seed)
        return self.layout.way(start, self._event_bits[event], first)

    def found_at(self, event: int, place: Place) -> dict[int, list[int]]:
        """By identifier the subscriptions kept at a place that want an event.

        Of several identifiers of a subscription that the event has, the first one counts.
        """
        bits = self._event_bits[event]
        found: dict[int, list[int]] = {}
        for identifier, numbers in self.kept.get(place, {}).items():
            if identifier & ~bits:
                continue
            found[identifier] = [
                number
                for number in numbers
                if next(each for each in self._first[number] if each & ~bits == 0) == identifier
                and self.matches(event, self.workload.filters[number])
            ]
        return found

    def run(
        self,
        quenching: Quenching,
        *,
        moved: Mapping[tuple[Place, int], Place] | None = None,
        replication: Replication | None = None,
    ) -> Outcome:
        """Publish all events.

        Args:
            quenching: which events are kept away from where.
            moved: where identifiers were pushed to.
            replication: whether parents answer for children.
        """
        outcome = Outcome(pushed=len(moved or ()))
        if replication is not None:
            outcome.copies = self._copies(replication)
        for event in range(len(self.workload.events)):
            self._publish(outcome, event, quenching, moved or {}, replication)
        loads = [outcome.loads[place] for place in self.layout.held]
        outcome.gini, outcome.load_max = gini(loads), max(loads)
        return outcome

    def _publish(
        self,
        outcome: Outcome,
        event: int,
        quenching: Quenching,
        moved: Mapping[tuple[Place, int], Place],
        replication: Replication | None,
    ) -> None:
        way = self.way(event)
        for number, place in enumerate(way):
            outcome.loads[place] += 2 if number < len(way) - 1 else 1
        visits = self.visits(event, quenching, replication.orders if replication else 0)
        answered = self._answered(event, visits, quenching, replication)
        reached = {self.publisher(event)}
        for place, parent, _ in visits:
            at = answered.get(place, place)
            if at == place:
                outcome.visited += 1
                outcome.arrived[place] += 1
                if parent in answered:
                    outcome.wrong.append(f"event {event}: {place} is reached through {parent}")
                if parent is not None:
                    outcome.messages += 1
                    outcome.loads[parent] += 1
                    outcome.loads[place] += 1
            reached |= self._serve(outcome, event, place, at, moved)
        outcome.events += 1
        outcome.hops += len(way)
        outcome.messages += len(way)
        outcome.deliveries += len(self.workload.wanted[event])
        missed = [
            number for number in self.workload.wanted[event] if number % self.nodes not in reached
        ]
        in_vain = reached - {number % self.nodes for number in self.workload.wanted[event]}
        if missed or in_vain - {self.publisher(event)}:
            outcome.wrong.append(f"event {event}: {missed} missed, {sorted(in_vain)} in vain")

    def _serve(
        self,
        outcome: Outcome,
        event: int,
        place: Place,
        at: Place,
        moved: Mapping[tuple[Place, int], Place],
    ) -> set[int]:
        """Send an event to the nodes with subscriptions of a place that want it; which these are.

        `at` is who does that for the place: its parent has copies of what it keeps, and of what it
        has pushed away.
        """
        heats = outcome.heats.setdefault(place, {})
        by_server: dict[Place, dict[int, None]] = {}
        for identifier, numbers in self.found_at(event, place).items():
            nodes = dict.fromkeys(number % self.nodes for number in numbers)
            if at != place:
                by_server.setdefault(at, {}).update(nodes)
                continue
            server = moved.get((place, identifier), at)
            by_server.setdefault(server, {}).update(nodes)
            heat = heats.get(identifier, Heat(0, 0))
            heats[identifier] = Heat(heat.events + 1, heat.sent + len(nodes))
        reached: set[int] = set()
        for server, nodes in by_server.items():
            if server != at:
                outcome.messages += 1
                outcome.loads[at] += 1
                outcome.loads[server] += 1
            home = self.layout.numbers[server]
            others = [node for node in nodes if node != home]
            outcome.messages += len(others)
            outcome.loads[server] += len(others)
            reached.update(nodes)
        return reached

    # --- balancing -----------------------------------------------------------------------------

    def pushes(self, before: Outcome) -> dict[tuple[Place, int], Place]:
        """What places push where, after what they had to do before; all know who does little."""
        loads = {place: before.loads[place] for place in self.layout.held}
        return pushes(loads, before.arrived, before.heats, lambda _: self.layout.held)

    def _copies(self, replication: Replication) -> int:
        rule = replication.rule
        return sum(
            sum(map(len, kept.values())) * rule.replica_bits(place).bit_count()
            for place, kept in self.kept.items()
        )

    def _answered(
        self,
        event: int,
        visits: list[Visit],
        quenching: Quenching,
        replication: Replication | None,
    ) -> dict[Place, Place]:
        """The places for which their parents answer."""
        if replication is None or quenching == "none":
            return {}
        bits, order = self._event_bits[event], self.order(event, replication.orders)
        interests = self.interests(quenching)
        number = answer_number(self.workload.events[event].id)
        found: dict[Place, Place] = {}
        for place, parent, _ in visits:
            if parent is None or not answers(parent, place, number, replication.share):
                continue
            if replication.rule.has_copy(parent, place) and is_last(
                place, bits, order, interests[place], partial(self.matches, event)
            ):
                found[place] = parent
        return found
