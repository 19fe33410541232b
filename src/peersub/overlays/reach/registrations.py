"""`Registrations`: the subscriptions of this node, kept at the hosts of their identifiers.

A subscription is sent to the host of each of its identifiers (§2), and is ready when all have
confirmed: it is stored there, and whoever sends events down to there knows (`Seat`). What is not
confirmed is asked again. All is repeated now and then, so that a host which lost everything has it
again: the node a subscription lives on is the one that knows.

A subscription that has ended is withdrawn in the same way, until that is confirmed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from peersub.filters.filter import Filter
from peersub.overlays.core.effects import Effect, SubscriptionReady
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.reach.attributes import AttributeMap
from peersub.overlays.reach.identifiers import Place
from peersub.overlays.reach.messages import Entry, StoreAsked, Stored, UnstoreAsked, Unstored

__all__ = ["ENDING_MAX", "Registrations"]

ENDING_MAX = 4_096
"""Ended subscriptions that are still withdrawn; older ones expire at their hosts."""


@dataclass(slots=True)
class _Registration:
    """A subscription, and which hosts have confirmed it."""

    filter: Filter
    number: int
    stored: dict[int, bool]
    began_ms: int = 0
    is_on_disk: bool = False
    is_ready: bool = False


class Registrations:
    """What this node asks of hosts. `route` sends a message to the host of an identifier."""

    def __init__(
        self,
        me: PeerId,
        bits: AttributeMap,
        route: Callable[[int, Message], None],
        emit: Callable[[Effect], None],
    ) -> None:
        self._me = me
        self._bits = bits
        self._route = route
        self._emit = emit
        self._wanted: dict[str, _Registration] = {}
        self._open: dict[tuple[str, int], None] = {}
        """What is not confirmed, by name and identifier."""
        self._ending: dict[tuple[str, int], int] = {}
        self._numbers = 0

    @property
    def is_open(self) -> bool:
        """Whether something is not confirmed; asked after every cause, so nothing is walked."""
        return bool(self._ending or self._open)

    def pending(self, name: str) -> list[int]:
        """The identifiers of a subscription whose hosts have not confirmed."""
        known = self._wanted.get(name)
        return [] if known is None else [each for each, done in known.stored.items() if not done]

    def begun_after(self, at_ms: int) -> list[str]:
        """The subscriptions that are younger than an event of that time."""
        return [name for name, known in self._wanted.items() if known.began_ms > at_ms]

    def add(self, name: str, wanted: Filter, now_ms: int) -> None:
        """A subscription begins."""
        for identifier in self.pending(name):
            del self._open[name, identifier]
        self._numbers += 1
        stored = dict.fromkeys(self._bits.identifiers(wanted), False)
        self._wanted[name] = _Registration(wanted, self._numbers, stored, now_ms)
        for identifier in stored:
            self._ending.pop((name, identifier), None)
            self._open[name, identifier] = None
            self._ask(name, identifier)

    def install(self, subscriptions: Mapping[str, Filter]) -> list[Entry]:
        """These have always been here, and are stored: the entries that hosts have of them."""
        entries = []
        for name, wanted in subscriptions.items():
            self._numbers += 1
            stored = dict.fromkeys(self._bits.identifiers(wanted), True)
            self._wanted[name] = _Registration(
                wanted, self._numbers, stored, is_on_disk=True, is_ready=True
            )
            entries += [self._entry(name, identifier) for identifier in stored]
        return entries

    def on_disk(self, name: str) -> None:
        """The node will know of the subscription after a crash."""
        known = self._wanted.get(name)
        if known is not None:
            known.is_on_disk = True
            self._ready(name)

    def remove(self, name: str) -> None:
        """A subscription has ended; all have, once the node leaves."""
        known = self._wanted.pop(name, None)
        if known is None:
            return
        for identifier in known.stored:
            self._open.pop((name, identifier), None)
            self._ending[name, identifier] = known.number
            self._withdraw(name, identifier)
        while len(self._ending) > ENDING_MAX:
            del self._ending[next(iter(self._ending))]

    def ask_again(self, *, all_of_them: bool = False) -> None:
        """Repeat what is not confirmed, or everything."""
        every = ((name, each) for name, known in self._wanted.items() for each in known.stored)
        for name, identifier in list(every if all_of_them else self._open):
            self._ask(name, identifier)
        for name, identifier in self._ending:
            self._withdraw(name, identifier)

    def ask_at(self, place: Place) -> None:
        """Repeat what is to be kept at a place that has lost it."""
        for name, known in self._wanted.items():
            for identifier in known.stored:
                if place.hosts(identifier):
                    known.stored[identifier] = False
                    self._open[name, identifier] = None
                    self._ask(name, identifier)

    def _entry(self, name: str, identifier: int) -> Entry:
        known = self._wanted[name]
        return Entry(identifier, self._me, name, known.filter, known.number)

    def _ask(self, name: str, identifier: int) -> None:
        self._route(identifier, StoreAsked(self._entry(name, identifier)))

    def _withdraw(self, name: str, identifier: int) -> None:
        number = self._ending[name, identifier]
        self._route(identifier, UnstoreAsked(identifier, self._me, name, number))

    def on_stored(self, message: Stored) -> None:
        """A host confirms a subscription."""
        known = self._wanted.get(message.name)
        if known is None or known.number != message.number:
            return
        if message.identifier in known.stored:
            known.stored[message.identifier] = True
            self._open.pop((message.name, message.identifier), None)
            self._ready(message.name)

    def on_unstored(self, message: Unstored) -> None:
        """A host confirms that a subscription is kept no more."""
        if self._ending.get((message.name, message.identifier)) == message.number:
            del self._ending[message.name, message.identifier]

    def _ready(self, name: str) -> None:
        known = self._wanted[name]
        if not known.is_ready and known.is_on_disk and all(known.stored.values()):
            known.is_ready = True
            self._emit(SubscriptionReady(name))
