"""What the conformance suite asks of a driver, and brute force, which judges deliveries.

The scenarios know a network by this interface only. Two drivers offer it: `simulated`, the nodes
under a virtual clock, and `live`, a process for each node. A *fence* tells that all that was
published before has arrived: each node has a subscription for fences, and events of one publisher
keep their order on each link while the network stands still.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.overlays.core.publication import Delivery, Publication
from peersub.overlays.registry import overlay_kind

BEST_EFFORT, AT_LEAST_ONCE = Delivery.BEST_EFFORT, Delivery.AT_LEAST_ONCE
FENCE = "fence/"
ROUNDS_MAX = 40


@dataclass(frozen=True)
class Wish:
    """What a subscriber wants: a predicate, or an XPath pattern."""

    text: str
    is_xpath: bool = False

    @property
    def filter(self) -> Filter:
        return Filter.xpath(self.text) if self.is_xpath else Filter(self.text)


class NotInTimeError(Exception):
    """What a scenario waited for did not come."""


class Network(ABC):
    """A network of nodes of one overlay, which are known by handles."""

    def __init__(self, overlay: str) -> None:
        self.overlay = overlay
        self.promises_at_least_once = overlay_kind(overlay).promises_at_least_once
        self.wishes: dict[str, tuple[str, Wish]] = {}
        """Subscriptions that are ready: the node of each, and what it wants."""
        self.expected: Counter[tuple[str, str]] = Counter()
        """Deliveries (subscription, event) that there must be, once each."""
        self._numbers = count()

    # --- what a driver does --------------------------------------------------------------------

    @abstractmethod
    def members(self) -> list[str]:
        """The nodes that live, in the order in which they came."""

    @abstractmethod
    def join(self, **differences: Any) -> str:
        """One more node; returns when it takes part. `differences` are settings of its own."""

    @abstractmethod
    def refusal(self, **differences: Any) -> str:
        """A node that is not let in tries to join: what it is told."""

    @abstractmethod
    def leave(self, nodes: Sequence[str]) -> None:
        """These nodes take leave, all at once; returns when they are off."""

    @abstractmethod
    def crash(self, nodes: Sequence[str]) -> None:
        """These nodes are gone without a word."""

    @abstractmethod
    def restart(self, node: str) -> str:
        """A node that is off comes back at its address, and remembers nothing."""

    @abstractmethod
    def subscribe_all(self, node: str, wishes: Mapping[str, Wish]) -> None:
        """Subscribe, and wait until all are ready."""

    @abstractmethod
    def unsubscribe_one(self, node: str, name: str) -> None:
        """End a subscription."""

    @abstractmethod
    def publish_all(self, node: str, events: Sequence[Publication], batch: str | None) -> None:
        """Hand events to a node, or a batch of them; returns at once."""

    @abstractmethod
    def ended(self) -> Mapping[str, str | None]:
        """Per event, or batch, whose publication has ended, why it failed, or None."""

    @abstractmethod
    def got(self) -> Mapping[str, Counter[str]]:
        """Per subscription, how often each event came."""

    @abstractmethod
    def contents(self) -> Mapping[tuple[str, str], str]:
        """Per delivery, what the content of the event hashes to."""

    @abstractmethod
    def until(self, holds: Callable[[], bool], what: str, *, briefly: bool = False) -> None:
        """Wait for a condition; raises NotInTimeError. `briefly`: it may well never come true."""

    @abstractmethod
    def status(self, node: str) -> Mapping[str, Any]:
        """What the node says of itself."""

    @abstractmethod
    def close(self) -> None:
        """Everything ends."""

    # --- what scenarios use --------------------------------------------------------------------

    def name(self, stem: str) -> str:
        """A name that nobody else has."""
        return f"{stem}{next(self._numbers)}"

    def grow(self, nodes: int) -> list[str]:
        """At least so many members, each with its fence; all of them."""
        while len(self.members()) < nodes:
            self.join()
        for node in self.members():
            if f"{FENCE}{node}" not in self.wishes:
                self.subscribe(node, f"{FENCE}{node}", Wish("fence = TRUE"))
        return self.members()

    def subscribe(self, node: str, name: str, wish: Wish | str) -> str:
        """A subscription that is ready, and expected to get all that it wants from now on."""
        wish = Wish(wish) if isinstance(wish, str) else wish
        self.subscribe_all(node, {name: wish})
        self.wishes[name] = (node, wish)
        return name

    def unsubscribe(self, name: str) -> None:
        node, _ = self.wishes.pop(name)
        self.unsubscribe_one(node, name)

    def forget(self, nodes: Sequence[str]) -> None:
        """These nodes are off, and their subscriptions with them."""
        self.wishes = {name: wish for name, wish in self.wishes.items() if wish[0] not in nodes}

    def wanting(self, event: Publication) -> list[str]:
        """Brute force: the subscriptions that want the event."""
        asked = Event(event.id, event.attributes, event.body)
        return [name for name, (_, wish) in self.wishes.items() if wish.filter.matches(asked)]

    def publish(
        self, node: str, events: Sequence[Publication], *, batch: str | None = None
    ) -> None:
        """Publish, and note who must get what; returns when all have ended well."""
        for event in events:
            for name in self.wanting(event):
                self.expected[name, event.id] += 1
        self.publish_all(node, events, batch)
        asked = [event.id for event in events] if batch is None else [batch]
        self.until(lambda: all(each in self.ended() for each in asked), "publications end")
        failures = {each: self.ended()[each] for each in asked if self.ended()[each] is not None}
        assert failures == {}

    def deliveries(self) -> Counter[tuple[str, str]]:
        """What came to subscriptions that scenarios made, and how often."""
        found: Counter[tuple[str, str]] = Counter()
        for name, events in self.got().items():
            for event, times in events.items():
                if not event.startswith(FENCE):
                    found[name, event] += times
        return found

    def check(self, publisher: str) -> None:
        """All that is expected has come, once, and nothing else."""
        self.until(lambda: not self.expected - self.deliveries(), self._missing)
        self.fence(publisher)
        assert self.deliveries() == self.expected

    @property
    def _missing(self) -> str:
        missing = [str(each) for each in (self.expected - self.deliveries())][:5]
        return f"subscribers get what they want: {', '.join(missing)}"

    def fence(self, publisher: str) -> None:
        """Wait until every node has an event that was published after all others."""
        fence = Publication(self.name(FENCE), {"fence": True})
        self.publish_all(publisher, [fence], None)
        fenced = [name for name in self.wishes if name.startswith(FENCE)]
        self.until(
            lambda: all(self.got()[name][fence.id] for name in fenced), "every node has the fence"
        )

    def until_whole(self, publisher: str) -> None:
        """Publish until an event reaches everyone: best effort promises no more after a loss."""
        fenced = [name for name in self.wishes if name.startswith(FENCE)]
        for _ in range(ROUNDS_MAX):
            fence = Publication(self.name(FENCE), {"fence": True})
            self.publish_all(publisher, [fence], None)

            def is_whole(fence: Publication = fence) -> bool:
                return all(self.got()[name][fence.id] for name in fenced)

            try:
                self.until(is_whole, "the network is whole", briefly=True)
            except NotInTimeError:
                continue
            return
        raise AssertionError("the network does not become whole again")


def prices(network: Network, numbers: Sequence[int], delivery: Delivery) -> list[Publication]:
    """Events with a price of 0 to 9 each, and one of three symbols."""
    return [
        Publication(
            network.name("e"),
            {"symbol": ("ACME", "BOLT", "CORE")[number % 3], "price": number % 10},
            delivery=delivery,
        )
        for number in numbers
    ]


def subscribe_to_prices(network: Network, nodes: Sequence[str]) -> list[str]:
    """Two subscriptions on each node: narrow and wide ones, equal and nested ones."""
    wishes = ("price > 6", "symbol = 'ACME'", "symbol = 'BOLT' AND price <= 4", "price >= 0")
    names = []
    for place, node in enumerate(nodes):
        for turn in range(2):
            wish = wishes[(place + 2 * turn) % len(wishes)]
            names.append(network.subscribe(node, network.name("s"), wish))
    return names
