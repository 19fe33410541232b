"""Disks that lie: what was acknowledged is there, or its loss is noticed, named and told."""

import random
import shutil
from pathlib import Path

import pytest

from peersub.bench.resilience.disk_faults import commits_of, cut_at_commit
from peersub.overlays.core.store_marks import LIVES_MAX, StoreMark
from peersub.runtime.store import Store, StoreSettings
from peersub.runtime.store.changes import CommitsLost, LossesTold, MoveCursor
from peersub.runtime.store.mark_file import MARK, read_mark
from runtime.store.store_helpers import Clock, durable, logged, stored, write

EVENTS = 40


@pytest.fixture
def crashed(tmp_path):
    """The files of a node that was killed, its events acknowledged one by one."""
    living, folder = tmp_path / "living", tmp_path / "crashed"
    with Store(living, now_ms=Clock()) as store:
        write(store, durable("d"))
        for number in range(EVENTS):
            write(store, stored(f"e{number}", "d"))
        shutil.copytree(living, folder)
    return folder


def check_lost(folder: Path, lost: int) -> None:
    (epoch, _, last), _ = read_mark(folder / MARK)
    with Store(folder, now_ms=Clock()) as store:
        assert f"lost the last {lost:,} transactions that were stored there" in store.notices[0]
        assert not store.is_complete
        assert logged(store, "d") == [f"e{number}" for number in range(EVENTS - lost)]
        assert store.log_epoch != epoch
        assert store.durable_subscriptions()[0].gaps == 1
        # No position is given a second time.
        write(store, stored("next", "d"))
        assert store.read_log("d", last, 9)[0].publication.id == "next"
    with Store(folder, now_ms=Clock()) as store:
        assert store.notices == []
        assert store.is_complete
        assert store.durable_subscriptions()[0].gaps == 1


def test_an_honest_disk_is_not_accused(crashed):
    with Store(crashed, now_ms=Clock()) as store:
        assert store.notices == []
        assert store.is_complete
        assert len(logged(store, "d")) == EVENTS
        assert store.durable_subscriptions()[0].gaps == 0


@pytest.mark.parametrize("lost", [1, 2, 17])
def test_a_write_ahead_file_cut_at_a_commit_is_noticed(crashed, lost):
    cut_at_commit(crashed, lost)
    check_lost(crashed, lost)


def test_a_damaged_last_transaction_is_noticed(crashed):
    """Whatever is behind the damage looks as if a crash had cut it off."""
    ahead = crashed / "node.sqlite-wal"
    content = bytearray(ahead.read_bytes())
    content[commits_of(content)[-1] - 100] ^= 1
    ahead.write_bytes(content)
    check_lost(crashed, 1)


def test_a_lost_write_ahead_file_is_noticed(crashed):
    (crashed / "node.sqlite-wal").unlink()
    with Store(crashed, now_ms=Clock()) as store:
        assert "lost the last" in store.notices[0]


def test_a_mark_of_somebody_else_tells_of_a_loss_as_well(tmp_path):
    """Without a file of its own a node learns of it from its mirror."""
    with Store(tmp_path, now_ms=Clock()) as store:
        write(store, durable("d"), stored("e1", "d"))
        before = store.mark
        write(store, CommitsLost(before))
        assert store.mark.epoch == before.epoch
        write(store, CommitsLost(StoreMark(before.epoch, before.commits + 9, 70)))
        assert store.mark.epoch != before.epoch
        write(store, stored("e2", "d"))
        assert [entry.position for entry in store.read_log("d", 0, 9)] == [1, 71]
        assert store.durable_subscriptions()[0].gaps == 1


def test_others_may_be_sure_of_a_loss_without_knowing_its_size(tmp_path):
    with Store(tmp_path, now_ms=Clock()) as store:
        write(store, durable("d"), stored("e1", "d"))
        before = store.mark
        write(store, CommitsLost(None), stored("e2", "d"))
        assert store.mark.epoch != before.epoch
        assert store.read_log("d", 1, 9)[0].position > 1_000_000
        assert store.durable_subscriptions()[0].gaps == 1


def test_a_store_knows_with_how_much_each_life_began(tmp_path):
    for _ in range(LIVES_MAX + 3):
        with Store(tmp_path, now_ms=Clock()) as store:
            ended = store.mark.commits
    with Store(tmp_path, now_ms=Clock()) as store:
        assert len(store.lives) == LIVES_MAX
        assert store.lives[-1] == (store.incarnation, ended)
        assert list(store.lives) == sorted(store.lives)


def test_positions_that_nobody_remembers_are_not_given_again(crashed):
    """All of the folder is as it was earlier, its mark included: nobody here can notice."""
    cut_at_commit(crashed, 5)
    (crashed / MARK).unlink()
    with Store(crashed, now_ms=Clock()) as store:
        # The consumer had all forty, and says so now.
        write(store, MoveCursor("d", EVENTS), stored("next", "d"))
        (entry,) = store.read_log("d", store.cursor("d"), 9)
        assert entry.publication.id == "next"
        assert entry.position > EVENTS


def test_a_cursor_does_not_pass_over_what_is_to_come(tmp_path):
    with Store(tmp_path, now_ms=Clock()) as store:
        write(store, durable("d"), MoveCursor("d", 17), stored("e1", "d"))
        assert logged(store, "d", store.cursor("d")) == ["e1"]


def test_a_mark_that_cannot_be_read_says_nothing(crashed):
    for content in (b"", b"\xff" * 80, b"a b c d\n", (crashed / MARK).read_bytes()[:30]):
        (crashed / MARK).write_bytes(content)
        with Store(crashed, now_ms=Clock()) as store:
            assert store.notices == []


def test_what_a_consumer_was_told_of_its_losses_is_remembered(tmp_path):
    bounds = StoreSettings(log_bytes_max=10_000)
    with Store(tmp_path, bounds, Clock()) as store:
        write(store, durable("d"), *(stored(f"e{n}", "d", size=1_000) for n in range(20)))
        (found,) = store.durable_subscriptions()
        assert found.trimmed_unread > 0
        assert found.trimmed_through == store.read_log("d", 0, 1)[0].position - 1
        write(store, LossesTold("d", found.trimmed_unread, 0), MoveCursor("d", 20))
    with Store(tmp_path, bounds, Clock()) as store:
        (again,) = store.durable_subscriptions()
        assert store.notices == []
        assert again.trimmed_told == found.trimmed_unread


@pytest.mark.parametrize("seed", range(60))
def test_flipped_bits_and_torn_pages_are_noticed_or_do_no_harm(crashed, tmp_path, seed):
    """Of an acknowledged event, all is there, or the loss is named and its consumer is told."""
    drawn = random.Random(seed)
    name = drawn.choice(["node.sqlite", "node.sqlite-wal"])
    if drawn.random() < 0.5:
        # All of it in the database itself: nothing but its own checksums protects that.
        Store(crashed, now_ms=Clock()).close()
        name = "node.sqlite"
    target = crashed / name
    content = bytearray(target.read_bytes())
    if drawn.random() < 0.5:
        content[drawn.randrange(len(content))] ^= 1 << drawn.randrange(8)
    else:
        half = drawn.randrange(len(content) // 512) * 512
        content[half : half + 512] = bytes(512)
    target.write_bytes(content)
    with Store(crashed, now_ms=Clock()) as store:
        found = store.durable_subscriptions()
        is_whole = (
            [each.name for each in found] == ["d"]
            and found[0].cursor == 0
            and logged(store, "d") == [f"e{number}" for number in range(EVENTS)]
        )
        assert is_whole or store.notices, f"seed {seed}: a loss without a word"
        assert is_whole or not found or found[0].gaps
