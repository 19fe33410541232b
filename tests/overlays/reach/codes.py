"""Suffix codes to test with, and the same questions answered by looking at every identifier."""

from collections.abc import Iterable, Sequence
from functools import cache
from random import Random

from hypothesis import strategies as st

from peersub.overlays.reach.identifiers import EMPTY_PLACE, Place

BITS = 6
"""Identifiers are short enough to look at each of them."""
IDENTIFIERS = range(1 << BITS)

Code = tuple[Place, ...]


@st.composite
def codes(draw: st.DrawFn, splits_max: int = 24) -> Code:
    """A complete suffix code, however lopsided: any place may split, if it has bits left."""
    places = [EMPTY_PLACE]
    for choice in draw(st.lists(st.integers(0, 10_000), max_size=splits_max)):
        place = places.pop(choice % len(places))
        places += place.halves if place.length < BITS else (place,)
    return tuple(places)


def grown(nodes: int, seed: int, bits: int = 12) -> Code:
    """A code of so many places, as joins make it: a place splits if none next to it is shorter."""
    random = Random(seed)
    places = [EMPTY_PLACE]
    while len(places) < nodes:
        place = random.choice(places)
        while True:
            near = [other for other in places if by_hosts_next_to(place, other)]
            shorter = [other for other in near if other.length < place.length]
            if not shorter:
                break
            place = random.choice(shorter)
        assert place.length < bits
        places.remove(place)
        places += place.halves
    return tuple(places)


@cache
def hosted(place: Place) -> frozenset[int]:
    """What a place hosts, by the text of the paper: identifiers that end in its bits (§2)."""
    suffix = f"{place.bits:b}".zfill(place.length) if place.length else ""
    return frozenset(z for z in IDENTIFIERS if f"{z:0{BITS}b}".endswith(suffix))


def host(code: Sequence[Place], identifier: int) -> Place:
    """The host of an identifier, by asking everyone."""
    (found,) = [place for place in code if identifier in hosted(place)]
    return found


def by_hosts_next_to(one: Place, other: Place) -> bool:
    """Whether the suffixes of common length differ in one letter, letter by letter."""
    length = min(one.length, other.length)
    texts = [f"{place.bits:b}".zfill(place.length)[::-1][:length] for place in (one, other)]
    return length > 0 and sum(a != b for a, b in zip(*texts, strict=True)) == 1


def hosts_among(places: Iterable[Place], event: int, bits: int) -> set[Place]:
    """The hosts of all subsets of an event, by going through the subsets."""
    known = list(places)
    found = set()
    subset = event
    while True:
        text = f"{subset:0{bits}b}"
        ends = [
            each for each in known if text.endswith(f"{each.bits:0{each.length}b}"[: each.length])
        ]
        assert len(ends) == 1
        found.add(ends[0])
        if not subset:
            return found
        subset = (subset - 1) & event
