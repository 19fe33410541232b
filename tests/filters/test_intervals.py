"""The algebra of interval sets and domains: each operation against membership of values."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peersub.events.kinds import KindClass
from peersub.filters import domains, intervals
from peersub.filters.domains import ABSENT, EVERYTHING, NOTHING, PRESENT, Domain, of_class
from peersub.filters.intervals import FULL, GREATEST, LEAST, IntervalSet
from strategies import examples

# Each value that sets with these bounds can tell apart.
PROBES: dict[KindClass, list[Any]] = {
    KindClass.NUMBER: [-1, 0, 0.5, 1, 1.5, 2, 2.5, 3, 4],
    KindClass.STRING: ["", "\0", "a", "a\0", "aa", "ab", "b", "c"],
    KindClass.BOOLEAN: [0, 1],
    KindClass.DATE: [-1, 0, 1, 2, 3, 4],
    KindClass.TIMESTAMP: [-1, 0, 1, 2, 3, 4],
}
BOUNDS: dict[KindClass, list[Any]] = {
    KindClass.NUMBER: [0, 1, 2, 3],
    KindClass.STRING: ["", "a", "ab", "b"],
    KindClass.BOOLEAN: [0, 1],
    KindClass.DATE: [0, 1, 2, 3],
    KindClass.TIMESTAMP: [0, 1, 2, 3],
}


@st.composite
def interval_sets(draw: st.DrawFn, kind_class: KindClass) -> IntervalSet:
    """Any set whose bounds are values of BOUNDS."""
    cuts = {LEAST, GREATEST}
    for bound in BOUNDS[kind_class]:
        cuts |= {intervals.cut_before(kind_class, bound), intervals.cut_after(kind_class, bound)}
    chosen = sorted(draw(st.sets(st.sampled_from(sorted(cuts)))))
    return tuple(chosen[: len(chosen) // 2 * 2])


pairs = st.sampled_from(KindClass).flatmap(
    lambda kind: st.tuples(
        st.just(kind), interval_sets(kind), interval_sets(kind), interval_sets(kind)
    )
)


def _held(kind_class: KindClass, cuts: IntervalSet) -> list[bool]:
    return [intervals.contains_value(cuts, value) for value in PROBES[kind_class]]


def _is_sound(cuts: IntervalSet) -> bool:
    return len(cuts) % 2 == 0 and all(a < b for a, b in pairwise(cuts))


@examples(100)
@given(pairs)
def test_operations_agree_with_membership(drawn: tuple[KindClass, Any, Any, Any]) -> None:
    kind, a, b, c = drawn
    held_a, held_b, held_c = _held(kind, a), _held(kind, b), _held(kind, c)
    both = list(zip(held_a, held_b, strict=True))
    for result, expected in (
        (intervals.union(a, b), [x or y for x, y in both]),
        (intervals.intersection(a, b), [x and y for x, y in both]),
        (intervals.difference(a, b), [x and not y for x, y in both]),
        (intervals.complement(a), [not x for x in held_a]),
        (intervals.union_of([a, b, c]), [any(t) for t in zip(held_a, held_b, held_c, strict=True)]),
        (
            intervals.intersection_of([a, b, c]),
            [all(t) for t in zip(held_a, held_b, held_c, strict=True)],
        ),
    ):
        assert _is_sound(result) and _held(kind, result) == expected
    assert intervals.is_subset(a, b) is all(y for x, y in both if x)
    assert intervals.union_of([a, b]) == intervals.union(a, b)
    assert intervals.intersection_of([a, b]) == intervals.intersection(a, b)
    assert (a == b) is (held_a == held_b), "equal sets are equal tuples"


@examples(60)
@given(pairs)
def test_sets_of_single_values_are_listed(drawn: tuple[KindClass, Any, Any, Any]) -> None:
    kind, a, _, _ = drawn
    listed = intervals.single_points(kind, a)
    if listed is not None:
        assert intervals.points(kind, listed) == a


@examples(100)
@given(
    st.text(st.sampled_from("ab\0\ud7ff\ue000\U0010ffff"), max_size=3),
    st.text(st.sampled_from("ab\0\ud7ff\ue000\U0010ffff"), max_size=5),
)
def test_a_prefix_range_holds_what_starts_with_it(prefix: str, text: str) -> None:
    cuts = intervals.prefix_range(prefix)
    assert intervals.contains_value(cuts, text) is text.startswith(prefix)


def test_ends_lie_beyond_all_values() -> None:
    for values in PROBES.values():
        for value in [*values, float("inf")]:
            assert LEAST < (value, 0) < GREATEST and GREATEST > (value, 1) > LEAST
            assert LEAST <= (value, 0) <= GREATEST and not (value, 0) <= LEAST
    assert LEAST < GREATEST and not LEAST < LEAST and LEAST <= LEAST and GREATEST >= GREATEST
    assert intervals.complement(FULL) == () and intervals.complement(()) == FULL


@st.composite
def any_domains(draw: st.DrawFn) -> Domain:
    number, string, boolean, date, timestamp = (draw(interval_sets(kind)) for kind in KindClass)
    return Domain(
        draw(st.booleans()), draw(st.booleans()), (number, string, boolean, date, timestamp)
    )


VALUES: list[Any] = [
    None,
    float("nan"),
    [],
    {},
    b"",
    True,
    False,
    0,
    1,
    1.5,
    2,
    "",
    "a",
    "a\0",
    "ab",
    "b",
]


@examples(50)
@given(any_domains(), any_domains(), any_domains())
def test_domains_agree_with_membership(a: Domain, b: Domain, c: Domain) -> None:
    subset = a.is_subset(b)
    for value in VALUES:
        x, y, z = a.contains(value), b.contains(value), c.contains(value)
        assert a.union(b).contains(value) is (x or y)
        assert a.intersection(b).contains(value) is (x and y)
        assert a.difference(b).contains(value) is (x and not y)
        assert domains.union_of([a, b, c]).contains(value) is (x or y or z)
        assert domains.intersection_of([a, b, c]).contains(value) is (x and y and z)
        assert not (subset and x and not y)
    assert a.difference(b).is_empty is subset
    assert a.is_subset(EVERYTHING) and NOTHING.is_subset(a)


@pytest.mark.parametrize(
    ("domain", "accepted"),
    [
        (EVERYTHING, VALUES),
        (NOTHING, []),
        (ABSENT, VALUES[:2]),
        (PRESENT, VALUES[2:]),
        (of_class(KindClass.BOOLEAN, FULL), [True, False]),
        (of_class(KindClass.NUMBER, FULL), [0, 1, 1.5, 2]),
    ],
)
def test_named_domains(domain: Domain, accepted: list[Any]) -> None:
    assert [value for value in VALUES if domain.contains(value)] == accepted
    assert domain.is_everything is (domain is EVERYTHING)
    assert domain.is_empty is (domain is NOTHING)
