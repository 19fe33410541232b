"""What has changed of an interest: what is told in place of all of it.

A subscription that begins or ends changes one wish of many in each place above. The law:

    changed(before, *difference(before, after)) == after.
"""

from __future__ import annotations

from collections.abc import Iterable

from peersub.filters.filter import Filter
from peersub.overlays.reach.identifiers import Place
from peersub.overlays.reach.messages import Interest, InterestChanged, InterestTold

__all__ = ["Wish", "changed", "difference", "interest_of", "keyed", "telling", "wishes_of"]

Wish = tuple[int, Filter | None]
"""An identifier, or the low bits of several, and the filter; None for all that has these bits."""


def wishes_of(interest: Interest) -> Iterable[Wish]:
    """What an interest says, wish by wish."""
    if not interest.filters:
        return [(identifier, None) for identifier in interest.identifiers]
    return zip(interest.identifiers, interest.filters, strict=True)


def keyed(wishes: Iterable[Wish]) -> dict[tuple[int, bytes], Wish]:
    """Wishes by what they sort and are told apart by: equal filters have equal digests.

    Filters themselves would be hashed box by box, each time.
    """
    return {_key(wish): wish for wish in wishes}


def _key(wish: Wish) -> tuple[int, bytes]:
    identifier, wanted = wish
    return identifier, b"" if wanted is None else wanted.digest


def interest_of(wishes: Iterable[Wish], shortest: int) -> Interest:
    """The interest that says these wishes, in their one order."""
    told = sorted(wishes, key=_key)
    filters = tuple(wanted for _, wanted in told)
    return Interest(
        tuple(identifier for identifier, _ in told), shortest, filters if any(filters) else ()
    )


def difference(before: Interest, after: Interest) -> tuple[tuple[int, ...], Interest]:
    """Where in `before` the wishes stand that have ended, and those that have begun."""
    old, new = keyed(wishes_of(before)), keyed(wishes_of(after))
    ended = tuple(number for number, key in enumerate(old) if key not in new)
    begun = [wish for key, wish in new.items() if key not in old]
    return ended, interest_of(begun, after.shortest)


def changed(before: Interest, ended: Iterable[int], begun: Interest) -> Interest:
    """What is wanted after a difference."""
    gone = dict.fromkeys(ended)
    left = [wish for number, wish in enumerate(wishes_of(before)) if number not in gone]
    return interest_of([*left, *wishes_of(begun)], begun.shortest)


def telling(
    below: Place, above: Place, before: tuple[Interest, int] | None, after: tuple[Interest, int]
) -> InterestTold | InterestChanged:
    """What a place says to one above: the difference, if that is less than all.

    `before` is what it was told last, and under which number; None if nothing.
    """
    interest, number = after
    if before is not None:
        ended, begun = difference(before[0], interest)
        if len(ended) + len(begun.identifiers) < len(interest.identifiers):
            return InterestChanged(below, above, before[1], number, ended, begun)
    return InterestTold(below, above, interest, number)
