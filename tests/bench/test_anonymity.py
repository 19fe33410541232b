"""Posteriors of spies against brute force: every publisher and time, one member after the other."""

from __future__ import annotations

from collections import Counter
from math import log2
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peersub.bench.anonymity import report
from peersub.bench.anonymity.hypotheses import Hypotheses, flood_of, turns_of
from peersub.bench.anonymity.inference import (
    Clock,
    anonymity_of,
    anonymity_of_suspicion,
    suspects,
    suspicion,
)
from peersub.bench.anonymity.rest import LAYER
from peersub.bench.anonymity.run import (
    AnonymityResult,
    AnonymitySettings,
    checked,
    concluded,
    run_anonymity,
)
from peersub.cli.bench_dag_commands import run_bench_anonymity
from peersub.cli.failures import CommandError
from peersub.overlays.core.draws import draw, draw_below
from peersub.overlays.dag.graph import LayerGraph, layer_graph
from peersub.overlays.dag.orientation import is_sink, turned
from strategies import examples

BEGINS, WINDOW = 5, 8
Copy = tuple[int, int, int]
"""Round, sender, receiver."""


def graph_of(seed: int, count: int, degree: int) -> LayerGraph:
    return layer_graph(seed, "spied", [f"n{number}" for number in range(count)], degree)


def copies_by_turns(graph: LayerGraph, publisher: int, published: int) -> list[Copy]:
    """Every copy of an event that is published after so many rounds, without arrays."""
    values = [(0, lid) for lid in graph.lids]
    came_from: dict[int, int] = {}
    waiting: dict[int, None] = {}
    copies: list[Copy] = []
    rounds = 0
    while rounds <= published or waiting:
        if rounds == published:
            came_from[publisher] = -1
            waiting[publisher] = None
        rounds += 1
        around = {n: [values[o] for o in graph.neighbours[n]] for n in range(len(values))}
        sinks = [n for n in range(len(values)) if is_sink(*values[n], around[n])]
        sending = [n for n in sinks if n in waiting]
        for sink in sinks:
            values[sink] = turned(*values[sink], around[sink])
        copies += pass_on(graph, sending, came_from, waiting, rounds)
    return copies


def copies_by_flood(graph: LayerGraph, publisher: int) -> list[Copy]:
    came_from, waiting = {publisher: -1}, {publisher: None}
    copies: list[Copy] = []
    rounds = 0
    while waiting:
        rounds += 1
        copies += pass_on(graph, sorted(waiting), came_from, waiting, rounds)
    return copies


def pass_on(
    graph: LayerGraph,
    sending: list[int],
    came_from: dict[int, int],
    waiting: dict[int, None],
    rounds: int,
) -> list[Copy]:
    copies = []
    for sender in sending:
        del waiting[sender]
    for sender in sending:
        for other in graph.neighbours[sender]:
            if other != came_from[sender]:
                copies.append((rounds, sender, other))
                if other not in came_from:
                    came_from[other] = sender
                    waiting[other] = None
    return copies


def written_down(copies: list[Copy], spies: list[int], clock: Clock, relative: bool) -> Any:
    seen = sorted(copy for copy in copies if copy[2] in spies)
    if clock == "order":
        return [[sender for _, sender, receiver in seen if receiver == spy] for spy in spies]
    first = seen[0][0] if seen and relative else 0
    return [(when - first, sender, receiver) for when, sender, receiver in seen]


def brute_force(
    graph: LayerGraph, overlay: str, spies: list[int], clock: Clock
) -> dict[tuple[int, int], dict[int, float]]:
    """By publisher and time what spies conclude: all others that would look the same."""
    honest = [n for n in range(len(graph.lids)) if n not in spies]
    times = range(BEGINS, BEGINS + WINDOW) if overlay == "dag" else range(1)
    seen = {}
    for publisher in honest:
        for time in times:
            is_dag = overlay == "dag"
            copies = (
                copies_by_turns(graph, publisher, time)
                if is_dag
                else copies_by_flood(graph, publisher)
            )
            seen[publisher, time] = written_down(copies, spies, clock, not is_dag)
    found = {}
    for case, what in seen.items():
        alike = Counter(publisher for (publisher, _), other in seen.items() if other == what)
        found[case] = {publisher: count / alike.total() for publisher, count in alike.items()}
    return found


def hypotheses_of(graph: LayerGraph, overlay: str) -> Hypotheses:
    return turns_of(graph, begins=BEGINS, window=WINDOW) if overlay == "dag" else flood_of(graph)


@pytest.mark.parametrize("overlay", ["dag", "flood"])
@pytest.mark.parametrize("clock", ["order", "time"])
@examples(6)
@given(data=st.data())
def test_posteriors_are_those_of_brute_force(
    overlay: str, clock: Clock, data: st.DataObject
) -> None:
    count = data.draw(st.integers(5, 14))
    graph = graph_of(data.draw(st.integers(0, 2**32)), count, data.draw(st.integers(2, 4)))
    spies = sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=3)))
    expected = brute_force(graph, overlay, spies, clock)
    those = hypotheses_of(graph, overlay)
    found = concluded(those, np.array(spies), clock)
    assert list(checked(those, np.array(spies), found)) == []
    posteriors = {}
    for hypothesis, publisher in enumerate(those.publishers.tolist()):
        if publisher not in spies:
            posteriors.setdefault(publisher, []).extend(
                [found.of(hypothesis)] * int(those.weights[hypothesis])
            )
    for publisher, each in posteriors.items():
        wanted = [case for (who, _), case in expected.items() if who == publisher]
        # Hypotheses of one publisher are in the order of their times.
        assert [pytest.approx(one) for one in wanted] == each
    everything = list(expected.values())
    entropy = sum(-p * log2(p) for each in everything for p in each.values()) / len(everything)
    anonymity = anonymity_of(found, count - len(spies))
    assert anonymity.entropy_bits == pytest.approx(entropy)
    assert anonymity.set_mean == pytest.approx(sum(map(len, everything)) / len(everything))
    guessed = sum(max(each.values()) for each in everything) / len(everything)
    assert anonymity.guessed == pytest.approx(guessed)
    certain = sum(len(each) == 1 for each in everything) / len(everything)
    assert anonymity.certain == pytest.approx(certain)


@pytest.mark.parametrize("overlay", ["dag", "flood"])
def test_the_suspect_is_the_first_sender(overlay: str) -> None:
    graph = graph_of(7, 20, 4)
    spies = [3, 11]
    those = hypotheses_of(graph, overlay)
    found = suspects(those, np.array(spies), "time")
    begins = np.flatnonzero(np.diff(those.publishers, prepend=-1))
    right = []
    for hypothesis in begins.tolist():
        publisher = int(those.publishers[hypothesis])
        copies = (
            copies_by_turns(graph, publisher, BEGINS)
            if overlay == "dag"
            else copies_by_flood(graph, publisher)
        )
        first = min(copy for copy in copies if copy[2] in spies)
        assert found[hypothesis] == first[1]
        # Nobody sends before the publisher does: a neighbour of a spy is found out.
        is_near = any(publisher in graph.neighbours[spy] for spy in spies)
        if publisher not in spies:
            assert (first[1] == publisher) == is_near
            right.append(is_near)
    assert suspicion(those, np.array(spies), "time") == pytest.approx(np.mean(right))
    one = suspects(those, np.array([3]), "order")
    assert (one == suspects(those, np.array([3]), "time")).all()


def test_a_suspect_and_the_others() -> None:
    found = anonymity_of_suspicion(0.5, 0.4, 5)
    assert found.entropy_bits == pytest.approx(0.5 * 1 + 4 * 0.125 * 3)
    assert (found.guessed, found.certain, found.set_mean) == (0.4, 0.0, 5)
    assert anonymity_of_suspicion(1.0, 0.9, 5).certain == 0.9
    assert anonymity_of_suspicion(0.0, 0.0, 5).guessed == pytest.approx(1 / 5)


def test_a_publisher_that_is_ruled_out_is_noticed() -> None:
    those = flood_of(graph_of(1, 12, 4))
    spies = np.array([0])
    found = concluded(those, spies, "time")
    found.row_publishers[:] = 5
    assert any("is ruled out" in text for text in checked(those, spies, found))
    found = concluded(those, spies, "time")
    found.row_shares[:] = 0.7
    assert any("sums to" in text for text in checked(those, spies, found))


@pytest.fixture(scope="module")
def small() -> AnonymityResult:
    settings = AnonymitySettings(
        nodes=40, shares=(0.05, 0.3), graphs=2, spies_alone=3, rest_nodes=20, rest_events=6
    )
    return run_anonymity(settings)


def test_more_knowledge_leaves_less_anonymity(small: AnonymityResult) -> None:
    assert small.wrong == ()
    for overlay in ("dag", "flood"):
        for share in (0.05, 0.3):
            for kind in ("alone", "together"):
                by_time = small.row(overlay, share, kind, "time", graph=True)
                by_order = small.row(overlay, share, kind, "order", graph=True)
                blind = small.row(overlay, share, kind, "time", graph=False)
                assert by_time.entropy_bits <= by_order.entropy_bits + 1e-9
                assert by_order.entropy_bits <= blind.entropy_bits
                assert by_time.guessed >= by_order.guessed - 1e-9
    few = small.row("dag", 0.05, "together", "time", graph=True)
    many = small.row("dag", 0.3, "together", "time", graph=True)
    assert many.guessed >= few.guessed


def test_who_relays_knows_the_publisher(small: AnonymityResult) -> None:
    """By brute force: any member may be the steward, any node outside the publisher."""
    found = small.row("dag, relayed", 0.3, "together", "time", graph=True)
    spies, nodes = 12, 40
    suspects = [1] * spies + [nodes - spies] * (nodes - spies)
    assert found.entropy_bits == pytest.approx(np.mean(np.log2(suspects)))
    assert found.set_mean == pytest.approx(np.mean(suspects))
    assert found.guessed == pytest.approx(np.mean(1 / np.array(suspects)))
    assert found.certain == pytest.approx(np.mean(np.array(suspects) == 1))


def test_real_peers_at_rest_give_away_who_has_a_spy_for_a_neighbour(small: AnonymityResult) -> None:
    assert [(each.overlay, each.share) for each in small.rest] == [
        ("dag", 0.05),
        ("dag", 0.3),
        ("flood", 0.05),
        ("flood", 0.3),
    ]
    dag, flood = small.rest[1], small.rest[3]
    assert dag.events == flood.events > 0
    assert flood.by_copy == flood.by_any_message > 0
    # The first copy of all is the publisher's, in a layer too.
    spies = np.array(sorted(range(20), key=lambda number: draw(1, "anonymity/spy", number))[:6])
    graph = layer_graph(1, LAYER, [f"n{number}" for number in range(20)])
    publishers = [draw_below(20, 1, "anonymity/publisher", number) for number in range(6)]
    honest = [each for each in publishers if each not in spies]
    near = [any(publisher in graph.neighbours[spy] for spy in spies) for publisher in honest]
    assert dag.by_copy == pytest.approx(np.mean(near))


def test_the_report_has_every_row(small: AnonymityResult, tmp_path: Any) -> None:
    assert report.exit_code(small) == 0
    written = report.write(small, tmp_path)
    assert [path.name for path in written][-1] == "anonymity.txt"
    text = written[-1].read_text()
    assert text.count("dag, relayed") == 2
    assert text.count("flood") == 18
    assert "<svg" in written[0].read_text()


def test_the_command_says_what_is_wrong_with_its_options() -> None:
    options = {"nodes": 50, "degree": 4, "shares": "0.1", "seeds": 1, "seed": 1}
    for wrong in ({"shares": "1.5"}, {"nodes": 3}, {"shares": "x"}):
        with pytest.raises(CommandError):
            run_bench_anonymity({**options, **wrong})
