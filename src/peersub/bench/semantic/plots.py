"""Line plots as SVG texts that stand by themselves. No library, no script, no address.

Series differ by dashes as well as by colour; what a plot shows is told in words too (`title`,
`desc`). All text is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from typing import Final, TypeAlias

from peersub.pipeline.report.plots import compact_text

__all__ = ["Series", "line_plot"]

_WIDTH: Final = 760
_LEFT: Final = 64
_RIGHT: Final = 20
_TOP: Final = 46
_HEIGHT: Final = 340
_LEGEND_STEP: Final = 20
_LEGEND_COLUMNS: Final = 2
_COLOURS: Final = ("#1b6ca8", "#c8452d", "#2f8f5b", "#8a5aa8", "#b07a10", "#4a5560", "#c05a8e")
_DASHES: Final = ("", "7 4", "2 3", "10 4 2 4", "14 4", "4 2")

_Place: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Series:
    """A line: its name, its points, and which colour and dashes it has."""

    name: str
    points: tuple[tuple[float, float], ...]
    colour: int
    dash: int = 0


def line_plot(title: str, series: Sequence[Series], *, x_axis: str, y_axis: str) -> str:
    """Shares against sizes: the scale of sizes is logarithmic, that of shares begins at 0."""
    shown = [each for each in series if each.points]
    xs = sorted({x for each in shown for x, _ in each.points})
    highest = max((y for each in shown for _, y in each.points), default=0.0) or 1.0
    step = _nice_step(highest)
    top = step * ceil(highest / step - 1e-9)
    rows = -(-len(shown) // _LEGEND_COLUMNS)
    height = _TOP + _HEIGHT + 54 + _LEGEND_STEP * rows
    low, high = (log10(xs[0]), log10(xs[-1])) if xs else (0.0, 1.0)

    def place(x: float, y: float) -> _Place:
        across = 0.5 if high == low else (log10(x) - low) / (high - low)
        return _LEFT + across * (_WIDTH - _LEFT - _RIGHT), _TOP + (1 - y / top) * _HEIGHT

    middle = _TOP + _HEIGHT / 2
    parts = [
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(_WIDTH / 2, 24, title, "middle", 15),
        *_grid(xs, top, step, place),
        _text((_WIDTH + _LEFT) / 2, _TOP + _HEIGHT + 38, x_axis, "middle"),
        f'<g transform="rotate(-90 16 {middle})">{_text(16, middle, y_axis, "middle")}</g>',
    ]
    for number, each in enumerate(shown):
        look = f'stroke="{_COLOURS[each.colour % len(_COLOURS)]}" stroke-width="2"'
        look += f' stroke-dasharray="{_DASHES[each.dash % len(_DASHES)]}"'
        places = [place(*point) for point in each.points]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline fill="none" {look} points="{line}"/>')
        colour = _COLOURS[each.colour % len(_COLOURS)]
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        column, row = divmod(number, rows)
        x = _LEFT + column * (_WIDTH - _LEFT) / _LEGEND_COLUMNS
        y = _TOP + _HEIGHT + 62 + _LEGEND_STEP * row
        parts.append(f'<line x1="{x}" x2="{x + 34}" y1="{y - 4}" y2="{y - 4}" {look}/>')
        parts.append(_text(x + 42, y, each.name))
    told = "; ".join(
        f"{each.name}: {', '.join(f'{y:.3g} at {x:,.0f}' for x, y in each.points)}"
        for each in shown
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'font-family="sans-serif"><title>{escape(title)}</title><desc>{escape(told)}</desc>'
        f"{''.join(parts)}</svg>\n"
    )


def _nice_step(highest: float) -> float:
    """A round distance of about five lines up to the highest value.

    >>> [_nice_step(value) for value in (0.76, 0.24, 31.0)]
    [0.2, 0.05, 10.0]
    """
    unit: float = 10.0 ** floor(log10(highest / 4))
    return next(unit * factor for factor in (1, 2, 5, 10) if highest / (unit * factor) <= 5)


def _grid(
    xs: Sequence[float], top: float, step: float, place: Callable[[float, float], _Place]
) -> Iterator[str]:
    for number in range(round(top / step) + 1):
        _, y = place(xs[0] if xs else 1.0, number * step)
        yield (
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
            'stroke="#dddddd"/>'
        )
        yield _text(_LEFT - 8, y + 4, f"{number * step:.3g}", "end")
    for x in xs:
        across, _ = place(x, 0)
        yield (
            f'<line x1="{across:.1f}" x2="{across:.1f}" y1="{_TOP}" y2="{_TOP + _HEIGHT}" '
            'stroke="#eeeeee"/>'
        )
        yield _text(across, _TOP + _HEIGHT + 18, compact_text(x), "middle")


def _text(x: float, y: float, text: str, anchor: str = "start", size: int = 12) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
        f'fill="#222222">{escape(text)}</text>'
    )
