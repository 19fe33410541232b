"""What the semantic overlays are measured with: patterns, documents, and who matches what.

Patterns and documents come from the generators of `workloads/xml` with the parameters that they
have by default. Documents are two different draws: a *sample*, by which peers may judge filters
beforehand, and those that are *measured*. Each peer has one pattern; peer k's is pattern k, so that
a smaller network is the beginning of a larger one.

All matches are worked out once, by the index of patterns, for all distinct patterns and documents:
a table of flags. `disagreements` asks lxml about some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from time import process_time

import numpy as np

from peersub.filters.filter import Filter
from peersub.filters.xpath.xpath_filter import XPathFilter
from peersub.matching.xpath_index import XPathIndex
from peersub.overlays.containment.structure import Classes
from peersub.workloads.xml import (
    DocumentGenerator,
    DocumentSettings,
    PatternGenerator,
    PatternSettings,
    Schema,
)

__all__ = ["SemanticWorkload", "draw_workload"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SemanticWorkload:
    """Patterns and documents, and what they have to do with each other.

    Attributes:
        filters: per peer its pattern.
        classes: the peers' patterns by equivalence, with all that contain them.
        matches: per measured document and class whether it matches.
        sampled: per document of the sample and class whether it matches.
        tags_mean: tag pairs of a document, on average.
        seconds: processor time for patterns and documents, matching, and containment.
        checked: pairs of a pattern and a document about which lxml was asked.
        disagreements: those about which it said something else.
    """

    filters: tuple[Filter, ...]
    classes: Classes
    matches: np.ndarray
    sampled: np.ndarray
    tags_mean: float
    seconds: dict[str, float]
    checked: int
    disagreements: tuple[str, ...]

    @property
    def counts(self) -> list[int]:
        """Per class how many documents of the sample match."""
        found: list[int] = self.sampled.sum(axis=0).tolist()
        return found


def draw_workload(
    schema: Schema,
    *,
    peers: int,
    documents: int,
    sample: int,
    seed: int,
    checks: int = 4_000,
    progress: Callable[[str], None] = lambda _: None,
) -> SemanticWorkload:
    """Draw patterns and documents, and work out all matches and all containments."""
    started = process_time()
    patterns = PatternGenerator(schema, PatternSettings(seed=seed))
    generator = DocumentGenerator(schema, DocumentSettings(seed=seed))
    filters = tuple(patterns.filter(number) for number in range(peers))
    drawn = [generator.document(number) for number in range(documents + sample)]
    seconds = {"drawing": process_time() - started}
    progress(f"{peers:,} patterns, {documents:,} + {sample:,} documents drawn")

    started = process_time()
    distinct = list({wanted.digest: wanted for wanted in filters}.values())
    index = XPathIndex()
    for number, wanted in enumerate(distinct):
        assert isinstance(wanted, XPathFilter)
        index.add(number, wanted)
    matches = np.zeros((len(drawn), len(distinct)), np.bool_)
    for number, document in enumerate(drawn):
        matches[number, index.match(document)] = True
    seconds["matching"] = process_time() - started
    progress(f"{len(distinct):,} distinct patterns matched: {seconds['matching']:.1f} s")

    started = process_time()
    packed = np.packbits(matches[documents:], axis=0)
    bits = {
        wanted.digest: int.from_bytes(packed[:, number].tobytes())
        for number, wanted in enumerate(distinct)
    }
    classes = Classes.among(filters, bits)
    seconds["containment"] = process_time() - started
    progress(f"{len(classes.filters):,} classes ordered: {seconds['containment']:.1f} s")

    place_of = {wanted.digest: number for number, wanted in enumerate(distinct)}
    places = [place_of[wanted.digest] for wanted in classes.filters]
    asked, wrong = _disagreements(
        distinct, matches, lambda number: generator.text(number), checks, seed
    )
    return SemanticWorkload(
        filters=filters,
        classes=classes,
        matches=np.ascontiguousarray(matches[:documents, places]),
        sampled=np.ascontiguousarray(matches[documents:, places]),
        tags_mean=float(np.mean([len(document.labels) for document in drawn])),
        seconds=seconds,
        checked=asked,
        disagreements=wrong,
    )


def _disagreements(
    filters: Sequence[Filter],
    matches: np.ndarray,
    text_of: Callable[[int], str],
    checks: int,
    seed: int,
) -> tuple[int, tuple[str, ...]]:
    """Ask lxml about some pairs; how many, and what it says otherwise.

    Patterns mean local names, so lxml is given documents without namespaces.
    """
    from lxml import etree

    random = Random(seed)
    documents = random.sample(range(len(matches)), min(len(matches), 40))
    asked, wrong = 0, []
    for number in documents:
        tree = etree.fromstring(text_of(number).encode()).getroottree()
        for element in tree.iter(etree.Element):
            element.tag = etree.QName(element).localname
        for place in random.sample(range(len(filters)), min(len(filters), checks // 40)):
            asked += 1
            if bool(tree.xpath(filters[place].text)) != matches[number, place]:
                wrong.append(f"{filters[place].text} on document {number}")
    return asked, tuple(wrong)
