"""Figures of the report: reward and visit maps, proportions of intents per mouse, and one bout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.figure import Figure as Drawing
from numpy.typing import NDArray

from examples.mouse_labyrinth import maze, study
from limiirl.report import Figure
from limiirl.report.svg import INK, MUTED, PAPER, RULE, SERIES, WIDE

Float = NDArray[np.float64]
_COLUMNS = 3


def colour(k: int) -> str:
    """Return the colour of an intent."""
    return SERIES[k % len(SERIES)]


def walls(folder: Path | None) -> Float | None:
    """Return the outline of the walls (n, 2) from walls_xy.csv, or None if the folder has no such file."""
    path = None if folder is None else folder / "walls_xy.csv"
    return np.loadtxt(path, delimiter=",", skiprows=1) if path is not None and path.is_file() else None


def corridors(ax: Axes, outline: Float | None = None) -> Float:
    """Draw the corridors of the maze, and return the positions of the nodes (127, 2)."""
    xy = maze.h_tree()
    if outline is not None:
        ax.plot(*outline.T, color=RULE, linewidth=0.6, zorder=0)
    pairs = [(xy[n], xy[maze.parent(n)]) for n in range(1, maze.N_NODES)]
    ax.add_collection(LineCollection([*pairs, (xy[0], (-1.0, 7.0))], colors=RULE, linewidths=2.4, zorder=0.5))
    ax.set(xlim=(-1.7, 14.7), ylim=(14.8, -0.8), aspect="equal", xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    return xy


def node_map(ax: Axes, values: Float, limit: float, outline: Float | None) -> PathCollection:
    """Colour the 127 nodes and the home cage by `values` (red: positive, blue: negative); mark the water port."""
    xy = corridors(ax, outline)
    scale: dict[str, Any] = {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit, "linewidth": 0.5, "zorder": 2}
    size = 22.0 + 8.0 * (5 - np.minimum(maze.LEVEL, 5))
    dots = ax.scatter(xy[:, 0], xy[:, 1], size, values[:-1], edgecolors=MUTED, **scale)
    ax.scatter([-1.0], [7.0], [70.0], values[-1:], marker="s", edgecolors=INK, **scale)
    ax.plot(*xy[maze.WATER], "o", markersize=9.5, markerfacecolor="none", color=INK, markeredgewidth=1.2, zorder=3)
    return dots


def maps(
    name: str, title: str, caption: str, values: Float, titles: Sequence[str], label: str, outline: Float | None
) -> Figure:
    """Return a figure with one maze per intent, coloured by values (K, 128)."""
    # Clip the colour range, so that one intent does not dominate it.
    limit = float(np.quantile(np.abs(values), 0.9))

    def draw() -> Drawing:
        columns = min(_COLUMNS, len(values))
        lines = -(-len(values) // columns)
        figure = Drawing(figsize=(WIDE, 0.4 + lines * (WIDE / columns + 0.2)))
        axes = [figure.add_subplot(lines, columns, k + 1) for k in range(len(values))]
        for k, ax in enumerate(axes):
            dots = node_map(ax, values[k], limit, outline)
            ax.set_title(titles[k], color=colour(k))
        bar = figure.colorbar(
            dots, ax=axes, location="bottom", shrink=0.5, aspect=40, pad=0.02, label=label, extend="both"
        )
        bar.outline.set_visible(False)
        return figure

    places = [*(str(n) for n in range(maze.N_NODES)), "home"]
    data: dict[str, Sequence[object]] = {"node": places}
    data |= {f"intent {k}": row.tolist() for k, row in enumerate(values)}
    best = "; ".join(f"intent {k}: {places[int(np.argmax(row))]}" for k, row in enumerate(values))
    alt = f"The labyrinth drawn {len(values)} times, with nodes coloured by {label}. Highest value: {best}."
    return Figure(name, title, alt, caption, draw, data)


def shares_by_mouse(findings: study.Findings) -> Figure:
    """Return stacked bars of the moves of each mouse by intent, with water-restricted mice at the top."""
    mice, labels = np.array(findings.recordings.mice), findings.recordings.labels
    order = np.lexsort((findings.shares[:, 0], labels))

    def draw() -> Drawing:
        # The minimum height leaves room for the labels of both groups.
        figure = Drawing(figsize=(WIDE, max(4.0, 0.9 + 0.2 * len(mice))))
        ax = figure.add_subplot()
        # A gap between the two groups.
        y = np.arange(len(mice)) + 0.8 * labels[order]
        left = np.zeros(len(mice))
        for k in range(findings.shares.shape[1]):
            width = 100.0 * findings.shares[order, k]
            ax.barh(
                y, width, left=left, height=0.8, color=colour(k), label=f"intent {k}", edgecolor=PAPER, linewidth=0.5
            )
            left += width
        ax.set_yticks(y, mice[order])
        ax.tick_params(axis="y", length=0)
        ax.set(xlim=(0, 100), xlabel="fraction of moves, %", ylim=(-0.6, y[-1] + 0.6))
        n_free = int(np.sum(~labels))
        for words, place in (("water ad libitum", (n_free - 1) / 2), ("water restricted", y[n_free:].mean())):
            ax.text(1.01, place, words, transform=ax.get_yaxis_transform(), rotation=270, va="center", color=MUTED)
        figure.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=findings.shares.shape[1])
        return figure

    means = [f"intent {k}: {100 * a:.0f} % and {100 * b:.0f} %" for k, (a, b) in enumerate(group_means(findings))]
    alt = f"Stacked bars, one per mouse. Means over restricted and over other mice: {'; '.join(means)}."
    data: dict[str, Sequence[object]] = {"mouse": mice[order].tolist(), "restricted": labels[order].tolist()}
    data |= {f"intent {k}": findings.shares[order, k].tolist() for k in range(findings.shares.shape[1])}
    caption = "From a fit to all mice without labels. Within each group, mice are sorted by their fraction of intent 0."
    return Figure("shares", "Each mouse's moves by intent", alt, caption, draw, data)


def group_means(findings: study.Findings) -> list[tuple[float, float]]:
    """Return the mean fraction of moves per intent of restricted and of other mice."""
    labels = findings.recordings.labels
    means = (findings.shares[chosen].mean(axis=0).tolist() for chosen in (labels, ~labels))
    return list(zip(*means, strict=True))


def against_counting(findings: study.Findings) -> Figure:
    """Return a scatter plot of the fraction of intent 0 against the rate of water visits, one point per mouse."""
    labels, mice = findings.recordings.labels, findings.recordings.mice
    own = 100.0 * np.array([findings.shares_without[i][i, 0] for i in range(len(mice))])
    rate = 1000.0 * study.water_rate(findings.pieces, mice)

    def draw() -> Drawing:
        figure = Drawing(figsize=(5.0, 3.6))
        ax = figure.add_subplot()
        for group, marker, words in ((labels, "o", "water restricted"), (~labels, "D", "water ad libitum")):
            tone = colour(0) if marker == "o" else MUTED
            ax.plot(rate[group], own[group], marker, color=tone, label=words, markersize=5)
        for i, name in enumerate(mice):
            ax.annotate(name, (rate[i], own[i]), (4, 3), textcoords="offset points", fontsize=6.5, color=MUTED)
        ax.set(xlabel="visits to the water port per 1,000 visits", ylabel="fraction of intent 0, %")
        ax.grid(color=RULE)
        ax.legend(loc="upper left")
        return figure

    r = float(np.corrcoef(rate, own)[0, 1])
    alt = f"One point per mouse: fraction of intent 0 against the rate of water visits, correlation {r:.2f}."
    caption = f"Fractions from the fit without that mouse. Correlation {r:.2f}."
    data = {"mouse": mice, "restricted": labels.tolist(), "rate": rate.tolist(), "share": own.tolist()}
    return Figure("counting", "Intent 0 against counting water visits", alt, caption, draw, data)


def over_time(findings: study.Findings, bins: int = 10) -> Figure:
    """Return a line plot of the fraction of moves per intent over the session."""
    K = findings.U.shape[1]
    part = np.minimum((findings.pieces.time * bins).astype(int), bins - 1)
    weight = findings.U * findings.pieces.moves[:, None]
    sums = np.array([weight[part == i].sum(axis=0) for i in range(bins)])
    shares = 100.0 * sums / sums.sum(axis=1, keepdims=True)

    def draw() -> Drawing:
        figure = Drawing(figsize=(5.0, 3.2))
        ax = figure.add_subplot()
        for k in range(K):
            ax.plot(
                100.0 * (np.arange(bins) + 0.5) / bins,
                shares[:, k],
                "o-",
                color=colour(k),
                markersize=3.5,
                label=f"intent {k}",
            )
        ax.set(xlabel="completed moves of the mouse, %", ylabel="fraction of moves, %", xlim=(0, 100), ylim=(0, None))
        ax.grid(color=RULE)
        figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=3)
        return figure

    ends = "; ".join(f"intent {k} from {shares[0, k]:.0f} to {shares[-1, k]:.0f} %" for k in range(K))
    data: dict[str, Sequence[object]] = {"part": list(range(bins))}
    data |= {f"intent {k}": shares[:, k].tolist() for k in range(K)}
    caption = "All mice together. The recordings contain no times, so time is measured in moves."
    return Figure(
        "time",
        "Intents over the session",
        f"One line per intent over {bins} parts of the session: {ends}.",
        caption,
        draw,
        data,
    )


def one_bout(findings: study.Findings, outline: Float | None) -> Figure:
    """Return one bout of 8 to 12 pieces, coloured by intent; the bout with the most varied intents is chosen."""
    counts = np.bincount(findings.pieces.bout, minlength=len(findings.recordings.bouts))
    fit = np.flatnonzero((counts >= 8) & (counts <= 12)).tolist() or [int(np.argmax(counts))]
    chosen = max(fit, key=lambda i: float(-np.sum(np.square(findings.U[findings.pieces.bout == i].mean(axis=0)))))
    own = np.flatnonzero(findings.pieces.bout == chosen)
    labels = np.argmax(findings.U[own], axis=1)

    def draw() -> Drawing:
        columns = 4
        lines = -(-len(own) // columns)
        figure = Drawing(figsize=(WIDE, lines * (WIDE / columns + 0.15)))
        for place, (i, k) in enumerate(zip(own, labels, strict=True)):
            ax = figure.add_subplot(lines, columns, place + 1)
            xy = corridors(ax, outline)
            nodes = maze.nodes_of(findings.pieces.states[i])
            # Shift the path gradually off the centre of the corridor, so that overlapping moves stay visible.
            path = xy[nodes] + np.linspace(-0.18, 0.18, len(nodes))[:, None]
            ax.plot(*path.T, color=colour(int(k)), linewidth=1.3)
            ax.plot(*path[0], "o", color=colour(int(k)), markersize=4)
            ax.plot(*xy[maze.WATER], "o", markersize=8, markerfacecolor="none", color=INK, markeredgewidth=1.0)
            ax.set_title(
                f"{place + 1}. intent {k} ({100 * findings.U[i, k]:.0f} %)", color=colour(int(k)), fontsize=8.5
            )
        return figure

    listed = ", ".join(map(str, labels))
    mouse = findings.recordings.mouse[chosen]
    alt = f"A bout of mouse {mouse} in {len(own)} small mazes, one per piece; the intents in order: {listed}."
    caption = (
        f"Bout {chosen}, mouse {mouse}, {len(findings.recordings.bouts[chosen])} visits. A piece starts "
        "at its dot; the posterior probability of its intent is in brackets."
    )
    data = {"piece": own.tolist(), "intent": labels.tolist(), "sure": findings.U[own, labels].tolist()}
    return Figure("bout", "One bout, piece by piece", alt, caption, draw, data)


def criteria(findings: study.Findings) -> Figure:
    """Return the selection criteria for each number of intents."""
    rows = findings.selection.rows
    names = ("n_intents", "behind", "behind_se", "bic", "icl", "aic", "stability")
    data = {name: [getattr(row, name) for row in rows] for name in names}
    draw: Callable[[], Drawing] = findings.selection.plot
    alt = f"Panels of criteria for 1 to {rows[-1].n_intents} intents; {findings.selection.recommended} are recommended."
    return Figure("criteria", "Number of intents", alt, "Computed with `select_intents`.", draw, data)
