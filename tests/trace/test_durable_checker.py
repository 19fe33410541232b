"""The checker of durable subscriptions: what may be missing, and what may not."""

from peersub.filters.filter import Filter
from peersub.trace.durable_checker import DurableChecker
from trace_steps import Story

ACKNOWLEDGED_MS = 2
"""An event that is published at 1 ms."""


def tell_nothing(checker: DurableChecker) -> None:
    pass


def check(
    copies: int = 2,
    *,
    is_known: bool = True,
    before=tell_nothing,
    tell=tell_nothing,
    gone: str = "",
):
    """What is missing after an event for s1 was acknowledged, and somebody told of its fate."""
    checker = DurableChecker(copies)
    checker.is_known = lambda name, node: is_known
    checker.made("s1", Filter("TRUE"))
    checker.ready(0, "s1")
    before(checker)
    story = Story().publish("n1", "e1", promised=True).completed("n1", "e1")
    for record in (story.crash(gone) if gone else story).records:
        checker.observe(record)
    tell(checker)
    return checker.missing()


MISSING = [("s1", "e1")]


def test_what_was_acknowledged_is_owed():
    assert check() == MISSING
    assert check(tell=lambda checker: checker.took(3, "s1", "e1", again=False)) == []


def test_an_event_may_be_missing_when_as_many_disks_as_hold_it_are_lost():
    def lose(*nodes: str):
        return lambda checker: [checker.lost("s1", "e1", node) for node in nodes]

    assert check(tell=lose("n1")) == MISSING
    assert check(tell=lose("n1", "n1")) == MISSING
    assert check(tell=lose("n1", "n2")) == []
    assert check(copies=3, tell=lose("n1", "n2")) == MISSING


def test_an_event_may_be_missing_where_the_consumer_was_told_of_a_gap():
    def gap(since_ms: int, until_ms: int | None):
        return lambda checker: checker.gap("s1", since_ms, until_ms)

    assert check(tell=gap(ACKNOWLEDGED_MS, None)) == []
    assert check(tell=gap(ACKNOWLEDGED_MS, 1)) == []
    assert check(tell=gap(ACKNOWLEDGED_MS + 1, None)) == MISSING
    assert check(tell=gap(0, 0)) == MISSING

    def served_before(checker: DurableChecker) -> None:
        checker.gap("s1", 0, None)
        checker.ready(0, "s1")

    assert check(tell=served_before) == MISSING


def test_an_event_may_be_missing_that_nobody_could_take_and_nobody_replays():
    assert check(is_known=False) == MISSING
    assert check(is_known=False, gone="n2") == MISSING
    assert check(is_known=False, gone="n1") == []
    assert check(is_known=True, gone="n1") == MISSING


def test_an_event_may_be_missing_that_is_acknowledged_when_all_are_gone_who_knew_who_wants_it():
    def orphaned(checker: DurableChecker) -> None:
        checker.orphaned("s1")

    def adopted_again(checker: DurableChecker) -> None:
        checker.orphaned("s1")
        checker.adopted("s1")

    assert check(before=orphaned) == []
    assert check(before=adopted_again) == MISSING
    assert check(before=orphaned, tell=lambda checker: checker.adopted("s1")) == MISSING
    # Who was there when it was acknowledged held it, or should have.
    assert check(tell=orphaned) == MISSING
