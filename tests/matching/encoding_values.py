"""Random domains, boxes and values for the tests of encoding, with values close to the bounds."""

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from hypothesis import strategies as st

from peersub.events.kinds import KindClass, number_key
from peersub.filters.boxes import FALSE, TRUE, UNDEFINED, Box, box_of
from peersub.filters.domains import Domain
from peersub.filters.intervals import EMPTY, FULL, GREATEST, LEAST
from peersub.filters.patterns import Operator, TextTest

PATHS = [("a",), ("b",), ("r", "x"), ("r", "s", "y"), ("r.x",)]

WIDE_NUMBERS = [
    *(0, 1, -1, 2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**60, 2**60 + 1),
    *(2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64 - 1, 2**64, 10**30, -(10**40)),
    *(Decimal("0.1"), Decimal("-0.1"), Decimal("0.1000000000000000055"), Decimal("1E-400")),
    *(Decimal("9223372036854775807.5"), Decimal("0.10000000149011612"), Decimal("1E+500")),
    *(Decimal("1234567890123456.7"), Decimal("99999999999999.9"), Decimal("-1E-330")),
    *(math.inf, -math.inf),
]

number_keys = st.one_of(
    st.sampled_from(WIDE_NUMBERS),
    st.integers(-5, 5),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.floats(-10, 10),
    st.decimals(-10, 10, places=2),
    st.decimals(-(10**20), 10**20, allow_nan=False, places=4),
).map(number_key)

# No surrogates, which no file holds; characters beyond the basic plane order after it in UTF-8.
texts = st.one_of(
    st.sampled_from(
        ["", "a", "b", "ab", "a\0", "a\0\0", "\0", "\ue000", "\uffff", "\U00010000", "é"]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    st.text("ab\0", max_size=3),
)
days = st.one_of(st.integers(-3, 3), st.integers(-719_162, 2_932_895))
moments = st.one_of(st.integers(-3, 3), st.integers(-(10**15), 10**16), st.integers(0, 10**12))

_CUT_KEYS = {
    KindClass.NUMBER: st.tuples(number_keys, st.integers(0, 1)),
    KindClass.STRING: st.tuples(texts.filter(bool), st.just(0)),
    KindClass.DATE: st.tuples(days, st.just(0)),
    KindClass.TIMESTAMP: st.tuples(moments, st.just(0)),
}


@st.composite
def interval_sets(draw, kind_class):
    if kind_class is KindClass.BOOLEAN:
        return draw(st.sampled_from([(LEAST, (1, 0)), ((1, 0), GREATEST), FULL]))
    cuts = sorted(set(draw(st.lists(_CUT_KEYS[kind_class], min_size=1, max_size=4))))
    if draw(st.booleans()):
        # Points, as equality and IN make them: a cut and its successor.
        after = {KindClass.NUMBER: lambda k: (k, 1), KindClass.STRING: lambda k: (k + "\0", 0)}
        successor = after.get(kind_class, lambda k: (k + 1, 0))
        pairs = {cut for key, _ in cuts for cut in ((key, 0), successor(key))}
        cuts = sorted(pairs)
    if draw(st.booleans()):
        cuts = [LEAST, *cuts]
    if len(cuts) % 2:
        cuts = [*cuts, GREATEST]
    return tuple(cuts)


@st.composite
def domains(draw):
    if draw(st.booleans()):
        classes = [draw(st.sampled_from(KindClass))]
        absent = other = False
    else:
        classes = draw(st.lists(st.sampled_from(KindClass), unique=True))
        absent, other = draw(st.booleans()), draw(st.booleans())
    sets = [draw(interval_sets(c)) if c in classes else EMPTY for c in KindClass]
    for c in KindClass:
        if len(classes) > 1 and draw(st.integers(0, 3)) == 0:
            sets[c] = FULL
    return Domain(absent, other, tuple(sets))


tests = st.builds(
    TextTest,
    st.sampled_from(PATHS),
    st.just(Operator.LIKE),
    st.sampled_from(["%a%", "_", "%b", "a%b"]),
)
truths = st.sampled_from(
    [TRUE, FALSE, UNDEFINED, TRUE | UNDEFINED, FALSE | UNDEFINED, TRUE | FALSE]
)


@st.composite
def boxes(draw):
    constraints = draw(st.dictionaries(st.sampled_from(PATHS), domains(), max_size=2))
    box = box_of(constraints, draw(st.dictionaries(tests, truths, max_size=1)))
    return Box({}, {}) if box is None else box


unions = st.lists(boxes(), max_size=2).map(tuple)


def bounds_in(entries, kind_class):
    """The keys of all cuts of a class in these unions of boxes."""
    return [
        key
        for union in entries
        for box in union
        for domain in box.domains.values()
        for key, _ in domain.sets[kind_class]
        if (key, 0) not in (LEAST, GREATEST)
    ]


def near_number(key):
    """Numbers of all types that lie at, just below and just above a key."""
    near = [key, number_key(key)]
    if not isinstance(key, float):
        near += [Decimal(key) + Decimal("1E-25"), Decimal(key) - Decimal("1E-25")]
        if abs(key) < 10**300:
            near += [int(key) - 1, int(key), int(key) + 1]
    try:
        double = float(key)
    except OverflowError:
        return near
    return [*near, double, math.nextafter(double, math.inf), math.nextafter(double, -math.inf)]


def near_text(text):
    return [text, text + "\0", text + "a", text[:-1], text[:-1] + chr(0x10FFFF)]


def as_date(day):
    return date(1970, 1, 1) + timedelta(days=day)


def as_datetime(moment):
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment)


def near_values(entries):
    """Values of all kinds at and around the bounds of these unions of boxes."""
    numbers = [v for key in bounds_in(entries, KindClass.NUMBER) for v in near_number(key)]
    strings = [v for key in bounds_in(entries, KindClass.STRING) for v in near_text(key)]
    dates = [
        as_date(min(max(day + step, -719_162), 2_932_896))
        for day in bounds_in(entries, KindClass.DATE)
        for step in (-1, 0, 1)
    ]
    times = [
        as_datetime(moment + step)
        for moment in bounds_in(entries, KindClass.TIMESTAMP)
        for step in (-1, 0, 1)
    ]
    return [*numbers, *strings, *dates, *times]


def values_of_any_kind(near):
    """Values of all kinds, often one of those given."""
    anything = st.one_of(
        st.none(),
        st.booleans(),
        st.just(math.nan),
        st.just(Decimal("NaN")),
        number_keys,
        st.floats(),
        texts,
        days.map(as_date),
        moments.map(as_datetime),
        st.just([1, 2]),
        st.just(b"a"),
        st.just({"x": 1}),
    )
    return st.one_of(st.sampled_from(near), anything) if near else anything


def events(near):
    """Events with some of the attributes of PATHS."""
    value = values_of_any_kind(near)
    return st.fixed_dictionaries(
        {},
        optional={
            "a": value,
            "b": value,
            "r.x": value,
            "r": st.one_of(
                value,
                st.fixed_dictionaries(
                    {},
                    optional={
                        "x": value,
                        "s": st.one_of(value, st.fixed_dictionaries({}, optional={"y": value})),
                    },
                ),
            ),
            "unheard": value,
        },
    )
