"""Which super-peer a subscriber is sent to: the one with most of its topics, or nowhere."""

from hypothesis import given
from hypothesis import strategies as st

from peersub.overlays.dag.placement import proposed_node

layers = st.frozensets(st.sampled_from("ABCDE"), max_size=4)
neighbourhoods = st.dictionaries(st.sampled_from(["n1", "n2", "n3", "n4"]), layers, max_size=4)


@given(layers, layers, neighbourhoods)
def test_the_proposed_node_has_more_in_common_and_nobody_has_most(wanted, own, neighbours):
    node = proposed_node(wanted, own, neighbours)
    most = max((len(wanted & theirs) for theirs in neighbours.values()), default=0)
    if most <= len(wanted & own):
        assert node is None, "ties stay"
    else:
        assert len(wanted & neighbours[node]) == most


@given(layers, neighbourhoods)
def test_the_choice_depends_on_no_order(wanted, neighbours):
    turned = dict(reversed(neighbours.items()))
    assert proposed_node(wanted, (), neighbours) == proposed_node(
        sorted(wanted, reverse=True), (), turned
    )


def test_who_wants_the_same_meets_at_the_same_place_whoever_sends_it():
    everywhere = {f"n{number}": ["A", "B"] for number in range(20)}
    for wanted in (["A"], ["B"], ["A", "B"]):
        met = {
            proposed_node(wanted, (), {n: everywhere[n] for n in everywhere if n != sender})
            for sender in everywhere
        }
        assert len(met) == 2, "the first choice of all others, and its own second choice"
    chosen = {proposed_node([topic], (), {n: [topic] for n in everywhere}) for topic in "ABCDEF"}
    assert len(chosen) > 2, "different companies spread over the nodes"
