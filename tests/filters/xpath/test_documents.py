"""XML from strangers: what is read, and what is refused with a reason."""

import pytest

from peersub.events import Event
from peersub.filters.xpath import DocumentError, XPathFilter, document_of, parse_document
from peersub.filters.xpath.limits import (
    DOCUMENT_BYTES_MAX,
    DOCUMENT_DEPTH_MAX,
    DOCUMENT_MARKUP_MAX,
)


def laughs(levels):
    lines = ['<!ENTITY l0 "lol">']
    lines += [f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, levels)]
    return f"<!DOCTYPE x [{''.join(lines)}]><x y='&l{levels - 1};'>&l{levels - 1};</x>"


def nested(depth):
    return "<a>" * depth + "</a>" * depth


REFUSED = {
    "billion laughs": (laughs(10), "DOCTYPE"),
    "laughs after comments": ("<?xml version='1.0'?><!-- a --> <?b c?>" + laughs(10), "DOCTYPE"),
    "a DOCTYPE without an end": ("<!DOCTYPE a <a/>", "DOCTYPE"),
    "laughs behind an identifier": (
        laughs(10).replace("x [", "x SYSTEM '>' [", 1),
        "DOCTYPE",
    ),
    "a second DOCTYPE": ("<!DOCTYPE a>" + laughs(10), "not well-formed"),
    "in UTF-16": (laughs(10).encode("utf-16"), "DOCTYPE"),
    "a foreign file": (
        '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>',
        "DOCTYPE",
    ),
    "an unknown entity": ("<a>&nbsp;</a>", "not well-formed"),
    "no end": ("<a><b></a>", "not well-formed"),
    "two roots": ("<a/><b/>", "not well-formed"),
    "nothing": ("", "not well-formed"),
    "blanks": ("  \n", "not well-formed"),
    "text": ("hello", "not well-formed"),
    "JSON": ('{"a": 1}', "not well-formed"),
    "junk": (bytes(range(256)), "not well-formed"),
    "an unknown prefix": ("<p:a/>", "not well-formed"),
    "a NUL": ("<a>\0</a>", "not well-formed"),
    "half a character": ("<a>\ud800</a>", "not in Unicode"),
    "not UTF-8": (b"<a>\xff</a>", "not well-formed"),
    "an encoding that hides tags": (b'<?xml version="1.0" encoding="UTF-7"?><a/>', "utf-7"),
    "EBCDIC": ('<?xml version="1.0"?><a/>'.encode("cp037"), "not well-formed"),
    "too deep": (nested(DOCUMENT_DEPTH_MAX + 1), "deeper"),
    "far too deep": ("<a>" * 100_000, "deeper"),
    "too large": (b"<a>" + b" " * DOCUMENT_BYTES_MAX + b"</a>", "larger"),
    "too large as text": ("<a>" + " " * DOCUMENT_BYTES_MAX + "</a>", "larger"),
    "too many elements": (b"<a>" + b"<b/>" * DOCUMENT_MARKUP_MAX + b"</a>", "tags"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_reason_and_never_matched(name):
    data, reason = REFUSED[name]
    with pytest.raises(DocumentError) as refusal:
        parse_document(data)
    assert reason in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert not XPathFilter("//*").matches(data)


READ = {
    "plain": ("<a><b/></a>", ["a", "b"]),
    "bytes": (b"<a><b/></a>", ["a", "b"]),
    "a declaration in text": ("<?xml version='1.0' encoding='latin-1'?><é/>", ["é"]),
    "a byte order mark": ("\ufeff<a/>".encode(), ["a"]),
    "the mark as text": ("\ufeff<a/>", ["a"]),
    "UTF-16": ("<?xml version='1.0' encoding='UTF-16'?><é/>".encode("utf-16"), ["é"]),
    "Latin-1": ("<?xml version='1.0' encoding='ISO-8859-1'?><é/>".encode("latin-1"), ["é"]),
    "namespaces": ("<a xmlns='u:a' xmlns:p='u:p'><p:b/></a>", ["a", "b"]),
    "a DOCTYPE that only names": ("<!DOCTYPE a><a/>", ["a"]),
    "a DOCTYPE with identifiers": (
        """<?xml version='1.0'?><!DOCTYPE a PUBLIC "-//x//[y]//EN" 'a>.dtd' ><a><b/></a>""",
        ["a", "b"],
    ),
    "a DOCTYPE that is text": ("<a><![CDATA[<!DOCTYPE a>]]></a>", ["a"]),
    "a DOCTYPE in a comment": ("<!-- <!DOCTYPE a> --><a/>", ["a"]),
    "deep": (nested(DOCUMENT_DEPTH_MAX), ["a"] * DOCUMENT_DEPTH_MAX),
}


@pytest.mark.parametrize("name", READ)
def test_read(name):
    data, labels = READ[name]
    assert parse_document(data).labels == labels


def test_the_shape_of_a_document():
    document = parse_document("<a x='1' xml:lang='en'>1<b>2<c/>3</b><!-- n -->4<?p?>5<d>6</d></a>")
    assert document.labels == ["a", "b", "c", "d"]
    assert document.parents == [-1, 0, 1, 0]
    assert document.ends == [4, 3, 3, 4]
    assert document.attributes == [{"x": "1"}, {}, {}, {}]
    assert [document.texts_of(place) for place in range(4)] == [
        ["1", "4", "5"],
        ["2", "3"],
        [],
        ["6"],
    ]
    assert [document.value_of(place) for place in range(4)] == ["123456", "23", "", "6"]


def test_an_empty_section_is_no_text_node():
    assert not XPathFilter("/a/text()").matches("<a><![CDATA[]]></a>")
    assert XPathFilter("/a[. = '']").matches("<a><![CDATA[]]></a>")


def test_a_long_text_equals_nothing_and_is_no_number():
    document = parse_document(f"<a><b>{'1' * 5_000}</b><c>{' ' * 4_000}7</c></a>")
    assert [document.value_of(place) for place in range(3)] == [None, None, " " * 4_000 + "7"]
    assert XPathFilter("/a/b[. != 5]").matches(document)
    assert not XPathFilter("/a/b[. > 5]").matches(document)
    assert XPathFilter("/a/c[. = 7]").matches(document)


@pytest.mark.parametrize(
    "event",
    [
        "<a/>",
        b"<a/>",
        Event("1", {}, b"<a/>"),
        {"body": "<a/>"},
        {"body": b"<a/>", "price": 5},
        {"body": bytearray(b"<a/>")},
        parse_document("<a/>"),
    ],
)
def test_where_the_document_of_an_event_is(event):
    assert document_of(event).labels == ["a"]
    assert XPathFilter("/a").matches(event)


@pytest.mark.parametrize(
    "event", [Event("1", {"body": "<a/>"}), {}, {"body": None}, {"body": 5}, 5]
)
def test_an_event_without_a_document_does_not_match(event):
    with pytest.raises(DocumentError, match="no XML body"):
        document_of(event)
    assert not XPathFilter("//*").matches(event)
