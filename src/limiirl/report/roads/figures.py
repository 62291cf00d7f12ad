"""Figures of drivers: rewards by group of features (appendix F of the paper), and two routes between two places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray

from limiirl._typing import FloatArray
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.report.figures.style import Drawn, Keywords, Row, blank, fitted, in_ink, intent_colour, legend, told
from limiirl.report.svg import INK, MUTED, PAPER, RULE
from limiirl.roads import Plane, RoadNetwork

Panel = tuple[ArrayLike, ArrayLike, ArrayLike]

_WIDTH = 5.6
# Of a line's width in points, beside what its share gives.
_LEAST, _MOST = 0.9, 6.0
# So many styles have short names in one row of the legend, which is read from left to right.
_IN_A_ROW = 4


@in_ink
def driver_rewards(
    panels: Mapping[str, Panel],
    feature_names: Sequence[str],
    groups: Mapping[str, Sequence[int]],
    drawn: ArrayLike | None = None,
    names: Sequence[str] | None = None,
) -> Drawn:
    """Draw rewards in the fixed gauge: a column a start, a row a feature, a line an intent, as wide as its share.

    Parameters
    ----------
    panels : mapping of a start's name to (weights (K,), level (K,), thetas (K, d))
        With intent k of each start the one most like intent k of the first; rows of NaN where a start has none.
    feature_names : d texts
    groups : mapping of a name to indices
        A line is not drawn from one group to the next.
    drawn : (d,) bool, optional
        Which features to draw; those that nobody drives say nothing.
    names : K texts, optional
        Of the intents.

    Examples
    --------
    >>> panel = ([0.7, 0.3], [-2.0, -3.0], [[0.5, -0.5], [0.0, 0.0]])
    >>> picture = driver_rewards({"k-means": panel}, ["km of highway", "km of street"], {"road class": (0, 1)})
    >>> picture.rows[0]
    {'start': 'k-means', 'intent': '0', 'share': 0.7, 'group': 'level', 'feature': 'an average km', 'reward': -2.0}
    """
    d = len(feature_names)
    kept = np.ones(d, dtype=bool) if drawn is None else np.asarray(drawn, dtype=bool)
    blocks = {start: _block(start, panel, d) for start, panel in panels.items()}
    shown = {group: [j for j in places if kept[j]] for group, places in groups.items()}
    shown = {group: places for group, places in shown.items() if places}
    n_rows = sum(len(places) + 1 for places in shown.values())
    figure = blank(1.35 + 0.165 * n_rows, _WIDTH)
    grid = figure.add_gridspec(2, len(blocks), height_ratios=[2.2, n_rows])
    rows: list[Row] = []
    tops, bodies = [], []
    for column, (start, (weights, level, thetas)) in enumerate(blocks.items()):
        top, body = figure.add_subplot(grid[0, column]), figure.add_subplot(grid[1, column])
        top.set_title(fitted(start, 18))
        _level(top, weights, level)
        _body(body, weights, thetas, shown, feature_names, labelled=column == 0)
        top.set_yticks([0], ["average km" if column == 0 else ""])
        tops.append(top)
        bodies.append(body)
        rows += _rows(start, weights, level, thetas, feature_names, groups, names)
    _share(tops, np.concatenate([level for _, level, _ in blocks.values()]))
    _share(bodies, np.concatenate([thetas[:, kept].ravel() for _, _, thetas in blocks.values()]), zero=True)
    bodies[len(bodies) // 2].set_xlabel("reward a km, beside the average")
    n = max(len(weights) for weights, _, _ in blocks.values())
    labels = [names[k] if names is not None and k < len(names) else f"intent {k}" for k in range(n)]
    keys = [Line2D([], [], color=intent_colour(k), linewidth=3.0, label=fitted(labels[k], 60, 1)) for k in range(n)]
    legend(figure, keys, columns=1 if max(map(len, labels)) > 24 or n > _IN_A_ROW else n)
    return Drawn(figure, rows, _alt(blocks, feature_names, kept))


def _block(start: str, panel: Panel, d: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    weights, level, thetas = (np.array(part, dtype=np.float64) for part in panel)
    if thetas.shape != (len(weights), d) or level.shape != weights.shape:
        raise InvalidParameter(
            f"A panel must be weights (K,), level (K,) and thetas (K, {d}); {start!r} has {weights.shape}, "
            f"{level.shape} and {thetas.shape}.",
            parameter="panels",
            value=start,
        )
    return weights, level, thetas


def _look(k: int, share: float) -> Keywords:
    return {
        "color": intent_colour(k),
        "linewidth": _LEAST + _MOST * share,
        "alpha": 0.8,
        "solid_capstyle": "round",
        "solid_joinstyle": "round",
    }


def _level(ax: Axes, weights: FloatArray, level: FloatArray) -> None:
    for k, (share, value) in enumerate(zip(weights, level, strict=True)):
        if np.isfinite(value):
            ax.plot([value, value], [-0.4, 0.4], **_look(k, float(share)))
    ax.set_ylim(-0.7, 0.7)
    _bare(ax)


def _body(
    ax: Axes,
    weights: FloatArray,
    thetas: FloatArray,
    shown: Mapping[str, Sequence[int]],
    feature_names: Sequence[str],
    *,
    labelled: bool,
) -> None:
    y, ticks, labels, heads = 0, [], [], []
    for group, places in shown.items():
        ticks.append(y)
        labels.append(group)
        heads.append(y)
        at = np.arange(y + 1, y + 1 + len(places))
        # The widest first, so that thin ones are seen on them.
        for k in np.argsort(-weights).tolist():
            if np.isfinite(thetas[k]).any():
                mark: Keywords = {"marker": "o", "markersize": 3.0 + 3.0 * float(weights[k])}
                ax.plot(thetas[k, list(places)], at, **_look(k, float(weights[k])), **mark)
        ticks += at.tolist()
        labels += [fitted(feature_names[j].removeprefix("km ").removeprefix("of "), 22, 1) for j in places]
        y += 1 + len(places)
    ax.axvline(0.0, color=MUTED, linewidth=0.8, zorder=0.5)
    ax.set_ylim(y - 0.4, -0.6)
    ax.set_yticks(ticks, labels if labelled else [""] * len(ticks))
    _bare(ax)
    if labelled:
        for tick, place in zip(ax.get_yticklabels(), ticks, strict=True):
            tick.set_fontsize(8.0)
            if place in heads:
                tick.set_color(INK)
                tick.set_fontweight("bold")


def _bare(ax: Axes) -> None:
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.grid(visible=True, axis="x", color=RULE)
    ax.locator_params(axis="x", nbins=4)


def _share(axes: Sequence[Axes], values: FloatArray, *, zero: bool = False) -> None:
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    room = 0.1 * (high - low) or 0.5
    for ax in axes:
        ax.set_xlim(low - room, high + room)


def _rows(
    start: str,
    weights: FloatArray,
    level: FloatArray,
    thetas: FloatArray,
    feature_names: Sequence[str],
    groups: Mapping[str, Sequence[int]],
    names: Sequence[str] | None,
) -> list[Row]:
    rows: list[Row] = []
    for k in range(len(weights)):
        intent = names[k] if names is not None and k < len(names) else f"{k}"
        about = {"start": start, "intent": intent, "share": float(weights[k])}
        rows.append({**about, "group": "level", "feature": "an average km", "reward": float(level[k])})
        for group, places in groups.items():
            rows += [
                {**about, "group": group, "feature": feature_names[j], "reward": float(thetas[k, j])} for j in places
            ]
    return rows


def _alt(
    blocks: Mapping[str, tuple[FloatArray, FloatArray, FloatArray]],
    feature_names: Sequence[str],
    kept: NDArray[np.bool_],
) -> str:
    start, (weights, _, thetas) = next(iter(blocks.items()))
    said = [f"Rewards a km of {int(kept.sum())} features for each intent, started in {len(blocks)} ways."]
    for k in range(len(weights)):
        values = np.where(kept & np.isfinite(thetas[k]), thetas[k], np.nan)
        if np.isfinite(values).any():
            best, worst = int(np.nanargmax(values)), int(np.nanargmin(values))
            said.append(
                f"Intent {k} of {start}, {weights[k]:.0%}, prefers {feature_names[best]} ({told(float(values[best]))}) "
                f"and avoids {feature_names[worst]} ({told(float(values[worst]))})."
            )
    return " ".join(said)


_ROUTES_WIDTH = 5.0


@in_ink
def two_routes(
    lines: Sequence[ArrayLike],
    names: Sequence[str],
    intents: Sequence[int],
    streets: Sequence[tuple[ArrayLike, float]] = (),
) -> Drawn:
    """Draw routes on a map of streets, each in its intent's colour, with its length.

    Parameters
    ----------
    lines : sequence of (k, 2)
        Latitudes and longitudes.
    names : texts
        For the legend.
    intents : sequence of int
    streets : sequence of ((n, 2), width)
        Background: points with rows of NaN between lines, and a width in points.

    Examples
    --------
    >>> there = [[41.15, -8.63], [41.16, -8.63], [41.16, -8.62]]
    >>> around = [[41.15, -8.63], [41.15, -8.62], [41.16, -8.62]]
    >>> two_routes([there, around], ["slow", "fast"], [0, 1]).rows[0]["km"]
    1.95
    """
    routes = [np.asarray(line, dtype=np.float64) for line in lines]
    everything = np.concatenate(routes)
    low, high = everything.min(axis=0), everything.max(axis=0)
    plane = Plane(*(0.5 * (low + high)).tolist())
    flat = [plane.xy(line[:, 0], line[:, 1]) / 1000.0 for line in routes]
    half = np.abs(np.concatenate(flat)).max(axis=0) + 0.25
    # Not so flat that it shows nothing, not so tall that it fills a page.
    half = np.maximum(half, half[::-1] * np.array([0.85, 0.55]))
    figure = blank(float(_ROUTES_WIDTH * half[1] / half[0]) + 0.45, _ROUTES_WIDTH)
    ax = figure.add_subplot()
    for points, width in streets:
        at = np.asarray(points, dtype=np.float64).reshape(-1, 2)
        xy = plane.xy(at[:, 0], at[:, 1]) / 1000.0
        ax.plot(xy[:, 0], xy[:, 1], color=MUTED if width > 1.0 else RULE, linewidth=width, alpha=0.6, zorder=1)
    km = [float(np.hypot(*np.diff(line, axis=0).T).sum()) for line in flat]
    for line, name, intent, length in zip(flat, names, intents, km, strict=True):
        ax.plot(line[:, 0], line[:, 1], color=PAPER, linewidth=5.5, solid_capstyle="round", zorder=2)
        look = {"color": intent_colour(intent), "linewidth": 3.0, "solid_capstyle": "round"}
        ax.plot(line[:, 0], line[:, 1], label=f"{fitted(name, 40, 1)}, {length:.1f} km", zorder=3, **look)  # type: ignore[arg-type]
    _finish(ax, flat, half)
    figure.legend(loc="outside lower center", ncols=1)
    figure.set_figheight(float(figure.get_figheight()) + 0.2 * len(flat))
    rows: list[Row] = [
        {"route": name, "intent": intent, "km": round(length, 3), "points": len(line)}
        for name, intent, length, line in zip(names, intents, km, flat, strict=True)
    ]
    said = " and ".join(f"{name}: {length:.1f} km" for name, length in zip(names, km, strict=True))
    return Drawn(figure, rows, f"A map with {len(flat)} routes between nearly the same places. {said}.")


def _free_side(
    places: FloatArray, flat: Sequence[FloatArray], half: FloatArray
) -> tuple[FloatArray, tuple[float, float]]:
    """Return the place of a word and the side of it, right, left, above or below, on which fewest routes pass."""
    steps = np.linspace(0.0, 1.0, 30)[:, None, None]
    passed = np.concatenate([(line[:-1] + steps * np.diff(line, axis=0)).reshape(-1, 2) for line in flat] + [places])
    room = 0.13 * half[0]  # about the width of a word
    found: list[tuple[bool, int, int, FloatArray, tuple[float, float]]] = []
    for place in places:
        for side in ((1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0)):
            middle = place + room * np.array(side) * [1.0, 0.6]
            taken = int(np.all(np.abs(passed - middle) <= [0.85 * room, 0.4 * room], axis=1).sum())
            outside = bool(np.any(np.abs(middle) + np.array([room, 0.5 * room]) > half))
            found.append((outside, taken, len(found), place, side))
    *_, place, side = min(found, key=lambda one: one[:3])
    return place, side


def _finish(ax: Axes, flat: Sequence[FloatArray], half: FloatArray) -> None:
    for word, which, fill in (("start", 0, PAPER), ("end", -1, INK)):
        places = np.stack([line[which] for line in flat])
        ax.plot(*places.T, "o", color=INK, markerfacecolor=fill, markersize=7.0, markeredgewidth=1.6, zorder=4)
        at, side = _free_side(places, flat, half)
        ax.annotate(
            word,
            (at[0], at[1]),
            (9.0 * side[0], 10.0 * side[1]),
            textcoords="offset points",
            ha={1.0: "left", -1.0: "right"}.get(side[0], "center"),
            va={1.0: "bottom", -1.0: "top"}.get(side[1], "center"),
            bbox={"boxstyle": "round,pad=0.15", "facecolor": PAPER, "edgecolor": "none", "alpha": 0.85},
            zorder=5,
        )
    ax.set_xlim(-half[0], half[0])
    ax.set_ylim(-half[1], half[1])
    ax.set_aspect("equal")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)
    most = half[0] / 2.0
    power = 10.0 ** np.floor(np.log10(most))
    bar = float(max(part * power for part in (1.0, 2.0, 5.0) if part * power <= most))
    left, foot = -0.96 * half[0], -0.95 * half[1]
    ax.plot([left, left + bar], [foot, foot], color=INK, linewidth=1.6, zorder=6)
    words = f"{bar:g} km" if bar >= 1.0 else f"{1000.0 * bar:g} m"
    paper = {"boxstyle": "square,pad=0.1", "facecolor": PAPER, "edgecolor": "none", "alpha": 0.85}
    ax.annotate(words, (left, foot), (0.0, 4.0), textcoords="offset points", bbox=paper, zorder=6)


# Longer than this over the straight line is an errand, not a way of getting there.
_STRAIGHT = 2.2
_LEAST_M = 1500.0
_REACHES_M = (200.0, 400.0, 800.0)
# Pairs compared at most; they are taken in the order of the trips, so that the choice is the same each time.
_MOST_PAIRS = 20_000


@dataclass(frozen=True)
class Pair:
    """Two trips, and how alike they are.

    Attributes
    ----------
    first, second : int
        Numbers of the demonstrations.
    apart_m : float
        The larger of the distances between their starts and between their ends.
    shared : float
        Of the shorter one's length, the share that both drive.
    """

    first: int
    second: int
    apart_m: float
    shared: float


def find_pair(network: RoadNetwork, demos: Demonstrations, labels: ArrayLike) -> Pair | None:
    """Return the two trips of different labels between nearly the same ends that share least; None if there are none.

    Ends are at most 200 m apart, or 400 or 800 where no pair is nearer. Trips shorter than 1.5 km, or more than 2.2
    times as long as the straight line, are left out.

    Examples
    --------
    >>> lat, lon = [41.15, 41.15, 41.17, 41.17], [-8.63, -8.61, -8.61, -8.63]
    >>> square = RoadNetwork.from_segments(lat, lon, [0, 1, 0, 3], [1, 2, 3, 2])
    >>> find_pair(square, Demonstrations([0, 1, 2, 3], [0, 2, 4]), [0, 1])
    Pair(first=0, second=1, apart_m=0.0, shared=0.0)
    """
    who = np.asarray(labels, dtype=np.int64)
    states, offsets = demos.states, demos.offsets
    start = network.node_xy[network.tail[states[offsets[:-1]]]]
    end = network.node_xy[network.head[states[offsets[1:] - 1]]]
    total = np.concatenate([[0.0], np.cumsum(network.length_m[states])])
    length = np.diff(total[offsets])
    straight = np.hypot(*(end - start).T)
    usable = np.flatnonzero((length >= _LEAST_M) & (length <= _STRAIGHT * np.maximum(straight, 1.0)))
    for reach in _REACHES_M:
        best: Pair | None = None
        for i, j in _near(start[usable], end[usable], who[usable], reach):
            one, two = int(usable[i]), int(usable[j])
            apart = float(max(np.hypot(*(start[one] - start[two])), np.hypot(*(end[one] - end[two]))))
            shared = _shared(network, demos, one, two, float(min(length[one], length[two])))
            if best is None or (shared, apart) < (best.shared, best.apart_m):
                best = Pair(one, two, apart, shared)
        if best is not None and best.shared < 0.5:
            return best
    return None


def _near(start: FloatArray, end: FloatArray, who: NDArray[np.int64], reach: float) -> list[tuple[int, int]]:
    """Return pairs of different labels whose starts and ends are within reach."""
    from scipy.spatial import cKDTree

    if len(start) < 2:
        return []
    # In four dimensions the distance bounds those of both ends.
    near = cKDTree(np.hstack([start, end])).query_pairs(np.sqrt(2.0) * reach, output_type="ndarray")
    near = near[np.lexsort((near[:, 1], near[:, 0]))]
    i, j = near[:, 0], near[:, 1]
    both = np.maximum(np.hypot(*(start[i] - start[j]).T), np.hypot(*(end[i] - end[j]).T)) <= reach
    kept = near[both & (who[i] != who[j])][:_MOST_PAIRS]
    return [(int(a), int(b)) for a, b in kept]


def _shared(network: RoadNetwork, demos: Demonstrations, one: int, two: int, shorter: float) -> float:
    a, b = (demos.states[demos.offsets[i] : demos.offsets[i + 1]] for i in (one, two))
    both = np.intersect1d(a, b)
    return float(network.length_m[both].sum() / shorter)
