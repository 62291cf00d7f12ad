"""Sections on the studies of the paper, with questions, results and verdicts."""

from __future__ import annotations

import re

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
    judge_claims,
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
    "demos": "How many training demonstrations are needed? There are 100 further demonstrations for testing.",
    "wind": "What if the intents overlap? More wind deflects more steps, so the intents have more similar features.",
    "clusters": "What if the number of intents is misspecified? There are three true intents and K learned intents.",
    "elements": "What if there are more intents? The true number of intents varies and is given to the methods.",
    "imbalance": "What if some intents are rare? The mixture weights decrease geometrically, ρ_k ∝ p(1 − p)^k.",
}


def count_worlds(results: Results, noun: str = "world") -> str:
    """Return the number of worlds as text, with a remark if some trials failed."""
    n = len(results.seeds)
    some = any(record.seed in results.seeds for record in results.failures)
    return f"{n} {noun}{'' if n == 1 else 's'}" + (" (fewer for settings with failed trials)" if some else "")


def callouts(results: Results) -> list[Callout]:
    """Return the claims that a study tests, with verdicts and evidence."""
    verdicts: dict[str, Verdict] = {HOLDS: "holds", FAILS: "fails"}
    return [
        Callout(verdicts.get(finding.verdict, "open"), keep_together(finding.claim), literal(_minus(finding.evidence)))
        for finding in judge_claims(results)
    ]


def _minus(text: str) -> str:
    return re.sub(r"(?<!\w)-(?=\d)", "−", text)


def keep_together(claim: str) -> str:
    """Return a claim without line breaks around equals signs."""
    return claim.replace(" = ", "\u00a0=\u00a0")


def table_section(results: Results) -> Section:
    """Return the section on Table 1, with paired tests and with the variants that were run."""
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
                "Paired differences from random rewards",
                "Each dot is a world; means with 95\u00a0% intervals are black. Values below zero favour the method.",
                plot_differences(chosen, baseline=RANDOM),
            ),
            table1.random_table(results),
            Fold("Effect of EM, and other definitions and settings", variants),
        ],
        lead="Seven initialisations of EM on the same worlds and demonstrations. Lower is better for all measures.",
    )


def _values_with_ties(results: Results, measure: str) -> dict[str, FloatArray]:
    """Return a measure by method; values within the tie tolerance of random rewards are set equal to them."""
    base = results.values(RANDOM, PAPER_LENGTH, measure)
    values = {name: results.values(name, PAPER_LENGTH, measure) for name in METHODS}
    tie = TIES.get(measure, 0.0)
    return {name: np.where(np.abs(v - base) <= tie, base, v) for name, v in values.items() if np.isfinite(v).any()}


def box_section(results: Results) -> Section:
    """Return the section with the box plots of Table 1."""
    values = {m: {name: results.values(name, PAPER_LENGTH, m) for name in METHODS} for m in MEASURES}
    values = {m: {name: v for name, v in by.items() if np.isfinite(v).any()} for m, by in values.items()}
    reference = {m: {name: by[m][:2] for name, by in TABLE1.items() if m in by} for m in MEASURES}
    reference.pop("seconds")  # measured on another machine
    caption = (
        "Boxes show the median and the quartiles; whiskers extend to the outermost values within 1.5 interquartile "
        "ranges; diamonds are outliers. The mean and the 95 % interval of the paper are below each box."
    )
    plot = Figure.from_plot("boxplots", "Table 1 by world", caption, plot_boxes(values, reference))
    return Section("Box plots", [plot], lead=f"Distributions of the measures of Table 1 over {count_worlds(results)}.")


def sweep_section(results: Results) -> Section:
    """Return the section on a sweep."""
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
    """Return the section on the margin between intents as a function of the wind."""
    values = {float(x): results.finite(SUPERVISED, x, "margin") for x in results.study.points}
    caption = (
        "The margin is the smallest distance in feature space between demonstrations of two intents, averaged over "
        f"pairs of intents, with 100 demonstrations. Mean and 95 % interval over {count_worlds(results)}."
    )
    plot = plot_margin(values, results.study.axis)
    return Section(
        results.study.title,
        [
            Figure.from_plot("margin", results.study.title, caption, plot),
            *callouts(results),
            Text(
                "The first assumption of the paper concerns this margin. The margin decreases as demonstrations are "
                "added, so only data sets of equal size are comparable."
            ),
        ],
        lead="How well are the intents separated in feature space?",
    )


def inside_section(results: Results) -> Section | None:
    """Return the section on one typical world, or None if the run does not have an example."""
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
        lead=f"The world with seed {example.seed} is typical for {HARD}. Worlds in which EM from {RANDOM} converges "
        "to a different solution are preferred. Intent k prefers element k + 1.",
    )


def _demos(example: WorldExample) -> Grid:
    """Return maps of the demonstrations, coloured by true and by learned intent."""
    drawings = []
    demos, true = example.demos, np.array(example.labels)
    steps = np.repeat(np.arange(len(demos)), np.diff(demos.offsets))
    for title, labels in (("true", true), ("learned", example.learned_labels)):

        def draw(labels: IntArray = labels) -> Drawing:
            drawing = Drawing(figsize=(NARROW, NARROW))  # cells are square
            example.world.plot(ax=drawing.add_subplot(), demos=demos, labels=labels)
            return drawing

        counts = ", ".join(f"{np.sum(labels == k)} (intent {k})" for k in range(len(example.true_weights)))
        data = {"demo": steps.tolist(), "state": demos.states.tolist(), "intent": labels[steps].tolist()}
        drawings.append(
            Figure(
                f"demos-{title}",
                f"Demonstrations by {title} intent",
                f"The unrolled world with {len(demos)} trajectories, coloured by {title} intent: {counts}.",
                f"Number of demonstrations by {title} intent: {counts}.",
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
            "Rewards of the intents",
            "Learned and true rewards. The demonstrators act optimally, whereas MaxEnt assumes noisy demonstrators, so "
            "the learned rewards are smaller in absolute value. Their order determines the behaviour.",
            plot_rewards(thetas, example.feature_names, true_thetas, names),
        ),
        Figure.from_plot(
            "responsibilities",
            "Responsibilities",
            "One column per demonstration, sorted by true intent. The height is the posterior probability of the "
            "learned intent.",
            plot_responsibilities(np.array(example.responsibilities), np.array(example.labels), names),
        ),
        Figure.from_plot(
            "weights",
            "Mixture weights",
            "True and learned mixture weights.",
            plot_weights(np.array(example.true_weights), np.array(example.weights), names),
        ),
    ]


def _flow_figures(example: WorldExample) -> list[Figure | Grid]:
    """Return the matching of intents in the GEVD for the clustered and for the random initialisation."""
    figures = [
        Figure.from_plot(
            f"flow-{fit.init.replace('_', '-')}",
            f"GEVD matching, {method}",
            "Optimal matching of learned intents (left) and true intents (right). The expected loss of reward is "
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
    caption = "NLL per training demonstration by EM iteration, and its difference from the lowest NLL of all methods."
    return Figure.from_plot("convergence", "Convergence of EM", caption, plot_convergence(histories))
