"""Errors and gaps of Chand and Felber 2005, and that they are mended, row by row.

==== ===========================================================================================
row  what the paper leaves wrong or open, and what is done
==== ===========================================================================================
C1   the virtual root's links must not apply Algorithm 1: they forward unconditionally
C2   publishers that do not match their own message: it climbs to the first that does, or the top
S1   lists of siblings, UP misses the equivalents of the parent: it serves them as well
S2   a list is cut at a child that the message climbed over: it passes the message on all the same
S3   both ways round a ring give duplicates: lists have ends, and the top level is a tree
S4   a child that has not begun its list: it does not say that it has, and the parent begins
O1   several subscriptions of a peer: a member for each distinct one, each gets a message once
O2   where publications in the similarity graph start: at members that match, else one is sought
O3   is the top level a false positive: yes, if it does not match
O4   false positives of a network that grows: those of the final network
O5   a random child needs the list of children: the parent has it
O6   the cost of knowing ancestors: a message for each peer in reach below one that moves
O7   XPath containment is hard: a proof that may fail costs accuracy, never messages
M1   the formula of f_c is about the interests that contain the parent, not the child
M2   "periodically", "a given percentage": a share of the peers each period, or of the joins
M3   γ "times per message": per copy along its way
M4   f_s where no message of the sample matches: smoothed
M5   n = 1, r = 0 with containment gives the tree of section 3: it does not
M6   the deepest parent minimises false positives: the most selective one has fewer
M7   all ratios of the graph fall with its size: false negatives do not
M8   in case of equality those with fewest connections: by a draw, which no order of joins changes
==== ===========================================================================================

`TESTS` says where each row is tested; the rows that no other file tests are tested here.
"""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from lxml import etree

from papers.containment_network import ContainmentNetwork
from papers.interests import MESSAGES, Interest, algorithm_1, some_numbers
from papers.similarity_network import SimilarityNetwork
from papers.trees import interested_in, parent_of, tree_of
from peersub.bench.semantic.trees import broadcast_metrics, grow_tree
from peersub.bench.semantic.workload import SemanticWorkload, draw_workload
from peersub.filters.filter import Filter
from peersub.overlays.containment.building import Building, BuildSettings
from peersub.overlays.containment.messages import Ancestry
from peersub.overlays.containment.structure import (
    EdgeKind,
    Member,
    TreeShape,
    canonical_shape,
    contains,
    route,
)
from peersub.overlays.similarity.proximity import proximity_of_counts
from peersub.overlays.similarity.settings import PAPER
from peersub.workloads.xml import news_schema

HERE = "papers/test_chand_felber_2005_errata.py"
PAPER_TESTS = "papers/test_chand_felber_2005.py"
PROTOCOL = "papers/test_chand_felber_2005_protocol.py"
STRUCTURE = "overlays/containment/test_structure.py"
ROUTING = "overlays/containment/test_routing.py"
METRICS = "overlays/semantic/test_metrics.py"

TESTS = {
    "C1": (
        f"{HERE}::test_row_c1_own_interest_would_cut_the_virtual_root",
        f"{PAPER_TESTS}::test_2_algorithm_1_is_what_the_tree_does",
    ),
    "C2": (
        f"{HERE}::test_row_c2_a_message_climbs_from_a_publisher_that_does_not_want_it",
        f"{PROTOCOL}::test_2_messages_reach_those_of_algorithm_1_once",
        f"{STRUCTURE}::test_an_event_climbs_from_a_publisher_that_does_not_match",
    ),
    "S1": (
        f"{HERE}::test_row_s1_what_a_child_publishes_reaches_the_equivalents_of_its_parent",
        f"{ROUTING}::test_what_a_child_publishes_reaches_the_equals_of_its_parent",
    ),
    "S2": (
        f"{HERE}::test_row_s2_siblings_behind_one_that_was_climbed_over_are_reached",
        f"{ROUTING}::test_siblings_behind_one_that_was_climbed_over_get_the_event",
    ),
    "S3": (f"{HERE}::test_row_s3_the_top_level_is_no_ring",),
    "S4": (f"{HERE}::test_row_s4_lists_that_are_being_made_lose_and_double_nothing",),
    "O1": (f"{PROTOCOL}::test_3_a_peer_with_several_subscriptions_appears_several_times",),
    "O2": (
        f"{HERE}::test_row_o2_a_publication_finds_somebody_who_wants_it",
        f"{HERE}::test_row_o2_what_nobody_wants_ends",
    ),
    "O3": (
        f"{HERE}::test_rows_o3_and_o4_the_top_level_counts_in_the_final_network",
        f"{METRICS}::test_false_positives_are_over_all_members_and_false_negatives_over_the_matching",
    ),
    "O4": (
        f"{HERE}::test_rows_o3_and_o4_the_top_level_counts_in_the_final_network",
        "bench/test_semantic.py::test_the_measures_of_a_tree_are_those_of_following_every_document",
    ),
    "O5": (
        f"{PROTOCOL}::test_3_the_child_is_chosen_uniformly_at_random",
        f"{PROTOCOL}::test_3_the_children_of_a_node_form_a_double_linked_list",
    ),
    "O6": (
        f"{HERE}::test_row_o6_ancestors_cost_a_message_for_each_peer_in_reach",
        f"{PROTOCOL}::test_3_every_peer_knows_its_grandparent_and_one_more",
    ),
    "O7": (
        f"{HERE}::test_row_o7_a_containment_that_is_not_proven_loses_no_message",
        f"{STRUCTURE}::test_homomorphism_proves_less_than_distances",
        f"{PAPER_TESTS}::test_3_definition_1_holds_for_xpath_as_far_as_it_is_proven",
    ),
    "M1": (
        f"{PAPER_TESTS}::test_3_f_c_is_not_symmetric_and_favours_what_is_contained_in_many",
        f"{PAPER_TESTS}::test_3_the_parent_is_the_closest_by_f_c",
    ),
    "M2": (
        f"{PAPER_TESTS}::test_3_periodic_reorganises_a_given_percentage",
        f"{PROTOCOL}::test_3_figure_2_a_peer_is_reorganised_below_a_newcomer",
        "overlays/containment/test_building.py::test_sometimes_lies_between_never_and_always",
    ),
    "M3": (f"{PAPER_TESTS}::test_4_an_indulgent_message_passes_so_many_uninterested_peers",),
    "M4": (
        f"{HERE}::test_row_m4_interests_that_match_nothing_have_a_proximity",
        f"{PAPER_TESTS}::test_4_f_s_is_symmetric_and_from_0_to_1",
    ),
    "M5": (f"{PAPER_TESTS}::test_4_the_special_case_is_not_the_tree",),
    "M6": (f"{PAPER_TESTS}::test_3_deep_parents_mean_few_false_positives",),
    "M7": (f"{PAPER_TESTS}::test_5_larger_graphs_have_fewer_false_positives_alone",),
    "M8": (f"{PAPER_TESTS}::test_4_equally_close_peers_share_the_connections",),
}


def test_each_row_of_the_table_is_in_the_list() -> None:
    assert __doc__ is not None
    rows = [line.split()[0] for line in __doc__.splitlines() if line[:1] in ("C", "S", "O", "M")]
    assert rows == list(TESTS)


@pytest.mark.parametrize("row", TESTS)
def test_each_row_has_its_tests(row: str) -> None:
    tests = Path(__file__).parents[1]
    for place in TESTS[row]:
        path, name = place.split("::")
        tree = ast.parse((tests / path).read_text(encoding="utf-8"))
        names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        assert name in names, f"{path} has no {name} any more"


# --- the tree ------------------------------------------------------------------------------------


def test_row_c1_own_interest_would_cut_the_virtual_root() -> None:
    """A line of top-level peers: by Algorithm 1 the message ends at the first that is not
    interested. Over TOP edges it goes on, on the line itself and in the protocol."""
    interests = [Interest.any_of([number, number + 5]) for number in range(5)]
    interests.append(Interest.any_of([0, 9]))
    line = {peer: [other for other in (peer - 1, peer + 1) if 0 <= other < 6] for peer in range(6)}
    assert interested_in(0.0, interests) == {0, 5}
    assert algorithm_1(line, {0, 5}, 0).keys() == {0, 1}, "the other one misses it"
    shape = tree_of(interests, top_degree=1)
    assert max(map(len, shape.below)) == 1, "it is a line"
    network = ContainmentNetwork.of(interests, top_degree=1)
    for message in MESSAGES:
        interested = interested_in(message, interests)
        for publisher in interested:
            assert len(route(shape, publisher, interested)) == 6
    network.check(MESSAGES, network.nodes)


def test_row_c2_a_message_climbs_from_a_publisher_that_does_not_want_it() -> None:
    """Over those that do not want it either, which receive it; the first that does routes it."""
    chain = [Interest.between(0, high) for high in (11, 9, 7, 5, 3)]
    beside = [Interest.between(8, 9), Interest.between(10, 11), Interest.between(8, 11)]
    network = ContainmentNetwork.of([*chain, *beside])
    event = network.publish("p4", 8.5)
    network.simulation.run_for(2_000)
    # p3 and p2 are crossed; p1 and p0 want it, and so do p5 and p7; p6 is a child of p0.
    assert network.received[event] == Counter(["p0", "p1", "p2", "p3", "p5", "p6", "p7"])
    assert network.delivered[event] == Counter(["p0", "p1", "p5", "p7"])
    network.check(MESSAGES, network.nodes)
    network.unsubscribe("p4")
    network.settle()
    network.check(MESSAGES, ["p4"])


def crowded(**settings: int) -> ContainmentNetwork:
    """p0 and p1 want everything; ten children of p0, two of which want the same."""
    children = [Interest.any_of([number]) for number in (*range(9), 3)]
    everything = Interest("x >= 0 AND x <= 11", Interest.between(0, 11).wants)
    made = ContainmentNetwork.of(
        [Interest.between(0, 11), everything, *children], sibling_threshold=3, **settings
    )
    assert made.member("p0").siblings.has_list
    assert len(made.children("p0")) == 9
    return made


def test_row_s1_what_a_child_publishes_reaches_the_equivalents_of_its_parent() -> None:
    """And those of its own: UP serves the equivalence trees, from any member."""
    network = crowded()
    roots = {f"p{number}" for number in (0, *range(2, 11))}
    for number in range(9):
        publisher = f"p{number + 2}"
        event = network.publish(publisher, float(number))
        network.simulation.run_for(3_000)
        wanting = {"p0", "p1", publisher} | ({"p11"} if number == 3 else set())
        assert network.delivered[event] == Counter(wanting)
        assert network.received[event] == Counter((roots | wanting) - {publisher})
    event = network.publish("p11", 3.0)
    network.simulation.run_for(3_000)
    assert network.delivered[event] == Counter(["p0", "p1", "p5", "p11"])


def test_row_s2_siblings_behind_one_that_was_climbed_over_are_reached() -> None:
    """Each child publishes what each other one wants."""
    network = crowded()
    events = {}
    for publisher in range(9):
        for wanted in range(9):
            events[network.publish(f"p{publisher + 2}", float(wanted))] = wanted
    network.simulation.run_for(10_000)
    for event, wanted in events.items():
        assert network.delivered[event] == Counter(network.interested(float(wanted)))
        assert {f"p{each}" for each in range(11)} <= {
            *network.received[event],
            *(name for name in network.forwarded[event]),
        }


@pytest.mark.parametrize("degree", [1, 2, 4])
def test_row_s3_the_top_level_is_no_ring(degree: int) -> None:
    """Whatever its degree: as many edges as it takes to connect it, so that no message doubles."""
    interests = some_numbers(Random(3), 40)
    shape = tree_of(interests, top_degree=degree)
    top = [p for p, kind in enumerate(shape.kinds) if kind in (EdgeKind.TOP, EdgeKind.CROWN)]
    assert sum(shape.kinds[peer] is EdgeKind.TOP for peer in top) == len(top) - 1
    network = ContainmentNetwork.of(interests[:14], top_degree=degree, sibling_threshold=1)
    for name in network.nodes:
        if name in network.interested(1.0):
            event = network.publish(name, 1.0)
            network.simulation.run_for(3_000)
            assert max(network.received[event].values()) == 1


@pytest.mark.parametrize("seed", range(4))
def test_row_s4_lists_that_are_being_made_lose_and_double_nothing(seed: int) -> None:
    """Children come and go around the threshold while all publish: some have begun their lists,
    some know of none yet."""
    network = ContainmentNetwork.of(
        [Interest.between(0, 11), *(Interest.any_of([number]) for number in range(4))],
        seed,
        sibling_threshold=3,
    )
    staying = dict(network.interests)
    sent = {}
    for number in range(4, 10):
        newcomer = network.join(Interest.any_of([number, number + 1]), settles=False)
        for _ in range(25):
            publisher = network.random.choice(sorted(staying))
            message = network.random.choice(MESSAGES[:8])
            sent[network.publish(publisher, message)] = publisher, message
            network.simulation.run_for(network.random.randrange(25))
        if number % 2:
            network.leave(newcomer)
    network.settle()
    assert network.member("p0").siblings.has_list == (len(network.children("p0")) > 3)
    for event, (_, message) in sent.items():
        found = network.delivered.get(event, Counter())
        for name, interest in staying.items():
            assert found[name] == (message in interest.wants), f"{message} to {name}"


def test_row_o6_ancestors_cost_a_message_for_each_peer_in_reach() -> None:
    """A newcomer in the middle of a chain: the first below it moves and hears with its place who is
    above, the next two hear it in a message each, all others have the ancestors that they had."""
    chain = [Interest.between(0, high) for high in (11, 10, 9, 8, 6, 5, 4, 3, 2, 1)]
    network = ContainmentNetwork.of(chain, reorganise="always")
    below = [f"p{number}" for number in range(4, 10)]
    before = Counter({name: network.messages[name, Ancestry] for name in below})
    newcomer = network.join(Interest.between(0, 7))
    after = Counter({name: network.messages[name, Ancestry] for name in below})
    assert network.parents()["p4"] == newcomer
    assert after - before == Counter({"p5": 1, "p6": 1})


def test_row_o7_a_containment_that_is_not_proven_loses_no_message() -> None:
    """`/a/*/*` contains `/a//b/c`, which the proof does not see: both are top level, and get all
    that they want; they only hear more than they would."""
    filters = list(map(Filter.xpath, ("/a/*/*", "/a//b/c", "/a/b/c", "/a/b/c[d]")))
    assert not contains(filters[0], filters[1]), "else this tests nothing"
    assert contains(filters[0], filters[2])
    shape = canonical_shape([Member(f"n{k}", 1, each) for k, each in enumerate(filters)])
    assert [parent_of(shape, peer) for peer in (0, 1, 3)] == [None, None, 2]
    texts = ["<a><b/></a>", "<a><b><c/></b></a>", "<a><x><b><c/></b></x></a>", "<a><x><y/></x></a>"]
    wanted = set()
    for text in texts:
        tree = etree.fromstring(text).getroottree()
        wanting = frozenset(k for k, each in enumerate(filters) if tree.xpath(each.text))
        wanted |= wanting
        assert 1 not in wanting or 0 in wanting
        for publisher in range(len(filters)):
            assert wanting <= route(shape, publisher, wanting).keys()
    assert wanted >= {0, 1, 2}


# --- the measures --------------------------------------------------------------------------------


def test_rows_o3_and_o4_the_top_level_counts_in_the_final_network() -> None:
    """Patterns of a workload that is measured at two sizes: all that received it in vain count,
    and those who joined later are there from the start."""
    workload = draw_workload(news_schema(), peers=120, documents=30, sample=20, seed=2, checks=400)
    assert workload.disagreements == ()
    (small, large) = grow_tree(workload, BuildSettings(), (60, 120))
    for point in (small, large):
        shape = grown_tree(workload, point.peers)
        shares, top_shares = [], []
        for flags in workload.matches:
            wanting = frozenset(p for p in range(point.peers) if flags[workload.classes.of[p]])
            received = set(route(shape, shape.kinds.index(EdgeKind.CROWN), wanting))
            vain = received - wanting
            shares.append(len(vain) / point.peers)
            top_shares.append(
                sum(shape.kinds[peer] in (EdgeKind.TOP, EdgeKind.CROWN) for peer in vain)
            )
        assert point.metrics.false_positive_ratio == pytest.approx(sum(shares) / len(shares))
        assert sum(top_shares) > 0
        assert point.metrics.false_positive_ratio < (
            broadcast_metrics(workload, point.peers).false_positive_ratio
        )


def grown_tree(workload: SemanticWorkload, peers: int) -> TreeShape:
    """The tree that these peers form by joining."""
    building = Building(workload.classes, BuildSettings())
    building.grow(peers)
    return building.shape()


# --- the graph -----------------------------------------------------------------------------------


def test_row_o2_a_publication_finds_somebody_who_wants_it() -> None:
    """From a node whose interest has nothing to do with it, and from one without any."""
    interests = [Interest.between(low, low + 4) for low in (0, 0, 1, 1, 2, 2, 3, 3)] * 2
    network = SimilarityNetwork([*interests, Interest.between(9, 11), Interest.between(9, 10)])
    network.simulation.join("guest", ["p0"])
    network.simulation.run_for(5_000)
    for publisher in ("p16", "p17", "guest"):
        for message in (1.5, 3.0, 4.5):
            found = network.delivered_of(publisher, message)
            assert found >= set(network.wanting(message))


def test_row_o2_what_nobody_wants_ends() -> None:
    """It looks for somebody for a while; nobody is handed it, and it does not go round for ever."""
    network = SimilarityNetwork([Interest.between(low, low + 3) for low in range(8)] * 2)
    before = network.routed
    assert network.delivered_of("p3", 11.5) == set()
    spent = network.routed - before
    assert 0 < spent <= network.settings.seek_steps + 2 * len(network.interests)


def test_row_m4_interests_that_match_nothing_have_a_proximity() -> None:
    """Without smoothing 0, so that they would be nobody's neighbours but by chance; with it, they
    are closest to those that match little as well."""
    exact, smoothed = replace(PAPER, smoothing=0.0), PAPER
    assert proximity_of_counts(exact, 0, 0, 7) == proximity_of_counts(exact, 0, 0, 0) == 0
    found = [proximity_of_counts(smoothed, 0, 0, others) for others in (0, 1, 5, 50)]
    assert found == sorted(found, reverse=True)
    assert 0 < found[-1] < found[0] == 0.5
