"""How EM converged in one trial: NLL by iteration, as it is and as the gap to the best that any method reached."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from limiirl.report.figures.look import Drawn, Row, in_ink, legend, log_axis, numbers, panels, told
from limiirl.report.figures.method_styles import MethodStyle, handle, line, styles
from limiirl.report.ink import RULE

# Gaps below this share of the NLL are rounding, and would stretch the log axis for nothing.
_ROUNDING = 1e-9


@in_ink
def traces(histories: Mapping[str, ArrayLike]) -> Drawn:
    """Draw the NLL of the training demonstrations against the iteration of EM, for each method.

    The gap is to the lowest NLL of all methods; where a trace reaches it, the gap is 0 and leaves its log axis.

    Parameters
    ----------
    histories : method -> (n_iter + 1,)
        NLL by iteration; the first is the start's. A method without EM has none, and is left out.

    Examples
    --------
    >>> drawn = traces({"k-means, MLE": [21.0, 20.0], "random rewards": [25.0, 21.0, 20.5]})
    >>> [row["gap"] for row in drawn.rows]
    [1.0, 0.0, 5.0, 1.0, 0.5]
    """
    known = {name: numbers(values) for name, values in histories.items()}
    known = {name: values for name, values in known.items() if np.isfinite(values).any()}
    look = styles(known)
    figure, (raw, gap), _ = panels(2, 2.1)
    best = min((float(np.nanmin(values)) for values in known.values()), default=float("nan"))
    rows: list[Row] = []
    for name, values in known.items():
        steps = np.arange(values.size)
        above = values - best
        above[above <= _ROUNDING * max(abs(best), 1.0)] = 0.0
        # Markers on few of many iterations; the last is where EM stopped.
        few = sorted({*range(0, values.size, max(values.size // 6, 1)), values.size - 1})
        look_of = {**line(look[name]), "markevery": few, "markersize": 4.2}
        raw.plot(steps, values, **look_of)
        gap.plot(steps, np.where(above > 0.0, above, np.nan), **look_of)
        pairs = zip(steps.tolist(), values.tolist(), above.tolist(), strict=True)
        rows += [{"method": name, "iteration": i, "nll": value, "gap": over} for i, value, over in pairs]
    gaps = np.array([row["gap"] for row in rows if row["gap"] > 0.0])
    if gaps.size:
        log_axis(gap, "y", gaps)
    raw.set(title="Training NLL", xlabel="iteration of EM")
    gap.set(title="Above the best", xlabel="iteration of EM")
    for ax in (raw, gap):
        ax.grid(visible=True, axis="y", color=RULE)
        ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    legend(figure, [handle(style) for style in look.values()])
    return Drawn(figure, rows, _alt(known, look, best))


def _alt(known: Mapping[str, np.ndarray], look: Mapping[str, MethodStyle], best: float) -> str:
    if not known:
        return "No method made an iteration of EM."
    ends = [
        f"{look[name].label} ends after {values.size - 1} iterations at {told(values[-1])}"
        for name, values in known.items()
    ]
    return f"NLL against the iteration of EM; the best is {told(best)}: {'; '.join(ends)}."
