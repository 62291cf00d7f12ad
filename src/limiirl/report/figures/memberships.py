"""Who follows which intent: responsibilities of every demonstration, and the intents' shares."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray

from limiirl.errors import InvalidParameter
from limiirl.report.figures.look import (
    Drawn,
    Keywords,
    Row,
    blank,
    fitted,
    in_ink,
    intent_colour,
    legend,
    numbers,
    told,
)
from limiirl.report.ink import INK, MUTED, NARROW, PAPER, RULE

Float = NDArray[np.float64]
# More steps than this would make a page heavy as lines; they are drawn as an image.
_SHAPES = 20000
# Height of a certain responsibility in its row.
_TALL = 0.9


@in_ink
def responsibilities(U: ArrayLike, labels: ArrayLike | None = None, names: Sequence[str] | None = None) -> Drawn:
    """Draw responsibilities as strips: a row an intent, a column a demonstration, filled as high as it is certain.

    Demonstrations are sorted by true intent, and within one by how much is given to the learned intent of the same
    number. A perfect result is a staircase.

    Parameters
    ----------
    U : (N, K)
        Learned responsibilities, with the learned intents in the order of the true ones.
    labels : (N,), optional
        True intents, drawn above. Without them demonstrations are sorted by the most likely intent.
    names : K' texts, optional
        Of the true intents.

    Examples
    --------
    >>> drawn = responsibilities([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]], [1, 1, 0])
    >>> [row["demonstration"] for row in drawn.rows]
    [2, 1, 0]
    """
    shown = np.array(U, dtype=np.float64)
    if shown.ndim != 2 or shown.size == 0:
        raise InvalidParameter(f"U must have shape (N, K) with N, K >= 1; got shape {shown.shape}.")
    truth = None if labels is None else np.asarray(labels, dtype=np.int64)
    if truth is not None and truth.shape != shown.shape[:1]:
        raise InvalidParameter(f"labels must be one a demonstration; got {truth.shape} for {len(shown)} rows of U.")
    group = shown.argmax(axis=1) if truth is None else truth
    order = sorted_demos(shown, group)
    n, n_intents = shown.shape
    figure = blank(0.95 + 0.3 * n_intents + (0.0 if truth is None else 0.35), NARROW)
    ratios = [1.0] if truth is None else [0.7, float(n_intents)]
    axes = figure.subplots(len(ratios), 1, squeeze=False, sharex=True, height_ratios=ratios)[:, 0]
    _strip(axes[-1], shown[order])
    axes[-1].set_xlabel("demonstrations, by true intent" if truth is not None else "demonstrations, by likely intent")
    if truth is not None:
        _truth(axes[0], truth[order], names)
    rows: list[Row] = [
        {"demonstration": int(i), "true": "" if truth is None else int(truth[i])}
        | {f"u_{k}": float(shown[i, k]) for k in range(n_intents)}
        for i in order
    ]
    said = ""
    if truth is not None:
        said = f" {int(np.sum(shown.argmax(axis=1) == truth))} of them are most likely of their true intent."
    return Drawn(figure, rows, f"Responsibilities of {n_intents} intents for {n} demonstrations.{said}")


def sorted_demos(U: Float, group: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the demonstrations' order: by group, then from the surest of that group's own intent to the least.

    >>> sorted_demos(np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]]), np.array([0, 1, 0])).tolist()
    [0, 2, 1]
    """
    # A true intent that was not learned has no column of its own.
    own = np.where(group < U.shape[1], group, 0)
    sure = np.where(group < U.shape[1], U[np.arange(len(U)), own], U.max(axis=1))
    return np.lexsort((-sure, group))


def _strip(ax: Axes, U: Float) -> None:
    n, n_intents = U.shape
    for k in range(n_intents):
        foot = k + _TALL / 2
        look: Keywords = {"baseline": foot, "fill": True, "color": intent_colour(k), "linewidth": 0.0}
        ax.stairs(foot - _TALL * U[:, k], np.arange(n + 1), rasterized=U.size > _SHAPES, **look)
        ax.axhline(foot, color=RULE, linewidth=0.7, zorder=0.5)
    ax.set_xlim(0, n)
    ax.set_ylim(n_intents - 0.5, -0.5)
    ax.set_yticks(range(n_intents), [f"learned {k}" for k in range(n_intents)])
    _bare(ax)


def _truth(ax: Axes, truth: NDArray[np.int64], names: Sequence[str] | None) -> None:
    for k in np.unique(truth).tolist():
        first, last = int(np.argmax(truth == k)), int(truth.size - np.argmax(truth[::-1] == k))
        ax.barh(0, last - first, left=first, height=0.9, color=intent_colour(k), edgecolor=PAPER, linewidth=1.0)
        name = fitted(names[k] if names is not None and k < len(names) else str(k), 12, 1)
        ax.text((first + last) / 2, 0, name, ha="center", va="center", color=PAPER, fontsize="small", clip_on=True)
    ax.set_yticks([0], ["true"])
    ax.tick_params(axis="x", labelbottom=False)
    _bare(ax)


def _bare(ax: Axes) -> None:
    ax.tick_params(length=0)
    ax.tick_params(axis="y", labelcolor=INK)
    ax.spines[:].set_visible(False)


@in_ink
def shares(true: ArrayLike, learned: ArrayLike, names: Sequence[str] | None = None) -> Drawn:
    """Draw the true and the learned weight of each intent, joined by a line: its error.

    Parameters
    ----------
    true, learned : (K',), (K,)
        Weights rho in the same order; an intent that only one side has is drawn for that side alone.
    names : texts, optional

    Examples
    --------
    >>> shares([0.5, 0.5], [0.6, 0.4]).rows[0]
    {'intent': '0', 'true': 0.5, 'learned': 0.6}
    """
    sides = numbers(true), numbers(learned)
    n = max(side.size for side in sides)
    a, b = (np.concatenate([side, np.full(n - side.size, np.nan)]) for side in sides)
    labels = [names[k] if names is not None and k < len(names) else f"{k}" for k in range(n)]
    figure = blank(0.62 + 0.3 * n, NARROW)
    ax = figure.add_subplot()
    for k in range(n):
        dumbbell(ax, k, 100.0 * a[k], 100.0 * b[k], intent_colour(k))
    ax.set_yticks(range(n), [fitted(name) if names is not None else f"intent {name}" for name in labels])
    ax.set_ylim(n - 0.5, -0.5)
    ax.set_xlim(0.0, 108.0 * float(np.nanmax(np.concatenate([a, b, [0.0]])) or 1.0))
    ax.set_xlabel("share of demonstrations, %")
    ax.tick_params(axis="y", length=0, labelcolor=INK)
    ax.spines["left"].set_visible(False)
    ax.grid(visible=True, axis="x", color=RULE)
    legend(figure, dumbbell_key())
    rows: list[Row] = [{"intent": labels[k], "true": float(a[k]), "learned": float(b[k])} for k in range(n)]
    parts = ", ".join(f"{row['intent']} {told(row['true'])} and {told(row['learned'])}" for row in rows)
    return Drawn(figure, rows, f"True and learned share of each intent: {parts}.")


def dumbbell(ax: Axes, y: float, true: float, learned: float, colour: str) -> None:
    """Draw a true value as a ring and a learned one as a dot, joined."""
    ax.plot([true, learned], [y, y], color=colour, linewidth=2.5, alpha=0.45, solid_capstyle="butt", zorder=1.5)
    ax.plot(true, y, "D", color=INK, markerfacecolor="none", markersize=6.5, markeredgewidth=1.3)
    ax.plot(learned, y, "o", color=colour, markersize=5.0)


def dumbbell_key() -> list[Line2D]:
    """Return the legend's entries of `dumbbell`."""
    ring: Keywords = {"color": INK, "markerfacecolor": "none", "markeredgewidth": 1.3, "markersize": 6.5}
    return [
        Line2D([], [], linestyle="", marker="D", label="true", **ring),
        Line2D([], [], linestyle="", marker="o", color=MUTED, markersize=5.0, label="learned"),
    ]
