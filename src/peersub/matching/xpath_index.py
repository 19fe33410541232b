"""Many tree patterns against one document: shared prefixes, a lazily built automaton, shared parts.

Equal patterns share one record. Each record follows one path of its pattern from the top to a
leaf, its *trunk*; the trunks of all records form a trie. A set of trie nodes is what the labels
from the root of a document down to an element can have reached: such sets are the states of an
automaton that is built as documents ask for it and kept (Green, Miklau, Onizuka and Suciu,
"Processing XML streams with deterministic automata", ICDT 2003). A known document shape then
costs one look-up per element, for all patterns together.

A record that is nothing but its trunk matches where the automaton accepts. Any other is a
candidate: its labels must all occur, and then its embedding is computed, set at a time, with
equal parts of different patterns computed once per document.

Invariants: `match` equals asking each pattern by itself. Adding or removing a pattern forgets the
automaton, never the trie. The automaton is forgotten when it outgrows AUTOMATON_MEMBERS_MAX.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from peersub.filters.filter import Matchable
from peersub.filters.xpath import Document, DocumentError, XPathFilter, document_of
from peersub.filters.xpath.embedding import Memo, Step, compiled, embeds
from peersub.filters.xpath.pattern import PatternNode, labels_of, pattern_text

__all__ = ["XPathIndex"]

AUTOMATON_MEMBERS_MAX: Final = 1_000_000
"""Trie nodes in all states of the automaton together: some tens of megabytes."""


@dataclass(slots=True, eq=False)
class _Record:
    """One distinct pattern and the entries that hold it."""

    pattern: PatternNode
    text: str
    is_trunk_only: bool
    labels: frozenset[str]
    top: Step
    place: _TrieNode
    entries: set[int] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class _TrieNode:
    """What a trunk has come to: the next steps by axis and label, and the records that end here."""

    parent: _TrieNode | None
    edge: tuple[bool, str | None]
    children: dict[str | None, _TrieNode] = field(default_factory=dict)
    descendants: dict[str | None, _TrieNode] = field(default_factory=dict)
    records: list[_Record] = field(default_factory=list)

    def below(self, is_descendant: bool) -> dict[str | None, _TrieNode]:
        """The next steps along one axis."""
        return self.descendants if is_descendant else self.children


class _State:
    """A state of the automaton: what one element has reached, and what can start below it.

    Attributes:
        reached: the trie nodes that the element itself stands for.
        above: those of the element and its ancestors that go on with `//`.
        following: the next state by label; None stands for each label that no trunk has.
        accepted: records that match by reaching this state.
        candidates: records whose trunk ends here, but that ask for more.
    """

    __slots__ = ("above", "accepted", "candidates", "following", "reached")

    def __init__(self, reached: frozenset[_TrieNode], above: frozenset[_TrieNode]) -> None:
        self.reached = reached
        self.above = above
        self.following: dict[str | None, _State] = {}
        ending = [record for node in reached for record in node.records]
        self.accepted = [record for record in ending if record.is_trunk_only]
        self.candidates = [record for record in ending if not record.is_trunk_only]


class XPathIndex:
    """Entries, each with a pattern; `match` finds the entries whose pattern a document matches.

    >>> from peersub.filters.xpath import XPathFilter
    >>> index = XPathIndex()
    >>> index.add(7, XPathFilter("/a/b"))
    >>> index.add(3, XPathFilter("//b[@c > 5]"))
    >>> index.match("<a><b c='9'/></a>"), index.match("<a><b c='1'/></a>")
    ([3, 7], [7])
    """

    def __init__(self) -> None:
        self._records: dict[PatternNode | None, _Record] = {}
        self._pattern_of: dict[int, PatternNode | None] = {}
        self._root = _TrieNode(None, (False, None))
        self._alphabet: dict[str, int] = {}
        self._steps: dict[object, Step] = {}
        self._states: dict[tuple[frozenset[_TrieNode], frozenset[_TrieNode]], _State] = {}
        self._members = 0
        self._start: _State | None = None

    def __len__(self) -> int:
        return len(self._pattern_of)

    def __contains__(self, entry: int) -> bool:
        return entry in self._pattern_of

    @property
    def distinct_patterns(self) -> int:
        """How many different patterns the entries have."""
        return len(self._records)

    # --- changes -------------------------------------------------------------------------------

    def add(self, entry: int, wanted: XPathFilter) -> None:
        """Let the entry have this pattern. An entry has one pattern: a known entry is an error."""
        if entry in self._pattern_of:
            raise KeyError(f"entry {entry} has a pattern already: remove it first")
        pattern = wanted.pattern
        self._pattern_of[entry] = pattern
        if pattern is None:
            return
        record = self._records.get(pattern)
        if record is None:
            record = self._records[pattern] = self._new_record(pattern)
        record.entries.add(entry)

    def remove(self, entry: int) -> None:
        """Forget the entry.

        Raises:
            KeyError: it is not here.
        """
        pattern = self._pattern_of.pop(entry)
        if pattern is None:
            return
        record = self._records[pattern]
        record.entries.remove(entry)
        if not record.entries:
            del self._records[pattern]
            self._drop_record(record)

    def _new_record(self, pattern: PatternNode) -> _Record:
        self._forget_automaton()
        trunk = _trunk(pattern)
        node = self._root
        for step in trunk:
            edge = (step.is_descendant, step.label)
            below = node.below(step.is_descendant)
            if step.label not in below:
                below[step.label] = _TrieNode(node, edge)
                if step.label is not None:
                    self._alphabet[step.label] = self._alphabet.get(step.label, 0) + 1
            node = below[step.label]
        is_trunk_only = not any(step.has_conditions or len(step.branches) > 1 for step in trunk)
        top = compiled(pattern, self._steps)
        text = pattern_text(pattern)
        record = _Record(pattern, text, is_trunk_only, labels_of(pattern), top, node)
        node.records.append(record)
        return record

    def _drop_record(self, record: _Record) -> None:
        self._forget_automaton()
        node: _TrieNode = record.place
        node.records.remove(record)
        while node.parent and not (node.records or node.children or node.descendants):
            is_descendant, label = node.edge
            del node.parent.below(is_descendant)[label]
            if label is not None:
                self._alphabet[label] -= 1
                if not self._alphabet[label]:
                    del self._alphabet[label]
            node = node.parent
        if len(self._steps) > 64 and len(self._steps) > 64 * len(self._records):
            self._compile_again()

    def _compile_again(self) -> None:
        """Let go of the parts that only removed patterns had."""
        self._steps = {}
        for record in self._records.values():
            record.top = compiled(record.pattern, self._steps)

    # --- matching ------------------------------------------------------------------------------

    def match(self, event: Matchable | Document) -> list[int]:
        """The entries whose pattern the event's document matches, sorted; none if it has no
        document.
        """
        if not self._records:
            return []
        try:
            document = document_of(event)
        except DocumentError:
            return []
        if document.answers:
            return self._answered(document)
        accepted: set[_Record] = set()
        candidates: set[_Record] = set()
        for state in self._states_of(document):
            accepted.update(state.accepted)
            candidates.update(state.candidates)
        labels = document.places.keys()
        memo: Memo = {}
        found: list[int] = []
        for record in accepted:
            found += record.entries
        for record in candidates:
            if record.labels <= labels and embeds(
                record.pattern.is_descendant, record.top, document, memo
            ):
                found += record.entries
        found.sort()
        return found

    def _answered(self, document: Document) -> list[int]:
        """The same where most patterns were asked about the document before."""
        answers = document.answers
        memo: Memo = {}
        found: list[int] = []
        for record in self._records.values():
            answer = answers.get(record.text)
            if answer is None:
                answer = embeds(record.pattern.is_descendant, record.top, document, memo)
            if answer:
                found += record.entries
        found.sort()
        return found

    def note_answers(self, document: Document) -> None:
        """Let the document know what all patterns say of it: nobody need work that out again."""
        matched = set(self.match(document))
        for record in self._records.values():
            document.answers[record.text] = not matched.isdisjoint(record.entries)

    def _states_of(self, document: Document) -> list[_State]:
        """The states that the document's elements reach, each once."""
        if self._members > AUTOMATON_MEMBERS_MAX:
            self._forget_automaton()
        if self._start is None:
            self._start = _State(
                frozenset([self._root]),
                frozenset([self._root]) if self._root.descendants else frozenset(),
            )
        alphabet = self._alphabet
        reached: list[_State] = []
        for label, parent in zip(document.labels, document.parents, strict=True):
            state = self._start if parent < 0 else reached[parent]
            symbol = label if label in alphabet else None
            following = state.following.get(symbol)
            if following is None:
                following = state.following[symbol] = self._next_state(state, symbol)
            reached.append(following)
        return list(dict.fromkeys(reached))

    def _next_state(self, state: _State, symbol: str | None) -> _State:
        reached: set[_TrieNode] = set()
        for nodes, is_descendant in ((state.reached, False), (state.above, True)):
            for node in nodes:
                below = node.below(is_descendant)
                if symbol is not None and symbol in below:
                    reached.add(below[symbol])
                if None in below:
                    reached.add(below[None])
        above = state.above.union(node for node in reached if node.descendants)
        key = (frozenset(reached), above)
        known = self._states.get(key)
        if known is None:
            known = self._states[key] = _State(*key)
            self._members += len(reached) + len(above) + 1
        return known

    def _forget_automaton(self) -> None:
        self._states.clear()
        self._members = 0
        self._start = None


def _trunk(pattern: PatternNode) -> list[PatternNode]:
    """The path of the pattern that names most labels, and is longest among those."""
    best: dict[int, tuple[int, int]] = {}

    def weigh(node: PatternNode) -> tuple[int, int]:
        labels, steps = max(map(weigh, node.branches), default=(0, 0))
        best[id(node)] = (labels + (node.label is not None), steps + 1)
        return best[id(node)]

    weigh(pattern)
    trunk = [pattern]
    while trunk[-1].branches:
        trunk.append(max(trunk[-1].branches, key=lambda branch: best[id(branch)]))
    return trunk
