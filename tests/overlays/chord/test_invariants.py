"""The checkers complain: each invariant is broken by hand and must be noticed."""

from collections.abc import Callable

import pytest

from overlays.chord.ring_world import World
from peersub.overlays.chord.invariants import (
    check_partition,
    check_quiet,
    check_sample,
    check_step,
)
from peersub.overlays.chord.peer import ChordPeer
from peersub.overlays.core.causes import Publish, Received
from peersub.overlays.core.effects import Send
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.publication import Publication
from peersub.overlays.core.shell import Phase
from peersub.overlays.routing.messages import Notify
from peersub.overlays.routing.rows import NO_ROWS


@pytest.fixture
def world() -> World:
    made = World(seed=1)
    made.grow(10, pause_ms=60)
    made.subscribe_all()
    made.settle()
    return made


def _forgets_its_successor(peer: ChordPeer) -> None:
    peer.topology.know(peer.topology.known[1:])


def _forgets_its_predecessor(peer: ChordPeer) -> None:
    peer.topology.know(peer.topology.known[:-1])


def _forgets_a_finger(peer: ChordPeer) -> None:
    lost = peer.topology.edges()[-1]
    peer.topology.know(member for member in peer.topology.known if member.peer != lost)


def _loses_rows(peer: ChordPeer) -> None:
    edge = peer.topology.edges()[0]
    peer.engine.maintenance._tables[edge]._told = NO_ROWS


def _serves_another_scope(peer: ChordPeer) -> None:
    publisher = next(iter(peer.engine.maintenance._publishers.values()))
    publisher.scope = (publisher.scope[0], publisher.scope[1] - 1)


def _serves_a_stranger(peer: ChordPeer) -> None:
    publishers = peer.engine.maintenance._publishers
    publishers[PeerId("stranger")] = next(iter(publishers.values()))


def _stays_outside(peer: ChordPeer) -> None:
    peer.phase = Phase.JOINING


def _stands_at_anothers_key(peer: ChordPeer) -> None:
    other = peer.topology.successor
    assert other is not None
    peer.topology.key = other.key


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (_forgets_its_successor, "for its successor"),
        (_forgets_its_predecessor, "for its predecessor"),
        (_forgets_a_finger, "wrong fingers"),
        (_loses_rows, "other rows than"),
        (_serves_another_scope, "serves"),
        (_serves_a_stranger, "which has no edge to it"),
        (_stays_outside, "has not joined"),
        (_stands_at_anothers_key, "stand at one key"),
    ],
)
def test_damage_is_noticed(
    world: World, damage: Callable[[ChordPeer], None], complaint: str
) -> None:
    assert check_quiet(world.peers) == []
    damage(world.peer("n4"))
    assert any(complaint in said for said in check_quiet(world.peers))


def test_a_sample_is_looked_at_as_closely_as_all(world: World) -> None:
    damaged, others = world.peer("n4"), [peer for peer in world.peers if peer.me.node != "n4"]
    _forgets_a_finger(damaged)
    assert any("wrong fingers" in said for said in check_sample(world.peers, [damaged]))
    assert check_sample(world.peers, []) == []
    # What concerns the whole ring is asked of everyone.
    _stays_outside(others[0])
    assert any("has not joined" in said for said in check_sample(world.peers, []))


def test_rows_of_a_sample_are_worked_out_from_its_own_tables(world: World) -> None:
    peer = world.peer("n4")
    edge = peer.topology.edges()[0]
    peer.engine.maintenance._tables[edge]._told = NO_ROWS
    world.peer(edge.node).engine.maintenance._publishers[peer.me].sent = NO_ROWS
    assert any("fixpoint" in said for said in check_sample(world.peers, [world.peer(edge.node)]))


def test_rows_that_are_wrong_at_both_ends_are_no_fixpoint(world: World) -> None:
    peer = world.peer("n4")
    edge = peer.topology.edges()[0]
    peer.engine.maintenance._tables[edge]._told = NO_ROWS
    world.peer(edge.node).engine.maintenance._publishers[peer.me].sent = NO_ROWS
    assert any("not the fixpoint" in said for said in check_quiet(world.peers))


def test_arcs_with_a_gap_are_noticed(world: World) -> None:
    peer = world.peer("n4")
    assert check_partition(peer) == []
    edge = peer.topology.fingers()[0]
    edge.arc = (edge.arc[0], edge.arc[1] - 1)
    assert check_partition(peer) != []


def _handed_on(parts: list[tuple[int, int]]) -> list[Send]:
    publication = Publication("e", {"x": 1})
    return [
        Send(PeerId(f"n{place}"), (Notify(publication, part, 1),))
        for place, part in enumerate(parts)
    ]


def test_what_is_handed_on_must_be_disjoint_and_within_what_was_given() -> None:
    from peersub.overlays.chord.settings import ChordSettings

    peer = ChordPeer(PeerId("a"), ChordSettings(key_bits=4, key=2), 1)
    publication = Publication("e", {"x": 1})
    given = Received(PeerId("b"), (Notify(publication, (2, 8), 0),))
    assert check_step(peer, given, _handed_on([(4, 2), (6, 4)])) == []
    assert check_step(peer, given, _handed_on([(4, 3), (6, 4)])) != []
    assert check_step(peer, given, _handed_on([(6, 5)])) != []
    assert check_step(peer, Publish((publication,)), _handed_on([(6, 5), (15, 3)])) == []
