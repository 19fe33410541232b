"""The rules of a file of permissions, as the doors of clients ask for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from peersub.filters.filter import Filter
from peersub.overlays.core.publication import Publication
from peersub.runtime.client_ports import DoorLimits
from peersub.runtime.client_shares import owner_of
from peersub.runtime.filter_budget import check_filter
from peersub.runtime.security.permissions import ClientPermission, Permissions
from peersub.runtime.security.rate_limit import RateLimit

__all__ = ["PermittedRules"]

NOTHING: Final = Filter.from_boxes(())
"""What somebody may see who may see nothing."""
DAY_MS: Final = 86_400_000
CLIENTS_KEPT_MAX: Final = 65_536
"""Clients whose rate is remembered; the one that began to publish first is forgotten first."""


class PermittedRules:
    """What clients may do, by the names in their certificates.

    All connections of a client share its rate.

    Args:
        permissions: what the file says.
        now_ms: the clock.
        limits: of what the file does not speak of.
    """

    def __init__(
        self,
        permissions: Permissions,
        now_ms: Callable[[], int],
        limits: DoorLimits | None = None,
    ) -> None:
        self._permissions = permissions
        self._now_ms = now_ms
        self._limits = limits or DoorLimits()
        self._rates: dict[str, RateLimit] = {}

    def use(self, permissions: Permissions) -> None:
        """Go by these from now on. Rates begin anew."""
        self._permissions = permissions
        self._rates.clear()

    def permit_subscribe(self, identity: str, wanted: Filter) -> Filter:
        """The filter, narrowed to what the client may see; raises NotPermitted."""
        return self._permissions.of(identity).narrow(wanted)

    def bound(self, identity: str) -> Filter | None:
        """What the client may see at all; None if that is everything."""
        subscribe = self._permissions.of(identity).subscribe
        if isinstance(subscribe, Filter):
            return subscribe
        return None if subscribe else NOTHING

    def permit_publish(self, identity: str, publication: Publication) -> str | None:
        """Why the client may not publish the event; None if it may."""
        permission = self._permissions.of(identity)
        refusal = permission.check(publication)
        if refusal is not None or permission.limits.events_per_second is None:
            return refusal
        rate = self._rates.get(identity)
        if rate is None:
            if len(self._rates) >= CLIENTS_KEPT_MAX:
                del self._rates[next(iter(self._rates))]
            rate = self._rates[identity] = RateLimit(permission.limits.events_per_second)
        if not rate.wait_ms(self._now_ms()):
            return None
        return (
            f"client {identity} may publish {permission.limits.events_per_second:g} events "
            "per second"
        )

    def bounds_publishing(self, identity: str) -> bool:
        """Whether a filter or a rate bounds what the client publishes."""
        permission = self._permissions.of(identity)
        return permission.publish is not True or permission.limits.events_per_second is not None

    def refusal(self, identity: str) -> str | None:
        """Why the client is not taken at all; None if it is."""
        return self._permissions.refusal(identity)

    def may_observe(self, identity: str) -> bool:
        """Whether the client may know of other clients, other nodes, and of the node itself."""
        return self._permissions.of(identity).observe

    def limits(self, identity: str) -> DoorLimits:
        """What the client may ask for."""
        limits = self._permissions.of(identity).limits
        return replace(
            self._limits,
            subscriptions_max=limits.subscriptions_max,
            frame_bytes_max=limits.frame_bytes_max,
        )

    # --- durable subscriptions, by their names ---------------------------------------------------

    def _of_owner(self, name: str) -> ClientPermission | None:
        """What the owner may do; None if no permission binds it."""
        owner = owner_of(name)
        return self._permissions.of(owner) if owner else None

    def narrow_durable(self, name: str, asked: Filter) -> Filter:
        """The filter that was asked for, narrowed to what the owner may see: perhaps nothing."""
        permission = self._of_owner(name)
        if permission is None:
            return asked
        try:
            narrowed = permission.narrow(asked)
            if narrowed is not asked:
                check_filter(narrowed)
        except ValueError:  # Not permitted, or too dear to be said.
            return NOTHING
        return narrowed

    def durable_bound(self, name: str) -> Filter | None:
        """What the owner may see at all; None if that is everything."""
        owner = owner_of(name)
        return self.bound(owner) if owner else None

    def durable_max(self, name: str) -> int | None:
        """Durable subscriptions that the owner may have; None if nobody counts."""
        permission = self._of_owner(name)
        return None if permission is None else permission.limits.durable_max

    def abandoned_ms_max(self, name: str) -> int | None:
        """How long it lasts without a consumer; None for ever."""
        permission = self._of_owner(name)
        return None if permission is None else int(permission.limits.abandoned_days * DAY_MS)
