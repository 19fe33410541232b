"""From what users publish to publications that can travel.

An event is named by the `id` that the caller gives, else by its attribute `id`, as through every
other door of peersub, else by 128 random bits.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from peersub.events.arrow import rows_of_table
from peersub.events.envelope import Event, identifier_of
from peersub.wire import sealed
from peersub.wire.client_messages import Delivery as Promise
from peersub.wire.client_messages import Publication

__all__ = ["DeliveryPromise", "Publishable", "publication_of", "publications_of", "promise_named"]

DeliveryPromise: TypeAlias = Literal["best_effort", "at_least_once"]
Publishable: TypeAlias = Mapping[str, Any] | Event
"""What can be published: attributes, or a whole event."""

_PROMISES: Final = {"best_effort": Promise.BEST_EFFORT, "at_least_once": Promise.AT_LEAST_ONCE}
_ROWS_AT_ONCE: Final = 2_048
"""Rows of a table that are Python objects at the same time."""


def promise_named(name: str) -> Promise:
    """The delivery promise of this name; a ValueError says which there are."""
    promise = _PROMISES.get(name)
    if promise is None:
        known = " or ".join(get_args(DeliveryPromise))
        raise ValueError(f"there is no delivery {name!r}: it is {known}")
    return promise


def publication_of(
    event: Publishable, promise: Promise, event_id: str | None = None, body: bytes | None = None
) -> Publication:
    """The event, ready to travel.

    Raises:
        TypeError: it is no event.
        ValueError: it cannot travel: its identifier, attributes or body are too large.
    """
    if isinstance(event, Event):
        attributes, name = event.attributes, event_id or event.id
        body = event.body if body is None else body
    elif isinstance(event, Mapping):
        attributes = event
        name = event_id or identifier_of(event.get("id")) or secrets.token_hex(16)
    else:
        raise TypeError(f"an event is a mapping of attributes, not {type(event).__name__}")
    return sealed(Publication(name, attributes, body, delivery=promise))


def publications_of(events: Iterable[Publishable] | Any, promise: Promise) -> Iterator[Publication]:
    """The events of an iterable, or the rows of a Table; raises what `publication_of` does."""
    for event in _rows(events) if hasattr(events, "num_rows") else events:
        yield publication_of(event, promise)


def _rows(table: Any) -> Iterator[Mapping[str, Any]]:
    """Rows without the attributes that are missing in them."""
    for start in range(0, table.num_rows, _ROWS_AT_ONCE):
        for row in rows_of_table(table.slice(start, _ROWS_AT_ONCE)):
            yield cast(Mapping[str, Any], row)
