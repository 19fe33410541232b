"""Why a subscriber got an event, or did not: the answer that a trace holds.

A first look at the ends: was the event published, did the subscription want it, did it exist and
was it ready, did its node live. Then at the way: who received the event from whom. For a delivery
the answer is the path from the publisher; else the places where the event ended: dropped, and why;
sent, and never received; or not sent on at all, because no table asked for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.trace.facts import (
    Completed,
    Delivered,
    Failed,
    Left,
    MoveProposed,
    Published,
    Ready,
    Remembered,
    Revived,
    Stopped,
    Subscribed,
    Unsubscribed,
    facts_of_form,
)

__all__ = ["PEER_DETAILS", "Explanation", "Hop", "Verdict", "explain", "node_of"]

PEER_DETAILS: Final = r"(~\d+)?(/\d+)?$"
"""What follows the node in the name of a peer: its incarnation and its slot."""
ENDS_SHOWN_MAX: Final = 8
"""Places where an event ended that an answer names."""


class Verdict(StrEnum):
    """The answer in one word."""

    DELIVERED = "delivered"
    NOT_PUBLISHED = "not-published"
    NO_SUBSCRIPTION = "no-subscription"
    NOT_MATCHING = "not-matching"
    NOT_READY = "not-ready"
    ENDED = "ended"
    NODE_DOWN = "node-down"
    MISSED = "missed"


@dataclass(frozen=True, slots=True)
class Hop:
    """The event went over a link; `received_ms` is None if it never arrived."""

    sender: str
    receiver: str
    sent_ms: int | None
    received_ms: int | None
    scope: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why, in sentences, and the way that the event took."""

    verdict: Verdict
    sentences: tuple[str, ...]
    path: tuple[Hop, ...] = ()


@dataclass(slots=True)
class _Life:
    """What happened to a subscription that bears the name."""

    node: str
    filter: Filter
    made_ms: int
    ready_ms: int | None = None
    ended: tuple[int, str] | None = None
    """When it last ended, and how; None while it lives."""


@dataclass(slots=True)
class _Story:
    """All that the trace says about one event and the subscriptions of one name."""

    event: Event | None = None
    publisher: str = ""
    published_ms: int = 0
    outcome: str = ""
    sent: list[tuple[int, str, str, tuple[int, ...]]] = field(default_factory=list)
    received: list[tuple[int, str, str]] = field(default_factory=list)
    dropped: list[tuple[int, str, str]] = field(default_factory=list)
    delivered: list[Delivered] = field(default_factory=list)
    lives: list[_Life] = field(default_factory=list)
    crashes: list[tuple[int, str]] = field(default_factory=list)
    proposals: list[MoveProposed] = field(default_factory=list)


def explain(
    forms: Iterable[Mapping[str, Any]], event_id: str, subscription: str, node: str | None = None
) -> Explanation:
    """Why the subscription got the event, or did not.

    Args:
        forms: the records of a trace (`reading.trace_forms`).
        event_id: the event.
        subscription: the name of the subscription.
        node: its node, where the same name is used on several.
    """
    story = _Story()
    for form in forms:
        _take_facts(story, form, event_id, subscription, node)
        if "cause" in form:
            _take_messages(story, form, event_id)
    return _answer(story, event_id, subscription)


# --- reading -------------------------------------------------------------------------------------


def _take_facts(
    story: _Story, form: Mapping[str, Any], event_id: str, name: str, node: str | None
) -> None:
    for fact in facts_of_form(form):
        match fact:
            case Published() if fact.event.id == event_id and story.event is None:
                story.event, story.publisher = fact.event, fact.node
                story.published_ms = fact.now_ms
            case Delivered() if fact.event_id == event_id and name in fact.subscriptions:
                if node is None or fact.node == node:
                    story.delivered.append(fact)
            case Completed() if fact.event_id == event_id:
                story.outcome = f"its publisher was told that it is complete at {fact.now_ms} ms"
            case Failed() if fact.event_id == event_id:
                story.outcome = f"its publisher was told that it failed: {fact.reason}"
            case Stopped():
                story.crashes.append((fact.now_ms, fact.node))
                _end(story, fact.node, fact.now_ms, "its node crashed")
            case Left():
                _end(story, fact.node, fact.now_ms, "its node took leave")
            case Subscribed() if fact.subscription == name and node in (None, fact.node):
                story.lives.append(_Life(fact.node, fact.filter, fact.now_ms))
            case Ready() if fact.subscription == name:
                for life in story.lives:
                    if life.node == fact.node and life.ended is None and life.ready_ms is None:
                        life.ready_ms = fact.now_ms
            case Unsubscribed() if fact.subscription == name:
                _end(story, fact.node, fact.now_ms, "it was unsubscribed")
            case MoveProposed() if fact.subscription == name and node in (None, fact.node):
                story.proposals.append(fact)
            case Remembered() if node in (None, fact.node):
                for kept, wanted in fact.subscriptions:
                    if kept == name:
                        story.lives.append(_Life(fact.node, wanted, fact.now_ms))
            case Revived() | _:
                pass


def _end(story: _Story, node: str, now_ms: int, how: str) -> None:
    for life in story.lives:
        if life.node == node and life.ended is None:
            life.ended = (now_ms, how)


def _take_messages(story: _Story, form: Mapping[str, Any], event_id: str) -> None:
    now_ms, node, cause = form["ms"], form["node"], form["cause"]
    if cause["kind"] == "received":
        for _ in _carrying(cause["messages"], event_id):
            story.received.append((now_ms, node_of(cause["peer"]), node))
    for effect in form["effects"]:
        match effect["kind"]:
            case "send":
                for message in _carrying(effect["messages"], event_id):
                    receiver, scope = node_of(effect["peer"]), tuple(message.get("scope", ()))
                    story.sent.append((now_ms, node, receiver, scope))
            case "drop" if effect.get("event_id") == event_id:
                story.dropped.append((now_ms, node, effect["reason"]))
            case _:
                pass


def _carrying(messages: Iterable[Any], event_id: str) -> Iterator[Mapping[str, Any]]:
    """The messages that bring the event: those with its identifier and a count of hops.

    One with many events names their batch, and the numbers of the events in it.
    """
    batch_id, _, number = event_id.rpartition("/")
    for message in messages:
        if not isinstance(message, Mapping):
            continue
        if "hops" in message and (
            message.get("event_id") == event_id
            or (message.get("batch_id") == batch_id and number in map(str, message["numbers"]))
        ):
            yield message
        inside = message.get("message")
        if isinstance(inside, Mapping):
            yield from _carrying((inside,), event_id)


def node_of(peer: str) -> str:
    """The node that a peer lives on.

    >>> node_of("n7~2/3"), node_of("127.0.0.1:7001")
    ('n7', '127.0.0.1:7001')
    """
    return re.sub(PEER_DETAILS, "", peer)


# --- answering -----------------------------------------------------------------------------------


def _answer(story: _Story, event_id: str, subscription: str) -> Explanation:
    if story.event is None:
        text = f"no event {event_id} was published in this trace"
        return Explanation(Verdict.NOT_PUBLISHED, (text,))
    begin = f"{event_id} was published on {story.publisher} at {story.published_ms} ms"
    if story.delivered:
        return _delivered(story, begin, subscription)
    if not story.lives:
        text = f"no subscription {subscription} appears in this trace"
        return Explanation(Verdict.NO_SUBSCRIPTION, (begin, text))
    life = _life_at(story)
    excuse = _excuse(story, life, subscription)
    if excuse is not None:
        return Explanation(excuse[0], (begin, excuse[1]))
    return _missed(story, begin, life, subscription)


def _delivered(story: _Story, begin: str, subscription: str) -> Explanation:
    first = story.delivered[0]
    path = _path_to(story, first.node, first.now_ms)
    links = "1 link" if first.hops == 1 else f"{first.hops} links"
    over = f"over {links}" if first.hops else "without leaving its node"
    sentences = [
        begin,
        f"{subscription} on {first.node} got it at {first.now_ms} ms, {over}"
        + (", again after a crash" if first.again else ""),
    ]
    sentences += [
        f"and once more at {more.now_ms} ms" + (", again after a crash" if more.again else "")
        for more in story.delivered[1:]
    ]
    sentences += _moves(story, subscription)
    return Explanation(Verdict.DELIVERED, tuple(sentences), path)


def _path_to(story: _Story, node: str, until_ms: int) -> tuple[Hop, ...]:
    """The links that the event came over, first to last.

    Of several receipts before the delivery the first counts, and repetitions are behind it: whoever
    has an event treats the next copy as seen.
    """
    path: list[Hop] = []
    passed = {node: None}
    while node != story.publisher:
        receipts = [r for r in story.received if r[2] == node and r[0] <= until_ms]
        if not receipts:
            break
        received_ms, sender, _ = receipts[0]
        sendings = [s for s in story.sent if (s[1], s[2]) == (sender, node) and s[0] <= received_ms]
        sent_ms, _, _, scope = sendings[-1] if sendings else (None, "", "", ())
        path.append(Hop(sender, node, sent_ms, received_ms, scope))
        if sender in passed:
            break
        passed[sender] = None
        node, until_ms = sender, received_ms
    return tuple(reversed(path))


def _life_at(story: _Story) -> _Life:
    """The life of the subscription that the event should have met: else the last before, or any."""
    published_ms = story.published_ms
    before = [life for life in story.lives if life.made_ms <= published_ms]
    # One that moves is on two nodes for a while, and not yet ready on the second.
    served = [
        life
        for life in before
        if life.ready_ms is not None
        and life.ready_ms <= published_ms
        and (life.ended is None or life.ended[0] > published_ms)
    ]
    return (served or before or story.lives[:1])[-1]


def _moves(story: _Story, subscription: str) -> list[str]:
    return [
        f"{move.node} proposed at {move.now_ms} ms that {subscription} moves to {move.to}"
        for move in story.proposals[:ENDS_SHOWN_MAX]
    ]


def _excuse(story: _Story, life: _Life, subscription: str) -> tuple[Verdict, str] | None:
    """Why nobody should have expected the event to come."""
    assert story.event is not None
    where = f"{subscription} on {life.node}"
    if not life.filter.matches(story.event):
        return Verdict.NOT_MATCHING, f"it does not match {where}: {life.filter.text}"
    if life.made_ms > story.published_ms:
        return Verdict.NOT_READY, f"{where} was made later, at {life.made_ms} ms"
    if life.ended is not None and life.ended[0] <= story.published_ms:
        ended_ms, how = life.ended
        kind = Verdict.NODE_DOWN if "crashed" in how else Verdict.ENDED
        return kind, f"{where} had ended at {ended_ms} ms: {how}"
    if life.ready_ms is None or life.ready_ms > story.published_ms:
        when = "never" if life.ready_ms is None else f"only at {life.ready_ms} ms"
        text = f"{where} matches, but was ready {when}: until then nothing is promised"
        return Verdict.NOT_READY, text
    return None


def _missed(story: _Story, begin: str, life: _Life, subscription: str) -> Explanation:
    sentences = [begin, f"{subscription} on {life.node} matches, was ready, and did not get it"]
    if life.ended is not None:
        sentences.append(f"{life.ended[1]} afterwards, at {life.ended[0]} ms")
    path: tuple[Hop, ...] = ()
    here = [drop for drop in story.dropped if drop[1] == life.node]
    if any(receiver == life.node for _, _, receiver in story.received):
        path = _path_to(story, life.node, max(r[0] for r in story.received))
        sentences.append(f"{life.node} received it and handed it to nobody")
        sentences += [f"{life.node} dropped it at {ms} ms: {reason}" for ms, _, reason in here]
    else:
        sentences.append(f"{life.node} never received it")
        ends = list(_ends(story, life.node))
        sentences += ends[:ENDS_SHOWN_MAX]
        if len(ends) > ENDS_SHOWN_MAX:
            sentences.append(f"and {len(ends) - ENDS_SHOWN_MAX} more places where it ended")
        if not ends:
            sentences.append("nobody sent it there: no table on the way asked for it")
    sentences += _moves(story, subscription)
    if story.outcome:
        sentences.append(story.outcome)
    return Explanation(Verdict.MISSED, tuple(sentences), path)


def _ends(story: _Story, target: str) -> Iterator[str]:
    """The places where the event ended, those on the last link to the target first."""
    lost = sorted(_unreceived(story), key=lambda sending: sending[2] != target)
    for sent_ms, sender, receiver, _ in lost:
        crashed = [ms for ms, node in story.crashes if node == receiver]
        why = f"{receiver} had crashed at {crashed[-1]} ms" if crashed else "lost on the way"
        yield f"{sender} sent it to {receiver} at {sent_ms} ms, and it never arrived: {why}"
    for dropped_ms, node, reason in story.dropped:
        yield f"{node} dropped it at {dropped_ms} ms: {reason}"


def _unreceived(story: _Story) -> Iterator[tuple[int, str, str, tuple[int, ...]]]:
    """Sendings of the event of which no copy ever arrived."""
    arrived = {(sender, receiver): None for _, sender, receiver in story.received}
    for sending in story.sent:
        if (sending[1], sending[2]) not in arrived:
            yield sending
