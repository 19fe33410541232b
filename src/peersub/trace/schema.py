"""The one trace: what happened, in the order it happened, one JSON object per line.

A driver (the simulator, the runtime) tells observers *records*:

=========== ============================================================================
`Step`      a cause came to a node, and these effects left it
`Given`     a node begins with subscriptions that are ready (a start in a converged state)
`Fault`     the driver broke or mended something: a crash, a restart, a partition
`Phase`     the driver begins a part of its plan; summaries count by phase
=========== ============================================================================

In memory a step holds the very objects of the protocol: telling it costs one small object, and
nothing is told if nobody observes. On disk it is their plain form (`plain_record`), the names of
classes as kinds (`FilterUpdate` is `filter-update`) and the names of fields as keys, in the order
of the class, without fields that have their default. So the line depends on what happened and on
nothing else: one run gives one trace, byte for byte.

The trace shows identifiers, scopes, hops and reasons. Two things are whole, because checkers need
them: events where they are published, and filters where they are subscribed. Elsewhere an event is
its identifier, and a filter a text of at most `TEXT_SHOWN_MAX` characters.

This module knows no overlay, and no message by name: a new message needs no change here. It may
not import the protocols, so it knows causes and effects by the names of their classes and fields.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, StrEnum
from math import isfinite
from typing import Any, Final, Protocol, TypeAlias

from peersub.events.kinds import plain_value
from peersub.filters.filter import Filter

__all__ = [
    "TRACE_VERSION",
    "Disk",
    "Fault",
    "FaultKind",
    "Given",
    "Observer",
    "Phase",
    "Step",
    "TraceRecord",
    "header_line",
    "kind_name",
    "plain_attributes",
    "plain_form",
    "plain_record",
    "record_line",
    "values_of_attributes",
]

TRACE_VERSION: Final = 1
TEXT_SHOWN_MAX: Final = 160
"""Characters of a filter's text, or of another long text, outside of the causes."""
ROWS_SHOWN_MAX: Final = 16
"""Rows of a table, or items of another list, that a message shows."""
BYTES_SHOWN_MAX: Final = 20

# Lists whose every item matters to a checker.
_WHOLE_LISTS: Final = frozenset({"messages", "publications", "records", "subscriptions"})


class FaultKind(StrEnum):
    """What a driver can break or mend."""

    CRASH = "crash"
    """`nodes` lose their memory, and with it all that was not yet on disk."""
    RESTART = "restart"
    """`nodes` begin a new life; `disk` says what they find."""
    PARTITION = "partition"
    """Nodes of different `groups` cannot talk to each other; nodes in none are a group."""
    HEAL = "heal"
    """No partition any more."""
    EDGE_FAILURE = "edge-failure"
    """The two nodes of each of `pairs` cannot talk to each other, while both live."""
    EDGE_HEAL = "edge-heal"
    """The nodes of `pairs` can talk again."""
    STALL = "stall"
    """`nodes` stand still for a while: they live, and do nothing."""
    STALL_OVER = "stall-over"
    """`nodes` go on where they were; others may have given them up meanwhile."""
    MESSAGES_LOST = "messages-lost"
    """What went from the first to the second node of `pairs` did not arrive; optional."""


class Disk(StrEnum):
    """What a node that starts again finds of its disk."""

    KEPT = "kept"
    LOST = "lost"
    TAIL_LOST = "tail-lost"
    """The last records, though said to be on disk, are gone."""


@dataclass(frozen=True, slots=True)
class Step:
    """A cause came to a node at this time, and these effects left it, in this order."""

    now_ms: int
    node: str
    cause: Any
    effects: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Given:
    """The node begins with these subscriptions, ready from now on, with no step that says so."""

    now_ms: int
    node: str
    subscriptions: tuple[tuple[str, Filter], ...] = ()


@dataclass(frozen=True, slots=True)
class Fault:
    """The driver broke or mended something."""

    now_ms: int
    kind: FaultKind
    nodes: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    groups: tuple[tuple[str, ...], ...] = ()
    disk: Disk | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the driver's plan begins: joining, subscribing, publishing, crash, repair.

    While it is `disturbed` (messages are lost, nodes crash, the network repairs itself), an event
    of best effort may miss a subscriber; in a phase that is not, none may.
    """

    now_ms: int
    name: str
    disturbed: bool = False


TraceRecord: TypeAlias = Step | Given | Fault | Phase


class Observer(Protocol):
    """Whoever wants to know what happens. It changes nothing, and keeps no reference to lists."""

    def observe(self, record: TraceRecord) -> None:
        """Take the record in; records come in the order in which things happened."""
        ...


# --- lines -------------------------------------------------------------------------------------


def header_line(**about: str | int | None) -> str:
    """The first line of a trace: its version, and what it is a trace of.

    >>> header_line(overlay="flood", seed=1)
    '{"trace":1,"overlay":"flood","seed":1}'
    """
    return _line({"trace": TRACE_VERSION, **about})


def record_line(record: TraceRecord) -> str:
    """The record as one line, without the line's end.

    >>> record_line(Fault(7, FaultKind.CRASH, nodes=("n3",)))
    '{"ms":7,"fault":"crash","nodes":["n3"]}'
    """
    return _line(plain_record(record))


def _line(form: Mapping[str, Any]) -> str:
    return json.dumps(form, separators=(",", ":"), allow_nan=False)


def plain_record(record: TraceRecord) -> dict[str, Any]:
    """The record as plain values; `reading` turns them back into what checkers need."""
    match record:
        case Step(now_ms, node, cause, effects):
            return {
                "ms": now_ms,
                "node": node,
                "cause": _cause_form(cause),
                "effects": [plain_form(effect) for effect in effects],
            }
        case Given(now_ms, node, subscriptions):
            given = [{"subscription": name, **_whole_filter(f)} for name, f in subscriptions]
            return {"ms": now_ms, "node": node, "given": given}
        case Fault(now_ms, kind):
            shown = {"ms": now_ms, "fault": str(kind)}
            for name in ("nodes", "pairs", "groups"):
                if value := getattr(record, name):
                    shown[name] = _plain_list(value)
            if record.disk is not None:
                shown["disk"] = str(record.disk)
            if record.detail:
                shown["detail"] = record.detail
            return shown
        case Phase(now_ms, name, disturbed):
            return {"ms": now_ms, "phase": name, **({"disturbed": True} if disturbed else {})}


def _plain_list(value: Any) -> Any:
    return [_plain_list(item) for item in value] if isinstance(value, tuple) else value


def _cause_form(cause: Any) -> dict[str, Any]:
    """A cause: what it brings into the network is whole."""
    form = plain_form(cause)
    assert isinstance(form, dict)
    match form["kind"]:
        case "subscribe":
            form.pop("filter", None)
            form.update(_whole_filter(cause.filter))
        case "publish":
            form["publications"] = [_whole_publication(each) for each in cause.publications]
        case "restored":
            for shown, record in zip(form["records"], cause.records, strict=True):
                if shown.pop("filter", None) is not None:
                    shown.update(_whole_filter(record.filter))
        case _:
            pass
    return form


def _whole_filter(wanted: Filter) -> dict[str, str]:
    return {"xpath" if wanted.language == "xpath" else "filter": wanted.text}


def _whole_publication(publication: Any) -> dict[str, Any]:
    form = _publication(publication)
    form["attributes"] = plain_attributes(publication.attributes)
    if publication.body is not None:
        form["body"] = _bytes_text(bytes(publication.body))
    return form


# --- plain forms -------------------------------------------------------------------------------


def kind_name(kind: type) -> str:
    """The name of a class in traces.

    >>> kind_name(FaultKind)
    'fault-kind'
    """
    known = _KIND_NAMES.get(kind)
    if known is None:
        known = "".join(
            f"-{letter.lower()}" if letter.isupper() and place else letter.lower()
            for place, letter in enumerate(kind.__name__)
        )
        _KIND_NAMES[kind] = known
    return known


_KIND_NAMES: dict[type, str] = {}
_FORMS: dict[type, Callable[[Any], Any]] = {}


def plain_form(value: Any) -> Any:
    """A value of the protocols as plain JSON values: short, and the same in each run."""
    form = _FORMS.get(type(value))
    if form is None:
        form = _FORMS[type(value)] = _form_for(type(value), value)
    return form(value)


def _form_for(kind: type, value: Any) -> Callable[[Any], Any]:
    """How values of this class are shown. Asked once per class."""
    if kind in (bool, int, type(None)):
        return _same
    if issubclass(kind, Enum):
        return _enumerated
    if issubclass(kind, str):
        return _short_text
    if issubclass(kind, bytes | bytearray):
        return _short_bytes
    if issubclass(kind, float):
        return repr
    if issubclass(kind, Filter):
        return _short_filter
    if hasattr(kind, "delivery") and hasattr(kind, "attributes") and hasattr(kind, "event"):
        return _publication
    if hasattr(kind, "delivery") and hasattr(kind, "numbers"):
        return _batch
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        # A peer is known by one word; its class says which.
        return str if kind._fields == ("node", "incarnation", "slot") else _named_tuple
    if issubclass(kind, tuple | list):
        return _short_list
    if issubclass(kind, Mapping):
        return _short_mapping
    if is_dataclass(kind):
        return _dataclass_form(kind)
    raise TypeError(f"no form in the trace for {kind.__name__}: {value!r}")


def _same(value: Any) -> Any:
    return value


def _enumerated(value: Enum) -> str:
    return value.name.lower()


def _short_text(value: str) -> str:
    return value if len(value) <= TEXT_SHOWN_MAX else f"{value[:TEXT_SHOWN_MAX]}…"


def _short_bytes(value: bytes) -> str:
    shown = bytes(value[:BYTES_SHOWN_MAX]).hex()
    return shown if len(value) <= BYTES_SHOWN_MAX else f"{shown}… ({len(value)} bytes)"


def _short_filter(wanted: Filter) -> str:
    return _short_text(wanted.text)


def _publication(publication: Any) -> dict[str, Any]:
    form: dict[str, Any] = {"event_id": publication.id}
    if publication.delivery:
        form["delivery"] = publication.delivery.name.lower()
    return form


def _batch(batch: Any) -> dict[str, Any]:
    """All numbers: they say which events there are."""
    form: dict[str, Any] = {"batch_id": batch.id, "numbers": batch.numbers.tolist()}
    if batch.delivery:
        form["delivery"] = batch.delivery.name.lower()
    return form


def _named_tuple(value: Any) -> dict[str, Any]:
    defaults = type(value)._field_defaults
    return {
        name: plain_form(item)
        for name, item in zip(value._fields, value, strict=True)
        if not (name in defaults and item == defaults[name])
    }


def _short_list(value: Sequence[Any]) -> list[Any]:
    shown = [plain_form(item) for item in value[:ROWS_SHOWN_MAX]]
    if len(value) > ROWS_SHOWN_MAX:
        shown.append(f"… {len(value) - ROWS_SHOWN_MAX} more")
    return shown


def _whole_list(value: Sequence[Any]) -> list[Any]:
    return [plain_form(item) for item in value]


def _short_mapping(value: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(name): plain_form(item) for name, item in value.items()}


def _dataclass_form(kind: type) -> Callable[[Any], Any]:
    """The kind, then the fields that differ from their default; publications lend their own."""
    name = kind_name(kind)
    plan = []
    for each in fields(kind):
        default = each.default
        if each.default_factory is not MISSING:
            default = each.default_factory()
        whole = each.name in _WHOLE_LISTS
        plan.append((each.name, default, _whole_list if whole else plain_form))

    def form(value: Any) -> dict[str, Any]:
        shown: dict[str, Any] = {"kind": name}
        for field_name, default, form_of in plan:
            item = getattr(value, field_name)
            if default is not MISSING and item == default:
                continue
            lent = form_of(item)
            if field_name in ("publication", "batch") and isinstance(lent, dict):
                shown.update(lent)
            else:
                shown[field_name] = lent
        return shown

    return form


# --- attributes of events ----------------------------------------------------------------------


def plain_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as JSON that keeps each value's kind: what JSON has no value for is tagged.

    >>> from decimal import Decimal
    >>> plain_attributes({"a": 1, "b": Decimal("1.50")})
    {'a': 1, 'b': {'$decimal': '1.50'}}
    """
    return {str(name): _attribute_form(value) for name, value in attributes.items()}


def values_of_attributes(form: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that `plain_attributes` gave.

    >>> values_of_attributes({"a": {"$date": "2024-02-29"}})
    {'a': datetime.date(2024, 2, 29)}
    """
    return {name: _attribute_value(item) for name, item in form.items()}


def _attribute_form(value: Any) -> Any:
    value = plain_value(value)
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, float):
        return float(value) if isfinite(value) else {"$float": repr(float(value))}
    if isinstance(value, Mapping):
        record = plain_attributes(value)
        # A record that looks like a tag is tagged itself.
        is_like_tag = len(record) == 1 and next(iter(record)).startswith("$")
        return {"$record": record} if is_like_tag else record
    if isinstance(value, list | tuple):
        return [_attribute_form(item) for item in value]
    return _number_or_tagged(value)


def _number_or_tagged(value: Any) -> Any:
    if isinstance(value, int):
        return int(value)
    if isinstance(value, Decimal):
        return {"$decimal": str(value)}
    if isinstance(value, datetime):
        moment = value.replace(tzinfo=UTC) if value.utcoffset() is None else value
        return {"$timestamp": moment.astimezone(UTC).isoformat()}
    if isinstance(value, date):
        return {"$date": value.isoformat()}
    if isinstance(value, bytes | bytearray):
        return {"$bytes": bytes(value).hex()}
    return {"$opaque": type(value).__name__}


_TAGS: dict[str, Callable[[Any], Any]] = {
    "$bytes": bytes.fromhex,
    "$date": date.fromisoformat,
    "$decimal": Decimal,
    "$float": float,
    "$opaque": lambda name: [name],  # travels, and compares with nothing
    "$record": values_of_attributes,
    "$timestamp": datetime.fromisoformat,
}


def _attribute_value(form: Any) -> Any:
    if isinstance(form, list):
        return [_attribute_value(item) for item in form]
    if not isinstance(form, dict):
        return form
    if len(form) == 1:
        ((name, content),) = form.items()
        if name in _TAGS:
            return _TAGS[name](content)
    return values_of_attributes(form)


def _bytes_text(body: bytes) -> dict[str, str]:
    """A body as text where it is text, which XML usually is, else as hexadecimal digits."""
    try:
        return {"text": body.decode("utf-8")}
    except UnicodeDecodeError:
        return {"hex": body.hex()}
