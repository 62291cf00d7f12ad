"""How much faster more workers are: seconds and speed-up against the number of workers, beside the ideal."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from limiirl.report.figures.look import Drawn, Keywords, Row, in_ink, legend, log_axis, numbers, panels, told
from limiirl.report.figures.method_styles import handle, line, styles
from limiirl.report.ink import MUTED, RULE

_IDEAL: Keywords = {"color": MUTED, "linestyle": (0, (2, 2)), "linewidth": 1.2}


@in_ink
def scaling(seconds: Mapping[str, Mapping[int, ArrayLike]]) -> Drawn:
    """Draw wall time and speed-up against workers, one line an engine.

    The speed-up is over an engine's own time with its fewest workers, and the ideal divides that time evenly.

    Parameters
    ----------
    seconds : engine -> workers -> seconds, or seconds of several runs
        Of several runs the fastest counts: the others were disturbed.

    Examples
    --------
    >>> drawn = scaling({"local": {1: 10.0, 2: [6.0, 5.0]}})
    >>> [(row["workers"], row["speedup"], row["efficiency"]) for row in drawn.rows]
    [(1, 1.0, 1.0), (2, 2.0, 1.0)]
    """
    look = styles(seconds)
    figure, (time, gain), _ = panels(2, 2.1)
    rows: list[Row] = []
    for engine, by_workers in seconds.items():
        mine = _rows(engine, by_workers)
        if not mine:
            continue
        workers = np.array([row["workers"] for row in mine])
        time.plot(workers, mine[0]["seconds"] * workers[0] / workers, zorder=1.0, **_IDEAL)
        time.plot(workers, [row["seconds"] for row in mine], **line(look[engine]))
        gain.plot(workers, [row["speedup"] for row in mine], **line(look[engine]))
        rows += mine
    counts = np.array(sorted({row["workers"] for row in rows}), dtype=np.float64)
    if counts.size:
        gain.plot(counts, counts / counts[0], zorder=1.0, **_IDEAL)
        log_axis(time, "y", np.array([row["seconds"] for row in rows]))
    time.set(title="Wall time, seconds")
    gain.set(title="Speed-up")
    for ax in (time, gain):
        ax.set_xlabel("workers")
        ax.set_xscale("log")
        ax.minorticks_off()
        ax.set_xticks(counts, [f"{x:g}" for x in counts])
        ax.grid(visible=True, axis="y", color=RULE)
    gain.set_ylim(bottom=0.0)
    legend(figure, [*(handle(style) for style in look.values()), Line2D([], [], label="ideal", **_IDEAL)], columns=3)
    parts = [f"{row['engine']} with {row['workers']}: {told(row['speedup'])}" for row in rows]
    return Drawn(figure, rows, f"Wall time and speed-up against workers. Speed-ups: {', '.join(parts)}.")


def _rows(engine: str, by_workers: Mapping[int, ArrayLike]) -> list[Row]:
    known = {int(w): numbers(values) for w, values in sorted(by_workers.items())}
    best = {w: float(np.nanmin(values)) for w, values in known.items() if np.isfinite(values).any()}
    if not best:
        return []
    fewest = min(best)
    return [
        {
            "engine": engine,
            "workers": w,
            "runs": int(np.isfinite(known[w]).sum()),
            "seconds": s,
            "speedup": best[fewest] / s,
            "efficiency": best[fewest] / s * fewest / w,
        }
        for w, s in best.items()
    ]
