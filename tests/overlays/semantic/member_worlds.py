"""Networks whose nodes host members, as the simulator runs them: who received what, where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from overlays.bulk_worlds import EVENT_EVERY_MS, World
from peersub.overlays.core.causes import Received
from peersub.overlays.core.effects import Deliver
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.node import Node
from peersub.overlays.registry import overlay_kind
from peersub.overlays.settings import settings_from, with_sample
from peersub.simulator import actions as do
from peersub.simulator.nodes import NETWORK
from peersub.simulator.running import Run
from peersub.simulator.scenario import Scenario
from peersub.simulator.settings import NetworkSettings
from peersub.trace.checkers import DeliveryChecker
from peersub.trace.schema import Step, TraceRecord

# The sample is what it was at the start, and nobody moves.
QUIET: dict[str, dict[str, object]] = {
    "containment": {
        "reorganise": "never",
        "sample_learns": False,
        "sample_events": 1_024,
        "link_idle_ms": 10_000_000,
        "probe_ms": 0,
    },
    "similarity": {
        "sample_learns": False,
        "sample_events": 1_024,
        "link_idle_ms": 10_000_000,
        "exchange_ms": 10_000_000,
    },
}


@dataclass
class MembersSeen:
    """Per event and node the hops and messages; per event and member addressed the hops; and
    what was handed over.
    """

    receipts: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    members: dict[tuple[str, str], int] = field(default_factory=dict)
    deliveries: list[tuple[str, str, int, int]] = field(default_factory=list)


class MembersWatcher:
    """Reads receipts and deliveries off the simulator's trace."""

    def __init__(self, world: World) -> None:
        self.seen = MembersSeen()
        for event, publisher in zip(world.events, world.publishers, strict=True):
            self.seen.receipts[event.id, publisher] = (0, 0)

    def observe(self, record: TraceRecord) -> None:
        """See a step."""
        if not isinstance(record, Step):
            return
        node = int(record.node[1:])
        if isinstance(record.cause, Received):
            for message in record.cause.messages:
                publication = getattr(message, "publication", None)
                if publication is not None:
                    key = (publication.id, node)
                    hops, messages = self.seen.receipts.get(key, (message.hops, 0))
                    self.seen.receipts[key] = (hops, messages + 1)
                    member = (publication.id, f"{record.node}/{message.to}")
                    self.seen.members.setdefault(member, message.hops)
        for effect in record.effects:
            if isinstance(effect, Deliver):
                for subscription in effect.subscriptions:
                    row = (effect.publication.id, subscription, node, effect.hops)
                    self.seen.deliveries.append(row)


def drawn_world(
    overlay: str,
    settings: Mapping[str, object],
    seed: int,
    nodes: int,
    subscriptions: int,
    publishers: Sequence[int],
) -> World:
    """A world whose sample has no event twice: a node's sample takes equal ones for the same."""
    world = World.drawn(overlay, settings, seed, nodes, subscriptions, publishers)
    distinct = {repr(sorted(each.items())): each for each in world.sample}
    return replace(world, sample=tuple(distinct.values()))


def settings_of(world: World) -> dict[str, object]:
    """The settings of a world's overlay, by their flat names."""
    return {**QUIET[world.overlay], **world.settings}


def simulated_members(world: World) -> MembersSeen:
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
    settings: Any = settings_from(kind.settings_class, settings_of(world))
    settings = with_sample(settings, world.sample)

    def make(name: str, incarnation: int) -> Node:
        overlay: Any = kind.make(PeerId(name, incarnation), world.seed, settings)
        return Node(overlay, network=NETWORK, settings=scenario.link_settings)

    watcher = MembersWatcher(world)
    checker = DeliveryChecker()
    run = Run(scenario, schedule, make, checker, (watcher,), checks_invariants=False)
    run.carry_out()
    return watcher.seen
