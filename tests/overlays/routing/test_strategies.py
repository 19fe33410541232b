"""Strategies: what publishers are sent, worked out step by step, from scratch, and naively."""

from dataclasses import replace
from random import Random

import pytest

from overlays.routing.filter_networks import oracle_rows, table_of
from overlays.routing.wishes import DOCUMENTS, EVENTS, any_wish, wish
from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.overlays.chord.topology import ChordTopology
from peersub.overlays.core.identity import PeerId
from peersub.overlays.routing import bounded_merging
from peersub.overlays.routing.bounded_merging import EVERYTHING, BoundedMerging
from peersub.overlays.routing.control_filters import holds_key
from peersub.overlays.routing.messages import Entry
from peersub.overlays.routing.rows import NO_ROWS, Rows, WireSizes
from peersub.overlays.routing.strategies import STRATEGIES, Strategy, StrategySettings
from peersub.overlays.settings import SettingsError, settings_from

EDGES = [PeerId(f"n{number}") for number in range(5)]
SAMPLE = tuple(EVENTS[::3])


def settings_of(name, **more):
    return StrategySettings(strategy=name, budget=0.02, rows_max=12, sample=SAMPLE, **more)


def random_table(random, strategy, make=wish, count=8):
    names = [f"n{random.randrange(3)}/s{number}" for number in range(4)]
    entries = [
        Entry(random.choice(names) if strategy == "simple" else "", make(random))
        for _ in range(random.randrange(count))
    ]
    control = {"node-join": tuple(sorted(random.sample(range(99), 2)))} if entries else {}
    return Rows.of([entry for entry in entries if not entry.filter.is_nothing], control)


def choices_of_edges(random):
    """Prefixes, as in Chord; all but one, as in a tree; and any others."""
    yield from (EDGES[:count] for count in range(len(EDGES) + 1))
    yield from ([edge for edge in EDGES if edge != left_out] for left_out in EDGES)
    yield [edge for edge in EDGES if random.random() < 0.5]


def matched(filters, events):
    return [any(wanted.matches(event) for wanted in filters) for event in events]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("make", [wish, any_wish])
def test_step_by_step_is_from_scratch(name, make, seed):
    random = Random(seed)
    strategy = Strategy(settings_of(name))
    combination = strategy.combination()
    tables = {}
    for _ in range(25):
        source = random.choice([None, *EDGES])
        table = NO_ROWS if random.random() < 0.2 else random_table(random, name, make)
        if random.random() < 0.5 and source in tables:
            # A small change, as a subscription makes it.
            added, removed = tables[source].change_to(table)
            table = tables[source].changed(added[:1], removed[:1])
        tables[source] = table
        combination.replace(source, table)
        served = random.choice(list(choices_of_edges(random)))
        fresh = Strategy(strategy.settings).combination()
        for other, rows in tables.items():
            fresh.replace(other, rows)
        assert combination.rows(served) == fresh.rows(served)
        assert combination.rows(served) is combination.rows(served), "one object for all"


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", ["simple", "identity", "covering", "perfect"])
def test_rows_are_those_of_the_oracle(name, seed):
    random = Random(seed)
    combination = Strategy(settings_of(name)).combination()
    tables = {source: random_table(random, name) for source in (None, *EDGES)}
    for source, table in tables.items():
        combination.replace(source, table)
    for served in choices_of_edges(random):
        given = [
            [(entry.name, entry.filter) for entry in tables[source].entries]
            for source in (None, *served)
        ]
        expected = sorted((row_name, row.text) for row_name, row in oracle_rows(name, given))
        assert list(table_of(combination.rows(served))) == expected


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", STRATEGIES)
def test_rows_want_what_the_tables_want(name, seed):
    """Filters of all kinds: exact strategies want nothing else, imperfect merging may."""
    random = Random(seed)
    events = [*EVENTS[::5], *(Event("d", {}, body) for body in DOCUMENTS)]
    combination = Strategy(settings_of(name)).combination()
    tables = {source: random_table(random, name, any_wish, 6) for source in (None, *EDGES)}
    for source, table in tables.items():
        combination.replace(source, table)
    for served in choices_of_edges(random):
        rows = [entry.filter for entry in combination.rows(served).entries]
        wanted = [entry.filter for source in (None, *served) for entry in tables[source].entries]
        found, expected = matched(rows, events), matched(wanted, events)
        if name == "imperfect":
            assert all(found[place] for place, one in enumerate(expected) if one)
            assert len(rows) <= 12
        else:
            assert found == expected


@pytest.mark.parametrize("seed", range(10))
def test_control_rows_are_united_under_every_strategy(seed):
    random = Random(seed)
    for name in STRATEGIES:
        combination = Strategy(settings_of(name)).combination()
        tables = {source: random_table(random, name) for source in (None, *EDGES)}
        for source, table in tables.items():
            combination.replace(source, table)
        for served in choices_of_edges(random):
            given = [tables[source].control for source in (None, *served)]
            rows = dict(combination.rows(served).control)
            assert len(rows) == any(given)
            for key in range(100):
                expected = any(holds_key(dict(one).get("node-join", ()), key) for one in given)
                assert holds_key(rows.get("node-join", ()), key) == expected


def test_local_rows_have_names_under_simple_routing_only():
    me, subscriptions = PeerId("n1"), {"s1": Filter("a = 1"), "s2": Filter("a = 1")}
    named = Strategy(settings_of("simple")).local(me, subscriptions, {})
    assert [entry.name for entry in named.entries] == ["n1/s1", "n1/s2"]
    equal = Strategy(settings_of("identity")).local(me, subscriptions, {})
    assert [entry.name for entry in equal.entries] == [""]
    nothing = Strategy(settings_of("simple")).local(me, {"s": Filter("FALSE")}, {})
    assert nothing == NO_ROWS


# --- imperfect merging -------------------------------------------------------------------------


def merging(budget=0.0, sample=SAMPLE, rows_max=12, bytes_max=1 << 20):
    return BoundedMerging(budget, sample, rows_max, bytes_max, WireSizes())


@pytest.mark.parametrize("seed", range(20))
def test_the_budget_holds_on_the_sample(seed):
    random = Random(seed)
    filters = [wish(random) for _ in range(random.randrange(2, 20))]
    budget = random.choice([0.02, 0.1, 0.3])
    rows = merging(budget, rows_max=1000).merged(filters)
    before, after = matched(filters, SAMPLE), matched(rows, SAMPLE)
    assert all(now for now, then in zip(after, before, strict=True) if then)
    assert sum(after) - sum(before) <= budget * len(SAMPLE)
    assert len(rows) <= len({wanted.digest for wanted in filters})


def test_a_budget_merges_and_none_does_not():
    filters = [Filter(f"a = {value} AND b > {value}") for value in range(6)]
    assert len(merging(0.0).merged(filters)) == 6
    assert len(merging(0.5).merged(filters)) < 6


@pytest.mark.parametrize("sample", [SAMPLE, ()])
@pytest.mark.parametrize("seed", range(10))
def test_the_bound_on_rows_holds_whatever_it_costs(seed, sample):
    random = Random(seed)
    filters = [any_wish(random) for _ in range(40)]
    events = [*EVENTS, *(Event("d", {}, body) for body in DOCUMENTS)]
    before = matched(filters, events)
    for rows_max in (1, 3, 8, 20):
        rows = merging(0.0, sample, rows_max).merged(filters)
        assert len(rows) <= rows_max
        after = matched(rows, events)
        assert all(now for now, then in zip(after, before, strict=True) if then)


def test_the_result_does_not_depend_on_the_order():
    random = Random(5)
    filters = [Filter(f"a = {n % 7} AND b = {n % 5} AND c = {n % 3}") for n in range(30)]
    expected = merging(0.05, rows_max=8).merged(filters)
    assert 1 < len(expected) <= 8
    for _ in range(5):
        random.shuffle(filters)
        assert merging(0.05, rows_max=8).merged(filters) == expected


def test_rows_are_bounded_in_bytes():
    filters = [
        Filter(f"b = {number} AND a IN ({', '.join(str(number + 7 * i) for i in range(60))})")
        for number in range(12)
    ]
    unbounded = merging(0.0, ()).merged(filters)
    total = sum(len(row.to_bytes()) for row in unbounded)
    assert len(unbounded) == 12
    for bytes_max in (total // 2, total // 10, 50, 1):
        rows = merging(0.0, (), bytes_max=bytes_max).merged(filters)
        assert len(rows) == 1 or sum(len(row.to_bytes()) for row in rows) <= bytes_max
        assert all(any(row.covers(wanted) for row in rows) for wanted in filters)


def test_like_goes_to_like():
    """Two rows for four wishes: those that lose nothing by it go together."""
    texts = ["a = 1 AND b = 1", "a = 1 AND b = 2", "b = 5 AND c = 1", "b = 6 AND c = 1"]
    rows = merging(0.0, tuple(EVENTS), rows_max=2).merged(map(Filter, texts))
    assert sorted(row.text for row in rows) == ["a = 1 AND b IN (1, 2)", "b IN (5, 6) AND c = 1"]


def test_a_table_that_wants_nearly_all_says_so_in_one_row():
    filters = [Filter(f"a = {value} AND b >= 0") for value in range(7)]
    assert merging(0.0, rows_max=7).merged(filters) == sorted(filters, key=lambda f: f.digest)
    assert merging(0.0, rows_max=3).merged(filters) == [EVERYTHING]


def test_long_lists_become_ranges(monkeypatch):
    monkeypatch.setattr(bounded_merging, "HULL_CUTS_MAX", 16)
    filters = [Filter(f"a = {7 * number}") for number in range(40)]
    (row,) = merging(0.0, (), rows_max=1).merged(filters)
    assert row.text == "a BETWEEN 0 AND 273"


def test_tree_patterns_become_their_roots_and_then_any_document():
    patterns = [Filter.xpath(f"/a/b{number}") for number in range(8)]
    patterns += [Filter.xpath(f"//c/d{number}") for number in range(8)]
    roots = merging(rows_max=10).merged(patterns)
    assert sorted(row.text for row in roots) == ["//c", "/a"]
    many = [Filter.xpath(f"/a{number}") for number in range(20)]
    assert [row.text for row in merging(rows_max=10).merged(many)] == ["/*"]
    assert len(merging(rows_max=40).merged(many)) == 20


# --- exact reaches -----------------------------------------------------------------------------

BITS = 6
CIRCLE = ChordTopology(PeerId("n0"), 0, BITS)


def keys_of(reach):
    pairs = zip(reach[::2], reach[1::2], strict=True)
    return {(start + step) % (1 << BITS) for start, length in pairs for step in range(length)}


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("name", ["identity", "covering"])
def test_exact_reaches_against_sets_of_keys(name, seed):
    """A row goes to a publisher iff some owner lies in its scope, and no row above is there too."""
    random = Random(seed)
    strategy = Strategy(settings_of(name, exact_reach=True))
    combination = strategy.combination(CIRCLE)
    tables = {}
    for _ in range(12):
        source = random.choice([None, *EDGES])
        entries = [
            Entry("", wish(random), (random.randrange(1 << BITS), random.randint(1, 6)))
            for _ in range(random.randrange(6))
        ]
        tables[source] = Rows.of(entries)
        combination.replace(source, tables[source])
        served = random.choice(list(choices_of_edges(random)))
        scope = (random.randrange(1 << BITS), random.randint(1, 1 << BITS))
        owners = {}
        for one in (None, *served):
            for entry in tables.get(one, NO_ROWS).entries:
                here = keys_of(entry.reach) & keys_of(scope)
                if here:
                    owners.setdefault(entry.filter, set()).update(here)
        expected = {
            wanted: keys
            for wanted, keys in owners.items()
            if name == "identity"
            or not any(
                other.covers(wanted)
                and (not wanted.covers(other) or other.digest < wanted.digest)
                and keys <= owners[other]
                for other in owners
                if other != wanted
            )
        }
        rows = combination.rows(served, scope)
        assert {entry.filter: keys_of(entry.reach) for entry in rows.entries} == expected


# --- settings ----------------------------------------------------------------------------------


def test_settings_are_checked():
    with pytest.raises(SettingsError, match="simple, identity, covering, perfect, imperfect"):
        settings_from(StrategySettings, {"strategy": "clever"})
    with pytest.raises(ValueError, match="budget"):
        replace(StrategySettings(), budget=1.5)
    with pytest.raises(ValueError, match="rows_max"):
        replace(StrategySettings(), rows_max=0)
    with pytest.raises(ValueError, match="exact_reach"):
        StrategySettings(strategy="perfect", exact_reach=True)
    assert settings_from(StrategySettings, {"rows_max": "7"}).rows_max == 7
