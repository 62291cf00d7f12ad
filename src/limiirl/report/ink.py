"""The colours in which figures are drawn, and by which a page recognises them.

A figure is drawn once, in the colours below, for paper. On a page the same figure must suit a light and a dark
background, so the page replaces exactly these colours by CSS variables. Any other colour, such as those of a colour
map, stays as it is.
"""

from collections.abc import Mapping
from types import MappingProxyType

INK = "#1a1b1e"
"""Text, and lines that carry the meaning."""

MUTED = "#5c6069"
"""Axes, ticks, secondary labels, reference lines."""

RULE = "#dcdee3"
"""Grid lines and faint frames."""

PAPER = "#fefefe"
"""The background itself: halos of labels, edges of markers, fills that hide what lies below."""

SERIES = ("#0b6bb0", "#bf5200", "#0a8560", "#b04f8d", "#8c6a00", "#117f96", "#b3243c", "#6a4fc0")
"""One colour an intent or a method, in this order; text of the colour `PAPER` can be read on each, and the reverse."""

VARIABLES: Mapping[str, str] = MappingProxyType(
    {INK: "--ink", MUTED: "--muted", RULE: "--rule", PAPER: "--paper"}
    | {colour: f"--series-{place}" for place, colour in enumerate(SERIES, start=1)}
)
"""The CSS variable that takes a colour's place on a page."""

WIDE, NARROW = 8.0, 4.6
"""Widths in inches of a figure as wide as the page, and of one that a phone shows without scrolling."""

STYLE: Mapping[str, object] = MappingProxyType(
    {
        "font.size": 9.0,
        "axes.titlesize": 9.5,
        "axes.labelsize": 9.0,
        "xtick.labelsize": 8.5,
        "ytick.labelsize": 8.5,
        "legend.fontsize": 8.5,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.titlecolor": INK,
        "axes.titlelocation": "left",
        "axes.edgecolor": MUTED,
        "axes.facecolor": "none",
        "axes.linewidth": 0.8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "axes.grid": False,
        "grid.color": RULE,
        "grid.linewidth": 0.7,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "xtick.labelcolor": MUTED,
        "ytick.labelcolor": MUTED,
        "axes.prop_cycle": f"cycler('color', {list(SERIES)})",
        "legend.frameon": False,
        "lines.linewidth": 1.6,
        "figure.facecolor": "none",
        "figure.constrained_layout.use": True,
    }
)
"""The matplotlib settings under which every figure of a report is drawn and saved."""
