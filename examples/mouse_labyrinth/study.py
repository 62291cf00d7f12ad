"""The study: compare models, select the number of intents, fit them, and predict water restriction."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

import limiirl as ll
from examples.mouse_labyrinth import maze, simulated
from examples.mouse_labyrinth.prediction import Prediction, predict, rank_test
from examples.mouse_labyrinth.recordings import Pieces, Recordings, cut, spans
from limiirl.mixture.selection.select import Selection

Float = NDArray[np.float64]
Log = Callable[[str], None]

FEW = 3
"""Number of intents in the literature on these mice: water, home and exploration."""

CHOSEN = "what a node is, and habits"
"""Name of the model of the study; with one intent it is the baseline of all comparisons."""

COUNTING = "visits to the water port, of all visits"


@dataclass(frozen=True)
class Settings:
    """Settings of the study; labels were not used to choose them.

    Attributes
    ----------
    length : int
        Maximum number of moves per piece.
    gamma : float
        Discount.
    most : int
        Maximum number of intents.
    per_mouse : int
        Number of random pieces per mouse for the selection of the number of intents, so that mice have equal weight.
    folds, resamples : int
        Arguments of `select_intents`; folds hold out whole mice.
    models : bool
        If True, also compare other models with one intent.
    check : bool
        If True, also fit three intents, with this model and with ML-IRL.
    tol : float
        EM stops when the mean log-likelihood per piece rises by less than `tol`; in `select_intents`, by less than five
        times `tol`.
    """

    length: int = 20
    gamma: float = 0.8
    most: int = 8
    per_mouse: int = 200
    folds: int = 3
    resamples: int = 3
    models: bool = True
    check: bool = True
    tol: float = 1e-3
    seed: int = 0

    def mixture(self, n_intents: int = 2, irl: object = None, init: object = "kmeans") -> ll.IntentMixture:
        """Return an unfitted mixture with truncated M-steps."""
        return ll.IntentMixture(
            n_intents,
            irl=ll.MaxCausalEnt(ridge=1e-3) if irl is None else irl,
            init=init,
            max_iter=100,
            max_evaluations=10,
            likelihood_tol=self.tol,
            random_state=self.seed,
        )


@dataclass(frozen=True, eq=False)
class Findings:
    """Results of the study.

    Attributes
    ----------
    held_out : dict of (M,)
        Held-out log-likelihood per move of each mouse, by name of the model.
    selection : Selection
    mixture : IntentMixture
        Fitted to all pieces, with intents ordered by visits to the water port.
    U : (N, K)
        Responsibilities of the pieces.
    shares : (M, K)
        Fraction of each mouse's moves per intent.
    shares_without : (M, M, K)
        shares_without[i] are the fractions under the mixture fitted without mouse i.
    predictions : list of Prediction
    ranks : dict
        AUC and exact p-value of each statistic, by name.
    agreement : dict
        ANID to the intents of another model.
    truth : dict
        Recovery of the true intents of simulated mice.
    """

    recordings: Recordings
    pieces: Pieces
    settings: Settings
    held_out: dict[str, Float]
    selection: Selection
    mixture: ll.IntentMixture
    U: Float
    shares: Float
    shares_without: Float
    predictions: list[Prediction]
    ranks: dict[str, tuple[float, float]]
    agreement: dict[str, float] = field(default_factory=dict)
    truth: dict[str, float] = field(default_factory=dict)


def run(recordings: Recordings, settings: Settings, log: Log) -> Findings:
    """Run the whole study; the labels of mice are used only after all fits."""
    mdp, pieces = maze.steps_mdp(settings.gamma), cut(recordings, settings.length)
    demos = pieces.demos()
    log(f"{len(recordings.mice)} mice, {len(recordings.bouts)} bouts, {len(demos)} pieces of {settings.length} moves")
    held_out = compare_models(pieces, recordings.mice, settings, log)
    selection = choose(mdp, pieces, settings, log)
    K = selection.recommended
    log(f"fitting {K} intents to all pieces")
    mixture = settings.mixture(K).fit(mdp, demos)
    order = by_water(pieces, mixture.responsibilities_)
    U = mixture.responsibilities_[:, order]
    ensemble = ll.RewardEnsemble(mixture.weights_[order], mixture.thetas_[order])
    mixture = settings.mixture(K, init=ensemble).set_params(max_iter=0).fit(mdp, demos)
    without, held_out[f"{K} intents"] = leave_mice_out(mdp, pieces, recordings.mice, settings.mixture(K), log)
    few: list[Float] = []
    agreement: dict[str, float] = {}
    if settings.check and K != FEW:
        few, held_out[f"{FEW} intents"] = leave_mice_out(mdp, pieces, recordings.mice, settings.mixture(FEW), log)
    if settings.check:
        agreement = other_model(mdp, demos, settings, log)
    log("predicting water restriction")
    predictions, ranks = evaluate_predictions(recordings, pieces, U, without, few)
    truth = {} if recordings.intents is None else measure_recovery(recordings, settings, mdp, mixture, U)
    return Findings(
        recordings,
        pieces,
        settings,
        held_out,
        selection,
        mixture,
        U,
        shares_of(pieces, U, recordings.mice),
        np.array([shares_of(pieces, result, recordings.mice) for result in without]),
        predictions,
        ranks,
        agreement,
        truth,
    )


def compare_models(pieces: Pieces, mice: list[str], settings: Settings, log: Log) -> dict[str, Float]:
    """Return the held-out log-likelihood per move of each mouse (M,) under models with one intent, by name."""
    g = settings.gamma
    candidates: dict[str, tuple[ll.MDP, object]] = {CHOSEN: (maze.steps_mdp(g), None)}
    if settings.models:
        candidates |= {
            "the same, by ML-IRL": (maze.steps_mdp(g), ll.MLIRL(beta=1.0, ridge=1e-3)),
            "a reward for each node, no habits": (maze.nodes_mdp(g), None),
            "a reward for each node, and habits": (maze.steps_mdp(g, each_node=True), ll.MaxCausalEnt(ridge=1e-2)),
        }
    result = {}
    for name, (mdp, irl) in candidates.items():
        log(f"comparing models: {name}")
        with warnings.catch_warnings():
            # Levels and regions overlap, and ML-IRL's likelihood has kinks. Only likelihoods are compared.
            warnings.simplefilter("ignore", ll.errors.IdentifiabilityWarning)
            warnings.simplefilter("ignore", ll.errors.ConvergenceWarning)
            # With one intent EM is a single M-step, which must not be truncated.
            mixture = settings.mixture(1, irl=irl).set_params(max_evaluations=1000)
            _, result[name] = leave_mice_out(mdp, pieces, mice, mixture, log)
    return result


def choose(mdp: ll.MDP, pieces: Pieces, settings: Settings, log: Log) -> Selection:
    """Select the number of intents on the same number of pieces per mouse."""
    rng = np.random.default_rng(settings.seed)
    drawn = []
    for name in np.unique(pieces.mouse):
        own = np.flatnonzero(pieces.mouse == name)
        drawn.append(rng.choice(own, min(settings.per_mouse, own.size), replace=False))
    chosen = np.sort(np.concatenate(drawn))

    def progress(done: int, total: int, what: str) -> None:
        log(f"selecting the number of intents: {done} of {total}, {what}")

    return ll.select_intents(
        mdp,
        pieces.demos()[chosen],
        range(1, settings.most + 1),
        # Many fits on a sample of the data: they stop earlier.
        mixture=settings.mixture().set_params(max_iter=40, likelihood_tol=5 * settings.tol),
        fold_groups=pieces.mouse[chosen],
        folds=settings.folds,
        resamples=settings.resamples,
        seed=settings.seed,
        progress=progress,
    )


def leave_mice_out(
    mdp: ll.MDP, pieces: Pieces, mice: list[str], mixture: ll.IntentMixture, log: Log
) -> tuple[list[Float], Float]:
    """Fit a mixture without each mouse; return the responsibilities (N, K) of all pieces, and the scores (M,).

    The fit without mouse i is initialised with intents fitted to the half of the mice that does not contain i. The
    score of a mouse is its held-out log-likelihood per move.
    """
    demos = pieces.demos()
    log_q = demos.log_q(mdp)
    halves = [set(mice[0::2]), set(mice[1::2])]
    begun = []
    for half in halves:
        log(f"{mixture.n_intents} intents of {len(half)} mice, to initialise the other half")
        begun.append(clone(mixture).fit(mdp, demos[np.isin(pieces.mouse, list(half))]).ensemble_)
    result, scores = [], []
    for i, name in enumerate(mice):
        log(f"{mixture.n_intents} intents, leaving out mouse {i + 1} of {len(mice)}")
        out = pieces.mouse == name
        start = begun[1 if name in halves[0] else 0]
        fitted = clone(mixture).set_params(init=start).fit(mdp, demos[~out])
        U = fitted.predict_proba(demos)
        result.append(U[:, by_water(pieces, U)])
        scores.append(np.sum(fitted.score_samples(demos[out]) - log_q[out]) / pieces.moves[out].sum())
    return result, np.array(scores)


def evaluate_predictions(
    recordings: Recordings, pieces: Pieces, U: Float, without: list[Float], few: list[Float]
) -> tuple[list[Prediction], dict[str, tuple[float, float]]]:
    """Return predictions from fractions per intent and from counts, and rank tests of single statistics."""
    mice, labels = recordings.mice, recordings.labels
    dry = ~touches_water(pieces)
    water, length = water_rate(pieces, mice), bout_length(recordings)
    points = {"fractions per intent": np.array([shares_of(pieces, result, mice) for result in without])}
    if few:
        points[f"fractions per intent, {FEW} intents"] = np.array([shares_of(pieces, result, mice) for result in few])
    points["fractions per intent, without pieces that visit water"] = np.array(
        [shares_of(pieces, result * dry[:, None], mice) for result in without]
    )
    points |= {COUNTING: water[:, None], "mean length of a bout": length[:, None]}
    predictions = [predict(name, x, labels, recordings.batches) for name, x in points.items()]
    own, own_dry = shares_of(pieces, U, mice), shares_of(pieces, U * dry[:, None], mice)
    ranks = {f"fraction of intent {k}": rank_test(own[:, k], labels) for k in range(U.shape[1])}
    ranks |= {"fraction of intent 0, without pieces that visit water": rank_test(own_dry[:, 0], labels)}
    ranks |= {COUNTING: rank_test(water, labels)}
    return predictions, ranks | {"mean length of a bout": rank_test(length, labels)}


def other_model(mdp: ll.MDP, demos: ll.Demonstrations, settings: Settings, log: Log) -> dict[str, float]:
    """Return the ANID between the intents of this model and of ML-IRL (0: identical, 1: chance)."""
    log(f"comparing {FEW} intents with ML-IRL")
    models = (None, ll.MLIRL(beta=1.0, ridge=1e-3))
    U, V = (settings.mixture(FEW, irl=irl).fit(mdp, demos).responsibilities_ for irl in models)
    return {f"{FEW} intents, ANID": ll.metrics.anid(U, V)}


def measure_recovery(
    recordings: Recordings, settings: Settings, mdp: ll.MDP, mixture: ll.IntentMixture, U: Float
) -> dict[str, float]:
    """Measure how well the true intents of simulated mice are recovered."""
    truth = piece_truth(recordings, settings.length)
    table = np.array([np.bincount(truth[np.argmax(U, axis=1) == k], minlength=3) for k in range(U.shape[1])])
    true = simulated.true_rewards(mdp)
    maps = np.array([maze.reward_map(theta)[:-1] for theta in [*true.thetas, *mixture.thetas_]])
    r = np.corrcoef(maps)[: len(true.thetas), len(true.thetas) :]
    result = {
        "ANID": ll.metrics.anid(np.eye(3)[truth], U),
        "pieces with the intent of most of their group": float(table.max(axis=1).sum() / table.sum()),
    }
    return result | {
        f"reward map of {name}, best correlation": float(r[k].max()) for k, name in enumerate(simulated.INTENTS)
    }


def piece_truth(recordings: Recordings, length: int) -> NDArray[np.int64]:
    """Return the most frequent true intent of each piece (N,)."""
    truth = []
    for intents in recordings.intents or []:
        parts = spans(len(intents) - 1, length)
        truth += [int(np.bincount(intents[a + 1 : b + 1]).argmax()) for a, b in parts]
    return np.array(truth)


def shares_of(pieces: Pieces, U: Float, mice: list[str]) -> Float:
    """Return the fraction of each mouse's moves per intent (M, K)."""
    moves = U * pieces.moves[:, None]
    sums = np.array([moves[pieces.mouse == name].sum(axis=0) for name in mice])
    return np.asarray(sums / sums.sum(axis=1, keepdims=True))


def visits(pieces: Pieces, U: Float) -> Float:
    """Return the distribution of the visits of each intent over the nodes and the home cage (K, 128)."""
    state = np.concatenate([piece[1:] for piece in pieces.states])
    weight = np.repeat(U, pieces.moves, axis=0)
    counts = np.array([np.bincount(state, weights=w, minlength=maze.HOME + 1) for w in weight.T]) @ maze.visit_matrix()
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def by_water(pieces: Pieces, U: Float) -> NDArray[np.int64]:
    """Return the intents (K,) in decreasing order of their rate of visits to the water port."""
    return np.argsort(-visits(pieces, U)[:, maze.WATER], kind="stable")


def touches_water(pieces: Pieces) -> NDArray[np.bool_]:
    """Return the mask (N,) of the pieces that visit the water port."""
    return np.array([bool(np.any(maze.nodes_of(piece) == maze.WATER)) for piece in pieces.states])


def water_rate(pieces: Pieces, mice: list[str]) -> Float:
    """Return the fraction of each mouse's visits that are to the water port (M,)."""
    return np.array([visits(pieces, (pieces.mouse == name)[:, None] * 1.0)[0, maze.WATER] for name in mice])


def bout_length(recordings: Recordings) -> Float:
    """Return the mean number of visits per bout of each mouse (M,)."""
    lengths = np.array([len(nodes) for nodes in recordings.bouts])
    return np.array([lengths[recordings.mouse == name].mean() for name in recordings.mice])
