"""`peersub simulate` and `peersub explain`: deliveries against brute force, and bad input."""

import json

import pytest

from peersub import Filter
from peersub.cli.simulate_inputs import SimulateOptions, scenario_of
from peersub.trace.reading import check_trace

EVENTS = [
    {"id": f"e{i}", "price": i / 2, "n": i, "tag": "ab"[i % 2], "deep": {"x": i % 3}}
    for i in range(30)
]
FILTERS = {
    "all": "TRUE",
    "none": "n < 0",
    "cheap": "price < 3.5",
    "tagged": "tag = 'a' AND n >= 10",
    "deep": "deep.x = 2 OR n = 7",
}


@pytest.fixture
def files(tmp_path):
    (tmp_path / "e.jsonl").write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
    (tmp_path / "s.jsonl").write_text(
        "".join(json.dumps({"id": name, "filter": text}) + "\n" for name, text in FILTERS.items())
    )
    return tmp_path


def expected():
    return sorted(
        (event["id"], name)
        for event in EVENTS
        for name, text in FILTERS.items()
        if Filter(text).matches(event)
    )


def on_files(folder, *more):
    return (
        *("simulate", "--overlay", "flood", "--nodes", 3, "--json"),
        *("--subscriptions", folder / "s.jsonl", "--events", folder / "e.jsonl", *more),
    )


def small(*more):
    return ("simulate", "--overlay", "flood", "--nodes", 8, "--events-count", 12, *more)


def summary_of(done):
    assert done.code == 0, done.err
    return json.loads(done.out)


# --- what is delivered -------------------------------------------------------------------------


def test_deliveries_of_files_are_those_of_brute_force(files, run):
    out = files / "d.jsonl"
    summary = summary_of(run(*on_files(files, "--deliveries", out)))
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert sorted((line["event_id"], line["subscription_id"]) for line in lines) == expected()
    assert summary["expected"] == summary["delivered"] == len(expected()) > 50
    assert summary["missed"] == summary["spurious"] == summary["duplicate"] == 0


def test_subscriptions_are_dealt_in_turn(files, run):
    out = files / "d.jsonl"
    run(*on_files(files, "--deliveries", out))
    homes = {
        line["subscription_id"]: line["node"]
        for line in map(json.loads, out.read_text().splitlines())
    }
    # "none" is on n1, and gets nothing.
    assert homes == {"all": "n0", "cheap": "n2", "tagged": "n0", "deep": "n1"}
    assert list(json.loads(out.read_text().splitlines()[0])) == [
        *("event_id", "subscription_id", "node", "hops"),
    ]


def test_documents_and_patterns(tmp_path, run):
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "one.xml").write_text('<story level="1"><p>x</p></story>')
    (folder / "two.xml").write_text("<story><q/></story>")
    patterns = [{"id": "p", "xpath": "//p"}, {"id": "any", "xpath": "/story"}]
    (tmp_path / "s.jsonl").write_text("".join(json.dumps(each) + "\n" for each in patterns))
    out = tmp_path / "d.jsonl"
    done = run(
        *("simulate", "--overlay", "flood", "--nodes", 2, "--events", folder, "--json"),
        *("--subscriptions", tmp_path / "s.jsonl", "--deliveries", out),
    )
    assert summary_of(done)["delivered"] == 3
    pairs = {
        (line["event_id"], line["subscription_id"])
        for line in map(json.loads, out.read_text().splitlines())
    }
    assert pairs == {("one.xml", "p"), ("one.xml", "any"), ("two.xml", "any")}


def test_a_market(run):
    summary = summary_of(run(*small("--workload", "market", "--json")))
    assert summary["events"] == 12
    assert summary["violations"] == 0


def test_events_that_are_published_together(run):
    words = ("simulate", "--overlay", "tree", "--nodes", 8, "--events-count", 12, "--json")
    summary = summary_of(run(*words, "--batch-events", 5, "--set", "batch_share=0.5"))
    assert summary["violations"] == 0 and summary["events"] == 12
    assert summary["messages"]["by_kind"]["notify-batch"] > 0
    assert summary["messages"]["data"] < summary["messages"]["per_event"] * 12
    assert "--batch-events 5" in summary["replay"]
    alone = summary_of(run(*words))
    assert summary["delivered"] == alone["delivered"] and "notify-batch" not in str(alone)


# --- the summary -------------------------------------------------------------------------------


def test_the_summary_has_what_it_should(run):
    summary = summary_of(run(*small("--json")))
    assert {
        *("expected", "delivered", "missed", "spurious", "duplicate", "false_positive_ratio"),
        *("false_negative_ratio", "relay_share", "hops", "messages", "control", "load"),
        *("state_bytes", "invariants", "seed", "virtual_ms", "cost", "phases", "replay"),
    } <= set(summary)
    assert set(summary["hops"]) == {"mean", "p50", "p99", "max"}
    assert {"by_kind", "per_event", "per_delivery"} <= set(summary["messages"])
    assert {"per_join", "per_leave", "per_subscribe"} <= set(summary["control"])
    assert {"gini", "max_over_mean"} <= set(summary["load"])


def test_the_cost_is_of_this_process_and_by_part(run):
    cost = summary_of(run(*small("--json", "--start", "converged")))["cost"]
    parts = [cost[f"cpu_seconds_{part}"] for part in ("setting_up", "running", "checking")]
    assert parts[1] > 0
    assert cost["cpu_seconds"] == pytest.approx(sum(parts), abs=0.01)
    assert cost["microseconds_per_message"] > 0
    assert cost["memory_peak_mb"] > 1


@pytest.mark.parametrize(("nodes", "kind"), [(4_096, "small"), (4_097, "symbols")])
def test_the_workload_suits_the_size(nodes, kind):
    assert scenario_of(SimulateOptions(nodes=nodes), None).workload.kind == kind
    chosen = scenario_of(SimulateOptions(nodes=nodes, workload="attributes"), None)
    assert chosen.workload.kind == "attributes"


def test_one_seed_is_one_run(run, tmp_path):
    def traced(name, seed):
        summary = summary_of(run(*small("--seed", seed, "--json", "--trace", tmp_path / name)))
        del summary["cost"], summary["replay"]
        return summary, (tmp_path / name).read_bytes()

    assert traced("a.jsonl", 5) == traced("b.jsonl", 5)
    assert traced("c.jsonl", 6) != traced("d.jsonl", 5)


def test_a_trace_is_judged_like_its_run(run, tmp_path):
    file = tmp_path / "t.jsonl"
    disturbed = ("--crash", 0.25, "--churn", 1, "--loss", 0.05, "--trace", file)
    summary = summary_of(run(*small(*disturbed, "--seed", 2, "--json")))
    with file.open() as lines:
        checker = check_trace(lines)
    assert checker.violations_count == 0
    names = ("events", "expected", "delivered", "missed", "excused", "late")
    assert [getattr(checker.counts, name) for name in names] == [summary[name] for name in names]
    assert list(checker.phases) == list(summary["phases"])


def test_for_people(run):
    done = run(*small())
    assert done.code == 0
    assert "0 missed, 0 spurious, 0 duplicate" in done.out
    assert "█" in done.out
    assert "nothing violated" in done.out


def test_phases_of_a_crash(run):
    summary = summary_of(run(*small("--crash", 0.5, "--json")))
    assert list(summary["phases"])[-3:] == ["before", "during", "after"]
    assert summary["phases"]["during"]["causes"]["crash"] == 4
    assert sum(phase["events"] for phase in summary["phases"].values()) == 12
    assert summary["phases"]["after"]["missed"] == 0


def test_other_disturbances(run):
    disturbed = ("--partition", 2, "--churn", 1, "--leave", 2, "--loss", 0.05, "--reorder", 0.1)
    summary = summary_of(run(*small(*disturbed, "--duplicate", 0.1, "--json")))
    named = ["leaving", "before", "churn", "parted", "healed", "after"]
    assert list(summary["phases"])[-6:] == named
    assert summary["control"]["per_leave"] > 0
    assert sum(phase["events"] for phase in summary["phases"].values()) == 12


def test_settings_reach_whom_they_concern(run):
    summary = summary_of(run(*small("--set", "degree=2", "--set", "latency_ms=50", "--json")))
    assert summary["settings"] == {"degree": 2}
    assert summary["latency_ms"]["max"] >= 50


def test_keys_placed_by_interest_save_relays(run, tmp_path):
    """Of 64 nodes, eight each want the same: placed by that, they are neighbours."""
    ranges = [(number % 8 * 10, number % 8 * 10 + 9) for number in range(64)]
    (tmp_path / "s.jsonl").write_text(
        "".join(
            json.dumps({"id": f"s{number}", "filter": f"n BETWEEN {low} AND {high}"}) + "\n"
            for number, (low, high) in enumerate(ranges)
        )
    )
    (tmp_path / "e.jsonl").write_text(
        "".join(json.dumps({"id": f"e{number}", "n": 2 * number}) + "\n" for number in range(40))
    )
    asked = ("simulate", "--overlay", "chord", "--nodes", "64", "--start", "converged", "--json")
    asked += ("--subscriptions", tmp_path / "s.jsonl", "--events", tmp_path / "e.jsonl")
    drawn = summary_of(run(*asked))
    placed = summary_of(run(*asked, "--set", "placement=interest"))
    assert placed["settings"] == {"placement": "interest"}
    assert placed["delivered"] == drawn["delivered"] == 320
    assert placed["relay_share"] < drawn["relay_share"] / 2


def test_a_scenario_file(run, tmp_path):
    file = tmp_path / "s.toml"
    file.write_text(
        'overlay = "flood"\nnodes = 5\nseed = 9\n[[phases]]\nname = "one"\n'
        '[[phases.steps]]\ndo = "publish"\ncount = 7\n'
    )
    summary = summary_of(run("simulate", "--scenario", file, "--json"))
    assert (summary["nodes"], summary["seed"], summary["events"]) == (5, 9, 7)
    summary = summary_of(run("simulate", "--scenario", file, "--seed", 4, "--json"))
    assert summary["seed"] == 4


def test_a_swarm_scenario(run):
    summary = summary_of(run("simulate", "--swarm", 3, "--overlay", "flood", "--json"))
    assert summary["overlay"] == "flood"
    assert summary["replay"] == "peersub simulate --overlay flood --swarm 3"


# --- when it goes wrong ------------------------------------------------------------------------


def test_a_violation_ends_with_the_command_that_replays_it(run, monkeypatch):
    from peersub.overlays.core.home import Home

    # A planted mistake: whoever wants one event wants all.
    monkeypatch.setattr(Home, "matching", lambda self, event: tuple(self.subscriptions))
    done = run(*small("--seed", 3))
    assert done.code == 1
    assert "violation of wrong-subscriber at" in done.err
    assert "more violations" in done.err
    assert "peersub: replay with: peersub simulate --overlay flood --nodes 8 --seed 3" in done.err


def test_the_replay_command_leaves_nothing_out():
    options = SimulateOptions(
        overlay="chord",
        crash=0.5,
        every_ms=7,
        through_wire=True,
        settings=("a=1", "b=2"),
        trace="t.jsonl",
        as_json=True,
    )
    assert options.command() == [
        *("peersub", "simulate", "--overlay", "chord", "--every", "7", "--crash", "0.5"),
        *("--through-wire", "--set", "a=1", "--set", "b=2"),
    ]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--overlay", "ring"), "there is no overlay 'ring'"),
        (("--overlay", "flood", "--delivery", "at_least_once"), "flood promises best effort only"),
        (("--overlay", "flood", "--delivery", "maybe"), "delivery is one of"),
        (("--overlay", "flood", "--strategy", "covering"), "no routing strategies"),
        (("--overlay", "flood", "--loss", "1.5"), "loss is a share"),
        (("--overlay", "flood", "--crash", "2"), "fraction is a share"),
        (("--overlay", "flood", "--churn", "0"), "per_second is above 0"),
        (("--overlay", "flood", "--start", "asleep"), "start is one of"),
        (("--overlay", "flood", "--workload", "huge"), "kind is one of"),
        (("--overlay", "flood", "--set", "degree"), "write name=value"),
        (("--overlay", "flood", "--set", "degree=many"), "degree is a whole number"),
        (("--overlay", "flood", "--set", "colour=red"), "there is no setting 'colour'"),
        (("--overlay", "tree", "--set", "placement=interest"), "there is no setting 'placement'"),
        (("--overlay", "chord", "--set", "placement=near"), "placement is one of"),
        (
            ("--overlay=chord", "--nodes=9", "--set", "key_bits=3", "--set", "placement=evenly"),
            "9 nodes do not fit on a circle of 2^3 keys",
        ),
        (("--nodes", "0"), "--nodes"),
        (("--subscriptions", "s.jsonl"), "Add --events"),
        (("--subscriptions", "nowhere.jsonl", "--events", "e.jsonl"), "no such file"),
        (("--scenario", "nowhere.toml"), "no such file"),
        (("--swarm", "1", "--nodes", "3"), "Leave out --nodes"),
        (("--overlay", "flood", "--trace", "t.csv"), "--trace writes JSON Lines"),
        (("--overlay", "flood", "--deliveries", "no/d.jsonl"), "does not exist"),
    ],
)
def test_bad_options_are_refused_in_one_line(arguments, why, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("simulate", *arguments)
    assert done.code == 2, done.err
    assert why in done.err and done.err.count("\n") == 1
    assert done.out == ""
    assert list(tmp_path.iterdir()) == []


def test_bad_files_are_refused_with_their_place(files, run):
    (files / "s.jsonl").write_text(
        '{"id": "s1", "filter": "TRUE"}\n{"id": "s2", "filter": "a >"}\n'
    )
    done = run(*on_files(files))
    assert done.code == 2 and "s.jsonl, line 2" in done.err
    (files / "s.jsonl").write_text('{"id": "s1", "filter": "TRUE"}\n')
    (files / "e.jsonl").write_text('{"a": 1}\nnonsense\n')
    done = run(*on_files(files))
    assert done.code == 2 and "e.jsonl, line 2" in done.err
    (files / "e.jsonl").write_text('{"id": 1}\n{"id": 1}\n')
    done = run(*on_files(files))
    assert done.code == 2 and "two events have the id '1'" in done.err


def test_a_bad_scenario_names_its_place(run, tmp_path):
    file = tmp_path / "s.toml"
    file.write_text('overlay = "flood"\n[[phases]]\nname = "x"\n[[phases.steps]]\ndo = "dance"\n')
    done = run("simulate", "--scenario", file)
    assert done.code == 2 and "phases[0].steps[0].do" in done.err


# --- explain -----------------------------------------------------------------------------------


@pytest.fixture
def trace(files, run):
    file = files / "t.jsonl"
    assert run(*on_files(files, "--trace", file)).code == 0
    return file


def test_explain_a_delivery(trace, run):
    done = run("explain", "--trace", trace, "--event", "e20", "--subscription", "tagged")
    assert done.code == 0
    assert done.out.startswith("delivered: e20 was published on")
    done = run("explain", "--trace", trace, "--event", "e20", "--subscription", "tagged", "--json")
    assert json.loads(done.out)["verdict"] == "delivered"


def test_explain_why_not(trace, run):
    done = run("explain", "--trace", trace, "--event", "e21", "--subscription", "tagged")
    assert done.code == 4
    assert done.out.startswith("not-matching") and "tag = 'a'" in done.out


def test_explain_needs_a_trace(files, run):
    asked = ("--event", "e1", "--subscription", "all")
    done = run("explain", "--trace", files / "e.jsonl", *asked)
    assert done.code == 2 and "line 1: not a trace" in done.err
    done = run("explain", "--trace", files / "nowhere.jsonl", *asked)
    assert done.code == 2 and "no such file" in done.err


def test_explaining_a_trace_that_is_not_there_says_just_that(run):
    done = run("explain", "--trace", "missing.jsonl", "--event", "e", "--subscription", "s")
    assert done.code == 2
    assert done.err.strip().endswith("missing.jsonl: there is no such file. Check the path.")
