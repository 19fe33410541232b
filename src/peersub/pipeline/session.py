"""A Spark session for the pipeline: local by default, or on a cluster, or by Spark Connect.

`local[*]` starts Spark in this process, with a Java that is found or brought along (`java`).
`spark://HOST:PORT` and other cluster masters run the same job there; `sc://HOST:PORT` speaks to a
Connect server, and needs no Java here. Steps use only what all three offer: no `sparkContext`, no
RDDs.

Each setting stands in a table with its reason. Settings that a session may change while it runs go
to every kind of session; the others only to one that is started here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from peersub.pipeline.java import java_home

__all__ = ["LOCAL_MASTER", "SessionSettings", "spark_session"]

LOCAL_MASTER: Final = "local[*]"

# Setting: (value, reason). These can be set in any session.
_IN_EVERY_SESSION: Final[Mapping[str, tuple[str, str]]] = {
    "spark.sql.session.timeZone": ("UTC", "timestamps of events are UTC, wherever the job runs"),
    "spark.sql.caseSensitive": ("true", "names of attributes are case-sensitive"),
    "spark.sql.execution.arrow.maxRecordsPerBatch": (
        "8192",
        "rows of blocks are large; for others more rows a batch gain nothing",
    ),
    "spark.sql.execution.arrow.maxBytesPerBatch": (
        "32m",
        "a batch of event blocks must fit into a worker several times over",
    ),
    "spark.sql.parquet.compression.codec": ("zstd", "half the size of snappy at the same speed"),
    "spark.sql.sources.commitProtocolClass": (
        "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol",
        "the default, named: folders are written whole or not at all",
    ),
    "spark.sql.ui.explainMode": (
        "simple",
        "each job writes its plan out in words; the long form takes longer than small jobs do",
    ),
}

# These can only be set when a session is started here.
_AT_START: Final[Mapping[str, tuple[str, str]]] = {
    "spark.ui.enabled": ("false", "a port nobody asked for, and two seconds at start"),
    "spark.ui.showConsoleProgress": ("false", "the pipeline shows its own progress"),
    "spark.log.level": ("ERROR", "warnings of Spark's own start concern nobody here"),
    "spark.sql.adaptive.enabled": ("true", "small shuffles become few tasks, skewed joins are cut"),
    "spark.sql.shuffle.partitions": ("32", "adaptive execution joins what is too small"),
    "spark.driver.memory": ("2g", "sorting and shuffling; the index is not in Java's memory"),
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": (
        "true",
        "a worker that dies says where",
    ),
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": (
        "false",
        "a dataset is complete when it has its name",
    ),
}


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Where to run, and settings of Spark that replace or add to the pipeline's own."""

    master: str = LOCAL_MASTER
    more: Mapping[str, str] = field(default_factory=dict)
    application: str = "peersub"
    log: Path | None = None
    """A file for what Java and Spark say while they start and run; by default standard error."""

    @property
    def is_connect(self) -> bool:
        """Whether the session speaks to a Spark Connect server."""
        return self.master.startswith("sc://")

    @property
    def is_local(self) -> bool:
        """Whether driver and workers are on this machine, in one Java."""
        return self.master.startswith("local")

    @property
    def is_on_loopback(self) -> bool:
        """Whether everybody that must reach the driver is on this machine."""
        host = self.master.partition("://")[2].rpartition(":")[0]
        return self.is_local or host in ("127.0.0.1", "localhost", "[::1]")


def spark_session(settings: SessionSettings | None = None) -> Any:
    """A session with the pipeline's settings.

    One that runs already is used again. What it was started with stays as its owner chose it.

    Raises:
        JavaNotFoundError: a session is to be started here, and there is no Java for it.
    """
    settings = settings or SessionSettings()
    session = _connected(settings) if settings.is_connect else _started(settings)
    for name, (value, _) in _IN_EVERY_SESSION.items():
        session.conf.set(name, settings.more.get(name, value))
    return session


def _connected(settings: SessionSettings) -> Any:
    from pyspark.sql import SparkSession

    session = SparkSession.builder.remote(settings.master).appName(settings.application)
    for name, value in settings.more.items():
        session = session.config(name, value)
    return session.getOrCreate()


def _started(settings: SessionSettings) -> Any:
    _prepare_environment(settings)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(settings.master).appName(settings.application)
    chosen = _chosen_at_start(settings) if SparkSession.getActiveSession() is None else {}
    for name, value in (chosen | dict(settings.more)).items():
        builder = builder.config(name, value)
    with _errors_to(settings.log):
        return builder.getOrCreate()


def _chosen_at_start(settings: SessionSettings) -> dict[str, str]:
    chosen = {name: value for name, (value, _) in _AT_START.items()}
    chosen["spark.pyspark.python"] = sys.executable
    chosen["spark.executorEnv.PYTHONPATH"] = str(_package_folder())
    if settings.is_on_loopback:
        chosen["spark.driver.host"] = "127.0.0.1"
        chosen["spark.driver.bindAddress"] = "127.0.0.1"
    return chosen


@contextmanager
def _errors_to(log: Path | None) -> Iterator[None]:
    """Let processes that are started here write their standard error to a file.

    Java inherits it, keeps it, and has much to say that concerns nobody who runs a job.
    """
    if log is None:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _prepare_environment(settings: SessionSettings) -> None:
    """What Spark reads from the environment before it starts."""
    import pyspark

    os.environ["JAVA_HOME"] = str(java_home())
    # Workers must run this very Python: another one would lack pyarrow, or peersub itself.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # The Spark that PySpark brings along, not an older one that happens to be installed.
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    # Left over from another tool, it would turn a local session into a remote one.
    os.environ.pop("SPARK_REMOTE", None)
    if settings.is_on_loopback:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def _package_folder() -> Path:
    """The folder that holds the package, for workers that do not have it installed."""
    return Path(__file__).parents[2]
