"""Events in columns: whether this installation can take them, and what it loads for that."""

from __future__ import annotations

from importlib.util import find_spec

from peersub.filters.filter import Filter

__all__ = ["has_columns", "load_columns"]


def has_columns() -> bool:
    """Whether this installation can take events in columns."""
    return all(find_spec(name) is not None for name in ("numba", "numpy", "pyarrow"))


def load_columns() -> None:
    """Load all that matches events in columns."""
    import pyarrow as pa

    from peersub.matching.filter_batches import FilterBatches

    filters = FilterBatches()
    filters.use([Filter("price > 1 AND symbol = 'A'")])
    filters.match(pa.table({"price": [1.5, 2.0], "symbol": ["A", "B"]}))
