"""`peersub pipeline`: from files to the report, what it refuses, and that it can go on."""

import json
import signal
import subprocess

import pytest
from lxml import html

from peersub.cli import main
from pipeline.runs import (
    NETWORK,
    SHARDS,
    content,
    environment,
    inputs_in,
    pipeline_command,
    report_of,
    run_in_process_of_its_own,
)

pytestmark = pytest.mark.spark
ASKED = (*NETWORK, *SHARDS)


def test_a_run_ends_with_the_report(finished, capsys):
    out = str(finished / "out")
    assert main(["pipeline", "run", "--resume", *ASKED, "--out", out]) == 5
    shown = capsys.readouterr()
    assert "relay share" in shown.out
    assert "report.html" in shown.err
    report = json.loads((finished / "out/report.json").read_text())
    (chord,) = report["overlays"]
    assert chord["deliveries"]["missed"] == chord["deliveries"]["spurious"] == 0
    assert chord["deliveries"]["delivered"] == report["match"]["deliveries"] > 0
    page = html.parse(str(finished / "out/report.html"))
    assert page.findall(".//svg")


def test_deliveries_are_those_of_match(finished, tmp_path):
    expected = tmp_path / "expected.jsonl"
    inputs = inputs_in(finished / "in")
    assert main(["match", "-q", *inputs, "--skip-bad", "--out", str(expected)]) == 5
    wanted = [json.loads(line) for line in expected.read_text().splitlines()]
    pairs = sorted(repr((row["event_id"], row["subscription_id"])) for row in wanted)
    assert content(finished / "out", ["deliveries"]) == {"deliveries": pairs}


def test_every_row_is_used_or_in_quarantine(finished):
    steps = json.loads((finished / "out/run.json").read_text())["steps"]
    for name in ("events", "subscriptions"):
        counts = steps[name]["counts"]
        lines = (finished / "in" / f"{name}.jsonl").read_text().splitlines()
        assert counts["rows"] == len(lines) == counts[name] + counts["quarantined"]
        (row,) = content(finished / "out", [f"quarantine/dataset={name}"]).values()
        assert len(row) == counts["quarantined"] == 1


def test_json_tells_the_counts(finished, capsys):
    out = str(finished / "out")
    assert main(["pipeline", "report", "--resume", "-q", "--json", *ASKED, "--out", out]) == 5
    told = json.loads(capsys.readouterr().out)
    assert told["quarantined"] == 2
    assert told["steps"]["audit:chord"]["missed"] == 0


def test_a_finished_folder_is_refused(finished, capsys):
    out = str(finished / "out")
    assert main(["pipeline", "run", *inputs_in(finished / "in"), *ASKED, "--out", out]) == 2
    assert "holds a finished run" in capsys.readouterr().err


def test_other_settings_are_refused(finished, capsys):
    out = str(finished / "out")
    assert main(["pipeline", "run", "--resume", *SHARDS, "--nodes", "17", "--out", out]) == 2
    assert "nodes = 16, and this asks for 17" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run"], "--out"),
        (["run", "--out", "{out}"], "name them with --events"),
        (["run", "--out", "{out}", "--events", "nowhere.jsonl"], "there is no such file"),
        (["run", "--out", "{out}", "--events", "-"], "standard input"),
        (["run", "--out", "{out}", "--overlay", "carrier-pigeon"], "there is no overlay"),
        (["run", "--out", "{out}", "--set", "nonsense"], "NAME=VALUE"),
        (["run", "--out", "{out}", "--set", "wings=2"], "has this setting"),
        (["run", "--out", "{out}", "--set", "strategy=best"], "there is no strategy"),
        (["run", "--out", "{out}", "--schema", "price"], "name:kind"),
        (["run", "--out", "{out}", "--events-format", "docx"], "docx"),
        (["run", "--out", "{out}/file.txt"], "is a file"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(arguments, words, tmp_path, capsys):
    (tmp_path / "file.txt").write_text("x")
    out = str(tmp_path / "out") if "{out}/file.txt" not in arguments else str(tmp_path)
    given = [part.replace("{out}", out) for part in arguments]
    assert main(["pipeline", *given]) == 2
    complaint = capsys.readouterr().err.strip().splitlines()[-1]
    assert words in complaint


def step_under_way(out):
    return json.loads((out / "run.json").read_text())["under_way"]


def test_a_run_that_was_killed_goes_on_and_ends_alike(finished, tmp_path):
    """The driver dies by `kill -9` in the midst of a step: the record says so.

    It has Spark's settings as they are for real jobs, and as many shards as the sizes ask for.
    """
    out = tmp_path / "out"
    asked = ("run", *inputs_in(finished / "in"), *NETWORK, "--master", "local[2]")
    process = subprocess.Popen(
        pipeline_command(*asked, "--out", str(out)),
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in process.stderr:
        if line.startswith("peersub: match:"):
            break
    while process.poll() is None and step_under_way(out) != "organise":
        pass
    process.send_signal(signal.SIGKILL)
    process.stderr.close()
    assert process.wait() == -signal.SIGKILL
    assert step_under_way(out) == "organise"

    again = run_in_process_of_its_own(*asked, "--out", str(out))
    assert again.returncode == 2
    assert "--resume" in again.stderr
    resumed = run_in_process_of_its_own(*asked, "--out", str(out), "--resume")
    assert resumed.returncode == 5, resumed.stderr
    assert "peersub: match: done before" in resumed.stderr
    assert content(out) == content(finished / "out")
    assert report_of(out) == report_of(finished / "out")
