"""FilterSet against a naive model: a dictionary of owners, asked filter by filter."""

import random
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from peersub.filters import sample_columns
from peersub.filters.boxes import box_matches
from peersub.filters.covering_index import SCAN_MAX, CoveringIndex, Subject, Summary
from peersub.filters.filter import Filter
from peersub.filters.filter_set import DEPTH_MAX, Change, FilterSet
from peersub.filters.merging import merged_filters, perfectly_merged
from peersub.filters.sample_columns import SampleColumns

NAMES = ("a", "b", "c", "r.d")
NUMBERS = st.integers(0, 4)
TEXTS = st.sampled_from(("", "x", "xy", "xyz", "y"))
OWNERS = st.sampled_from(("s1", "s2", "s3"))


def leaves(*, opaque: bool) -> st.SearchStrategy[str]:
    name = st.sampled_from(NAMES)
    kinds = [
        st.builds("{} {} {}".format, name, st.sampled_from(("=", "<>", "<", ">=")), NUMBERS),
        st.builds("{} BETWEEN {} AND {}".format, name, NUMBERS, NUMBERS),
        st.builds("{} IN ({}, {})".format, name, NUMBERS, NUMBERS),
        st.builds("{} IN ({}, '{}')".format, name, NUMBERS, TEXTS),
        st.builds("{} IS {}NULL".format, name, st.sampled_from(("", "NOT "))),
        st.builds("{} {} '{}'".format, name, st.sampled_from(("=", ">")), TEXTS),
        st.builds("{} LIKE '{}%'".format, name, TEXTS),
        st.sampled_from(("TRUE", "FALSE", "c")),
    ]
    if opaque:
        kinds += [
            st.builds("{} {}LIKE '%{}%'".format, name, st.sampled_from(("", "NOT ")), TEXTS),
            st.builds("{} RLIKE '{}$'".format, name, TEXTS),
        ]
    return st.one_of(kinds)


def sql_filters(*, opaque: bool) -> st.SearchStrategy[Filter]:
    conjunctions = st.lists(leaves(opaque=opaque), min_size=1, max_size=3).map(" AND ".join)
    return st.lists(conjunctions, min_size=1, max_size=2).map(" OR ".join).map(Filter)


VALUES = st.one_of(
    NUMBERS, TEXTS, st.booleans(), st.sampled_from((None, 2.5, float("nan"), (1, 2)))
)
EVENTS = st.builds(
    lambda flat, nested: {**flat, "r": nested},
    st.dictionaries(st.sampled_from(("a", "b", "c")), VALUES),
    st.dictionaries(st.just("d"), VALUES),
)
# Documents are events too, for the patterns that may be in a set.
DOCUMENTS = st.sampled_from(("<a/>", "<a><b/></a>", "<a><c><b x='1'/></c></a>", "<b/>"))
PATTERNS = st.sampled_from(
    ("/a", "//b", "/a/b", "/a//b", "/*", "//*", "/a//b[@x]", "/a/*//b", "/a//*/b", "//b[@x = '1']")
).map(Filter.xpath)


class Model(RuleBasedStateMachine):
    """The same operations on the set and on a dictionary."""

    filters = sql_filters(opaque=False)
    events: st.SearchStrategy = EVENTS
    covering_is_complete = True

    def __init__(self):
        super().__init__()
        self.entry = FilterSet()
        self.owners: dict[Filter, dict[str, None]] = {}
        self.announced: set[Filter] = set()

    def apply(self, change: Change):
        """Roots as a neighbour knows them, from the changes alone."""
        assert self.announced.isdisjoint(change.added_roots)
        assert self.announced.issuperset(change.removed_roots)
        self.announced -= set(change.removed_roots)
        self.announced |= set(change.added_roots)

    def disown(self, owner, wanted):
        del self.owners[wanted][owner]
        if not self.owners[wanted]:
            del self.owners[wanted]

    @initialize(data=st.data())
    def start_with_many(self, data):
        many = data.draw(st.lists(self.filters, max_size=3 * SCAN_MAX))
        for wanted in many:
            self.add("s0", wanted)

    @rule(data=st.data(), owner=OWNERS)
    def add_one(self, data, owner):
        self.add(owner, data.draw(self.filters))

    def add(self, owner, wanted):
        known = owner in self.owners.get(wanted, {})
        change = self.entry.add(owner, wanted)
        assert not (known and change)
        self.apply(change)
        self.owners.setdefault(wanted, {})[owner] = None

    @rule(data=st.data())
    def remove_known(self, data):
        if self.owners:
            wanted = data.draw(st.sampled_from(list(self.owners)))
            owner = data.draw(st.sampled_from(list(self.owners[wanted])))
            self.apply(self.entry.remove(owner, wanted))
            self.disown(owner, wanted)

    @rule(data=st.data())
    def remove_root(self, data):
        roots = self.entry.roots()
        if roots:
            wanted = data.draw(st.sampled_from(roots))
            for owner in list(self.owners[wanted]):
                self.apply(self.entry.remove(owner, wanted))
                self.disown(owner, wanted)

    @rule(data=st.data(), owner=OWNERS)
    def remove_unknown(self, data, owner):
        wanted = data.draw(self.filters)
        if owner not in self.owners.get(wanted, {}):
            with pytest.raises(KeyError):
                self.entry.remove(owner, wanted)

    @rule(owner=OWNERS)
    def remove_owner(self, owner):
        theirs = [wanted for wanted, owners in self.owners.items() if owner in owners]
        if theirs:
            self.apply(self.entry.remove_owner(owner))
        else:
            with pytest.raises(KeyError):
                self.entry.remove_owner(owner)
        for wanted in theirs:
            self.disown(owner, wanted)

    @rule(data=st.data())
    def match(self, data):
        event = data.draw(self.events)
        matching = [wanted for wanted in self.owners if wanted.matches(event)]
        assert self.entry.matches(event) == bool(matching)
        expected = {owner for wanted in matching for owner in self.owners[wanted]}
        found = self.entry.matching_owners(event)
        assert set(found) == expected
        assert len(found) == len(expected)

    @rule(data=st.data())
    def cover(self, data):
        wanted = data.draw(self.filters)
        answer = self.entry.covers(wanted)
        if any(known.covers(wanted) for known in self.owners) and self.covering_is_complete:
            assert answer
        sql = [known for known in self.owners if known.language == "sql"]
        if self.covering_is_complete and not wanted.is_nothing:
            union = Filter.from_boxes(box for known in sql for box in known.boxes)
            assert answer == union.covers(wanted)
        for event in data.draw(st.lists(self.events, max_size=4)):
            if answer and wanted.matches(event):
                assert any(known.matches(event) for known in self.owners)

    @rule(data=st.data(), budget=st.sampled_from((0.0, 0.25, 1.0)))
    def merge(self, data, budget):
        sample = tuple(data.draw(st.lists(self.events, max_size=8)))
        merged = self.entry.merged(budget, sample)
        assert merged == self.entry.merged(budget, sample)
        assert merged == merged_filters(reversed(list(self.owners)), budget, sample)
        assert list(merged) == sorted(set(merged), key=lambda wanted: wanted.digest)
        together = FilterSet()
        for wanted in merged:
            together.add("merged", wanted)
        for wanted in self.owners:
            # Box by box: a union of many may be beyond what subtraction proves.
            parts = [Filter.from_boxes([b]) for b in getattr(wanted, "boxes", ())] or [wanted]
            assert all(together.covers(part) for part in parts)
        more = [e for e in sample if together.matches(e) and not self.entry.matches(e)]
        assert len(more) <= budget * len(sample)
        for event in data.draw(st.lists(self.events, max_size=4)):
            if self.entry.matches(event):
                assert together.matches(event)
            elif budget == 0:
                assert not together.matches(event)

    @invariant()
    def same_content(self):
        assert len(self.entry) == len(self.owners)
        assert set(self.entry) == set(self.owners)
        for wanted, owners in self.owners.items():
            assert wanted in self.entry
            assert set(self.entry.owners(wanted)) == set(owners)

    @invariant()
    def forest(self):
        roots = self.entry.roots()
        assert set(roots) == self.announced
        assert list(roots) == sorted(roots, key=lambda wanted: wanted.digest)
        seen = list(roots)
        for wanted in seen:
            for child in self.entry.children(wanted):
                assert wanted.covers(child)
                seen.append(child)
        assert len(seen) == len(self.owners)
        assert set(seen) == set(self.owners)
        for root in roots:
            assert not any(root.covers(other) for other in roots if other != root)

    @invariant()
    def roots_are_maximal(self):
        if self.covering_is_complete:
            assert set(self.entry.roots()) == set(maximal(self.owners))

    def teardown(self):
        for wanted, owners in list(self.owners.items()):
            for owner in owners:
                self.apply(self.entry.remove(owner, wanted))
        assert len(self.entry) == 0
        assert self.entry.roots() == ()
        assert self.entry.merged() == ()
        assert self.entry.digest == FilterSet().digest
        assert not self.announced


def maximal(filters) -> list[Filter]:
    """Those that no other covers; of equivalent ones the first by digest."""
    return [
        wanted
        for wanted in filters
        if not any(
            other.covers(wanted) and (not wanted.covers(other) or other.digest < wanted.digest)
            for other in filters
            if other != wanted
        )
    ]


class OpaqueModel(Model):
    """Text tests: covering need not be transitive, everything else holds."""

    filters = sql_filters(opaque=True)
    covering_is_complete = False


class MixedModel(Model):
    """SQL filters and tree patterns in one set."""

    filters = st.one_of(sql_filters(opaque=False), PATTERNS, PATTERNS)
    events = st.one_of(EVENTS, DOCUMENTS)
    covering_is_complete = False


TestModel = Model.TestCase
TestOpaqueModel = OpaqueModel.TestCase
TestMixedModel = MixedModel.TestCase
TestModel.settings = settings(max_examples=40, stateful_step_count=12)
TestOpaqueModel.settings = settings(max_examples=20, stateful_step_count=12)
TestMixedModel.settings = settings(max_examples=20, stateful_step_count=12)


def owned(*texts: str) -> FilterSet[str]:
    entry = FilterSet[str]()
    for text in texts:
        entry.add(text, Filter(text))
    return entry


def texts_of(filters) -> list[str]:
    return sorted(wanted.text for wanted in filters)


def count_covers(monkeypatch) -> list[Summary]:
    """Records each filter that is asked whether it covers another."""
    asked: list[Summary] = []
    covers = Summary.covers
    monkeypatch.setattr(
        Summary, "covers", lambda a, b, *rest: asked.append(a) or covers(a, b, *rest)
    )
    return asked


# --- owners and changes ------------------------------------------------------------------------


def test_a_filter_stays_while_one_of_its_owners_does():
    entry = owned("a > 1")
    assert not entry.add("second", Filter("a > 1"))
    assert not entry.remove("a > 1", Filter("a > 1"))
    assert entry.owners(Filter("a > 1")) == ("second",)
    assert entry.remove("second", Filter("a > 1")) == Change((), (Filter("a > 1"),))
    assert entry.owners(Filter("a > 1")) == ()


def test_removing_what_is_not_there_is_refused_and_says_what():
    entry = owned("a > 1")
    with pytest.raises(KeyError, match="'a > 1' does not have the filter 'a > 2'"):
        entry.remove("a > 1", Filter("a > 2"))
    with pytest.raises(KeyError, match="'nobody' does not have"):
        entry.remove("nobody", Filter("a > 1"))
    with pytest.raises(KeyError, match="'nobody' has no filters"):
        entry.remove_owner("nobody")
    with pytest.raises(KeyError):
        entry.children(Filter("a > 2"))


def test_an_unsubscribed_root_exposes_what_it_covered():
    entry = owned("a > 1", "a > 2 AND b = 1", "a > 3", "a > 3 AND b = 2")
    change = entry.remove("a > 1", Filter("a > 1"))
    assert texts_of(change.added_roots) == ["a > 2 AND b = 1", "a > 3"]
    assert texts_of(change.removed_roots) == ["a > 1"]
    assert texts_of(entry.children(Filter("a > 3"))) == ["a > 3 AND b = 2"]


def test_the_change_of_an_owner_that_leaves_is_the_net_change():
    entry = FilterSet[str]()
    for text in ("a > 1", "a > 2", "a > 3"):
        entry.add("leaving", Filter(text))
    entry.add("staying", Filter("a > 4"))
    change = entry.remove_owner("leaving")
    assert change == Change((Filter("a > 4"),), (Filter("a > 1"),))


def test_one_of_equivalent_filters_is_the_root_whatever_the_order():
    # Equal sets of events, by boxes that differ.
    texts = (
        "(a > 0 AND b > 0) OR (a > 1 AND b > -1)",
        "(a > 0 AND b > 0) OR (a > 1 AND b > -1 AND b <= 0)",
        "(a > 0 AND a <= 1 AND b > 0) OR (a > 1 AND b > -1)",
    )
    filters = [Filter(text) for text in texts]
    assert len(set(filters)) == 3
    for order in permutations(texts):
        assert owned(*order).roots() == (min(filters, key=lambda wanted: wanted.digest),)


def test_a_filter_goes_down_a_bounded_number_of_levels(monkeypatch):
    asked = count_covers(monkeypatch)
    chain = [f"a > {number}" for number in range(4 * DEPTH_MAX)]
    random.Random(1).shuffle(chain)
    entry = FilterSet[str]()
    for text in chain:
        asked.clear()
        entry.add(text, Filter(text))
        assert len(asked) <= 2 * DEPTH_MAX
    for number in range(4 * DEPTH_MAX):
        assert texts_of(entry.roots()) == [f"a > {number}"]
        entry.remove(f"a > {number}", Filter(f"a > {number}"))
    assert len(entry) == 0


# --- covering by several roots -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("roots", "wanted", "covered"),
    [
        (("a > 1", "a < 2"), "a < 5 AND a > 0", True),
        (("a > 2", "a < 2"), "a < 5 AND a > 0", False),
        # "Absent" is a value: together they let through what lacks b.
        (("a = 1 AND b IS NULL", "a = 1 AND b IS NOT NULL"), "a = 1", True),
        (("a = 1 AND b < 5", "a = 1 AND b >= 5"), "a = 1", False),
        (("a < 3 AND b > 0", "a >= 3 AND b > 0", "b < -9"), "a IS NOT NULL AND b > 0", False),
        (("a < 3 AND b > 0", "a >= 3 AND b > 0", "b < -9"), "a IN (1, 7) AND b > 0", True),
        (("c = 9",), "FALSE", True),
        ((), "a = 1", False),
    ],
)
def test_the_union_of_the_roots_may_cover(roots, wanted, covered):
    assert owned(*roots).covers(Filter(wanted)) is covered
    # Among many roots that have nothing to do with it.
    noise = [f"n = {number} AND m > {number}" for number in range(2 * SCAN_MAX)]
    assert owned(*noise, *roots).covers(Filter(wanted)) is covered


# --- the index ---------------------------------------------------------------------------------


@given(st.lists(sql_filters(opaque=False), min_size=SCAN_MAX, max_size=40), st.data())
def test_the_index_finds_what_asking_each_finds(filters, data):
    index = CoveringIndex()
    nodes = {wanted: Summary(wanted) for wanted in dict.fromkeys(filters)}
    for node in nodes.values():
        index.add(node)
    for wanted in data.draw(st.lists(st.sampled_from(list(nodes)), unique=True)):
        index.discard(nodes.pop(wanted))
    asked = data.draw(sql_filters(opaque=False))
    assert (index.coverer(Summary(asked)) is not None) == any(w.covers(asked) for w in nodes)
    covered = [node.filter for node in index.covered(Summary(asked))]
    assert len(covered) == len(set(covered))
    assert set(covered) == {wanted for wanted in nodes if asked.covers(wanted)}
    event = data.draw(EVENTS)
    matching = [node.filter for node in index.matching(Subject(event))]
    assert len(matching) == len(set(matching))
    assert set(matching) == {wanted for wanted in nodes if wanted.matches(event)}


def test_adding_asks_few_of_many(monkeypatch):
    entry = owned(*(f"symbol = 'S{n % 500}' AND price > {n}" for n in range(2_000)))
    asked = count_covers(monkeypatch)
    entry.add("new", Filter("symbol = 'S7' AND price > 1e6"))
    entry.add("new", Filter("symbol = 'T' AND price > 1e6"))
    assert len(asked) < 20


# --- merging -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "merged"),
    [
        (("a = 1", "a = 2"), ["a IN (1, 2)"]),
        (("a = 1 AND b > 0", "a = 2 AND b > 0", "a = 2 AND b > 5"), ["a IN (1, 2) AND b > 0"]),
        (("a < 1", "a >= 1 AND a < 2", "a BETWEEN 2 AND 3"), ["a <= 3"]),
        (("a = 1 AND b = 1", "a = 2 AND b = 2"), ["a = 1 AND b = 1", "a = 2 AND b = 2"]),
        (("a = 1 OR b = 1", "a = 2"), ["a IN (1, 2)", "b = 1"]),
        # Two rounds: first along b, then along a.
        (
            ("a = 1 AND b = 1", "a = 1 AND b = 2", "a = 2 AND b IN (1, 2)"),
            ["a IN (1, 2) AND b IN (1, 2)"],
        ),
        (("a IS NULL", "a IS NOT NULL AND b = 1", "a IS NOT NULL"), ["TRUE"]),
        (("FALSE",), []),
        ((), []),
        (
            ("s LIKE '%x%' AND a = 1", "s LIKE '%x%' AND a = 2"),
            ["a IN (1, 2) AND s LIKE '%x%'"],
        ),
    ],
)
def test_perfect_merging(texts, merged):
    assert texts_of(owned(*texts).merged()) == merged


def test_perfect_merging_of_many_points_is_bounded_in_width_and_quick():
    boxes = [Filter(f"a = {number} AND b = 1").boxes[0] for number in range(3_000)]
    merged = perfectly_merged(boxes)
    assert len(merged) == 3
    assert perfectly_merged(reversed(boxes)) == merged
    assert all(any(box_matches(m, {"a": n, "b": 1}) for m in merged) for n in range(0, 3_000, 7))


def test_imperfect_merging_takes_the_cheapest_pair_first():
    entry = owned(
        "a BETWEEN 1 AND 2 AND b = 1", "a BETWEEN 1 AND 2 AND b > 3 AND c = 1", "a = 9 AND b = 9"
    )
    sample = tuple({"a": a, "b": b} for a in range(10) for b in range(10))
    assert entry.merged(0.0, sample) == entry.merged()
    # The first and the last add (1, 9), (2, 9) and (9, 1). To drop c would add 12 events.
    assert len(entry.merged(0.02, sample)) == 3
    assert texts_of(entry.merged(0.03, sample)) == [
        "(a BETWEEN 1 AND 2 OR a = 9) AND b IN (1, 9)",
        "a BETWEEN 1 AND 2 AND b > 3 AND c = 1",
    ]
    assert len(entry.merged(1.0, sample)) == 1


def test_merging_does_not_depend_on_the_order_of_operations():
    texts = [f"a = {n % 5} AND b > {n % 7}" for n in range(30)] + ["c = 1 OR a = 7", "c = 2"]
    sample = tuple({"a": n % 9, "b": n % 11, "c": n % 4} for n in range(64))
    expected = {budget: owned(*texts).merged(budget, sample) for budget in (0.0, 0.05, 0.3)}
    assert len({len(merged) for merged in expected.values()}) == 3
    for seed in range(3):
        shuffled = texts * 2
        random.Random(seed).shuffle(shuffled)
        entry = FilterSet[int]()
        for number, text in enumerate(shuffled):
            entry.add(number, Filter(text))
            entry.add(number, Filter(f"z = {number}"))
            entry.remove(number, Filter(f"z = {number}"))
        for budget, merged in expected.items():
            assert entry.merged(budget, sample) == merged


@given(st.lists(EVENTS, max_size=80), sql_filters(opaque=True), st.sampled_from([0, 1_024]))
def test_columns_of_a_sample_say_what_each_event_says(events, wanted, dense_max):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sample_columns, "_DENSE_MAX", dense_max)
        columns = SampleColumns(events)
        for box in wanted.boxes:
            expected = sum(box_matches(box, event) << place for place, event in enumerate(events))
            assert columns.box_bits(box) == expected
