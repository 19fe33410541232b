"""`Seat`: a place that this node holds, with the subscriptions that are at home there.

A node holds one place, and for a while more: who leaves gives its place to an heir, and an heir
takes the place of who crashed. What a place needs is all here, so that it moves as a whole.

*Interest* (§4.5): a place is interested if it has subscriptions or a place below it is. It tells
all above; they answer when all above them know. Going up never comes back (`is_above`), so answers
come, and interest that has ended is withdrawn by working it out anew. What a new neighbour below
wants is not known: until it says so, it wants everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.publication import Publication
from peersub.overlays.reach.attributes import AttributeMap
from peersub.overlays.reach.identifiers import Place, is_above, set_bits
from peersub.overlays.reach.messages import Entry, Interest

__all__ = ["NOTHING", "UNSTORED_KEPT_MAX", "WAITING_MAX", "Copied", "Deputy", "Seat", "Told"]

UNSTORED_KEPT_MAX = 1_024
"""Ended subscriptions that a place remembers, lest a late request brings one back."""

WAITING_MAX = 4_096
"""Answers of a place that wait; who gets none asks again."""

NOTHING = Interest((), 0)
"""The interest of a place at which, and below which, nothing is kept."""

_Key = tuple[str, str]
"""The node and the name of a subscription."""


@dataclass(slots=True)
class Told:
    """What a place above was told last, and what of all that it has answered."""

    holder: PeerId
    interest: Interest
    number: int
    heard: int = 0
    """The highest number that was answered: all above know of what it told."""
    unheard: dict[int, None] = field(default_factory=dict)
    """The numbers that were not, in their order."""

    def hear(self, number: int) -> None:
        """Take an answer; it goes for all that was told before as well."""
        self.heard = max(self.heard, min(number, self.number))
        self.unheard = {each: None for each in self.unheard if each > self.heard}


class Needs(NamedTuple):
    """What has to be heard before an answer is given: as much as was told when it came to wait.

    Were it all that was told by now, nobody would be answered where something changes all the time.
    """

    copied: dict[PeerId, int]
    """By whom copies are kept, the number of what they were told."""
    told: dict[tuple[Place, Place], int]
    """By place and place above it, the number of the telling, or of the one that is to follow."""
    later: int
    """The number from which on those that were not above then have been told."""


@dataclass(slots=True)
class Copied:
    """What an heir was told, by the numbers of messages, and what it has."""

    sent: int
    begun: int = 0
    """The last message with what was kept when it became one."""
    heard: int = 0
    near: dict[Place, PeerId] | None = None
    """The neighbours that it was told of."""


@dataclass(slots=True)
class Deputy:
    """The identifiers that a neighbour answers for in place of the holder (`deputies`)."""

    identifiers: dict[int, None] = field(default_factory=dict)
    gain: float = 1.0
    """Messages that were sent for each event that is passed on now."""
    passed: int = 0
    """Events that were passed on since that was last looked at."""


@dataclass(slots=True)
class _Kept:
    """An entry, when it was last asked for, and the identifiers of its filter that come first."""

    entry: Entry
    renewed_ms: int
    before: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Seat:
    """A place held by this node."""

    place: Place
    claim: int
    near: dict[Place, PeerId] = field(default_factory=dict)
    """Neighbours, and who holds them; this node too."""
    interest: dict[Place, Interest] = field(default_factory=dict)
    """What places below have told."""
    interest_numbers: dict[Place, int] = field(default_factory=dict)
    """The numbers of what they have told, from which they say what is different."""
    gone: list[Place] = field(default_factory=list)
    """Regions next to this place of which no holder is known."""
    orphaned: dict[Place, Interest] = field(default_factory=dict)
    """What places below told whose holders are gone: it is wanted, and heirs stand in."""
    told: dict[Place, Told] = field(default_factory=dict)
    """What places above were told."""
    wanted: Interest = NOTHING
    """What is wanted here and below."""
    copied: dict[PeerId, Copied] = field(default_factory=dict)
    """The heirs and others that keep what is kept here."""
    deputies: dict[PeerId, Deputy] = field(default_factory=dict)
    """The neighbours that answer for some of what is kept here."""
    former: dict[PeerId, None] = field(default_factory=dict)
    """Those that were heirs, and could not be told that they are none any more."""
    waiting: dict[tuple[PeerId, Message], Needs | None] = field(default_factory=dict)
    """Answers that are due when all above know; None of those that came just now."""
    _kept: dict[int, dict[_Key, _Kept]] = field(default_factory=dict)
    _unstored: dict[tuple[int, str, str], tuple[int, int]] = field(default_factory=dict)

    # --- subscriptions -------------------------------------------------------------------------

    def entries(self) -> Iterator[Entry]:
        """All that is kept here."""
        for kept in self._kept.values():
            for each in kept.values():
                yield each.entry

    def identifiers(self) -> Iterable[int]:
        """The identifiers of all that is kept here."""
        return self._kept.keys()

    def state_bytes(self) -> int:
        """Bytes of the filters that are kept here, and of those that places below have told."""
        kept = [entry.filter for entry in self.entries()]
        told = [
            wanted
            for interest in self.interest.values()
            for wanted in interest.filters
            if wanted is not None
        ]
        return sum(len(wanted.to_bytes()) for wanted in (*kept, *told))

    @property
    def has_entries(self) -> bool:
        """Whether anything is kept here."""
        return bool(self._kept)

    def wait(self, peer: PeerId, message: Message) -> None:
        """Answer when all above know, once; of too many the oldest have to ask again."""
        self.waiting.setdefault((peer, message), None)
        if len(self.waiting) > WAITING_MAX:
            del self.waiting[next(iter(self.waiting))]

    def are_copied(self, needs: Needs) -> bool:
        """Whether all who keep copies have what waits for that."""
        return all(
            copied.heard >= max(needs.copied.get(peer, 0), copied.begun)
            for peer, copied in self.copied.items()
        )

    def has_all(self, peer: PeerId) -> bool:
        """Whether a peer has a copy of all that is kept here."""
        copied = self.copied.get(peer)
        return copied is not None and copied.heard >= copied.sent

    def keeps(self, entry: Entry) -> bool:
        """Whether a subscription is kept here just so."""
        known = self._kept.get(entry.identifier, {}).get((entry.subscriber.node, entry.name))
        return known is not None and known.entry == entry

    def store(self, entry: Entry, bits: AttributeMap, now_ms: int) -> bool:
        """Keep a subscription; False if a newer state of it is known."""
        key = (entry.subscriber.node, entry.name)
        age = (entry.subscriber.incarnation, entry.number)
        if self._unstored.get((entry.identifier, *key), (-1, -1)) >= age:
            return False
        kept = self._kept.setdefault(entry.identifier, {})
        known = kept.get(key)
        if known is not None:
            if _age(known.entry) > age:
                return False
            if known.entry == entry:
                known.renewed_ms = now_ms
                return True
        before = tuple(each for each in bits.identifiers(entry.filter) if each < entry.identifier)
        kept[key] = _Kept(entry, now_ms, before)
        return True

    def unstore(self, identifier: int, subscriber: PeerId, name: str, number: int) -> None:
        """Keep a subscription no more, nor any earlier state of it that comes late."""
        key = (subscriber.node, name)
        age = (subscriber.incarnation, number)
        self._unstored.pop((identifier, *key), None)
        self._unstored[identifier, *key] = age
        if len(self._unstored) > UNSTORED_KEPT_MAX:
            del self._unstored[next(iter(self._unstored))]
        known = self._kept.get(identifier, {}).get(key)
        if known is not None and _age(known.entry) <= age:
            self._drop(identifier, key)

    def expire(self, before_ms: int) -> bool:
        """Drop what nobody has asked for since; whether there was any."""
        old = [
            (identifier, key)
            for identifier, kept in self._kept.items()
            for key, each in kept.items()
            if each.renewed_ms < before_ms
        ]
        for identifier, key in old:
            self._drop(identifier, key)
        return bool(old)

    def renew(self, now_ms: int) -> None:
        """Expect all that is kept here to be asked for again only from now on."""
        for kept in self._kept.values():
            for each in kept.values():
                each.renewed_ms = now_ms

    def _drop(self, identifier: int, key: _Key) -> None:
        del self._kept[identifier][key]
        if not self._kept[identifier]:
            del self._kept[identifier]

    def wanting(
        self, publication: Publication, bits: int, identifiers: Iterable[int]
    ) -> dict[str, int]:
        """The nodes with subscriptions kept here that want the event, of these identifiers.

        With each node there is the identifier of a subscription. One with several identifiers is
        kept at several places, and all that the event has are visited: the first of them is the
        one that counts.
        """
        nodes: dict[str, int] = {}
        for identifier in identifiers:
            for (node, _), kept in self._kept.get(identifier, {}).items():
                if node in nodes or any(each & ~bits == 0 for each in kept.before):
                    continue
                if publication.matches(kept.entry.filter):
                    nodes[node] = identifier
        return nodes

    def identifiers_within(self, bits: int) -> list[int]:
        """The identifiers kept here that are subsets: by going through whichever are fewer."""
        above = bits >> self.place.length
        if above.bit_count() < 10 and 1 << above.bit_count() < len(self._kept):
            found = []
            subset = above
            while True:
                identifier = subset << self.place.length | self.place.bits
                if identifier in self._kept:
                    found.append(identifier)
                if not subset:
                    return found
                subset = (subset - 1) & above
        return [identifier for identifier in self._kept if identifier & ~bits == 0]

    def take_entries(self, other: Seat, bits: AttributeMap) -> None:
        """Keep also what another place kept, as far as it is hosted here."""
        for identifier, kept in other._kept.items():
            if self.place.hosts(identifier):
                for each in kept.values():
                    self.store(each.entry, bits, each.renewed_ms)
        for (identifier, node, name), age in other._unstored.items():
            if self.place.hosts(identifier):
                self._unstored[identifier, node, name] = age

    # --- neighbours ----------------------------------------------------------------------------

    @property
    def longest(self) -> int:
        """The length of the longest neighbour."""
        return max((place.length for place in self.near), default=0)

    def above(self) -> list[Place]:
        """The neighbours that send events down to here."""
        return [place for place in self.near if is_above(place, self.place)]

    def below(self) -> list[Place]:
        """The neighbours that events go down to."""
        return [place for place in self.near if is_above(self.place, place)]

    def set_near(self, near: dict[Place, PeerId], gone: Iterable[Place] = ()) -> None:
        """These are the neighbours now; what others told stays with who told it."""
        self.gone = list(gone)
        for place in [each for each in self.interest if near.get(each) != self.near.get(each)]:
            self.orphaned[place] = self.interest.pop(place)
        for place in [each for each in self.orphaned if not self._misses(each)]:
            del self.orphaned[place]
        for place in [each for each in self.interest_numbers if each not in near]:
            del self.interest_numbers[place]
        for place in [each for each in self.told if near.get(each) != self.told[each].holder]:
            del self.told[place]
        self.near = near

    def _misses(self, place: Place) -> bool:
        return any(part.overlaps(place) for part in self.gone)

    @property
    def misses_unheard(self) -> bool:
        """Whether something below is gone that never said what it wants."""
        return any(
            is_above(self.place, part) and not any(each.overlaps(part) for each in self.orphaned)
            for part in self.gone
        )

    def holder_of(self, identifier: int) -> PeerId | None:
        """The holder of the neighbour that hosts an identifier."""
        for place, peer in self.near.items():
            if place.hosts(identifier):
                return peer
        return None

    def ways(self, target: int, first: int = 0) -> Iterable[PeerId]:
        """Holders of neighbours that are nearer to a target, beginning with some bit."""
        difference = (self.place.bits ^ target) & ((1 << self.place.length) - 1)
        bits = list(set_bits(difference))
        for turn in range(len(bits)):
            bit = bits[(turn + first) % len(bits)]
            peer = self.holder_of(self.place.nearest(target) ^ 1 << bit)
            if peer is not None:
                yield peer


def _age(entry: Entry) -> tuple[int, int]:
    return entry.subscriber.incarnation, entry.number
