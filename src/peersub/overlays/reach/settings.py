"""The settings of Reach."""

from __future__ import annotations

from dataclasses import dataclass, field

from peersub.overlays.core.home import HomeSettings
from peersub.overlays.reach.attributes import AttributeMap
from peersub.overlays.reach.replicas import CopyRule

__all__ = ["LINKS_MAX_MIN", "ReachSettings"]

LINKS_MAX_MIN = 64
"""Room for neighbours, up to twice as many as a place has bits, and for newcomers beside them."""


@dataclass(frozen=True, slots=True)
class ReachSettings:
    """What bits stand for, which events go where, and how the network keeps itself whole."""

    identifier_bits: int = 32
    """n: bits of an identifier. A network has at most 2^n places."""
    attributes: str = ""
    """What the low-order bits stand for (`attributes`); other names are hashed to the rest."""
    quench: bool = True
    """Whether events go only to places below which somebody is interested (§4.5)."""
    summary: int = 96
    """Wishes that are told of what is wanted below; 0 for the interest bit of the paper."""
    summary_filters: bool = True
    """Whether the filters are told with them: fewer events go in vain, and more bytes are told."""
    orders: int = 4
    """How many orders of bits subset trees are drawn from; 0 for one of its own for each event."""
    join_ms: int = 1_000
    """How long a newcomer waits for a place before it asks again."""
    ask_ms: int = 1_000
    """How often what is not confirmed is asked again."""
    renew_ms: int = 15_000
    """How often a node repeats its subscriptions to their hosts; 0 for never."""
    find_ms: int = 400
    """How often a node asks for neighbours that it misses."""
    takeover_ms: int = 2_500
    """How long a place is missed before an heir takes it, for each heir before that one again."""
    probe_ms: int = 2_000
    """How often a node that has lost a neighbour tries one of the others that it knows."""
    balance_ms: int = 600
    """How often a node with several places looks for someone to give one to."""
    copies: int = 2
    """Heirs that keep what is kept at a place, should its holder crash."""
    replicas: int = 2
    """Places above that keep copies as well, for each of the `orders`, so as to answer (§4.4).

    Where each event has an order of its own there are none."""
    answer_share: float = 0.8
    """Of the events for which who has a copy may answer in place of one below it; 0 for none."""
    push_above: int = 0
    """Messages with events in `load_ms` beyond which a node lets neighbours answer for its hottest
    identifiers (§4.4; `deputies`); 0 for never."""
    load_ms: int = 5_000
    resend_ms: int = 5_000
    """Events sent so shortly before a link broke are sent again by another way; 0: none."""
    changes_per_beat: int = 4
    """Newcomers that a node serves, places that it moves, and nodes that leave and give theirs to
    it, in `beat_ms` (§3.3); 0: no limit."""
    beat_ms: int = 1_000
    links_max: int = 512
    """Links beyond which those that nobody needs are closed, the oldest first."""
    home: HomeSettings = field(default_factory=HomeSettings)

    @property
    def nodes_max(self) -> int:
        """Places, and so nodes, that a network can have."""
        return 1 << self.identifier_bits

    def __post_init__(self) -> None:
        AttributeMap(self.identifier_bits, self.attributes)
        for name in (
            "join_ms",
            "ask_ms",
            "find_ms",
            "takeover_ms",
            "probe_ms",
            "balance_ms",
            "beat_ms",
            "load_ms",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is at least 1")
        if self.links_max < LINKS_MAX_MIN:
            raise ValueError(f"links_max is at least {LINKS_MAX_MIN}, not {self.links_max}")
        if not 0 <= self.answer_share <= 1:
            raise ValueError(f"answer_share is a share from 0 to 1, not {self.answer_share}")
        for name in (
            "orders",
            "renew_ms",
            "copies",
            "replicas",
            "push_above",
            "summary",
            "resend_ms",
            "changes_per_beat",
        ):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is not negative")

    @property
    def copy_rule(self) -> CopyRule:
        """Who keeps a copy of what is kept at a place."""
        return CopyRule(self.copies, self.orders, self.replicas)
