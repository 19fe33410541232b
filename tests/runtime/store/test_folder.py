"""The folder of a store: opened again, shared with nobody, full, of another version."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from peersub.overlays.core.records import EventSeen, IdentityStored
from peersub.runtime.store import FailureKind, StageState, Store, StoreError, StoreSettings
from peersub.runtime.store.changes import CommitStaged, KeepRecord, NameNode, StagePublications
from peersub.runtime.store.folder import opened
from peersub.runtime.store.formats import FORMAT_VERSION
from runtime.store.store_helpers import (
    BEGIN_MS,
    Clock,
    durable,
    event,
    handed_over,
    logged,
    outcome,
    seen_name,
    stored,
    write,
)

ROOT = Path(__file__).parents[3]


def run(source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    variables = dict(os.environ) | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}"}
    command = [sys.executable, "-W", "error", "-c", source, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=variables, timeout=120)


# --- opened again ------------------------------------------------------------------------------


def test_what_was_stored_is_there_when_it_is_opened_again(tmp_path):
    clock = Clock()
    with Store(tmp_path, now_ms=clock) as store:
        write(store, NameNode("n1"), KeepRecord(IdentityStored(b"me")), durable("d"))
        write(store, stored("e1", "d"), stored("e2"), handed_over("e2"))
        write(store, StagePublications("k", (event("e3"),)), CommitStaged("k"))
        epoch = store.log_epoch
    with Store(tmp_path, now_ms=clock) as store:
        assert store.notices == []
        assert store.node_name == "n1"
        assert store.log_epoch == epoch
        assert logged(store, "d") == ["e1"]
        identity, subscription, first, second = store.restored_records()
        assert identity == IdentityStored(b"me")
        assert subscription.subscription == "d"
        assert first.publication.id == "e1"
        assert second == EventSeen(seen_name("e2"), BEGIN_MS)
        assert store.committed_keys() == ["k"]
        write(store, handed_over("e1"), stored("e4", "d"))
        assert [entry.position for entry in store.read_log("d", 0, 9)] == [1, 2]
        assert store.stage_state("k") is StageState.COMMITTED


def test_each_life_has_a_larger_incarnation(tmp_path):
    clock = Clock()
    lives = []
    for step_ms in (0, 0, 10_000, -1_000_000):
        clock.ms += step_ms
        with Store(tmp_path, now_ms=clock) as store:
            lives.append(store.incarnation)
    begin = BEGIN_MS // 10
    assert lives == [begin, begin + 1, begin + 1_000, begin + 1_001]


def test_bounds_hold_when_it_is_opened_with_smaller_ones(tmp_path):
    clock = Clock()
    with Store(tmp_path, now_ms=clock) as store:
        write(store, durable("d"))
        write(store, *(stored(f"e{number}", "d", size=1_000) for number in range(50)))
    with Store(tmp_path, StoreSettings(log_bytes_max=10_000), clock) as store:
        assert 5 < len(logged(store, "d")) < 10
        assert store.trimmed_unread("d") + len(logged(store, "d")) == 50


def test_nothing_is_left_beside_the_database_when_it_is_closed(tmp_path):
    with Store(tmp_path) as store:
        write(store, stored("e1"))
    names = ["node.lock", "node.mark", "node.sqlite"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_nobody_else_reads_the_files(tmp_path):
    folder = tmp_path / "data"
    before = os.umask(0)
    try:
        with Store(folder) as store:
            write(store, stored("e1"))
            assert modes(folder) == dict.fromkeys(
                ["node.lock", "node.mark", "node.sqlite", "node.sqlite-shm", "node.sqlite-wal"],
                0o600,
            ) | {"data": 0o700}
        for path in [*folder.iterdir(), folder]:
            path.chmod(0o755)
        Store(folder).close()
    finally:
        os.umask(before)
    names = ["node.lock", "node.mark", "node.sqlite"]
    assert modes(folder) == dict.fromkeys(names, 0o600) | {"data": 0o700}


def test_a_folder_with_files_of_others_is_left_open_to_them(tmp_path):
    (tmp_path / "notes").write_text("text")
    tmp_path.chmod(0o755)
    Store(tmp_path).close()
    assert modes(tmp_path) | {"notes": 0} == {
        "node.lock": 0o600,
        "node.mark": 0o600,
        "node.sqlite": 0o600,
        "notes": 0,
        tmp_path.name: 0o755,
    }


def modes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in [*folder.iterdir(), folder]}


@pytest.mark.parametrize(("fsync", "synchronous"), [(True, 2), (False, 0)])
def test_what_is_acknowledged_is_on_the_disk_unless_it_is_told_otherwise(
    tmp_path, fsync, synchronous
):
    settings = StoreSettings() if fsync else StoreSettings(fsync=False)
    with Store(tmp_path, settings) as store:
        assert store.status()["fsync"] is fsync
        assert [notice.partition(": ")[2][:21] for notice in store.notices] == (
            [] if fsync else ["what was acknowledged"]
        )
    # In WAL mode 2 (FULL) waits for the disk at each commit, 1 (NORMAL) does not.
    with closing(opened(tmp_path / "node.sqlite", settings, writes=True)) as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (synchronous,)


# --- shared with nobody ------------------------------------------------------------------------

OPEN = """
import sys
from peersub.runtime.store import Store, StoreError
try:
    Store(sys.argv[1]).close()
except StoreError as error:
    print(error)
"""


def test_another_process_is_told_who_uses_the_folder(tmp_path):
    with Store(tmp_path):
        done = run(OPEN, str(tmp_path))
        assert f"is in use by the process {os.getpid()}: stop it, or" in done.stdout, done.stderr
        with pytest.raises(StoreError, match="is in use by the process"):
            Store(tmp_path)
    assert run(OPEN, str(tmp_path)).stdout == ""


def test_a_folder_that_cannot_be_one_is_refused(tmp_path):
    (tmp_path / "file").write_text("text")
    with pytest.raises(StoreError, match="cannot be used for data"):
        Store(tmp_path / "file")


def test_a_file_of_a_newer_version_is_refused_and_left_alone(tmp_path):
    Store(tmp_path).close()
    database = tmp_path / "node.sqlite"
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA user_version = 77")
    connection.close()
    before = database.read_bytes()
    with pytest.raises(
        StoreError, match=rf"newer peersub \(format 77, this one knows {FORMAT_VERSION}\)"
    ):
        Store(tmp_path)
    assert database.read_bytes() == before


def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path):
    database = tmp_path / "node.sqlite"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE bookmarks (address TEXT)")
    connection.close()
    before = database.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        Store(tmp_path)
    assert database.read_bytes() == before


def test_an_unfinished_new_database_is_made_anew(tmp_path):
    (tmp_path / "node.sqlite.new").write_bytes(b"half")
    (tmp_path / "node.sqlite-wal").write_bytes(b"of a database that is gone")
    with Store(tmp_path) as store:
        write(store, stored("e1"))
        assert store.notices == []


# --- full --------------------------------------------------------------------------------------


def test_a_full_file_fails_submissions_and_loses_nothing(tmp_path):
    clock = Clock()
    kept = []
    with Store(tmp_path, StoreSettings(file_bytes_max=400_000), clock) as store:
        write(store, durable("d"))
        for number in range(1_000):
            failure = outcome(store, stored(f"e{number}", "d", size=2_000))
            if failure is not None:
                break
            kept.append(f"e{number}")
        assert len(kept) > 20
        assert failure.kind is FailureKind.DISK
        assert failure.reason.startswith(f"the store in {tmp_path} is full: free space")
        assert logged(store, "d") == kept
        # A small one may still find room, and the next large one fails as the first did.
        assert outcome(store, stored("large", "d", size=50_000)).kind is FailureKind.DISK
        assert logged(store, "d") == kept
    with Store(tmp_path, now_ms=clock) as store:
        assert store.notices == []
        write(store, stored("more", "d", size=50_000))
        assert logged(store, "d") == [*kept, "more"]
        assert len(store.restored_records()) == 1 + len(kept) + 1


def test_a_disk_too_full_to_begin_says_so_and_the_folder_is_given_back(tmp_path, monkeypatch):
    with Store(tmp_path, now_ms=Clock()) as store:
        write(store, durable("d"), stored("e1", "d"))

    def refuse(*_):
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    with monkeypatch.context() as patched:
        patched.setattr("peersub.runtime.store.store.set_fact", refuse)
        with pytest.raises(StoreError, match=f"the store in {tmp_path} is full: free space"):
            Store(tmp_path, now_ms=Clock())
    with Store(tmp_path, now_ms=Clock()) as store:
        assert logged(store, "d") == ["e1"]


FULL = """
import resource, sys
from peersub.runtime.store import FailureKind, Store
from runtime.store.store_helpers import Clock, durable, logged, outcome, stored, write

store = Store(sys.argv[1], now_ms=Clock())
write(store, durable("d"))
# The operating system itself refuses to write more, as a full disk would.
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, hard))
kept, failure = [], None
while failure is None:
    name = f"e{len(kept)}"
    failure = outcome(store, stored(name, "d", size=20_000))
    if failure is None:
        kept.append(name)
assert failure.kind is FailureKind.DISK, failure
assert sys.argv[1] in failure.reason and "disk" in failure.reason, failure
assert logged(store, "d") == kept
assert len(kept) > 10
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
# There is room again: it goes on by itself.
write(store, stored("more", "d", size=20_000))
assert logged(store, "d") == [*kept, "more"]
store.close()
with Store(sys.argv[1], now_ms=Clock()) as store:
    assert store.notices == []
    assert logged(store, "d") == [*kept, "more"]
print("done")
"""


def test_writing_goes_on_when_a_full_disk_has_room_again(tmp_path):
    done = run(FULL, str(tmp_path))
    assert done.stdout == "done\n", done.stderr
