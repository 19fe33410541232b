"""The index of patterns against each pattern asked by itself, through random changes."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from filters.xpath.xpath_strategies import (
    documents,
    fewer,
    filter_or_none,
    lxml_matches,
    patterns,
)
from peersub.filters.xpath import XPathFilter, parse_document
from peersub.matching import xpath_index
from peersub.matching.xpath_index import XPathIndex


class IndexMachine(RuleBasedStateMachine):
    """Adds, removes and matches; the model is a dictionary, the judge lxml."""

    @initialize()
    def start(self):
        self.index = XPathIndex()
        self.model = {}

    @rule(entry=st.integers(0, 9), text=patterns)
    def add(self, entry, text):
        wanted = filter_or_none(text)
        if wanted is None:
            return
        if entry in self.model:
            with pytest.raises(KeyError):
                self.index.add(entry, wanted)
        else:
            self.index.add(entry, wanted)
            self.model[entry] = text

    @rule(entry=st.integers(0, 9))
    def remove(self, entry):
        if entry not in self.model:
            with pytest.raises(KeyError):
                self.index.remove(entry)
        else:
            self.index.remove(entry)
            del self.model[entry]

    @rule(document=documents())
    def match(self, document):
        expected = [e for e in sorted(self.model) if lxml_matches(self.model[e], document)]
        assert self.index.match(document) == expected

    @rule()
    def empty(self):
        """Removing in any order returns to the empty state."""
        for entry in sorted(self.model, reverse=True):
            self.index.remove(entry)
        self.model = {}
        assert self.index.distinct_patterns == 0
        assert not self.index._root.children and not self.index._root.descendants
        assert not self.index._alphabet

    @invariant()
    def counts(self):
        if hasattr(self, "index"):
            assert len(self.index) == len(self.model)
            assert all(entry in self.index for entry in self.model)


TestIndex = IndexMachine.TestCase
TestIndex.settings = fewer(4)


@fewer(2)
@given(st.lists(patterns, min_size=1, max_size=12), st.lists(documents(), min_size=2, max_size=4))
def test_one_index_for_several_documents(texts, samples):
    index = XPathIndex()
    kept = [text for text in texts if filter_or_none(text) is not None]
    for entry, text in enumerate(kept):
        index.add(entry, XPathFilter(text))
    for sample in samples * 2:
        expected = [entry for entry, text in enumerate(kept) if lxml_matches(text, sample)]
        assert index.match(parse_document(sample)) == expected


def test_equal_patterns_share_one_record():
    index = XPathIndex()
    for entry, text in enumerate(["/a[b][c]", "/a[c]/b", "/a[b and c]", "/a"]):
        index.add(entry, XPathFilter(text))
    assert index.distinct_patterns == 2
    assert index.match("<a><b/><c/></a>") == [0, 1, 2, 3]
    index.remove(0)
    assert index.match("<a><b/><c/></a>") == [1, 2, 3]


def test_changes_are_seen_at_once():
    index = XPathIndex()
    document = "<a><b/></a>"
    index.add(1, XPathFilter("/a"))
    assert index.match(document) == [1]
    index.add(2, XPathFilter("/a//b"))
    assert index.match(document) == [1, 2]
    index.add(3, XPathFilter("/a[b]"))
    index.remove(2)
    assert index.match(document) == [1, 3]
    index.remove(1)
    index.remove(3)
    assert index.match(document) == []


def test_a_pattern_of_nothing_and_an_event_without_a_document():
    index = XPathIndex()
    index.add(1, XPathFilter("/a[@x = 1 and @x = 2]"))
    assert index.match("<a x='1'/>") == []
    index.add(2, XPathFilter("/a"))
    assert index.match("<a x='1'/>") == [2]
    assert index.match({"price": 5}) == []
    assert index.match({"body": "<a/>"}) == [2]
    index.remove(1)
    assert len(index) == 1


def random_pattern(rng):
    steps = [rng.choice(["/", "//"]) + rng.choice("abcdef*") for _ in range(rng.randint(1, 5))]
    return "".join(steps) + rng.choice(["", "", "[a]", "[@x > 5]"])


def random_xml(rng, depth):
    label = rng.choice("abcdefg")
    below = "".join(random_xml(rng, depth - 1) for _ in range(rng.randint(0, 3) if depth else 0))
    return f"<{label} x='{rng.randint(0, 9)}'>{below}</{label}>"


@pytest.mark.parametrize("members_max", [0, 200, 1_000_000])
def test_many_patterns_and_an_automaton_that_is_forgotten(monkeypatch, members_max):
    monkeypatch.setattr(xpath_index, "AUTOMATON_MEMBERS_MAX", members_max)
    rng = random.Random(3)
    filters = [XPathFilter(random_pattern(rng)) for _ in range(600)]
    index = XPathIndex()
    for entry, wanted in enumerate(filters):
        index.add(entry, wanted)
    assert index.distinct_patterns < 600
    for _ in range(15):
        document = parse_document(random_xml(rng, 5))
        expected = [entry for entry, wanted in enumerate(filters) if wanted.matches(document)]
        assert index.match(document) == expected
    for entry in rng.sample(range(600), 590):
        index.remove(entry)
    document = parse_document("<a x='9'><b x='9'><a x='9'/></b></a>")
    left = [entry for entry in range(600) if entry in index]
    assert index.match(document) == [entry for entry in left if filters[entry].matches(document)]
    assert len(index._steps) <= 64 * max(1, index.distinct_patterns)
