"""Facts: the same from what a driver tells and from a trace; names agree with the protocols."""

import json

from peersub.filters.filter import Filter
from peersub.overlays.core import causes, effects, records
from peersub.overlays.core.causes import Publish, Restored, Subscribe
from peersub.overlays.core.effects import Deliver, ProposeMove, SubscriptionReady
from peersub.overlays.core.publication import Delivery, Publication
from peersub.overlays.core.records import (
    EventHandedOver,
    SubscriptionRemoved,
    SubscriptionStored,
)
from peersub.trace import facts
from peersub.trace.facts import facts_of, facts_of_form
from peersub.trace.schema import Disk, Fault, FaultKind, Given, Phase, Step, kind_name, record_line


def both(record):
    """The facts of a record, which are those of its line."""
    told, read = facts_of(record), facts_of_form(json.loads(record_line(record)))
    assert list(told) == list(read)
    return list(told)


def test_the_names_are_those_of_the_protocols():
    for names, forms, module in (
        (facts._CAUSES, facts._CAUSE_FORMS, causes),
        (facts._EFFECTS, facts._EFFECT_FORMS, effects),
    ):
        assert set(names) <= set(module.__all__)
        assert sorted(forms) == sorted(kind_name(getattr(module, name)) for name in names)
    assert {"SubscriptionStored", "SubscriptionRemoved"} <= set(records.__all__)


def test_the_cause_comes_before_the_effects():
    publication = Publication("e1", {"a": 1}, b"<x/>", delivery=Delivery.AT_LEAST_ONCE)
    step = Step(5, "n1", Publish((publication,)), [Deliver(publication, ("s1", "s2"), 0, True)])
    published, delivered = both(step)
    assert published == facts.Published(5, "n1", publication.event, promised=True)
    assert delivered == facts.Delivered(5, "n1", "e1", ("s1", "s2"), 0, True)


def test_subscriptions():
    wanted = Filter("price > 10 AND symbol = 'A'")
    step = Step(5, "n1", Subscribe("s1", wanted), [SubscriptionReady("s1")])
    assert both(step) == [facts.Subscribed(5, "n1", "s1", wanted), facts.Ready(5, "n1", "s1")]
    assert both(Given(5, "n1", (("s1", wanted),))) == both(step)
    pattern = Filter.xpath("/a[b]//c")
    assert both(Step(5, "n1", Subscribe("s1", pattern), ()))[0].filter == pattern


def test_proposals_to_move():
    moved = Step(5, "n1", Subscribe("s1", Filter("a = 1"), moved=True), [ProposeMove("s1", "n2")])
    assert both(moved)[1:] == [facts.MoveProposed(5, "n1", "s1", "n2")]
    assert '"moved":true' in record_line(moved)


def test_what_the_disk_remembers():
    wanted = Filter("a = 1")
    kept = (
        SubscriptionStored("s1", wanted),
        SubscriptionStored("s2", wanted),
        EventHandedOver("e1"),
        SubscriptionRemoved("s1"),
    )
    assert both(Step(5, "n1", Restored(kept), ())) == [facts.Remembered(5, "n1", (("s2", wanted),))]


def test_faults():
    assert both(Fault(5, FaultKind.CRASH, nodes=("n1", "n2"))) == [
        facts.Stopped(5, "n1"),
        facts.Stopped(5, "n2"),
    ]
    restart = Fault(5, FaultKind.RESTART, nodes=("n1",), disk=Disk.KEPT)
    assert both(restart) == [facts.Revived(5, "n1", Disk.KEPT)]
    assert both(Fault(5, FaultKind.HEAL)) == [facts.Split(5, False)]
    assert both(Fault(5, FaultKind.EDGE_HEAL, pairs=(("n1", "n2"),))) == []
    assert both(Phase(5, "x", disturbed=True)) == [facts.PhaseBegun(5, "x", True)]
