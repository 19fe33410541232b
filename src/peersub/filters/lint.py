"""The linter: what in a filter's text is legal and most likely not meant.

It works on the tree of the grammar, whose leaves carry their place in the text and the box of
events for which they hold. A part is *unsatisfiable* if no event can pass it, or none that passes
what it is joined with by AND; *redundant* if the filter stays the same without it; a *tautology* if
each event passes, or each in which its attribute has a value of the right kind. Given the kinds of
values that were seen per attribute, it also finds names that no event has and comparisons that no
kind can pass.

Spans include the NOT and the parentheses that belong to a part, so that a part can be cut out as it
is marked. The tree knows no NOT: it is pushed down to the leaves. So inside of a negated group the
text says the opposite of the tree, and the messages speak of the text. The cost is bounded: parts
of long lists are compared for equality only, and once WORK_MAX boxes were looked at nothing more is
compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

from peersub.events.kinds import Kind, KindClass
from peersub.filters.boxes import UNIVERSE, Path, box_intersection
from peersub.filters.filter import Filter
from peersub.filters.intervals import FULL
from peersub.filters.limits import CONJUNCTS_MAX
from peersub.filters.lint_schema import schema_findings
from peersub.filters.normal_form import Boxes, simplified
from peersub.filters.relations import union_covers
from peersub.filters.sql_grammar import Conjunction, Disjunction, Leaf, Tree, parse
from peersub.filters.sql_text import name_text
from peersub.filters.sql_tokens import Role, Word, words_of

__all__ = ["Finding", "Schema", "lint", "lint_xpath"]

PARTS_MAX: Final = 32
"""Parts of one AND or OR up to which each is compared with all the others."""
WORK_MAX: Final = 4_000
"""Boxes that may be looked at."""
_QUOTED_CHARACTERS_MAX: Final = 60

Schema = Mapping[Path, frozenset[Kind]]
"""The kinds of values that were seen per attribute."""


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """Something in a filter's text, from `start` up to `end`, and what to do about it.

    `code` is one of unsatisfiable, tautology, redundant, kind, unknown-attribute.
    """

    start: int
    end: int
    code: str
    message: str


def lint(text: str, schema: Schema | None = None) -> list[Finding]:
    """What is likely not meant in a filter, in the order of the text.

    >>> [finding] = lint("price > 10 AND price > 5")
    >>> finding.code, finding.message
    ('redundant', '`price > 5` follows from `price > 10`: remove it.')

    Raises:
        FilterError: the text is not a filter.
    """
    whole = Filter(text)
    linter = _Linter(text, words_of(text))
    linter.look(parse(text), whole.boxes)
    if schema is not None:
        linter.findings += (
            Finding(*found) for found in schema_findings(linter.words, linter.leaves, schema)
        )
    return sorted(set(linter.findings))


def lint_xpath(pattern: str) -> list[Finding]:
    """What is likely not meant in a pattern: that no document can match it.

    Raises:
        FilterError: the text is not a pattern.
    """
    if not Filter.xpath(pattern).is_nothing:
        return []
    message = (
        "No document can match: the conditions in brackets contradict each other. Correct one."
    )
    return [Finding(0, len(pattern), "unsatisfiable", message)]


class _Part:
    """A part of an AND or OR: its tree, its boxes, its place with NOT and parentheses."""

    __slots__ = ("boxes", "end", "start", "tree")

    def __init__(self, tree: Tree, boxes: Boxes, start: int, end: int) -> None:
        self.tree = tree
        self.boxes = boxes
        self.start = start
        self.end = end


class _Linter:
    def __init__(self, text: str, words: list[Word]) -> None:
        self.text = text
        self.words = words
        self.starting = {word.start: place for place, word in enumerate(words)}
        self.ending = {word.end: place for place, word in enumerate(words[:-1])}
        self.negated = _negations(words)
        self.known_boxes: dict[int, Boxes] = {}
        self.findings: list[Finding] = []
        self.leaves: list[Leaf] = []
        self.work = 0

    def report(self, part: _Part, code: str, message: str) -> None:
        self.findings.append(Finding(part.start, part.end, code, message))

    def quoted(self, part: _Part) -> str:
        """A part as it stands in the text, shortened."""
        text = " ".join(self.text[part.start : part.end].split())
        return f"`{text if len(text) <= _QUOTED_CHARACTERS_MAX else text[:57] + '...'}`"

    # --- places --------------------------------------------------------------------------------

    def span(self, tree: Tree) -> tuple[int, int]:
        """The words of a part, with the parentheses around it and the NOT before it."""
        if isinstance(tree, Leaf):
            first, last = self.starting[tree.start], self.ending[tree.end]
        else:
            first, last = self.span(tree.parts[0])[0], self.span(tree.parts[-1])[1]
        while first > 0:
            before = self.words[first - 1]
            if before.role is Role.KEYWORD and before.text.upper() == "NOT":
                first -= 1
            elif before.role is Role.OPEN and self.words[last + 1].role is Role.CLOSE:
                first, last = first - 1, last + 1
            else:
                break
        return first, last

    def part(self, tree: Tree, boxes: Boxes | None = None) -> _Part:
        first, last = self.span(tree)
        found = self.boxes(tree) if boxes is None else boxes
        self.work += 1 + len(found)
        return _Part(tree, found, self.words[first].start, self.words[last].end)

    def boxes(self, tree: Tree) -> Boxes:
        """The normal form of a part, computed once although parts are nested."""
        if isinstance(tree, Leaf):
            return () if tree.box is None else (tree.box,)
        known = self.known_boxes.get(id(tree))
        if known is None:
            parts = [self.boxes(part) for part in tree.parts]
            if isinstance(tree, Disjunction):
                known = simplified(box for boxes in parts for box in boxes)
            else:
                whole: Boxes = (UNIVERSE,)
                known = reduce(_intersection, sorted(parts, key=len), whole)
            self.known_boxes[id(tree)] = known
        return known

    def parts(self, tree: Conjunction | Disjunction) -> list[_Part]:
        """The parts, those of a part of the same kind in its place."""
        flat: list[Tree] = []
        waiting = list(reversed(tree.parts))
        while waiting:
            part = waiting.pop()
            if isinstance(part, Leaf) or type(part) is not type(tree):
                flat.append(part)
            else:
                waiting += reversed(part.parts)
        return [self.part(part) for part in flat]

    def is_negated(self, part: _Part) -> bool:
        """Whether the part stands in a group, or several, below an odd number of NOTs."""
        return self.negated[self.starting[part.start]]

    # --- looking -------------------------------------------------------------------------------

    def look(self, tree: Tree, boxes: Boxes) -> None:
        """Find what there is in the filter."""
        part = self.part(tree, boxes)
        if self.text.strip().upper() == "TRUE":
            return
        if union_covers(boxes, (UNIVERSE,)):
            self.leaves = _leaves(tree)
            self.report(part, "tautology", "Every event matches: write TRUE, or narrow it down.")
        else:
            self.look_at(part, (UNIVERSE,))

    def look_at(self, part: _Part, context: Boxes) -> None:
        """Find what there is in a part; the context is what is joined with it by AND."""
        if self.work > WORK_MAX:
            self.leaves += _leaves(part.tree)
        elif isinstance(part.tree, Leaf):
            self.leaves.append(part.tree)
            self.look_at_leaf(part)
        elif isinstance(part.tree, Conjunction):
            self.look_at_conjunction(part, self.parts(part.tree), context)
        else:
            self.look_at_disjunction(part, self.parts(part.tree), context)

    def look_at_leaf(self, part: _Part) -> None:
        words = self.words[self.starting[part.tree.start] : self.ending[part.tree.end] + 1]
        truth = "false" if self.is_negated(part) else "true"
        if not part.boxes:
            why = _why(words)
            self.report(part, "unsatisfiable", f"{self.quoted(part)} is never {truth}: {why}")
        elif part.boxes == (UNIVERSE,):
            self.report(part, "tautology", f"{self.quoted(part)} is always {truth}: remove it.")
        elif self.is_presence(part.boxes) and not _tests_null(words):
            self.report(part, "tautology", self.presence_message(part))

    def look_at_conjunction(self, whole: _Part, parts: list[_Part], context: Boxes) -> None:
        for place, part in enumerate(parts):
            around: Boxes | None = context
            if not isinstance(part.tree, Leaf):
                others = (*parts[:place], *parts[place + 1 :])
                around = self.product([other.boxes for other in others], context)
            self.look_at(part, (UNIVERSE,) if around is None else around)
        if not all(part.boxes for part in parts):
            return
        if not whole.boxes:
            self.report(whole, "unsatisfiable", self.contradiction(parts))
            return
        telling = [part for part in parts if part.boxes != (UNIVERSE,)]
        self.report_redundant(telling, self.implied, conjunction=True)

    def look_at_disjunction(self, whole: _Part, parts: list[_Part], context: Boxes) -> None:
        for part in parts:
            self.look_at(part, context)
            if part.boxes and context and self.product([part.boxes], context) == ():
                truth = "false" if self.is_negated(part) else "true"
                message = f"{self.quoted(part)} is never {truth} where the rest of the filter holds"
                self.report(part, "unsatisfiable", f"{message}: correct it, or remove it.")
        alive = [part for part in parts if part.boxes]
        if self.is_presence(whole.boxes) and not any(self.is_presence(p.boxes) for p in alive):
            self.report(whole, "tautology", self.presence_message(whole))
            return
        self.report_redundant(alive, _is_contained, conjunction=False)

    # --- parts against the others --------------------------------------------------------------

    def report_redundant(
        self,
        parts: list[_Part],
        follows: Callable[[_Part, Sequence[_Part]], bool],
        *,
        conjunction: bool,
    ) -> None:
        """Report parts that can be left out, all of them together; of two equal ones the later."""
        if len(parts) > PARTS_MAX:
            self.report_repeated(parts)
            return
        kept = list(parts)
        for part in reversed(parts):
            others = [other for other in kept if other is not part]
            if not others or self.work > WORK_MAX:
                break
            self.work += sum(len(other.boxes) for other in parts)
            if not follows(part, others):
                continue
            kept = others
            alone = next((other for other in others if follows(part, [other])), None)
            named = "the other parts" if alone is None else self.quoted(alone)
            if conjunction != self.is_negated(part):
                message = f"{self.quoted(part)} follows from {named}: remove it."
            else:
                message = f"{self.quoted(part)} adds nothing to {named}: remove it."
            self.report(part, "redundant", message)

    def report_repeated(self, parts: list[_Part]) -> None:
        first: dict[Boxes, _Part] = {}
        for part in parts:
            if first.setdefault(part.boxes, part) is not part:
                same = self.quoted(first[part.boxes])
                self.report(part, "redundant", f"{self.quoted(part)} repeats {same}: remove it.")

    def implied(self, part: _Part, others: Sequence[_Part]) -> bool:
        product = self.product([other.boxes for other in others], (UNIVERSE,))
        if product is None:
            return False
        self.work += len(product) * len(part.boxes)
        return union_covers(part.boxes, product)

    def product(self, unions: Sequence[Boxes], context: Boxes) -> Boxes | None:
        """The events in all of the unions and the context; None if that costs too much to tell."""
        result = context
        for boxes in sorted(unions, key=len):
            self.work += len(result) * len(boxes)
            if self.work > WORK_MAX or len(result) * len(boxes) > 4 * CONJUNCTS_MAX:
                return None
            result = _intersection(result, boxes)
        return result

    def contradiction(self, parts: list[_Part]) -> str:
        for place, second in enumerate(parts[:PARTS_MAX]):
            for first in parts[:place]:
                if self.product([first.boxes, second.boxes], (UNIVERSE,)) == ():
                    pair = f"{self.quoted(first)} and {self.quoted(second)}"
                    if self.is_negated(first):
                        return f"One of {pair} always holds, so NOT leaves nothing: correct one."
                    return f"No event can match both {pair}: correct one, or join them with OR."
        return "No event can match all of these conditions together: correct one of them."

    # --- presence ------------------------------------------------------------------------------

    @staticmethod
    def is_presence(boxes: Boxes) -> bool:
        """Whether all that is asked is that an attribute has a value of some kinds."""
        if len(boxes) != 1 or len(boxes[0].domains) != 1 or boxes[0].tests:
            return False
        (domain,) = boxes[0].domains.values()
        return not domain.absent and all(cuts in ((), FULL) for cuts in domain.sets)

    def presence_message(self, part: _Part) -> str:
        ((path, domain),) = part.boxes[0].domains.items()
        name = name_text(path)
        only = domain.only_class
        what = "has a value" if only is None else f"is a {_CLASS_NAMES[only]}"
        truth, null = ("false", "NULL") if self.is_negated(part) else ("true", "NOT NULL")
        return f"{self.quoted(part)} is {truth} whenever {name} {what}: write {name} IS {null}."


def _intersection(first: Boxes, second: Boxes) -> Boxes:
    pairs = (box_intersection(a, b) for a in first for b in second)
    return simplified(box for box in pairs if box is not None)


def _negations(words: Sequence[Word]) -> list[bool]:
    """For each word, whether the groups that it stands in are below an odd number of NOTs."""
    found: list[bool] = []
    outside: list[bool] = []
    inside = below_not = False
    for word in words:
        if word.role is Role.CLOSE:
            inside = outside.pop()
        found.append(inside)
        if word.role is Role.OPEN:
            outside.append(inside)
            inside = inside != below_not
        below_not = word.role is Role.KEYWORD and word.text.upper() == "NOT" and not below_not
    return found


def _leaves(tree: Tree) -> list[Leaf]:
    if isinstance(tree, Leaf):
        return [tree]
    return [leaf for part in tree.parts for leaf in _leaves(part)]


def _is_contained(part: _Part, others: Sequence[_Part]) -> bool:
    return union_covers([box for other in others for box in other.boxes], part.boxes)


_CLASS_NAMES = {
    KindClass.NUMBER: "number",
    KindClass.STRING: "string",
    KindClass.BOOLEAN: "boolean",
    KindClass.DATE: "date",
    KindClass.TIMESTAMP: "timestamp",
}


def _tests_null(words: Sequence[Word]) -> bool:
    return words[-1].role is Role.KEYWORD and words[-1].text.upper() == "NULL"


def _why(words: Sequence[Word]) -> str:
    """Why a predicate that is never true is not, as far as its words tell."""
    keywords = [word.text.upper() for word in words if word.role is Role.KEYWORD]
    if "BETWEEN" in keywords:
        return "its lower bound lies above its upper bound, or they are of different kinds."
    if "IN" in keywords:
        return "no value differs from values of several kinds; list values of one kind."
    if all(word.role not in (Role.NAME, Role.QUOTED_NAME) for word in words):
        return "remove it, or compare an attribute."
    return "no value passes this comparison."
