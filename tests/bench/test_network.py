"""The benchmark of live nodes: its oracle, its processes, and a loss that it must see."""

import io
import os

import duckdb
import msgspec
import numpy as np
import pytest
from rich.console import Console

from peersub.bench.network import report
from peersub.bench.network.members import COLUMNS, ONE_BY_ONE
from peersub.bench.network.processes import Crew, ProcessFailedError
from peersub.bench.network.run import NetworkResult, NetworkSettings, missing_system
from peersub.bench.network.trials import Network, Trial, TrialResult
from peersub.bench.network.workload import (
    KINDS,
    Workload,
    expected,
    generate_events,
    hash_of,
    subscriptions_of,
)

EVENTS = 600


def small(kind="range", share=0.05, **more):
    return Workload(kind=kind, share=share, subscribers=12, hosts=2, **more)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [100, 150, 1_024])
def test_events_have_eight_attributes_and_the_size_that_was_asked_for(kind, size):
    events = generate_events(small(kind, payload_bytes=size), 50)
    messages = events.messages(0, 50)
    assert {len(message) for message in messages} == {size}
    rows = [msgspec.msgpack.decode(message) for message in messages]
    assert {len(row) for row in rows} == {8}
    assert rows == events.table().to_pylist()


@pytest.mark.parametrize("kind", KINDS)
def test_the_oracle_agrees_with_duckdb_about_the_very_texts_of_the_filters(kind):
    workload = small(kind)
    events, wishes = generate_events(workload, EVENTS), subscriptions_of(workload)
    answer = expected(events, wishes, EVENTS)
    table = events.table()
    with duckdb.connect() as database:
        database.register("events", table)
        for wish, count, checksum in zip(wishes, answer.counts, answer.checksums, strict=True):
            query = f"SELECT number FROM events WHERE {wish.text}"
            numbers = np.array(database.execute(query).fetchnumpy()["number"], np.int64)
            assert (len(numbers), hash_of(numbers).sum()) == (count, checksum)
    assert answer.counts.sum() > 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.001, 0.01, 0.1])
def test_subscribers_want_the_share_that_was_asked_for(kind, share):
    workload = Workload(kind=kind, share=share)
    events, wishes = generate_events(workload, 4_000), subscriptions_of(workload)
    counts = expected(events, wishes, 4_000).counts
    assert counts.mean() / 4_000 == pytest.approx(share, rel=0.1)
    assert len({wish.text for wish in wishes}) == len(wishes)


def test_fewer_events_are_the_first_of_more():
    few, more = (generate_events(small(), count) for count in (10, 20))
    assert few.table().equals(more.table().slice(0, 10))


def test_every_delivery_is_checked_and_one_that_is_lost_is_seen():
    workload = small()
    with Crew(hosts=2, relays=0) as crew:
        with Network(crew, "peersub", workload) as network:
            for form in (COLUMNS, ONE_BY_ONE):
                for promise in (False, True):
                    trial = Trial(
                        system="peersub",
                        workload=workload,
                        events=EVENTS,
                        form=form,
                        at_least_once=promise,
                    )
                    result = network.measure(trial)
                    assert result.mismatches == ()
                    wishes = subscriptions_of(workload)
                    events = generate_events(workload, EVENTS)
                    total = expected(events, wishes, EVENTS).counts.sum()
                    assert result.deliveries == total > 0
        for copies in (1, 2):
            with Network(crew, "peersub", workload, copies=copies) as network:
                trial = Trial(
                    system="peersub",
                    workload=workload,
                    events=EVENTS,
                    at_least_once=True,
                    copies=copies,
                )
                result = network.measure(trial)
                assert result.mismatches == ()
                assert result.deliveries == total
        trial = Trial(system="peersub", workload=workload, events=EVENTS, form=COLUMNS)
        with Network(crew, "peersub", workload, lose_one_at=1) as network:
            result = network.measure(trial)
        (lost,) = [each for each in result.mismatches if each.startswith("host")]
        assert lost.startswith("host 1, subscriber s")
        pids = crew.pids
    assert len(pids) == 3
    assert not any(_is_running(pid) for pid in pids)


def _is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_processes_end_when_one_of_them_fails():
    crew = Crew(hosts=1, relays=0)
    with pytest.raises(ProcessFailedError, match="no such system"):
        _fail_in(crew)
    pids = crew.pids
    assert len(pids) == 2
    assert not any(_is_running(pid) for pid in pids)


def _fail_in(crew):
    with crew:
        crew.publisher.call("open", "no such system", None)


def test_settings_that_cannot_be_are_refused():
    for wrong in ({"systems": ("kafka",)}, {"kinds": ("xpath",)}, {"repeats": 0}, {"shares": ()}):
        with pytest.raises(ValueError):
            NetworkSettings(**wrong)


def test_a_system_that_is_not_there_is_named_with_what_to_do(monkeypatch):
    monkeypatch.setattr("peersub.bench.network.run.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name, path=None: None)
    assert "pip install" in missing_system("zenoh")
    assert "nats-server" in missing_system("nats")
    assert missing_system("peersub") is None


def measured(system, events_per_s, *, size, form=ONE_BY_ONE, hops=1, mismatches=(), **more):
    workload = Workload(kind="range", share=0.001)
    trial = Trial(system=system, workload=workload, events=1, form=form, hops=hops, **more)
    return TrialResult(trial, 1.0, events_per_s, 1, size, None, 1.0, None, mismatches)


def test_aims_are_reached_not_reached_or_not_run():
    ours = measured("peersub", 290.0, size=10.0, form=COLUMNS)
    far = measured("peersub", 150.0, size=10.0, form=COLUMNS, hops=3)
    zenoh = measured("zenoh", 100.0, size=100.0)
    result = NetworkResult(NetworkSettings(), [ours, far, zenoh])
    found = {aim.title: (aim.measured, aim.reached) for aim in report.aims(result)}
    assert found["range 0.1 %, events/s, to Zenoh"] == (pytest.approx(2.9), False)
    assert found["range 0.1 %, loopback bytes/event, to Zenoh"] == (pytest.approx(0.1), True)
    assert found["3 hops to 1 hop, range 0.1 %"] == (pytest.approx(150 / 290), True)
    assert found["range 0.1 %, events/s, to NATS"] == (None, None)
    assert report.exit_code(result) == 0


def test_a_mismatch_fails_the_run_and_is_shown():
    wrong = measured("peersub", 1.0, size=1.0, form=COLUMNS, mismatches=("host 1, s3: 5 of 6",))
    result = NetworkResult(NetworkSettings(), [wrong])
    console = Console(file=io.StringIO(), width=120)
    report.show(result, console)
    assert "MISMATCH range 0.1 %, 100 B, peersub, columns, 1 hop: host 1, s3" in (
        console.file.getvalue()
    )
    assert report.exit_code(result) == 1
    assert msgspec.json.decode(msgspec.json.encode(report.as_json(result)))["ok"] is False
