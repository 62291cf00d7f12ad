"""Figures of a fitted mixture without known truth: rewards, memberships, visits, trajectories and criteria."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from limiirl._typing import FloatArray
from limiirl.report.figures.style import (
    Plot,
    Row,
    add_legend,
    format_number,
    intent_colour,
    new_figure,
    new_panels,
    set_rows,
    use_report_style,
    wrap_label,
)
from limiirl.report.svg import INK, MUTED, PAPER, RULE

if TYPE_CHECKING:
    from limiirl.mixture import Selection

# Half-width of a 95 % interval in standard errors.
_WIDE = 1.96
# Largest number of demonstrations that are drawn as separate vector shapes.
_SHAPES = 2000
_BINS = 20
# On a grid, steps longer than this multiple of the median step are not drawn.
_JUMP = 2.5
# Colours of visits, and of rewards from negative to positive.
_SHADES, _SIGNED = ["#eef3f8", "#0b6bb0", "#07263f"], ["#7a3300", "#d98242", "#f2f1ee", "#4a90c4", "#07395f"]
# Markers of rewards on a bound, and of other rewards without a standard error.
_BOUND, _UNKNOWN = "s", "x"


@use_report_style
def plot_reward_errors(
    thetas: ArrayLike,
    errors: ArrayLike,
    feature_names: Sequence[str],
    intent_names: Sequence[str],
    status: ArrayLike | None = None,
    features: ArrayLike | None = None,
) -> Plot:
    """Plot rewards (K, d) with 95 % intervals from their standard errors, one row per feature.

    Parameters
    ----------
    thetas, errors : (K, d)
        Rewards and standard errors; nan for a reward without an error.
    feature_names, intent_names : sequences of d and of K strings
    status : (K, d) of str, optional
        Status of `StandardErrors`. Rewards on a bound are drawn as squares, rewards without an error as crosses.
    features : (m,), optional
        Features to draw, from top to bottom; the data contain all features.

    Examples
    --------
    >>> plot = plot_reward_errors([[1.0], [-1.0]], [[0.1], [0.3]], ["water"], ["thirsty", "exploring"])
    >>> plot.rows[0]["low"].round(3), plot.rows[0]["high"].round(3)
    (np.float64(0.804), np.float64(1.196))
    """
    values, widths = np.array(thetas, dtype=np.float64), np.array(errors, dtype=np.float64)
    marks = np.full(values.shape, "ok") if status is None else np.asarray(status)
    K, d = values.shape
    shown = list(range(d)) if features is None else np.asarray(features).tolist()
    figure = new_figure(0.9 + len(shown) * (0.13 + 0.11 * K))
    ax = figure.add_subplot()
    offsets = (np.arange(K) - 0.5 * (K - 1)) * min(0.8 / K, 0.26)
    # Clip long intervals, which would compress the axis.
    extent = _extent(values[:, shown], widths[:, shown])
    for row, j in enumerate(shown):
        for k in range(K):
            _draw_reward(ax, values[k, j], widths[k, j], row + offsets[k], k, str(marks[k, j]))
    set_rows(ax, [wrap_label(feature_names[j], 26, 2) for j in shown], bottom=0.5)
    for row in range(1, len(shown)):
        ax.axhline(row - 0.5, color=RULE, linewidth=0.5, zorder=0.4)
    ax.axvline(0.0, color=MUTED, linewidth=0.8, zorder=0.5)
    ax.set_xlim(*extent)
    ax.set_xlabel("reward θ, with 95 % interval")
    add_legend(figure, _intent_legend(intent_names) + _mark_legend(marks[:, shown]))
    rows: list[Row] = [
        {
            "feature": feature_names[j],
            "intent": intent_names[k],
            "reward": values[k, j],
            "standard_error": widths[k, j],
            "low": values[k, j] - _WIDE * widths[k, j],
            "high": values[k, j] + _WIDE * widths[k, j],
            "status": str(marks[k, j]),
        }
        for j in range(d)
        for k in range(K)
    ]
    return Plot(figure, rows, f"Rewards of {len(shown)} features under {K} intents, with 95 % intervals.")


def _extent(values: FloatArray, errors: FloatArray) -> tuple[float, float]:
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    span = (high - low) or 1.0
    reach = np.where(np.isfinite(errors), _WIDE * errors, 0.0)
    low = max(float((values - reach).min()), low - span)
    high = min(float((values + reach).max()), high + span)
    return min(low, 0.0) - 0.05 * span, max(high, 0.0) + 0.05 * span


def _draw_reward(ax: Axes, value: float, error: float, y: float, k: int, mark: str) -> None:
    colour = intent_colour(k)
    if math.isfinite(error):
        ax.plot([value - _WIDE * error, value + _WIDE * error], [y, y], color=colour, linewidth=1.4, alpha=0.75)
        ax.plot(value, y, "o", color=colour, markersize=4.2)
    elif mark in ("ok", "bound", "up to scale"):
        ax.plot(value, y, _BOUND if mark == "bound" else "o", color=colour, markerfacecolor="none", markersize=4.2)
    else:
        ax.plot(value, y, _UNKNOWN, color=colour, markersize=3.6, alpha=0.6)


def _intent_legend(names: Sequence[str]) -> list[Any]:
    return [
        Line2D([], [], linestyle="", marker="o", color=intent_colour(k), markersize=5.0, label=wrap_label(name, 26))
        for k, name in enumerate(names)
    ]


def _mark_legend(status: NDArray[Any]) -> list[Any]:
    entries = []
    for marker, label, present in (
        (_BOUND, "on a bound of the model", np.any(status == "bound")),
        (_UNKNOWN, "not determined by the data", np.any(~np.isin(status, ("ok", "contrast", "bound", "up to scale")))),
    ):
        if present:
            entries.append(
                Line2D([], [], linestyle="", marker=marker, color=MUTED, markerfacecolor="none", label=label)
            )
    return entries


def _intent_patches(names: Sequence[str]) -> list[Any]:
    return [Patch(color=intent_colour(k), label=wrap_label(name, 26)) for k, name in enumerate(names)]


@use_report_style
def plot_memberships(U: ArrayLike, intent_names: Sequence[str]) -> Plot:
    """Plot posteriors (N, K) as one thin column per demonstration, stacked by intent.

    Demonstrations are sorted by their most probable intent and its probability. Columns of a single colour are clear
    assignments.
    """
    posterior = np.array(U, dtype=np.float64)
    n, K = posterior.shape
    labels = posterior.argmax(axis=1)
    order = np.lexsort((-posterior.max(axis=1), labels))
    figure = new_figure(2.1)
    ax = figure.add_subplot()
    top = np.cumsum(np.column_stack([np.zeros(n), posterior[order]]), axis=1)
    for k in range(K):
        look: dict[str, Any] = {"fill": True, "color": intent_colour(k), "linewidth": 0.0, "rasterized": n > _SHAPES}
        ax.stairs(top[:, k + 1], np.arange(n + 1), baseline=top[:, k], **look)
    ax.set(xlim=(0, n), ylim=(0.0, 1.0), ylabel="posterior probability", xlabel="sorted by the most probable intent")
    ax.set_yticks([0.0, 0.5, 1.0])
    ax.axhline(0.5, color=PAPER, linewidth=0.7, linestyle=":")
    ax.spines[:].set_visible(False)
    add_legend(figure, _intent_patches(intent_names), columns=3)
    rows: list[Row] = [
        {"index": int(i)} | {name: posterior[i, k] for k, name in enumerate(intent_names)} for i in order
    ]
    sure = int(np.sum(posterior.max(axis=1) >= 0.9))
    return Plot(figure, rows, f"Posterior of {n} units over {K} intents; {sure} have a probability of at least 0.9.")


@use_report_style
def plot_composition(
    fractions: ArrayLike, row_names: Sequence[str], intent_names: Sequence[str], counts: ArrayLike | None = None
) -> Plot:
    """Plot the fraction of each intent per group (G, K) as stacked bars, one row per group.

    `counts` (G,) are the numbers of demonstrations, written beside the bars.
    """
    parts = np.array(fractions, dtype=np.float64)
    numbers = None if counts is None else np.asarray(counts)
    G = len(parts)
    figure = new_figure(0.7 + 0.2 * G)
    ax = figure.add_subplot()
    left = np.zeros(G)
    for k in range(parts.shape[1]):
        ax.barh(np.arange(G), 100.0 * parts[:, k], left=left, height=0.78, color=intent_colour(k))
        left += 100.0 * parts[:, k]
    set_rows(ax, [wrap_label(str(name), 22, 1) for name in row_names], bottom=0.5)
    if numbers is not None:
        for g in range(G):
            ax.text(101.0, g, f"{int(numbers[g]):,}", va="center", fontsize="small", color=MUTED)
    ax.set_xlim(0.0, 100.0)
    ax.set_xlabel("per cent of the demonstrations" + ("" if numbers is None else "; their number at the right"))
    add_legend(figure, _intent_patches(intent_names), columns=3)
    rows: list[Row] = [
        {"group": str(row_names[g])}
        | ({} if numbers is None else {"demonstrations": int(numbers[g])})
        | {name: parts[g, k] for k, name in enumerate(intent_names)}
        for g in range(G)
    ]
    return Plot(figure, rows, f"Fraction of each of {parts.shape[1]} intents in {G} groups.")


@use_report_style
def plot_order(U: ArrayLike, position: ArrayLike, intent_names: Sequence[str], xlabel: str) -> Plot:
    """Plot the mean posterior (N, K) by position (N,) in [0, 1], in bins of equal width, as stacked areas."""
    posterior, at = np.array(U, dtype=np.float64), np.asarray(position, dtype=np.float64)
    n_bins = int(np.clip(len(at) // 10, 2, _BINS))
    index = np.minimum((at * n_bins).astype(np.int64), n_bins - 1)
    counts = np.bincount(index, minlength=n_bins)
    means = np.column_stack([np.bincount(index, weights=column, minlength=n_bins) for column in posterior.T])
    fractions = means / np.maximum(counts, 1)[:, None]
    figure = new_figure(2.2)
    ax = figure.add_subplot()
    top = 100.0 * np.cumsum(np.column_stack([np.zeros(n_bins), fractions]), axis=1)
    edges = 100.0 * np.arange(n_bins + 1) / n_bins
    for k in range(posterior.shape[1]):
        ax.stairs(top[:, k + 1], edges, baseline=top[:, k], fill=True, color=intent_colour(k), linewidth=0.0)
    ax.set(xlim=(0, 100), ylim=(0, 100), xlabel=xlabel, ylabel="per cent")
    ax.spines[:].set_visible(False)
    add_legend(figure, _intent_patches(intent_names), columns=3)
    rows: list[Row] = [
        {"from": b / n_bins, "to": (b + 1) / n_bins, "demonstrations": int(counts[b])}
        | {name: float(fractions[b, k]) for k, name in enumerate(intent_names)}
        for b in range(n_bins)
    ]
    first, last = fractions[0], fractions[-1]
    change = int(np.argmax(np.abs(last - first)))
    alt = f"The largest change is that of {intent_names[change]}: from {first[change]:.0%} to {last[change]:.0%}."
    return Plot(figure, rows, alt)


@use_report_style
def plot_timeline(
    labels: ArrayLike, probability: ArrayLike, owner: ArrayLike, row_names: Sequence[str], intent_names: Sequence[str]
) -> Plot:
    """Plot the most probable intent of each demonstration in the order of its recording, one row per recording.

    Parameters
    ----------
    labels, probability : (N,)
        Most probable intent of each demonstration, and its probability: uncertain ones are paler.
    owner : (N,)
        Recording of each demonstration: an index into `row_names`.
    """
    intent, p, row = np.asarray(labels), np.asarray(probability, dtype=np.float64), np.asarray(owner)
    G, most = len(row_names), int(np.bincount(row, minlength=len(row_names)).max())
    from matplotlib.colors import to_rgba

    image = np.zeros((G, most, 4))
    rows: list[Row] = []
    seen = np.zeros(G, dtype=np.int64)
    floor = 1.0 / len(intent_names)
    for i in range(intent.size):
        strength = float(np.clip((p[i] - floor) / (1.0 - floor + 1e-12), 0.25, 1.0))
        image[row[i], seen[row[i]]] = to_rgba(intent_colour(int(intent[i])), strength)
        rows.append(
            {"recording": str(row_names[row[i]]), "position": int(seen[row[i]]), "intent": intent_names[int(intent[i])]}
            | {"probability": float(p[i])}
        )
        seen[row[i]] += 1
    figure = new_figure(0.9 + 0.2 * G)
    ax = figure.add_subplot()
    ax.imshow(image, aspect="auto", interpolation="nearest", extent=(0.0, most, G - 0.5, -0.5))
    set_rows(ax, [wrap_label(str(name), 22, 1) for name in row_names], bottom=0.5)
    ax.grid(visible=False)
    for g in range(1, G):
        ax.axhline(g - 0.5, color=PAPER, linewidth=1.6)
    ax.set_xlabel("demonstrations in the order of the recording")
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.spines[:].set_visible(False)
    add_legend(figure, _intent_patches(intent_names), columns=3)
    return Plot(
        figure,
        rows,
        f"Most probable intent of {intent.size} demonstrations in {G} recordings, in order of time.",
    )


@use_report_style
def plot_visits(
    xy: ArrayLike,
    links: ArrayLike,
    panels: Mapping[str, ArrayLike],
    state_names: Sequence[str],
    *,
    grid: bool = False,
    columns: int = 2,
    rewards: bool = False,
) -> Plot:
    """Plot visits per 100 steps (S,) at the positions (S, 2) of the states, one panel per entry of `panels`.

    Parameters
    ----------
    xy : (S, 2)
    links : (E, 2)
        Pairs of states that are connected by lines; not drawn on a grid.
    panels : mapping from titles to (S,)
    state_names : sequence of S strings
    grid : bool
        Draw states as cells of unit size instead of dots.
    columns : int
        Number of panels per row, at most 3.
    rewards : bool
        Plot rewards instead, with a colour scale that is symmetric around 0.
    """
    where, lines = np.array(xy, dtype=np.float64), np.asarray(links, dtype=np.int64)
    values = {title: np.array(of, dtype=np.float64) for title, of in panels.items()}
    extent = _map_extent(where, grid)
    span = extent[1] - extent[0]
    columns = columns if columns <= 3 else 2
    height = float(np.clip(4.6 / columns * span[1] / span[0], 0.8, 4.2))
    figure, axes, spare = new_panels(len(values), height + 0.35, columns)
    scale = _upper_scale([np.abs(of) for of in values.values()])
    lowest = -scale if rewards else 0.0
    shades = LinearSegmentedColormap.from_list("shades", _SIGNED if rewards else _SHADES)
    mappable, (x, y) = None, where.T
    for ax, (title, of) in zip(axes, values.items(), strict=True):
        ax.set_title(wrap_label(title, 64 // columns, 2))
        if grid:
            mappable = ax.scatter(x, y, c=of, cmap=shades, vmin=lowest, vmax=scale, s=0.0)
            _draw_cells(ax, where, shades(np.clip((of - lowest) / (scale - lowest), 0.0, 1.0)))
        else:
            ax.add_collection(LineCollection(list(where[lines]), colors=RULE, linewidths=0.9, zorder=0.6))
            size = 14.0 + 110.0 * np.sqrt(np.clip(np.abs(of) / scale, 0.0, 1.0))
            dots: dict[str, Any] = {"edgecolors": MUTED, "linewidths": 0.4, "cmap": shades, "clip_on": False}
            mappable = ax.scatter(x, y, c=of, vmin=lowest, vmax=scale, s=size * min(1.0, 60.0 / len(of)), **dots)
        ax.set(xlim=extent[:, 0], ylim=extent[:, 1])
        ax.set_aspect("equal")
        ax.axis("off")
    if mappable is not None:
        bar = figure.colorbar(mappable, ax=spare if spare is not None else axes, shrink=0.8, location="bottom")
        bar.set_label("reward" if rewards else "visits per 100 steps")
        bar.outline.set_visible(False)
    rows: list[Row] = [
        {"state": state_names[s], "x": where[s, 0], "y": where[s, 1]} | {title: of[s] for title, of in values.items()}
        for s in range(len(where))
    ]
    return Plot(figure, rows, _describe_states(values, state_names, rewards))


def _map_extent(where: FloatArray, grid: bool) -> FloatArray:
    """Return the lower left and upper right corners (2, 2) of a drawing, with a minimum height and width."""
    low, high = where.min(axis=0) - 0.5 * grid, where.max(axis=0) + 0.5 * grid
    least = 0.2 * float(np.max(high - low)) or 1.0
    centre, half = 0.5 * (low + high), 0.5 * np.maximum(high - low, least)
    return np.array([centre - 1.1 * half, centre + 1.1 * half])


def _draw_cells(ax: Axes, where: FloatArray, colours: FloatArray) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    cells = [Rectangle((x - 0.5, y - 0.5), 1.0, 1.0) for x, y in where]
    ax.add_collection(PatchCollection(cells, facecolors=list(colours), edgecolors=PAPER, linewidths=0.8))


def _upper_scale(values: list[FloatArray]) -> float:
    """Return the upper end of the colour scale, above which outliers are clipped."""
    every = np.concatenate(values)
    positive = every[every > 0.0]
    return float(np.quantile(positive, 0.97)) if positive.size else 1.0


def _describe_states(values: Mapping[str, FloatArray], names: Sequence[str], rewards: bool) -> str:
    parts = [f"{title}: {names[int(np.argmax(of))]} ({format_number(float(of.max()))})" for title, of in values.items()]
    what, most = ("Rewards", "Highest rewards") if rewards else ("Visits per 100 steps", "Most visited states")
    return f"{what} at the positions of the states. {most}: {'; '.join(parts)}."


@use_report_style
def plot_visit_bars(
    observed: ArrayLike,
    expected: ArrayLike | None,
    states: Sequence[int],
    state_names: Sequence[str],
    intent_names: Sequence[str],
) -> Plot:
    """Plot observed (dots) and expected (rings) visits per 100 steps (K, S) of selected states, one row per state."""
    seen = np.array(observed, dtype=np.float64)
    model = np.full(seen.shape, np.nan) if expected is None else np.array(expected, dtype=np.float64)
    K, shown = len(seen), list(states)
    figure = new_figure(0.9 + len(shown) * (0.13 + 0.1 * K))
    ax = figure.add_subplot()
    offsets = (np.arange(K) - 0.5 * (K - 1)) * min(0.8 / K, 0.26)
    for row, s in enumerate(shown):
        for k in range(K):
            y, colour = row + offsets[k], intent_colour(k)
            ax.plot([0.0, seen[k, s]], [y, y], color=colour, linewidth=1.2, alpha=0.5)
            ax.plot(seen[k, s], y, "o", color=colour, markersize=4.2)
            ax.plot(model[k, s], y, "o", color=colour, markerfacecolor="none", markersize=6.0)
    set_rows(ax, [wrap_label(state_names[s], 26, 2) for s in shown], bottom=0.5)
    ax.set_xlim(left=0.0)
    ax.set_xlabel("visits per 100 steps")
    ring = Line2D([], [], linestyle="", marker="o", color=MUTED, markerfacecolor="none", markersize=6.0)
    ring.set_label("expected under the model")
    add_legend(figure, _intent_legend(intent_names) + ([] if expected is None else [ring]))
    rows: list[Row] = [
        {"state": state_names[s], "intent": intent_names[k], "observed": seen[k, s], "expected": model[k, s]}
        for s in range(seen.shape[1])
        for k in range(K)
    ]
    return Plot(figure, rows, f"Visits per 100 steps to {len(shown)} states under {K} intents.")


@use_report_style
def plot_trajectories(
    xy: ArrayLike,
    links: ArrayLike,
    paths: Mapping[str, tuple[int, Sequence[ArrayLike]]],
    *,
    grid: bool = False,
) -> Plot:
    """Plot trajectories at the positions (S, 2) of their states, one panel per entry of `paths`.

    `paths` maps a title to an intent, which determines the colour, and to sequences of states. A dot marks the start of
    a trajectory and a square its end.
    """
    where, lines = np.array(xy, dtype=np.float64), np.asarray(links, dtype=np.int64)
    extent = _map_extent(where, grid)
    span = extent[1] - extent[0]
    figure, axes, _ = new_panels(len(paths), float(np.clip(2.3 * span[1] / span[0], 0.8, 4.2)) + 0.35)
    lengths = np.linalg.norm(where[lines[:, 0]] - where[lines[:, 1]], axis=1)
    step = float(np.median(lengths)) if len(lines) else 1.0
    if grid:  # omit steps across the border of a grid that wraps around
        lines = lines[lengths <= _JUMP * step]
    rows: list[Row] = []
    for ax, (title, (k, sequences)) in zip(axes, paths.items(), strict=True):
        ax.add_collection(LineCollection(list(where[lines]), colors=RULE, linewidths=0.8, zorder=0.5))
        for index, states in enumerate(sequences):
            visited = np.asarray(states, dtype=np.int64)
            # A small displacement separates trajectories, and repeated visits within a trajectory.
            angle = 2.4 * np.arange(visited.size) + 2.1 * index
            shift = 0.09 * step * np.column_stack([np.cos(angle), np.sin(angle)]) + 0.1 * step * (index - 1)
            points = where[visited] + shift
            alpha = 0.95 - 0.2 * index
            if grid:
                jumps = np.flatnonzero(np.linalg.norm(np.diff(where[visited], axis=0), axis=1) > _JUMP * step)
                points = np.insert(points, jumps + 1, np.nan, axis=0)
            ax.plot(*points.T, color=intent_colour(k), linewidth=1.2, alpha=alpha)
            ax.plot(*points[0], "o", color=intent_colour(k), markersize=4.5, alpha=alpha)
            ax.plot(*points[-1], "s", color=intent_colour(k), markersize=4.5, alpha=alpha)
            rows += [{"panel": title, "trajectory": index, "step": t, "state": int(s)} for t, s in enumerate(visited)]
        ax.set_title(wrap_label(title, 34, 1))
        ax.set(xlim=extent[:, 0], ylim=extent[:, 1])
        ax.set_aspect("equal")
        ax.axis("off")
    ends = [Line2D([], [], linestyle="", marker=m, color=INK, markersize=4.5, label=name) for m, name in _ENDS]
    add_legend(figure, ends)
    n = sum(len(sequences) for _, sequences in paths.values())
    return Plot(figure, rows, f"{n} example trajectories in {len(paths)} panels, one per intent.")


_ENDS = (("o", "start"), ("s", "end"))


@use_report_style
def plot_criteria(selection: Selection) -> Plot:
    """Plot the held-out log-likelihood, BIC, ICL and stability by the number of intents; a line marks the choice."""
    measures = [
        ("behind", "behind_se", "Held-out log-likelihood below the best", "lower is better"),
        ("bic", "", "BIC minus its minimum", "lower is better"),
        ("icl", "", "ICL minus its minimum", "lower is better"),
        ("stability", "", "Stability (adjusted Rand index)", "higher is better"),
    ]
    numbers = np.array([row.n_intents for row in selection.rows])
    columns = {
        name: np.array([getattr(row, name) for row in selection.rows], dtype=np.float64) for name, *_ in measures
    }
    shown = [measure for measure in measures if np.any(np.isfinite(columns[measure[0]]))]
    figure, axes, _ = new_panels(len(shown), 1.9)
    for ax, (name, error, title, axis) in zip(axes, shown, strict=True):
        values = columns[name] - (np.nanmin(columns[name]) if name in ("bic", "icl") else 0.0)
        ax.axvline(selection.recommended, color=intent_colour(1), alpha=0.3, linewidth=7.0, zorder=0.5)
        errors = [getattr(row, error) for row in selection.rows] if error else None
        ax.errorbar(
            numbers, values, errors, fmt="o-", color=intent_colour(0), markersize=4.0, capsize=2.5, linewidth=1.3
        )
        ax.set_title(wrap_label(title, 32, 2))
        ax.set_xlabel(f"intents ({axis})")
        ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        ax.grid(visible=True, axis="y", color=RULE)
    rows: list[Row] = [
        {"n_intents": int(numbers[i])} | {name: float(values[i]) for name, values in columns.items()}
        for i in range(numbers.size)
    ]
    alt = f"Criteria for {numbers[0]} to {numbers[-1]} intents; {selection.recommended} is recommended."
    return Plot(figure, rows, alt)
