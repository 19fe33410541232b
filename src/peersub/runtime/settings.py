"""The settings of a live node, and what of the overlay's it sets otherwise than the simulator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from peersub.overlays.core.link import LinkSettings
from peersub.overlays.core.mirror_settings import MirrorSettings
from peersub.overlays.core.versions import PROTOCOL_VERSION
from peersub.overlays.registry import overlay_kind
from peersub.overlays.settings import settings_from, settings_table
from peersub.runtime.limits import DEFAULT_LIMITS, ServingLimits
from peersub.runtime.store.settings import StoreSettings
from peersub.runtime.transport import TransportSettings

__all__ = ["LIVE_LINKS", "MirrorSettings", "NodeSettings", "live_settings"]

LIVE_LINKS: Final = LinkSettings(
    acknowledge=True,
    resend_ms=1_000,
    resends_max=3,
    tunnels=True,
    tunnel_timeout_ms=250,
    direct_retry_ms=5_000,
)
"""TCP loses nothing while a connection lasts: a session is there for what a broken one took along.
A way round is looked for no longer than subscribers may have to wait."""

_LIVE_OVERLAY: Final[Mapping[str, object]] = MappingProxyType(
    {
        "burst_ms": 8,
        "rows_per_turn": 2,
        "rows_told_per_turn": 8,
        "rows_per_message": 4,
        "retry_ms": 2_000,
        "replay_events_max": 16_384,
        "lookup_ms": 500,
        "stabilise_ms": 2_000,
        "probe_ms": 2_000,
        "filter_shrink_ms": 1_000,
        "merge_settle_ms": 1_000,
        "leave_ms": 2_000,
        "tend_ms": 500,
        "repair_ms": 500,
        "invite_ms": 500,
    }
)
"""What overlays repeat sooner than they do by default: round trips take milliseconds. Changes of
filters are taken in by parts of a fraction of a millisecond: events wait for no more than that."""


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What a live node is told when it is made."""

    listen: str = "127.0.0.1:0"
    """Where to accept connections; port 0 takes a free one."""
    advertise: str = ""
    """The address by which others reach the node, and its name; by default where it listens."""
    join: tuple[str, ...] = ()
    """Nodes of the network to join; none begins a network. The node itself may be among them, and
    nodes that are not there yet."""
    overlay: str = "chord"
    overlay_settings: Mapping[str, object] = field(default_factory=dict)
    network: str = "peersub"
    """Nodes of different networks refuse each other."""
    seed: int = 0
    """What keyed draws depend on: the same for all nodes of a network."""
    data: Path | None = None
    """Where the node keeps its word; without it, a restart forgets."""
    store: StoreSettings = field(default_factory=StoreSettings)
    columns: bool = True
    """Whether to take events in columns, where the installation can."""
    links: LinkSettings = LIVE_LINKS
    mirrors: MirrorSettings = field(default_factory=MirrorSettings)
    transport: TransportSettings = field(default_factory=TransportSettings)
    limits: ServingLimits = DEFAULT_LIMITS
    """What clients may take of the node."""
    protocol: tuple[int, int] = PROTOCOL_VERSION
    """The version to speak: an earlier one of the same major number, without what came later."""
    leave_timeout_ms: int = 5_000


def live_settings(overlay: str, chosen: Mapping[str, object]) -> Any:
    """The settings of an overlay on a live node: as chosen, else as suits a live network.

    Raises:
        SettingsError: there is no such overlay, or setting, or value.
    """
    kind = overlay_kind(overlay)
    table = settings_table(kind.settings_class)
    own = {name: value for name, value in _LIVE_OVERLAY.items() if name in table}
    return settings_from(kind.settings_class, {**own, **chosen})
