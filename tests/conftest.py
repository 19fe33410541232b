"""Settings that all tests share.

Random tests try a moderate number of examples by default, the same ones in each run. More, and
others in each run, on demand:

    make test ARGS="--hypothesis-profile=thorough"

A failing one prints the decorator and the seed that replay it.
"""

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
