"""One node among others, attacked: it goes on, and counts what came."""

import asyncio

import pytest

from peersub.bench.hostile import HostileSettings, run_hostile
from peersub.bench.hostile_frames import Target, hostile_acts
from peersub.bench.process_figures import can_look

KINDS = 14


@pytest.mark.skipif(not can_look(), reason="needs /proc")
def test_an_attacked_node_serves_others_and_counts_each_act():
    # How fast it serves meanwhile is for the benchmark: here nothing is compared with a bystander.
    settings = HostileSettings(
        frames=2_000, frames_per_second=4_000, calm_s=0.2, rate=100, elsewhere_share=0, rounds=2
    )
    result = asyncio.run(run_hostile(settings, lambda _: None))
    assert result.problems == []
    assert result.frames >= 2_000
    assert len(result.acts) == KINDS
    assert result.judgement.acknowledged >= 100
    assert result.judgement.expected >= 100
    # No act can make up reasons of its own: their table is bounded.
    assert len(result.counted) < 40
    # The node greets so many strangers at once, and no more.
    assert result.descriptors_max < 9 + 256 + 32


def test_one_seed_is_one_attack():
    target = Target("127.0.0.1:1", "127.0.0.1:2")
    first, again = (list(hostile_acts(7, target, 500)) for _ in range(2))
    assert first == again
    assert first != list(hostile_acts(8, target, 500))
    assert sum(act.frames for act in first) >= 500
