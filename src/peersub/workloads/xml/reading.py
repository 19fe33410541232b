"""A schema from the bytes of a file, whichever language it is in."""

from __future__ import annotations

from collections.abc import Callable

from peersub.workloads.xml.dtd import read_dtd
from peersub.workloads.xml.schema import Schema
from peersub.workloads.xml.xsd import XSD, read_xsd

__all__ = ["read_schema"]


def read_schema(
    data: bytes,
    *,
    root: str | None = None,
    resolve: Callable[[str], bytes | None] | None = None,
) -> Schema:
    """The schema that an XSD or a DTD describes; only an XSD names the namespace of XML Schema.

    Args:
        data: the bytes of the file.
        root: the element that documents begin with; by default the one that is in no other.
        resolve: gives the bytes of a file that the schema refers to, or None.

    Raises:
        SchemaError: it is neither, or asks for something that the generators cannot do.
    """
    if XSD.encode() in data:
        return read_xsd(data, root=root, resolve=resolve)
    return read_dtd(data, root=root, resolve=resolve)
