"""Errors and gaps of Datta et al. 2003, each shown, and that what is done instead mends it.

=== ============================================================================================
row what the paper leaves wrong or open, and what is done
=== ============================================================================================
1   "contains at least one sink" (after Definition 3.3) is false of values as they come: layers
    begin with one member, and edges come up at sinks only
2   R2's numeric maximum starves processors: the value that comes after
3   `chooseid` would read the value that R2 has just assigned: the one before
4   a processor without neighbours would execute R1 for ever: it takes no turn
5   one lid for all layers (Module 2) makes them depend on each other: a lid per layer
6   a request that is forwarded bare is answered to the forwarder: it carries its origin
7   a value from `respond val` closes cycles at who has edges: only who has none takes one
8   lids change while a link is forming, and may be equal when it comes up: then the sink takes the
    next one, if that changes no edge, and no turn changes a lid
9   Module 4's trigger is "receives respond val": it is run whenever a processor becomes a sink
10  Module 4 may refuse a link for ever: the ends agree by how much they shift each other's values
11  who joins by a sink has one link, and hangs on it: it goes on until it has three
12  Note 3.2 says nothing of connectivity, which is lost: members look for others
13  Module 5 forwards for ever: ids, and a memory of them
14  under message passing, answers that cross close a cycle: who asks takes nobody meanwhile
15  nobody answers a query for a layer without members: who asked founds it
16  edges turn while a request walks, which may chase sinks for ever: it waits where it is
=== ============================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product
from random import Random

import pytest

from papers.shared_memory_dag import (
    Literally,
    Memory,
    Pair,
    memory_of,
    random_edges,
    random_memory,
)
from peersub.overlays.core.identity import PeerId
from peersub.overlays.dag.layer import Edge, Layer
from peersub.overlays.dag.orientation import newcomer_value, points_at, turned
from peersub.overlays.dag.settings import DagSettings

TRIANGLE = [(0, 1), (1, 2), (0, 2)]
GRAPHS = range(40)
TURNS = 600


def test_row_1_a_triangle_of_all_three_values_has_no_sink() -> None:
    memory = memory_of(TRIANGLE, vals=[0, 1, 2])
    assert memory.sinks() == []
    assert not memory.is_acyclic()
    assert [memory.points(q, p) for p, q in ((0, 1), (1, 2), (2, 0))] == [True] * 3


def test_row_1_of_all_ways_to_give_values_to_a_triangle_just_these_fail() -> None:
    """Both ways round, for every start; the other 21 ways have a sink."""
    without = [vals for vals in product(range(3), repeat=3) if not acyclic_triangle(vals)]
    assert sorted(without) == sorted(
        vals for vals in product(range(3), repeat=3) if len({*vals}) == 3
    )


def acyclic_triangle(vals: tuple[int, ...]) -> bool:
    return memory_of(TRIANGLE, vals=vals).is_acyclic()


def fairness(literally: Literally) -> Iterator[tuple[int, int]]:
    """Fewest and most turns of a processor, on random graphs of twelve."""
    for seed in GRAPHS:
        memory = random_memory(seed, 12, literally)
        memory.run(TURNS, Random(f"fairness/{seed}"))
        assert memory.is_acyclic()
        yield min(memory.turns.values()), max(memory.turns.values())


def test_row_2_the_numeric_maximum_starves_processors() -> None:
    """Lemma 3.2 fails of R2 as it is written: 2 and 0 among the neighbours make 2, and no edge to
    a neighbour of value 0 turns. Nearly all turns fall to a few."""
    spread = list(fairness(Literally.MAXIMUM))
    assert all(fewest < 10 for fewest, _ in spread if fewest != TURNS // 12)
    starved = [most for fewest, most in spread if fewest < 10]
    assert len(starved) > len(GRAPHS) * 0.9
    assert max(starved) > 0.95 * TURNS


def test_row_2_the_value_that_comes_after_shares_turns_equally() -> None:
    spread = list(fairness(Literally.NOTHING))
    assert min(fewest for fewest, _ in spread) >= TURNS // 12 - 6
    assert max(most for _, most in spread) <= TURNS // 12 + 6


def test_row_2_in_small() -> None:
    """Value 2 with neighbours of 2 and 0: numerically 2 is the most, but 0 comes after 2."""
    literal = memory_of(
        [(0, 1), (0, 2)], lids=[1, 2, 3], vals=[2, 2, 0], literally=Literally.MAXIMUM
    )
    literal.reorient(0)
    assert literal.val[0] == 2
    assert literal.points(2, 0), "the edge has not turned"
    assert turned(2, 1, [(2, 2), (0, 3)]) == (0, 4)


def test_row_3_the_value_after_the_assignment_leaves_edges_as_they_are() -> None:
    """After it nobody is ahead, so the lid is the first that is free, and may be too small."""
    literal = memory_of(
        [(0, 1), (0, 2)], lids=[1, 2, 3], vals=[0, 0, 1], literally=Literally.VALUE_AFTER
    )
    literal.reorient(0)
    assert (literal.val[0], literal.lid[0]) == (1, 0)
    assert literal.points(2, 0), "the edge has not turned"
    meant = memory_of([(0, 1), (0, 2)], lids=[1, 2, 3], vals=[0, 0, 1])
    meant.reorient(0)
    assert (meant.val[0], meant.lid[0]) == (1, 4)
    assert meant.points(0, 2)


def test_row_4_a_lone_processor_would_be_busy_for_ever() -> None:
    literal = Memory(Literally.LONE_TURNS)
    literal.add(0, lid=0)
    seen = []
    for _ in range(6):
        assert literal.sink(0), "for all of no neighbours"
        literal.reorient(0)
        seen.append(literal.val[0])
    assert seen == [1, 2, 0, 1, 2, 0]
    assert turned(0, 0, []) == (0, 0)


def test_row_5_one_lid_for_all_layers_lets_a_turn_change_another_layer() -> None:
    """Module 2 has a value per layer, and says "identifiers". R2 in one layer gives a processor
    another lid, with which its edge in the other layer points the other way."""
    one = memory_of([(0, 1)], lids=[1, 2], vals=[0, 1])
    two = memory_of([(0, 2)], lids=[1, 9, 2], vals=[0, 0, 0])
    assert two.points(2, 0)
    one.turn(0)
    assert one.lid[0] == 3
    two.lid[0] = one.lid[0]
    assert two.points(0, 2), "and 0 took no turn there"


def test_row_5_with_one_lid_for_all_layers_edges_turn_by_themselves_and_lids_meet() -> None:
    """On random pairs of layers: turns of one turn edges of the other, neighbours come to have
    equal lids, and in the end a layer has no sink."""
    touched = stuck = 0
    for seed in range(20):
        draw = Random(f"shared lids/{seed}")
        layers = [memory_of(random_edges(draw, 8, 6)) for _ in range(2)]
        layers[1].lid = layers[0].lid
        for _ in range(200):
            one, other = draw.sample(layers, 2)
            before = [other.points(p, q) for p, q in other.edges()]
            if one.sinks():
                one.turn(draw.choice(one.sinks()))
            touched += before != [other.points(p, q) for p, q in other.edges()]
        stuck += any(not layer.sinks() for layer in layers)
    assert touched > 10
    assert stuck > 15


def test_row_6_a_bare_request_makes_the_sink_answer_the_forwarder() -> None:
    """1 forwards for 2, and takes the value that was meant for it: 2 gets nothing."""
    literal = memory_of([(0, 1)], literally=Literally.BARE_REQUEST)
    literal.add(2, lid=2)
    assert literal.join(2, contact=1).answered == 1
    assert literal.around[2] == []
    meant = memory_of([(0, 1)])
    meant.add(2, lid=2)
    assert meant.join(2, contact=1).answered == 2
    assert meant.around[2] == [0]


def test_row_7_a_value_given_to_who_has_edges_closes_a_cycle() -> None:
    """A triangle of 0, 0, 1 is acyclic; one of the zeros asks elsewhere and is given a 2."""
    memory = memory_of(TRIANGLE, vals=[0, 0, 1])
    assert memory.is_acyclic()
    memory.add(3, lid=9, val=1)
    memory.add(4, lid=10, val=1)
    memory.link(3, 4)
    walk = memory.request(0, contact=3)
    assert memory.walk_on(walk), "3 is a sink, and gives 0 the value 2, as 0's lid is smaller"
    assert memory.val[0] == 2
    assert not memory.is_acyclic()
    assert not any(i in memory.sinks() for i in (0, 1, 2)), "and nobody there has a turn any more"


def goes_on_while_others_join(literally: Literally, seed: int) -> bool:
    """Newcomers whose lids differ from those around their connection points, as section 3.2 asks;
    whether there was a sink to the end."""
    draw = Random(f"equal lids/{seed}")
    memory = memory_of([(0, 1), (1, 2), (2, 3)], literally=literally)
    for name in range(4, 20):
        contact = draw.randrange(name)
        near = [memory.lid[other] for other in (contact, *memory.around[contact])]
        memory.add(name, lid=next(lid for lid in range(99) if lid not in near))
        walk = memory.request(name, contact)
        while memory.sinks() and not memory.walk_on(walk):
            memory.turn(draw.choice(memory.sinks()))
        for _ in range(40):
            if not memory.sinks():
                return False
            memory.turn(draw.choice(memory.sinks()))
    return True


def test_row_8_with_equal_lids_an_edge_points_at_nobody() -> None:
    """Different when the link was asked for; R2 has moved one since. In the end all wait."""
    assert memory_of([(0, 1)], lids=[5, 5]).sinks() == []
    lively = [goes_on_while_others_join(Literally.EQUAL_LIDS, seed) for seed in range(20)]
    assert sum(lively) < 10
    assert all(goes_on_while_others_join(Literally.NOTHING, seed) for seed in range(20))


def test_row_8_a_sink_takes_the_next_lid_to_have_an_edge_with_who_has_the_same() -> None:
    """All its edges point at it anyway, and still do."""
    memory = memory_of([(0, 1), (0, 2)], lids=[4, 6, 3], vals=[0, 0, 1])
    assert memory.sinks() == [0]
    layer = Layer("", DagSettings())
    layer.lid = memory.lid[0]
    for other in memory.around[0]:
        layer.edges[PeerId(str(other))] = Edge(memory.val[other], memory.lid[other], True, 0)
    assert layer.lid_beside(4) == 5
    memory.lid[0] = 5
    assert memory.sinks() == [0]


def test_row_9_when_a_processor_becomes_a_sink_it_settles_what_is_forming() -> None:
    """The condition of Module 4 is right, by Definition 3.2: it is that p points at i. What starts
    it cannot be `respond val`, which only reaches newcomers: 0 here never gets one."""
    memory = memory_of([(0, 1)])
    memory.add(2, lid=2)
    memory.join(2, contact=1)
    assert memory.forming[1] == [2]
    memory.turn(0)
    assert memory.forming[1] == [2], "1 is asked, and is no sink before 0's turn is over"
    assert 1 in memory.sinks()
    memory.turn(1)
    assert memory.forming[1] == []


def refusals(vals: list[int], lids: list[int]) -> list[bool]:
    """Two pairs in step: whether 0 refuses 2 in each of its turns, and if not, closes the link."""
    memory = memory_of([(0, 1), (2, 3)], lids, vals)
    outcomes = []
    for _ in range(30):
        if 0 in memory.sinks():
            outcomes.append(not memory.points(2, 0))
        memory.round()
    return outcomes


def test_row_10_members_that_keep_in_step_may_refuse_each_other_for_ever() -> None:
    """Whenever 0 is a sink, 2 is one value behind: `link down`, again and again. With 2's values
    shifted as 0 gives them to newcomers their edge points at 0 each time that 0 is a sink."""
    lids, vals = [0, 1, 2, 3], [1, 1, 0, 0]
    assert refusals(vals, lids) == [True] * 15
    shift = (newcomer_value(vals[0], lids[0], lids[2]) - vals[2]) % 3
    memory = memory_of([(0, 1), (2, 3)], lids, vals)
    for _ in range(30):
        val, theirs = memory.val[0], (memory.val[2] + shift) % 3
        assert points_at(val, memory.lid[0], theirs, memory.lid[2]) or 0 not in memory.sinks()
        memory.round()


def articulation_points(memory: Memory) -> list[int]:
    found = []
    for name in memory.val:
        left = {i: [j for j in around if j != name] for i, around in memory.around.items()}
        del left[name]
        whole = Memory(around=left)
        if len(whole.components()) > 1:
            found.append(name)
    return found


def test_row_11_who_joins_by_a_sink_hangs_on_it() -> None:
    """The path is the sink alone, so there is nobody else to ask for a link."""
    memory = memory_of(TRIANGLE)
    assert articulation_points(memory) == []
    memory.add(3, lid=3)
    assert memory.join(3, contact=0).path == [0]
    memory.run(50, Random(0))
    assert articulation_points(memory) == [0]


def test_row_12_who_leaves_may_take_the_connection_with_it() -> None:
    """Acyclic, as Note 3.2 says, and in two parts, between which no message goes any more."""
    memory = memory_of([(0, 1), (1, 2), (2, 3), (3, 4)])
    memory.leave(2)
    assert memory.is_acyclic()
    assert memory.components() == [[0, 1], [3, 4]]
    memory.publish(0, "m")
    for _ in range(20):
        memory.round()
    assert [bool(memory.delivered[i]) for i in (0, 1, 3, 4)] == [True, True, False, False]


def copies_of_one_message(literally: Literally, rounds: int) -> int:
    memory = memory_of(random_edges(Random(4), 10, 8), literally=literally)
    memory.publish(3, "m")
    for _ in range(rounds):
        memory.round()
    return memory.sent


def test_row_13_without_a_memory_of_ids_a_message_never_ends() -> None:
    """Each turn sends all that came in, also to where it came from: it multiplies. With a memory
    each edge carries it twice, and then it is over."""
    edges = len(random_edges(Random(4), 10, 8))
    assert copies_of_one_message(Literally.NOTHING, 100) == 2 * edges
    assert copies_of_one_message(Literally.NOTHING, 200) == 2 * edges
    growth = [copies_of_one_message(Literally.REPEATS, rounds) for rounds in (3, 6, 9, 12)]
    assert all(later > 2 * earlier for earlier, later in pairwise(growth))


def linked_by_crossing_answers(*, waits: bool) -> Memory:
    """Three members without a link in common, of values 0, 1 and 2, each a sink: each has asked the
    next, and hears the one before it ask before it hears an answer."""
    memory = memory_of([(0, 3), (1, 4), (2, 5)], vals=[0, 1, 2, 1, 2, 0])
    assert set(memory.sinks()) == {0, 1, 2}
    asked: list[Pair] = [(1, 0), (2, 1), (0, 2)]
    assert all(memory.points(p, i) for p, i in asked), "the values allow each of them"
    waiting = {p for p, _ in asked}
    for p, i in asked:
        if not waits or i not in waiting:
            memory.link(i, p)
        waiting.discard(p)
    return memory


def test_row_14_who_takes_others_while_it_waits_for_an_answer_may_close_a_cycle() -> None:
    """The model's processors look at each other at the moment of linking. With messages a link that
    was asked for is an edge that points away, so whoever has asked is no sink."""
    assert not linked_by_crossing_answers(waits=False).is_acyclic()
    mended = linked_by_crossing_answers(waits=True)
    assert mended.is_acyclic()
    assert len(mended.edges()) > 3, "not all of them wait for ever"


def test_row_15_a_query_for_a_layer_without_members_is_answered_by_nobody() -> None:
    """It reaches everybody and ends, and who asked cannot tell that from an answer on its way:
    the protocol's query comes back when all have heard it."""
    memory = memory_of([(0, 1), (1, 2), (2, 3)])
    memory.publish(0, "query: trade")
    for _ in range(30):
        memory.round()
    assert all(memory.delivered.values())
    assert not any(memory.input.values())


@pytest.mark.parametrize("literally", [Literally.NOTHING, Literally.CHASES])
def test_row_16_a_request_may_chase_sinks_for_ever(literally: Literally) -> None:
    """Of two processors one is always the sink, and has had its turn when the request arrives."""
    memory = memory_of([(0, 1)], literally=literally)
    memory.add(2, lid=2)
    walk = memory.request(2, contact=1)
    for _ in range(200):
        if memory.walk_on(walk):
            break
        memory.round()
    assert (walk.answered is None) == (literally is Literally.CHASES)


@pytest.mark.parametrize("count", [2, 3, 6, 20])
def test_lids_that_are_free_first_are_few(count: int) -> None:
    """The first free lid for each newcomer: no more lids than a greedy colouring has colours."""
    memory = random_memory(1, count)
    for name in memory.val:
        taken = [memory.lid[j] for j in memory.around[name] if j < name]
        memory.lid[name] = next(lid for lid in range(count) if lid not in taken)
    assert max(memory.lid.values()) <= max(len(near) for near in memory.around.values())
    memory.run(200, Random(2))
    assert memory.is_acyclic()
