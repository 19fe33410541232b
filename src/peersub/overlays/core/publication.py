"""An event on its way through the network, and the promise it travels under."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any

from peersub.events.envelope import IDENTIFIER_BYTES_MAX, Event
from peersub.filters.filter import Filter
from peersub.matching.small_index import Probe
from peersub.overlays.core.event_keys import (
    BATCH_ID_BYTES_MAX,
    key_of_id,
    name_of,
    number_of,
    short_id,
)

__all__ = ["ANSWERS_KEPT_MAX", "Delivery", "Publication"]

ANSWERS_KEPT_MAX = 4_096
"""Filters whose answer about one publication is remembered."""


class Delivery(IntEnum):
    """What a publisher asks for.

    BEST_EFFORT: at most once per subscription, lost where a link fails on the way.
    AT_LEAST_ONCE: confirmed from everywhere, repeated until then under the same identifier; the
    deduplication history of each home turns the repetitions back into once.
    """

    BEST_EFFORT = 0
    AT_LEAST_ONCE = 1


class Publication:
    """An event with its delivery promise.

    A relay needs the identifier only, a router also the attributes, and nobody on the way the body:
    attributes that came over the wire are unpacked when first asked for, and packed ones are
    forwarded as they came. Immutable for whoever holds one; two are equal if key and promise are.

    Users see `id`; the network knows an event by its `key` alone (`event_keys`).
    """

    __slots__ = (
        *("_answers", "_attributes", "_event", "_key", "_name", "_probe", "_unpack"),
        *("again", "body", "delivery", "given_key", "id", "packed"),
    )

    def __init__(
        self,
        event_id: str,
        attributes: Mapping[str, Any] | None = None,
        body: bytes | None = None,
        *,
        delivery: Delivery = Delivery.BEST_EFFORT,
        packed: bytes | None = None,
        unpack: Callable[[bytes], Mapping[str, Any]] | None = None,
        key: bytes | None = None,
    ) -> None:
        assert attributes is not None or (packed is not None and unpack is not None)
        self.id = event_id
        self.body = body
        self.delivery = delivery
        self.packed = packed
        """The attributes as they travel, if they came so, or were packed once."""
        self.given_key = key
        """The key, if it does not follow from the identifier."""
        self.again = False
        """Whether a subscriber may have got it before: whoever hands it over again says so."""
        self._key = key
        self._name: str | None = None
        self._attributes = attributes
        self._unpack = unpack
        self._event: Event | None = None
        self._probe: Probe | None = None
        self._answers: dict[bytes, bool] = {}

    @classmethod
    def of(cls, event: Event, delivery: Delivery = Delivery.BEST_EFFORT) -> Publication:
        """The event, on its way under this promise."""
        return cls(event.id, event.attributes, event.body, delivery=delivery)

    def with_key(self, key: bytes | None) -> Publication:
        """The same event under another key."""
        return Publication(
            self.id,
            self._attributes,
            self.body,
            delivery=self.delivery,
            packed=self.packed,
            unpack=self._unpack,
            key=key,
        )

    def with_short_name(self) -> Publication:
        """The same event, with as much of its id as fits beside its key into the room of an id."""
        if self.given_key is None:
            return self
        number = number_of(self.given_key)
        bytes_max = IDENTIFIER_BYTES_MAX if number is None else BATCH_ID_BYTES_MAX
        event_id = short_id(self.id, bytes_max, number)
        if event_id == self.id:
            return self
        short = self.with_key(self.given_key)
        short.id = event_id
        return short

    @property
    def key(self) -> bytes:
        """What the network knows the event by, 16 bytes."""
        if self._key is None:
            self._key = key_of_id(self.id)
        return self._key

    @property
    def name(self) -> str:
        """Key and identifier as one text, in messages and on disk."""
        if self._name is None:
            self._name = name_of(self.given_key, self.id)
        return self._name

    @property
    def size(self) -> int:
        """About what the event takes, in bytes, without packing what is not packed yet."""
        return len(self.packed or b"") + len(self.body or b"") + len(self.id)

    @property
    def attributes(self) -> Mapping[str, Any]:
        """What SQL filters see."""
        if self._attributes is None:
            assert self.packed is not None
            assert self._unpack is not None
            self._attributes = self._unpack(self.packed)
        return self._attributes

    @property
    def is_sound(self) -> bool:
        """Whether the attributes can be read: what came over the wire is looked at when needed."""
        try:
            return self.attributes is not None
        except ValueError:
            return False

    def forget_unpacked(self) -> None:
        """Let go of all that can be worked out again: who waits for long holds the bytes alone."""
        if self._unpack is not None and self.packed is not None:
            self._attributes = None
        self._event = self._probe = None
        self._answers = {}

    @property
    def event(self) -> Event:
        """What filters are asked about and subscribers get; the same object each time."""
        if self._event is None:
            self._event = Event(self.id, self.attributes, self.body, self.again, reading=[])
        return self._event

    @property
    def probe(self) -> Probe:
        """What the indexes of all edges, and of the home, share while they are asked."""
        if self._probe is None:
            self._probe = Probe(self.attributes)
        return self._probe

    def matches(self, wanted: Filter) -> bool:
        """Whether the filter wants the event. Asked once per filter: many edges share theirs."""
        digest = wanted.digest
        answer = self._answers.get(digest)
        if answer is None:
            answer = wanted.matches(self.event)
            if len(self._answers) < ANSWERS_KEPT_MAX:
                self._answers[digest] = answer
        return answer

    def matches_any(self, filters: Iterable[Filter]) -> bool:
        """Whether one of the filters wants the event: `matches` for a whole table."""
        answers = self._answers
        for wanted in filters:
            answer = answers.get(wanted.digest)
            if self.matches(wanted) if answer is None else answer:
                return True
        return False

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Publication):
            return NotImplemented
        return self.key == other.key and self.delivery == other.delivery

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"Publication({self.id!r}, {self.delivery.name})"
