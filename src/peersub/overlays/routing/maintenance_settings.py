"""How the filters on the edges of a peer are kept up to date."""

from __future__ import annotations

from dataclasses import dataclass, field

from peersub.overlays.routing.strategies import StrategySettings

__all__ = ["MaintenanceSettings"]


@dataclass(frozen=True, slots=True)
class MaintenanceSettings:
    """How the filters on edges are worked out and passed on."""

    coalesce_ms: int = 0
    """How long changes are collected before they are passed on; 0 passes them on at once."""
    strategy: StrategySettings = field(default_factory=StrategySettings)
    burst_ms: int = 0
    """How long changes that follow many others are collected; the first are passed on at once."""
    rows_per_turn: int = 64
    """Changed rows that are worked out before others have their turn."""
    rows_per_lot: int = 512
    """Changed rows of this peer's own filters that are worked out, told and confirmed together: of
    thousands of subscriptions the first are ready long before the last."""
    rows_told_per_turn: int = 1_024
    """Rows that publishers are sent, and subscriptions that become ready, before others have their
    turn; parts of updates stay whole."""
    rows_per_message: int = 256
    """Rows in one message, which its receiver reads in one go; large tables travel in larger ones.
    """
    pooled_from: int = 256
    """Rows of a table from which events are asked of the rows of all tables at once."""

    def __post_init__(self) -> None:
        for name in ("rows_per_turn", "rows_per_lot", "rows_told_per_turn", "rows_per_message"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is at least 1, not {getattr(self, name)}")
