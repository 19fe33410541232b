"""Tree patterns drawn by walking down a schema: each by its number, and none that is in vain.

A pattern draws its height evenly, `height_min` to `height_max`, and walks down from the schema's
root, a step per level, until the height is reached or an element has no children. The next element
is one of the children, by Zipf's law over their alphabetical order. A step is written as `*`
instead of its label, or hangs by `//` and then may walk over more than one level, each with the
probability that the settings name; a step may have a second branch, which walks on from the same
element.

Law: some valid document of at most `levels_max` levels matches. The walk itself says which: it
goes only where an element still fits, and two branches begin with children that one element can
have together.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Final

from peersub.filters.xpath.conditions import ANY_TEXT, Condition, condition_of
from peersub.filters.xpath.pattern import PatternNode, pattern_text
from peersub.filters.xpath.xpath_filter import XPathFilter
from peersub.workloads.xml.draws import Draws
from peersub.workloads.xml.schema import Schema, SchemaError, sorted_pair
from peersub.workloads.xml.settings import PatternSettings
from peersub.workloads.xml.values import drawn_value, usable_attributes

__all__ = ["PatternGenerator"]

STEPS_MAX: Final = 32
"""Steps of one pattern, all branches together: half of what a filter may have."""
_PURPOSE: Final = 2
_FURTHER_SHARE: Final = 0.5
"""How often a step by `//` walks over one more level."""


class PatternGenerator:
    """Tree patterns of a schema, by number.

    >>> from peersub.workloads.xml.news import news_schema
    >>> patterns = PatternGenerator(news_schema(), PatternSettings(height_min=1, height_max=1))
    >>> patterns.text(0)
    '/news'

    Raises:
        SchemaError: no document has as few levels as the settings allow.
    """

    def __init__(self, schema: Schema, settings: PatternSettings | None = None) -> None:
        self.schema = schema
        self.settings = settings or PatternSettings()
        if schema.heights[schema.root] > self.settings.levels_max:
            raise SchemaError(
                f"a document takes at least {schema.heights[schema.root]} levels, and "
                f"{self.settings.levels_max} are allowed: allow more levels"
            )
        self._children: dict[tuple[str, int], tuple[str, ...]] = {}
        self._zipf: list[float] = []

    def text(self, number: int) -> str:
        """The pattern as an XPath expression."""
        return pattern_text(self.pattern(number))

    def filter(self, number: int) -> XPathFilter:
        """The pattern as a filter."""
        return XPathFilter.from_pattern(self.pattern(number))

    def pattern(self, number: int) -> PatternNode:
        """The pattern as it was drawn."""
        return _Walk(self, Draws(self.settings.seed, _PURPOSE, number)).pattern()

    def children(self, key: str, level: int) -> tuple[str, ...]:
        """The children that an element on some level can have, within the levels."""
        known = self._children.get((key, level))
        if known is None:
            holding = self.schema.holding(key)
            known = self._children[key, level] = tuple(
                child
                for child in sorted(self.schema.children(key))
                if child in holding and level + holding[child] <= self.settings.levels_max
            )
        return known

    def partners(self, key: str, level: int, child: str) -> tuple[str, ...]:
        """The children that such an element can have beside a given one."""
        together = self.schema.together(key)
        room = self.settings.levels_max - level
        return tuple(
            other
            for other in self.children(key, level)
            if together.get(sorted_pair(child, other), room + 1) <= room
        )

    def weights(self, count: int) -> list[float]:
        """The running sums of Zipf's law over so many ranks."""
        if len(self._zipf) < count:
            ranks = range(1, max(count, 64) + 1)
            self._zipf = list(accumulate(rank**-self.settings.zipf_exponent for rank in ranks))
        return self._zipf[:count]


class _Walk:
    """One pattern while it is drawn."""

    __slots__ = ("_draws", "_generator", "_settings", "_steps")

    def __init__(self, generator: PatternGenerator, draws: Draws) -> None:
        self._generator = generator
        self._settings = generator.settings
        self._draws = draws
        self._steps = 0

    def pattern(self) -> PatternNode:
        """Walk from the root."""
        low, high = self._settings.height_min, self._settings.height_max
        height = low + self._draws.below(high - low + 1)
        root = self._generator.schema.root
        if self._draws.share() < self._settings.descendant_share:
            key, level = self._walked(root, 1)
            return self._step(key, level, height, True)
        return self._step(root, 1, height, False)

    def _step(self, key: str, level: int, height: int, is_descendant: bool) -> PatternNode:
        draws, settings = self._draws, self._settings
        self._steps += 1
        element = self._generator.schema.elements[key]
        label = None if draws.share() < settings.wildcard_share else element.label
        attributes = self._conditions(key)
        branches: list[PatternNode] = []
        children = self._generator.children(key, level) if height > 1 else ()
        if children and self._steps < STEPS_MAX:
            child = self._chosen(children)
            branches.append(self._branch(child, level + 1, height - 1))
            if draws.share() < settings.branch_share and self._steps < STEPS_MAX:
                partners = self._generator.partners(key, level, child)
                if partners:
                    other = self._chosen(partners)
                    branches.append(self._branch(other, level + 1, height - 1))
        return PatternNode(is_descendant, label, attributes, ANY_TEXT, (), tuple(branches))

    def _branch(self, key: str, level: int, height: int) -> PatternNode:
        is_descendant = self._draws.share() < self._settings.descendant_share
        if is_descendant:
            key, level = self._walked(key, level)
        return self._step(key, level, height, is_descendant)

    def _walked(self, key: str, level: int) -> tuple[str, int]:
        """Where a step by `//` gets to: an element itself, or one below it."""
        while self._draws.share() < _FURTHER_SHARE:
            children = self._generator.children(key, level)
            if not children:
                break
            key, level = self._chosen(children), level + 1
        return key, level

    def _chosen(self, keys: tuple[str, ...]) -> str:
        return keys[self._draws.weighted(self._generator.weights(len(keys)))]

    def _conditions(self, key: str) -> tuple[tuple[str, Condition], ...]:
        """At most one: documents need not carry two optional attributes on one element."""
        if not self._settings.condition_share:
            return ()
        if self._draws.share() >= self._settings.condition_share:
            return ()
        element = self._generator.schema.elements[key]
        usable = [
            attribute
            for attribute in usable_attributes(element.attributes, element.label)
            if ":" not in attribute.name and attribute.value.kind != "ID"
        ]
        if not usable:
            return ()
        attribute = usable[self._draws.below(len(usable))]
        value = drawn_value(attribute.value, self._draws, 0)
        return ((attribute.name, condition_of("=", value)),)
