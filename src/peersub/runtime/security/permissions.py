"""What clients may do, by the names in their certificates: a TOML file.

```toml
[default]                      # clients that are not named below, and keys that they leave out
publish = false
subscribe = "public = TRUE"    # only events that match

[clients.dashboard]
subscribe = true
observe = true                 # status shows all of the node, not only what is its own
subscriptions_max = 100

[clients.feed]
publish = "source = 'feed'"
subscribe = false
events_per_second = 500
```

`publish` and `subscribe` are true, false, a SQL filter, or `{ xpath = "PATTERN" }`. A bounded
subscription is narrowed: it sees what it asks for and what the bound holds. A publication outside
of its bound is refused. What the file does not grant is not permitted; without a file everything
is, to clients with a certificate. Nodes are not bound: they trust each other.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from peersub.filters.errors import FilterError, excerpt_of
from peersub.filters.filter import Filter, described
from peersub.filters.price import FILTER_PRICE_MAX, price_of_product
from peersub.overlays.core.publication import Publication
from peersub.runtime.security.rate_limit import RateLimit
from peersub.wire.limits import FILTER_BYTES_MAX, FRAME_BYTES_MAX

__all__ = ["ClientLimits", "ClientPermission", "NotPermitted", "Permissions", "PermissionsError"]

FILE_BYTES_MAX: Final = 16 * 1_024 * 1_024
NARROWING_PRICE_MAX: Final = 2 * FILTER_PRICE_MAX
"""Units of a filter and a permission multiplied out, at most: many of its boxes may be empty."""
CLIENTS_MAX: Final = 65_536
"""Clients that a file names."""

Bound = bool | Filter
"""All, nothing, or what matches."""


class PermissionsError(ValueError):
    """A file of permissions that cannot be used: which, where, and why."""


class NotPermitted(ValueError):  # noqa: N818 - it is an answer, not a mistake
    """A client asked for what it may not have; the text is for the client."""


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """How much one client may ask for, over all of its connections at a node.

    Attributes:
        subscriptions_max: at the same time.
        durable_max: durable subscriptions, those without a consumer included.
        abandoned_days: how long a durable subscription lasts without a consumer.
        filter_bytes_max: of one filter, as it travels.
        events_per_second: that it publishes, in the long run; None for as many as it can.
        frame_bytes_max: of one frame.
    """

    subscriptions_max: int = 10_000
    durable_max: int = 1_000
    abandoned_days: float = 30
    filter_bytes_max: int = FILTER_BYTES_MAX
    events_per_second: float | None = None
    frame_bytes_max: int = FRAME_BYTES_MAX

    def rate_limit(self) -> RateLimit | None:
        """A fresh bucket for one client; None if it has no limit."""
        return None if self.events_per_second is None else RateLimit(self.events_per_second)


@dataclass(frozen=True, slots=True)
class ClientPermission:
    """What one client may do.

    Attributes:
        observe: whether it may know of other clients, other nodes and of its node, by `status`
            and introductions; else it is shown what is its own.
    """

    name: str
    publish: Bound = True
    subscribe: Bound = True
    observe: bool = True
    limits: ClientLimits = ClientLimits()

    def narrow(self, wanted: Filter) -> Filter:
        """The filter, narrowed to what the client may see.

        Raises:
            NotPermitted: it may see nothing of this, or no filter says what it may see.
        """
        if self.subscribe is False:
            raise NotPermitted(f"client {self.name} may not subscribe")
        size = wanted.price.bytes
        if size > self.limits.filter_bytes_max:
            raise NotPermitted(
                f"the filter has {size:,} bytes, and client {self.name} may use "
                f"{self.limits.filter_bytes_max:,}"
            )
        if self.subscribe is True:
            return wanted
        product = price_of_product(wanted.price, self.subscribe.price)
        if product.units > NARROWING_PRICE_MAX:
            raise NotPermitted(
                f"client {self.name} may only see {_shown(self.subscribe)}, and narrowing the "
                f"filter to that would cost {product.units:,} units; the bound is "
                f"{NARROWING_PRICE_MAX:,}. Use a filter of fewer conjunctions."
            )
        try:
            narrowed = wanted.intersection(self.subscribe)
        except FilterError as error:
            raise NotPermitted(
                f"client {self.name} may only see {_shown(self.subscribe)}, and the filter cannot "
                f"be narrowed to that: {error.problem}"
            ) from None
        if narrowed.is_nothing and not wanted.is_nothing:
            raise NotPermitted(
                f"client {self.name} may only see {_shown(self.subscribe)}, and nothing of that "
                "matches the filter"
            )
        return narrowed

    def check(self, publication: Publication) -> str | None:
        """Why the client may not publish this; None if it may."""
        if self.publish is True:
            return None
        if self.publish is False:
            return f"client {self.name} may not publish"
        if not publication.is_sound:
            return "the attributes of the event cannot be read"
        if publication.matches(self.publish):
            return None
        return f"client {self.name} may only publish events with {_shown(self.publish)}"


def _shown(bound: Filter) -> str:
    return excerpt_of(described(bound), 200)


_LIMITS: Final = frozenset(field.name for field in fields(ClientLimits))
_KEYS: Final = ("publish", "subscribe", "observe", *sorted(_LIMITS))
_NOTHING: Final = ClientPermission("default", publish=False, subscribe=False, observe=False)


class Permissions:
    """What each client may do.

    Args:
        default: of clients that are not named; None refuses them.
        clients: by name.
    """

    def __init__(
        self,
        default: ClientPermission | None,
        clients: Mapping[str, ClientPermission] | None = None,
    ) -> None:
        self._takes_strangers = default is not None
        self._default = default or _NOTHING
        self._clients = dict(clients or {})

    @classmethod
    def unbounded(cls) -> Permissions:
        """Everything is permitted: what holds for `peersub node` without a file."""
        return cls(ClientPermission("default"))

    @classmethod
    def nobody(cls) -> Permissions:
        """No client is taken: what holds for `join` with TLS and without permissions."""
        return cls(None)

    @classmethod
    def load(cls, path: Path) -> Permissions:
        """What the file says.

        Raises:
            PermissionsError: it cannot be read; the text names the file, the key and the place.
        """
        try:
            with path.open("rb") as file:
                content = file.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            raise PermissionsError(f"{path}: cannot be read: {error.strerror}") from None
        if len(content) > FILE_BYTES_MAX:
            raise PermissionsError(f"{path}: larger than {FILE_BYTES_MAX:,} bytes")
        try:
            return cls.parse(content.decode())
        except UnicodeDecodeError:
            raise PermissionsError(f"{path}: the file is not UTF-8") from None
        except PermissionsError as error:
            raise PermissionsError(f"{path}: {error}") from None

    @classmethod
    def parse(cls, text: str) -> Permissions:
        """What a text says; raises what `load` does, without the name of the file."""
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise PermissionsError(f"this is no TOML: {error}") from None
        for key in table:
            if key not in ("default", "clients"):
                raise PermissionsError(f"{key}: not known; use [default] and [clients.NAME]")
        default = _permission(_table(table, "default", "default"), _NOTHING, "default")
        named = _table(table, "clients", "clients")
        if len(named) > CLIENTS_MAX:
            raise PermissionsError(f"clients: more than {CLIENTS_MAX:,}")
        clients = {
            name: _permission(
                _table(named, name, f"clients.{name}"),
                replace(default, name=name),
                f"clients.{name}",
            )
            for name in named
        }
        return cls(default, clients)

    def refusal(self, name: str) -> str | None:
        """Why a client of this name is not taken at all; None if it is."""
        if self._takes_strangers or name in self._clients:
            return None
        return f"this node takes no clients that its permissions do not name, and not {name}"

    def of(self, name: str) -> ClientPermission:
        """What the client of this name may do."""
        known = self._clients.get(name)
        return replace(self._default, name=name) if known is None else known


def _table(table: Mapping[str, Any], key: str, place: str) -> dict[str, Any]:
    found = table.get(key, {})
    if not isinstance(found, dict):
        raise PermissionsError(f"{place}: must be a table, as in [{place}]")
    return found


def _permission(
    table: Mapping[str, Any], otherwise: ClientPermission, place: str
) -> ClientPermission:
    limits: dict[str, Any] = {}
    bounds: dict[str, Any] = {}
    for key, value in table.items():
        where = f"{place}.{key}"
        if key in ("publish", "subscribe"):
            bounds[key] = _bound(value, where)
        elif key == "observe":
            if not isinstance(value, bool):
                raise PermissionsError(f"{where}: must be true or false")
            bounds[key] = value
        elif key in _LIMITS:
            limits[key] = _limit(key, value, where)
        else:
            raise PermissionsError(f"{where}: not known; known are {', '.join(_KEYS)}")
    return replace(otherwise, **bounds, limits=replace(otherwise.limits, **limits))


def _bound(value: Any, where: str) -> Bound:
    if isinstance(value, bool):
        return value
    try:
        if isinstance(value, str):
            return Filter(value)
        if isinstance(value, dict) and list(value) == ["xpath"] and isinstance(value["xpath"], str):
            return Filter.xpath(value["xpath"])
    except FilterError as error:
        raise PermissionsError(f"{where}: {error}") from None
    raise PermissionsError(
        f"{where}: must be true, false, a filter as text, or {{ xpath = 'PATTERN' }}"
    )


def _limit(key: str, value: Any, where: str) -> float:
    if key in ("events_per_second", "abandoned_days"):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
            raise PermissionsError(f"{where}: must be a number greater than 0")
        return value
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise PermissionsError(f"{where}: must be a whole number, 0 or more")
    return value
