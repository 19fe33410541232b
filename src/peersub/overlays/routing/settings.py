"""Settings of the generalised routing algorithm."""

from __future__ import annotations

from dataclasses import dataclass, field

from peersub.overlays.core.home import HomeSettings
from peersub.overlays.routing.delegations import DelegationSettings
from peersub.overlays.routing.maintenance import MaintenanceSettings

__all__ = ["RoutingSettings"]


@dataclass(frozen=True, slots=True)
class RoutingSettings:
    """What the routing algorithm remembers, repeats and promises."""

    promise_at_least_once: bool = True
    replay_horizon_ms: int = 120_000
    """How long a publisher's acknowledged events are kept to be replayed after a split."""
    replay_events_max: int = 1_024
    """So many of them, and at least what was published last."""
    replay_slice: int = 256
    """How many are under way again at once: a busy network replays slowly."""
    replay_pause_ms: int = 20
    """How often to see whether more can go."""
    home: HomeSettings = field(default_factory=HomeSettings)
    delegations: DelegationSettings = field(default_factory=DelegationSettings)
    maintenance: MaintenanceSettings = field(default_factory=MaintenanceSettings)

    def __post_init__(self) -> None:
        repeated_ms = self.delegations.give_up_ms + self.replay_horizon_ms
        if self.home.history_horizon_ms < repeated_ms:
            raise ValueError(
                "history_horizon_ms is at least give_up_ms + replay_horizon_ms, "
                f"{repeated_ms:,} here, not {self.home.history_horizon_ms:,}: "
                "what is repeated must still be known where it was taken"
            )
