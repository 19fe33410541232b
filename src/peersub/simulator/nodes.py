"""The nodes of a simulated network: an overlay peer inside of a `Node`, with links to suit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from types import MappingProxyType
from typing import Any

from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.overlays.chord.settings import PLACEMENTS, ChordSettings
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.node import Node
from peersub.overlays.core.protocol import Overlay
from peersub.overlays.core.versions import BATCHES_FEATURE
from peersub.overlays.registry import overlay_kind
from peersub.overlays.settings import SettingsError, settings_from, with_sample
from peersub.simulator import actions as do
from peersub.simulator.content import Content
from peersub.simulator.counters import Counters
from peersub.simulator.engine import MakeNode
from peersub.simulator.scenario import Scenario

__all__ = ["NETWORK", "SAMPLE_EVENTS", "keys_of", "node_maker", "sample_of", "wire_passage"]

NETWORK = "simulation"
SAMPLE_EVENTS = 256
"""Events by which strategies that merge filters, and placements, measure what nodes want."""
_SAMPLE_FROM = 1_000_000_000
"""Their first number: they are like the events that are published, and others."""

_SAMPLED_OVERLAYS = ("containment", "similarity")
"""Those whose members measure what they want by a sample; one that grows learns it by itself."""


def node_maker(
    scenario: Scenario,
    sample: tuple[Mapping[str, Any] | Event, ...] = (),
    keys: Mapping[str, int] = MappingProxyType({}),
) -> MakeNode:
    """Makes the nodes of the scenario.

    Args:
        scenario: what is asked for.
        sample: events like those of the scenario, or their attributes, for who wants any.
        keys: places of nodes on the circle; the other nodes draw theirs.
    """
    kind = overlay_kind(scenario.overlay)
    settings: Any = settings_from(kind.settings_class, scenario.settings)
    if sample:
        settings = with_sample(settings, sample)
    links = scenario.link_settings
    seed = scenario.seed
    shared: list[Overlay] = []

    def make(name: str, incarnation: int) -> Node:
        own = replace(settings, key=keys[name]) if name in keys else settings
        overlay = kind.make(PeerId(name, incarnation), seed, own)
        if shared:
            overlay.share_work(shared[0])
        else:
            shared.append(overlay)
        features = (BATCHES_FEATURE,) if _takes_batches(scenario, name, incarnation) else ()
        return Node(overlay, network=NETWORK, settings=links, features=features)

    return make


def _takes_batches(scenario: Scenario, name: str, incarnation: int) -> bool:
    share = scenario.batch_share
    drawn = Random(f"{scenario.seed}/batches/{name}/{incarnation}").random() if share else 1.0
    return drawn < share


def sample_of(scenario: Scenario, content: Content) -> tuple[Mapping[str, Any] | Event, ...]:
    """Events like those of the content, or their attributes, if the overlay wants any."""
    is_measured = scenario.overlay in _SAMPLED_OVERLAYS and scenario.start == "converged"
    if is_measured or scenario.settings.get("rule") == "selectivity":
        return tuple(_sample_events(content))
    if scenario.settings.get("strategy") != "imperfect":
        return ()
    return tuple(event.attributes for event in _sample_events(content))


def _sample_events(content: Content) -> list[Event]:
    return [content.event(_SAMPLE_FROM + number) for number in range(SAMPLE_EVENTS)]


def keys_of(scenario: Scenario, content: Content, schedule: do.Schedule) -> dict[str, int]:
    """The keys of the nodes that are there at the begin, by the placement that the overlay has.

    Raises:
        SettingsError: there are more nodes than keys.
    """
    placement = str(scenario.settings.get("placement", PLACEMENTS[0]))
    if placement == PLACEMENTS[0]:
        return {}
    from peersub.overlays.chord.placement import keys_for

    settings = settings_from(ChordSettings, scenario.settings)
    wanted, seed = _wanted_at_first(schedule), scenario.seed
    sample = _sample_events(content)
    try:
        return keys_for(placement, wanted, sample, bits=settings.key_bits, seed=seed)
    except ValueError as error:
        raise SettingsError(f"placement: {error}") from None


def _wanted_at_first(schedule: do.Schedule) -> dict[str, list[Filter]]:
    """What nodes subscribe to before anything is published."""
    wanted = {node: [its for _, its in given] for node, given in schedule.given}
    for phase in schedule.phases:
        actions = [timed.action for timed in phase.actions]
        if any(isinstance(action, do.PublishEvent | do.PublishEvents) for action in actions):
            break
        for action in actions:
            if isinstance(action, do.JoinNode):
                wanted.setdefault(action.node, [])
            elif isinstance(action, do.SubscribeAt):
                wanted.setdefault(action.node, []).append(action.filter)
    return wanted


def wire_passage(
    counters: Callable[[], Counters],
) -> Callable[[tuple[Message, ...]], tuple[Message, ...]]:
    """Messages as their receiver reads them after they were bytes; the bytes are counted."""
    from peersub.wire import FrameDecoder, encode_batch

    def through(messages: tuple[Message, ...]) -> tuple[Message, ...]:
        written = encode_batch(messages)
        counters().wire_bytes += len(written)
        read = tuple(FrameDecoder().feed(written))
        assert len(read) == len(messages), "every message can be read"
        return read

    return through
