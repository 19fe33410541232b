"""The identifiers of a file's events, the same through every door (`events.envelope`).

Identifiers are made for the rows that are asked for, which is much less work than for all of them:
equal rows match equal filters, so numbering the equal rows among those that matched gives the same
`#k` as numbering all of them would. Invariant: `names` asked for all rows equals `row_identifiers`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from peersub.events.arrow import values_of_column
from peersub.events.envelope import IDENTIFIER_BYTES_MAX, feed_content, identifier_of
from peersub.events.kinds import is_missing

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["EventNames", "content_hashes", "given_names", "identifier_problem", "rows_chosen"]

IDENTIFIER_COLUMN = "id"


class EventNames:
    """Names the events of one file, batch after batch.

    It remembers the hash of each row that it named by content, about 150 bytes a row: equal rows
    may lie far apart. Rows with an `id` cost nothing.
    """

    def __init__(self) -> None:
        self._repeated: dict[str, int] = {}

    def names(self, table: pa.Table, rows: Sequence[int] | None = None) -> list[str]:
        """The identifiers of some rows of a batch, in the order of the file; of all by default.

        Rows that are equal must be asked for together, and each row once.

        Raises:
            ValueError: an `id` is too long.
        """
        if rows is not None:
            table = rows_chosen(table, rows)
        given = given_names(table)
        problem = next((p for name in given if (p := identifier_problem(name))), None)
        if problem is not None:
            raise ValueError(problem)
        unnamed = [row for row, name in enumerate(given) if name is None]
        if unnamed:
            part = table if len(unnamed) == len(given) else rows_chosen(table, unnamed)
            for row, digest in zip(unnamed, content_hashes(part), strict=True):
                given[row] = self._numbered(digest)
        return given  # type: ignore[return-value]

    def _numbered(self, digest: str) -> str:
        count = self._repeated.get(digest, 0)
        self._repeated[digest] = count + 1
        return digest if count == 0 else f"{digest}#{count}"


def rows_chosen(table: pa.Table, rows: Sequence[int]) -> pa.Table:
    """Some rows of a table, which may have no columns."""
    import pyarrow as pa

    if not table.num_columns:
        return table.slice(0, len(rows))  # taking from no columns gives no rows
    return table.take(pa.array(rows, pa.int64()))


def given_names(table: pa.Table) -> list[str | None]:
    """The `id` of each row, as text; None where there is none."""
    if IDENTIFIER_COLUMN not in table.column_names:
        return [None] * table.num_rows
    return [identifier_of(value) for value in values_of_column(table.column(IDENTIFIER_COLUMN))]


def identifier_problem(name: str | None) -> str | None:
    """Why an identifier cannot be one; None if it can."""
    # Four bytes a character at most: only then is it worth counting them.
    if name is None or len(name) <= IDENTIFIER_BYTES_MAX // 4:
        return None
    size = len(name.encode("utf-8", "surrogatepass"))
    if size <= IDENTIFIER_BYTES_MAX:
        return None
    return (
        f"an event id has 1 to {IDENTIFIER_BYTES_MAX} bytes, this one has {size}: "
        f"{name[:80]!r}. Shorten it, or name the column otherwise"
    )


def content_hashes(table: pa.Table) -> list[str]:
    """`content_hash` of each row, made column by column: a repeated value is spelled out once."""
    names = sorted(table.column_names)
    spelled = [_spelled(values_of_column(table.column(name))) for name in names]
    headings = [_content(name) or b"" for name in names]
    hashes = []
    for row in range(table.num_rows):
        parts = [b""]
        for heading, column in zip(headings, spelled, strict=True):
            content = column[row]
            if content is not None:
                parts += (heading, content)
        parts[0] = b"{%d" % (len(parts) // 2)
        hashes.append(hashlib.blake2b(b"".join(parts), digest_size=16).hexdigest())
    return hashes


def _spelled(values: list[Any]) -> list[bytes | None]:
    """What each value of a column adds to the content of its row; None if it is missing."""
    types = set(map(type, values)) - {type(None)}
    if len(types) == 1 and types <= {str, int, float, bool}:
        known = {value: _content(value) for value in set(values)}
        return [known.get(value) for value in values]  # NaN is not equal to itself: missing
    return [_content(value) for value in values]


def _content(value: object) -> bytes | None:
    if is_missing(value):
        return None
    collected = _Collected()
    feed_content(collected, value)
    return b"".join(collected.parts)


class _Collected:
    """Stands in for a digest and keeps what it is given."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.update = self.parts.append
