"""The session: its settings, and that a step with Arrow batches runs in it."""

import pyarrow as pa
import pytest

from peersub.pipeline.kernels import blocks
from peersub.pipeline.schemas import EVENTS
from peersub.pipeline.session import SessionSettings, spark_session

pytestmark = pytest.mark.spark


def test_the_session_has_the_settings_that_events_need(spark):
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.caseSensitive") == "true"


def test_a_session_that_runs_keeps_what_its_owner_chose(spark):
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    again = spark_session(SessionSettings("local[2]", {"spark.peersub.asked": "yes"}))
    assert again.conf.get("spark.sql.shuffle.partitions") == "2"
    assert again.conf.get("spark.sql.adaptive.enabled") == "false"
    assert again.conf.get("spark.peersub.asked") == "yes"
    assert again.range(1).count() == spark.range(1).count() == 1


def test_blocks_pass_through_workers_unchanged(spark):
    table = pa.table({"a": [1, None, 3], "A": ["x", "y", None]})
    row = {"block": 7, "rows": 3, "names": ["e0", "e1", "e2"], "table": blocks.packed(table)}
    frame = spark.createDataFrame([row], schema=EVENTS.spark)

    def echo(batches):
        for batch in batches:
            tables = [blocks.packed(blocks.unpacked(d)) for d in batch["table"].to_pylist()]
            place = batch.schema.get_field_index("table")
            yield batch.set_column(place, "table", pa.array(tables, pa.binary()))

    (found,) = frame.mapInArrow(echo, EVENTS.spark).collect()
    assert found.names == ["e0", "e1", "e2"]
    assert blocks.unpacked(bytes(found.table)).equals(table)


@pytest.mark.parametrize(
    ("master", "is_local", "is_connect"),
    [
        ("local[2]", True, False),
        ("spark://127.0.0.1:7077", False, False),
        ("sc://127.0.0.1:15002", False, True),
    ],
)
def test_the_master_tells_the_kind_of_session(master, is_local, is_connect):
    settings = SessionSettings(master)
    assert (settings.is_local, settings.is_connect) == (is_local, is_connect)
