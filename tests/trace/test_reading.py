"""A trace that is written is read back; one that is no trace is refused with its line."""

import io

import pytest

from peersub.trace.checkers import Rule
from peersub.trace.reading import TraceError, check_trace, trace_forms, trace_header
from peersub.trace.writing import TraceWriter
from trace_steps import Story


def written(story):
    stream = io.StringIO()
    writer = TraceWriter(stream, overlay="flood", seed=7)
    for record in story.records:
        writer.observe(record)
    return stream.getvalue()


def story():
    told = Story().subscribe("n1", "s1", "price > 10").publish("n2", "e1", price=15)
    return told.deliver("n1", "e1", "s1").deliver("n1", "e1", "s1")


def test_what_was_written_is_read():
    lines = written(story()).splitlines(keepends=True)
    assert trace_header(lines[0]) == {"trace": 1, "overlay": "flood", "seed": 7}
    forms = list(trace_forms(lines))
    assert [form["cause"]["kind"] for form in forms[:2]] == ["subscribe", "publish"]
    assert len(forms) == 4


def test_a_trace_is_judged():
    checker = check_trace(written(story()).splitlines())
    assert [violation.rule for violation in checker.violations] == [Rule.TWICE]
    assert checker.counts.delivered == 1


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([], "line 1: the trace is empty"),
        (['{"a": 1}'], "line 1: not a trace"),
        (['{"trace": 99}'], "line 1: a trace of version 99, only 1 is known"),
        (['{"trace": 1}', "{"], "line 2: not JSON"),
        (['{"trace": 1}', "[]"], "line 2: not a JSON object"),
        (['{"trace": 1}', '{"ms": 1}'], "line 2: neither a step nor a fault nor a phase"),
        (['{"trace": 1}', '{"ms": 1, "fault": "fire"}'], "line 2: not a record of this version"),
        (
            ['{"trace": 1}', '{"ms": 1, "node": "n", "cause": {}, "effects": []}'],
            "line 2: not a record of this version",
        ),
    ],
)
def test_what_is_no_trace_is_refused(lines, why):
    with pytest.raises(TraceError) as refused:
        check_trace(lines)
    assert str(refused.value).startswith(why)
