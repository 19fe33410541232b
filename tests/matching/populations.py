"""Small random populations of filters and events that meet often, of all shapes of filters."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

NUMBERS = [0, 1, 2, 5, 9.5, 10, 2**53, 2**53 + 1, float(2**53), Decimal("0.1"), 0.1, -3, 1e300]
TEXTS = ["", "a", "ab", "abc", "b", "é", "\U0001f600", "x_y", "50%"]
DAYS = [date(2024, 1, 1) + timedelta(days=n) for n in range(4)]
MOMENTS = [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=6 * n) for n in range(4)]
NAMES = ["a", "b", "c", "d", "r.x", "r.y"]


def literal(value: Any) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.replace(tzinfo=None).isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    return str(value)


def value(random: Random) -> Any:
    pool = random.choice([NUMBERS, NUMBERS, TEXTS, TEXTS, DAYS, MOMENTS, [True, False]])
    return random.choice(pool)


def predicate(random: Random) -> str:
    name = random.choice(NAMES)
    match random.randrange(8):
        case 0:
            return f"{name} IS NULL"
        case 1:
            return f"{name} IS NOT NULL"
        case 2:
            pattern = random.choice(["%b%", "a%", "_b%", "%", "x\\_%", "%é"])
            return f"{name} {random.choice(['', 'NOT '])}LIKE '{pattern}'"
        case 3:
            return f"{name} RLIKE '{random.choice(['^a', 'b$', '[a-c]+', '.'])}'"
        case 4:
            listed = ", ".join(literal(value(random)) for _ in range(random.randint(1, 4)))
            return f"{name} {random.choice(['', 'NOT '])}IN ({listed})"
        case 5:
            pool = random.choice([NUMBERS, TEXTS, DAYS, MOMENTS])
            low, high = literal(random.choice(pool)), literal(random.choice(pool))
            return f"{name} BETWEEN {low} AND {high}"
        case _:
            operator = random.choice(["=", "=", "=", "<>", "<", "<=", ">", ">="])
            return f"{name} {operator} {literal(value(random))}"


def filter_text(random: Random, depth: int = 2) -> str:
    if depth == 0 or random.random() < 0.35:
        return predicate(random)
    word = random.choice([" AND ", " AND ", " OR "])
    parts = word.join(filter_text(random, depth - 1) for _ in range(random.randint(2, 3)))
    return f"{random.choice(['', '', 'NOT '])}({parts})"


def event(random: Random) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in NAMES[:4]:
        if random.random() < 0.7:
            found[name] = random.choice([value(random), value(random), None, float("nan"), [1]])
    if random.random() < 0.6:
        found["r"] = {key: value(random) for key in ("x", "y") if random.random() < 0.7}
    return found
