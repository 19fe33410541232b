"""Reach at the command line: maps of attributes that are chosen, every knob, its figures."""

import json

import pytest

from peersub.overlays.reach.attributes import AttributeMap
from peersub.overlays.reach.settings import ReachSettings

TRADES = [
    {"id": f"t{number}", "symbol": f"S{number % 5}", "price": number, "bulk": True}
    if number % 10 == 0
    else {"id": f"t{number}", "symbol": f"S{number % 5}", "price": number}
    for number in range(100)
]
WANTED = ["symbol = 'S1' AND price > 10", "price < 50", "bulk", "symbol = 'S2' AND bulk"]


@pytest.fixture
def files(tmp_path):
    events, subscriptions = tmp_path / "events.jsonl", tmp_path / "subscriptions.jsonl"
    events.write_text("".join(json.dumps(trade) + "\n" for trade in TRADES), encoding="utf-8")
    lines = [json.dumps({"id": f"s{n}", "filter": text}) + "\n" for n, text in enumerate(WANTED)]
    subscriptions.write_text("".join(lines), encoding="utf-8")
    return "--subscriptions", subscriptions, "--events", events


def test_a_map_from_files_is_one_that_simulate_takes(run, files):
    done = run("workload", "reach-map", *files)
    assert (done.code, done.out) == (0, "bulk; price; symbol\n")
    assert "100 events and 4 subscriptions" in done.err
    text = done.out.strip()
    simulated = run(
        *("simulate", "--overlay", "reach", "--nodes", 8, *files, "--json", "--quiet"),
        *("--set", f"attributes={text}"),
    )
    assert simulated.code == 0
    assert json.loads(simulated.out)["settings"] == {"attributes": text}


def test_buckets_and_fine_bits_on_request(run, files):
    done = run("workload", "reach-map", *files, "--buckets", 4, "--json")
    said = json.loads(done.out)
    assert said["attributes"] == "bulk; price: 25, 50, 75; symbol # 4"
    assert said["events"] == 100 and said["subscriptions"] == 4
    # The id is an attribute too, and hashed: no filter demands it.
    assert said["bits_per_event"] == pytest.approx(3.1)
    done = run("workload", "reach-map", *files, "--fine", "--bits", 40)
    assert done.out == "bulk; price; symbol; price < 50; price >= 50\n"
    assert "identifier_bits=40" in done.err
    AttributeMap(40, done.out.strip())


def test_what_no_map_can_be_made_from_is_refused(run, files, tmp_path):
    empty = tmp_path / "none.jsonl"
    empty.write_text('{"id": "s", "filter": "a IS NULL"}\n', encoding="utf-8")
    for words, said in (
        (("--subscriptions", empty, *files[2:]), "no filter demands an attribute"),
        (("--subscriptions", tmp_path / "gone.jsonl", *files[2:]), "gone.jsonl"),
        ((*files, "--bits", 61), "bits"),
    ):
        done = run("workload", "reach-map", *words)
        assert done.code == 2
        assert said in done.err


def test_simulate_chooses_bits_from_its_own_workload(run):
    words = ("simulate", "--overlay", "reach", "--nodes", 16, "--start", "converged", "--json")
    more = (
        "--workload",
        "attributes",
        "--subscriptions-count",
        32,
        "--quiet",
        "--events-count",
        20,
    )
    done = run(*words, *more, "--chosen-bits")
    assert done.code == 0
    summary = json.loads(done.out)
    assert len(AttributeMap(32, summary["settings"]["attributes"])._entries) == 30
    assert "--chosen-bits" in summary["replay"]
    figures = summary["overlay_figures"]
    assert figures["places_visited_per_event"] >= 1
    assert figures["global_gap"] <= 2
    assert figures["hops_to_host"] == summary["messages"]["by_kind"]["rendezvous"] / 20


def test_bits_are_chosen_only_where_there_are_any_and_none_are_given(run):
    other = run("simulate", "--overlay", "flood", "--chosen-bits")
    assert (other.code, "only reach" in other.err) == (2, True)
    both = run("simulate", "--overlay", "reach", "--chosen-bits", "--set", "attributes=a")
    assert (both.code, "Leave out --chosen-bits" in both.err) == (2, True)


def test_people_see_what_is_special_to_the_overlay(run):
    done = run("simulate", "--overlay", "reach", "--nodes", 8, "--events-count", 10, "--quiet")
    assert done.code == 0
    (line,) = [each for each in done.out.splitlines() if each.startswith("reach   ")]
    assert "places visited per event" in line
    assert "lengths of places differ by" in line


GOOD = {
    "identifier_bits": 8,
    "attributes": "a; b: 5, 10; s # 3",
    "quench": "false",
    "summary": 3,
    "summary_filters": "false",
    "orders": 2,
    "copies": 1,
    "answer_share": 0.5,
    "renew_ms": 0,
    "resend_ms": 0,
    "changes_per_beat": 2,
    "beat_ms": 500,
    "links_max": 64,
}


def test_all_knobs_are_taken_together(run):
    words = [word for name, value in GOOD.items() for word in ("--set", f"{name}={value}")]
    done = run("simulate", "--overlay", "reach", "--nodes", 10, "--json", "--quiet", *words)
    assert done.code == 0
    assert set(json.loads(done.out)["settings"]) == set(GOOD) <= set(ReachSettings.__slots__)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("identifier_bits=61", "1 to 60 bits"),
        ("identifier_bits=5", "at most 32 nodes"),
        ("attributes=a: x", "bounds are numbers"),
        ("attributes=a # 0", "number of buckets"),
        ("attributes=a <", "no entry of a map"),
        ("quench=maybe", "true or false"),
        ("summary=-1", "summary is not negative"),
        ("answer_share=2", "share from 0 to 1"),
        ("takeover_ms=0", "takeover_ms is at least 1"),
        ("links_max=2", "links_max is at least 64"),
        ("shape=round", "there is no setting 'shape'"),
    ],
)
def test_a_knob_with_a_wrong_value_says_what_is_right(run, word, said):
    done = run("simulate", "--overlay", "reach", "--nodes", 40, "--set", word)
    assert done.code == 2
    assert said in done.err
