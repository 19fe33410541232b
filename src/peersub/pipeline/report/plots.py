"""Plots as SVG texts: bars, a histogram, Lorenz curves. No library, no script, no address.

A plot is 360 units wide, so that its letters keep their size on a phone; its colours are variables
of the page (`--series-0`, …), so that it is readable on light and on dark ground. What it shows is
told in words too (`title`, `desc`), and series differ by dashes as well as by colour. All text is
escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import floor, log10
from typing import Final

__all__ = ["SERIES", "bars", "columns", "compact_text", "lorenz_curves", "number_text"]

SERIES: Final = 7
"""Colours that the page has; further series begin again."""
_WIDTH: Final = 360
_LABEL_CHARACTERS_MAX: Final = 16
_DASHES: Final = ("", "7 3", "2 3", "9 3 2 3")
COLUMNS_MAX: Final = 40
"""Columns of a histogram; the last one holds all that would come after it."""


def number_text(value: float) -> str:
    """A number as people read it: three digits that matter, thousands apart.

    >>> [number_text(value) for value in (0, 1234567, 0.0271828, 12.345, 1.0)]
    ['0', '1,234,567', '0.0272', '12.3', '1']
    """
    if value == int(value):
        return f"{int(value):,}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    digits = max(0, 2 - floor(log10(abs(value))))
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def bars(title: str, values: Sequence[tuple[str, float]], *, unit: str = "") -> str:
    """A lying bar for each name, with its value beside it."""
    step, top = 26, 6
    height = top + step * max(1, len(values)) + 4
    largest = max((value for _, value in values), default=0) or 1
    left, room = 108, _WIDTH - 108 - 70
    parts = []
    for number, (name, value) in enumerate(values):
        y = top + step * number
        width = max(room * value / largest, 1)
        parts.append(
            f'<text class="label" x="{left - 8}" y="{y + 14}" text-anchor="end">'
            f"{_short(name)}</text>"
            f'<rect x="{left}" y="{y + 2}" width="{width:.1f}" height="17" rx="2" '
            f'fill="{_colour(number)}"/>'
            f'<text class="value" x="{left + width + 6:.1f}" y="{y + 14}">'
            f"{escape(number_text(value) + unit)}</text>"
        )
    told = "; ".join(f"{name}: {number_text(value)}{unit}" for name, value in values)
    return _svg(title, told, height, parts)


def columns(
    title: str, values: Sequence[tuple[str, int]], *, series: int = 0, axis: str = ""
) -> str:
    """A standing column for each value, as high as its count."""
    values = _folded(values)
    height, left, bottom, top = 190, 44, 38, 14
    largest = max((count for _, count in values), default=0) or 1
    room, step = height - bottom - top, (_WIDTH - left - 8) / max(1, len(values))
    every = max(1, -(-len(values) * 30 // (_WIDTH - left)))
    parts = [*_levels(largest, left, top, room)]
    for number, (name, count) in enumerate(values):
        x, tall = left + step * number, room * count / largest
        parts.append(
            f'<rect x="{x + step * 0.1:.1f}" y="{top + room - tall:.1f}" width="{step * 0.8:.1f}" '
            f'height="{tall:.1f}" fill="{_colour(series)}">'
            f"<title>{escape(f'{name}: {count:,}')}</title></rect>"
        )
        if number % every == 0:
            parts.append(
                f'<text class="tick" x="{x + step / 2:.1f}" y="{height - bottom + 14}" '
                f'text-anchor="middle">{_short(name)}</text>'
            )
    parts.append(
        f'<text class="axis" x="{(_WIDTH + left) / 2:.0f}" y="{height - 5}" '
        f'text-anchor="middle">{escape(axis)}</text>'
    )
    told = "; ".join(f"{name}: {count:,}" for name, count in values)
    return _svg(title, told, height, parts)


def lorenz_curves(
    title: str, curves: Sequence[tuple[str, Sequence[tuple[float, float]], float]]
) -> str:
    """Which share of the load the least busy share of the nodes bears; with each curve its Gini."""
    size, left, top = 220, 44, 10
    height = top + size + 38 + 18 * len(curves)

    def place(x: float, y: float) -> str:
        return f"{left + x * (_WIDTH - left - 20):.1f},{top + (1 - y) * size:.1f}"

    parts = []
    for level in (0, 0.5, 1):
        start, end = place(0, level), place(1, level)
        x1, y1 = start.split(",")
        x2, _ = end.split(",")
        parts.append(
            f'<line class="grid" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y1}"/>'
            f'<text class="tick" x="{left - 6}" y="{float(y1) + 4:.1f}" text-anchor="end">'
            f"{level:.0%}</text>"
            f'<text class="tick" x="{place(level, 0).split(",")[0]}" y="{top + size + 15}" '
            f'text-anchor="middle">{level:.0%}</text>'
        )
    parts.append(f'<polyline class="even" points="{place(0, 0)} {place(1, 1)}"/>')
    for number, (name, points, gini) in enumerate(curves):
        line = " ".join(place(x, y) for x, y in [(0.0, 0.0), *points, (1.0, 1.0)])
        dash = _DASHES[number % len(_DASHES)]
        parts.append(
            f'<polyline fill="none" stroke="{_colour(number)}" stroke-width="2" '
            f'stroke-dasharray="{dash}" points="{line}"/>'
        )
        y = top + size + 44 + 18 * number
        parts.append(
            f'<line x1="{left}" x2="{left + 26}" y1="{y - 4}" y2="{y - 4}" stroke-width="2" '
            f'stroke="{_colour(number)}" stroke-dasharray="{dash}"/>'
            f'<text class="label" x="{left + 34}" y="{y}">{_short(name)}, Gini {gini:.3f}</text>'
        )
    parts.append(
        f'<text class="axis" x="{_WIDTH / 2 + 12:.0f}" y="{top + size + 28}" '
        'text-anchor="middle">nodes, the least busy first</text>'
    )
    told = "; ".join(f"{name}: Gini {gini:.3f}" for name, _, gini in curves)
    return _svg(title, f"Lorenz curves of the load of nodes. {told}", height, parts)


def _folded(values: Sequence[tuple[str, int]]) -> Sequence[tuple[str, int]]:
    if len(values) <= COLUMNS_MAX:
        return values
    rest = values[COLUMNS_MAX - 1 :]
    return [*values[: COLUMNS_MAX - 1], (f"{rest[0][0]}+", sum(count for _, count in rest))]


def _levels(largest: int, left: int, top: int, room: int) -> list[str]:
    """Lines at nothing, half and the largest, with their numbers."""
    parts = []
    for share in (0.0, 0.5, 1.0):
        y = top + room * (1 - share)
        parts.append(
            f'<line class="grid" x1="{left}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="tick" x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">'
            f"{compact_text(largest * share)}</text>"
        )
    return parts


def compact_text(value: float) -> str:
    """A number for an axis.

    >>> [compact_text(value) for value in (0, 999, 1500, 2_000_000)]
    ['0', '999', '1.5k', '2M']
    """
    for unit, name in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if value >= unit:
            return f"{value / unit:.3g}{name}"
    return f"{value:.3g}"


def _colour(number: int) -> str:
    return f"var(--series-{number % SERIES})"


def _short(name: str) -> str:
    shown = name if len(name) <= _LABEL_CHARACTERS_MAX else f"{name[: _LABEL_CHARACTERS_MAX - 1]}…"
    return escape(shown)


def _svg(title: str, told: str, height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img">'
        f"<title>{escape(title)}</title><desc>{escape(told)}</desc>{''.join(parts)}</svg>"
    )
