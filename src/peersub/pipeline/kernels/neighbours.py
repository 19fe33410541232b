"""The profiles most similar to a profile, by f_s: look-up tables first, then neighbours of
neighbours.

Round 0 takes candidates from the tables (`profiles`) and keeps the nearest KEPT of them per
profile. Each further round looks at these and at theirs: who is near to a near one is likely to be
near (Dong, Moses and Li, WWW 2011). A round needs all lists of the one before; each share of the
profiles is a file, and a round begins when the last file of the one before is written.

What is said of candidates is exact: f_s = (P(p|q) + P(q|p)) / 2 on the sample, by counting common
bits. Order: similarity, largest first, then the number of the profile. Law: every similarity given
is that of `similarity_of_bits`; which neighbours are found is approximate: `recall` measures it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from peersub.pipeline.kernels.profiles import Profiles, open_profiles
from peersub.pipeline.kernels.sample_bits import binary_rows
from peersub.pipeline.kernels.whole_files import stamp_of, whole_file

__all__ = [
    "NEIGHBOURS",
    "TASKS",
    "exact_similarities",
    "nearest",
    "neighbours_kernel",
    "recall",
    "round_kernel",
    "similarities",
]

KEPT: Final = 16
"""Neighbours that a profile has between rounds, also where fewer are asked for."""
LISTS_OPEN_MAX: Final = 1

QUERIES_AT_ONCE: Final = 1_024
WINDOW: Final = 4
"""Entries looked at on each side of a profile's entry in a table."""
FEW_EVENTS_MAX: Final = 4
"""Events up to which the smallest sets with each of a profile's events are candidates too."""
_ROUNDING: Final = 1e-12
"""Sums of the same fractions may differ in their last bit."""

TASKS: Final = pa.schema({"share": pa.int32(), "shares": pa.int32(), "parts": pa.list_(pa.int32())})
"""A task is every `shares`-th profile from `share` on, of the profiles in these parts."""
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


def round_kernel(
    batches: Iterable[pa.RecordBatch], folder: str, number: int
) -> Iterator[pa.RecordBatch]:
    """Per row of TASKS: write one share of the lists of a round; the rows come back as they are."""
    for batch in batches:
        for share, shares, parts in _tasks(batch):
            profiles = open_profiles(folder, parts)
            lists = _round_lists(profiles, folder, number, share, shares)
            with whole_file(_lists_path(folder, number, share)) as file:
                np.save(file, lists)
        yield batch.select(TASKS.names)


def neighbours_kernel(
    batches: Iterable[pa.RecordBatch], folder: str, rounds: int, wanted: int
) -> Iterator[pa.RecordBatch]:
    """Per row of TASKS: the neighbours of one share of the profiles, after all rounds."""
    for batch in batches:
        for share, shares, parts in _tasks(batch):
            profiles = open_profiles(folder, parts)
            lists = open_lists(folder, rounds, shares, len(profiles))
            queries = np.arange(share, len(profiles), shares)
            # Larger groups have enough neighbours among themselves, of similarity 1.
            queries = queries[profiles.members[queries] <= wanted]
            for start in range(0, len(queries), QUERIES_AT_ONCE):
                part = queries[start : start + QUERIES_AT_ONCE]
                yield _listed(profiles, *nearest(profiles, part, lists[part], wanted), wanted)


def _tasks(batch: pa.RecordBatch) -> Iterator[tuple[int, int, list[int]]]:
    return zip(*(batch[name].to_pylist() for name in TASKS.names), strict=True)


def _round_lists(
    profiles: Profiles, folder: str, number: int, share: int, shares: int
) -> np.ndarray:
    """int32[profiles of the share, KEPT]: the nearest so far, -1 where there are fewer."""
    before = None if number == 0 else open_lists(folder, number - 1, shares, len(profiles))
    queries = np.arange(share, len(profiles), shares)
    lists = np.full((len(queries), KEPT), -1, np.int32)
    for start in range(0, len(queries), QUERIES_AT_ONCE):
        part = queries[start : start + QUERIES_AT_ONCE]
        candidates = looked_up(profiles, part) if before is None else two_steps(before, part)
        query, found, _ = nearest(profiles, part, candidates, KEPT)
        row = start + np.searchsorted(part, query)
        lists[row, np.arange(len(row)) - np.searchsorted(row, row)] = found
    return lists


def two_steps(lists: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """int32[queries, ...]: the neighbours so far, and theirs."""
    near = lists[queries]
    further = np.where(near[:, :, None] >= 0, lists[near], -1)
    return np.concatenate((near, further.reshape(len(queries), -1)), axis=1)


def _lists_path(folder: str, number: int, share: int) -> Path:
    return Path(folder) / f"round-{number}-share-{share:05d}.npy"


_opened: OrderedDict[tuple[object, ...], np.ndarray] = OrderedDict()


def open_lists(folder: str, number: int, shares: int, count: int) -> np.ndarray:
    """int32[profiles, KEPT]: the lists of a round; kept while they are in use."""
    paths = [_lists_path(folder, number, share) for share in range(shares)]
    key = tuple((str(path), stamp_of(path)) for path in paths)
    lists = _opened.pop(key, None)
    if lists is None:
        lists = np.full((count, KEPT), -1, np.int32)
        for share, path in enumerate(paths):
            lists[share::shares] = np.load(path)
    _opened[key] = lists
    while len(_opened) > LISTS_OPEN_MAX:
        _opened.popitem(last=False)
    return lists


def nearest(
    profiles: Profiles, queries: np.ndarray, candidates: np.ndarray, kept: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The nearest of the candidates: query, neighbour, similarity; sorted, at most `kept` each."""
    row, found = _distinct(queries, candidates)
    similarity = _similarity_of_numbers(profiles, queries[row], found)
    # Stable: pairs come in the order of (row, found), which decides among equals.
    order = np.lexsort((-similarity, row))
    row, found, similarity = row[order], found[order], similarity[order]
    is_near = (np.arange(len(row)) - np.searchsorted(row, row) < kept) & (similarity > 0)
    return queries[row[is_near]], found[is_near], similarity[is_near]


def _similarity_of_numbers(profiles: Profiles, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    both = np.bitwise_count(profiles.words[first] & profiles.words[second])
    common = both.sum(axis=1, dtype=np.int64)
    found: np.ndarray = (common / profiles.events[first] + common / profiles.events[second]) / 2
    return found


def looked_up(profiles: Profiles, queries: np.ndarray) -> np.ndarray:
    """int32[queries, ...]: what the look-up tables lead to, -1 for none."""
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
