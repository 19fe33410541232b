"""The settings of `peersub node`: from flags, environment, and a file, in this order of precedence.

Flags and environment variables (`PEERSUB_NODE_LISTEN` for `--listen`) come in as options that are
given or None. A file is TOML, its keys being the names of the flags:

```toml
listen = "127.0.0.1:7001"
join = ["127.0.0.1:7000"]
overlay = "chord"

[set]
retry_ms = 500

[store]
log_bytes_max = 4_000_000_000

[limit]
client_bytes_max = 16_000_000
```
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, TypeVar

from peersub.cli.failures import CommandError
from peersub.files.errors import FileError

if TYPE_CHECKING:
    from peersub.overlays.core.mirror_settings import MirrorSettings
    from peersub.runtime.settings import NodeSettings
    from peersub.runtime.store.settings import StoreSettings

__all__ = ["LISTEN_BY_DEFAULT", "NodeOptions", "node_settings", "with_file"]

S = TypeVar("S")

LISTEN_BY_DEFAULT: Final = "127.0.0.1:7001"
_CONNECTION_LIMITS: Final = (
    "connections_max",
    "unnamed_max",
    "strangers_per_second",
    "queue_bytes_max",
)
"""Settings of connections that are limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """The options of the command; None is not given."""

    listen: str | None = None
    join: tuple[str, ...] | None = None
    overlay: str | None = None
    data: str | None = None
    store: tuple[str, ...] | None = None
    limit: tuple[str, ...] | None = None
    no_fsync: bool | None = None
    copies: int | None = None
    away_max: float | None = None
    set: tuple[str, ...] | None = None
    advertise: str | None = None
    network: str | None = None
    tls: str | None = None
    tls_key: str | None = None
    tls_ca: str | None = None
    permissions: str | None = None
    insecure: bool | None = None
    trace: str | None = None
    log_level: str | None = None
    log_format: str | None = None


_NAMES: Final = {each.name.replace("_", "-"): each for each in fields(NodeOptions)}


def with_file(options: NodeOptions, name: str | None) -> NodeOptions:
    """The options, completed from a file.

    Raises:
        FileError: it cannot be read, or says something that no option is about.
    """
    if name is None:
        return options
    try:
        with open(name, "rb") as stream:
            table = tomllib.load(stream)
    except OSError as error:
        reason = error.strerror or str(error)
        raise FileError(name, f"it cannot be read ({reason})", "Check --config.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileError(name, f"this is no TOML: {error}") from None
    found: dict[str, Any] = {}
    for key, value in table.items():
        each = _NAMES.get(key.replace("_", "-"))
        if each is None:
            near = get_close_matches(key.replace("_", "-"), _NAMES, 1)
            remedy = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(_NAMES)}."
            raise FileError(name, f"there is no setting {key!r}", remedy)
        if getattr(options, each.name) is None:
            found[each.name] = _value(name, key, value)
    return replace(options, **found)


def _value(name: str, key: str, value: object) -> object:
    """The value of a key, of the kind that its option has."""
    if key in ("set", "store", "limit"):
        if isinstance(value, Mapping):
            return tuple(f"{setting}={_word(given)}" for setting, given in value.items())
        problem = f"a table, as in [{key}]"
    elif key == "join":
        if isinstance(value, str):
            return (value,)
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        problem = 'a list of addresses, as in ["127.0.0.1:7001"]'
    elif key.replace("_", "-") in ("insecure", "no-fsync"):
        if isinstance(value, bool):
            return value
        problem = "true or false"
    elif key.replace("_", "-") in ("copies", "away-max"):
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value
        problem = "a number"
    else:
        if isinstance(value, str):
            return value
        problem = "text in quotes"
    raise FileError(name, f"{key} is {problem}, not {value!r}")


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def node_settings(options: NodeOptions) -> NodeSettings:
    """What a node is told.

    Raises:
        CommandError: an option cannot be used.
    """
    from pathlib import Path

    from peersub.overlays.settings import SettingsError
    from peersub.runtime.settings import NodeSettings, live_settings

    listen = options.listen or LISTEN_BY_DEFAULT
    _check_address(listen, "--listen", is_port_free=True)
    for contact in options.join or ():
        _check_address(contact, "--join")
    if options.advertise:
        _check_address(options.advertise, "--advertise")
    given: dict[str, Any] = {
        "advertise": options.advertise,
        "overlay": options.overlay,
        "network": options.network,
    }
    settings = NodeSettings(
        listen=listen,
        join=options.join or (),
        overlay_settings=_chosen("--set", options.set or ()),
        store=_store_settings(options),
        mirrors=_mirror_settings(options),
        **_limit_settings(options),
        data=None if options.data is None else Path(options.data),
        **{name: value for name, value in given.items() if value is not None},
    )
    try:
        live_settings(settings.overlay, settings.overlay_settings)
    except SettingsError as error:
        raise CommandError(f"{error}.") from None
    return settings


def _mirror_settings(options: NodeOptions) -> MirrorSettings:
    from peersub.overlays.core.mirror_settings import MirrorSettings

    chosen: dict[str, int] = {}
    if options.copies is not None:
        chosen["copies"] = options.copies
    if options.away_max is not None:
        chosen["away_max_ms"] = round(options.away_max * 3_600_000)
    try:
        return MirrorSettings(**chosen)
    except ValueError as error:
        raise CommandError(f"--{str(error).replace('_', '-')}.") from None


def _store_settings(options: NodeOptions) -> StoreSettings:
    from peersub.runtime.store.settings import StoreSettings

    chosen = _chosen("--store", options.store or ())
    if options.no_fsync:
        chosen["fsync"] = False
    return _bounded("--store", StoreSettings, chosen)


def _limit_settings(options: NodeOptions) -> dict[str, Any]:
    """The limits of clients, and those of connections, each where a node keeps them."""
    from peersub.overlays.settings import settings_table
    from peersub.runtime.limits import ServingLimits
    from peersub.runtime.transport import TransportSettings

    chosen = _chosen("--limit", options.limit or ())
    homes = {"limits": ServingLimits, "transport": TransportSettings}
    known = dict.fromkeys(settings_table(ServingLimits), "limits")
    known.update(dict.fromkeys(_CONNECTION_LIMITS, "transport"))
    for name in chosen:
        if name not in known:
            near = get_close_matches(name, known, 1)
            remedy = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(known)}."
            raise CommandError(f"--limit: there is no limit {name!r}. {remedy}")
    return {
        part: _bounded("--limit", kind, {n: v for n, v in chosen.items() if known[n] == part})
        for part, kind in homes.items()
    }


def _bounded(option: str, kind: type[S], chosen: Mapping[str, object]) -> S:
    """Settings that are bounds, as they were chosen: each number of them is at least 1."""
    from peersub.overlays.settings import SettingsError, settings_from

    try:
        return settings_from(kind, chosen, least=1)
    except SettingsError as error:
        raise CommandError(f"{option}: {error}.") from None


def _chosen(option: str, words: tuple[str, ...]) -> dict[str, object]:
    chosen: dict[str, object] = {}
    for word in words:
        name, separator, value = word.partition("=")
        if not separator or not name:
            raise CommandError(f"{option} {word!r}: write NAME=VALUE.")
        chosen[name] = value
    return chosen


def _check_address(address: str, option: str, *, is_port_free: bool = False) -> None:
    from peersub.runtime.addresses import split_address

    try:
        _, port = split_address(address)
    except ValueError as error:
        raise CommandError(f"{option}: {error}.") from None
    if not port and not is_port_free:
        raise CommandError(f"{option}: {address!r} has no port that could be reached.")
