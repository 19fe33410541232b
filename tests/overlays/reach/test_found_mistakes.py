"""Drawn networks in which mistakes were found: none is left in them."""

import pytest

from peersub.simulator.running import run_scenario
from peersub.simulator.swarm import swarm_scenario

FOUND_MISTAKES = {
    72171: "an event overtakes the wish for the link that was made for it, and is dropped",
    6000206: "who comes in while those leave that it knows of does not look for the others",
    6000245: "a copy stays with who is to have none, as the word that says so was lost",
}


@pytest.mark.parametrize("seed", FOUND_MISTAKES, ids=FOUND_MISTAKES.get)
def test_what_was_found_is_mended(seed: int) -> None:
    assert run_scenario(swarm_scenario(seed, "reach")).violations == []
