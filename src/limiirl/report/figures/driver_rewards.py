"""The rewards of drivers by group of features, for each way EM was started: the plots of the paper's appendix F."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray

from limiirl.errors import InvalidParameter
from limiirl.report.figures.look import Drawn, Keywords, Row, blank, fitted, in_ink, intent_colour, legend, told
from limiirl.report.ink import INK, MUTED, RULE

Float = NDArray[np.float64]
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


def _block(start: str, panel: Panel, d: int) -> tuple[Float, Float, Float]:
    weights, level, thetas = (np.array(part, dtype=np.float64) for part in panel)
    if thetas.shape != (len(weights), d) or level.shape != weights.shape:
        raise InvalidParameter(
            f"a panel is weights (K,), level (K,) and thetas (K, {d}); {start!r} has {weights.shape}, {level.shape} "
            f"and {thetas.shape}."
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


def _level(ax: Axes, weights: Float, level: Float) -> None:
    for k, (share, value) in enumerate(zip(weights, level, strict=True)):
        if np.isfinite(value):
            ax.plot([value, value], [-0.4, 0.4], **_look(k, float(share)))
    ax.set_ylim(-0.7, 0.7)
    _bare(ax)


def _body(
    ax: Axes,
    weights: Float,
    thetas: Float,
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


def _share(axes: Sequence[Axes], values: Float, *, zero: bool = False) -> None:
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    room = 0.1 * (high - low) or 0.5
    for ax in axes:
        ax.set_xlim(low - room, high + room)


def _rows(
    start: str,
    weights: Float,
    level: Float,
    thetas: Float,
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
    blocks: Mapping[str, tuple[Float, Float, Float]], feature_names: Sequence[str], kept: NDArray[np.bool_]
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
