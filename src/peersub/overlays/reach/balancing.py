"""Load balancing (§4.4): hot identifiers are pushed away, and parents answer for children.

The paper has two sketches. Both need more than it says.

*Push.* An overloaded place hands identifiers to another node. The paper passes an event on if it
"is labelled" with such an identifier. That is too narrow: each event that *contains* one and comes
to the place has to be passed on, and the node that gets it only answers, and sends it no further
down. One message does for all identifiers that went to the same node. So a push pays if an event
finds more than one subscriber there, and `pushes` counts what the message costs.

*Replicate up.* A parent keeps a copy of what a child keeps, and answers for it now and then. Which
parents have one, `replicas` says. And a parent may answer only if nothing else is reached *through*
the child (`is_last`): otherwise the event has to go there all the same.

Laws: a push never changes who gets an event, nor do answers; no identifier is pushed twice; after a
push neither of the two is as busy as the giver was. In the protocol who is given something is a
deputy (`deputies`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import Generic, NamedTuple, TypeVar

from peersub.filters.filter import Filter
from peersub.overlays.core.draws import draw_below, draw_share
from peersub.overlays.core.identity import PeerId
from peersub.overlays.reach.identifiers import Order, Place
from peersub.overlays.reach.interest import SOMETHING, leads_to, wishes_of
from peersub.overlays.reach.messages import Interest

__all__ = [
    "ANSWER_BITS",
    "TAKERS_MAX",
    "Heat",
    "Part",
    "answer_number",
    "answers",
    "hand_out",
    "is_last",
    "pushes",
]

ANSWER_BITS = 32
TAKERS_MAX = 8
"""Nodes that a place gives identifiers to: an event costs a message for each of them."""


class Heat(NamedTuple):
    """What an identifier costs the place that keeps it, in messages of some time."""

    events: int
    """Events that contain it and came there."""
    sent: int
    """Messages to subscribers."""


_Taker = TypeVar("_Taker", Place, PeerId)


@dataclass(frozen=True, slots=True)
class Part(Generic[_Taker]):
    """What one of those who take gets, and the messages that this costs and saves the giver."""

    taker: _Taker
    identifiers: tuple[int, ...]
    passed_on: int
    sent: int


def hand_out(
    load: int, arrived: int, heats: Mapping[int, Heat], known: Iterable[tuple[int, _Taker]]
) -> list[Part[_Taker]]:
    """What a place gives away: its hottest identifiers to the least busy of those it knows.

    As many as make the busier of the two the least busy, and then more to the next one, as long as
    that is of use.

    Args:
        load: messages that the place received and sent.
        arrived: events that came to it.
        heats: by identifier.
        known: who takes something, each with its load.
    """
    left = sorted(heats.items(), key=lambda each: (-each[1].sent, each[0]))
    parts: list[Part[_Taker]] = []
    for busy, taker in nsmallest(TAKERS_MAX, known):
        count, passed_on, sent = _best_part(load, busy, arrived, left)
        if not count:
            break
        given = tuple(identifier for identifier, _ in left[:count])
        parts.append(Part(taker, given, passed_on, sent))
        left = left[count:]
        load += passed_on - sent
    return parts


def pushes(
    loads: Mapping[Place, int],
    arrived: Mapping[Place, int],
    heats: Mapping[Place, Mapping[int, Heat]],
    takers: Callable[[Place], Iterable[Place]],
) -> dict[tuple[Place, int], Place]:
    """Who gives which identifiers to whom, one place after the other, the busiest first.

    Args:
        loads: messages that each place received and sent.
        arrived: events that came to each place.
        heats: by place and identifier.
        takers: the places of whose load a place knows.
    """
    now = dict(loads)
    moved: dict[tuple[Place, int], Place] = {}
    for giver in sorted(loads, key=lambda place: (-loads[place], place)):
        if not heats.get(giver):
            continue
        known = ((now[place], place) for place in takers(giver) if place != giver)
        for part in hand_out(now[giver], arrived[giver], heats[giver], known):
            moved.update({(giver, identifier): part.taker for identifier in part.identifiers})
            now[giver] += part.passed_on - part.sent
            now[part.taker] += part.passed_on + part.sent
    return moved


def _best_part(
    giver: int, taker: int, arrived: int, hottest: Sequence[tuple[int, Heat]]
) -> tuple[int, int, int]:
    """How many identifiers to give, what is passed on for them at most, and what they cost."""
    best, found = giver, (0, 0, 0)
    events = sent = 0
    for count, (_, heat) in enumerate(hottest, 1):
        events += heat.events
        sent += heat.sent
        # An event that contains several of them is passed on once.
        passed_on = min(events, arrived)
        busier = max(giver + passed_on - sent, taker + passed_on + sent)
        if busier < best:
            best, found = busier, (count, passed_on, sent)
    return found


def is_last(
    place: Place,
    event: int,
    order: Order,
    interest: Interest,
    matches: Callable[[Filter], bool] = lambda _: True,
) -> bool:
    """Whether nothing else that the event looks for is reached through a place, by its interest.

    A wish that the place hosts is kept there. What is kept further down lacks a bit of the place;
    so do its low bits, unless the place has bits beyond them, and then it does not host these.
    """
    if not place.bits:
        return True  # There are no subsets of the empty set.
    if interest == SOMETHING:
        return False
    others = [
        (identifier, wanted)
        for identifier, wanted in wishes_of(interest)
        if not place.hosts(identifier)
    ]
    rest = Interest(
        tuple(identifier for identifier, _ in others),
        interest.shortest,
        tuple(wanted for _, wanted in others),
    )
    return not leads_to(place, event, order, rest, matches)


def answer_number(event_id: str) -> int:
    """32 bits of an event, by which its answers are drawn."""
    return draw_below(1 << ANSWER_BITS, 0, "reach/answers", event_id)


def answers(parent: Place, place: Place, number: int, share: float) -> bool:
    """Whether a parent that may answer for a place does so: for a share of the events.

    `number` is the event's (`answer_number`).
    """
    return draw_share(0, "reach/answer", number, parent.bits, place.bits) < share
