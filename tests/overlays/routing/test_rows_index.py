"""Rows asked about many events: the index that is made on the way answers as each filter does."""

from random import Random

from peersub.filters import Filter
from peersub.overlays.core.publication import Publication
from peersub.overlays.routing import rows as rows_module
from peersub.overlays.routing.messages import Entry
from peersub.overlays.routing.rows import Rows, row_key


def wishes(random, count):
    for _ in range(count):
        low = random.randrange(100)
        texts = [
            f"price >= {low} AND price < {low + 3}",
            f"symbol = 'S{low % 7}' AND price > {low}",
            f"symbol LIKE '%{low % 10}' OR price = {low}",
        ]
        yield Filter(random.choice(texts))


def events(random, count):
    for number in range(count):
        event = {"price": random.randrange(110), "symbol": f"S{random.randrange(12)}"}
        yield Publication(f"e{number}", event)


def test_the_index_finds_the_rows_that_want_an_event():
    random = Random(3)
    rows = Rows.of(Entry("", wanted) for wanted in wishes(random, 120))
    for event in events(random, rows_module.INDEX_AFTER + 200):
        found = sorted(entry.filter.digest for entry in rows.wanting(event))
        asked = [entry.filter for entry in rows.entries]
        assert found == sorted(each.digest for each in asked if each.matches(event.event))
        assert rows.want(event) == bool(found)
    assert rows._index is not None


def test_few_rows_have_no_index():
    random = Random(4)
    rows = Rows.of(Entry("", wanted) for wanted in wishes(random, rows_module.INDEX_FROM - 1))
    for event in events(random, rows_module.INDEX_AFTER + 5):
        list(rows.wanting(event))
    assert rows._index is None


def test_an_index_that_is_not_whole_yet_misses_no_row_and_follows_changes():
    random = Random(5)
    rows = Rows.of(Entry("", wanted) for wanted in wishes(random, 120))
    indexed = []
    for event in events(random, rows_module.INDEX_AFTER + 100):
        if random.random() < 0.5:
            entries = rows.entries
            added = [Entry("", wanted) for wanted in wishes(random, 1)]
            rows = rows.changed(added, [row_key(random.choice(entries))])
        found = sorted(entry.filter.digest for entry in rows.wanting(event))
        asked = [entry.filter for entry in rows.entries]
        assert found == sorted(each.digest for each in asked if each.matches(event.event))
        assert rows.want(event) == bool(found)
        if rows._index is not None:
            indexed.append(len(rows._index))
    assert 0 < indexed[0] < 10, "no event waits for all rows"
    assert indexed[-1] == len(rows)
