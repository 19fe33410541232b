"""The compiled index against plain evaluation: the numbers of the conjuncts, not their count."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from peersub.matching import compiled
from peersub.matching.compiled import CompiledIndex, expand
from peersub.matching.conjuncts import ConjunctTable
from peersub.matching.kernels import batches, events

Intervals = list[tuple[int, int]]
Conjunct = dict[int, Intervals]
"""Slot to its closed intervals; one interval is a plain predicate, more are a value set."""


def table_of(
    code_counts: list[int], conjuncts: list[Conjunct], always_sets: bool = False
) -> ConjunctTable:
    offsets, slots, low, high, value_set = [0], [], [], [], []
    set_offsets, set_low, set_high = [0], [], []
    for conjunct in conjuncts:
        for slot, intervals in conjunct.items():
            slots.append(slot)
            low.append(intervals[0][0])
            high.append(intervals[-1][1])
            if len(intervals) > 1 or always_sets:
                value_set.append(len(set_offsets) - 1)
                set_low.extend(bottom for bottom, _ in intervals)
                set_high.extend(top for _, top in intervals)
                set_offsets.append(len(set_low))
            else:
                value_set.append(-1)
        offsets.append(len(slots))
    return ConjunctTable(
        code_counts=np.array(code_counts, np.int32),
        offsets=np.array(offsets, np.int64),
        slots=np.array(slots, np.int32),
        low=np.array(low, np.int32),
        high=np.array(high, np.int32),
        value_set=np.array(value_set, np.int32),
        set_offsets=np.array(set_offsets, np.int64),
        set_low=np.array(set_low, np.int32),
        set_high=np.array(set_high, np.int32),
    )


def expected(conjuncts: list[Conjunct], row: list[int]) -> list[int]:
    return [
        number
        for number, conjunct in enumerate(conjuncts)
        if all(
            row[slot] >= 0 and any(bottom <= row[slot] <= top for bottom, top in intervals)
            for slot, intervals in conjunct.items()
        )
    ]


def rows_of(result: tuple[np.ndarray, np.ndarray]) -> list[list[int]]:
    offsets, found = result
    assert offsets[-1] == len(found)
    return [sorted(found[a:b].tolist()) for a, b in itertools.pairwise(offsets)]


def check(
    code_counts: list[int],
    conjuncts: list[Conjunct],
    codes: np.ndarray,
    sample: np.ndarray | None = None,
    always_sets: bool = False,
) -> CompiledIndex:
    """Both engines on the batch, and single events, give what plain evaluation gives."""
    index = CompiledIndex.build(table_of(code_counts, conjuncts, always_sets), sample)
    wanted = [expected(conjuncts, row) for row in codes.tolist()]
    assert rows_of(by_block(index, codes)) == wanted
    assert rows_of(by_event(index, codes)) == wanted
    assert rows_of(index.match(codes)) == wanted
    for row, numbers in list(zip(codes, wanted, strict=True))[:20]:
        assert sorted(index.match_one(row).tolist()) == numbers
    return index


def by_block(index: CompiledIndex, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The engine for large batches, whatever the size of this one."""
    offsets = np.zeros(len(codes) + 1, np.int64)
    found = index._match_block(codes, offsets)
    assert found is not None
    return offsets, found


def by_event(index: CompiledIndex, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The engine for small batches, whatever the size of this one."""
    offsets = np.zeros(len(codes) + 1, np.int64)
    found = index._match_events(codes, len(codes), offsets, offsets.ctypes.data)
    return offsets, found


def random_events(
    rng: np.random.Generator, code_counts: list[int], rows: int, presence: float
) -> np.ndarray:
    codes = rng.integers(0, code_counts, (rows, len(code_counts)))
    codes[rng.random(codes.shape) > presence] = -1
    return codes.astype(np.int32)


def near_the_bounds(
    rng: np.random.Generator, conjuncts: list[Conjunct], codes: np.ndarray, code_counts: list[int]
) -> np.ndarray:
    """The same events with most codes moved to a bound of some predicate, or next to it."""
    bounds: dict[int, list[int]] = {}
    for conjunct in conjuncts:
        for slot, intervals in conjunct.items():
            bounds.setdefault(slot, []).extend(end for pair in intervals for end in pair)
    moved = codes.copy()
    for slot, ends in bounds.items():
        near = rng.choice(ends, len(codes)) + rng.integers(-1, 2, len(codes))
        chosen = (codes[:, slot] >= 0) & (rng.random(len(codes)) < 0.8)
        moved[chosen, slot] = np.clip(near, 0, code_counts[slot] - 1)[chosen]
    return moved


def random_intervals(rng: np.random.Generator, code_count: int, sets: bool) -> Intervals:
    parts = int(rng.integers(2, 6)) if sets and code_count > 20 else 1
    ends = np.unique(rng.integers(0, code_count, 2 * parts))
    if rng.random() < 0.3 or len(ends) < 2:
        return [(int(end), int(end)) for end in ends[::2][:parts]]
    return [(int(a), int(b)) for a, b in zip(ends[::2], ends[1::2], strict=False)]


def random_conjuncts(
    rng: np.random.Generator, code_counts: list[int], count: int, predicates_max: int
) -> list[Conjunct]:
    conjuncts = []
    for _ in range(count):
        slots = rng.permutation(len(code_counts))[: rng.integers(0, predicates_max + 1)]
        conjuncts.append(
            {int(s): random_intervals(rng, code_counts[s], rng.random() < 0.3) for s in slots}
        )
    return conjuncts


@st.composite
def tables(draw: Any) -> tuple[list[int], list[Conjunct], list[list[int]]]:
    code_counts = draw(st.lists(st.sampled_from([1, 2, 7, 255, 256, 5000, 70_000]), max_size=6))

    def intervals(code_count: int) -> st.SearchStrategy[Intervals]:
        code = st.one_of(st.integers(0, code_count - 1), st.integers(0, min(code_count, 4) - 1))
        ends = st.lists(code, min_size=1, max_size=9, unique=True).map(sorted)
        ranges = ends.map(lambda e: list(zip(e[::2], e[1::2], strict=False)) or [(e[0], e[0])])
        return st.one_of(
            ranges, ends.map(lambda e: [(x, x) for x in e]), ranges.map(lambda r: r[:1])
        )

    def rows(code_count: int) -> st.SearchStrategy[int]:
        return st.one_of(st.integers(-1, code_count - 1), st.integers(-1, min(code_count, 4) - 1))

    conjunct = st.lists(st.sampled_from(range(len(code_counts))), unique=True).flatmap(
        lambda slots: st.fixed_dictionaries({s: intervals(code_counts[s]) for s in slots})
    ) if code_counts else st.just({})  # fmt: skip
    conjuncts = draw(st.lists(conjunct, max_size=30))
    events = draw(st.lists(st.tuples(*map(rows, code_counts)).map(list), max_size=12))
    return code_counts, conjuncts, events


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(tables(), st.booleans(), st.booleans())
def test_the_index_equals_plain_evaluation(
    case: tuple[list[int], list[Conjunct], list[list[int]]], sampled: bool, always_sets: bool
) -> None:
    code_counts, conjuncts, rows = case
    codes = np.array(rows, np.int32).reshape(len(rows), len(code_counts))
    check(code_counts, conjuncts, codes, codes if sampled else None, always_sets)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("with_sample", [False, True])
def test_larger_random_tables(seed: int, with_sample: bool) -> None:
    rng = np.random.default_rng(seed)
    code_counts = [3, 200, 255, 256, 300, 5000, 60_000, 2_000_000, 40, 40, 40]
    conjuncts = random_conjuncts(rng, code_counts, 1000, 5)
    conjuncts += random_conjuncts(rng, code_counts, 1000, 1)
    codes = random_events(rng, code_counts, 150, 0.8)
    codes = near_the_bounds(rng, conjuncts, codes, code_counts)
    sample = random_events(rng, code_counts, 400, 0.8) if with_sample else None
    check(code_counts, conjuncts, codes, sample)


def test_an_empty_table_an_empty_batch_and_no_slots() -> None:
    check([5, 5], [], np.zeros((3, 2), np.int32))
    check([5, 5], [{}, {0: [(1, 3)]}], np.empty((0, 2), np.int32))
    check([], [{}, {}], np.empty((70, 0), np.int32))


def test_unsatisfiable_predicates_never_match() -> None:
    conjuncts: list[Conjunct] = [{0: [(3, 2)]}, {0: [(0, 9)], 1: [(7, 1)]}, {0: [(0, 9)]}]
    check([10, 10], conjuncts, np.array([[2, 5], [3, 1], [-1, 4]], np.int32))


def test_bounds_beyond_the_codes_are_cut() -> None:
    conjuncts: list[Conjunct] = [{0: [(-5, 99)]}, {1: [(-3, 0)]}, {0: [(4, 99)], 1: [(2, 1 << 30)]}]
    check([5, 700], conjuncts, np.array([[4, 5], [0, 0], [-1, -1], [4, 699]], np.int32))


def test_conjuncts_of_many_predicates() -> None:
    rng = np.random.default_rng(5)
    code_counts = [1000] * 40
    wide = [(0, 998)]
    conjuncts: list[Conjunct] = [dict.fromkeys(range(n), wide) for n in range(41)]
    conjuncts += [{s: [(0, 400), (402, 999)] for s in range(n)} for n in range(41)]
    codes = random_events(rng, code_counts, 90, 1.0)
    codes[::3] %= 400
    check(code_counts, conjuncts, codes)


def test_thousands_of_slots() -> None:
    rng = np.random.default_rng(6)
    code_counts = [int(n) for n in rng.choice([2, 50, 400, 9000], 3000)]
    conjuncts = []
    for _ in range(800):
        slots = rng.integers(0, 3000, 3)
        conjuncts.append({int(s): random_intervals(rng, code_counts[s], False) for s in slots})
    codes = random_events(rng, code_counts, 60, 0.7)
    for row in codes[:40]:
        chosen = conjuncts[int(rng.integers(800))]
        for slot, intervals in chosen.items():
            row[slot] = intervals[0][0]
    check(code_counts, conjuncts, codes, codes)


def test_many_conjuncts_that_share_one_access_value_and_match() -> None:
    conjuncts: list[Conjunct] = [{0: [(7, 7)], 1: [(0, n % 300)]} for n in range(3000)]
    codes = np.array([[7, 0], [7, 299], [7, 150], [6, 0], [7, -1]] * 12, np.int32)
    index = check([5000, 300], conjuncts, codes)
    assert index.nbytes < 200 * len(conjuncts) + 20_000


def test_a_batch_that_matches_far_more_than_the_room_there_is() -> None:
    conjuncts: list[Conjunct] = [{0: [(0, 600 + n % 300)]} for n in range(900)]
    codes = np.arange(600, dtype=np.int32).reshape(-1, 1)
    offsets, found = CompiledIndex.build(table_of([1000], conjuncts), None).match(codes)
    assert np.array_equal(np.diff(offsets), np.full(600, 900))
    assert np.array_equal(np.sort(found.reshape(600, 900)), np.tile(np.arange(900), (600, 1)))
    check([1000], conjuncts, codes[:60])


def test_a_block_with_too_many_matches_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "PAIRS_ROOM_MIN", 16)
    monkeypatch.setattr(compiled, "PAIRS_ROOM_MAX", 5_000)
    monkeypatch.setattr(compiled, "_thread_scratch", compiled._ThreadScratch())
    rng = np.random.default_rng(12)
    code_counts = [1000, 50_000]
    conjuncts: list[Conjunct] = [{0: [(0, 500 + n)], 1: [(n, 49_000)]} for n in range(200)]
    conjuncts += [{}, {1: [(77, 77)]}]
    codes = random_events(rng, code_counts, 900, 0.95)
    index = CompiledIndex.build(table_of(code_counts, conjuncts), None)
    assert index._match_block(codes, np.zeros(len(codes) + 1, np.int64)) is None
    assert rows_of(index.match(codes)) == [expected(conjuncts, row) for row in codes.tolist()]


def test_large_sets_do_not_blow_the_index_up() -> None:
    every_other = [(code, code) for code in range(0, 10_000, 2)]
    conjuncts: list[Conjunct] = [{0: every_other}, {0: every_other, 1: [(3, 3)]}] * 50
    conjuncts += [{0: every_other[n : n + 60]} for n in range(50)]
    rng = np.random.default_rng(7)
    codes = random_events(rng, [10_000, 5], 80, 0.9)
    index = check([10_000, 5], conjuncts, codes)
    assert len(index.arrays()["entries"]) // 8 <= 3 * len(conjuncts) + 1024


@pytest.mark.parametrize("room", [16, compiled.PAIRS_ROOM_MIN])
def test_keys_are_looked_up(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "PAIRS_ROOM_MIN", room)
    monkeypatch.setattr(compiled, "_thread_scratch", compiled._ThreadScratch())
    rng = np.random.default_rng(8)
    code_counts = [20_000, 300, 300, 300, 300, 300]
    conjuncts: list[Conjunct] = []
    for n in range(3000):
        keys = sorted({int(k) for k in rng.integers(0, 20_000, 1 + n % 3)})
        residual = {1 + (n + s) % 5: [(0, 150 + n % 140)] for s in range(n % 6)}
        conjuncts.append({0: [(k, k) for k in keys]} | residual)
    codes = random_events(rng, code_counts, 200, 0.95)
    codes[:150, 0] = [conjuncts[int(n)][0][0][0] for n in rng.integers(0, 3000, 150)]
    index = check(code_counts, conjuncts, codes, random_events(rng, code_counts, 1000, 0.9))
    assert index.arrays()["point_slots"].tolist() == [0]


def test_batches_of_several_blocks_and_threads() -> None:
    rng = np.random.default_rng(9)
    code_counts = [30, 400, 90_000, 12]
    conjuncts = random_conjuncts(rng, code_counts, 60, 3)
    codes = random_events(rng, code_counts, 2 * batches.BLOCK_EVENTS + 5, 0.7)
    index = CompiledIndex.build(table_of(code_counts, conjuncts), codes[:300])
    wanted = [expected(conjuncts, row) for row in codes.tolist()]
    assert rows_of(index.match(codes)) == wanted
    with ThreadPoolExecutor(4) as threads:
        parts = list(threads.map(index.match, np.array_split(codes, 8)))
    assert [row for part in parts for row in rows_of(part)] == wanted


def test_survivors_beyond_their_room_are_checked_in_turns() -> None:
    count = events.SURVIVORS_MAX * 2 + 100
    conjuncts: list[Conjunct] = [{0: [(n % 3, 900)]} for n in range(count)]
    check([1000], conjuncts, np.array([[1], [950], [-1], [500]], np.int32))


def test_the_answer_is_deterministic_and_the_index_read_only() -> None:
    rng = np.random.default_rng(10)
    code_counts = [30, 400, 90_000]
    table = table_of(code_counts, random_conjuncts(rng, code_counts, 300, 3))
    codes = random_events(rng, code_counts, 200, 0.7)
    first, second = (CompiledIndex.build(table, codes) for _ in range(2))
    for a, b in zip(first.match(codes), second.match(codes), strict=True):
        assert np.array_equal(a, b)
    assert not any(array.flags.writeable for array in first.arrays().values())
    assert first.nbytes == sum(array.nbytes for array in first.arrays().values())


def test_an_index_opened_memory_mapped_matches_the_same(tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    code_counts = [30, 400, 90_000]
    conjuncts = random_conjuncts(rng, code_counts, 300, 3)
    codes = random_events(rng, code_counts, 120, 0.7)
    index = CompiledIndex.build(table_of(code_counts, conjuncts), None)
    for name, array in index.arrays().items():
        np.save(tmp_path / f"{name}.npy", array)
    opened = CompiledIndex.from_arrays(
        {
            name: np.load(tmp_path / f"{name}.npy", mmap_mode="r" if array.size else None)
            for name, array in index.arrays().items()
        }
    )
    codes.flags.writeable = False
    wanted = [expected(conjuncts, row) for row in codes.tolist()]
    assert rows_of(opened.match(codes)) == wanted
    assert [sorted(opened.match_one(row).tolist()) for row in codes] == wanted


def expanded(
    rows: list[list[int]], entry_of: list[int], members: list[list[int]], alive: list[int] | None
) -> list[list[int]]:
    return [
        sorted(
            row
            for entry in {entry_of[conjunct] for conjunct in found}
            for row in members[entry]
            if alive is None or alive[row]
        )
        for found in rows
    ]


@settings(max_examples=150, deadline=None)
@given(st.data(), st.booleans(), st.booleans())
def test_expand_reports_the_living_rows_of_each_entry_once(
    data: st.DataObject, one_to_one: bool, some_dead: bool
) -> None:
    entries = data.draw(st.integers(1, 12))
    counts = [1] * entries if one_to_one else data.draw(
        st.lists(st.integers(0, 40), min_size=entries, max_size=entries)
    )  # fmt: skip
    rows = data.draw(st.permutations(range(sum(counts))))
    ends = np.cumsum([0, *counts])
    members = [list(rows[a:b]) for a, b in itertools.pairwise(ends)]
    extra = [] if one_to_one else data.draw(st.lists(st.integers(0, entries - 1), max_size=8))
    entry_of = [*data.draw(st.permutations(range(entries))), *extra]
    multi = [int(entry_of.count(entry) > 1) for entry in entry_of]
    found = data.draw(
        st.lists(st.lists(st.sampled_from(range(len(entry_of))), unique=True), max_size=6)
    )
    alive = data.draw(
        st.lists(st.integers(0, 1), min_size=len(rows), max_size=len(rows))
    ) if some_dead else None  # fmt: skip
    # Some conjuncts of one row alone are tagged with that row, as segments do; -1 is nothing.
    alone = [
        not multi[c] and len(members[entry]) == 1 and data.draw(st.booleans())
        for c, entry in enumerate(entry_of)
    ]
    tags = [members[e][0] if alone[c] else len(rows) + c for c, e in enumerate(entry_of)]
    gone = data.draw(st.booleans())
    result = expand(
        np.cumsum([0, *(len(row) + gone for row in found)]).astype(np.int64),
        np.array([t for row in found for t in [-1] * gone + [tags[c] for c in row]], np.int32),
        len(rows),
        np.array(entry_of, np.int32),
        np.array(multi, np.uint8),
        ends.astype(np.int64),
        np.array(rows, np.int32),
        None if alive is None else np.array(alive, np.uint8),
    )
    assert rows_of(result) == expanded(found, entry_of, members, alive)
