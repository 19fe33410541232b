"""Real peers at rest: what does it give away that somebody asks for a turn?

In a busy layer turns go round by themselves. In one at rest the publisher must ask for a turn first
(`WantTurn`), unless it is a sink, and nobody else has a reason to: the first message that spies see
leads towards the publisher. Peers are simulated from the converged start, one event after the other
has come to rest, with links of one latency. Spies pool what they see, have a common clock, and
suspect the sender of the first message of the layer that comes to one of them, or of the first copy
of the event. A flood has no other messages than copies.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.overlays.core.causes import Publish, Received
from peersub.overlays.core.draws import draw, draw_below
from peersub.overlays.core.identity import numbered_node
from peersub.overlays.core.link_messages import unwrapped
from peersub.simulator import actions as do
from peersub.simulator.running import run_scenario
from peersub.simulator.scenario import Scenario
from peersub.simulator.settings import NetworkSettings
from peersub.trace.checkers import DeliveryChecker
from peersub.trace.hops import event_ids_in
from peersub.trace.schema import Step, TraceRecord

__all__ = ["RestPoint", "measure_rest"]

EVERY_MS: Final = 5_000
"""Long enough for an event to come to rest."""
LAYER: Final = "string:A"
_AT_REST: Final[dict[str, dict[str, object]]] = {
    "dag": {"hold_ms": 100_000_000, "probe_ms": 0},
    "flood": {},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RestPoint:
    """How often spies with this share of the nodes suspect the publisher; shares of all events."""

    overlay: str
    share: float
    events: int
    """Events of publishers that are no spies."""
    by_any_message: float
    by_copy: float


@dataclass(slots=True)
class _First:
    """Who was first to send to each node, after an event was published."""

    publisher: int
    any_message: dict[int, tuple[int, int]] = field(default_factory=dict)
    copy: dict[int, tuple[int, int]] = field(default_factory=dict)


class _FirstSenders:
    """Reads off the trace who was first to send to whom: by node, the place in time and sender."""

    def __init__(self) -> None:
        self.events: list[_First] = []
        self._seen = 0

    def observe(self, record: TraceRecord) -> None:
        """Read a step."""
        if not isinstance(record, Step):
            return
        if isinstance(record.cause, Publish):
            self.events.append(_First(int(record.node[1:])))
        elif isinstance(record.cause, Received) and self.events:
            self._seen += 1
            first, node = self.events[-1], int(record.node[1:])
            sender = int(record.cause.peer.node[1:])
            for message in record.cause.messages:
                inner: Any = unwrapped(message)
                if getattr(inner, "layer", LAYER) == LAYER:
                    first.any_message.setdefault(node, (self._seen, sender))
                    if event_ids_in(inner):
                        first.copy.setdefault(node, (self._seen, sender))


def measure_rest(
    overlay: str, nodes: int, events: int, shares: tuple[float, ...], seed: int
) -> list[RestPoint]:
    """Let so many events travel, each through a network at rest."""
    names = [numbered_node(number) for number in range(nodes)]
    actions = tuple(
        do.TimedAction(
            number * EVERY_MS,
            do.PublishEvent(
                names[draw_below(nodes, seed, "anonymity/publisher", number)],
                Event(f"e{number}", {"symbol": "A"}),
            ),
        )
        for number in range(events)
    )
    wanted = Filter("symbol = 'A'")
    schedule = do.Schedule(
        (do.SchedulePhase("publish", actions),),
        tuple((name, ((f"s-{name}", wanted),)) for name in names),
    )
    scenario = Scenario(
        seed=seed,
        overlay=overlay,
        settings=_AT_REST[overlay],
        nodes=nodes,
        start="converged",
        network=NetworkSettings(jitter_ms=0),
    )
    seen = _FirstSenders()
    outcome = run_scenario(
        scenario, schedule=schedule, checker=DeliveryChecker(), observers=(seen,)
    )
    assert outcome.is_good, outcome.violations[0].text
    order = sorted(range(nodes), key=lambda number: draw(seed, "anonymity/spy", number))
    return [
        _point(overlay, share, seen.events, frozenset(order[: max(1, round(share * nodes))]))
        for share in shares
    ]


def _point(overlay: str, share: float, events: list[_First], spies: frozenset[int]) -> RestPoint:
    honest = [each for each in events if each.publisher not in spies]
    return RestPoint(
        overlay=overlay,
        share=share,
        events=len(honest),
        by_any_message=_right([(e.publisher, e.any_message) for e in honest], spies),
        by_copy=_right([(e.publisher, e.copy) for e in honest], spies),
    )


def _right(events: list[tuple[int, dict[int, tuple[int, int]]]], spies: frozenset[int]) -> float:
    """How often the first sender to any spy is the publisher."""
    right = 0
    for publisher, first in events:
        seen = [when for node, when in first.items() if node in spies]
        right += bool(seen) and min(seen)[1] == publisher
    return right / max(len(events), 1)
