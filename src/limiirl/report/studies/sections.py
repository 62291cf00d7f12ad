"""The sections of a report, one per study: the question, the results, and what the paper says of it."""

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
    Finding,
    Results,
    WorldExample,
    findings,
)
from limiirl.report.document import Callout, Figure, Fold, Grid, Section, Text, Verdict
from limiirl.report.figures import (
    Drawn,
    boxes,
    differences,
    flow,
    margin,
    responsibilities,
    rewards,
    shares,
    sweep,
    traces,
)
from limiirl.report.markup import literal
from limiirl.report.studies import table1
from limiirl.report.svg import NARROW

QUESTIONS = {
    "demos": "How much data does it take? Demonstrations to learn from, with 100 others to test.",
    "wind": "What if the intents overlap? The wind blows steps astray, and the intents' features run into each other.",
    "clusters": "What if the number of intents is wrong? There are three; K are learned.",
    "elements": "And with more intents? As many are learned as there are.",
    "imbalance": "What if some intents are rare? Shares fall geometrically, ρ_k ∝ p(1 − p)^k.",
}


def counted_worlds(results: Results, noun: str = "world") -> str:
    """Return how many worlds there are, in words, and whether some numbers are of fewer."""
    some = any(record.seed in results.seeds for record in results.failures)
    return _count(len(results.seeds), noun) + (" (fewer where trials failed)" if some else "")


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def figure(name: str, title: str, caption: str, drawn: Drawn) -> Figure:
    """Return a figure of a document from what a function of `limiirl.report.figures` drew."""
    return Figure(name, title, drawn.alt, caption, lambda: drawn.figure, drawn.columns)


def callouts(results: Results) -> list[Callout]:
    """Return the paper's findings that a study bears on, with their verdicts."""
    return [Callout(_verdict(found), unbroken(found.claim), literal(found.evidence)) for found in findings(results)]


def unbroken(claim: str) -> str:
    """Return a claim in which no line ends between a letter and its value."""
    return claim.replace(" = ", "\u00a0=\u00a0")


def _verdict(found: Finding) -> Verdict:
    return "holds" if found.verdict == HOLDS else "fails" if found.verdict == FAILS else "open"


def table_section(results: Results) -> Section:
    """Return Table 1 with its tests and, where they were run, its variants."""
    chosen = {m: _against(results, m) for m in ("anid", "gevd", "n_iter")}
    variants = [table1.before_after_table(results), table1.anid_table(results)]
    if set(EARLY_STOPS) <= set(results.study.points):
        variants += [table1.early_table(results), table1.length_table(results)]
    return Section(
        "Table 1",
        [
            table1.comparison_table(results),
            *callouts(results),
            figure(
                "paired-differences",
                "Method minus random rewards, world by world",
                "Each dot is a world; to the left of zero the method did better than random rewards there. Mean and 95 "
                "% interval.",
                differences(chosen, baseline=RANDOM),
            ),
            table1.random_table(results),
            Fold("Before and after EM, other readings, other settings", variants),
        ],
        lead="Seven ways to begin EM, in the same worlds and with the same demonstrations. Lower is better everywhere.",
    )


def _against(results: Results, measure: str) -> dict[str, FloatArray]:
    """Return a measure of each method that has it; what ties with random rewards is set equal to them."""
    base = results.values(RANDOM, PAPER_LENGTH, measure)
    found = {name: results.values(name, PAPER_LENGTH, measure) for name in METHODS}
    tie = TIES.get(measure, 0.0)
    return {name: np.where(np.abs(v - base) <= tie, base, v) for name, v in found.items() if np.isfinite(v).any()}


def box_section(results: Results) -> Section:
    """Return the box plots of Table 1."""
    values = {m: {name: results.values(name, PAPER_LENGTH, m) for name in METHODS} for m in MEASURES}
    values = {m: {name: v for name, v in by.items() if np.isfinite(v).any()} for m, by in values.items()}
    reference = {m: {name: by[m][:2] for name, by in TABLE1.items() if m in by} for m in MEASURES}
    reference.pop("seconds")  # of another machine
    return Section(
        "Box plots",
        [
            figure(
                "boxplots",
                "Table 1 by world",
                "Median, quartiles, whiskers to 1.5 interquartile ranges, worlds beyond as diamonds; the paper's mean "
                "and interval beside them.",
                boxes(values, reference),
            )
        ],
        lead=f"The same {counted_worlds(results)}, one value each.",
    )


def sweep_section(results: Results) -> Section:
    """Return the figure of a sweep and what it says."""
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
    return Section(
        study.title,
        [
            figure(
                study.name,
                study.title,
                f"Means over {counted_worlds(results)} with 95 % intervals; {study.axis} from "
                f"{study.points[0]} to {study.points[-1]}.",
                sweep(values, study.axis, **mark),  # type: ignore[arg-type]
            ),
            *callouts(results),
        ],
        lead=QUESTIONS[study.name],
    )


def margin_section(results: Results) -> Section:
    """Return the margin between the intents against the wind."""
    values = {float(x): results.finite(SUPERVISED, x, "margin") for x in results.study.points}
    return Section(
        results.study.title,
        [
            figure(
                "margin",
                results.study.title,
                "Mean over pairs of intents of the smallest distance between their demonstrations in feature space, "
                f"100 demonstrations; mean and 95 % interval over {counted_worlds(results)}.",
                margin(values, results.study.axis),
            ),
            *callouts(results),
            Text(
                "The margin is what the paper's first assumption is about. It shrinks as demonstrations are added, so "
                "only data of one size compare."
            ),
        ],
        lead="How far apart are the intents in feature space?",
    )


def inside_section(results: Results) -> Section | None:
    """Return a look into one world, the typical one; None where there is nothing to look at."""
    example = results.example
    if example is None:
        return None
    return Section(
        "Inside one world",
        [_walks(example), *_learned(example), *_flows(example), _traces(results, example.seed)],
        lead=f"The world with seed {example.seed}: an ordinary one for {HARD}, in which {RANDOM} end elsewhere where "
        "there is such a world. Intent k follows element k + 1.",
    )


def _walks(example: WorldExample) -> Grid:
    """Return the world with the demonstrations, coloured by the true and by the learned intents."""
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
                f"The unrolled world, with {len(demos)} walks coloured by the {title} intents: {counts}.",
                f"Coloured by the {title} intents: {counts}.",
                draw,
                data,
            )
        )
    return Grid(drawings)


def _learned(example: WorldExample) -> list[Figure]:
    names = [f"intent {k}" for k in range(len(example.true_weights))]
    return [
        figure(
            "rewards",
            "Rewards of each intent",
            "Learned rewards beside the true ones. MaxEnt's walkers are noisy where the true ones are not, so its "
            "rewards are smaller; which element is cheap is what decides.",
            rewards(np.array(example.thetas), example.feature_names, np.array(example.true_thetas), names),
        ),
        figure(
            "responsibilities",
            "Who follows which intent",
            "One strip per demonstration, sorted by its true intent: how sure the mixture is.",
            responsibilities(np.array(example.responsibilities), np.array(example.labels), names),
        ),
        figure(
            "shares",
            "Shares of the intents",
            "True and learned.",
            shares(np.array(example.true_weights), np.array(example.weights), names),
        ),
    ]


def _flows(example: WorldExample) -> list[Figure | Grid]:
    """Return how GEVD pairs learned with true rewards, for the warm and for the random start."""
    drawn = [
        figure(
            f"flow-{found.init.replace('_', '-')}",
            f"GEVD flow, {method}",
            f"Learned rewards (left) paired with true ones (right) at the least expected loss: {found.value:.3g}.",
            flow(np.array(found.flow), np.array(found.evd), found.value),
        )
        for method, found in example.flows.items()
    ]
    return [Grid(drawn)] if drawn else []


def _traces(results: Results, seed: int) -> Figure:
    histories = {}
    for method in METHODS:
        record = results.record(method, PAPER_LENGTH, seed)
        if record is not None and record.history is not None and method != SUPERVISED:
            histories[method] = record.history
    return figure(
        "traces",
        "How EM converges",
        "Mean NLL of the training demonstrations by iteration, and how far it lies above the best.",
        traces(histories),
    )
