"""Rows: changes, digests, and what they take on the wire."""

from random import Random

import pytest

from overlays.routing.wishes import wish
from peersub.filters.filter import Filter
from peersub.overlays.routing.control_filters import control_filter
from peersub.overlays.routing.messages import Entry
from peersub.overlays.routing.rows import NO_ROWS, Rows, WireSizes, row_key

CONTROL = ("node-join", "node-location")


def random_rows(random: Random, count: int) -> Rows:
    entries = [
        Entry(random.choice(("", "n1/s")), wish(random), random.choice(((), (1, 2))))
        for _ in range(random.randrange(count))
    ]
    control = {
        name: tuple(sorted(random.sample(range(100), 2)))
        for name in CONTROL
        if random.random() < 0.5
    }
    return Rows.of(entries, control)


@pytest.mark.parametrize("seed", range(60))
def test_a_change_leads_to_the_other_rows(seed):
    random = Random(seed)
    old, new = random_rows(random, 25), random_rows(random, 25)
    for before, after in ((old, new), (old, old), (NO_ROWS, new), (old, NO_ROWS)):
        added, removed = before.change_to(after)
        reached = before.changed(added, removed)
        assert reached == after
        assert reached.digest == after.digest
        if before == after:
            assert (added, removed) == ((), ())


@pytest.mark.parametrize("seed", range(20))
def test_the_digest_follows_from_the_rows_alone(seed):
    random = Random(seed)
    rows = random_rows(random, 20)
    shuffled = list(rows.entries)
    random.shuffle(shuffled)
    grown = Rows((), rows.control)
    for entry in shuffled:
        grown = grown.changed([entry], [])
    assert grown.entries == rows.entries
    assert grown.digest == rows.digest == Rows.of(shuffled, dict(rows.control)).digest
    for entry in rows.entries:
        without = rows.changed([], [row_key(entry)])
        assert without.digest != rows.digest
        assert without.find(row_key(entry)) is None
        assert without.changed([entry], []).digest == rows.digest


def test_every_part_of_a_row_is_in_the_digest():
    wanted = Filter("a = 1")
    variants = [
        Rows.of([Entry("", wanted)]),
        Rows.of([Entry("n1/s", wanted)]),
        Rows.of([Entry("", wanted, (1, 2))]),
        Rows.of([Entry("", Filter("a = 2"))]),
        Rows.of([Entry("", wanted)], {"node-join": (1, 2)}),
        Rows.of([Entry("", wanted)], {"node-join": (1, 3)}),
        Rows.of([Entry("", wanted)], {"node-location": (1, 2)}),
        NO_ROWS,
    ]
    digests = [rows.digest for rows in variants]
    assert len(dict.fromkeys(digests)) == len(digests)


def test_control_rows_travel_as_filters():
    rows = Rows.of([], {"node-join": (3, 9)})
    assert rows.wire_entries() == [Entry("node-join", control_filter("node-join", [(3, 9)]))]
    with pytest.raises(ValueError, match="node-join"):
        rows.changed([Entry("node-join", Filter("a = 1"))], [])


def test_sizes_follow_the_encoded_filters():
    small, large = Filter("a = 1"), Filter(f"a IN ({', '.join(map(str, range(100)))})")
    sizes = WireSizes()
    assert sizes.of_filter(large) == len(large.to_bytes())
    difference = sizes.of_rows(Rows.of([Entry("", large)])) - sizes.of_rows(
        Rows.of([Entry("", small)])
    )
    assert difference == len(large.to_bytes()) - len(small.to_bytes())
    assert sizes.of_rows(NO_ROWS) == 0
