"""The findings as text and as a page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from examples.mouse_labyrinth import drawing, maze, study
from examples.mouse_labyrinth.prediction import Prediction
from examples.mouse_labyrinth.simulated import INTENTS
from limiirl.report import Callout, Cell, Code, Facts, Fold, Grid, Report, Section, Table, Text, literal

Row = list[Cell | str | float | None]


def intent_rows(found: study.Findings) -> list[dict[str, float]]:
    """Return what the pieces of each intent do."""
    seen, moves = study.visits(found.pieces, found.U), found.U * found.pieces.moves[:, None]
    turns = np.array([np.mean(turned(piece)) for piece in found.pieces.states])
    distinct = np.array([np.unique(maze.nodes_of(p)).size / maze.nodes_of(p).size for p in found.pieces.states])
    level = np.append(maze.LEVEL, -1)
    weight = moves / moves.sum(axis=0)
    habits = len(maze.HABITS)
    return [
        {
            "share": float(moves[:, k].sum() / moves.sum()),
            "water": 1000.0 * float(seen[k, maze.WATER]),
            "home": 1000.0 * float(seen[k, -1]),
            "level": float(seen[k] @ level),
            "turns": 100.0 * float(weight[:, k] @ turns),
            "new": 100.0 * float(weight[:, k] @ distinct),
            "r_water": float(maze.reward_map(theta)[maze.WATER]),
            "r_home": float(maze.reward_map(theta)[-1]),
            "r_turn": float(theta[-habits]),
        }
        for k, theta in enumerate(found.mixture.thetas_)
    ]


def turned(states: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return whether each move turns round at a junction."""
    return maze.habits(states[:-1], states[1:])[:, 0]


_HEADS = {
    "share": ("share of moves", 2),
    "water": ("water in 1,000 visits", 1),
    "home": ("home in 1,000", 1),
    "level": ("mean depth", 2),
    "turns": ("turns round, %", 1),
    "new": ("distinct nodes, %", 0),
    "r_water": ("reward of the water port", 2),
    "r_home": ("of the home", 2),
    "r_turn": ("of turning round", 2),
}


def printed(found: study.Findings) -> str:
    """Return all numbers as text."""
    s, lines = found.settings, []
    lines.append(
        f"{len(found.recordings.mice)} mice ({int(found.recordings.labels.sum())} water restricted), "
        f"{len(found.recordings.bouts)} bouts, {found.recordings.n_visits} visits; left out: "
        f"{', '.join(found.recordings.left_out) or 'none'}"
    )
    lines.append(
        f"bouts of up to {max(map(len, found.recordings.bouts))} visits cut into {len(found.pieces.states)} pieces of "
        f"at most {s.length} moves (a dead end and back is one); every move is in one piece; discount {s.gamma:g}"
    )
    if found.models:
        lines.append(f"held-out log-likelihood a move, one intent, {s.model_folds} folds of whole mice")
        lines += [f"  {name:<40} {value:8.4f}" for name, value in found.models.items()]
    lines += [f"select_intents, {s.per_mouse} pieces a mouse, {s.folds} folds of whole mice", str(found.selection)]
    lines.append(f"intents, fitted to all pieces ({found.mixture.n_intents}), the most water first")
    lines.append("  " + "intent  " + "  ".join(head for head, _ in _HEADS.values()))
    for k, row in enumerate(intent_rows(found)):
        cells = [f"{row[name]:{len(head)}.{digits}f}" for name, (head, digits) in _HEADS.items()]
        lines.append(f"  {k:>6}  " + "  ".join(cells))
    lines.append(f"held-out log-likelihood a move of mice left out one by one: {found.held_out:.4f}")
    lines.append("mean share among restricted and other mice")
    lines += [f"  intent {k}  {a:.3f}  {b:.3f}" for k, (a, b) in enumerate(drawing.group_means(found))]
    n = found.predictions[0].n_labelings
    lines.append(f"water restricted or not, leave one mouse out, nearest centroid, exact over {n} labelings")
    for p in found.predictions:
        wrong = [name for name, a, b in zip(found.recordings.mice, p.predicted, p.labels, strict=True) if a != b]
        lines.append(
            f"  {p.name:<46} {p.n_right:>2} of {p.labels.size}  p = {p.p_exact:.2g}  (binomial against the majority "
            f"{p.p_majority:.2g})  wrong: {', '.join(wrong) or 'none'}"
        )
    lines.append("single numbers: AUC for restricted, exact two-sided Mann-Whitney p")
    lines += [f"  {name:<46} {auc:.3f}  p = {p:.2g}" for name, (auc, p) in found.ranks.items()]
    lines += [f"against ML-IRL's intents: {name} {x:.3f} (0 the same, 1 chance)" for name, x in found.agreement.items()]
    lines += [f"against the truth: {name} {x:.3f}" for name, x in found.truth.items()]
    return "\n".join(lines)


def report(found: study.Findings, folder: Path | None, command: str) -> Report:
    """Return the page."""
    outline, K = drawing.walls(folder), found.U.shape[1]
    rows = intent_rows(found)
    titles = [f"intent {k}: {100 * row['share']:.0f} % of the moves" for k, row in enumerate(rows)]
    rewards = np.array([maze.reward_map(theta) for theta in found.mixture.thetas_])
    everything = study.visits(found.pieces, np.ones((len(found.pieces.states), 1)))
    ratio = np.log2((study.visits(found.pieces, found.U) + 1e-5) / (everything + 1e-5))
    best = found.predictions[0]
    counted = next(p for p in found.predictions if p.name == study.COUNTING)
    kind = "simulated mice" if found.truth else "mice"
    sections = [
        Section(
            "The intents",
            [
                drawing.maps(
                    "rewards",
                    "Reward maps",
                    "Learned reward of every node; the ring is the water port, the square the home cage.",
                    rewards,
                    titles,
                    "reward",
                    outline,
                ),
                drawing.maps(
                    "visits",
                    "Where each intent goes",
                    "Visits compared with those of all intents together, as powers of two: +1 is twice as often.",
                    ratio,
                    titles,
                    "visits, log2 of the ratio to all",
                    outline,
                ),
                _intent_table(rows),
            ],
            lead="Learned from pieces of bouts alone, ordered by how often they visit the water port.",
        ),
        Section("How many?", [drawing.criteria(found), Code(str(found.selection), "select_intents"), *_models(found)]),
        Section("The mice", [drawing.shares_by_mouse(found), _prediction_table(found), *_verdicts(best, counted)]),
        Section("Beyond counting?", [Grid([drawing.against_counting(found), drawing.over_time(found)]), _ranks(found)]),
        Section("One bout", [drawing.one_bout(found, outline)]),
        *_truth(found),
    ]
    return Report(
        f"Intents of {kind} in a labyrinth",
        f"{K} intents behind {len(found.pieces.states)} pieces of {len(found.recordings.bouts)} bouts. How a mouse was "
        f"kept, never shown to a fit, is predicted from its shares for {best.n_right} of {best.labels.size} mice "
        f"(exact p = {best.p_exact:.2g}); counting water visits gets {counted.n_right}.",
        sections,
        methods=[Facts(_facts(found)), Code(command, "Command"), Fold("All numbers", [Code(printed(found))])],
        highlights={"mice": len(found.recordings.mice), "visits": f"{found.recordings.n_visits:,}", "intents": K},
    )


def _intent_table(rows: list[dict[str, float]]) -> Table:
    cells: list[Row] = [
        [f"intent {k}", *(Cell.number(row[name], digits) for name, (_, digits) in _HEADS.items())]
        for k, row in enumerate(rows)
    ]
    caption = "Distinct nodes: of those visited in a piece, how many were new to it."
    return Table("intents", "What the intents do", caption, ["", *(head for head, _ in _HEADS.values())], cells)


def _models(found: study.Findings) -> list[Table]:
    if not found.models:
        return []
    rows: list[Row] = [[name, Cell.number(value, 4)] for name, value in found.models.items()]
    caption = f"With one intent, {found.settings.model_folds} folds of whole mice; higher is better."
    return [Table("models", "Models compared", caption, ["Model", "held-out log-likelihood a move"], rows)]


def _prediction_table(found: study.Findings) -> Table:
    rows: list[Row] = [
        [p.name, f"{p.n_right} of {p.labels.size}", Cell(f"{p.p_exact:.2g}"), Cell(f"{p.p_majority:.2g}")]
        for p in found.predictions
    ]
    caption = (
        f"Each mouse by the nearer mean of the others' groups. Exact p: of all {found.predictions[0].n_labelings:,} "
        "labelings with as many restricted mice, the share predicted as well. Shares are those of a mixture fitted "
        "without the mouse."
    )
    columns = ["Predicted from", "right", "exact p", "binomial p against the majority"]
    return Table("predictions", "Water restricted, or not?", caption, columns, rows)


def _verdicts(best: Prediction, counted: Prediction) -> list[Callout]:
    shown = best.p_exact <= 0.05
    more = best.n_right > counted.n_right
    return [
        Callout(
            "holds" if shown else "fails",
            "Shares of intents tell how a mouse was kept",
            f"{best.n_right} of {best.labels.size} right, exact p = {best.p_exact:.2g}.",
        ),
        Callout(
            "note" if more else "open",
            "They tell more than counting water visits" if more else "That they tell more than counting is not shown",
            f"Counting alone: {counted.n_right} of {counted.labels.size}, exact p = {counted.p_exact:.2g}.",
        ),
    ]


def _ranks(found: study.Findings) -> Table:
    rows: list[Row] = [[name, Cell.number(auc, 3), Cell(f"{p:.2g}")] for name, (auc, p) in found.ranks.items()]
    caption = "The chance that of two mice the restricted one has more, and the exact Mann-Whitney p. Not corrected."
    return Table("ranks", "One number a mouse", caption, ["Number", "AUC", "p"], rows)


def _truth(found: study.Findings) -> list[Section]:
    if not found.truth:
        return []
    said = f"These mice are simulated; their true intents are {', '.join(INTENTS)}."
    return [Section("Against the truth", [Text(said), Facts({k: f"{v:.3f}" for k, v in found.truth.items()})])]


def _facts(found: study.Findings) -> dict[str, object]:
    s = found.settings
    return {
        "model": literal(repr(found.mixture.irl)),
        "discount": s.gamma,
        "pieces": f"at most {s.length} moves",
        "number of intents": f"on {s.per_mouse} pieces a mouse, {s.folds} folds of whole mice, {s.resamples} resamples",
        "left out": ", ".join(found.recordings.left_out) or "nobody",
        **{f"ML-IRL's intents, {name}": f"{x:.3f}" for name, x in found.agreement.items()},
    }
