"""Witnesses, bands and coverers, without Spark. The oracle is `covers`, asked for each pair."""

from decimal import Decimal
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters.xpath.xpath_strategies import filters_of, patterns
from matching.populations import filter_text
from peersub.filters.filter import Filter
from peersub.pipeline.covering import CoveringSettings
from peersub.pipeline.kernels import coverers
from peersub.pipeline.kernels.class_bands import demanding_kernel, filter_of, write_band
from peersub.pipeline.kernels.coverers import CoveringBounds, coverers_of, coverings_kernel
from peersub.pipeline.kernels.witnesses import WITNESSES_MAX, indexed_form, witnesses_of
from peersub.pipeline.schemas import COVERINGS
from peersub.pipeline.similarity import SimilaritySettings
from strategies import examples, filter_texts

UNBOUNDED = CoveringBounds(coverers_max=10**6, proven_max=10**6, asked_max=10**6)


def table_of(texts, sampled=None):
    """Distinct filters as classes; patterns start with a slash."""
    found = {}
    for text in texts:
        wanted = Filter.xpath(text) if text.startswith("/") else Filter(text)
        found.setdefault(wanted.digest, (wanted.language, text))
    counts = [0] * len(found) if sampled is None else sampled
    return pa.table(
        {
            "digest": pa.array(found, pa.binary()),
            "language": [language for language, _ in found.values()],
            "text": [text for _, text in found.values()],
            "sampled": pa.array(counts, pa.int32()),
        }
    )


def bands_of(classes, folder, size):
    """Bands of the classes that demand an attribute, for each attribute, and of the others."""
    ordered = classes.sort_by([("sampled", "ascending"), ("digest", "descending")])
    table = pa.Table.from_batches(demanding_kernel(ordered.to_batches()))
    bands = []
    for demand in sorted(set(table["demand"].to_pylist())):
        own = table.filter(pc.equal(table["demand"], demand)).drop_columns("demand")
        for start in range(0, own.num_rows, size):
            bands.append(write_band(own.slice(start, size), len(bands), folder, demand))
    return bands


def covers_by_brute_force(classes):
    filters = {
        row["digest"]: filter_of(row["language"], row["text"]) for row in classes.to_pylist()
    }
    return {
        digest: {
            other
            for other, general in filters.items()
            if other != digest and general.covers(wanted)
        }
        for digest, wanted in filters.items()
    }


# --- witnesses -------------------------------------------------------------------------------


@given(filter_texts)
def test_a_witness_is_matched_by_its_filter(text):
    wanted = Filter(text)
    found = witnesses_of(wanted)
    assert len(found) <= WITNESSES_MAX
    assert all(indexed_form(wanted).matches(event) for event in found)
    if indexed_form(wanted) == wanted:
        assert all(wanted.matches(event) for event in found)


@given(filter_texts, filter_texts)
@examples(200)
def test_what_covers_a_filter_matches_its_witnesses(first, second):
    one, other = Filter(first), Filter(second)
    for general, specific in (
        (one, other),
        (other, one),
        (Filter(f"({first}) OR ({second})"), one),
    ):
        if general.covers(specific):
            assert all(indexed_form(general).matches(event) for event in witnesses_of(specific))


@given(st.lists(patterns, min_size=2, max_size=2))
@examples(200)
def test_what_covers_a_pattern_matches_its_witnesses(texts):
    made = filters_of(texts)
    for general in made:
        for specific in made:
            found = witnesses_of(specific)
            assert all(specific.matches(document) for document in found)
            if general.covers(specific):
                assert all(general.matches(document) for document in found)


@pytest.mark.parametrize(
    "text",
    [
        "a > 1 AND a < 1.0000000000000002",
        "a > 9007199254740993",
        "a > 9007199254740992 AND a < 9007199254740993",
        "a < DATE '0001-01-02' AND b > TIMESTAMP '9999-12-31 23:59:59'",
        "a >= 'x' AND a < 'y' AND a LIKE '%b%' AND a LIKE '%c_'",
        "r.x > 5 AND r IS NOT NULL",
        "a IS NULL",
        "NOT (a AND b = 3)",
        "name RLIKE '^x[0-9]{3}' AND price > 3",
        "TRUE",
    ],
)
def test_a_witness_is_found(text):
    assert witnesses_of(Filter(text))


def test_a_filter_of_nothing_has_no_witness():
    assert witnesses_of(Filter("FALSE")) == []
    assert witnesses_of(Filter.xpath("/a[@x = 0 and @x = 1]")) == []


def test_witnesses_lie_in_the_corners_and_have_no_more_than_needed():
    found = witnesses_of(Filter("a BETWEEN 1 AND 5 AND s LIKE 'ab%' AND (x IS NULL OR x > 2)"))
    low, high = found
    assert low == {"a": 1, "s": "ab"}
    assert (high["a"], high["x"]) == (5, float("inf"))
    assert "ab" < high["s"] < "ac"
    low, high = witnesses_of(Filter("a > 1 AND a < 5"))
    assert 1 < low["a"] < 1.001 and 4.999 < high["a"] < 5


# --- coverers --------------------------------------------------------------------------------

PATTERNS = [
    *("/a/b", "//b", "/a//b", "/a/*", "//*[@x > 3]", "//b[@x > 5]", "/a[b][c]", "/a[b = 'q']"),
    *("//b[text() = 'x']", "/a/b/c", "//*", "/*", "//b/c", "/a/*/c", "//a//c", "/a//*/c"),
]
TEXTS = ["TRUE", "FALSE", "a REGEXP '^x' AND b > 1", "a rlike '^x'", "b > 1", "b > 0 AND b < 9"]
# Expressions for which no text is guessed.
TEXTS += [
    "a REGEXP '^[0-9]{3}$'",
    "a Rlike '^[0-9]{3}$' AND b > 1",
    "a RLIKE '^[0-9]{3}$' OR b = 2",
]


@pytest.mark.parametrize("seed", range(6))
def test_every_covering_is_found_and_nothing_else(seed, tmp_path, monkeypatch):
    random = Random(seed)
    monkeypatch.setattr(coverers, "ASKING_CLASSES_MAX", random.choice((7, 2_048)))
    texts = [filter_text(random, random.randrange(3)) for _ in range(90)]
    classes = table_of([*texts, *TEXTS, *PATTERNS])
    bands = bands_of(classes, tmp_path, 40)
    found = coverers_of(classes, bands, UNBOUNDED)
    expected = covers_by_brute_force(classes)
    assert sum(map(len, expected.values())) > 200
    for digest, proven in zip(classes["digest"].to_pylist(), found, strict=True):
        assert [coverer.digest for coverer in proven] == sorted(expected[digest])


def test_classes_only_look_at_bands_whose_demand_they_share(tmp_path, monkeypatch):
    texts = [f"a{n} > {value}" for n in range(5) for value in range(4)]
    classes = table_of([*texts, "a0 > 1 AND a3 > 2", "a1 > 1 OR a2 > 9", "TRUE"])
    bands = bands_of(classes, tmp_path, 100)
    assert [band.demand for band in bands] == ["", "a0", "a1", "a2", "a3", "a4"]
    visits = []
    search = coverers._Block.search
    monkeypatch.setattr(
        coverers._Block, "search", lambda *given: (visits.append(len(given[1])), search(*given))
    )
    found = coverers_of(classes, bands, UNBOUNDED)
    expected = covers_by_brute_force(classes)
    assert [{c.digest for c in proven} for proven in found] == list(expected.values())
    # All look at those without a demand; each of one attribute at one more, one of two at two.
    assert visits == [23, 5, 4, 4, 5, 4]


def test_few_are_asked_in_vain(tmp_path, monkeypatch):
    random = Random(1)
    texts = {
        f"a BETWEEN {low} AND {low + random.randrange(40)} AND s = '{random.choice('xyz')}'"
        for low in random.choices(range(100), k=300)
    }
    classes = table_of([*texts, *(f"s = '{text}'" for text in "xyz")])
    due = sum(map(len, covers_by_brute_force(classes).values()))
    asked = []
    covers = Filter.covers
    monkeypatch.setattr(
        Filter, "covers", lambda self, other: (asked.append(self), covers(self, other))[1]
    )
    found = coverers_of(classes, bands_of(classes, tmp_path, 100), UNBOUNDED)
    # Plain boxes: what holds both corners covers.
    assert sum(map(len, found)) == due == len(asked)


def test_a_value_that_arrow_cannot_hold_is_no_witness(tmp_path, monkeypatch):
    classes = table_of(["a > 5", "a > 7", "b > 1 AND a > 8", "a > 1 AND a < 2", "b IS NOT NULL"])
    unfit = {"a": Decimal("1E+200"), "b": Decimal("1.5")}
    monkeypatch.setattr(coverers, "witnesses_of", lambda wanted: [unfit, *witnesses_of(wanted)])
    found = coverers_of(classes, bands_of(classes, tmp_path, 10), UNBOUNDED)
    expected = covers_by_brute_force(classes)
    digests = classes["digest"].to_pylist()
    assert [{c.digest for c in proven} for proven in found] == [expected[d] for d in digests]


def chain(length):
    """price > 0, price > 1, ...: of a sample with one event per step, each matches one less."""
    texts = [f"price > {step}" for step in range(length)]
    return table_of(texts, [length - step for step in range(length)])


def test_a_chain_lists_its_nearest_coverers_and_looks_at_few(tmp_path, monkeypatch):
    classes = chain(600)
    bounds = CoveringBounds(coverers_max=3, proven_max=5, asked_max=50)
    bands = bands_of(classes, tmp_path, 64)
    visits = []
    search = coverers._Block.search
    monkeypatch.setattr(
        coverers._Block, "search", lambda *given: (visits.append(len(given[1])), search(*given))
    )
    (batch,) = coverings_kernel(classes.to_batches(), bands, bounds)
    assert batch.schema == COVERINGS.arrow
    text_of = dict(zip(classes["digest"].to_pylist(), classes["text"].to_pylist(), strict=True))
    steps = {}
    for row in batch.to_pylist():
        step, coverer = (int(text_of[row[name]].split()[-1]) for name in ("digest", "coverer"))
        steps.setdefault(step, []).append((row["rank"], coverer, row["coverers"]))
    assert set(steps) == set(range(1, 600))
    for step, listed in steps.items():
        nearest = [step - 1 - rank for rank in range(min(3, step))]
        assert listed == [(rank, near, min(5, step)) for rank, near in enumerate(nearest)]
    # Each class visits its own band, and the next one if the first holds not enough.
    assert sum(visits) <= 2 * 600


def test_asking_ends_though_nothing_is_proven(tmp_path, monkeypatch):
    classes = table_of(["FALSE", *(f"a = {value}" for value in range(30))])
    asked = []
    monkeypatch.setattr(Filter, "covers", lambda self, other: asked.append(other.text))
    bounds = CoveringBounds(coverers_max=3, proven_max=5, asked_max=7)
    assert not any(coverers_of(classes, bands_of(classes, tmp_path, 8), bounds))
    assert asked == ["FALSE"] * 7


def test_sparse_and_dense_intersections_agree(monkeypatch, tmp_path):
    random = Random(5)
    classes = table_of([filter_text(random, 1) for _ in range(60)])
    bands = bands_of(classes, tmp_path, 60)
    found = []
    for share in (0.0, 2.0):
        monkeypatch.setattr(coverers, "_DENSE_SHARE", share)
        found.append(coverers_of(classes, bands, UNBOUNDED))
    assert found[0] == found[1] and any(found[0])


def test_a_band_that_is_written_again_is_the_same(tmp_path):
    classes = chain(50)
    first = write_band(classes, 3, tmp_path)
    assert write_band(classes, 3, tmp_path) == first
    assert (first.rows, first.sampled_min, first.sampled_max) == (50, 1, 50)


def test_a_band_that_is_written_anew_is_read_anew(tmp_path):
    first, second = table_of(["a > 1", "a > 2"]), table_of(["b > 1", "b > 2", "b > 3"])
    for classes, coverings in ((first, 1), (second, 3)):
        found = coverers_of(classes, bands_of(classes, tmp_path, 10), UNBOUNDED)
        assert sum(map(len, found)) == coverings


@pytest.mark.parametrize(
    ("classes", "tasks", "near"),
    [(0, 1, 1), (128, 1, 1), (129, 2, 2), (1_025, 9, 8), (2_048, 16, 8), (10**6, 16, 8)],
)
def test_few_classes_are_few_tasks(classes, tasks, near):
    assert CoveringSettings.fit(classes).tasks == tasks
    assert SimilaritySettings.fit(classes, 5).tasks == near
