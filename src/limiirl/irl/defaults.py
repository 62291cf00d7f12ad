"""Models by name, and defaults that depend on the data: the single-intent model (ADR 0022) and features (ADR 0023).

The default features of an estimated MDP are state indicators, with or without turns. Cross-validation selects the
features and the ridge.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse import csgraph
from sklearn.base import clone

from limiirl._typing import FloatArray, IntArray
from limiirl._validation import as_generator, check_positive, suggest
from limiirl.demos import Agents, Demonstrations, Groups, with_history
from limiirl.errors import DivergentPartition, InvalidParameter
from limiirl.irl import validate
from limiirl.irl.base import PARAMETERS, REQUIRED
from limiirl.irl.causal.maxcausalent import MaxCausalEnt
from limiirl.irl.causal.mlirl import MLIRL
from limiirl.irl.causal.model import CausalModel
from limiirl.irl.destination.model import DestinationMaxEnt
from limiirl.irl.maxent.model import MaxEnt
from limiirl.irl.problem import make_problem
from limiirl.irl.sigma_girl.model import SigmaGIRL
from limiirl.mdp import MDP, add_edge_features, find_reachable, turn_features

MODELS: dict[str, type[Any]] = {
    model.__name__: model for model in (MaxEnt, MaxCausalEnt, MLIRL, DestinationMaxEnt, SigmaGIRL)
}
"""Registered models by name."""


def register_model(name: str, cls: type[Any]) -> None:
    """Register a model class under a name, so that mixtures with this model can be saved and loaded.

    A class may be registered again, for example after its module has been reloaded.

    Examples
    --------
    >>> class Strict(MaxEnt):
    ...     pass
    >>> register_model("Strict", Strict)
    >>> model_class("Strict") is Strict
    True
    >>> del MODELS["Strict"]
    """
    if not isinstance(name, str) or not name:
        raise InvalidParameter.of("name", name, "must be a non-empty string")
    if not isinstance(cls, type):
        raise InvalidParameter.of("cls", cls, "must be a class", remedy="Pass the class, not an instance.")
    methods = REQUIRED + PARAMETERS
    missing = [method for method in methods if not callable(getattr(cls, method, None))]
    if missing:
        raise InvalidParameter(
            f"cls must have the methods {', '.join(methods)}; {cls.__name__} has no {missing[0]}. "
            "Check all requirements with limiirl.testing.check_irl_model.",
            parameter="cls",
            value=cls,
        )
    current = MODELS.get(name, cls)
    if (current.__module__, current.__qualname__) != (cls.__module__, cls.__qualname__):
        raise InvalidParameter(
            f"name must not be in use for another class; {name!r} is registered for {current.__module__}."
            f"{current.__qualname__}. Choose another name for {cls.__name__}.",
            parameter="name",
            value=name,
        )
    MODELS[name] = cls


def model_class(name: str) -> type[Any]:
    """Return the class registered under a name."""
    if name not in MODELS:
        register = f"Import the module that defines it and call limiirl.irl.register_model({name!r}, cls)."
        remedy = suggest(name, MODELS) or register
        raise InvalidParameter.of("name", name, f"must be one of {', '.join(MODELS)}", remedy=remedy)
    return MODELS[name]


def model_name(model: Any) -> str:
    """Return the name under which a model's class is registered."""
    for name, cls in MODELS.items():
        if cls is type(model):
            return name
    own = type(model).__name__
    raise InvalidParameter(
        f"irl must be a registered model to be saved; got {own}. Call limiirl.irl.register_model({own!r}, {own}) when "
        "saving and when loading.",
        parameter="irl",
        value=own,
    )


RIDGES = (0.1, 0.01, 1e-3, 1e-4, 1e-5)
"""Candidate ridge coefficients per step; each fit starts from the result of the previous fit."""
# Ridge if there is a single recording, so that cross-validation is impossible (ADR 0023).
_FALLBACK = 0.01
_FOLDS = 3
# Maximum number of evaluations per cross-validation fit, and maximum number of edges of an MDP with previous states.
_EVALUATIONS, _MOST_EDGES = 100, 500_000


@dataclass(frozen=True)
class DefaultFeatures:
    """Features and ridge with the highest held-out likelihood.

    Attributes
    ----------
    mdp, demos : MDP, Demonstrations
        MDP with the chosen features, and the demonstrations in its states. If turns are features, states include the
        previous state.
    model : model
        Copy of the model with the chosen ridge.
    features : str
        "states" or "states and turns".
    ridge : float
    scores : dict
        Held-out log-likelihood per step for each set of features, with the best ridge for this set.
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
    """Choose features and a ridge for an MDP with state indicators by cross-validation.

    There are two candidates: one reward per state; and, in addition, rewards of staying and of turning back to the
    previous state (see `limiirl.mdp.turn_features`). The ridge shrinks all rewards towards 0, in particular those of
    states with few visits. The score of a candidate and a ridge is the held-out log-likelihood of a single intent. All
    demonstrations of a group, or of a recording, are in the same fold.

    Parameters
    ----------
    mdp : MDP
        MDP whose features are state indicators, as in `MDP.from_demonstrations`.
    demos : Demonstrations
    model : MaxCausalEnt or MLIRL
        Model to fit. If its ridge differs from the default ridge, it is used instead of the candidates.
    groups : (N,), optional
        Groups for cross-validation. Default: `demos.groups` or, if there are fewer than three groups, `demos.ids`.
    seed : int, Generator or None

    Examples
    --------
    >>> from limiirl.irl import MaxCausalEnt
    >>> recordings = [[0, 1, 2, 3, 2, 1] * 4, [3, 2, 1, 0, 1, 2] * 4, [1, 2, 3, 2, 1, 0] * 4] * 3
    >>> demos = Demonstrations.from_lists(recordings)
    >>> choice = choose_features(MDP.from_demonstrations(demos, gamma=0.9), demos, MaxCausalEnt())
    >>> choice.features, choice.mdp.feature_names[-1]
    ('states and turns', 'turning back')
    """
    if not isinstance(model, CausalModel):
        rule = "must be MaxCausalEnt or MLIRL, which support a ridge per step"
        raise InvalidParameter.of("model", type(model).__name__, rule)
    demos = validate.demonstrations(validate.in_numbers_of(mdp, demos))
    candidates = dict(_list_candidates(mdp, demos))
    given = model.ridge != signature(type(model)).parameters["ridge"].default
    own_ridge = check_positive(model.ridge, "ridge", zero=True)
    ridges = (own_ridge,) if given else RIDGES
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
        best[name] = np.nan, own_ridge if given else _FALLBACK
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
    longer, own = with_history(mdp, demos, keep_starts=True)
    turned = add_edge_features(longer, turn_features(longer))
    if turned.n_edge_features > mdp.n_edge_features:
        # Turns alone are not a candidate, because they cannot distinguish intents with different goals (ADR 0033).
        yield "states and turns", (turned, own)


def _assign_folds(demos: Demonstrations, groups: ArrayLike | None, seed: Any) -> IntArray:
    """Return the fold (N,) of each demonstration; a group or recording is in one fold if there are at least three."""
    labels = (demos.groups, demos.ids, None) if groups is None else (groups,)
    units = [Groups.from_labels(label, len(demos)) for label in labels]
    chosen = next((unit for unit in units if len(unit) >= _FOLDS), units[-1])
    order = as_generator(seed).permutation(len(chosen))
    fold = np.empty(len(chosen), dtype=np.int64)
    fold[order] = np.arange(len(chosen)) % _FOLDS
    return chosen.broadcast(fold)


def _score(mdp: MDP, demos: Demonstrations, model: Any, ridges: tuple[float, ...], fold: IntArray) -> FloatArray:
    """Return the held-out log-likelihood per step for each ridge, excluding the probability of start states."""
    values = np.zeros(len(ridges))
    for held_out in np.unique(fold):
        train, test = demos[fold != held_out], demos[fold == held_out]
        log_start = float(mdp.log_p0[test.start_states].sum())
        theta: FloatArray | None = None
        for i, ridge in enumerate(ridges):
            starts = None if theta is None else theta[None]
            theta = model.set_params(ridge=ridge).fit_many(mdp, train, np.ones((len(train), 1)), starts)[0]
            values[i] += float(model.log_prob(mdp, theta, test).sum()) - log_start
    return values / max(1, demos.n_transitions)


# Criteria for goal-directed trips: minimum number of distinct last states, maximum fraction of trips with the same last
# state, and minimum ratio of the length of shortest paths to the length of trips. ADR 0022 lists their values for
# several data sets.
_LEAST_GOALS, _MOST_COMMON_GOAL, _LEAST_DIRECT = 10, 0.25, 0.6
_EXAMINED = 50  # maximum number of trips compared with shortest paths


@dataclass(frozen=True)
class ModelChoice:
    """A single-intent model, the reason for choosing it, and the names of alternatives."""

    model: Any
    reason: str
    alternatives: tuple[str, ...]

    def __str__(self) -> str:
        others = f"; alternatives: {', '.join(self.alternatives)}" if self.alternatives else ""
        return f"{type(self.model).__name__} by default, because {self.reason}{others}"


def default_model(mdp: MDP | None, demos: Demonstrations | Agents | None = None) -> Any:
    """Return the unfitted model that is used if no model is given; see `choose_model`."""
    return choose_model(mdp, demos).model


def choose_model(
    mdp: MDP | None, demos: Demonstrations | Agents | None = None, *, estimated: bool = False
) -> ModelChoice:
    """Choose the single-intent model with the best predictions for this type of data (ADR 0022).

    - `SigmaGIRL` without an MDP.
    - `DestinationMaxEnt` for goal-directed trips, if transitions are deterministic and the discount is 1. Trips are
      goal-directed if every trip visits its last state only once, there are at least ten different last states, at most
      a quarter of the trips end in the same state, and the shortest paths between the ends of the trips are on average
      at least 0.6 times as long as the trips.
    - `MaxCausalEnt` if transitions are stochastic or estimated, or if the discount is below 1. If soft values are
      infinite, which may happen at discount 1, `max_length` is set to the length of the longest demonstration.
    - `MaxEnt` otherwise: deterministic transitions and discount 1, as in the theory of the paper.

    Parameters
    ----------
    mdp : MDP or None
    demos : Demonstrations or Agents, optional
        Without demonstrations, only the MDP is considered.
    estimated : bool
        Whether the MDP was estimated from the demonstrations.

    Returns
    -------
    ModelChoice

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], gamma=0.9)
    >>> print(choose_model(mdp))
    MaxCausalEnt by default, because the discount is below 1; alternatives: MLIRL, MaxEnt
    >>> choose_model(mdp.replace(gamma=1.0)).model
    MaxEnt()
    """
    if mdp is None or isinstance(demos, Agents):
        return ModelChoice(SigmaGIRL(), "the data are agents", ())
    if mdp.deterministic and mdp.gamma == 1.0 and isinstance(demos, Demonstrations) and is_goal_directed(mdp, demos):
        reason = "trips lead directly to many different destinations"
        return ModelChoice(DestinationMaxEnt(), reason, ("MaxEnt", "MaxCausalEnt"))
    if not mdp.deterministic or estimated or mdp.gamma < 1.0:
        reason = "the transitions are estimated" if estimated else "the transitions are stochastic"
        if not estimated and mdp.deterministic:
            reason = "the discount is below 1"
        return ModelChoice(_finite(mdp, demos), reason, ("MLIRL", "MaxEnt"))
    return ModelChoice(MaxEnt(), "the transitions are deterministic and the discount is 1", ("MaxCausalEnt",))


def _finite(mdp: MDP, demos: Demonstrations | None) -> MaxCausalEnt:
    """Return `MaxCausalEnt`, with a maximum length if its values would otherwise be infinite."""
    model = MaxCausalEnt()
    if mdp.gamma < 1.0 or not isinstance(demos, Demonstrations):
        return model
    if np.all(find_reachable(mdp.dst, mdp.src, mdp.terminal)):
        try:
            make_problem(model, mdp, demos).feasible_start()
        except DivergentPartition:
            pass
        else:
            return model
    return MaxCausalEnt(max_length=int(demos.lengths.max()))


def is_goal_directed(mdp: MDP, demos: Demonstrations) -> bool:
    """Return True if demonstrations are trips to many different destinations along nearly shortest paths.

    Examples
    --------
    >>> mdp = MDP.from_edges(np.arange(20), np.arange(1, 21))
    >>> trips = Demonstrations.from_lists([list(range(i + 1)) for i in range(1, 21)])
    >>> is_goal_directed(mdp, trips), is_goal_directed(mdp, trips[:5])
    (True, False)
    """
    n = len(demos)
    possible = n >= _LEAST_GOALS and demos.states.max() < mdp.n_states and np.all(demos.lengths > 1)
    if not possible or not np.all(DestinationMaxEnt().admits(demos)):
        return False
    common = np.unique_counts(demos.last_states).counts
    if common.size < _LEAST_GOALS or common.max() > _MOST_COMMON_GOAL * n:
        return False
    part = demos[np.linspace(0, n - 1, min(n, _EXAMINED)).astype(np.int64)]
    shortest = _count_fewest_moves(mdp, part.start_states, part.last_states)
    return bool(shortest.sum() >= _LEAST_DIRECT * (part.lengths - 1).sum())


def _count_fewest_moves(mdp: MDP, start: NDArray[np.integer], goal: NDArray[np.integer]) -> NDArray[np.float64]:
    shape = (mdp.n_states, mdp.n_states)
    graph = sparse.csr_array((np.ones(mdp.n_edges), (mdp.src, mdp.dst)), shape=shape)
    moves = np.empty(start.size)
    for state in np.unique(start):  # one search at a time, because a table of all pairs may not fit in memory
        own = start == state
        moves[own] = csgraph.dijkstra(graph, indices=np.array([state]), unweighted=True)[0, goal[own]]
    return moves
