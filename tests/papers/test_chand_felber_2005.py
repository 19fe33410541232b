"""The claims of Chand and Felber: Semantic Peer-to-Peer Overlays for Publish/Subscribe Networks
(Euro-Par 2005), sections 2 to 5, each as a test.

The number in a test's name is the section. What is expected comes from `interests`, where an
interest is the set of messages that it wants, and from lxml where interests are XPath. The code
under test are the models of the two overlays (their structures, joins and bulk forms) here; what
the protocols do is in `test_chand_felber_2005_protocol`. Errors and gaps of the paper are in
`test_chand_felber_2005_errata`. Where a claim does not hold as it stands, the docstring says so,
and the test states what holds instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations, pairwise, permutations
from math import inf
from random import Random
from statistics import mean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from papers.interests import (
    MESSAGES,
    SPAN,
    VIRTUAL_ROOT,
    Interest,
    algorithm_1,
    chain_length,
    depth_of,
    edges_with_virtual_root,
    f_c,
    intervals,
    some_numbers,
    strict_containers,
    within_indulgence,
)
from papers.news_documents import draw_news
from papers.trees import interested_in, parent_of, tree_of
from peersub.overlays.containment.building import Building, BuildSettings, Reorganisation
from peersub.overlays.containment.structure import (
    Classes,
    EdgeKind,
    TreeShape,
    contains,
    route,
)
from peersub.overlays.semantic.metrics import RoutingMetrics
from peersub.overlays.similarity import bulk
from peersub.overlays.similarity.bulk import SimilarityGraph, similarity_graph
from peersub.overlays.similarity.proximity import proximity_of_counts
from peersub.overlays.similarity.settings import PAPER, SimilaritySettings
from strategies import examples

NEWS_SIZES = (300, 600, 1_200, 2_400)
DOCUMENTS = 100
ORIGINS = 3
"""Peers that publish each document, in graphs: one that goes astray weighs less."""

numbers = st.integers(0, SPAN - 1)
some_interest = st.one_of(
    st.tuples(numbers, numbers).map(lambda ends: Interest.between(min(ends), max(ends))),
    st.lists(numbers, min_size=1, max_size=5).map(Interest.any_of),
)
some_interests = st.lists(some_interest, min_size=1, max_size=16)


@pytest.fixture(scope="module", autouse=True)
def _networks_are_let_go() -> Iterator[None]:
    yield
    for kept in (draw_news, news_tree, news_graph, news_metrics, false_positives):
        kept.cache_clear()


def grown(interests: list[Interest], how: Reorganisation = "never", **settings: int) -> Building:
    """The tree after these have joined one by one."""
    classes = Classes.among([each.filter for each in interests])
    building = Building(classes, BuildSettings(reorganisation=how, **settings))
    building.grow(len(interests))
    return building


def links_of(graph: SimilarityGraph) -> dict[int, list[int]]:
    bounds = graph.starts
    return {
        peer: graph.targets[bounds[peer] : bounds[peer + 1]].tolist() for peer in range(len(graph))
    }


def receivers_of(routed: bulk.Routed, document: int) -> dict[int, int]:
    """Who received a document, and how many copies."""
    rows = routed.events == document
    return dict(zip(routed.members[rows].tolist(), routed.copies[rows].tolist(), strict=True))


def edge_between(shape: TreeShape, one: int, other: int) -> EdgeKind:
    lower = one if shape.parents[one] == other else other
    return shape.kinds[lower]


# --- 2: the routing process ----------------------------------------------------------------------


@examples(40)
@given(some_interests, st.data())
def test_2_algorithm_1_is_what_the_tree_does(
    interests: list[Interest], data: st.DataObject
) -> None:
    """Peers that are interested forward to all neighbours but the sender, others to nobody.

    The tree of the paper has a virtual root, which is interested in everything.
    """
    shape = tree_of(interests)
    message = data.draw(st.sampled_from(MESSAGES))
    interested = interested_in(message, interests)
    for publisher in interested:
        passages = route(shape, publisher, interested)
        edges = edges_with_virtual_root(shape)
        received = algorithm_1(edges, interested | {VIRTUAL_ROOT}, publisher)
        assert passages.keys() == received.keys() - {VIRTUAL_ROOT}
        for peer, (sender, _) in passages.items():
            if peer != publisher:
                is_top = edge_between(shape, peer, sender) is EdgeKind.TOP
                assert received[peer] == [VIRTUAL_ROOT if is_top else sender]


@pytest.mark.parametrize("seed", range(3))
def test_2_algorithm_1_is_what_the_graph_does(seed: int) -> None:
    """Copy by copy: who gets how many, since duplicates are forwarded by nobody."""
    random = Random(seed)
    interests = intervals(random, 60)
    graph = graph_of(interests, PAPER, seed)
    matches = table(interests)
    origins = [random.choice(sorted(interested_in(m, interests)) or [-1]) for m in MESSAGES]
    routed = bulk.route(graph, matches, np.array(origins), PAPER, seed, list(map(str, MESSAGES)))
    assert sum(origin >= 0 for origin in origins) > 10
    for document, (message, origin) in enumerate(zip(MESSAGES, origins, strict=True)):
        if origin >= 0:
            received = algorithm_1(links_of(graph), interested_in(message, interests), origin)
            copies = {peer: len(senders) for peer, senders in received.items()}
            assert receivers_of(routed, document) == copies


@examples(40)
@given(some_interests, st.data())
def test_2_what_a_peer_forwards_depends_on_no_interest_but_its_own(
    interests: list[Interest], data: st.DataObject
) -> None:
    """No routing state: with the same neighbours, and others that want something else, a peer that
    receives the message still forwards it to the same ones."""
    shape = tree_of(interests)
    peers = range(len(shape))
    publisher = data.draw(st.sampled_from(peers))
    others = data.draw(st.frozensets(st.sampled_from(peers)))
    more = data.draw(st.frozensets(st.sampled_from(peers)))
    forwards = []
    for interested in (others | {publisher}, more | {publisher}):
        passages = route(shape, publisher, interested)
        sent: dict[int, set[int]] = {peer: set() for peer in passages}
        for peer, passage in passages.items():
            if passage.sender >= 0:
                sent[passage.sender].add(peer)
        forwards.append((interested, passages, sent))
    (one, one_passages, one_sent), (other, other_passages, other_sent) = forwards
    for peer in one_sent.keys() & other_sent.keys():
        is_same_peer = (peer in one) == (peer in other)
        if is_same_peer and one_passages[peer].sender == other_passages[peer].sender:
            assert one_sent[peer] == other_sent[peer]


def test_2_false_positives_and_false_negatives_are_possible() -> None:
    """In a line of peers of which the second and the fourth do not want the message."""
    line = {0: [1], 1: [0, 2], 2: [1, 3], 3: [2]}
    received = algorithm_1(line, {0, 2}, 0)
    assert received == {0: [], 1: [0]}
    graph = replace(
        similarity_graph(np.ones((4, 1), bool), replace(PAPER, nearest=1, random=0), 1),
        starts=np.array([0, 1, 3, 5, 6]),
        targets=np.array([1, 0, 2, 1, 3, 2]),
        is_near=np.ones(6, bool),
    )
    matches = np.array([[True, False, True, False]])
    routed = bulk.route(graph, matches, np.array([0]), PAPER, 1, ["m"])
    metrics = routed.totals(matches).metrics()
    assert metrics.false_positive_ratio == 1 / 4
    assert metrics.false_negative_ratio == 1 / 2


def test_2_neighbours_with_close_interests_receive_less_in_vain() -> None:
    """The same peers and as many links, once to the nearest, once at random."""
    interests = intervals(Random(2), 200)
    near = metrics_of(interests, replace(PAPER, random=0))
    far = metrics_of(interests, replace(PAPER, nearest=1, random=4))
    assert near.false_positive_ratio < 0.6 * far.false_positive_ratio


def graph_of(interests: list[Interest], settings: SimilaritySettings, seed: int) -> SimilarityGraph:
    return similarity_graph(table(interests).T, settings, seed)


def table(interests: list[Interest]) -> np.ndarray:
    return np.array([[m in each.wants for each in interests] for m in MESSAGES], bool)


def metrics_of(
    interests: list[Interest], settings: SimilaritySettings, seed: int = 1
) -> RoutingMetrics:
    """Each message from some peer that wants it."""
    graph, matches = graph_of(interests, settings, seed), table(interests)
    random = Random(seed)
    origins = [random.choice(sorted(interested_in(m, interests)) or [-1]) for m in MESSAGES]
    routed = bulk.route(graph, matches, np.array(origins), settings, seed, list(map(str, MESSAGES)))
    return routed.totals(matches).metrics()


# --- 3: containment and its metric ---------------------------------------------------------------


@given(some_interest, some_interest)
def test_3_definition_1_containment_and_equivalence(one: Interest, other: Interest) -> None:
    """I1 contains I2 iff each message that matches I2 matches I1; equivalence is both ways."""
    assert contains(one.filter, other.filter) == all(m in one.wants for m in other.wants)
    (first, second) = Classes.among([one.filter, other.filter]).of
    assert (first == second) == (one.wants == other.wants)


def test_3_definition_1_holds_for_xpath_as_far_as_it_is_proven() -> None:
    """Each proof stands before the documents, asked of lxml; equivalent ones match the same."""
    news = draw_news(NEWS_SIZES[-1], DOCUMENTS, DOCUMENTS)
    documents = np.concatenate([news.matches, news.sampled])[:, :150]
    proven = 0
    for one, other in permutations(range(150), 2):
        if contains(news.filters[one], news.filters[other]):
            assert not (documents[:, other] & ~documents[:, one]).any()
            proven += 1
    assert proven > 300
    of = np.array(news.classes.of)
    for number in range(max(of[:600]) + 1):
        members = np.flatnonzero(of == number)
        assert (news.matches[:, members] == news.matches[:, members[:1]]).all()


def test_3_containment_is_transitive_and_a_partial_order() -> None:
    """Also where it is a proof that may fail: then it does so in no chain."""
    filters = draw_news(NEWS_SIZES[-1], DOCUMENTS, DOCUMENTS).filters[:70]
    wishes = [*filters, *(each.filter for each in some_numbers(Random(1), 25))]
    above = [{a for a, one in enumerate(wishes) if contains(one, other)} for other in wishes]
    assert all(number in containing for number, containing in enumerate(above))
    chains = 0
    for containing in above:
        for middle in containing:
            assert above[middle] <= containing
            chains += len(above[middle])
    assert chains > 2 * len(wishes)


@examples(40)
@given(st.lists(some_interest, min_size=1, max_size=6))
def test_3_the_depth_is_the_longest_sequence_of_all(interests: list[Interest]) -> None:
    """The oracle of this file against its own oracle, which tries all sequences."""
    for interest in interests:
        containing = [each for each in interests if each.contains(interest)]
        longest = max(
            chain_length(chain)
            for size in range(1, len(containing) + 1)
            for chain in permutations(containing, size)
        )
        assert depth_of(interest, interests) == longest


@examples(60)
@given(some_interests)
def test_3_the_parent_is_the_closest_by_f_c(interests: list[Interest]) -> None:
    """And so the deepest subscription among those that contain the peer's."""
    shape = tree_of(interests)
    for peer, interest in enumerate(interests):
        others = [each for place, each in enumerate(interests) if place != peer]
        closest = max((f_c(each, interest, interests) for each in others), default=-inf)
        root = shape.roots[peer]
        if root != peer:
            assert closest == inf
            assert f_c(interests[root], interest, interests) == inf
        elif (parent := parent_of(shape, peer)) is not None:
            others_without_class = strict_containers(interest, interests)
            best = max(f_c(each, interest, interests) for each in others_without_class)
            assert f_c(interests[parent], interest, interests) == best
        else:
            assert not strict_containers(interest, interests)


def test_3_f_c_is_not_symmetric_and_favours_what_is_contained_in_many() -> None:
    wide, middle, narrow = (Interest.between(0, high) for high in (11, 6, 2))
    registered = [wide, middle, narrow]
    assert f_c(wide, narrow, registered) == 1
    assert f_c(middle, narrow, registered) == 2
    assert f_c(narrow, wide, registered) == -inf
    assert f_c(narrow, Interest("x >= 0 AND x <= 2", narrow.wants), registered) == inf
    assert tree_of(registered).parents == (-1, 0, 1)


# --- 3: the tree ---------------------------------------------------------------------------------

FIGURE_1 = {
    "P1": Interest.between(0, 9),
    "P2": Interest.between(6, 9),
    "P3": Interest.between(7, 8),
    "P4": Interest.between(7, 11),
    "P5": Interest.between(0, 5),
    "P6": Interest.between(1, 2),
    "P7": Interest.between(10, 11),
    "P8": Interest.between(3, 4),
    "P9": Interest("x >= 3 AND x <= 4", Interest.between(3, 4).wants),
    "P10": Interest("NOT (x < 3 OR x > 4)", Interest.between(3, 4).wants),
}
"""As the text describes it; the picture itself, of stock quotes, is lost."""


def test_3_figure_1_the_tree() -> None:
    """P2 and P4 contain P3, and P2 is deeper; P6 is below P5 rather than P1."""
    names = list(FIGURE_1)
    for shape in (tree_of(list(FIGURE_1.values())), grown(list(FIGURE_1.values())).shape()):
        parents = {
            name: names[shape.parents[peer]]
            for peer, name in enumerate(names)
            if shape.kinds[peer] in (EdgeKind.CHILD, EdgeKind.EQUAL)
        }
        contained = {"P2": "P1", "P3": "P2", "P5": "P1", "P6": "P5", "P7": "P4", "P8": "P5"}
        assert parents == contained | {"P9": "P8", "P10": "P8"}


def test_3_figure_1_a_message_of_p5() -> None:
    """It goes up to P1 and over the virtual root; P2, P4 and the root of the equivalence tree get
    it in vain, and nobody below them."""
    names, interests = list(FIGURE_1), list(FIGURE_1.values())
    interested = interested_in(1.5, interests)
    received = route(tree_of(interests), names.index("P5"), interested)
    assert {names[peer] for peer in interested} == {"P1", "P5", "P6"}
    assert {names[peer] for peer in received} == {"P1", "P5", "P6", "P2", "P4", "P8"}


@examples(60)
@given(some_interests)
def test_3_a_join_chooses_the_deepest_and_then_the_one_with_fewest_children(
    interests: list[Interest],
) -> None:
    """By the tree that is there, join by join; an equivalent peer goes before all."""
    classes = Classes.among([each.filter for each in interests])
    building = Building(classes, BuildSettings())
    standing: list[Interest] = []
    for interest in interests:
        parents, before = list(building.parents), len(standing)
        depths = {number: walk(parents, number) for number in range(before)}
        children = Counter(parents[:before])
        known = [each.wants for each in standing]
        building.join()
        if interest.wants in known:
            assert building.parents == parents
            continue
        above = [number for number in range(before) if known[number] > interest.wants]
        standing.append(interest)
        parent = building.parents[before]
        assert (parent >= 0) == bool(above)
        if above:
            best = min((-depths[number], children[number]) for number in above)
            assert parent in above
            assert (-depths[parent], children[parent]) == best


def walk(parents: list[int], number: int) -> int:
    """The depth of a class, counted upwards."""
    depth = 1
    while parents[number] >= 0:
        number, depth = parents[number], depth + 1
    return depth


def test_3_parents_of_one_depth_are_filled_evenly() -> None:
    """Ties go to the parent with the lowest number of children: the tree is kept balanced."""
    parents = [Interest.between(0, 9), Interest.between(1, 10), Interest.between(2, 11)]
    children = [Interest.any_of([a, b]) for a, b in combinations(range(2, 10), 2)]
    shape = grown([*parents, *children]).shape()
    below = Counter(shape.parents[peer] for peer in range(3, len(shape)))
    assert set(below) == {0, 1, 2}
    assert max(below.values()) - min(below.values()) <= 1


@pytest.mark.parametrize("degree", [1, 2, 4])
@pytest.mark.parametrize("peers", [2, 5, 21, 64])
def test_3_equivalent_peers_form_a_balanced_tree_of_limited_degree(degree: int, peers: int) -> None:
    interests = [Interest.between(2, 5)] * peers
    for shape in (
        tree_of(interests, equal_degree=degree),
        grown(interests, equal_degree=degree).shape(),
    ):
        below = Counter(shape.parents[peer] for peer in range(1, peers))
        assert max(below.values()) <= degree
        levels = Counter(walk(list(shape.parents), peer) for peer in range(peers))
        # Balanced: each level is full before the next one begins.
        assert levels[1] == 1
        for level in range(2, max(levels)):
            assert levels[level] == degree ** (level - 1)


@examples(40)
@given(st.lists(some_interest, min_size=1, max_size=6), st.data())
def test_3_an_equivalence_tree_is_one_entity_represented_by_its_root(
    few: list[Interest], data: st.DataObject
) -> None:
    """Only its root stands in the hierarchy, and only there others are connected."""
    interests = data.draw(st.lists(st.sampled_from(few), min_size=1, max_size=20))
    for shape in (tree_of(interests), grown(interests, "always").shape()):
        for peer, kind in enumerate(shape.kinds):
            above = shape.parents[peer]
            same = [
                other for other, one in enumerate(interests) if one.wants == interests[peer].wants
            ]
            assert {shape.roots[other] for other in same} == {shape.roots[peer]}
            if kind is EdgeKind.EQUAL:
                assert above in same
            else:
                assert shape.roots[peer] == peer
            if kind in (EdgeKind.CHILD, EdgeKind.TOP):
                assert shape.roots[above] == above
                assert above not in same


@examples(40)
@given(some_interests)
def test_3_the_virtual_root_connects_exactly_those_that_nobody_contains(
    interests: list[Interest],
) -> None:
    """Top-level peers are linked with each other alone, and all of them are."""
    for shape in (tree_of(interests), grown(interests, "always").shape()):
        top = {
            peer for peer, kind in enumerate(shape.kinds) if kind in (EdgeKind.TOP, EdgeKind.CROWN)
        }
        uncontained = {
            peer
            for peer, interest in enumerate(interests)
            if shape.roots[peer] == peer and not strict_containers(interest, interests)
        }
        assert top == uncontained
        assert sum(kind is EdgeKind.CROWN for kind in shape.kinds) == 1
        assert all(shape.parents[peer] in {-1, *top} - {peer} for peer in top)


# --- 3: the impact on routing --------------------------------------------------------------------


def routes(shape: TreeShape, interests: list[Interest]) -> Iterator[tuple[frozenset[int], dict]]:
    """All messages, each from everybody who wants it."""
    for message in MESSAGES:
        interested = interested_in(message, interests)
        for publisher in interested:
            yield interested, route(shape, publisher, interested)


@examples(40)
@given(some_interests)
def test_3_there_are_no_false_negatives(interests: list[Interest]) -> None:
    for shape in (tree_of(interests), grown(interests).shape(), grown(interests, "local").shape()):
        for interested, received in routes(shape, interests):
            assert interested <= received.keys()


@examples(40)
@given(some_interests)
def test_3_false_positives_are_the_children_of_interested_peers_and_the_top_level(
    interests: list[Interest],
) -> None:
    """And nobody else. The top level hears of everything: the virtual root is interested."""
    for shape in (tree_of(interests), grown(interests).shape()):
        for interested, received in routes(shape, interests):
            in_vain = {
                peer
                for peer in set(range(len(shape))) - interested
                if shape.roots[peer] == peer
                and ((parent := parent_of(shape, peer)) is None or parent in interested)
            }
            assert received.keys() - interested == in_vain


@examples(40)
@given(some_interests)
def test_3_the_paths_form_a_distribution_tree_with_true_positives_inside(
    interests: list[Interest],
) -> None:
    """Everybody receives once; who forwards wants the message, or stands in for the virtual root.

    The leaves are false positives or leaves of the topology.
    """
    shape = tree_of(interests)
    for interested, received in routes(shape, interests):
        senders = {passage.sender for passage in received.values()}
        for peer, passage in received.items():
            if passage.sender < 0:
                continue
            edge = edge_between(shape, peer, passage.sender)
            assert edge is EdgeKind.TOP or passage.sender in interested
            assert received[passage.sender].edges == passage.edges - 1
        for peer in received.keys() - senders:
            neighbours = {*shape.below[peer], *({shape.parents[peer]} - {-1})}
            is_leaf = neighbours <= {received[peer].sender}
            assert peer not in interested or is_leaf


def test_5_footnote_false_positives_do_not_depend_on_where_a_message_begins() -> None:
    """At the root, or at anybody who wants it."""
    interests = intervals(Random(5), 60)
    shape = grown(interests).shape()
    crown = shape.kinds.index(EdgeKind.CROWN)
    for message in MESSAGES:
        interested = interested_in(message, interests)
        sets = {frozenset(route(shape, at, interested)) for at in (*interested, crown)}
        assert len(sets) == 1


@pytest.mark.parametrize("draw", [intervals, some_numbers])
def test_3_deep_parents_mean_few_false_positives(
    draw: Callable[[Random, int], list[Interest]], record_property: pytest.RecordProperty
) -> None:
    """Against the shallowest container, and against any of them.

    "Minimize" is too much said: the container that wants the fewest messages is better still.
    """
    totals: Counter[str] = Counter()
    for seed in range(12):
        interests = list(dict.fromkeys(draw(Random(seed), 40)))
        random = Random(seed)
        above = [strict_containers(each, interests) for each in interests]
        depths = {each: depth_of(each, interests) for each in interests}
        rules: dict[str, Callable[[Interest], float]] = {
            "deepest": lambda each, depths=depths: -depths[each],
            "shallowest": lambda each, depths=depths: depths[each],
            "any": lambda each, random=random: random.random(),
            "fewest": lambda each: len(each.wants),
        }
        for name, rule in rules.items():
            totals[name] += in_vain(interests, [min(one, key=rule, default=None) for one in above])
        tree = tree_of(interests)
        parents = [parent_of(tree, peer) for peer in range(len(interests))]
        chosen = [None if place is None else interests[place] for place in parents]
        totals["tree"] += in_vain(interests, chosen)
    record_property("false_positives", dict(totals))
    assert totals["tree"] == pytest.approx(totals["deepest"], rel=0.05)
    assert totals["fewest"] <= totals["tree"] < 0.95 * totals["any"] < totals["shallowest"]


def in_vain(interests: list[Interest], parents: list[Interest | None]) -> int:
    """False positives below the top level, if these are the parents; interests are distinct."""
    return sum(
        message not in interest.wants and parent is not None and message in parent.wants
        for interest, parent in zip(interests, parents, strict=True)
        for message in MESSAGES
    )


def test_3_high_level_peers_receive_most_and_want_it() -> None:
    """Down each edge both fall: what a peer receives, and what it wants."""
    shape, received, wanted = news_receipts(600)
    for peer, kind in enumerate(shape.kinds):
        if kind is EdgeKind.CHILD:
            parent = shape.parents[peer]
            assert received[peer] == wanted[parent] <= received[parent]
            assert wanted[peer] <= wanted[parent]
    depths = {root: walk_shape(shape, root) for root in set(shape.roots)}
    high = mean(received[root] for root, depth in depths.items() if depth <= 2)
    low = mean(received[root] for root, depth in depths.items() if depth >= 5)
    assert {received[root] for root, depth in depths.items() if depth == 1} == {DOCUMENTS}
    assert low < 0.75 * high


def walk_shape(shape: TreeShape, peer: int) -> int:
    depth = 1
    while (parent := parent_of(shape, peer)) is not None:
        peer, depth = parent, depth + 1
    return depth


def news_receipts(peers: int) -> tuple[TreeShape, Counter[int], Counter[int]]:
    """Per peer, how many documents it received and how many it wants; from the root."""
    news, shape = draw_news(NEWS_SIZES[-1], DOCUMENTS, DOCUMENTS), news_tree("never", peers)
    crown = shape.kinds.index(EdgeKind.CROWN)
    received: Counter[int] = Counter()
    wanted: Counter[int] = Counter()
    for document in range(DOCUMENTS):
        interested = news.interested(document, peers)
        received.update(route(shape, crown, interested).keys())
        wanted.update(interested)
    return shape, received, wanted


# --- 3: joins and reorganisation -----------------------------------------------------------------


@examples(40)
@given(some_interests)
def test_3_a_join_asks_the_top_level_and_the_children_of_containers(
    interests: list[Interest],
) -> None:
    """Nobody else; each is asked once, and answers once."""
    building = Building(Classes.among([each.filter for each in interests]), BuildSettings())
    standing: list[Interest] = []
    for number, interest in enumerate(interests):
        parents = building.parents[: len(standing)]
        asked = sum(
            parent < 0 or standing[parent].strictly_contains(interest) for parent in parents
        )
        before = building.messages.probes, building.messages.answers
        building.join()
        if number:
            sent = building.messages.probes - before[0], building.messages.answers - before[1]
            # Where it begins, the crown is asked by the request itself.
            assert sent == (asked - 1, asked)
        if interest.wants not in [each.wants for each in standing]:
            standing.append(interest)


def test_3_a_join_message_traverses_a_fraction_of_the_tree() -> None:
    """The fraction falls as the network grows: from two fifths of the peers to an eighth.

    Seen at 300, 600, 1,200 and 2,400 peers: 0.39, 0.26, 0.19, 0.12 of the peers.
    """
    news = draw_news(NEWS_SIZES[-1], DOCUMENTS, DOCUMENTS)
    building = Building(news.classes, BuildSettings())
    shares, peers = [], 0
    for size in NEWS_SIZES:
        before = building.messages.probes
        building.grow(size)
        shares.append((building.messages.probes - before) / (size - peers) / ((size + peers) / 2))
        peers = size
    assert shares == sorted(shares, reverse=True)
    assert shares[0] < 0.5
    assert shares[-1] < 0.15


def figure_2(how: Reorganisation) -> dict[str, str]:
    """P6 is below P5, C below Q; then P_new comes, which contains both, below P5.

    C stands elsewhere in the tree: P_new is deeper than Q, and so the better parent.
    """
    given = {
        "Q": Interest.between(2, 11),
        "C": Interest.between(6, 7),
        "P5": Interest.between(0, 9),
        "P6": Interest.between(1, 4),
        "new": Interest.between(1, 8),
    }
    classes = Classes.among([each.filter for each in given.values()])
    settings = BuildSettings(reorganisation=how, share=1.0 if how == "sometimes" else 0.1)
    building = Building(classes, settings)
    building.grow(len(given))
    names = list(given)
    return {
        name: names[building.parents[place]]
        for place, name in enumerate(names)
        if building.parents[place] >= 0
    }


def test_3_figure_2_reorganisation_makes_p6_the_child_of_the_newcomer() -> None:
    """Others may be anywhere: what is beside the newcomer is not all (`C`)."""
    joined = {"C": "Q", "P6": "P5", "new": "P5"}
    assert figure_2("never") == joined
    assert figure_2("local") == joined | {"P6": "new"}
    assert figure_2("always") == joined | {"P6": "new", "C": "new"}
    assert figure_2("sometimes") == figure_2("always")


@examples(40)
@given(some_interests)
def test_3_always_performs_all_possible_reorganisations(interests: list[Interest]) -> None:
    """After each join nobody has a deeper container than its parent: depth is that of the order."""
    building = Building(
        Classes.among([each.filter for each in interests]), BuildSettings(reorganisation="always")
    )
    standing: list[Interest] = []
    for interest in interests:
        building.join()
        if interest.wants not in [each.wants for each in standing]:
            standing.append(interest)
        for number, each in enumerate(standing):
            assert walk(building.parents, number) == depth_of(each, standing)


@examples(40)
@given(some_interests)
def test_3_never_moves_nobody(interests: list[Interest]) -> None:
    building = Building(Classes.among([each.filter for each in interests]), BuildSettings())
    placed: dict[int, int] = {}
    for _ in interests:
        building.join()
        for number, depth in enumerate(building.depths):
            if depth:
                assert (
                    placed.setdefault(number, building.parents[number]) == building.parents[number]
                )
    assert building.messages.moves == building.messages.reorganisations == 0


def test_3_periodic_reorganises_a_given_percentage() -> None:
    """Of the class roots, each time: between never and always, in moves and in depth."""
    news = draw_news(NEWS_SIZES[-1], DOCUMENTS, DOCUMENTS)
    depths, moves = {}, {}
    for share in (0.0, 0.1, 0.5):
        building = Building(news.classes, BuildSettings(reorganisation="periodic", share=share))
        building.grow(600)
        depths[share] = sum(building.depths)
        moves[share] = building.messages.moves
    never, always = (
        Building(news.classes, BuildSettings(reorganisation=how)) for how in ("never", "always")
    )
    never.grow(600)
    always.grow(600)
    assert moves[0.0] == 0 < moves[0.1] < moves[0.5] < always.messages.moves * 3
    assert sum(never.depths) == depths[0.0] < depths[0.1] < depths[0.5] < sum(always.depths)


def test_3_reorganisation_costs_messages() -> None:
    """The phase is a significant overhead of joins: it more than doubles what they cost."""
    costs = {how: news_building(how, 600).messages for how in ("never", "local", "always")}
    joins = {how: sent.total - sent.reorganisations - sent.moves for how, sent in costs.items()}
    overhead = {how: sent.reorganisations + sent.moves for how, sent in costs.items()}
    assert overhead["never"] == 0 < overhead["local"] < overhead["always"]
    assert overhead["always"] > joins["always"]


def news_building(how: Reorganisation, peers: int) -> Building:
    news = draw_news(NEWS_SIZES[-1], DOCUMENTS, DOCUMENTS)
    building = Building(news.classes, BuildSettings(reorganisation=how))
    building.grow(peers)
    return building


@cache
def news_tree(how: Reorganisation, peers: int) -> TreeShape:
    return news_building(how, peers).shape()


# --- 4: similarity -------------------------------------------------------------------------------


@given(some_interest, some_interest)
def test_4_definitions_2_and_3_similarity_and_f_s(one: Interest, other: Interest) -> None:
    """Sim is the probability that a message that matches one matches the other; f_s the mean."""
    settings = replace(PAPER, smoothing=0.0)
    both = one.wants & other.wants
    sims = Fraction(len(both), len(one.wants)), Fraction(len(both), len(other.wants))
    counts = len(both), len(one.wants), len(other.wants)
    assert proximity_of_counts(settings, *counts) == pytest.approx(float(sum(sims) / 2))


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), st.sampled_from([0.0, 0.5]))
def test_4_f_s_is_symmetric_and_from_0_to_1(
    both: int, one: int, other: int, smoothing: float
) -> None:
    """Smoothing, by which interests without a match in the sample have an order, keeps that."""
    settings = replace(PAPER, smoothing=smoothing)
    found = proximity_of_counts(settings, both, both + one, both + other)
    assert found == proximity_of_counts(settings, both, both + other, both + one)
    assert 0 <= found <= 1 + 1e-12


def test_4_similarity_itself_is_not_symmetric() -> None:
    """A part is certain to be wanted by who wants the whole, not the other way round."""
    whole, part = Interest.between(0, 7), Interest.any_of([1])
    assert len(whole.wants & part.wants) / len(part.wants) == 1
    assert len(whole.wants & part.wants) / len(whole.wants) < 0.1


def mean_similarity(one: Interest, other: Interest, smoothing: float = 0.5) -> float:
    """f_s by sets, smoothed as in the settings of the paper's networks."""
    both = len(one.wants & other.wants) + smoothing
    return (both / (len(one.wants) + 2 * smoothing) + both / (len(other.wants) + 2 * smoothing)) / 2


@pytest.mark.parametrize("draw", [intervals, some_numbers])
def test_4_each_peer_chooses_the_n_closest(
    draw: Callable[[Random, int], list[Interest]],
) -> None:
    """Whoever is closer than the n-th is a neighbour; who is farther, only if it chose the peer."""
    interests = draw(Random(4), 80)
    graph = graph_of(interests, replace(PAPER, random=0), 4)
    assert set(graph.near_made.tolist()) == {5}
    links = links_of(graph)
    limits, scores = [], []
    for peer, interest in enumerate(interests):
        row = [mean_similarity(interest, each) for each in interests]
        scores.append(row)
        limits.append(sorted(row[:peer] + row[peer + 1 :], reverse=True)[4])
    for peer, other in permutations(range(80), 2):
        score = scores[peer][other]
        if score > limits[peer] + 1e-9:
            assert other in links[peer]
        if other in links[peer]:
            assert score >= min(limits[peer], limits[other]) - 1e-9
            assert peer in links[other], "in turn, a peer is a neighbour of who has chosen it"


def test_4_equally_close_peers_share_the_connections() -> None:
    """The paper takes those with less connections, which depends on the order of joins. Here each
    takes the next ones on a circle from a point of its own: no order, and nobody has very many."""
    for seed in range(3):
        degrees = graph_of([Interest.between(1, 4)] * 200, replace(PAPER, random=0), seed).degrees
        assert degrees.min() >= 5
        assert degrees.max() <= 30
        assert degrees.mean() > 9


def test_4_each_peer_has_r_neighbours_at_random() -> None:
    """Drawn from all: they are as far as any two peers are, and nobody is drawn very often."""
    interests = intervals(Random(6), 300)
    graph = graph_of(interests, replace(PAPER, random=2), 6)
    assert set(graph.random_made.tolist()) == {2}
    peers = np.repeat(np.arange(300), graph.degrees)
    pairs = list(zip(peers.tolist(), graph.targets.tolist(), graph.is_near.tolist(), strict=True))
    near = mean(mean_similarity(interests[a], interests[b]) for a, b, is_near in pairs if is_near)
    drawn = mean(
        mean_similarity(interests[a], interests[b]) for a, b, is_near in pairs if not is_near
    )
    every = mean(mean_similarity(a, b) for a, b in combinations(interests, 2))
    assert near > 0.85
    assert drawn == pytest.approx(every, abs=0.04)
    assert max(Counter(a for a, _, is_near in pairs if not is_near).values()) <= 12


def test_4_random_neighbours_keep_communities_from_being_closed() -> None:
    """Two communities that have nothing in common, and one peer that wants what both do."""
    both = [Interest.between(0, 11)]
    interests = [Interest.between(0, 3)] * 30 + [Interest.between(7, 9)] * 30 + both
    closed = links_of(graph_of(interests, replace(PAPER, random=0), 1))
    opened = links_of(graph_of(interests, PAPER, 1))
    everybody = range(len(interests))
    assert len(algorithm_1(closed, everybody, 0)) < len(interests)
    assert len(algorithm_1(opened, everybody, 0)) == len(interests)
    assert metrics_of(interests, PAPER).false_negative_ratio <= (
        metrics_of(interests, replace(PAPER, random=0)).false_negative_ratio
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("indulgence", [0, 1, 2])
def test_4_an_indulgent_message_passes_so_many_uninterested_peers(
    indulgence: int, seed: int
) -> None:
    """On each way from the publisher, whichever copy comes first."""
    interests = some_numbers(Random(seed), 80)
    settings = replace(PAPER, nearest=2, indulgence=indulgence)
    graph, matches = graph_of(interests, settings, seed), table(interests)
    origins = [min(interested_in(m, interests), default=-1) for m in MESSAGES]
    names = list(map(str, MESSAGES))
    routed = bulk.route(graph, matches, np.array(origins), settings, seed, names)
    for document, (message, origin) in enumerate(zip(MESSAGES, origins, strict=True)):
        if origin >= 0:
            interested = interested_in(message, interests)
            expected = within_indulgence(links_of(graph), interested, origin, indulgence)
            assert receivers_of(routed, document).keys() == expected


def test_4_indulgence_reduces_false_negatives() -> None:
    """At the price of false positives."""
    found = [news_metrics(600, indulgence=gamma, random_forward=0.5) for gamma in (0, 1, 2)]
    missed = [each.false_negative_ratio for each in found]
    vain = [each.false_positive_ratio for each in found]
    assert missed[0] > missed[1] >= missed[2]
    assert vain == sorted(vain)
    assert vain[1] > 1.5 * vain[0]


def test_4_rho_is_the_probability_of_forwarding_to_a_random_neighbour() -> None:
    """Everybody is reached in any case, so each forwards: half of the copies are left at 50 %."""
    interests = [Interest.between(1, 4)] * 120
    copies = {}
    for rho in (0.0, 0.5, 1.0):
        settings = replace(PAPER, random=4, random_forward=rho)
        graph, events = graph_of(interests, settings, 1), 40
        matches = np.ones((events, 120), bool)
        names = [f"e{number}" for number in range(events)]
        routed = bulk.route(graph, matches, np.zeros(events, int), settings, 1, names)
        assert len(routed.members) == events * 120
        copies[rho] = int(routed.copies.sum())
    share = (copies[0.5] - copies[0.0]) / (copies[1.0] - copies[0.0])
    assert share == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("seed", range(3))
def test_4_a_lower_rho_means_fewer_false_positives_and_more_false_negatives(seed: int) -> None:
    """Message by message: who is reached at a lower probability is reached at a higher one."""
    interests = some_numbers(Random(seed), 150)
    matches = table(interests)
    origins = np.array([min(interested_in(m, interests), default=-1) for m in MESSAGES])
    reached, found = [], []
    for rho in (0.1, 0.5, 1.0):
        settings = replace(PAPER, nearest=3, random_forward=rho)
        graph = graph_of(interests, settings, seed)
        routed = bulk.route(graph, matches, origins, settings, seed, list(map(str, MESSAGES)))
        reached.append(set(zip(routed.events.tolist(), routed.members.tolist(), strict=True)))
        found.append(routed.totals(matches).metrics())
    assert reached[0] <= reached[1] <= reached[2]
    vain = [each.false_positive_ratio for each in found]
    missed = [each.false_negative_ratio for each in found]
    assert vain[0] < vain[1] < vain[2]
    assert missed[0] >= missed[1] >= missed[2]
    assert missed[0] > missed[2]


def components(links: dict[int, list[int]]) -> int:
    left, found = set(links), 0
    while left:
        found += 1
        left -= algorithm_1(links, links, next(iter(left))).keys()
    return found


@pytest.mark.parametrize("seed", range(3))
def test_4_one_neighbour_makes_trees_and_more_make_graphs(seed: int) -> None:
    """With n = 1 and r = 0 each peer has a closest one, and closeness is mutual: no circles.

    Interests are drawn so that no two pairs are equally close; ties may close a circle.
    """
    bits = np.random.default_rng(seed).random((60, 4_000)) < 0.3
    counts = []
    for nearest, random in ((1, 0), (2, 0), (1, 1)):
        graph = similarity_graph(bits, replace(PAPER, nearest=nearest, random=random), seed)
        links = links_of(graph)
        edges = sum(map(len, links.values())) // 2
        counts.append(edges - (len(links) - components(links)))
    assert counts[0] == 0 < min(counts[1:])


def test_4_the_special_case_is_not_the_tree() -> None:
    """With n = 1, r = 0 and Sim = containment: "similarly to the topology of Section 3".

    What holds: each peer that shares a relation with anybody is linked to a peer above or below it.
    But f_s is symmetric: whoever is above or below is equally close, the deepest container is no
    better than another one, and there is no root. So peers miss messages, which they never do in
    the tree.
    """
    missed = of_deepest = linked_down = 0
    for seed in range(10):
        random = Random(seed)
        interests = list(dict.fromkeys(intervals(random, 40)))
        links: dict[int, list[int]] = {peer: [] for peer in range(len(interests))}
        for peer, interest in enumerate(interests):
            closeness = [
                (interest.contains(each) + each.contains(interest)) / 2 for each in interests
            ]
            others = [other for other in links if other != peer]
            random.shuffle(others)
            chosen = max(others, key=closeness.__getitem__)
            related = [other for other in others if closeness[other]]
            assert not related or chosen in related
            above = strict_containers(interest, interests)
            deepest = max((depth_of(each, interests) for each in above), default=0)
            of_deepest += (
                deepest
                and chosen in related
                and (
                    interests[chosen] in above and depth_of(interests[chosen], interests) == deepest
                )
            )
            linked_down += bool(above) and interests[chosen] not in above
            links[peer].append(chosen)
            links[chosen].append(peer)
        for message in MESSAGES:
            interested = interested_in(message, interests)
            if interested:
                received = algorithm_1(links, interested, min(interested))
                missed += len(interested - received.keys())
        shape = tree_of(interests)
        assert all(wanting <= received.keys() for wanting, received in routes(shape, interests))
    assert missed > 100
    assert linked_down > 50
    assert of_deepest < 100


def test_4_graphs_bear_failures_that_cut_trees() -> None:
    """A tenth of the peers is gone, and nobody repairs anything."""
    random = Random(11)
    interests = intervals(random, 300)
    gone = set(random.sample(range(300), 30))
    graph = links_of(graph_of(interests, PAPER, 11))
    tree = {peer: list(near) for peer, near in edges_with_virtual_root(tree_of(interests)).items()}
    missed = {}
    for name, links in (("graph", graph), ("tree", tree)):
        left = {peer: [o for o in near if o not in gone] for peer, near in links.items()}
        lost = wanted = 0
        for message in MESSAGES:
            interested = interested_in(message, interests) - gone
            if interested:
                origin = random.choice(sorted(interested))
                received = algorithm_1(left, interested | {VIRTUAL_ROOT}, origin)
                lost += len(interested - received.keys())
                wanted += len(interested)
        missed[name] = lost / wanted
    assert missed["graph"] < 0.03
    assert missed["tree"] > 4 * missed["graph"]


def test_4_graphs_share_the_load_more_evenly() -> None:
    """What the busiest peer forwards, against what a peer does on average."""
    peers = NEWS_SIZES[1]
    news, shape = draw_news(NEWS_SIZES[-1], DOCUMENTS, DOCUMENTS), news_tree("never", peers)
    crown = shape.kinds.index(EdgeKind.CROWN)
    sent: dict[str, Counter[int]] = {"tree": Counter(), "graph": Counter()}
    links = links_of(news_graph(peers))
    for document in range(0, DOCUMENTS, 4):
        interested = news.interested(document, peers)
        passages = route(shape, crown, interested).values()
        sent["tree"].update(passage.sender for passage in passages if passage.sender >= 0)
        received = algorithm_1(links, interested, min(interested))
        sent["graph"].update(sender for senders in received.values() for sender in senders)
    uneven = {name: max(c.values()) / (c.total() / peers) for name, c in sent.items()}
    assert uneven["graph"] < uneven["tree"] / 3


def test_4_the_graph_serves_interests_that_do_not_contain_each_other() -> None:
    """Sets of three numbers: nobody contains anybody. The tree is all top level: a broadcast."""
    random = Random(8)
    interests = [Interest.any_of(random.sample(range(SPAN), 3)) for _ in range(200)]
    shape = tree_of(interests)
    assert all(kind is not EdgeKind.CHILD for kind in shape.kinds)
    asked = [m for m in MESSAGES if interested_in(m, interests)]
    vain = []
    for message in asked:
        interested = interested_in(message, interests)
        received = route(shape, min(interested), interested)
        roots = set(shape.roots)
        assert received.keys() == roots | interested
        vain.append(len(received.keys() - interested) / len(roots - interested))
    assert set(vain) == {1.0}, "everybody that is not interested receives it"
    metrics = metrics_of(interests, replace(PAPER, random_forward=0.5))
    assert metrics.false_positive_ratio < 0.6 * metrics.uninterested_ratio
    assert metrics.false_negative_ratio < 0.05


# --- 5: the evaluation ---------------------------------------------------------------------------


@cache
def news_graph(peers: int) -> SimilarityGraph:
    """Who is close is judged by other documents than those that are routed."""
    news = draw_news(NEWS_SIZES[-1], DOCUMENTS, DOCUMENTS)
    return similarity_graph(news.sampled[:, :peers].T, PAPER, 1)


@cache
def news_metrics(peers: int, **settings: float) -> RoutingMetrics:
    """All documents in a graph with n = 5 and r = 1, each from some peers that want it."""
    news = draw_news(NEWS_SIZES[-1], DOCUMENTS, DOCUMENTS)
    chosen = replace(PAPER, **settings)
    random = Random(5)
    origins = [
        random.choice(sorted(news.interested(document, peers)) or [-1])
        for _ in range(ORIGINS)
        for document in range(DOCUMENTS)
    ]
    matches = np.concatenate([news.matches[:, :peers]] * ORIGINS)
    names = [f"d{number}" for number in range(DOCUMENTS * ORIGINS)]
    routed = bulk.route(news_graph(peers), matches, np.array(origins), chosen, 1, names)
    return routed.totals(matches).metrics()


@cache
def false_positives(how: Reorganisation, peers: int) -> float:
    """The average over documents of the share of all peers that received it in vain.

    And nobody misses anything.
    """
    news, shape = draw_news(NEWS_SIZES[-1], DOCUMENTS, DOCUMENTS), news_tree(how, peers)
    crown = shape.kinds.index(EdgeKind.CROWN)
    shares = []
    for document in range(DOCUMENTS):
        interested = news.interested(document, peers)
        received = route(shape, crown, interested).keys()
        assert interested <= received
        shares.append(len(received - interested) / peers)
    return mean(shares)


def test_5_three_quarters_of_the_peers_are_not_interested_however_many_there_are() -> None:
    """75 % in the paper; 68 to 71 % by the small schema of this project."""
    news = draw_news(NEWS_SIZES[-1], DOCUMENTS, DOCUMENTS)
    shares = [1 - float(news.matches[:, :peers].mean()) for peers in NEWS_SIZES]
    assert all(0.65 < share < 0.8 for share in shares)
    assert max(shares) - min(shares) < 0.04


@pytest.mark.parametrize("how", ["never", "periodic", "always"])
def test_5_the_tree_has_few_false_positives_and_fewer_in_larger_networks(
    how: Reorganisation,
) -> None:
    """Zero false negatives, in `false_positives`.

    The paper sees less than 10 % in most cases, and an exponential decrease up to 20,000 peers. At
    sizes for a test it is 31 % to 16 % for `never`, each doubling leaving 4/5 of it: a decrease by
    a power of the size. The paper's sizes are measured by `peersub bench semantic`.
    """
    shares = [false_positives(how, peers) for peers in NEWS_SIZES]
    for smaller, larger in pairwise(shares):
        assert 0.7 * smaller < larger < 0.87 * smaller
    assert shares[-1] < 0.17
    news = draw_news(NEWS_SIZES[-1], DOCUMENTS, DOCUMENTS)
    broadcast = 1 - float(news.matches[:, : NEWS_SIZES[-1]].mean())
    assert shares[-1] < broadcast / 4


def test_5_containment_relations_increase_with_the_population() -> None:
    """The reason that the paper gives for the decrease."""
    news = draw_news(NEWS_SIZES[-1], DOCUMENTS, DOCUMENTS)
    means = []
    for peers in NEWS_SIZES:
        known = max(news.classes.of[:peers]) + 1
        among = [sum(each < known for each in above) for above in news.classes.containers[:known]]
        means.append(mean(among))
    assert means == sorted(means)
    assert means[-1] > 1.5 * means[0]


@pytest.mark.parametrize("peers", NEWS_SIZES)
def test_5_more_reorganisation_means_fewer_false_positives_by_a_little(peers: int) -> None:
    """Never, 10 %, always. The paper finds the differences very small; here they are 4 to 7 points
    at these sizes, and shrink as the network grows."""
    never, periodic, always = (
        false_positives(how, peers) for how in ("never", "periodic", "always")
    )
    assert never > periodic > always
    assert never - always < 0.08


def test_5_the_differences_between_the_variants_shrink() -> None:
    gaps = [false_positives("never", n) - false_positives("always", n) for n in NEWS_SIZES]
    assert gaps[-1] < 0.6 * gaps[0]


@pytest.mark.parametrize("peers", NEWS_SIZES)
def test_5_the_graph_misses_less_than_5_percent(peers: int) -> None:
    """With all random links; with half of them it is up to the paper's 5 %, and a little more."""
    assert news_metrics(peers, random_forward=1.0).false_negative_ratio < 0.02
    assert news_metrics(peers, random_forward=0.5).false_negative_ratio < 0.07


@pytest.mark.parametrize("peers", NEWS_SIZES)
def test_5_the_graph_has_more_false_positives_than_the_tree_and_rho_lowers_them(
    peers: int,
) -> None:
    """Around 25 % in the paper, 14 % at 20,000 peers with 50 %; here 34 to 31, and 24 to 19."""
    full, half = (news_metrics(peers, random_forward=rho) for rho in (1.0, 0.5))
    assert 0.25 < full.false_positive_ratio < 0.36
    assert half.false_positive_ratio < 0.75 * full.false_positive_ratio
    assert half.false_negative_ratio >= full.false_negative_ratio
    assert full.false_positive_ratio > false_positives("never", peers)


def test_5_larger_graphs_have_fewer_false_positives_alone() -> None:
    """The paper finds that all ratios decrease. False positives do; false negatives do not: the
    smallest network misses least, since its random links alone reach most peers."""
    for rho in (1.0, 0.5):
        found = [news_metrics(peers, random_forward=rho) for peers in NEWS_SIZES]
        vain = [each.false_positive_ratio for each in found]
        assert vain == sorted(vain, reverse=True)
    missed = [news_metrics(peers, random_forward=1.0).false_negative_ratio for peers in NEWS_SIZES]
    assert missed[0] < missed[-1]


def test_5_peers_find_closer_neighbours_in_larger_networks() -> None:
    """The reason that the paper gives: f_s of the n-th neighbour grows with the population."""
    news = draw_news(NEWS_SIZES[-1], DOCUMENTS, DOCUMENTS)
    wanted = news.sampled.astype(float)
    means = []
    for peers in NEWS_SIZES:
        table = wanted[:, :peers]
        both, counts = table.T @ table[:, :200], table.sum(axis=0)
        scores = ((both + 0.5) / (counts[:, None] + 1) + (both + 0.5) / (counts[:200] + 1)) / 2
        scores[np.arange(200), np.arange(200)] = -1
        means.append(float(np.sort(scores, axis=0)[-5].mean()))
    assert means == sorted(means)
    assert means[-1] > means[0] + 0.03
