"""Which edges want which events of a batch: all tables of a node against it at once.

The filters of all edges are one compiled index, those of the subscriptions of this node another: a
node that has nothing to send on, as most that an event reaches, asks about its own alone. A filter
that several edges have is asked once. The indexes follow the tables: they are immutable (`rows`),
so a look at which of them are other objects than last time tells what has changed.

Large tables change all the time, and compiling them would hold up everything else: their events are
asked one by one, of what follows each change (`Combination.wants`, the home's own matcher).
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from peersub.filters.filter import Filter
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.home import Home
from peersub.overlays.core.identity import PeerId
from peersub.overlays.routing.maintenance import FilterMaintenance
from peersub.overlays.routing.rows import Rows
from peersub.overlays.routing.topology import NOWHERE, Scope

if TYPE_CHECKING:
    import numpy as np

    from peersub.matching.filter_batches import FilterBatches, Wanted

__all__ = ["BatchRouting"]

_NAME: Final = itemgetter(0)
LARGE: Final = 4_096
"""Rows of a table, or subscriptions of this node, that are not compiled for a batch."""
PlacesPerEdge: TypeAlias = "dict[PeerId, list[int]]"
"""Per edge the places in a batch that it wants."""


class BatchRouting:
    """The compiled filters of a node's tables and of its home."""

    def __init__(self, maintenance: FilterMaintenance, home: Home) -> None:
        self._maintenance = maintenance
        self._home = home
        self._filters: FilterBatches | None = None
        self._rows: tuple[Rows, ...] = ()
        self._flags: dict[int, np.ndarray] = {}
        """Per table, by its identity: which filters are on it."""
        self._home_filters: FilterBatches | None = None
        self._home_version = -1
        self._home_flags: np.ndarray | None = None
        self._home_names: dict[int, list[str]] = {}
        """The subscriptions of this node, by the number of their filter."""

    def match(self, batch: Batch) -> Wanted | PlacesPerEdge:
        """Which filters on edges want what of the batch."""
        edges = self._maintenance.large_edges(LARGE)
        if edges:
            wanted: PlacesPerEdge = {edge: [] for edge in edges}
            for place, event in enumerate(batch.publications()):
                for edge in edges:
                    if self._maintenance.matches(edge, event, NOWHERE):
                        wanted[edge].append(place)
            return wanted
        return self._up_to_date().match(batch.table, batch.bodies)

    def at_home(self, batch: Batch) -> tuple[tuple[str, np.ndarray], ...]:
        """The subscriptions of this node that want something, and the places in the batch."""
        if not self._home.subscriptions:
            return ()
        if len(self._home.subscriptions) >= LARGE and batch.bodies is None:
            return self._home.matching_batch(batch)
        filters = self._home_up_to_date()
        assert self._home_flags is not None
        wanted = filters.match(batch.table, batch.bodies)
        names = self._home_names
        found = [
            (name, rows)
            for number, rows in wanted.by_filter(self._home_flags)
            for name in names[number]
        ]
        found.sort(key=_NAME)
        return tuple(found)

    def _home_up_to_date(self) -> FilterBatches:
        from peersub.matching.filter_batches import FilterBatches

        filters, version = self._home_filters, self._home.version
        if filters is not None and version == self._home_version:
            return filters
        if filters is None:
            filters = self._home_filters = FilterBatches()
        # By name: what is found then comes in the order of names, or nearly so.
        subscriptions = dict(sorted(self._home.subscriptions.items(), key=_NAME))
        filters.use(subscriptions.values())
        names: dict[int, list[str]] = {}
        for name, wanted in subscriptions.items():
            names.setdefault(filters.numbers[wanted.digest], []).append(name)
        self._home_names = names
        self._home_flags = filters.flags(subscriptions.values())
        self._home_version = version
        return filters

    def for_edge(
        self, wanted: Wanted | PlacesPerEdge, batch: Batch, peer: PeerId, part: Scope
    ) -> Batch | None:
        """What of the batch a filter on the edge to the peer wants, in this part; None if nothing.

        `wanted` must come from the last `match`.
        """
        import numpy as np

        table = self._maintenance.table(peer)
        if table is None or table.wants_everything:
            return batch if len(batch) else None
        if isinstance(wanted, dict):
            return batch.part(np.array(wanted[peer])) if wanted.get(peer) else None
        assert self._filters is not None
        rows, reach = table.rows, self._maintenance.reach
        if reach is None:
            flags = self._flags.get(id(rows))
            if flags is None:
                flags = self._filters.flags(entry.filter for entry in rows.entries)
                self._flags[id(rows)] = flags
        else:
            flags = self._filters.flags(
                entry.filter for entry in rows.entries if reach.meets(entry.reach, part)
            )
        found = wanted.rows_of(flags)
        return batch.part(found) if len(found) else None

    def _up_to_date(self) -> FilterBatches:
        from peersub.matching.filter_batches import FilterBatches

        rows = self._maintenance.all_rows()
        if (
            self._filters is not None
            and len(rows) == len(self._rows)
            and all(new is old for new, old in zip(rows, self._rows, strict=True))
        ):
            return self._filters
        if self._filters is None:
            self._filters = FilterBatches()
        in_use: dict[bytes, Filter] = {
            entry.filter.digest: entry.filter for table in rows for entry in table.entries
        }
        self._filters.use(in_use.values())
        self._rows = rows
        self._flags.clear()
        return self._filters
