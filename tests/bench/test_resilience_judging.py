"""The judge of resilience trials finds what is missing, doubled, wrong or late."""

import pytest

from peersub.bench.resilience.judging import Notes

SYMBOLS = 2


def told():
    """Two subscribers; e-0 and e-2 are s0's, e-1 is s1's. Each event took 10 ms."""
    notes = Notes(SYMBOLS)
    for name, symbol in (("a", "s0"), ("b", "s1")):
        notes.subscribed(name, symbol)
        notes.ready(name, 0.0)
    for number in range(3):
        notes.ended(f"e-{number}", 100.0 * number + 1, 100.0 * number + 20, None)
    for name, event in (("a", "e-0"), ("b", "e-1"), ("a", "e-2")):
        notes.got(name, event, 100.0 * int(event[2:]) + 11)
    return notes


def test_all_is_well():
    judgement = told().judge()
    assert judgement.is_clean
    assert (judgement.expected, judgement.delivered, judgement.acknowledged) == (3, 3, 3)
    assert judgement.latency_ms_p50 == pytest.approx(10)


def test_a_delivery_twice_and_one_to_the_wrong_subscriber():
    notes = told()
    notes.got("a", "e-0", 500.0)
    notes.got("b", "e-2", 500.0)
    judgement = notes.judge()
    assert judgement.doubled == [("a", "e-0")] and judgement.spurious == [("b", "e-2")]
    assert not judgement.is_clean


def test_what_was_acknowledged_must_arrive_and_what_failed_need_not():
    notes = told()
    notes.ended("e-4", 400.0, 410.0, None)
    notes.ended("e-6", 600.0, 610.0, "too many publications")
    judgement = notes.judge()
    assert judgement.missed == [("a", "e-4")] and judgement.failed == 1


def test_nobody_expects_what_came_before_ready_or_after_a_subscriber_was_killed():
    notes = told()
    notes.subscribed("late", "s0")
    notes.ready("late", 150.0)
    notes.got("late", "e-2", 211.0)
    notes.subscribed("dead", "s0")
    notes.ready("dead", 0.0)
    notes.gone("dead", 50.0)
    assert notes.judge().is_clean


def test_a_pause_is_what_an_event_was_late_by_after_the_fault():
    notes = told()
    notes.fault("kill", 150.0, 250.0)
    notes.ended("e-8", 180.0, 900.0, None)
    notes.got("a", "e-8", 780.0)
    assert notes.judge().pauses_ms["kill"] == pytest.approx(600)
    notes.stood_still("a")
    assert notes.judge().pauses_ms["kill"] == 0
