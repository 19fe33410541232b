"""`Fold`: values of a peer's sources, joined one by one in the order in which they serve.

Rows for control notifications are joined so under every strategy, and rows for events under
strategies that make new rows out of those of two tables (`FoldedRows`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.publication import Publication
from peersub.overlays.routing.control_filters import united
from peersub.overlays.routing.rows import ControlRows, Rows
from peersub.overlays.routing.topology import Scope

__all__ = ["Fold", "FoldedRows", "Source", "joined_control"]

Source: TypeAlias = PeerId | None
"""An edge; None is the peer's own filters."""

FOLDS_MAX: Final = 4_096
"""Prefixes of served edges for which a fold is kept."""

T = TypeVar("T")


class Fold(Generic[T]):
    """Values of sources, joined one by one in the order in which they serve.

    The join begins with the value of the own filters. It may be given None for "nothing".
    """

    __slots__ = ("_join", "_prefixes", "_values")

    def __init__(self, join: Callable[[T | None, T | None], T]) -> None:
        self._join = join
        self._values: dict[Source, T] = {}
        self._prefixes: dict[tuple[PeerId, ...], T] = {}

    def replace(self, source: Source, value: T | None) -> None:
        """The value of a source changes; None if it is gone."""
        if value is None:
            self._values.pop(source, None)
        else:
            self._values[source] = value
        if source is None:
            self._prefixes.clear()
            return
        for prefix in [prefix for prefix in self._prefixes if source in prefix]:
            del self._prefixes[prefix]

    def folded(self, served: Sequence[PeerId]) -> T:
        """The join over these edges."""
        served = tuple(served)
        known = len(served)
        while known and served[:known] not in self._prefixes:
            known -= 1
        value = self._prefixes.get(served[:known])
        if value is None:
            value = self._join(None, self._values.get(None))
            self._keep((), value)
        for end in range(known, len(served)):
            value = self._join(value, self._values.get(served[end]))
            self._keep(served[: end + 1], value)
        return value

    def _keep(self, prefix: tuple[PeerId, ...], value: T) -> None:
        if len(self._prefixes) >= FOLDS_MAX:
            self._prefixes.clear()
        self._prefixes[prefix] = value


class FoldedRows:
    """Rows for events under a strategy that makes new rows out of those of two tables."""

    follows_changes = False
    __slots__ = ("_fold",)

    def __init__(self, join: Callable[[Rows | None, Rows | None], Rows]) -> None:
        self._fold: Fold[Rows] = Fold(join)

    @property
    def is_complete(self) -> bool:
        """Whether all that has changed was taken in: always, a fold is worked out when asked."""
        return True

    def replace(self, source: Source, old: Rows, new: Rows) -> None:
        """The rows of a source change."""
        if not new.has_entries_of(old):
            self._fold.replace(source, new.without_control() if new.entry_count else None)

    def work(self, rows_max: int | None) -> dict[Source, None]:
        """Nothing is left to take in."""
        return {}

    @property
    def is_indexed(self) -> bool:
        """Whether `wants` knows: merged rows are in no index."""
        return False

    def wants(self, source: Source, publication: Publication) -> bool | None:
        """Only the table knows."""
        return None

    def rows(self, served: Sequence[PeerId], scope: Scope, since: Rows | None = None) -> Rows:
        """The rows for who is served by these edges."""
        return self._fold.folded(served)


def joined_control(rows: ControlRows | None, table: ControlRows | None) -> ControlRows:
    """The rows for control notifications of both: per name, the united intervals."""
    if not rows or not table or rows is table:
        return rows or table or ()
    joined = dict(rows)
    for name, intervals in table:
        joined[name] = united(joined.get(name, ()), intervals)
    return tuple((name, joined[name]) for name in sorted(joined))
