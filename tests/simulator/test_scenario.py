"""Scenario files: what they say, what is wrong with them, and back to text."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.overlays.core.link import LinkSettings
from peersub.overlays.core.publication import Delivery
from peersub.overlays.settings import SettingsError
from peersub.simulator.actions import (
    BreakEdges,
    BreakLinks,
    ChangeAt,
    CrashNodes,
    Heal,
    JoinNode,
    LeaveNode,
    MendEdges,
    Partition,
    PublishEvent,
    PublishEvents,
    RestartNode,
    StallNodes,
    SubscribeAt,
    TimedAction,
    UnsubscribeAt,
)
from peersub.simulator.activities import (
    ACTIVITIES,
    BreakEdgesActivity,
    CrashActivity,
    PublishActivity,
)
from peersub.simulator.content import WorkloadChoice
from peersub.simulator.scenario import Scenario, ScenarioPhase
from peersub.simulator.scenario_text import ACTIONS
from peersub.simulator.settings import NetworkSettings
from peersub.simulator.swarm import STALLS_FROM, swarm_scenario
from peersub.trace.schema import Disk

TEXT = """
name = "half of the nodes crash"
seed = 7
overlay = "flood"
nodes = 64
through_wire = true

[settings]
degree = 5

[network]
loss = 0.01

[workload]
values = 5

[[phases]]
name = "during"
settles = false
[[phases.steps]]
do = "crash"
fraction = 0.5
[[phases.steps]]
do = "publish"
at_ms = 100
count = 20
nodes = ["n1", "n2"]
"""


PUBLISH_BATCH = (
    "[[phases]]\nname = 'x'\n[[phases.actions]]\ndo = 'publish-batch'\nnode = 'n1'\nbatch = 'b'\n"
)
SUBSCRIBE = "[[phases]]\nname = 'x'\n[[phases.actions]]\ndo = 'subscribe'\nnode = 'n1'\n"


def test_a_scenario_file_says_what_it_says():
    scenario = Scenario.from_toml(TEXT)
    assert (scenario.name, scenario.seed, scenario.nodes) == ("half of the nodes crash", 7, 64)
    assert scenario.settings == {"degree": 5} and scenario.through_wire
    assert scenario.network == NetworkSettings(loss=0.01)
    assert scenario.workload.values == 5
    assert scenario.phases == (
        ScenarioPhase(
            name="during",
            settles=False,
            steps=(
                CrashActivity(fraction=0.5),
                PublishActivity(at_ms=100, count=20, nodes=("n1", "n2")),
            ),
        ),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes = ", "this is no TOML"),
        ("nodes = 'many'", "nodes is a whole number, not 'many'"),
        ("nodes = true", "nodes is a whole number, not True"),
        ("nodes = 0", "nodes is at least 1"),
        ("nodes = -1", "nodes is from 0 to 1,000,000, not -1"),
        ("knots = 3", "knots is not known; there are: name, seed, overlay"),
        ("overlay = 'ring'", "there is no overlay 'ring'; there are: chord, tree, flood"),
        ("start = 'warm'", "start is one of joined, cold, converged, empty, not 'warm'"),
        ("through_wire = 1", "through_wire is true or false, not 1"),
        ("settings = 3", "settings is a table, not 3"),
        ("batch_share = 1.5", "batch_share is a share from 0 to 1, not 1.5"),
        (f"{PUBLISH_BATCH}events = 3", r"phases\[0\].actions\[0\].events is a list of events"),
        (f"{PUBLISH_BATCH}events = [{{event = 'b/0', x = 1}}]", r"events\[0\].x is not known"),
        ("[settings]\ndegrees = 3", "there is no setting 'degrees'; there are: degree"),
        ("[settings]\ndegree = 'x'", "degree is a whole number, not 'x'"),
        ("[network]\nloss = 1.5", "network: loss is a share from 0 up to below 1, got 1.5"),
        ("[network]\nloss = 'x'", "network.loss is a number, not 'x'"),
        ("[network]\nlatency_ms = 0", "network: latency_ms is at least 1"),
        ("[network]\nlag_ms = 3", "network.lag_ms is not known; there are: latency_ms"),
        ("[links]\nresend_ms = 0", "resend_ms is at least 1"),
        ("[links]\nresent_ms = 1", "there is no setting 'resent_ms'; there are: acknowledge"),
        (
            "[workload]\nkind = 'x'",
            "workload: kind is one of small, symbols, attributes, documents, given, not 'x'",
        ),
        ("phases = 3", "phases is a list, not 3"),
        ("[[phases]]\nsettles = true", r"phases\[0\].name is missing"),
        (
            "[[phases]]\nname = 'x'\n[[phases.steps]]\ndo = 'burn'",
            r"phases\[0\].steps\[0\].do is one of publish, subscribe, .*, not 'burn'",
        ),
        (
            "[[phases]]\nname = 'x'\n[[phases.steps]]\ndo = 'publish'",
            r"phases\[0\].steps\[0\].count is missing",
        ),
        (
            "[[phases]]\nname = 'x'\n[[phases.steps]]\ndo = 'publish'\ncount = 1\ndelivery = 'x'",
            r"phases\[0\].steps\[0\]: delivery is one of best_effort, at_least_once, mixed",
        ),
        (
            "[[phases]]\nname = 'x'\n[[phases.steps]]\ndo = 'crash'\nfraction = 2",
            r"phases\[0\].steps\[0\]: fraction is a share from 0 to 1, not 2",
        ),
        (
            "[[phases]]\nname = 'x'\n[[phases.steps]]\ndo = 'crash'\nat_ms = -1",
            r"phases\[0\].steps\[0\]: at_ms is at least 0, not -1",
        ),
        (
            f"{SUBSCRIBE}subscription = 's'\nfilter = 'a ='",
            r"phases\[0\].actions\[0\].filter: ",
        ),
        (
            f"{SUBSCRIBE}subscription = 's'",
            r"phases\[0\].actions\[0\] has either filter or xpath",
        ),
        (
            "[[phases]]\nname = 'x'\n[[phases.actions]]\ndo = 'restart'\nnode = 'n'\ndisk = 'x'",
            r"phases\[0\].actions\[0\].disk is one of kept, lost, tail-lost, not 'x'",
        ),
        (
            "[[phases]]\nname = 'x'\n[[phases.actions]]\ndo = 'break-edges'\npairs = [['a']]",
            r"phases\[0\].actions\[0\].pairs\[0\] is a list of 2, not of 1",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_place_and_what_is_allowed(text, message):
    # Keys of the document come before its tables.
    head = "" if text.startswith("overlay") else 'overlay = "flood"\n'
    with pytest.raises(SettingsError, match=message):
        Scenario.from_toml(head + text)


def test_links_suit_the_network():
    assert not Scenario().link_settings.acknowledge
    assert Scenario(network=NetworkSettings(reorder=0.1)).link_settings.acknowledge
    edges = (ScenarioPhase(name="x", steps=(BreakEdgesActivity(),)),)
    assert Scenario(phases=edges).link_settings.tunnels
    assert Scenario(phases=edges).link_settings.acknowledge
    assert not Scenario(phases=edges, links={"tunnels": False}).link_settings.acknowledge


EVERY_ACTION = [
    JoinNode("n1"),
    JoinNode("n2", ("n1", "n0")),
    LeaveNode("n1"),
    CrashNodes(("n1", "n2")),
    StallNodes(("n1", "n2"), 300),
    RestartNode("n1", ("n2",), Disk.TAIL_LOST),
    SubscribeAt("n1", "s1", Filter("a > 1 AND s LIKE 'x\"%'")),
    SubscribeAt("n1", "s2", Filter.xpath("/story//p[@lede]")),
    ChangeAt("n1", "s1", Filter("a > 2")),
    UnsubscribeAt("n1", "s1"),
    PublishEvent("n1", Event("e1", {"a": 1, "b": 1.5, "r": {"x y": "é\n"}, "t": [1, 2]})),
    PublishEvent("n1", Event("e2", {}, b"<story/>"), Delivery.AT_LEAST_ONCE),
    PublishEvents("n1", "b", (Event("b/0", {"a": 1, "r": {"x": "é"}}), Event("b/1", {}, b"<p/>"))),
    Partition((("n1", "n2"), ("n3",))),
    Heal(),
    BreakEdges((("n1", "n2"),)),
    BreakLinks("n1", 3),
    MendEdges(),
]


def test_every_action_goes_to_text_and_back():
    actions = tuple(TimedAction(number, action) for number, action in enumerate(EVERY_ACTION))
    assert {type(action) for action in EVERY_ACTION} == {*ACTIONS.values()}
    scenario = Scenario(start="empty", nodes=0, phases=(ScenarioPhase(name="x", actions=actions),))
    assert Scenario.from_toml(scenario.to_toml()) == scenario


def test_what_is_missing_in_an_event_stays_missing():
    event = Event("e1", {"a": None, "b": 1, "r": {"x": None}})
    phase = ScenarioPhase(name="x", actions=(TimedAction(0, PublishEvent("n1", event)),))
    again = Scenario.from_toml(Scenario(phases=(phase,)).to_toml())
    assert again.phases[0].actions[0].action.event == Event("e1", {"b": 1, "r": {}})


def test_the_document_names_every_key_and_its_example_is_a_scenario():
    text = (Path(__file__).parents[2] / "docs" / "scenarios.md").read_text(encoding="utf-8")
    example = Scenario.from_toml(text.split("```toml\n")[1].split("```")[0])
    assert example.overlay == "chord" and len(example.phases) == 2
    explained = {*re.findall(r"`\[*([a-z_-]+)\]*`", text)}
    kinds = [Scenario, NetworkSettings, LinkSettings, WorkloadChoice, ScenarioPhase]
    kinds += [*ACTIVITIES.values(), *ACTIONS.values()]
    keys = {each.name for kind in kinds for each in fields(kind)}
    # Phases and their steps are lists of tables.
    assert keys - explained - {"phases"} == set()
    assert {*ACTIVITIES, *ACTIONS} - explained == set()


def test_scenarios_of_the_swarm_go_to_text_and_back():
    used = set()
    for seed in (*range(100), *range(STALLS_FROM, STALLS_FROM + 30)):
        scenario = swarm_scenario(seed)
        assert Scenario.from_toml(scenario.to_toml()) == scenario
        used |= {step.do for phase in scenario.phases for step in phase.steps}
    assert used == ACTIVITIES.keys() - {"subscribe", "change"}, "all others were tried as text"
