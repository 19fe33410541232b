"""What pytest collects from the source, and how tests that run side by side are shared out."""

import gc
from importlib.util import find_spec

import pytest

# Doctests only where what a module imports is installed.
_OPTIONAL = {
    "pyspark": "src/peersub/pipeline/*",
    "nats": "src/peersub/bench/network/nats_member.py",
    "zenoh": "src/peersub/bench/network/zenoh_member.py",
}
collect_ignore_glob = [place for package, place in _OPTIONAL.items() if not find_spec(package)]


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """What is collected stays to the end, more than a million objects.

    To look through them for garbage takes most of a second, each time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure(config):
    # Extensions complain of what nobody can let go when Python ends.
    gc.unfreeze()


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
