"""Settings that all tests share.

Random tests try a moderate number of examples by default, the same ones in each run. More, and
others in each run, on demand:

    make test ARGS="--hypothesis-profile=thorough"

A failing one prints the decorator and the seed that replay it.
"""

import pytest
from hypothesis import HealthCheck, settings

# A loaded machine is no failure: no deadline, and no complaint about slow generation.
settings.register_profile(
    "standard",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "thorough", settings.get_profile("standard"), derandomize=False, max_examples=10_000
)
settings.load_profile("standard")


def pytest_collection_modifyitems(items):
    """Where tests run side by side: those of one module in one process, those of Spark in one.

    Modules share what is costly to make; a second Spark would cost more than it gains.
    """
    for item in items:
        path = item.nodeid.partition("::")[0]
        group = "spark" if path.startswith("tests/pipeline/") else path
        item.add_marker(pytest.mark.xdist_group(group))
