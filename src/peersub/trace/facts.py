"""Facts: what a trace says about subscriptions, publications and deliveries, and nothing else.

Checkers are about what was promised to people, not about messages. They read facts, and two doors
lead to them: `facts_of` from the records that a driver tells while it runs, `facts_of_form` from
the plain form that a trace file holds. Both give the same facts, so a checker judges a run and its
trace alike.

The protocols may not be imported here: causes and effects are known by the names of their classes,
which `tests/trace/test_facts.py` compares with the classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.trace.schema import (
    Disk,
    Fault,
    FaultKind,
    Given,
    Step,
    TraceRecord,
    values_of_attributes,
)

__all__ = [
    "Completed",
    "Delivered",
    "Disturbed",
    "Fact",
    "Failed",
    "Left",
    "MoveProposed",
    "PhaseBegun",
    "Published",
    "Ready",
    "Remembered",
    "Revived",
    "Split",
    "Stalled",
    "Stopped",
    "Subscribed",
    "Unsubscribed",
    "facts_of",
    "facts_of_form",
]


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The subscription exists on the node from now on."""

    now_ms: int
    node: str
    subscription: str
    filter: Filter


@dataclass(frozen=True, slots=True)
class Ready:
    """The overlay has given its promise for the subscription."""

    now_ms: int
    node: str
    subscription: str


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """The subscription is no more."""

    now_ms: int
    node: str
    subscription: str


@dataclass(frozen=True, slots=True)
class MoveProposed:
    """The overlay proposed that the subscription moves to another node."""

    now_ms: int
    node: str
    subscription: str
    to: str


@dataclass(frozen=True, slots=True)
class Published:
    """An event entered the network; `promised` if it must reach all who want it."""

    now_ms: int
    node: str
    event: Event
    promised: bool


@dataclass(frozen=True, slots=True)
class Delivered:
    """The event was handed to subscriptions of the node."""

    now_ms: int
    node: str
    event_id: str
    subscriptions: tuple[str, ...]
    hops: int
    again: bool


@dataclass(frozen=True, slots=True)
class Completed:
    """The publisher was told that its promise is kept."""

    now_ms: int
    node: str
    event_id: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The publisher was told that its promise is not kept."""

    now_ms: int
    node: str
    event_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """The node has crashed."""

    now_ms: int
    node: str


@dataclass(frozen=True, slots=True)
class Left:
    """The node has begun to take leave."""

    now_ms: int
    node: str


@dataclass(frozen=True, slots=True)
class Revived:
    """The node lives again, with what is left of its disk."""

    now_ms: int
    node: str
    disk: Disk


@dataclass(frozen=True, slots=True)
class Remembered:
    """These subscriptions of the node's earlier life go on: they were on its disk."""

    now_ms: int
    node: str
    subscriptions: tuple[tuple[str, Filter], ...]


@dataclass(frozen=True, slots=True)
class Split:
    """The network is in parts that cannot talk to each other, or is one again."""

    now_ms: int
    parted: bool


@dataclass(frozen=True, slots=True)
class Stalled:
    """The node stands still from now on, or goes on."""

    now_ms: int
    node: str
    is_still: bool


@dataclass(frozen=True, slots=True)
class Disturbed:
    """The driver broke a link, or lost messages."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class PhaseBegun:
    """The driver begins a part of its plan."""

    now_ms: int
    name: str
    disturbed: bool


Fact: TypeAlias = (
    Subscribed
    | Ready
    | Unsubscribed
    | MoveProposed
    | Published
    | Delivered
    | Completed
    | Failed
    | Stopped
    | Left
    | Revived
    | Remembered
    | Split
    | Stalled
    | Disturbed
    | PhaseBegun
)


# --- from what a driver tells --------------------------------------------------------------------


def facts_of(record: TraceRecord) -> Sequence[Fact]:
    """The facts in a record, in the order in which they came true: first the cause's."""
    if isinstance(record, Step):
        read = _CAUSES.get(type(record.cause).__name__)
        facts = list(read(record.now_ms, record.node, record.cause)) if read else []
        for effect in record.effects:
            read = _EFFECTS.get(type(effect).__name__)
            if read is not None:
                facts.extend(read(record.now_ms, record.node, effect))
        return facts
    if isinstance(record, Given):
        return _given(record.now_ms, record.node, record.subscriptions)
    if isinstance(record, Fault):
        return _faults(record)
    return [PhaseBegun(record.now_ms, record.name, record.disturbed)]


def _given(now_ms: int, node: str, subscriptions: Sequence[tuple[str, Filter]]) -> list[Fact]:
    facts: list[Fact] = []
    for name, wanted in subscriptions:
        facts += [Subscribed(now_ms, node, name, wanted), Ready(now_ms, node, name)]
    return facts


def _faults(fault: Fault) -> list[Fact]:
    now_ms = fault.now_ms
    match fault.kind:
        case FaultKind.CRASH:
            return [Stopped(now_ms, node) for node in fault.nodes]
        case FaultKind.RESTART:
            disk = Disk.LOST if fault.disk is None else fault.disk
            return [Revived(now_ms, node, disk) for node in fault.nodes]
        case FaultKind.PARTITION:
            return [Split(now_ms, True)]
        case FaultKind.HEAL:
            return [Split(now_ms, False)]
        case FaultKind.STALL | FaultKind.STALL_OVER:
            is_still = fault.kind is FaultKind.STALL
            return [Stalled(now_ms, node, is_still) for node in fault.nodes]
        case FaultKind.EDGE_FAILURE | FaultKind.MESSAGES_LOST:
            return [Disturbed(now_ms)]
        case FaultKind.EDGE_HEAL:
            return []


def _publications(now_ms: int, node: str, cause: Any) -> list[Fact]:
    return [Published(now_ms, node, each.event, bool(each.delivery)) for each in cause.publications]


def _restored(now_ms: int, node: str, cause: Any) -> list[Fact]:
    kept: dict[str, Filter] = {}
    for record in cause.records:
        match type(record).__name__:
            case "SubscriptionStored" | "DurableSubscriptionStored":
                kept[record.subscription] = record.filter
            case "SubscriptionRemoved":
                kept.pop(record.subscription, None)
            case _:
                pass
    return [Remembered(now_ms, node, tuple(kept.items()))]


_Read: TypeAlias = Callable[[int, str, Any], Sequence[Fact]]
_CAUSES: dict[str, _Read] = {
    "Leave": lambda now_ms, node, _: [Left(now_ms, node)],
    "Publish": _publications,
    "Restored": _restored,
    "Subscribe": lambda now_ms, node, cause: [
        Subscribed(now_ms, node, cause.subscription, cause.filter)
    ],
    "Unsubscribe": lambda now_ms, node, cause: [Unsubscribed(now_ms, node, cause.subscription)],
}
_EFFECTS: dict[str, _Read] = {
    "Deliver": lambda now_ms, node, effect: [
        Delivered(
            now_ms,
            node,
            effect.publication.id,
            effect.subscriptions,
            effect.hops,
            effect.again,
        )
    ],
    "ProposeMove": lambda now_ms, node, effect: [
        MoveProposed(now_ms, node, effect.subscription, effect.node)
    ],
    "PublishCompleted": lambda now_ms, node, effect: [Completed(now_ms, node, effect.event_id)],
    "PublishFailed": lambda now_ms, node, effect: [
        Failed(now_ms, node, effect.event_id, effect.reason)
    ],
    "SubscriptionReady": lambda now_ms, node, effect: [Ready(now_ms, node, effect.subscription)],
}


# --- from what a file holds ----------------------------------------------------------------------


def facts_of_form(form: Mapping[str, Any]) -> Sequence[Fact]:
    """The facts in a line of a trace file.

    Raises:
        KeyError, TypeError, ValueError: the line is no record of this version.
    """
    now_ms = form["ms"]
    if "cause" in form:
        cause, node = form["cause"], form["node"]
        read = _CAUSE_FORMS.get(cause["kind"])
        facts = list(read(now_ms, node, cause)) if read else []
        for effect in form["effects"]:
            read = _EFFECT_FORMS.get(effect["kind"])
            if read is not None:
                facts.extend(read(now_ms, node, effect))
        return facts
    if "given" in form:
        given = [(each["subscription"], _filter_of(each)) for each in form["given"]]
        return _given(now_ms, form["node"], given)
    if "fault" in form:
        disk = Disk(form["disk"]) if "disk" in form else None
        nodes = tuple(form.get("nodes", ()))
        return _faults(Fault(now_ms, FaultKind(form["fault"]), nodes=nodes, disk=disk))
    return [PhaseBegun(now_ms, form["phase"], form.get("disturbed", False))]


def _filter_of(form: Mapping[str, Any]) -> Filter:
    return Filter.xpath(form["xpath"]) if "xpath" in form else Filter(form["filter"])


def _publication_forms(now_ms: int, node: str, form: Mapping[str, Any]) -> list[Fact]:
    facts: list[Fact] = []
    for each in form["publications"]:
        event = Event(each["event_id"], values_of_attributes(each["attributes"]), _body_of(each))
        facts.append(Published(now_ms, node, event, "delivery" in each))
    return facts


def _body_of(form: Mapping[str, Any]) -> bytes | None:
    body = form.get("body")
    if body is None:
        return None
    return bytes.fromhex(body["hex"]) if "hex" in body else str(body["text"]).encode()


def _restored_form(now_ms: int, node: str, form: Mapping[str, Any]) -> list[Fact]:
    kept: dict[str, Filter] = {}
    for record in form["records"]:
        if record["kind"] == "subscription-stored":
            kept[record["subscription"]] = _filter_of(record)
        elif record["kind"] == "subscription-removed":
            kept.pop(record["subscription"], None)
    return [Remembered(now_ms, node, tuple(kept.items()))]


_CAUSE_FORMS: dict[str, _Read] = {
    "leave": lambda now_ms, node, _: [Left(now_ms, node)],
    "publish": _publication_forms,
    "restored": _restored_form,
    "subscribe": lambda now_ms, node, form: [
        Subscribed(now_ms, node, form["subscription"], _filter_of(form))
    ],
    "unsubscribe": lambda now_ms, node, form: [Unsubscribed(now_ms, node, form["subscription"])],
}
_EFFECT_FORMS: dict[str, _Read] = {
    "deliver": lambda now_ms, node, form: [
        Delivered(
            now_ms,
            node,
            form["event_id"],
            tuple(form["subscriptions"]),
            form.get("hops", 0),
            form.get("again", False),
        )
    ],
    "propose-move": lambda now_ms, node, form: [
        MoveProposed(now_ms, node, form["subscription"], form["node"])
    ],
    "publish-completed": lambda now_ms, node, form: [Completed(now_ms, node, form["event_id"])],
    "publish-failed": lambda now_ms, node, form: [
        Failed(now_ms, node, form["event_id"], form["reason"])
    ],
    "subscription-ready": lambda now_ms, node, form: [Ready(now_ms, node, form["subscription"])],
}
