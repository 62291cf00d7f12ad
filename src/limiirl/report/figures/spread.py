"""How numbers are spread: a histogram with its middle marked, for distances, confidences and the like."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from limiirl.report.figures.look import Drawn, Row, blank, in_ink, numbers, told
from limiirl.report.ink import INK, NARROW, RULE, SERIES


@in_ink
def spread(values: ArrayLike, axis: str, what: str, edges: ArrayLike, *, unit: str = "") -> Drawn:
    """Draw what share of values lies in each class; those beyond the last edge are counted in the last class.

    Parameters
    ----------
    values : (n,)
    axis : str
        What the horizontal axis says.
    what : str
        What is counted, such as "fixes".
    edges : (m + 1,)
        Where classes begin and end, ascending.
    unit : str
        After a number in the text.

    Examples
    --------
    >>> spread([0.1, 0.2, 0.9, 3.0], "metres", "fixes", [0.0, 0.5, 1.0]).rows
    [{'from': 0.0, 'to': 0.5, 'share': 0.5}, {'from': 0.5, 'to': 1.0, 'share': 0.5}]
    """
    known = numbers(values)
    known = known[np.isfinite(known)]
    ends = np.asarray(edges, dtype=np.float64)
    counts = np.histogram(np.clip(known, ends[0], ends[-1]), ends)[0]
    shares = counts / max(known.size, 1)
    figure = blank(2.1, NARROW)
    ax = figure.add_subplot()
    ax.stairs(100.0 * shares, ends, fill=True, color=SERIES[0], alpha=0.85)
    middle_words = ""
    if known.size:
        middle = float(np.median(known))
        middle_words = f": median {told(middle)}{unit}"
        ax.axvline(float(np.clip(middle, ends[0], ends[-1])), color=INK, linewidth=1.2, linestyle="--")
        ax.annotate(
            f" median {told(middle)}{unit}",
            (float(np.clip(middle, ends[0], ends[-1])), 1.0),
            xycoords=("data", "axes fraction"),
            va="bottom",
            ha="left" if middle < 0.5 * (ends[0] + ends[-1]) else "right",
        )
    ax.set_xlim(ends[0], ends[-1])
    ax.set_xlabel(axis + (", the rest in the last" if known.size and known.max() > ends[-1] else ""))
    ax.set_ylabel(f"% of {what}")
    ax.grid(visible=True, axis="y", color=RULE)
    rows: list[Row] = [
        {"from": float(a), "to": float(b), "share": float(share)}
        for a, b, share in zip(ends[:-1], ends[1:], shares, strict=True)
    ]
    alt = f"Histogram of {axis} of {known.size:,} {what}{middle_words}."
    return Drawn(figure, rows, alt)
