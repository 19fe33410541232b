"""The trace as lines: what they show, that they are the same each time, that nothing is lost."""

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given

from overlays.core.batch_rows import batch_of
from peersub.filters.filter import Filter
from peersub.overlays.core.causes import Publish, Received, Subscribe, Timer, TimerFired
from peersub.overlays.core.effects import Connect, Deliver, Drop, Persist, Send, SetTimer
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.mirror_messages import KeptRows
from peersub.overlays.core.publication import Delivery, Publication
from peersub.overlays.core.records import BatchStored, EventStored
from peersub.overlays.routing.messages import Entry, FilterUpdate, Notify, NotifyBatch
from peersub.trace.schema import (
    ROWS_SHOWN_MAX,
    TEXT_SHOWN_MAX,
    Disk,
    Fault,
    FaultKind,
    Given,
    Phase,
    Step,
    plain_attributes,
    plain_form,
    plain_record,
    record_line,
    values_of_attributes,
)
from strategies import events

EVENT = Publication("e1", {"price": 12.5}, delivery=Delivery.AT_LEAST_ONCE)
PEER = PeerId("n7", 2)


def test_a_step_as_a_line():
    step = Step(
        40,
        "n1",
        Received(PeerId("n0"), (Notify(EVENT, (3, 9), 2, 5),)),
        [
            Deliver(EVENT, ("s1",), 2),
            Send(PEER, (Notify(EVENT, (4, 9), 3),)),
            Drop("seen before", "e1", PEER),
        ],
    )
    assert record_line(step) == (
        '{"ms":40,"node":"n1","cause":{"kind":"received","peer":"n0","messages":['
        '{"kind":"notify","event_id":"e1","delivery":"at_least_once","scope":[3,9],"hops":2,'
        '"delegation":5}]},"effects":[{"kind":"deliver","event_id":"e1",'
        '"delivery":"at_least_once","subscriptions":["s1"],"hops":2},'
        '{"kind":"send","peer":"n7~2","messages":[{"kind":"notify","event_id":"e1",'
        '"delivery":"at_least_once","scope":[4,9],"hops":3}]},'
        '{"kind":"drop","reason":"seen before","event_id":"e1","peer":"n7~2"}]}'
    )


def test_other_records_as_lines():
    assert record_line(Phase(3, "repair", disturbed=True)) == (
        '{"ms":3,"phase":"repair","disturbed":true}'
    )
    restart = Fault(9, FaultKind.RESTART, nodes=("n1",), disk=Disk.TAIL_LOST)
    assert record_line(restart) == ('{"ms":9,"fault":"restart","nodes":["n1"],"disk":"tail-lost"}')
    parted = Fault(9, FaultKind.PARTITION, groups=(("n1", "n2"), ("n3",)))
    assert record_line(parted) == ('{"ms":9,"fault":"partition","groups":[["n1","n2"],["n3"]]}')
    wanted = (("s1", Filter("price > 10")), ("s2", Filter.xpath("/a/b")))
    assert record_line(Given(0, "n1", wanted)) == (
        '{"ms":0,"node":"n1","given":[{"subscription":"s1","filter":"price > 10"},'
        '{"subscription":"s2","xpath":"/a/b"}]}'
    )


def test_what_enters_the_network_is_whole():
    long_text = "symbol IN (" + ", ".join(f"'share number {n}'" for n in range(100)) + ")"
    wanted = Filter(long_text)
    form = plain_record(Step(1, "n1", Subscribe("s1", wanted), []))
    assert Filter(form["cause"]["filter"]) == wanted
    published = Publish(tuple(Publication(f"e{n}", {"text": "x" * 500}) for n in range(50)))
    form = plain_record(Step(1, "n1", published, []))
    assert len(form["cause"]["publications"]) == 50
    assert form["cause"]["publications"][0]["attributes"] == {"text": "x" * 500}


def test_bodies_come_back():
    for body in (b"<a>\xc3\xa9</a>", b"\xff\x00"):
        form = plain_record(Step(1, "n1", Publish((Publication("e1", {}, body),)), []))
        (shown,) = form["cause"]["publications"]
        (kind,) = shown["body"]
        text = shown["body"][kind]
        assert (bytes.fromhex(text) if kind == "hex" else text.encode()) == body


def test_elsewhere_long_things_are_cut():
    wide = Filter("symbol IN (" + ", ".join(f"'share number {n}'" for n in range(100)) + ")")
    update = FilterUpdate(7, 1, tuple(Entry("", wide) for _ in range(40)), (), b"\1" * 16)
    form = plain_form(update)
    assert len(form["added"]) == ROWS_SHOWN_MAX + 1
    assert form["added"][-1] == "… 24 more"
    assert len(form["added"][0]["filter"]) == TEXT_SHOWN_MAX + 1
    assert form["digest"] == "01" * 16
    assert plain_form(b"\1" * 100) == "01" * 20 + "… (100 bytes)"


def test_fields_with_their_default_are_left_out():
    assert plain_form(Connect("n3")) == {"kind": "connect", "node": "n3"}
    assert plain_form(Drop("odd")) == {"kind": "drop", "reason": "odd"}
    timer = SetTimer(Timer("probe", PEER), 500)
    assert plain_form(timer) == {
        "kind": "set-timer",
        "timer": {"purpose": "probe", "about": "n7~2"},
        "delay_ms": 500,
    }
    assert plain_form(TimerFired(Timer("x"))) == {"kind": "timer-fired", "timer": {"purpose": "x"}}


def test_the_name_of_a_batch_is_no_batch():
    assert plain_form(KeptRows("b", ())) == {"kind": "kept-rows", "batch": "b", "rows": []}


def test_a_stored_event_is_its_identifier():
    form = plain_form(Persist(4, EventStored(EVENT, ("s1",), 9, 2)))
    assert form["record"] == {
        "kind": "event-stored",
        "event_id": "e1",
        "delivery": "at_least_once",
        "subscriptions": ["s1"],
        "at_ms": 9,
        "hops": 2,
    }


def test_a_batch_is_its_name_and_all_numbers():
    whole = batch_of([{"a": 1}] * 40, delivery=Delivery.AT_LEAST_ONCE)
    part = whole.part(np.array([3, *range(20, 40)]))
    about = {"batch_id": "b", "numbers": [3, *range(20, 40)], "delivery": "at_least_once"}
    assert plain_form(NotifyBatch(part, (3, 9), 2, 5)) == {
        "kind": "notify-batch",
        **about,
        "scope": [3, 9],
        "hops": 2,
        "delegation": 5,
    }
    record = plain_form(Persist(7, BatchStored(part, (("s1", (3, 20)),), 40, 2)))["record"]
    assert record == {
        "kind": "batch-stored",
        **about,
        "wanted": [["s1", [3, 20]]],
        "at_ms": 40,
        "hops": 2,
    }


def test_a_value_without_a_form_of_its_own_is_refused():
    @dataclass(frozen=True)
    class Odd:
        inside: object

    with pytest.raises(TypeError, match="no form in the trace for set"):
        plain_form(Odd({1, 2}))


@given(events())
def test_attributes_come_back_with_their_kinds(attributes):
    form = json.loads(json.dumps(plain_attributes(attributes), allow_nan=False))
    read = values_of_attributes(form)
    assert repr(plain_attributes(read)) == repr(form)
    assert list(read) == list(attributes)


def test_attributes_of_each_kind_come_back():
    attributes = {
        "flag": True,
        "whole": 2**80,
        "float": 1.0,
        "endless": float("-inf"),
        "decimal": Decimal("1.50"),
        "day": date(2024, 2, 29),
        "moment": datetime(2024, 2, 29, 12, 30, 0, 5, tzinfo=UTC),
        "binary": b"\x00\xff",
        "record": {"inner": {"day": date(2024, 1, 1)}, "list": [1, "a", None]},
        "looks like a tag": {"$date": "tomorrow"},
        "missing": None,
    }
    form = json.loads(json.dumps(plain_attributes(attributes), allow_nan=False))
    read = values_of_attributes(form)
    assert read == attributes
    assert {name: type(value) for name, value in read.items()} == {
        name: type(value) for name, value in attributes.items()
    }
