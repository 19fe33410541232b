"""One way to start serves for the first start, for restarts, and for all at once in any order."""

import pytest

from overlays.chord.ring_world import World
from peersub.overlays.core.link import LinkSettings
from peersub.overlays.core.publication import Delivery
from peersub.overlays.core.shell import Phase
from peersub.runtime.settings import live_settings
from peersub.simulator.settings import NetworkSettings
from peersub.trace.schema import Disk

LINKS = LinkSettings(acknowledge=True, tunnels=True)
APART_MS = 20_000


def is_one_ring(world: World) -> bool:
    """Whether each node points to the next by key."""
    peers = sorted(world.peers, key=lambda peer: peer.key)
    if any(peer.phase is not Phase.MEMBER for peer in peers):
        return False
    following = [*peers[1:], peers[0]]
    return len(peers) == 1 or all(
        peer.topology.successor is not None and peer.topology.successor.peer == after.me
        for peer, after in zip(peers, following, strict=True)
    )


def until_one_ring(world: World, limit_ms: int = 300_000) -> None:
    until_ms = world.simulation.now_ms + limit_ms
    while not is_one_ring(world):
        assert world.simulation.now_ms < until_ms, [peer.describe() for peer in world.peers]
        world.simulation.run_for(500)
    world.settle()


def cold_start(world: World, names: list[str], apart_ms: int) -> None:
    """All nodes start with the same list, in any order, up to so long apart."""
    order = world.random.sample(names, len(names))
    for name in order:
        world.simulation.join(name, names)
        world.simulation.run_for(world.random.randrange(apart_ms + 1))


@pytest.mark.parametrize("seed", range(20))
def test_nodes_with_one_list_that_names_them_all_become_one_ring(seed: int) -> None:
    world = World(seed, links=LINKS)
    count = world.random.randint(2, 9)
    cold_start(world, [f"n{place}" for place in range(count)], world.random.choice((0, 200, 9_000)))
    until_one_ring(world)
    for node in world.nodes:
        world.subscribe(node, "x >= 0")
    world.settle()
    world.check_deliveries(2, Delivery.AT_LEAST_ONCE)


def test_of_nodes_that_start_together_one_begins_and_the_others_follow_at_once() -> None:
    world = World(1, links=LINKS)
    cold_start(world, ["n0", "n1", "n2"], 0)
    world.simulation.run_for(6_000)
    assert is_one_ring(world)


def test_a_node_none_of_whose_contacts_is_there_begins_alone_and_finds_them_later() -> None:
    world = World(2, links=LINKS)
    world.simulation.join("n0", ["n1", "n2"])
    world.simulation.run_for(3_000)
    assert world.peer("n0").phase is Phase.MEMBER
    world.simulation.run_for(200_000)
    world.simulation.start("n2")
    until_one_ring(world)


@pytest.mark.parametrize("disk", [Disk.KEPT, Disk.LOST])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("away_ms", [10, 3_000, 700_000])
def test_a_seed_that_starts_again_without_contacts_is_found(
    seed: int, disk: Disk, away_ms: int
) -> None:
    world = World(seed, links=LINKS)
    world.grow(world.random.randint(2, 8))
    world.settle()
    for node in world.nodes:
        world.subscribe(node, "x >= 0")
    world.settle()
    world.simulation.crash(["n0"])
    world.simulation.run_for(away_ms)
    world.subscriptions = {n: each for n, each in world.subscriptions.items() if each[0] != "n0"}
    world.simulation.restart("n0", disk=disk)
    if disk is Disk.LOST:
        world.subscribe("n0", "x >= 50")
    until_one_ring(world)


@pytest.mark.parametrize("away_ms", [10, 1_000, 10_000, 60_000])
@pytest.mark.parametrize("count", [2, 5])
def test_how_soon_a_seed_is_found_depends_on_how_long_it_was_away(count: int, away_ms: int) -> None:
    settings = live_settings("chord", {"key_bits": 20})
    chosen = {name: getattr(settings, name) for name in ("probe_ms", "lookup_ms", "stabilise_ms")}
    world = World(count, NetworkSettings(latency_ms=1, jitter_ms=2), LINKS, **chosen)
    world.grow(count)
    world.subscribe("n1", "x >= 0")
    world.settle()
    world.simulation.crash(["n0"])
    world.simulation.run_for(away_ms)
    world.simulation.restart("n0", disk=Disk.LOST)
    world.simulation.run_for(max(1_000, away_ms // 4))
    assert is_one_ring(world)
    world.simulation.run_for(50)
    event = world.publish("n0", {"x": 1})
    world.simulation.run_for(50)
    assert world.delivered[event] == world.expected({"x": 1})


def test_a_newcomer_does_not_wait_for_a_contact_that_nobody_can_reach() -> None:
    """The attempt lasts for long where packets vanish; another contact lets the node in."""
    world = World(5, NetworkSettings(connect_failed_ms=60_000), LINKS)
    world.grow(3)
    world.settle()
    world.simulation.join("n9", ["gone", "n1"])
    name = world.subscribe("n9", "x >= 0")
    world.simulation.run_for(10_000)
    assert name in world.ready


def test_a_seed_that_took_leave_and_starts_again_without_contacts_is_found() -> None:
    world = World(3, links=LINKS)
    world.grow(4)
    world.settle()
    world.simulation.leave("n0")
    world.simulation.run_for(APART_MS)
    world.simulation.restart("n0", disk=Disk.LOST)
    until_one_ring(world)


@pytest.mark.parametrize("seed", range(4))
def test_all_nodes_start_again_at_once_with_their_disks_and_without_contacts(seed: int) -> None:
    world = World(seed, links=LINKS)
    world.grow(5)
    world.settle()
    names = world.nodes
    world.simulation.crash(names)
    for name in world.random.sample(names, len(names)):
        world.simulation.restart(name)
        world.simulation.run_for(world.random.randrange(3_000))
    until_one_ring(world)


@pytest.mark.parametrize("seed", range(4))
def test_networks_that_were_begun_twice_merge_and_replay(seed: int) -> None:
    """What was acknowledged in one of them reaches subscribers of the other."""
    world = World(seed, links=LINKS)
    world.simulation.start("a")
    for name in ("a1", "a2"):
        world.simulation.join(name, ["a"])
    world.simulation.join("b", ["a9"])
    for name in ("b1", "b2"):
        world.simulation.join(name, ["b", "a1"] if name == "b2" else ["b"])
    # So far nobody of one side can be reached from the other.
    world.simulation.partition([["a", "a1", "a2"], ["b", "b1", "b2"]])
    world.simulation.run_for(APART_MS)
    for node in ("a2", "b1"):
        world.subscribe(node, "x >= 0")
    world.simulation.run_for(APART_MS)
    event = world.publish("a1", {"x": 1}, Delivery.AT_LEAST_ONCE)
    world.simulation.run_for(APART_MS)
    assert event in world.completed
    assert len(world.delivered[event]) == 1
    world.simulation.heal()
    until_one_ring(world)
    assert sorted(world.delivered[event]) == world.expected({"x": 1})
