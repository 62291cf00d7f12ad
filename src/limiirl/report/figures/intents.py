"""Figures of one fit: responsibilities, weights, rewards, GEVD matching and the convergence of EM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from limiirl._typing import FloatArray
from limiirl.report.figures.style import (
    Keywords,
    Plot,
    Row,
    add_legend,
    format_number,
    intent_colour,
    legend_line,
    line_style,
    log_axis,
    method_styles,
    new_figure,
    new_panels,
    set_rows,
    to_floats,
    use_report_style,
    wrap_label,
)
from limiirl.report.svg import INK, MUTED, NARROW, PAPER, RULE

# Number of values above which the strips are rasterised to keep the page small.
_SHAPES = 20000
# Height in rows of a bar for a responsibility of 1.
_TALL = 0.9
# Differences below this fraction of the NLL are rounding errors.
_ROUNDING = 1e-9
_RING: Keywords = {"color": INK, "markerfacecolor": "none", "markeredgewidth": 1.3, "markersize": 6.5}


@use_report_style
def plot_responsibilities(U: ArrayLike, labels: ArrayLike, names: Sequence[str]) -> Plot:
    """Plot responsibilities U (N, K) as strips, one row per learned intent and one column per demonstration.

    Demonstrations are sorted by true intent (`labels`, drawn above the strips with their `names`) and then by the
    responsibility of the learned intent with the same index, so that a perfect result is a staircase.
    """
    shown, truth = np.array(U, dtype=np.float64), np.asarray(labels, dtype=np.int64)
    n, n_intents = shown.shape
    # If there are more true than learned intents, the additional true intents have no column in U.
    learned = truth < n_intents
    own = np.where(learned, shown[np.arange(n), np.where(learned, truth, 0)], shown.max(axis=1))
    order = np.lexsort((-own, truth))
    figure = new_figure(1.3 + 0.3 * n_intents, NARROW)
    top, strips = figure.subplots(2, 1, sharex=True, height_ratios=[0.7, float(n_intents)])
    _draw_truth(top, truth[order], names)
    _draw_strips(strips, shown[order])
    strips.set_xlabel("demonstrations, sorted by true intent")
    rows: list[Row] = [
        {"demonstration": int(i), "true": int(truth[i])} | {f"u_{k}": float(shown[i, k]) for k in range(n_intents)}
        for i in order
    ]
    correct = int(np.sum(shown.argmax(axis=1) == truth))
    return Plot(
        figure,
        rows,
        f"Responsibilities of {n_intents} intents for {n} demonstrations. The true intent is the most likely one for "
        f"{correct} of them.",
    )


def _draw_strips(ax: Axes, U: FloatArray) -> None:
    n, n_intents = U.shape
    for k in range(n_intents):
        foot = k + _TALL / 2
        look: Keywords = {"baseline": foot, "fill": True, "color": intent_colour(k), "linewidth": 0.0}
        ax.stairs(foot - _TALL * U[:, k], np.arange(n + 1), rasterized=U.size > _SHAPES, **look)
        ax.axhline(foot, color=RULE, linewidth=0.7, zorder=0.5)
    ax.set_xlim(0, n)
    ax.set_ylim(n_intents - 0.5, -0.5)
    ax.set_yticks(range(n_intents), [f"learned {k}" for k in range(n_intents)])
    _remove_frame(ax)


def _draw_truth(ax: Axes, truth: NDArray[np.int64], names: Sequence[str]) -> None:
    for k in np.unique(truth).tolist():
        first, last = int(np.argmax(truth == k)), int(truth.size - np.argmax(truth[::-1] == k))
        ax.barh(0, last - first, left=first, height=0.9, color=intent_colour(k), edgecolor=PAPER, linewidth=1.0)
        name = wrap_label(names[k] if k < len(names) else str(k), 12, 1)
        ax.text((first + last) / 2, 0, name, ha="center", va="center", color=PAPER, fontsize="small", clip_on=True)
    ax.set_yticks([0], ["true"])
    ax.tick_params(axis="x", labelbottom=False)
    _remove_frame(ax)


def _remove_frame(ax: Axes) -> None:
    ax.tick_params(length=0)
    ax.tick_params(axis="y", labelcolor=INK)
    ax.spines[:].set_visible(False)


@use_report_style
def plot_weights(true: ArrayLike, learned: ArrayLike, names: Sequence[str]) -> Plot:
    """Plot the true (K',) and learned (K,) mixture weights, one row per intent."""
    sides = to_floats(true), to_floats(learned)
    n = max(side.size for side in sides)
    a, b = (np.concatenate([side, np.full(n - side.size, np.nan)]) for side in sides)
    labels = [names[k] if k < len(names) else f"intent {k}" for k in range(n)]
    figure = new_figure(0.62 + 0.3 * n, NARROW)
    ax = figure.add_subplot()
    for k in range(n):
        _draw_pair(ax, k, 100.0 * a[k], 100.0 * b[k], intent_colour(k))
    set_rows(ax, [wrap_label(name) for name in labels], bottom=0.5)
    ax.set_xlim(0.0, 108.0 * float(np.nanmax(np.concatenate([a, b, [0.0]])) or 1.0))
    ax.set_xlabel("mixture weight, %")
    add_legend(figure, _pair_legend())
    rows: list[Row] = [{"intent": labels[k], "true": float(a[k]), "learned": float(b[k])} for k in range(n)]
    pairs = [f"{row['intent']} {format_number(row['true'])} and {format_number(row['learned'])}" for row in rows]
    return Plot(figure, rows, f"True and learned mixture weight of each intent: {', '.join(pairs)}.")


def _draw_pair(ax: Axes, y: float, true: float, learned: float, colour: str) -> None:
    ax.plot([true, learned], [y, y], color=colour, linewidth=2.5, alpha=0.45, solid_capstyle="butt", zorder=1.5)
    ax.plot(true, y, "D", **_RING)
    ax.plot(learned, y, "o", color=colour, markersize=5.0)


def _pair_legend() -> list[Line2D]:
    return [
        Line2D([], [], linestyle="", marker="D", label="true", **_RING),
        Line2D([], [], linestyle="", marker="o", color=MUTED, markersize=5.0, label="learned"),
    ]


@use_report_style
def plot_rewards(learned: ArrayLike, feature_names: Sequence[str], true: ArrayLike, names: Sequence[str]) -> Plot:
    """Plot learned and true reward weights (K, d), one panel per intent and one row per feature.

    Learned intent k corresponds to true intent k; the numbers of learned and true intents may differ.
    """
    thetas, truth = np.array(learned, dtype=np.float64), np.array(true, dtype=np.float64)
    n, d = max(len(thetas), len(truth)), len(feature_names)
    a, b = (np.concatenate([block, np.full((n - len(block), d), np.nan)]) for block in (truth, thetas))
    figure, axes, spare = new_panels(n, 0.72 + 0.2 * max(d, 3))
    finite = np.concatenate([a.ravel(), b.ravel(), [0.0]])
    finite = finite[np.isfinite(finite)]
    low, high = float(finite.min()), float(finite.max())
    room = 0.07 * ((high - low) or 1.0)
    rows: list[Row] = []
    for k, ax in enumerate(axes):
        name = names[k] if k < len(names) else f"intent {k}"
        for j in range(d):
            _draw_pair(ax, j, a[k, j], b[k, j], intent_colour(k))
            about = {"intent": name, "feature": feature_names[j]}
            rows.append({**about, "true": a[k, j].item(), "learned": b[k, j].item()})
        ax.set_title(wrap_label(name, 30, 1))
        set_rows(ax, [wrap_label(name, 22, 1) if k % 2 == 0 else "" for name in feature_names], bins=5)
        ax.axvline(0.0, color=MUTED, linewidth=0.8, zorder=0.5)
        ax.set_xlabel("reward θ")
        ax.grid(visible=True, color=RULE)
        ax.set_xlim(low - room, high + room)
    add_legend(figure, _pair_legend(), spare)
    errors = np.abs(a - b)
    worst = ""
    if np.isfinite(errors).any():
        k, j = divmod(int(np.nanargmax(errors)), d)
        worst = f" The largest error is {format_number(float(errors[k, j]))} ({feature_names[j]}, intent {k})."
    return Plot(figure, rows, f"Rewards of {d} features for each of {n} intents.{worst}")


@use_report_style
def plot_flow(weights: ArrayLike, evd: ArrayLike, value: float) -> Plot:
    """Plot the optimal transport between learned (left) and true (right) intents that defines the GEVD.

    `weights` and `evd` (K', K) are `GEVD.flow` and `GEVD.evd`; `value` is the GEVD.
    """
    flow, costs = np.array(weights, dtype=np.float64), np.array(evd, dtype=np.float64)
    figure = new_figure(0.9 + 0.62 * max(flow.shape), NARROW)
    ax = figure.add_subplot()
    from limiirl.metrics import draw_flow  # imports pyplot

    draw_flow(ax, flow, costs, "EVD", ink=INK, muted=MUTED)
    rows: list[Row] = [
        {"true": i, "learned": j, "flow": float(w), "evd": float(costs[i, j]), "contribution": float(w * costs[i, j])}
        for (i, j), w in np.ndenumerate(flow)
        if w > 0.0
    ]
    parts = ", ".join(
        f"learned {row['learned']} and true {row['true']} ({100 * row['flow']:.3g} %, EVD {format_number(row['evd'])})"
        for row in sorted(rows, key=lambda row: -row["contribution"])[:3]
    )
    alt = f"Optimal matching of intents with GEVD {format_number(value)}. Largest contributions: {parts}."
    return Plot(figure, rows, alt)


@use_report_style
def plot_convergence(histories: Mapping[str, ArrayLike]) -> Plot:
    """Plot the training NLL against the EM iteration, and its difference from the lowest NLL of all methods.

    `histories` maps a method to its NLL (n_iter + 1,) by iteration, starting with the initial NLL. Methods without EM
    are omitted. Differences of 0 are not shown on the logarithmic axis.
    """
    finite = {name: to_floats(values) for name, values in histories.items()}
    finite = {name: values for name, values in finite.items() if np.isfinite(values).any()}
    styles = method_styles(finite)
    figure, (raw, excess), _ = new_panels(2, 2.1)
    best = min((float(np.nanmin(values)) for values in finite.values()), default=float("nan"))
    rows: list[Row] = []
    for name, values in finite.items():
        steps = np.arange(values.size)
        above = values - best
        above[above <= _ROUNDING * max(abs(best), 1.0)] = 0.0
        # Markers at a few iterations, including the last.
        few = sorted({*range(0, values.size, max(values.size // 6, 1)), values.size - 1})
        look = {**line_style(styles[name]), "markevery": few, "markersize": 4.2}
        raw.plot(steps, values, **look)
        excess.plot(steps, np.where(above > 0.0, above, np.nan), **look)
        points = zip(steps.tolist(), values.tolist(), above.tolist(), strict=True)
        rows += [{"method": name, "iteration": i, "nll": nll, "excess": over} for i, nll, over in points]
    positive = np.array([row["excess"] for row in rows if row["excess"] > 0.0])
    if positive.size:
        log_axis(excess, "y", positive)
    raw.set(title="Training NLL", xlabel="EM iteration")
    excess.set(title="NLL minus the lowest NLL", xlabel="EM iteration")
    for ax in (raw, excess):
        ax.grid(visible=True, axis="y", color=RULE)
        ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    add_legend(figure, [legend_line(style) for style in styles.values()])
    if not finite:
        return Plot(figure, rows, "There are no EM iterations.")
    ends = [f"{name}: {format_number(nll[-1])} after {nll.size - 1} iterations" for name, nll in finite.items()]
    return Plot(figure, rows, f"NLL by EM iteration; the lowest is {format_number(best)}. {'; '.join(ends)}.")
