"""XML documents and patterns in simulations: by number, with all parameters, and delivered."""

from dataclasses import fields

import pytest
from lxml import etree

from peersub.overlays.settings import SettingsError
from peersub.simulator.activities import PublishActivity
from peersub.simulator.content import WorkloadChoice, content_for
from peersub.simulator.document_content import DocumentContent
from peersub.simulator.interest import interest_for
from peersub.simulator.running import run_scenario
from peersub.simulator.scenario import Scenario, ScenarioPhase
from peersub.trace.checkers import DeliveryChecker
from peersub.workloads.xml import DocumentSettings, PatternSettings, read_dtd

DOCUMENTS = WorkloadChoice(kind="documents", tags_mean=20)


def test_each_number_stands_for_itself():
    content = content_for(DOCUMENTS, 3, 10)
    again = content_for(DOCUMENTS, 3, 1_000)
    other = content_for(DOCUMENTS, 4, 10)
    for number in (5, 0, 2):
        assert content.event(number) == again.event(number) != other.event(number)
        assert content.subscription(number) == again.subscription(number)
    name, wanted = content.subscription(7)
    event = content.event(7)
    assert (name, wanted.language, event.id) == ("s7", "xpath", "e7")
    assert wanted.matches(event) == bool(
        etree.fromstring(event.body).getroottree().xpath(wanted.text)
    )


def test_parameters_are_those_of_the_generators():
    own = {each.name: each.default for each in fields(WorkloadChoice)}
    for kind in (DocumentSettings, PatternSettings):
        for each in fields(kind):
            if each.name != "seed":
                assert own[each.name] == each.default, each.name


def test_parameters_reach_the_generators():
    flat = WorkloadChoice(kind="documents", height_max=2, wildcard_share=0, descendant_share=0)
    texts = {content_for(flat, 1, 0).subscription(number)[1].text for number in range(40)}
    assert texts <= {"/news/header", "/news/story", "/news[header]/story", "/news[story]/header"}


def test_a_schema_is_given_by_whoever_reads_files():
    schema = read_dtd(b"<!ELEMENT a (b*)><!ELEMENT b (#PCDATA)>")
    content = DocumentContent(1, DOCUMENTS, schema)
    assert etree.fromstring(content.event(0).body).tag == "a"


@pytest.mark.parametrize(
    ("choice", "problem"),
    [
        (WorkloadChoice(kind="documents", schema="x.xsd"), "'x.xsd' is a file"),
        (WorkloadChoice(kind="documents", root="x"), "root goes with a schema"),
        (WorkloadChoice(kind="documents", tags_mean=0), "tags_mean is at least 1"),
        (WorkloadChoice(kind="documents", branch_share=2.0), "branch_share is a share"),
        (WorkloadChoice(kind="documents", levels_max=2), "allow more levels"),
    ],
)
def test_what_cannot_be_drawn_is_named(choice, problem):
    with pytest.raises(SettingsError, match=problem):
        content_for(choice, 1, 1)


@pytest.mark.parametrize("overlay", ["flood", "tree", "chord"])
def test_documents_reach_whoever_asks_for_them(overlay):
    scenario = Scenario(
        overlay=overlay,
        nodes=6,
        subscriptions=30,
        through_wire=True,
        workload=WorkloadChoice(kind="documents", tags_mean=30, condition_share=0.1),
        phases=(ScenarioPhase(name="publishing", steps=(PublishActivity(count=12),)),),
    )
    assert Scenario.from_toml(scenario.to_toml()) == scenario
    checker = DeliveryChecker(interest_for(30))
    outcome = run_scenario(scenario, checker=checker)
    assert outcome.is_good, outcome.violations
    content = content_for(scenario.workload, scenario.seed, 30)
    expected = sum(
        bool(
            etree.fromstring(content.event(event).body)
            .getroottree()
            .xpath(content.subscription(number)[1].text)
        )
        for event in range(12)
        for number in range(30)
    )
    assert expected > 20
    assert checker.counts.delivered == expected
