"""Filter texts in bulk: the same entries as one filter at a time, in whatever chunks."""

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matching.test_encoding import entries_by_boxes, entries_that_hold
from peersub.filters.errors import FilterError
from peersub.filters.filter import Filter
from peersub.matching import bulk
from peersub.matching.bulk import columns_of_all_texts, columns_of_texts, combine, segment_of_texts
from peersub.matching.conjunct_builder import build
from peersub.matching.conjunct_merge import numbers_by_first_use
from peersub.matching.parallel import parallel_map_chunks

TEXTS = [
    "a = 1 AND b > 2.5",
    "b > 2.5 AND a = 1",  # equal to the one before
    "a < 3 OR s = 'x'",
    "s IN ('x', 'y') OR a IS NULL",
    "s LIKE '%x%' AND a <> 9007199254740993",
    "s >= 'x'",
    "TRUE",
    "FALSE",
    "a IN (1, 2.5, 'x')",
    "NOT s LIKE '%x%'",
    "b BETWEEN 0.1 AND 1e30",
]
BAD = ["a ==", "", None]
EVENTS = [
    {},
    *({"a": value} for value in (1, 2.5, 3, "x", 2**53 + 1)),
    *({"s": value} for value in ("", "x", "xy", "y", 5)),
    *({"b": value, "a": 1} for value in (0.1, 2.5, 2.6, 1e30, 1e31)),
    {"s": "ax", "a": 9007199254740993},
]


def check(columns, texts):
    """Each text has the entry of its filter, or its error."""
    filters = [None if text in BAD else Filter(text) for text in texts]
    assert [row for row, _ in columns.errors] == [n for n, f in enumerate(filters) if f is None]
    assert all(isinstance(error, FilterError) for _, error in columns.errors)
    numbers = {}
    expected = [-1 if f is None else numbers.setdefault(f, len(numbers)) for f in filters]
    assert columns.row_entry.tolist() == expected
    assert [bytes(digest) for digest in columns.digests] == [f.digest for f in numbers]
    assert columns.encoded.entry_count == len(numbers)
    boxes = [f.boxes for f in numbers]
    at_once = build(boxes)
    assert columns.encoded.conjunct_entry.tolist() == at_once.conjunct_entry.tolist()
    assert columns.encoded.multi.tolist() == at_once.multi.tolist()
    for event in EVENTS:
        assert entries_that_hold(columns.encoded, event) == entries_by_boxes(boxes, event)


def test_one_list():
    texts = [*TEXTS, *BAD, TEXTS[0]]
    check(columns_of_texts(texts), texts)


@given(st.lists(st.lists(st.sampled_from([*TEXTS, *BAD]), max_size=6), min_size=1, max_size=4))
def test_lists_combined(lists):
    check(
        combine([columns_of_texts(texts) for texts in lists]), [t for part in lists for t in part]
    )


@pytest.mark.parametrize(
    "make", [list, pa.array, lambda texts: pa.chunked_array([texts[:3], texts[3:]])]
)
def test_chunks_of_any_container(monkeypatch, make):
    monkeypatch.setattr(bulk, "CHUNK_TEXTS", 4)
    texts = [*TEXTS, *BAD, *TEXTS]
    seen = []
    check(columns_of_all_texts(make(texts), progress=seen.append), texts)
    assert seen == [*range(4, len(texts), 4), len(texts)]


def test_other_processes_give_the_same(monkeypatch):
    monkeypatch.setattr(bulk, "CHUNK_TEXTS", 5)
    monkeypatch.setattr(bulk, "PROCESS_TEXTS_MIN", 0)
    texts = [*TEXTS, *BAD, *TEXTS]
    check(columns_of_all_texts(texts, processes=2), texts)


def test_no_texts():
    columns = columns_of_all_texts([])
    assert columns.encoded.entry_count == 0
    assert columns.digests.shape == (0, 16)


def test_a_segment_and_its_errors():
    segment = segment_of_texts(["s1", "s2"], ["a = 1", "a > 0"])
    assert segment.match({"a": 1}) == ["s1", "s2"]
    with pytest.raises(FilterError) as caught:
        segment_of_texts(["s1", "s2", "s3"], ["a = 1", "a >", "b <"])
    assert caught.value.row == 1
    with pytest.raises(ValueError, match="one id to each"):
        segment_of_texts(["s1"], [])


def test_workers_import_nothing_compiled():
    script = "import sys, peersub.matching.bulk; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_worker_that_dies_is_an_error_that_helps():
    with pytest.raises(RuntimeError, match="processes=1"):
        list(parallel_map_chunks(os._exit, [3, 3], processes=2))


def test_results_in_order_with_few_chunks_ahead():
    taken = []

    def chunks():
        for number in range(20):
            taken.append(number)
            yield [number]

    results = parallel_map_chunks(sum, chunks(), processes=2)
    assert next(results) == 0
    assert len(taken) < 10
    assert list(results) == list(range(1, 20))


@given(st.lists(st.binary(min_size=1, max_size=1), max_size=12))
def test_numbers_by_first_use(tails):
    digests = [bytes(15) + tail for tail in tails]
    array = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 16)
    numbers, first = numbers_by_first_use(array)
    known = {}
    assert numbers.tolist() == [known.setdefault(digest, len(known)) for digest in digests]
    assert first.tolist() == [digests.index(digest) for digest in known]
