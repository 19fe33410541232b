"""Which layers a filter joins and an event is published on: whoever matches shares a layer.

The judge of the law is `Filter.matches`, which knows nothing of layers.
"""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from peersub import Filter
from peersub.filters.filter import Filter as AnyFilter
from peersub.overlays.dag.topics import (
    CATCH_ALL,
    LAYER_NAME_BYTES_MAX,
    TOPICS_PER_FILTER_MAX,
    layers_of,
    layers_of_event,
    topic_path,
)
from strategies import (
    ALL_LITERALS,
    ALL_VALUES,
    PATHS,
    Compare,
    Literal,
    events,
    filter_texts,
    literals,
    text_of,
    values,
)

NAN = float("nan")
SYMBOL = ("symbol",)


def layers(text: str) -> tuple[str, ...]:
    return layers_of(Filter(text), SYMBOL)


def of_event(value: Any) -> tuple[str, ...]:
    return layers_of_event({"symbol": value}, SYMBOL)


@given(filter_texts, events(), st.sampled_from(PATHS))
def test_a_filter_shares_a_layer_with_each_event_that_it_matches(
    text: str, event: dict[str, Any], topic: tuple[str, ...]
) -> None:
    wanted = Filter(text)
    assume(wanted.matches(event))
    assert set(layers_of(wanted, topic)) & set(layers_of_event(event, topic))


@given(st.lists(literals, min_size=1, max_size=4), values, st.sampled_from(PATHS))
@example([Literal("number", 0, "0")], -0.0, ("a",))
@example([Literal("number", 10**500, "1" + "0" * 70)], Decimal("1E+70"), ("a",))
def test_filters_that_name_topics_share_layers_with_events_of_these_topics(
    wanted: list[Literal], value: Any, topic: tuple[str, ...]
) -> None:
    """As above, with filters and events that meet far more often."""
    text = " OR ".join(text_of(Compare(topic, "=", literal)) for literal in wanted)
    event: dict[str, Any] = {}
    record = event
    for name in topic[:-1]:
        record = record.setdefault(name, {})
    record[topic[-1]] = value
    joined = layers_of(Filter(text), topic)
    assert CATCH_ALL not in joined
    shared = set(joined) & set(layers_of_event(event, topic))
    assert bool(shared) == Filter(text).matches(event)


def test_each_literal_and_each_value_meet_on_a_layer_just_if_they_are_equal() -> None:
    for literal in ALL_LITERALS:
        wanted = Filter(text_of(Compare(SYMBOL, "=", literal)))
        (layer,) = layers_of(wanted, SYMBOL)
        for value in ALL_VALUES:
            assert (layer in of_event(value)) == wanted.matches({"symbol": value}), (literal, value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("symbol = 'ACME' AND price > 10", ("string:ACME",)),
        ("symbol IN ('B', 'A', 'B')", ("string:A", "string:B")),
        ("(symbol = 'A' AND x = 1) OR (symbol = 'B' AND y = 2)", ("string:A", "string:B")),
        ("symbol = 1 OR symbol = '1' OR symbol = TRUE", ("boolean:1", "number:1", "string:1")),
        ("symbol BETWEEN DATE '2024-05-01' AND DATE '2024-05-02'", ("date:19844", "date:19845")),
        ("symbol IN ('ab', 'cd') AND symbol LIKE 'a%'", ("string:ab",)),
        ("symbol = 'A' AND symbol = 'B'", ()),
        ("price > 10", (CATCH_ALL,)),
        ("symbol = 'A' OR price > 10", (CATCH_ALL,)),
        ("symbol > 'A'", (CATCH_ALL,)),
        ("symbol LIKE 'A%'", (CATCH_ALL,)),
        ("symbol RLIKE 'A|B'", (CATCH_ALL,)),
        ("NOT symbol = 'A'", (CATCH_ALL,)),
        ("symbol IS NULL", (CATCH_ALL,)),
        ("symbol IS NOT NULL", (CATCH_ALL,)),
        ("TRUE", (CATCH_ALL,)),
        ("FALSE", ()),
        ("symbol.inner = 1", (CATCH_ALL,)),
    ],
)
def test_filters_and_their_layers(text: str, expected: tuple[str, ...]) -> None:
    assert layers(text) == expected


@pytest.mark.parametrize("value", [None, NAN, Decimal("NaN"), {"inner": 1}, [1], b"a"])
def test_an_event_without_a_topic_is_published_on_the_catch_all_alone(value: Any) -> None:
    assert of_event(value) == (CATCH_ALL,)
    assert layers_of_event({}, SYMBOL) == (CATCH_ALL,)


def test_numbers_that_are_equal_are_one_topic() -> None:
    for same in ([1, 1.0, Decimal("1.00")], [0, -0.0, Decimal("-0"), Decimal("0E+500")]):
        assert len({of_event(value) for value in same}) == 1
    assert of_event(10**500) == of_event(Decimal("1E+500")) == of_event(Decimal("10E+499"))
    assert of_event(0.1) == of_event(Decimal("0.10"))
    assert of_event(2**53) != of_event(2**53 + 1)
    assert of_event(True) != of_event(1) != of_event("1")


def test_patterns_join_the_catch_all() -> None:
    assert layers_of(AnyFilter.xpath("/news//p"), SYMBOL) == (CATCH_ALL,)


def test_a_filter_of_many_topics_joins_the_catch_all() -> None:
    def listed(count: int) -> str:
        return "symbol IN (" + ", ".join(f"'S{number}'" for number in range(count)) + ")"

    assert len(layers(listed(TOPICS_PER_FILTER_MAX))) == TOPICS_PER_FILTER_MAX
    assert layers(listed(TOPICS_PER_FILTER_MAX + 1)) == (CATCH_ALL,)
    boxes = " OR ".join(
        f"(symbol = 'S{number}' AND x{number} = 1)" for number in range(TOPICS_PER_FILTER_MAX + 1)
    )
    assert layers(boxes) == (CATCH_ALL,)
    # Boxes may name the same topics again and again: these count once.
    same = " OR ".join(f"(symbol IN ('A', 'B') AND x{number} = 1)" for number in range(40))
    assert layers(same) == ("string:A", "string:B")


@given(st.text(max_size=100) | st.text("ab", min_size=50, max_size=100))
def test_names_of_layers_are_bounded_and_differ_where_topics_do(text: str) -> None:
    (layer, _) = of_event(text)
    assert len(layer.encode()) <= LAYER_NAME_BYTES_MAX
    assert layer not in ("", CATCH_ALL)
    assert layer != of_event(text + "a")[0]


def test_the_topic_is_one_attribute_written_as_in_a_filter() -> None:
    assert topic_path("quote.`the venue`") == ("quote", "the venue")
    for wrong in ("", "a b", "a IS NULL OR b", "a = 1 OR a", "'a'", "a.", "NOT a"):
        with pytest.raises(ValueError, match="the topic is"):
            topic_path(wrong)
