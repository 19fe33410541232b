"""Real Spark clusters on this machine, for tests: a master with workers, a Connect server.

Each is a handful of processes on loopback that end with the context. Nothing sleeps: a process is
ready when its log says so, and the log is read as it is written.
"""

import os
import re
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

import peersub
from peersub.pipeline.java import java_home
from pipeline.runs import QUICK_JAVA

READY_WITHIN_S = 120
_SPARK_HOME = Path(pyspark.__file__).parent


def _environment(folder):
    return os.environ | {
        "JAVA_HOME": str(java_home()),
        "SPARK_HOME": str(_SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(Path(peersub.__file__).parent.parent),
    }


@contextmanager
def _running(command, folder, ready):
    """A process, and what the pattern `ready` found in its log; it is ended by its own id."""
    process = subprocess.Popen(
        command,
        env=_environment(folder),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    # A process that never gets ready ends, and with it its log.
    guard = threading.Timer(READY_WITHIN_S, process.kill)
    guard.start()
    lines = []
    try:
        found = None
        for line in process.stdout:
            lines.append(line)
            found = re.search(ready, line)
            if found:
                break
        guard.cancel()
        if not found:
            raise RuntimeError(f"{command} did not get ready:\n{''.join(lines[-40:])}")
        drain = threading.Thread(target=_drain, args=(process.stdout,), daemon=True)
        drain.start()
        yield found
    finally:
        guard.cancel()
        process.terminate()
        try:
            process.wait(READY_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _drain(stream):
    """Read on, so that the process never waits for somebody to read."""
    try:
        for _ in stream:
            pass
    except ValueError:
        pass  # closed


def _spark_class(name, *arguments):
    return [str(_SPARK_HOME / "bin" / "spark-class"), name, *arguments]


@contextmanager
def standalone_cluster(folder, workers=2):
    """The address of a master with so many worker processes."""
    folder.mkdir(parents=True, exist_ok=True)
    master = _spark_class(
        "org.apache.spark.deploy.master.Master",
        *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0"),
    )
    with ExitStack() as stack:
        found = stack.enter_context(_running(master, folder, r"at (spark://[\d.]+:\d+)"))
        address = found[1]
        for _ in range(workers):
            worker = _spark_class(
                "org.apache.spark.deploy.worker.Worker",
                *("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0"),
                address,
            )
            stack.enter_context(_running(worker, folder, "Successfully registered with master"))
        yield address


@contextmanager
def connect_server(folder, settings):
    """The address of a Connect server with a local Spark behind it, which has these settings."""
    folder.mkdir(parents=True, exist_ok=True)
    server = [
        str(_SPARK_HOME / "bin" / "spark-submit"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *("--master", "local[2]", "--driver-java-options", QUICK_JAVA),
        *("--conf", "spark.connect.grpc.binding.port=0", "--conf", "spark.ui.enabled=false"),
        *("--conf", "spark.connect.grpc.binding.address=127.0.0.1"),
        *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.log.level=INFO"),
        *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
        "spark-internal",
    ]
    with _running(server, folder, r"server started at:? ?\S*?:(\d+)") as found:
        yield f"sc://127.0.0.1:{found[1]}"
