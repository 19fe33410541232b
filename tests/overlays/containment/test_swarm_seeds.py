"""Scenarios of the swarm in which the tree once went wrong; each must go well for ever."""

import pytest

from peersub.simulator.running import run_scenario
from peersub.simulator.swarm import swarm_scenario

SEEDS = {
    5170: "an event came before the link to the next sibling was up at both ends",
    620: "who has taken leave is given a place that it still asked for",
    261: "two keepers that were crowns stood below each other",
    587: "a crown that was named by a node which then crashed looked for nobody",
    609: "a keeper that was no crown took members, and a circle closed",
    689: "a half of the network crashed, and nodes knew too few others",
    729: "a newcomer knew nobody but its contacts, which all crashed",
    849: "a keeper kept its place at the top level after its members had gone",
    925: "a node left, and with it all that was known of the other part of a split network",
    954: "of two crowns that one leaver had named, none heard of the other",
    1113: "a keeper that was about to leave the top level took a member there",
    1579: "who left the top level was asked for a place there before it had gone",
    5171: "a newcomer's only contact left in the other half of a split, and it asked nobody else",
    7147: "newcomers that had been asked by others did not ask them, and waited for ever",
    7677: "the contacts of a newcomer crashed one after the other before they had answered",
    6687: "a network counted as quiet while a member was about to leave the top level",
    20943: "two members of one node became crowns at once, and neither heard of the other",
    21043: "a member waited half a minute for a lost answer, and the tree counted as quiet",
    22094: "two keepers made each other the crown without end",
    23542: "who vacated its place at the top level in vain asked those below it only once",
    22641: "two that left stood below each other, and handed those below over without end",
    22153: "all that a newcomer knew were gone before any of them had answered",
    24068: "a newcomer reached its contact as it took leave, and was told of nobody else",
    24271: "both contacts of a newcomer took leave as it joined, and named nobody",
    1983: "one of a list of siblings left while an event was under way in the list",
}


@pytest.mark.parametrize("seed", SEEDS, ids=SEEDS.values())
def test_it_goes_well(seed):
    assert run_scenario(swarm_scenario(seed, "containment")).violations == []
