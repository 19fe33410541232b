"""The settings of the similarity graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from peersub.overlays.core.home import HomeSettings
from peersub.overlays.semantic.hosting import HostingSettings
from peersub.overlays.semantic.sample import SampleSettings

__all__ = [
    "CHOICES",
    "CLIMB",
    "JACCARD",
    "MEAN",
    "NEAREST",
    "PAPER",
    "PROXIMITIES",
    "WELL_CONNECTED",
    "SimilaritySettings",
]

NEAREST, CLIMB = CHOICES = ("nearest", "climb")
"""How neighbours are chosen (`choosing`): the n most similar, as in the paper; or those through
which everything that a member wants climbs to more general members, with few false positives."""

MEAN, JACCARD, WELL_CONNECTED = PROXIMITIES = ("mean", "jaccard", "well-connected")
"""How near two members are (`proximity`): the paper's f_s; what both match over what one of them
matches; f_s weighed by latency and bandwidth."""

INDULGENCE_MAX: Final = 100
"""A copy with more would go anywhere."""


@dataclass(frozen=True, slots=True)
class SimilaritySettings:
    """Who is linked with whom, who forwards what, and how the graph is kept."""

    nearest: int = 4
    """n: links that a member makes to others by what they want."""
    random: int = 1
    """r: links that it makes to others at random."""
    choice: str = CLIMB
    """How the n are chosen: nearest or climb."""
    proximity: str = MEAN
    """What near means, for `nearest` and for the search: mean, jaccard or well-connected."""
    smoothing: float = 0.5
    """α: matches added to each count, so that filters without a match in the sample have an
    order; 0 counts what there is."""
    cover: int = 2
    """climb: how many neighbours are to match each event that the member matches."""
    wanted_weight: int = 16
    """climb: false positives that one more covered event is worth."""
    indulgence: int = 0
    """γ: how often a copy is passed on by members that do not match."""
    random_forward: float = 0.05
    """ρ: how likely an event is passed on over a random link."""
    origin_spreads: bool = True
    """Whether a publication is passed on over all random links where it begins."""
    warm_up_events: int = 32
    """While the sample has fewer events there is nothing to choose by: members choose by nearness
    and pass everything on. 0 never does."""
    clique_up_to: int = 32
    """A member that knows no more others than this is linked with all of them. Networks up to
    this size miss nothing, however little the sample says."""
    summary_bytes: int = 0
    """Bytes of a neighbour's summary: what an event must have to match there. An event that has it
    not is not sent. 0 does without: then nobody knows what others want, as in the paper."""
    seek_steps: int = 8
    """Members that an event passes on its way to the first that matches it."""
    position_x_ms: float = 0.0
    """Where the node is, in milliseconds of latency: for `well-connected`."""
    position_y_ms: float = 0.0
    bandwidth_mbit: float = 100.0
    """What the node can send: for `well-connected`."""
    beam: int = 3
    """A search ends when so many answers in a row brought nothing better."""
    search_steps_max: int = 48
    """Members that are asked in one search."""
    answer_profiles: int = 8
    """Members that are named in an answer, or in an exchange."""
    candidates_max: int = 64
    """Members that a member knows of and is not linked with."""
    choosers_max: int = 1_024
    """Links that others may make to a member."""
    walk_steps: int = 6
    """Length of the walk whose end becomes a random link."""
    exchange_ms: int = 1_000
    """How often a member compares its list with a neighbour's."""
    answer_ms: int = 3_000
    """How long an answer is waited for."""
    probe_ms: int = 5_000
    """What the pauses between attempts to reach a lost node are measured by; 0 for no attempts."""
    sampling: SampleSettings = field(default_factory=SampleSettings)
    hosting: HostingSettings = field(default_factory=HostingSettings)
    home: HomeSettings = field(default_factory=HomeSettings)

    def __post_init__(self) -> None:
        if self.choice not in CHOICES:
            raise ValueError(f"choice is one of {', '.join(CHOICES)}, not {self.choice}")
        if self.proximity not in PROXIMITIES:
            raise ValueError(f"proximity is one of {', '.join(PROXIMITIES)}, not {self.proximity}")
        for name in (
            "smoothing",
            "indulgence",
            "clique_up_to",
            "summary_bytes",
            "random",
            "warm_up_events",
            "probe_ms",
        ):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is 0 or more, not {getattr(self, name)}")
        if not 0 <= self.random_forward <= 1:
            raise ValueError(f"random_forward is a share, not {self.random_forward}")
        if self.indulgence > INDULGENCE_MAX:
            raise ValueError(f"indulgence is at most {INDULGENCE_MAX}, not {self.indulgence}")
        for name in _POSITIVE:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is 1 or more, not {getattr(self, name)}")
        if self.wanted_weight * self.sampling.sample_events >= 1 << 24:
            # The bulk form adds up in 32-bit floats, which are exact up to there.
            raise ValueError("wanted_weight times sample_events is below 2^24")
        if self.bandwidth_mbit <= 0:
            raise ValueError(f"bandwidth_mbit is above 0, not {self.bandwidth_mbit}")

    def is_cold(self, events: int) -> bool:
        """Whether a sample of so many events is too small to choose by."""
        return events < min(self.warm_up_events, self.sampling.sample_events)


_POSITIVE: Final = (
    *("nearest", "cover", "wanted_weight", "seek_steps", "beam", "search_steps_max"),
    *("answer_profiles", "candidates_max", "choosers_max", "walk_steps", "exchange_ms"),
    "answer_ms",
)

PAPER: Final = SimilaritySettings(
    nearest=5,
    random=1,
    choice=NEAREST,
    random_forward=1.0,
    origin_spreads=False,
    clique_up_to=0,
    warm_up_events=0,
)
"""The paper's setting (§5): n = 5, r = 1, ρ = 1; its other one has ρ = 0.5."""
