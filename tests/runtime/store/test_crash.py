"""kill -9 at any moment: what was acknowledged is there; of the rest, each submission or none."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from peersub.overlays.core.records import EventSeen, EventStored
from peersub.runtime.store import StageState, Store
from runtime.store.store_helpers import seen_name

ROOT = Path(__file__).parents[3]

WRITE = """
import itertools, os, sys, threading
from peersub.runtime.store import Store
from peersub.runtime.store.changes import *
from runtime.store.store_helpers import Clock, durable, event, handed_over, stored

folder, size = sys.argv[1], int(sys.argv[2])
store = Store(folder, now_ms=Clock())
room = threading.Semaphore(32)

def acknowledge(number):
    def on_done(failure):
        if failure is not None:
            os.write(2, repr(failure).encode())
            os._exit(1)
        os.write(1, b"%d\\n" % number)
        room.release()
    return on_done

durables = {found.name for found in store.durable_subscriptions()}
begin = 0
if "d" in durables:
    begin = len(store.read_log("d", 0, 1_000_000)) // 2
for number in itertools.count(begin):
    changes = [] if number else [durable("d")]
    changes += [stored(f"{number}a", "d", size=size), stored(f"{number}b", "d")]
    changes += [stored(f"{number}c", "s"), handed_over(f"{number}a")]
    changes += [MoveCursor("d", 2 * number), StagePublications(f"k{number}", (event("p"),))]
    if number:
        changes.append(CommitStaged(f"k{number - 1}"))
    room.acquire()
    store.submit(changes, acknowledge(number))
"""


def killed_after(folder: Path, size: int, acknowledged: int) -> int:
    """Let a process write until so many more are acknowledged, then kill it; the last number."""
    variables = dict(os.environ) | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}"}
    command = [sys.executable, "-c", WRITE, str(folder), str(size)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=variables
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        lines = [process.stdout.readline() for _ in range(acknowledged)]
        process.kill()
        lines += process.stdout.readlines()
        errors = process.stderr.read()
    numbers = [int(line) for line in lines if line.endswith(b"\n")]
    assert numbers, errors.decode()
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    return numbers[-1]


@pytest.mark.parametrize("seed", range(6))
def test_what_was_acknowledged_survives_a_kill(tmp_path, seed):
    drawn = random.Random(seed)
    size = drawn.choice([1, 100, 30_000])
    epochs, lives = set(), []
    for _ in range(2):
        last = killed_after(tmp_path, size, drawn.randrange(1, 300))
        # The clock of the process that wrote is far behind: nothing may have grown old.
        with Store(tmp_path, now_ms=lambda: 0) as store:
            assert store.notices == []
            epochs.add(store.log_epoch)
            lives.append(store.incarnation)
            count = check_whole(store)
            assert count > last
    assert len(epochs) == 1
    assert lives == sorted(set(lives))


def check_whole(store: Store) -> int:
    """All parts of each submission that is there are there; how many there are."""
    logged = [entry.publication.id for entry in store.read_log("d", 0, 1_000_000)]
    count = len(logged) // 2
    assert logged == [f"{number}{part}" for number in range(count) for part in "ab"]
    events = store.restored_records()[1:]
    kept = [record.publication.id for record in events if isinstance(record, EventStored)]
    assert kept == [f"{number}{part}" for number in range(count) for part in "bc"]
    seen = [record.event_id for record in events if isinstance(record, EventSeen)]
    assert seen == [seen_name(f"{number}a") for number in range(count)]
    assert store.cursor("d") == 2 * (count - 1)
    assert store.committed_keys() == [f"k{number}" for number in range(count - 1)]
    assert store.stage_state(f"k{count - 1}") is StageState.OPEN
    return count
