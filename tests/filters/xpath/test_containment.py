"""Containment: the three procedures against each other, and against documents that lxml judges."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters.xpath.xpath_strategies import documents, filter_or_none, lxml_matches, patterns
from peersub.filters.xpath import XPathFilter
from peersub.filters.xpath.canonical_models import (
    canonical_models,
    covers_by_models,
    models_count,
)
from peersub.filters.xpath.containment import covers_by_distance, covers_by_homomorphism
from peersub.filters.xpath.grammar import parse_pattern
from peersub.filters.xpath.minimise import minimise
from peersub.filters.xpath.pattern import PatternNode, nodes_of, pattern_text

MODELS_FEW = 300


def random_node(random, size):
    """A nasty pattern: half of the labels are wildcards, a third of the edges are //."""
    branches = []
    size -= 1
    while size > 0:
        part = random.randint(1, size)
        branches.append(random_node(random, part))
        size -= part
    label = random.choice(["a", "b", None, None])
    return PatternNode(random.random() < 0.35, label, branches=tuple(branches))


@st.composite
def nasty_patterns(draw, size_max=5):
    return random_node(draw(st.randoms(use_true_random=False)), draw(st.integers(1, size_max)))


def xml_of(model):
    """A canonical model as a document."""
    label = "z" if model.label == "\0" else model.label
    return f"<{label}>{''.join(map(xml_of, model.branches))}</{label}>"


def random_document(random, node, stretch_max):
    """A document that the pattern matches by construction, with other elements around."""
    label = node.label or random.choice("abz")
    below = [random_document(random, branch, stretch_max) for branch in node.branches]
    below += [f"<{random.choice('abz')}/>" for _ in range(random.randint(0, 1))]
    random.shuffle(below)
    text = f"<{label}>{''.join(below)}</{label}>"
    for _ in range(random.randint(0, stretch_max) if node.is_descendant else 0):
        outer = random.choice("abz")
        text = f"<{outer}>{text}</{outer}>"
    return text


@given(nasty_patterns(), nasty_patterns())
def test_each_procedure_proves_no_more_than_the_next(general, specific):
    plain = covers_by_homomorphism(general, specific)
    distance = covers_by_distance(general, specific)
    assert not plain or distance
    if distance and models_count(general, specific) <= MODELS_FEW:
        assert covers_by_models(general, specific)


@given(nasty_patterns(), nasty_patterns(), st.randoms(use_true_random=False))
def test_canonical_models_decide_containment(general, specific, random):
    if models_count(general, specific) > MODELS_FEW:
        return
    wanted, given_ = pattern_text(general), pattern_text(specific)
    if covers_by_models(general, specific):
        # No document found by search matches the specific pattern only.
        for _ in range(10):
            document = random_document(random, specific, stretch_max=5)
            assert lxml_matches(given_, document)
            assert lxml_matches(wanted, document), (wanted, given_, document)
    else:
        longest = sum(node.label is None for node in nodes_of(general)) + 1
        if (longest + 1) ** sum(node.is_descendant for node in nodes_of(specific)) > 3_000:
            return
        models = map(xml_of, canonical_models(specific, longest))
        witness = next(m for m in models if not lxml_matches(wanted, m))
        assert lxml_matches(given_, witness)


@given(nasty_patterns(size_max=7), st.randoms(use_true_random=False))
def test_minimising_keeps_the_meaning(pattern, random):
    small = minimise(pattern)
    assert minimise(small) == small
    assert len(list(nodes_of(small))) <= len(list(nodes_of(pattern)))
    if max(models_count(pattern, small), models_count(small, pattern)) <= MODELS_FEW:
        assert covers_by_models(pattern, small)
        assert covers_by_models(small, pattern)
    for _ in range(5):
        document = random_document(random, small, stretch_max=4)
        assert lxml_matches(pattern_text(pattern), document)


@given(
    st.lists(patterns, min_size=2, max_size=6),
    st.lists(documents(), min_size=1, max_size=3),
)
def test_covers_is_never_wrong(texts, samples):
    made = [(text, filter_or_none(text)) for text in texts]
    filters = [(text, wanted) for text, wanted in made if wanted is not None]
    verdicts = {text: [lxml_matches(text, sample) for sample in samples] for text, _ in filters}
    for general_text, general in filters:
        for specific_text, specific in filters:
            proven = general.covers(specific)
            assert not general.covers(specific, "homomorphism") or proven
            if proven:
                for wide, narrow in zip(
                    verdicts[general_text], verdicts[specific_text], strict=True
                ):
                    assert wide or not narrow, (general_text, specific_text, samples)
            if not general.overlaps(specific):
                assert not any(
                    map(all, zip(verdicts[general_text], verdicts[specific_text], strict=True))
                )


def test_distance_edges_find_nearly_all_and_plain_homomorphisms_fewer():
    rng = random.Random(2)
    true = by_distance = plainly = 0
    for _ in range(3_000):
        general = minimise(random_node(rng, rng.randint(1, 5)))
        specific = minimise(random_node(rng, rng.randint(1, 6)))
        if models_count(general, specific) > MODELS_FEW:
            continue
        distance = covers_by_distance(general, specific)
        complete = covers_by_models(general, specific)
        assert not distance or complete
        true += complete
        by_distance += distance
        plainly += covers_by_homomorphism(general, specific)
    assert true > 400
    assert by_distance > 0.98 * true
    assert plainly < 0.9 * true


def test_stars_and_slashes_meet():
    first, second = parse_pattern("/a/*//b"), parse_pattern("/a//*/b")
    for general, specific in ((first, second), (second, first)):
        assert not covers_by_homomorphism(general, specific)
        assert covers_by_distance(general, specific)
        assert covers_by_models(general, specific)
    assert XPathFilter("/a/*//b") == XPathFilter("/a//*/b")


def test_complete_finds_what_distances_miss():
    general, specific = XPathFilter("/*[.//a]/*/*"), XPathFilter("//*/a[a]/b/a")
    assert not general.covers(specific)
    assert general.covers(specific, "complete")
    assert not specific.covers(general, "complete")


@pytest.mark.parametrize(
    ("general", "specific"),
    [
        ("/*", "//a"),
        ("//*", "/a/b[c]"),
        ("//a", "/a"),
        ("//a", "/b/a[c]"),
        ("/a//c", "/a/b/c"),
        ("/a[b]", "/a[b][c]"),
        ("/a[b]", "/a/b/c"),
        ("/a[.//c]", "/a[b/c]"),
        ("/a[@x]", "/a[@x = 1]"),
        ("/a[@x > 5]", "/a[@x > 6]"),
        ("/a[@x >= 5]", "/a[@x = '5.0']"),
        ("/a[@x != 5]", "/a[@x = 'v']"),
        ("/a[@x != 5]", "/a[@x < 5]"),
        ("/a[@x != 'v']", "/a[@x < 5]"),
        ("/a[@x != 'v']", "/a[@x = 'w']"),
        ("/a[@x < 9]", "/a[@x > 2 and @x < 5]"),
        ("/a[text()]", "/a[text() = 'v']"),
        ("/a[text() > 5][text() < 9]", "/a[text() = 10][text() = 1]"),
        ("/a[text() > 5]", "/a[text()[. > 5 and . < 9]]"),
        ("/a[b > 5]", "/a[b = 6]"),
        ("/a[b > 5]", "/a[b[@x] = 6]"),
        ("//*[@x]", "/a/b[@x = 3]"),
        ("/a/*/*", "/a//b/c"),
    ],
)
def test_what_covers_what(general, specific):
    wide, narrow = XPathFilter(general), XPathFilter(specific)
    assert wide.covers(narrow)
    assert not narrow.covers(wide)
    assert not narrow.covers(wide, "complete")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("/a[b]", "/a[c]"),
        ("/a[@x = '5']", "/a[@x = '5.0']"),
        ("/a[@x > 5]", "/a[@y > 5]"),
        ("/a[text() = 'v']", "/a[. = 'v']"),  # many text nodes, one string value
        ("/a/b", "/a//*/b"),
        ("/a[@x != 5]", "/a[@x]/b"),
        ("/a[text()[. > 5 and . < 9]]", "/a[text() > 5][text() < 9][b]"),
    ],
)
def test_what_does_not_cover(first, second):
    assert not XPathFilter(first).covers(XPathFilter(second))
    assert not XPathFilter(second).covers(XPathFilter(first))
