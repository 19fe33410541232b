"""Activities: what a scenario asks for, in numbers and shares. `schedule` draws the details.

Times are in milliseconds after the begin of the phase.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from peersub.overlays.core.event_keys import BATCH_ROWS_MAX
from peersub.overlays.settings import SettingsError
from peersub.trace.schema import Disk

__all__ = [
    "ACTIVITIES",
    "Activity",
    "BreakEdgesActivity",
    "ChangeActivity",
    "CrashActivity",
    "HealActivity",
    "JoinActivity",
    "LeaveActivity",
    "MendEdgesActivity",
    "NodeChurnActivity",
    "PartitionActivity",
    "PublishActivity",
    "RestartActivity",
    "StallActivity",
    "SubscribeActivity",
    "SubscriptionChurnActivity",
    "UnsubscribeActivity",
]

DELIVERIES = ("best_effort", "at_least_once", "mixed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Something that begins at a time."""

    do: ClassVar[str]

    at_ms: int = 0

    def __post_init__(self) -> None:
        for name in ("at_ms", "count", "every_ms", "duration_ms"):
            if getattr(self, name, 0) < 0:
                raise SettingsError(f"{name} is at least 0, not {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishActivity(Activity):
    """Events are published, from nodes that are drawn, or from these.

    So many of them, `batch_events`, are handed over together, at the time of the first.
    """

    do: ClassVar[str] = "publish"

    count: int
    every_ms: int = 0
    delivery: str = "best_effort"
    nodes: tuple[str, ...] = ()
    batch_events: int = 1

    def __post_init__(self) -> None:
        Activity.__post_init__(self)
        if self.delivery not in DELIVERIES:
            raise SettingsError(f"delivery is one of {', '.join(DELIVERIES)}, not {self.delivery}")
        if not 1 <= self.batch_events <= BATCH_ROWS_MAX:
            allowed = f"from 1 to {BATCH_ROWS_MAX:,}"
            raise SettingsError(f"batch_events is {allowed}, not {self.batch_events}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeActivity(Activity):
    """New subscriptions, on nodes that are drawn."""

    do: ClassVar[str] = "subscribe"

    count: int
    every_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeActivity(Activity):
    """Subscribers that are drawn change their minds: each wants something else from then on."""

    do: ClassVar[str] = "change"

    count: int
    every_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsubscribeActivity(Activity):
    """Subscriptions that are drawn end; a count of 0 means all."""

    do: ClassVar[str] = "unsubscribe"

    count: int = 0
    every_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionChurnActivity(Activity):
    """Subscriptions begin and end in turns, so many changes each second."""

    do: ClassVar[str] = "subscription-churn"

    duration_ms: int
    per_second: float = 1.0

    def __post_init__(self) -> None:
        Activity.__post_init__(self)
        _require_rate(self.per_second)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinActivity(Activity):
    """New nodes join; all at once if `every_ms` is 0."""

    do: ClassVar[str] = "join"

    count: int = 1
    every_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveActivity(Activity):
    """Nodes take leave."""

    do: ClassVar[str] = "leave"

    count: int = 1
    every_ms: int = 0
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashActivity(Activity):
    """Nodes crash at the same moment: so many, or a share of the living, or these."""

    do: ClassVar[str] = "crash"

    count: int = 0
    fraction: float = 0.0
    nodes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        Activity.__post_init__(self)
        if not 0 <= self.fraction <= 1:
            raise SettingsError(f"fraction is a share from 0 to 1, not {self.fraction}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StallActivity(CrashActivity):
    """Nodes stand still at the same moment, for a while: so many, or a share, or these."""

    do: ClassVar[str] = "stall"

    duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartActivity(Activity):
    """Nodes that crashed begin again; a count of 0 means all. `alone`: they are told of nobody."""

    do: ClassVar[str] = "restart"

    count: int = 0
    every_ms: int = 0
    disk: str = "kept"
    nodes: tuple[str, ...] = ()
    alone: bool = False

    def __post_init__(self) -> None:
        Activity.__post_init__(self)
        known = [str(fate) for fate in Disk]
        if self.disk not in known:
            raise SettingsError(f"disk is one of {', '.join(known)}, not {self.disk}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChurnActivity(Activity):
    """Nodes go and come in turns, so many changes each second."""

    do: ClassVar[str] = "churn"

    duration_ms: int
    per_second: float = 1.0
    crash_share: float = 0.5
    """The share of those who go that crash; the others take leave."""

    def __post_init__(self) -> None:
        Activity.__post_init__(self)
        _require_rate(self.per_second)
        if not 0 <= self.crash_share <= 1:
            raise SettingsError(f"crash_share is a share from 0 to 1, not {self.crash_share}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionActivity(Activity):
    """The network splits into sides of about the same size, or into these and the rest."""

    do: ClassVar[str] = "partition"

    sides: int = 2
    groups: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        Activity.__post_init__(self)
        if self.sides < 2:
            raise SettingsError(f"sides is at least 2, not {self.sides}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HealActivity(Activity):
    """The partition ends."""

    do: ClassVar[str] = "heal"


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEdgesActivity(Activity):
    """Pairs of nodes that cannot talk while both live: drawn ones, these, or links of one node."""

    do: ClassVar[str] = "break-edges"

    count: int = 1
    pairs: tuple[tuple[str, str], ...] = ()
    links_of: str = ""
    """A node, the first `count` links of which break; a `?` draws one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MendEdgesActivity(Activity):
    """All pairs of nodes can talk to each other again."""

    do: ClassVar[str] = "mend-edges"


def _require_rate(per_second: float) -> None:
    if not 0 < per_second <= 1000:
        raise SettingsError(f"per_second is above 0 and at most 1000, not {per_second}")


ACTIVITIES: dict[str, type[Activity]] = {
    kind.do: kind
    for kind in (
        PublishActivity,
        SubscribeActivity,
        ChangeActivity,
        UnsubscribeActivity,
        SubscriptionChurnActivity,
        JoinActivity,
        LeaveActivity,
        CrashActivity,
        StallActivity,
        RestartActivity,
        NodeChurnActivity,
        PartitionActivity,
        HealActivity,
        BreakEdgesActivity,
        MendEdgesActivity,
    )
}
