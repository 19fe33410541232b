"""The same job on a local Spark, on a standalone cluster and on a Connect server: equal results."""

import pytest

from pipeline.clusters import connect_server, standalone_cluster
from pipeline.runs import (
    NETWORK,
    QUICK_JAVA,
    SHARDS,
    WITHOUT_COMPILING,
    content,
    inputs_in,
    report_of,
    run_in_process_of_its_own,
    with_conf,
)

pytestmark = [pytest.mark.spark, pytest.mark.slow]
# A driver and two executors would each compile every plan for itself.
ON_EXECUTORS = {**WITHOUT_COMPILING, "spark.executor.extraJavaOptions": QUICK_JAVA}


def carried_out(finished, out, *options):
    """The run that is finished on a local Spark, once more."""
    asked = (*inputs_in(finished / "in"), *NETWORK, *SHARDS)
    done = run_in_process_of_its_own("run", *asked, *options, "--out", str(out))
    assert done.returncode == 5, done.stderr
    return out


def test_local(finished):
    assert content(finished / "out")["deliveries"]


def test_standalone_master_with_two_workers(finished, tmp_path):
    with standalone_cluster(tmp_path / "cluster") as master:
        conf = with_conf(ON_EXECUTORS)
        out = carried_out(finished, tmp_path / "out", "--master", master, *conf)
    assert content(out) == content(finished / "out")
    assert report_of(out) == report_of(finished / "out")


def test_connect_server(finished, tmp_path):
    with connect_server(tmp_path / "server", WITHOUT_COMPILING) as master:
        out = carried_out(finished, tmp_path / "out", "--master", master)
    assert content(out) == content(finished / "out")
    assert report_of(out) == report_of(finished / "out")
