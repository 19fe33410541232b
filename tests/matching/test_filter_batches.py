"""Filters against batches: who wants which row, nobody included."""

import pyarrow as pa

from peersub.filters import Filter
from peersub.matching.filter_batches import FilterBatches

CHEAP, DEAR, NEVER = Filter("price < 5"), Filter("price > 10"), Filter("price > 100")
PRICES = pa.table({"price": [1, 7, 20, 3]})


def rows_by_filter(filters, asked):
    wanted = filters.match(PRICES)
    return {number: rows.tolist() for number, rows in wanted.by_filter(filters.flags(asked))}


def test_each_filter_gets_its_rows():
    filters = FilterBatches()
    filters.use([CHEAP, DEAR, NEVER])
    assert rows_by_filter(filters, [CHEAP, DEAR, NEVER]) == {0: [0, 3], 1: [2]}


def test_filters_that_want_nothing_have_no_rows():
    filters = FilterBatches()
    filters.use([CHEAP, DEAR, NEVER])
    assert rows_by_filter(filters, [NEVER]) == {}
    assert rows_by_filter(filters, []) == {}
