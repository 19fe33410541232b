"""Scenarios as TOML, both ways. Whatever is wrong in a file is named with its place.

```toml
name = "half of the nodes crash"
seed = 7
overlay = "chord"
nodes = 64
[settings]
strategy = "covering"
[network]
loss = 0.01
[[phases]]
name = "during"
[[phases.steps]]
do = "crash"
fraction = 0.5
[[phases.steps]]
do = "publish"
at_ms = 100
count = 20
delivery = "at_least_once"
```

`[[phases.steps]]` are activities, drawn by the seed; `[[phases.actions]]` are actions as they are.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from peersub.events.envelope import Event
from peersub.filters.errors import FilterError
from peersub.filters.filter import Filter
from peersub.overlays.core.publication import Delivery
from peersub.overlays.settings import SettingsError
from peersub.simulator.actions import (
    BreakEdges,
    BreakLinks,
    ChangeAt,
    CrashNodes,
    Heal,
    JoinNode,
    LeaveNode,
    MendEdges,
    Partition,
    PublishEvent,
    PublishEvents,
    RestartNode,
    StallNodes,
    SubscribeAt,
    TimedAction,
    UnsubscribeAt,
)
from peersub.simulator.activities import ACTIVITIES, Activity
from peersub.simulator.content import WorkloadChoice
from peersub.simulator.scenario import Scenario, ScenarioPhase
from peersub.simulator.settings import NetworkSettings
from peersub.simulator.toml_writing import Inline, toml_text
from peersub.trace.schema import Disk, plain_attributes, values_of_attributes

__all__ = ["scenario_of_text", "text_of_scenario"]

T = TypeVar("T")

ACTIONS: dict[str, type] = {
    "join": JoinNode,
    "leave": LeaveNode,
    "crash": CrashNodes,
    "stall": StallNodes,
    "restart": RestartNode,
    "subscribe": SubscribeAt,
    "change": ChangeAt,
    "unsubscribe": UnsubscribeAt,
    "publish": PublishEvent,
    "publish-batch": PublishEvents,
    "partition": Partition,
    "heal": Heal,
    "break-edges": BreakEdges,
    "break-links": BreakLinks,
    "mend-edges": MendEdges,
}
_NAMES_OF_ACTIONS = {kind: name for name, kind in ACTIONS.items()}


# --- reading -----------------------------------------------------------------------------------


def scenario_of_text(text: str) -> Scenario:
    """The scenario of a TOML document.

    Raises:
        SettingsError: what is wrong, where, and what is allowed.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"this is no TOML: {error}") from None
    return _read(Scenario, table, "")


def _read(kind: type[T], table: Any, place: str) -> T:
    """A dataclass from a table: every key known, every value of its kind."""
    table = _table(table, place)
    hints = get_type_hints(kind)
    known = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]
    for name in table:
        if name not in known:
            allowed = ", ".join(known)
            raise SettingsError(f"{_at(place, name)} is not known; there are: {allowed}")
    values = {name: _value(hints[name], item, _at(place, name)) for name, item in table.items()}
    for name, each in known.items():
        if name not in values and _is_required(each):
            raise SettingsError(f"{_at(place, name)} is missing")
    try:
        return kind(**values)
    except SettingsError as error:
        raise SettingsError(f"{place}: {error}" if place else str(error)) from None


def _is_required(each: Field[Any]) -> bool:
    return each.default is MISSING and each.default_factory is MISSING


def _value(hint: Any, item: Any, place: str) -> Any:
    reader = _READERS.get(hint)
    if reader is not None:
        return reader(item, place)
    if get_origin(hint) is tuple:
        return _tuple(get_args(hint), item, place)
    if get_origin(hint) is not None and issubclass(get_origin(hint), Mapping):
        return dict(_table(item, place))
    assert isinstance(hint, type), f"no reader for {hint}"
    return _read(hint, item, place)


def _tuple(hints: tuple[Any, ...], item: Any, place: str) -> tuple[Any, ...]:
    if not isinstance(item, list):
        raise SettingsError(f"{place} is a list, not {item!r}")
    if hints[-1] is Ellipsis:
        hints = (hints[0],) * len(item)
    elif len(hints) != len(item):
        raise SettingsError(f"{place} is a list of {len(hints)}, not of {len(item)}")
    return tuple(
        _value(hint, each, f"{place}[{number}]")
        for number, (hint, each) in enumerate(zip(hints, item, strict=True))
    )


def _table(item: Any, place: str) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise SettingsError(f"{place} is a table, not {item!r}")
    return item


def _at(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _plain(kind: type, what: str) -> Callable[[Any, str], Any]:
    def read(item: Any, place: str) -> Any:
        is_number = kind is float and isinstance(item, int) and not isinstance(item, bool)
        if type(item) is not kind and not is_number:
            raise SettingsError(f"{place} is {what}, not {item!r}")
        return kind(item)

    return read


def _activity(item: Any, place: str) -> Activity:
    kind, rest = _kind_of(ACTIVITIES, item, place)
    return _read(kind, rest, place)


def _timed_action(item: Any, place: str) -> TimedAction:
    kind: type[Any]
    kind, rest = _kind_of(ACTIONS, item, place)
    at_ms = _value(int, rest.pop("at_ms", 0), _at(place, "at_ms"))
    if at_ms < 0:
        raise SettingsError(f"{_at(place, 'at_ms')} is at least 0, not {at_ms}")
    if kind in (SubscribeAt, ChangeAt):
        rest["filter"] = _filter(rest, place)
    elif kind is PublishEvent:
        rest["event"] = _event(rest, place)
    elif kind is PublishEvents:
        rest["events"] = _events(rest, place)
    return TimedAction(at_ms, _read(kind, rest, place))


def _kind_of(kinds: Mapping[str, type[T]], item: Any, place: str) -> tuple[type[T], dict[str, Any]]:
    rest = dict(_table(item, place))
    word = rest.pop("do", None)
    if word not in kinds:
        raise SettingsError(f"{_at(place, 'do')} is one of {', '.join(kinds)}, not {word!r}")
    return kinds[word], rest


def _filter(rest: dict[str, Any], place: str) -> Filter:
    languages = [name for name in ("filter", "xpath") if name in rest]
    if len(languages) != 1:
        raise SettingsError(f"{place} has either filter or xpath")
    text = _value(str, rest.pop(languages[0]), _at(place, languages[0]))
    try:
        return Filter(text) if languages == ["filter"] else Filter.xpath(text)
    except FilterError as error:
        raise SettingsError(f"{_at(place, languages[0])}: {error}") from None


def _event(rest: dict[str, Any], place: str) -> Event:
    name = _value(str, rest.pop("event", None), _at(place, "event"))
    attributes = _table(rest.pop("attributes", {}), _at(place, "attributes"))
    body = None
    if "body" in rest:
        body = _value(str, rest.pop("body"), _at(place, "body")).encode("utf-8", "surrogatepass")
    try:
        return Event(name, values_of_attributes(attributes), body)
    except ValueError as error:
        raise SettingsError(f"{place}: {error}") from None


def _events(rest: dict[str, Any], place: str) -> tuple[Event, ...]:
    listed = rest.pop("events", None)
    if not isinstance(listed, list) or not listed:
        raise SettingsError(f"{_at(place, 'events')} is a list of events")
    events: list[Event] = []
    for number, item in enumerate(listed):
        where = f"{_at(place, 'events')}[{number}]"
        form = dict(_table(item, where))
        events.append(_event(form, where))
        if form:
            raise SettingsError(f"{_at(where, next(iter(form)))} is not known")
    return tuple(events)


def _as_is(item: Any, place: str) -> Any:
    return item


def _delivery(item: Any, place: str) -> Delivery:
    names = {each.name.lower(): each for each in Delivery}
    if item not in names:
        raise SettingsError(f"{place} is one of {', '.join(names)}, not {item!r}")
    return names[item]


def _disk(item: Any, place: str) -> Disk:
    names = {str(each): each for each in Disk}
    if item not in names:
        raise SettingsError(f"{place} is one of {', '.join(names)}, not {item!r}")
    return names[item]


_READERS: dict[Any, Callable[[Any, str], Any]] = {
    int: _plain(int, "a whole number"),
    float: _plain(float, "a number"),
    bool: _plain(bool, "true or false"),
    str: _plain(str, "a text"),
    Activity: _activity,
    TimedAction: _timed_action,
    Filter: _as_is,
    Event: _as_is,
    tuple[Event, ...]: _as_is,
    Delivery: _delivery,
    Disk: _disk,
}


# --- writing -----------------------------------------------------------------------------------


def text_of_scenario(scenario: Scenario) -> str:
    """The scenario as a TOML document."""
    table: dict[str, Any] = {}
    for each in fields(scenario):
        value = getattr(scenario, each.name)
        if isinstance(value, NetworkSettings | WorkloadChoice):
            table[each.name] = _changed(value)
        elif each.name == "phases":
            table[each.name] = [_phase_table(phase) for phase in value]
        elif each.name in ("settings", "links"):
            table[each.name] = dict(value)
        else:
            table[each.name] = value
    return toml_text(table)


def _changed(value: Any) -> dict[str, Any]:
    """The fields that are not as by default."""
    return {
        each.name: getattr(value, each.name)
        for each in fields(value)
        if getattr(value, each.name) != each.default
    }


def _phase_table(phase: ScenarioPhase) -> dict[str, Any]:
    table = _changed(phase)
    table.pop("steps", None)
    table.pop("actions", None)
    table["steps"] = [{"do": step.do, **_changed(step)} for step in phase.steps]
    table["actions"] = [_action_table(each) for each in phase.actions]
    return {name: value for name, value in table.items() if value != []}


def _action_table(timed: TimedAction) -> dict[str, Any]:
    action = timed.action
    table: dict[str, Any] = {"do": _NAMES_OF_ACTIONS[type(action)], "at_ms": timed.at_ms}
    for name, value in _changed(action).items():
        if isinstance(value, Filter):
            table["xpath" if value.language == "xpath" else "filter"] = value.text
        elif isinstance(value, Event):
            table |= _event_table(value)
        elif name == "events":
            table[name] = [Inline(_event_table(event)) for event in value]
        elif isinstance(value, Delivery):
            table[name] = value.name.lower()
        else:
            table[name] = str(value) if isinstance(value, Disk) else value
    return table


def _event_table(event: Event) -> dict[str, Any]:
    attributes = Inline(_without_missing(plain_attributes(event.attributes)))
    table: dict[str, Any] = {"event": event.id, "attributes": attributes}
    if event.body is not None:
        table["body"] = event.body.decode("utf-8", "surrogatepass")
    return table


def _without_missing(form: Any) -> Any:
    """The same without what is null, which TOML has not, and which means nothing to a filter."""
    if isinstance(form, Mapping):
        return {name: _without_missing(item) for name, item in form.items() if item is not None}
    if isinstance(form, list):
        return [_without_missing(item) for item in form if item is not None]
    return form
