"""What pytest collects from the source: doctests, of the pipeline only where Spark is installed."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("pyspark") else ["src/peersub/pipeline/*"]
