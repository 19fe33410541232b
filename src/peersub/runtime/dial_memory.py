"""`DialMemory`: what a node remembers of the addresses that it has dialled.

A node that could not be reached is not dialled again for a while, which doubles (`BACKOFF_MS`):
meanwhile the answer is the same, at once. An address may lead to a node of another name
(`localhost`, an alias): that name is remembered, so that nobody dials while the node is linked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

__all__ = ["DialMemory", "Failure"]

BACKOFF_MS: Final = (20, 50, 100, 200, 400)
"""How long a node is not dialled after the first, second, … attempt in a row that failed."""
ADDRESSES_MAX: Final = 4_096


class Failure(NamedTuple):
    """Why a node was not reached when it was last dialled."""

    in_a_row: int
    """How many failures there were since the last success."""
    until_ms: int
    """It is not dialled before."""
    reason: str
    is_refused: bool
    """Whether it stays so while the nodes are as they are."""


class DialMemory:
    """Failures and names, by address; the oldest are forgotten beyond `ADDRESSES_MAX`."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._failures: dict[str, Failure] = {}
        self._names: dict[str, str] = {}

    def failure(self, node: str) -> Failure | None:
        """Why the node is not to be dialled just now."""
        known = self._failures.get(node)
        return known if known is not None and self._now_ms() < known.until_ms else None

    def failed(self, node: str, reason: str, *, is_refused: bool) -> None:
        """Do not dial the node again at once."""
        known = self._failures.pop(node, None)
        count = known.in_a_row if known is not None else 0
        until_ms = self._now_ms() + BACKOFF_MS[min(count, len(BACKOFF_MS) - 1)]
        _make_room(self._failures)
        self._failures[node] = Failure(count + 1, until_ms, reason, is_refused)

    def linked(self, node: str) -> None:
        """The node is linked."""
        self._failures.pop(node, None)

    def name(self, address: str) -> str:
        """The name of the node that was last found at the address."""
        return self._names.get(address, address)

    def named(self, address: str, name: str) -> None:
        """The node at the address has this name."""
        self._names.pop(address, None)
        _make_room(self._names)
        self._names[address] = name


def _make_room(known: dict[str, Failure] | dict[str, str]) -> None:
    if len(known) >= ADDRESSES_MAX:
        del known[next(iter(known))]
