"""Report of `limiirl demo`: members and rewards of each intent, and a comparison of initialisations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from limiirl._typing import FloatArray, IntArray
from limiirl.demos import Demonstrations
from limiirl.experiments import HARD, PAPER_LENGTH, RANDOM, Record, Results, Store, judge_claims
from limiirl.metrics import anid
from limiirl.mixture import IntentMixture, Summary
from limiirl.report.document import Callout, Figure, Fold, Report, Section, Text
from limiirl.report.figures import Plot, plot_responsibilities, plot_rewards
from limiirl.report.figures.style import (
    Row,
    intent_colour,
    method_styles,
    new_figure,
    set_rows,
    use_report_style,
    wrap_label,
)
from limiirl.report.markup import literal
from limiirl.report.studies.methods import methods_items, terms_section
from limiirl.report.studies.report import count_verdicts, findings_items, gather
from limiirl.report.studies.sections import count_worlds, table_section
from limiirl.report.studies.table1 import METHOD, score_cell
from limiirl.report.svg import INK, MUTED, RULE
from limiirl.report.tables import Cell, Content, Table
from limiirl.worlds import ElementWorld

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Half-width of a 95 % interval in standard errors.
_WIDTH = 1.96


@dataclass(frozen=True, eq=False)
class DemoExample:
    """A world with unlabelled demonstrations, the mixture fitted to them, and the true labels (N,).

    The intents of the mixture are in the order of the true intents.
    """

    world: ElementWorld
    demos: Demonstrations
    mixture: IntentMixture
    labels: IntArray
    summary: Summary

    @property
    def correct(self) -> int:
        """Number of demonstrations that are assigned to their true intent."""
        return int(np.sum(self.mixture.labels_ == self.labels))

    @property
    def anid(self) -> float:
        """Adjusted normalised information distance between learned and true intents: 0 is perfect, 1 is chance."""
        return anid(np.eye(self.world.n_elements)[self.labels], self.mixture.responsibilities_)


def describe_intents(summary: Summary, features: Sequence[int]) -> list[str]:
    """Describe each intent by its rewards of some features, such as the elements of an ElementWorld.

    A feature is preferred if its reward exceeds the rewards of all others by more than the sum of their 95 %
    half-widths, which is an upper bound on the half-width of the difference.

    >>> from limiirl.worlds import ElementWorld
    >>> world = ElementWorld(seed=2)
    >>> summary = IntentMixture(1, random_state=0).fit(world.mdp, world.sample(20, seed=0)[0]).summary()
    >>> describe_intents(summary, [2, 3, 4])
    ['no element has a clearly higher reward than the others']
    """
    sentences = []
    for theta, error in zip(summary.thetas, summary.errors, strict=True):
        ordered = sorted(features, key=lambda j: -theta[j])
        best, others = ordered[0], ordered[1:]
        clear = all(theta[best] - theta[j] > _WIDTH * (error[best] + error[j]) for j in others)
        if not others or not clear:  # also if an error is NaN
            sentences.append("no element has a clearly higher reward than the others")
            continue
        rest = ", ".join(f"{summary.feature_names[j]}: {_estimate(theta[j], error[j])}" for j in sorted(others))
        sentences.append(
            f"prefers {summary.feature_names[best]}: reward {_estimate(theta[best], error[best])} ({rest})"
        )
    return sentences


def _estimate(value: float, error: float) -> str:
    digits = 2 if _WIDTH * error < 1.0 else 1
    return f"{value:.{digits}f} ± {_WIDTH * error:.{digits}f}".replace("-", "−")


def element_features(world: ElementWorld) -> list[int]:
    """Return the indices of the features of the elements."""
    return list(range(2, 2 + world.n_elements))


def compare_initialisations(results: Results) -> str:
    """Return a comparison of k-means with random rewards in plain words, with the uncertainty of the difference."""
    means = {name: results.finite(name, PAPER_LENGTH, "accuracy") for name in (HARD, RANDOM)}
    if not all(values.size for values in means.values()):
        return "The study is incomplete."
    ours, random = (100.0 * float(means[name].mean()) for name in (HARD, RANDOM))
    sentence = (
        f"Initialised with clusters ({HARD}), EM assigns {ours:.0f} % of the test trajectories to the correct intent; "
        f"initialised with {RANDOM}, it assigns {random:.0f} % correctly."
    )
    steps = {name: results.finite(name, PAPER_LENGTH, "n_iter") for name in (HARD, RANDOM)}
    if all(values.size for values in steps.values()):
        sentence += (
            f" On average, EM needs {steps[HARD].mean():.0f} and {steps[RANDOM].mean():.0f} iterations, respectively."
        )
    result = results.compare((HARD, PAPER_LENGTH), (RANDOM, PAPER_LENGTH), "accuracy")
    if result is None:
        return f"{sentence} A single world is not sufficient to test the difference."
    if result.better is not None:  # both paired tests are significant
        return f"{sentence} The difference in accuracy is significant (p = {max(result.p_t, result.p_wilcoxon):.1g})."
    n = len(results.seeds)
    return f"{sentence} With {n} worlds, the difference in accuracy is not significant."


def accuracy_rows(results: Results) -> list[tuple[str, str]]:
    """Return each initialisation with its percentage of correctly assigned test trajectories, and the 95 % interval."""
    rows = []
    for method in results.study.methods:
        values = 100.0 * results.finite(method, PAPER_LENGTH, "accuracy")
        interval = results.interval(method, PAPER_LENGTH, "accuracy")
        if values.size:
            text = f"{values.mean():.1f} %"
            if interval is not None:  # Student's interval may extend beyond 0 and 100
                low, high = (min(max(100.0 * end, 0.0), 100.0) for end in (interval.low, interval.high))
                text += f" [{low:.0f}, {high:.0f}]"
            rows.append((method, text))
    return rows


def demo_report(example: DemoExample, store: Store[Record]) -> Report:
    """Return the report on the example and on the study of initialisations in the store."""
    results = gather(store)
    n, k = len(example.labels), example.mixture.n_intents
    sections = [_intents_section(example), _truth_section(example), *map(_initialisations_section, results)]
    return Report(
        f"{k} intents behind {n} unlabelled trajectories",
        f"{k} groups with different rewards were learned from {n} trajectories without labels. {example.correct} of "
        f"the {n} trajectories are assigned to their true intent.",
        sections,
        methods=methods_items(results, store.runs()) if results else [],
        highlights={"trajectories": n, "intents": k, "assigned correctly": f"{example.correct} of {n}"},
    )


def _intents_section(example: DemoExample) -> Section:
    world, mixture = example.world, example.mixture
    described = describe_intents(example.summary, element_features(world))
    counts = np.bincount(mixture.labels_, minlength=mixture.n_intents)
    lines = [f"- **Intent {k}** ({counts[k]} trajectories): {literal(text)}." for k, text in enumerate(described)]
    figure = Figure.from_plot(
        "intents",
        "Trajectories and rewards of each intent",
        "Top: the trajectories that are assigned to each intent, on the unrolled world; numbers are elements, and "
        "trajectories lead from the left to the right. Bottom: learned reward per step in each type of cell, with its "
        "95\u00a0% interval. An open dot is a reward on a bound of the model, which has no interval.",
        plot_intents(example),
    )
    return Section(
        "The intents",
        [figure, Text("\n".join(lines))],
        lead="ElementWorld is a cylinder of lanes of three elements between a start and a goal column. There is one "
        "kind of agent per element, for which steps on its own element are cheap. The mixture is given the "
        "trajectories, but neither the kinds nor the rewards."
        if world.n_elements == 3
        else "",
    )


@use_report_style
def plot_intents(example: DemoExample) -> Plot:
    """Plot, for each intent, the trajectories that are assigned to it above its rewards with 95 % intervals."""
    summary, world, labels = example.summary, example.world, example.mixture.labels_
    K, d = summary.thetas.shape
    figure = new_figure(4.0 + 0.24 * d, 2.7 * K)
    axes = figure.subplots(2, K, height_ratios=[3.2, 0.24 * d + 0.3], squeeze=False)
    half = np.where(np.isfinite(summary.errors), _WIDTH * summary.errors, 0.0)
    low, high = float(np.min(summary.thetas - half)), float(np.max(summary.thetas + half))
    rows: list[Row] = []
    for k in range(K):
        members = labels == k
        world.plot(ax=axes[0, k], demos=example.demos[members], labels=labels[members])
        _strip(axes[0, k], f"intent {k}: {int(members.sum())} trajectories")
        ax = axes[1, k]
        _draw_rewards(ax, summary.thetas[k], half[k], summary.status[k], k)
        set_rows(ax, [wrap_label(name, 22, 1) if k == 0 else "" for name in summary.feature_names], bins=4)
        ax.set_xlim(min(low, 0.0) - 0.06 * (high - low), max(high, 0.0) + 0.06 * (high - low))
        ax.set_xlabel("learned reward per step")
        values = zip(summary.feature_names, summary.thetas[k], summary.errors[k], summary.status[k], strict=True)
        rows += [
            {
                "intent": k,
                "feature": name,
                "reward": float(theta),
                "standard_error": float(error),
                "status": str(status),
            }
            for name, theta, error, status in values
        ]
    parts = (f"Intent {k} {text}" for k, text in enumerate(describe_intents(summary, element_features(world))))
    return Plot(figure, rows, f"The trajectories and rewards of {K} intents. {'. '.join(parts)}.")


def _strip(ax: Axes, title: str) -> None:
    """Set the title of a plot of the world, and remove its axes and legend, which would be repeated per intent."""
    legend = ax.get_legend()
    if legend is not None:
        legend.remove()
    ax.set_title(title)
    ax.set(xlabel="", ylabel="", xticks=[], yticks=[])


def _draw_rewards(ax: Axes, theta: FloatArray, half: FloatArray, status: Iterable[str], k: int) -> None:
    colour = intent_colour(k)
    for j, (value, width, state) in enumerate(zip(theta.tolist(), half.tolist(), status, strict=True)):
        ax.plot([value - width, value + width], [j, j], color=colour, linewidth=2.0, alpha=0.6)
        face = colour if state == "ok" else "none"
        ax.plot(value, j, "o", color=colour, markerfacecolor=face, markersize=5.0)
    ax.axvline(0.0, color=MUTED, linewidth=0.8, zorder=0.5)


def _truth_section(example: DemoExample) -> Section:
    names = [f"intent {k}" for k in range(example.world.n_elements)]
    U, truth = np.asarray(example.mixture.responsibilities_), example.world.ensemble
    n = len(example.labels)
    return Section(
        "Comparison with the truth",
        [
            Figure.from_plot(
                "responsibilities",
                "Responsibilities",
                "One column per trajectory, sorted by true intent. The height is the posterior probability of the "
                "learned intent.",
                plot_responsibilities(U, example.labels, names),
            ),
            Figure.from_plot(
                "rewards",
                "Learned and true rewards",
                "The agents act optimally, whereas MaxEnt, the model of the paper, assumes noisy agents and treats "
                "deflections by the wind as choices, so the learned rewards are smaller in absolute value. "
                "`MaxCausalEnt` models the wind.",
                plot_rewards(example.mixture.thetas_, example.world.feature_names, truth.thetas, names),
            ),
        ],
        lead=f"The labels were used for this comparison only: {example.correct} of {n} trajectories are assigned to "
        f"their true intent. The ANID of the learned intents is {example.anid:.2f} (0 is perfect, 1 is chance).",
    )


def _initialisations_section(results: Results) -> Section:
    """Return the section on the study: plain words and one figure first, the tests of the paper's claims last."""
    details = [item for item in table_section(results).items if not isinstance(item, Callout | Section)]
    folds = [Fold("All scores, paired tests and variants", details)]
    verdicts = [(results, finding) for finding in judge_claims(results)]
    if verdicts:
        counts = count_verdicts([finding.verdict for _, finding in verdicts])
        title = f"Claims of the paper, tested in {count_worlds(results)}: {counts}"
        folds.append(Fold(title, findings_items(verdicts)))
    folds += [item for item in terms_section([results]).items if isinstance(item, Fold)]
    return Section(
        "Comparison of initialisations",
        [
            Figure.from_plot(
                "initialisations",
                "Correctly assigned trajectories by initialisation",
                f"Each small dot is one of {count_worlds(results)}; the large dot is the mean with its "
                "95\u00a0% interval. *Supervised* is given the true labels.",
                plot_accuracy(results),
            ),
            _scores_table(results),
            *folds,
        ],
        lead="EM finds a local optimum, which depends on the initialisation. "
        + compare_initialisations(results).replace(" %", "\u00a0%"),
    )


@use_report_style
def plot_accuracy(results: Results) -> Plot:
    """Plot the percentage of correctly assigned test trajectories per initialisation and world."""
    methods = [name for name in results.study.methods if results.finite(name, PAPER_LENGTH, "accuracy").size]
    figure = new_figure(0.6 + 0.28 * max(len(methods), 1))
    ax = figure.add_subplot()
    styles = method_styles(methods)
    rows: list[Row] = []
    for y, name in enumerate(methods):
        values, colour = 100.0 * results.values(name, PAPER_LENGTH, "accuracy"), styles[name].colour
        shift = 0.16 * np.sin(2.4 * np.arange(values.size))
        ax.plot(values, y + shift, "o", color=colour, markersize=2.6, alpha=0.55, linestyle="none")
        interval = results.interval(name, PAPER_LENGTH, "accuracy")
        mean = float(np.nanmean(values))
        if interval is not None and math.isfinite(interval.half_width):
            ax.plot(
                np.clip([100.0 * interval.low, 100.0 * interval.high], None, 100.0), [y, y], color=INK, linewidth=1.6
            )
        ax.plot(mean, y, "o", color=INK, markersize=5.0)
        rows += [
            {"initialisation": name, "seed": seed, "correct": value / 100.0}
            for seed, value in zip(results.seeds, values.tolist(), strict=True)
        ]
    set_rows(ax, methods, bottom=0.4)
    ax.set_xlim(None, 102.0)
    ax.set_xlabel("test trajectories assigned to the correct intent, %")
    ax.grid(visible=True, axis="x", color=RULE)
    listed = "; ".join(f"{name}: {text}" for name, text in accuracy_rows(results))
    return Plot(figure, rows, f"Percentage of correctly assigned test trajectories by initialisation. {listed}.")


def _scores_table(results: Results) -> Table:
    rows: list[list[Content]] = []
    for method in results.study.methods:
        values, interval = (
            results.finite(method, PAPER_LENGTH, "accuracy"),
            results.interval(method, PAPER_LENGTH, "accuracy"),
        )
        share = (
            Cell.number(100.0 * float(values.mean()) if values.size else None, 1)
            if interval is None
            else Cell.estimate(100.0 * interval.mean, 100.0 * interval.half_width, 1)
        )
        scores = [score_cell(results, method, PAPER_LENGTH, name, compare=False) for name in ("gevd", "n_iter")]
        rows.append([method, share, *scores])
    caption = (
        "Mean ± half-width of the 95\u00a0% interval. The loss of reward (GEVD) is the true reward that is lost by "
    )
    caption += "planning with the learned rewards; fewer iterations take less time."
    return Table("scores", "Scores", caption, [METHOD, "Correct, %", "Loss of reward", "EM iterations"], rows)
