"""The checker of deliveries: what each subscriber got, against what it should have got.

It lives outside of the protocols, and knows of them only what a trace says: subscriptions,
publications, deliveries, crashes (`facts`). For each event it asks every filter (`interest`), and
remembers the subscriptions to which the event is *expected* to come:

* the subscription was ready before the event was published;
* it did not end, and its node did not crash or leave, until the event's time was up: `horizon_ms`
  after it was published, or the moment its publisher was told that the promise is kept.

Rules, each of which can be violated:

=================== ==========================================================================
wrong-subscriber    an event goes to a subscription that does not want it, does not exist (any
                    more) or lives elsewhere, or was never published
twice               an event goes to a subscription again; allowed only as `again`, once for
                    each start from disk, where a disk forgot its last records, and once for
                    each start of its node for an event of best effort
missed              an event of best effort misses a subscription although nothing was disturbed
promise             a publisher is told that its promise is kept, and an expected subscription,
                    on a node that lived throughout, has not got the event
replay              the network was split meanwhile, is whole again, its publisher has lived
                    all the while, and it still has not
uncompleted         the run is over, the publisher lives, and its promise is not kept
publish-failed      the publisher was told that its promise cannot be kept
=================== ==========================================================================

Misses of best effort under faults are counted, not judged. Memory: for each event of the history
one bit per subscription, and its content; at most `EVENTS_KEPT_MAX` events that are settled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.trace.facts import (
    Completed,
    Delivered,
    Disturbed,
    Fact,
    Failed,
    Left,
    MoveProposed,
    PhaseBegun,
    Published,
    Ready,
    Remembered,
    Revived,
    Split,
    Stalled,
    Stopped,
    Subscribed,
    Unsubscribed,
    facts_of,
    facts_of_form,
)
from peersub.trace.interest import Interest, NaiveInterest, NumberSet
from peersub.trace.schema import Disk, TraceRecord

__all__ = ["DeliveryChecker", "DeliveryCounts", "Rule", "Violation"]

HORIZON_MS: Final = 10_000
MERGE_MS: Final = 120_000
EVENTS_KEPT_MAX: Final = 100_000
VIOLATIONS_KEPT_MAX: Final = 1_000


class Rule(StrEnum):
    """What a run must keep to."""

    WRONG_SUBSCRIBER = "wrong-subscriber"
    TWICE = "twice"
    MISSED = "missed"
    PROMISE = "promise"
    REPLAY = "replay"
    UNCOMPLETED = "uncompleted"
    PUBLISH_FAILED = "publish-failed"


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that was not kept, when, and by whom."""

    now_ms: int
    rule: str
    text: str
    event_id: str = ""
    subscription: str = ""
    node: str = ""


@dataclass(slots=True)
class DeliveryCounts:
    """What became of the events of one phase; the unit is one event for one subscription."""

    events: int = 0
    expected: int = 0
    delivered: int = 0
    """Distinct deliveries to who wanted them; more than expected where some were excused."""
    missed: int = 0
    spurious: int = 0
    duplicate: int = 0
    repeated: int = 0
    """Handed over again after a crash, and said so."""
    late: int = 0
    """Of the delivered, those that came when the event's time was up."""
    excused: int = 0
    """Not expected any more: the subscription ended or its node was gone."""
    promised: int = 0
    """Events with a promise, and how many of them were said to be kept, or not."""
    completed: int = 0
    failed: int = 0
    hops: dict[int, int] = field(default_factory=dict)
    """How many deliveries came over so many links."""

    def add(self, other: DeliveryCounts) -> None:
        """Count the other's too."""
        for name in self.__slots__:
            if name != "hops":
                setattr(self, name, getattr(self, name) + getattr(other, name))
        for hops, count in other.hops.items():
            self.hops[hops] = self.hops.get(hops, 0) + count


@dataclass(slots=True)
class _Subscription:
    """A subscription over all lives of its node."""

    number: int
    node: str
    name: str
    filter: Filter
    present: bool = True
    ready: bool = False
    interrupted_ms: int = -1
    """When it last ended, or its node was last gone."""


@dataclass(slots=True)
class _Node:
    """What is known of a node."""

    lives: int = 0
    """Starts from disk."""
    gone_ms: int = -1
    """When it last crashed or left."""
    forgot_ms: int = -1
    """When its disk last lost records."""
    revived_ms: int = -1
    names: dict[str, _Subscription] = field(default_factory=dict)


@dataclass(slots=True)
class _Tracked:
    """An event, who should get it, and who got it."""

    event: Event
    publisher: str
    published_ms: int
    promised: bool
    counts: DeliveryCounts
    strict: bool
    parted: bool
    expected: NumberSet
    delivered: NumberSet = field(default_factory=NumberSet)
    repeated: dict[int, int] = field(default_factory=dict)
    """Subscription to the life of its node in which it last got the event again."""
    settled: bool = False
    completed: bool = False


class DeliveryChecker:
    """Judges deliveries, while a run goes on or from its trace.

    Args:
        interest: answers who wants an event; brute force by default.
        horizon_ms: how long an event of best effort may take.
        merge_ms: how long after a split the parts of the network may take to find each other.
        judges_misses: whether what best effort misses in a network that nothing disturbs is a
            violation; not so in an overlay that is approximate: there misses are counted.
    """

    def __init__(
        self,
        interest: Interest | None = None,
        *,
        horizon_ms: int = HORIZON_MS,
        merge_ms: int = MERGE_MS,
        judges_misses: bool = True,
    ) -> None:
        self.may_fail: Callable[[str, str, bool], bool] | None = None
        """Says whether a publication of a node may fail for a reason: where something is short."""
        self.violations: list[Violation] = []
        self.violations_count = 0
        self.phases: dict[str, DeliveryCounts] = {}
        self._interest = NaiveInterest() if interest is None else interest
        self._horizon_ms = horizon_ms
        self._merge_ms = merge_ms
        self._judges_misses = judges_misses
        self._phase = DeliveryCounts()
        self._disturbed = False
        self._parted = False
        self._healed_ms: int | None = None
        self._still: dict[str, None] = {}
        """Nodes that stand still: others may take them for gone, and go on without them."""
        self._subscriptions: list[_Subscription] = []
        self._nodes: dict[str, _Node] = {}
        self._events: dict[str, _Tracked] = {}
        self._settled: deque[str] = deque()
        self._due: deque[_Tracked] = deque()
        self._promised: dict[str, _Tracked] = {}

    def twin(self) -> DeliveryChecker:
        """Another checker that judges alike, and has seen nothing yet; by brute force."""
        return DeliveryChecker(
            horizon_ms=self._horizon_ms,
            merge_ms=self._merge_ms,
            judges_misses=self._judges_misses,
        )

    # --- the doors -----------------------------------------------------------------------------

    def observe(self, record: TraceRecord) -> None:
        """Take in what a driver tells."""
        for fact in facts_of(record):
            self.take(fact)

    def observe_form(self, form: Mapping[str, Any]) -> None:
        """Take in a line of a trace file."""
        for fact in facts_of_form(form):
            self.take(fact)

    def take(self, fact: Fact) -> None:
        """Take in a fact; facts come in the order in which they came true."""
        due_ms = fact.now_ms - self._horizon_ms
        while self._due and self._due[0].published_ms < due_ms:
            event = self._due.popleft()
            self._settle(event, event.published_ms + self._horizon_ms)
        _HANDLERS[type(fact)](self, fact)

    def finish(self, now_ms: int, *, settled: bool = True) -> None:
        """The run is over. If it has settled, nothing more would come: what is missing is missed.

        A run that was cut off says nothing about promises that are not yet kept.
        """
        while self._due:
            self._settle(self._due.popleft(), now_ms)
        for event in list(self._promised.values()):
            alive = self._lived_since(event.publisher, event.published_ms)
            if settled and alive and not event.completed:
                text = f"{event.publisher} still waits for the completion of {event.event.id}"
                self._report(now_ms, Rule.UNCOMPLETED, text, event)
            if event.completed and settled and alive and not self._parted:
                self._judge(event, now_ms, Rule.REPLAY, "and has not got it since")
            self._settle(event, now_ms)
        self._promised.clear()

    @property
    def counts(self) -> DeliveryCounts:
        """What became of all events."""
        total = DeliveryCounts()
        for counts in self.phases.values():
            total.add(counts)
        return total

    # --- facts ---------------------------------------------------------------------------------

    def _on_phase_begun(self, fact: PhaseBegun) -> None:
        self._phase = self.phases.setdefault(fact.name, DeliveryCounts())
        self._disturbed = False
        if fact.disturbed:
            self._disturb()

    def _on_disturbed(self, fact: Disturbed) -> None:
        self._disturb()

    def _disturb(self) -> None:
        """Nothing is promised to events of best effort that are under way, or begin meanwhile."""
        self._disturbed = True
        for event in self._due:
            event.strict = False

    def _on_split(self, fact: Split) -> None:
        self._disturb()
        self._parted = fact.parted
        if not fact.parted:
            self._healed_ms = fact.now_ms
        for event in self._promised.values():
            event.parted = True

    def _on_stalled(self, fact: Stalled) -> None:
        self._disturb()
        if fact.is_still:
            self._still[fact.node] = None
            return
        # It has been a network of its own, for all it knew, and has to find the others again.
        self._still.pop(fact.node, None)
        self._healed_ms = fact.now_ms
        for event in self._promised.values():
            event.parted = True

    def _on_subscribed(self, fact: Subscribed) -> None:
        known = self._node(fact.node).names.get(fact.subscription)
        if known is None or not known.present:  # else the name is taken: the node refuses it
            self._subscribe(fact.node, fact.subscription, fact.filter)

    def _subscribe(self, node: str, name: str, wanted: Filter) -> None:
        made = _Subscription(len(self._subscriptions), node, name, wanted)
        self._subscriptions.append(made)
        self._node(node).names[name] = made

    def _on_ready(self, fact: Ready) -> None:
        node = self._node(fact.node)
        if node.gone_ms > node.revived_ms:
            return  # it takes leave: nothing is expected of it any more
        subscription = node.names.get(fact.subscription)
        if subscription is not None and subscription.present and not subscription.ready:
            subscription.ready = True
            self._interest.add(subscription.number, subscription.filter)

    def _on_move_proposed(self, fact: MoveProposed) -> None:
        """Whoever follows subscribes there and unsubscribes here; nothing is owed for that."""

    def _on_unsubscribed(self, fact: Unsubscribed) -> None:
        subscription = self._node(fact.node).names.get(fact.subscription)
        if subscription is not None:
            self._interrupt(subscription, fact.now_ms)

    def _interrupt(self, subscription: _Subscription, now_ms: int) -> None:
        subscription.interrupted_ms = now_ms
        subscription.present = False
        self._unready(subscription)

    def _unready(self, subscription: _Subscription) -> None:
        if subscription.ready:
            subscription.ready = False
            self._interest.remove(subscription.number)

    def _on_stopped(self, fact: Stopped) -> None:
        self._disturb()
        self._still.pop(fact.node, None)
        node = self._node(fact.node)
        node.gone_ms = fact.now_ms
        for subscription in node.names.values():
            self._interrupt(subscription, fact.now_ms)

    def _on_left(self, fact: Left) -> None:
        node = self._node(fact.node)
        node.gone_ms = fact.now_ms
        for subscription in node.names.values():
            # What is under way may still be handed over while the node takes leave.
            subscription.interrupted_ms = fact.now_ms
            self._unready(subscription)

    def _on_revived(self, fact: Revived) -> None:
        node = self._node(fact.node)
        node.revived_ms = fact.now_ms
        node.lives += fact.disk is not Disk.LOST
        if fact.disk is not Disk.KEPT:
            node.forgot_ms = fact.now_ms

    def _on_remembered(self, fact: Remembered) -> None:
        names = self._node(fact.node).names
        for name, wanted in fact.subscriptions:
            known = names.get(name)
            if known is not None and known.filter == wanted:
                known.present = True
            else:
                # The name's latest subscription was not yet on disk: an earlier one lives again.
                self._subscribe(fact.node, name, wanted)

    def _on_published(self, fact: Published) -> None:
        known = self._events.get(fact.event.id)
        if known is not None:
            # A publisher repeats what was not completed: it is the same event.
            known.publisher = fact.node
            return
        self._phase.events += 1
        self._phase.promised += fact.promised
        event = _Tracked(
            event=fact.event,
            publisher=fact.node,
            published_ms=fact.now_ms,
            promised=fact.promised,
            counts=self._counts_now(),
            strict=self._judges_misses and not self._disturbed,
            parted=self._is_parted(fact.now_ms),
            expected=NumberSet(self._interest.matching(fact.event)),
        )
        self._events[fact.event.id] = event
        if fact.promised:
            self._promised[fact.event.id] = event
        else:
            self._due.append(event)

    def _counts_now(self) -> DeliveryCounts:
        if not self.phases:
            self.phases[""] = self._phase
        return self._phase

    def _is_parted(self, now_ms: int) -> bool:
        """Whether the network is split, or may not yet have grown together again."""
        merging = self._healed_ms is not None and now_ms - self._healed_ms < self._merge_ms
        return self._parted or merging

    def _on_completed(self, fact: Completed) -> None:
        event = self._promised.get(fact.event_id)
        if event is None or event.completed:
            return
        event.completed = True
        event.counts.completed += 1
        if event.parted:
            return  # who was on the other side gets it later: `finish` looks
        away = [each for each in self._lacking(event) if each.node in self._still]
        self._judge(event, fact.now_ms, Rule.PROMISE, "when it was completed", self._still)
        if away:
            event.parted = True  # they get it later: `finish` looks
            return
        del self._promised[fact.event_id]
        self._settle(event, fact.now_ms)

    def _on_failed(self, fact: Failed) -> None:
        event = self._promised.pop(fact.event_id, None)
        if event is None:
            return
        event.counts.failed += 1
        if not (self.may_fail and self.may_fail(fact.node, fact.reason, event.parted)):
            text = f"{fact.node} was told that {fact.event_id} failed: {fact.reason}"
            self._report(fact.now_ms, Rule.PUBLISH_FAILED, text, event)
        self._settle(event, fact.now_ms)

    def _on_delivered(self, fact: Delivered) -> None:
        event = self._events.get(fact.event_id)
        for name in fact.subscriptions:
            if event is None:
                self._wrong(fact, name, None, "was never published")
            else:
                self._on_one_delivered(fact, name, event)

    def _on_one_delivered(self, fact: Delivered, name: str, event: _Tracked) -> None:
        node = self._node(fact.node)
        subscription = node.names.get(name)
        if subscription is None:
            self._wrong(fact, name, event, "is for no subscription that this node ever had")
            return
        if not subscription.present:
            self._wrong(fact, name, event, "is for a subscription that has ended")
            return
        number = subscription.number
        if number not in event.expected and not subscription.filter.matches(event.event):
            self._wrong(fact, name, event, f"does not match {subscription.filter.text}")
        elif event.delivered.add(number):
            counts = event.counts
            counts.delivered += 1
            counts.late += event.settled
            counts.hops[fact.hops] = counts.hops.get(fact.hops, 0) + 1
        elif self._may_repeat(event, number, node, again=fact.again):
            event.counts.repeated += 1
        else:
            event.counts.duplicate += 1
            text = f"{name} on {fact.node} gets {fact.event_id} twice"
            if fact.again:
                text += ", as a repetition after a crash that did not happen"
            self._report(fact.now_ms, Rule.TWICE, text, event, subscription)

    def _may_repeat(self, event: _Tracked, number: int, node: _Node, *, again: bool) -> bool:
        """Whether the node cannot know that the subscription has the event already.

        Of events of best effort it remembers in memory only which ones it has seen.
        """
        since_ms = node.revived_ms if again or not event.promised else node.forgot_ms
        if since_ms < event.published_ms or event.repeated.get(number) == node.lives:
            return False
        event.repeated[number] = node.lives
        return True

    def _wrong(self, fact: Delivered, name: str, event: _Tracked | None, why: str) -> None:
        counts = self._counts_now() if event is None else event.counts
        counts.spurious += 1
        text = f"{fact.event_id} for {name} on {fact.node} {why}"
        violation = Violation(
            fact.now_ms, Rule.WRONG_SUBSCRIBER, text, fact.event_id, name, fact.node
        )
        self._add(violation)

    # --- judging -------------------------------------------------------------------------------

    def _judge(
        self,
        event: _Tracked,
        now_ms: int,
        rule: Rule,
        when: str,
        excused: Container[str] = (),
    ) -> None:
        """Report each expected subscription, uninterrupted, that does not have the event.

        Those on excused nodes are not reported.
        """
        for subscription in self._lacking(event):
            if subscription.node in excused:
                continue
            text = f"{subscription.name} on {subscription.node} had not got {event.event.id} {when}"
            self._report(now_ms, rule, text, event, subscription)

    def _lacking(self, event: _Tracked) -> Iterator[_Subscription]:
        for number in event.expected:
            subscription = self._subscriptions[number]
            if number not in event.delivered and (subscription.interrupted_ms < event.published_ms):
                yield subscription

    def _settle(self, event: _Tracked, now_ms: int) -> None:
        """The event's time is up: count, and keep only what tells a second delivery."""
        if event.settled:
            return
        event.settled = True
        lacking = list(self._lacking(event))
        got = sum(number in event.delivered for number in event.expected)
        counts = event.counts
        counts.missed += len(lacking)
        counts.expected += got + len(lacking)
        counts.excused += len(event.expected) - got - len(lacking)
        if event.strict and not event.promised:
            self._judge(event, now_ms, Rule.MISSED, "in time, though nothing was disturbed")
        event.expected = NumberSet()
        self._settled.append(event.event.id)
        if len(self._settled) > EVENTS_KEPT_MAX:
            del self._events[self._settled.popleft()]

    # --- small things --------------------------------------------------------------------------

    def _node(self, name: str) -> _Node:
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = _Node()
        return node

    def _lived_since(self, name: str, since_ms: int) -> bool:
        return self._node(name).gone_ms < since_ms

    def _report(
        self,
        now_ms: int,
        rule: Rule,
        text: str,
        event: _Tracked,
        subscription: _Subscription | None = None,
    ) -> None:
        name = "" if subscription is None else subscription.name
        node = event.publisher if subscription is None else subscription.node
        self._add(Violation(now_ms, rule, text, event.event.id, name, node))

    def _add(self, violation: Violation) -> None:
        self.violations_count += 1
        if len(self.violations) < VIOLATIONS_KEPT_MAX:
            self.violations.append(violation)


_HANDLERS: dict[type, Callable[[DeliveryChecker, Any], None]] = {
    Completed: DeliveryChecker._on_completed,
    Delivered: DeliveryChecker._on_delivered,
    Disturbed: DeliveryChecker._on_disturbed,
    Failed: DeliveryChecker._on_failed,
    Left: DeliveryChecker._on_left,
    MoveProposed: DeliveryChecker._on_move_proposed,
    PhaseBegun: DeliveryChecker._on_phase_begun,
    Published: DeliveryChecker._on_published,
    Ready: DeliveryChecker._on_ready,
    Remembered: DeliveryChecker._on_remembered,
    Revived: DeliveryChecker._on_revived,
    Split: DeliveryChecker._on_split,
    Stalled: DeliveryChecker._on_stalled,
    Stopped: DeliveryChecker._on_stopped,
    Subscribed: DeliveryChecker._on_subscribed,
    Unsubscribed: DeliveryChecker._on_unsubscribed,
}
