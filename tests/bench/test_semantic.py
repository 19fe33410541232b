"""The benchmark of the semantic overlays, on networks small enough to count everything."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console

from peersub.bench.semantic import graphs, report, trees, workload
from peersub.bench.semantic.plots import Series, line_plot
from peersub.bench.semantic.run import SemanticResult, SemanticSettings, run_semantic
from peersub.bench.semantic.trees import TreePoint, broadcast_metrics, grow_tree
from peersub.bench.semantic.workload import SemanticWorkload, draw_workload
from peersub.overlays.containment.building import Building, BuildSettings
from peersub.overlays.containment.structure import EdgeKind, route
from peersub.workloads.xml import DocumentGenerator, DocumentSettings, news_schema

SIZES = (20, 60)
DOCUMENTS = 12
SAMPLE = 40
"""Enough for members of the similarity graph to choose by."""


@pytest.fixture(scope="module")
def small() -> SemanticWorkload:
    return draw_workload(news_schema(), peers=60, documents=DOCUMENTS, sample=SAMPLE, seed=3)


@pytest.fixture(scope="module")
def result() -> SemanticResult:
    settings = SemanticSettings(
        peers=SIZES, documents=DOCUMENTS, sample=SAMPLE, always_max=20, seed=3
    )
    return run_semantic(news_schema(), "news", settings)


# --- the workload --------------------------------------------------------------------------------


def test_matches_are_those_of_each_pattern_by_itself(small: SemanticWorkload) -> None:
    texts = DocumentGenerator(news_schema(), DocumentSettings(seed=3))
    for number in range(DOCUMENTS + SAMPLE):
        document = texts.text(number)
        found = small.matches if number < DOCUMENTS else small.sampled
        flags = found[number if number < DOCUMENTS else number - DOCUMENTS]
        assert flags.tolist() == [each.matches(document) for each in small.classes.filters]
    assert small.matches.any()
    assert not small.matches.all()
    # Of all patterns, but of 40 documents only.
    assert (small.checked, small.disagreements) == (40 * len(set(small.filters)), ())


def test_a_wrong_match_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = workload.XPathIndex.match

    def forgetful(self: Any, event: Any) -> list[int]:
        return whole(self, event)[1:]

    monkeypatch.setattr(workload.XPathIndex, "match", forgetful)
    found = draw_workload(news_schema(), peers=20, documents=10, sample=10, seed=1)
    assert found.disagreements


# --- trees ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", trees.RULES)
@pytest.mark.parametrize("how", trees.REORGANISATIONS)
def test_the_measures_of_a_tree_are_those_of_following_every_document(
    small: SemanticWorkload, rule: Any, how: Any
) -> None:
    settings = BuildSettings(rule=rule, reorganisation=how)
    building = Building(small.classes, settings, small.counts, len(small.sampled))
    total = 0
    for point, size in zip(grow_tree(small, settings, SIZES), SIZES, strict=True):
        building.grow(size)
        shape = building.shape()
        crown = shape.kinds.index(EdgeKind.CROWN)
        false_positives, messages, deliveries, hops = [], 0, 0, []
        for flags in small.matches:
            matching = frozenset(m for m in range(size) if flags[small.classes.of[m]])
            passages = route(shape, crown, matching)
            assert matching <= passages.keys()
            false_positives.append(len(passages.keys() - matching) / size)
            messages += len(passages) - 1
            deliveries += len(matching)
            hops += [passages[member].edges for member in matching]
        metrics = point.metrics
        assert metrics.false_positive_ratio == pytest.approx(np.mean(false_positives))
        assert metrics.false_negative_ratio == 0
        assert metrics.messages_per_delivery == pytest.approx(messages / deliveries)
        assert metrics.hops == pytest.approx(np.mean(hops))
        assert metrics.hops_max == max(hops)
        assert point.wrong == ()
        assert (point.peers, point.classes) == (size, len(set(shape.roots)))
        assert point.fan_out == max(
            sum(shape.kinds[each] is EdgeKind.CHILD for each in below) for below in shape.below
        )
        total += point.messages.total
    assert total == building.messages.total


def test_a_parent_that_does_not_match_is_noticed(small: SemanticWorkload) -> None:
    flags = small.matches.copy()
    building = Building(small.classes, BuildSettings())
    building.grow(60)
    child = next(number for number, parent in enumerate(building.parents) if parent >= 0)
    flags[:, child], flags[:, building.parents[child]] = True, False
    (point,) = grow_tree(replace(small, matches=flags), BuildSettings(), [60])
    assert any("match what their parent does not" in each for each in point.wrong)
    assert any("misses" in each for each in point.wrong)


def test_a_broadcast_reaches_everybody(small: SemanticWorkload) -> None:
    metrics = broadcast_metrics(small, 20)
    matching = [sum(flags[small.classes.of[m]] for m in range(20)) for flags in small.matches]
    assert metrics.false_positive_ratio == pytest.approx(1 - np.mean(matching) / 20)
    assert metrics.messages_per_delivery == pytest.approx(19 * DOCUMENTS / sum(matching))


# --- graphs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", graphs.GRAPHS)
def test_a_graph_is_checked_by_following_documents(
    small: SemanticWorkload, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "FOLLOWED_MAX", DOCUMENTS)
    settings = replace(graphs.GRAPHS[name], clique_up_to=0)
    for point, size in zip(
        graphs.measure_graphs(small, name, settings, SIZES, 3), SIZES, strict=True
    ):
        assert (point.name, point.peers, point.wrong) == (name, size, ())
        assert 0 < point.degree_mean <= point.degree_max < size
        assert point.metrics.documents == DOCUMENTS


@pytest.mark.parametrize(
    "mistake", [{"random_forward": 0.9}, {"indulgence": 1}, {"origin_spreads": True}]
)
def test_a_document_that_goes_elsewhere_is_noticed(
    small: SemanticWorkload, mistake: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "FOLLOWED_MAX", DOCUMENTS)
    settings = replace(graphs.GRAPHS["paper, ρ = 50 %"], nearest=1, random=2, random_forward=0.2)
    (point,) = graphs.measure_graphs(small, "right", settings, [60], 3)
    assert not point.wrong
    whole = graphs.route

    def astray(graph: Any, matches: Any, origins: Any, given: Any, *rest: Any) -> Any:
        return whole(graph, matches, origins, replace(given, **mistake), *rest)

    monkeypatch.setattr(graphs, "route", astray)
    (point,) = graphs.measure_graphs(small, "wrong", settings, [60], 3)
    assert point.wrong


# --- the whole run -------------------------------------------------------------------------------


def test_each_network_is_measured_at_each_size(result: SemanticResult) -> None:
    found = [(point.rule, point.reorganisation, point.peers) for point in result.trees]
    assert found == [
        (rule, how, size)
        for rule in trees.RULES
        for how in trees.REORGANISATIONS
        for size in SIZES
        if how != "always" or size <= 20
    ]
    assert [(point.name, point.peers) for point in result.graphs] == [
        (name, size) for name in graphs.GRAPHS for size in SIZES
    ]
    assert result.wrong == []
    assert report.exit_code(result) == 0


def test_the_report_shows_every_figure(result: SemanticResult, tmp_path: Path) -> None:
    stream = io.StringIO()
    report.show(result, Console(file=stream, width=118))
    text = stream.getvalue()
    for point in result.trees:
        assert f"{point.metrics.false_positive_ratio:.2%}" in text
        assert f"{point.messages_per_join:,.0f}" in text
    for graph in result.graphs:
        assert f"{graph.metrics.false_positive_ratio:.2%}" in text
        assert f"{graph.metrics.false_negative_ratio:.2%}" in text
    data = json.loads(json.dumps(report.as_json(result)))
    assert data["ok"]
    assert len(data["containment"]) == len(result.trees)
    assert len(data["similarity"]) == len(result.graphs)
    assert data["containment"][0]["metrics"]["false_negative_ratio"] == 0
    paths = report.write(result, tmp_path / "new")
    assert {path.name for path in paths} >= {
        "figure3.svg",
        "figure4.svg",
        "semantic.json",
        "semantic.txt",
    }
    for path in paths:
        assert path.stat().st_size
        if path.suffix == ".svg":
            ElementTree.parse(path)


def test_a_failed_check_fails_the_run(result: SemanticResult) -> None:
    bad: TreePoint = replace(result.trees[0], wrong=("document 1 misses 2 peers",))
    failed = replace(result, trees=(bad, *result.trees[1:]))
    stream = io.StringIO()
    report.show(failed, Console(file=stream, width=118))
    assert report.exit_code(failed) == 1
    assert "WRONG depth, never, 20 peers: document 1 misses 2 peers" in stream.getvalue()


def test_what_the_settings_refuse() -> None:
    for wrong, match in (
        ({"peers": ()}, "at least one"),
        ({"peers": (20, 10)}, "numbers that grow"),
        ({"sample": 0}, "sample is at least 1"),
        ({"rules": ("width",)}, "rules are depth, selectivity"),
        ({"graphs": ("worst",)}, "graphs are paper"),
    ):
        with pytest.raises(ValueError, match=match):
            SemanticSettings(**wrong)  # type: ignore[arg-type]


def test_a_plot_tells_its_numbers_and_escapes_names() -> None:
    plot = line_plot("a < b", [Series("x & y", ((10, 0.5), (100, 2.0)), 0)], x_axis="n", y_axis="%")
    tree = ElementTree.fromstring(plot)
    assert "x & y: 0.5 at 10, 2 at 100" in "".join(tree.itertext())
    ElementTree.fromstring(line_plot("nothing", [], x_axis="n", y_axis="%"))
