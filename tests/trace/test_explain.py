"""Why a subscriber got an event, or did not: one story for each answer."""

import json

from peersub import Filter
from peersub.overlays.core.causes import Publish, Received, Subscribe
from peersub.overlays.core.effects import Deliver, Drop, ProposeMove, Send
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.publication import Publication
from peersub.overlays.routing.messages import Notify
from peersub.trace.explain import Verdict, explain
from peersub.trace.schema import record_line
from trace_steps import Story

EVENT = Publication("e1", {"price": 15})


def answer(story, event_id="e1", subscription="s1", node=None):
    forms = [json.loads(record_line(record)) for record in story.records]
    return explain(forms, event_id, subscription, node)


def notify(hops, *scope):
    return (Notify(EVENT, scope, hops),)


def on_its_way(wanted="price > 10"):
    """From n0 over n1 towards n2, where s1 lives; also to n3, which nobody hears of again."""
    story = Story().subscribe("n2", "s1", wanted)
    sent = [Send(PeerId("n1", 4), notify(1, 1, 9)), Send(PeerId("n3"), notify(1, 10, 20))]
    story.step("n0", Publish((EVENT,)), sent)
    forwarded = [Send(PeerId("n2"), notify(2, 5, 9))]
    return story.step("n1", Received(PeerId("n0"), notify(1, 1, 9)), forwarded)


def test_a_delivery_and_its_path():
    story = on_its_way()
    story.step("n2", Received(PeerId("n1", 4), notify(2, 5, 9)), [Deliver(EVENT, ("s1",), 2)])
    found = answer(story)
    assert found.verdict is Verdict.DELIVERED
    assert [(hop.sender, hop.receiver) for hop in found.path] == [("n0", "n1"), ("n1", "n2")]
    assert [hop.scope for hop in found.path] == [(1, 9), (5, 9)]
    assert [(hop.sent_ms, hop.received_ms) for hop in found.path] == [(2, 3), (3, 4)]
    assert "over 2 links" in found.sentences[1]


def test_a_delivery_at_home():
    story = Story().subscribe("n0", "s1", "price > 10")
    story.step("n0", Publish((EVENT,)), [Deliver(EVENT, ("s1",), 0)])
    found = answer(story)
    assert (found.verdict, found.path) == (Verdict.DELIVERED, ())
    assert "without leaving its node" in found.sentences[1]


def test_a_second_delivery_is_told():
    story = Story().subscribe("n0", "s1", "price > 10").publish("n0", "e1", price=15)
    story.deliver("n0", "e1", "s1").deliver("n0", "e1", "s1", again=True)
    assert answer(story).sentences[-1].endswith("again after a crash")


def test_a_subscription_that_moves_is_asked_for_where_it_is_ready():
    story = Story().subscribe("n0", "s1", "price > 10")
    moving = Subscribe("s1", Filter("price > 10"), moved=True)
    story.step("n0", Publish(()), [ProposeMove("s1", "n1")]).step("n1", moving)
    found = answer(story.publish("n0", "e1", price=15))
    assert found.verdict is Verdict.MISSED
    assert "s1 on n0 matches, was ready" in found.sentences[1]
    assert found.sentences[-1].endswith("that s1 moves to n1")


def test_names_that_the_trace_does_not_know():
    assert answer(on_its_way(), event_id="e9").verdict is Verdict.NOT_PUBLISHED
    assert answer(on_its_way(), subscription="s9").verdict is Verdict.NO_SUBSCRIPTION
    assert answer(on_its_way(), node="n7").verdict is Verdict.NO_SUBSCRIPTION


def test_a_filter_that_does_not_match():
    found = answer(on_its_way("price > 100"))
    assert found.verdict is Verdict.NOT_MATCHING
    assert "price > 100" in found.sentences[-1]


def test_a_subscription_that_was_not_ready():
    story = Story().subscribe("n2", "s1", "price > 10", ready=False)
    story.publish("n0", "e1", price=15)
    assert "ready never" in answer(story).sentences[-1]
    assert "only at 3 ms" in answer(story.ready("n2", "s1")).sentences[-1]
    assert answer(story).verdict is Verdict.NOT_READY


def test_a_subscription_that_came_later():
    story = Story().publish("n0", "e1", price=15).subscribe("n2", "s1", "price > 10")
    found = answer(story)
    assert (found.verdict, "made later, at 2 ms" in found.sentences[-1]) == (
        Verdict.NOT_READY,
        True,
    )


def test_a_subscription_that_had_ended():
    story = Story().subscribe("n2", "s1", "price > 10").unsubscribe("n2", "s1")
    assert answer(story.publish("n0", "e1", price=15)).verdict is Verdict.ENDED
    story = Story().subscribe("n2", "s1", "price > 10").crash("n2")
    assert answer(story.publish("n0", "e1", price=15)).verdict is Verdict.NODE_DOWN


def test_a_message_that_was_lost():
    found = answer(on_its_way())
    assert found.verdict is Verdict.MISSED
    ends = [sentence for sentence in found.sentences if "never arrived" in sentence]
    # The link to the subscriber's node comes first.
    assert ends[0].startswith("n1 sent it to n2 at 3 ms") and ends[0].endswith("lost on the way")
    assert ends[1].startswith("n0 sent it to n3 at 2 ms")


def test_a_relay_that_crashed():
    story = Story().subscribe("n2", "s1", "price > 10")
    story.step("n0", Publish((EVENT,)), [Send(PeerId("n1"), notify(1))]).crash("n1")
    assert answer(story).sentences[-1].endswith("n1 had crashed at 3 ms")


def test_a_drop_on_the_way_and_at_home():
    story = on_its_way()
    story.step("n2", Received(PeerId("n1"), notify(2)), [Drop("the queue is full", "e1")])
    found = answer(story)
    assert found.sentences[-1] == "n2 dropped it at 4 ms: the queue is full"
    assert [hop.receiver for hop in found.path] == ["n1", "n2"]
    story = Story().subscribe("n2", "s1", "price > 10")
    story.step("n0", Publish((EVENT,)), [Drop("too many tasks", "e1")])
    assert "n0 dropped it at 2 ms: too many tasks" in answer(story).sentences


def test_nobody_sent_it():
    story = Story().subscribe("n2", "s1", "price > 10").publish("n0", "e1", price=15)
    assert answer(story).sentences[-1].startswith("nobody sent it there")


def test_the_fate_of_a_promise_is_told():
    story = Story().subscribe("n2", "s1", "price > 10").publish("n0", "e1", promised=True, price=15)
    assert "failed: too slow" in answer(story.failed("n0", "e1")).sentences[-1]
