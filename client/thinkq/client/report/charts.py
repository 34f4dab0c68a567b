"""Charts as inline SVG.

Across they are measured in per cent of the page's width, and down in pixels: so a chart fills any
width, and its letters keep their size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from thinkq.client.report.markup import tag

HEIGHT: Final = 200
"""Pixels of the plot."""
NAME: Final = 16
"""Pixels above it, for the name of each line."""
FOOT: Final = 24
"""Pixels below it, for the labels of the axis."""
AXIS: Final = 56
"""Pixels beside it."""


class Bar(NamedTuple):
    """One bar: segments of a meaning (a class of the style sheet) and a height, bottom up."""

    segments: Sequence[tuple[str, float]]
    title: str
    """What a pointer over it tells."""

    @property
    def height(self) -> float:
        """Of all segments."""
        return sum(height for _, height in self.segments)


class Mark(NamedTuple):
    """Something at a place across, which is counted in bars."""

    at: float
    text: str
    minor: bool = False
    """Not shown where the page is narrow."""


def bars(
    columns: Sequence[Bar],
    labels: Sequence[Mark],
    lines: Sequence[Mark] = (),
    *,
    label: str,
    gap: float = 0.12,
) -> Element:
    """Upright bars over an axis, and named lines across them.

    `gap` is the part of a column that stays free beside its bar. `label` says what is seen.
    """
    scale = _Scale(NAME * len(lines) + 8, nice_ticks(max(bar.height for bar in columns)))
    share = 100 / len(columns)
    axis = tag("svg", width=AXIS, height=scale.foot + FOOT, aria_hidden="true")
    plot = tag(
        "svg", width="100%", height=scale.foot + FOOT, class_="plot", role="img", aria_label=label
    )
    for tick in scale.ticks:
        down = scale.down(tick)
        axis.append(tag("text", f"{tick:,.0f}", x=AXIS - 8, y=down + 4, text_anchor="end"))
        plot.append(
            tag("line", x1="0", x2="100%", y1=down, y2=down, class_="grid" if tick else "base")
        )
    for number, bar in enumerate(columns):
        plot.append(_bar(bar, (number + gap / 2) * share, (1 - gap) * share, scale))
    for row, mark in enumerate(sorted(lines, key=lambda mark: _inwards(mark.at * share))):
        plot.append(_line(mark, mark.at * share, NAME * (row + 1), scale.foot))
    for mark in labels:
        plot.append(_label(mark, mark.at * share, scale.foot + 17))
    return tag("div", axis, plot, class_="chart")


def strip(parts: Sequence[tuple[str, int, str]], *, label: str) -> Element:
    """One lying bar, of parts of a meaning, a size and a name."""
    whole = sum(size for _, size, _ in parts) or 1
    drawing = tag("svg", width="100%", height=14, class_="strip", role="img", aria_label=label)
    across = 0.0
    for meaning, size, name in parts:
        width = 100 * size / whole
        drawing.append(
            tag(
                "rect",
                tag("title", f"{name}: {size:,}"),
                x=_percent(across),
                width=_percent(width),
                height=14,
                class_=meaning,
            )
        )
        across += width
    return drawing


def nice_ticks(highest: float, at_most: int = 6) -> list[float]:
    """Numbers from 0 to at least the highest, in steps of 1, 2 or 5 times a power of ten."""
    step = 1.0
    while step * at_most < highest:
        step *= 2.5 if f"{step:e}".startswith("2") else 2
    return [step * n for n in range(max(1, math.ceil(highest / step)) + 1)]


class _Scale(NamedTuple):
    """The axis beside a plot."""

    head: int
    """Pixels above the plot."""
    ticks: list[float]

    @property
    def foot(self) -> int:
        """Where the plot ends, in pixels down."""
        return self.head + HEIGHT

    def down(self, value: float) -> float:
        """Where a value is, in pixels down."""
        return round(self.foot - HEIGHT * value / self.ticks[-1], 1)


def _bar(bar: Bar, left: float, width: float, scale: _Scale) -> Element:
    group = tag("g", tag("title", bar.title))
    bottom = 0.0
    for meaning, height in bar.segments:
        if not height:
            continue
        top = scale.down(bottom + height)
        # What is there is seen, also one job beside thousands.
        tall = max(round(scale.down(bottom) - top, 1), 1)
        bottom += height
        across = _percent(left)
        group.append(
            tag("rect", class_=meaning, x=across, width=_percent(width), y=top, height=tall)
        )
    return group


def _inwards(across: float) -> tuple[bool, float]:
    """Sorts lines so that the name of none is crossed by the next: names lie towards the middle."""
    right = across > 50
    return right, -across if right else across


def _line(mark: Mark, across: float, top: float, foot: float) -> Element:
    place = _percent(across)
    side = "end" if across > 50 else "start"
    return tag(
        "g",
        tag("line", x1=place, x2=place, y1=top - 10, y2=foot),
        tag("text", mark.text, x=place, y=top, dx=-6 if side == "end" else 6, text_anchor=side),
        class_="mark",
    )


def _label(mark: Mark, across: float, down: float) -> Element:
    side = "start" if across < 2 else "end" if across > 98 else "middle"
    minor = "minor" if mark.minor else None
    return tag("text", mark.text, x=_percent(across), y=down, text_anchor=side, class_=minor)


def _percent(number: float) -> str:
    return f"{number:.3f}".rstrip("0").rstrip(".") + "%"
