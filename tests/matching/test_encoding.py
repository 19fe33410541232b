"""Codes agree with the domains they stand for: conjuncts in code space hold where boxes do."""

import math
import pickle
import sys
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matching.encoding_values import (
    as_date,
    domains,
    events,
    near_values,
    number_keys,
    unions,
    values_of_any_kind,
)
from peersub.events.kinds import KindClass, comparable, number_key, value_at
from peersub.filters.boxes import FALSE, TRUE, UNDEFINED, Box, box_matches
from peersub.filters.domains import ABSENT, PRESENT, Domain, of_class
from peersub.filters.filter import Filter
from peersub.filters.intervals import EMPTY, FULL, GREATEST, points
from peersub.filters.patterns import Operator, TextTest
from peersub.matching import bounds as bounds_module
from peersub.matching.bounds import OrderedBounds, TextBounds, least_double, merged
from peersub.matching.conjunct_builder import CHOICES_MAX, NO_RESIDUAL, build
from peersub.matching.conjunct_merge import merge
from peersub.matching.encoding import Encoder


def conjunct_holds(encoded, conjunct, codes, event):
    """A conjunct by its definition, predicate by predicate."""
    table = encoded.table
    for place in range(table.offsets[conjunct], table.offsets[conjunct + 1]):
        code, row = codes[table.slots[place]], table.value_set[place]
        assert table.low[place] <= table.high[place]
        if not table.low[place] <= code <= table.high[place]:
            return False
        if row >= 0:
            inside = range(table.set_offsets[row], table.set_offsets[row + 1])
            if not any(table.set_low[i] <= code <= table.set_high[i] for i in inside):
                return False
    first, last = encoded.conjunct_test_offsets[conjunct : conjunct + 2]
    for place in range(first, last):
        test = encoded.tests[encoded.test_numbers[place]]
        found = comparable(value_at(event, test.path))
        outcome = UNDEFINED
        if found is not None and found[0] is KindClass.STRING:
            outcome = TRUE if test.holds(found[1]) else FALSE
        if not outcome & encoded.test_truths[place]:
            return False
    residual = encoded.residual[conjunct]
    return residual == NO_RESIDUAL or box_matches(encoded.residual_boxes[residual], event)


def entries_that_hold(encoded, event):
    codes = encoded.encoder.encode_event(event)
    assert codes.dtype == np.int32 and len(codes) == len(encoded.encoder.slots)
    assert np.all(codes < encoded.encoder.code_counts)
    return {
        int(encoded.conjunct_entry[conjunct])
        for conjunct in range(encoded.table.conjuncts)
        if conjunct_holds(encoded, conjunct, codes, event)
    }


def entries_by_boxes(entries, event):
    return {
        number for number, union in enumerate(entries) if any(box_matches(b, event) for b in union)
    }


@st.composite
def entries_and_events(draw):
    entries = draw(st.lists(unions, min_size=1, max_size=4))
    found = draw(st.lists(events(near_values(entries)), min_size=1, max_size=4))
    return entries, found


@given(entries_and_events())
def test_conjuncts_hold_where_boxes_do(drawn):
    entries, found = drawn
    encoded = build(entries)
    for event in found:
        assert entries_that_hold(encoded, event) == entries_by_boxes(entries, event)


@given(st.data(), st.lists(domains(), min_size=1, max_size=4))
def test_codes_agree_with_domains(data, drawn):
    entries = [(Box({("a",): domain}, {}),) if not domain.is_everything else () for domain in drawn]
    entries = [
        union if not union or not drawn[i].is_empty else () for i, union in enumerate(entries)
    ]
    encoded = build(entries)
    for value in data.draw(st.lists(values_of_any_kind(near_values(entries)), max_size=8)):
        expected = {n for n, union in enumerate(entries) if union and drawn[n].contains(value)}
        assert entries_that_hold(encoded, {"a": value}) == expected


@given(entries_and_events())
def test_saved_and_opened_again(drawn):
    entries, found = drawn
    encoder = build(entries).encoder
    arrays = {name: array.copy() for name, array in encoder.arrays().items()}
    for array in arrays.values():
        array.flags.writeable = False
    opened = Encoder.from_arrays(arrays)
    sent = pickle.loads(pickle.dumps(encoder))
    assert opened.slots == encoder.slots
    assert opened.code_counts.tolist() == encoder.code_counts.tolist()
    for event in found:
        expected = encoder.encode_event(event).tolist()
        assert opened.encode_event(event).tolist() == expected
        assert sent.encode_event(event).tolist() == expected


@given(entries_and_events(), st.lists(st.integers(0, 4), max_size=2), st.data())
def test_merged_parts_hold_where_boxes_do(drawn, splits, data):
    entries, found = drawn
    edges = [0, *sorted(min(split, len(entries)) for split in splits), len(entries)]
    parts = [entries[a:b] for a, b in pairwise(edges)]
    keep = data.draw(st.lists(st.booleans(), min_size=len(entries), max_size=len(entries)))
    numbers = np.where(keep, np.cumsum(keep) - 1, -1).astype(np.int32)
    together = merge(
        [build(part) for part in parts],
        [numbers[a:b] for a, b in pairwise(edges)],
    )
    kept = [union for union, is_kept in zip(entries, keep, strict=True) if is_kept]
    assert together.entry_count == len(kept)
    counts = np.bincount(together.conjunct_entry, minlength=len(kept))
    assert together.multi.tolist() == (counts[together.conjunct_entry] > 1).astype(int).tolist()
    for event in found:
        assert entries_that_hold(together, event) == entries_by_boxes(kept, event)


RELATIONS = [
    *("{} > {}", "{} >= {}", "{} < {}", "{} <= {}", "{} = {}", "{} <> {}"),
    *("{0} IN ({1}, {2})", "{0} > {1} AND {0} < {2}", "{0} NOT IN ({1}, {2})"),
]


@pytest.mark.parametrize("values", [["1", "2", "3"], ["'b'", "'d'", "'f'"]])
@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_merged_parts_on_one_slot(values, parts):
    pairs = [(low, high) for low in values for high in values if low <= high]
    filters = [Filter(form.format("a", *pair)) for pair in pairs for form in RELATIONS]
    entries = [wanted.boxes for wanted in filters]
    numbers = np.arange(len(entries), dtype=np.int32)
    # Dealt out like cards, so that each part has bounds of its own between those of the others.
    order = np.concatenate([numbers[part::parts] for part in range(parts)])
    dealt = [numbers[part::parts] for part in range(parts)]
    starts = np.cumsum([0, *(len(part) for part in dealt)])
    together = merge(
        [build([entries[number] for number in part]) for part in dealt],
        [np.arange(a, b, dtype=np.int32) for a, b in pairwise(starts)],
    )
    for value in (0, 1, 1.5, 2, 2.5, 3, 4, "", "a", "b", "c", "d", "e", "f", "g"):
        expected = entries_by_boxes([entries[number] for number in order], {"a": value})
        assert entries_that_hold(together, {"a": value}) == expected


def test_merged_ranges_make_gaps_matter():
    parts = [build([Filter("a = 'b'").boxes]), build([Filter("a < 'd'").boxes])]
    together = merge(parts, [np.array([0], np.int32), np.array([1], np.int32)])
    assert [bounds.gaps_alike for bounds in together.encoder.bounds] == [False]
    assert entries_that_hold(together, {"a": "c"}) == {1}
    assert entries_that_hold(together, {"a": "e"}) == set()


# --- numbers -----------------------------------------------------------------------------------


@given(number_keys)
def test_least_double_is_the_least(key):
    double, exact = least_double(key)
    assert number_key(double) >= key
    assert exact == (number_key(double) == key)
    if double > -math.inf:
        assert number_key(math.nextafter(double, -math.inf)) < key


def code_by_counting(keys, key):
    below = sum(bound < key for bound in keys)
    return 2 * below + (key in keys)


@given(st.sets(number_keys, max_size=12), st.data())
def test_number_codes_by_counting(drawn, data):
    keys = sorted(drawn)
    bounds = OrderedBounds.from_keys(keys)
    assert bounds.keys() == keys
    values = data.draw(st.lists(st.one_of(number_keys, st.sampled_from(keys or [0])), max_size=10))
    for value in values:
        assert bounds.code_of_key(value) == code_by_counting(keys, value)
        if isinstance(value, int) and -(2**63) <= value < 2**63:
            codes = bounds.codes_of_integers(np.array([value]))
            assert codes.tolist() == [code_by_counting(keys, value)]


wide_integers = st.builds(
    lambda sign, power, step: sign * 2**power + step,
    st.sampled_from([-1, 1]),
    st.integers(52, 63),
    st.integers(-2, 2),
).filter(lambda value: -(2**63) <= value < 2**63)


@given(st.sets(wide_integers, min_size=1, max_size=8), st.booleans())
def test_integers_beyond_the_exact_doubles(drawn, with_others):
    keys = sorted(drawn)
    if with_others:  # bounds that no 64-bit integer reaches, on either side
        keys = [-(2**64), *keys, Decimal("9223372036854775807.5"), 2**63, 2**64]
    bounds = OrderedBounds.from_keys(keys)
    assert bounds.keys() == keys
    near = sorted({v + step for v in drawn for step in (-1, 0, 1)} | {2**63 - 1, -(2**63)})
    values = [value for value in near if -(2**63) <= value < 2**63]
    expected = [code_by_counting(keys, value) for value in values]
    assert bounds.codes_of_integers(np.array(values, np.int64)).tolist() == expected
    assert [bounds.code_of_key(value) for value in values] == expected
    doubles = [float(value) for value in values]
    assert [bounds.code_of_double(double) for double in doubles] == [
        code_by_counting(keys, int(double)) for double in doubles
    ]


def test_many_bounds_between_two_doubles():
    keys = [Decimal(1) + Decimal(n) / 10**25 for n in range(1, 500)]
    bounds = OrderedBounds.from_keys(keys)
    assert [bounds.code_of_key(key) for key in keys] == list(range(1, 998, 2))
    assert bounds.code_of_double(1.0) == 0
    assert bounds.code_of_double(math.nextafter(1.0, 2)) == 998


@pytest.mark.parametrize("listed_max", [0, 10**6])
def test_the_outermost_doubles(monkeypatch, listed_max):
    monkeypatch.setattr(bounds_module, "_LISTED_MAX", listed_max)
    most = sys.float_info.max
    bounds = OrderedBounds.from_keys([-math.inf, int(most), 10**400, math.inf])
    values = (-math.inf, -most, math.nextafter(most, 0), most, math.inf)
    assert [bounds.code_of_double(value) for value in values] == [1, 2, 2, 3, 7]
    assert bounds.code_of_key(10**399) == 4
    assert bounds.code_of_key(10**400) == 5
    assert OrderedBounds.from_keys([10**400]).code_of_double(math.inf) == 2


@given(st.lists(st.sets(number_keys, max_size=6), min_size=1, max_size=4))
def test_merged_number_bounds(sets):
    parts = [OrderedBounds.from_keys(sorted(keys)) for keys in sets]
    together, places = merged(parts)
    assert together.keys() == sorted(set().union(*sets))
    for part, place in zip(parts, places, strict=True):
        assert [together.key(int(index)) for index in place] == part.keys()


@pytest.mark.parametrize("listed_max", [0, 10**6])
def test_long_lists_of_bounds_are_searched_in_place(monkeypatch, listed_max):
    monkeypatch.setattr(bounds_module, "_LISTED_MAX", listed_max)
    bounds = OrderedBounds.from_keys(list(range(0, 3_000, 3)))
    assert [bounds.code_of_double(v) for v in (-1.0, 0.0, 1.0, 3.0, 9_000.0)] == [0, 1, 2, 3, 2000]


# --- strings -----------------------------------------------------------------------------------


@pytest.mark.parametrize("decoded_max", [0, 10**6])
@pytest.mark.parametrize("gaps_alike", [False, True])
def test_text_codes(monkeypatch, decoded_max, gaps_alike):
    monkeypatch.setattr(bounds_module, "_DECODED_TEXTS_MAX", decoded_max)
    monkeypatch.setattr(bounds_module, "_REMEMBERED_TEXTS_MAX", 2)
    keys = ["", "a", "b", "\ue000", "\U00010000"]
    bounds = TextBounds.from_keys(keys, gaps_alike)
    for _ in range(2):
        assert [bounds.code_of_key(key) for key in keys] == [1, 3, 5, 7, 9]
        misses = [bounds.code_of_key(key) for key in ("\0", "aa", "z", "\uffff", "\U00010001")]
        assert misses == ([10] * 5 if gaps_alike else [2, 4, 6, 8, 10])


def test_points_need_no_search_and_ranges_do():
    def gaps_alike(text):
        return build([Filter(text).boxes]).encoder.bounds[0].gaps_alike

    assert gaps_alike("a IN ('x', 'y')")
    assert gaps_alike("a <> 'x'")
    assert gaps_alike("a NOT IN ('', 'x')")
    assert gaps_alike("a = ''")
    assert not gaps_alike("a < 'x'")
    assert not gaps_alike("a LIKE 'x%'")
    assert not gaps_alike("a >= 'x'")


def test_a_text_is_one_bound_and_one_code():
    encoded = build([Filter("a = 'x'").boxes, Filter("a = 'y'").boxes])
    assert encoded.encoder.code_counts.tolist() == [5]
    assert encoded.table.low.tolist() == encoded.table.high.tolist() == [1, 3]


# --- conjuncts ---------------------------------------------------------------------------------


def test_universe_has_no_predicate_and_nothing_no_conjunct():
    encoded = build([(Box({}, {}),), ()])
    assert encoded.entry_count == 2
    assert encoded.conjunct_entry.tolist() == [0]
    assert encoded.table.offsets.tolist() == [0, 0]
    assert encoded.encoder.encode_event({"a": 1}).tolist() == []


def test_presence_is_one_predicate():
    encoded = build([(Box({("a",): ABSENT}, {}),), (Box({("a",): PRESENT}, {}),)])
    assert encoded.table.low.tolist() == [0, 1]
    assert len(encoded.encoder.slots) == 1
    for event, expected in (({}, {0}), ({"a": math.nan}, {0}), ({"a": [1]}, {1}), ({"a": ""}, {1})):
        assert entries_that_hold(encoded, event) == expected


def test_mixed_domains_become_choices():
    mixed = of_class(KindClass.NUMBER, ((5, 1), GREATEST)).union(ABSENT)
    encoded = build([(Box({("a",): mixed, ("b",): mixed}, {}),)])
    assert encoded.table.conjuncts == 4
    assert encoded.multi.tolist() == [1, 1, 1, 1]


def box_of_many_choices(number):
    point = points(KindClass.NUMBER, [number]), points(KindClass.STRING, ["x"])
    mixed = Domain(True, False, (*point, EMPTY, EMPTY, FULL))
    return Box({(f"a{n}",): mixed for n in range(8)}, {})


def test_residual_boxes_of_merged_parts():
    boxes = [box_of_many_choices(number) for number in (1, 2)]
    parts = [build([(box,)]) for box in boxes]
    together = merge(parts, [np.array([0], np.int32), np.array([1], np.int32)])
    for number in (1, 2, 3):
        event = {f"a{n}": number for n in range(8)}
        expected = entries_by_boxes([(box,) for box in boxes], event)
        assert entries_that_hold(together, event) == expected


def test_too_many_choices_stay_as_a_box():
    box = box_of_many_choices(1)
    encoded = build([(box,)])
    assert 1 < encoded.table.conjuncts <= CHOICES_MAX
    assert encoded.residual_boxes == (box,)
    assert encoded.needs_check.all()
    event = {f"a{n}": [1, "x", None][n % 3] for n in range(8)}
    assert entries_that_hold(encoded, event) == {0}
    for n in range(8):
        assert entries_that_hold(encoded, event | {f"a{n}": 2}) == set()


def test_a_text_test_demands_a_string():
    encoded = build([Filter("a LIKE '%b%'").boxes])
    assert encoded.table.offsets.tolist() == [0, 1]
    assert entries_that_hold(encoded, {"a": "abc"}) == {0}
    assert entries_that_hold(encoded, {"a": "ac"}) == set()
    assert entries_that_hold(encoded, {"a": 5}) == set()
    # Also where the box does not say so itself: the index can then look for strings only.
    test = TextTest(("a",), Operator.LIKE, "%b%")
    assert build([(Box({}, {test: TRUE}),)]).table.offsets.tolist() == [0, 1]
    assert build([(Box({}, {test: TRUE | UNDEFINED}),)]).table.offsets.tolist() == [0, 0]


def test_a_day_is_one_code():
    day = as_date(19_000)
    encoded = build([(Box({("a",): of_class(KindClass.DATE, ((19_000, 0), (19_001, 0)))}, {}),)])
    assert encoded.table.low.tolist() == encoded.table.high.tolist() == [1]
    assert entries_that_hold(encoded, {"a": day}) == {0}
    assert entries_that_hold(encoded, {"a": as_date(19_001)}) == set()


def test_few_attributes_or_few_slots():
    encoded = build([Filter("a = 1 AND b = 2 AND c = 3").boxes])
    assert encoded.encoder.encode_event({"b": 2}).tolist() == [-1, 1, -1]
    many = {f"x{n}": n for n in range(10)} | {"c": 3}
    assert encoded.encoder.encode_event(many).tolist() == [-1, -1, 1]
