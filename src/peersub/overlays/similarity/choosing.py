"""Whom a member is linked with: a function of what it knows, without state.

`nearest` takes the n members of greatest proximity (the paper's rule). Similar members then form
cliques: the five nearest of a member that shares its interest with ten others are among those ten.
Nothing leads out of the clique but random links, and those carry most of the false positives.

`climb` asks for something else. Members have a *rank*: how many events of the sample they match,
then a draw. If each member that matches an event, but one, has a neighbour of higher rank that
matches it too, then from each of them the event climbs to the same top, and all of them are
connected: no false negatives, without random links. So a member *covers* the events that it matches
with neighbours of higher rank, each event `cover` times. Among the candidates it takes, one after
the other, the one with the greatest gain:

    gain = wanted_weight · |events it matches that the member matches and are not covered enough|
         - |events it matches that the member does not, and none taken before does|

The first part is what keeps false negatives away, the second are the false positives that the link
will bring; it takes none whose gain is not positive. Members that want the same come first, at
no cost, then those that want little more. It is the parent rule of a containment tree (the most
selective container), on measured interest, with several parents, and none need contain it alone.

Both rules take the sample's bits as integers, and count. Among equally good ones a member takes
the first on a circle of all places, from a point of its own (`turn`): links are spread evenly, as
by the paper's rule to prefer those with fewest, and it does not matter who came first. Under
`climb` that point lies above its own place for those who want the same, so that each step leads
past half of those that are left: a class of equals is a tree of logarithmic depth.

A member that knows at most `clique_up_to` others takes all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from peersub.overlays.core.draws import draw, draw_below
from peersub.overlays.core.identity import PeerId
from peersub.overlays.similarity.proximity import pair_hash, proximity_of_counts
from peersub.overlays.similarity.settings import NEAREST, SimilaritySettings

__all__ = ["Candidate", "chosen", "drawn_random", "place_of", "ranked", "score", "turn"]

PLACES: Final = 1 << 64
"""Places on the circle."""
_TRIES_PER_LINK: Final = 8


class Candidate(NamedTuple):
    """A member as another one judges it: its place among all, its bits, and how well connected."""

    peer: PeerId
    place: int
    bits: int
    connection: float = 1.0

    @property
    def rank(self) -> tuple[int, int]:
        """General members before special ones, then by a draw; no two have the same."""
        return self.bits.bit_count(), self.place


def place_of(seed: int, peer: PeerId) -> int:
    """The draw by which members are told apart where all else is equal."""
    return draw(seed, "similarity/place", peer.node, peer.incarnation, peer.slot)


def chosen(
    me: Candidate,
    others: Sequence[Candidate],
    settings: SimilaritySettings,
    *,
    is_clique: bool | None = None,
) -> list[Candidate]:
    """The members that this one links itself with, best first; all if they are few."""
    if len(others) <= settings.clique_up_to if is_clique is None else is_clique:
        return sorted(others)
    if settings.choice == NEAREST:
        return ranked(me, others, settings)[: settings.nearest]
    return _climb(me, others, settings)


def score(me: Candidate, other: Candidate, settings: SimilaritySettings) -> float:
    """The proximity of two members."""
    both = (me.bits & other.bits).bit_count()
    counts = me.bits.bit_count(), other.bits.bit_count()
    found: float = proximity_of_counts(settings, both, *counts, other.connection)
    return found


def turn(me: Candidate, other: Candidate, *, climbs: bool) -> int:
    """How far round the circle a member is from the point where another one begins to look."""
    start = pair_hash(me.place, 0)
    if climbs and other.bits == me.bits:
        start = me.place + ((PLACES - me.place) * start >> 64)
    return (other.place - start) % PLACES


def ranked(
    me: Candidate, others: Iterable[Candidate], settings: SimilaritySettings
) -> list[Candidate]:
    """The nearest first."""
    return sorted(
        others,
        key=lambda other: (-score(me, other, settings), turn(me, other, climbs=False)),
    )


def _climb(
    me: Candidate, others: Sequence[Candidate], settings: SimilaritySettings
) -> list[Candidate]:
    rank = me.rank
    higher = [other for other in others if other.rank > rank]
    turns = {other.peer: turn(me, other, climbs=True) for other in higher}
    covered = [me.bits] + [0] * settings.cover
    """Per number, the events that so many of those taken match, or more."""
    unpaid = ~me.bits
    taken: list[Candidate] = []
    while higher and len(taken) < settings.nearest:
        wanted = me.bits & ~covered[-1]

        def gain(other: Candidate, wanted: int = wanted, unpaid: int = unpaid) -> int:
            cost = (other.bits & unpaid).bit_count()
            return settings.wanted_weight * (other.bits & wanted).bit_count() - cost

        best = max(higher, key=lambda other: (gain(other), -turns[other.peer]))
        if gain(best) <= 0:
            break
        taken.append(best)
        higher.remove(best)
        unpaid &= ~best.bits
        for times in range(settings.cover, 0, -1):
            covered[times] |= covered[times - 1] & best.bits
    return taken


def drawn_random(
    seed: int, me: PeerId, members: Sequence[PeerId], taken: Iterable[PeerId], count: int
) -> list[int]:
    """Places in the list of the members that are drawn for the random links of one of them.

    Those that are taken already are passed over. A draw that finds nobody new is repeated a few
    times: a small network may leave a member with fewer.
    """
    known = {me, *taken}
    found: list[int] = []
    for attempt in range(_TRIES_PER_LINK * count):
        if len(found) >= count:
            break
        place = draw_below(len(members), seed, "similarity/random", *me, attempt)
        if members[place] not in known:
            known.add(members[place])
            found.append(place)
    return found
