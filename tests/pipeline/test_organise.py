"""The steps of organise in Spark, against plain Python over the same population."""

from itertools import pairwise

import pytest

from peersub.demo.market import draw_market
from peersub.events.arrow import table_of_rows
from peersub.filters.filter import Filter
from peersub.filters.similarity import sample_bits, similarity_of_bits
from peersub.matching.matcher import Matcher
from peersub.pipeline.kernels import blocks
from peersub.pipeline.organise import SampleSettings, classes_of, drawn_sample, sampled_matches
from peersub.pipeline.schemas import CLASSES, COVERINGS, EVENTS, SAMPLE, SIMILAR, SUBSCRIPTIONS

pytestmark = pytest.mark.spark
SETTINGS = SampleSettings(events=128, seed=3)
NEIGHBOURS = 3


class Population:
    """A small market: subscriptions, some of them equal, patterns, and events in blocks."""

    def __init__(self, folder):
        market = draw_market(260, 500, 11)
        texts = {**market.filters, "again": market.filters["s0"], "all": "TRUE"}
        texts |= {f"sector{n}": f"sector = 'chips' AND quantity > {n}" for n in range(0, 600, 50)}
        texts |= {f"buy{n}": f"buy AND quantity > {n}" for n in range(0, 600, 50)}
        self.filters = {name: Filter(text) for name, text in texts.items()}
        self.filters |= {n: Filter.xpath(text) for n, text in market.patterns.items()}
        self.filters["any"] = Filter.xpath("//p")
        self.events = [
            {name: value for name, value in event.items() if name != "id"}
            | {"body": market.documents[number % 40]}
            for number, event in enumerate(market.events)
        ]
        self.shards = [str(folder / f"shard-{number}") for number in range(2)]
        for number, shard in enumerate(self.shards):
            matcher = Matcher()
            for name, wanted in list(self.filters.items())[number::2]:
                matcher.add(name, wanted)
            matcher.save(shard)

    def events_frame(self, spark, size):
        rows = []
        for block, start in enumerate(range(0, len(self.events), size)):
            part = self.events[start : start + size]
            names = [f"e{start + row}" for row in range(len(part))]
            table = blocks.packed(table_of_rows(part))
            rows.append({"block": block, "rows": len(part), "names": names, "table": table})
        return spark.createDataFrame(rows, schema=EVENTS.spark)

    def subscriptions_frame(self, spark):
        rows = [
            {
                "number": number,
                "subscription_id": name,
                "language": wanted.language,
                "text": wanted.source,
                "digest": wanted.digest,
            }
            for number, (name, wanted) in enumerate(self.filters.items())
        ]
        # The order of rows, and where they are, must not matter.
        frame = spark.createDataFrame(rows[::-1], schema=SUBSCRIPTIONS.spark)
        return frame.repartition(3)


@pytest.fixture(scope="module")
def population(tmp_path_factory):
    return Population(tmp_path_factory.mktemp("index"))


@pytest.fixture(scope="module")
def sample(spark, population):
    frame = drawn_sample(population.events_frame(spark, 60), SETTINGS)
    assert frame.schema == SAMPLE.spark
    return frame.localCheckpoint()


@pytest.fixture(scope="module")
def classes(spark, population, sample):
    matches = sampled_matches(sample, population.shards, SETTINGS)
    frame = classes_of(population.subscriptions_frame(spark), matches)
    assert [column.name for column in frame.schema] == CLASSES.arrow.names
    return frame.localCheckpoint()


def drawn_events(population, sample):
    """The events of the sample by their places."""
    found = {}
    for row in sample.collect():
        for place, name in zip(row.places, row.names, strict=True):
            assert place not in found
            found[place] = population.events[int(name[1:])]
    return [found[place] for place in range(len(found))]


def test_the_sample_does_not_depend_on_the_blocks(spark, population, sample):
    names = {
        place: name
        for row in sample.collect()
        for place, name in zip(row.places, row.names, strict=True)
    }
    assert sorted(names) == list(range(SETTINGS.events))
    again = drawn_sample(population.events_frame(spark, 200).repartition(2), SETTINGS).collect()
    assert names == {
        place: name for row in again for place, name in zip(row.places, row.names, strict=True)
    }
    other = drawn_sample(population.events_frame(spark, 200), SampleSettings(events=128)).collect()
    assert set(names.values()) != {name for row in other for name in row.names}
    for row in again:
        tables = blocks.unpacked(bytes(row.table)).to_pylist()
        for name, event in zip(row.names, tables, strict=True):
            there = {key: value for key, value in event.items() if value is not None}
            assert there == population.events[int(name[1:])]


def test_a_sample_of_fewer_events_than_asked_for_has_them_all(spark, population):
    settings = SampleSettings(events=1_024)
    rows = drawn_sample(population.events_frame(spark, 200), settings).collect()
    assert sum(len(row.names) for row in rows) == len(population.events)
    with pytest.raises(ValueError, match="multiple of 64"):
        SampleSettings(events=100)


def test_classes_are_equal_filters_with_what_they_match(population, sample, classes):
    events = drawn_events(population, sample)
    expected = {}
    for name, wanted in population.filters.items():
        bits = sample_bits(wanted, events)
        profile = bits.to_bytes(SETTINGS.events // 8, "little") if bits else None
        row = (wanted.language, wanted.source, name, 1, bits.bit_count(), profile)
        known = expected.setdefault(wanted.digest, row)
        if known is not row:
            expected[wanted.digest] = (*known[:3], known[3] + 1, *known[4:])
    found = {
        bytes(row.digest): (
            *(row.language, row.text, row.subscription_id, row.members, row.sampled),
            None if row.profile is None else bytes(row.profile),
        )
        for row in classes.collect()
    }
    assert found == expected
    assert any(row[3] > 1 for row in found.values())


def test_coverings_are_those_of_every_pair(population, classes, tmp_path):
    from peersub.pipeline.covering import CoveringSettings, band_folders, class_bands, coverings_of

    settings = CoveringSettings(band_classes=100, tasks=2)
    bands = band_folders(class_bands(classes, str(tmp_path), settings))
    filters = {wanted.digest: wanted for wanted in population.filters.values()}
    assert sum(band.rows for band in bands) == len(filters) and len(bands) >= 3
    # Bands of one demanded attribute follow each other in selectivity.
    for low, high in pairwise(bands):
        assert low.demand <= high.demand
        assert low.demand != high.demand or low.sampled_max <= high.sampled_min
    assert {band.demand for band in bands} > {"", "quantity"}
    assert_coverings_of_every_pair(
        population, classes, coverings_of(classes, bands, settings), settings
    )


def test_coverings_of_plain_and_other_classes_are_those_of_every_pair(
    population, classes, tmp_path
):
    from peersub.pipeline.covering import CoveringSettings, found_coverings, plain_count

    place = str(tmp_path / "classes")
    classes.write.parquet(place)
    plain = plain_count(classes.sparkSession, place, population.shards, str(tmp_path / "counted"))
    filters = {wanted.digest for wanted in population.filters.values()}
    assert len(filters) / 2 < plain < len(filters) - 10, "both ways must be taken"
    settings = CoveringSettings(band_classes=100, tasks=3)
    frame = found_coverings(classes, place, population.shards, str(tmp_path), settings)
    assert_coverings_of_every_pair(population, classes, frame, settings)


def assert_coverings_of_every_pair(population, classes, frame, settings):
    filters = {wanted.digest: wanted for wanted in population.filters.values()}
    assert frame.schema == COVERINGS.spark
    sampled = {bytes(row.digest): row.sampled for row in classes.collect()}
    listed = {}
    for row in frame.collect():
        listed.setdefault(bytes(row.digest), []).append(
            (row["rank"], bytes(row.coverer), row.coverers)
        )
    for digest, wanted in filters.items():
        coverers = [
            other
            for other, general in filters.items()
            if other != digest and general.covers(wanted)
        ]
        coverers.sort(key=lambda other: (sampled[other], other))
        assert len(coverers) <= settings.bounds.proven_max, "else not all would be found"
        expected = [
            (rank, coverer, len(coverers))
            for rank, coverer in enumerate(coverers[: settings.bounds.coverers_max])
        ]
        assert sorted(listed.get(digest, [])) == expected


def test_neighbours_are_near_and_most_of_the_nearest(classes, tmp_path):
    from peersub.pipeline.similarity import (
        SimilaritySettings,
        measured_recall,
        similar_of,
        unmeasured_count,
    )

    settings = SimilaritySettings(neighbours=NEIGHBOURS, tasks=2)
    similar = similar_of(classes, str(tmp_path), settings)
    assert [(c.name, c.dataType) for c in similar.schema] == [
        (c.name, c.dataType) for c in SIMILAR.spark
    ]
    similar = similar.localCheckpoint()
    bits = {
        bytes(row.digest): int.from_bytes(row.profile, "little")
        for row in classes.collect()
        if row.profile is not None
    }
    assert unmeasured_count(classes) == classes.count() - len(bits) > 0
    listed = {}
    for row in similar.collect():
        one, other = bytes(row.digest), bytes(row.neighbour)
        assert one != other and row.similarity == similarity_of_bits(bits[one], bits[other]) > 0
        listed.setdefault(one, []).append((row["rank"], -row.similarity, other))
    assert set(listed) <= set(bits)
    groups = {}
    for digest, profile in bits.items():
        groups.setdefault(profile, []).append(digest)
    assert max(map(len, groups.values())) > NEIGHBOURS + 1
    hits = due = 0
    for digest, profile in bits.items():
        mine = sorted(listed.get(digest, []))
        assert [rank for rank, *_ in mine] == list(range(len(mine))) and len(mine) <= NEIGHBOURS
        assert [value for _, value, _ in mine] == sorted(value for _, value, _ in mine)
        assert len({other for *_, other in mine}) == len(mine)
        # Equal profiles form a ring in the order of digests.
        group = sorted(groups[profile])
        place = group.index(digest)
        ring = [group[(place + step) % len(group)] for step in range(1, len(group))]
        assert [other for *_, other in mine][: len(ring)] == ring[:NEIGHBOURS]
        values = sorted(
            (similarity_of_bits(profile, other) for d, other in bits.items() if d != digest),
            reverse=True,
        )
        exact = [value for value in values[:NEIGHBOURS] if value > 0]
        due += len(exact)
        hits += sum(-value in exact and exact.remove(-value) is None for _, value, _ in mine)
    assert hits / due >= 0.9
    measured = measured_recall(classes, similar, settings, drawn=10_000)
    assert measured == pytest.approx(hits / due)
    worse = similar.filter("rank <> 1")
    assert measured_recall(classes, worse, settings, drawn=10_000) < 0.8 * measured


def test_a_population_that_matches_nothing_has_no_neighbours(classes, tmp_path):
    from peersub.pipeline.similarity import SimilaritySettings, measured_recall, similar_of

    nothing = classes.filter("sampled = 0")
    similar = similar_of(nothing, str(tmp_path), SimilaritySettings())
    assert similar.count() == 0
    assert measured_recall(nothing, similar, SimilaritySettings()) == 1
