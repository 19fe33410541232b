"""Conjunctions of predicates in code space: what an index is built from.

An event is a row of int32 codes, one per slot (a slot is an attribute together with a class of
kinds); -1 means absent. The codes of a slot run from 0 to its count less one, in the order of the
values they stand for, so that a comparison is a closed interval of codes and anything else is a
sorted set of disjoint closed intervals. A predicate on an absent slot does not hold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class ConjunctTable:
    """Conjunctions of predicates in code space, as compressed sparse rows.

    The predicates of conjunct ``c`` are the positions ``offsets[c]:offsets[c + 1]`` of ``slots``,
    ``low``, ``high`` and ``value_set``, at most one per slot; a conjunct without predicates holds
    for every event. ``low`` and ``high`` are the closed bounds of the hull of a predicate. It is
    exact where ``value_set`` is -1; elsewhere ``value_set`` is a row of the set table, whose
    intervals are ``set_offsets[row]:set_offsets[row + 1]`` of ``set_low`` and ``set_high``.
    """

    code_counts: np.ndarray
    """int32[slots]: the codes of slot ``s`` are ``0..code_counts[s] - 1``."""
    offsets: np.ndarray
    """int64[conjuncts + 1]"""
    slots: np.ndarray
    """int32[predicates]"""
    low: np.ndarray
    """int32[predicates]"""
    high: np.ndarray
    """int32[predicates]"""
    value_set: np.ndarray
    """int32[predicates]"""
    set_offsets: np.ndarray
    """int64[sets + 1]"""
    set_low: np.ndarray
    """int32[intervals], ascending within a set"""
    set_high: np.ndarray
    """int32[intervals]"""

    @property
    def conjuncts(self) -> int:
        """How many conjuncts the table holds."""
        return len(self.offsets) - 1

    @property
    def slot_count(self) -> int:
        """How many slots an event row has."""
        return len(self.code_counts)
