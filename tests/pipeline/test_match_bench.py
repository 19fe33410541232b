"""`peersub bench pipeline` on a tiny workload, and how it finds and tells its figures."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from peersub.bench import pipeline, pipeline_report
from peersub.bench.pipeline import Checked, JoinResult, MatchRun, PipelineResult, PipelineSettings
from peersub.bench.process_memory import MemoryPeak, MemorySampler, memory_of_tree
from peersub.pipeline.index import Index, Shard
from peersub.workloads import WorkloadSettings

TINY = PipelineSettings(
    processors=2,
    join_subscriptions=120,
    shards=2,
    repeats=1,
    workload=WorkloadSettings(
        subscriptions=200,
        events=80,
        share_matched=0.02,
        numeric_attributes=6,
        categorical_cardinalities=(3, 8, 20),
        attributes_per_event_min=4,
        attributes_per_event_max=8,
    ),
)


@pytest.mark.spark
def test_a_tiny_run_agrees_with_the_joins(spark):
    result = pipeline.run_pipeline(TINY, session=spark)
    assert result.mismatches == []
    assert [(run.form, run.events) for run in result.runs] == [
        ("whole", 20),
        ("whole", 40),
        ("whole", 80),
        ("2 shards", 80),
    ]
    assert result.whole.found.count > 100
    assert [join.is_equal for join in result.joins] == [True] * 4
    assert all(join.pairs == 80 * 120 for join in result.joins)
    assert set(result.phases) == {
        "events to blocks",
        "texts to arrays",
        "arrays to the index",
        "deliveries to Parquet",
    }
    assert result.index.subscriptions == 200
    assert json.loads(json.dumps(pipeline_report.as_json(result)))["ok"]


def a_result(**changes):
    runs = [
        MatchRun("whole", 40, 1.0, 2.0, 8e3, Checked(70, 5)),
        MatchRun("whole", 80, 2.0, 3.0, 8e3, Checked(150, 7)),
    ]
    joins = [
        JoinResult("columns", "two columns", True, 9_600, 48.0, 200.0, 40.0, True),
        JoinResult("packed", "rarest first", True, 9_600, 36.0, 266.7, 30.0, True),
        JoinResult("ranges", "in bins", False, 9_600, 1.2, 8e3, 1.0, True),
    ]
    result = PipelineResult(
        settings=TINY,
        phases={"texts to arrays": 1.5, "arrays to the index": 0.25},
        index=Index("", (Shard(0, 200, 0, 46_000, 0.1),)),
        runs=runs,
        joins=joins,
        memory=MemoryPeak(3_000_000_000, 4_000_000_000, 5),
        mismatches=[],
    )
    return replace(result, **changes)


def shown(result):
    console = Console(file=io.StringIO(), width=110)
    pipeline_report.show(result, console)
    return console.file.getvalue()


def test_the_ratio_is_to_the_quickest_cross_join():
    result = a_result()
    assert result.ratio == 30.0 and result.end_to_end_s == 1.75
    text = shown(result)
    assert "30 times the pairs per second of the quickest cross join" in text
    assert "3.00 GB at most" in text and "150 deliveries" in text
    assert "found the same deliveries" in text and pipeline_report.exit_code(result) == 0


def test_a_mismatch_is_told_and_fails():
    result = a_result(mismatches=["2 shards gave less"])
    assert "MISMATCH 2 shards gave less" in shown(result)
    assert pipeline_report.exit_code(result) == 1
    assert not pipeline_report.as_json(result)["ok"]


def test_settings_out_of_range_are_refused():
    for wrong in ({"join_subscriptions": 201}, {"repeats": 0}, {"shards": -1}):
        with pytest.raises(ValueError):
            replace(TINY, **wrong)


def test_the_sampler_keeps_the_peak():
    samples = iter([MemoryPeak(5, 6, 1), MemoryPeak(9, 2, 3), MemoryPeak(1, 1, 1)])
    peak = MemoryPeak()
    for sample in samples:
        peak = peak.with_sample(sample)
    assert peak == MemoryPeak(9, 6, 3)
    with MemorySampler(lambda: MemoryPeak(7, 8, 2)) as sampler:
        pass
    assert sampler.peak == MemoryPeak(7, 8, 2)


def test_the_memory_of_this_process_is_seen():
    import os
    from pathlib import Path

    if not Path("/proc/self/smaps_rollup").exists():
        pytest.skip("there is no /proc here")
    found = memory_of_tree(os.getpid())
    assert found.processes >= 1 and 0 < found.proportional_bytes <= found.resident_bytes
