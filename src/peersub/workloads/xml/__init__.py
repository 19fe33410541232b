"""The XML workload: documents and tree patterns drawn from a schema.

A schema is read from an XSD or a DTD (`read_schema`), or is the project's own (`news_schema`).
`DocumentGenerator` and `PatternGenerator` draw by number: document k depends on the schema, the
settings and k, never on what else is drawn. All of it is pure: files are opened by callers.
"""

from peersub.workloads.xml.documents import DocumentGenerator
from peersub.workloads.xml.dtd import read_dtd
from peersub.workloads.xml.news import NEWS_DTD, news_schema
from peersub.workloads.xml.patterns import PatternGenerator
from peersub.workloads.xml.reading import read_schema
from peersub.workloads.xml.schema import Schema, SchemaError
from peersub.workloads.xml.settings import DocumentSettings, PatternSettings
from peersub.workloads.xml.xsd import read_xsd

__all__ = [
    "NEWS_DTD",
    "DocumentGenerator",
    "DocumentSettings",
    "PatternGenerator",
    "PatternSettings",
    "Schema",
    "SchemaError",
    "news_schema",
    "read_dtd",
    "read_schema",
    "read_xsd",
]
