"""From the bytes of an XML Schema (XSD 1.0) to the model that the generators use.

Handled: global and local elements, named and anonymous types, sequences, choices, `all` (taken in
the order of declaration, which is valid), groups, attribute groups, mixed content, extension and
restriction, substitution groups, enumerations, ranges and lengths. Recursion is no matter: every
`element` of the schema becomes one declaration.

Other files are asked from the caller. What is not there, or has no shape (`any`), is left out if a
document may do without it, with a note, and is an error otherwise. Patterns of values, keys and
`assert` are noted and not followed: documents are valid as far as the structure goes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, Final

from peersub.workloads.xml.schema import (
    EMPTY,
    Attribute,
    Element,
    Particle,
    Schema,
    SchemaError,
    Value,
    some_of,
)

__all__ = ["read_xsd"]

FILES_MAX: Final = 100
"""Files of one schema, those it includes and imports counted in."""
NESTING_MAX: Final = 100
"""Groups and types within each other."""

XSD: Final = "http://www.w3.org/2001/XMLSchema"
XML: Final = "http://www.w3.org/XML/1998/namespace"
_GROUPS: Final = ("sequence", "choice", "all", "group")
_REFUSED: Final = ("redefine", "override", "openContent", "defaultOpenContent", "alternative")
_IGNORED: Final = ("key", "keyref", "unique", "assert")
_NAMED: Final = ("element", "complexType", "simpleType", "group", "attributeGroup", "attribute")

Resolve = Callable[[str], bytes | None]
"""From the location that a schema names to the bytes found there, or None."""
_Name = tuple[str | None, str]


@cache
def _etree() -> Any:
    from lxml import etree

    return etree


def read_xsd(data: bytes, *, root: str | None = None, resolve: Resolve | None = None) -> Schema:
    """The schema that an XSD file describes.

    Args:
        data: the bytes of the file.
        root: the element that documents begin with; by default the one that no other refers to.
        resolve: gives the bytes of an included or imported file; by default there are none.

    Raises:
        SchemaError: it is no schema, or asks for something that the generators cannot do.
    """
    return _Reader(resolve or (lambda location: None)).read(data, root)


class _Reader:
    """One reading: the components by kind and name, and the declarations made of them."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._notes: dict[str, None] = {}
        self._components: dict[tuple[str, _Name], Any] = {}
        self._targets: dict[Any, str | None] = {}
        # lxml makes a new object for a node once the last one is gone; these are keys, so keep all.
        self._nodes: list[Any] = []
        self._substitutes: dict[_Name, list[Any]] = {}
        self._keys: dict[Any, str] = {}
        self._waiting: list[Any] = []
        self._files: set[str] = set()

    def read(self, data: bytes, root: str | None) -> Schema:
        """Read everything; declare what can be reached from the root."""
        top = self._load(data, None, "the schema")
        started = self._root(top, root)
        key = self._key(started)
        elements: dict[str, Element] = {}
        while self._waiting:
            node = self._waiting.pop()
            elements[self._keys[node]] = self._element(node)
        return Schema(key, elements, tuple(self._notes))

    # --- files ---------------------------------------------------------------------------------

    def _load(self, data: bytes, target: str | None, where: str) -> Any:
        """Enter the components of one file; `target` is for files that name no namespace."""
        etree = _etree()
        parser = etree.XMLParser(
            resolve_entities=False, load_dtd=False, no_network=True, remove_comments=True
        )
        try:
            top = etree.fromstring(data, parser)
        except (etree.XMLSyntaxError, ValueError) as error:
            raise SchemaError(f"{where} is not well-formed XML: {error}") from None
        if top.tag != f"{{{XSD}}}schema":
            raise SchemaError(f"{where} is no XML Schema: its root element is {top.tag!r}")
        space = top.get("targetNamespace", target)
        for node in top.iter():
            self._nodes.append(node)
            self._targets[node] = space
            if isinstance(node.tag, str) and _kind(node) in _REFUSED:
                raise SchemaError(
                    f"xs:{_kind(node)} at line {node.sourceline} is not supported: write the "
                    "definitions out in the schema"
                )
        for node in top:
            kind = _kind(node)
            if kind in _NAMED:
                self._components.setdefault((kind, (space, node.get("name"))), node)
                if node.get("substitutionGroup"):
                    head = self._name(node, node.get("substitutionGroup"))
                    self._substitutes.setdefault(head, []).append(node)
            elif kind in ("include", "import"):
                self._follow(node, space if kind == "include" else None)
        return top

    def _follow(self, node: Any, target: str | None) -> None:
        location = node.get("schemaLocation")
        if location is None or location in self._files or node.get("namespace") == XML:
            return
        if len(self._files) >= FILES_MAX:
            raise SchemaError(f"the schema is made of more than {FILES_MAX} files")
        self._files.add(location)
        data = self._resolve(location)
        if data is None:
            self._notes[f"xs:{_kind(node)} of {location!r} was left out: the file is not there"] = (
                None
            )
        else:
            self._load(data, target, location)

    def _root(self, top: Any, wanted: str | None) -> Any:
        own = {node.get("name"): node for node in top if _kind(node) == "element"}
        if wanted is not None:
            if wanted not in own:
                raise SchemaError(
                    f"the schema declares no element {wanted!r} at its top: name one of "
                    f"{some_of(own)}"
                )
            return own[wanted]
        referred = {
            self._name(node, node.get("ref"))
            for node in self._nodes
            if _kind(node) == "element" and node.get("ref")
        }
        space = self._targets[top]
        free = [
            name
            for name, node in own.items()
            if (space, name) not in referred
            and node.get("abstract") != "true"
            and not node.get("substitutionGroup")
        ]
        if len(free) != 1:
            raise SchemaError(
                f"which element documents begin with is not clear: name the root, one of "
                f"{some_of(free or own)}"
            )
        return own[free[0]]

    # --- names ---------------------------------------------------------------------------------

    def _name(self, node: Any, written: str) -> _Name:
        prefix, _, local = written.strip().rpartition(":")
        if prefix == "xml":
            return XML, local
        space = node.nsmap.get(prefix or None)
        if prefix and space is None:
            raise SchemaError(f"line {node.sourceline}: the prefix of {written!r} is not declared")
        # A file without a namespace of its own that is included belongs to who includes it.
        return (space if space is not None else self._targets[node]), local

    def _component(self, kind: str, node: Any, attribute: str) -> Any | None:
        return self._components.get((kind, self._name(node, node.get(attribute))))

    def _key(self, node: Any) -> str:
        """The key of an element's declaration, which is made later."""
        known = self._keys.get(node)
        if known is None:
            label = node.get("name")
            same = sum(other.get("name") == label for other in self._keys)
            known = self._keys[node] = f"{label}#{same + 1}" if same else label
            self._waiting.append(node)
        return known

    # --- elements ------------------------------------------------------------------------------

    def _element(self, node: Any) -> Element:
        for child in node:
            if _kind(child) in _IGNORED:
                self._notes[f"xs:{_kind(child)} of {node.get('name')!r} is not followed"] = None
        body = _Body()
        inline = next((c for c in node if _kind(c) in ("complexType", "simpleType")), None)
        if inline is not None:
            self._type(inline, body, 0)
        elif node.get("type"):
            self._named_type(node, "type", body, 0)
        elif node.get("substitutionGroup"):
            head = self._component("element", node, "substitutionGroup")
            if head is None:
                raise self._missing(node, "substitutionGroup")
            same = self._element(head)
            body.parts, body.text = [same.content], same.text
            body.attributes = {attribute.name: attribute for attribute in same.attributes}
        else:
            body.text = Value()  # anyType: text is valid
        fixed = node.get("fixed")
        if fixed is not None:
            body.text = Value("string", (fixed,))
        is_global = _kind(node.getparent()) == "schema"
        qualified = node.get("form", self._schema_of(node).get("elementFormDefault")) == "qualified"
        content = body.parts[0] if len(body.parts) == 1 else Particle(parts=tuple(body.parts))
        return Element(
            self._keys.get(node, node.get("name")),
            node.get("name"),
            content,
            body.text,
            tuple(body.attributes.values()),
            self._targets[node] if is_global or qualified else None,
        )

    def _schema_of(self, node: Any) -> Any:
        while _kind(node) != "schema":
            node = node.getparent()
        return node

    def _missing(self, node: Any, attribute: str) -> SchemaError:
        return SchemaError(
            f"line {node.sourceline}: {node.get(attribute)!r} is not declared: give the file that "
            "declares it, beside the schema"
        )

    # --- types ---------------------------------------------------------------------------------

    def _named_type(self, node: Any, attribute: str, body: _Body, nesting: int) -> None:
        space, local = self._name(node, node.get(attribute))
        if space == XSD:
            body.text = Value() if local in ("anyType", "anySimpleType") else Value(local)
            return
        for kind in ("complexType", "simpleType"):
            found = self._components.get((kind, (space, local)))
            if found is not None:
                self._type(found, body, nesting)
                return
        raise self._missing(node, attribute)

    def _type(self, node: Any, body: _Body, nesting: int) -> None:
        """Add what a type says to an element's body."""
        if nesting > NESTING_MAX:
            raise SchemaError(
                f"line {node.sourceline}: types are derived from each other in a circle"
            )
        if _kind(node) == "simpleType":
            body.text = self._value(node, nesting)
            return
        if node.get("abstract") == "true":
            raise SchemaError(
                f"the abstract type {node.get('name')!r} is used as it is: give its element one of "
                "the types derived from it"
            )
        if node.get("mixed") == "true":
            body.text = Value()
        self._type_parts(node, body, nesting)

    def _type_parts(self, node: Any, body: _Body, nesting: int) -> None:
        for child in node:
            kind = _kind(child)
            if kind in _GROUPS:
                particle = self._particle(child, nesting)
                if particle is None:
                    raise SchemaError(
                        f"line {child.sourceline}: the content needs xs:any or an element that is "
                        "not declared: make that part optional, or declare it"
                    )
                body.parts.append(particle)
            elif kind in ("simpleContent", "complexContent"):
                if child.get("mixed") == "true":
                    body.text = Value()
                self._derivation(child, body, nesting)
            elif kind in ("attribute", "attributeGroup", "anyAttribute"):
                self._attribute(child, body, nesting)
            elif kind in _IGNORED:
                self._notes[f"xs:{kind} is not followed"] = None

    def _derivation(self, content: Any, body: _Body, nesting: int) -> None:
        derived = next(c for c in content if _kind(c) in ("extension", "restriction"))
        base = self._name(derived, derived.get("base"))
        if base != (XSD, "anyType"):
            found = self._components.get(("complexType", base))
            if found is not None and found.get("abstract") == "true":
                if found.get("mixed") == "true":
                    body.text = Value()
                self._type_parts(found, body, nesting + 1)
            else:
                self._named_type(derived, "base", body, nesting + 1)
        if _kind(derived) == "restriction":
            if _kind(content) == "complexContent":
                body.parts = []  # a restriction repeats the content that is left
            elif any(_kind(facet) not in ("annotation", "attribute") for facet in derived):
                body.text = self._restricted(derived, body.text or Value())
        self._type_parts(derived, body, nesting + 1)

    def _value(self, node: Any, nesting: int = 0) -> Value:
        """The values of a simple type."""
        if nesting > NESTING_MAX:
            raise SchemaError(
                f"line {node.sourceline}: types are derived from each other in a circle"
            )
        for child in node:
            kind = _kind(child)
            inner = next((c for c in child if _kind(c) == "simpleType"), None)
            if kind == "restriction":
                if inner is not None:
                    base = self._value(inner, nesting + 1)
                else:
                    base = self._named_value(child, child.get("base"), nesting)
                return self._restricted(child, base)
            if kind in ("list", "union"):
                # A single item is a list, and any member's value is one of the union's.
                if inner is not None:
                    return self._value(inner, nesting + 1)
                listed = child.get("itemType") or child.get("memberTypes")
                return self._named_value(child, listed.split()[0], nesting)
        raise SchemaError(
            f"line {node.sourceline}: a simpleType without restriction, list or union"
        )

    def _named_value(self, node: Any, written: str, nesting: int) -> Value:
        space, local = self._name(node, written)
        if space == XSD:
            return Value(local)
        found = self._components.get(("simpleType", (space, local)))
        if found is None:
            raise SchemaError(
                f"line {node.sourceline}: the type {written!r} is not declared: give the file that "
                "declares it, beside the schema"
            )
        return self._value(found, nesting + 1)

    def _restricted(self, node: Any, base: Value) -> Value:
        choices: list[str] = []
        value = base
        for facet in node:
            kind, text = _kind(facet), facet.get("value", "")
            if kind == "enumeration":
                choices.append(text)
            elif kind in ("minInclusive", "minExclusive", "maxInclusive", "maxExclusive"):
                bound = _whole(text)
                if bound is None:
                    self._notes[f"xs:{kind} {text!r} is not followed"] = None
                elif kind.startswith("min"):
                    value = replace(value, low=bound + (kind == "minExclusive"))
                else:
                    value = replace(value, high=bound - (kind == "maxExclusive"))
            elif kind in ("length", "minLength", "maxLength"):
                if kind != "maxLength":
                    value = replace(value, low=int(text))
                if kind != "minLength":
                    value = replace(value, high=int(text))
            elif kind in ("pattern", "assertion"):
                self._notes[f"xs:{kind} {text!r} of a value is not followed"] = None
        return replace(value, choices=tuple(choices)) if choices else value

    # --- content models ------------------------------------------------------------------------

    def _particle(self, node: Any, nesting: int) -> Particle | None:
        """The particle that a node stands for; None if there is nothing to put in its place."""
        if nesting > NESTING_MAX:
            raise SchemaError(f"line {node.sourceline}: groups contain each other in a circle")
        minimum = int(node.get("minOccurs", "1"))
        written = node.get("maxOccurs", "1")
        maximum = None if written == "unbounded" else int(written)
        if maximum == 0:
            return EMPTY
        once = self._once(node, nesting)
        if once is None:
            return EMPTY if minimum == 0 else None
        return replace(once, minimum=minimum, maximum=maximum)

    def _once(self, node: Any, nesting: int) -> Particle | None:
        kind = _kind(node)
        if kind == "any":
            self._notes["xs:any is left out: elements of any kind are not generated"] = None
            return None
        if kind == "element":
            return self._element_once(node)
        if kind == "group":
            found = self._component("group", node, "ref")
            if found is None:
                self._notes[f"the group {node.get('ref')!r} is not declared: left out"] = None
                return None
            model = next((c for c in found if _kind(c) in _GROUPS), None)
            particle = None if model is None else self._particle(model, nesting + 1)
            return None if particle is None else Particle(parts=(particle,))
        parts = [
            self._particle(child, nesting + 1)
            for child in node
            if _kind(child) in (*_GROUPS, "element", "any")
        ]
        present = tuple(part for part in parts if part is not None)
        if kind == "choice":
            return Particle(parts=present, is_choice=True) if present or not parts else None
        return Particle(parts=present) if len(present) == len(parts) else None

    def _element_once(self, node: Any) -> Particle | None:
        """An element; in the place of a global one, also those that can be substituted for it."""
        if not node.get("ref"):
            return Particle(element=self._key(node))
        declared = self._component("element", node, "ref")
        if declared is None:
            self._notes[f"the element {node.get('ref')!r} is not declared: left out"] = None
            return None
        options: list[Any] = []
        heads = [declared]
        while heads:
            head = heads.pop()
            if head in options:
                continue
            options.append(head)
            heads += self._substitutes.get((self._targets[head], head.get("name")), [])
        usable = [Particle(element=self._key(o)) for o in options if o.get("abstract") != "true"]
        if len(usable) == 1:
            return usable[0]
        return Particle(parts=tuple(usable), is_choice=True) if usable else None

    # --- attributes ----------------------------------------------------------------------------

    def _attribute(self, node: Any, body: _Body, nesting: int) -> None:
        kind = _kind(node)
        if kind == "anyAttribute":
            return  # none is valid
        if kind == "attributeGroup":
            found = self._component("attributeGroup", node, "ref")
            if found is None:
                raise self._missing(node, "ref")
            if nesting > NESTING_MAX:
                raise SchemaError(f"line {node.sourceline}: groups contain each other in a circle")
            for child in found:
                if _kind(child) in ("attribute", "attributeGroup"):
                    self._attribute(child, body, nesting + 1)
            return
        is_required = node.get("use") == "required"
        if node.get("use") == "prohibited":
            body.attributes.pop(node.get("name") or node.get("ref"), None)
            return
        declared, name = node, node.get("name")
        if node.get("ref"):
            space, local = self._name(node, node.get("ref"))
            found = self._component("attribute", node, "ref")
            if space is not None:
                if is_required and space != XML:
                    raise SchemaError(
                        f"line {node.sourceline}: the attribute {node.get('ref')!r} is required "
                        "and in a namespace, which is not supported: make it optional"
                    )
                if is_required:
                    body.attributes[f"xml:{local}"] = Attribute(
                        f"xml:{local}", Value("language"), True
                    )
                return
            if found is None:
                raise self._missing(node, "ref")
            declared, name = found, local
        elif node.get("form", self._schema_of(node).get("attributeFormDefault")) == "qualified":
            if is_required:
                raise SchemaError(
                    f"line {node.sourceline}: the attribute {name!r} is required and qualified, "
                    "which is not supported: make it optional"
                )
            return
        fixed = node.get("fixed", declared.get("fixed"))
        inline = next((c for c in declared if _kind(c) == "simpleType"), None)
        if fixed is not None:
            value = Value("string", (fixed,))
        elif inline is not None:
            value = self._value(inline)
        elif declared.get("type"):
            value = self._named_value(declared, declared.get("type"), 0)
        else:
            value = Value()
        body.attributes[name] = Attribute(name, value, is_required)


class _Body:
    """What is known of an element's content so far."""

    __slots__ = ("attributes", "parts", "text")

    def __init__(self) -> None:
        self.parts: list[Particle] = []
        self.text: Value | None = None
        self.attributes: dict[str, Attribute] = {}


def _kind(node: Any) -> str:
    """The local name of a node of XML Schema; something else for any other node."""
    tag = node.tag if node is not None else ""
    if not isinstance(tag, str) or not tag.startswith(f"{{{XSD}}}"):
        return ""
    return tag[len(XSD) + 2 :]


def _whole(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
