"""One world of a study in detail, for a report: demonstrations, learned intents and the flow of GEVD."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from limiirl.errors import InvalidParameter
from limiirl.experiments.problem import make_problem
from limiirl.experiments.record import Record
from limiirl.experiments.results import TIES, GevdFlow, Results, WorldExample
from limiirl.experiments.spec import Spec, Study
from limiirl.experiments.store import Store
from limiirl.experiments.studies import PAPER_LENGTH
from limiirl.experiments.trial import fit_problem, make_mixture, pose, run_alone
from limiirl.mdp import RewardEnsemble
from limiirl.metrics import gevd
from limiirl.mixture import IntentMixture, in_order_of_labels

WARM_START, RANDOM_START = "k-means, MLE", "random rewards"
_STUDIES = ("table1", "boxplots")


def typical_seed(results: Results) -> int | None:
    """Return the seed of the world to look into, None where no trial succeeded.

    Among the worlds in which the two starts lead to different GEVDs, or among all where there is none, it is the one in
    which the warm start's is nearest to its median.
    """
    warm, random = (results.values(method, PAPER_LENGTH, "gevd") for method in (WARM_START, RANDOM_START))
    known = np.isfinite(warm)
    if not known.any():
        return None
    apart = known & (np.abs(random - warm) > TIES["gevd"])
    chosen = np.flatnonzero(apart if apart.any() else known)
    distance = np.abs(warm[chosen] - np.median(warm[known]))
    return results.seeds[int(chosen[np.argmin(distance)])]


def make_example(results: Results) -> WorldExample | None:
    """Return the typical world of a study with the paper's setting; None where it has none."""
    seed = typical_seed(results)
    if seed is None:
        return None
    flows = {}
    for method in (WARM_START, RANDOM_START):
        record, spec = results.record(method, PAPER_LENGTH, seed), results.study.spec(method, PAPER_LENGTH)
        if record is not None and spec is not None and record.thetas is not None:
            problem, mixture = make_problem(spec, seed), restore(spec, record)
            found = gevd(problem.world.mdp, problem.truth, mixture.ensemble_)
            flows[method] = GevdFlow(spec.init, found.value, found.flow.tolist(), found.evd.tolist())
    record, spec = results.record(WARM_START, PAPER_LENGTH, seed), results.study.spec(WARM_START, PAPER_LENGTH)
    if record is None or spec is None or record.thetas is None:
        return None
    problem, mixture = make_problem(spec, seed), restore(spec, record)
    return WorldExample(
        seed,
        spec,
        problem.demos.states.tolist(),
        problem.demos.offsets.tolist(),
        problem.labels.tolist(),
        np.asarray(mixture.responsibilities_).tolist(),
        mixture.weights_.tolist(),
        mixture.thetas_.tolist(),
        problem.truth.weights.tolist(),
        problem.truth.thetas.tolist(),
        list(problem.world.mdp.feature_names),
        flows,
    )


def store_examples(studies: Iterable[Study], store: Store[Record]) -> None:
    """Store the typical world of each study that a report looks into, unless the store has it."""
    for study in studies:
        if study.name not in _STUDIES:
            continue
        results = Results.of(study, store.read([spec.hash for spec in study.specs]))
        example = make_example(results)
        if example is not None:
            store.put_example(study.name, example.to_dict())


def restore(spec: Spec, record: Record) -> IntentMixture:
    """Return the mixture of a record as it was fitted, with the intents in the order of the true ones.

    Examples
    --------
    >>> from limiirl.experiments.trial import run_trial
    >>> spec = Spec(n_demos=60)
    >>> mixture = restore(spec, run_trial(spec, seed=2))
    >>> bool((mixture.labels_ == make_problem(spec, 2).labels).mean() > 0.9)
    True
    """
    if record.weights is None or record.thetas is None:
        raise InvalidParameter(
            f"Trial {record.spec} with seed {record.seed} has no mixture: {record.error}",
            parameter="record",
            value=record.key,
        )
    with run_alone():
        problem = pose(spec, record.seed)
        learned = RewardEnsemble(np.array(record.weights), problem.rewards(np.array(record.thetas)))
        mixture = make_mixture(spec, record.seed).set_params(init=learned, max_iter=0, n_intents=len(learned.weights))
        fitted = fit_problem(mixture, problem)
    return in_order_of_labels(fitted, problem.labels, problem.n_labels)
