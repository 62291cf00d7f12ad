"""Switching intents on the data of SWIRL (Ke et al., ICML 2025), and on whole mice in the same labyrinth.

Scores are predictive log-likelihoods per decision: p(action | states so far, earlier actions). On SWIRL's splits, the
first decision of each recording is not scored, because models with a previous state have none there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import linear_sum_assignment

from limiirl._typing import BoolArray, FloatArray, IntArray
from limiirl.baselines import HMM, MarkovChain, NGram, Uniform
from limiirl.datasets import Dataset, load_mouse_labyrinth, load_swirl_gridworld, load_swirl_labyrinth
from limiirl.demos import Demonstrations, with_history
from limiirl.experiments.rivals.run import Goal, Published, RivalPart, Score
from limiirl.irl import MaxCausalEnt
from limiirl.mdp import MDP, EdgeFeatures, add_edge_features, policy_features, sequence_features, turn_features
from limiirl.switching import SwitchingMixture

_N_FOLDS = 5
# Depth of each node of the labyrinth, a complete binary tree.
_DEPTH = np.floor(np.log2(np.arange(127) + 1)).astype(np.int64)
# Ridge per step of the habits and of the rewards of intents; the scales of features divide it (`sequence_features`).
_HABIT_RIDGE = 1e-5
# Half-width of the bounds that keep the parameter of the habit at 1.
_FIXED = 1e-6
# Discount that is 0 in effect; `MDP` requires a positive discount.
_NO_DISCOUNT = float(np.finfo(np.float64).tiny)
_SOURCE = "SWIRL's released parameters, evaluated again (`swirl_{}/README.md` of the data)"


class Windows(NamedTuple):
    """Recordings, the mask (N,) of the training recordings, and known intents (n,) of all decisions.

    `n_actions` is the number of actions of each state, of which `mdp` contains those that occur in training; None if it
    contains all.
    """

    mdp: MDP
    demos: Demonstrations
    train: BoolArray
    intents: IntArray | None = None
    n_actions: int | None = None

    def split(self, fold: int | None = None) -> tuple[IntArray, IntArray]:
        """Return the indices of the recordings to fit and to score; a fold is one of the training recordings."""
        if fold is None:
            return np.flatnonzero(self.train), np.flatnonzero(~self.train)
        own = np.flatnonzero(self.train)
        folds = np.random.default_rng(0).permutation(np.arange(own.size) % _N_FOLDS)
        return own[folds != fold], own[folds == fold]


class Model(NamedTuple):
    """A fitted model: a function of demonstrations that returns log-probabilities, one of intents, and a note."""

    log_prob: Callable[[Demonstrations], FloatArray]
    intents: Callable[[Demonstrations], IntArray] | None = None
    note: str = ""


Fit = Callable[[MDP, Demonstrations], Model]


def score_windows(fit: Fit, data: Windows, number: int, *, select: bool = False) -> Score:
    """Fit to the training recordings and score the test recordings, or the recordings of a fold of the former."""
    fitted, scored = data.split(number if select else None)
    model = fit(data.mdp, data.demos[fitted])
    train, test = (_sums(model, data, which) for which in (fitted, scored))
    accuracy = None
    if data.intents is not None and model.intents is not None:
        steps = np.repeat(np.isin(np.arange(len(data.demos)), scored), data.demos.lengths - 1)
        accuracy = match_intents(data.intents[steps], model.intents(data.demos[scored]))
    sizes = (data.demos.lengths[scored] - 2).astype(np.float64)
    return Score(test, sizes, float(train.sum() / np.sum(data.demos.lengths[fitted] - 2)), accuracy, model.note)


def _sums(model: Model, data: Windows, which: IntArray) -> FloatArray:
    """Return the log-likelihood of each recording without its first decision."""
    demos = data.demos[which]
    log_prob = model.log_prob(demos)
    if data.n_actions is not None:
        log_prob = log_prob + _log_possible(data)[np.delete(demos.states, demos.offsets[1:] - 1)]
    first = demos.offsets[:-1] - np.arange(len(demos))
    return np.asarray(np.add.reduceat(log_prob, first) - log_prob[first])


def _log_possible(data: Windows) -> FloatArray:
    """Return the log-probability (S,) of all actions that occur in training.

    Other actions, such as walking into a wall, have a total probability of 1 / (n + 2) (rule of succession), where n is
    the number of training decisions in such states.
    """
    missing = np.diff(data.mdp.out_ptr) < (data.n_actions or 0)
    n = int(np.sum(missing[data.demos[data.train].states]))
    return np.where(missing, math.log1p(-1.0 / (n + 2.0)), 0.0)


def match_intents(truth: IntArray, labels: IntArray) -> float:
    """Return the fraction of equal labels under the best matching of intents.

    Examples
    --------
    >>> match_intents(np.array([0, 0, 1, 1]), np.array([1, 1, 0, 1]))
    0.75
    """
    K = 1 + max(int(truth.max()), int(labels.max()))
    table = np.bincount(truth * K + labels, minlength=K * K).reshape(K, K)
    return float(table[linear_sum_assignment(-table)].sum() / truth.size)


def fit_baseline(make: Callable[[], Any], mdp: MDP, demos: Demonstrations) -> Model:
    """Fit a baseline, which has no rewards."""
    model = make().fit(demos, mdp)
    note = ", ".join(f"{x:.3g}" for x in np.atleast_1d(getattr(model, "concentration_", [])))
    return Model(model.predictive_log_prob, note=f"concentration {note}" if note else "")


def fit_intents(
    build: Callable[[MDP], MDP], options: Mapping[str, Any], mdp: MDP, demos: Demonstrations, ridge: float = 1e-5
) -> Model:
    """Fit a `SwitchingMixture` with some options in the MDP with the previous state; `build` adds its features."""
    base, own = with_history(mdp, demos, keep_starts=True)
    longer = build(base)
    mixture = SwitchingMixture(irl=MaxCausalEnt(ridge=ridge), random_state=0, **options)
    return _as_model(mixture.fit(longer, own), longer)


def _as_model(mixture: SwitchingMixture, mdp: MDP) -> Model:
    state = f"K = {len(mixture.initial_)}, {mixture.n_iter_} EM iterations"
    return Model(
        lambda demos: mixture.predictive_log_prob(demos.renumber(mdp)),
        lambda demos: mixture.predict(demos.renumber(mdp)),
        state if mixture.converged_ else f"{state}, not converged",
    )


@dataclass(frozen=True)
class HabitSetting:
    """Settings of intents relative to a habit.

    A habit is the policy of one intent with indicators of sequences of states and of turns, without planning. The
    rewards of intents have the same kinds of features, fewer of them, and are relative to the habit
    (`limiirl.mdp.policy_features`).

    Attributes
    ----------
    order : int
        Number of previous states in the state.
    habit_sequences, sequences : tuple of float
        Scales of the indicators of sequences of 2, 3, ... states, for the habit and for the intents; a ridge is divided
        by the square of the scale.
    habit_turns, turns : tuple of float
        Scales of the indicators of 1, 2, ... consecutive turns, per depth of the current node.
    n_intents : int
    ridge : float
        Ridge per step of the rewards of intents.
    gamma : float
        Discount of the intents; 0 for choices without planning.
    """

    order: int = 4
    habit_sequences: tuple[float, ...] = (1.5, 0.3, 0.15, 0.1, 0.1)
    habit_turns: tuple[float, ...] = (1.0, 0.6, 0.4, 0.3)
    sequences: tuple[float, ...] = (1.0, 0.5)
    turns: tuple[float, ...] = (1.0, 0.7, 0.5)
    n_intents: int = 3
    ridge: float = 1e-4
    gamma: float = 0.0


def fit_habit_intents(setting: HabitSetting, mdp: MDP, demos: Demonstrations) -> Model:
    """Fit switching intents whose rewards are relative to a habit; with one intent, the habit alone."""
    base, own = with_history(mdp, demos, setting.order, keep_starts=True)
    base = base.replace(gamma=_NO_DISCOUNT)
    habits = _with_indicators(base, own, setting.habit_sequences, setting.habit_turns)
    irl = MaxCausalEnt(ridge=_HABIT_RIDGE, ridge_per="step", max_evaluations=300, gtol=1e-5)
    (theta,) = irl.fit_many(habits, own, np.ones((len(own), 1)), None)
    policy = irl.policy(habits, theta)
    if setting.n_intents == 1:
        log_policy = np.log(policy[base.src, base.act])
        return Model(lambda demos: log_policy[demos.renumber(base).steps(base).edge])
    intents = _with_indicators(base, own, setting.sequences, setting.turns, policy_features(base, policy))
    intents = intents.replace(gamma=setting.gamma or _NO_DISCOUNT)
    is_habit = np.array(intents.feature_names) == "habit"
    bounds = np.where(is_habit[:, None], [1.0 - _FIXED, 1.0 + _FIXED], [-np.inf, np.inf])
    mixture = SwitchingMixture(
        setting.n_intents,
        MaxCausalEnt(ridge={"habit": 0.0, "*": setting.ridge}, bounds=bounds),
        max_evaluations=15,
        tol=2e-5,
        random_state=0,
    )
    return _as_model(mixture.fit(intents, own), intents)


def _with_indicators(
    mdp: MDP, demos: Demonstrations, sequences: tuple[float, ...], turns: tuple[float, ...], *blocks: EdgeFeatures
) -> MDP:
    """Return the MDP with indicators of the sequences and turns that occur in demonstrations.

    Indicators of others would have the reward 0, because of the ridge.
    """
    every = [sequence_features(mdp, i, actions=True, scale=scale) for i, scale in enumerate(sequences, 2)]
    every += [turn_features(mdp, root=0, per=_DEPTH, n_turns=i, scale=scale) for i, scale in enumerate(turns, 1)]
    taken = np.bincount(demos.steps(mdp).edge, minlength=mdp.n_edges) > 0
    occurring = []
    for block in every:
        columns = np.unique(sparse.csr_array(block.values[taken]).indices)
        names = tuple(block.names[j] for j in columns.tolist())
        occurring.append(EdgeFeatures(sparse.csr_array(block.values[:, columns]), names))
    return add_edge_features(mdp, *blocks, *occurring)


def _with_turns(mdp: MDP) -> MDP:
    """Return the MDP with indicators of turns per depth."""
    return add_edge_features(mdp, turn_features(mdp, root=0, per=_DEPTH))


# Labyrinth: SWIRL's windows.


def read_windows(folder: Path) -> Windows:
    """Read SWIRL's windows; the MDP has the actions that occur in training."""
    data = load_swirl_labyrinth(folder)
    assert data.test is not None  # set by the reader
    taken = np.bincount(data.demos[~data.test].steps(data.mdp).edge, minlength=data.mdp.n_edges) > 0
    mdp = data.mdp
    possible = MDP.from_edges(
        mdp.src[taken], mdp.dst[taken], n_states=mdp.n_states, action=mdp.act[taken], gamma=mdp.gamma
    )
    return Windows(possible, data.demos, ~data.test, n_actions=mdp.n_actions)


def _baselines(*orders: int, order: int, components: int | None = 3) -> dict[str, Fit]:
    """Return models without rewards: chains of some orders, an n-gram, and a hidden Markov model over chains."""
    fits: dict[str, Fit] = {
        f"Markov chain of order {n}": partial(fit_baseline, partial(MarkovChain, n)) for n in orders
    }
    fits[f"n-gram over {order} states"] = partial(fit_baseline, partial(NGram, order))
    if components is not None:
        hmm = partial(HMM, components, order=2, random_state=0)
        fits[f"HMM over chains of order 2, K = {components}"] = partial(fit_baseline, hmm)
    return fits


def _scorers(fits: Mapping[str, Fit], *, select: bool = False) -> dict[str, Callable[[Any, int], Score]]:
    return {name: partial(score_windows, fit, select=select) for name, fit in fits.items()}


LABYRINTH_CANDIDATES: Mapping[str, HabitSetting] = MappingProxyType(
    {
        "the habit alone": HabitSetting(n_intents=1),
        "K = 2": HabitSetting(n_intents=2),
        "K = 3": HabitSetting(),
        "K = 3, ridge 3e-4": HabitSetting(ridge=3e-4),
        "K = 5": HabitSetting(n_intents=5),
    }
)
"""Settings that were compared by cross-validation over the training windows."""
LABYRINTH_CHOSEN = "K = 3, ridge 3e-4"
_OURS = "limiirl: habit and {} switching intents"


def _labyrinth() -> RivalPart:
    chosen = LABYRINTH_CANDIDATES[LABYRINTH_CHOSEN]
    ours = _OURS.format(chosen.n_intents)
    fits = {"uniform": partial(fit_baseline, partial(Uniform, 4))} | _baselines(1, 2, 3, 4, order=5)
    fits["limiirl: one intent, nodes and turns"] = partial(fit_intents, _with_turns, {"n_intents": 1})
    by_node = {"n_intents": 5, "switching": "state"}
    fits["limiirl: 5 intents, nodes and turns, switching by node"] = partial(fit_intents, _with_turns, by_node)
    fits["limiirl: habit of four steps, one intent"] = partial(fit_habit_intents, replace(chosen, n_intents=1))
    fits[ours] = partial(fit_habit_intents, chosen)
    candidates = {name: partial(fit_habit_intents, setting) for name, setting in LABYRINTH_CANDIDATES.items()}
    return RivalPart(
        "labyrinth",
        "Mice in a labyrinth, SWIRL's split",
        "238 windows of 500 node visits of ten water-restricted mice; every fifth window is for the test. Windows of "
        "one mouse are on both sides of the split.",
        "swirl_labyrinth",
        "step",
        read_windows,
        _scorers(fits),
        ours,
        published=(
            Published("SWIRL S-2, K = 3", -0.7268, _SOURCE.format("labyrinth"), train=-0.7270, error=0.0091),
            Published("prototype of 60 lines, K = 5", -0.6494, "`swirl_labyrinth/README.md`", train=-0.637),
        ),
        goals=(
            Goal("Markov chain of order 3, as published", -0.655),
            Goal("n-gram over 5 states, as published", -0.6405),
        ),
        candidates=_scorers(candidates, select=True),
        chosen=LABYRINTH_CHOSEN,
        n_folds=_N_FOLDS,
    )


# Labyrinth: whole mice.


def score_mice(fit: Fit, data: Dataset, number: int) -> Score:
    """Fit to the bouts of the mice outside of a fold, and score each mouse of the fold."""
    _, mouse = np.unique(np.asarray(data.demos.groups), return_inverse=True)
    held_out = mouse % _N_FOLDS == number
    train, test = data.demos[~held_out], data.demos[held_out]
    model = fit(data.mdp, train)
    steps = np.repeat(mouse[held_out] // _N_FOLDS, test.lengths - 1)
    sums: FloatArray = np.bincount(steps, model.log_prob(test)).astype(np.float64)
    sizes = np.bincount(steps).astype(np.float64)
    return Score(sums, sizes, float(model.log_prob(train).mean()), None, model.note)


def _mice() -> RivalPart:
    chosen = LABYRINTH_CANDIDATES[LABYRINTH_CHOSEN]
    ours = _OURS.format(chosen.n_intents)
    fits = {"uniform": partial(fit_baseline, Uniform)} | _baselines(1, 2, 3, 4, order=5, components=None)
    fits["limiirl: one intent, nodes and turns"] = partial(fit_intents, _with_turns, {"n_intents": 1})
    fits["limiirl: habit of four steps, one intent"] = partial(fit_habit_intents, replace(chosen, n_intents=1))
    fits[ours] = partial(fit_habit_intents, chosen)
    return RivalPart(
        "mice",
        "Mice in a labyrinth, whole mice held out",
        "All bouts of 19 mice, ten of them water restricted. Each of five folds of whole mice is scored by fits to the "
        "other mice. The settings were chosen on the training windows of the other table, which are from ten of these "
        "mice.",
        "mouse_labyrinth",
        "step",
        load_mouse_labyrinth,
        {name: partial(score_mice, fit) for name, fit in fits.items()},
        ours,
        n_splits=_N_FOLDS,
        paired="animal",
    )


# Gridworld.


class GridSetting(NamedTuple):
    """Settings of two intents in the gridworld.

    Rewards are those of states and of sequences of three states, whose indicators have the value `scale`; 0 omits them.
    """

    ridge: float
    scale: float
    switching: str = "state"
    gamma: float = 0.9


GRIDWORLD_CANDIDATES: Mapping[str, GridSetting] = MappingProxyType(
    {
        "rewards of states": GridSetting(1e-4, 0.0),
        "rewards of states, constant switching": GridSetting(1e-4, 0.0, "homogeneous"),
        "and of sequences, scale 0.3": GridSetting(1e-4, 0.3),
        "and of sequences, scale 0.3, ridge 3e-4": GridSetting(3e-4, 0.3),
        "and of sequences, scale 1": GridSetting(1e-4, 1.0),
    }
)
"""Settings that were compared by cross-validation over the training trajectories."""
GRIDWORLD_CHOSEN = "and of sequences, scale 0.3, ridge 3e-4"


def read_gridworld(folder: Path) -> Windows:
    """Read SWIRL's gridworld."""
    data = load_swirl_gridworld(folder)
    assert data.test is not None  # set by the reader
    return Windows(data.mdp, data.demos, ~data.test, intents=data.intents)


def _build_grid(setting: GridSetting, mdp: MDP) -> MDP:
    own = mdp.replace(gamma=setting.gamma)
    return add_edge_features(own, sequence_features(own, 3, scale=setting.scale)) if setting.scale else own


def _gridworld() -> RivalPart:
    def fit(setting: GridSetting) -> Fit:
        options = {"n_intents": 2, "switching": setting.switching}
        return partial(fit_intents, partial(_build_grid, setting), options, ridge=setting.ridge)

    ours = "limiirl: 2 switching intents"
    fits = {"uniform": partial(fit_baseline, Uniform)} | _baselines(1, 2, 3, order=5, components=2)
    one = {"n_intents": 1}
    fits["limiirl: one intent"] = partial(fit_intents, partial(_build_grid, GridSetting(1e-4, 0.0)), one)
    fits["limiirl: 2 switching intents, rewards of states"] = fit(GRIDWORLD_CANDIDATES["rewards of states"])
    fits[ours] = fit(GRIDWORLD_CANDIDATES[GRIDWORLD_CHOSEN])
    source = _SOURCE.format("gridworld")
    return RivalPart(
        "gridworld",
        "SWIRL's gridworld",
        "200 simulated trajectories of 500 steps on a 5 x 5 grid with two modes that switch within a trajectory; every "
        "fifth trajectory is for the test. Accuracy: fraction of steps whose most probable intent is the true mode.",
        "swirl_gridworld",
        "step",
        read_gridworld,
        _scorers(fits),
        ours,
        published=(
            Published("SWIRL S-1", -1.4728, source, accuracy=0.8955),
            Published("SWIRL S-2", -1.4641, source, error=0.0024, accuracy=0.9167),
        ),
        goals=(
            Goal("log-likelihood of SWIRL S-2", -1.4641),
            Goal("accuracy of SWIRL S-2", 0.9167, "accuracy"),
        ),
        candidates=_scorers({name: fit(setting) for name, setting in GRIDWORLD_CANDIDATES.items()}, select=True),
        chosen=GRIDWORLD_CHOSEN,
        n_folds=_N_FOLDS,
    )


LABYRINTH, GRIDWORLD, MICE = _labyrinth(), _gridworld(), _mice()
