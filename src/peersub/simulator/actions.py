"""Actions: what a schedule does to a network, each at its time, with nothing left to draw.

An action that makes no sense when its time comes (a crash of a node that is off) does nothing: so a
schedule from which actions were taken out is still a schedule, and shrinking is simple.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.overlays.core.publication import Delivery
from peersub.trace.schema import Disk

__all__ = [
    "Action",
    "BreakEdges",
    "BreakLinks",
    "ChangeAt",
    "CrashNodes",
    "Heal",
    "JoinNode",
    "LeaveNode",
    "MendEdges",
    "Partition",
    "PublishEvent",
    "PublishEvents",
    "RestartNode",
    "Schedule",
    "SchedulePhase",
    "StallNodes",
    "SubscribeAt",
    "TimedAction",
    "UnsubscribeAt",
]


@dataclass(frozen=True, slots=True)
class JoinNode:
    """A new node joins by one of the contacts that live; if nobody lives, it begins a network.

    `as_given`: it is told of the contacts as they are, of itself and of nodes that are not there.
    """

    node: str
    contacts: tuple[str, ...] = ()
    as_given: bool = False


@dataclass(frozen=True, slots=True)
class LeaveNode:
    """The node takes leave."""

    node: str


@dataclass(frozen=True, slots=True)
class CrashNodes:
    """These nodes crash at once."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StallNodes:
    """These nodes stand still for a while, and go on where they were."""

    nodes: tuple[str, ...]
    duration_ms: int


@dataclass(frozen=True, slots=True)
class RestartNode:
    """The node, which is off, begins a new life with what is left of its disk.

    `alone`: it is told of nobody, if others look for it; else it would stay so.
    """

    node: str
    contacts: tuple[str, ...] = ()
    disk: Disk = Disk.KEPT
    alone: bool = False


@dataclass(frozen=True, slots=True)
class SubscribeAt:
    """A subscriber on the node wants something."""

    node: str
    subscription: str
    filter: Filter


@dataclass(frozen=True, slots=True)
class ChangeAt:
    """The subscriber, on this node or where it has moved to, wants something else from now on."""

    node: str
    subscription: str
    filter: Filter


@dataclass(frozen=True, slots=True)
class UnsubscribeAt:
    """The subscriber on the node wants it no more."""

    node: str
    subscription: str


@dataclass(frozen=True, slots=True)
class PublishEvent:
    """A publisher on the node hands over an event."""

    node: str
    event: Event
    delivery: Delivery = Delivery.BEST_EFFORT


@dataclass(frozen=True, slots=True)
class PublishEvents:
    """A publisher on the node hands over events together, as a batch of this name.

    The events are named as those of the batch: `BATCH/0` and so on.
    """

    node: str
    batch: str
    events: tuple[Event, ...]
    delivery: Delivery = Delivery.BEST_EFFORT


@dataclass(frozen=True, slots=True)
class Partition:
    """Nodes of different groups cannot talk to each other; all others are one group more."""

    groups: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Heal:
    """The partition ends."""


@dataclass(frozen=True, slots=True)
class BreakEdges:
    """These pairs of nodes cannot talk to each other, while both live."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class BreakLinks:
    """As many of the node's links break, those first that its overlay names first."""

    node: str
    count: int


@dataclass(frozen=True, slots=True)
class MendEdges:
    """All pairs of nodes can talk to each other again."""


Action: TypeAlias = (
    JoinNode
    | LeaveNode
    | CrashNodes
    | StallNodes
    | RestartNode
    | SubscribeAt
    | ChangeAt
    | UnsubscribeAt
    | PublishEvent
    | PublishEvents
    | Partition
    | Heal
    | BreakEdges
    | BreakLinks
    | MendEdges
)


@dataclass(frozen=True, slots=True)
class TimedAction:
    """An action, and its time after the begin of its phase."""

    at_ms: int
    action: Action


@dataclass(frozen=True, slots=True)
class SchedulePhase:
    """Actions in the order of their times; then, if it `settles`, a wait until all is quiet."""

    name: str
    actions: tuple[TimedAction, ...]
    settles: bool = True
    duration_ms: int = 0
    """The phase lasts at least so long."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """All that is done to a network, phase by phase.

    `given` are nodes with their subscriptions that exist from the begin, in a converged state.
    """

    phases: tuple[SchedulePhase, ...]
    given: tuple[tuple[str, tuple[tuple[str, Filter], ...]], ...] = ()

    @property
    def actions(self) -> int:
        """How many actions there are."""
        return sum(len(phase.actions) for phase in self.phases)
