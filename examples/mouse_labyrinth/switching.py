"""Switching intents on whole bouts: `python -m examples.mouse_labyrinth.switching --data FOLDER --out FOLDER`.

Bouts are not cut into pieces. The intent of each move is a Markov chain (`ll.SwitchingMixture`). Water restriction is
compared between mice, each of which is described by intents that were fitted without it. The folder of --data must
contain bouts.csv, as for `python -m examples.mouse_labyrinth`; without --data, simulated mice are used.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure as Drawing
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

import limiirl as ll
from benchmarks.measure import describe_machine
from examples.mouse_labyrinth import drawing, maze, recordings, simulated
from examples.mouse_labyrinth.recordings import Recordings
from limiirl.metrics import GroupComparison, compare_groups
from limiirl.report import Cell, Code, Facts, Figure, Report, Section, Table, Text, write
from limiirl.report.svg import INK, MUTED, RULE, WIDE
from limiirl.switching import SwitchingSelection

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Log = Callable[[str], None]

RESTRICTED, FREE = "restricted", "unrestricted"
PLACES = ("leaving the water port", "leaving another dead end", "levels 0 and 1", "levels 2 and 3", "levels 4 and 5")
"""Where a mouse is when it decides on a move."""


@dataclass(frozen=True)
class Settings:
    """Settings of the study; labels were not used to choose them.

    Attributes
    ----------
    n_intents : int
        Number of intents of the fits that are described.
    most, folds : int
        Maximum number of intents, and number of folds of whole mice, in the selection.
    gamma : float
        Discount.
    ridge : float
        Ridge per move.
    """

    n_intents: int = 3
    most: int = 5
    folds: int = 2
    gamma: float = 0.8
    ridge: float = 1e-4
    tol: float = 1e-5
    seed: int = 0

    def mixture(self, n_intents: int = 2, init: object = "kmeans") -> ll.SwitchingMixture:
        """Return an unfitted mixture with truncated M-steps."""
        return ll.SwitchingMixture(
            n_intents,
            ll.MaxCausalEnt(ridge=self.ridge),
            init=init,
            tol=self.tol,
            max_evaluations=10,
            random_state=self.seed,
        )


@dataclass(frozen=True, eq=False)
class Findings:
    """Results of the study.

    Attributes
    ----------
    selection : SwitchingSelection
    mixture : SwitchingMixture
        Fitted to all bouts, with intents in decreasing order of their rate of visits to the water port.
    path : (n,)
        Most probable intent of each move.
    held_out : (M,)
        Log-likelihood per move of each mouse under the fit without it.
    quantities : dict of str to (M,)
        Shares of moves, dwell times and switching rate of each mouse, under the fit without it.
    comparison, within : GroupComparison
        Comparison of restricted mice with the others: of all mice, and of the mice of batch B only (None if there is
        no such batch).
    """

    recordings: Recordings
    settings: Settings
    demos: ll.Demonstrations
    selection: SwitchingSelection
    mixture: ll.SwitchingMixture
    path: Int
    held_out: Float
    quantities: dict[str, Float]
    comparison: GroupComparison
    within: GroupComparison | None

    @property
    def K(self) -> int:
        """Number of intents."""
        return len(self.mixture.initial_)


def make_demos(recorded: Recordings) -> ll.Demonstrations:
    """Return whole bouts as states of `maze.steps_mdp`; the group of a bout is its mouse."""
    demos = ll.Demonstrations.from_lists([maze.steps_of(nodes) for nodes in recorded.bouts])
    return demos.replace(groups=recorded.mouse)


def run(recorded: Recordings, settings: Settings, log: Log) -> Findings:
    """Run the whole study; the labels of mice are used only after all fits."""
    mdp, demos = maze.steps_mdp(settings.gamma), make_demos(recorded)
    log(f"{len(recorded.mice)} mice, {len(demos)} bouts, {demos.n_transitions} moves")
    selection = ll.select_switching(
        mdp,
        demos,
        range(1, settings.most + 1),
        mixture=settings.mixture(),
        groups=recorded.mouse,
        folds=settings.folds,
        n_errors=0.0,
        progress=lambda done, total, what: log(f"selecting the number of intents: {done} of {total}, {what}"),
    )
    log(f"fitting {settings.n_intents} intents to all bouts")
    first = settings.mixture(settings.n_intents).fit(mdp, demos)
    mixture = reorder(first, order_by_water(demos, first.predict_proba(demos)), mdp, demos, settings)
    held_out, quantities = leave_mice_out(mdp, recorded, demos, mixture, settings, log)
    condition = np.where(recorded.labels, RESTRICTED, FREE)
    own = recorded.batches == "B"
    within = None
    if np.unique(condition[own]).size == 2:
        part = {name: values[own] for name, values in quantities.items()}
        within = compare_groups(part, condition[own], groups=np.array(recorded.mice)[own])
    comparison = compare_groups(quantities, condition, groups=recorded.mice)
    path = mixture.predict(demos)
    return Findings(recorded, settings, demos, selection, mixture, path, held_out, quantities, comparison, within)


def moves_of(demos: ll.Demonstrations) -> tuple[Int, Int]:
    """Return the state before and after each move (n,)."""
    keep = np.ones(demos.n_steps, dtype=bool)
    keep[demos.offsets[1:] - 1] = False
    at = np.flatnonzero(keep)
    return demos.states[at], demos.states[at + 1]


def visits(demos: ll.Demonstrations, U: Float) -> Float:
    """Return the distribution of the visits of each intent over the nodes and the home cage (K, 128)."""
    _, after = moves_of(demos)
    counts = np.array([np.bincount(after, weights=u, minlength=maze.HOME + 1) for u in U.T]) @ maze.visit_matrix()
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def order_by_water(demos: ll.Demonstrations, U: Float) -> Int:
    """Return the intents (K,) in decreasing order of their rate of visits to the water port."""
    return np.argsort(-visits(demos, U)[:, maze.WATER], kind="stable")


def reorder(
    fitted: ll.SwitchingMixture, order: Int, mdp: ll.MDP, demos: ll.Demonstrations, settings: Settings
) -> ll.SwitchingMixture:
    """Return a fitted mixture with its intents in another order."""
    U = fitted.predict_proba(demos)[:, order]
    started = settings.mixture(len(order), init=U).fit(mdp, demos)
    return settings.mixture(len(order), init=started).fit(mdp, demos)


def leave_mice_out(
    mdp: ll.MDP, recorded: Recordings, demos: ll.Demonstrations, full: ll.SwitchingMixture, settings: Settings, log: Log
) -> tuple[Float, dict[str, Float]]:
    """Describe each mouse by intents that were fitted to the others; return the scores (M,) and quantities (M,).

    The fit without mouse i is initialised with intents fitted to the half of the mice that does not contain i. Its
    intents are matched to those of `full` by their posteriors of all moves.
    """
    K, mice = len(full.initial_), recorded.mice
    reference = full.predict_proba(demos)
    halves = [set(mice[0::2]), set(mice[1::2])]
    begun = []
    for half in halves:
        log(f"{K} intents of {len(half)} mice, to initialise the other half")
        begun.append(settings.mixture(K).fit(mdp, demos[np.isin(recorded.mouse, list(half))]))
    scores: list[float] = []
    columns: list[dict[str, Float]] = []
    for i, name in enumerate(mice):
        log(f"leaving out mouse {i + 1} of {len(mice)}")
        own = recorded.mouse == name
        fitted = settings.mixture(K, init=begun[1 if name in halves[0] else 0]).fit(mdp, demos[~own])
        _, order = linear_sum_assignment(-(reference.T @ fitted.predict_proba(demos)))
        scores.append(fitted.score(demos[own]))
        dynamics = fitted.group_dynamics(demos[own])
        shares, dwell = dynamics.shares[:, order], dynamics.dwell_times[:, order]
        values = {f"share of moves, intent {k}": shares[:, k] for k in range(K)}
        values |= {f"dwell time, intent {k}": dwell[:, k] for k in range(K)}
        columns.append(values | {"switches per 100 moves": dynamics.switching_rate})
    return np.array(scores), {name: np.concatenate([part[name] for part in columns]) for name in columns[0]}


def place_of(states: Int) -> Int:
    """Return the index in `PLACES` of the place of each state."""
    node, came = maze.node_of(states), maze.came_from(states)
    level = maze.LEVEL[np.maximum(node, 0)]
    return np.where(came == maze.WATER, 0, np.where(came >= maze.N_JUNCTIONS, 1, 2 + level // 2))


def switches_by_place(findings: Findings) -> tuple[Float, Float]:
    """Return the switches per 100 moves (P, K) into each intent by place, and the fraction (P,) of moves there.

    A switch is counted where the first move with the new intent begins.
    """
    demos, path, K = findings.demos, findings.path, findings.K
    before, _ = moves_of(demos)
    place = place_of(before)
    changed = np.append(False, path[1:] != path[:-1])
    changed[(demos.offsets[:-1] - np.arange(len(demos)))] = False
    n = np.bincount(place, minlength=len(PLACES)).astype(np.float64)
    table = np.zeros((len(PLACES), K))
    np.add.at(table, (place[changed], path[changed]), 1.0)
    return 100.0 * table / np.maximum(n, 1.0)[:, None], n / n.sum()


def share_over_time(findings: Findings, bins: int = 10) -> Float:
    """Return the fraction (bins, K) of moves per intent in consecutive parts of the sessions of all mice."""
    counts = np.zeros((bins, findings.K))
    offsets = findings.demos.offsets - np.arange(len(findings.demos) + 1)
    for name in findings.recordings.mice:
        own = np.flatnonzero(findings.recordings.mouse == name)
        path = np.concatenate([findings.path[offsets[i] : offsets[i + 1]] for i in own])
        part = np.arange(path.size) * bins // path.size
        np.add.at(counts, (part, path), 1.0 / path.size)
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def intent_rows(findings: Findings) -> list[tuple[str, list[float]]]:
    """Return statistics of the intents as (name, one value per intent)."""
    demos, mixture = findings.demos, findings.mixture
    U = mixture.predict_proba(demos)
    seen, (before, after) = visits(demos, U), moves_of(demos)
    turns = maze.habits(before, after)[:, 0]
    level = np.append(maze.LEVEL, -1)
    reward = np.array([maze.reward_map(theta) for theta in mixture.thetas_])
    lengths = mixture.dwell_times(demos)
    return [
        ("fraction of moves, %", (100.0 * mixture.shares_).tolist()),
        ("expected dwell time, moves", mixture.dwell_times_.tolist()),
        ("median segment, moves", lengths.median.tolist()),
        ("water per 1,000 visits", (1000.0 * seen[:, maze.WATER]).tolist()),
        ("home per 1,000", (1000.0 * seen[:, -1]).tolist()),
        ("mean depth", (seen @ level).tolist()),
        ("turns around, %", (100.0 * (turns @ U) / U.sum(axis=0)).tolist()),
        ("reward of the water port", reward[:, maze.WATER].tolist()),
        ("reward of the home cage", reward[:, -1].tolist()),
        ("reward of turning around", mixture.thetas_[:, -len(maze.HABITS)].tolist()),
    ]


def format_text(findings: Findings) -> str:
    """Return all numbers as text."""
    r, demos = findings.recordings, findings.demos
    given = findings.settings
    lines = [
        f"{len(r.mice)} mice ({int(r.labels.sum())} water restricted), {len(demos)} bouts, {demos.n_transitions} moves",
        f"whole bouts; discount {given.gamma:g}, ridge {given.ridge:g} per move",
        f"select_switching, {findings.settings.folds} folds of whole mice",
        str(findings.selection),
        f"leave one mouse out, {findings.K} intents: {findings.held_out.mean():.4f} nats per move, mean over mice",
        f"{findings.K} intents, fitted to all bouts, in decreasing order of water visits",
    ]
    lines += [f"  {name:28}" + "".join(f"{x:9.2f}" for x in values) for name, values in intent_rows(findings)]
    lines.append("probability of the next intent (rows: current intent)")
    lines += ["  " + "".join(f"{x:9.4f}" for x in row) for row in findings.mixture.transition_]
    rates, fractions = switches_by_place(findings)
    lines.append("switches per 100 moves into each intent, by place")
    for name, row, fraction in zip(PLACES, rates, fractions, strict=True):
        cells = "".join(f"{x:9.2f}" for x in row)
        lines.append(f"  {name:28}{cells}   total {row.sum():6.2f}   {100 * fraction:4.1f} % of moves")
    lines.append("fraction of moves per intent in ten parts of the sessions, %")
    lines += [
        f"  intent {k}" + "".join(f"{100 * x:7.1f}" for x in part) for k, part in enumerate(share_over_time(findings).T)
    ]
    lines += ["water restriction, each mouse described by a fit without it", str(findings.comparison)]
    if findings.within is not None:
        lines += ["the same, mice of batch B only", str(findings.within)]
    return "\n".join(lines)


def plot_quantities(findings: Findings) -> Figure:
    """Return the dwell times, shares and switching rates of the mice by condition, one dot per mouse."""
    names = list(findings.quantities)
    labels = findings.recordings.labels

    def draw() -> Drawing:
        columns = findings.K
        lines = -(-len(names) // columns)
        figure = Drawing(figsize=(WIDE, 1.9 * lines))
        for j, name in enumerate(names):
            ax = figure.add_subplot(lines, columns, j + 1)
            for row, group in enumerate((labels, ~labels)):
                values = np.sort(findings.quantities[name][group])
                jitter = (np.arange(values.size) * 3 % 7 - 3) / 25.0
                ax.plot(values, row + jitter, "oD"[row], color=(drawing.colour(0), MUTED)[row], markersize=3.5)
                ax.plot([values.mean()] * 2, [row - 0.3, row + 0.3], color=INK, linewidth=1.6)
            ax.set_yticks([0, 1], [RESTRICTED, FREE] if j % columns == 0 else ["", ""])
            ax.set(ylim=(1.6, -0.6), title=name)
            ax.tick_params(axis="y", length=0)
            ax.grid(axis="x", color=RULE)
        return figure

    rows = [row for row in findings.comparison.rows if row.p_corrected < 0.05]
    listed = "; ".join(f"{row.quantity} (p = {row.p_corrected:.2g})" for row in rows) or "none"
    data: dict[str, Sequence[object]] = {"mouse": findings.recordings.mice, "restricted": labels.tolist()}
    data |= {name: values.tolist() for name, values in findings.quantities.items()}
    alt = f"One dot per mouse and quantity, by condition. Different after the Holm correction: {listed}."
    caption = "Each mouse is described by intents that were fitted without it. Lines: means over mice."
    return Figure("quantities", "Dwell times, shares and switching rates", alt, caption, draw, data)


def plot_bouts(findings: Findings, n_bouts: int = 12, most: int = 300) -> Figure:
    """Return the most probable intents of the longest bout of each of several mice, up to `most` moves."""
    r, offsets = findings.recordings, findings.demos.offsets - np.arange(len(findings.demos) + 1)
    longest = [max(np.flatnonzero(r.mouse == name).tolist(), key=lambda i: len(r.bouts[i])) for name in r.mice]
    chosen = sorted(longest, key=lambda i: (not r.restricted[str(r.mouse[i])], str(r.mouse[i])))
    chosen = [*chosen[: n_bouts // 2], *chosen[-(n_bouts // 2) :]]
    paths = [findings.path[offsets[i] : offsets[i + 1]][:most] for i in chosen]
    _, after = moves_of(findings.demos)
    water = [np.flatnonzero(maze.came_from(after[offsets[i] : offsets[i + 1]][:most]) == maze.WATER) for i in chosen]

    def draw() -> Drawing:
        figure = Drawing(figsize=(WIDE, 0.9 + 0.28 * len(chosen)))
        ax = figure.add_subplot()
        for y, (path, drunk) in enumerate(zip(paths, water, strict=True)):
            for k in range(findings.K):
                at = np.flatnonzero(path == k)
                ax.broken_barh([(int(t), 1) for t in at], (y - 0.4, 0.8), color=drawing.colour(k), linewidth=0)
            ax.plot(drunk + 0.5, np.full(drunk.size, y), "o", color=INK, markersize=2.2)
        names = [f"{r.mouse[i]}, {RESTRICTED if r.restricted[str(r.mouse[i])] else FREE}" for i in chosen]
        ax.set_yticks(range(len(chosen)), names)
        ax.tick_params(axis="y", length=0)
        ax.set(
            xlim=(0, most), ylim=(len(chosen) - 0.4, -0.6), xlabel="move of the bout (dots: visits to the water port)"
        )
        handles = [ax.plot([], [], "s", color=drawing.colour(k), label=f"intent {k}")[0] for k in range(findings.K)]
        figure.legend(handles=handles, loc="outside upper center", ncols=findings.K)
        return figure

    data = {
        "mouse": [str(r.mouse[i]) for i in chosen],
        "bout": chosen,
        "intents": ["".join(map(str, path.tolist())) for path in paths],
    }
    alt = f"The first {most} moves of the longest bouts of {len(chosen)} mice, coloured by the most probable intent."
    return Figure("bouts", "Most probable intents of the longest bouts", alt, "Viterbi sequences.", draw, data)


def report(findings: Findings, folder: Path | None, command: str) -> Report:
    """Return the page."""
    K, mixture = findings.K, findings.mixture
    outline = drawing.walls(folder)
    rewards = np.array([maze.reward_map(theta) for theta in mixture.thetas_])
    titles = [
        f"intent {k}: {100 * share:.0f} %, {dwell:.1f} moves"
        for k, (share, dwell) in enumerate(zip(mixture.shares_, mixture.dwell_times_, strict=True))
    ]
    caption = "Learned reward of each node. The ring marks the water port, the square is the home cage."
    heads = ["", *(f"intent {k}" for k in range(K))]
    rates, fractions = switches_by_place(findings)
    places: list[list[Cell | str | float | None]] = [
        [name, *(Cell.number(x, 2) for x in row), Cell.number(row.sum(), 2), Cell.percent(fraction)]
        for name, row, fraction in zip(PLACES, rates, fractions, strict=True)
    ]
    statistics: list[list[Cell | str | float | None]] = [
        [name, *(Cell.number(x, 2) for x in values)] for name, values in intent_rows(findings)
    ]
    sections = [
        Section(
            "The intents",
            [
                drawing.maps("rewards", "Reward maps", caption, rewards, titles, "reward", outline),
                Table("intents", "Statistics of the intents", "", heads, statistics),
            ],
            lead="Intents are fitted to whole bouts without labels and ordered by visits to the water port.",
        ),
        Section(
            "When mice switch",
            [
                plot_bouts(findings),
                Table(
                    "places",
                    "Switches by place",
                    "Switches per 100 moves into each intent, by the place where the new intent begins.",
                    ["Place", *heads[1:], "total", "moves there"],
                    places,
                ),
            ],
        ),
        Section("Water restriction", [plot_quantities(findings), Code(str(findings.comparison), "Comparison")]),
        Section("Number of intents", [Code(str(findings.selection), "select_switching")]),
    ]
    facts = {"discount": findings.settings.gamma, "ridge per move": findings.settings.ridge}
    kind = "simulated mice" if findings.recordings.intents is not None else "mice"
    return Report(
        f"Switching intents of {kind} in a labyrinth",
        f"{K} intents in {len(findings.demos)} whole bouts of {len(findings.recordings.mice)} mice.",
        sections,
        methods=[
            Facts(facts),
            Text("Each mouse is described by a fit to the other mice; labels are used only after all fits."),
            Code(command, "Command"),
        ],
        highlights={"mice": len(findings.recordings.mice), "moves": f"{findings.demos.n_transitions:,}", "intents": K},
    )


def main(arguments: list[str] | None = None) -> Path:
    """Run the study, write the page and numbers.txt, and return the path of the page."""
    parser = argparse.ArgumentParser("python -m examples.mouse_labyrinth.switching", description=__doc__)
    parser.add_argument("--data", type=Path, help="folder that contains bouts.csv (default: simulate mice)")
    parser.add_argument("--out", type=Path, default=Path("labyrinth"), help="folder of the page (default: labyrinth)")
    given = parser.parse_args(arguments)
    start = time.monotonic()

    def log(text: str) -> None:
        sys.stderr.write(f"{time.monotonic() - start:6.1f} s  {text}\n")

    settings = Settings() if given.data is not None else Settings(most=2)
    recorded = recordings.read(given.data) if given.data is not None else simulated.simulate(settings.gamma)
    findings = run(recorded, settings, log)
    call = f"python -m examples.mouse_labyrinth.switching{'' if given.data is None else ' --data FOLDER'} --out FOLDER"
    written = write(report(findings, given.data, call), given.out)
    text = f"switching intents in the labyrinth: {call}\n{describe_machine()}\n{format_text(findings)}\n"
    (given.out / "numbers.txt").write_text(text, encoding="utf-8")
    sys.stdout.write(f"{text}{written}\n")
    return written


if __name__ == "__main__":
    main()
