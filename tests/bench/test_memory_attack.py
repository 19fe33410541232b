"""Attackers who make a node hold much find its bounds."""

import asyncio

import pytest

from peersub.bench.memory_attack import MARGIN_BYTES, MemoryResult, run_memory_attack
from peersub.bench.process_figures import can_look


@pytest.mark.skipif(not can_look(), reason="this machine has no /proc")
def test_frames_that_are_never_complete_take_what_is_documented():
    result = asyncio.run(run_memory_attack("incomplete frames", print))
    assert result.problems == [] and result.grown_bytes


def test_too_much_memory_is_a_problem():
    assert MemoryResult(1_000, 1_000 + MARGIN_BYTES).problems == []
    assert "memory has grown" in MemoryResult(1_000, 1_001 + MARGIN_BYTES).problems[0]
