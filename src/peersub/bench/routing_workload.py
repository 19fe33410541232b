"""What is subscribed and published when routing strategies are compared.

Two worlds from the attribute generator (`peersub.workloads`), and one of its own:

* `thresholds`: one or two conditions on two numbers of a hundred values and a word of twenty, most
  of them thresholds. Filters equal, cover and extend each other all the time: what strategies are
  made for.
* `wishes`: two or three conditions on five attributes: hardly any filter covers another, but nodes
  that want one event are likely to want the next: what placing nodes by interest is made for.
* `unrelated`: each node wants each topic with the same probability, whatever else it wants: there
  is nothing to place by.

Subscriptions and events are drawn with separate skews. The share of events that filters match is
calibrated for events of the same skew as the subscriptions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any

from peersub.events.arrow import rows_of_table
from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.workloads import OperatorMix, Skew, WorkloadSettings, generate

__all__ = ["SAMPLE_EVENTS", "WORLDS", "World", "WorldSettings", "draw_world"]

SAMPLE_EVENTS = 512
"""Events that strategies and placement know beforehand; none of them is published."""
TOPICS = 200
"""Topics of the unrelated world."""

_THRESHOLDS = OperatorMix(
    numeric_between=0.3,
    numeric_greater_or_equal=0.35,
    numeric_less_or_equal=0.35,
    numeric_greater=0,
    numeric_less=0,
    numeric_equal=0,
    categorical_equal=1,
    categorical_in=0,
)
WORLDS: Mapping[str, Mapping[str, Any]] = {
    "thresholds": {
        "numeric_attributes": 2,
        "numeric_values": 100,
        "categorical_cardinalities": (20,),
        "attributes_per_event_min": 3,
        "attributes_per_event_max": 3,
        "predicates_per_subscription_min": 1,
        "predicates_per_subscription_max": 2,
        "operators": _THRESHOLDS,
    },
    "wishes": {
        "numeric_attributes": 4,
        "numeric_values": 1_000,
        "categorical_cardinalities": (20,),
        "attributes_per_event_min": 5,
        "attributes_per_event_max": 5,
        "predicates_per_subscription_min": 2,
        "predicates_per_subscription_max": 3,
        "operators": _THRESHOLDS,
    },
    "unrelated": {},
}
"""The worlds, with the knobs of the generator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSettings:
    """All that determines a world."""

    kind: str
    subscriptions: int
    events: int
    share: float
    """The share of all events that a filter matches, on average, where the generator can do it."""
    subscription_skew: Skew = "uniform"
    event_skew: Skew = "uniform"
    seed: int = 1


@dataclass(frozen=True, slots=True)
class World:
    """Subscriptions by name, events, and a sample of other events like them."""

    subscriptions: Sequence[tuple[str, Filter]]
    events: Sequence[Event]
    sample: Sequence[Mapping[str, Any]]


@lru_cache(maxsize=8)
def draw_world(settings: WorldSettings) -> World:
    """The world that the settings determine.

    Raises:
        ValueError: there is no such world.
    """
    if settings.kind not in WORLDS:
        raise ValueError(f"there is no world {settings.kind!r}; there are: {', '.join(WORLDS)}")
    if settings.kind == "unrelated":
        return _unrelated_world(settings)
    knobs = WORLDS[settings.kind]
    wanted = generate(
        WorkloadSettings(
            subscriptions=settings.subscriptions,
            events=0,
            share_matched=settings.share,
            skew=settings.subscription_skew,
            seed=settings.seed,
            **knobs,
        )
    )
    published = generate(
        WorkloadSettings(
            subscriptions=0,
            events=SAMPLE_EVENTS + settings.events,
            share_matched=settings.share,
            skew=settings.event_skew,
            seed=settings.seed,
            **knobs,
        )
    )
    texts = wanted.texts().to_pydict()
    rows = rows_of_table(published.events)
    return World(
        [(name, Filter(text)) for name, text in zip(texts["id"], texts["filter"], strict=True)],
        [
            Event(f"{settings.event_skew}-{number}", row)
            for number, row in enumerate(rows[SAMPLE_EVENTS:])
        ],
        rows[:SAMPLE_EVENTS],
    )


def _unrelated_world(settings: WorldSettings) -> World:
    random = Random(f"{settings.seed}/unrelated")
    topics = [f"t{number}" for number in range(TOPICS)]
    subscriptions: list[tuple[str, Filter]] = []
    for number in range(settings.subscriptions):
        chosen = [topic for topic in topics if random.random() < settings.share]
        listed = ", ".join(f"'{topic}'" for topic in chosen or ["none"])
        subscriptions.append((f"s{number}", Filter(f"topic IN ({listed})")))
    random = Random(f"{settings.seed}/unrelated events")
    rows = [{"topic": random.choice(topics)} for _ in range(SAMPLE_EVENTS + settings.events)]
    events = [Event(f"e{number}", row) for number, row in enumerate(rows[SAMPLE_EVENTS:])]
    return World(subscriptions, events, rows[:SAMPLE_EVENTS])
