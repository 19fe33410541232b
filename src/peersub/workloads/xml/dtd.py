"""From the text of a DTD to the model that the generators use.

libxml2 reads the declarations, parameter entities included; it is given nothing but the text, and
files that the caller finds for it. `ANY` is taken as text, which is valid.
"""

from __future__ import annotations

from collections.abc import Callable
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

__all__ = ["read_dtd"]

_LOCATION: Final = "peersub:schema.dtd"
_NO_DECLARATION: Final = b"<!-- -->"
_OCCURS: Final[dict[str, tuple[int, int | None]]] = {
    "once": (1, 1),
    "opt": (0, 1),
    "mult": (0, None),
    "plus": (1, None),
}
_KINDS: Final = {
    "cdata": "string",
    "id": "ID",
    "idref": "IDREF",
    "idrefs": "IDREF",
    "entity": "ENTITY",
    "entities": "ENTITY",
    "nmtoken": "NMTOKEN",
    "nmtokens": "NMTOKEN",
    "notation": "NOTATION",
}


@cache
def _etree() -> Any:
    from lxml import etree

    return etree


def read_dtd(
    data: bytes,
    *,
    root: str | None = None,
    resolve: Callable[[str], bytes | None] | None = None,
) -> Schema:
    """The schema that a DTD describes.

    Args:
        data: the bytes of the file.
        root: the element that documents begin with; by default the one that is in no other.
        resolve: gives the bytes of an external entity; by default there are none.

    Raises:
        SchemaError: it is no DTD, or asks for something that the generators cannot do.
    """
    notes: dict[str, None] = {}
    declared = {}
    for node in _declarations(data, resolve or (lambda location: None), notes):
        if node.prefix:
            raise SchemaError(
                f"the element {node.prefix}:{node.name} has a prefix, which is not supported: "
                "declare it without"
            )
        declared[node.name] = node
    contents = {name: _content(node, declared, notes) for name, node in declared.items()}
    elements = {
        name: Element(name, name, contents[name], _text(node, notes), _attributes(node, notes))
        for name, node in declared.items()
    }
    return Schema(root if root is not None else _root(contents), elements, tuple(notes))


def _declarations(
    data: bytes, resolve: Callable[[str], bytes | None], notes: dict[str, None]
) -> list[Any]:
    etree = _etree()
    resolver: Any = etree.Resolver

    class Files(resolver):  # type: ignore[misc]
        """Hands out the text itself, and what the caller finds; never looks anywhere else."""

        def resolve(self, location: str, public: str, context: Any) -> Any:
            if location == _LOCATION:
                return self.resolve_string(data or _NO_DECLARATION, context)
            found = resolve(location)
            if found is None:
                notes[f"the entity {location!r} was left out: the file is not there"] = None
            # Never nothing: libxml2 would then look for the file by itself.
            return self.resolve_string(found or _NO_DECLARATION, context)

    parser = etree.XMLParser(load_dtd=True, no_network=True, resolve_entities=False)
    parser.resolvers.add(Files())
    try:
        top = etree.fromstring(f'<!DOCTYPE any SYSTEM "{_LOCATION}"><any/>'.encode(), parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise SchemaError(f"this is no DTD, and no XSD: {_reason(error)}") from None
    read = top.getroottree().docinfo.externalDTD
    found = [] if read is None else list(read.iterelements())
    if not found:
        raise SchemaError("the DTD declares no element")
    return found


def _reason(error: Exception) -> str:
    return str(getattr(error, "msg", error))


def _root(contents: dict[str, Particle]) -> str:
    inside = {name for content in contents.values() for name in content.elements()}
    free = [name for name in contents if name not in inside]
    if len(free) != 1:
        raise SchemaError(
            "which element documents begin with is not clear: name the root, one of "
            f"{some_of(free or contents)}"
        )
    return free[0]


def _text(node: Any, notes: dict[str, None]) -> Value | None:
    if node.type == "any":
        notes[f"the content of {node.name!r} is ANY: it is generated as text"] = None
    return Value() if node.type in ("mixed", "any") else None


def _content(node: Any, declared: dict[str, Any], notes: dict[str, None]) -> Particle:
    if node.type not in ("element", "mixed") or node.content is None:
        return EMPTY
    particle = _particle(node.content, declared, notes)
    if particle is None:
        raise SchemaError(
            f"the element {node.name!r} needs an element that is not declared: declare it"
        )
    return particle


def _particle(node: Any, declared: dict[str, Any], notes: dict[str, None]) -> Particle | None:
    minimum, maximum = _OCCURS[node.occur]
    if node.type == "pcdata":
        return EMPTY
    if node.type == "element":
        if node.name not in declared:
            notes[f"the element {node.name!r} is not declared: left out"] = None
            return EMPTY if minimum == 0 else None
        return Particle(element=node.name, minimum=minimum, maximum=maximum)
    parts = [_particle(part, declared, notes) for part in _chain(node)]
    present = tuple(part for part in parts if part is not None)
    is_choice = node.type == "or"
    if is_choice:
        # In mixed content, text is one of the options; it is no element to choose.
        present = tuple(part for part in present if part != EMPTY)
        if not present:
            return EMPTY if minimum == 0 else None
    elif len(present) < len(parts):
        return EMPTY if minimum == 0 else None
    return Particle(parts=present, is_choice=is_choice, minimum=minimum, maximum=maximum)


def _chain(node: Any) -> list[Any]:
    """The parts of a sequence or choice, which libxml2 keeps as nested pairs."""
    parts = []
    rest = node
    while True:
        parts.append(rest.left)
        rest = rest.right
        if rest.type != node.type or rest.occur != "once" or rest.left is None:
            return [*parts, rest]


def _attributes(node: Any, notes: dict[str, None]) -> tuple[Attribute, ...]:
    found = []
    for attribute in node.iterattributes():
        is_required = attribute.default == "required"
        name = attribute.name
        if attribute.prefix:
            name = f"{attribute.prefix}:{attribute.name}"
            if not is_required or attribute.prefix != "xml":
                if is_required:
                    raise SchemaError(
                        f"the attribute {name!r} of {node.name!r} is required and has a prefix, "
                        "which is not supported: make it optional"
                    )
                continue
        if attribute.default == "fixed":
            value = Value("string", (attribute.default_value,))
        elif attribute.type == "enumeration":
            value = Value("NMTOKEN", tuple(attribute.values()))
        else:
            value = Value(_KINDS.get(attribute.type, "string"))
        found.append(Attribute(name, value, is_required))
    return tuple(found)
