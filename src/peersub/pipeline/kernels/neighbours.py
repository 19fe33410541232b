"""The profiles most similar to a profile, by f_s, among those that the look-up tables lead to.

Candidates come from the tables (`profiles`); what is said of them is exact: f_s = (P(p|q) + P(q|p))
/ 2 on the sample, by counting common bits. Order: similarity, largest first, then the number of the
profile. Law: every similarity given is that of `similarity_of_bits`; which neighbours are found is
approximate, and `recall` measures it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from peersub.pipeline.kernels.profiles import Profiles, open_profiles
from peersub.pipeline.kernels.sample_bits import binary_rows

__all__ = [
    "NEIGHBOURS",
    "exact_similarities",
    "neighbours_kernel",
    "neighbours_of",
    "recall",
    "similarities",
]

QUERIES_AT_ONCE: Final = 1_024
WINDOW: Final = 4
"""Entries looked at on each side of a profile's entry in a table."""
FEW_EVENTS_MAX: Final = 4
"""Events up to which the smallest sets with each of a profile's events are candidates too."""
_ROUNDING: Final = 1e-12
"""Sums of the same fractions may differ in their last bit."""

NEIGHBOURS: Final = pa.schema(
    {
        "first_member": pa.binary(),
        "neighbour": pa.binary(),
        "position": pa.int32(),
        "similarity": pa.float64(),
    }
)
"""A neighbour of all classes of a profile that are outside of it, 0 first."""


def similarities(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """f_s of pairs of bit rows of uint64; 0 where one is empty or they share nothing."""
    both = np.bitwise_count(first & second).sum(axis=-1, dtype=np.int64)
    one = np.bitwise_count(first).sum(axis=-1, dtype=np.int64)
    other = np.bitwise_count(second).sum(axis=-1, dtype=np.int64)
    found: np.ndarray = (both / np.maximum(one, 1) + both / np.maximum(other, 1)) / 2
    return found


def neighbours_kernel(
    batches: Iterable[pa.RecordBatch], folder: str, wanted: int
) -> Iterator[pa.RecordBatch]:
    """Per row (`share`, `shares`, `parts`) the neighbours of every `shares`-th profile."""
    for batch in batches:
        columns = (batch[name].to_pylist() for name in ("share", "shares", "parts"))
        for share, shares, parts in zip(*columns, strict=True):
            profiles = open_profiles(folder, parts)
            queries = np.arange(share, len(profiles), shares)
            # Larger groups have enough neighbours among themselves, of similarity 1.
            queries = queries[profiles.members[queries] <= wanted]
            for start in range(0, len(queries), QUERIES_AT_ONCE):
                part = queries[start : start + QUERIES_AT_ONCE]
                yield _listed(profiles, *neighbours_of(profiles, part, wanted), wanted)


def neighbours_of(
    profiles: Profiles, queries: np.ndarray, wanted: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The nearest profiles of some: query, neighbour, similarity; sorted, at most `wanted` each."""
    row, found = _distinct(queries, _candidates(profiles, queries))
    similarity = _similarity_of_numbers(profiles, queries[row], found)
    order = np.lexsort((found, -similarity, row))
    row, found, similarity = row[order], found[order], similarity[order]
    first = np.searchsorted(row, row)
    kept = (np.arange(len(row)) - first < wanted) & (similarity > 0)
    return queries[row[kept]], found[kept], similarity[kept]


def _similarity_of_numbers(profiles: Profiles, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    both = np.bitwise_count(profiles.words[first] & profiles.words[second])
    common = both.sum(axis=1, dtype=np.int64)
    found: np.ndarray = (common / profiles.events[first] + common / profiles.events[second]) / 2
    return found


def _candidates(profiles: Profiles, queries: np.ndarray) -> np.ndarray:
    """int32[queries, ...]: profiles that may be similar, -1 for none."""
    found = [table.around(queries, WINDOW) for table in profiles.tables]
    found.append(_with_few(profiles, queries))
    return np.concatenate(found, axis=1)


def _with_few(profiles: Profiles, queries: np.ndarray) -> np.ndarray:
    fewest = profiles.fewest
    found = np.full((len(queries), FEW_EVENTS_MAX, fewest.shape[1]), -1, np.int32)
    small = np.flatnonzero(profiles.events[queries] <= FEW_EVENTS_MAX)
    bits = np.unpackbits(profiles.bits[queries[small]], axis=1, bitorder="little")
    rows, places = np.nonzero(bits)
    column = np.arange(len(rows)) - np.searchsorted(rows, rows)
    found[small[rows], column] = fewest[places]
    return found.reshape(len(queries), -1)


def _distinct(queries: np.ndarray, candidates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of (place of the query, candidate), each once, without the query itself."""
    candidates = np.sort(candidates, axis=1)
    is_new = np.diff(candidates, axis=1, prepend=-1) != 0
    row, column = np.nonzero(is_new & (candidates >= 0) & (candidates != queries[:, None]))
    return row, candidates[row, column]


def _listed(
    profiles: Profiles, query: np.ndarray, found: np.ndarray, similarity: np.ndarray, wanted: int
) -> pa.RecordBatch:
    """The classes of the found profiles, the first members of each, until there are enough."""
    slots = np.minimum(profiles.members[found], profiles.digests.shape[1])
    pair = np.repeat(np.arange(len(found)), slots)
    member = np.arange(len(pair)) - np.repeat(np.cumsum(slots) - slots, slots)
    position = np.arange(len(pair)) - np.searchsorted(query[pair], query[pair])
    kept = position < wanted
    pair, member, position = pair[kept], member[kept], position[kept]
    columns = [
        binary_rows(profiles.digests[query[pair], 0]),
        binary_rows(profiles.digests[found[pair], member]),
        pa.array(position, pa.int32()),
        pa.array(similarity[pair]),
    ]
    return pa.record_batch(columns, schema=NEIGHBOURS)


def exact_similarities(asked: np.ndarray, everyone: np.ndarray, wanted: int) -> np.ndarray:
    """float64[asked, wanted]: the largest similarities of each to all, by asking all.

    Both are bit rows of uint64; where an asked row is among all, itself counts too.
    """
    best = np.zeros((len(asked), wanted))
    for row, bits in enumerate(asked):
        found = similarities(bits[None, :], everyone)
        if len(found) > wanted:
            found = np.partition(found, -wanted)[-wanted:]
        best[row, : len(found)] = np.sort(found)[::-1]
    return best


def recall(found: np.ndarray, exact: np.ndarray) -> float:
    """The share of the nearest neighbours that were found; among equally near ones any will do.

    Rows of similarities, sorted downwards and filled up with 0; both of equal width. 1 if nobody
    has a neighbour.

    >>> recall(np.array([[1.0, 0.5, 0.5]]), np.array([[1.0, 0.8, 0.5]]))
    0.6666666666666666
    """
    real = exact > 0
    due = int(real.sum())
    if not due:
        return 1.0
    last = np.where(real, exact, np.inf).min(axis=1, initial=np.inf, keepdims=True)
    nearer, as_near = found > last + _ROUNDING, np.abs(found - last) <= _ROUNDING
    places_left = (np.abs(exact - last) <= _ROUNDING).sum(axis=1)
    hits = nearer.sum(axis=1) + np.minimum(as_near.sum(axis=1), places_left)
    return float(hits.sum() / due)
