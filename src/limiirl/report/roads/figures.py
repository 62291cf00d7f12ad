"""Figures of driving styles: rewards by group of features (paper, Appendix F), and two contrasting routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray

from limiirl._typing import BoolArray, FloatArray
from limiirl.demos import Demonstrations
from limiirl.report.figures import Plot
from limiirl.report.figures.style import (
    Keywords,
    Row,
    add_legend,
    format_number,
    intent_colour,
    new_figure,
    use_report_style,
    wrap_label,
)
from limiirl.report.map_image import round_length
from limiirl.report.svg import INK, MUTED, PAPER, RULE
from limiirl.roads import Plane, RoadNetwork

# Mixture weights (K,), reward of an average km (K,) and normalised rewards (K, d).
Panel = tuple[FloatArray, FloatArray, FloatArray]

_WIDTH, _ROUTES_WIDTH = 5.6, 5.0
# The line width in points is _WIDTH_0 + _WIDTH_1 * mixture weight.
_WIDTH_0, _WIDTH_1 = 0.9, 6.0
# Legends with up to this many short names have one row.
_IN_A_ROW = 4
# Trips longer than this multiple of the straight line, or shorter than 1.5 km, are not compared.
_MAX_DETOUR = 2.2
_MIN_LENGTH_M = 1500.0
_REACHES_M = (200.0, 400.0, 800.0)
# Maximum number of pairs that are compared.
_MAX_PAIRS = 20_000


@use_report_style
def plot_driver_rewards(
    panels: Mapping[str, Panel],
    feature_names: Sequence[str],
    groups: Mapping[str, Sequence[int]],
    drawn: ArrayLike,
    names: Sequence[str],
) -> Plot:
    """Plot normalised rewards with one column per initialisation and one row per feature.

    `panels` maps an initialisation to weights (K,), level (K,) and thetas (K, d), with intents in the order of the
    first initialisation and NaN for missing intents. Line widths increase with the mixture weight, and lines connect
    features of the same group. `drawn` (d,) is a mask of features.
    """
    kept = np.asarray(drawn, dtype=bool)
    shown = {group: [j for j in features if kept[j]] for group, features in groups.items()}
    shown = {group: features for group, features in shown.items() if features}
    n_rows = sum(len(features) + 1 for features in shown.values())
    figure = new_figure(1.35 + 0.165 * n_rows, _WIDTH)
    grid = figure.add_gridspec(2, len(panels), height_ratios=[2.2, n_rows])
    n = max(len(weights) for weights, _, _ in panels.values())
    intents = [names[k] if k < len(names) else f"intent {k}" for k in range(n)]
    rows: list[Row] = []
    tops, bodies = [], []
    for column, (start, panel) in enumerate(panels.items()):
        weights, level, thetas = panel
        top, body = figure.add_subplot(grid[0, column]), figure.add_subplot(grid[1, column])
        top.set_title(wrap_label(start, 18))
        _draw_level(top, weights, level)
        _draw_rewards(body, weights, thetas, shown, feature_names, labelled=column == 0)
        top.set_yticks([0], ["average km" if column == 0 else ""])
        tops.append(top)
        bodies.append(body)
        rows += _reward_rows(start, panel, feature_names, groups, intents)
    _share_limits(tops, np.concatenate([level for _, level, _ in panels.values()]))
    _share_limits(bodies, np.concatenate([thetas[:, kept].ravel() for _, _, thetas in panels.values()]), zero=True)
    bodies[len(bodies) // 2].set_xlabel("reward per km, relative to the average")
    keys = [
        Line2D([], [], color=intent_colour(k), linewidth=3.0, label=wrap_label(intents[k], 60, 1)) for k in range(n)
    ]
    add_legend(figure, keys, columns=1 if max(map(len, intents)) > 24 or n > _IN_A_ROW else n)
    return Plot(figure, rows, _describe_rewards(panels, feature_names, kept))


def _line_style(k: int, weight: float) -> Keywords:
    caps: Keywords = {"solid_capstyle": "round", "solid_joinstyle": "round"}
    return {"color": intent_colour(k), "linewidth": _WIDTH_0 + _WIDTH_1 * weight, "alpha": 0.8, **caps}


def _draw_level(ax: Axes, weights: FloatArray, level: FloatArray) -> None:
    for k, (weight, value) in enumerate(zip(weights, level, strict=True)):
        if np.isfinite(value):
            ax.plot([value, value], [-0.4, 0.4], **_line_style(k, float(weight)))
    ax.set_ylim(-0.7, 0.7)
    _style_axes(ax)


def _draw_rewards(
    ax: Axes,
    weights: FloatArray,
    thetas: FloatArray,
    shown: Mapping[str, Sequence[int]],
    feature_names: Sequence[str],
    *,
    labelled: bool,
) -> None:
    labels: list[str] = []
    heads = []
    for group, features in shown.items():
        heads.append(len(labels))
        labels.append(group)
        at = np.arange(len(labels), len(labels) + len(features))
        # Wide lines first, so that thin lines are on top.
        for k in np.argsort(-weights).tolist():
            if np.isfinite(thetas[k]).any():
                mark: Keywords = {"marker": "o", "markersize": 3.0 + 3.0 * float(weights[k])}
                ax.plot(thetas[k, list(features)], at, **_line_style(k, float(weights[k])), **mark)
        labels += [wrap_label(feature_names[j].removeprefix("km ").removeprefix("of "), 22, 1) for j in features]
    ax.axvline(0.0, color=MUTED, linewidth=0.8, zorder=0.5)
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.set_yticks(range(len(labels)), labels if labelled else [""] * len(labels))
    _style_axes(ax)
    if labelled:
        for row, tick in enumerate(ax.get_yticklabels()):
            tick.set_fontsize(8.0)
            if row in heads:
                tick.set_color(INK)
                tick.set_fontweight("bold")


def _style_axes(ax: Axes) -> None:
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.grid(visible=True, axis="x", color=RULE)
    ax.locator_params(axis="x", nbins=4)


def _share_limits(axes: Sequence[Axes], values: FloatArray, *, zero: bool = False) -> None:
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    room = 0.1 * (high - low) or 0.5
    for ax in axes:
        ax.set_xlim(low - room, high + room)


def _reward_rows(
    start: str, panel: Panel, feature_names: Sequence[str], groups: Mapping[str, Sequence[int]], intents: Sequence[str]
) -> list[Row]:
    rows: list[Row] = []
    for k, (weight, level, theta) in enumerate(zip(*panel, strict=True)):
        about = {"initialisation": start, "intent": intents[k], "weight": float(weight)}
        rows.append({**about, "group": "level", "feature": "average km", "reward": float(level)})
        for group, features in groups.items():
            rows += [
                {**about, "group": group, "feature": feature_names[j], "reward": float(theta[j])} for j in features
            ]
    return rows


def _describe_rewards(panels: Mapping[str, Panel], feature_names: Sequence[str], kept: BoolArray) -> str:
    start, (weights, _, thetas) = next(iter(panels.items()))
    parts = [f"Rewards per km of {int(kept.sum())} features by intent and initialisation of EM."]
    for k in range(len(weights)):
        values = np.where(kept & np.isfinite(thetas[k]), thetas[k], np.nan)
        if np.isfinite(values).any():
            best, worst = int(np.nanargmax(values)), int(np.nanargmin(values))
            ends = [f"{feature_names[j]} ({format_number(float(values[j]))})" for j in (best, worst)]
            parts.append(f"Intent {k} of {start} (weight {weights[k]:.2f}): highest {ends[0]}, lowest {ends[1]}.")
    return " ".join(parts)


@use_report_style
def plot_routes(
    lines: Sequence[ArrayLike],
    names: Sequence[str],
    intents: Sequence[int],
    streets: Sequence[tuple[ArrayLike, float]] = (),
) -> Plot:
    """Draw routes (k, 2) on a map of streets, coloured by intent and labelled with their lengths.

    `streets` are background lines (n, 2), separated by rows of NaN, with their widths in points.
    """
    routes = [np.asarray(line, dtype=np.float64) for line in lines]
    everything = np.concatenate(routes)
    low, high = everything.min(axis=0), everything.max(axis=0)
    plane = Plane(*(0.5 * (low + high)).tolist())
    flat = [plane.xy(line[:, 0], line[:, 1]) / 1000.0 for line in routes]
    half = np.abs(np.concatenate(flat)).max(axis=0) + 0.25
    # Limits of the aspect ratio.
    half = np.maximum(half, half[::-1] * np.array([0.85, 0.55]))
    figure = new_figure(float(_ROUTES_WIDTH * half[1] / half[0]) + 0.45, _ROUTES_WIDTH)
    ax = figure.add_subplot()
    for points, width in streets:
        at = np.asarray(points, dtype=np.float64).reshape(-1, 2)
        xy = plane.xy(at[:, 0], at[:, 1]) / 1000.0
        ax.plot(xy[:, 0], xy[:, 1], color=MUTED if width > 1.0 else RULE, linewidth=width, alpha=0.6, zorder=1)
    km = [float(np.hypot(*np.diff(line, axis=0).T).sum()) for line in flat]
    for line, name, intent, length in zip(flat, names, intents, km, strict=True):
        ax.plot(line[:, 0], line[:, 1], color=PAPER, linewidth=5.5, solid_capstyle="round", zorder=2)
        look: Keywords = {"color": intent_colour(intent), "linewidth": 3.0, "solid_capstyle": "round", "zorder": 3}
        ax.plot(line[:, 0], line[:, 1], label=f"{wrap_label(name, 40, 1)}, {length:.1f} km", **look)
    _finish_routes(ax, flat, half)
    figure.legend(loc="outside lower center", ncols=1)
    figure.set_figheight(float(figure.get_figheight()) + 0.2 * len(flat))
    rows: list[Row] = [
        {"route": name, "intent": intent, "km": round(length, 3), "points": len(line)}
        for name, intent, length, line in zip(names, intents, km, flat, strict=True)
    ]
    lengths = " and ".join(f"{name}: {length:.1f} km" for name, length in zip(names, km, strict=True))
    return Plot(figure, rows, f"A map of {len(flat)} routes with similar origins and destinations. {lengths}.")


def _free_side(
    places: FloatArray, flat: Sequence[FloatArray], half: FloatArray
) -> tuple[FloatArray, tuple[float, float]]:
    """Return the position of a label and the side (right, left, above or below) with the fewest routes."""
    steps = np.linspace(0.0, 1.0, 30)[:, None, None]
    passed = np.concatenate([(line[:-1] + steps * np.diff(line, axis=0)).reshape(-1, 2) for line in flat] + [places])
    room = 0.13 * half[0]  # about the width of a label
    options: list[tuple[bool, int, int, FloatArray, tuple[float, float]]] = []
    for place in places:
        for side in ((1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0)):
            middle = place + room * np.array(side) * [1.0, 0.6]
            taken = int(np.all(np.abs(passed - middle) <= [0.85 * room, 0.4 * room], axis=1).sum())
            outside = bool(np.any(np.abs(middle) + np.array([room, 0.5 * room]) > half))
            options.append((outside, taken, len(options), place, side))
    *_, place, side = min(options, key=lambda option: option[:3])
    return place, side


def _finish_routes(ax: Axes, flat: Sequence[FloatArray], half: FloatArray) -> None:
    box: Keywords = {"facecolor": PAPER, "edgecolor": "none", "alpha": 0.85}
    for label, which, fill in (("start", 0, PAPER), ("end", -1, INK)):
        places = np.stack([line[which] for line in flat])
        ax.plot(*places.T, "o", color=INK, markerfacecolor=fill, markersize=7.0, markeredgewidth=1.6, zorder=4)
        at, side = _free_side(places, flat, half)
        align: Keywords = {
            "ha": {1.0: "left", -1.0: "right"}.get(side[0], "center"),
            "va": {1.0: "bottom", -1.0: "top"}.get(side[1], "center"),
        }
        offset = (9.0 * side[0], 10.0 * side[1])
        frame = {"boxstyle": "round,pad=0.15", **box}
        ax.annotate(label, (at[0], at[1]), offset, textcoords="offset points", bbox=frame, zorder=5, **align)
    ax.set_xlim(-half[0], half[0])
    ax.set_ylim(-half[1], half[1])
    ax.set_aspect("equal")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)
    bar = round_length(half[0] / 2.0)
    left, foot = -0.96 * half[0], -0.95 * half[1]
    ax.plot([left, left + bar], [foot, foot], color=INK, linewidth=1.6, zorder=6)
    scale = f"{bar:g} km" if bar >= 1.0 else f"{1000.0 * bar:g} m"
    frame = {"boxstyle": "square,pad=0.1", **box}
    ax.annotate(scale, (left, foot), (0.0, 4.0), textcoords="offset points", bbox=frame, zorder=6)


@dataclass(frozen=True)
class TripPair:
    """Two trips, the larger distance between their end points, and the shared fraction of the shorter trip."""

    first: int
    second: int
    apart_m: float
    shared: float


def find_pair(network: RoadNetwork, demos: Demonstrations, labels: ArrayLike) -> TripPair | None:
    """Return the pair of trips with different labels and similar end points that overlaps least, or None.

    End points are at most 200 m apart, or 400 or 800 m if there is no closer pair. Trips shorter than 1.5 km, or longer
    than 2.2 times the straight line, are excluded.

    >>> lat, lon = [41.15, 41.15, 41.17, 41.17], [-8.63, -8.61, -8.61, -8.63]
    >>> square = RoadNetwork.from_segments(lat, lon, [0, 1, 0, 3], [1, 2, 3, 2])
    >>> find_pair(square, Demonstrations([0, 1, 2, 3], [0, 2, 4]), [0, 1])
    TripPair(first=0, second=1, apart_m=0.0, shared=0.0)
    """
    style = np.asarray(labels, dtype=np.int64)
    states, offsets = demos.states, demos.offsets
    start = network.node_xy[network.tail[states[offsets[:-1]]]]
    end = network.node_xy[network.head[states[offsets[1:] - 1]]]
    total = np.concatenate([[0.0], np.cumsum(network.length_m[states])])
    length = np.diff(total[offsets])
    straight = np.hypot(*(end - start).T)
    usable = np.flatnonzero((length >= _MIN_LENGTH_M) & (length <= _MAX_DETOUR * np.maximum(straight, 1.0)))
    for reach in _REACHES_M:
        best: TripPair | None = None
        for i, j in _close_pairs(start[usable], end[usable], style[usable], reach):
            one, two = int(usable[i]), int(usable[j])
            apart = float(max(np.hypot(*(start[one] - start[two])), np.hypot(*(end[one] - end[two]))))
            a, b = (states[offsets[k] : offsets[k + 1]] for k in (one, two))
            both = np.intersect1d(a, b)
            shared = float(network.length_m[both].sum() / min(length[one], length[two]))
            if best is None or (shared, apart) < (best.shared, best.apart_m):
                best = TripPair(one, two, apart, shared)
        if best is not None and best.shared < 0.5:
            return best
    return None


def _close_pairs(start: FloatArray, end: FloatArray, style: NDArray[np.int64], reach: float) -> list[list[int]]:
    """Return the pairs of trips of different styles whose starts and ends are at most `reach` apart."""
    from scipy.spatial import cKDTree

    if len(start) < 2:
        return []
    # The distance in four dimensions is an upper bound of the distances of both end points.
    near = cKDTree(np.hstack([start, end])).query_pairs(np.sqrt(2.0) * reach, output_type="ndarray")
    near = near[np.lexsort((near[:, 1], near[:, 0]))]
    i, j = near[:, 0], near[:, 1]
    both = np.maximum(np.hypot(*(start[i] - start[j]).T), np.hypot(*(end[i] - end[j]).T)) <= reach
    pairs: list[list[int]] = near[both & (style[i] != style[j])][:_MAX_PAIRS].tolist()
    return pairs
