"""What an XML schema allows, as the generators of documents and patterns need it.

An element declaration has attributes and a content model. A content model is one `Particle`: an
element, a sequence or a choice, with how often it may occur. `read_xsd` and `read_dtd` make such a
schema; whatever they could leave out without making documents invalid is named in `notes`.

Laws that the generators rely on: `heights[e]` is the least number of levels of a valid element e,
`sizes[e]` the least number of tags; an element that is valid at no finite height has neither.
`holding(e)` and `together(e)` are the children, and the pairs of children, that one e can have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations_with_replacement, product
from typing import TypeVar

_Key = TypeVar("_Key")

__all__ = ["Attribute", "Element", "Particle", "Schema", "SchemaError", "Value"]


class SchemaError(ValueError):
    """A schema that cannot be used: which construct it is, and what to do, in one line."""


@dataclass(frozen=True, slots=True)
class Value:
    """The texts that an attribute or an element without children may have.

    Attributes:
        kind: the built-in type, in the words of XML Schema (`string`, `integer`, `ID`, …).
        choices: the values that are allowed; empty if the kind alone says it.
        low, high: the range of numbers, or of the lengths of texts.
    """

    kind: str = "string"
    choices: tuple[str, ...] = ()
    low: int | None = None
    high: int | None = None


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute that elements of some declaration may, or must, have."""

    name: str
    value: Value
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class Particle:
    """A part of a content model: an element, or a sequence or choice of parts.

    Attributes:
        element: the key of an element declaration; None for a sequence or a choice.
        parts: what a sequence puts one after the other, or a choice chooses from.
        minimum, maximum: how often it occurs; a maximum of None is no bound.
    """

    element: str | None = None
    parts: tuple[Particle, ...] = ()
    is_choice: bool = False
    minimum: int = 1
    maximum: int | None = 1

    @property
    def repeats(self) -> bool:
        """Whether it may occur more than once."""
        return self.maximum is None or self.maximum > 1

    def elements(self) -> Iterator[str]:
        """The keys of the elements in it, in the order of declaration, with repetitions."""
        if self.maximum == 0:
            return
        if self.element is not None:
            yield self.element
        for part in self.parts:
            yield from part.elements()


EMPTY = Particle()
"""Nothing: a sequence without parts."""


@dataclass(frozen=True, slots=True)
class Element:
    """One element declaration.

    Attributes:
        key: its name among the declarations: the label, told apart if two share it.
        label: the tag, a local name.
        namespace: the namespace of the tag; None for none.
        content: the content model of its children.
        text: what its text may be; None if it has none. With children, the content is mixed.
    """

    key: str
    label: str
    content: Particle = EMPTY
    text: Value | None = None
    attributes: tuple[Attribute, ...] = ()
    namespace: str | None = None


@dataclass(frozen=True)
class Schema:
    """Element declarations, and the one that documents begin with.

    Raises:
        SchemaError: the root is not declared, or no document can be valid.
    """

    root: str
    elements: Mapping[str, Element]
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.root not in self.elements:
            raise SchemaError(
                f"the schema declares no element {self.root!r}: name another root, one of "
                f"{some_of(self.elements)}"
            )
        if self.root not in self.heights:
            raise SchemaError(
                f"no document can be valid: element {self.root!r} must contain itself without end; "
                "make a part of its content optional, or name another root"
            )

    def children(self, key: str) -> tuple[str, ...]:
        """The elements that may be children of an element, in the order of declaration."""
        return self._children[key]

    @cached_property
    def _children(self) -> dict[str, tuple[str, ...]]:
        return {
            key: tuple(dict.fromkeys(element.content.elements()))
            for key, element in self.elements.items()
        }

    def holding(self, key: str) -> Mapping[str, int]:
        """The least levels of an element's content, by a child that it is to hold."""
        return self._held(key).single

    def together(self, key: str) -> Mapping[tuple[str, str], int]:
        """The least levels of an element's content, by the sorted pair of two of its children."""
        return self._held(key).pairs

    def _held(self, key: str) -> _Held:
        known = self._helds.get(key)
        if known is None:
            known = self._helds[key] = _held(self.elements[key].content, self.heights)
        return known

    @cached_property
    def _helds(self) -> dict[str, _Held]:
        return {}

    @cached_property
    def heights(self) -> Mapping[str, int]:
        """The least number of levels of each element that can be finite: 1 without children."""
        return self._least(deepest)

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """The least number of tags of each element that can be finite."""
        return self._least(sum)

    def _least(self, joined: Callable[[list[int]], int]) -> dict[str, int]:
        """The least solution of `measure(element) = 1 + measure(content)`, from nothing known."""
        known: dict[str, int] = {}
        changed = True
        while changed:
            changed = False
            for key, element in self.elements.items():
                content = least_of(element.content, known, joined)
                if content is not None and content + 1 < known.get(key, content + 2):
                    known[key] = content + 1
                    changed = True
        return known


def least_of(
    particle: Particle, known: Mapping[str, int], joined: Callable[[list[int]], int]
) -> int | None:
    """The least measure of what a particle must at least hold; None if nothing finite is known."""
    if particle.minimum == 0:
        return 0
    once = least_once(particle, known, joined)
    return None if once is None else joined([once] * particle.minimum)


def least_once(
    particle: Particle, known: Mapping[str, int], joined: Callable[[list[int]], int]
) -> int | None:
    """The least measure of one occurrence of a particle; None if nothing finite is known."""
    if particle.element is not None:
        return known.get(particle.element)
    measures = [least_of(part, known, joined) for part in particle.parts]
    finite = [measure for measure in measures if measure is not None]
    if particle.is_choice:
        return min(finite, default=None)
    return joined(finite) if len(finite) == len(measures) else None


@dataclass(frozen=True, slots=True)
class _Held:
    """The least levels of a content, by one element or two that it is to hold."""

    single: dict[str, int]
    pairs: dict[tuple[str, str], int]


def _held(particle: Particle, heights: Mapping[str, int]) -> _Held:
    """What a particle can hold. What else must be there counts: it takes levels as well."""
    once = _held_once(particle, heights)
    if particle.maximum == 0:
        return _Held({}, {})
    if not particle.repeats:
        return once
    pairs = dict(once.pairs)
    for one, other in combinations_with_replacement(sorted(once.single), 2):
        _lower(pairs, (one, other), max(once.single[one], once.single[other]))
    return _Held(once.single, pairs)


def _held_once(particle: Particle, heights: Mapping[str, int]) -> _Held:
    single: dict[str, int] = {}
    pairs: dict[tuple[str, str], int] = {}
    if particle.element is not None:
        if particle.element in heights:
            single[particle.element] = heights[particle.element]
        return _Held(single, pairs)
    held = [_held(part, heights) for part in particle.parts]
    # What the parts take that hold nothing wanted; in a choice, those are not there.
    rest = [0 if particle.is_choice else _levels(part, heights) for part in particle.parts]
    for place, part in enumerate(held):
        others = _highest(rest[:place] + rest[place + 1 :])
        if others is None:
            continue
        for one, levels in part.single.items():
            _lower(single, one, max(levels, others))
        for pair, levels in part.pairs.items():
            _lower(pairs, pair, max(levels, others))
    if not particle.is_choice:
        for place, before in enumerate(held):
            for after_place in range(place + 1, len(held)):
                others = _highest(
                    rest[:place] + rest[place + 1 : after_place] + rest[after_place + 1 :]
                )
                if others is None:
                    continue
                after = held[after_place]
                for (one, first), (other, second) in product(
                    before.single.items(), after.single.items()
                ):
                    _lower(pairs, sorted_pair(one, other), max(first, second, others))
    return _Held(single, pairs)


def _levels(particle: Particle, heights: Mapping[str, int]) -> int | None:
    return least_of(particle, heights, deepest)


def deepest(levels: list[int]) -> int:
    """The levels of parts side by side."""
    return max(levels, default=0)


def _highest(levels: list[int | None]) -> int | None:
    """The maximum; None if one of them is not finite."""
    finite = [level for level in levels if level is not None]
    return deepest(finite) if len(finite) == len(levels) else None


def _lower(known: dict[_Key, int], key: _Key, value: int) -> None:
    known[key] = min(value, known.get(key, value))


def sorted_pair(one: str, other: str) -> tuple[str, str]:
    """The two names in their order."""
    return (one, other) if one <= other else (other, one)


_NAMES_SHOWN = 8


def some_of(names: Iterable[str]) -> str:
    """A few of the names, for an error."""
    listed = sorted(names)
    more = f" and {len(listed) - _NAMES_SHOWN} more" if len(listed) > _NAMES_SHOWN else ""
    return ", ".join(listed[:_NAMES_SHOWN]) + more
