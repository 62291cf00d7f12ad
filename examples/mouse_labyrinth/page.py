"""The findings as text and as an HTML report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from examples.mouse_labyrinth import drawing, maze, study
from examples.mouse_labyrinth.prediction import LEVEL, Prediction, compare
from examples.mouse_labyrinth.simulated import INTENTS
from limiirl.metrics import Interval, mean_interval
from limiirl.report import Callout, Cell, Code, Facts, Fold, Grid, Report, Section, Table, Text, literal

Row = list[Cell | str | float | None]


def intent_rows(findings: study.Findings) -> list[dict[str, float]]:
    """Return statistics of the pieces of each intent."""
    seen, moves = study.visits(findings.pieces, findings.U), findings.U * findings.pieces.moves[:, None]
    turns = np.array([np.mean(detect_turns(piece)) for piece in findings.pieces.states])
    distinct = np.array([np.unique(maze.nodes_of(p)).size / maze.nodes_of(p).size for p in findings.pieces.states])
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
        for k, theta in enumerate(findings.mixture.thetas_)
    ]


def detect_turns(states: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return an indicator (m,) of the moves that turn around at a junction."""
    return maze.habits(states[:-1], states[1:])[:, 0]


_HEADS = {
    "share": ("fraction of moves", 2),
    "water": ("water per 1,000 visits", 1),
    "home": ("home per 1,000", 1),
    "level": ("mean depth", 2),
    "turns": ("turns around, %", 1),
    "new": ("distinct nodes, %", 0),
    "r_water": ("reward of the water port", 2),
    "r_home": ("of the home cage", 2),
    "r_turn": ("of turning around", 2),
}


def format_text(findings: study.Findings) -> str:
    """Return all numbers as text."""
    s, lines = findings.settings, []
    lines.append(
        f"{len(findings.recordings.mice)} mice ({int(findings.recordings.labels.sum())} water restricted), "
        f"{len(findings.recordings.bouts)} bouts, {findings.recordings.n_visits} visits; excluded: "
        f"{', '.join(findings.recordings.left_out) or 'none'}"
    )
    lines.append(
        f"bouts of up to {max(map(len, findings.recordings.bouts))} visits, {len(findings.pieces.states)} pieces of "
        f"at most {s.length} moves (entering and leaving a dead end is one move); discount {s.gamma:g}"
    )
    lines.append(f"select_intents, {s.per_mouse} pieces per mouse, {s.folds} folds of whole mice")
    lines.append(str(findings.selection))
    lines.append(f"intents, fitted to all pieces ({findings.mixture.n_intents}), in decreasing order of water visits")
    lines.append("  " + "intent  " + "  ".join(head for head, _ in _HEADS.values()))
    for k, row in enumerate(intent_rows(findings)):
        cells = [f"{row[name]:{len(head)}.{digits}f}" for name, (head, digits) in _HEADS.items()]
        lines.append(f"  {k:>6}  " + "  ".join(cells))
    lines.append(
        "held-out log-likelihood per move (leave one mouse out), mean over mice; and its difference from "
        f"{study.CHOSEN!r} with one intent, with the {1 - LEVEL:.0%} interval over mice"
    )
    for name, own, beyond in compare_held_out(findings):
        lines.append(f"  {name:<40} {own:8.4f}  {beyond.mean:8.4f} ± {beyond.half_width:.4f}")
    lines.append("mean fraction of moves of restricted and of other mice")
    lines += [f"  intent {k}  {a:.3f}  {b:.3f}" for k, (a, b) in enumerate(drawing.group_means(findings))]
    first, counted = findings.predictions[0], _counting(findings)
    lines.append(
        f"water restricted or not, leave one mouse out, nearest centroid; exact p over {first.n_labelings} labelings, "
        f"and over the {first.n_within} that preserve the number of restricted mice per batch "
        f"({', '.join(batches(findings))})"
    )
    for p in findings.predictions:
        wrong = [name for name, a, b in zip(findings.recordings.mice, p.predicted, p.labels, strict=True) if a != b]
        lines.append(
            f"  {p.name:<46} {p.n_right:>2} of {p.labels.size} (by chance {_range(p)})  p = {p.p_exact:.2g}  "
            f"within batches {p.p_within:.2g}  wrong: {', '.join(wrong) or 'none'}"
        )
    only, less, p_more = compare(first, counted)
    lines.append(
        f"correct only by fractions per intent: {only}, only by counting: {less}; exact McNemar p = {p_more:.2g}"
    )
    lines.append(f"single statistics: AUC for restricted mice, exact Mann-Whitney p, {len(findings.ranks)} tests")
    lines += [f"  {name:<46} {auc:.3f}  p = {p:.2g}" for name, (auc, p) in findings.ranks.items()]
    lines += [
        f"compared with ML-IRL: {name} {x:.3f} (0: identical, 1: chance)" for name, x in findings.agreement.items()
    ]
    lines += [f"compared with the truth: {name} {x:.3f}" for name, x in findings.truth.items()]
    return "\n".join(lines)


def report(findings: study.Findings, folder: Path | None, command: str) -> Report:
    """Return the report."""
    outline, K = drawing.walls(folder), findings.U.shape[1]
    rows = intent_rows(findings)
    titles = [f"intent {k}: {100 * row['share']:.0f} % of the moves" for k, row in enumerate(rows)]
    rewards = np.array([maze.reward_map(theta) for theta in findings.mixture.thetas_])
    everything = study.visits(findings.pieces, np.ones((len(findings.pieces.states), 1)))
    ratio = np.log2((study.visits(findings.pieces, findings.U) + 1e-5) / (everything + 1e-5))
    best, counted = findings.predictions[0], _counting(findings)
    kind = "simulated mice" if findings.truth else "mice"
    sections = [
        Section(
            "The intents",
            [
                drawing.maps(
                    "rewards",
                    "Reward maps",
                    "Learned reward of each node. The ring marks the water port, the square is the home cage.",
                    rewards,
                    titles,
                    "reward",
                    outline,
                ),
                drawing.maps(
                    "visits",
                    "Visits of each intent",
                    "Log2 ratio of the visits of an intent to the visits of all intents; +1 means twice as often.",
                    ratio,
                    titles,
                    "visits, log2 of the ratio to all",
                    outline,
                ),
                _intent_table(rows),
            ],
            lead="Intents are fitted without labels and ordered by visits to the water port.",
        ),
        Section(
            "Number of intents",
            [drawing.criteria(findings), Code(str(findings.selection), "select_intents"), _models(findings)],
        ),
        Section("The mice", [drawing.shares_by_mouse(findings), _prediction_table(findings), *verdicts(best, counted)]),
        Section(
            "Comparison with counting",
            [Grid([drawing.against_counting(findings), drawing.over_time(findings)]), _ranks(findings)],
        ),
        Section("One bout", [drawing.one_bout(findings, outline)]),
        *_truth(findings),
    ]
    return Report(
        f"Intents of {kind} in a labyrinth",
        f"{K} intents in {len(findings.pieces.states)} pieces of {len(findings.recordings.bouts)} bouts. Water "
        f"restriction, which the fits do not use, is predicted for {best.n_right} of {best.labels.size} mice "
        f"(exact p = {best.p_exact:.2g}, within batches {best.p_within:.2g}); counting water visits is correct for "
        f"{counted.n_right}.",
        sections,
        methods=[Facts(_facts(findings)), Code(command, "Command"), Fold("All numbers", [Code(format_text(findings))])],
        highlights={"mice": len(findings.recordings.mice), "visits": f"{findings.recordings.n_visits:,}", "intents": K},
    )


def _intent_table(rows: list[dict[str, float]]) -> Table:
    cells: list[Row] = [
        [f"intent {k}", *(Cell.number(row[name], digits) for name, (_, digits) in _HEADS.items())]
        for k, row in enumerate(rows)
    ]
    caption = "Distinct nodes: number of different nodes in a piece, relative to its number of visits."
    return Table("intents", "Statistics of the intents", caption, ["", *(head for head, _ in _HEADS.values())], cells)


def compare_held_out(findings: study.Findings) -> list[tuple[str, float, Interval]]:
    """Return the name, the mean held-out log-likelihood per move, and the difference from `CHOSEN` of each model."""
    base = findings.held_out[study.CHOSEN]
    return [(name, float(own.mean()), mean_interval(own - base, 1 - LEVEL)) for name, own in findings.held_out.items()]


def batches(findings: study.Findings) -> list[str]:
    """Return the name of each batch with its numbers of restricted mice and of all mice."""
    batch, labels = findings.recordings.batches, findings.recordings.labels
    return [f"{b}: {labels[batch == b].sum()} of {np.sum(batch == b)} restricted" for b in np.unique(batch)]


def _models(findings: study.Findings) -> Table:
    rows: list[Row] = [
        [name, Cell.number(own, 4), "" if name == study.CHOSEN else Cell.estimate(x.mean, x.half_width, 4)]
        for name, own, x in compare_held_out(findings)
    ]
    caption = (
        "One intent unless stated otherwise. Each mouse is scored by a fit to the other mice and has equal weight; "
        f"differences are paired by mouse, with {1 - LEVEL:.0%} intervals over mice. Higher is better."
    )
    columns = ["Model", "held-out log-likelihood per move", f"difference from “{study.CHOSEN}”"]
    return Table("models", "Models compared", caption, columns, rows)


def _prediction_table(findings: study.Findings) -> Table:
    rows: list[Row] = [
        [
            p.name,
            f"{p.n_right} of {p.labels.size}",
            _range(p),
            Cell(f"{p.p_exact:.2g}", value=p.p_exact),
            Cell(f"{p.p_within:.2g}", value=p.p_within),
        ]
        for p in findings.predictions
    ]
    first = findings.predictions[0]
    caption = (
        f"Each mouse is assigned to the group of other mice with the nearer mean. Exact p: fraction of all "
        f"{first.n_labelings:,} labelings with the same number of restricted mice that are predicted at least as well. "
        f"Within batches: the same fraction among the {first.n_within:,} labelings that preserve the number of "
        f"restricted mice per batch ({', '.join(batches(findings))}); its minimum is {1 / first.n_within:.2g}. By "
        "chance: number of correct predictions for the middle 90 % of all labelings. It may be low, because leaving a "
        "mouse out moves the mean of its own group away from it. Fractions are from a mixture fitted without the mouse."
    )
    columns = ["Predictor", "correct", "by chance", "exact p", "within batches"]
    return Table("predictions", "Prediction of water restriction", caption, columns, rows)


def _range(p: Prediction) -> str:
    return f"{p.by_chance[0]} to {p.by_chance[1]}"


def _counting(findings: study.Findings) -> Prediction:
    return next(p for p in findings.predictions if p.name == study.COUNTING)


def verdicts(best: Prediction, counted: Prediction) -> list[Callout]:
    """Return the conclusions at the significance level `LEVEL`."""
    only, less, p_more = compare(best, counted)
    more = only > less and p_more < LEVEL
    return [
        Callout(
            "holds" if best.p_exact < LEVEL else "open",
            "Fractions per intent predict water restriction",
            f"{best.n_right} of {best.labels.size} correct, exact p = {best.p_exact:.2g}.",
        ),
        Callout(
            "holds" if best.p_within < LEVEL else "open",
            "They also do so within a batch of mice",
            f"Exact p = {best.p_within:.2g}; the minimum with {best.n_within:,} labelings is {1 / best.n_within:.2g}.",
        ),
        Callout(
            "holds" if more else "open",
            "They predict better than counting water visits",
            f"Correct for {best.n_right} and {counted.n_right} mice; {only} only by fractions, "
            f"{less} only by counting; exact McNemar p = {p_more:.2g}.",
        ),
    ]


def _ranks(findings: study.Findings) -> Table:
    rows: list[Row] = [[name, Cell.number(auc, 3), Cell(f"{p:.2g}")] for name, (auc, p) in findings.ranks.items()]
    caption = (
        "AUC for restricted mice, and exact Mann-Whitney p, without correction for "
        f"{len(rows)} tests. Fractions are from the fit to all mice, which used no labels."
    )
    return Table("ranks", "One statistic per mouse", caption, ["Statistic", "AUC", "p"], rows)


def _truth(findings: study.Findings) -> list[Section]:
    if not findings.truth:
        return []
    text = f"These mice are simulated; their true intents are {', '.join(INTENTS)}."
    return [
        Section(
            "Comparison with the true intents", [Text(text), Facts({k: f"{v:.3f}" for k, v in findings.truth.items()})]
        )
    ]


def _facts(findings: study.Findings) -> dict[str, object]:
    s = findings.settings
    return {
        "model": literal(repr(findings.mixture.irl)),
        "discount": s.gamma,
        "pieces": f"at most {s.length} moves",
        "number of intents": f"{s.per_mouse} pieces per mouse, {s.folds} folds of whole mice, {s.resamples} resamples",
        "excluded": ", ".join(findings.recordings.left_out) or "none",
        **{f"ML-IRL's intents, {name}": f"{x:.3f}" for name, x in findings.agreement.items()},
    }
