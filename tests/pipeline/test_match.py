"""Subscriptions to the index to deliveries, on Spark: equal to brute force and to DuckDB."""

import duckdb
import pyarrow as pa
import pytest

from peersub.filters.filter import Filter
from peersub.pipeline.index import (
    Index,
    Shard,
    SubscriptionSizes,
    build_index,
    open_index,
    parsed,
)
from peersub.pipeline.match import EventSizes, MatchPlan, matched
from pipeline.match_inputs import block_table, by_brute_force, generated, subscription_table

PATTERNS = [
    ("p/0", Filter.xpath("/a")),
    ("p,1", Filter.xpath("//b[@c > 1]")),
    ('p"2', Filter.xpath("/a")),
]
BODIES = ["<a/>", None, "<r><b c='2'/></r>", "<a><b c='1'/></a>"]


def deliveries(frame):
    return sorted((row.event_id, row.subscription_id) for row in frame.collect())


def index_of(spark, rows, folder, shards=1):
    subscriptions = spark.createDataFrame(subscription_table(rows))
    return build_index(parsed(subscriptions, shards=shards, tasks=2), folder, shards=shards)


@pytest.fixture(scope="module")
def inputs():
    """SQL and XPath subscriptions, blocks of events, and what brute force and DuckDB say."""
    rows, events, blocks = generated()
    bodies = (BODIES * events.num_rows)[: events.num_rows]
    blocks = [
        (names, table.append_column("body", pa.array(bodies[: len(names)], pa.string())))
        for names, table in blocks
    ]
    expected = by_brute_force(rows + PATTERNS, blocks)
    of_sql = [pair for pair in expected if pair[1].startswith("s")]
    assert of_sql == by_duckdb(rows, events) and len(of_sql) > 1_000
    return rows, blocks, expected


@pytest.mark.spark
@pytest.mark.parametrize(
    ("shards", "plan"),
    [(1, MatchPlan(3)), (1, MatchPlan(2, block_rows=50)), (3, MatchPlan(2)), (2, MatchPlan(1, 40))],
)
def test_deliveries_equal_brute_force_and_duckdb(spark, inputs, tmp_path, shards, plan):
    rows, blocks, expected = inputs
    index = index_of(spark, rows + PATTERNS, tmp_path / "index", shards)
    assert [shard.shard for shard in index.shards] == list(range(shards))
    assert index.subscriptions == len(rows) + len(PATTERNS)
    assert open_index(tmp_path / "index") == index
    events = spark.createDataFrame(block_table(blocks))
    assert deliveries(matched(events, index, plan)) == expected


def by_duckdb(rows, events):
    connection = duckdb.connect(config={"threads": 1})
    connection.register("events", events.append_column("row", pa.array(range(events.num_rows))))
    return sorted(
        (f"e{row}", name)
        for name, text in rows
        for (row,) in connection.execute(f"SELECT row FROM events WHERE {text}").fetchall()
    )


@pytest.mark.spark
@pytest.mark.usefixtures("settings_of_real_jobs")
def test_an_event_that_everybody_wants(spark, tmp_path):
    rows = [(f"s{n}", "a = 1" if n % 3 else f"a >= {-n}") for n in range(3_000)]
    table = pa.table({"a": [1, None]})
    events = spark.createDataFrame(block_table([(["all", "none"], table)]))
    for shards in (1, 3):
        index = index_of(spark, rows, tmp_path / str(shards), shards)
        sizes = [shard.subscriptions for shard in index.shards]
        assert max(sizes) < 2 * min(sizes)
        plan = MatchPlan.of(EventSizes.of(events), processors=2, shards=shards)
        found = deliveries(matched(events, index, plan))
        assert found == sorted(("all", name) for name, _ in rows)


@pytest.mark.spark
def test_many_events_for_one_subscription(spark, tmp_path):
    names = [f"e{n}" for n in range(5_000)]
    table = pa.table({"a": list(range(5_000))})
    events = spark.createDataFrame(
        block_table([(names[:3_000], table[:3_000]), (names[3_000:], table[3_000:])])
    )
    index = index_of(spark, [("only", "a >= 2999 AND a < 4000")], tmp_path / "index")
    plan = MatchPlan.of(EventSizes.of(events), processors=2)
    assert plan == MatchPlan(2, None)
    assert deliveries(matched(events, index, plan)) == sorted(
        (name, "only") for name in names[2_999:4_000]
    )


@pytest.mark.spark
def test_nothing_on_one_side_delivers_nothing(spark, tmp_path):
    blocks = spark.createDataFrame(block_table([(["e0"], pa.table({"a": [1]}))]))
    nobody = index_of(spark, [], tmp_path / "nobody")
    assert nobody.shards == () and open_index(tmp_path / "nobody") == nobody
    empty = matched(blocks, nobody, MatchPlan(1))
    assert deliveries(empty) == [] and empty.columns == ["event_id", "subscription_id"]
    # In many shards some stay empty, and are left out.
    few = index_of(spark, [("s0", "TRUE"), ("s1", "a = 1")], tmp_path / "few", shards=5)
    assert 1 <= len(few.shards) <= 2
    assert deliveries(matched(blocks, few, MatchPlan(1))) == [("e0", "s0"), ("e0", "s1")]
    no_events = blocks.where("false")
    sizes = EventSizes.of(no_events)
    assert sizes == EventSizes(0, 0)
    assert deliveries(matched(no_events, few, MatchPlan.of(sizes, processors=2))) == []


@pytest.mark.spark
def test_a_folder_is_built_anew(spark, tmp_path):
    index_of(spark, [(f"s{n}", f"a = {n}") for n in range(40)], tmp_path / "index", shards=3)
    index = index_of(spark, [("new", "TRUE")], tmp_path / "index")
    assert sorted(path.name for path in (tmp_path / "index").iterdir()) == [
        "index.json",
        "shard-00000",
    ]
    events = spark.createDataFrame(block_table([(["e0"], pa.table({"a": [1]}))]))
    assert deliveries(matched(events, index, MatchPlan(1))) == [("e0", "new")]


@pytest.mark.spark
def test_sizes_are_those_of_the_data(spark):
    rows = [("é", "a = 1"), ("s", "TRUE")]
    sizes = SubscriptionSizes.of(spark.createDataFrame(subscription_table(rows)))
    texts = sum(len(Filter(text).text) for _, text in rows)
    assert sizes == SubscriptionSizes(2, 3, texts)


# --- decisions, without Spark ------------------------------------------------------------------


def test_shards_follow_from_sizes():
    assert SubscriptionSizes(0, 0, 0).shards() == 1
    million = SubscriptionSizes(1_000_000, 8_000_000, 65_000_000)
    assert million.shards() == 1
    assert million.shards(million.index_bytes) == 1
    assert million.shards(million.index_bytes - 1) == 2
    assert million.shards(-(-million.index_bytes // 7)) == 7
    assert million.shards(-(-million.index_bytes // 7) - 1) == 8


def test_parsing_is_cut_into_tasks():
    def tasks(count):
        return SubscriptionSizes(count, 0, 0).parsing_tasks

    assert (tasks(0), tasks(10_000), tasks(10_001), tasks(1_000_000)) == (1, 1, 2, 20)


@pytest.mark.parametrize(
    ("events", "blocks", "processors", "shards", "plan"),
    [
        (0, 0, 2, 1, MatchPlan(1)),
        (20_000, 10, 2, 1, MatchPlan(4)),
        (1_000_000, 489, 2, 1, MatchPlan(6)),
        (4_096, 2, 4, 1, MatchPlan(4, 1_024)),
        (600, 1, 64, 1, MatchPlan(3, 256)),
        (1_000_000, 489, 4, 4, MatchPlan(3)),
        (2_048, 1, 2, 4, MatchPlan(1)),
    ],
)
def test_plans_keep_processors_busy(events, blocks, processors, shards, plan):
    assert MatchPlan.of(EventSizes(events, blocks), processors=processors, shards=shards) == plan


def test_an_unfinished_index_is_refused(tmp_path):
    (tmp_path / "shard-00000").mkdir()
    with pytest.raises(ValueError, match="no finished index"):
        open_index(tmp_path)
    index = Index("x", (Shard(0, 3, 1, 10, 0.5), Shard(1, 2, 0, 5, 0.5)))
    assert (index.subscriptions, index.bytes) == (5, 15)
