"""Plans and routes of members, by the kernels that workers run, against the simulator."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from overlays.bulk_worlds import World
from overlays.semantic.member_worlds import (
    MembersSeen,
    drawn_world,
    settings_of,
    simulated_members,
)
from peersub.filters.filter import Filter
from peersub.overlays.bulk import MemberGraph, MemberTree
from peersub.overlays.containment import planning as tree_planning
from peersub.overlays.registry import overlay_kind
from peersub.overlays.semantic.bulk_members import MemberRouter, member_overlay, node_receipts
from peersub.overlays.settings import SettingsError, settings_from
from peersub.overlays.similarity import planning as graph_planning
from peersub.pipeline.kernels.member_graphs import (
    exact_graph,
    joined_graph,
    link_share,
    write_society,
)
from peersub.pipeline.kernels.member_plans import TreeSettings, planned_tree
from peersub.pipeline.kernels.plan_files import read_plan, write_plan
from peersub.pipeline.schemas import SIMILAR
from pipeline.member_tables import classes_table, coverings_table, member_names, members_table
from pipeline.test_route_kernels import assert_equal

NETWORKS: dict[str, tuple[str, dict[str, object]]] = {
    "containment": ("containment", {}),
    "containment, narrow": ("containment", {"equal_degree": 1, "top_degree": 2}),
    "containment, selectivity": ("containment", {"rule": "selectivity"}),
    "similarity": ("similarity", {}),
    "similarity, no clique": ("similarity", {"clique_up_to": 0}),
    "similarity of the paper": (
        "similarity",
        {
            "nearest": 5,
            "choice": "nearest",
            "random_forward": 0.5,
            "origin_spreads": False,
            "clique_up_to": 0,
        },
    ),
    "similarity, indulgent": (
        "similarity",
        {"nearest": 2, "indulgence": 2, "clique_up_to": 0, "random_forward": 0.3},
    ),
}


def router_of(world: World, folder: Path) -> MemberRouter:
    """The plan of a world, written and read again, prepared for events."""
    settings: Any = settings_from(overlay_kind(world.overlay).settings_class, settings_of(world))
    members, classes = members_table(world), classes_table(world)
    if world.overlay == "containment":
        tree = planned_tree(
            members,
            classes,
            coverings_table(world),
            TreeSettings(
                by_selectivity=settings.rule == "selectivity",
                is_complete=True,
                equal_degree=settings.equal_degree,
                top_degree=settings.top_degree,
                first_slot=tree_planning.FIRST_SLOT,
            ),
        )
        plan = tree_planning.tree_plan(world.names, tree)
    else:
        graph = exact_graph(members, classes, world.seed, settings)
        plan = graph_planning.graph_plan(world.names, graph)
    write_plan(plan, str(folder / "plan"))
    overlay = member_overlay(world.overlay)
    assert overlay is not None
    router: MemberRouter = overlay.router(read_plan(str(folder / "plan")), world.seed, settings)
    return router


def routed(world: World, router: MemberRouter) -> MembersSeen:
    seen = MembersSeen()
    filters = [wanted for _, _, wanted in member_names(world)]
    homes, slots = router.members.nodes, router.members.slots
    for event, publisher in zip(world.events, world.publishers, strict=True):
        matching = np.flatnonzero([wanted.matches(event) for wanted in filters])
        passages = router.passages(event.id, publisher, matching)
        for node, _, hops, messages in zip(
            *node_receipts(passages, homes, publisher, world.nodes), strict=True
        ):
            seen.receipts[event.id, int(node)] = (int(hops), int(messages))
        for member, hops, messages in zip(
            passages.members.tolist(), passages.hops.tolist(), passages.messages, strict=True
        ):
            if messages:
                seen.members[event.id, f"n{homes[member]}/{slots[member]}"] = hops
            if member in matching:
                seen.deliveries += [
                    (event.id, name, int(homes[member]), hops)
                    for name, wanted in world.given[f"n{homes[member]}"].items()
                    if wanted.digest == filters[member].digest
                ]
    return seen


def members_reached(seen: MembersSeen, overlay: str) -> dict[tuple[str, str], int]:
    """Of a similarity graph who was addressed: a node that has the event hands it to the others,
    so that a later copy to one of these does not tell the first hop.
    """
    if overlay == "similarity":
        return dict.fromkeys(seen.members, 0)
    return seen.members


SIZES = ((1, 3), (3, 12), (20, 10), (30, 90))
LARGEST = (200, 200)


@pytest.mark.parametrize(
    ("network", "nodes", "subscriptions"),
    [
        *((network, *size) for network in NETWORKS for size in SIZES),
        *((network, *LARGEST) for network in ("containment, selectivity", "similarity, no clique")),
    ],
)
def test_members_receive_what_the_simulator_says(
    network: str, nodes: int, subscriptions: int, tmp_path: Path
) -> None:
    overlay, settings = NETWORKS[network]
    for seed in range(2 if nodes < 200 else 1):
        publishers = list(range(12)) if nodes > 3 else [0, 1, 2, 0]
        world = drawn_world(overlay, settings, seed, nodes, subscriptions, publishers)
        expected = simulated_members(world)
        found = routed(world, router_of(world, tmp_path))
        assert {key: row[0] for key, row in found.receipts.items()} == {
            key: row[0] for key, row in expected.receipts.items()
        }
        assert found.receipts == expected.receipts
        assert members_reached(found, overlay) == members_reached(expected, overlay)
        assert sorted(found.deliveries) == sorted(expected.deliveries)


# Three ways to cut one shape into two boxes: equivalent, and not equal.
CUT_UP = (
    "(a BETWEEN 0 AND 6 AND b BETWEEN 0 AND 3) OR (a BETWEEN 0 AND 3 AND b BETWEEN 0 AND 6)",
    "(a BETWEEN 0 AND 3 AND b BETWEEN 0 AND 6) OR (a BETWEEN 2 AND 6 AND b BETWEEN 0 AND 3)",
    "(a BETWEEN 0 AND 6 AND b BETWEEN 0 AND 3) OR (a BETWEEN 0 AND 3 AND b BETWEEN 1 AND 6)",
)


@pytest.mark.parametrize("rule", ["depth", "selectivity"])
def test_filters_that_are_equivalent_and_not_equal_are_one_class(rule: str, tmp_path: Path) -> None:
    world = drawn_world("containment", {"rule": rule, "equal_degree": 2}, 6, 9, 40, range(9))
    cut_up = [(f"cut{number}", Filter(CUT_UP[number % 3])) for number in range(20)]
    mixed = [each for pair in zip(world.subscriptions, cut_up, strict=False) for each in pair]
    world = replace(world, subscriptions=mixed)
    assert len({wanted.digest for name, wanted in mixed if name.startswith("cut")}) == 3
    expected, found = simulated_members(world), routed(world, router_of(world, tmp_path))
    assert found.receipts == expected.receipts
    assert found.members == expected.members
    assert sorted(found.deliveries) == sorted(expected.deliveries)
    plan = read_plan(str(tmp_path / "plan"))
    assert isinstance(plan.sources, MemberTree)
    names = [wanted.text for _, _, wanted in member_names(world)]
    cut = {Filter(text).text for text in CUT_UP}
    classes = {
        int(number) for text, number in zip(names, plan.sources.classes, strict=True) if text in cut
    }
    assert len(classes) == 1


def similar_by_brute_force(classes: pa.Table, count: int) -> pa.Table:
    """Per class the ones that share most events of the sample with it."""
    rows = [row for row in classes.to_pylist() if row["profile"]]
    bits = {row["digest"]: int.from_bytes(row["profile"], "little") for row in rows}
    found = []
    for digest, own in bits.items():
        shared = {other: (own & theirs).bit_count() for other, theirs in bits.items()}
        del shared[digest]
        best = sorted(shared, key=lambda other: (-shared[other], other))[:count]
        found += [
            {"digest": digest, "neighbour": other, "rank": rank, "similarity": 0.5}
            for rank, other in enumerate(best)
        ]
    return pa.Table.from_pylist(found, SIMILAR.arrow)


@pytest.mark.parametrize("choice", ["climb", "nearest"])
def test_members_choose_among_candidates_as_among_all(choice: str, tmp_path: Path) -> None:
    """Where all filters are listed, most links for what others want are those of the exact graph.

    Not all: of a filter with many members some are named, and who matches no event of the sample
    is linked with others like it, whichever they are.
    """
    world = drawn_world("similarity", {"choice": choice}, 3, 40, 120, [0])
    settings: Any = settings_from(overlay_kind("similarity").settings_class, settings_of(world))
    members, classes = members_table(world), classes_table(world)
    similar = similar_by_brute_force(classes, classes.num_rows)
    write_society(members, classes, similar, world.seed, str(tmp_path))
    links = sum(link_share(str(tmp_path), share, 3, world.seed, settings) for share in range(3))
    graph = joined_graph(str(tmp_path), 3)
    exact = exact_graph(members, classes, world.seed, settings)
    assert np.array_equal(graph.places, exact.places)
    assert np.array_equal(graph.counts, exact.counts)
    assert len(graph.targets) <= 2 * links
    found, expected = near_pairs(graph), near_pairs(exact)
    assert found == {(other, one) for one, other in found}
    homes = graph.members.nodes
    assert all(homes[one] != homes[other] for one, other in found)
    due = {pair for pair in expected if min(graph.counts[list(pair)]) > 0}
    assert len(due) > 100
    assert len(found & due) > 0.8 * len(due)


def near_pairs(graph: MemberGraph) -> set[tuple[int, int]]:
    origins = np.repeat(np.arange(len(graph.members)), np.diff(graph.starts))
    near = graph.is_near
    return set(zip(origins[near].tolist(), graph.targets[near].tolist(), strict=True))


@pytest.mark.parametrize("network", ["containment", "similarity"])
def test_plans_of_members_are_read_as_they_were_written(network: str, tmp_path: Path) -> None:
    overlay, settings = NETWORKS[network]
    world = drawn_world(overlay, settings, 2, 12, 40, [0])
    router_of(world, tmp_path)
    plan = read_plan(str(tmp_path / "plan"))
    assert isinstance(plan.sources, MemberTree if overlay == "containment" else MemberGraph)
    write_plan(plan, str(tmp_path / "again"))
    assert_equal(read_plan(str(tmp_path / "again")), plan)
    names = member_names(world)
    assert plan.sources.members.nodes.tolist() == [int(node[1:]) for node, _, _ in names]


@pytest.mark.parametrize(
    ("overlay", "settings", "words"),
    [
        ("containment", {"sibling_threshold": 4}, "sibling"),
        ("similarity", {"summary_bytes": 8}, "summar"),
        ("similarity", {"proximity": "well-connected"}, "position"),
    ],
)
def test_settings_that_plans_cannot_have_are_refused(
    overlay: str, settings: dict[str, object], words: str
) -> None:
    module = member_overlay(overlay)
    assert module is not None
    with pytest.raises(SettingsError, match=words):
        module.check(settings_from(overlay_kind(overlay).settings_class, settings))
