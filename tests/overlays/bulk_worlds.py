"""A network with its subscriptions and events, routed by the simulator and by the bulk router."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.overlays.bulk import (
    LayerSources,
    MemberSources,
    PlaceSources,
    Plan,
    RowSources,
    Sets,
    bulk_overlay,
)
from peersub.overlays.core.causes import Received
from peersub.overlays.core.effects import Deliver
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.node import Node
from peersub.overlays.dag.topics import layers_of_event, topic_path
from peersub.overlays.reach.attributes import AttributeMap
from peersub.overlays.reach.bulk import word_of, word_sources
from peersub.overlays.registry import overlay_kind
from peersub.overlays.settings import settings_from, with_sample
from peersub.simulator import actions as do
from peersub.simulator.content import SmallContent, WorkloadChoice
from peersub.simulator.nodes import NETWORK
from peersub.simulator.running import Run
from peersub.simulator.scenario import Scenario
from peersub.simulator.settings import NetworkSettings
from peersub.trace.checkers import DeliveryChecker
from peersub.trace.hops import HopCounter
from peersub.trace.schema import Step, TraceRecord

EVENT_EVERY_MS = 1_000
SAMPLE_EVENTS = 32

# Nothing but events is sent: the ring is right, and stays so.
QUIET: dict[str, dict[str, object]] = {
    "chord": {"stabilise_ms": 0, "probe_ms": 0, "link_idle_ms": 10_000_000},
    "tree": {},
    "flood": {},
    "containment": {
        "reorganise": "never",
        "probe_ms": 0,
        "link_idle_ms": 10_000_000,
        "sample_learns": False,
    },
    "dag": {"hold_ms": 10_000_000, "probe_ms": 0, "link_idle_ms": 10_000_000},
    "reach": {"renew_ms": 0},
}


@dataclass
class World:
    """What is routed where."""

    overlay: str
    settings: Mapping[str, object]
    seed: int
    nodes: int
    subscriptions: list[tuple[str, Filter]]
    events: list[Event]
    publishers: list[int]
    keys: list[int] | None = None
    sample: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def drawn(
        cls,
        overlay: str,
        settings: Mapping[str, object],
        seed: int,
        nodes: int,
        subscriptions: int,
        publishers: Sequence[int],
        keys: list[int] | None = None,
    ) -> World:
        """Filters that overlap, cover and equal each other, some of them patterns.

        Every fourth event is empty: nobody wants it.
        """
        content = SmallContent(seed, WorkloadChoice(values=8, xpath_share=0.2))
        sample = range(1_000_000, 1_000_000 + SAMPLE_EVENTS)
        return cls(
            overlay,
            settings,
            seed,
            nodes,
            [content.subscription(number) for number in range(subscriptions)],
            [
                content.event(number) if number % 4 != 3 else Event(f"e{number}", {})
                for number in range(len(publishers))
            ],
            [publisher % nodes for publisher in publishers],
            keys,
            tuple(content.event(number).attributes for number in sample),
        )

    @property
    def names(self) -> list[str]:
        return [f"n{number}" for number in range(self.nodes)]

    @property
    def given(self) -> dict[str, dict[str, Filter]]:
        """Subscriptions dealt to nodes in turn."""
        dealt: dict[str, dict[str, Filter]] = {name: {} for name in self.names}
        for number, (subscription, wanted) in enumerate(self.subscriptions):
            dealt[f"n{number % self.nodes}"][subscription] = wanted
        return dealt

    def overlay_settings(self, node: int | None = None) -> Any:
        kind = overlay_kind(self.overlay)
        own: dict[str, object] = {**QUIET[self.overlay], **self.settings}
        if node is not None and self.keys is not None:
            own["key"] = self.keys[node]
        settings: Any = settings_from(kind.settings_class, own)
        return with_sample(settings, self.sample)


Receipt = tuple[int, int, int]
"""First sender, hops, messages."""


@dataclass
class Seen:
    """Who received what, and what was handed over."""

    receipts: dict[tuple[str, int], Receipt] = field(default_factory=dict)
    deliveries: list[tuple[str, str, int, int]] = field(default_factory=list)


class Watcher:
    """Reads receipts and deliveries off the simulator's trace."""

    def __init__(self, world: World) -> None:
        self.seen = Seen()
        self._counter = HopCounter()
        for event, publisher in zip(world.events, world.publishers, strict=True):
            self.seen.receipts[event.id, publisher] = (-1, 0, 0)

    def hops_of(self, message: Any, node: int) -> int:
        """What the message says, or the trace if it does not say."""
        if hasattr(message, "hops"):
            return int(message.hops)
        hops = self._counter.hops_of(message.publication.id, f"n{node}")
        assert hops is not None
        return hops

    def observe(self, record: TraceRecord) -> None:
        self._counter.observe(record)
        if not isinstance(record, Step):
            return
        node = int(record.node[1:])
        if isinstance(record.cause, Received):
            sender = int(record.cause.peer.node[1:])
            for message in record.cause.messages:
                publication = getattr(message, "publication", None)
                if publication is not None:
                    assert not getattr(message, "control", "")
                    key = (publication.id, node)
                    first = self.seen.receipts.get(key, (sender, self.hops_of(message, node), 0))
                    self.seen.receipts[key] = (*first[:2], first[2] + 1)
        for effect in record.effects:
            if isinstance(effect, Deliver):
                for subscription in effect.subscriptions:
                    row = (effect.publication.id, subscription, node, effect.hops)
                    self.seen.deliveries.append(row)


def simulated(world: World) -> Seen:
    """What the simulator does: converged, without faults, one latency for all links."""
    actions = tuple(
        do.TimedAction(number * EVENT_EVERY_MS, do.PublishEvent(f"n{publisher}", event))
        for number, (event, publisher) in enumerate(
            zip(world.events, world.publishers, strict=True)
        )
    )
    given = tuple((node, tuple(own.items())) for node, own in world.given.items())
    schedule = do.Schedule((do.SchedulePhase("publish", actions),), given)
    scenario = Scenario(
        seed=world.seed,
        overlay=world.overlay,
        nodes=world.nodes,
        start="converged",
        network=NetworkSettings(jitter_ms=0),
    )
    kind = overlay_kind(world.overlay)
    shared: list[Any] = []

    def make(name: str, incarnation: int) -> Node:
        settings = world.overlay_settings(int(name[1:]))
        overlay: Any = kind.make(PeerId(name, incarnation), world.seed, settings)
        if world.overlay in ("chord", "tree"):
            shared.append(overlay.engine.maintenance.strategy)
            overlay.engine.maintenance.strategy = shared[0]
        return Node(overlay, network=NETWORK, settings=scenario.link_settings)

    watcher = Watcher(world)
    run = Run(scenario, schedule, make, DeliveryChecker(), (watcher,), checks_invariants=False)
    outcome = run.carry_out()
    assert outcome.violations == []
    return watcher.seen


def plan_of(world: World) -> Plan:
    bulk = bulk_overlay(world.overlay)
    settings = world.overlay_settings()
    given = world.given if bulk.needs_subscriptions(settings) else None
    return bulk.plan(world.names, world.seed, settings, keys=world.keys, subscriptions=given)


def wanted_by(world: World) -> list[list[int]]:
    """Per event the nodes that want it, by asking every filter."""
    return [
        sorted(
            {
                number % world.nodes
                for number, (_, wanted) in enumerate(world.subscriptions)
                if wanted.matches(event)
            }
        )
        for event in world.events
    ]


def _with_words(world: World, filters: Sets) -> Sets:
    """Also what decides the ways of events."""
    settings = world.overlay_settings()
    bits = AttributeMap(settings.identifier_bits, settings.attributes)
    count = len({wanted for _, wanted in world.subscriptions})
    found = []
    for number, event in enumerate(world.events):
        word = word_of(event.id, bits.event_bits(event.attributes), world.seed, settings)
        matching = filters.numbers[filters.starts[number] : filters.starts[number + 1]].tolist()
        found.append([*word_sources(word, count), *matching])
    return Sets.of(found)


def routed(world: World, plan: Plan | None = None) -> Seen:
    """What the bulk router says."""
    plan = plan_of(world) if plan is None else plan
    wanted = Sets.of(wanted_by(world))
    interested = wanted
    if isinstance(plan.sources, (RowSources, MemberSources, PlaceSources)):
        filters = [Filter.from_bytes(data) for data in plan.sources.filters]
        interested = Sets.of(
            [[r for r, one in enumerate(filters) if one.matches(event)] for event in world.events]
        )
    if isinstance(plan.sources, LayerSources):
        path = topic_path(world.overlay_settings().topic)
        numbers = {name: number for number, name in enumerate(plan.sources.names)}
        named = [layers_of_event(event.attributes, path) for event in world.events]
        interested = Sets.of([[numbers[n] for n in names if n in numbers] for names in named])
    if isinstance(plan.sources, PlaceSources):
        interested = _with_words(world, interested)
    seen = Seen()
    given = world.given
    parts = bulk_overlay(world.overlay).route(
        plan, np.array(world.publishers, np.int32), interested, wanted
    )
    for part in parts:
        columns = (part.events, part.nodes, part.senders, part.hops, part.messages, part.wanted)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for number, node, sender, hops, messages, is_wanted in rows:
            event = world.events[number]
            assert (event.id, node) not in seen.receipts
            seen.receipts[event.id, node] = (sender, hops, messages)
            matching = [name for name, one in given[f"n{node}"].items() if one.matches(event)]
            assert is_wanted == bool(matching)
            seen.deliveries += [(event.id, name, node, hops) for name in matching]
    return seen
