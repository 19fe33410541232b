"""Profiles: the distinct sets of sample events that classes match, and look-up tables over them.

Profiles are written in parts by several workers and read as one by each. Numbers are places in the
order of (events, first member's digest), so that they do not depend on who wrote what. A *look-up
table* has a key per profile and is sorted by key and number: profiles that share a key are
neighbours in it, and a window around each bounds what is looked at however large a bucket is.
Because numbers grow with the number of events, windows hold sets of similar size.

* **MinHash bands** (Broder 1997; banding after Indyk and Motwani): under a random order of the
  events, two sets have the same first event with a probability equal to their Jaccard similarity.
  A band's key joins one, two or four such firsts: the more, the more alike must two sets be.
* **Fewest**: per event the smallest sets that contain it, for small sets with no near relatives.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from peersub.pipeline.kernels.whole_files import stamp_of, whole_file

__all__ = ["DIGEST_BYTES", "LookupTable", "Profiles", "open_profiles", "write_part"]

DIGEST_BYTES: Final = 16
HASHES: Final = 32
"""Random orders of the events."""
BANDS: Final = ((1, 4), (2, 12), (4, 8))
"""Firsts that a band's key joins, and how many such bands."""
FEWEST: Final = 16
"""Smallest sets kept per event."""
PROFILES_OPEN_MAX: Final = 1
SPARSE_MAX: Final = 96
"""Events up to which listing them is quicker than looking at all bits."""
ROWS_AT_ONCE: Final = 4_096
SEED: Final = 20050830
"""Of the random orders; any will do, if all workers use the same."""


def write_part(profiles: pa.Table, part: int, folder: str | Path) -> int:
    """Write profiles (`profile`, `first_members`, `members`) as one part; how many they are.

    Writing it again, by whoever, gives the same file, which appears whole or not at all.
    """
    bits = _rows_of_bytes(profiles["profile"].to_pylist())
    first = profiles["first_members"].to_pylist()
    width = max(map(len, first), default=0)
    digests = np.zeros((len(first), width, DIGEST_BYTES), np.uint8)
    for row, some in enumerate(first):
        digests[row, : len(some)] = _rows_of_bytes(some)
    members = np.array(profiles["members"].to_pylist(), np.int64)
    signatures = signatures_of(bits)
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    with whole_file(_path_of(folder, part)) as file:
        np.savez(file, bits=bits, digests=digests, members=members, signatures=signatures)
    return len(bits)


def _path_of(folder: str | Path, part: int) -> Path:
    return Path(folder) / f"part-{part:05d}.npz"


def _rows_of_bytes(rows: Sequence[bytes]) -> np.ndarray:
    width = len(rows[0]) if rows else 0
    return np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), width)


def signatures_of(bits: np.ndarray) -> np.ndarray:
    """uint16[profiles, HASHES]: the place of the first event of each set in each random order."""
    events = bits.shape[1] * 8
    random = np.random.default_rng(SEED)
    orders = [random.permutation(events) for _ in range(HASHES)]
    signatures = np.zeros((len(bits), HASHES), np.uint16)
    for start in range(0, len(bits), ROWS_AT_ONCE):
        block = np.unpackbits(bits[start : start + ROWS_AT_ONCE], axis=1, bitorder="little")
        is_sparse = block.sum(axis=1) <= SPARSE_MAX
        dense, sparse = np.flatnonzero(~is_sparse), np.flatnonzero(is_sparse)
        rows, places = np.nonzero(block[sparse])
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        for number, order in enumerate(orders):
            if len(dense):
                signatures[start + dense, number] = block[dense][:, order].argmax(axis=1)
            if len(starts):
                ranks = np.argsort(order).astype(np.uint16)
                firsts = np.minimum.reduceat(ranks[places], starts)
                signatures[start + sparse[rows[starts]], number] = firsts
    return signatures


@dataclass(frozen=True, slots=True)
class LookupTable:
    """Profiles sorted by a key."""

    keys: np.ndarray
    """uint64[profiles]: the keys, growing."""
    profiles: np.ndarray
    """int32[profiles]: whose keys they are."""
    positions: np.ndarray
    """int32[profiles]: where the key of each profile is."""

    @classmethod
    def of(cls, keys: np.ndarray) -> LookupTable:
        """The table of the keys of all profiles."""
        order = np.argsort(keys, kind="stable").astype(np.int32)
        positions = np.empty(len(order), np.int32)
        positions[order] = np.arange(len(order), dtype=np.int32)
        return cls(keys[order], order, positions)

    def around(self, queries: np.ndarray, window: int) -> np.ndarray:
        """int32[queries, 2 * window]: the next profiles on both sides with the same key, or -1."""
        steps = np.array([*range(-window, 0), *range(1, window + 1)])
        at = self.positions[queries]
        places = at[:, None] + steps
        inside = np.clip(places, 0, len(self.keys) - 1)
        alike = (inside == places) & (self.keys[inside] == self.keys[at][:, None])
        found: np.ndarray = np.where(alike, self.profiles[inside], -1)
        return found


def _arrays_of(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as arrays:
        return dict(arrays)


def _stacked(digests: list[np.ndarray]) -> np.ndarray:
    """The first members of all parts; parts differ in how many their largest group has."""
    width = max(part.shape[1] for part in digests)
    stacked = np.zeros((sum(map(len, digests)), width, DIGEST_BYTES), np.uint8)
    start = 0
    for part in digests:
        stacked[start : start + len(part), : part.shape[1]] = part
        start += len(part)
    return stacked


class Profiles:
    """All profiles, and the tables that lead from one to those that may be similar."""

    def __init__(self, parts: Iterable[Path]) -> None:
        loaded = [_arrays_of(part) for part in parts]
        bits = np.concatenate([part["bits"] for part in loaded])
        digests = _stacked([part["digests"] for part in loaded])
        events = np.bitwise_count(bits).sum(axis=1, dtype=np.int32)
        first = np.ascontiguousarray(digests[:, 0]).view(">u8")
        order = np.lexsort((first[:, 1], first[:, 0], events))
        self.events: np.ndarray = events[order]
        self.bits: np.ndarray = np.ascontiguousarray(bits[order])
        self.digests: np.ndarray = digests[order]
        self.members: np.ndarray = np.concatenate([part["members"] for part in loaded])[order]
        self._signatures = np.concatenate([part["signatures"] for part in loaded])[order]

    def __len__(self) -> int:
        return len(self.bits)

    @cached_property
    def words(self) -> np.ndarray:
        """uint64[profiles, events / 64]: the bits, to be counted."""
        return self.bits.view(np.uint64)

    @cached_property
    def tables(self) -> list[LookupTable]:
        """The MinHash bands."""
        tables = []
        random = np.random.default_rng(SEED + 1)
        for joined, count in BANDS:
            for _ in range(count):
                keys = np.zeros(len(self), np.uint64)
                for number in random.choice(HASHES, joined, replace=False):
                    keys = (keys << np.uint64(16)) | self._signatures[:, number]
                tables.append(LookupTable.of(keys))
        return tables

    @cached_property
    def fewest(self) -> np.ndarray:
        """int32[events, FEWEST]: per event the smallest profiles with it, -1 where there are
        fewer.
        """
        events = self.bits.shape[1] * 8
        found = np.full((events, FEWEST), -1, np.int32)
        filled = np.zeros(events, np.int64)
        for start in range(0, len(self), ROWS_AT_ONCE):
            open_events = np.flatnonzero(filled < FEWEST)
            if not len(open_events):
                break
            block = np.unpackbits(
                self.bits[start : start + ROWS_AT_ONCE], axis=1, bitorder="little"
            )
            for event in open_events[block[:, open_events].any(axis=0)]:
                rows = np.flatnonzero(block[:, event])[: FEWEST - filled[event]]
                found[event, filled[event] : filled[event] + len(rows)] = start + rows
                filled[event] += len(rows)
        return found


_opened: OrderedDict[tuple[object, ...], Profiles] = OrderedDict()


def open_profiles(folder: str, parts: Sequence[int]) -> Profiles:
    """The profiles in some parts below a folder; kept while they are in use."""
    paths = [_path_of(folder, part) for part in parts]
    key = tuple((str(path), stamp_of(path)) for path in paths)
    profiles = _opened.pop(key, None)
    if profiles is None:
        profiles = Profiles(paths)
    _opened[key] = profiles
    while len(_opened) > PROFILES_OPEN_MAX:
        _opened.popitem(last=False)
    return profiles
