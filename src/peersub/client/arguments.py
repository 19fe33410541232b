"""What callers hand to the API, checked where they do: an error there says what to do instead.

What passed unchecked would fail later, on a connection or in a node, where nobody could tell whose
mistake it was.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from peersub.events.envelope import IDENTIFIER_BYTES_MAX
from peersub.filters.filter import Filter
from peersub.runtime.since import parse_since
from peersub.wire.limits import BODY_BYTES_MAX

__all__ = ["check_body", "check_id", "check_name", "check_queue_max", "filter_of", "since_text"]

NAME_BYTES_MAX: Final = 128
"""Of the name of a subscription."""


def check_id(event_id: object) -> None:
    """An event's id, if one is given, is a short string.

    Raises:
        TypeError: it is none.
        ValueError: it is empty, too long, or no Unicode.
    """
    if event_id is None:
        return
    if not isinstance(event_id, str):
        kind = type(event_id).__name__
        raise TypeError(f"the id of an event is a string, not {kind}: pass id=str({event_id!r})")
    _check_bytes("the id of an event", event_id, 1, IDENTIFIER_BYTES_MAX)


def check_body(body: object) -> bytes | None:
    """The body as bytes.

    Raises:
        TypeError: it is text, or something else that is no bytes.
        ValueError: it is too large.
    """
    if body is None:
        return None
    if isinstance(body, str):
        raise TypeError("the body of an event is bytes, not str: pass body=text.encode()")
    if not isinstance(body, bytes | bytearray | memoryview):
        raise TypeError(f"the body of an event is bytes, not {type(body).__name__}")
    data = bytes(body)
    if len(data) > BODY_BYTES_MAX:
        raise ValueError(f"a body of {len(data):,} bytes is larger than {BODY_BYTES_MAX:,}")
    return data


def check_name(what: str, name: object) -> str:
    """A name of a subscription; empty for none.

    Raises:
        TypeError: it is no string.
        ValueError: it is too long, or no Unicode.
    """
    if name is None:
        return ""
    if not isinstance(name, str):
        raise TypeError(f"{what} is a name, a string, not {type(name).__name__}")
    _check_bytes(what, name, 0, NAME_BYTES_MAX)
    return name


def check_queue_max(queue_max: object) -> int:
    """How many events may wait; TypeError or ValueError if that is no number, or none at all."""
    if not isinstance(queue_max, int) or isinstance(queue_max, bool):
        raise TypeError(f"queue_max is a number of events, not {type(queue_max).__name__}")
    if not 1 <= queue_max < 2**32:
        raise ValueError(f"queue_max is at least 1 and below {2**32:,}, not {queue_max}")
    return queue_max


def filter_of(wanted: object) -> Filter:
    """The filter that is meant.

    Raises:
        FilterError: the text is none.
        TypeError: it is no text, and no filter.
    """
    if isinstance(wanted, Filter):
        return wanted
    if not isinstance(wanted, str):
        raise TypeError(f"a filter is SQL text or a Filter, not {type(wanted).__name__}")
    return Filter(wanted)


def since_text(since: object) -> str:
    """Where a durable subscription begins, as the node is told; empty for where it stopped.

    >>> since_text(None), since_text(17), since_text("earliest")
    ('', '17', 'earliest')

    Raises:
        TypeError: it is no position, time or text.
        ValueError: it is none that a log could have.
    """
    if since is None:
        return ""
    if isinstance(since, datetime):
        moment = since.replace(tzinfo=UTC) if since.tzinfo is None else since
        return moment.isoformat()
    if isinstance(since, bool) or not isinstance(since, int | str):
        raise TypeError(f"since is a position, a time, or 'earliest', not {type(since).__name__}")
    parse_since(since)
    return str(since)


def _check_bytes(what: str, text: str, least: int, most: int) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{what} is no Unicode: {text!r}") from None
    if not least <= size <= most:
        raise ValueError(f"{what} has {least} to {most} bytes, this one has {size:,}")
