"""`peersub data check | backup | restore`."""

import json

import pytest

from peersub.runtime.store import Store
from peersub.runtime.store.changes import MoveCursor, NameNode
from peersub.runtime.store.log import POSITIONS_SKIPPED
from runtime.store.store_helpers import Clock, durable, logged, stored, write
from runtime.store.test_damage import overwrite
from runtime.store.test_formats import folder as earlier_folder  # noqa: F401 - a fixture

EVENTS = [f"e{number}" for number in range(10)]


@pytest.fixture
def folder(tmp_path):
    with Store(tmp_path / "data", now_ms=Clock()) as store:
        fill(store)
    return tmp_path / "data"


def fill(store: Store) -> None:
    write(store, NameNode("n1"), durable("d"), *(stored(name, "d") for name in EVENTS))
    write(store, MoveCursor("d", 3))


def test_a_sound_folder(run, folder):
    done = run("data", "check", folder)
    assert done.code == 0
    assert done.out.startswith(f"{folder}/node.sqlite: sound\n  node: n1\n  format: ")
    assert "  log: 10 rows\n" in done.out
    assert "  durable d: 7 unread, 0 dropped, 0 gaps\n" in done.out
    found = json.loads(run("data", "check", folder, "--json").out)
    assert found["rows"]["log"] == 10 and found["problems"] == [] and not found["in_use"]


def test_a_folder_in_use_is_checked_and_backed_up(run, tmp_path):
    with Store(tmp_path / "data", now_ms=Clock()) as store:
        fill(store)
        done = run("data", "check", tmp_path / "data")
        assert done.code == 0 and "sound, in use by a node" in done.out
        done = run("data", "backup", tmp_path / "data", tmp_path / "copy")
        assert done.code == 0
        write(store, stored("later", "d"))
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600
    assert run("data", "check", tmp_path / "copy").code == 0
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["copy", "data"]


def test_a_damaged_folder(run, folder, tmp_path):
    content = (folder / "node.sqlite").read_bytes()
    # In the attributes of an event.
    overwrite(folder, content.index(b"\xa4name") + 1, b"X")
    before = (folder / "node.sqlite").read_bytes()
    done = run("data", "check", folder)
    assert done.code == 1 and "problem: " in done.out
    done = run("data", "backup", folder, tmp_path / "copy")
    assert done.code == 1 and "is not backed up, since it is damaged" in done.err
    assert not (tmp_path / "copy").exists()
    assert (folder / "node.sqlite").read_bytes() == before
    overwrite(folder, 0, b"\xff" * 200)
    assert run("data", "check", folder).code == 1


def test_transactions_that_are_gone_are_noticed(run, folder):
    content = (folder / "node.sqlite").read_bytes()
    with Store(folder, now_ms=Clock()) as store:
        write(store, stored("lost", "d"))
    (folder / "node.sqlite").write_bytes(content)
    done = run("data", "check", folder)
    assert done.code == 1 and "transactions that were stored are not there" in done.out


def test_a_restored_folder_begins_a_new_epoch(run, folder, tmp_path):
    assert run("data", "backup", folder, tmp_path / "copy").code == 0
    with Store(folder, now_ms=Clock()) as store:
        epoch = store.log_epoch
        write(store, stored("after the backup", "d"))
    done = run("data", "restore", tmp_path / "copy", tmp_path / "new")
    assert done.code == 0 and "told of a gap" in done.err
    with Store(tmp_path / "new", now_ms=Clock()) as store:
        assert store.notices == [] and store.log_epoch != epoch
        assert logged(store, "d") == EVENTS
        assert (store.cursor("d"), store.losses("d").gaps) == (3, 1)
        write(store, stored("next", "d"))
        assert store.last_position() == 10 + POSITIONS_SKIPPED + 1


def test_data_that_is_there_is_not_overwritten(run, folder, tmp_path):
    copy = tmp_path / "copy"
    assert run("data", "backup", folder, copy).code == 0
    done = run("data", "backup", folder, copy)
    assert done.code == 1 and "is there already" in done.err
    assert run("data", "backup", folder, copy, "--force").code == 0
    before = (folder / "node.sqlite").read_bytes()
    done = run("data", "restore", copy, folder)
    assert done.code == 1 and "has data of a node already" in done.err
    assert (folder / "node.sqlite").read_bytes() == before
    done = run("data", "restore", copy, folder, "--force")
    assert done.code == 0 and "kept as" in done.err
    assert (folder / "node.sqlite.replaced-1").read_bytes() == before
    with Store(folder, now_ms=Clock()), pytest.raises(AssertionError):
        assert run("data", "restore", copy, folder, "--force").code == 0


def test_what_is_no_data_is_refused_in_clear_words(run, folder, tmp_path):
    done = run("data", "check", tmp_path)
    assert done.code == 1 and f"there is no data of a node at {tmp_path}/node.sqlite" in done.err
    done = run("data", "restore", folder, tmp_path / "new")
    assert done.code == 1 and "is a folder: name the file" in done.err
    (tmp_path / "text").write_text("no database at all\n" * 1_000)
    for words in (("check", tmp_path / "text"), ("restore", tmp_path / "text", tmp_path / "new")):
        done = run("data", *words)
        assert done.code == 1 and "damaged" in done.out + done.err
    assert not (tmp_path / "new").exists()


def test_a_folder_of_an_earlier_format_is_left_as_it_is(run, earlier_folder, tmp_path):  # noqa: F811
    before = (earlier_folder / "node.sqlite").read_bytes()
    done = run("data", "check", earlier_folder)
    assert done.code == 0 and "format: 1" in done.out
    assert run("data", "backup", earlier_folder, tmp_path / "copy").code == 0
    assert (earlier_folder / "node.sqlite").read_bytes() == before
    assert run("data", "restore", tmp_path / "copy", tmp_path / "new").code == 0
    with Store(tmp_path / "new", now_ms=Clock()) as store:
        assert store.notices == [] and len(logged(store, "d")) == 60
