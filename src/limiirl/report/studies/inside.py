"""One world looked into: its demonstrations, what was learned from them, and how EM got there."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure as Drawing

from limiirl.experiments.findings import HARD, RANDOM, SUPERVISED
from limiirl.experiments.results import TIES, Results
from limiirl.experiments.studies import METHODS, PAPER_LENGTH
from limiirl.experiments.trial import Problem, make_problem, restore
from limiirl.metrics import gevd
from limiirl.mixture import IntentMixture
from limiirl.report.document import Figure, Grid, Section
from limiirl.report.figures import flow, responsibilities, rewards, shares, traces
from limiirl.report.ink import NARROW
from limiirl.report.studies.sections import figure


def typical_seed(results: Results) -> int | None:
    """Return the seed of the world to look into, None where no trial succeeded.

    Of the worlds in which the two starts lead to different GEVDs, or of all where there is none, it is that in which
    the warm start's is nearest to its median.
    """
    warm, random = (results.values(method, PAPER_LENGTH, "gevd") for method in (HARD, RANDOM))
    known = np.isfinite(warm)
    if not known.any():
        return None
    apart = known & (np.abs(random - warm) > TIES["gevd"])
    chosen = np.flatnonzero(apart if apart.any() else known)
    distance = np.abs(warm[chosen] - np.median(warm[known]))
    return results.seeds[int(chosen[np.argmin(distance)])]


def inside_section(results: Results) -> Section | None:
    """Return a look into one world, the typical one; None where there is nothing to look at."""
    chosen = typical_seed(results)
    if chosen is None:
        return None
    record, spec = results.record(HARD, PAPER_LENGTH, chosen), results.study.spec(HARD, PAPER_LENGTH)
    if record is None or spec is None or record.thetas is None:
        return None
    problem, mixture = make_problem(spec, chosen), restore(spec, record)
    return Section(
        "Inside one world",
        [
            _walks(problem, mixture),
            *_learned(problem, mixture),
            *_flows(results, chosen, problem),
            _traces(results, chosen),
        ],
        lead=f"The world with seed {chosen}: an ordinary one for {HARD}, in which {RANDOM} end elsewhere where "
        "there is such a world. Intent k follows element k + 1.",
    )


def _names(n: int) -> list[str]:
    return [f"intent {k}" for k in range(n)]


def _walks(problem: Problem, mixture: IntentMixture) -> Grid:
    """Return the world with the demonstrations, coloured by the true and by the learned intents."""
    drawings = []
    for name, title, labels in (("walks-true", "true", problem.labels), ("walks-learned", "learned", mixture.labels_)):

        def draw(labels: object = labels) -> Drawing:
            drawing = Drawing(figsize=(NARROW, NARROW))  # cells are square: more height would need more width
            problem.world.plot(ax=drawing.add_subplot(), demos=problem.demos, labels=labels)  # type: ignore[arg-type]
            return drawing

        counts = ", ".join(f"{np.sum(labels == k)} of intent {k}" for k in range(problem.truth.n_intents))
        ends = problem.demos.offsets
        steps = np.repeat(np.arange(len(problem.demos)), np.diff(ends))
        data = {
            "demo": steps.tolist(),
            "state": problem.demos.states.tolist(),
            "intent": np.asarray(labels)[steps].tolist(),
        }
        alt = f"The unrolled world, with {len(problem.demos)} walks coloured by the {title} intents: {counts}."
        drawings.append(
            Figure(
                name,
                f"Demonstrations by {title} intent",
                alt,
                f"Coloured by the {title} intents: {counts}.",
                draw,
                data,
            )
        )
    return Grid(drawings)


def _learned(problem: Problem, mixture: IntentMixture) -> list[Figure]:
    names = _names(problem.truth.n_intents)
    features = list(problem.world.mdp.feature_names)
    return [
        figure(
            "rewards",
            "Rewards of each intent",
            "Learned rewards beside the true ones. MaxEnt's walkers are noisy where the true ones are not, so its "
            "rewards are smaller; which element is cheap is what decides.",
            rewards(mixture.thetas_, features, problem.truth.thetas, names),
        ),
        figure(
            "responsibilities",
            "Who follows which intent",
            "One strip a demonstration, sorted by its true intent: how sure the mixture is.",
            responsibilities(mixture.responsibilities_, problem.labels, names),
        ),
        figure(
            "shares",
            "Shares of the intents",
            "True and learned.",
            shares(problem.truth.weights, mixture.weights_, names),
        ),
    ]


def _flows(results: Results, seed: int, problem: Problem) -> list[Figure | Grid]:
    """Return how GEVD pairs learned with true rewards, for the warm and for the random start."""
    drawn = []
    for method in (HARD, RANDOM):
        record, spec = results.record(method, PAPER_LENGTH, seed), results.study.spec(method, PAPER_LENGTH)
        if record is None or spec is None or record.thetas is None:
            continue
        found = gevd(problem.world.mdp, problem.truth, restore(spec, record).ensemble_)
        drawn.append(
            figure(
                f"flow-{spec.init.replace('_', '-')}",
                f"GEVD flow, {method}",
                f"Learned rewards (left) paired with true ones (right) at the least expected loss: {found.value:.3g}.",
                flow(found.flow, found.evd, found.value),
            )
        )
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
