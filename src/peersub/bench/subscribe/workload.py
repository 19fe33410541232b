"""Filters that differ, of which few cover another, and events that some of them want."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Final

__all__ = ["draw_event", "draw_filters"]

PRICES: Final = 100_000
PER_GROUP: Final = 20
"""Filters, about, that ask for the same item."""


def draw_filters(count: int, seed: int) -> Iterator[str]:
    """So many texts, no two of them alike; each number has its own, whatever the count.

    >>> first, second = draw_filters(2, 1)
    >>> first != second
    True
    """
    random = Random(f"filters/{seed}")
    for number in range(count):
        price, width = random.randrange(PRICES), random.randrange(1, 200)
        match number % 4:
            case 0:
                yield f"item = 'I{number}' AND price < {price}"
            case 1:
                yield f"price > {price} AND price < {price + width} AND size = {number}"
            case _:
                group = number // PER_GROUP
                low = price + number / (2 * count)
                yield f"item = 'G{group}' AND price BETWEEN {low:.6f} AND {low + width:.6f}"


def draw_event(text: str, random: Random) -> dict[str, Any]:
    """Attributes that a filter of these wants."""
    words = text.replace("'", "").split()
    event: dict[str, Any] = {"size": random.randrange(1_000), "item": "other"}
    for place, word in enumerate(words):
        if word == "item":
            event["item"] = words[place + 2]
        elif word == "size":
            event["size"] = int(words[place + 2])
        elif word == "BETWEEN":
            event["price"] = (float(words[place + 1]) + float(words[place + 3])) / 2
        elif word in "<>" and words[place - 1] == "price":
            event["price"] = float(words[place + 1]) + (0.5 if word == ">" else -0.5)
    if "> " in text and "price <" in text:
        event["price"] = float(words[words.index(">") + 1]) + 0.5
    return event
