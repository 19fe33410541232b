"""Damaged files: whatever can be read is in the new one, and people are told."""

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from peersub.filters import Filter
from peersub.overlays.core.publication import Publication
from peersub.overlays.core.records import EventStored, IdentityStored
from peersub.runtime.store import Store, reading
from peersub.runtime.store.changes import (
    CommitStaged,
    KeepRecord,
    MirrorStored,
    MoveCursor,
    NameNode,
    RetainEvent,
    StagePublications,
)
from peersub.runtime.store.pages import DatabasePages, has_shape
from peersub.runtime.store.schema import PAGE_BYTES, TABLES
from peersub.runtime.store.write_ahead import read_write_ahead
from peersub.wire import sealed, values
from peersub.wire.limits import VALUES_MAX
from runtime.store.store_helpers import (
    BEGIN_MS,
    WANTED,
    Clock,
    described,
    durable,
    event,
    handed_over,
    logged,
    stored,
    write,
)

EVENTS = 400


def fill(folder: Path) -> None:
    """A store with rows in every table, some of them on many pages and on overflow pages."""
    with Store(folder, now_ms=Clock()) as store:
        fill_store(store)


def fill_store(store: Store) -> None:
    write(store, NameNode("n1"), KeepRecord(IdentityStored(b"me")), durable("d"), durable("f"))
    for first in range(0, EVENTS, 10):
        numbers = range(first, first + 10)
        write(store, *map(logged_event, numbers))
        write(store, *(handed_over(f"e{number}") for number in numbers if number % 2))
    write(store, MoveCursor("d", 5), stored("only kept"))
    write(store, MirrorStored("n2", "m", WANTED, b"", BEGIN_MS))
    write(store, RetainEvent("n2", event("r1"), ("m",), BEGIN_MS))
    write(store, StagePublications("k", (event("p1"), event("p2"))), CommitStaged("k"))


def logged_event(number: int) -> KeepRecord:
    size = 9_000 if number % 50 == 7 else 100
    return stored(f"e{number}", "d", *(("f",) if number % 3 else ()), size=size)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound")
    fill(folder)
    return folder


@pytest.fixture
def folder(sound, tmp_path):
    shutil.copy(sound / "node.sqlite", tmp_path / "node.sqlite")
    return tmp_path


def contents(folder: Path) -> dict[str, list[tuple]]:
    """All rows of a sound database, by table; asked from SQLite itself."""
    connection = sqlite3.connect(folder / "node.sqlite")
    rows = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in TABLES}
    rows["log_entries"] = connection.execute("SELECT * FROM log_entries").fetchall()
    connection.close()
    return {name: sorted(found, key=repr) for name, found in rows.items()}


def overwrite(folder: Path, place: int, data: bytes) -> None:
    with open(folder / "node.sqlite", "r+b") as file:
        file.seek(place)
        file.write(data)


def salvaged(folder: Path) -> Store:
    """The store, opened again; that it had to be salvaged is checked."""
    before = (folder / "node.sqlite").read_bytes()
    store = Store(folder, now_ms=Clock())
    assert len(store.notices) == 1
    assert "was damaged" in store.notices[0] and "damaged-1" in store.notices[0]
    assert (folder / "node.sqlite.damaged-1").read_bytes() == before
    return store


FACTS_THAT_CHANGE = {"incarnation", "lives", "log epoch"}


def lasting(name: str, rows: list[tuple]) -> list[tuple]:
    """What a salvage does not change: a subscription counts it as a gap."""
    columns = [
        place
        for place, column in enumerate(TABLES[name].names if name in TABLES else "ab")
        if name != "subscriptions" or column not in ("gaps", "checked")
    ]
    return [
        tuple(row[place] for place in columns) for row in rows if row[0] not in FACTS_THAT_CHANGE
    ]


def assert_all_there(folder: Path, sound: Path) -> None:
    found, expected = contents(folder), contents(sound)
    for name in expected:
        assert lasting(name, found[name]) == lasting(name, expected[name])


# --- the reader of pages -----------------------------------------------------------------------


def test_no_two_tables_have_rows_of_one_shape():
    samples = {"N": [None], "I": [1], "T": ["a"], "B": [b"a"], "i": [None, 1], "b": [None, b"a"]}
    for name, table in TABLES.items():
        assert len(table.names) == len(table.shape)
        for choice in (0, -1):
            row = tuple(samples[kind][choice] for kind in table.shape)
            fitting = [other for other, t in TABLES.items() if has_shape(row, t.shape)]
            assert fitting == [name]


def pages_of(data: bytes) -> DatabasePages:
    return DatabasePages(
        lambda number: data[(number - 1) * PAGE_BYTES : number * PAGE_BYTES],
        len(data) // PAGE_BYTES,
        PAGE_BYTES,
    )


def test_pages_give_the_rows_that_sqlite_gives(sound):
    pages = pages_of((sound / "node.sqlite").read_bytes())
    roots = pages.roots()
    expected = contents(sound)
    for name, table in TABLES.items():
        rows = [
            (rowid, *values[1:]) if table.shape[0] == "N" else values
            for rowid, values in pages.tree(roots[name])
        ]
        assert sorted(rows, key=repr) == expected[name]


def test_rows_of_all_sizes_are_read(tmp_path):
    """Where a row does not fit a page, how much of it stays there depends on its size."""
    rows = [
        (number, bytes([number % 256]) * size) for number, size in enumerate(range(0, 14_000, 37))
    ]
    connection = sqlite3.connect(tmp_path / "rows")
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    connection.execute("CREATE TABLE sizes (number INTEGER PRIMARY KEY, content BLOB)")
    connection.executemany("INSERT INTO sizes VALUES (?, ?)", rows)
    connection.commit()
    connection.close()
    pages = pages_of((tmp_path / "rows").read_bytes())
    found = [(rowid, values[1]) for rowid, values in pages.tree(pages.roots()["sizes"])]
    assert found == rows


@pytest.mark.parametrize("seed", range(20))
def test_any_bytes_are_read_without_an_error(sound, seed):
    drawn = random.Random(seed)
    data = bytearray((sound / "node.sqlite").read_bytes())
    for _ in range(2_000):
        data[drawn.randrange(len(data))] = drawn.randrange(256)
    pages = pages_of(bytes(data))
    for root in pages.roots().values():
        list(pages.tree(root))
    list(pages.orphans())


# --- kinds of damage ---------------------------------------------------------------------------


def test_a_lost_header_loses_no_row(folder, sound):
    overwrite(folder, 0, b"\xff" * 100)
    with salvaged(folder) as store:
        assert store.node_name == "n1"
        assert store.cursor("d") == 5
    assert_all_there(folder, sound)


def test_a_lost_first_page_loses_no_row(folder, sound):
    overwrite(folder, 0, bytes(PAGE_BYTES))
    salvaged(folder).close()
    assert_all_there(folder, sound)


def test_lost_roots_of_trees_lose_no_row_that_stands_elsewhere(folder, sound):
    connection = sqlite3.connect(folder / "node.sqlite")
    (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'log'").fetchone()
    connection.close()
    overwrite(folder, (root - 1) * PAGE_BYTES, b"\xff" * PAGE_BYTES)
    salvaged(folder).close()
    assert_all_there(folder, sound)


def test_a_lost_leaf_costs_its_own_rows_only(folder, sound):
    expected = contents(sound)
    data = (folder / "node.sqlite").read_bytes()
    place = data.index(b"e200") // PAGE_BYTES * PAGE_BYTES
    overwrite(folder, place, b"\xff" * PAGE_BYTES)
    salvaged(folder).close()
    found = contents(folder)
    lost = sum(len(expected[name]) - len(found[name]) for name in TABLES)
    assert 0 < lost < PAGE_BYTES // 10
    for name in TABLES:
        rest = lasting(name, found[name])
        assert set(map(repr, rest)) <= set(map(repr, lasting(name, expected[name])))


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_a_file_cut_off_keeps_what_stands_before(folder, sound, part):
    data = (folder / "node.sqlite").read_bytes()
    left = data[: int(len(data) * part)]
    (folder / "node.sqlite").write_bytes(left)
    salvaged(folder).close()
    found, expected = contents(folder), contents(sound)
    for name in TABLES:
        rest = lasting(name, found[name])
        assert set(map(repr, rest)) <= set(map(repr, lasting(name, expected[name])))
    whole = left[: len(left) // PAGE_BYTES * PAGE_BYTES]
    readable = {row[0] for row in expected["log"] if row[6] + row[7] in whole}
    assert readable <= {row[0] for row in found["log"]}
    assert part < 0.5 or len(readable) > EVENTS / 4


@pytest.mark.parametrize("content", [b"", b"no database at all\n" * 1_000, bytes(10_000)])
def test_a_file_that_is_no_database_is_put_aside(tmp_path, content):
    (tmp_path / "node.sqlite").write_bytes(content)
    with salvaged(tmp_path) as store:
        assert "nothing" in store.notices[0]
        write(store, durable("d"), stored("e1", "d"))
    with Store(tmp_path, now_ms=Clock()) as store:
        assert store.notices == []
        assert logged(store, "d") == ["e1"]


@pytest.mark.parametrize("seed", range(12))
def test_bytes_overwritten_anywhere_never_give_a_wrong_event(folder, sound, seed):
    drawn = random.Random(seed)
    size = (folder / "node.sqlite").stat().st_size
    for _ in range(3):
        overwrite(folder, drawn.randrange(size), drawn.randbytes(drawn.randrange(1, 3_000)))
    expected = {row[4]: row[4:] for row in contents(sound)["log"]}
    with Store(folder, now_ms=Clock()) as store:
        for name in [found.name for found in store.durable_subscriptions()]:
            for entry in store.read_log(name, 0, 10_000):
                event_id, delivery, attributes, body, _ = expected[entry.publication.id]
                assert entry.publication.id == event_id
                assert entry.publication.delivery == delivery
                assert (entry.publication.packed, entry.publication.body) == (attributes, body)
        store.restored_records()
        write(store, durable("new"), stored("new", "new"))
        assert logged(store, "new") == ["new"]


def test_a_damaged_event_is_named_and_costs_no_other(folder):
    with Store(folder, now_ms=Clock()) as store:
        before = logged(store, "d")
    overwrite(folder, place_of_event(folder, "e20"), b"e2X")
    with salvaged(folder) as store:
        assert "some events of the log are not as they were written" in store.notices[0]
        assert "(damaged themselves: 1 events of the log)" in store.notices[0]
        assert set(before) - set(logged(store, "d")) == {"e20"}
        assert [found.gaps for found in store.durable_subscriptions()] == [1, 1]


def test_an_event_that_is_damaged_while_the_store_is_open_is_passed_over(folder):
    with Store(folder, now_ms=Clock()) as store:
        before = logged(store, "d")
        overwrite(folder, place_of_event(folder, "e20"), b"e2X")
    with closing(sqlite3.connect(folder / "node.sqlite")) as connection:
        found = reading.read_log(connection, "d", before.index("e20"), 1)
    assert found[0].publication.id == "e21"


def place_of_event(folder: Path, name: str) -> int:
    """Where the log has the event: SQLite itself sees nothing wrong with other bytes there."""
    data = (folder / "node.sqlite").read_bytes()
    return data.index(described(event(name))[2]["name"].encode() + b"\0" * 100)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE subscriptions SET cursor = cursor + 1 WHERE name = 'd'",
        "DELETE FROM log_entries WHERE position = 17",
        "UPDATE log SET subscriptions = x'9102' WHERE position = 17",
        "DELETE FROM log WHERE position = 17",
        "DELETE FROM facts WHERE name = 'log epoch'",
        "UPDATE history SET event_id = CAST(x'65ff' AS TEXT) WHERE number = 3",
        "UPDATE mirrored SET home = CAST(x'65ff' AS TEXT)",
        "UPDATE log SET event_id = CAST(x'65ff' AS TEXT) WHERE position = 3",
    ],
)
def test_content_that_nobody_wrote_is_noticed(folder, change):
    with closing(sqlite3.connect(folder / "node.sqlite")) as connection:
        connection.execute(change)
        connection.commit()
    with salvaged(folder) as store:
        assert all(found.gaps == 1 for found in store.durable_subscriptions())


def test_a_filter_that_cannot_be_read_costs_one_subscription(folder):
    connection = sqlite3.connect(folder / "node.sqlite")
    connection.execute("UPDATE subscriptions SET filter = x'ff00' WHERE name = 'f'")
    connection.commit()
    connection.close()
    with salvaged(folder) as store:
        assert [found.name for found in store.durable_subscriptions()] == ["d"]
        assert "the filter of the subscription 'f' cannot be read" in store.notices[0]
        assert len(logged(store, "d")) == EVENTS
    assert {number for number, _ in contents(folder)["log_entries"]} == {1}


def test_a_salvage_brings_nothing_deleted_back_and_gives_no_position_again(tmp_path):
    clock = Clock()
    with Store(tmp_path, now_ms=clock) as store:
        write(store, durable("d"), *(stored(f"e{number}", "d") for number in range(500)))
        clock.ms += 10**12
        write(store, *(handed_over(f"e{number}") for number in range(500)))
        assert logged(store, "d") == []
    overwrite(tmp_path, 0, bytes(100))
    with Store(tmp_path, now_ms=clock) as store:
        assert "was damaged" in store.notices[0]
        assert store.last_position() == 500
        # What was deleted stays so, though nothing says any more which pages are free.
        assert logged(store, "d") == []
        assert len(store.restored_records()) == 1


def test_a_salvage_begins_a_new_epoch_and_goes_on_after_all_positions(folder):
    with Store(folder, now_ms=Clock()) as store:
        epoch, last = store.log_epoch, store.last_position()
    overwrite(folder, 0, bytes(200))
    with salvaged(folder) as store:
        assert store.log_epoch != epoch
        write(store, durable("g"), stored("next", "g"))
        assert store.read_log("g", 0, 1)[0].position == last + 1
        epoch = store.log_epoch
    with Store(folder, now_ms=Clock()) as store:
        assert store.log_epoch == epoch


def test_each_damaged_file_is_kept_under_a_name_of_its_own(folder):
    for number in (1, 2):
        overwrite(folder, 0, bytes([number]) * 200)
        damaged = (folder / "node.sqlite").read_bytes()
        with Store(folder, now_ms=Clock()) as store:
            assert f"damaged-{number}" in store.notices[0]
            assert Filter("a = 1") == store.durable_subscriptions()[0].filter
        assert (folder / f"node.sqlite.damaged-{number}").read_bytes() == damaged


def test_an_interrupted_salvage_is_finished(folder, sound, monkeypatch):
    overwrite(folder, 0, bytes(200))
    damaged = (folder / "node.sqlite").read_bytes()

    def crash(self, target):
        if self.name.endswith(".salvaged"):
            raise KeyboardInterrupt
        return replace(self, target)

    replace = Path.replace
    monkeypatch.setattr(Path, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        Store(folder, now_ms=Clock())
    monkeypatch.undo()
    with Store(folder, now_ms=Clock()) as store:
        assert "interrupted" in store.notices[0]
    assert (folder / "node.sqlite.damaged-1").read_bytes() == damaged
    assert not (folder / "node.sqlite.damaged-2").exists()
    assert_all_there(folder, sound)


# --- the write-ahead file ----------------------------------------------------------------------


@pytest.fixture
def crashed(tmp_path):
    """The files of a store as a crash leaves them: much of it in the write-ahead file only."""
    with Store(tmp_path / "living", now_ms=Clock()) as store:
        fill_store(store)
        folder = tmp_path / "crashed"
        folder.mkdir()
        for name in ("node.sqlite", "node.sqlite-wal"):
            shutil.copy(tmp_path / "living" / name, folder / name)
    assert (folder / "node.sqlite-wal").stat().st_size > 100 * PAGE_BYTES
    return folder


def test_a_sound_write_ahead_file_is_no_damage(crashed):
    data = (crashed / "node.sqlite-wal").read_bytes()
    assert not read_write_ahead(data, PAGE_BYTES).is_damaged
    # A crash cuts the last transaction off anywhere.
    for cut in range(1, 3 * PAGE_BYTES, 997):
        assert not read_write_ahead(data[:-cut], PAGE_BYTES).is_damaged
    with Store(crashed, now_ms=Clock()) as store:
        assert store.notices == []
        assert len(logged(store, "d")) == EVENTS


@pytest.mark.parametrize("place", [10, 50_000, 200_000])
def test_a_damaged_write_ahead_file_does_not_silently_lose_what_follows(crashed, place):
    with open(crashed / "node.sqlite-wal", "r+b") as file:
        file.seek(place)
        file.write(b"\xff" * 50)
    with Store(crashed, now_ms=Clock()) as store:
        assert "its write-ahead file is damaged" in store.notices[0]
        assert len(logged(store, "d")) > EVENTS * 0.9
        assert logged(store, "d")[-1] == f"e{EVENTS - 1}"
        assert store.committed_keys() == ["k"]
    assert (crashed / "node.sqlite.damaged-1-wal").exists()


def test_a_damaged_database_is_salvaged_with_its_write_ahead_file(crashed):
    overwrite(crashed, 0, b"\xff" * 100)
    (crashed / "node.sqlite").write_bytes(b"")
    with Store(crashed, now_ms=Clock()) as store:
        assert len(logged(store, "d")) == EVENTS
        assert store.node_name == "n1"


def test_an_event_of_an_earlier_version_with_too_many_values_is_named_and_stops_no_other(
    tmp_path, monkeypatch, caplog
):
    many = Publication("many", {"values": list(range(VALUES_MAX))}, None)
    monkeypatch.setattr(values, "VALUES_MAX", 8 * VALUES_MAX)
    with Store(tmp_path, now_ms=Clock()) as store:
        write(store, durable("d"), stored("before", "d"))
        write(store, KeepRecord(EventStored(sealed(many), ("d",), BEGIN_MS, 0)))
        write(store, stored("after", "d"))
        assert logged(store, "d") == ["before", "many", "after"]
    monkeypatch.undo()
    caplog.set_level("ERROR", "peersub")
    with Store(tmp_path, now_ms=Clock()) as store:
        assert logged(store, "d") == ["before", "after"]
    assert "event many is lost" in caplog.text
