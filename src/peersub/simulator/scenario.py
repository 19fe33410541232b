"""Scenarios: a network, what becomes of it, and what is published in it, as one value.

A scenario says how much of everything; together with its seed it determines a run to the last byte.
`scenario_text` reads and writes the TOML form, `schedule` draws the actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from peersub.overlays.core.link import LinkSettings
from peersub.overlays.registry import overlay_kind
from peersub.overlays.settings import SettingsError, settings_from
from peersub.simulator.actions import BreakEdges, BreakLinks, TimedAction
from peersub.simulator.activities import Activity, BreakEdgesActivity
from peersub.simulator.content import WorkloadChoice
from peersub.simulator.quiescence import SETTLE_MS
from peersub.simulator.settings import NetworkSettings

__all__ = ["NODES_MAX", "STARTS", "Scenario", "ScenarioPhase"]

STARTS = ("joined", "cold", "converged", "empty")
NODES_MAX = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioPhase:
    """A part of a scenario: activities to be drawn, and actions that are given as they are.

    Args:
        name: how summaries call it; phases of one name are counted together.
        steps: what is asked for.
        actions: what is done exactly so; they come before what is drawn for the same time.
        settles: whether the phase ends only when all is quiet.
        duration_ms: the phase lasts at least so long.
    """

    name: str
    steps: tuple[Activity, ...] = ()
    actions: tuple[TimedAction, ...] = ()
    settles: bool = True
    duration_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A whole simulation.

    Args:
        name: for people.
        seed: the only source of randomness.
        overlay: which overlay.
        settings: its settings, by flat names.
        links: the settings of links between nodes, by name; by default they have sessions where
            the network is not reliable, and tunnels where edges fail.
        nodes: how many nodes there are at the begin.
        start: `joined` (each node joins), `cold` (all are told of all, and start in an order that
            is drawn), `converged` (the state that joins would reach is set), or `empty` (the phases
            do all).
        subscriptions: how many there are at the begin, dealt to the nodes in turn.
        join_every_ms: the pause between two joins at the begin; 0 lets all join at once.
        through_wire: whether each message is written to bytes and read again.
        moves: the share of subscribers that follow when the overlay proposes to them to move to
            another node; 0 lets none move.
        batch_share: the share of nodes that take many events in one message, drawn anew for each
            life of a node.
        durable_share: the share of subscriptions that are durable; nodes have mirrors then.
        copies: the disks on which an event is for each of these before it is acknowledged.
        away_max_ms: after this long without its home a durable subscription is suspended.
        network: how links, disks and consumers behave.
        workload: what is subscribed and published.
        settle_ms: how long nothing may change before the network counts as quiet.
        quiet_limit_ms: a network that is not quiet after this long is a failure.
        steps_max: a run with more steps is a failure.
        phases: what happens after the begin.

    Raises:
        SettingsError: a value is not allowed; the message names it.
    """

    name: str = "scenario"
    seed: int = 1
    overlay: str = "flood"
    settings: Mapping[str, object] = field(default_factory=dict)
    links: Mapping[str, object] = field(default_factory=dict)
    nodes: int = 16
    start: str = "joined"
    subscriptions: int = 16
    join_every_ms: int = 100
    through_wire: bool = False
    moves: float = 1.0
    batch_share: float = 0.0
    durable_share: float = 0.0
    copies: int = 2
    away_max_ms: int = 86_400_000
    network: NetworkSettings = field(default_factory=NetworkSettings)
    workload: WorkloadChoice = field(default_factory=WorkloadChoice)
    settle_ms: int = SETTLE_MS
    quiet_limit_ms: int = 600_000
    steps_max: int = 200_000_000
    phases: tuple[ScenarioPhase, ...] = ()

    def __post_init__(self) -> None:
        kind = overlay_kind(self.overlay)
        settings_from(kind.settings_class, self.settings)
        _ = self.link_settings
        if self.start not in STARTS:
            raise SettingsError(f"start is one of {', '.join(STARTS)}, not {self.start!r}")
        if not 0 <= self.nodes <= NODES_MAX:
            raise SettingsError(f"nodes is from 0 to {NODES_MAX:,}, not {self.nodes}")
        if not self.nodes and self.start != "empty":
            raise SettingsError('nodes is at least 1, unless start is "empty"')
        if not 0 <= self.batch_share <= 1:
            raise SettingsError(f"batch_share is a share from 0 to 1, not {self.batch_share}")
        if not 0 <= self.durable_share <= 1:
            raise SettingsError(f"durable_share is a share from 0 to 1, not {self.durable_share}")
        if self.durable_share and self.start == "converged":
            raise SettingsError("durable_share needs nodes that join: mirrors have not met before")
        if self.copies < 1 or self.away_max_ms < 1:
            raise SettingsError("copies and away_max_ms are at least 1")
        if not 0 <= self.moves <= 1:
            raise SettingsError(f"moves is a share from 0 to 1, not {self.moves}")
        for name in ("subscriptions", "join_every_ms", "settle_ms", "quiet_limit_ms"):
            if getattr(self, name) < 0:
                raise SettingsError(f"{name} is at least 0, not {getattr(self, name)}")

    @property
    def link_settings(self) -> LinkSettings:
        """The settings of links between nodes."""
        given: dict[str, object] = {"tunnels": self._breaks_edges, **self.links}
        given.setdefault("acknowledge", bool(given["tunnels"]) or not self.network.is_reliable)
        return settings_from(LinkSettings, given)

    @property
    def _breaks_edges(self) -> bool:
        return any(
            isinstance(what, BreakEdgesActivity | BreakEdges | BreakLinks)
            for phase in self.phases
            for what in (*phase.steps, *(timed.action for timed in phase.actions))
        )

    @classmethod
    def from_toml(cls, text: str) -> Scenario:
        """The scenario of a TOML document.

        Raises:
            SettingsError: the document is wrong; the message names the place and what is allowed.
        """
        from peersub.simulator.scenario_text import scenario_of_text

        return scenario_of_text(text)

    def to_toml(self) -> str:
        """The scenario as a TOML document that `from_toml` reads."""
        from peersub.simulator.scenario_text import text_of_scenario

        return text_of_scenario(self)
