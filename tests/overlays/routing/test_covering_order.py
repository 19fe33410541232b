"""The covering order against asking each pair."""

import gc
from random import Random

import pytest

from overlays.routing.wishes import any_wish, wish
from peersub.filters import relations
from peersub.filters.filter import Filter
from peersub.overlays.core.identity import PeerId
from peersub.overlays.routing import covering_order
from peersub.overlays.routing.combination import Pool
from peersub.overlays.routing.covering_order import CoveringOrder, Entering
from peersub.overlays.routing.messages import Entry
from peersub.overlays.routing.rows import NO_ROWS


def is_above(general, specific):
    return general.covers(specific) and (
        not specific.covers(general) or general.digest < specific.digest
    )


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("make", [wish, any_wish])
def test_the_order_is_covering(seed, make):
    random = Random(seed)
    order = CoveringOrder()
    filters = {}
    for _ in range(40):
        wanted = make(random)
        filters[wanted.digest] = wanted
        order.hold(order.node(wanted))
    for specific in filters.values():
        above = order.node(specific).above
        expected = {d for d, g in filters.items() if g != specific and is_above(g, specific)}
        # An edge is left out only where it would close a circle.
        assert set(above) <= expected
        if make is wish:
            assert set(above) == expected
        for digest in above:
            assert specific.digest in order.node(filters[digest]).below


def test_a_circle_of_unproven_equals_stays_open(monkeypatch):
    """Three filters that match the same, of which only a circle of coverings is proven."""
    order = CoveringOrder()
    one, two, three = (Filter(f"a LIKE '%{text}%'") for text in ("x", "y", "z"))
    proven = {(one.digest, two.digest), (two.digest, three.digest), (three.digest, one.digest)}

    def proof(self, other, allowance):
        yield 1
        return (self.digest, other.digest) in proven

    monkeypatch.setattr(covering_order.OrderNode, "proof", proof)
    nodes = [order.node(wanted) for wanted in (one, two, three)]
    assert min(len(node.above) for node in nodes) == 0, "somebody is left to stand for all"
    assert sum(len(node.above) for node in nodes) == 2


def test_what_nobody_holds_is_taken_out_a_little_at_a_time(monkeypatch):
    monkeypatch.setattr(covering_order, "IDLE_MAX", 16)
    order = CoveringOrder()
    wide = order.node(Filter("a > 0"))
    order.hold(wide)
    gone = []
    for number in range(200):
        gone.append(order.node(Filter(f"a > {number + 1}")))
        order.hold(gone[-1])
    for number in range(20):
        order.node(Filter(f"a > {number + 1000}"))
    assert len(order) == 221, "few are idle"
    for node in gone:
        before = len(order)
        order.let_go(node)
        order.take_out_idle()
        assert before - len(order) <= covering_order.TAKEN_OUT_AT_ONCE
    assert len(order) <= 1 + 17, "also where nothing comes any more"
    for number in range(500):
        order.node(Filter(f"a > {number + 2000}"))
    assert len(order) < 100
    assert Filter("a > 2499").digest in wide.below
    assert Filter("a > 5").digest not in wide.below


def test_a_pool_that_is_gone_holds_nothing(monkeypatch):
    monkeypatch.setattr(covering_order, "IDLE_MAX", 16)
    order, peer = CoveringOrder(), PeerId("a", 1)
    pools = [Pool(order, None) for _ in range(2)]
    for pool in pools:
        rows = NO_ROWS.changed([Entry("", Filter(f"a > {n}")) for n in range(100)], [])
        pool.replace(peer, NO_ROWS, rows)
        pool.work(None)
    del pool, pools[0]
    gc.collect()
    order.take_out_idle()
    assert len(order) == 100, "the other one needs them"
    pools.clear()
    gc.collect()
    for number in range(200):
        order.node(Filter(f"b > {number}"))
    assert not any(wanted.filter.text.startswith("a") for wanted in order._index)


@pytest.mark.parametrize("upwards", [True, False])
def test_filters_that_all_cover_each_other_take_little_time_and_room(monkeypatch, upwards):
    asked = 0
    proof = covering_order.OrderNode.proof

    def counted(self, *rest):
        nonlocal asked
        asked += 1
        return proof(self, *rest)

    monkeypatch.setattr(covering_order.OrderNode, "proof", counted)
    order = CoveringOrder()
    for number in range(1_500):
        before, wanted = asked, Filter(f"price > {number if upwards else -number}")
        node = order.node(wanted)
        order.hold(node)
        assert asked - before <= 2 * covering_order.COMPARED_MAX
        assert not number or node.above or node.below
    nodes = list(order._index)
    assert all(len(node.above) <= covering_order.ABOVE_MAX for node in nodes)
    assert all(len(node.below) <= covering_order.BELOW_MAX for node in nodes)
    assert sum(not node.above for node in nodes) == 1, "the widest stands for all"


def test_of_many_coverers_the_widest_and_the_closest_are_known():
    order = CoveringOrder()
    for number in range(1_000):
        order.node(Filter(f"price > {number}"))
    above = order.node(Filter("price > 2000")).above
    assert Filter("price > 0").digest in above and Filter("price > 999").digest in above


def nearly_covering(gap):
    """A union of boxes that is proven to cover others only after many steps, if at all."""
    return Filter(
        " OR ".join(f"(a >= {n} AND a < {n + 1 - (n == gap)} AND b{n % 5} > 0)" for n in range(60))
    )


def test_filters_enter_bit_by_bit_as_they_do_at_once():
    filters = [nearly_covering(gap) for gap in range(8)]
    at_once, bit_by_bit = CoveringOrder(), CoveringOrder()
    bits_max = 0
    for wanted in filters:
        at_once.node(wanted)
        entering, bits = Entering(bit_by_bit, wanted), 0
        while entering.node is None:
            entering.go_on(64)
            bits += 1
        bits_max = max(bits_max, bits)
    assert bits_max > 8, "otherwise nothing is shown"
    for wanted in filters:
        assert list(bit_by_bit.node(wanted).above) == list(at_once.node(wanted).above)
        assert list(bit_by_bit.node(wanted).below) == list(at_once.node(wanted).below)


def test_a_bit_of_entering_takes_a_bounded_number_of_subtractions(monkeypatch):
    subtracted = 0
    subtract = relations.box_subtraction

    def counted(piece, box):
        nonlocal subtracted
        subtracted += 1
        return subtract(piece, box)

    monkeypatch.setattr(relations, "box_subtraction", counted)
    order, most = CoveringOrder(), 0
    for gap in range(8):
        entering = Entering(order, nearly_covering(gap))
        while entering.node is None:
            before = subtracted
            entering.go_on(0)
            most = max(most, subtracted - before)
    assert subtracted > 50, "otherwise nothing is shown"
    assert most == 1


@pytest.mark.parametrize("bits", range(1, 9))
def test_what_came_or_went_while_a_filter_entered_leaves_no_trace(bits):
    order = CoveringOrder()
    wanted, wide = nearly_covering(3), order.node(Filter("a >= 0"))
    entering = Entering(order, wanted)
    for _ in range(bits):
        entering.go_on(0)
    if entering.node is None:
        order._take_out(wide)
    while entering.node is None:
        entering.go_on(0)
        assert entering.node is None or not entering.node.above
    same = Entering(order, nearly_covering(4))
    for _ in range(bits):
        same.go_on(0)
    first = order.node(nearly_covering(4))
    while same.node is None:
        same.go_on(0)
    assert same.node is first and len(order) == 2 + (wide.digest in order._index)
