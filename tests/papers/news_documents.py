"""Section 5's workload at sizes for tests: XPath subscriptions and XML documents of one schema.

Who matches what is said by lxml. A smaller network is the beginning of a larger one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from lxml import etree

from peersub.filters.filter import Filter
from peersub.overlays.containment.structure import Classes
from peersub.workloads.xml import (
    DocumentGenerator,
    DocumentSettings,
    PatternGenerator,
    PatternSettings,
    news_schema,
)

__all__ = ["News", "draw_news"]


@dataclass(frozen=True)
class News:
    """Subscriptions of peers, documents, and a sample of others to judge interests by.

    `matches` and `sampled` say per document and peer whether it matches.
    """

    filters: tuple[Filter, ...]
    matches: np.ndarray
    sampled: np.ndarray
    classes: Classes

    def interested(self, document: int, peers: int) -> frozenset[int]:
        """The first so many peers that want a document."""
        return frozenset(np.flatnonzero(self.matches[document, :peers]).tolist())


@cache
def draw_news(peers: int, documents: int, sample: int, seed: int = 1) -> News:
    patterns = PatternGenerator(news_schema(), PatternSettings(seed=seed))
    generator = DocumentGenerator(news_schema(), DocumentSettings(seed=seed))
    filters = tuple(patterns.filter(number) for number in range(peers))
    places: dict[str, int] = {}
    of_peer = [places.setdefault(wanted.text, len(places)) for wanted in filters]
    asked = [etree.XPath(text) for text in places]
    rows = []
    for number in range(documents + sample):
        tree = etree.fromstring(generator.text(number).encode()).getroottree()
        rows.append([bool(expression(tree)) for expression in asked])
    matches = np.array(rows, bool)[:, of_peer]
    return News(filters, matches[:documents], matches[documents:], Classes.among(filters))
