"""Figures of one trial: responsibilities, rewards, the pairs behind a GEVD, and the convergence of EM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from limiirl._typing import FloatArray
from limiirl.errors import InvalidParameter
from limiirl.report.figures.style import (
    Drawn,
    Keywords,
    MethodStyle,
    Row,
    blank,
    fitted,
    handle,
    in_ink,
    intent_colour,
    legend,
    line,
    log_axis,
    numbers,
    panels,
    styles,
    told,
)
from limiirl.report.svg import INK, MUTED, NARROW, PAPER, RULE

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
        raise InvalidParameter(
            f"U must have shape (N, K) with N, K >= 1; got shape {shown.shape}.", parameter="U", value=shown.shape
        )
    truth = None if labels is None else np.asarray(labels, dtype=np.int64)
    if truth is not None and truth.shape != shown.shape[:1]:
        raise InvalidParameter(
            f"labels must have one entry per demonstration; got {truth.shape} for {len(shown)} rows of U.",
            parameter="labels",
            value=truth.shape,
        )
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


def sorted_demos(U: FloatArray, group: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the demonstrations' order: by group, then from the surest of that group's own intent to the least.

    >>> sorted_demos(np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]]), np.array([0, 1, 0])).tolist()
    [0, 2, 1]
    """
    # A true intent that was not learned has no column of its own.
    own = np.where(group < U.shape[1], group, 0)
    sure = np.where(group < U.shape[1], U[np.arange(len(U)), own], U.max(axis=1))
    return np.lexsort((-sure, group))


def _strip(ax: Axes, U: FloatArray) -> None:
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


@in_ink
def rewards(
    learned: ArrayLike,
    feature_names: Sequence[str],
    true: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    errors: ArrayLike | None = None,
) -> Drawn:
    """Draw each intent's rewards theta, one panel an intent, one line a feature; true ones as rings beside.

    Parameters
    ----------
    learned : (K, d)
        In the order of the true intents.
    feature_names : d texts
    true : (K', d), optional
    names : texts, optional
        Of the intents.
    errors : (K, d), optional
        Half-widths of the learned rewards' intervals.

    Examples
    --------
    >>> drawn = rewards([[-1.0, -9.0]], ["grass", "water"], [[-1.0, -10.0]])
    >>> drawn.rows[1]
    {'intent': '0', 'feature': 'water', 'true': -10.0, 'learned': -9.0, 'half_width': nan}
    """
    found = _matrix(learned, "learned", len(feature_names))
    truth = np.full((0, found.shape[1]), np.nan) if true is None else _matrix(true, "true", found.shape[1])
    widths = np.full(found.shape, np.nan) if errors is None else _matrix(errors, "errors", found.shape[1])
    n, d = max(len(found), len(truth)), found.shape[1]
    a, b, spread = (_rows(block, n) for block in (truth, found, widths))
    figure, axes, spare = panels(n, 0.72 + 0.2 * max(d, 3))
    rows: list[Row] = []
    for k, ax in enumerate(axes):
        name = names[k] if names is not None and k < len(names) else f"{k}"
        for j in range(d):
            if np.isfinite(spread[k, j]):
                ax.errorbar(b[k, j], j, xerr=spread[k, j], fmt="none", ecolor=intent_colour(k), elinewidth=1.0)
            dumbbell(ax, j, a[k, j], b[k, j], intent_colour(k))
            about = {"intent": name, "feature": feature_names[j]}
            rows.append({**about, "true": a[k, j].item(), "learned": b[k, j].item(), "half_width": spread[k, j].item()})
        ax.set_title(fitted(name, 30, 1) if names is not None else f"intent {name}")
        _finish(ax, feature_names, labelled=k % 2 == 0)
    _share_x(
        axes, np.concatenate([a.ravel(), (b - np.nan_to_num(spread)).ravel(), (b + np.nan_to_num(spread)).ravel()])
    )
    legend(figure, dumbbell_key() if true is not None else dumbbell_key()[1:], spare)
    gaps = np.abs(a - b)
    if np.isfinite(gaps).any():
        worst, which = divmod(int(np.nanargmax(gaps)), d)
        said = f" The largest error is {told(float(gaps[worst, which]))}, of {feature_names[which]} in intent {worst}."
    else:
        said = ""
    return Drawn(figure, rows, f"Rewards of {d} features for each of {n} intents.{said}")


def _finish(ax: Axes, feature_names: Sequence[str], *, labelled: bool) -> None:
    d = len(feature_names)
    ax.set_yticks(range(d), [fitted(name, 22, 1) for name in feature_names] if labelled else [""] * d)
    ax.set_ylim(d - 0.4, -0.6)
    ax.axvline(0.0, color=MUTED, linewidth=0.8, zorder=0.5)
    ax.set_xlabel("reward θ")
    ax.locator_params(axis="x", nbins=5)
    ax.tick_params(axis="y", length=0, labelcolor=INK)
    ax.spines["left"].set_visible(False)
    ax.grid(visible=True, color=RULE)


def _share_x(axes: Sequence[Axes], values: FloatArray) -> None:
    known = values[np.isfinite(values)]
    low, high = (min(float(known.min()), 0.0), max(float(known.max()), 0.0)) if known.size else (0.0, 1.0)
    room = 0.07 * ((high - low) or 1.0)
    for ax in axes:
        ax.set_xlim(low - room, high + room)


def _rows(block: FloatArray, n: int) -> FloatArray:
    """Return a block of n rows, those that it lacks NaN."""
    return np.concatenate([block, np.full((n - len(block), block.shape[1]), np.nan)])


def _matrix(values: ArrayLike, name: str, d: int) -> FloatArray:
    found = np.array(values, dtype=np.float64)
    if found.ndim != 2 or found.shape[1] != d:
        raise InvalidParameter(
            f"{name} must have shape (K, {d}), one column per feature; got shape {found.shape}.",
            parameter=name,
            value=found.shape,
        )
    return found


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
    from limiirl.metrics import draw_flow  # imports pyplot

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
