"""What pytest collects from the source, and how tests that run side by side are shared out."""

from importlib.util import find_spec

import pytest

# Doctests of the pipeline only where Spark is installed.
collect_ignore_glob = [] if find_spec("pyspark") else ["src/peersub/pipeline/*"]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Tests of one module in one process, and those of Spark all in one.

    Modules share what is costly to make; a second Spark would cost more than it gains.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByModule(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            path = nodeid.partition("::")[0]
            return "spark" if path.startswith("tests/pipeline/") else path

    return ByModule(config, log)
