"""From what users publish to publications that can travel.

An event is named by the `id` that the caller gives, else by the attribute that the caller says has
the ids, else by 128 random bits. An attribute that happens to be called `id` is data.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from peersub.client.arguments import check_body, check_id
from peersub.events.arrow import rows_of_table, table_of_rows
from peersub.events.envelope import Event, identifier_of
from peersub.wire import sealed
from peersub.wire.client_messages import Batch, BatchSizeError, Publication
from peersub.wire.client_messages import Delivery as Promise

__all__ = [
    "DeliveryPromise",
    "Piece",
    "Publishable",
    "pieces_of",
    "promise_named",
    "publication_of",
]

DeliveryPromise: TypeAlias = Literal["best_effort", "at_least_once"]
Publishable: TypeAlias = Mapping[str, Any] | Event
"""What can be published: attributes, or a whole event."""
Piece: TypeAlias = list[tuple[Publication | Batch, int]]
"""What is published in one go: events, or a batch, and the size of each."""

_PROMISES: Final = {"best_effort": Promise.BEST_EFFORT, "at_least_once": Promise.AT_LEAST_ONCE}
_PLAIN: Final = frozenset({str, int, float, bool, type(None)})

EVENTS_AT_ONCE_MAX: Final = 256
"""Events that are handed to the connection in one go."""
PIECE_BYTES: Final = 256 * 1_024
"""Of what is handed to the connection in one go, about."""
BATCH_ROWS: Final = 1_024
"""Events of one batch: more would not be cheaper, and would fill queues at once."""
BATCH_FROM: Final = 128
"""Fewer events travel one by one: the first batch of a process loads what works on columns."""


def promise_named(name: str) -> Promise:
    """The delivery promise of this name; a ValueError says which there are."""
    promise = _PROMISES.get(name)
    if promise is None:
        known = " or ".join(get_args(DeliveryPromise))
        raise ValueError(f"there is no delivery {name!r}: it is {known}")
    return promise


def publication_of(
    event: Publishable,
    promise: Promise,
    event_id: str | None = None,
    body: bytes | None = None,
    id_attribute: str | None = None,
) -> Publication:
    """The event, ready to travel; of attributes, the one with this name may have the id.

    Raises:
        TypeError: it is no event, or its id or body is of another type.
        ValueError: it cannot travel: its identifier, attributes or body are too large.
    """
    check_id(event_id)
    if isinstance(event, Event):
        attributes, name = event.attributes, event_id or event.id
        body = event.body if body is None else body
    elif isinstance(event, Mapping):
        attributes = event
        given = None if id_attribute is None else identifier_of(event.get(id_attribute))
        name = event_id or given or secrets.token_hex(16)
    else:
        raise TypeError(f"an event is a mapping of attributes, not {type(event).__name__}")
    return sealed(Publication(name, attributes, check_body(body), delivery=promise))


def pieces_of(
    events: Iterable[Publishable] | Any,
    promise: Promise,
    *,
    with_batches: bool,
    id_attribute: str | None = None,
) -> Iterator[Piece]:
    """The events of an iterable, or the rows of a Table, in pieces to be published in one go.

    A piece is a batch where events can travel in columns: they have no identifiers of their own,
    and so many of them come together that it pays. Raises what `publication_of` does; the events
    before are in pieces that came before.
    """
    with_batches = with_batches and id_attribute is None
    if hasattr(events, "num_rows"):
        yield from _table_pieces(events, promise, id_attribute, with_batches=with_batches)
        return
    source = iter(events)
    while chunk := list(islice(source, BATCH_ROWS if with_batches else EVENTS_AT_ONCE_MAX)):
        if with_batches and _fit_columns(chunk):
            table = table_of_rows(cast(list[Mapping[str, Any]], chunk))
            if not _has_wide_integers(table):
                batch = _batch(table, promise)
                if batch is not None:
                    yield batch
                    continue
        yield from _single_pieces(chunk, promise, id_attribute)


def _table_pieces(
    table: Any, promise: Promise, id_attribute: str | None, *, with_batches: bool
) -> Iterator[Piece]:
    columns = with_batches and table.num_columns
    for start in range(0, table.num_rows, BATCH_ROWS):
        part = table.slice(start, BATCH_ROWS)
        is_many = columns and part.num_rows >= BATCH_FROM
        batch = _batch(part, promise) if is_many else None
        if batch is not None:
            yield batch
        else:
            yield from _single_pieces(rows_of_table(part), promise, id_attribute)


def _batch(table: Any, promise: Promise) -> Piece | None:
    """The rows in columns; None if they are too large to travel together."""
    if table.nbytes > PIECE_BYTES:
        return None
    try:
        batch = Batch.of(secrets.token_hex(12), table, delivery=promise)
    except BatchSizeError:
        return None
    return [(batch, table.nbytes)]


def _single_pieces(
    events: Iterable[Publishable], promise: Promise, id_attribute: str | None
) -> Iterator[Piece]:
    piece: Piece = []
    size = 0
    try:
        for event in events:
            publication = publication_of(event, promise, id_attribute=id_attribute)
            piece.append((publication, publication.size))
            size += piece[-1][1]
            if len(piece) >= EVENTS_AT_ONCE_MAX or size >= PIECE_BYTES:
                yield piece
                piece, size = [], 0
    except (TypeError, ValueError):
        if piece:
            yield piece
        raise
    if piece:
        yield piece


def _fit_columns(chunk: list[Publishable]) -> bool:
    """Whether all have the same attributes, of plain values, and so many are they that it pays.

    Others could travel in columns, too, but would arrive with attributes that they do not have.
    """
    first = chunk[0]
    if len(chunk) < BATCH_FROM or type(first) is not dict or not first:
        return False
    names = first.keys()
    return all(
        type(event) is dict
        and event.keys() == names
        and _PLAIN.issuperset(map(type, event.values()))
        for event in chunk
    )


def _has_wide_integers(table: Any) -> bool:
    """Whether columns of plain values hold integers beyond 64 bits: Arrow has decimals for them."""
    return any("decimal" in str(field.type) for field in table.schema)
