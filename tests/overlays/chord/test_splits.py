"""Row 19: after a split has healed the rings merge, and acknowledged events are replayed.
Row 18: an edge that fails between two living nodes cuts nobody off.
"""

import pytest

from overlays.chord.ring_world import World
from peersub.overlays.chord.splits import Splits
from peersub.overlays.core.causes import Publish
from peersub.overlays.core.link import LinkSettings
from peersub.overlays.core.probing import FORMER_MAX
from peersub.overlays.core.publication import Delivery
from peersub.simulator.settings import NetworkSettings

ACKNOWLEDGED = Delivery.AT_LEAST_ONCE


def settled(seed: int, count: int, links: LinkSettings | None = None) -> World:
    world = World(seed, links=links)
    world.converge(count)
    return world


def publish_some(world: World, count: int) -> dict[str, list[str]]:
    wanted = {}
    for _ in range(count):
        attributes = {"x": world.random.randrange(100), "y": world.random.randrange(4)}
        event = world.publish(world.random.choice(world.nodes), attributes, ACKNOWLEDGED)
        wanted[event] = world.expected(attributes)
        world.simulation.run_for(world.random.randrange(50))
    return wanted


def check_reached(world: World, wanted: dict[str, list[str]]) -> None:
    for event, names in wanted.items():
        assert sorted(world.delivered.get(event, [])) == names, event


@pytest.mark.parametrize(
    ("seed", "sizes", "apart_ms"),
    [(0, (8, 8), 20_000), (1, (15, 1), 20_000), (2, (6, 5, 5), 10_000), (3, (12, 4), 600)],
)
def test_row_19_rings_that_were_one_merge_and_events_of_the_split_reach_all(
    seed: int, sizes: tuple[int, ...], apart_ms: int
) -> None:
    world = settled(seed, 16)
    names = world.random.sample(world.nodes, 16)
    groups = []
    for size in sizes:
        groups.append(names[:size])
        names = names[size:]
    wanted = publish_some(world, 2)
    world.simulation.partition(groups)
    wanted |= publish_some(world, 8)
    world.simulation.run_for(apart_ms)
    wanted |= publish_some(world, 6)
    world.simulation.heal()
    wanted |= publish_some(world, 4)
    world.settle()
    check_reached(world, wanted)
    world.check_deliveries(4)


@pytest.mark.parametrize("seed", range(3, 9))
def test_row_19_replays_wait_for_filters_that_a_lossy_network_holds_up(seed: int) -> None:
    """The news that rings have merged reach all, and not before the filters have."""
    links = LinkSettings(acknowledge=True, tunnels=True)
    world = World(seed, NetworkSettings(loss=0.25), links, merge_settle_ms=1_000)
    world.converge(10)
    world.simulation.partition([world.nodes[:5], world.nodes[5:]])
    world.simulation.run_for(20_000)
    wanted = publish_some(world, 8)
    world.simulation.heal()
    wanted |= publish_some(world, 4)
    world.settle()
    check_reached(world, wanted)


def test_ring_news_reach_every_node_once_though_messages_are_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: list[tuple[Splits, str]] = []
    monkeypatch.setattr(
        Splits,
        "on_news",
        lambda self, news, meeting, node, now_ms, apart_ms: heard.append((self, meeting)),
    )
    world = World(0, NetworkSettings(loss=0.3), LinkSettings(acknowledge=True))
    world.converge(10)
    teller = world.peers[0]
    for meeting in ("first", "second", "third"):
        teller.locating.publish_news("anything", meeting, "n0", world.simulation.now_ms)
        world.simulation.cause("n0", Publish(()))
    world.simulation.run_for(60_000)
    for meeting in ("first", "second", "third"):
        who = [splits for splits, about in heard if about == meeting]
        assert len(who) == 10
        assert all(peer.splits in who for peer in world.peers)
    assert not any(world.delivered.values())
    assert not world.completed, "no publisher asked for it"


def test_each_side_of_a_split_is_a_ring_of_its_own() -> None:
    from overlays.chord.ring_world import naive_ring_complaints
    from peersub.overlays.chord.invariants import check_quiet

    world = settled(4, 12)
    sides = [world.nodes[:7], world.nodes[7:]]
    world.simulation.partition(sides)
    world.simulation.run_for(80_000)
    for side in sides:
        peers = [world.peer(node) for node in side]
        assert check_quiet(peers) == []
        assert naive_ring_complaints(peers) == []
    # Nobody got the other side's filters either.
    assert all(len(peer.splits.probing.sought) <= FORMER_MAX for peer in world.peers)


def test_nodes_may_join_and_crash_on_both_sides_of_a_split() -> None:
    world = settled(5, 14)
    sides = [world.nodes[:7], world.nodes[7:]]
    world.simulation.partition(sides)
    world.simulation.run_for(3_000)
    world.simulation.crash([sides[0][1], sides[1][2], sides[1][3]])
    world.simulation.join("a", [sides[0][0]])
    world.simulation.join("b", [sides[1][0]])
    world.simulation.partition([[*sides[0], "a"], [*sides[1], "b"]])
    world.simulation.run_for(20_000)
    world.simulation.heal()
    world.settle()
    assert len(world.peers) == 13
    world.check_deliveries(4)


@pytest.mark.parametrize("seed", range(3))
def test_row_18_edges_fail_with_both_ends_alive_the_successors_among_them(seed: int) -> None:
    """log2 N - 1 edges of one node fail: it is reached over others, and misses nothing."""
    world = settled(seed, 16, LinkSettings(acknowledge=True, tunnels=True))
    node = world.random.choice(world.nodes)
    topology = world.peer(node).topology
    assert topology.successor is not None
    others = [member.peer.node for member in topology.known[1:]]
    failing = [topology.successor.peer.node, *world.random.sample(others, 2)]
    world.simulation.break_edges([(node, other) for other in failing])
    wanted = publish_some(world, 12)
    world.simulation.run_for(5_000)
    wanted |= publish_some(world, 4)
    world.settle()
    check_reached(world, wanted)
    assert all(event in world.completed for event in wanted)


@pytest.mark.parametrize("seed", range(3))
def test_a_lost_peer_that_presents_itself_gets_what_it_missed(seed: int) -> None:
    """Stabilisation may bring two together again before either has tried its former peers."""
    world = World(seed, probe_ms=300_000, stabilise_ms=1_500)
    world.converge(10)
    node = world.nodes[4]
    successor = world.peer(node).topology.successor
    assert successor is not None
    lost = successor.peer.node
    name = world.subscribe(lost, "z = 1")
    world.settle()
    world.simulation.break_edges([(node, lost)])
    world.simulation.run_for(4_000)
    assert world.peer(node).topology.successor != successor
    event = world.publish(node, {"z": 1}, ACKNOWLEDGED)
    world.simulation.run_for(4_000)
    assert event not in world.delivered
    # The other side does not know any more that they were parted.
    world.peer(lost).splits.probing.sought.clear()
    world.simulation.mend_edges()
    world.settle()
    assert world.peer(node).topology.successor == successor
    assert world.delivered[event] == [name]


def test_an_edge_that_failed_without_a_way_round_is_taken_up_again_when_it_is_mended() -> None:
    world = settled(6, 12)
    node = world.nodes[4]
    successor = world.peer(node).topology.successor
    assert successor is not None
    world.simulation.break_edges([(node, successor.peer.node)])
    world.simulation.run_for(10_000)
    assert world.peer(node).topology.successor != successor
    wanted = publish_some(world, 5)
    world.simulation.mend_edges()
    world.settle()
    assert world.peer(node).topology.successor == successor
    check_reached(world, wanted)
