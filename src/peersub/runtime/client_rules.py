"""The rules of a file of permissions, as the doors of clients ask for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from peersub.filters.filter import Filter
from peersub.overlays.core.publication import Publication
from peersub.runtime.client_ports import DoorLimits
from peersub.runtime.security.permissions import Permissions
from peersub.runtime.security.rate_limit import RateLimit

__all__ = ["PermittedRules"]

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

    def permit_subscribe(self, identity: str, wanted: Filter) -> Filter:
        """The filter, narrowed to what the client may see; raises NotPermitted."""
        return self._permissions.of(identity).narrow(wanted)

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
