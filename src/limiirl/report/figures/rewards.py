"""The rewards of each intent, feature by feature: the true ones, and what was learned."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from limiirl.errors import InvalidParameter
from limiirl.report.figures.look import Drawn, Row, fitted, in_ink, intent_colour, legend, panels, told
from limiirl.report.figures.memberships import dumbbell, dumbbell_key
from limiirl.report.ink import INK, MUTED, RULE

Float = NDArray[np.float64]


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


def _share_x(axes: Sequence[Axes], values: Float) -> None:
    known = values[np.isfinite(values)]
    low, high = (min(float(known.min()), 0.0), max(float(known.max()), 0.0)) if known.size else (0.0, 1.0)
    room = 0.07 * ((high - low) or 1.0)
    for ax in axes:
        ax.set_xlim(low - room, high + room)


def _rows(block: Float, n: int) -> Float:
    """Return a block of n rows, those that it lacks NaN."""
    return np.concatenate([block, np.full((n - len(block), block.shape[1]), np.nan)])


def _matrix(values: ArrayLike, name: str, d: int) -> Float:
    found = np.array(values, dtype=np.float64)
    if found.ndim != 2 or found.shape[1] != d:
        raise InvalidParameter(f"{name} must have shape (K, {d}), a column a feature; got shape {found.shape}.")
    return found
