"""The settings of the anonymous overlay."""

from __future__ import annotations

from dataclasses import dataclass, field

from peersub.overlays.core.home import HomeSettings
from peersub.overlays.dag.graph import DEGREE
from peersub.overlays.dag.topics import TOPIC_ATTRIBUTE, topic_path
from peersub.overlays.semantic.hosting import HostingSettings

__all__ = ["DagSettings"]


@dataclass(frozen=True, slots=True)
class DagSettings:
    """How layers are linked, how long turns are held, and how often something is tried again."""

    topic: str = TOPIC_ATTRIBUTE
    """The attribute that is the topic of an event."""
    degree: int = DEGREE
    """Edges of a member in a start that is set; members take part in up to twice as many."""
    degree_min: int = 3
    """Edges below which a member looks for more."""
    skip_sender: bool = True
    """Whether an event does not go back to the neighbour that it came from."""
    hold_ms: int = 30_000
    """How long a sink that has nothing to say holds its turn."""
    invite_ms: int = 1_000
    """How long a sink holds its turn for members that want an edge with it."""
    tend_ms: int = 1_500
    """How often a member that lacks something looks after it."""
    wish_ms: int = 20_000
    """How long a member waits for an edge before it looks for another."""
    repair_ms: int = 1_000
    """How long a member that lost a neighbour waits, about, until it counts its part of a layer."""
    clusters: bool = True
    """Whether subscribers are proposed to move to a neighbour that needs more of their layers."""
    linger_ms: int = 10_000
    """How long a node stays in a layer that none of its subscriptions needs any more."""
    depart_ms: int = 60_000
    """How long it then tries to leave without tearing the layer."""
    walk_steps_max: int = 16
    """How far a newcomer's request looks for a sink; then it waits where it is."""
    probe_ms: int = 5_000
    """How often a node tries to reach one of its former neighbours; 0 for never."""
    former_horizon_ms: int = 600_000
    """How long it remembers them. Parts that were split for longer stay apart."""
    known_nodes_max: int = 64
    """Nodes that it has heard of and may link up with."""
    probes: int = 16
    """How many of them a node asks, after a loss, whether they are in the same part."""
    publish_joins: int = 30
    """Events that a node publishes on a layer of others, within a while, until it joins; 0 never
    does."""
    publish_window_ms: int = 60_000
    """How long that while is."""
    turn_events_max: int = 1_024
    """Events that leave in one turn; the others wait for the next one."""
    queued_events_max: int = 65_536
    """Events of a layer that wait for a turn."""
    passed_events_max: int = 65_536
    """Events of all layers whose repetition is noticed."""
    passed_horizon_ms: int = 600_000
    """How long: many times what an event needs to reach everybody."""
    layers_known_max: int = 65_536
    """Layers of which a node knows members."""
    hosting: HostingSettings = field(default_factory=HostingSettings)
    home: HomeSettings = field(default_factory=HomeSettings)

    def __post_init__(self) -> None:
        topic_path(self.topic)
        if self.degree < 2:
            raise ValueError("degree is at least 2")
        for name in (
            "degree_min",
            "hold_ms",
            "invite_ms",
            "tend_ms",
            "repair_ms",
            "turn_events_max",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is at least 1")

    @property
    def degree_max(self) -> int:
        """Edges from which a member takes no more, unless the layer may fall apart without."""
        return 2 * self.degree
