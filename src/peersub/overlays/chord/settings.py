"""The settings of the Chord overlay."""

from __future__ import annotations

from dataclasses import dataclass, field

from peersub.overlays.routing.settings import RoutingSettings

__all__ = ["KEY_BITS_MAX", "PLACEMENTS", "ChordSettings"]

PLACEMENTS = ("drawn", "evenly", "interest", "all-interests")
"""How nodes get their keys (`placement`): by a draw; at equal distances, in an order that is drawn;
by what each node wants itself; at equal distances, by what all nodes want."""

KEY_BITS_MAX = 63
"""Keys are attributes of control notifications: they fit a signed 64-bit number, and so does the
length of the whole circle an unsigned one."""


@dataclass(frozen=True, slots=True)
class ChordSettings:
    """How large the circle is, and how the ring is kept whole."""

    key_bits: int = KEY_BITS_MAX
    """The circle has 2^key_bits keys. All nodes of a network agree on it."""
    key: int = -1
    """The node's place on the circle, for keys that follow interests; -1 draws one."""
    placement: str = PLACEMENTS[0]
    """How whoever makes the nodes chooses their keys. A node cannot: it joins before it knows what
    it will want."""
    successors: int = 0
    """Length of the successor list; 0 takes twice the logarithm of the estimated ring size."""
    lookup_ms: int = 1_000
    """A lookup that has no answer after this long is repeated; the pause doubles each time."""
    filter_shrink_ms: int = 3_000
    """How much later a node's filters for control notifications become smaller than larger."""
    stabilise_ms: int = 5_000
    """How often a node checks its neighbourhood and one finger; 0 for never."""
    link_idle_ms: int = 10_000
    """Links that neither side has had a use for during this time are closed."""
    leave_ms: int = 3_000
    """How long a node that takes leave goes on serving those who still count on it."""
    probe_ms: int = 5_000
    """What the pauses between attempts to reach a former peer, or a contact that did not answer,
    are measured by (`core.probing`); 0 for never."""
    merge_settle_ms: int = 5_000
    """A merged ring is settled when nothing has changed for so long, and all filters are confirmed;
    then events are replayed."""
    routing: RoutingSettings = field(default_factory=RoutingSettings)

    def __post_init__(self) -> None:
        if not 1 <= self.key_bits <= KEY_BITS_MAX:
            raise ValueError(f"key_bits is from 1 to {KEY_BITS_MAX}, not {self.key_bits}")
        if not -1 <= self.key < self.size:
            raise ValueError(f"key is from 0 to 2^key_bits - 1, or -1 to draw it, not {self.key}")
        if self.placement not in PLACEMENTS:
            raise ValueError(f"placement is one of {', '.join(PLACEMENTS)}, not {self.placement}")
        for name in ("successors", "stabilise_ms", "probe_ms"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is 0 or more, not {getattr(self, name)}")
        for name in (
            "lookup_ms",
            "filter_shrink_ms",
            "link_idle_ms",
            "leave_ms",
            "merge_settle_ms",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is 1 or more, not {getattr(self, name)}")

    @property
    def size(self) -> int:
        """The number of keys on the circle."""
        return 1 << self.key_bits
