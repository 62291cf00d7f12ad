"""Figure 1 (middle) of the paper for one's own data: intents in feature space, and the margins between them.

Importing this imports matplotlib.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

if TYPE_CHECKING:
    from limiirl.theory.separation import Separation

Float = NDArray[np.float64]

# Okabe and Ito's colours, told apart by most kinds of colour vision; more intents than these repeat them.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#f0e442", "#000000")
_OTHERS, _GAP, _OVERLAP = "#999999", "#009e73", "#d55e00"


def draw(found: Separation) -> Figure:
    """Draw the plane of the first two principal components, and the projections on each cluster's mean beside it.

    A ring marks a demonstration whose cluster is not that of its intent. On the right, as in the paper's figure, all
    demonstrations are projected on Phi_k: the band between an intent's own and all others is green where they are
    apart and red where they overlap.
    """
    n_intents = found.names.size
    figure = plt.figure(figsize=(10.0, max(4.0, 1.1 * n_intents + 1.6)), layout="constrained")
    grid = figure.add_gridspec(n_intents, 2, width_ratios=(1.1, 1.0))
    _draw_plane(found, figure.add_subplot(grid[:, 0]))
    shared: Axes | None = None
    for k in range(n_intents):
        ax = figure.add_subplot(grid[k, 1], sharex=shared)
        shared = shared or ax
        _draw_projection(found, k, ax)
        ax.tick_params(labelbottom=k == n_intents - 1)
    ax.set_xlabel("projection on the cluster's mean, in units of the features", fontsize=8)
    verdict = "theorem 1 applies" if found.guaranteed else "theorem 1 does not apply"
    figure.suptitle(
        f"clusters are {100 * found.purity:.3g} % pure, realised epsilon {found.epsilon:.2g}; {verdict}", fontsize=10
    )
    return figure


def _draw_plane(found: Separation, ax: Axes) -> None:
    axes, shares = _components(found.features)
    where, means = found.features @ axes.T, found.means @ axes.T
    for k, name in enumerate(found.names.tolist()):
        mine, colour = found.labels == k, _colour(k)
        ax.plot(*where[mine].T, "o", markersize=5, color=colour, alpha=0.5, markeredgewidth=0.0, label=f"intent {name}")
        ax.annotate(
            "", means[k], (0.0, 0.0), arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 2}, zorder=3
        )
    wrong = found.labels != found.clusters
    if np.any(wrong):
        ax.plot(*where[wrong].T, "o", markersize=9, markerfacecolor="none", color="black", label="in another cluster")
    ax.plot(0.0, 0.0, "+", color="black", markersize=9)
    ax.set_aspect("equal", adjustable="datalim")
    ax.set_title("demonstrations, centred; arrows: means of clusters", fontsize=9)
    for side, label, share in (("x", "first", shares[0]), ("y", "second", shares[1])):
        getattr(ax, f"set_{side}label")(f"{label} principal component ({100 * share:.0f} % of variance)", fontsize=8)
    ax.legend(fontsize=8, frameon=False)
    _plain(ax)


def _draw_projection(found: Separation, k: int, ax: Axes) -> None:
    """Draw all demonstrations along Phi_k, intent k's own above the others."""
    mean, gap = found.means[k], float(found.gaps[k])
    along = found.features @ mean / max(float(np.linalg.norm(mean)), 1e-300)
    mine = found.labels == k
    # Spread over the row by rank, so that equal projections stay visible without chance in the picture.
    spread = np.argsort(np.argsort(along, kind="stable"), kind="stable") % 7 / 20.0
    ax.plot(along[mine], 0.6 + spread[mine], "o", color=_colour(k), markersize=4, alpha=0.5, markeredgewidth=0.0)
    ax.plot(along[~mine], spread[~mine], "o", color=_OTHERS, markersize=4, alpha=0.5, markeredgewidth=0.0)
    low, high = float(along[mine].min()), float(along[~mine].max())
    ax.axvspan(min(low, high), max(low, high), color=_GAP if gap > 0.0 else _OVERLAP, alpha=0.15, linewidth=0.0)
    for edge in (low, high):
        ax.axvline(edge, color="black", linewidth=0.8, linestyle="--")
    told = f"apart by {gap:.3g}" if gap > 0.0 else f"overlap by {-gap:.3g}"
    ax.set_title(f"intent {found.names[k].item()}: {told} on its mean", fontsize=9)
    ax.set_ylim(-0.1, 1.0)
    ax.set_yticks([0.15, 0.75], ["others", "its own"], fontsize=8)
    _plain(ax)


def _components(points: Float) -> tuple[Float, Float]:
    """Return two directions (2, d) of most variance, and their shares of it; zeros where there is one feature only."""
    _, scale, rows = np.linalg.svd(points, full_matrices=False)
    axes, variance = np.zeros((2, points.shape[1])), np.zeros(2)
    n = min(2, len(rows))
    # A direction's sign is arbitrary: its largest entry is positive, so that the same data give the same picture.
    largest = rows[np.arange(n), np.abs(rows[:n]).argmax(axis=1)]
    axes[:n] = rows[:n] * np.where(largest < 0.0, -1.0, 1.0)[:, None]
    variance[:n] = scale[:n] ** 2
    return axes, variance / max(float(np.sum(scale**2)), 1e-300)


def _colour(k: int) -> str:
    return _COLOURS[k % len(_COLOURS)]


def _plain(ax: Axes) -> None:
    ax.tick_params(labelsize=8)
    ax.spines[["top", "right"]].set_visible(False)
