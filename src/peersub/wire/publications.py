"""Publications on the wire: name, promise, attributes and body, the last two as bytes.

Neither is unpacked when a publication is read, and what was read is written with the same bytes.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta, defstruct

from peersub.events.envelope import IDENTIFIER_BYTES_MAX
from peersub.overlays.core.event_keys import NAME_BYTES_MORE, split_name
from peersub.overlays.core.publication import Delivery, Publication
from peersub.wire.errors import WireError
from peersub.wire.limits import ATTRIBUTES_BYTES_MAX, BODY_BYTES_MAX
from peersub.wire.values import pack_attributes, unpack_attributes

__all__ = [
    "EVENT_NAME",
    "PUBLICATION",
    "packed_attributes",
    "publication_of",
    "read_publication",
    "sealed",
    "write_publication",
]

EVENT_NAME: Final = Annotated[
    str, Meta(min_length=1, max_length=IDENTIFIER_BYTES_MAX + NAME_BYTES_MORE)
]
"""Key and identifier (`core.event_keys`)."""
PUBLICATION: Final = defstruct(
    "PUBLICATION",
    [
        ("name", EVENT_NAME),
        ("delivery", Delivery),
        ("packed", Annotated[bytes, Meta(max_length=ATTRIBUTES_BYTES_MAX)]),
        ("body", Annotated[bytes, Meta(max_length=BODY_BYTES_MAX)] | None),
    ],
    array_like=True,
    frozen=True,
    gc=False,
)
"""A publication where it is a field among others, and not what a message is about."""


def publication_of(name: str, delivery: Delivery, packed: bytes, body: bytes | None) -> Publication:
    """The publication of this name, its attributes still packed.

    Raises:
        WireError: the identifier has too many bytes, or none.
    """
    key, event_id = split_name(name)
    if not 0 < len(event_id) <= IDENTIFIER_BYTES_MAX or (
        not event_id.isascii() and len(event_id.encode()) > IDENTIFIER_BYTES_MAX
    ):
        raise WireError(f"an event id has 1 to {IDENTIFIER_BYTES_MAX} bytes")
    return Publication(
        event_id, None, body, delivery=delivery, packed=packed, unpack=unpack_attributes, key=key
    )


def packed_attributes(publication: Publication) -> bytes:
    """The attributes as they came, or packed once."""
    packed = publication.packed
    if packed is None:
        packed = publication.packed = pack_attributes(publication.attributes)
    return packed


def read_publication(form: Any, _: int) -> Publication:
    """From what msgspec read as PUBLICATION."""
    return publication_of(form.name, form.delivery, form.packed, form.body)


def write_publication(publication: Publication) -> tuple[Any, ...]:
    """To what msgspec writes as PUBLICATION."""
    packed = packed_attributes(publication)
    return (publication.name, publication.delivery, packed, publication.body)


def sealed(publication: Publication) -> Publication:
    """The same publication with its attributes packed, if it can travel.

    Whoever takes events from users asks for it at once: then whoever published an event that
    cannot travel hears of it, and not a link that is about to send it.

    Raises:
        WireError: it cannot: an identifier that is no Unicode, too large a body, attributes that
            are too large or too deep.
    """
    try:
        size = len(publication.id.encode())
    except UnicodeEncodeError:
        raise WireError(f"the event id {publication.id!r} is no Unicode") from None
    if not 0 < size <= IDENTIFIER_BYTES_MAX:
        raise WireError(f"an event id has 1 to {IDENTIFIER_BYTES_MAX} bytes, this one has {size}")
    if publication.body is not None and len(publication.body) > BODY_BYTES_MAX:
        raise WireError(
            f"the body of the event {publication.id!r} has {len(publication.body):,} bytes, "
            f"more than {BODY_BYTES_MAX:,}"
        )
    packed_attributes(publication)
    return publication
