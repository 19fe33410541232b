"""Facts of a trace by Spark, against those that the checkers read; whatever the file looks like."""

import gzip
from collections import Counter

import pytest

from audit_runs import traced_run
from peersub.overlays.core.causes import Publish, Received
from peersub.overlays.core.effects import Drop, Send
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.link_messages import BetweenSlots, Carried, Tunnelled
from peersub.overlays.core.publication import Publication
from peersub.overlays.routing.messages import Notify
from peersub.simulator.swarm import swarm_scenario
from peersub.trace import facts as small
from peersub.trace.reading import trace_forms
from peersub.trace.schema import Disk, header_line, record_line
from trace_steps import Story

pytestmark = pytest.mark.spark

KINDS = {
    small.Subscribed: "subscribed",
    small.Ready: "ready",
    small.Unsubscribed: "unsubscribed",
    small.Published: "published",
    small.Completed: "completed",
    small.Failed: "failed",
    small.Stopped: "stopped",
    small.Left: "left",
    small.Revived: "revived",
    small.PhaseBegun: "phase",
}


def small_facts(lines):
    """What `trace.facts` reads, as (fact, ms, node, event, subscription, hops, flag)."""
    for form in trace_forms(lines):
        for fact in small.facts_of_form(form):
            match fact:
                case small.Delivered():
                    for name in fact.subscriptions:
                        node, again = fact.node, fact.again
                        yield "delivered", fact.now_ms, node, fact.event_id, name, fact.hops, again
                case small.Split():
                    kind = "parted" if fact.parted else "healed"
                    yield kind, fact.now_ms, None, None, None, None, None
                case small.Published():
                    event, flag = fact.event.id, fact.promised
                    yield "published", fact.now_ms, fact.node, event, None, None, flag
                case small.Remembered():
                    for name, _ in fact.subscriptions:
                        yield "remembered", fact.now_ms, fact.node, None, name, None, None
                case small.PhaseBegun():
                    yield "phase", fact.now_ms, None, None, None, None, fact.disturbed
                case small.Disturbed():
                    pass
                case _:
                    event = getattr(fact, "event_id", None)
                    name = getattr(fact, "subscription", None)
                    yield KINDS[type(fact)], fact.now_ms, fact.node, event, name, None, None


def facts_in(spark, path):
    from peersub.pipeline.trace_reading import trace_facts, trace_lines

    return trace_facts(trace_lines(spark, str(path)))


def compared(rows):
    """Rows of Spark in the form of `small_facts`, without the kinds that it does not know."""
    unknown = ("sent", "received", "dropped", "edge-failed", "edge-mended", "lost", "header")
    return Counter(
        (
            row["fact"],
            row["moment"]["ms"],
            row["node"],
            row["event_id"],
            row["subscription_id"],
            row["hops"],
            row["flag"],
        )
        for row in rows
        if row["fact"] not in unknown
    )


def test_facts_of_a_run_with_every_kind_of_fault_are_those_of_the_checkers(spark, tmp_path):
    # Swarm 1 of Chord crashes, starts again from disk, unsubscribes, leaves, promises, is split.
    run = traced_run(swarm_scenario(1, "chord"))
    path = tmp_path / "trace.ndjson"
    path.write_text("\n".join(run.lines) + "\n")
    rows = facts_in(spark, path).collect()
    assert compared(rows) == Counter(small_facts(run.lines))
    # Moments order facts of one file as its lines do.
    in_order = sorted(rows, key=lambda row: tuple(row["moment"]))
    told = [fact[:2] for fact in small_facts(run.lines)]
    known = {kind for kind, _ in told}
    assert [(r["fact"], r["moment"]["ms"]) for r in in_order if r["fact"] in known] == told


def a_story():
    event = Publication("e1", {"price": 5})
    notify = Notify(event, (), 3)
    wrapped = Carried(1, 2, 3, 4, Tunnelled("n9", PeerId("n1"), BetweenSlots(0, 1, notify)))
    control = Notify(Publication("control-1", {}), (), 1, control="node-join")
    story = Story().subscribe("n2", "s1", "price > 1")
    story.step("n1", Publish((event,)), [Send(PeerId("n2", 4, 1), (notify, wrapped, control))])
    story.step("n2", Received(PeerId("n1"), (notify, wrapped)), [Drop('too "old"\n', "e1")])
    return story.crash("n2").restart("n2", Disk.LOST)


def lines_of(story):
    return [header_line(overlay="test"), *(record_line(record) for record in story.records)]


@pytest.mark.parametrize("form", ["plain", "compressed", "folder"])
def test_messages_and_drops_of_any_form_of_file(spark, tmp_path, form):
    lines = lines_of(a_story())
    if form == "plain":
        path = tmp_path / "trace.ndjson"
        # A trace that was cut off, and lines that are none.
        path.write_text("\n".join([*lines, '{"event_id":1', "", '{"fault":2}', '{"ms":1,"give']))
    elif form == "compressed":
        path = tmp_path / "trace.ndjson.gz"
        path.write_bytes(gzip.compress("\n".join(lines).encode()))
    else:
        path = tmp_path / "traces"
        path.mkdir()
        (path / "a.ndjson").write_text("\n".join(lines[:4]))
        (path / "b.ndjson").write_text("\n".join([lines[0], *lines[4:]]))
    rows = facts_in(spark, path).collect()
    passages = sorted(
        (row["fact"], row["node"], row["peer"], row["event_id"], row["hops"], row["flag"])
        for row in rows
        if row["fact"] in ("sent", "received")
    )
    assert passages == [
        ("received", "n2", "n1", "e1", 3, False),
        ("received", "n2", "n1", "e1", 3, True),
        ("sent", "n1", "n2", "e1", 3, False),
        ("sent", "n1", "n2", "e1", 3, True),
    ]
    [drop] = [row for row in rows if row["fact"] == "dropped"]
    assert (drop["node"], drop["event_id"], drop["text"]) == ("n2", "e1", 'too "old"\n')
    assert [row["text"] for row in rows if row["fact"] == "revived"] == ["lost"]
    unreadable = [row["text"] for row in rows if row["fact"] == "unreadable"]
    cut = ['{"event_id":1', '{"fault":2}', '{"ms":1,"give']
    assert sorted(unreadable) == (sorted(cut) if form == "plain" else [])


def test_views_of_a_trace(spark, tmp_path):
    from peersub.pipeline import trace_reading as reading

    path = tmp_path / "trace.ndjson"
    path.write_text("\n".join(lines_of(a_story())))
    facts = facts_in(spark, path)
    assert [tuple(row) for row in reading.publications_in(facts).collect()] == [
        ("e1", "n1", 2, "best_effort")
    ]
    changes = reading.subscription_changes_in(facts).collect()
    made, ready = ("s1", "n2", 1, "subscribed"), ("s1", "n2", 1, "ready")
    assert [tuple(row) for row in changes] == [made, ready]
    assert [row["reason"] for row in reading.drops_in(facts).collect()] == ['too "old"\n']
    faults = {(row["fault"], row["node"]) for row in reading.faults_in(facts).collect()}
    assert faults == {("stopped", "n2"), ("revived", "n2")}


def test_ids_of_delivery_files_are_needed_and_the_rest_is_not(spark):
    from peersub.pipeline.trace_reading import deliveries_of

    plain = spark.createDataFrame([("e1", "s1")], "event_id string, subscription_id string")
    [row] = deliveries_of(plain).collect()
    assert (row["event_id"], row["node"], row["hops"], row["moment"]) == ("e1", None, None, None)
    with pytest.raises(ValueError, match="subscription_id missing"):
        deliveries_of(plain.drop("subscription_id"))
