"""The shared sample: events by which peers measure what filters have in common.

A sample is the `sample_events` events with the smallest keys among all that were put in (a bottom-k
sample). An event's key is a stable hash of its identifier and its content, so which events are in
depends neither on the order in which they came nor on who put them in: merging is commutative,
associative and idempotent, and nodes that exchanged hold the same sample. It is a uniform draw of
what was published, and changes ever more rarely: the k-th event of a stream gets in with
probability `sample_events` / k.

A filter's *bits* say which events of the sample it matches, in the order of their keys. Bits are
told with the digest of the sample that they are about. Whoever holds a sample that changed since
can still read them (`translated`), as far as the older sample is among the last few. While events
come fast no two nodes hold the same sample, so bits are told with *marks* too, short hashes of the
sample's events: whoever does not know the sample by its name can tell which events both have.

Events that take more than `sample_event_bytes_max` never get in, whoever offers them: that is part
of the order-free rule, and bounds the memory. Nodes of a network agree on both numbers.

Exchange: `SampleOffered` names the digest. Whoever has another one answers with its keys. Whoever
gets keys sends the events that the other lacks, and its own keys if it lacks some itself. That ends
after one round each way, since the second one lacks nothing.
"""

from __future__ import annotations

import hashlib
from bisect import insort
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from peersub.events.envelope import Event, content_hash
from peersub.filters.filter import Filter, Matchable
from peersub.overlays.core.messages import Message
from peersub.overlays.core.publication import Delivery, Publication
from peersub.overlays.semantic.sample_messages import SampleEvents, SampleKeys, SampleOffered

__all__ = ["KEY_BYTES", "SampleSettings", "SharedSample", "event_key", "event_weight"]

KEY_BYTES: Final = 16
"""Of a key: half from the identifier, half from the content."""
MARK_BYTES: Final = 2
"""Of a mark: few enough to be told often, enough that two events of a sample rarely share one."""
FILTERS_KEPT_MAX: Final = 4_096
"""Filters whose bits are remembered."""
VERSIONS_KEPT_MAX: Final = 16
"""Earlier samples whose bits can be read."""
MESSAGE_BYTES_MAX: Final = 256 * 1_024
"""Events of a sample in one message, unless a single one is larger."""


@dataclass(frozen=True, slots=True)
class SampleSettings:
    """How large the sample is, and what it begins with."""

    sample_events: int = 256
    """Events in the sample. All nodes of a network agree on it."""
    sample_event_bytes_max: int = 16_384
    """Events that take more stay out. All nodes of a network agree on it."""
    sample_learns: bool = True
    """Whether published events get into the sample."""
    sample: tuple[Any, ...] = ()
    """Events that are in it from the start: events, or attributes alone."""

    def __post_init__(self) -> None:
        if self.sample_events < 1:
            raise ValueError(f"sample_events is 1 or more, not {self.sample_events}")
        if self.sample_event_bytes_max < 1:
            raise ValueError(
                f"sample_event_bytes_max is 1 or more, not {self.sample_event_bytes_max}"
            )


class _Sampled:
    """An event of the sample."""

    __slots__ = ("_document", "key", "publication")

    def __init__(self, key: bytes, publication: Publication) -> None:
        self.key = key
        self.publication = publication
        self._document: Any = None

    def __lt__(self, other: _Sampled) -> bool:
        return self.key < other.key

    def matches(self, wanted: Filter) -> bool:
        """Whether the filter wants it. A document is parsed once for all patterns."""
        asked: Any = self.publication.event
        if wanted.language == "xpath":
            if self._document is None:
                self._document = _document(self.publication.event)
            asked = self._document
        return wanted.matches(asked)


class SharedSample:
    """A node's copy of the sample.

    >>> sample = SharedSample(SampleSettings(sample_events=2))
    >>> sample.matches_in_sample(Filter("price > 10")) is None
    True
    >>> [sample.add(Publication(f"e{n}", {"price": n * 10})) for n in range(3)].count(True) >= 2
    True
    >>> len(sample), sample.matches_in_sample(Filter("price IS NULL"))
    (2, 0)
    """

    def __init__(self, settings: SampleSettings) -> None:
        self.settings = settings
        self._sampled: list[_Sampled] = []
        self._places: dict[bytes, int] = {}
        self._digest: bytes | None = None
        self._bits: OrderedDict[bytes, tuple[tuple[bytes, ...], int]] = OrderedDict()
        self._versions: OrderedDict[bytes, tuple[bytes, ...]] = OrderedDict()
        for given in settings.sample:
            self.add(given_publication(given))

    # --- what is in it -------------------------------------------------------------------------

    def add(self, publication: Publication) -> bool:
        """Put an event in; whether it is in the sample now and was not before."""
        if len(self._sampled) >= self.settings.sample_events:
            # Most events are turned away by the first half of their key.
            worst = self._sampled[-1].key
            if _identifier_hash(publication.id) > worst[: KEY_BYTES // 2]:
                return False
        if not publication.is_sound:
            return False
        if event_weight(publication) > self.settings.sample_event_bytes_max:
            return False
        key = event_key(publication)
        if key in self._places or not self._would_enter(key):
            return False
        if publication.delivery is not Delivery.BEST_EFFORT:
            # What a copy in the sample was promised is no affair of it.
            publication = Publication(publication.id, publication.attributes, publication.body)
        insort(self._sampled, _Sampled(key, publication))
        del self._sampled[self.settings.sample_events :]
        self._places = {sampled.key: place for place, sampled in enumerate(self._sampled)}
        self._digest = None
        return True

    def merge(self, publications: Iterable[Publication]) -> bool:
        """Put events in; whether the sample changed."""
        return sum(self.add(publication) for publication in publications) > 0

    def _would_enter(self, key: bytes) -> bool:
        room = len(self._sampled) < self.settings.sample_events
        return room or key < self._sampled[-1].key

    def __len__(self) -> int:
        return len(self._sampled)

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The keys of its events, smallest first: bit i of a filter is about the i-th."""
        return tuple(self._places)

    @property
    def publications(self) -> tuple[Publication, ...]:
        """Its events, in the same order."""
        return tuple(sampled.publication for sampled in self._sampled)

    @property
    def digest(self) -> bytes:
        """16 bytes that name the sample: samples of the same events, and only those, have it."""
        if self._digest is None:
            keys = self.keys
            self._digest = hashlib.blake2b(b"".join(keys), digest_size=16).digest()
            # Only samples that somebody asked the name of can be referred to.
            self._versions[self._digest] = keys
            self._versions.move_to_end(self._digest)
            while len(self._versions) > VERSIONS_KEPT_MAX:
                self._versions.popitem(last=False)
        return self._digest

    # --- what filters match of it --------------------------------------------------------------

    def bits(self, wanted: Filter) -> int:
        """Bit i is set iff the filter matches the event with the i-th smallest key."""
        keys, known = self._bits.get(wanted.digest, ((), 0))
        if keys and keys == self.keys:
            self._bits.move_to_end(wanted.digest)
            return known
        answers = {key: known >> place & 1 for place, key in enumerate(keys)}
        bits = 0
        for place, sampled in enumerate(self._sampled):
            answer = answers.get(sampled.key)
            if sampled.matches(wanted) if answer is None else answer:
                bits |= 1 << place
        self._bits[wanted.digest] = (self.keys, bits)
        self._bits.move_to_end(wanted.digest)
        while len(self._bits) > FILTERS_KEPT_MAX:
            self._bits.popitem(last=False)
        return bits

    def matches_in_sample(self, wanted: Filter) -> int | None:
        """How many events of the sample the filter matches; None while there are none."""
        return self.bits(wanted).bit_count() if self._sampled else None

    def translated(self, bits: int, digest: bytes) -> tuple[int, int] | None:
        """Bits about the sample of this name, as bits about the present one.

        The second number has a bit for each event that both samples have: about the others nothing
        is known. None if the other sample is not known.
        """
        if digest == self.digest:
            return bits, (1 << len(self._sampled)) - 1
        keys = self._versions.get(digest)
        if keys is None:
            return None
        present = common = 0
        for place, key in enumerate(keys):
            now = self._places.get(key)
            if now is not None:
                common |= 1 << now
                present |= (bits >> place & 1) << now
        return present, common

    @property
    def marks(self) -> bytes:
        """The marks of its events, in the order of their keys."""
        return b"".join(sampled.key[:MARK_BYTES] for sampled in self._sampled)

    def marked(self, bits: int, marks: bytes) -> tuple[int, int]:
        """Bits about a sample of which only the marks are known, as bits about this one.

        The second number has a bit for each event that both samples have, as in `translated`.
        """
        found = {
            marks[at : at + MARK_BYTES]: bits >> at // MARK_BYTES & 1
            for at in range(0, len(marks), MARK_BYTES)
        }
        present = common = 0
        for place, sampled in enumerate(self._sampled):
            answer = found.get(sampled.key[:MARK_BYTES])
            if answer is not None:
                common |= 1 << place
                present |= answer << place
        return present, common

    # --- exchange ------------------------------------------------------------------------------

    def offer(self) -> SampleOffered:
        """What to tell a neighbour now and then."""
        return SampleOffered(self.digest)

    def answers(self, message: Message) -> list[Message]:
        """Take a message of the exchange in, and say what the other is to be told."""
        match message:
            case SampleOffered(digest):
                return [] if digest == self.digest else [SampleKeys(self.keys)]
            case SampleKeys(keys):
                return self._answers_to_keys(keys[: self.settings.sample_events])
            case SampleEvents(publications):
                self.merge(publications)
        return []

    def _answers_to_keys(self, keys: tuple[bytes, ...]) -> list[Message]:
        theirs = dict.fromkeys(keys)
        union = sorted(self._places.keys() | theirs.keys())
        wanted = dict.fromkeys(union[: self.settings.sample_events])
        missing = [
            sampled.publication
            for sampled in self._sampled
            if sampled.key in wanted and sampled.key not in theirs
        ]
        answers: list[Message] = [SampleEvents(part) for part in _parts(missing)]
        if any(key not in self._places for key in theirs if key in wanted):
            answers.append(SampleKeys(self.keys))
        return answers


def given_publication(given: object) -> Publication:
    """An event of a sample that was given; attributes alone are named by their content."""
    if isinstance(given, Publication):
        return given
    if isinstance(given, Event):
        return Publication.of(given)
    assert isinstance(given, Mapping), "a sample is made of events or of attributes"
    return Publication(content_hash(given), given)


def event_key(publication: Publication) -> bytes:
    """The place of an event in the order of all: smallest first into the sample."""
    content = hashlib.blake2b(digest_size=KEY_BYTES // 2)
    content.update(content_hash(publication.attributes).encode())
    content.update(b"-" if publication.body is None else b"+" + publication.body)
    return _identifier_hash(publication.id) + content.digest()


def _identifier_hash(event_id: str) -> bytes:
    encoded = event_id.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(encoded, digest_size=KEY_BYTES // 2, person=b"sample").digest()


def event_weight(publication: Publication) -> int:
    """About the bytes that an event takes: the same at every node, however it came there."""
    return len(publication.body or b"") + _value_weight(publication.attributes)


def _value_weight(value: object) -> int:
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass")) + 1
    if isinstance(value, bytes | bytearray):
        return len(value) + 1
    if isinstance(value, Mapping):
        return sum(_value_weight(name) + _value_weight(item) for name, item in value.items())
    if isinstance(value, list | tuple):
        return 1 + sum(map(_value_weight, value))
    if isinstance(value, int) and value.bit_length() > 64:
        return value.bit_length() // 8
    return 8


def _parts(publications: list[Publication]) -> Iterable[tuple[Publication, ...]]:
    """The events in messages of bounded size."""
    part: list[Publication] = []
    size = 0
    for publication in publications:
        weight = event_weight(publication)
        if part and size + weight > MESSAGE_BYTES_MAX:
            yield tuple(part)
            part, size = [], 0
        part.append(publication)
        size += weight
    if part:
        yield tuple(part)


def _document(event: Event) -> Matchable | Any:
    """The parsed document of an event; what no pattern matches if it has none."""
    from peersub.filters.xpath.documents import DocumentError, document_of

    try:
        return document_of(event)
    except DocumentError:
        return b""
