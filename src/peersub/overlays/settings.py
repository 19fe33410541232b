"""Settings of overlays from flat names and values, as a scenario file or a command line has them.

A settings class is a frozen dataclass whose fields are numbers, flags, words, or further settings;
the fields of those count as its own, so `retry_ms=500` reaches the part that knows `retry_ms`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any, TypeVar, get_type_hints

__all__ = ["SettingsError", "settings_from", "settings_table", "with_sample"]

S = TypeVar("S")

_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")


class SettingsError(ValueError):
    """A setting that does not exist, or a value it cannot have; the text says what can be."""


def settings_table(settings_class: type) -> dict[str, type]:
    """The flat names of all settings, and the type of each, in the order of their definition."""
    hints = get_type_hints(settings_class)
    table: dict[str, type] = {}
    for field in fields(settings_class):
        kind = hints[field.name]
        if is_dataclass(kind):
            table.update(settings_table(kind))  # type: ignore[arg-type]
        elif kind in (int, float, bool, str):
            table[field.name] = kind
    return table


def settings_from(
    settings_class: type[S], values: Mapping[str, object], *, least: int | None = None
) -> S:
    """Settings with these values, the rest as by default.

    Raises:
        SettingsError: an unknown name, a value of another kind, or a number below `least`.
    """
    table = settings_table(settings_class)
    for name in values:
        if name not in table:
            known = ", ".join(sorted(table))
            raise SettingsError(f"there is no setting {name!r}; there are: {known}")
    read = {name: _read(name, table[name], value) for name, value in values.items()}
    for name, number in read.items() if least is not None else ():
        # A number that is none, "nan", is not at least anything.
        if table[name] in (int, float) and not number >= least:  # type: ignore[operator]
            raise SettingsError(f"{name} is at least {least}, not {number}")
    made: S = _build(settings_class, read)
    return made


def with_sample(settings: Any, sample: tuple[Any, ...]) -> Any:
    """The settings, whichever part of them has a field for a sample of events, with this one."""
    changes: dict[str, Any] = {}
    for each in fields(settings):
        value = getattr(settings, each.name)
        if each.name == "sample":
            changes[each.name] = sample
        elif is_dataclass(value):
            changes[each.name] = with_sample(value, sample)
    return replace(settings, **changes)


def _build(settings_class: type, values: Mapping[str, object]) -> Any:
    hints = get_type_hints(settings_class)
    given: dict[str, Any] = {}
    for field in fields(settings_class):
        kind = hints[field.name]
        if is_dataclass(kind):
            own = settings_table(kind)  # type: ignore[arg-type]
            inner = {name: value for name, value in values.items() if name in own}
            if inner or (field.default is MISSING and field.default_factory is MISSING):
                given[field.name] = _build(kind, inner)  # type: ignore[arg-type]
        elif field.name in values:
            given[field.name] = values[field.name]
    try:
        return settings_class(**given)
    except ValueError as error:
        raise SettingsError(str(error)) from None


def _read(name: str, kind: type, value: object) -> object:
    if kind is bool:
        if isinstance(value, bool):
            return value
        word = str(value).lower()
        if word in _TRUE + _FALSE:
            return word in _TRUE
        raise SettingsError(f"{name} is true or false, not {value!r}")
    if isinstance(value, bool):
        raise SettingsError(f"{name} is {_WHAT[kind]}, not {value!r}")
    try:
        if kind is int and isinstance(value, float) and value != int(value):
            raise ValueError(value)
        return kind(value)
    except (TypeError, ValueError, OverflowError):
        raise SettingsError(f"{name} is {_WHAT[kind]}, not {value!r}") from None


_WHAT = {int: "a whole number", float: "a number", str: "a word"}
