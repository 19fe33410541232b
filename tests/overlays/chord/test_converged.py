"""A converged start is the state that joins, subscribes and stabilisation reach."""

from typing import Any

import pytest

from overlays.chord.ring_world import World
from peersub.filters.filter import Filter
from peersub.overlays.chord.converged import converge
from peersub.overlays.chord.invariants import check_quiet
from peersub.overlays.chord.peer import ChordPeer
from peersub.simulator.content import WorkloadChoice, content_for
from peersub.simulator.nodes import node_maker, sample_of
from peersub.simulator.running import Run
from peersub.simulator.scenario import Scenario
from peersub.simulator.schedule import schedule_of
from peersub.trace.checkers import DeliveryChecker


def state_of(peer: ChordPeer) -> dict[str, Any]:
    """All that a peer says of itself, except for how many updates led to it."""
    said = dict(peer.describe())
    maintenance = peer.engine.maintenance
    said["told"] = {edge: maintenance.told(edge) for edge in peer.topology.edges()}
    said["sent"] = {edge: maintenance.sent(edge) for edge in sorted(peer.engine.publishers())}
    said["links"] = sorted(peer.ring.links)
    return said


def converged_twin(world: World, **settings: Any) -> World:
    twin = World(0, **settings)
    twin.settings = world.settings
    overlays = [twin.simulation.add(node).overlay for node in world.nodes]
    given: dict[str, dict[str, Filter]] = {node: {} for node in world.nodes}
    for name, (node, wanted) in world.subscriptions.items():
        given[node][name] = wanted
    twin.subscriptions = dict(world.subscriptions)
    converge(overlays, given)
    twin.simulation.link_all()
    return twin


@pytest.mark.parametrize(
    ("count", "settings"),
    [
        (1, {}),
        (2, {"strategy": "simple"}),
        (3, {"strategy": "identity", "exact_reach": True}),
        (8, {"strategy": "covering"}),
        (17, {"strategy": "perfect"}),
        (20, {"strategy": "covering", "exact_reach": True}),
        (33, {"strategy": "imperfect", "rows_max": 8}),
        (12, {"successors": 3}),
        (20, {"key_bits": 5}),
    ],
)
def test_a_converged_start_equals_joins_and_subscribes(
    count: int, settings: dict[str, Any]
) -> None:
    world = World(0, **settings)
    # One after the other: who comes first has the choice of keys.
    world.grow(count, pause_ms=2_000 if "key_bits" in settings else 150)
    world.settle()
    world.subscribe_all()
    world.settle()
    twin = converged_twin(world, **settings)
    for node in world.nodes:
        assert state_of(twin.peer(node)) == state_of(world.peer(node))


def test_a_converged_ring_routes_repairs_and_takes_in_newcomers() -> None:
    world = World(0)
    world.grow(30, pause_ms=0)
    world.subscribe_all()
    world.settle()
    twin = converged_twin(world)
    assert check_quiet(twin.peers) == []
    twin.check_deliveries(3)
    twin.simulation.crash(twin.nodes[3:12])
    twin.grow(3, pause_ms=10)
    twin.settle()
    twin.check_deliveries(3)


def test_rows_are_shared_between_sender_and_receiver() -> None:
    world = World(0)
    world.grow(6, pause_ms=0)
    world.subscribe_all()
    world.settle()
    twin = converged_twin(world)
    for peer in twin.peers:
        for edge in peer.topology.edges():
            told = peer.engine.maintenance.told(edge)
            assert told is twin.peer(edge.node).engine.maintenance.sent(peer.me)


def reached(start: str, count: int, strategy: str) -> dict[str, Any]:
    """What `peersub simulate --start …` sets up, with the workload of large networks, by node."""
    scenario = Scenario(
        overlay="chord",
        nodes=count,
        subscriptions=count,
        start=start,
        join_every_ms=50,
        settings={"strategy": strategy},
        workload=WorkloadChoice(kind="symbols"),
    )
    content = content_for(scenario.workload, scenario.seed, count)
    run = Run(
        scenario,
        schedule_of(scenario, content),
        node_maker(scenario, sample_of(scenario, content)),
        DeliveryChecker(),
        checks_invariants=False,  # every state is compared instead
    )
    assert run.carry_out().violations == []
    return {
        host.name: (state_of(host.overlay), host.node.describe()["links"], sorted(host.links))
        for host in run.simulation.living()
    }


@pytest.mark.parametrize(
    ("count", "strategy"),
    [
        (64, "covering"),
        (128, "imperfect"),
        pytest.param(1_024, "imperfect", marks=pytest.mark.long),
    ],
)
def test_both_starts_of_a_simulation_reach_one_state(count: int, strategy: str) -> None:
    joined, converged = (reached(start, count, strategy) for start in ("joined", "converged"))
    assert list(joined) == list(converged)
    assert len(joined) == count
    for node, state in joined.items():
        assert converged[node] == state, node
    rows = [len(told) for state, _, _ in joined.values() for told in state["told"].values()]
    assert max(rows) > 5, "tables that say something"
