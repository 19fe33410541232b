"""Text tests (general LIKE, RLIKE) on the conjuncts that an index found.

The index checks what is an interval; a conjunct with text tests is a candidate until they are done.
For a batch each distinct test runs once, on the strings of the events that need it, inside Arrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from peersub.events.arrow import rows_of_table
from peersub.events.kinds import KindClass, comparable, value_at
from peersub.filters.boxes import FALSE, TRUE, UNDEFINED, box_matches
from peersub.filters.patterns import TextTest
from peersub.matching.arrow_columns import string_column
from peersub.matching.conjunct_builder import NO_RESIDUAL
from peersub.matching.packed_conjuncts import PackedConjuncts

__all__ = ["conjuncts_that_hold", "has_residue", "pairs_that_hold"]


def conjuncts_that_hold(
    encoded: PackedConjuncts, conjuncts: np.ndarray, attributes: Mapping[str, Any]
) -> np.ndarray:
    """Those of an event's candidates whose text tests come out as demanded."""
    if not has_residue(encoded) or not len(conjuncts):
        return conjuncts
    kept = [
        conjunct
        for conjunct in conjuncts.tolist()
        if _tests_hold(encoded, conjunct, attributes)
        and _residual_box_holds(encoded, conjunct, attributes)
    ]
    return np.array(kept, np.int32)


def has_residue(encoded: PackedConjuncts) -> bool:
    """Whether anything is left to be checked for any conjunct."""
    return bool(encoded.tests or encoded.residual_boxes)


def _tests_hold(encoded: PackedConjuncts, conjunct: int, attributes: Mapping[str, Any]) -> bool:
    if not encoded.tests:
        return True
    first, last = encoded.conjunct_test_offsets[conjunct : conjunct + 2].tolist()
    return all(
        _outcome(encoded.tests[encoded.test_numbers[place]], attributes)
        & int(encoded.test_truths[place])
        for place in range(first, last)
    )


def _residual_box_holds(
    encoded: PackedConjuncts, conjunct: int, attributes: Mapping[str, Any]
) -> bool:
    if not encoded.residual_boxes:
        return True
    box = int(encoded.residual[conjunct])
    return box == NO_RESIDUAL or box_matches(encoded.residual_boxes[box], attributes)


def _outcome(test: TextTest, attributes: Mapping[str, Any]) -> int:
    place = comparable(value_at(attributes, test.path))
    if place is None or place[0] is not KindClass.STRING:
        return UNDEFINED
    return TRUE if test.holds(place[1]) else FALSE


def pairs_that_hold(
    encoded: PackedConjuncts,
    rows: np.ndarray,
    conjuncts: np.ndarray,
    table: pa.Table,
    start: int,
) -> np.ndarray:
    """bool[pairs]: which candidates, an event's row in a slice and a conjunct, pass their tests.

    `start` is the slice's first row.
    """
    holds = np.ones(len(conjuncts), bool)
    _check_tests(encoded, rows, conjuncts, table, start, holds)
    _check_residual_boxes(encoded, rows, conjuncts, table, start, holds)
    return holds


def _check_tests(
    encoded: PackedConjuncts,
    rows: np.ndarray,
    conjuncts: np.ndarray,
    table: pa.Table,
    start: int,
    holds: np.ndarray,
) -> None:
    if not encoded.tests:
        return
    offsets = encoded.conjunct_test_offsets
    counts = (offsets[conjuncts + 1] - offsets[conjuncts]).astype(int)
    if not counts.any():
        return
    # One line per candidate and test: which pair, which test, what it must come out as.
    pair = np.repeat(np.arange(len(conjuncts)), counts)
    first = encoded.conjunct_test_offsets[conjuncts]
    place = np.repeat(first, counts) + _ranks(counts)
    tests, truths = encoded.test_numbers[place], encoded.test_truths[place]
    order = np.argsort(tests, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(tests[order])) + 1):
        test = encoded.tests[tests[group[0]]]
        outcomes = _outcomes(test, table, start, rows[pair[group]])
        holds[pair[group[(outcomes & truths[group]) == 0]]] = False


def _check_residual_boxes(
    encoded: PackedConjuncts,
    rows: np.ndarray,
    conjuncts: np.ndarray,
    table: pa.Table,
    start: int,
    holds: np.ndarray,
) -> None:
    """Boxes that no conjuncts could express, asked one by one. They are rare."""
    if not encoded.residual_boxes:
        return
    pairs = np.flatnonzero((encoded.residual[conjuncts] != NO_RESIDUAL) & holds)
    needed = np.unique(rows[pairs])
    events = dict(
        zip(needed.tolist(), rows_of_table(table.take(pa.array(start + needed))), strict=True)
    )
    for pair in pairs.tolist():
        conjunct = int(conjuncts[pair])
        holds[pair] = _residual_box_holds(encoded, conjunct, events[int(rows[pair])])


def _ranks(counts: np.ndarray) -> np.ndarray:
    """0, 1, ... within each group of the given sizes."""
    ends = np.cumsum(counts)
    ranks: np.ndarray = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
    return ranks


def _outcomes(test: TextTest, table: pa.Table, start: int, rows: np.ndarray) -> np.ndarray:
    """The outcome of one test for some rows of a slice."""
    distinct: np.ndarray
    distinct, back = np.unique(rows, return_inverse=True)
    texts = string_column(table, test.path, start + distinct)
    found = pc.match_substring_regex(texts, test.expression())
    outcomes: np.ndarray = np.where(
        pc.fill_null(found, False).to_numpy(zero_copy_only=False), TRUE, FALSE
    )
    outcomes[texts.is_null().to_numpy(zero_copy_only=False)] = UNDEFINED
    return np.take(outcomes, back)
