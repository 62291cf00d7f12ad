"""Figures of driving styles: rewards by group of features (paper, Appendix F), and two contrasting routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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


class Panel(NamedTuple):
    """Mixture weights (K,), reward of an average km (K,) and normalised rewards (K, d), with standard errors."""

    weights: FloatArray
    level: FloatArray
    thetas: FloatArray
    level_errors: FloatArray | None = None
    errors: FloatArray | None = None


_WIDTH, _ROUTES_WIDTH = 5.6, 5.0
# The size of a dot in points is _SIZE_0 + _SIZE_1 * mixture weight.
_SIZE_0, _SIZE_1 = 3.5, 3.5
# Height of a row of the reward plot in inches for one style, and for each further style.
_ROW, _ROW_MORE = 0.165, 0.05
# Fraction of a row that the styles occupy.
_SPREAD = 0.62
# Half-width of a 95 % interval in standard errors; maximum extension of the axis by intervals, relative to the range of
# rewards.
_INTERVAL, _BEYOND = 1.96, 0.35
# Legends with up to this many short names have one row.
_IN_A_ROW = 4
# Maximum ratio of the length of a compared trip to the straight line, and its minimum length.
_MAX_DETOUR = 2.2
_MIN_LENGTH_M = 1500.0
_REACHES_M = (200.0, 400.0, 800.0)
# Maximum number of pairs that are compared.
_MAX_PAIRS = 20_000


@use_report_style
def plot_driver_rewards(
    panels: Mapping[str, Panel | tuple[FloatArray, FloatArray, FloatArray]],
    feature_names: Sequence[str],
    groups: Mapping[str, Sequence[int]],
    drawn: ArrayLike,
    names: Sequence[str],
) -> Plot:
    """Plot normalised rewards with one column per initialisation and one row per feature.

    `panels` maps an initialisation to its rewards, with intents in the order of the first initialisation and NaN for
    missing intents. Styles are separated vertically within a row, and bars are 95 % intervals. Rewards without a
    standard error are open dots, if the panel has errors. Within a group, features are in the order of their mean
    reward, unless their names contain numbers. `drawn` (d,) is a mask of features.
    """
    kept = np.asarray(drawn, dtype=bool)
    columns = {start: Panel(*panel) for start, panel in panels.items()}
    shown = _order_features(next(iter(columns.values())), groups, feature_names, kept)
    n = max(len(panel.weights) for panel in columns.values())
    n_rows = sum(len(features) + 1 for features in shown.values())
    row = _ROW + _ROW_MORE * (n - 1)
    figure = new_figure(1.35 + row * n_rows, _WIDTH)
    grid = figure.add_gridspec(2, len(columns), height_ratios=[2.2 * _ROW / row, n_rows])
    intents = [names[k] if k < len(names) else f"intent {k}" for k in range(n)]
    rows: list[Row] = []
    tops, bodies = [], []
    for column, (start, panel) in enumerate(columns.items()):
        top, body = figure.add_subplot(grid[0, column]), figure.add_subplot(grid[1, column])
        top.set_title(wrap_label(start, 18))
        _draw_estimates(top, [0], panel.level[:, None], _column(panel.level_errors), panel.weights)
        top.set_ylim(0.7, -0.7)
        _style_axes(top)
        _draw_rewards(body, panel, shown, feature_names, labelled=column == 0)
        top.set_yticks([0], ["average km" if column == 0 else ""])
        tops.append(top)
        bodies.append(body)
        rows += _reward_rows(start, panel, feature_names, groups, intents)
    _share_limits(tops, [(panel.level[:, None], _column(panel.level_errors)) for panel in columns.values()])
    parts = [
        (panel.thetas[:, kept], None if panel.errors is None else panel.errors[:, kept]) for panel in columns.values()
    ]
    _share_limits(bodies, parts, zero=True)
    bodies[len(bodies) // 2].set_xlabel("reward per km, relative to the average")
    keys = [
        Line2D([], [], color=intent_colour(k), marker="o", linewidth=1.6, label=wrap_label(intents[k], 60, 1))
        for k in range(n)
    ]
    add_legend(figure, keys, columns=1 if max(map(len, intents)) > 24 or n > _IN_A_ROW else n)
    return Plot(figure, rows, _describe_rewards(columns, feature_names, kept))


def _column(errors: FloatArray | None) -> FloatArray | None:
    return None if errors is None else errors[:, None]


def _order_features(
    panel: Panel, groups: Mapping[str, Sequence[int]], feature_names: Sequence[str], kept: BoolArray
) -> dict[str, list[int]]:
    """Return the drawn features of each group, from the highest to the lowest mean reward."""
    weight = np.where(np.isfinite(panel.thetas[:, :1]), panel.weights[:, None], 0.0)
    mean = (weight * np.nan_to_num(panel.thetas)).sum(axis=0)
    shown = {}
    for group, features in groups.items():
        members = [j for j in features if kept[j]]
        if not any(character.isdigit() for j in members for character in feature_names[j]):
            members.sort(key=lambda j: -mean[j])
        if members:
            shown[group] = members
    return shown


def _draw_estimates(
    ax: Axes, at: Sequence[int], values: FloatArray, errors: FloatArray | None, weights: FloatArray
) -> None:
    """Draw values (K, m) with their intervals at rows `at` (m,); styles are offset vertically within a row."""
    K = len(values)
    for k in range(K):
        y = np.asarray(at) + _SPREAD * ((k + 0.5) / K - 0.5)
        colour, size = intent_colour(k), _SIZE_0 + _SIZE_1 * float(weights[k])
        known = np.ones(len(y), dtype=bool) if errors is None else np.isfinite(errors[k])
        if errors is not None:
            half = _INTERVAL * np.nan_to_num(errors[k])
            ax.hlines(y[known], (values[k] - half)[known], (values[k] + half)[known], color=colour, linewidth=1.6)
        look: Keywords = {"color": colour, "markersize": size, "linestyle": "none"}
        ax.plot(values[k][known], y[known], "o", **look)
        ax.plot(values[k][~known], y[~known], "o", markerfacecolor=PAPER, **look)


def _draw_rewards(
    ax: Axes, panel: Panel, shown: Mapping[str, Sequence[int]], feature_names: Sequence[str], *, labelled: bool
) -> None:
    labels: list[str] = []
    heads = []
    for group, features in shown.items():
        heads.append(len(labels))
        labels.append(group)
        chosen = list(features)
        at = list(range(len(labels), len(labels) + len(chosen)))
        errors = None if panel.errors is None else panel.errors[:, chosen]
        _draw_estimates(ax, at, panel.thetas[:, chosen], errors, panel.weights)
        labels += [wrap_label(feature_names[j].removeprefix("km ").removeprefix("of "), 22, 1) for j in chosen]
    ax.axvline(0.0, color=MUTED, linewidth=0.8, zorder=0.5)
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.set_yticks(range(len(labels)), labels if labelled else [""] * len(labels))
    _style_axes(ax)
    for row in set(range(len(labels))) - set(heads):  # a band per feature separates neighbouring rows
        ax.axhline(row, color=RULE, linewidth=0.5, zorder=0.4)
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


def _share_limits(
    axes: Sequence[Axes], parts: Sequence[tuple[FloatArray, FloatArray | None]], *, zero: bool = False
) -> None:
    """Set the limits to the range of all values, extended by their intervals up to a fraction of the range."""
    finite = np.concatenate([values[np.isfinite(values)] for values, _ in parts])
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    beyond = _BEYOND * (high - low)
    ends = [low, high]
    for values, errors in parts:
        if errors is not None:
            known = np.isfinite(values) & np.isfinite(errors)
            half = _INTERVAL * errors[known]
            ends += [*np.maximum(values[known] - half, low - beyond), *np.minimum(values[known] + half, high + beyond)]
    room = 0.07 * (max(ends) - min(ends)) or 0.5
    for ax in axes:
        ax.set_xlim(min(ends) - room, max(ends) + room)


def _reward_rows(
    start: str, panel: Panel, feature_names: Sequence[str], groups: Mapping[str, Sequence[int]], intents: Sequence[str]
) -> list[Row]:
    rows: list[Row] = []
    nan = np.full(panel.thetas.shape[1], np.nan)
    for k, (weight, level, theta) in enumerate(zip(*panel[:3], strict=True)):
        about = {"initialisation": start, "intent": intents[k], "weight": float(weight)}
        own = float("nan") if panel.level_errors is None else float(panel.level_errors[k])
        rows.append({**about, "group": "level", "feature": "average km", "reward": float(level), "standard_error": own})
        errors = nan if panel.errors is None else panel.errors[k]
        for group, features in groups.items():
            rows += [
                {
                    **about,
                    "group": group,
                    "feature": feature_names[j],
                    "reward": float(theta[j]),
                    "standard_error": float(errors[j]),
                }
                for j in features
            ]
    return rows


def _describe_rewards(panels: Mapping[str, Panel], feature_names: Sequence[str], kept: BoolArray) -> str:
    start, (weights, _, thetas, *_) = next(iter(panels.items()))
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
    """Two trips, the larger of the distances between their starts and between their ends, and their overlap."""

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
    # The distance of two trips in four dimensions is at most sqrt(2) times the larger distance between end points.
    near = cKDTree(np.hstack([start, end])).query_pairs(np.sqrt(2.0) * reach, output_type="ndarray")
    near = near[np.lexsort((near[:, 1], near[:, 0]))]
    i, j = near[:, 0], near[:, 1]
    both = np.maximum(np.hypot(*(start[i] - start[j]).T), np.hypot(*(end[i] - end[j]).T)) <= reach
    pairs: list[list[int]] = near[both & (style[i] != style[j])][:_MAX_PAIRS].tolist()
    return pairs
