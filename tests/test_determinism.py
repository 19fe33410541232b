"""One seed, two processes, two hash seeds: one trace, byte for byte."""

import hashlib
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from peersub.overlays.registry import OVERLAYS

ROOT = Path(__file__).parents[1]

TRACE = """
import sys
from peersub.simulator import activities as asked
from peersub.simulator.running import run_scenario
from peersub.simulator.scenario import Scenario, ScenarioPhase
from peersub.simulator.settings import NetworkSettings
from peersub.trace.writing import TraceWriter

overlay, seed, delivery = sys.argv[1], int(sys.argv[2]), sys.argv[3]
events = asked.PublishActivity(count=20, every_ms=20, delivery=delivery)
churn = asked.SubscriptionChurnActivity(duration_ms=2000, per_second=10)
faults = (asked.CrashActivity(fraction=0.3), asked.RestartActivity(at_ms=2000))
split = (asked.PartitionActivity(), asked.HealActivity(at_ms=4000))
scenario = Scenario(
    seed=seed,
    overlay=overlay,
    nodes=12,
    subscriptions=30,
    join_every_ms=50,
    network=NetworkSettings(loss=0.02, duplicate=0.02, reorder=0.05),
    phases=(
        ScenarioPhase(name="crash", steps=(events, churn, *faults)),
        ScenarioPhase(name="split", steps=(events, *split, asked.JoinActivity(count=3))),
    ),
)
run_scenario(scenario, observers=[TraceWriter(sys.stdout, overlay=overlay, seed=seed)])
"""


@cache
def trace(overlay, seed, hash_seed):
    delivery = "mixed" if OVERLAYS[overlay].promises_at_least_once else "best_effort"
    variables = dict(os.environ) | {
        "PYTHONHASHSEED": str(hash_seed),
        "PYTHONPATH": str(ROOT / "src"),
    }
    command = [sys.executable, "-c", TRACE, overlay, str(seed), delivery]
    done = subprocess.run(command, capture_output=True, env=variables)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.mark.parametrize("overlay", sorted(OVERLAYS))
def test_one_seed_is_one_trace(overlay):
    one, other = trace(overlay, 1, hash_seed=1), trace(overlay, 1, hash_seed=2)
    assert one.count(b"\n") > 1_000
    assert b'"kind":"deliver"' in one and b'"fault":"crash"' in one
    if one != other:
        pairs = zip(one.splitlines(), other.splitlines(), strict=False)
        first = next((pair for pair in pairs if pair[0] != pair[1]), None)
        pytest.fail(f"the traces differ first in {first}")


def test_another_seed_is_another_trace():
    digests = {hashlib.sha256(trace("flood", seed, hash_seed=1)).digest() for seed in (1, 2)}
    assert len(digests) == 2
