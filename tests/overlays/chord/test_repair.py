"""Leaving and failing: the ring closes, filters follow, and acknowledged events miss nobody."""

from random import Random

import pytest

from overlays.chord.ring_world import World, random_filter
from peersub.filters.filter import Filter
from peersub.overlays.chord.converged import converge
from peersub.overlays.chord.invariants import check_quiet
from peersub.overlays.chord.messages import Leaving, NeighbourhoodRequest, RingMember
from peersub.overlays.chord.peer import LEAVE, TAKES_LEAVE, ChordPeer
from peersub.overlays.chord.ring import _heirs, _sources
from peersub.overlays.chord.settings import ChordSettings
from peersub.overlays.chord.topology import ChordTopology
from peersub.overlays.core.causes import Leave, PeerConnected, PeerLost, Received, TimerFired
from peersub.overlays.core.effects import Notice, Send
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.publication import Delivery, Publication
from peersub.overlays.core.shell import Phase

ACKNOWLEDGED = Delivery.AT_LEAST_ONCE


def settled(seed: int, count: int, **settings: object) -> World:
    world = World(seed, **settings)
    world.converge(count)
    return world


def publish_some(world: World, count: int, among: list[str] | None = None) -> dict[str, list[str]]:
    """Acknowledged events from random nodes at random moments, and whom they should reach."""
    wanted = {}
    for _ in range(count):
        attributes = {"x": world.random.randrange(100), "y": world.random.randrange(4)}
        node = world.random.choice(among or world.nodes)
        wanted[world.publish(node, attributes, ACKNOWLEDGED)] = world.expected(attributes)
        world.simulation.run_for(world.random.randrange(50))
    return wanted


def check_reached(world: World, wanted: dict[str, list[str]]) -> None:
    living = world.nodes
    for event, names in wanted.items():
        got = world.delivered.get(event, [])
        missed = [n for n in names if n not in got and world.subscriptions[n][0] in living]
        assert not missed, f"{event} misses {missed}"
        assert len(got) == len(set(got)), f"{event} came twice"
        assert event in world.completed


@pytest.mark.parametrize("seed", range(6))
def test_rows_6_and_9_up_to_half_of_the_nodes_crash_at_once(seed: int) -> None:
    """The first living entry of the successor list is promoted, whoever died in between."""
    world = settled(seed, 20)
    victims = world.random.sample(world.nodes, 4 + seed)
    survivors = [node for node in world.nodes if node not in victims]
    wanted = publish_some(world, 3, survivors)
    world.simulation.crash(victims)
    wanted |= publish_some(world, 8)
    world.settle()
    check_reached(world, wanted)
    # No filter mentions the interests of the dead, and events find everyone again.
    world.check_deliveries(5)


def test_row_9_the_successor_is_promoted_at_once_when_the_perimeter_breaks() -> None:
    world = settled(1, 12)
    ordered = sorted(world.peers, key=lambda peer: peer.key)
    first, second, third = ordered[0], ordered[1], ordered[2]
    world.simulation.crash([second.me.node])
    detected_ms = world.simulation.settings.detection_ms
    world.simulation.run_for(detected_ms + world.simulation.settings.detection_jitter_ms)
    assert first.topology.successor == RingMember(third.key, third.me)
    assert third.topology.predecessor == RingMember(first.key, first.me)
    world.settle()


@pytest.mark.parametrize("seed", range(3))
def test_row_5_a_lost_finger_takes_no_filter_with_it(seed: int) -> None:
    """Make before break: right after a finger died, every edge wants what is wanted behind it.

    Whoever takes over the finger's arc has not even been told of it, but the rows are held.
    """
    random = Random(seed)
    settings = ChordSettings(key_bits=20, successors=4)
    peers = [ChordPeer(PeerId(f"n{place}"), settings, seed) for place in range(40)]
    wanted = {f"n{place}": {"s": Filter(f"x = {place}")} for place in range(40)}
    converge(peers, wanted)
    for place, peer in enumerate(peers):
        lost = random.choice(peer.topology.edges())
        peer.handle(PeerLost(lost, "crashed"), 0)
        for other, node in enumerate(peers):
            if other == place or node.me == lost:
                continue
            parts = peer.topology.parts((node.key, 1), None)
            assert len(parts) == 1, f"{peer.me} cannot reach {node.me}"
            [(edge, part)] = parts
            event = Publication("e", {"x": other})
            assert peer.engine.maintenance.matches(edge, event, part)


def test_lost_fingers_are_located_anew_without_waiting_for_stabilisation() -> None:
    world = World(4, stabilise_ms=0, successors=5)
    world.converge(48)
    victims = world.random.sample(world.nodes, 5)
    world.simulation.crash(victims)
    world.simulation.run_for(20_000)
    assert check_quiet(world.peers) == []


def test_a_node_that_has_left_serves_nobody_over_a_link_that_comes_up_later() -> None:
    """Mirrors on the node may need one; its table of edges is as it was when it left."""
    peer = ChordPeer(PeerId("n0"), ChordSettings(), 1)
    other = ChordPeer(PeerId("n1"), ChordSettings(), 1)
    converge([peer, other], {"n0": {"s": Filter("x = 0")}, "n1": {"t": Filter("x = 1")}})
    peer.handle(Leave(), 0)
    peer.handle(TimerFired(LEAVE), peer.settings.leave_ms)
    assert peer.phase is Phase.LEFT
    later = peer.handle(PeerConnected(other.me, other.greeting()), peer.settings.leave_ms + 1)
    assert not [effect for effect in later if isinstance(effect, Send)]


def test_a_link_with_a_node_that_has_left_is_no_sign_of_another_ring() -> None:
    peer = ChordPeer(PeerId("n0"), ChordSettings(), 1)
    gone = ChordPeer(PeerId("n1"), ChordSettings(), 1)
    converge([peer, gone], {"n0": {"s": Filter("x = 0")}, "n1": {}})
    peer.handle(Received(gone.me, (Leaving((), ()),)), 0)
    peer.handle(PeerLost(gone.me, TAKES_LEAVE), 1)
    later = peer.handle(PeerConnected(gone.me, gone.greeting()), 2)
    sent = [message for effect in later if isinstance(effect, Send) for message in effect.messages]
    assert sent == [NeighbourhoodRequest()]
    assert not [effect for effect in later if isinstance(effect, Notice)]


def test_all_but_one_crash_and_the_last_serves_itself() -> None:
    world = settled(2, 9)
    world.simulation.crash(world.nodes[1:])
    world.settle()
    assert world.peers[0].topology.edges() == []
    world.check_deliveries(3)


@pytest.mark.parametrize("seed", range(4))
def test_nodes_take_leave_and_acknowledged_events_miss_nobody(seed: int) -> None:
    world = settled(seed, 16)
    wanted = {}
    leaving = world.random.sample(world.nodes, 8)
    staying = [node for node in world.nodes if node not in leaving]
    for node in leaving:
        world.simulation.leave(node)
        wanted |= publish_some(world, 1, staying)
    world.settle()
    assert world.nodes == staying
    check_reached(world, wanted)
    world.check_deliveries(3)


def test_whoever_takes_leave_is_gone_as_soon_as_nobody_counts_on_it() -> None:
    world = settled(5, 12)
    for node in world.random.sample(world.nodes, 3):
        world.simulation.leave(node)
        world.simulation.run_for(500)
        assert not world.simulation.is_on(node)
    assert world.settings.leave_ms > 500
    world.settle()


def test_a_single_leave_loses_not_even_a_best_effort_event() -> None:
    """Announced and made before it breaks: whoever stays gets everything."""
    world = settled(3, 16)
    for node in world.random.sample(world.nodes, 5):
        staying = [other for other in world.nodes if other != node]
        world.simulation.leave(node)
        events = {}
        for _ in range(10):
            attributes = {"x": world.random.randrange(100), "y": world.random.randrange(4)}
            names = [n for n in world.expected(attributes) if world.subscriptions[n][0] != node]
            events[world.publish(world.random.choice(staying), attributes)] = names
            world.simulation.run_for(15)
        world.simulation.run_for(10_000)
        for event, names in events.items():
            assert set(names) <= set(world.delivered.get(event, []))
    world.settle()


@pytest.mark.parametrize("seed", range(3))
def test_crashed_nodes_come_back_with_and_without_their_disk(seed: int) -> None:
    from peersub.trace.schema import Disk

    world = World(seed)
    world.grow(12, pause_ms=60)
    world.subscribe_all()
    world.settle()
    victims = world.random.sample(world.nodes, 5)
    world.simulation.crash(victims)
    world.simulation.run_for(world.random.choice([10, 300, 4_000]))
    for place, node in enumerate(victims):
        contacts = [world.random.choice(world.nodes)]
        disk = Disk.KEPT if place % 2 else Disk.LOST
        world.simulation.restart(node, contacts, disk)
        if disk is Disk.LOST:
            for name in [n for n, (home, _) in world.subscriptions.items() if home == node]:
                del world.subscriptions[name]
    world.settle()
    assert len(world.peers) == 12
    world.check_deliveries(5)


def test_churn_of_nodes_and_subscriptions_ends_in_the_right_ring() -> None:
    world = settled(8, 12)
    for _ in range(25):
        match world.random.randrange(4):
            case 0:
                world.grow(1, pause_ms=1)
            case 1 if len(world.nodes) > 6:
                world.simulation.crash([world.random.choice(world.nodes[1:])])
            case 2:
                world.subscribe(world.random.choice(world.nodes), random_filter(world.random))
            case _:
                living = world.nodes
                names = [n for n, (node, _) in world.subscriptions.items() if node in living]
                if names:
                    world.unsubscribe(world.random.choice(names))
        world.simulation.run_for(world.random.randrange(200))
    world.settle()
    world.check_deliveries(5)
    for name, (node, _) in list(world.subscriptions.items()):
        if node in world.nodes:
            world.unsubscribe(name)
    world.settle()
    for peer in world.peers:
        for edge in peer.topology.edges():
            assert not peer.engine.maintenance.told(edge).entries


# --- who inherits ------------------------------------------------------------------------------


def _edges(key: int, others: list[int]) -> list[tuple[PeerId, tuple[int, int]]]:
    topology = ChordTopology(PeerId(f"n{key}"), key, 8)
    topology.know(RingMember(other, PeerId(f"n{other}")) for other in others if other != key)
    return [(edge.peer, edge.arc) for edge in topology.fingers()]


@pytest.mark.parametrize("seed", range(40))
def test_rows_5_and_9_every_key_keeps_the_filters_that_served_it(seed: int) -> None:
    """Whoever serves a key after a change holds the rows of whoever served it before.

    Keys between this peer and its successor are nobody's, before and after.
    """
    random = Random(seed)
    keys = random.sample(range(256), 14)
    key, others = keys[0], keys[1:]
    before = _edges(key, random.sample(others, random.randrange(1, 12)))
    after = _edges(key, random.sample(others, random.randrange(1, 12)))
    heirs, copies = _heirs(before, after, 256), _sources(before, after, 256)
    old, new = {peer for peer, _ in before}, {peer for peer, _ in after}
    assert set(heirs) == old - new
    assert set(copies) == new - old
    held: dict[PeerId, set[PeerId]] = {peer: {peer} for peer in new}
    for peer, source in copies.items():
        if source is not None:
            held[peer].add(source)
    for lost, heir in heirs.items():
        if heir is not None:
            held[heir].add(lost)

    def serving(edges: list[tuple[PeerId, tuple[int, int]]], at: int) -> PeerId | None:
        found = [peer for peer, (start, length) in edges if (at - start) % 256 < length]
        return found[0] if found else None

    for at in range(256):
        was, is_now = serving(before, at), serving(after, at)
        if was is not None and is_now is not None:
            assert was in held[is_now], f"key {at}: {was} -> {is_now}"
