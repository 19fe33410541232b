"""How the simulated network, its disks and its consumers behave."""

from __future__ import annotations

from dataclasses import dataclass, fields

from peersub.overlays.settings import SettingsError

__all__ = ["NetworkSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """What happens to messages, connections, records and deliveries.

    Args:
        latency_ms: the least time that a message takes.
        jitter_ms: a message takes up to this much longer.
        loss: the share of messages that do not arrive.
        duplicate: the share of messages that arrive twice.
        reorder: the share of messages that others may overtake; 0 keeps each link in order.
        reorder_ms: how much longer an overtaken message may take.
        detection_ms: after this long an end of a broken link notices.
        detection_jitter_ms: or up to this much later, each end by itself.
        doubt_ms: after this long, and up to half as long again, an end doubts a link over which
            nothing comes; 0 for never.
        connect_failed_ms: an attempt to reach a node that cannot be reached fails after this long.
        disk_ms: a record is on disk after this long.
        consumer_ms: a consumer takes an event after this long.
        turn_ms: messages that bring filters, and those behind them that bring no event, wait up to
            so long for their turn, each by itself, and events overtake them, as live nodes have it;
            0 keeps each link in order.
        leave_limit_ms: a node that takes leave is switched off after this long at the latest.

    Raises:
        SettingsError: a value is out of range.
    """

    latency_ms: int = 10
    jitter_ms: int = 10
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    reorder_ms: int = 100
    detection_ms: int = 200
    detection_jitter_ms: int = 100
    doubt_ms: int = 0
    connect_failed_ms: int = 300
    disk_ms: int = 2
    consumer_ms: int = 5
    leave_limit_ms: int = 10_000
    turn_ms: int = 0

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in ("loss", "duplicate", "reorder"):
                if not isinstance(value, int | float) or not 0 <= value < 1:
                    raise SettingsError(f"{each.name} is a share from 0 up to below 1, got {value}")
            elif not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise SettingsError(f"{each.name} is a whole number, at least 0, got {value!r}")
        if self.latency_ms < 1:
            raise SettingsError(f"latency_ms is at least 1, got {self.latency_ms}")

    @property
    def is_reliable(self) -> bool:
        """Whether each link keeps all messages, once, in order, as long as it lives."""
        return not (self.loss or self.duplicate or self.reorder)
