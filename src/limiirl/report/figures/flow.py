"""Where a GEVD comes from: which learned intents are paired with which true ones, and at what cost."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from limiirl.metrics.gevd_plot import draw_flow
from limiirl.report.figures.look import Drawn, Row, blank, in_ink, told
from limiirl.report.ink import INK, MUTED, NARROW


@in_ink
def flow(weights: ArrayLike, evd: ArrayLike, value: float, distance: str = "EVD") -> Drawn:
    """Draw the cheapest pairing of learned intents (left) with true ones (right).

    Parameters
    ----------
    weights, evd : (K', K)
        Flow and distance of every pair: `GEVD.flow` and `GEVD.evd`.
    value : float
        The GEVD.
    distance : str
        The distance's name.

    Examples
    --------
    >>> flow([[0.5, 0.0], [0.0, 0.5]], [[0.0, 3.0], [4.0, 1.0]], 0.5).rows[-1]
    {'true': 1, 'learned': 1, 'flow': 0.5, 'evd': 1.0, 'contribution': 0.5}
    """
    shares, costs = np.array(weights, dtype=np.float64), np.array(evd, dtype=np.float64)
    figure = blank(0.9 + 0.62 * max(shares.shape), NARROW)
    ax = figure.add_subplot()
    draw_flow(ax, shares, costs, distance, ink=INK, muted=MUTED)
    rows: list[Row] = [
        {"true": i, "learned": j, "flow": float(w), "evd": float(costs[i, j]), "contribution": float(w * costs[i, j])}
        for (i, j), w in np.ndenumerate(shares)
        if w > 0.0
    ]
    dearest = sorted(rows, key=lambda row: -row["contribution"])[:3]
    parts = ", ".join(
        f"learned {row['learned']} with true {row['true']} ({100 * row['flow']:.3g} % at {told(row['evd'])})"
        for row in dearest
    )
    return Drawn(figure, rows, f"GEVD {told(value)} as the cheapest pairing of intents; what costs most: {parts}.")
