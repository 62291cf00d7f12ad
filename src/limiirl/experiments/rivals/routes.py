"""Route choice given both ends of each trip: the recursive logit model in Borlänge, and taxis in Shanghai.

Scores are log-probabilities of routes given their first and last links. The settings that were compared, within
the training trips of the first split, are in `BORLANGE_CANDIDATES` and `SHANGHAI_CANDIDATES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np

from limiirl._typing import FloatArray
from limiirl.datasets import load_borlange, load_shanghai
from limiirl.demos import Demonstrations
from limiirl.experiments.rivals.run import Goal, Published, RivalPart, Score
from limiirl.forecast import Forecaster
from limiirl.irl import DestinationMaxEnt, link_size
from limiirl.mdp import (
    MDP,
    add_edge_features,
    add_goal_features,
    distance_to_goal,
    edge_constants,
    next_choices,
    state_constants,
)
from limiirl.metrics import route_accuracy
from limiirl.mixture import IntentMixture

_N_FOLDS = 3
# Test trips per split in Borlänge, which the published log-likelihoods are totals of.
_TRIPS = 366
_ALL_TRIPS = 1832
# Maximum number of features for which BIC is reported; more features require a strong ridge.
_MOST_FEATURES = 20
# Ridge of several intents in Borlänge. Without it, some rewards are infinite, such as that of U-turns for an intent
# whose trips have none.
_WEAK_RIDGE = 1e-4
# Parameters of travel time, left turn, link and U-turn for the link size: the published ones, rounded.
_FIXED = (-2.5, -1.0, -0.4, -4.5)


class Split(NamedTuple):
    """Training and test trips."""

    mdp: MDP
    train: Demonstrations
    test: Demonstrations

    def fold(self, number: int) -> Split:
        """Return the split of a fold of the training trips."""
        held_out = np.random.default_rng(0).permutation(np.arange(len(self.train)) % _N_FOLDS) == number
        return Split(self.mdp, self.train[~held_out], self.train[held_out])


@dataclass(frozen=True)
class RouteSetting:
    """Settings of a mixture of recursive logit models.

    Attributes
    ----------
    attributes : tuple of str
        Names in `ATTRIBUTES` that are added to the attributes of the data set.
    ridge : mapping of str to float
        Coefficients by patterns of names.
    n_intents : int
    shared : tuple of str
        Patterns of the features whose rewards are equal for all intents.
    accelerate : bool
        Whether EM alternates with quasi-Newton searches.
    max_iter : int
    """

    attributes: tuple[str, ...] = ()
    ridge: Mapping[str, float] = field(default_factory=dict)
    n_intents: int = 1
    shared: tuple[str, ...] = ()
    accelerate: bool = True
    max_iter: int = 100


def _add_distance(mdp: MDP, demos: Demonstrations) -> MDP:
    return add_goal_features(mdp, distance_to_goal(mdp, demos.last_states, _kilometres(mdp)[mdp.dst]))


def _add_link_size(mdp: MDP, demos: Demonstrations) -> MDP:
    fixed = np.concatenate([_FIXED, np.zeros(mdp.n_features - len(_FIXED))])
    return add_goal_features(mdp, link_size(mdp, fixed, demos.start_states, demos.last_states))


ATTRIBUTES: Mapping[str, Callable[[MDP, Demonstrations], MDP]] = MappingProxyType(
    {
        "next links": lambda mdp, _: add_edge_features(mdp, next_choices(mdp, ~mdp.terminal[mdp.dst])),
        "links": lambda mdp, _: add_edge_features(mdp, state_constants(mdp, "link")),
        "turns": lambda mdp, _: add_edge_features(mdp, edge_constants(mdp, "turn")),
        "distance": _add_distance,
        "link size": _add_link_size,
        "length only": lambda mdp, _: mdp.replace(
            state_features=_kilometres(mdp)[:, None], edge_features=None, feature_names=("km",)
        ),
    }
)
"""Functions of an MDP and the trips, training and test, that return the MDP with an attribute."""


def _kilometres(mdp: MDP) -> FloatArray:
    """Return the length (S,) of each link of Shanghai, which is a feature per road class."""
    classes = [name.startswith("km, ") and name != "km, lanes unknown" for name in mdp.feature_names]
    kilometres: FloatArray = np.asarray(mdp.state_features, dtype=np.float64)[:, np.flatnonzero(classes)].sum(axis=1)
    return kilometres


def fit_routes(setting: RouteSetting, split: Split) -> IntentMixture:
    """Fit a mixture to the training trips of a split."""
    mdp = split.mdp
    for name in setting.attributes:
        mdp = ATTRIBUTES[name](mdp, Demonstrations.concat([split.train, split.test]))
    model = DestinationMaxEnt(bounds=None, ridge=dict(setting.ridge) or 0.0)
    shared = list(setting.shared) or None
    mixture = IntentMixture(
        setting.n_intents,
        model,
        shared=shared,
        accelerate=setting.accelerate,
        max_iter=setting.max_iter,
        random_state=0,
    )
    return mixture.fit(mdp, split.train)


def score_total(
    setting: RouteSetting, data: Sequence[Split], number: int, *, select: bool = False, trips: int = _TRIPS
) -> Score:
    """Fit to a split, and return the log-likelihood of its test trips as one unit, of size 1 per `trips`."""
    split = data[0].fold(number) if select else data[number]
    mixture = fit_routes(setting, split)
    total, size = mixture.score(split.test) * len(split.test), len(split.test) / trips
    train = mixture.score(split.train) * trips
    figures = {} if select else summarise_fit(mixture, split.train)
    return Score(np.array([total]), np.array([size]), train, note=describe(mixture), figures=figures)


def score_paths(setting: RouteSetting, data: Sequence[Split], number: int, *, select: bool = False) -> Score:
    """Fit to a split, and return the log-likelihood of its test paths by destination, and accuracies of routes."""
    split = data[0].fold(number) if select else data[number]
    mixture = fit_routes(setting, split)
    test = split.test
    _, unit = np.unique(test.last_states, return_inverse=True)
    log_prob = mixture.score_samples(test)
    sums, sizes = (np.bincount(unit, weights=weights).astype(np.float64) for weights in (log_prob, np.ones(len(test))))
    figures = {}
    if not select:
        routes = Forecaster(mixture, split.train).predict_routes(test.start_states, test.last_states)
        figures = route_accuracy(test, routes)._asdict()
    return Score(sums, sizes, mixture.score(split.train), note=describe(mixture), figures=figures)


def describe(mixture: IntentMixture) -> str:
    """Return the number of intents and features, and whether the fit converged."""
    converged = "" if mixture.converged_ else ", not converged"
    return f"K = {mixture.n_intents}, {mixture.thetas_.shape[1]} features{converged}"


def summarise_fit(mixture: IntentMixture, demos: Demonstrations) -> dict[str, float]:
    """Return the numbers of iterations and evaluations of EM, whether it converged, and BIC for few features."""
    figures = {"converged": float(mixture.converged_), "iterations": float(mixture.n_iter_)}
    figures["evaluations"] = float(sum(entry.n_evaluations for entry in mixture.history_))
    if mixture.thetas_.shape[1] <= _MOST_FEATURES:
        figures["BIC"] = mixture.bic(demos)
    return figures


# Borlänge.


def read_borlange(folder: Path) -> list[Split]:
    """Read the 20 random splits of Knies, Lorca and Melo (2022)."""
    data = load_borlange(folder)
    assert data.splits is not None  # set by the reader
    return [Split(data.mdp, data.demos[~test], data.demos[test]) for test in data.splits]


def read_all_trips(folder: Path) -> list[Split]:
    """Read all trips in Borlänge, for fits and scores of the same trips."""
    data = load_borlange(folder)
    return [Split(data.mdp, data.demos, data.demos)]


def _format_ridge(ridge: float) -> str:
    """Return a ridge such as "1e-4"."""
    mantissa, exponent = f"{ridge:.0e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def _per_turn(ridge: float, n_intents: int = 1) -> RouteSetting:
    """Return settings with a penalised constant per turn, which intents share."""
    shared = ("turn ?*",) if n_intents > 1 else ()
    return RouteSetting(("next links", "turns"), {"turn ?*": ridge, "*": 0.0}, n_intents, shared)


def _per_link_and_turn(ridge: float) -> RouteSetting:
    return RouteSetting(("next links", "links", "turns"), {"link ?*": ridge, "turn ?*": ridge, "*": 0.0})


BORLANGE_CANDIDATES: Mapping[str, RouteSetting] = MappingProxyType(
    {
        "constants per turn, ridge 3e-3": _per_turn(3e-3),
        "constants per turn, ridge 1e-3": _per_turn(1e-3),
        "constants per turn, ridge 3e-4": _per_turn(3e-4),
        "constants per link and turn, ridge 1e-3": _per_link_and_turn(1e-3),
    }
)
"""Settings that were compared by cross-validation over the training trips of the first split."""
BORLANGE_CHOSEN = "constants per turn, ridge 1e-3"
_KNIES = "Knies, Lorca and Melo (2022), mean of `published_test_loglik.csv`"
_OURS = "limiirl: log out-degree, constants per turn"


def _borlange() -> RivalPart:
    settings = {
        _OURS: BORLANGE_CANDIDATES[BORLANGE_CHOSEN],
        "limiirl: four attributes": RouteSetting(),
        "limiirl: log out-degree": RouteSetting(("next links",)),
        "limiirl: log out-degree, 2 intents": RouteSetting(("next links",), {"*": _WEAK_RIDGE}, n_intents=2),
        "limiirl: log out-degree, link size": RouteSetting(("next links", "link size")),
    }
    return RivalPart(
        "borlange",
        "Routes in Borlänge, held-out trips",
        "1,832 trips on 7,288 links, with 20 published random splits into 1,466 training and 366 test trips. "
        "Log-likelihood of routes given their origin and destination.",
        "borlange",
        f"{_TRIPS} trips",
        read_borlange,
        {name: partial(score_total, setting) for name, setting in settings.items()},
        _OURS,
        n_splits=20,
        published=(
            Published("recursive logit, travel time and link constant", -2067.74, _KNIES),
            Published("and choice aversion", -2060.83, _KNIES),
            Published("and link size", -2087.77, _KNIES),
        ),
        goals=(Goal("limiirl 0.1, five attributes", -1221.04),),
        candidates={name: partial(score_total, s, select=True) for name, s in BORLANGE_CANDIDATES.items()},
        chosen=BORLANGE_CHOSEN,
        n_folds=_N_FOLDS,
        paired="split",
    )


def _borlange_sample() -> RivalPart:
    settings: dict[str, RouteSetting] = {}
    for attributes, names in (("four attributes", ()), ("log out-degree", ("next links",))):
        settings[f"limiirl: {attributes}"] = RouteSetting(names)
        settings |= {
            f"limiirl: {attributes}, {K} intents": RouteSetting(names, {"*": _WEAK_RIDGE}, K) for K in range(2, 7)
        }
    plain = replace(settings["limiirl: four attributes, 2 intents"], accelerate=False, max_iter=1000)
    settings["limiirl: four attributes, 2 intents, plain EM"] = plain
    settings["limiirl: four attributes, link size"] = RouteSetting(("link size",))
    settings["limiirl: log out-degree, link size"] = RouteSetting(("next links", "link size"))
    return RivalPart(
        "borlange-sample",
        "Routes in Borlänge, full sample",
        "1,832 trips on 7,288 links. Log-likelihood of the trips that the models are fitted to; no trips are held out. "
        f"Fits of several intents have a ridge of {_format_ridge(_WEAK_RIDGE)}.",
        "borlange",
        "sample",
        read_all_trips,
        {name: partial(score_total, setting, trips=_ALL_TRIPS) for name, setting in settings.items()},
        "limiirl: log out-degree, 6 intents",
        published=(
            Published("recursive logit", -6303.9, "Fosgerau, Frejinger and Karlström (2013), rounded"),
            Published("nested recursive logit", -6187.9, "Mai, Fosgerau and Frejinger (2015), from memory"),
            Published("recursive logit with link size", -6045.6, "Mai, Fosgerau and Frejinger (2015), from memory"),
            Published(
                "nested recursive logit with link size", -5952.0, "Mai, Fosgerau and Frejinger (2015), from memory"
            ),
        ),
        paired="sample",
    )


# Shanghai.


def read_shanghai(folder: Path, size: Literal[100, 1000, 10000] = 10000) -> list[Split]:
    """Read the folds of Zhao and Liang (2023) with a number of training paths."""
    data = [load_shanghai(folder, fold=fold, size=size) for fold in range(5)]
    return [Split(fold.mdp, fold.demos[~fold.test], fold.demos[fold.test]) for fold in data if fold.test is not None]


_CONSTANTS: Mapping[str, Callable[[float], RouteSetting]] = MappingProxyType(
    {"turn": _per_turn, "turn, 2 intents": partial(_per_turn, n_intents=2), "link and turn": _per_link_and_turn}
)


def _list_candidates(ridges: Sequence[float], kinds: Sequence[str] = tuple(_CONSTANTS)) -> Mapping[str, RouteSetting]:
    """Return settings with penalised constants, one per ridge and kind of constants."""
    return MappingProxyType(
        {f"constants per {kind}, ridge {_format_ridge(r)}": _CONSTANTS[kind](r) for kind in kinds for r in ridges}
    )


SHANGHAI_CANDIDATES: Mapping[int, Mapping[str, RouteSetting]] = MappingProxyType(
    {
        100: _list_candidates((3e-1, 1e-1, 3e-2, 1e-2)),
        1000: _list_candidates((1e-2, 3e-3, 1e-3, 3e-4)),
        10000: _list_candidates((1e-3, 3e-4, 1e-4), ("turn", "link and turn")),
    }
)
"""Settings that were compared by cross-validation over the training paths of the first fold, by their number."""
SHANGHAI_CHOSEN: Mapping[int, str] = MappingProxyType(
    {
        100: "constants per link and turn, ridge 1e-1",
        1000: "constants per turn, 2 intents, ridge 3e-3",
        10000: "constants per turn, ridge 3e-4",
    }
)


def _shanghai(size: Literal[100, 1000, 10000]) -> RivalPart:
    candidates, chosen = SHANGHAI_CANDIDATES[size], SHANGHAI_CHOSEN[size]
    ridge = candidates[chosen].ridge["turn ?*"]
    settings = {
        _OURS: _per_turn(ridge),
        "limiirl: length": RouteSetting(("length only",)),
        "limiirl: ten features": RouteSetting(),
        "limiirl: log out-degree": RouteSetting(("next links",)),
        "limiirl: log out-degree, constants per link": RouteSetting(
            ("next links", "links"), {"link ?*": ridge, "*": 0.0}
        ),
        "limiirl: log out-degree, constants per link and turn": _per_link_and_turn(ridge),
        "limiirl: log out-degree, constants per turn, 2 intents": _per_turn(ridge, 2),
        "limiirl: log out-degree, distance to the goal": RouteSetting(("next links", "distance")),
    }
    if size == 10000:
        released = "released checkpoint, fold 0 only (`shanghai_taxi_rcm/cv/README.md` of the data)"
        figures = {"edit": 0.2292, "bleu": 0.7262, "exact": 0.434}
        published: tuple[Published, ...] = (Published("RCM-BC", -4.8965, released, figures=figures),)
    else:
        published = ()
    return RivalPart(
        "shanghai" if size == 10000 else f"shanghai-{size}",
        f"Taxi routes in Shanghai, {size:,} training paths",
        f"24,468 paths on 714 links, the authors' five folds with {size:,} training paths each. Edit: smallest edit "
        "distance of the predicted route to an observed route with the same ends, divided by the observed length; "
        "BLEU-4 with all observed routes as references; exact: fraction of routes that are predicted exactly.",
        "shanghai_taxi_rcm",
        "path",
        partial(read_shanghai, size=size),
        {name: partial(score_paths, setting) for name, setting in settings.items()},
        next(name for name, setting in settings.items() if setting == candidates[chosen]),
        n_splits=5,
        published=published,
        goals=_SHANGHAI_GOALS if size == 10000 else (),
        candidates={name: partial(score_paths, s, select=True) for name, s in candidates.items()},
        chosen=chosen,
        n_folds=_N_FOLDS,
        paired="destination",
    )


_SHANGHAI_GOALS = (
    Goal("log-probability of RCM-BC", -4.8965),
    Goal("edit distance of RCM-BC", 0.2292, "edit", below=True),
    Goal("BLEU of RCM-BC", 0.7262, "bleu"),
    Goal("exact routes of RCM-BC", 0.434, "exact"),
    Goal("fold 0: log-probability of limiirl 0.1", -3.411, split=0),
    Goal("fold 0: edit distance of limiirl 0.1", 0.1889, "edit", below=True, split=0),
    Goal("fold 0: BLEU of limiirl 0.1", 0.761, "bleu", split=0),
    Goal("fold 0: exact routes of limiirl 0.1", 0.484, "exact", split=0),
)
BORLANGE, BORLANGE_SAMPLE = _borlange(), _borlange_sample()
SHANGHAI = tuple(_shanghai(size) for size in (100, 1000, 10000))
