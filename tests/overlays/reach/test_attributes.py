"""From filters to bits: whoever matches an event is kept at a subset of the event's bits.

The judge of the law is `Filter.matches`, which knows nothing of bits.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peersub import Filter
from peersub.filters.boxes import FALSE, TRUE, UNDEFINED, Box
from peersub.filters.patterns import Operator, TextTest
from peersub.overlays.reach.attributes import (
    IDENTIFIERS_PER_FILTER_MAX,
    AttributeMap,
    MapError,
    chosen_map,
    smallest,
)
from strategies import Compare, events, examples, filter_texts, literals, text_of, values

MAPS = (
    "",
    "a; b; date; `c d`; n; n.x; n.m.`y.z`",
    "a: 0, 1.5, 10; b: 2; n.x: 0",
    "a # 4; b # 2; n.m.`y.z` # 3",
    "a > 0; a > 1; a LIKE 'a%'; b IS NULL; n.x = 1 OR n.x = 2; a; a # 2; a: 1",
)
maps = st.builds(AttributeMap, st.integers(14, 20), st.sampled_from(MAPS))


def bits_of(bits: AttributeMap, text: str) -> list[str]:
    return [f"{each:b}" for each in bits.identifiers(Filter(text))]


@examples(100)
@given(maps, filter_texts, events())
def test_who_matches_is_kept_at_a_subset_of_the_events_bits(
    bits: AttributeMap, text: str, event: dict[str, Any]
) -> None:
    wanted = Filter(text)
    has = bits.event_bits(event)
    if wanted.matches(event):
        assert any(each & ~has == 0 for each in bits.identifiers(wanted))


@examples(60)
@given(maps, st.lists(literals, min_size=1, max_size=4), values)
def test_who_names_values_is_kept_at_a_subset_of_their_bits(
    bits: AttributeMap, wanted: list[Any], value: Any
) -> None:
    """As above, with filters and events that meet far more often."""
    text = " OR ".join(text_of(Compare(("a",), "=", literal)) for literal in wanted)
    event = {"a": value}
    has = bits.event_bits(event)
    if Filter(text).matches(event):
        assert any(each & ~has == 0 for each in bits.identifiers(Filter(text)))


@given(maps, filter_texts)
def test_no_identifier_contains_another_and_there_are_few(bits: AttributeMap, text: str) -> None:
    found = bits.identifiers(Filter(text))
    assert len(found) <= IDENTIFIERS_PER_FILTER_MAX
    assert list(found) == sorted(set(found))
    assert not any(one != other and one & ~other == 0 for one in found for other in found)
    assert all(0 <= each < 1 << bits.identifier_bits for each in found)
    assert bool(found) != Filter(text).is_nothing


def test_presence_is_demanded_and_absence_is_not() -> None:
    bits = AttributeMap(3, "a; b; c")
    assert bits_of(bits, "a = 1 AND b > 2") == ["11"]
    assert bits_of(bits, "a IS NOT NULL AND c IS NULL") == ["1"]
    assert bits_of(bits, "a > 1 OR a IS NULL") == ["0"]
    assert bits_of(bits, "b LIKE '%x%' AND c RLIKE 'y'") == ["110"]
    assert bits_of(bits, "b NOT LIKE '%x%'") == ["10"]
    assert bits_of(bits, "a = 1 OR b = 1") == ["1", "10"]
    assert bits_of(bits, "a = 1 OR (a = 2 AND b = 1)") == ["1"]
    assert bits_of(bits, "a = 1 AND a = 2") == []
    assert bits_of(bits, "TRUE") == ["0"]
    assert bits.identifiers(Filter.xpath("/nitf//p")) == (0,)
    assert f"{bits.event_bits({'a': None, 'b': 0, 'c': float('nan')}):b}" == "10"


@pytest.mark.parametrize("event", [{"a": "x"}, {"a": "y"}, {"a": 1}, {}])
@pytest.mark.parametrize("truth", [TRUE, FALSE, UNDEFINED, TRUE | UNDEFINED, TRUE | FALSE])
def test_a_text_test_that_other_values_may_fail_demands_nothing(
    event: dict[str, Any], truth: int
) -> None:
    bits = AttributeMap(3, "a; b; c")
    wanted = Filter.from_boxes([Box({}, {TextTest(("a",), Operator.LIKE, "%x%"): truth})])
    (identifier,) = bits.identifiers(wanted)
    assert identifier == (0 if truth & UNDEFINED else 1)
    if wanted.matches(event):
        assert identifier & ~bits.event_bits(event) == 0


def test_what_is_in_a_record_demands_the_record() -> None:
    bits = AttributeMap(4, "quote; quote.venue")
    assert bits_of(bits, "quote.venue = 'X'") == ["11"]
    assert bits_of(bits, "quote.price = 3") == ["1"]
    assert bits.event_bits({"quote": {"price": 3}}) == 0b01
    assert bits.event_bits({"quote": {"venue": "X"}}) == 0b11


def test_numbers_fall_into_ranges() -> None:
    bits = AttributeMap(3, "price: 10, 20")
    assert [bits.event_bits({"price": each}) for each in (9.99, 10, 19, 20, "x")] == [1, 2, 2, 4, 0]
    assert bits_of(bits, "price < 10") == ["1"]
    assert bits_of(bits, "price BETWEEN 5 AND 15") == ["1", "10"]
    assert bits_of(bits, "price > 15") == ["10", "100"]
    assert bits_of(bits, "price > 15 OR price = 'x'") == ["0"]


def test_values_fall_into_buckets_whatever_their_kind() -> None:
    bits = AttributeMap(8, "v # 8")
    assert bits.event_bits({"v": 1}) == bits.event_bits({"v": 1.0}) != 0
    assert bits.identifiers(Filter("v = 1")) == (bits.event_bits({"v": 1}),)
    assert bits_of(bits, "v > 1") == ["0"]
    several = {bits.event_bits({"v": text}) for text in "abc"}
    assert set(bits.identifiers(Filter("v IN ('a', 'b', 'c')"))) == several


def test_predicates_make_a_hierarchy() -> None:
    bits = AttributeMap(2, "topic LIKE 'news%'; topic LIKE 'news.sports%'")
    assert bits_of(bits, "topic = 'news.sports.rowing'") == ["11"]
    assert bits_of(bits, "topic LIKE 'news.w%'") == ["1"]
    assert bits.event_bits({"topic": "news.world"}) == 0b01


def test_names_that_nobody_registered_share_the_bits_that_are_left() -> None:
    bits = AttributeMap(4, "a; b")
    found = {bits.event_bits({f"x{number}": 1}) for number in range(64)}
    assert found == {0b0100, 0b1000}
    assert bits.identifiers(Filter("x1 = 1")) == (bits.event_bits({"x1": 7}),)
    assert AttributeMap(2, "a; b").identifiers(Filter("x1 = 1")) == (0,)


def test_too_many_identifiers_become_what_they_share() -> None:
    bits = AttributeMap(30, "common; " + "; ".join(f"x{number}" for number in range(20)))
    text = " OR ".join(f"(common = 1 AND x{number} = 1)" for number in range(20))
    assert bits.identifiers(Filter(text)) == (1,)
    assert smallest([0b11, 0b01, 0b100]) == (0b01, 0b100)


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ("a; b; c; d; e", "5 bits"),
        ("price: 1, x", "numbers"),
        ("price: 2, 1", "rise"),
        ("price: 1, NaN", "rise"),
        ("a # many", "number of buckets"),
        ("a # 0", "number of buckets"),
        ("a >", "no entry"),
    ],
)
def test_what_is_no_map_is_refused_in_words(entries: str, says: str) -> None:
    with pytest.raises(MapError, match=says):
        AttributeMap(4, entries)


@pytest.mark.parametrize("bits", [0, 61])
def test_identifiers_have_bits(bits: int) -> None:
    with pytest.raises(MapError):
        AttributeMap(bits)


SAMPLE = [
    {"always": number, "often": "x", **({"rare": 1} if number % 10 == 0 else {}), "c d": number % 2}
    for number in range(100)
]
WANTED = [Filter("always > 1 AND rare = 1"), Filter("`c d` = 1 OR always = 3"), Filter("never = 1")]


def test_a_chosen_map_has_the_rare_attributes_low() -> None:
    text = chosen_map(SAMPLE, WANTED, 8)
    assert text == "never; rare; `c d`; always"
    bits = AttributeMap(8, text)
    assert bits_of(bits, "rare = 1") == ["10"]


def test_a_chosen_map_has_buckets_for_what_most_events_have() -> None:
    text = chosen_map(SAMPLE, WANTED, 12, buckets=4)
    assert "always: 25, 50, 75" in text
    assert "`c d` # 4" in text
    bits = AttributeMap(12, text)
    assert all(bits.event_bits(each) for each in SAMPLE)
    assert chosen_map(SAMPLE, WANTED, 3, buckets=4) == "never; rare"


def test_fine_bits_come_after_all_attributes_those_first_that_many_filters_demand() -> None:
    text = chosen_map(SAMPLE, WANTED, 8, fine=True)
    assert text == "never; rare; `c d`; always; always < 50; always >= 50; `c d` < 1; `c d` >= 1"
    bits = AttributeMap(8, text)
    assert bits_of(bits, "always > 60") == ["101000"]
    assert bits_of(bits, "always > 40") == ["1000"]
    assert chosen_map(SAMPLE, WANTED, 5, fine=True).endswith("always; always < 50")


@given(
    st.lists(events(), max_size=8),
    st.lists(filter_texts, max_size=4),
    st.integers(0, 3),
    st.booleans(),
)
def test_each_chosen_map_can_be_read(
    sample: list[dict[str, Any]], texts: list[str], buckets: int, fine: bool
) -> None:
    filters = [Filter(text) for text in texts]
    AttributeMap(10, chosen_map(sample, filters, 10, buckets=buckets, fine=fine))
