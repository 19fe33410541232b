"""Routing strategies: what a publisher is sent, given the rows of what serves it.

They are those of Rebeca (Mühl), as section 3.1 takes them up:

==========  =====================================================================================
simple      each subscription is a row of its own, under its name in the network
identity    equal filters are one row
covering    rows that another one covers are left out
perfect     rows of one conjunction each, fused where the union is again one conjunction
imperfect   rows are merged within a budget of false positives, and a bound on rows and bytes
==========  =====================================================================================

A strategy is a function of the tables that serve a publisher, in their order, and of nothing else:
`Combination.rows` (see `combination`) is that function, and remembers what it can. What a strategy
object itself remembers (the order among filters, bits and hulls) are values of pure functions: the
simulator hands one object to all nodes, and what one has worked out the others look up.

Departures: the paper puts "exactly one filter" on an edge; here it is a set of rows (row 14 of the
digest's table). Removing is the same operation as adding: each table is stored as it came, and the
shortcut "a covered filter is not forwarded" falls out of the rows being unchanged (rows 7 and 8).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from peersub.filters.filter import Filter
from peersub.overlays.core.identity import PeerId
from peersub.overlays.routing.bounded_merging import BoundedMerging
from peersub.overlays.routing.combination import Combination, Combined, Pool
from peersub.overlays.routing.control_filters import Intervals
from peersub.overlays.routing.covering_order import CoveringOrder
from peersub.overlays.routing.folding import FoldedRows
from peersub.overlays.routing.local_rows import LocalRows
from peersub.overlays.routing.messages import Entry
from peersub.overlays.routing.perfect_merging import PerfectMerging
from peersub.overlays.routing.rows import Rows, WireSizes, control_rows
from peersub.overlays.routing.topology import Reach, Scope

__all__ = ["STRATEGIES", "Strategy", "StrategySettings", "make_strategy"]

STRATEGIES: Final = ("simple", "identity", "covering", "perfect", "imperfect")


@dataclass(frozen=True, slots=True)
class StrategySettings:
    """Which strategy, and its bounds."""

    strategy: str = "covering"
    budget: float = 0.02
    """Imperfect merging: the share of the sample's events that a table may want in addition."""
    rows_max: int = 256
    """Imperfect merging: the rows that a table may have."""
    bytes_max: int = 65_536
    """Imperfect merging: the bytes that the rows of a table may take."""
    exact_reach: bool = False
    """Whether rows say where their owners are: more precise, and more to send."""
    sample: tuple[Mapping[str, Any], ...] = ()
    """Imperfect merging: attributes of events like those that will be published. Without them
    nothing can be measured: rows are then merged for the bounds only."""

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            known = ", ".join(STRATEGIES)
            raise ValueError(f"there is no strategy {self.strategy!r}; there are: {known}")
        if not 0 <= self.budget < 1:
            raise ValueError(f"budget is a share, from 0 up to 1, not {self.budget}")
        if self.rows_max < 1 or self.bytes_max < 1:
            raise ValueError("rows_max and bytes_max are at least 1")
        if self.exact_reach and self.strategy in ("perfect", "imperfect"):
            raise ValueError(
                "exact_reach goes with simple, identity and covering: a merged row has many owners"
            )

    @property
    def is_union(self) -> bool:
        """Whether a table wants what those behind the edge want: then no matter which rows say so.

        Not so where merging lets more pass, or where a row wants it for some parts only.
        """
        return self.strategy != "imperfect" and not self.exact_reach


class Strategy:
    """How rows for publishers are worked out; one object may serve all peers of a process."""

    def __init__(self, settings: StrategySettings) -> None:
        self.settings: Final = settings
        self.sizes: Final = WireSizes()
        self._order: Final = CoveringOrder()
        self._perfect: Final = PerfectMerging(self._order)
        self._bounded: Final = BoundedMerging(
            settings.budget, settings.sample, settings.rows_max, settings.bytes_max, self.sizes
        )

    @property
    def name(self) -> str:
        """What the strategy is called."""
        return self.settings.strategy

    def local(
        self,
        me: PeerId,
        subscriptions: Mapping[str, Filter],
        control: Mapping[str, Intervals],
        reach: Scope = (),
    ) -> Rows:
        """The rows of a peer's own filters: the first of the tables that are combined."""
        local = self.local_rows(me)
        for name, wanted in subscriptions.items():
            local.add(name, wanted)
        return local.rows(control_rows(control), reach)

    def local_rows(self, me: PeerId) -> LocalRows:
        """The rows of a peer's own filters, to be changed one by one."""
        is_simple = self.settings.strategy == "simple"
        return LocalRows(
            lambda name, wanted, reach: Entry(f"{me}/{name}" if is_simple else "", wanted, reach)
        )

    def combination(self, reach: Reach | None = None) -> Combination:
        """A fresh combination for one peer.

        Args:
            reach: the topology's arithmetic; needed with `exact_reach`, not used without.
        """
        return Combination(self._combined(reach))

    def _combined(self, reach: Reach | None) -> Combined:
        exact = self.settings.exact_reach
        assert reach is not None or not exact
        match self.settings.strategy:
            case "perfect":
                return FoldedRows(_joining(self._perfect.merged))
            case "imperfect":
                return FoldedRows(
                    _joining(lambda known, more: self._bounded.merged([*known, *more]))
                )
            case "covering":
                return Pool(self._order, reach if exact else None)
            case _:
                return Pool(None, reach if exact else None)


def make_strategy(settings: StrategySettings) -> Strategy:
    """The strategy that the settings name."""
    return Strategy(settings)


_Merging: TypeAlias = Callable[[Sequence[Filter], Sequence[Filter]], list[Filter]]
"""A merged table's filters and further ones, to those of the merged table of both."""


def _joining(merged: _Merging) -> Callable[[Rows | None, Rows | None], Rows]:
    """The join of two tables by a merging; what is merged already and gets nothing new stays."""

    def join(rows: Rows | None, table: Rows | None) -> Rows:
        known = {entry.filter.digest: entry for entry in rows.entries} if rows else {}
        more = {
            entry.filter.digest: entry
            for entry in (table.entries if table is not None else ())
            if entry.filter.digest not in known
        }
        if rows is not None and not more:
            return rows
        result = merged(
            [entry.filter for entry in known.values()], [entry.filter for entry in more.values()]
        )
        # Rows that were there stay the same objects: tables compare by identity first.
        return Rows(
            tuple(known.get(one.digest) or more.get(one.digest) or Entry("", one) for one in result)
        )

    return join
