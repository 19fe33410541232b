"""The successor list has no gap, is as long as the ring asks for, and depends on itself only."""

from random import Random

import pytest

from peersub.overlays.chord.messages import RingMember
from peersub.overlays.chord.successor_list import SuccessorList
from peersub.overlays.chord.topology import ChordTopology, list_length
from peersub.overlays.core.identity import PeerId

SIZE = 1 << 16


def member(key: int) -> RingMember:
    return RingMember(key, PeerId(f"n{key}"))


def a_list(known: list[int], length: int = 0) -> tuple[SuccessorList, ChordTopology]:
    topology = ChordTopology(PeerId("me"), 0, 16)
    topology.know(map(member, known))
    return SuccessorList(topology, length), topology


def keys(members: list[RingMember]) -> list[int]:
    return [one.key for one in members]


@pytest.mark.parametrize("seed", range(10))
def test_row_6_lists_grow_by_what_members_name_until_they_are_long_enough(seed: int) -> None:
    """However many fingers are known far away, the list is the true one, of about 2 log2 N."""
    random = Random(seed)
    ring = sorted(random.sample(range(1, SIZE), 255))
    known = sorted({ring[0], *random.sample(ring, 12)})
    following, topology = a_list(known)
    for _ in range(20):
        if following.is_complete:
            break
        last = following.members()[-1].key
        place = ring.index(last)
        named = [member(key) for key in ring[place + 1 : place + 6]]
        following.learn(last, named)
        known = sorted({*known, *(one.key for one in following.wanted(named))})
        topology.know(map(member, known))
        following.settle()
    found = keys(following.members())
    assert following.is_complete
    assert found == ring[: len(found)]
    assert len(found) == list_length(ring, SIZE)
    assert 12 <= len(found) <= 20


def test_a_finger_far_away_is_no_successor_as_long_as_there_may_be_a_gap() -> None:
    following, _ = a_list([10, 20, 30_000])
    assert keys(following.members()) == [10]
    assert not following.is_complete
    following.learn(10, [member(20), member(25)])
    assert keys(following.members()) == [10, 20]
    following.give_up(25)
    assert keys(following.members()) == [10, 20]


def test_what_a_member_beyond_a_gap_names_proves_nothing() -> None:
    following, _ = a_list([10, 500, 600])
    following.learn(500, [member(600)])
    assert keys(following.members()) == [10]


def test_once_round_the_list_is_the_whole_ring_however_short() -> None:
    following, topology = a_list([10, 500])
    following.learn(10, [member(500), member(0)])
    assert keys(following.members()) == [10, 500]
    assert following.is_complete
    alone, _ = a_list([10])
    alone.learn(10, [])
    assert alone.is_complete
    # Someone who comes later is between the others only if it is known.
    topology.know(map(member, [10, 200, 500]))
    assert keys(following.members()) == [10, 200, 500]


def test_a_doubted_list_holds_the_successor_only() -> None:
    following, _ = a_list([10, 20, 30])
    following.learn(10, [member(20), member(30)])
    assert keys(following.members()) == [10, 20, 30]
    following.doubt()
    assert keys(following.members()) == [10]


def test_no_more_is_claimed_than_the_list_needs() -> None:
    spaced = list(range(4_096, SIZE, 4_096))
    following, topology = a_list(spaced)
    following.learn(4_096, [member(key) for key in spaced[1:]])
    assert keys(following.members()) == spaced[:8]
    following.settle()
    assert following.horizon == spaced[7]
    # Lost members make the list short again, and those beyond the horizon do not count.
    topology.know(map(member, spaced[3:]))
    assert keys(following.members()) == spaced[3:8]
    assert not following.is_complete


def test_a_fixed_length_is_kept() -> None:
    following, _ = a_list([10, 20, 30, 40], length=3)
    following.learn(10, [member(20), member(30), member(40)])
    assert keys(following.members()) == [10, 20, 30]
    assert following.is_complete


def test_only_those_that_lengthen_the_list_are_wanted() -> None:
    following, _ = a_list([10], length=3)
    named = [member(20), member(30), member(40), member(50)]
    following.learn(10, named)
    assert keys(list(following.wanted(named))) == [20, 30]


def test_the_list_ends_before_a_member_that_was_named_and_is_not_known_yet() -> None:
    """Else a finger beyond it would count as the next, and others be told so."""
    following, topology = a_list([10, 40], length=2)
    following.learn(10, [member(20), member(30), member(40)])
    assert keys(following.members()) == [10]
    assert not following.is_complete
    topology.know(map(member, [10, 20, 40]))
    following.settle()
    assert keys(following.members()) == [10, 20]
    longer, _ = a_list([10, 40], length=2)
    longer.learn(10, [member(20), member(40)])
    longer.give_up(20)
    assert keys(longer.members()) == [10, 40]


def test_who_is_named_once_round_and_then_no_more_is_not_waited_for() -> None:
    """A predecessor names those that follow this peer too: one that is gone ends no list."""
    following, _ = a_list([100, 200, 60_000], length=2)
    following.learn(100, [member(200), member(60_000), member(0)])
    assert keys(following.members()) == [100, 200]
    me = RingMember(0, PeerId("me"))
    following.learn(60_000, [me, member(50), member(100), member(200)])
    assert keys(following.members()) == [100]
    following.learn(60_000, [me, member(100), member(200)])
    assert keys(following.members()) == [100, 200]
