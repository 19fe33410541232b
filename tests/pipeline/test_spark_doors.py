"""The file of mixed kinds gives the same rows through the pipeline as through every other door."""

import pyarrow.parquet as pq
import pytest

import test_doors as doors
from peersub.cli import main

pytestmark = pytest.mark.spark


def through_the_pipeline(rows, folder, events, *options, compiled=False, patch=None):
    out = folder / "out"
    subscriptions = doors.subscriptions_file(folder)
    arguments = ("--subscriptions", subscriptions, "--events", events, "--out", out, *options)
    assert main(["pipeline", "match", "-q", *map(str, arguments)]) == 0
    found = pq.read_table(out / "deliveries").to_pydict()
    deliveries = list(zip(found["event_id"], found["subscription_id"], strict=True))
    assert len(deliveries) == len(set(deliveries))
    return set(deliveries)


@pytest.mark.parametrize(
    ("door", "carries"),
    [
        (doors.by_json_lines, doors.carries_json),
        (doors.by_json, doors.carries_json),
        (doors.by_csv, doors.carries_csv),
        (doors.by_parquet_folder, doors.carries_parquet),
        (doors.by_arrow, doors.carries_all),
    ],
    ids=lambda value: value.__name__,
)
def test_the_same_rows_through_the_pipeline(door, carries, spark, tmp_path, monkeypatch):
    monkeypatch.setattr(doors, "by_command", through_the_pipeline)
    rows = [row for row in doors.ROWS if carries(row)]
    assert door(rows, tmp_path, monkeypatch) == doors.expected(rows)


@pytest.mark.parametrize("shards", [1, 3])
def test_a_typed_frame_gives_the_same_rows(spark, tmp_path, shards):
    """A user's own DataFrame, whose columns have one kind each."""
    from peersub.events.arrow import table_of_rows
    from peersub.pipeline.index import build_index, parsed
    from peersub.pipeline.ingest import event_blocks
    from peersub.pipeline.match import EventSizes, MatchPlan, matched
    from peersub.pipeline.slices import SubscriptionInput
    from peersub.pipeline.subscribe import ingest_subscriptions

    def keep(name, frame):
        frame.write.parquet(str(tmp_path / name))
        return spark.read.parquet(str(tmp_path / name))

    rows = [row for row in doors.ROWS if doors.carries_parquet(row)]
    pq.write_table(table_of_rows(rows), tmp_path / "e.parquet")
    events = keep("events", event_blocks(spark.read.parquet(str(tmp_path / "e.parquet"))))
    source = SubscriptionInput(str(doors.subscriptions_file(tmp_path)))
    subscriptions = keep("kept", ingest_subscriptions(spark, source, keep).kept)
    chunks = keep("parsed", parsed(subscriptions, shards=shards))
    index = build_index(chunks, tmp_path / "index", shards=shards)
    plan = MatchPlan.of(EventSizes.of(events), processors=2, shards=shards)
    found = {tuple(row) for row in matched(events, index, plan).collect()}
    assert found == doors.expected(rows)
