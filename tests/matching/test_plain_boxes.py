"""Plain boxes against `Filter.covers` for every pair."""

from random import Random

import numpy as np
import pytest

from peersub.filters.filter import Filter
from peersub.matching.kernels.containment import CHUNK
from peersub.matching.matcher import Matcher
from peersub.matching.plain_boxes import CHOICES_MAX, PlainBoxes, joined_entries, plain_entries
from peersub.matching.segment import Segment
from peersub.matching.storage import open_matcher

PREDICATES = (
    "{n} > {a}",
    "{n} >= {a}",
    "{n} <= {a}",
    "{n} = {a}",
    "{n} BETWEEN {a} AND {b}",
    "{n} IN ({a}, {b}, {c})",
    "{n} <> {a}",
    "{t} = '{a}'",
    "{t} IN ('{a}', '{b}', '{c}')",
    "{t} LIKE '{a}%'",
    "{t} > '{a}'",
    "{t} <> '{a}'",
)
OTHERS = (
    "TRUE",
    "FALSE",
    "n0 IS NULL",
    "n0 IS NOT NULL AND n1 > 3",
    "n0 > 3 OR n1 > 3",
    "t0 LIKE '%x%'",
    "t0 RLIKE '^1' AND n0 > 3",
    "flag AND n0 > 3",
    "day > DATE '2020-01-01'",
    "n0 > 3 OR n0 = 'a'",
)


def drawn(random):
    parts = []
    for _ in range(random.choice((1, 1, 2, 2, 3))):
        a, b, c = (random.randrange(13) for _ in range(3))
        names = {"n": f"n{random.randrange(2)}", "t": f"t{random.randrange(2)}"}
        b = max(a, b)
        parts.append(random.choice(PREDICATES).format(a=a, b=b, c=c, **names))
    return " AND ".join(parts)


def plain_of(segments):
    encoded, digests = joined_entries(segments)
    entries, conjuncts = plain_entries(encoded)
    return PlainBoxes.of(encoded.table, conjuncts), [digests[entry].tobytes() for entry in entries]


def segments_of(filters, parts):
    named = [(str(number), wanted) for number, wanted in enumerate(filters)]
    return [Segment.of_filters(named[part::parts]) for part in range(parts)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("parts", [1, 3])
def test_containers_are_what_covers_proves(seed, parts):
    random = Random(seed)
    filters = [Filter(drawn(random)) for _ in range(300)] + [Filter(text) for text in OTHERS]
    filters += filters[:5]  # equal filters, also in other segments
    boxes, digests = plain_of(segments_of(filters, parts))
    by_digest = {wanted.digest: wanted for wanted in filters}
    assert len(set(digests)) == len(digests) == len(boxes) > 150
    rows = np.arange(len(boxes))
    place, found = boxes.first_containers(rows, np.zeros_like(rows), len(boxes))
    pairs = set(zip(place.tolist(), found.tolist(), strict=True))
    assert len(pairs) == len(place)
    for row, digest in enumerate(digests):
        for other, general in enumerate(digests):
            covers = other != row and by_digest[general].covers(by_digest[digest])
            assert ((row, other) in pairs) == covers, (by_digest[digest], by_digest[general])


def test_the_first_from_the_least_on_are_found():
    random = Random(9)
    boxes, _ = plain_of(segments_of([Filter(drawn(random)) for _ in range(400)], 1))
    rows = np.arange(len(boxes))
    place, found = boxes.first_containers(rows, np.zeros_like(rows), len(boxes))
    least = rows // 2
    some_place, some = boxes.first_containers(rows, least, 3)
    assert np.bincount(some_place).max() == 3
    for row in rows:
        every = found[place == row]
        assert some[some_place == row].tolist() == every[every >= least[row]][:3].tolist()


@pytest.mark.parametrize("text", OTHERS[1:])
def test_what_is_no_single_box_of_numbers_and_texts_is_not_plain(text):
    boxes, _ = plain_of(segments_of([Filter(text)], 1))
    assert len(boxes) == 0


def test_a_box_of_very_many_predicates_is_not_plain():
    width = CHOICES_MAX.bit_length() - 1
    narrow = Filter(" AND ".join(f"n{number} BETWEEN 1 AND 5" for number in range(width)))
    wide = Filter(" AND ".join(f"n{number} BETWEEN 1 AND 5" for number in range(width + 1)))
    boxes, digests = plain_of(segments_of([narrow, wide], 1))
    assert digests == [narrow.digest] and len(boxes) == 1


def test_boxes_come_out_of_a_saved_matcher(tmp_path):
    matcher = Matcher.from_texts(["a", "b", "c"], ["x > 1", "x > 2", "x > 1 OR y > 1"])
    matcher.save(tmp_path / "saved")
    boxes, digests = plain_of(open_matcher(tmp_path / "saved")[0])
    assert digests == [Filter("x > 1").digest, Filter("x > 2").digest]
    again = PlainBoxes.from_arrays(boxes.arrays())
    place, found = again.first_containers(np.array([0, 1]), np.zeros(2, np.int64), 2)
    assert (place.tolist(), found.tolist()) == ([1], [0])


def test_large_groups_pass_over_blocks_and_lose_nothing():
    random = Random(5)
    count = CHUNK + 1_500
    bounds = np.array([[random.randrange(2_000) for _ in range(2)] for _ in range(count)])
    widths = np.array([[random.randrange(1, 300) for _ in range(2)] for _ in range(count)])
    ends = bounds + widths
    texts = [
        f"a BETWEEN {low[0]} AND {high[0]} AND b BETWEEN {low[1]} AND {high[1]}"
        for low, high in zip(bounds.tolist(), ends.tolist(), strict=True)
    ]
    filters = [Filter(text) for text in dict.fromkeys(texts)]
    keep = np.array([texts.index(text) for text in dict.fromkeys(texts)])
    bounds, ends = bounds[keep], ends[keep]
    boxes, digests = plain_of(segments_of(filters, 1))
    assert digests == [wanted.digest for wanted in filters]
    rows = np.arange(len(boxes))
    least = rows // 3
    place, found = boxes.first_containers(rows, least, 4)
    for row in rows:
        holds = (bounds <= bounds[row]).all(axis=1) & (ends >= ends[row]).all(axis=1)
        holds[row] = False
        every = np.flatnonzero(holds)
        assert found[place == row].tolist() == every[every >= least[row]][:4].tolist()
    assert np.bincount(place).max() == 4
