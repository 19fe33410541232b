"""Reading XSD and DTD: what is understood, what is left out with a note, what is refused."""

import pytest

from peersub.workloads.xml import (
    NEWS_DTD,
    DocumentGenerator,
    DocumentSettings,
    SchemaError,
    read_dtd,
    read_schema,
    read_xsd,
)
from peersub.workloads.xml.schema import Particle
from workloads.xml.xml_schemas import library, news, xsd_judge

XSD = '<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" {more}>{body}</xs:schema>'


def xsd(body, more=""):
    return XSD.format(body=body, more=more).encode()


def element(content, name="a"):
    return xsd(f'<xs:element name="{name}"><xs:complexType>{content}</xs:complexType></xs:element>')


def test_a_dtd_becomes_declarations():
    schema, _ = news()
    assert schema.root == "news"
    assert schema.children("agency") == ("name", "contact")
    contact = schema.elements["contact"].content
    assert contact.parts[0] == Particle(element="name", minimum=0)
    assert contact.parts[1].is_choice and contact.parts[1].maximum is None
    assert schema.elements["paragraph"].text is not None
    assert schema.elements["issued"].text is None
    urgency = schema.elements["issued"].attributes[0]
    assert (urgency.name, urgency.is_required) == ("urgency", True)
    assert urgency.value.choices == ("low", "normal", "high", "flash")


def test_a_group_within_a_group_keeps_how_often_it_occurs():
    declared = b"".join(b"<!ELEMENT %c EMPTY>" % name for name in b"bcd")
    schema = read_dtd(b"<!ELEMENT a (b, (c, d)*)>" + declared)
    inner = schema.elements["a"].content.parts[1]
    assert (inner.minimum, inner.maximum, len(inner.parts)) == (0, None, 2)
    flat = read_dtd(b"<!ELEMENT a (b, c, d)>" + declared)
    assert [part.element for part in flat.elements["a"].content.parts] == ["b", "c", "d"]


def test_an_xsd_becomes_declarations():
    schema, _ = library()
    assert schema.root == "library"
    # Whoever may stand for the abstract entry, but not the entry itself.
    assert {*schema.children("library")} >= {"book", "map", "novel", "name", "end", "fixed"}
    assert "entry" not in schema.elements
    # Two elements of one name and two types are two declarations.
    titles = [element for element in schema.elements.values() if element.label == "title"]
    assert len(titles) == 3
    # One that its type is of contains itself.
    chapter = next(key for key in schema.children("book") if key.startswith("chapter"))
    inner = next(key for key in schema.children(chapter) if key.startswith("chapter"))
    assert inner in schema.children(inner)
    assert schema.elements["library"].namespace == "urn:library"
    assert schema.elements["name"].namespace is None
    meaning = next(element for element in schema.elements.values() if element.label == "meaning")
    assert meaning.namespace == "urn:library"
    assert schema.notes == ("xs:any is left out: elements of any kind are not generated",)
    shelf = {each.name: each for each in schema.elements["library"].attributes}["shelf"]
    assert (shelf.value.low, shelf.value.high) == (30, 39)


def test_heights_and_pairs():
    schema = read_dtd(
        b"<!ELEMENT a (b?, (c | d)*, e)><!ELEMENT b (e)><!ELEMENT c (a)><!ELEMENT d (#PCDATA)>"
        b"<!ELEMENT e (d | a)>",
        root="a",
    )
    assert schema.heights == {"d": 1, "e": 2, "a": 3, "b": 3, "c": 4}
    assert schema.sizes == {"d": 1, "e": 2, "a": 3, "b": 3, "c": 4}
    assert schema.holding("a") == {"b": 3, "c": 4, "d": 2, "e": 2}
    pairs = schema.together("a")
    assert pairs["c", "c"] == pairs["c", "d"] == 4 and pairs["b", "d"] == 3
    assert ("b", "b") not in pairs and ("e", "e") not in pairs


def test_files_that_are_included_are_asked_for():
    part = xsd('<xs:element name="b" type="xs:int"/>')
    asked = []

    def resolve(location):
        asked.append(location)
        return part if location == "part.xsd" else None

    body = (
        '<xs:include schemaLocation="part.xsd"/>'
        '<xs:import namespace="urn:x" schemaLocation="x.xsd"/>'
        '<xs:element name="a"><xs:complexType><xs:choice><xs:element ref="t:b"/>'
        '<xs:element ref="t:gone"/></xs:choice></xs:complexType></xs:element>'
    )
    schema = read_xsd(xsd(body, 'targetNamespace="urn:t" xmlns:t="urn:t"'), resolve=resolve)
    assert asked == ["part.xsd", "x.xsd"]
    # A file without a namespace belongs to who includes it.
    assert schema.elements["b"].namespace == "urn:t"
    assert schema.notes == (
        "xs:import of 'x.xsd' was left out: the file is not there",
        "the element 't:gone' is not declared: left out",
    )


def test_entities_of_a_dtd_are_asked_for_and_never_looked_for(tmp_path):
    secret = tmp_path / "secret.ent"
    secret.write_text("<!ELEMENT b (#PCDATA)>", encoding="utf-8")
    text = f'<!ELEMENT a (b?)><!ENTITY % more SYSTEM "{secret.as_uri()}">%more;'.encode()
    alone = read_dtd(text)
    assert alone.children("a") == () and "was left out" in alone.notes[0]
    helped = read_dtd(text, resolve=lambda location: b"<!ELEMENT b (#PCDATA)>")
    assert helped.children("a") == ("b",)
    assert read_dtd(text, resolve=lambda location: b"").children("a") == ()


def test_values_are_valid_for_every_built_in_type():
    kinds = (
        *("string", "normalizedString", "token", "language", "NMTOKEN", "NMTOKENS", "Name"),
        *("NCName", "ID", "boolean", "decimal", "integer", "nonPositiveInteger", "long", "int"),
        *("negativeInteger", "nonNegativeInteger", "positiveInteger", "short", "byte", "float"),
        *("unsignedLong", "unsignedInt", "unsignedShort", "unsignedByte", "double", "duration"),
        *("dateTime", "time", "date", "gYearMonth", "gYear", "gMonthDay", "gDay", "gMonth"),
        *("hexBinary", "base64Binary", "anyURI"),
    )
    attributes = "".join(f'<xs:attribute name="{k}" type="xs:{k}" use="required"/>' for k in kinds)
    data = element(attributes)
    is_valid = xsd_judge(data)
    documents = DocumentGenerator(read_xsd(data))
    for number in range(30):
        assert is_valid(documents.text(number)), documents.text(number)


@pytest.mark.parametrize(
    ("facets", "base"),
    [
        ('<xs:minInclusive value="100"/>', "integer"),
        ('<xs:maxInclusive value="-100"/>', "integer"),
        ('<xs:minExclusive value="5"/><xs:maxExclusive value="7"/>', "decimal"),
        ('<xs:length value="30"/>', "string"),
        ('<xs:maxLength value="2"/>', "token"),
        ('<xs:enumeration value="&lt;&quot;&amp;"/>', "string"),
    ],
)
def test_ranges_and_lengths_are_kept(facets, base):
    body = (
        f'<xs:simpleType><xs:restriction base="xs:{base}">{facets}</xs:restriction></xs:simpleType>'
    )
    data = element(f'<xs:attribute name="x" use="required">{body}</xs:attribute>')
    is_valid = xsd_judge(data)
    documents = DocumentGenerator(read_xsd(data))
    assert all(is_valid(documents.text(number)) for number in range(30))


def test_what_is_not_followed_is_noted():
    body = (
        '<xs:element name="a"><xs:simpleType><xs:restriction base="xs:string">'
        '<xs:pattern value="[0-9]+"/></xs:restriction></xs:simpleType>'
        '<xs:unique name="u"><xs:selector xpath="b"/><xs:field xpath="@c"/></xs:unique>'
        "</xs:element>"
    )
    assert read_xsd(xsd(body)).notes == (
        "xs:unique of 'a' is not followed",
        "xs:pattern '[0-9]+' of a value is not followed",
    )
    assert "ANY" in read_dtd(b"<!ELEMENT a ANY>").notes[0]


def sequence(inside):
    return element(f"<xs:sequence>{inside}</xs:sequence>")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "declares no element"),
        (b"price,volume\n1,2\n", "no DTD, and no XSD"),
        (b"<!ATTLIST a b CDATA #IMPLIED>", "declares no element"),
        (b"<!ELEMENT a (a)><!ELEMENT r (a)>", "without end"),
        (b"<!ELEMENT a (b)><!ELEMENT b (a?)>", "name the root, one of a, b"),
        (b"<!ELEMENT a EMPTY><!ELEMENT b EMPTY>", "name the root, one of a, b"),
        (b"<!ELEMENT a (b)>", "needs an element that is not declared"),
        (b"<!ELEMENT p:a EMPTY>", "p:a has a prefix"),
        (b"<!ELEMENT a EMPTY><!ATTLIST a x:b CDATA #REQUIRED>", "required and has a prefix"),
        (b"<a xmlns='http://www.w3.org/2001/XMLSchema'/>", "is no XML Schema"),
        (b"<a http://www.w3.org/2001/XMLSchema", "not well-formed"),
        (xsd(""), "name the root"),
        (xsd('<xs:redefine schemaLocation="x"/>'), "xs:redefine at line 1 is not supported"),
        (sequence("<xs:any/>"), "xs:any"),
        (sequence('<xs:element ref="b"/>'), "not declared"),
        (sequence('<xs:group ref="g"/>'), "not declared"),
        (xsd('<xs:element name="a" type="T"/>'), "'T' is not declared"),
        (xsd('<xs:element name="a" type="t:T"/>'), "prefix of 't:T'"),
        (element('<xs:attributeGroup ref="g"/>'), "'g' is not declared"),
        (element('<xs:attribute name="x" type="T"/>'), "'T' is not declared"),
        (
            xsd('<xs:element name="a" type="T"/><xs:complexType name="T" abstract="true"/>'),
            "abstract type 'T'",
        ),
        (
            xsd(
                '<xs:element name="a" type="T"/><xs:simpleType name="T">'
                '<xs:restriction base="T"/></xs:simpleType>'
            ),
            "in a circle",
        ),
        (
            xsd(
                '<xs:element name="a"><xs:complexType><xs:group ref="g"/></xs:complexType>'
                '</xs:element><xs:group name="g"><xs:sequence><xs:group ref="g"/></xs:sequence>'
                "</xs:group>"
            ),
            "in a circle",
        ),
    ],
)
def test_what_cannot_be_used_is_named(data, problem):
    with pytest.raises(SchemaError, match="(?i)" + problem.replace("(", r"\(")):
        read_schema(data)


def test_a_required_value_that_cannot_be_made_up_is_named():
    schema = read_dtd(b"<!ELEMENT a EMPTY><!ATTLIST a x IDREF #REQUIRED>")
    with pytest.raises(SchemaError, match="'x' of 'a' is required and refers to something else"):
        DocumentGenerator(schema)


def test_a_root_that_is_not_there_is_named():
    with pytest.raises(SchemaError, match="declares no element 'x'"):
        read_dtd(b"<!ELEMENT a EMPTY>", root="x")
    with pytest.raises(SchemaError, match="no element 'x' at its top: name one of a"):
        read_xsd(element(""), root="x")


def test_documents_of_every_root():
    schema, _ = news()
    for root in schema.elements:
        documents = DocumentGenerator(
            read_dtd(NEWS_DTD.encode(), root=root), DocumentSettings(tags_mean=20)
        )
        assert documents.document(0).labels[0] == root
