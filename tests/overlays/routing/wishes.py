"""Random wishes that meet often: they equal, cover, overlap and fuse in a small space."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

from matching.populations import filter_text
from peersub.filters.filter import Filter

EVENTS: list[dict[str, Any]] = [
    {"a": a, "b": b, "c": c} for a, b, c in product(range(7), range(7), range(3))
]
PATTERNS = ("/a", "//b", "/a/b", "/a//b", "/*", "/a//b[@x]", "/a/c", "/c//d", "//b[@x = '1']", "/d")
DOCUMENTS = (b"<a/>", b"<a><b/></a>", b"<a><c><b x='1'/></c></a>", b"<b/>", b"<c><e><d/></e></c>")


def wish(random: Random) -> Filter:
    """A conjunction of one or two constraints."""
    name = random.choice("ab")
    match random.randrange(4):
        case 0:
            return Filter(f"{name} > {random.randrange(6)}")
        case 1:
            return Filter(f"{name} = {random.randrange(6)}")
        case 2:
            low, high = random.randrange(3), 3 + random.randrange(3)
            return Filter(f"{name} BETWEEN {low} AND {high} AND c = {random.randrange(3)}")
        case _:
            return Filter(f"a = {random.randrange(3)} AND b = {random.randrange(3)}")


def any_wish(random: Random) -> Filter:
    """Also disjunctions, text tests, nothing, everything and tree patterns."""
    match random.randrange(4):
        case 0:
            return Filter.xpath(random.choice(PATTERNS))
        case 1:
            return wish(random)
        case _:
            return Filter(filter_text(random))
