"""What Reach is measured with: the standard workload, who wants what, and maps of attributes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from peersub.events.arrow import rows_of_table
from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.matching.matcher import Matcher
from peersub.overlays.core.draws import draw
from peersub.overlays.reach.attributes import AttributeMap, chosen_map
from peersub.workloads import WorkloadSettings, generate
from peersub.workloads.settings import Skew

__all__ = ["MAPS", "MapKind", "ReachWorkload", "draw_reach_workload", "map_text"]

SAMPLE_EVENTS: Final = 512
"""Other events than those that are measured, by which maps are chosen."""
SAMPLE_FILTERS: Final = 1_024
IDLE: Final = "FALSE"
"""An entry of a map whose bit no event has."""

BUCKETS: Final = 4
"""Of each attribute that most events have, under the map with buckets."""

MapKind: TypeAlias = Literal[
    "hashed", "shuffled", "chosen", "chosen, idle bits", "chosen, buckets", "chosen, fine bits"
]
MAPS: Final[tuple[MapKind, ...]] = get_args(MapKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachWorkload:
    """Subscriptions, dealt to nodes in turn, and events, each from a node that is drawn."""

    filters: tuple[Filter, ...]
    events: tuple[Event, ...]
    sample: tuple[Event, ...]
    wanted: tuple[tuple[int, ...], ...]
    """Per event the subscriptions that match it, by the compiled index."""


def draw_reach_workload(
    *, subscriptions: int, events: int, share_matched: float, skew: Skew, seed: int
) -> ReachWorkload:
    """Draw the standard workload."""
    drawn = generate(
        WorkloadSettings(
            subscriptions=subscriptions,
            events=events + SAMPLE_EVENTS,
            share_matched=share_matched,
            skew=skew,
            seed=seed,
        )
    )
    filters = tuple(Filter(text) for text in drawn.texts().to_pydict()["filter"])
    rows = rows_of_table(drawn.events)
    made = tuple(Event(f"e{number}", row) for number, row in enumerate(rows))
    matcher = Matcher()
    for number, wanted in enumerate(filters):
        matcher.add(str(number), wanted)
    return ReachWorkload(
        filters=filters,
        events=made[:events],
        sample=made[events:],
        wanted=tuple(tuple(sorted(map(int, matcher.match(event)))) for event in made[:events]),
    )


def map_text(kind: MapKind, workload: ReachWorkload, bits: int, place_bits: int) -> str:
    """A map of attributes.

    `hashed` has no entries: names share bits, and leave some to nobody. `shuffled` gives each
    attribute a bit of its own, by a draw; `chosen` begins with those that few events have. With
    idle bits as many of the bits that places have are left to nobody as by hashing. With buckets,
    attributes that most events have get bits for their values, as far as there are any; with fine
    bits, halves of numbers come after all attributes.
    """
    if kind == "hashed":
        return ""
    sample = [event.attributes for event in workload.sample]
    filters = workload.filters[:SAMPLE_FILTERS]
    if kind == "chosen, buckets":
        return chosen_map(sample, filters, bits, buckets=BUCKETS)
    chosen = chosen_map(sample, filters, bits, fine=kind == "chosen, fine bits").split("; ")
    if kind == "shuffled":
        chosen.sort(key=lambda entry: draw(0, "bench/bit", entry))
    if kind == "chosen, idle bits":
        plain = AttributeMap(bits)
        used = 0
        for attributes in sample:
            used |= plain.event_bits(attributes)
        idle = place_bits - (used & ((1 << place_bits) - 1)).bit_count()
        chosen = [*[IDLE] * idle, *chosen]
    return "; ".join(chosen[:bits])
