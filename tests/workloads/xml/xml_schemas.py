"""Schemas for the tests of the XML workload, and lxml as the judge of what is valid in them."""

import os
from functools import cache
from io import BytesIO
from pathlib import Path

from hypothesis import strategies as st
from lxml import etree

from peersub.workloads.xml import NEWS_DTD, Schema, read_schema

SHARED_DATA = Path(
    os.environ.get("PEERSUB_SHARED_DATA", Path(__file__).parents[4] / "shared" / "data")
)
"""Schemas of others, which are no part of the project: tests that want them do without."""

CONSTRUCTS_XSD = b"""\
<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns:l="urn:library"
           targetNamespace="urn:library">
  <xs:element name="library" type="l:Library"/>
  <xs:complexType name="Library">
    <xs:sequence>
      <xs:element name="name" type="l:Name"/>
      <xs:element ref="l:entry" maxOccurs="unbounded"/>
      <xs:group ref="l:closing" minOccurs="0"/>
      <xs:any namespace="##other" processContents="lax" minOccurs="0"/>
    </xs:sequence>
    <xs:attributeGroup ref="l:common"/>
    <xs:attribute name="open" type="xs:boolean" use="required"/>
    <xs:anyAttribute namespace="##other" processContents="lax"/>
  </xs:complexType>
  <xs:simpleType name="Name">
    <xs:restriction base="xs:string">
      <xs:minLength value="3"/><xs:maxLength value="5"/>
    </xs:restriction>
  </xs:simpleType>
  <xs:attributeGroup name="common">
    <xs:attribute name="id" type="xs:ID"/>
    <xs:attribute name="see" type="xs:IDREF"/>
    <xs:attribute name="kind">
      <xs:simpleType>
        <xs:restriction base="xs:NMTOKEN">
          <xs:enumeration value="small"/><xs:enumeration value="large"/>
        </xs:restriction>
      </xs:simpleType>
    </xs:attribute>
    <xs:attributeGroup ref="l:more"/>
  </xs:attributeGroup>
  <xs:attributeGroup name="more"><xs:attribute name="shelf" type="l:Shelf"/></xs:attributeGroup>
  <xs:simpleType name="Shelf">
    <xs:restriction base="xs:integer">
      <xs:minInclusive value="30"/><xs:maxExclusive value="40"/>
    </xs:restriction>
  </xs:simpleType>
  <xs:element name="entry" type="l:Entry" abstract="true"/>
  <xs:complexType name="Entry" abstract="true">
    <xs:sequence><xs:element name="title" type="xs:string"/></xs:sequence>
    <xs:attribute name="language" type="xs:language" use="required"/>
  </xs:complexType>
  <xs:element name="book" substitutionGroup="l:entry">
    <xs:complexType>
      <xs:complexContent>
        <xs:extension base="l:Entry">
          <xs:sequence>
            <xs:element name="chapter" type="l:Chapter" minOccurs="2" maxOccurs="4"/>
            <xs:element name="price" minOccurs="0">
              <xs:complexType>
                <xs:simpleContent>
                  <xs:extension base="xs:decimal">
                    <xs:attribute name="unit" type="l:Units" use="required"/>
                  </xs:extension>
                </xs:simpleContent>
              </xs:complexType>
            </xs:element>
          </xs:sequence>
        </xs:extension>
      </xs:complexContent>
    </xs:complexType>
  </xs:element>
  <xs:element name="novel" substitutionGroup="l:book"/>
  <xs:element name="map" type="l:Map" substitutionGroup="l:entry"/>
  <xs:complexType name="Map">
    <xs:complexContent>
      <xs:restriction base="l:Entry">
        <xs:sequence><xs:element name="title" type="xs:string"/></xs:sequence>
      </xs:restriction>
    </xs:complexContent>
  </xs:complexType>
  <xs:simpleType name="Units">
    <xs:list>
      <xs:simpleType>
        <xs:union memberTypes="xs:NMTOKEN xs:integer"/>
      </xs:simpleType>
    </xs:list>
  </xs:simpleType>
  <xs:complexType name="Chapter" mixed="true">
    <xs:choice minOccurs="0" maxOccurs="unbounded">
      <xs:element name="chapter" type="l:Chapter"/>
      <xs:element name="title">
        <xs:complexType><xs:attribute name="n" type="xs:unsignedByte"/></xs:complexType>
      </xs:element>
      <xs:sequence maxOccurs="3">
        <xs:element name="term" type="xs:token"/>
        <xs:element name="meaning" form="qualified" minOccurs="0" type="xs:date"/>
      </xs:sequence>
    </xs:choice>
  </xs:complexType>
  <xs:group name="closing">
    <xs:choice>
      <xs:element name="end"><xs:complexType><xs:all>
        <xs:element name="day" type="xs:gYear" minOccurs="0"/>
        <xs:element name="place" type="xs:anyURI"/>
      </xs:all></xs:complexType></xs:element>
      <xs:element name="open-end" type="xs:anyType"/>
      <xs:element name="fixed" type="xs:string" fixed="as it is &amp; was"/>
    </xs:choice>
  </xs:group>
</xs:schema>
"""


def depths(document):
    """The level of each element of a document."""
    levels: list[int] = []
    for parent in document.parents:
        levels.append(1 if parent < 0 else levels[parent] + 1)
    return levels


def dtd_judge(text: str):
    """Says by lxml whether a document is valid."""
    dtd = etree.DTD(BytesIO(text.encode()))
    return lambda document: dtd.validate(etree.fromstring(document))


def xsd_judge(data: bytes):
    schema = etree.XMLSchema(etree.fromstring(data))
    return lambda document: schema.validate(etree.fromstring(document))


@cache
def news() -> tuple[Schema, object]:
    return read_schema(NEWS_DTD.encode()), dtd_judge(NEWS_DTD)


@cache
def library() -> tuple[Schema, object]:
    return read_schema(CONSTRUCTS_XSD), xsd_judge(CONSTRUCTS_XSD)


def nitf(version: str) -> tuple[Schema, object]:
    """The news industry's schema; lxml is given it without what it includes, which is not there."""
    path = SHARED_DATA / "nitf" / f"nitf-{version}.xsd"
    top = etree.fromstring(path.read_bytes())
    for node in top.findall("{*}include"):
        top.remove(node)
    for node in top.findall("{*}import"):
        node.set("schemaLocation", (path.parent / "xml.xsd").as_uri())
    return read_schema(path.read_bytes()), xsd_judge(etree.tostring(top))


NAMES = tuple("abcdef")


@st.composite
def content_models(draw, names, depth=2):
    """A content model of a DTD over these names, each used once at most, so that it is one."""
    if len(names) == 1 or depth == 0:
        return draw(st.sampled_from(names)) + draw(st.sampled_from(["", "?", "*", "+"]))
    cut = draw(st.integers(1, len(names) - 1))
    left = draw(content_models(names[:cut], depth - 1))
    right = draw(content_models(names[cut:], depth - 1))
    join = draw(st.sampled_from([", ", " | "]))
    return f"({left}{join}{right})" + draw(st.sampled_from(["", "?", "*", "+"]))


@st.composite
def dtds(draw):
    """The text of a DTD whose elements may contain each other, and themselves; the root is `a`."""
    lines = []
    for name in NAMES:
        kind = draw(st.sampled_from(["text", "empty", "mixed", "children", "children", "children"]))
        inside = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
        match kind:
            case "text":
                content = "(#PCDATA)"
            case "empty":
                content = "EMPTY"
            case "mixed":
                content = f"(#PCDATA | {' | '.join(inside)})*"
            case _:
                content = draw(content_models(inside))
                content = content if content.startswith("(") else f"({content})"
        lines.append(f"<!ELEMENT {name} {content}>")
        if draw(st.booleans()):
            use = draw(st.sampled_from(["#REQUIRED", "#IMPLIED"]))
            lines.append(f"<!ATTLIST {name} x (p | q) {use} i ID #IMPLIED y CDATA {use}>")
    return "\n".join(lines)
