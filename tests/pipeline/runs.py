"""Runs of the pipeline for tests: a small market in files, and what a run wrote, to compare."""

import json
import os
import subprocess
import sys
from pathlib import Path

import duckdb

import peersub
from peersub.demo.market import draw_market

# Quick to start, and good enough for small data: not for real jobs. Compiled code of one tier is
# given little room by default, and is thrown away and compiled again.
QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
# For a handful of rows, to compile a plan costs more than all the rest, and so does planning it
# again after each stage. A run in `test_jobs`, which ends alike, and a test of each kind of step do
# it all the same.
WITHOUT_COMPILING = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
QUICK_FOR_SMALL_DATA = {**WITHOUT_COMPILING, "spark.sql.adaptive.enabled": "false"}

NETWORK = ("--overlay", "chord", "--nodes", "16")
SHARDS = ("--shards", "2")

DATASETS = (
    "deliveries",
    "classes",
    "coverings",
    "similar",
    "placement",
    "receipts/chord",
    "overlay_deliveries/chord",
    "findings/chord",
    "subscriptions",
    "quarantine/dataset=events",
    "quarantine/dataset=subscriptions",
)


def market_files(folder, subscriptions=300, events=200, seed=3):
    """Files of a small market, a few patterns among the subscriptions, and a bad line in each."""
    folder.mkdir(parents=True, exist_ok=True)
    market = draw_market(subscriptions, events, seed)
    stories = [
        {"id": f"story{number}", "body": text} for number, text in enumerate(market.documents)
    ]
    wanted = [{"id": name, "filter": text} for name, text in market.filters.items()]
    wanted += [{"id": name, "xpath": text} for name, text in market.patterns.items()]
    _write(folder / "events.jsonl", [*market.events, *stories], "{not json")
    _write(folder / "subscriptions.jsonl", wanted, '{"id": "odd", "filter": "price >"}')
    return inputs_in(folder)


def _write(path, rows, bad):
    lines = [json.dumps(row) for row in rows]
    lines.insert(len(lines) // 2, bad)
    path.write_text("\n".join(lines) + "\n", "utf-8")


def inputs_in(folder):
    return (
        *("--subscriptions", str(folder / "subscriptions.jsonl")),
        *("--events", str(folder / "events.jsonl")),
    )


def content(out, names=DATASETS):
    """The rows of datasets as sorted texts, whatever files they are in."""
    found = {}
    for name in names:
        relation = duckdb.read_parquet(f"{out}/{name}/*.parquet")
        found[name] = sorted(map(repr, relation.fetchall()))
    return found


def report_of(out):
    """The report without what depends on the machine and the folder."""
    report = json.loads((Path(out) / "report.json").read_text("utf-8"))
    for name in ("steps", "inputs", "reproduce"):
        report.pop(name, None)
    return report


def command(*arguments):
    script = "from peersub.cli import main; raise SystemExit(main())"
    return [sys.executable, "-c", script, *arguments]


def environment():
    """The process's own, with this very package."""
    return os.environ | {"PYTHONPATH": str(Path(peersub.__file__).parent.parent)}


def with_conf(settings):
    """Options of the command for settings of Spark."""
    return [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]


def pipeline_command(*arguments):
    """`peersub pipeline` with Spark's settings as they are for real jobs, in a quicker Java."""
    return command(
        "pipeline", *arguments, *with_conf({"spark.driver.extraJavaOptions": QUICK_JAVA})
    )


def run_in_process_of_its_own(*arguments):
    return subprocess.run(
        pipeline_command(*arguments),
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
