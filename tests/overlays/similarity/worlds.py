"""A similarity graph with its subscriptions and events, for the simulator and in bulk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.overlays.core.causes import Received
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.link_messages import unwrapped
from peersub.overlays.core.node import Node
from peersub.overlays.core.publication import Publication
from peersub.overlays.semantic.sample import SharedSample
from peersub.overlays.settings import settings_from, with_sample
from peersub.overlays.similarity.bulk import SimilarityGraph, route, similarity_graph
from peersub.overlays.similarity.bulk_routing import Routed as Receipts
from peersub.overlays.similarity.messages import Routed
from peersub.overlays.similarity.peer import SimilarityPeer
from peersub.overlays.similarity.settings import SimilaritySettings
from peersub.overlays.similarity.summary import event_summary, filter_summary
from peersub.simulator import actions as do
from peersub.simulator.content import SmallContent, WorkloadChoice
from peersub.simulator.nodes import NETWORK
from peersub.simulator.running import Run
from peersub.simulator.scenario import Scenario
from peersub.simulator.settings import NetworkSettings
from peersub.trace.checkers import DeliveryChecker
from peersub.trace.schema import Step, TraceRecord

EVENT_EVERY_MS = 1_000
STILL = {"exchange_ms": 10_000_000, "link_idle_ms": 10_000_000, "sample_learns": False}
"""Nothing but events is sent."""


@dataclass
class World:
    """Members on nodes, and events that begin at members that match them."""

    settings: Mapping[str, object]
    seed: int
    subscriptions: list[list[Filter]]
    """Per node."""
    events: list[Event] = field(default_factory=list)
    origins: list[int] = field(default_factory=list)
    """Per event a member, by number."""
    sample_size: int = 24

    @classmethod
    def drawn(
        cls,
        settings: Mapping[str, object],
        seed: int,
        nodes: int,
        *,
        most: int = 1,
        events: int = 12,
        sample_size: int = 24,
    ) -> World:
        """Filters that overlap, cover and equal each other, up to so many on a node."""
        content = SmallContent(seed, WorkloadChoice(values=8, xpath_share=0.2))
        per_node, number = [], 0
        for node in range(nodes):
            count = 1 + (node * 7 + seed) % most
            wanted = {}
            for _ in range(count):
                _, each = content.subscription(number)
                wanted[each.digest] = each
                number += 1
            per_node.append(list(wanted.values()))
        world = cls(settings, seed, per_node, sample_size=sample_size)
        for number in range(events):
            event = content.event(number)
            matching = [k for k, (_, each) in enumerate(world.members) if each.matches(event)]
            if matching:
                world.events.append(event)
                world.origins.append(matching[number * 13 % len(matching)])
        return world

    @property
    def members(self) -> list[tuple[PeerId, Filter]]:
        return [
            (PeerId(f"n{node}", 0, slot), each)
            for node, filters in enumerate(self.subscriptions)
            for slot, each in enumerate(filters, start=1)
        ]

    @property
    def overlay_settings(self) -> SimilaritySettings:
        content = SmallContent(self.seed, WorkloadChoice(values=8, xpath_share=0.2))
        sample = tuple(content.event(1_000_000 + number) for number in range(self.sample_size))
        settings = settings_from(SimilaritySettings, {**STILL, **self.settings})
        made: SimilaritySettings = with_sample(settings, sample)
        return made

    @property
    def bits(self) -> np.ndarray:
        sample = SharedSample(self.overlay_settings.sampling)
        rows = [sample.bits(each) for _, each in self.members]
        return np.array([[row >> k & 1 for k in range(len(sample))] for row in rows], bool)

    @property
    def matches(self) -> np.ndarray:
        asked = [[each.matches(event) for _, each in self.members] for event in self.events]
        return np.array(asked, bool).reshape(len(self.events), len(self.members))

    def graph(self) -> SimilarityGraph:
        addresses = [peer for peer, _ in self.members]
        return similarity_graph(self.bits, self.overlay_settings, self.seed, members=addresses)

    def routed(self) -> Receipts:
        settings = self.overlay_settings
        size = settings.summary_bytes
        may_match = None
        if size:
            wanted = [filter_summary(each, size) for _, each in self.members]
            has = [event_summary(Publication.of(event), size) for event in self.events]
            may_match = np.array([[not one & ~bits for one in wanted] for bits in has], bool)
        return route(
            self.graph(),
            self.matches,
            np.array(self.origins),
            settings,
            self.seed,
            [event.id for event in self.events],
            may_match=may_match,
        )


class Watcher:
    """Notes which member got a copy of which event, how often, and when first."""

    def __init__(self) -> None:
        self.hops: dict[tuple[str, PeerId], int] = {}
        self.copies: dict[tuple[str, PeerId], int] = {}

    def observe(self, record: TraceRecord) -> None:
        if not isinstance(record, Step) or not isinstance(record.cause, Received):
            return
        for message in map(unwrapped, record.cause.messages):
            if isinstance(message, Routed):
                key = (message.publication.id, PeerId(record.node, 0, message.to))
                self.hops.setdefault(key, message.hops)
                self.copies[key] = self.copies.get(key, 0) + 1


def simulated(world: World) -> tuple[Watcher, list[SimilarityPeer]]:
    """The simulator: converged, without faults, one latency for all links."""
    addresses = [peer for peer, _ in world.members]
    actions = tuple(
        do.TimedAction(number * EVENT_EVERY_MS, do.PublishEvent(addresses[origin].node, event))
        for number, (event, origin) in enumerate(zip(world.events, world.origins, strict=True))
    )
    given = tuple(
        (f"n{node}", tuple((f"s{node}/{place}", each) for place, each in enumerate(filters)))
        for node, filters in enumerate(world.subscriptions)
    )
    schedule = do.Schedule((do.SchedulePhase("publish", actions),), given)
    scenario = Scenario(
        seed=world.seed,
        overlay="similarity",
        nodes=len(given),
        start="converged",
        network=NetworkSettings(jitter_ms=0),
    )
    settings = world.overlay_settings
    peers: list[SimilarityPeer] = []

    def make(name: str, incarnation: int) -> Node:
        peer = SimilarityPeer(PeerId(name, incarnation), settings, world.seed)
        peers.append(peer)
        return Node(peer, network=NETWORK, settings=scenario.link_settings)

    watcher = Watcher()
    run = Run(scenario, schedule, make, DeliveryChecker(judges_misses=False), (watcher,))
    outcome = run.carry_out()
    assert outcome.violations == []
    return watcher, peers
