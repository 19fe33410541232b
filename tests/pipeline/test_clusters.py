"""The same job on a local Spark, on a standalone cluster and on a Connect server: equal results."""

import pytest

from pipeline.clusters import connect_server, standalone_cluster
from pipeline.runs import content, market_files, report_of, run_in_process_of_its_own

pytestmark = [pytest.mark.spark, pytest.mark.slow]
OVERLAYS = ("--overlay", "chord", "--nodes", "16")
SHARDS = ("--shards", "2")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return market_files(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="module")
def local_run(inputs, tmp_path_factory):
    out = tmp_path_factory.mktemp("local") / "out"
    return carried_out(inputs, out, "local[2]")


def carried_out(inputs, out, master):
    done = run_in_process_of_its_own(
        "run", *inputs, *OVERLAYS, *SHARDS, "--master", master, "--out", str(out)
    )
    assert done.returncode == 5, done.stderr
    return out


def test_local(local_run):
    assert content(local_run)["deliveries"]


def test_standalone_master_with_two_workers(inputs, local_run, tmp_path):
    with standalone_cluster(tmp_path / "cluster") as master:
        out = carried_out(inputs, tmp_path / "out", master)
    assert content(out) == content(local_run)
    assert report_of(out) == report_of(local_run)


def test_connect_server(inputs, local_run, tmp_path):
    with connect_server(tmp_path / "server") as master:
        out = carried_out(inputs, tmp_path / "out", master)
    assert content(out) == content(local_run)
    assert report_of(out) == report_of(local_run)
