"""Topics: which layers a filter joins, and on which an event is published (§4.3.1, §4.3.2).

The paper's predicates are defined "using variables representing a set of topics"; what a topic is
it leaves open. Here one attribute of the events is the topic, a setting that all nodes share. Its
values are the topics, and each has a layer. From the normal form of a filter:

- a box that demands one of some values of that attribute needs the layers of these values;
- any other box (a range, a prefix, a pattern, NOT, IS NULL, no demand at all, and every XPath
  pattern) needs the catch-all layer, on which every event is published. A filter with such a box,
  or with more than TOPICS_PER_FILTER_MAX topics, joins the catch-all layer alone.

The law: whenever a filter matches an event, they share a layer.

The default attribute is `symbol`: the examples, the demo and the drawn trades of large simulations
have it, so that without any setting their filters spread over layers. Where events have no such
attribute everything meets on the catch-all layer, which is slower and never wrong.

A layer's name says the class of the value and the value itself, in one spelling for all values
that compare equal: `number:1` for 1, 1.0 and the decimal 1. Long ones are cut to a hash; should two
topics share one, they share a layer, and the law holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from peersub.events.envelope import number_name
from peersub.events.kinds import KindClass, comparable, value_at
from peersub.filters.boxes import Path
from peersub.filters.domains import ABSENT, Domain
from peersub.filters.errors import FilterError
from peersub.filters.filter import Filter
from peersub.filters.intervals import single_points

__all__ = [
    "CATCH_ALL",
    "EVERYBODY",
    "LAYER_NAME_BYTES_MAX",
    "TOPICS_PER_FILTER_MAX",
    "TOPIC_ATTRIBUTE",
    "layers_of",
    "layers_of_event",
    "topic_path",
]

EVERYBODY: Final = ""
"""l0 of the paper (§4.2.2): the layer that every node is a member of. No event of a publisher."""
CATCH_ALL: Final = "*"
"""The layer of the filters that name no topic; every event is published on it."""
TOPIC_ATTRIBUTE: Final = "symbol"
"""The attribute that is the topic, if nothing else is set."""
TOPICS_PER_FILTER_MAX: Final = 16
"""A layer costs its members links and turns: who wants more topics than this wants about
everything, and is better off on one layer."""
LAYER_NAME_BYTES_MAX: Final = 64
"""Names travel with every turn, and strangers choose the values."""


def topic_path(attribute: str) -> Path:
    """The path of an attribute, written as in a filter.

    >>> topic_path("symbol"), topic_path("quote.venue"), topic_path("`a.b`")
    (('symbol',), ('quote', 'venue'), ('a.b',))

    Raises:
        ValueError: this is no name.
    """
    try:
        boxes = Filter(f"{attribute} IS NULL").boxes
    except FilterError as error:
        raise ValueError(f"the topic is an attribute, not {attribute!r}: {error}") from None
    if len(boxes) == 1 and not boxes[0].tests and list(boxes[0].domains.values()) == [ABSENT]:
        return next(iter(boxes[0].domains))
    raise ValueError(f"the topic is one attribute, not {attribute!r}")


def layers_of(wanted: Filter, path: Path) -> tuple[str, ...]:
    """The layers whose events a filter must see; none if it can match nothing.

    >>> layers_of(Filter("symbol IN ('A', 'B') AND price > 1"), ("symbol",))
    ('string:A', 'string:B')
    >>> layers_of(Filter("symbol = 'A' OR price > 1"), ("symbol",))
    ('*',)
    """
    if wanted.is_nothing:
        return ()
    if wanted.language != "sql":
        return (CATCH_ALL,)
    names: dict[str, None] = {}
    for box in wanted.boxes:
        topics = _topics(box.domain(path))
        if topics is None:
            return (CATCH_ALL,)
        names.update(dict.fromkeys(topics))
        if len(names) > TOPICS_PER_FILTER_MAX:
            return (CATCH_ALL,)
    return tuple(sorted(names))


def layers_of_event(attributes: Mapping[str, Any], path: Path) -> tuple[str, ...]:
    """The layers that an event is published on: that of its topic if it has one, and the catch-all.

    >>> layers_of_event({"symbol": "A", "price": 2}, ("symbol",)), layers_of_event({}, ("symbol",))
    (('string:A', '*'), ('*',))
    """
    place = comparable(value_at(attributes, path))
    return (CATCH_ALL,) if place is None else (_name(*place), CATCH_ALL)


def _topics(domain: Domain) -> list[str] | None:
    """The topics of a box that has few; None if it also wants events of others, or of none."""
    if domain.absent or domain.other:
        return None
    names: list[str] = []
    for kind_class in KindClass:
        keys = single_points(kind_class, domain.sets[kind_class])
        if keys is None or len(names) + len(keys) > TOPICS_PER_FILTER_MAX:
            return None
        names += [_name(kind_class, key) for key in keys]
    return names


def _name(kind_class: KindClass, key: Any) -> str:
    """The layer of a topic: equal for values that compare equal, different for others."""
    word = kind_class.name.lower()
    text = number_name(key) if kind_class is KindClass.NUMBER else str(key)
    name = f"{word}:{text}"
    # Surrogates occur in no text that came over the wire; an event made here may have them.
    written = name.encode("utf-8", "surrogatepass")
    if len(written) <= LAYER_NAME_BYTES_MAX and name.isprintable():
        return name
    return f"{word}#{hashlib.blake2b(written, digest_size=16).hexdigest()}"
