"""What tests of the pipeline share, made when the first of them asks for it: a Spark session, and a
whole run in it.
"""

import warnings

import pytest

from peersub.cli import main
from pipeline.runs import (
    NETWORK,
    QUICK_FOR_SMALL_DATA,
    QUICK_JAVA,
    SHARDS,
    WITHOUT_COMPILING,
    market_files,
)


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    pytest.importorskip("pyspark")
    from peersub.pipeline.session import SessionSettings, spark_session

    folder = tmp_path_factory.mktemp("spark")
    more = {
        **QUICK_FOR_SMALL_DATA,
        "spark.driver.extraJavaOptions": f"{QUICK_JAVA} -Dderby.system.home={folder}",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder),
    }
    with warnings.catch_warnings():
        # PySpark's own start leaves sockets and pipes to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        session = spark_session(SessionSettings("local[2]", more))
    yield session
    session.stop()


@pytest.fixture
def settings_of_real_jobs(spark):
    """The session compiles plans, and plans again after each stage, as for real jobs."""
    chosen = {name: spark.conf.get(name) for name in QUICK_FOR_SMALL_DATA}
    for name in WITHOUT_COMPILING:
        spark.conf.unset(name)
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    yield
    for name, value in chosen.items():
        spark.conf.set(name, value)


@pytest.fixture(scope="session")
def finished(spark, tmp_path_factory):
    """A run from begin to end: the folder with its inputs `in` and what it wrote, `out`."""
    folder = tmp_path_factory.mktemp("run")
    asked = (*market_files(folder / "in"), *NETWORK, *SHARDS)
    assert main(["pipeline", "run", "-q", *asked, "--out", str(folder / "out")]) == 5
    return folder
