"""Formats of a store: folders of every earlier one open, whole or damaged; of a later one, none."""

import gzip
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from peersub.overlays.core.records import EventSeen
from peersub.runtime.store import Store, StoreError
from peersub.runtime.store import formats as formats_module
from peersub.runtime.store.formats import FORMAT_VERSION, STEPS, brought_forward
from peersub.runtime.store.schema import PAGE_BYTES, TABLES
from runtime.store.store_helpers import Clock, durable, logged, stored, write
from runtime.store.test_damage import contents, lasting, overwrite

RELEASED = {1: "version_1.sqlite.gz"}
"""A database of each released format, as its release wrote it: 60 events, rows in all tables."""
EVENTS = 60


@pytest.fixture(params=sorted(RELEASED))
def folder(request, tmp_path):
    packed = (Path(__file__).parent / RELEASED[request.param]).read_bytes()
    (tmp_path / "node.sqlite").write_bytes(gzip.decompress(packed))
    return tmp_path


def seen(store: Store) -> list[str]:
    """The deduplication history."""
    found = []
    for record in store.restored_records():
        if isinstance(record, EventSeen):
            found.append(record.event_id)
        elif hasattr(record, "publication"):
            found.append(record.publication.id)
    return found


def test_a_folder_of_an_earlier_format_opens_with_all_that_it_holds(folder):
    with Store(folder, now_ms=Clock()) as store:
        assert f"to format {FORMAT_VERSION}: earlier versions" in store.notices[0]
        assert logged(store, "d") == [f"e{number}" for number in range(EVENTS)]
        assert store.cursor("d") == 5
        assert len(seen(store)) == EVENTS + 1
        assert store.node_name == "n1"
        assert store.committed_keys() == ["k"]
        assert [found.name for found in store.mirrored_subscriptions("n2")] == ["m"]
        write(store, durable("g"), stored("next", "d", "g"))
    with Store(folder, now_ms=Clock()) as store:
        assert store.notices == []
        assert logged(store, "g") == ["next"]


def test_a_migrated_database_has_the_tables_of_a_new_one(folder, tmp_path):
    Store(folder, now_ms=Clock()).close()
    Store(tmp_path / "new", now_ms=Clock()).close()
    assert described_tables(folder) == described_tables(tmp_path / "new")


def described_tables(folder: Path) -> dict[str, list[tuple]]:
    with closing(sqlite3.connect(folder / "node.sqlite")) as connection:
        names = connection.execute("SELECT name FROM sqlite_master ORDER BY name").fetchall()
        return {
            name: connection.execute(f"PRAGMA table_info({name})").fetchall() for (name,) in names
        }


@pytest.mark.parametrize("is_migrated", [False, True])
@pytest.mark.parametrize("place", ["header", "first page"])
def test_a_damaged_folder_of_an_earlier_format_is_salvaged_whole(
    folder, tmp_path, place, is_migrated
):
    sound = tmp_path / "sound"
    sound.mkdir()
    shutil.copy(folder / "node.sqlite", sound)
    Store(sound, now_ms=Clock()).close()
    if is_migrated:
        # SQLite leaves the rows of a table that gets a column as they are.
        shutil.copy(sound / "node.sqlite", folder)
    overwrite(folder, 0, bytes(100 if place == "header" else PAGE_BYTES))
    with Store(folder, now_ms=Clock()) as store:
        assert "was damaged" in store.notices[0]
        assert len(logged(store, "d")) == EVENTS
        assert len(seen(store)) == EVENTS + 1
    found, expected = contents(folder), contents(sound)
    for name in expected:
        assert lasting(name, found[name]) == lasting(name, expected[name])


def test_a_header_that_says_an_earlier_format_than_the_tables_have_is_damage(tmp_path):
    with Store(tmp_path, now_ms=Clock()) as store:
        write(store, durable("d"), stored("e1", "d"))
    overwrite(tmp_path, 60, (1).to_bytes(4, "big"))
    with Store(tmp_path, now_ms=Clock()) as store:
        assert "was damaged (its header is damaged" in store.notices[0]
        assert logged(store, "d") == ["e1"]


def test_a_migration_that_fails_changes_nothing(folder, monkeypatch):
    before = (folder / "node.sqlite").read_bytes()

    def fail(connection):
        connection.execute("DELETE FROM log")
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(formats_module, "STEPS", (formats_module.Step(fail),))
        with pytest.raises(StoreError, match="disk I/O error"):
            Store(folder, now_ms=Clock())
    assert (folder / "node.sqlite").read_bytes() == before
    with Store(folder, now_ms=Clock()) as store:
        assert len(logged(store, "d")) == EVENTS


def test_no_earlier_row_is_taken_for_another():
    samples = {"N": None, "I": 1, "T": "a", "B": b"a", "i": None, "b": None}
    for name, table in TABLES.items():
        row = tuple(samples[kind] for kind in table.shape)
        assert brought_forward(row) == (name, row)
    for step in STEPS:
        for earlier in step.earlier:
            row = tuple(samples[kind] for kind in earlier.shape)
            name, today = brought_forward(row)
            assert name == earlier.table
            assert len(today) == len(TABLES[name].shape)
