"""XML from strangers, as a compact document in preorder.

lxml parses without entities, DTDs and network. A DOCTYPE that only names a DTD is passed over; one
with declarations of its own is refused before anything is read, so that no entity is ever
declared. Size, depth and the number of tags are bounded. libxml2 is only given UTF-8: other
encodings are decoded here, from a short list.

Elements are numbered in document order; the descendants of element v are v + 1 .. ends[v] - 1.
Names are local names: namespaces of elements are ignored, attributes in a namespace are left
out. A text node is a maximal run of text between tags, comments and processing instructions, as
in XPath; it is never empty, also where libxml2 makes an empty one of `<![CDATA[]]>`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, cached_property
from itertools import accumulate
from typing import Any

from peersub.events.envelope import Event
from peersub.filters.xpath.limits import (
    DOCUMENT_BYTES_MAX,
    DOCUMENT_DEPTH_MAX,
    DOCUMENT_MARKUP_MAX,
    VALUE_CHARACTERS_MAX,
)

__all__ = ["Document", "DocumentError", "document_of", "parse_document"]

_DOCTYPE = re.compile(rb"((?>\s|<\?.*?\?>|<!--.*?-->)*+)<!DOCTYPE", re.DOTALL)
# The rest of a DOCTYPE that only names: words and quoted identifiers, no [declarations].
_NAMED_ONLY = re.compile(rb"""\s(?>[^\[\]<>"']|"[^"]*+"|'[^']*+')*+>""")
_DECLARED_ENCODING = re.compile(
    rb"""<\?xml[^>]{0,200}?\sencoding\s*=\s*["']([A-Za-z0-9._-]+)["']"""
)
_ENCODINGS = re.compile(r"utf-?8|(us-)?ascii|iso-8859-[0-9]{1,2}|windows-125[0-9]|utf-?16")
NO_ATTRIBUTES: dict[str, str] = {}
"""What elements without attributes share; nothing is ever put in."""


class DocumentError(ValueError):
    """An XML document that was refused: what is wrong with it and what to do, in one line."""


class Document:
    """An XML document as matching needs it: made by `parse_document`, or element by element.

    Attributes:
        labels: the local name of each element.
        parents: the number of each element's parent; -1 for the root.
        ends: one past the number of each element's last descendant.
        attributes: values by name, for each element.
        answers: whether it matches, for patterns that were asked about it before, by their texts.
    """

    def __init__(self) -> None:
        self.answers: dict[str, bool] = {}
        self.labels: list[str] = []
        self.parents: list[int] = []
        self.ends: list[int] = []
        self.attributes: list[dict[str, str]] = []
        # Text nodes in document order, whose they are, and which of them lie below each element.
        self._pieces: list[str] = []
        self._text_owners: list[int] = []
        self._text_starts: list[int] = []
        self._text_ends: list[int] = []

    @cached_property
    def places(self) -> dict[str, frozenset[int]]:
        """The elements by label."""
        places: dict[str, list[int]] = {}
        for place, label in enumerate(self.labels):
            places.setdefault(label, []).append(place)
        return {label: frozenset(found) for label, found in places.items()}

    @cached_property
    def everywhere(self) -> frozenset[int]:
        """All elements."""
        return frozenset(range(len(self.labels)))

    @cached_property
    def inner(self) -> frozenset[int]:
        """The elements that have an element below them."""
        return frozenset(self.parents) - {-1}

    @cached_property
    def _texts(self) -> dict[int, list[str]]:
        texts: dict[int, list[str]] = {}
        for owner, piece in zip(self._text_owners, self._pieces, strict=True):
            texts.setdefault(owner, []).append(piece)
        return texts

    def texts_of(self, place: int) -> list[str]:
        """The text nodes right below an element."""
        return self._texts.get(place, [])

    @cached_property
    def _offsets(self) -> list[int]:
        return list(accumulate(map(len, self._pieces), initial=0))

    def value_of(self, place: int) -> str | None:
        """The text below an element put together; None if it is longer than any literal.

        The length is known before anything is put together: a deep element with much text is free.
        """
        start, end = self._text_starts[place], self._text_ends[place]
        if end - start == 1:
            piece = self._pieces[start]
            return piece if len(piece) <= VALUE_CHARACTERS_MAX else None
        if self._offsets[end] - self._offsets[start] > VALUE_CHARACTERS_MAX:
            return None
        return "".join(self._pieces[start:end])

    def prepare(self) -> None:
        """Work out all that is otherwise worked out when first asked for."""
        _ = (self.places, self.everywhere, self.inner, self._texts, self._offsets)

    def open_element(self, label: str, parent: int, attributes: dict[str, str]) -> int:
        """Append an element; what is appended before it is closed lies below it."""
        place = len(self.labels)
        self.labels.append(label)
        self.parents.append(parent)
        self.ends.append(0)
        self.attributes.append(attributes)
        self._text_starts.append(len(self._pieces))
        self._text_ends.append(0)
        return place

    def add_text(self, place: int, text: str) -> None:
        """Append a text node to an element that is open."""
        self._pieces.append(text)
        self._text_owners.append(place)

    def close_element(self, place: int) -> None:
        """Nothing more lies below the element."""
        self.ends[place] = len(self.labels)
        self._text_ends[place] = len(self._pieces)

    def _add(self, element: Any, parent: int, depth: int) -> None:
        """Append an element of lxml and what is below it."""
        if depth > DOCUMENT_DEPTH_MAX:
            raise _too_deep()
        tag = element.tag
        attributes = element.attrib
        place = self.open_element(
            tag[tag.index("}") + 1 :] if tag[0] == "{" else tag,
            parent,
            {name: value for name, value in attributes.items() if name[0] != "{"}
            if attributes
            else NO_ATTRIBUTES,
        )
        text = element.text
        if text:
            self.add_text(place, text)
        for child in element:
            if isinstance(child.tag, str):  # neither comment nor processing instruction
                self._add(child, place, depth + 1)
            text = child.tail
            if text:
                self.add_text(place, text)
        self.close_element(place)


def _too_deep() -> DocumentError:
    return DocumentError(f"the document is nested deeper than {DOCUMENT_DEPTH_MAX} elements")


@cache
def _lxml() -> tuple[Any, Any]:
    from lxml import etree

    parser_options = {
        "encoding": "utf-8",
        "resolve_entities": False,
        "load_dtd": False,
        "dtd_validation": False,
        "attribute_defaults": False,
        "no_network": True,
        "huge_tree": False,
        "recover": False,
    }
    return etree, parser_options


def parse_document(data: bytes | str) -> Document:
    """The document that some XML stands for.

    Raises:
        DocumentError: it is not well-formed, declares entities, or is too large, deep or dense.
    """
    encoded = _as_utf8(data)
    if len(encoded) > DOCUMENT_BYTES_MAX:
        raise DocumentError(f"the document is larger than {DOCUMENT_BYTES_MAX:,} bytes")
    if encoded.count(b"<") + encoded.count(b"=") > DOCUMENT_MARKUP_MAX:
        raise DocumentError(
            f"the document has more than {DOCUMENT_MARKUP_MAX:,} tags and attributes"
        )
    doctype = _DOCTYPE.match(encoded)
    if doctype:
        named = _NAMED_ONLY.match(encoded, doctype.end())
        if not named:
            raise DocumentError(
                "the document's DOCTYPE holds declarations, which are not accepted: remove them"
            )
        encoded = doctype[1] + encoded[named.end() :]
    etree, parser_options = _lxml()
    try:
        root = etree.fromstring(encoded, etree.XMLParser(**parser_options))
    except (etree.XMLSyntaxError, ValueError, LookupError) as error:
        if "xcessive depth" in str(error):
            raise _too_deep() from None
        raise DocumentError(f"the document is not well-formed XML: {_first_line(error)}") from None
    if root is None or root.getroottree().docinfo.internalDTD is not None:
        raise DocumentError("the document has no root element, or a DOCTYPE")
    document = Document()
    document._add(root, -1, 1)
    return document


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or ["it cannot be read"])[0][:200]


def _as_utf8(data: bytes | str) -> bytes:
    """The document in UTF-8, without a byte order mark."""
    if isinstance(data, str):
        try:
            return data.removeprefix("\ufeff").encode()
        except UnicodeEncodeError:
            raise DocumentError("the document has characters that are not in Unicode") from None
    if len(data) > DOCUMENT_BYTES_MAX:
        raise DocumentError(f"the document is larger than {DOCUMENT_BYTES_MAX:,} bytes")
    data = bytes(data).removeprefix(b"\xef\xbb\xbf")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        encoding = "utf-16"
    else:
        declared = _DECLARED_ENCODING.match(data)
        encoding = declared[1].decode("ascii").lower() if declared else "utf-8"
        if not _ENCODINGS.fullmatch(encoding):
            raise DocumentError(f"the encoding {encoding!r} is not accepted: send UTF-8")
    if encoding in ("utf-8", "utf8", "ascii", "us-ascii"):
        return data
    try:
        return data.decode(encoding).removeprefix("\ufeff").encode()
    except (UnicodeError, LookupError):
        raise DocumentError(f"the document is not in {encoding}, as it claims to be") from None


def document_of(event: object) -> Document:
    """The XML document that an event carries: its body, or its attribute `body`; or XML by itself.

    Raises:
        DocumentError: there is none, or it is refused.
    """
    if isinstance(event, Document):
        return event
    if isinstance(event, Event):
        return _document_of_event(event)
    body: object = event
    if isinstance(event, Mapping):
        body = event.get("body")
    if isinstance(body, bytearray | memoryview):
        body = bytes(body)
    if not isinstance(body, bytes | str):
        raise DocumentError("the event has no XML body")
    return parse_document(body)


def _document_of_event(event: Event) -> Document:
    """What was found in the event's body before, if it remembers."""
    if event.body is None:
        raise DocumentError("the event has no XML body")
    if event.reading:
        found: Document | DocumentError = event.reading[0]
    else:
        try:
            found = parse_document(event.body)
        except DocumentError as error:
            found = error
        if event.reading is not None:
            event.reading.append(found)
    if isinstance(found, DocumentError):
        raise found
    return found
