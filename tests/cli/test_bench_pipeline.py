"""`peersub bench pipeline`: the knobs arrive where they belong."""

from peersub.bench import pipeline
from peersub.workloads import WorkloadSettings


def settings_of(run, monkeypatch, *options):
    seen = []
    monkeypatch.setattr(pipeline, "run_pipeline", lambda found, **_: seen.append(found))
    run("bench", "pipeline", *options)
    return seen


def test_the_knobs_are_passed_on(run, monkeypatch):
    found = settings_of(
        run, monkeypatch,
        "--subscriptions", "500", "--events", "70", "--share", "0.25", "--skew", "zipf",
        "--processors", "3", "--shards", "0", "--join-subscriptions", "900", "--repeats", "2",
        "--seed", "9",
    )  # fmt: skip
    workload = WorkloadSettings(
        subscriptions=500, events=70, share_matched=0.25, skew="zipf", seed=9
    )
    assert found == [
        pipeline.PipelineSettings(
            processors=3, join_subscriptions=500, shards=0, repeats=2, workload=workload
        )
    ]


def test_defaults_are_those_of_the_benchmark(run, monkeypatch):
    found = settings_of(run, monkeypatch, "--processors", "2")
    assert found == [pipeline.PipelineSettings()]


def test_joins_are_chosen_by_name(run, monkeypatch):
    (found,) = settings_of(run, monkeypatch, "--joins", "slim, ranges")
    assert found.joins == ("slim", "ranges")
    for joins, words in (("slim,theta", "no join 'theta'"), ("ranges", "must be a cross join")):
        done = run("bench", "pipeline", "--joins", joins)
        assert done.code == 2 and words in done.err


def test_a_wrong_knob_is_refused_in_words(run, monkeypatch):
    seen = []
    monkeypatch.setattr(pipeline, "run_pipeline", lambda found, **_: seen.append(found))
    done = run("bench", "pipeline", "--skew", "odd")
    assert done.code == 2 and "skew" in done.err and seen == []
