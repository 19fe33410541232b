"""Documents drawn from a schema: each by its number, valid by construction, of a wanted size.

A document begins as little as the schema allows. Each particle that may occur once more is open,
with the probability `optional_share`, or in reserve, and is to occur up to `repeats_max` times
more. One that is open is drawn evenly and filled with the least that is valid, which brings others
of its own, until the wanted number of tags is reached. When nothing is open, one is drawn from the
reserve. A choice is drawn evenly among the options that fit into the levels that are left.

Laws: the content of each element is in the language of its content model at every moment; no
element lies deeper than `levels_max`; document k is a function of schema, settings and k; `text`
and `document` are the same document, so that matching need not parse.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from peersub.filters.xpath.documents import NO_ATTRIBUTES, Document
from peersub.workloads.xml.draws import Draws
from peersub.workloads.xml.schema import (
    Attribute,
    Element,
    Particle,
    Schema,
    SchemaError,
    Value,
    deepest,
    least_once,
)
from peersub.workloads.xml.settings import DocumentSettings
from peersub.workloads.xml.values import drawn_value, usable_attributes

__all__ = ["DocumentGenerator"]

_PURPOSE: Final = 1
_UNBOUNDED: Final = 1 << 60


@dataclass(slots=True, eq=False)
class _Part:
    """A particle, ready for growing.

    Attributes:
        levels: the least levels that one occurrence takes.
        tags: the least tags that one occurrence takes.
        levels_of_options: the levels that the highest option of a choice needs.
    """

    minimum: int
    maximum: int
    levels: int
    tags: int
    is_choice: bool
    element: _Kind | None = None
    parts: list[_Part] = field(default_factory=list)
    levels_of_options: int = 0

    def __post_init__(self) -> None:
        if self.is_choice:
            self.levels_of_options = max((part.levels_needed for part in self.parts), default=0)

    @property
    def levels_needed(self) -> int:
        """The least levels that it takes where it stands."""
        return self.levels if self.minimum else 0


@dataclass(slots=True, eq=False)
class _Kind:
    """An element declaration, ready for growing."""

    label: str
    namespace: str | None
    text: Value | None
    required: list[Attribute]
    optional: list[Attribute]
    content: _Part | None = None


@dataclass(slots=True, eq=False)
class _Node:
    """An element of a document that grows; `holder` has the occurrences of its content model."""

    kind: _Kind
    holder: _Holder


_Holder = list["_Node | _Holder"]
"""The occurrences of a particle, each a node, or what the parts of a group hold."""
_Opening = tuple[_Part, _Holder, int, int]
"""A particle with room, what holds its occurrences, the level of the element around it, and how
many occurrences it is to have."""


class DocumentGenerator:
    """Documents of a schema, by number.

    >>> from peersub.workloads.xml.news import news_schema
    >>> documents = DocumentGenerator(news_schema(), DocumentSettings(tags_mean=3))
    >>> documents.text(0) == DocumentGenerator(documents.schema, documents.settings).text(0)
    True

    Raises:
        SchemaError: no document has as few levels as the settings allow, or a value is required
            that cannot be made up.
    """

    def __init__(self, schema: Schema, settings: DocumentSettings | None = None) -> None:
        self.schema = schema
        self.settings = settings or DocumentSettings()
        needed = schema.heights[schema.root]
        if needed > self.settings.levels_max:
            raise SchemaError(
                f"a document takes at least {needed} levels, and {self.settings.levels_max} are "
                "allowed: allow more levels"
            )
        self._root = _compiled(schema)

    def text(self, number: int) -> str:
        """The document as XML."""
        written: list[str] = []
        ends: list[str] = []
        spaces: list[str | None] = [None]
        for element in self._drawn(number):
            while len(ends) >= element.level:
                written.append(ends.pop())
                spaces.pop()
            kind = element.kind
            written.append(f"<{kind.label}")
            if kind.namespace != spaces[-1]:
                written.append(f' xmlns="{_escaped(kind.namespace or "")}"')
            for name, value in element.attributes.items():
                written.append(f' {name}="{_escaped(value)}"')
            written.append(">")
            if element.text:
                written.append(_escaped(element.text))
            ends.append(f"</{kind.label}>")
            spaces.append(kind.namespace)
        return "".join(written) + "".join(reversed(ends))

    def document(self, number: int) -> Document:
        """The document as matching uses it: equal to parsing its text, and faster."""
        built = Document()
        path: list[int] = []
        for element in self._drawn(number):
            while len(path) >= element.level:
                built.close_element(path.pop())
            attributes = element.attributes
            if "xml:lang" in attributes or "xml:space" in attributes or "xml:base" in attributes:
                attributes = {k: v for k, v in attributes.items() if not k.startswith("xml:")}
            place = built.open_element(element.kind.label, path[-1] if path else -1, attributes)
            if element.text:
                built.add_text(place, element.text)
            path.append(place)
        while path:
            built.close_element(path.pop())
        return built

    # --- growing -------------------------------------------------------------------------------

    def _drawn(self, number: int) -> list[_Drawn]:
        """The elements of a document in document order, with attributes and texts."""
        draws = Draws(self.settings.seed, _PURPOSE, number)
        root = _Growth(draws, self.settings).document(self._root)
        found: list[_Drawn] = []
        self._decorate(root, 1, draws, found)
        return found

    def _decorate(self, node: _Node, level: int, draws: Draws, found: list[_Drawn]) -> None:
        kind = node.kind
        attributes = NO_ATTRIBUTES
        place = len(found)
        if kind.required:
            attributes = {
                attribute.name: drawn_value(attribute.value, draws, place)
                for attribute in kind.required
            }
        if kind.optional and draws.share() < self.settings.attribute_share:
            attribute = kind.optional[draws.below(len(kind.optional))]
            value = drawn_value(attribute.value, draws, place)
            attributes = {**attributes, attribute.name: value}
        text = "" if kind.text is None else drawn_value(kind.text, draws, place)
        found.append(_Drawn(kind, level, attributes, text))
        self._decorate_all(node.holder, level + 1, draws, found)

    def _decorate_all(self, holder: _Holder, level: int, draws: Draws, found: list[_Drawn]) -> None:
        for held in holder:
            if isinstance(held, _Node):
                self._decorate(held, level, draws, found)
            else:
                self._decorate_all(held, level, draws, found)


@dataclass(slots=True)
class _Drawn:
    """One element of a finished document."""

    kind: _Kind
    level: int
    attributes: dict[str, str]
    text: str


class _Growth:
    """A document while it grows."""

    __slots__ = ("_draws", "_openings", "_reserve", "_settings", "_tags", "_wanted")

    def __init__(self, draws: Draws, settings: DocumentSettings) -> None:
        self._draws = draws
        self._settings = settings
        self._openings: list[_Opening] = []
        self._reserve: list[_Opening] = []
        self._tags = 0
        # Evenly from half the mean to half as many again: their mean is the mean.
        self._wanted = (settings.tags_mean + 1) // 2 + draws.below(settings.tags_mean + 1)

    def document(self, root: _Kind) -> _Node:
        """A document of about the wanted size."""
        top: _Holder = []
        self._add_element(root, top, 0)
        while self._tags < self._wanted:
            opening = self._taken(0, 0)
            if opening is None:
                break
            self._fill(opening)
        (node,) = top
        assert isinstance(node, _Node)
        return node

    def _taken(self, openings_start: int, reserve_start: int) -> _Opening | None:
        """One of the openings that came after the given numbers; one in reserve if there is none.

        It is open no longer.
        """
        openings, start = self._openings, openings_start
        if len(openings) == start:
            openings, start = self._reserve, reserve_start
        if len(openings) == start:
            return None
        place = start + self._draws.below(len(openings) - start)
        taken = openings[place]
        openings[place] = openings[-1]
        openings.pop()
        return taken

    def _fill(self, opening: _Opening) -> None:
        """Let a particle occur once more, with at least one element if that is possible."""
        part, holder, level, limit = opening
        tags, starts = self._tags, (len(self._openings), len(self._reserve))
        self._add(part, holder, level)
        while self._tags == tags:
            inner = self._taken(*starts)
            if inner is None:
                return
            self._fill(inner)
        if len(holder) < limit:
            self._openings.append(opening)
        elif len(holder) < part.maximum:
            self._reserve.append((part, holder, level, self._limit(part, len(holder))))

    def _limit(self, part: _Part, held: int) -> int:
        """How many occurrences a particle with so many gets, if it gets more."""
        if held + 1 == part.maximum:
            return part.maximum
        return min(part.maximum, held + 1 + self._draws.below(self._settings.repeats_max))

    def _hold(self, part: _Part, level: int) -> _Holder:
        """What a particle must at least hold; if it may hold more, it is open or in reserve."""
        holder: _Holder = []
        for _ in range(part.minimum):
            self._add(part, holder, level)
        if part.maximum > part.minimum and level + max(part.levels, 1) <= self._settings.levels_max:
            is_used = self._draws.share() < self._settings.optional_share
            limit = self._limit(part, part.minimum)
            (self._openings if is_used else self._reserve).append((part, holder, level, limit))
        return holder

    def _add(self, part: _Part, holder: _Holder, level: int) -> None:
        """One more occurrence of a particle."""
        if part.element is not None:
            self._add_element(part.element, holder, level)
        elif part.is_choice:
            option = self._option(part, level)
            if option.element is not None and option.maximum == 1 == option.minimum:
                self._add_element(option.element, holder, level)
            else:
                holder.append(self._hold(option, level))
        else:
            holder.append([self._hold(inner, level) for inner in part.parts])

    def _add_element(self, kind: _Kind, holder: _Holder, level: int) -> None:
        self._tags += 1
        content = kind.content
        holder.append(_Node(kind, [] if content is None else self._hold(content, level + 1)))

    def _option(self, part: _Part, level: int) -> _Part:
        """One of the options that fit; the smallest once the document is large enough."""
        room = self._settings.levels_max - level
        fitting = part.parts
        if room < part.levels_of_options:
            fitting = [option for option in fitting if option.levels_needed <= room]
        if self._tags >= self._wanted:
            return min(fitting, key=_tags_needed)
        return fitting[self._draws.below(len(fitting))]


def _tags_needed(part: _Part) -> int:
    return part.tags * part.minimum


# --- from the schema's declarations to what grows ------------------------------------------------


def _compiled(schema: Schema) -> _Kind:
    """The root's declaration, with all that it refers to."""
    kinds = {
        key: _kind(element) for key, element in schema.elements.items() if key in schema.heights
    }
    for key, kind in kinds.items():
        content = _part(schema.elements[key].content, schema, kinds)
        assert content is not None, "what has a height has a content"
        kind.content = content if content.parts or content.element else None
    return kinds[schema.root]


def _kind(element: Element) -> _Kind:
    attributes = usable_attributes(element.attributes, element.label)
    return _Kind(
        element.label,
        element.namespace,
        element.text,
        [attribute for attribute in attributes if attribute.is_required],
        [attribute for attribute in attributes if not attribute.is_required],
    )


def _part(particle: Particle, schema: Schema, kinds: dict[str, _Kind]) -> _Part | None:
    """A particle ready for growing; None if it cannot occur."""
    levels = least_once(particle, schema.heights, deepest)
    tags = least_once(particle, schema.sizes, sum)
    if levels is None or tags is None or particle.maximum == 0:
        return None
    inner = [_part(part, schema, kinds) for part in particle.parts]
    return _Part(
        # What may occur without holding anything may as well occur: its parts are open then.
        minimum=particle.minimum or int(tags == 0),
        maximum=_UNBOUNDED if particle.maximum is None else particle.maximum,
        levels=levels,
        tags=tags,
        is_choice=particle.is_choice,
        element=None if particle.element is None else kinds[particle.element],
        # Parts that cannot occur are optional, or options among others: leave them out.
        parts=[part for part in inner if part is not None],
    )


def _escaped(text: str) -> str:
    return (
        text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
    )
