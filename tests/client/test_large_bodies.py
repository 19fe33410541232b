"""Large documents: parsed once, off the loop, and what comes after them stays after them."""

from __future__ import annotations

import asyncio
import threading

import pytest

from client.fake_node import FakeNode
from client.test_door import door_of, wanted
from client.turns import on_loop, settle, until
from peersub import Filter, connect, join
from peersub.filters.xpath import documents, xpath_filter
from peersub.matching import xpath_index
from peersub.overlays.core.publication import Delivery, Publication
from peersub.runtime.body_reading import ASKED_ON_LOOP_BYTES, READ_ON_LOOP_BYTES, BodyReader
from peersub.wire import sealed
from peersub.wire.client_messages import Delivered, PublishEnded, PublishWanted, SubscribeWanted
from peersub.wire.publications import publication_of

LARGE = b"<r>" + b"<item><p>text</p></item>" * (READ_ON_LOOP_BYTES // 20) + b"</r>"
PATTERN = Filter.xpath("/r/item/p")


@pytest.fixture
def parsed(monkeypatch):
    """The threads in which documents are parsed, one for each."""
    threads: list[threading.Thread] = []
    parse = documents.parse_document

    def watched(data):
        if len(data) > READ_ON_LOOP_BYTES:
            threads.append(threading.current_thread())
        return parse(data)

    monkeypatch.setattr(documents, "parse_document", watched)
    return threads


def test_an_event_on_its_way_is_parsed_once(parsed):
    event = publication_of("e", Delivery.BEST_EFFORT, sealed(Publication("e", {})).packed, LARGE)
    filters = [Filter.xpath(f"/r/item/p{n}") for n in range(5)]
    assert event.matches(PATTERN) and not any(map(event.matches, filters))
    assert len(parsed) == 1
    event.forget_unpacked()
    assert event.matches(PATTERN) and len(parsed) == 2


def test_what_is_no_document_is_looked_at_once(parsed):
    event = Publication("e", {}, LARGE + b"<")
    assert not event.matches(PATTERN) and not event.matches(Filter.xpath("/r"))
    assert len(parsed) == 1


@on_loop
async def test_a_node_without_patterns_reads_nothing(parsed):
    bodies, event = BodyReader(), Publication("e", {}, LARGE)
    bodies.note(Filter("n = 1"))
    assert not bodies.has_patterns
    bodies.note(PATTERN)
    assert bodies.must_read(event) and not bodies.must_read(Publication("e", {}, b"<r/>"))
    await bodies.read([event])
    assert not bodies.must_read(event) and parsed[0] is not threading.current_thread()


@on_loop
async def test_what_nobody_waits_for_any_more_is_never_parsed_beside_another(monkeypatch):
    bodies, go_on, begun = BodyReader(), threading.Event(), []
    bodies.note(PATTERN)
    parse = documents.parse_document

    def held(data):
        begun.append(len(data))
        go_on.wait(20)
        return parse(data)

    monkeypatch.setattr(documents, "parse_document", held)
    sizes = [len(LARGE) + n for n in range(4)]
    events = [Publication("e", {}, LARGE + b" " * n) for n in range(4)]
    reads = [asyncio.ensure_future(bodies.read([event])) for event in events]
    await until(lambda: begun)
    for read in reads[:3]:
        read.cancel()
    await settle()
    assert begun == sizes[:1], "the next ones wait until the one that was given up has ended"
    go_on.set()
    await reads[3]
    assert begun == [sizes[0], sizes[3]], "what nobody waits for is not begun"


@on_loop
async def test_a_client_s_events_stay_in_order_behind_a_large_one(parsed):
    node = FakeNode()
    node.bodies.note(PATTERN)
    door, connection = door_of(node)
    door.on_messages([wanted(1), SubscribeWanted(2, PATTERN, credit=9)])
    events = [sealed(Publication(f"e{n}", {}, LARGE if n == 1 else None)) for n in range(4)]
    door.on_messages([PublishWanted(event, n) for n, event in enumerate(events[:3])])
    assert connection.is_held and not node.published
    door.on_messages([PublishWanted(events[3], 3)])
    await until(lambda: len(node.published) == 4)
    await until(lambda: not connection.is_held)
    assert [event.id for event in node.published] == ["e0", "e1", "e2", "e3"]
    await until(lambda: len([m for m in connection.sent if isinstance(m, Delivered)]) == 4)
    assert connection.taken(PublishEnded)
    assert ("e1", 1, 2) in connection.events()
    assert len(parsed) == 1 and parsed[0] is not threading.current_thread()


@on_loop
async def test_documents_cross_a_network_without_being_parsed_on_a_loop(parsed):
    async with (
        join() as first,
        join(first.node) as second,
        connect(second.node) as light,
        light.subscribe(PATTERN) as patterns,
        first.subscribe("n >= 0") as all_of_it,
    ):
        for each in (patterns, all_of_it):
            await each.ready(timeout=20)
        for number in range(4):
            body = LARGE if number == 1 else b"<r><item><p/></item></r>"
            await first.publish({"n": number}, id=str(number), body=body)
        for each in (patterns, all_of_it):
            assert [(await anext(each)).id for _ in range(4)] == ["0", "1", "2", "3"]
    assert len(parsed) == 2  # Once at each node.
    assert threading.current_thread() not in parsed


# --- patterns --------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch):
    """The threads in which patterns are asked about documents, one for each time."""
    threads: list[threading.Thread] = []
    for module in (xpath_filter, xpath_index):
        ask = module.embeds

        def watched(*about, ask=ask):
            threads.append(threading.current_thread())
            return ask(*about)

        monkeypatch.setattr(module, "embeds", watched)
    return threads


BRANCHED = [
    *(f"/r/item[p = '{n}'][p = 'text']" for n in range(5)),
    *("/r/item[p = 'text']", "//item[p]/p[. = 'text']", "//item[p = 'text'][p = 'x']"),
]


@on_loop
async def test_all_patterns_that_are_held_are_asked_about_a_large_document_off_the_loop(asked):
    bodies = BodyReader()
    patterns = [Filter.xpath(text) for text in BRANCHED]
    for pattern in patterns:
        bodies.note(pattern)
    received = [Filter.from_bytes(pattern.to_bytes()) for pattern in patterns]
    event = Publication("e", {}, LARGE)
    await bodies.read([event])
    begun = len(asked)
    assert begun and threading.current_thread() not in asked
    wanted = [pattern for pattern in patterns if pattern.matches(LARGE)]
    assert [pattern.text for pattern in wanted] == [Filter.xpath(t).text for t in BRANCHED[5:7]]
    del asked[begun:]
    for many in (patterns, received):
        assert [each for each in many if event.matches(each)] == wanted
        index = xpath_index.XPathIndex()
        for number, each in enumerate(many):
            index.add(number, each)
        assert index.match(event.event) == [5, 6]
    assert len(asked) == begun, "nothing is asked again"
    # One that came meanwhile is asked where it is needed.
    late = Filter.xpath("/r[item = 'text']")
    index.add(99, late)
    assert event.matches(late) and index.match(event.event) == [5, 6, 99]


@on_loop
async def test_patterns_that_nobody_holds_any_more_are_not_asked(asked):
    bodies, first = BodyReader(), Filter.xpath(BRANCHED[0])
    bodies.note(first)
    gone = Filter.xpath(BRANCHED[3])
    bodies.note(gone)
    text = gone.text
    del gone
    event = Publication("e", {}, LARGE)
    await bodies.read([event])
    answers = event.event.reading[0].answers
    assert first.text in answers and text not in answers
    second = Filter.xpath(BRANCHED[1])
    bodies.note(second)
    text = first.text
    del first
    event.forget_unpacked()
    await bodies.read([event])
    answers = event.event.reading[0].answers
    assert second.text in answers and text not in answers


@on_loop
async def test_the_more_patterns_the_smaller_a_document_is_read_off_the_loop():
    bodies, event = BodyReader(), Publication("e", {}, b"<r>" + b"<p/>" * 1_000 + b"</r>")
    patterns = [Filter.xpath(f"/r/p{n}[q]") for n in range(ASKED_ON_LOOP_BYTES // 4_007 + 1)]
    bodies.note(patterns[0])
    assert not bodies.must_read(event)
    for pattern in patterns[1:]:
        bodies.note(pattern)
    assert bodies.must_read(event)
