"""The settings of the containment tree."""

from __future__ import annotations

from dataclasses import dataclass, field

from peersub.overlays.core.home import HomeSettings
from peersub.overlays.semantic.hosting import HostingSettings
from peersub.overlays.semantic.sample import SampleSettings

__all__ = ["PERIODICAL", "REORGANISATIONS", "RULES", "TIES", "ContainmentSettings"]

RULES = ("depth", "selectivity")
REORGANISATIONS = ("never", "local", "always", "periodic", "needed", "sometimes")
PERIODICAL = ("periodic", "needed")
"""Those by which members move now and then, whatever happens."""
TIES = ("children", "digest")


@dataclass(frozen=True, slots=True)
class ContainmentSettings:
    """The shape of the tree, and how it mends and improves itself."""

    rule: str = "depth"
    """Which container is the parent: `depth` the deepest (the paper's), `selectivity` the one that
    matches fewest events of the sample. All nodes agree on it."""
    ties: str = "children"
    """What decides between equally good parents: who has fewer `children`, or the `digest`."""
    reorganise: str = "periodic"
    """When members look for a better parent: `never`; `local`, those next to a newcomer; `always`,
    all, for each newcomer; `sometimes`, as always, for a share of them; `periodic`, a share of the
    members now and then; `needed`, as periodic, but the more probably the more events of the sample
    a member receives in vain."""
    share: float = 0.1
    """Of `periodic` and `sometimes`: how many, as a part of all. Of `needed`: while no events are
    known."""
    period_ms: int = 30_000
    """Of `periodic` and `needed`: how often. Samples of events are exchanged as often."""
    equal_degree: int = 4
    """Members of an equivalence class right below one of them, at most."""
    top_degree: int = 4
    """Top-level members right below one of them, at most."""
    visitors_max: int = 64
    """Keepers of nodes without subscriptions below one member, if others can take them."""
    ancestors: int = 3
    """Ancestors that each member knows."""
    sibling_threshold: int = 0
    """A member with more children than this lets them pass events on among themselves; 0: none."""
    confine: bool = False
    """Whether newcomers look for a place where they ask, and reorganisation looks around the
    parent, in place of the whole tree."""
    join_ms: int = 4_000
    """How long an answer may take before the next one is asked; longer each time."""
    overlap_ms: int = 3_000
    """How long a member that moved keeps its old edge: longer than an event is under way."""
    leave_ms: int = 12_000
    """How long a member that leaves waits for those below it to move."""
    probe_ms: int = 3_000
    """How often a node tries to reach one that it lost; 0 for never."""
    former_horizon_ms: int = 600_000
    """For how long it does. Parts that were split for longer stay apart."""
    home: HomeSettings = field(default_factory=HomeSettings)
    hosting: HostingSettings = field(default_factory=HostingSettings)
    sampling: SampleSettings = field(default_factory=SampleSettings)

    def __post_init__(self) -> None:
        for name, allowed in (("rule", RULES), ("reorganise", REORGANISATIONS), ("ties", TIES)):
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name} is one of {', '.join(allowed)}, not {getattr(self, name)}"
                )
        for name in ("equal_degree", "top_degree", "visitors_max", "ancestors", "period_ms"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is at least 1")
        for name in ("join_ms", "leave_ms"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is at least 1")
        for name in ("sibling_threshold", "overlap_ms", "probe_ms", "former_horizon_ms"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is at least 0")
        if not 0 <= self.share <= 1:
            raise ValueError(f"share is from 0 to 1, not {self.share}")

    @property
    def needs_sample(self) -> bool:
        """Whether members judge filters by events."""
        return self.rule == "selectivity" or self.reorganise == "needed"
