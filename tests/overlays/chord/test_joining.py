"""Joining: rings grow in any order, one by one and all at once, to the ring that sorting gives."""

from itertools import pairwise

import pytest

from overlays.chord.ring_world import World
from peersub.overlays.chord.joining import key_of
from peersub.overlays.chord.messages import Admission, AdmissionRequest
from peersub.overlays.chord.peer import ChordPeer
from peersub.overlays.chord.settings import ChordSettings
from peersub.overlays.core.causes import Join, PeerConnected, Publish, Received, Restored, Start
from peersub.overlays.core.effects import Connect, Persist, PublishCompleted, PublishFailed, Send
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.publication import Publication
from peersub.overlays.core.records import IdentityStored
from peersub.overlays.core.shell import Phase


@pytest.mark.parametrize("count", [1, 2, 3, 5, 9, 17])
@pytest.mark.parametrize("pause_ms", [0, 40, 400])
def test_rows_10_and_16_a_ring_grows_from_one_node(count: int, pause_ms: int) -> None:
    """Newcomers in one gap find each other; the first node adopts the second."""
    world = World(seed=count)
    world.grow(count, pause_ms=pause_ms)
    world.settle()
    assert len(world.peers) == count


def test_a_ring_of_40_nodes_that_come_at_once_serves_everyone() -> None:
    world = World(seed=40)
    world.grow(40, pause_ms=0)
    world.subscribe_all()
    world.settle()
    assert len(world.ready) == 40
    world.check_deliveries(6)


def test_row_10_two_newcomers_in_one_gap_take_turns() -> None:
    """The one behind is admitted by its successor, the one in front by the one behind."""
    world = World(seed=3, key_bits=10)
    world.grow(3)
    world.settle()
    keys = sorted(peer.key for peer in world.peers)
    low, high = max(pairwise(keys), key=lambda gap: gap[1] - gap[0])
    assert high - low > 8
    names = _names_with_keys(world, range(low + 1, high), 4)
    for name in names:
        world.simulation.join(name, ["n0"])
    world.settle()
    assert len(world.peers) == 7


def _names_with_keys(world: World, wanted: range, count: int) -> list[str]:
    """Names of nodes whose keys are in the range, found by trying."""
    found: dict[int, str] = {}
    for number in range(10_000):
        name = f"x{number}"
        key = key_of(name, 3, world.settings, 0)
        if key in wanted and key not in found:
            found[key] = name
        if len(found) == count:
            return list(found.values())
    raise AssertionError("no such names")


@pytest.mark.parametrize("pause_ms", [0, 100])
def test_row_15_nodes_whose_key_is_taken_draw_another(pause_ms: int) -> None:
    world = World(seed=1, key_bits=5)
    first_draws = [key_of(f"n{place}", 1, world.settings, 0) for place in range(20)]
    assert len(set(first_draws)) < 20
    world.grow(20, pause_ms=pause_ms)
    world.settle()
    assert len({peer.key for peer in world.peers}) == 20


def test_row_15_a_full_circle_fills_every_key() -> None:
    world = World(seed=2, key_bits=3)
    world.grow(8, pause_ms=200)
    world.settle()
    assert sorted(peer.key for peer in world.peers) == list(range(8))


def test_row_15_a_node_for_whom_there_is_no_key_waits_for_one() -> None:
    world = World(seed=2, key_bits=2)
    world.grow(5, pause_ms=2_000)
    world.simulation.run_for(20_000)
    phases = [peer.phase for peer in world.peers]
    assert phases.count(Phase.MEMBER) == 4
    waiting = world.peers[phases.index(Phase.JOINING)]
    before = world.simulation.counters.steps
    world.simulation.run_for(20_000)
    assert world.simulation.counters.steps - before < 2_000
    left = next(peer.me.node for peer in world.peers if peer.phase is Phase.MEMBER)
    world.simulation.leave(left)
    world.simulation.run_for(60_000)
    assert waiting.phase is Phase.MEMBER


def test_row_15_members_that_share_a_key_after_a_split_part_again() -> None:
    """Both sides of a split may give the same key away; the merged ring has no room for both."""
    world = World(seed=5, key_bits=12)
    world.grow(6)
    world.settle()
    taken = {peer.key for peer in world.peers}
    names: dict[int, list[str]] = {}
    pair: list[str] = []
    for number in range(5_000):
        name = f"x{number}"
        key = key_of(name, 5, world.settings, 0)
        names.setdefault(key, []).append(name)
        if key not in taken and len(names[key]) == 2:
            pair = names[key]
            break
    one, other = pair
    world.simulation.partition([["n0", "n1", "n2"], ["n3", "n4", "n5"]])
    world.simulation.run_for(5_000)
    world.simulation.join(one, ["n0"])
    world.simulation.join(other, ["n3"])
    world.simulation.partition([["n0", "n1", "n2", one], ["n3", "n4", "n5", other]])
    world.simulation.run_for(20_000)
    assert world.peer(one).key == world.peer(other).key
    world.simulation.heal()
    world.settle()
    assert world.peer(one).key != world.peer(other).key


def test_no_subscription_is_ready_before_the_predecessor_serves_the_node() -> None:
    world = World(seed=4)
    world.grow(8)
    world.settle()
    world.simulation.join("late", ["n3"])
    name = world.subscribe("late", "x >= 0")
    for _ in range(2_000):
        world.simulation.run_for(1)
        if name in world.ready:
            break
        assert world.simulation.now_ms - world.ready.get(name, 0) < 10_000_000
    late = world.peer("late")
    predecessor = late.topology.predecessor
    assert predecessor is not None
    assert name in world.ready
    # From this moment on events from everywhere find their way.
    events = [world.publish(node, {"x": 1}) for node in world.nodes]
    world.simulation.run_for(1_000)
    assert all(world.delivered.get(event) == [name] for event in events)


def test_events_published_before_the_node_has_joined_wait_for_it() -> None:
    world = World(seed=6)
    world.grow(5)
    world.settle()
    name = world.subscribe("n1", "x = 1")
    world.settle()
    world.simulation.join("late", ["n0"])
    event = world.publish("late", {"x": 1})
    assert event not in world.completed
    world.simulation.run_for(5_000)
    assert event in world.completed
    assert world.delivered[event] == [name]


def test_too_many_publications_before_the_node_has_joined_fail() -> None:
    peer = ChordPeer(PeerId("a"), ChordSettings(), 1)
    peer.handle(Join(("b",)), 0)
    many = tuple(Publication(f"e{number}", {"x": 1}) for number in range(1_100))
    effects = peer.handle(Publish(many), 1)
    failed = [effect.event_id for effect in effects if isinstance(effect, PublishFailed)]
    assert failed == [f"e{number}" for number in range(1_024, 1_100)]
    assert not any(isinstance(effect, PublishCompleted) for effect in effects)


def test_a_node_keeps_its_key_over_a_restart() -> None:
    peer = ChordPeer(PeerId("a"), ChordSettings(key_bits=16, key=77), 1)
    records = [e.record for e in peer.handle(Start(), 0) if isinstance(e, Persist)]
    assert peer.key == 77
    again = ChordPeer(PeerId("a", 1), ChordSettings(key_bits=16), 1)
    assert again.key != 77
    identities = tuple(record for record in records if isinstance(record, IdentityStored))
    again.handle(Restored(identities), 0)
    again.handle(Start(), 0)
    assert again.key == 77


def test_contacts_are_tried_one_after_the_other_until_one_answers() -> None:
    world = World(seed=9)
    world.grow(3)
    world.settle()
    world.simulation.join("late", ["nobody", "late", "neither", "n1"])
    world.simulation.run_for(10_000)
    assert world.peer("late").phase is Phase.MEMBER
    world.settle()


def test_a_node_with_no_contact_but_itself_begins_a_ring() -> None:
    peer = ChordPeer(PeerId("a"), ChordSettings(), 1)
    effects = peer.handle(Join(("a",)), 0)
    assert peer.phase is Phase.MEMBER
    assert not any(isinstance(effect, Connect) for effect in effects)


def test_admission_is_refused_if_a_member_stands_between() -> None:
    world = World(seed=11, key_bits=10)
    world.grow(6)
    world.settle()
    ordered = sorted(world.peers, key=lambda peer: peer.key)
    before, between, successor = ordered[0], ordered[1], ordered[2]
    stranger = PeerId("stranger")
    successor.handle(PeerConnected(stranger), world.simulation.now_ms)
    key = (before.key + 1) % 1_024
    assert key != between.key
    request = Received(stranger, (AdmissionRequest(key),))
    effects = successor.handle(request, world.simulation.now_ms)
    answers = [
        message
        for effect in effects
        if isinstance(effect, Send) and effect.peer == stranger
        for message in effect.messages
    ]
    assert [type(answer) for answer in answers] == [Admission]
    assert not answers[0].granted
    assert answers[0].predecessors[0].peer == between.me


@pytest.mark.parametrize("loss", [0.1, 0.25])
def test_row_20_nodes_join_though_messages_are_lost_doubled_and_overtaken(loss: float) -> None:
    from peersub.overlays.core.link import LinkSettings
    from peersub.simulator.settings import NetworkSettings

    network = NetworkSettings(loss=loss, duplicate=0.1, reorder=0.2)
    world = World(7, network, LinkSettings(acknowledge=True))
    world.grow(10, pause_ms=200)
    world.subscribe_all()
    world.settle()
    assert len(world.ready) == 10


def test_the_last_member_leaves_its_ring_to_whoever_is_joining() -> None:
    world = World(seed=12)
    world.grow(1)
    for name in ("a", "b", "c"):
        world.simulation.join(name, ["n0"])
    world.simulation.run_for(25)
    assert {peer.phase for peer in world.peers[1:]} == {Phase.JOINING}
    world.simulation.leave("n0")
    world.settle()
    assert sorted(world.nodes) == ["a", "b", "c"]


def test_a_subscription_that_was_restored_is_not_ready_before_the_node_has_joined() -> None:
    world = World(seed=13)
    world.grow(6)
    name = world.subscribe("n4", "x = 1")
    world.settle()
    world.simulation.crash(["n4"])
    world.simulation.run_for(50)
    del world.ready[name]
    world.simulation.restart("n4", ["n0"])
    assert world.simulation.run_until(lambda: name in world.ready, 60_000)
    events = [world.publish(node, {"x": 1}) for node in world.nodes]
    world.simulation.run_for(2_000)
    assert all(world.delivered.get(event) == [name] for event in events)
