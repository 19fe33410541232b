"""An event that one filter matches and another does not: why covering fails, shown.

What a subtraction of boxes leaves over is turned into events by picking values from each domain.
Each candidate is then asked of both filters, so that what is shown is always true.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import islice, product
from typing import Any, Final

from peersub.events.kinds import KindClass
from peersub.filters.boxes import TRUE, Box, Path, box_subtraction
from peersub.filters.domains import Domain
from peersub.filters.filter import Filter
from peersub.filters.intervals import GREATEST, LEAST, Cut
from peersub.filters.limits import PIECES_MAX

__all__ = ["counterexample"]

CANDIDATES_MAX: Final = 2_000


def counterexample(general: Filter, specific: Filter) -> dict[str, Any] | None:
    """Attributes that match `specific` and not `general`; None if none is found."""
    pieces = list(specific.boxes)
    for box in general.boxes:
        pieces = [left for piece in pieces for left in box_subtraction(piece, box)][:PIECES_MAX]
    candidates = (event for piece in pieces for event in _events(piece))
    for event in islice(candidates, CANDIDATES_MAX):
        if specific.matches(event) and not general.matches(event):
            return event
    return None


def _events(box: Box) -> Iterator[dict[str, Any]]:
    paths = list(box.domains)
    choices = [list(_values(box, path, box.domains[path])) for path in paths]
    for values in product(*choices):
        event = _event(dict(zip(paths, values, strict=True)))
        if event is not None:
            yield event


def _event(values: Mapping[Path, Any]) -> dict[str, Any] | None:
    event: dict[str, Any] = {}
    for path, value in sorted(values.items(), key=lambda item: item[0]):
        if value is None:
            continue
        record = event
        for name in path[:-1]:
            record = record.setdefault(name, {})
            if not isinstance(record, dict):
                return None
        if path[-1] in record:
            return None
        record[path[-1]] = value
    return event


def _values(box: Box, path: Path, domain: Domain) -> Iterator[Any]:
    """Some values of a domain; None stands for absent."""
    for test, truth in box.tests.items():
        if test.path == path and truth == TRUE:
            yield test.pattern.replace("%", "").replace("\\", "")
            yield test.pattern.replace("%", "x").replace("_", "y").replace("\\", "")
    for kind_class in KindClass:
        cuts = domain.sets[kind_class]
        for start in range(0, min(len(cuts), 8), 2):
            yield from _between(kind_class, cuts[start], cuts[start + 1])
    if domain.other:
        yield [0]
    if domain.absent:
        yield None


def _between(kind_class: KindClass, lower: Cut, upper: Cut) -> Iterator[Any]:
    match kind_class:
        case KindClass.NUMBER:
            yield from _numbers(lower, upper)
        case KindClass.STRING:
            text = "" if lower == LEAST else lower[0]
            yield text
            yield text + "a"
        case KindClass.BOOLEAN:
            yield lower != LEAST
        case KindClass.DATE | KindClass.TIMESTAMP:
            key = _discrete(lower, upper)
            try:
                if kind_class is KindClass.DATE:
                    yield date(1970, 1, 1) + timedelta(days=key)
                else:
                    yield datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=key)
            except OverflowError:
                return


def _discrete(lower: Cut, upper: Cut) -> int:
    if lower != LEAST:
        return int(lower[0])
    return 0 if upper == GREATEST else int(upper[0]) - 1


def _numbers(lower: Cut, upper: Cut) -> Iterator[int | float | Decimal]:
    """Whole numbers where there are some, else the bounds and the middle."""
    low, high = lower[0], upper[0]
    if lower == LEAST and upper == GREATEST:
        yield 0
    elif lower == LEAST:
        yield int(high) - 1
        yield high
    elif upper == GREATEST:
        yield int(low) + 1
        yield low
    else:
        yield from (int(low) + 1, low, high, (Decimal(low) + Decimal(high)) / 2)
