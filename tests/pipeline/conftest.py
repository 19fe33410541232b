"""One Spark session for all tests of the pipeline, started when the first of them asks for it."""

import warnings

import pytest


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    pytest.importorskip("pyspark")
    from peersub.pipeline.session import SessionSettings, spark_session

    folder = tmp_path_factory.mktemp("spark")
    # Quick to start, and good enough for small data: not for real jobs.
    java = f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dderby.system.home={folder}"
    more = {
        "spark.driver.extraJavaOptions": java,
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
