"""Figures of one fit: responsibilities, weights, rewards, GEVD matching, convergence of EM, and switches of intents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, FancyArrowPatch, Patch, Rectangle
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
# Maximum number of bins of a posterior, and heights in rows of a sequence of intents and of its posterior.
_BINS, _SEQUENCE, _POSTERIOR = 240, 0.3, 0.5
# Switches with a smaller probability are not drawn.
_RARE = 0.02
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


@use_report_style
def plot_ethogram(
    path: ArrayLike, posterior: ArrayLike, lengths: ArrayLike, row_names: Sequence[str], intent_names: Sequence[str]
) -> Plot:
    """Plot the intents of the steps of recordings: the most probable sequence, and the posterior below it.

    Parameters
    ----------
    path, posterior : (n,), (n, K)
        Most probable sequence of intents, and posterior, of the steps of all recordings.
    lengths : (R,)
        Number of steps of each recording.
    row_names, intent_names : sequences of R and of K strings

    Examples
    --------
    >>> plot = plot_ethogram([0, 0, 1], [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]], [2, 1], ["day 1", "day 2"], ["a", "b"])
    >>> plot.rows[2]
    {'recording': 'day 2', 'step': 0, 'intent': 'b', 'a': 0.3, 'b': 0.7}
    """
    intents, U, sizes = np.asarray(path, dtype=np.int64), np.array(posterior, dtype=np.float64), np.asarray(lengths)
    R, K = len(row_names), len(intent_names)
    figure = new_figure(0.75 + 0.42 * R)
    ax = figure.add_subplot()
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    for r in range(R):
        own = slice(int(offsets[r]), int(offsets[r + 1]))
        _draw_sequence(ax, r, intents[own], U.size > _SHAPES)
        _draw_posterior(ax, r, U[own])
    set_rows(ax, [wrap_label(str(name), 18, 1) for name in row_names], bottom=0.5)
    ax.grid(visible=False)
    ax.set_xlim(0, int(sizes.max()))
    ax.set_xlabel("step of the recording")
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    add_legend(
        figure, [Patch(color=intent_colour(k), label=wrap_label(intent_names[k], 26)) for k in range(K)], None, 3
    )
    recording = np.repeat(np.arange(R), sizes)
    step = np.arange(intents.size) - np.repeat(offsets[:-1], sizes)
    rows: list[Row] = [
        {"recording": str(row_names[r]), "step": int(t), "intent": intent_names[k]}
        | dict(zip(intent_names, u, strict=True))
        for r, t, k, u in zip(recording.tolist(), step, intents.tolist(), U.tolist(), strict=True)
    ]
    switches = int(np.sum((intents[1:] != intents[:-1]) & (recording[1:] == recording[:-1])))
    alt = f"Intents of {intents.size:,} steps in {R} recordings, with {switches:,} switches."
    return Plot(figure, rows, alt)


def _draw_sequence(ax: Axes, row: int, intents: NDArray[np.int64], raster: bool) -> None:
    """Draw the segments of a sequence of intents as one collection per intent."""
    begins = np.flatnonzero(np.diff(intents, prepend=-1))
    widths = np.diff(np.append(begins, intents.size))
    for k in np.unique(intents).tolist():
        own = intents[begins] == k
        boxes = [Rectangle((x, row - 0.45), w, _SEQUENCE) for x, w in zip(begins[own], widths[own], strict=True)]
        ax.add_collection(PatchCollection(boxes, facecolor=intent_colour(k), linewidth=0.0, rasterized=raster))


def _draw_posterior(ax: Axes, row: int, U: FloatArray) -> None:
    """Draw a posterior (n, K), averaged in bins, as stacked areas."""
    edges = np.unique(np.linspace(0, len(U), min(len(U), _BINS) + 1).astype(np.int64))
    means = np.add.reduceat(U, edges[:-1], axis=0) / np.diff(edges)[:, None]
    top = np.cumsum(np.column_stack([np.zeros(len(means)), means]), axis=1)
    foot = row - 0.11 + _POSTERIOR
    for k in range(U.shape[1]):
        look: Keywords = {"baseline": foot - _POSTERIOR * top[:, k], "fill": True, "linewidth": 0.0, "alpha": 0.75}
        ax.stairs(foot - _POSTERIOR * top[:, k + 1], edges, color=intent_colour(k), **look)


@use_report_style
def plot_switches(
    probability: ArrayLike, shares: ArrayLike, dwell_times: ArrayLike, intent_names: Sequence[str]
) -> Plot:
    """Plot the graph of switches between K intents.

    Parameters
    ----------
    probability : (K, K)
        P(next intent = k | intent j ends), the width of the arrow from j to k; nan in the row of an intent that never
        ends.
    shares, dwell_times : (K,)
        Fraction of the steps, the area of a node, and expected dwell time in steps.

    Examples
    --------
    >>> plot = plot_switches([[0.0, 1.0], [1.0, 0.0]], [0.7, 0.3], [20.0, 8.0], ["water", "home"])
    >>> plot.rows[0]
    {'from': 'water', 'to': 'home', 'probability': 1.0, 'share': 0.7, 'dwell_time': 20.0}
    """
    P, rho, dwell = (np.array(x, dtype=np.float64) for x in (probability, shares, dwell_times))
    K = rho.size
    angle = 0.5 * np.pi - 2.0 * np.pi * np.arange(K) / K if K > 2 else np.pi * (1.0 - np.arange(K))
    xy = np.column_stack([np.cos(angle), np.sin(angle)])
    radius = 0.12 + 0.24 * np.sqrt(rho)
    figure = new_figure(1.9 if K <= 2 else 3.9)
    ax = figure.add_subplot()
    for j, k in np.argwhere(np.nan_to_num(P) >= _RARE).tolist():
        _draw_arrow(ax, xy[j], xy[k], radius[j], radius[k], float(P[j, k]), intent_colour(j))
    for k in range(K):
        ax.add_patch(Circle(tuple(xy[k]), radius[k], color=intent_colour(k), zorder=2.0))
        outside = xy[k] * (1.0 + (radius[k] + 0.12) / max(np.linalg.norm(xy[k]), 1e-9)) if K > 2 else xy[k]
        below = (0.0, -radius[k] - 0.1) if K <= 2 else (0.0, 0.0)
        name = f"{wrap_label(intent_names[k], 18)}\n{100 * rho[k]:.0f} %, {_format_steps(dwell[k])}"
        where = "center" if abs(xy[k, 0]) < 0.3 or K <= 2 else "left" if xy[k, 0] > 0.0 else "right"
        at = "top" if K <= 2 or xy[k, 1] < -0.3 else "bottom" if xy[k, 1] > 0.3 else "center"
        x, y = (outside + below).tolist()
        ax.text(x, y, name, ha=where, va=at, fontsize="small")
    ax.set_aspect("equal")
    ax.set(xlim=(-2.2, 2.2), ylim=(-0.85, 0.55) if K <= 2 else (-1.45, 1.55))
    ax.axis("off")
    rows: list[Row] = [
        {"from": intent_names[j], "to": intent_names[k], "probability": float(P[j, k])}
        | {"share": float(rho[j]), "dwell_time": float(dwell[j])}
        for j in range(K)
        for k in range(K)
        if j != k
    ]
    most = max(rows, key=lambda row: np.nan_to_num(row["probability"], nan=-1.0), default=None)
    alt = f"Switches between {K} intents."
    if most is not None and K > 2:
        alt += f" Most regular: from {most['from']} to {most['to']} ({100 * most['probability']:.0f} %)."
    return Plot(figure, rows, alt)


def _format_steps(n: float) -> str:
    return "never ends" if not np.isfinite(n) or n >= 1e7 else f"{format_number(n)} steps"


def _draw_arrow(ax: Axes, a: FloatArray, b: FloatArray, start: float, stop: float, p: float, colour: str) -> None:
    """Draw a bent arrow between two circles, and its probability beside its middle."""
    along = (b - a) / np.linalg.norm(b - a)
    normal = np.array([along[1], -along[0]])
    turn = np.array([along, normal])
    # The arrow leaves and enters the circles 25 degrees beside the line between the centres.
    begin = a + start * (np.array([0.91, 0.42]) @ turn)
    end = b + (stop + 0.03) * (np.array([-0.91, 0.42]) @ turn)
    look: Keywords = {"arrowstyle": "-|>", "mutation_scale": 9.0, "shrinkA": 0.0, "shrinkB": 0.0, "alpha": 0.8}
    bend = 0.18
    arrow = FancyArrowPatch(tuple(begin), tuple(end), connectionstyle=f"arc3,rad={bend}", color=colour, **look)
    arrow.set_linewidth(0.6 + 3.0 * p)
    ax.add_patch(arrow)
    # The label is on the outer side of the first part of the curve, where arrows rarely cross.
    control = 0.5 * (begin + end) + normal * bend * np.linalg.norm(end - begin)
    t = 0.36
    at = (1.0 - t) ** 2 * begin + 2.0 * t * (1.0 - t) * control + t**2 * end + 0.11 * normal
    box = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.6}
    ax.text(
        float(at[0]),
        float(at[1]),
        f"{100 * p:.0f} %",
        ha="center",
        va="center",
        fontsize="small",
        color=MUTED,
        bbox=box,
    )
