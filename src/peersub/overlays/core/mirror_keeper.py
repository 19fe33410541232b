"""What a mirror peer asks of its driver: the disk, and the subscriptions of the overlay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from peersub.overlays.core.mirror_messages import MirrorCopy, MirrorHolds, NamedFilter
from peersub.overlays.core.mirror_walks import WalkKey

__all__ = ["MirrorKeeper"]


class MirrorKeeper(Protocol):
    """Called while a cause is handled: it must not call the node back before that is over.

    Where an answer follows, it is a `MirrorNews`.
    """

    # --- for the durable subscriptions of this node --------------------------------------------

    def ready(self, name: str) -> None:
        """The subscription is served, and mirrored where that is possible."""
        ...

    def recreate(self, subscriptions: Sequence[NamedFilter]) -> None:
        """A former life of this node had these; `DurableKept` follows for each."""
        ...

    # --- for those of others -------------------------------------------------------------------

    def look_after(self, home: str, epoch: str, subscriptions: Sequence[NamedFilter]) -> None:
        """Keep these on disk and subscribe; `MirrorServed` follows for each that is new."""
        ...

    def let_go(self, home: str, names: Sequence[str]) -> None:
        """Forget these, and what is retained for them."""
        ...

    def release(self, home: str, name: str, event_ids: Sequence[str]) -> None:
        """The consumer of a mirrored subscription has these events."""
        ...

    # --- for both ------------------------------------------------------------------------------

    def read(self, walk: WalkKey, after: int) -> None:
        """Read the next events that are held; `HeldRead` follows."""
        ...

    def check(self, partner: str, holds: MirrorHolds) -> None:
        """See what is missing here, all that was taken before included; `HoldsChecked` follows."""
        ...

    def take(self, partner: str, copy: MirrorCopy) -> None:
        """Store an event that was missing here."""
        ...
