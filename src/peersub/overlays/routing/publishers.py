"""`Publisher`: what one peer that publishes through this one has been told, and what is new for it.

Rows travel as changes (digest row 14, decision 10 of the design): numbered, with the digest of the
result, in chunks that are bounded in rows and bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from peersub.overlays.routing.messages import Entry, EntryKey, FilterUpdate
from peersub.overlays.routing.rows import NO_ROWS, Change, Rows, WireSizes
from peersub.overlays.routing.topology import NOWHERE, Scope

__all__ = ["BYTES_PER_UPDATE_MAX", "ROWS_PER_UPDATE_MAX", "Publisher"]

ROWS_PER_UPDATE_MAX: Final = 256
"""Rows to add, and keys to remove, in one message."""
BYTES_PER_UPDATE_MAX: Final = 131_072
"""About the bytes of the rows in one message; a single row may have more."""
ROW_BYTES: Final = 256
"""About the bytes that a row may have before fewer go into a message that is to be small: a dear
row has one to itself."""
PARTS_OF_A_SIZE: Final = 256
"""Messages of an update after which those that follow may be twice as large: their number is
bounded (`CHUNKS_MAX`), and nobody adds up a large table first."""
KEYS_PER_ROW: Final = 8
"""Keys to remove that are read as fast as one row."""
ROWS_IN_SMALL_PARTS: Final = 4_096
"""Rows of an update beyond which its parts are larger: their number is bounded (`CHUNKS_MAX`)."""


class Publisher:
    """A peer that holds this one responsible for a scope."""

    __slots__ = (
        *("_chunks", "_is_first", "_next"),
        *("confirmed", "is_whole_due", "number", "scope", "sent", "version"),
    )

    def __init__(self) -> None:
        self.scope: Scope = NOWHERE
        self.version = 0
        """The responsibility, as the publisher numbers it."""
        self.sent = NO_ROWS
        self.number = 0
        """The last update."""
        self.confirmed = 0
        """The last update that is confirmed; all before it are."""
        self.is_whole_due = True
        """Whether the next update has to be the whole table."""
        self._chunks: Iterator[Change] = iter(())
        self._next: Change | None = None
        """The next part of the last update."""
        self._is_first = False
        """Whether it is the first of a whole table."""

    @classmethod
    def converged(cls, scope: Scope, rows: Rows) -> Publisher:
        """A publisher that has been told everything, and has confirmed it."""
        publisher = cls()
        publisher.scope, publisher.sent, publisher.version = scope, rows, 1
        publisher.number = publisher.confirmed = 1
        publisher.is_whole_due = False
        return publisher

    def update_to(
        self, rows: Rows, sizes: WireSizes, rows_per_message: int, *, is_answer: bool
    ) -> None:
        """Tell these rows; nothing if they are known, unless it is an answer."""
        assert not self.is_sending
        is_whole, sent = self.is_whole_due, self.sent
        self.sent, self.is_whole_due = rows, False
        change = (rows.wire_entries(), ()) if is_whole else sent.change_to(rows)
        if not is_answer and not any(change):
            return
        self.number += 1
        self._is_first = is_whole
        self._chunks = _chunks(change, sizes, rows_per_message)
        self._next = next(self._chunks)

    @property
    def is_sending(self) -> bool:
        """Whether parts of the last update are to be sent: a whole table is not sent in one go."""
        return self._next is not None

    def next_updates(self, rows_max: int) -> Iterator[FilterUpdate]:
        """The next parts to send, of about so many rows; each is made when it is sent."""
        while self._next is not None and rows_max > 0:
            added, removed = self._next
            self._next = next(self._chunks, None)
            rows_max -= len(added) + len(removed)
            yield FilterUpdate(
                self.number,
                self.version,
                added,
                removed,
                self.sent.digest,
                first=self._is_first,
                last=self._next is None,
            )
            self._is_first = False

    def describe(self) -> Mapping[str, Any]:
        """How many rows it was sent, and which, as plain values."""
        return {
            "digest": self.sent.digest.hex(),
            "rows": len(self.sent),
            "scope": list(self.scope),
            "unconfirmed": self.number - self.confirmed,
        }


def _chunks(
    change: tuple[Sequence[Entry], Sequence[EntryKey]], sizes: WireSizes, rows_per_message: int
) -> Iterator[Change]:
    """A change in parts that fit into a message each; an empty one is one part."""
    added, removed = change
    times = 1 + max(len(added), len(removed)) // ROWS_IN_SMALL_PARTS
    rows_max = min(times * rows_per_message, ROWS_PER_UPDATE_MAX)
    keys_max = min(rows_max * KEYS_PER_ROW, ROWS_PER_UPDATE_MAX)
    bytes_max = min(rows_max * ROW_BYTES, BYTES_PER_UPDATE_MAX)
    rows: list[Entry] = []
    size = parts = 0
    for entry in added:
        cost = sizes.of_entry(entry)
        if rows and (len(rows) == rows_max or size + cost > bytes_max):
            yield tuple(rows), ()
            rows, size, parts = [], 0, parts + 1
            if parts % PARTS_OF_A_SIZE == 0:
                bytes_max = min(2 * bytes_max, BYTES_PER_UPDATE_MAX)
        rows.append(entry)
        size += cost
    begin = 0
    while len(removed) - begin > keys_max:
        yield (), tuple(removed[begin : begin + keys_max])
        begin += keys_max
    yield tuple(rows), tuple(removed[begin:])
