"""The checker of deliveries: each rule is broken once, and each allowance is used once.

Every story is told twice: as a driver tells it, and from the lines that a trace file would hold.
The verdict must be the same.
"""

import json

import pytest

from peersub.filters.filter import Filter
from peersub.overlays.core.causes import Restored
from peersub.overlays.core.records import SubscriptionStored
from peersub.trace.checkers import DeliveryChecker, Rule
from peersub.trace.schema import Disk, FaultKind, record_line
from trace_steps import Story


def judged(story, *, settled=True, **settings):
    """The checker at the end of a story, which judges its trace alike."""
    told, read = DeliveryChecker(**settings), DeliveryChecker(**settings)
    for record in story.records:
        told.observe(record)
        read.observe_form(json.loads(record_line(record)))
    for checker in (told, read):
        checker.finish(story.now_ms, settled=settled)
    assert told.violations == read.violations
    assert told.phases == read.phases
    return told


def rules_broken(story, **settings):
    return [violation.rule for violation in judged(story, **settings).violations]


def test_a_run_as_it_should_be():
    story = Story().subscribe("n1", "s1", "price > 10").subscribe("n2", "s2", "price > 20")
    story.publish("n3", "e1", price=15).deliver("n1", "e1", "s1", hops=3)
    story.publish("n1", "e2", price=25).deliver("n1", "e2", "s1", hops=0)
    story.deliver("n2", "e2", "s2", hops=2)
    checker = judged(story)
    assert checker.violations == []
    counts = checker.counts
    assert (counts.events, counts.expected, counts.delivered, counts.missed) == (2, 3, 3, 0)
    assert (counts.spurious, counts.duplicate, counts.repeated, counts.excused) == (0, 0, 0, 0)
    assert counts.hops == {3: 1, 0: 1, 2: 1}


# --- nothing to the wrong subscriber -----------------------------------------------------------


def test_an_event_that_does_not_match():
    story = Story().subscribe("n1", "s1", "price > 10").publish("n2", "e1", price=5)
    checker = judged(story.deliver("n1", "e1", "s1"))
    (violation,) = checker.violations
    assert violation.rule == Rule.WRONG_SUBSCRIBER
    assert (violation.event_id, violation.subscription, violation.node) == ("e1", "s1", "n1")
    assert "price > 10" in violation.text
    assert (checker.counts.spurious, checker.counts.delivered) == (1, 0)


def test_a_subscription_on_another_node():
    story = Story().subscribe("n1", "s1", "price > 10").publish("n2", "e1", price=15)
    story.deliver("n2", "e1", "s1").deliver("n1", "e1", "s1")
    assert rules_broken(story) == [Rule.WRONG_SUBSCRIBER]


def test_a_subscription_that_has_ended():
    story = Story().subscribe("n1", "s1", "price > 10").publish("n2", "e1", price=15)
    story.unsubscribe("n1", "s1").deliver("n1", "e1", "s1")
    assert rules_broken(story) == [Rule.WRONG_SUBSCRIBER]


def test_a_subscription_lost_in_a_crash():
    story = Story().subscribe("n1", "s1", "price > 10").publish("n2", "e1", price=15)
    story.crash("n1").restart("n1", Disk.LOST).deliver("n1", "e1", "s1")
    assert rules_broken(story) == [Rule.WRONG_SUBSCRIBER]


def test_an_event_that_nobody_published():
    story = Story().subscribe("n1", "s1", "price > 10").deliver("n1", "ghost", "s1")
    assert rules_broken(story) == [Rule.WRONG_SUBSCRIBER]


def test_who_is_not_ready_may_get_an_event_but_only_a_matching_one():
    story = Story().subscribe("n1", "s1", "price > 10", ready=False)
    story.publish("n2", "e1", price=15).deliver("n1", "e1", "s1")
    story.publish("n2", "e2", price=5).deliver("n1", "e2", "s1")
    checker = judged(story)
    assert [violation.event_id for violation in checker.violations] == ["e2"]
    assert (checker.counts.expected, checker.counts.delivered) == (0, 1)


# --- nothing twice -----------------------------------------------------------------------------


def test_an_event_twice():
    story = Story().subscribe("n1", "s1", "price > 10").publish("n2", "e1", price=15)
    story.deliver("n1", "e1", "s1").deliver("n1", "e1", "s1")
    checker = judged(story)
    assert [violation.rule for violation in checker.violations] == [Rule.TWICE]
    assert (checker.counts.duplicate, checker.counts.delivered) == (1, 1)


def test_an_event_twice_in_one_delivery():
    story = Story().subscribe("n1", "s1", "price > 10").publish("n2", "e1", price=15)
    assert rules_broken(story.deliver("n1", "e1", "s1", "s1")) == [Rule.TWICE]


def test_an_event_twice_long_after_its_time():
    story = Story().subscribe("n1", "s1", "price > 10").publish("n2", "e1", price=15)
    story.deliver("n1", "e1", "s1").wait(1_000_000).deliver("n1", "e1", "s1")
    assert rules_broken(story) == [Rule.TWICE]


def restarted(disk=Disk.KEPT):
    """A node has got an event, and lives again after a crash."""
    story = Story().subscribe("n1", "s1", "price > 10").publish("n2", "e1", promised=True, price=15)
    story.deliver("n1", "e1", "s1").completed("n2", "e1")
    return story.crash("n1").restart("n1", disk, "s1")


def test_a_repetition_after_a_crash_is_allowed_once():
    story = restarted().deliver("n1", "e1", "s1", again=True)
    checker = judged(story)
    assert checker.violations == []
    assert (checker.counts.repeated, checker.counts.duplicate) == (1, 0)
    assert rules_broken(story.deliver("n1", "e1", "s1", again=True)) == [Rule.TWICE]


def test_a_repetition_after_each_crash_is_allowed():
    story = restarted().deliver("n1", "e1", "s1", again=True)
    story.crash("n1").restart("n1", Disk.KEPT, "s1").deliver("n1", "e1", "s1", again=True)
    assert rules_broken(story) == []


def test_a_repetition_after_a_crash_must_say_so():
    assert rules_broken(restarted().deliver("n1", "e1", "s1")) == [Rule.TWICE]


def test_a_repetition_without_a_crash():
    story = Story().subscribe("n1", "s1", "price > 10").publish("n2", "e1", price=15)
    story.deliver("n1", "e1", "s1").deliver("n1", "e1", "s1", again=True)
    assert rules_broken(story) == [Rule.TWICE]


def test_a_repetition_of_what_came_after_the_crash():
    story = restarted().publish("n2", "e2", price=15)
    story.deliver("n1", "e2", "s1").deliver("n1", "e2", "s1", again=True)
    assert rules_broken(story) == [Rule.TWICE]


def test_a_disk_that_forgot_excuses_one_repetition():
    story = restarted(Disk.TAIL_LOST).deliver("n1", "e1", "s1")
    assert rules_broken(story) == []
    assert rules_broken(story.deliver("n1", "e1", "s1")) == [Rule.TWICE]


def test_a_new_subscription_of_an_old_name_is_another():
    story = Story().subscribe("n1", "s1", "price > 10").publish("n2", "e1", price=15)
    story.deliver("n1", "e1", "s1").unsubscribe("n1", "s1").subscribe("n1", "s1", "price > 10")
    assert rules_broken(story.deliver("n1", "e1", "s1")) == []


def test_an_earlier_subscription_of_the_name_may_live_again():
    story = Story().subscribe("n1", "s1", "price > 10")
    records = (SubscriptionStored("s1", Filter("price > 10")),)
    story.unsubscribe("n1", "s1").subscribe("n1", "s1", "price > 100").crash("n1")
    story.fault(FaultKind.RESTART, nodes=("n1",), disk=Disk.TAIL_LOST)
    story.step("n1", Restored(records)).publish("n2", "e1", price=15)
    assert rules_broken(story.deliver("n1", "e1", "s1")) == []


# --- best effort -------------------------------------------------------------------------------


def missing(*, disturbed=False):
    story = Story().phase("calm", disturbed=disturbed).subscribe("n1", "s1", "price > 10")
    return story.publish("n2", "e1", price=15)


def test_a_miss_in_calm_is_a_violation():
    checker = judged(missing())
    (violation,) = checker.violations
    assert (violation.rule, violation.subscription) == (Rule.MISSED, "s1")
    assert (checker.counts.expected, checker.counts.missed) == (1, 1)


@pytest.mark.parametrize(
    "disturb",
    [
        lambda story: story.crash("n9"),
        lambda story: story.phase("crash", disturbed=True),
        lambda story: story.fault(FaultKind.PARTITION, groups=(("n1",), ("n2",))),
        lambda story: story.fault(FaultKind.EDGE_FAILURE, pairs=(("n1", "n2"),)),
        lambda story: story.fault(FaultKind.STALL, nodes=("n9",)),
    ],
)
def test_a_miss_under_faults_is_counted_only(disturb):
    checker = judged(disturb(missing()))
    assert checker.violations == []
    assert (checker.counts.expected, checker.counts.missed) == (1, 1)


def test_what_is_published_while_disturbed_is_counted_only():
    assert rules_broken(missing(disturbed=True)) == []


def test_a_disturbance_after_its_time_excuses_nothing():
    story = missing().wait(2_000).crash("n9")
    assert rules_broken(story, horizon_ms=1_000) == [Rule.MISSED]
    assert rules_broken(story, horizon_ms=10_000) == []


def test_after_a_disturbance_comes_a_calm_phase():
    story = missing(disturbed=True).crash("n9").phase("after").publish("n2", "e2", price=15)
    checker = judged(story)
    assert [violation.event_id for violation in checker.violations] == ["e2"]
    assert checker.phases["calm"].missed == 1
    assert checker.phases["after"].missed == 1
    assert checker.counts.missed == 2


@pytest.mark.parametrize(
    "go",
    [
        lambda story: story.unsubscribe("n1", "s1"),
        lambda story: story.crash("n1"),
        lambda story: story.leave("n1"),
    ],
)
def test_who_goes_is_not_expected_to_get_it(go):
    counts = judged(go(missing())).counts
    assert (counts.expected, counts.missed, counts.excused) == (0, 0, 1)
    assert rules_broken(go(missing().wait(2_000)), horizon_ms=1_000) == [Rule.MISSED]


def test_who_is_not_ready_is_not_expected_to_get_it():
    story = Story().subscribe("n1", "s1", "price > 10", ready=False).publish("n2", "e1", price=15)
    assert judged(story.ready("n1", "s1")).counts.expected == 0
    assert rules_broken(story.publish("n2", "e2", price=15)) == [Rule.MISSED]


def test_who_was_restored_is_expected_to_get_what_comes_then():
    story = Story().subscribe("n1", "s1", "price > 10").crash("n1")
    story.restart("n1", Disk.KEPT, "s1").phase("after").publish("n2", "e1", price=15)
    assert rules_broken(story) == [Rule.MISSED]


def test_a_name_that_is_taken_stays_with_whom_has_it():
    story = missing().deliver("n1", "e1", "s1").subscribe("n1", "s1", "price > 100")
    story.publish("n2", "e2", price=15)
    assert [violation.event_id for violation in judged(story).violations] == ["e2"]


def test_of_two_equal_filters_one_may_end():
    story = missing().subscribe("n3", "s3", "price > 10").deliver("n1", "e1", "s1")
    story.unsubscribe("n1", "s1").publish("n2", "e2", price=15)
    checker = judged(story)
    assert [violation.subscription for violation in checker.violations] == ["s3"]
    assert (checker.counts.expected, checker.counts.excused) == (2, 0)


def test_what_comes_late_is_delivered_and_missed():
    story = missing(disturbed=True).wait(2_000).deliver("n1", "e1", "s1")
    counts = judged(story, horizon_ms=1_000).counts
    assert (counts.expected, counts.missed, counts.delivered, counts.late) == (1, 1, 1, 1)


# --- promises ----------------------------------------------------------------------------------


def promised():
    story = Story().subscribe("n1", "s1", "price > 10").subscribe("n2", "s2", "price > 10")
    return story.publish("n3", "e1", promised=True, price=15).deliver("n1", "e1", "s1")


def test_a_promise_kept():
    checker = judged(promised().deliver("n2", "e1", "s2").completed("n3", "e1"))
    assert checker.violations == []
    assert (checker.counts.promised, checker.counts.completed) == (1, 1)


def test_a_promise_said_to_be_kept_too_early():
    story = promised().completed("n3", "e1").deliver("n2", "e1", "s2")
    checker = judged(story)
    (violation,) = checker.violations
    assert (violation.rule, violation.node) == (Rule.PROMISE, "n2")
    assert checker.counts.missed == 1


def test_faults_excuse_no_promise_to_the_living():
    story = promised().crash("n9").fault(FaultKind.EDGE_FAILURE, pairs=(("n2", "n3"),))
    assert rules_broken(story.completed("n3", "e1")) == [Rule.PROMISE]


def test_who_stands_still_may_get_what_was_promised_later_but_must_get_it():
    story = promised().fault(FaultKind.STALL, nodes=("n2",)).completed("n3", "e1")
    story.fault(FaultKind.STALL_OVER, nodes=("n2",))
    assert rules_broken(story) == [Rule.REPLAY]
    assert rules_broken(story.deliver("n2", "e1", "s2")) == []


def test_that_others_stand_still_excuses_no_promise():
    story = promised().fault(FaultKind.STALL, nodes=("n9",)).completed("n3", "e1")
    assert rules_broken(story) == [Rule.PROMISE]


def test_the_dead_are_promised_nothing():
    story = promised().crash("n2").restart("n2", Disk.KEPT, "s2").completed("n3", "e1")
    assert rules_broken(story) == []


def test_a_promise_without_an_end():
    story = promised().deliver("n2", "e1", "s2")
    assert rules_broken(story) == [Rule.UNCOMPLETED]
    assert rules_broken(story, settled=False) == []
    assert rules_broken(story.crash("n3")) == []


def test_a_promise_that_failed():
    checker = judged(promised().failed("n3", "e1", "no time"))
    (violation,) = checker.violations
    assert violation.rule == Rule.PUBLISH_FAILED
    assert "no time" in violation.text
    assert checker.counts.missed == 1


@pytest.mark.parametrize("is_split", [True, False])
def test_who_may_fail_is_asked_whether_the_network_was_split(is_split):
    story = promised()
    if is_split:
        story.fault(FaultKind.PARTITION, groups=(("n2",),))
    checker = DeliveryChecker()
    checker.may_fail = lambda node, reason, is_parted: (
        (node, reason, is_parted)
        == (
            "n3",
            "no time",
            True,
        )
    )
    for record in story.failed("n3", "e1", "no time").records:
        checker.observe(record)
    assert [each.rule for each in checker.violations] == [Rule.PUBLISH_FAILED] * (not is_split)


def test_a_promise_in_a_split_network_is_kept_in_the_end():
    story = promised().fault(FaultKind.PARTITION, groups=(("n2",),)).completed("n3", "e1")
    assert rules_broken(story) == []  # still split when the run is over
    story.fault(FaultKind.HEAL)
    assert rules_broken(story) == [Rule.REPLAY]
    assert rules_broken(story.deliver("n2", "e1", "s2")) == []


def test_nobody_repeats_what_a_publisher_that_is_gone_said_in_a_split_network():
    story = promised().fault(FaultKind.PARTITION, groups=(("n2",),)).completed("n3", "e1")
    story.fault(FaultKind.HEAL)
    assert rules_broken(story.crash("n3")) == []


def test_a_subscription_that_gets_ready_while_its_node_leaves_is_not_waited_for():
    story = Story().leave("n1")
    story.subscribe("n1", "s1", "price > 10").publish("n2", "e1", price=15).wait(20_000)
    assert rules_broken(story) == []


def test_an_event_of_best_effort_may_come_again_once_its_node_has_started_again():
    story = Story().subscribe("n1", "s1", "price > 10").publish("n2", "e1", price=15)
    story.deliver("n1", "e1", "s1").crash("n1").restart("n1", Disk.KEPT, "s1")
    assert rules_broken(story.deliver("n1", "e1", "s1")) == []
    assert rules_broken(story.deliver("n1", "e1", "s1")) == [Rule.TWICE]


def test_parts_that_grow_together_have_time():
    story = Story().fault(FaultKind.PARTITION, groups=(("n2",),)).fault(FaultKind.HEAL)
    story.subscribe("n2", "s2", "price > 10").wait(500)
    story.publish("n3", "e1", promised=True, price=15).completed("n3", "e1")
    assert rules_broken(story, merge_ms=1_000) == [Rule.REPLAY]
    assert rules_broken(story, merge_ms=100) == [Rule.PROMISE]
    story.deliver("n2", "e1", "s2")
    assert rules_broken(story, merge_ms=1_000) == []


def test_a_publisher_that_repeats_publishes_the_same_event():
    story = promised().deliver("n2", "e1", "s2")
    story.publish("n3", "e1", promised=True, price=15).completed("n3", "e1")
    checker = judged(story)
    assert checker.violations == []
    assert checker.counts.events == 1
