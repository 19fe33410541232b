"""The claims of Datta, Gradinariu, Raynal, Simon: Anonymous Publish/Subscribe in P2P Networks
(2003), sections 2 to 4.2, each as a test.

The number in a test's name is the section. The claims are about processors that read each other's
memory, so they are shown here in a model of just that (`shared_memory_dag`), and the rules that the
protocol uses are held to it. `test_datta_2003_protocol` shows the same of the protocol, whose nodes
have messages only. Errors and gaps of the paper are in `test_datta_2003_errata`.
"""

from __future__ import annotations

from itertools import combinations, product
from random import Random

import pytest

from papers.shared_memory_dag import Memory, Pair, memory_of, random_edges, random_memory
from peersub.overlays.dag.orientation import (
    first_free_lid,
    is_sink,
    newcomer_value,
    points_at,
    precedes,
    turned,
)

SEEDS = range(12)
TURNS = 600

for_some_seeds = pytest.mark.parametrize("seed", SEEDS)


def around(memory: Memory, i: int) -> list[Pair]:
    """What the protocol's rules are given: the neighbours' values and lids."""
    return [(memory.val[j], memory.lid[j]) for j in memory.around[i]]


def state(memory: Memory) -> tuple[dict[int, int], dict[int, int], list[Pair]]:
    return dict(memory.val), dict(memory.lid), memory.edges()


def drawn(seed: int, most: int = 14) -> tuple[Random, Memory]:
    draw = Random(f"datta/{seed}")
    return draw, random_memory(seed, draw.randint(2, most))


# --- 2: layers ---------------------------------------------------------------------------------

SOLID = [(2, 5), (3, 5), (4, 5)]
DOTTED = [(1, 5)]


def test_2_a_processor_has_other_neighbours_in_other_layers() -> None:
    """Figure 2: processor 5 has the neighbours 2, 3 and 4 in layer 1, and 1 in layer 2."""
    one, two = memory_of(SOLID), memory_of(DOTTED)
    assert sorted(one.around[5]) == [2, 3, 4]
    assert sorted(two.around[5]) == [1]


def test_2_a_link_is_forming_before_it_is_up_or_down() -> None:
    """Up: both know of each other. Forming: one has begun the connection protocol. Else down."""
    memory = memory_of([(0, 1)])
    memory.add(2, lid=2)
    walk = memory.join(2, contact=1)
    assert walk.path == [1, 0], "1 points at 0, which is the sink"
    assert memory.edges() == [(0, 1), (0, 2)], "up with the sink"
    assert memory.forming[1] == [2], "forming with the others on the way"
    memory.turn(0)
    memory.turn(1)
    assert memory.forming[1] == []
    assert ((1, 2) in memory.edges()) != ((1, 2) in memory.refused), "up or down in the end"


def interleaved(seed: int) -> tuple[list[Memory], list[Memory]]:
    """Two layers over the same processors, run in turn as it comes, and each by itself."""
    draw = Random(f"layers/{seed}")
    together = [random_memory(2 * seed, 9), random_memory(2 * seed + 1, 9)]
    alone = [random_memory(2 * seed, 9), random_memory(2 * seed + 1, 9)]
    taken: list[list[int]] = [[], []]
    for _ in range(TURNS):
        layer = draw.randrange(2)
        before = state(together[1 - layer])
        taken[layer].append(draw.choice(together[layer].sinks()))
        together[layer].turn(taken[layer][-1])
        assert state(together[1 - layer]) == before
    for memory, turns in zip(alone, taken, strict=True):
        for i in turns:
            memory.turn(i)
    return together, alone


@for_some_seeds
def test_2_definition_2_1_and_theorem_2_1_layers_are_as_if_each_were_alone(seed: int) -> None:
    """No action at one layer involves the other, so each layer's specification holds of it."""
    together, alone = interleaved(seed)
    assert [state(memory) for memory in together] == [state(memory) for memory in alone]


@for_some_seeds
def test_2_corollary_2_1_what_holds_of_one_layer_holds_of_all(seed: int) -> None:
    """The specification is that of section 3: acyclic, with a sink, and fair."""
    together, _ = interleaved(seed)
    for memory in together:
        assert memory.is_acyclic()
        assert memory.sinks()
        assert_fair(memory)


# --- 3: orientation ----------------------------------------------------------------------------


def test_3_definition_3_1_the_relation_goes_round() -> None:
    related = [(x, y) for x, y in product(range(3), repeat=2) if precedes(x, y)]
    assert related == [(0, 1), (1, 2), (2, 0)]


def test_3_definition_3_2_every_edge_has_one_direction() -> None:
    """The rule of the protocol and that of the model, for all values and some lids."""
    for val_p, val_q, lid_p, lid_q in product(range(3), range(3), range(3), range(3)):
        memory = memory_of([(0, 1)], [lid_p, lid_q], [val_p, val_q])
        assert points_at(val_p, lid_p, val_q, lid_q) == memory.points(1, 0)
        if lid_p != lid_q:
            assert memory.points(0, 1) != memory.points(1, 0)


@for_some_seeds
def test_3_definition_3_3_a_sink_is_pointed_at_by_all_its_neighbours(seed: int) -> None:
    draw, memory = drawn(seed)
    for _ in range(TURNS):
        for i in memory.val:
            expected = all(memory.points(j, i) for j in memory.around[i])
            assert is_sink(memory.val[i], memory.lid[i], around(memory, i)) == expected
        memory.turn(draw.choice(memory.sinks()))


@for_some_seeds
def test_3_two_neighbours_are_never_sinks_together(seed: int) -> None:
    """What makes sinks privileged: between two neighbours only one of them is."""
    draw, memory = drawn(seed)

    def look() -> None:
        sinks = memory.sinks()
        assert not any(pair in memory.edges() for pair in combinations(sorted(sinks), 2))

    memory.run(TURNS, draw, look)


@for_some_seeds
def test_3_from_values_of_0_there_is_always_a_sink(seed: int) -> None:
    """What is true of the sentence after Definition 3.3; see the errata for what is not."""
    draw, memory = drawn(seed)
    memory.run(TURNS, draw, lambda: [memory.sinks()[0], assert_has_sinks(memory)])


def assert_has_sinks(memory: Memory) -> None:
    sinks = set(memory.sinks())
    for component in memory.components():
        assert len(component) == 1 or sinks & set(component)


# --- 3.1: the edges turn -----------------------------------------------------------------------


@pytest.mark.parametrize("value", range(3))
def test_3_1_module_1_r1_a_sink_among_equals_takes_the_next_value(value: int) -> None:
    memory = memory_of([(0, 1), (0, 2)], vals=[value] * 3)
    memory.reorient(0)
    assert (memory.val[0], memory.lid[0]) == ((value + 1) % 3, 0)
    assert memory.points(0, 1)
    assert memory.points(0, 2)
    assert turned(value, 0, [(value, 1), (value, 2)]) == ((value + 1) % 3, 0)


@pytest.mark.parametrize("value", range(3))
def test_3_1_module_1_r2_a_sink_with_some_ahead_passes_them_by_its_lid(value: int) -> None:
    ahead = (value + 1) % 3
    memory = memory_of([(0, 1), (0, 2), (0, 3)], lids=[1, 5, 6, 7], vals=[value, ahead, value, 0])
    memory.val[3] = ahead
    memory.lid[3] = 0
    memory.reorient(0)
    assert (memory.val[0], memory.lid[0]) == (ahead, 7), "above 5 and 0, and 6 is taken"
    assert [memory.points(0, j) for j in (1, 2, 3)] == [True] * 3
    assert turned(value, 1, [(ahead, 5), (value, 6), (ahead, 0)]) == (ahead, 7)


@for_some_seeds
def test_3_1_after_r1_or_r2_all_edges_of_the_sink_have_turned_and_no_others(seed: int) -> None:
    draw, memory = drawn(seed)
    for _ in range(TURNS):
        i = draw.choice(memory.sinks())
        directed = [(p, q) for p in memory.val for q in memory.around[p] if memory.points(p, q)]
        expected = turned(memory.val[i], memory.lid[i], around(memory, i))
        memory.turn(i)
        assert (memory.val[i], memory.lid[i]) == expected
        for p, q in directed:
            assert memory.points(q, p) if q == i else memory.points(p, q)


@for_some_seeds
def test_3_1_lids_stay_unique_in_every_neighbourhood(seed: int) -> None:
    draw, memory = drawn(seed)

    def look() -> None:
        assert all(memory.lid[p] != memory.lid[q] for p, q in memory.edges())

    memory.run(TURNS, draw, look)
    assert max(memory.lid.values()) <= 3 * len(memory.lid), "and they do not drift"


@for_some_seeds
def test_3_1_lemma_3_1_a_turn_leaves_the_graph_acyclic(seed: int) -> None:
    draw, memory = drawn(seed)
    memory.run(TURNS, draw, lambda: assert_acyclic(memory))


def assert_acyclic(memory: Memory) -> None:
    assert memory.is_acyclic()


def assert_fair(memory: Memory) -> None:
    """The ends of an edge alternate, so the turns of any two differ by at most their distance."""
    for start in memory.val:
        for other, distance in memory.distances(start).items():
            assert abs(memory.turns[start] - memory.turns[other]) <= distance


@for_some_seeds
def test_3_1_lemma_3_2_nobody_starves_and_everybody_goes_on(seed: int) -> None:
    """In one number: turns of neighbours differ by at most one, of others by their distance."""
    draw, memory = drawn(seed)
    memory.run(TURNS, draw, lambda: assert_fair(memory))
    assert min(memory.turns.values()) >= TURNS // len(memory.val) - len(memory.val)


@for_some_seeds
def test_3_1_lemma_3_2_also_while_processors_come_and_go(seed: int) -> None:
    """Whoever stays takes turns again and again; on each edge the ends alternate since it is up."""
    draw, memory = drawn(seed)
    following = len(memory.val)
    last: dict[Pair, int] = {}
    for _ in range(TURNS):
        if draw.random() < 0.05:
            contact = draw.choice(list(memory.val))
            memory.add(following, lid=100 + following)
            memory.join(following, contact, lambda: take_one_turn(memory, draw, last))
            following += 1
        elif draw.random() < 0.02 and len(memory.val) > 4:
            memory.leave(draw.choice(list(memory.val)))
        elif memory.sinks():
            take_one_turn(memory, draw, last)
        assert memory.is_acyclic()
        assert_has_sinks(memory)
    before = dict(memory.turns)
    lively = [name for name in memory.val if memory.around[name]]
    for _ in range(2 * len(lively)):
        memory.round()
    assert all(memory.turns[name] > before[name] for name in lively)


def take_one_turn(memory: Memory, draw: Random, last: dict[Pair, int]) -> None:
    if memory.sinks():
        i = draw.choice(memory.sinks())
        memory.turn(i)
        for j in memory.around[i]:
            edge = (min(i, j), max(i, j))
            assert last.get(edge) != i, "one end twice in a row"
            last[edge] = i


def test_3_1_note_3_1_each_part_of_a_split_network_goes_on_by_itself() -> None:
    """The neighbour lists lose the edges between the parts; nothing else is to be done."""
    draw = Random("split")
    memory = random_memory(3, 12)
    memory.run(200, draw)
    left = set(range(6))
    for p, q in memory.edges():
        if (p in left) != (q in left):
            memory.around[p].remove(q)
            memory.around[q].remove(p)
    before = dict(memory.turns)
    for _ in range(60):
        memory.round()
        assert memory.is_acyclic()
        assert_has_sinks(memory)
    assert all(memory.turns[i] - before[i] > 10 for i in memory.val if memory.around[i])


def test_3_1_module_2_values_begin_at_0_in_every_layer() -> None:
    memory = Memory()
    memory.add(7, lid=3)
    assert memory.val == {7: 0}
    assert first_free_lid([]) == 0


# --- 3.2: joining ------------------------------------------------------------------------------


def test_3_2_module_3_a_sink_gives_a_value_for_which_the_newcomer_points_at_it() -> None:
    """All values and both orders of the lids, in the model and in the protocol's rule."""
    for value, lid, other in [(v, *lids) for v in range(3) for lids in ((3, 5), (5, 3))]:
        memory = memory_of([(0, 1)], [lid, 9], [value, (value + 1) % 3])
        memory.add(2, lid=other)
        assert memory.join(2, contact=0).path == [0]
        assert memory.points(2, 0)
        assert memory.val[2] == newcomer_value(value, lid, other)
        assert memory.sinks() == [0], "who takes it is still a sink"


@for_some_seeds
def test_3_2_module_3_the_request_walks_along_edges_to_a_sink(seed: int) -> None:
    draw, memory = drawn(seed)
    memory.run(draw.randrange(100), draw)
    contact = draw.choice(list(memory.val))
    memory.add(99, lid=99)
    edges = memory.edges()
    walk = memory.join(99, contact)
    assert walk.path[0] == contact
    steps = list(zip(walk.path, walk.path[1:], strict=False))
    assert all((min(step), max(step)) in edges for step in steps)
    assert len(set(walk.path)) == len(walk.path), "in an acyclic graph it comes nowhere twice"
    assert memory.around[99] == [walk.path[-1]]
    assert all(memory.forming[i] == [99] for i in walk.path[:-1]), "asked for further links"


@pytest.mark.parametrize("value", range(3))
def test_3_2_module_4_a_sink_takes_who_points_at_it_and_no_other(value: int) -> None:
    """All values of who asks: link up if val_i ≺ val_p, or equal values and the smaller lid."""
    for asking, lid in product(range(3), (1, 9)):
        memory = memory_of([(0, 1)], [5, 6], [value, value])
        memory.add(2, lid=lid, val=asking)
        memory.forming[0].append(2)
        memory.create_connections(0)
        takes = precedes(value, asking) or (value == asking and lid > 5)
        assert ((0, 2) in memory.edges()) == takes
        assert ((0, 2) in memory.refused) != takes
        if takes:
            assert memory.points(2, 0)
            assert memory.sinks() == [0]


@for_some_seeds
def test_3_2_lemma_3_3_a_link_that_comes_up_closes_no_cycle(seed: int) -> None:
    """Processors join one after the other while turns go on; looked at after every step."""
    draw = Random(f"joining/{seed}")
    memory = memory_of([(0, 1)])
    for name in range(2, 24):
        memory.add(name, lid=name)
        contact = draw.randrange(name)

        def meanwhile() -> None:
            memory.turn(draw.choice(memory.sinks()))
            assert memory.is_acyclic()

        memory.join(name, contact, meanwhile)
        assert memory.is_acyclic()
        for _ in range(draw.randrange(6)):
            meanwhile()
    memory.run(200, draw, lambda: assert_acyclic(memory))
    assert len(memory.components()) == 1
    assert len(memory.edges()) > 23, "some of the links with others on the way came up"


@for_some_seeds
def test_3_2_note_3_2_who_leaves_closes_no_cycle(seed: int) -> None:
    draw, memory = drawn(seed)
    while len(memory.val) > 1:
        if memory.sinks():
            memory.run(5, draw)
        memory.leave(draw.choice(list(memory.val)))
        assert memory.is_acyclic()
        assert_has_sinks(memory)


# --- 4.1 and 4.2.1: publishing -----------------------------------------------------------------


def published(seed: int) -> tuple[Memory, dict[str, int]]:
    """A layer in which some processors published, run until every buffer is empty."""
    draw, memory = drawn(seed)
    publishers: dict[str, int] = {}
    for number in range(20):
        publishers[f"m{number}"] = draw.choice(list(memory.val))
        memory.publish(publishers[f"m{number}"], f"m{number}")
        memory.run(draw.randrange(20), draw)
    while any(memory.input.values()) or any(memory.local.values()):
        memory.round()
    return memory, publishers


@for_some_seeds
def test_4_1_event_publication_liveness_everyone_gets_everything(seed: int) -> None:
    memory, publishers = published(seed)
    for messages in memory.delivered.values():
        assert sorted(messages) == sorted(publishers)


@for_some_seeds
def test_4_1_validity_nothing_is_delivered_that_nobody_published(seed: int) -> None:
    memory, publishers = published(seed)
    for messages in memory.delivered.values():
        assert set(messages) <= set(publishers)
        assert len(set(messages)) == len(messages), "and nothing twice"


@for_some_seeds
def test_4_1_publisher_liveness_everyone_can_publish_again_and_again(seed: int) -> None:
    """What is published waits for a turn of its publisher: at most one round of everybody."""
    draw, memory = drawn(seed)
    for number in range(10):
        for i in memory.val:
            memory.publish(i, f"{i}/{number}")
        before = dict(memory.turns)
        while any(memory.local.values()):
            memory.round()
        assert all(memory.turns[i] - before[i] <= len(memory.val) for i in memory.val)
        memory.run(draw.randrange(10), draw)


@for_some_seeds
def test_4_2_1_module_5_only_sinks_send_and_all_that_they_have(seed: int) -> None:
    """Both buffers, to all neighbours, before the edges turn; nobody else sends anything."""
    draw, memory = drawn(seed)
    for number in range(100):
        memory.publish(draw.choice(list(memory.val)), f"m{number}")
        i = draw.choice(memory.sinks())
        had = {*memory.input[i], *memory.local[i]} - set(memory.forwarded[i])
        sent, inputs = memory.sent, {j: len(memory.input[j]) for j in memory.val}
        assert set(memory.turn(i)) == had
        assert (memory.input[i], memory.local[i]) == ([], [])
        assert memory.sent - sent == len(had) * len(memory.around[i])
        for j in memory.val:
            got = len(memory.input[j]) - (inputs[j] if j != i else 0)
            assert got == (len(had) if j in memory.around[i] else 0)


@for_some_seeds
def test_4_2_1_lemma_4_1_a_message_reaches_all_in_finite_time(seed: int) -> None:
    """Within as many rounds as twice the way: a neighbour's turn is never far."""
    draw, memory = drawn(seed)
    memory.run(draw.randrange(100), draw)
    publisher = draw.choice(list(memory.val))
    memory.publish(publisher, "m")
    limit = len(memory.val) * (1 + max(memory.distances(publisher).values()))
    rounds = 0
    while any("m" not in messages for messages in memory.delivered.values()):
        memory.round()
        rounds += 1
        assert rounds <= limit
    while any(memory.input.values()):
        memory.round()
    assert memory.sent == 2 * len(memory.edges()), "each edge carries it both ways"


# --- 4.2.2: subscribing ------------------------------------------------------------------------


@for_some_seeds
def test_4_2_2_a_new_topic_is_announced_to_all_over_the_layer_of_all(seed: int) -> None:
    memory, _ = published(seed)
    memory.publish(0, "new layer: trade")
    while any(memory.input.values()) or any(memory.local.values()):
        memory.round()
    assert all("new layer: trade" in messages for messages in memory.delivered.values())


@for_some_seeds
def test_4_2_2_a_query_finds_a_processor_of_the_layer_which_stops_it(seed: int) -> None:
    """Whoever is connected at the layer does not pass the query on; someone always gets it."""
    draw = Random(f"query/{seed}")
    memory = memory_of(random_edges(draw, 12, 6), draw.sample(range(40), 12))
    connected = draw.sample(range(1, 12), draw.randint(1, 4))
    memory.stops = lambda name, _message: name in connected
    memory.publish(0, "query: trade")
    while any(memory.input.values()) or any(memory.local.values()):
        memory.round()
        assert not any("query: trade" in memory.forwarded[name] for name in connected)
    answers = [name for name in connected if memory.delivered[name]]
    assert answers, "0 can connect by any of these"


def test_4_2_2_connecting_at_a_layer_is_joining_it_by_the_one_that_answered() -> None:
    """Modules 3 and 4 with the answer as connection point; the layer of all is left alone."""
    everybody = memory_of([(0, 1), (1, 2), (2, 3)])
    topic = Memory()
    for name in (2, 3):
        topic.add(name, lid=name)
    topic.link(2, 3)
    before = state(everybody)
    topic.add(0, lid=0)
    topic.join(0, contact=3)
    assert sorted(topic.edges()) == [(0, 2), (2, 3)]
    assert topic.forming[3] == [0]
    assert state(everybody) == before
