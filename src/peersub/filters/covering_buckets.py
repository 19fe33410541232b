"""Filters that have a box in the same place of a `Lookup`, and which of them a span leaves.

A large bucket keeps spans for the attributes that most of its boxes constrain: of filters of one
box, which must contain what they cover, and of filters of several, one of whose boxes must touch
it. Of several attributes the one that leaves fewest is taken. A small bucket is visited as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final, Generic, TypeVar

from peersub.filters.boxes import Path
from peersub.filters.span_index import SPANNED_MIN, Answers, Domains, Span, SpanIndex, span_at
from peersub.filters.summary import Summary, Value

__all__ = ["Bucket", "Entry", "Question"]

SPANNED_PATHS_MAX: Final = 8
"""Attributes of a bucket for which spans are kept."""

Node = TypeVar("Node", bound=Summary)
Entry = tuple[Path, Value] | None
"""A value that a box lists, or None if it lists none."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a bucket: where the covered filter, or the event, lies by an attribute."""

    whole: Callable[[Path], Span]
    """What the span of a filter of one box contains."""
    part: Callable[[Path], Span]
    """What the span of one of several boxes touches."""
    is_certain: bool = True
    """Whether filters of several boxes may be ruled out."""
    answers_max: int | None = None
    """How many of the answers are wanted, of either sort; None for all."""


class Bucket(Generic[Node]):
    """Filters that have a box in the same place of a group, in the order in which they came."""

    __slots__ = ("_boxes", "_entry", "_lay_at", "_several", "_spans", "_union_spans", "nodes")

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        # By numbers that grow with each filter that comes.
        self.nodes: dict[int, Node] = {}
        self._boxes: dict[int, list[Domains]] = {}
        self._several: dict[int, None] = {}
        self._lay_at = SPANNED_MIN
        # Of the filters of one box, and of those of several.
        self._spans: dict[Path, SpanIndex[int]] = {}
        self._union_spans: dict[Path, SpanIndex[int]] = {}

    def __len__(self) -> int:
        return len(self.nodes)

    def add(self, number: int, node: Node, domains: Domains) -> None:
        """Put a box of a filter in."""
        self.nodes[number] = node
        self._boxes.setdefault(number, []).append(domains)
        if node.has_several_boxes:
            self._several[number] = None
        for path, spans in self._kept(node).items():
            spans.add(span_at(domains, path), number)
        if len(self.nodes) > self._lay_at:
            self._lay()

    def discard(self, number: int) -> None:
        """Take all boxes of a filter out, if it has any here."""
        node = self.nodes.pop(number, None)
        if node is None:
            return
        self._several.pop(number, None)
        boxes = self._boxes.pop(number)
        for path, spans in self._kept(node).items():
            for domains in boxes:
                spans.discard(span_at(domains, path), number)

    def _kept(self, node: Node) -> dict[Path, SpanIndex[int]]:
        return self._union_spans if node.has_several_boxes else self._spans

    def _lay(self) -> None:
        """Keep spans for the attributes that most boxes constrain, until there are twice as many.

        The attribute of the entry tells nothing more, and labels have no spans.
        """
        self._lay_at = 2 * len(self.nodes)
        boxes = [domains for some in self._boxes.values() for domains in some]
        uses = Counter(chain.from_iterable(boxes))
        known = None if self._entry is None else self._entry[0]
        common = [path for path, count in uses.items() if 2 * count > len(boxes) and path != known]
        paths = sorted(common, key=lambda path: (-uses[path], path))[:SPANNED_PATHS_MAX]
        if set(paths) == set(self._spans):
            return
        self._spans = {path: SpanIndex() for path in paths}
        self._union_spans = {path: SpanIndex() for path in paths}
        for number, node in self.nodes.items():
            for path, spans in self._kept(node).items():
                for domains in self._boxes[number]:
                    spans.add(span_at(domains, path), number)

    def possible(self, question: Question) -> Iterable[Node]:
        """Those that may be an answer, in the order in which they came unless some are left out."""
        if not self._spans:
            return self.nodes.values()
        most = question.answers_max
        containing = (spans.containing(question.whole(path)) for path, spans in self._spans.items())
        found = dict.fromkeys(_fewest(containing).names(most))
        if self._several and question.is_certain:
            unions = self._union_spans.items()
            touching = (spans.touching(question.part(path)) for path, spans in unions)
            found.update(dict.fromkeys(_fewest(touching).names(most)))
        else:
            found.update(dict.fromkeys(islice(self._several, most)))
        return [self.nodes[number] for number in (sorted(found) if most is None else found)]


def _fewest(answers: Iterable[Answers[int]]) -> Answers[int]:
    return min(answers, key=lambda found: found.size)
