"""A valid document that matches a pattern, if there is one: the judge of satisfiability.

Independent of how patterns are drawn: it asks for every element declaration, and every number of
levels, which nodes of the pattern can hold at such an element and below it, and keeps a document
for each answer that no other answer includes.
"""

from lxml import etree

from peersub.filters.xpath.pattern import PatternNode, nodes_of
from peersub.workloads.xml import Schema

Answer = tuple[int, int]
"""Which nodes hold at an element, and which hold there or below: a bit for each."""


class Witnesses:
    def __init__(self, schema: Schema, pattern: PatternNode) -> None:
        self.schema = schema
        self.pattern = pattern
        self.nodes = list(nodes_of(pattern))
        self.bits = {id(node): 1 << place for place, node in enumerate(self.nodes)}
        self.known: dict[tuple[str, int], dict[Answer, str]] = {}

    def document(self, levels: int) -> str | None:
        wanted = self.bits[id(self.pattern)]
        for (at, below), text in self.element(self.schema.root, levels).items():
            if (below if self.pattern.is_descendant else at) & wanted:
                return text
        return None

    def element(self, key: str, levels: int) -> dict[Answer, str]:
        if levels == 0:
            return {}
        if (key, levels) not in self.known:
            self.known[key, levels] = {}
            element = self.schema.elements[key]
            found: dict[Answer, str] = {}
            for (at, below), inside in self.particle(element.content, levels - 1).items():
                holding = 0
                for node in self.nodes:
                    if node.label in (None, element.label) and all(
                        self.bits[id(branch)] & (below if branch.is_descendant else at)
                        for branch in node.branches
                    ):
                        holding |= self.bits[id(node)]
                attributes = "".join(
                    f' {a.name}="{a.value.choices[0] if a.value.choices else "w"}"'
                    for a in element.attributes
                    if a.is_required
                )
                tag = element.label
                found[holding, holding | below] = f"<{tag}{attributes}>{inside}</{tag}>"
            self.known[key, levels] = strongest(found)
        return self.known[key, levels]

    def particle(self, particle, levels: int) -> dict[Answer, str]:
        once = self.once(particle, levels)
        found = {(0, 0): ""}
        for _ in range(particle.minimum):
            found = joined(found, once)
        more = len(self.nodes) if particle.maximum is None else particle.maximum - particle.minimum
        for _ in range(more):
            wider = strongest(found | joined(found, once))
            if wider.keys() == found.keys():
                break
            found = wider
        return found

    def once(self, particle, levels: int) -> dict[Answer, str]:
        if particle.element is not None:
            return self.element(particle.element, levels)
        found: dict[Answer, str] = {} if particle.is_choice and particle.parts else {(0, 0): ""}
        for part in particle.parts:
            answers = self.particle(part, levels)
            found = found | answers if particle.is_choice else joined(found, answers)
        return strongest(found)


def joined(left: dict[Answer, str], right: dict[Answer, str]) -> dict[Answer, str]:
    return strongest(
        {
            (one[0] | other[0], one[1] | other[1]): before + after
            for one, before in left.items()
            for other, after in right.items()
        }
    )


def strongest(answers: dict[Answer, str]) -> dict[Answer, str]:
    """Those that no other includes."""
    return {
        answer: text
        for answer, text in answers.items()
        if not any(
            other != answer
            and answer[0] | other[0] == other[0]
            and answer[1] | other[1] == other[1]
            for other in answers
        )
    }


def lxml_matches(text: str, pattern: str) -> bool:
    return bool(etree.fromstring(text).getroottree().xpath(pattern))
