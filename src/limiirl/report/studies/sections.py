"""Sections of a report on the studies of the paper: the question, the results and the verdicts."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure as Drawing

from limiirl._typing import FloatArray, IntArray
from limiirl.experiments import (
    EARLY_STOPS,
    FAILS,
    HARD,
    HOLDS,
    MEASURES,
    METHODS,
    PAPER_LENGTH,
    RANDOM,
    SUPERVISED,
    TABLE1,
    TIES,
    Results,
    WorldExample,
    findings,
)
from limiirl.report.document import Callout, Figure, Fold, Grid, Section, Text, Verdict
from limiirl.report.figures import (
    plot_boxes,
    plot_convergence,
    plot_differences,
    plot_flow,
    plot_margin,
    plot_responsibilities,
    plot_rewards,
    plot_sweep,
    plot_weights,
)
from limiirl.report.markup import literal
from limiirl.report.studies import table1
from limiirl.report.svg import NARROW

QUESTIONS = {
    "demos": "How many training demonstrations are needed? Another 100 demonstrations are held out for testing.",
    "wind": "What if the intents overlap? More wind deflects more steps, and the features of the intents become alike.",
    "clusters": "What if the number of intents is wrong? There are three true intents; K intents are learned.",
    "elements": "What if there are more intents? The true number of intents varies and is known to the methods.",
    "imbalance": "What if some intents are rare? Mixture weights decrease geometrically, ρ_k ∝ p(1 − p)^k.",
}


def count_worlds(results: Results, noun: str = "world") -> str:
    """Return the number of worlds with its noun, and a remark if some trials failed."""
    n = len(results.seeds)
    some = any(record.seed in results.seeds for record in results.failures)
    return f"{n} {noun}{'' if n == 1 else 's'}" + (" (fewer for settings with failed trials)" if some else "")


def callouts(results: Results) -> list[Callout]:
    """Return the findings that a study tests, with verdicts."""
    verdicts: dict[str, Verdict] = {HOLDS: "holds", FAILS: "fails"}
    return [
        Callout(verdicts.get(finding.verdict, "open"), keep_together(finding.claim), literal(finding.evidence))
        for finding in findings(results)
    ]


def keep_together(claim: str) -> str:
    """Return a claim without line breaks around equals signs."""
    return claim.replace(" = ", "\u00a0=\u00a0")


def table_section(results: Results) -> Section:
    """Return Table 1 with its tests and, if they were run, its variants."""
    chosen = {m: _values_with_ties(results, m) for m in ("anid", "gevd", "n_iter")}
    variants = [table1.before_after_table(results), table1.anid_table(results)]
    if set(EARLY_STOPS) <= set(results.study.points):
        variants += [table1.early_table(results), table1.length_table(results)]
    return Section(
        "Table 1",
        [
            table1.comparison_table(results),
            *callouts(results),
            Figure.from_plot(
                "paired-differences",
                "Method minus random rewards, world by world",
                "Each dot is a world. Left of zero, the method did better than random rewards. Mean and 95\u00a0% "
                "interval in black.",
                plot_differences(chosen, baseline=RANDOM),
            ),
            table1.random_table(results),
            Fold("Before and after EM, alternative definitions and settings", variants),
        ],
        lead="Seven initialisations of EM on the same worlds and the same demonstrations. Lower is better throughout.",
    )


def _values_with_ties(results: Results, measure: str) -> dict[str, FloatArray]:
    """Return a measure by method; values that tie with random rewards are set equal to theirs."""
    base = results.values(RANDOM, PAPER_LENGTH, measure)
    values = {name: results.values(name, PAPER_LENGTH, measure) for name in METHODS}
    tie = TIES.get(measure, 0.0)
    return {name: np.where(np.abs(v - base) <= tie, base, v) for name, v in values.items() if np.isfinite(v).any()}


def box_section(results: Results) -> Section:
    """Return the box plots of Table 1."""
    values = {m: {name: results.values(name, PAPER_LENGTH, m) for name in METHODS} for m in MEASURES}
    values = {m: {name: v for name, v in by.items() if np.isfinite(v).any()} for m, by in values.items()}
    reference = {m: {name: by[m][:2] for name, by in TABLE1.items() if m in by} for m in MEASURES}
    reference.pop("seconds")  # measured on another machine
    caption = (
        "Median, quartiles, whiskers to 1.5 interquartile ranges, outliers as diamonds; the mean and interval of the "
        "paper are below each box."
    )
    plot = Figure.from_plot("boxplots", "Table 1 by world", caption, plot_boxes(values, reference))
    return Section("Box plots", [plot], lead=f"The same {count_worlds(results)}, one value per world.")


def sweep_section(results: Results) -> Section:
    """Return the figure of a sweep and its findings."""
    study = results.study
    values = {
        m: {
            name: {float(x): results.values(name, x, m) for x in study.points}
            for name in study.methods
            if any(results.finite(name, x, m).size for x in study.points)
        }
        for m in MEASURES
    }
    mark = {"mark": 3.0, "mark_label": "E = 3"} if study.name == "clusters" else {}
    caption = (
        f"Means over {count_worlds(results)} with 95 % intervals; {study.axis} from {study.points[0]} to "
        f"{study.points[-1]}."
    )
    plot = plot_sweep(values, study.axis, **mark)  # type: ignore[arg-type]
    figure = Figure.from_plot(study.name, study.title, caption, plot)
    return Section(study.title, [figure, *callouts(results)], lead=QUESTIONS[study.name])


def margin_section(results: Results) -> Section:
    """Return the margin between the intents against the wind."""
    values = {float(x): results.finite(SUPERVISED, x, "margin") for x in results.study.points}
    caption = (
        "Smallest distance between the demonstrations of two intents in feature space, averaged over pairs of intents, "
        f"for 100 demonstrations; mean and 95 % interval over {count_worlds(results)}."
    )
    plot = plot_margin(values, results.study.axis)
    return Section(
        results.study.title,
        [
            Figure.from_plot("margin", results.study.title, caption, plot),
            *callouts(results),
            Text(
                "The first assumption of the paper is about this margin. It shrinks as demonstrations are added, so "
                "only data sets of equal size can be compared."
            ),
        ],
        lead="How far apart are the intents in feature space?",
    )


def inside_section(results: Results) -> Section | None:
    """Return the section on one typical world; None if the run stored no example."""
    example = results.example
    if example is None:
        return None
    return Section(
        "One world in detail",
        [
            _demos(example),
            *_fit_figures(example),
            *_flow_figures(example),
            _convergence(results, example.seed),
        ],
        lead=f"The world with seed {example.seed}: typical for {HARD}, and where possible one in which {RANDOM} lead "
        "to another solution. Intent k prefers element k + 1.",
    )


def _demos(example: WorldExample) -> Grid:
    """Return the world with the demonstrations coloured by true and by learned intents."""
    drawings = []
    demos, true = example.demos, np.array(example.labels)
    steps = np.repeat(np.arange(len(demos)), np.diff(demos.offsets))
    for title, labels in (("true", true), ("learned", example.learned_labels)):

        def draw(labels: IntArray = labels) -> Drawing:
            drawing = Drawing(figsize=(NARROW, NARROW))  # cells are square: more height would need more width
            example.world.plot(ax=drawing.add_subplot(), demos=demos, labels=labels)
            return drawing

        counts = ", ".join(f"{np.sum(labels == k)} of intent {k}" for k in range(len(example.true_weights)))
        data = {"demo": steps.tolist(), "state": demos.states.tolist(), "intent": labels[steps].tolist()}
        drawings.append(
            Figure(
                f"walks-{title}",
                f"Demonstrations by {title} intent",
                f"The unrolled world with {len(demos)} trajectories coloured by {title} intent: {counts}.",
                f"Coloured by {title} intent: {counts}.",
                draw,
                data,
            )
        )
    return Grid(drawings)


def _fit_figures(example: WorldExample) -> list[Figure]:
    names = [f"intent {k}" for k in range(len(example.true_weights))]
    thetas, true_thetas = np.array(example.thetas), np.array(example.true_thetas)
    return [
        Figure.from_plot(
            "rewards",
            "Rewards of each intent",
            "Learned and true rewards. MaxEnt assumes noisy demonstrators and the true ones act optimally, so learned "
            "rewards are smaller; their order decides the behaviour.",
            plot_rewards(thetas, example.feature_names, true_thetas, names),
        ),
        Figure.from_plot(
            "responsibilities",
            "Responsibilities",
            "One column per demonstration, sorted by true intent; the height is the posterior probability of each "
            "learned intent.",
            plot_responsibilities(np.array(example.responsibilities), np.array(example.labels), names),
        ),
        Figure.from_plot(
            "shares",
            "Mixture weights",
            "True and learned weights.",
            plot_weights(np.array(example.true_weights), np.array(example.weights), names),
        ),
    ]


def _flow_figures(example: WorldExample) -> list[Figure | Grid]:
    """Return the matching behind the GEVD for the clustered and for the random initialisation."""
    figures = [
        Figure.from_plot(
            f"flow-{fit.init.replace('_', '-')}",
            f"GEVD matching, {method}",
            "Learned intents (left) matched with true ones (right) at the least expected loss of reward: "
            f"{fit.value:.3g}.",
            plot_flow(np.array(fit.flow), np.array(fit.evd), fit.value),
        )
        for method, fit in example.flows.items()
    ]
    return [Grid(figures)] if figures else []


def _convergence(results: Results, seed: int) -> Figure:
    histories = {}
    for method in METHODS:
        record = results.record(method, PAPER_LENGTH, seed)
        if record is not None and record.history is not None and method != SUPERVISED:
            histories[method] = record.history
    caption = "Mean NLL of the training demonstrations by iteration, and its gap to the lowest NLL."
    return Figure.from_plot("traces", "Convergence of EM", caption, plot_convergence(histories))
