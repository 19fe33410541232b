"""Mistakes planted in an overlay on purpose: the checkers of a run must find each of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from peersub.simulator.running import run_scenario
from peersub.simulator.scenario import Scenario

__all__ = ["assert_found"]


def complaints(scenario: Scenario) -> list[str]:
    return [violation.text for violation in run_scenario(scenario).violations]


def assert_found(
    plant: Callable[[pytest.MonkeyPatch], None],
    expected: str,
    scenarios: list[Scenario],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In one of the runs the checkers say what is expected, and nothing without the mistake."""
    for scenario in scenarios:
        with monkeypatch.context() as planting:
            plant(planting)
            found = complaints(scenario)
        if any(expected in text for text in found):
            assert complaints(scenario) == [], "it is the mistake that is found"
            return
    pytest.fail(f"not found in {len(scenarios)} runs")
