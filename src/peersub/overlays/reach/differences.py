"""What has changed of an interest: what is told in place of all of it.

A subscription that begins or ends changes one wish of many in each place above. The law:

    changed(before, *difference(before, after)) == after.
"""

from __future__ import annotations

from collections.abc import Iterable

from peersub.filters.filter import Filter
from peersub.overlays.reach.messages import Interest

__all__ = ["Wish", "changed", "difference", "interest_of", "wishes_of"]

Wish = tuple[int, Filter | None]
"""An identifier, or the low bits of several, and the filter; None for all that has these bits."""


def wishes_of(interest: Interest) -> Iterable[Wish]:
    """What an interest says, wish by wish."""
    if not interest.filters:
        return [(identifier, None) for identifier in interest.identifiers]
    return zip(interest.identifiers, interest.filters, strict=True)


def interest_of(wishes: Iterable[Wish], shortest: int) -> Interest:
    """The interest that says these wishes, in their one order."""
    told = sorted(wishes, key=lambda wish: (wish[0], wish[1].digest if wish[1] else b""))
    filters = tuple(wanted for _, wanted in told)
    return Interest(
        tuple(identifier for identifier, _ in told), shortest, filters if any(filters) else ()
    )


def difference(before: Interest, after: Interest) -> tuple[tuple[int, ...], Interest]:
    """Where in `before` the wishes stand that have ended, and those that have begun."""
    old, new = dict.fromkeys(wishes_of(before)), dict.fromkeys(wishes_of(after))
    ended = tuple(number for number, wish in enumerate(old) if wish not in new)
    return ended, interest_of((wish for wish in new if wish not in old), after.shortest)


def changed(before: Interest, ended: Iterable[int], begun: Interest) -> Interest:
    """What is wanted after a difference."""
    gone = dict.fromkeys(ended)
    left = [wish for number, wish in enumerate(wishes_of(before)) if number not in gone]
    return interest_of([*left, *wishes_of(begun)], begun.shortest)
