"""`peersub filter check | explain | covers`."""

import json

import pytest

from peersub import Filter


def test_check_prints_the_canonical_text(run):
    done = run("filter", "check", "price>10 and symbol='ACME'")
    assert (done.code, done.out.strip()) == (0, Filter("price>10 and symbol='ACME'").text)
    assert done.err == ""


def test_check_warns_of_what_can_be_meant_otherwise(run):
    done = run("filter", "check", "a = 1 AND a = 2")
    assert done.code == 0 and "warning" in done.err
    done = run("filter", "check", "a = 1 AND a = 2", "--json")
    assert "unsatisfiable" in {finding["code"] for finding in json.loads(done.out)["findings"]}


def test_check_against_events(tmp_path, run):
    (tmp_path / "e.jsonl").write_text('{"price": 5}\n')
    done = run("filter", "check", "price > '10'", "--events", tmp_path / "e.jsonl", "--json")
    assert done.code == 0 and json.loads(done.out)["findings"]
    done = run("filter", "check", "price > 10", "--events", tmp_path / "e.jsonl", "--json")
    assert json.loads(done.out)["findings"] == []


def test_check_refuses_with_the_position(run):
    done = run("filter", "check", "price ~ ten", "--json")
    verdict = json.loads(done.out)
    assert done.code == 2 and not verdict["ok"] and verdict["position"] == 6
    done = run("filter", "check", "price ~ ten")
    assert done.code == 2 and done.err.count("\n") == 1 and "character 7" in done.err


def test_check_a_file(tmp_path, run):
    (tmp_path / "s.jsonl").write_text(
        '{"id": "a", "filter": "x > 1"}\n{"id": "b", "filter": "x >"}\n'
        '{"id": "c", "xpath": "/a["}\n'
    )
    done = run("filter", "check", "--file", tmp_path / "s.jsonl")
    assert (done.code, done.out.strip()) == (2, "1 good, 2 bad")
    assert "line 2" in done.err and "line 3" in done.err
    done = run("filter", "check", "--file", tmp_path / "s.jsonl", "--json")
    assert [entry["ok"] for entry in json.loads(done.out)["filters"]] == [True, False, False]
    (tmp_path / "s.jsonl").write_text('{"id": "a", "filter": "x > 1"}\n')
    assert run("filter", "check", "--file", tmp_path / "s.jsonl").code == 0


def test_check_an_xpath_pattern(run):
    assert run("filter", "check", "--xpath", "/a//b[@c]").code == 0
    assert run("filter", "check", "--xpath", "/a[position()=1]").code == 2


@pytest.mark.parametrize(
    ("event", "matches", "why"),
    [
        ({"a": 1, "b": 2}, True, "holds: b is 2"),
        ({"a": 1, "b": 9}, False, "fails: b is 9"),
        ({"a": 1}, False, "unknown: b is missing"),
        ({"a": 1, "b": float("nan")}, False, "unknown: b is missing"),
        ({"a": 1, "b": "x"}, False, 'unknown: b is "x" (string), compared with a number'),
        ({"a": 1, "b": [1]}, False, "unknown: b is [1] (opaque), compared with a number"),
    ],
)
def test_explain_an_event(run, event, matches, why):
    done = run("filter", "explain", "a = 1 AND b < 5", "--event", json.dumps(event))
    assert done.code == (0 if matches else 4)
    assert why in done.out
    done = run("filter", "explain", "a = 1 AND b < 5", "--event", json.dumps(event), "--json")
    assert json.loads(done.out)["matches"] is matches


@pytest.mark.parametrize(
    "text",
    [
        "NOT (a = 1 OR b LIKE 'x%') AND (c IN (1, 'x') OR d IS NULL)",
        "TRUE", "FALSE OR a", "a BETWEEN 1 AND 'x'", "a NOT IN (1, 'x')", "a LIKE '%x_y%'",
        "NOT a RLIKE '^x'", "t > TIMESTAMP '2024-01-01 00:00:00' AND 1 < 2",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "event",
    [{}, {"a": 1}, {"a": True}, {"a": "xxy", "b": "q", "c": "x"}, {"a": {"b": 1}, "d": [1]}],
)
def test_the_tree_holds_exactly_when_the_filter_matches(run, text, event):
    done = run("filter", "explain", text, "--event", json.dumps(event), "--json")
    result = json.loads(done.out)
    assert result["tree"]["holds"] is result["matches"] is Filter(text).matches(event)
    assert run("filter", "explain", text).code == 0


def test_explain_an_xpath_pattern(run):
    assert run("filter", "explain", "--xpath", "/a/b", "--event", "<a><b/></a>").code == 0
    assert run("filter", "explain", "--xpath", "/a/b", "--event", "<a/>").code == 4


def test_covers(run):
    assert run("filter", "covers", "a > 1", "a > 2 AND b = 'x'").code == 0
    assert run("filter", "covers", "/a//b", "/a/b", "--xpath").code == 0
    assert run("filter", "covers", "/a/b", "/a//b", "--xpath").code == 4


@pytest.mark.parametrize(
    ("general", "specific"),
    [
        ("a > 2", "a > 1 AND b = 'x'"),
        ("a > 1.5", "a >= 1.5"),
        ("a < 10 AND a > 0", "a BETWEEN 0 AND 5"),
        ("a IS NOT NULL", "b = 1"),
        ("a.b = 1", "a.b IN (1, 2)"),
        ("a = 'x'", "a LIKE 'x%'"),
        ("a LIKE '%y%'", "a LIKE '%x%'"),
        ("a = TRUE", "a IN (TRUE, FALSE)"),
        ("d > DATE '2024-01-01'", "d >= DATE '2024-01-01'"),
        ("t < TIMESTAMP '2024-01-01 00:00:00'", "t > TIMESTAMP '2020-01-01 00:00:00'"),
        ("a > 5 OR b > 5", "a > 4"),
        ("FALSE", "TRUE"),
    ],
)
def test_a_counterexample_is_true(run, general, specific):
    from peersub.cli.counterexamples import counterexample

    done = run("filter", "covers", general, specific, "--json")
    result = json.loads(done.out)
    assert done.code == 4 and result["covers"] is False and result["example"] is not None
    example = counterexample(Filter(general), Filter(specific))
    assert Filter(specific).matches(example) and not Filter(general).matches(example)
