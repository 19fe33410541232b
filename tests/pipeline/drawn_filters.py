"""Filters drawn for a table of real data, in words that mean the same to DuckDB and to peersub.

Each filter uses names, values and kinds that occur, so that most filters match something. Text is
compared by code point, numbers by value, and a missing value is unknown, in both.
"""

from collections.abc import Sequence
from random import Random
from typing import Any


def drawn_filters(columns: dict[str, Sequence[Any]], count: int, seed: int) -> list[str]:
    """So many filters over these columns: dotted names, and the values that occur."""
    random = Random(seed)
    known = {
        name: sorted({value for value in values if value is not None})
        for name, values in columns.items()
    }
    return [_filter(random, known) for _ in range(count)]


def _filter(random, known):
    names = random.sample(sorted(known), random.choice((2, 2, 3)))
    parts = [_predicate(random, name, known[name]) for name in names]
    if len(parts) == 3 and random.random() < 0.3:
        return f"{parts[0]} AND ({parts[1]} OR {parts[2]})"
    if random.random() < 0.03:
        parts.append(f"{random.choice(sorted(known))} IS {random.choice(('NULL', 'NOT NULL'))}")
    return " AND ".join(parts)


def _predicate(random, name, values):
    if not values:
        return f"{name} IS NULL"
    if isinstance(values[0], str):
        return _text_predicate(random, name, values)
    # Narrow ranges: a subscriber who wants most of everything is the exception.
    place, width = random.randrange(len(values)), max(1, len(values) // 20)
    low, high = values[place], values[min(place + random.randrange(width), len(values) - 1)]
    few = ", ".join(repr(random.choice(values)) for _ in range(3))
    return random.choice(
        (
            f"{name} > {values[-1 - random.randrange(width)]!r}",
            f"{name} <= {values[random.randrange(width)]!r}",
            f"{name} BETWEEN {low!r} AND {high!r}",
            f"{name} = {low!r}",
            f"{name} IN ({few})",
            f"NOT ({name} < {low!r} OR {name} > {high!r})",
        )
    )


def _text_predicate(random, name, values):
    one, two = (_quoted(random.choice(values)) for _ in range(2))
    prefix = random.choice(values)[: random.choice((1, 2))]
    like = f"{name} LIKE '{prefix}%'" if prefix.isalnum() else f"{name} = {one}"
    inner = random.choice(values)[1:3]
    within = f"{name} LIKE '%{inner}%'" if inner.isalnum() else f"{name} <> {one}"
    return random.choice(
        (f"{name} = {one}", f"{name} IN ({one}, {two})", like, within, f"{name} = {two}")
    )


def _quoted(text):
    return "'" + text.replace("'", "''") + "'"
