"""Random XML documents and XPath expressions, and the expressions as the oracle reads them.

An expression is made as a tree of its own, never through the code under test, and rendered
twice: as it is written in a pattern, and with each name as a test of the local name, for
documents with namespaces. The makers take a source of randomness; Hypothesis' own lets failures
shrink."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from lxml import etree

from peersub.filters import FilterError
from peersub.filters.xpath import XPathFilter

LABELS = ["a", "a", "b", "b", "c", "é"]
ATTRIBUTES = ["x", "y"]
TEXTS = [
    *("1", "2", "10", " 5 ", "5.0", "05", "-3", ".5", "1e1", "1E-1", "5e", "1.5", "+5", "- 5", "0"),
    *("v", "w", "it's", '"', "", " ", "nan", "-0", "9007199254740993", "123456.789", "0x1", "5 5"),
    *("1e999", "-1e999", "0e999", "1.7e308", "0.1", "0.10000000000000000555", "1.1e1", "3e-1"),
]
NUMBERS = [
    "1",
    "2",
    "5",
    "10",
    "-3",
    "0.5",
    ".5",
    "5.",
    "1.50",
    "0",
    "123456.789",
    "0.1",
    "11",
    "- 5",
]
STRINGS = ["v", "w", "5", "5.0", " 5 ", "it's", '"', "", "1"]
OPERATORS = ["=", "!=", "<", "<=", ">", ">="]
EXCHANGED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

# Hypothesis' own source lets failures shrink, but likes small cases; a seed gives large ones.
sources = st.randoms(use_true_random=False) | st.integers(0, 2**64 - 1).map(Random)


def fewer(divisor: int) -> settings:
    """Settings for a test whose examples are large: a part of the profile's examples."""
    return settings(max_examples=max(5, settings().max_examples // divisor))


# --- documents -----------------------------------------------------------------------------------


def escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")


def make_contents(random: Random, depth: int, prefixes: list[str]) -> str:
    if depth == 0:
        return escaped(random.choice(TEXTS))
    written = []
    for _ in range(random.randint(0 if depth < 3 else 2, 5)):
        match random.choice("eeeeettcpd"):
            case "e":
                written.append(make_element(random, depth - 1, prefixes))
            case "t":
                written.append(escaped(random.choice(TEXTS)))
            case "c":
                written.append("<!-- 5 -->")
            case "p":
                written.append("<?note 5?>")
            case _:
                # Of an empty section libxml2 makes a text node without text, which XPath has not.
                written.append(f"<![CDATA[{random.choice(TEXTS) or 'v'}]]>")
    return "".join(written)


def make_element(random: Random, depth: int, prefixes: list[str]) -> str:
    name = random.choice(prefixes) + random.choice(LABELS)
    attributes = [
        f' {attribute}="{escaped(random.choice(TEXTS))}"'
        for attribute in ATTRIBUTES
        if random.randint(0, 2) == 0
    ]
    if len(prefixes) > 1 and random.randint(0, 1):
        attributes.append(' p:y="5"')
    return f"<{name}{''.join(attributes)}>{make_contents(random, depth, prefixes)}</{name}>"


def documents(depth: int = 4) -> st.SearchStrategy[str]:
    """XML text with all that has a say in matching: text, comments, instructions, CDATA."""
    return sources.map(lambda random: make_element(random, depth, [""]))


def namespaced_documents() -> st.SearchStrategy[str]:
    """XML text with elements and attributes in and out of namespaces."""
    scopes = '<r xmlns="urn:r" xmlns:p="urn:p" xmlns:q="urn:q">'
    return sources.map(lambda random: f"{scopes}{make_element(random, 3, ['', 'p:', 'q:'])}</r>")


# --- expressions ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expression:
    """A rendering that waits for how names are to be tested."""

    render: Callable[[Callable[[str], str]], str]

    @property
    def text(self) -> str:
        """As a pattern writes it."""
        return self.render(lambda name: name)

    @property
    def by_local_name(self) -> str:
        """For the oracle, whatever the namespaces of the document are."""
        return self.render(lambda name: f"*[local-name()='{name}']")


def make_literal(random: Random, operator: str) -> str:
    if operator in ("=", "!=") and random.randint(0, 1):
        text = random.choice(STRINGS)
        return f'"{text}"' if "'" in text else f"'{text}'"
    number = random.choice(NUMBERS)
    return f"'{number}'" if " " not in number and random.randint(0, 9) == 0 else number


def make_comparison(random: Random, operand: Expression) -> Expression:
    operator = random.choice(OPERATORS)
    literal = make_literal(random, operator)
    if random.randint(0, 7) == 0:
        return Expression(lambda t: f"{literal} {EXCHANGED[operator]} {operand.render(t)}")
    return Expression(lambda t: f"{operand.render(t)}{operator}{literal}")


def make_test(random: Random, depth: int) -> Expression:
    """What stands in brackets."""
    kind = random.choice(["attribute", "text", "value", "path", "path", "path end", "both"])
    here = random.choice(["", "./"])
    if kind == "attribute":
        name = random.choice(ATTRIBUTES)
        operand = Expression(lambda t: f"{here}@{name}")
    elif kind == "text":
        operand = Expression(lambda t: f"{here}text()")
        if random.randint(0, 3) == 0:
            operators = random.choice(OPERATORS), random.choice(OPERATORS)
            joined = " and ".join(f".{each}{make_literal(random, each)}" for each in operators)
            return Expression(lambda t: f"{here}text()[{joined}]")
    elif kind == "value":
        return make_comparison(random, Expression(lambda t: "."))
    elif kind == "both" and depth > 0:
        first, second = make_test(random, depth - 1), make_test(random, depth - 1)
        return Expression(lambda t: f"{first.render(t)} and {second.render(t)}")
    else:
        axis = random.choice(["", "./", ".//"])
        path = make_path(random, depth - 1)
        end = random.choice(["/@x", "/text()", "/@y"]) if kind == "path end" else ""
        operand = Expression(lambda t: f"{axis}{path.render(t)}{end}")
    return make_comparison(random, operand) if random.randint(0, 1) else operand


def make_branch(random: Random, depth: int) -> Expression:
    """What stands in brackets, without conditions."""
    axis = random.choice(["", ".//"])
    path = make_path(random, depth - 1, make_branch)
    return Expression(lambda t: axis + path.render(t))


def make_path(
    random: Random, depth: int, make_inner: Callable[[Random, int], Expression] = make_test
) -> Expression:
    """Steps without the axis before the first."""
    steps = []
    for number in range(random.randint(1, 3)):
        axis = random.choice(["/", "/", "//"]) if number else ""
        label = random.choice([*LABELS, "*", "*", "*", "*"])
        count = random.randint(0, 2) if depth > 0 else 0
        steps.append((axis, label, [make_inner(random, depth) for _ in range(count)]))

    def render(name_test: Callable[[str], str]) -> str:
        return "".join(
            axis
            + (label if label == "*" else name_test(label))
            + "".join(f"[{test.render(name_test)}]" for test in inner)
            for axis, label, inner in steps
        )

    return Expression(render)


def make_expression(random: Random) -> Expression:
    if random.randint(0, 19) == 0:
        return Expression(lambda t: "//@x")
    axis = random.choice(["/", "//"])
    path = make_path(random, depth=2)
    end = random.choice([""] * 8 + ["/@x", "/text()"])
    return Expression(lambda t: f"{axis}{path.render(t)}{end}")


def make_structure(random: Random) -> str:
    return random.choice(["/", "//"]) + make_path(random, 1, make_branch).text


expressions = sources.map(make_expression)
"""Patterns of the whole fragment."""
structures = sources.map(make_structure)
"""Patterns without conditions, as text."""
patterns = sources.map(
    lambda random: make_expression(random).text if random.randint(0, 1) else make_structure(random)
)
"""Patterns of either sort, as text."""


def filter_or_none(text: str) -> XPathFilter | None:
    """The filter; None if the pattern is larger than allowed, the only reason to refuse it here."""
    try:
        return XPathFilter(text)
    except FilterError as error:
        if "at most 64" not in error.problem:
            raise
        return None


def filters_of(texts: Iterable[str]) -> list[XPathFilter]:
    return [made for made in map(filter_or_none, texts) if made is not None]


# --- the oracle ----------------------------------------------------------------------------------


def lxml_matches(expression: str, document: str | bytes) -> bool:
    data = document.encode() if isinstance(document, str) else document
    return bool(etree.fromstring(data).xpath(f"boolean({expression})"))
