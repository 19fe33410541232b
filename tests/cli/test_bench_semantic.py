"""`peersub bench semantic`."""

import json

NOTE = "<!ELEMENT note (to, line*)><!ELEMENT to EMPTY><!ELEMENT line (#PCDATA)>"
FEW = ("bench", "semantic", "--peers", "5,10", "--documents", "3", "--sample", "4")


def test_a_run_with_a_schema_of_ones_own(run, tmp_path):
    schema = tmp_path / "note.dtd"
    schema.write_text(NOTE)
    outcome = run(*FEW, "--schema", str(schema), "--out", str(tmp_path / "out"), "--json")
    assert outcome.code == 0
    found = json.loads(outcome.out)
    assert (found["schema"], found["ok"]) == ("note.dtd", True)
    assert (tmp_path / "out" / "figure3.svg").exists()
    assert "10 peers" in outcome.err


def test_a_run_shows_tables(run):
    outcome = run(*FEW)
    assert outcome.code == 0
    assert "Figure 3" in outcome.out
    assert "the project's news schema" in outcome.out


def test_what_is_wrong_is_said_in_one_line(run, tmp_path):
    schema = tmp_path / "broken.dtd"
    schema.write_text("<!ELEMENT note (to")
    target = tmp_path / "file"
    target.write_text("")
    for arguments, words in (
        ((*FEW, "--schema", "nowhere.xsd"), "nowhere.xsd: cannot be read"),
        ((*FEW, "--schema", str(schema)), "broken.dtd"),
        ((*FEW[:2], "--peers", "10,5"), "numbers that grow"),
        ((*FEW[:2], "--peers", "many"), "is no list of numbers"),
        ((*FEW, "--out", str(target)), "cannot be written"),
    ):
        outcome = run(*arguments)
        assert outcome.code == 2
        assert words in outcome.err
