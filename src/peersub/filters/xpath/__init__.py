"""XPath tree patterns over XML: one more language of filters, with the same relations.

The fragment, its grammar and its meaning: `grammar`, `pattern`, `conditions`. Documents and
matching: `documents`, `embedding`. Containment: `containment` (homomorphisms, with distance
edges by default) and `canonical_models` (complete). Smaller and wider patterns: `minimise`,
`aggregate`.
"""

from peersub.filters.xpath.documents import Document, DocumentError, document_of, parse_document
from peersub.filters.xpath.xpath_filter import XPathFilter

__all__ = ["Document", "DocumentError", "XPathFilter", "document_of", "parse_document"]
