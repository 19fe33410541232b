"""The matcher against its naive twin: ids compared, through all that can happen inside."""

from __future__ import annotations

import io
import os
import threading
import warnings
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from matching.populations import event, filter_text
from peersub import Event, Filter, Matcher
from peersub.matching import matcher as matcher_module
from peersub.matching.naive import NaiveMatcher


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds so low that a few subscriptions compile and merge."""
    monkeypatch.setattr(matcher_module, "FIRST_COMPILED_AT", 8)
    monkeypatch.setattr(matcher_module, "RECENT_MAX", 4)
    monkeypatch.setattr(matcher_module, "SMALL_BATCH_ROWS", 2)


def compile_recent(matcher: Matcher) -> None:
    """At once, however few there are."""
    from peersub.matching.segment import Segment

    matcher._unseal(Segment.of_filters(matcher._seal()))


def pairs(table: pa.Table) -> list[tuple[int, str]]:
    rows = table.column("event_row").to_pylist()
    return sorted(zip(rows, table.column("subscription_id").to_pylist(), strict=True))


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("seed", range(6))
def test_random_interleavings_equal_the_naive_twin(seed, tmp_path):
    random = Random(seed)
    matcher, twin = Matcher(), NaiveMatcher()
    ids: list[str] = []
    for step in range(150):
        action = random.random()
        if ids and action < 0.3:
            gone = ids.pop(random.randrange(len(ids)))
            matcher.remove(gone)
            twin.remove(gone)
        elif action < 0.33:
            matcher.save(tmp_path / "saved")
            matcher = Matcher.open(tmp_path / "saved")
        else:
            wanted = Filter(filter_text(random))
            ids.append(f"s{step}")
            matcher.add(ids[-1], wanted)
            twin.add(ids[-1], wanted)
        seen = event(random)
        assert sorted(matcher.match(seen)) == sorted(twin.match(seen)), f"seed {seed} step {step}"
        assert len(matcher) == len(twin)
    for name in random.sample(ids, len(ids)):
        assert name in matcher
        matcher.remove(name)
        assert name not in matcher
    matcher.settle()
    assert len(matcher) == 0
    assert matcher.match({"a": 1}) == []


class Interleavings(RuleBasedStateMachine):
    """Add, remove and match in any order; Hypothesis shrinks a failure to a short program."""

    @initialize()
    def start(self) -> None:
        self.matcher, self.twin, self.count = Matcher(), NaiveMatcher(), 0

    @rule(seed=st.integers(0, 10_000), copies=st.integers(1, 5))
    def add(self, seed: int, copies: int) -> None:
        wanted = Filter(filter_text(Random(seed)))
        for _ in range(copies):
            self.count += 1
            self.matcher.add(f"s{self.count}", wanted)
            self.twin.add(f"s{self.count}", wanted)

    @rule(choice=st.integers(0, 1_000))
    def remove(self, choice: int) -> None:
        names = [f"s{n}" for n in range(1, self.count + 1) if f"s{n}" in self.twin]
        if names:
            name = names[choice % len(names)]
            self.matcher.remove(name)
            self.twin.remove(name)

    @rule(seed=st.integers(0, 10_000))
    def match(self, seed: int) -> None:
        seen = event(Random(seed))
        assert sorted(self.matcher.match(seen)) == sorted(self.twin.match(seen))

    @invariant()
    def counts_agree(self) -> None:
        assert len(self.matcher) == len(self.twin)


@pytest.mark.usefixtures("eager")
def test_any_program_equals_the_naive_twin():
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(Interleavings, settings=settings(stateful_step_count=30))


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_batch_equals_its_events_one_by_one(threads):
    random = Random(threads)
    matcher, twin = Matcher(), NaiveMatcher()
    for number in range(60):
        wanted = Filter(filter_text(random))
        matcher.add(f"s{number}", wanted)
        twin.add(f"s{number}", wanted)
    for name in ("s3", "s40", "s59"):
        matcher.remove(name)
        twin.remove(name)
    events = [
        {"a": number % 7, "b": random.choice(["ab", "b", None]), "r": {"x": number / 2}}
        for number in range(101)
    ]
    expected = sorted((row, name) for row, seen in enumerate(events) for name in twin.match(seen))
    found = matcher.match_batch(pa.Table.from_pylist(events), threads=threads)
    assert pairs(found) == expected
    assert expected, "the populations must meet"
    # Cut into chunks and slices, the batch is the same batch.
    chunked = pa.concat_tables(
        [pa.Table.from_pylist(events[:40]), pa.Table.from_pylist(events[40:])]
    )
    assert pairs(matcher.match_batch(chunked, threads=threads)) == expected
    later = [(row - 10, name) for row, name in expected if row >= 10]
    assert pairs(matcher.match_batch(chunked.slice(10), threads=threads)) == later


def test_small_batches_are_matched_without_compiling():
    matcher = Matcher()
    matcher.add("s1", Filter("a > 1"))
    found = matcher.match_batch(pa.table({"a": [1, 2, None]}))
    assert pairs(found) == [(1, "s1")]
    assert matcher.match_batch(pa.RecordBatch.from_pydict({"a": [5]})).num_rows == 1
    with pytest.raises(TypeError, match="pyarrow Table"):
        matcher.match_batch([{"a": 5}])


def test_a_disjunction_reports_its_subscription_once():
    for compiled in (False, True):
        matcher = Matcher()
        matcher.add("s1", Filter("a = 1 OR b = 1 OR c > 0"))
        if compiled:
            compile_recent(matcher)
        assert matcher.match({"a": 1, "b": 1, "c": 1}) == ["s1"]


def test_equal_filters_share_one_entry(tmp_path):
    matcher = Matcher()
    for number in range(5):
        matcher.add(f"s{number}", Filter(["a > 1", "1 < a"][number % 2]))
    assert len(matcher._recent._index) == 1
    compile_recent(matcher)
    assert matcher._segments[0].conjuncts.conjunct_count == 1
    matcher.remove("s2")
    assert matcher.match({"a": 2}) == ["s0", "s1", "s3", "s4"]
    matcher.save(tmp_path / "saved")
    assert Matcher.open(tmp_path / "saved").match({"a": 2}) == ["s0", "s1", "s3", "s4"]


def test_ids_are_unique_and_known():
    matcher = Matcher()
    matcher.add("s1", Filter("a = 1"))
    with pytest.raises(ValueError, match="'s1' is there already"):
        matcher.add("s1", Filter("b = 1"))
    with pytest.raises(KeyError, match="s2"):
        matcher.remove("s2")
    compile_recent(matcher)
    with pytest.raises(ValueError, match="'s1' is there already"):
        matcher.add("s1", Filter("b = 1"))
    matcher.remove("s1")
    matcher.add("s1", Filter("b = 1"))
    assert matcher.match({"a": 1, "b": 1}) == ["s1"]


def test_xpath_patterns_live_beside_sql_filters(tmp_path):
    matcher = Matcher()
    matcher.add("sql", Filter("price > 10"))
    matcher.add("pattern", Filter.xpath("/news//p[@lede]"))
    matcher.add("same", Filter.xpath("/news//p[@lede]"))
    document = b"<news><body><p lede='yes'>x</p></body></news>"
    assert matcher.match(document) == ["pattern", "same"]
    both = Event("e1", {"price": 12}, document)
    assert matcher.match(both) == ["sql", "pattern", "same"]
    assert matcher.match({"price": 12, "body": document.decode()}) == ["sql", "pattern", "same"]
    table = pa.table({"price": [12, 1], "body": [document, b"<news/>"]})
    assert pairs(matcher.match_batch(table)) == [(0, "pattern"), (0, "same"), (0, "sql")]
    matcher.save(tmp_path / "saved")
    reopened = Matcher.open(tmp_path / "saved")
    assert reopened.match(both) == ["sql", "pattern", "same"]
    reopened.remove("same")
    reopened.remove("pattern")
    assert reopened.match(both) == ["sql"]


def test_what_is_no_saved_matcher_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no saved matcher"):
        Matcher.open(tmp_path)
    matcher = Matcher()
    for number in range(3):
        matcher.add(f"s{number}", Filter(f"a > {number}"))
    matcher.save(tmp_path / "saved")
    array = next((tmp_path / "saved" / "segment-0").glob("*entry_rows.npy"))
    array.write_bytes(b"damaged")
    with pytest.raises(ValueError, match="is damaged"):
        Matcher.open(tmp_path / "saved")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="no saved matcher"):
        matcher.save(tmp_path)


def test_every_damaged_or_strange_array_is_refused(tmp_path):
    matcher = Matcher()
    for number in range(3):
        matcher.add(f"s{number}", Filter(f"a > {number}"))
    matcher.save(tmp_path / "saved")
    array = next((tmp_path / "saved" / "segment-0").glob("*entry_rows.npy"))
    whole = array.read_bytes()
    objects = io.BytesIO()
    np.save(objects, np.array([None, "x"], dtype=object), allow_pickle=True)
    later = whole.replace(b"NUMPY\x01", b"NUMPY\x03")
    for content in (b"", b"\x93NUMPY", whole[:20], whole[:-1], later, objects.getvalue()):
        array.write_bytes(content)
        with pytest.raises(ValueError, match="is damaged"):
            Matcher.open(tmp_path / "saved")
    array.write_bytes(whole)
    assert Matcher.open(tmp_path / "saved").match({"a": 9}) == ["s0", "s1", "s2"]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no list of open files here")
def test_an_open_matcher_keeps_no_file_open(tmp_path):
    """Workers have hundreds of matchers open, of some fifty arrays each."""
    matcher = Matcher.from_texts(["s0", "s1"], ["a > 1", "a > 2"], processes=1)
    matcher.save(tmp_path / "saved")
    Matcher.open(tmp_path / "saved")
    before = len(os.listdir("/proc/self/fd"))
    opened = [Matcher.open(tmp_path / "saved") for _ in range(20)]
    assert len(os.listdir("/proc/self/fd")) == before
    assert {tuple(each.match({"a": 3})) for each in opened} == {("s0", "s1")}


@pytest.mark.usefixtures("eager")
def test_no_event_sees_a_half_applied_change():
    """While others come and go, compile and merge, a lasting subscription is found exactly once."""
    matcher = Matcher()
    lasting = [f"lasting{number}" for number in range(6)]
    for name in lasting:
        matcher.add(name, Filter("a = 1 OR b = 1"))
    table = pa.table({"a": [1] * 3, "b": [1] * 3})
    done = threading.Event()
    failures: list[object] = []

    def read() -> None:
        try:
            while not done.is_set():
                found = [name for name in matcher.match({"a": 1, "b": 1}) if name in lasting]
                assert sorted(found) == lasting
                batch = [p for p in pairs(matcher.match_batch(table, threads=1)) if p[1] in lasting]
                assert batch == [(row, name) for row in range(3) for name in lasting]
        except BaseException as failure:  # reported by the main thread
            failures.append(failure)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    random = Random(5)
    for number in range(200):
        matcher.add(f"s{number}", Filter(f"a = {number % 3} OR b = {number % 5}"))
        if number > 10 and random.random() < 0.6:
            name = f"s{random.randrange(number)}"
            if name in matcher:
                matcher.remove(name)
        if failures:
            break
    done.set()
    for reader in readers:
        reader.join()
    matcher.settle()
    assert not failures, failures[0]


@pytest.mark.usefixtures("eager")
def test_who_adds_never_compiles_and_sees_everything_meanwhile(monkeypatch):
    """What is compiled can be asked, removed and added again before that is done."""
    from peersub.matching.merging import Merge
    from peersub.matching.segment import Segment

    begun, go_on = threading.Event(), threading.Event()
    compiled_by: list[int] = []
    of_filters, merged = Segment.of_filters, Merge.compiled

    def held_up(subscriptions):
        compiled_by.append(threading.get_ident())
        begun.set()
        if compiled_by[-1] != me:
            assert go_on.wait(60)
        return of_filters(subscriptions)

    def noted(plan):
        compiled_by.append(threading.get_ident())
        return merged(plan)

    me = threading.get_ident()
    monkeypatch.setattr(Segment, "of_filters", held_up)
    monkeypatch.setattr(Merge, "compiled", noted)
    matcher, twin = Matcher(), NaiveMatcher()

    def is_like_its_twin() -> None:
        assert len(matcher) == len(twin)
        for value in range(-1, 120, 7):
            assert sorted(matcher.match({"a": value})) == sorted(twin.match({"a": value}))
            assert matcher.matches_any({"a": value}) == bool(twin.match({"a": value}))

    for number in range(8):
        for each in (matcher, twin):
            each.add(f"s{number}", Filter(f"a > {number}"))
    assert begun.wait(60)
    is_like_its_twin()
    for each in (matcher, twin):
        each.remove("s2")
        each.remove("s3")
        each.add("s3", Filter("a < 3"))
        for number in range(8, 100):
            each.add(f"s{number}", Filter(f"a > {number}"))
    is_like_its_twin()
    table = pa.table({"a": [3, 50]})
    assert pairs(matcher.match_batch(table)) == [
        (row, name) for row in range(2) for name in sorted(twin.match(table.to_pylist()[row]))
    ]
    assert compiled_by.count(me) == 0
    go_on.set()
    matcher.settle()
    is_like_its_twin()
    for number in range(100, 120):
        for each in (matcher, twin):
            each.add(f"s{number}", Filter(f"a > {number}"))
    matcher.settle()
    is_like_its_twin()
    assert len(compiled_by) > 2
    assert me not in compiled_by


def test_text_tests_in_sliced_columns_of_mixed_kinds(monkeypatch):
    """A union column, cut anywhere, gives its strings to LIKE and its numbers to none."""
    from peersub.events.arrow import table_of_rows

    monkeypatch.setattr(matcher_module, "SMALL_BATCH_ROWS", 0)
    matcher, twin = Matcher(), NaiveMatcher()
    for name, text in (
        ("like", "a LIKE '%b%'"),
        ("not", "a NOT LIKE '%b%'"),
        ("r", "a RLIKE 'c$'"),
    ):
        matcher.add(name, Filter(text))
        twin.add(name, Filter(text))
    values = ["abc", 1, None, "xyz", 2.5, "b", True, "c", 7, "bc"]
    rows = [{"a": value, "n": number} for number, value in enumerate(values)]
    table = table_of_rows(rows)
    for start in range(len(rows)):
        expected = [(n, name) for n, row in enumerate(rows[start:]) for name in twin.match(row)]
        assert pairs(matcher.match_batch(table.slice(start))) == sorted(expected)


def test_threads_of_a_parent_are_not_waited_for_after_a_fork():
    """Spark forks its workers: a child must match with threads of its own."""
    matcher = Matcher()
    matcher.add("s1", Filter("a > 1"))
    compile_recent(matcher)
    table = pa.table({"a": [1, 2, 3, 4]})
    expected = pairs(matcher.match_batch(table, threads=2))
    with warnings.catch_warnings():
        # Forking beside threads is what is tested here; newer Pythons warn of it.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        same = False
        try:
            same = pairs(matcher.match_batch(table, threads=2)) == expected
        finally:
            os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0
