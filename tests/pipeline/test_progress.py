"""Progress is told while Spark works."""

import pytest

from peersub.pipeline.progress import watched

pytestmark = pytest.mark.spark


def test_tasks_and_rows_are_told(spark):
    from pyspark.sql import functions

    told = []
    with watched(spark, told.append):
        # Bounded work that goes on until something was told.
        for _ in range(200):
            spark.range(0, 3_000_000, 1, 8).select(functions.sum(functions.hash("id"))).collect()
            if told:
                break
    assert told
    assert all(0 <= work.tasks_done <= work.tasks for work in told)
    assert max(work.tasks for work in told) >= 1


def test_nobody_looks_nothing_is_asked(spark):
    with watched(spark, None):
        assert spark.range(3).count() == 3
