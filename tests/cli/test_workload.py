"""`peersub workload`: files that the other commands read."""

import json

import pytest
from lxml import etree

from peersub.filters.xpath import XPathFilter
from peersub.workloads.xml import DocumentGenerator, news_schema

DTD = "<!ELEMENT a (b*)><!ELEMENT b (#PCDATA)>"


@pytest.fixture
def dtd(tmp_path):
    path = tmp_path / "small.dtd"
    path.write_text(DTD, encoding="utf-8")
    return path


def test_documents_and_patterns_go_through_match(run, tmp_path):
    folder, subscriptions = tmp_path / "documents", tmp_path / "s.jsonl"
    done = run("workload", "documents", "--out", folder, "--count", 20, "--json")
    assert done.code == 0
    said = json.loads(done.out)
    files = sorted(folder.iterdir())
    assert said["documents"] == len(files) == 20
    assert said["bytes"] == sum(file.stat().st_size for file in files)
    assert files[3].read_text(encoding="utf-8") == DocumentGenerator(news_schema()).text(3)
    done = run("workload", "xpaths", "--out", subscriptions, "--count", 50, "--json")
    assert json.loads(done.out)["patterns"] == 50
    wanted = [json.loads(line) for line in subscriptions.read_text("utf-8").splitlines()]
    matched = run("match", "--subscriptions", subscriptions, "--events", folder, "--quiet")
    pairs = {tuple(json.loads(line).values()) for line in matched.out.splitlines()}
    expected = {
        (file.name, each["id"])
        for file in files
        for each in wanted
        if etree.fromstring(file.read_bytes()).getroottree().xpath(each["xpath"])
    }
    assert pairs == expected != set()


def test_a_range_is_a_part_of_the_whole(run, tmp_path):
    whole = run("workload", "xpaths", "--count", 10).out.splitlines()
    part = run("workload", "xpaths", "--first", 4, "--count", 3).out.splitlines()
    assert part == whole[4:7]
    assert all(XPathFilter(json.loads(line)["xpath"]) for line in whole)


def test_a_schema_of_the_users_own(run, tmp_path, dtd):
    done = run("workload", "xpaths", "--schema", dtd, "--count", 30, "--wildcards", 0)
    assert {json.loads(line)["xpath"].replace("//", "/") for line in done.out.splitlines()} >= {
        "/a/b"
    }
    done = run("workload", "documents", "--schema", dtd, "--out", tmp_path / "d", "--tags", 5)
    assert done.code == 0 and "1,000 documents" in done.out


def test_what_was_left_out_of_a_schema_is_said(run, tmp_path):
    path = tmp_path / "open.dtd"
    path.write_text("<!ELEMENT a ANY>", encoding="utf-8")
    done = run("workload", "xpaths", "--schema", path, "--count", 1)
    assert done.code == 0 and "ANY" in done.err


def test_files_are_looked_for_beside_the_schema_only(run, tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "outside.ent").write_text("<!ELEMENT b EMPTY>", encoding="utf-8")
    (tmp_path / "inner" / "beside.ent").write_text("<!ELEMENT c EMPTY>", encoding="utf-8")
    path = tmp_path / "inner" / "s.dtd"
    path.write_text(
        '<!ELEMENT a (b?, c?)><!ENTITY % x SYSTEM "../outside.ent">%x;'
        '<!ENTITY % y SYSTEM "beside.ent">%y;',
        encoding="utf-8",
    )
    done = run("workload", "xpaths", "--schema", path, "--count", 60, "--wildcards", 0)
    asked = " ".join(json.loads(line)["xpath"] for line in done.out.splitlines())
    assert "c" in asked and "b" not in asked
    assert "outside.ent' was left out" in done.err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("xpaths", "--schema", "{folder}/none.xsd"), "there is no such file"),
        (("xpaths", "--schema", "{folder}/small.dtd", "--root", "x"), "no element 'x'"),
        (("xpaths", "--root", "x"), "--root goes with --schema"),
        (("xpaths", "--out", "{folder}/x.csv"), "writes JSON Lines"),
        (("xpaths", "--height", "1"), "height_max is at least height_min"),
        (("xpaths", "--levels", "1"), "allow more levels"),
        (("xpaths", "--out", "{folder}/small.dtd", "--schema", "{folder}/small.dtd"), "an input"),
        (("documents", "--out", "{folder}"), "the folder is not empty"),
        (("documents", "--out", "{folder}/small.dtd"), "cannot be used as a folder"),
        (("documents", "--out", "{folder}/d", "--levels", "1"), "allow more levels"),
        (("documents",), "--out"),
    ],
)
def test_mistakes_are_answered_in_one_line(run, tmp_path, dtd, words, problem):
    done = run("workload", *(word.format(folder=tmp_path) for word in words))
    assert done.code == 2
    assert problem in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("how", ["options", "scenario"])
def test_a_simulation_of_documents_of_a_schema(run, tmp_path, dtd, how):
    words = ["--overlay", "tree", "--nodes", 4, "--workload", "documents", "--schema", dtd]
    words += ["--events-count", 5, "--set", "tags_mean=6", "--set", "root=a"]
    if how == "scenario":
        path = tmp_path / "scenario.toml"
        path.write_text(
            f"""
            overlay = "tree"
            nodes = 4
            subscriptions = 4
            workload = {{ kind = "documents", schema = '{dtd}', root = "a", tags_mean = 6 }}
            phases = [{{ name = "publishing", steps = [{{ do = "publish", count = 5 }}] }}]
            """,
            encoding="utf-8",
        )
        words = ["--scenario", path]
    done = run("simulate", *words, "--json", "--quiet")
    assert done.code == 0, done.err
    summary = json.loads(done.out)
    assert summary["delivered"] == summary["expected"] > 0
    assert summary["missed"] == 0


def test_a_simulation_names_what_is_wrong_with_a_schema(run, tmp_path, dtd):
    simulate = ("simulate", "--nodes", 2, "--workload", "documents", "--quiet")
    for words, problem in [
        (("--schema", tmp_path / "none.dtd"), "there is no such file"),
        (("--schema", dtd, "--set", "root=z"), "no element 'z'"),
        (("--schema", dtd, "--set", "levels_max=0"), "levels_max is at least 1"),
        (("--set", "root=a"), "root goes with a schema"),
    ]:
        done = run(*simulate, *words)
        assert (done.code, problem in done.err) == (2, True), done.err
