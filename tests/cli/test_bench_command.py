"""`peersub bench matching`: the knobs arrive where they belong."""

import json

from peersub.bench import matching
from peersub.cli import bench_command


def test_a_small_run_prints_json(run):
    done = run(
        "bench", "matching", "--sizes", "300", "--shares", "0.01", "--skews", "uniform",
        "--events", "64", "--engines", "naive,numpy", "--budget", "1", "--no-memory",
        "--updates", "0", "--json",
    )  # fmt: skip
    assert done.code == 0, done
    result = json.loads(done.out)
    assert result["ok"] and len(result["cells"]) == 1
    assert result["cells"][0]["subscriptions"] == 300


def test_the_knobs_are_passed_on(run, monkeypatch):
    seen = []

    def settle(options):
        seen.append(settings(options))
        raise ValueError("enough")

    settings = bench_command._settings
    monkeypatch.setattr(bench_command, "_settings", settle)
    run(
        "bench", "matching", "--sizes", "10,20", "--shares", "0.5", "--skews", "zipf",
        "--events", "7", "--threads", "3", "--budget", "2", "--prepare-budget", "4", "--seed", "9",
        "--numeric-attributes", "4", "--float-attributes", "2", "--numeric-values", "50",
        "--categorical-cardinalities", "3,5", "--attributes-per-event", "1,6",
        "--predicates-per-subscription", "1,2", "--values-per-in", "4", "--operators",
        "numeric_equal=3,categorical_in=0", "--duplicates", "0.25", "--opaque", "0.125",
        "--updates", "11",
    )  # fmt: skip
    (found,) = seen
    assert (found.sizes, found.shares, found.skews, found.events) == (
        (10, 20),
        (0.5,),
        ("zipf",),
        7,
    )
    assert (found.threads, found.budget_s, found.prepare_budget_s) == (3, 2, 4)
    assert found.updates == 11 and found.memory
    assert found.engines == (*matching.MATCHER_ENGINES, *matching.BASELINE_ENGINES)
    workload = found.workload
    assert (workload.seed, workload.numeric_attributes, workload.float_attributes) == (9, 4, 2)
    assert (workload.numeric_values, workload.categorical_cardinalities) == (50, (3, 5))
    assert (workload.attributes_per_event_min, workload.attributes_per_event_max) == (1, 6)
    assert workload.predicates_per_subscription_min == 1
    assert workload.predicates_per_subscription_max == 2
    assert workload.values_per_in_max == 4
    assert (workload.duplicates_share, workload.opaque_share) == (0.25, 0.125)
    assert (workload.operators.numeric_equal, workload.operators.categorical_in) == (3, 0)


def test_defaults_are_those_of_the_benchmark(run, monkeypatch):
    seen = []
    monkeypatch.setattr(matching, "run_matching", lambda found, **_: seen.append(found))
    run("bench", "matching")
    assert seen == [matching.BenchSettings()]
