"""What filters cost: the price bounds the work, comes before it, and is the same on every way."""

import cProfile
import pstats

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peersub.filters import Filter, patterns, wire_form
from peersub.filters.boxes import Box
from peersub.filters.limits import COVERING_STEPS_MAX, TEXT_TESTS_MAX
from peersub.filters.price import (
    FILTER_PRICE_MAX,
    PART_PRICE_MAX,
    PLAIN_PRICE,
    ROW_PRICE_MAX,
    TooDearError,
    price_of_boxes,
    price_of_form,
    price_of_product,
)
from peersub.filters.relations import Allowance, is_proven, union_covers
from peersub.filters.summary import Summary
from peersub.filters.widened import PARTS_MAX, UnreadFilter, parts_of, widen
from peersub.filters.xpath.pattern import pattern_text
from strategies import events, examples, filter_texts

STRINGS = [0, 1, [None, None]]


def product(pairs: int, value: str = "k") -> str:
    """A text of a few characters per pair that multiplies out to two to the power of `pairs`."""
    return " AND ".join(f"(a{n} = '{value}' OR b{n} = '{value}')" for n in range(pairs))


def raw(*boxes: object) -> bytes:
    return msgspec.msgpack.encode([1, "sql", list(boxes)])


def pattern_box(texts: list[str], name: str = "a") -> list[object]:
    return [[[[name], STRINGS]], [[[name], "RLIKE", text, 1] for text in texts]]


@pytest.fixture
def work(monkeypatch):
    """Counts the boxes that are read from bytes and the expressions that are compiled."""
    counted = {"boxes": 0, "compiled": 0}
    read_box, check = wire_form._read_box, wire_form.check_expression

    def reading(*arguments):
        counted["boxes"] += 1
        return read_box(*arguments)

    def checking(expression):
        counted["compiled"] += 1
        return check(expression)

    monkeypatch.setattr(wire_form, "_read_box", reading)
    monkeypatch.setattr(wire_form, "check_expression", checking)
    return counted


# --- one price -------------------------------------------------------------------------------


@examples(150)
@given(filter_texts)
def test_a_filter_costs_the_same_read_from_bytes_or_not(text):
    wanted = Filter(text)
    data = wanted.to_bytes()
    read = Filter.from_bytes(data, FILTER_PRICE_MAX)
    assert read.price == wanted.price
    with pytest.raises(TooDearError):
        Filter.from_bytes(data, wanted.price.units - 1)


@examples(150)
@given(filter_texts, filter_texts)
def test_the_price_of_a_product_is_an_upper_bound(one, other):
    first, second = Filter(one), Filter(other)
    estimate = price_of_product(first.price, second.price)
    both = price_of_boxes(Filter(f"({one}) AND ({other})").boxes)
    assert both.boxes <= max(estimate.boxes, first.price.boxes, second.price.boxes)
    assert both.constraints <= max(
        estimate.constraints, first.price.constraints, second.price.constraints
    )


def test_each_kind_of_cost_counts():
    plain = Filter("a = 1 AND b > 2 AND c < 'x'").price.units
    assert plain <= PLAIN_PRICE and Filter("a = 1").price.surplus == 0
    assert Filter("a RLIKE 'x'").price.units > PLAIN_PRICE
    assert Filter(product(7)).price.units <= FILTER_PRICE_MAX < Filter(product(8)).price.units
    many = Filter("a IN (" + ", ".join(f"'v{n}'" for n in range(3_000)) + ")")
    assert plain < many.price.units <= ROW_PRICE_MAX
    assert Filter(r"a RLIKE '\\pL{5}'").price.units > Filter("a RLIKE 'l{5}'").price.units + 200
    assert Filter("a RLIKE '(ab){400}'").price.units > Filter("a RLIKE '(ab){4}'").price.units
    assert Filter.xpath("/a/b").price.units < Filter.xpath("/a" + "/b" * 50).price.units
    branching = Filter.xpath("/a" + "//*[s]" * 31).price.units
    assert 10 * Filter.xpath("/a" + "/b" * 50).price.units < branching <= FILTER_PRICE_MAX


def test_the_longest_and_most_branching_pattern_may_still_be_used():
    widest = Filter.xpath("/a" + "".join(f"[b{n:02}{'x' * 58}]" for n in range(63)))
    assert FILTER_PRICE_MAX // 2 < widest.price.units <= FILTER_PRICE_MAX


def test_patterns_are_written_in_steps_like_their_parts():
    def calls(steps: int) -> int:
        pattern = Filter.xpath("/a" + "//*[s]" * steps).pattern
        with cProfile.Profile() as profile:
            pattern_text(pattern)
        return pstats.Stats(profile).total_calls

    assert calls(30) < 2.5 * calls(15)


def test_it_is_cheap_to_see_that_a_filter_does_not_want_everything(monkeypatch):
    def never(*_):
        raise AssertionError("nothing is to be proven")

    monkeypatch.setitem(union_covers.__globals__, "box_subtraction", never)
    dear = Filter(product(7))
    assert not dear.is_everything
    monkeypatch.undo()
    assert Filter("a IS NULL OR a IS NOT NULL").is_everything


@examples(300)
@given(st.text(st.sampled_from("ab(){}[]^:\\pP,19.*?|"), max_size=24))
def test_any_pattern_has_a_price(pattern):
    assert price_of_form([pattern_box([pattern])], 0).units > 0


@pytest.mark.parametrize(
    "pattern", ["[", "(", ")", "{", "a{", "a{9", "\\", "[^", "[[:", "\\p", "\\p{"]
)
def test_a_pattern_of_any_shape_has_a_price(pattern):
    with pytest.raises((TooDearError, ValueError)):
        Filter.from_bytes(raw(pattern_box([pattern, "x" * 5_000])), FILTER_PRICE_MAX)
    with pytest.raises(ValueError, match=r"units|not a filter"):
        Filter.from_bytes(raw(pattern_box([pattern])), 1)


# --- before anything is done -----------------------------------------------------------------


def test_patterns_are_bounded_over_all_boxes_before_one_is_compiled(work):
    boxes = [
        pattern_box([f"x{box}y{n}.*z" for n in range(TEXT_TESTS_MAX)], f"a{box}")
        for box in range(40)
    ]
    for price_max in (None, FILTER_PRICE_MAX):
        with pytest.raises(TooDearError, match="64 patterns"):
            Filter.from_bytes(raw(*boxes), price_max)
    assert work == {"boxes": 0, "compiled": 0}


def test_many_boxes_are_refused_before_one_is_read(work):
    data = Filter(product(10)).to_bytes()
    with pytest.raises(TooDearError, match="bytes, and a filter may have") as refused:
        Filter.from_bytes(data, FILTER_PRICE_MAX)
    data = Filter(product(8)).to_bytes()
    with pytest.raises(TooDearError, match=f"may cost {FILTER_PRICE_MAX:,}") as refused:
        Filter.from_bytes(data, FILTER_PRICE_MAX)
    assert "Split it into several subscriptions" in str(refused.value)
    assert work["boxes"] == 0
    assert Filter.from_bytes(data) == Filter(product(8))


def test_patterns_that_would_be_tried_on_many_texts_are_refused(work):
    texts = [cut for n in range(900) for cut in ((f"t{n:04}", 0), (f"t{n:04}\0", 0))]
    box = [[[["a"], [0, 1, texts]]], [[["a"], "RLIKE", f"x{n}", 1] for n in range(32)]]
    with pytest.raises(TooDearError, match="units"):
        Filter.from_bytes(raw(box), FILTER_PRICE_MAX)
    assert work == {"boxes": 0, "compiled": 0}


def test_a_text_that_is_wide_and_multiplies_out_is_refused():
    wide = " AND ".join(f"w{n} = {n}" for n in range(500))
    with pytest.raises(ValueError, match="16,384 conditions"):
        Filter(f"{wide} AND {product(7)}")


# --- covering --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("general", "specific"),
    [
        (product(10), "z = 3 AND q > 7"),
        (product(10), product(10, "j")),
        (" OR ".join(f"(a{n} = 'k' AND b = 1)" for n in range(1_000)), product(9)),
        (" OR ".join(f"(a RLIKE 'k{n}.*x')" for n in range(64)), "b = 1"),
        (" OR ".join(f"(a RLIKE 'k{n}.*x')" for n in range(64)), "a IN ('x', 'y', 'z') AND b = 1"),
    ],
)
def test_a_question_of_covering_takes_a_bounded_number_of_steps(general, specific, monkeypatch):
    calls = {"subtracted": 0, "compared": 0}
    subtract, covers = union_covers.__globals__["box_subtraction"], Box.domain
    wide, narrow = Filter(general), Filter(specific)

    def counted(piece, box):
        calls["subtracted"] += 1
        return subtract(piece, box)

    monkeypatch.setitem(union_covers.__globals__, "box_subtraction", counted)
    allowance = Allowance()
    union_covers(wide.boxes, narrow.boxes, allowance)
    assert calls["subtracted"] <= COVERING_STEPS_MAX
    assert allowance.left > -COVERING_STEPS_MAX
    assert covers is Box.domain


def test_many_questions_share_an_allowance():
    union = Summary(Filter(product(5)))
    other = Summary(Filter(" OR ".join(f"(a{n} = 'k' AND b{n} = 'z')" for n in range(5))))
    alone = Allowance(1_000_000)
    answer = is_proven(union.proof(other, alone))
    taken = 1_000_000 - alone.left
    assert answer == union.filter.covers(other.filter) and taken > 0
    shared = Allowance(taken)
    assert is_proven(union.proof(other, shared)) == answer
    is_proven(union.proof(other, shared))
    assert shared.left < 0


# --- widening --------------------------------------------------------------------------------


DEAR = [
    product(8),
    " OR ".join(f"(a{n} = 'k' AND s = 'ACME')" for n in range(900)),
    " AND ".join(f"w{n} < {n}" for n in range(800)),
    " AND ".join(f"(a LIKE '%k{n}%x')" for n in range(40)),
    "n > 3 AND " + " AND ".join(f"(a{n} LIKE '%k{n}%x')" for n in range(40)),
]


@pytest.mark.parametrize("text", DEAR)
def test_a_widened_filter_is_cheap_and_matches_no_less(text):
    wanted = Filter(text)
    wide = widen(wanted)
    assert wanted.price.units > ROW_PRICE_MAX >= wide.price.units
    if not any(box.tests for box in wanted.boxes):
        assert union_covers(wide.boxes, wanted.boxes, Allowance(10_000_000))
    assert widen(wide) is wide


def test_what_all_boxes_demand_stays_when_widened():
    wide = widen(Filter(DEAR[1]))
    assert wide.matches({"s": "ACME"}) and not wide.matches({"s": "other"})
    assert not widen(Filter(DEAR[4])).matches({"n": 3})


@pytest.mark.parametrize(
    "text", [*DEAR, product(6), "a IN (" + ", ".join(map(str, range(2_000))) + ")"]
)
def test_others_are_told_cheap_parts(text):
    wanted = Filter(text)
    parts = parts_of(wanted)
    assert 0 < len(parts) <= PARTS_MAX
    for part in parts:
        assert part.price.units <= PART_PRICE_MAX
        read = Filter.from_bytes(part.to_bytes(), PART_PRICE_MAX)
        assert read == part and read.digest == part.digest
    assert parts_of(parts[0]) == (parts[0],)


def test_parts_match_what_the_filter_does_and_no_more():
    many = Filter("a IN (" + ", ".join(f"'v{n:04}'" for n in range(2_000)) + ") AND b > 1")
    parts = parts_of(many)
    assert len(parts) > 1
    for number in range(0, 4_000, 7):
        event = {"a": f"v{number:04}", "b": 2}
        assert any(part.matches(event) for part in parts) == (number < 2_000)
    union = Filter(" OR ".join(f"(a{n} = {n} AND b < {n})" for n in range(100)))
    assert ROW_PRICE_MAX >= union.price.units > PART_PRICE_MAX
    told = [box for part in parts_of(union) for box in part.boxes]
    assert union_covers(union.boxes, told, Allowance(10_000_000))


def test_a_dear_tree_pattern_is_told_with_fewer_steps():
    wanted = Filter.xpath("/a/b" + "//*[s]" * 31)
    (told,) = parts_of(wanted)
    assert told.price.units <= PART_PRICE_MAX < wanted.price.units and told.covers(wanted)
    assert not told.matches(b"<c><b/></c>")
    wide = Filter.xpath("/a" + "".join(f"[b{n:02}{'x' * 58}]" for n in range(63)))
    assert [told.text for told in parts_of(wide)] == ["/a"]


@examples(100)
@given(filter_texts, st.lists(events(), max_size=6), st.integers(4, PART_PRICE_MAX))
def test_parts_lose_no_event(text, many, price_max):
    wanted = Filter(text)
    parts = parts_of(wanted, price_max)
    for event in many:
        assert any(part.matches(event) for part in parts) or not wanted.matches(event)


@examples(100)
@given(filter_texts, st.lists(events(), max_size=6))
def test_widening_loses_no_event(text, many):
    wanted = Filter(text)
    wide = widen(wanted, price_max=0)
    assert all(wide.matches(event) for event in many if wanted.matches(event))


# --- filters that are not read ---------------------------------------------------------------


def test_an_unread_filter_matches_everything_and_covers_nothing():
    data = Filter(product(9)).to_bytes()
    unread = UnreadFilter(data, "too dear")
    same = UnreadFilter(bytes(data), "again")
    assert unread.matches({}) and unread.matches({"a": 1})
    assert unread.to_bytes() == data and unread.digest == Filter(product(9)).digest
    assert unread == same and hash(unread) == hash(same)
    assert unread != Filter("TRUE") and Filter("TRUE") != unread
    assert unread.covers(same) and not unread.covers(Filter("a = 1"))
    assert not unread.is_everything and Filter("TRUE").covers(unread)
    everything, some = Summary(Filter("TRUE")), Summary(Filter("a = 1"))
    for covers in (Summary.covers, lambda g, f: is_proven(g.proof(f, Allowance()))):
        assert not covers(Summary(unread), some)
        assert not covers(Summary(unread), everything)
        assert covers(everything, Summary(unread))


def test_reading_dear_filters_is_left_out_of_the_memory_of_patterns():
    before = patterns._compiled.cache_info().currsize
    with pytest.raises(TooDearError):
        Filter.from_bytes(raw(pattern_box([f"never{n}" * 80 for n in range(20)])), 100)
    assert patterns._compiled.cache_info().currsize == before


def test_numbers_that_no_text_can_say_are_not_read():
    for digits in (309, 400):
        box = [[[["a"], [0, 0, [([str(10 ** (digits - 1) * 2)], 0), None]]]], []]
        with pytest.raises(ValueError, match="not a filter"):
            Filter.from_bytes(raw(box))
    large = Filter.from_bytes(raw([[[["a"], [0, 0, [([str(10**300)], 0), None]]]], []]))
    assert large.text == "a >= 1e+300"
