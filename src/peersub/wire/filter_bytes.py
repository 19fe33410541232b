"""Filters by their bytes: one filter crosses many edges, and is worked out once."""

from __future__ import annotations

from typing import TypeVar

from peersub.filters.filter import Filter
from peersub.wire.errors import WireError
from peersub.wire.limits import FILTERS_REMEMBERED_MAX, REMEMBERED_FILTER_BYTES_MAX

__all__ = ["FilterMemory"]

_Value = TypeVar("_Value")


class FilterMemory:
    """The filters that were read and written last. Remembering changes no answer."""

    __slots__ = ("_bytes_of", "_filter_of")

    def __init__(self) -> None:
        self._filter_of: dict[bytes, Filter] = {}
        self._bytes_of: dict[bytes, bytes] = {}

    def filter_of(self, data: bytes) -> Filter:
        """The filter that the bytes stand for; equal bytes give the same object while remembered.

        Raises:
            WireError: they stand for none.
        """
        known = self._filter_of.get(data)
        if known is None:
            try:
                known = Filter.from_bytes(data)
            except (ValueError, RecursionError) as error:
                raise WireError(f"a filter that cannot be read: {error}") from None
            _remember(self._filter_of, data, known, len(data))
        return known

    def bytes_of(self, wanted: Filter) -> bytes:
        """The normal form of the filter."""
        digest = wanted.digest
        known = self._bytes_of.get(digest)
        if known is None:
            known = wanted.to_bytes()
            _remember(self._bytes_of, digest, known, len(known))
        return known


def _remember(memory: dict[bytes, _Value], key: bytes, value: _Value, size: int) -> None:
    if size > REMEMBERED_FILTER_BYTES_MAX:
        return
    if len(memory) >= FILTERS_REMEMBERED_MAX:
        memory.pop(next(iter(memory)))
    memory[key] = value
