"""The nodes of a simulated network: an overlay peer inside of a `Node`, with links to suit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.node import Node
from peersub.overlays.registry import overlay_kind
from peersub.overlays.settings import settings_from
from peersub.simulator.content import Content
from peersub.simulator.counters import Counters
from peersub.simulator.engine import MakeNode
from peersub.simulator.scenario import Scenario

__all__ = ["NETWORK", "SAMPLE_EVENTS", "node_maker", "sample_of", "wire_passage"]

NETWORK = "simulation"
SAMPLE_EVENTS = 256
"""Events by which strategies that merge filters measure what they do."""
_SAMPLE_FROM = 1_000_000_000
"""Their first number: they are like the events that are published, and others."""


def node_maker(scenario: Scenario, sample: tuple[Mapping[str, Any], ...] = ()) -> MakeNode:
    """Makes the nodes of the scenario; `sample` are attributes of events like its own."""
    kind = overlay_kind(scenario.overlay)
    settings: Any = settings_from(kind.settings_class, scenario.settings)
    if sample:
        settings = _with_sample(settings, sample)
    links = scenario.link_settings
    seed = scenario.seed
    shared: list[Any] = []

    def make(name: str, incarnation: int) -> Node:
        overlay = kind.make(PeerId(name, incarnation), seed, settings)
        _share_strategy(overlay, shared)
        return Node(overlay, network=NETWORK, settings=links)

    return make


def _share_strategy(overlay: Any, shared: list[Any]) -> None:
    """All nodes use one strategy object: what one has worked out, the others look up."""
    maintenance = getattr(getattr(overlay, "engine", None), "maintenance", None)
    if maintenance is not None:
        if shared:
            maintenance.strategy = shared[0]
        else:
            shared.append(maintenance.strategy)


def sample_of(scenario: Scenario, content: Content) -> tuple[Mapping[str, Any], ...]:
    """Attributes of events like those of the content, if the overlay's strategy wants any."""
    if scenario.settings.get("strategy") != "imperfect":
        return ()
    numbers = range(_SAMPLE_FROM, _SAMPLE_FROM + SAMPLE_EVENTS)
    return tuple(content.event(number).attributes for number in numbers)


def _with_sample(settings: Any, sample: tuple[Mapping[str, Any], ...]) -> Any:
    """The settings, whichever part of them has a field for a sample, with this one."""
    changes: dict[str, Any] = {}
    for each in fields(settings):
        value = getattr(settings, each.name)
        if each.name == "sample":
            changes[each.name] = sample
        elif is_dataclass(value):
            changes[each.name] = _with_sample(value, sample)
    return replace(settings, **changes)


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
