"""Features of an MDP that has none: indicators of states with a cross-validated ridge, and turns (ADR 0023)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from limiirl._typing import FloatArray, IntArray
from limiirl._validation import as_generator
from limiirl.demos import Demonstrations, Groups, with_previous_state
from limiirl.errors import InvalidParameter
from limiirl.irl import validate
from limiirl.irl.causal.model import CausalModel
from limiirl.mdp import MDP

RIDGES = (0.1, 0.01, 1e-3, 1e-4, 1e-5)
"""Ridge coefficients per step that are compared, in the order of the fits: each fit starts from the previous one."""
# Without several recordings there is no held-out likelihood; ADR 0023 shows that this ridge is never bad.
_FALLBACK = 0.01
_FOLDS = 3
# Evaluations per fit of the comparison, and maximum number of edges of the MDP with previous states.
_EVALUATIONS, _MOST_EDGES = 100, 500_000


@dataclass(frozen=True)
class DefaultFeatures:
    """Features and ridge that predict held-out demonstrations best.

    Attributes
    ----------
    mdp, demos : MDP, Demonstrations
        With the chosen features; the states include the previous state if turns are features.
    model : model
        Copy of the model with the chosen ridge.
    features : str
        "states", "turns" or "states and turns".
    ridge : float
    scores : dict
        Held-out log-likelihood per step of each set of features, with its best ridge.
    """

    mdp: MDP
    demos: Demonstrations
    model: Any
    features: str
    ridge: float
    scores: dict[str, float]

    def __str__(self) -> str:
        compared = ", ".join(f"{name} {value:.4f}" for name, value in self.scores.items())
        held_out = f"; held-out log-likelihood per step: {compared}" if len(self.scores) > 1 else ""
        counts = f"{self.mdp.n_features} rewards of {self.features}"
        return f"Features by default: {counts}, with a ridge of {self.ridge:g} per {self.model.ridge_per}{held_out}"


def choose_features(
    mdp: MDP, demos: Demonstrations, model: CausalModel, groups: ArrayLike | None = None, seed: Any = 0
) -> DefaultFeatures:
    """Choose features and a ridge for an MDP with state indicators by held-out likelihood within the demonstrations.

    The candidates are a reward per state; rewards of staying and of turning back to the previous state (see
    `limiirl.demos.with_previous_state`); and both. A ridge shrinks all rewards to 0, which pools states with few visits
    towards the average. Each candidate and ridge is scored by cross-validation of a single intent, whose folds keep
    groups, or recordings, together.

    Parameters
    ----------
    mdp : MDP
        Its features are state indicators, as those of `MDP.from_demonstrations`.
    demos : Demonstrations
    model : MaxCausalEnt or MLIRL
        If its ridge is not the default, this ridge is used.
    groups : (N,), optional
        Default: `demos.groups` if there are several, otherwise `demos.ids`.
    seed : int, Generator or None

    Examples
    --------
    >>> from limiirl.irl import MaxCausalEnt
    >>> recordings = [[0, 1, 2, 3, 2, 1] * 4, [3, 2, 1, 0, 1, 2] * 4, [1, 2, 3, 2, 1, 0] * 4] * 3
    >>> demos = Demonstrations.from_lists(recordings)
    >>> choice = choose_features(MDP.from_demonstrations(demos, gamma=0.9), demos, MaxCausalEnt())
    >>> choice.features, choice.mdp.feature_names[-1]
    ('states and turns', 'turns back')
    """
    if not isinstance(model, CausalModel):
        rule = "must be MaxCausalEnt or MLIRL, whose ridge does not depend on how recordings are cut"
        raise InvalidParameter.of("model", type(model).__name__, rule)
    demos = validate.demonstrations(validate.in_numbers_of(mdp, demos))
    candidates = dict(_list_candidates(mdp, demos))
    given = model.ridge != signature(type(model)).parameters["ridge"].default
    ridges = (model.ridge,) if given else RIDGES
    ridge_per = model.ridge_per if given else "step"
    fold = _assign_folds(demos, groups, seed)
    best: dict[str, tuple[float, float]] = {}
    if fold.max() > 0 and np.any(demos.lengths > 1) and len(ridges) * len(candidates) > 1:
        trial = clone(model).set_params(max_evaluations=_EVALUATIONS, ridge_per=ridge_per)
        for name, (changed, own) in candidates.items():
            values = _score(changed, own, trial, ridges, fold)
            best[name] = float(values.max()), ridges[int(values.argmax())]
    else:
        name = "states and turns" if "states and turns" in candidates else "states"
        best[name] = np.nan, model.ridge if given else _FALLBACK
    features = max(best, key=lambda name: best[name][0])
    ridge = best[features][1]
    chosen = clone(model).set_params(ridge=ridge, ridge_per=ridge_per)
    return DefaultFeatures(
        *candidates[features], chosen, features, ridge, {name: value for name, (value, _) in best.items()}
    )


def _list_candidates(mdp: MDP, demos: Demonstrations) -> Iterator[tuple[str, tuple[MDP, Demonstrations]]]:
    yield "states", (mdp, demos)
    if np.bincount(mdp.dst, minlength=mdp.n_states)[mdp.src].sum() > _MOST_EDGES:
        return
    turned, own = with_previous_state(mdp, demos)
    if turned.n_edge_features > mdp.n_edge_features:
        yield "states and turns", (turned, own)
        yield "turns", (turned.replace(state_features=None), own)


def _assign_folds(demos: Demonstrations, groups: ArrayLike | None, seed: Any) -> IntArray:
    """Return the fold (N,) of each demonstration; groups, or recordings, are kept together if there are several."""
    labels = (demos.groups, demos.ids, None) if groups is None else (groups,)
    units = [Groups.from_labels(label, len(demos)) for label in labels]
    chosen = next((unit for unit in units if len(unit) >= _FOLDS), units[-1])
    order = as_generator(seed).permutation(len(chosen))
    fold = np.empty(len(chosen), dtype=np.int64)
    fold[order] = np.arange(len(chosen)) % _FOLDS
    return chosen.broadcast(fold)


def _score(mdp: MDP, demos: Demonstrations, model: Any, ridges: tuple[float, ...], fold: IntArray) -> FloatArray:
    """Return the held-out log-likelihood per step of each ridge; the start states are not scored."""
    values = np.zeros(len(ridges))
    for held_out in np.unique(fold):
        train, test = demos[fold != held_out], demos[fold == held_out]
        log_start = float(np.log(mdp.p0[test.start_states]).sum())
        theta: FloatArray | None = None
        for i, ridge in enumerate(ridges):
            starts = None if theta is None else theta[None]
            theta = model.set_params(ridge=ridge).fit_many(mdp, train, np.ones((len(train), 1)), starts)[0]
            values[i] += float(model.log_prob(mdp, theta, test).sum()) - log_start
    return values / max(1, demos.n_transitions)
