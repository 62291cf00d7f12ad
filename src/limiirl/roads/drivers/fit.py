"""Driving styles from matched trips: the MDP of a network, the number of styles, a mixture with capped M-steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from limiirl._parallel import Mapper
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos, InvalidParameter
from limiirl.irl import DestinationMaxEnt, MaxEnt
from limiirl.mdp import MDP
from limiirl.mixture import IntentMixture, select_intents, stick_breaking
from limiirl.roads.features import FeatureChoice, choose_features
from limiirl.roads.network import RoadNetwork

if TYPE_CHECKING:
    from limiirl._progress import Progress
    from limiirl.mixture import Selection


MODELS = ("MaxEnt", "DestinationMaxEnt")
"""The paper's model, in which a trip may end anywhere; and Ziebart's, given where it ends."""
STICKS, SELECT = "sticks", "select"
_MOST_INTENTS, _FOLDS = 6, 5
_BOUNDS = (-10.0, 0.0)
# Ways to a destination have a finite sum only where short loops cost enough, and a city's are of a few metres.
_DESTINATION_BOUNDS = (-50.0, 0.0)
# Mean change of responsibilities at which EM stops; the paper's 1e-6 takes many iterations that change nobody's style.
_TOLERANCE = 1e-3
# As the paper's M-steps. A Hessian of a city costs more than fifty gradients, so L-BFGS.
_CAPPED: dict[str, Any] = {"solver": "lbfgs", "gtol": 1e-3, "max_evaluations": 50}


@dataclass(frozen=True, eq=False)
class DriverFit:
    """Driving styles, and how their number was found.

    Attributes
    ----------
    mixture : IntentMixture
    demos : Demonstrations
        The trips it was fitted to.
    sticks : int
        Clusters that the stick-breaking Gaussian mixture sees in the trips' features: the paper's way to K.
    capped : bool
        Whether these are as many as it may see, 6 or the number of drivers: it might see more, and says little of K.
    selection : Selection or None
        Where `n_intents` was "select".
    features : FeatureChoice
        What the rewards see.
    """

    mixture: IntentMixture
    demos: Demonstrations
    sticks: int
    capped: bool
    selection: Selection | None
    features: FeatureChoice


def fit_drivers(  # noqa: PLR0913 (the data, and independent choices that all have a default)
    network: RoadNetwork,
    demos: Demonstrations,
    n_intents: int | str = STICKS,
    *,
    model: str = "MaxEnt",
    features: str | FeatureChoice = "paper",
    gamma: float = 1.0,
    max_length: int = 300,
    by_driver: bool = False,
    init: Any = "kmeans",
    random_state: int = 0,
    verbose: bool = False,
    executor: Mapper | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
    **mixture: Any,
) -> DriverFit:
    """Learn driving styles from trips that were matched to a network.

    Parameters
    ----------
    network : RoadNetwork
    demos : Demonstrations
        `Matches.demonstrations`; trips of more than `max_length` segments are left out.
    n_intents : int, "sticks" or "select"
        The number of styles; or what the paper's stick-breaking mixture sees in the trips' features, at most 6; or what
        `select_intents` recommends among 1 to 6, by cross-validation, which takes many fits.
    model : {"MaxEnt", "DestinationMaxEnt"}
        The paper's model; or the one that is given where a trip ends.
    features : "paper", "plain" or FeatureChoice
        With a destination, numbers of turns are added to those that are named.
    gamma : float
        Discount; the released code has 0.999. The destination's model needs 1.
    max_length : int
        The paper's 300: also L of the paper's model.
    by_driver : bool
        All trips of a driver (`demos.groups`) share a style.
    init, random_state, verbose, executor, **mixture
        Of `IntentMixture` and its `fit`; an M-step takes at most 50 evaluations, and `tol` is 1e-3.
    device : {"cpu", "gpu", "auto"}
        Where the model computes.
    progress : callable, optional
        Called with (fits done, fits in all, text) where `n_intents` is "select".

    Examples
    --------
    >>> from limiirl.roads import City
    >>> city = City(seed=0)
    >>> driven = city.drive(12, 4, seed=0)
    >>> found = fit_drivers(city.network, driven.demos, 2, model="DestinationMaxEnt", features="plain", by_driver=True)
    >>> found.mixture.weights_.shape
    (2,)
    """
    kept = _usable(demos, model, max_length)
    if by_driver and kept.groups is None:
        raise InvalidDemos(
            "by_driver needs trips that say who drove; these have no groups. Leave it out.",
            parameter="by_driver",
            value=by_driver,
        )
    groups = kept.groups if by_driver else None
    chosen = _features(model, features)
    mdp = network.mdp(chosen, gamma=gamma)
    wanted = IntentMixture(
        irl=_model(model, mdp, max_length, device),
        init=init,
        random_state=random_state,
        verbose=verbose,
        **({"tol": _TOLERANCE} | mixture),
    )
    # Of a few drivers no more styles can be asked for than there are drivers.
    most = min(_MOST_INTENTS, len(kept) if groups is None else np.unique(groups).size)
    sticks = stick_breaking(kept.features(mdp), most, random_state)
    if n_intents == SELECT:
        found = _select(mdp, kept, wanted, by_driver, most, executor, progress)
        return DriverFit(found.best, kept, sticks, sticks == most, found, chosen)
    number = sticks if n_intents == STICKS else n_intents
    if isinstance(number, str):
        raise InvalidParameter(
            f"n_intents must be a number, {STICKS!r} or {SELECT!r}; it is {n_intents!r}.",
            parameter="n_intents",
            value=n_intents,
        )
    fitted = wanted.set_params(n_intents=number).fit(mdp, kept, groups, executor=executor)
    return DriverFit(fitted, kept, sticks, sticks == most, None, chosen)


def _usable(demos: Demonstrations, model: str, max_length: int) -> Demonstrations:
    """Return the trips that a model can learn from, or say why there is none."""
    short = demos[demos.lengths <= max_length]
    if not len(short):
        raise InvalidDemos(
            f"None of {len(demos)} trips has at most {max_length} segments. Raise max_length.",
            parameter="max_length",
            value=max_length,
        )
    if model != "DestinationMaxEnt":
        return short
    # One that passes its last segment before is no trip to it.
    bound = short[DestinationMaxEnt().admits(short)]
    if not len(bound):
        raise InvalidDemos(
            f"All {len(short)} trips of at most {max_length} segments pass their last segment before their end, so "
            "that none is a trip to it. Give others, or use model='MaxEnt'.",
            parameter="demos",
        )
    return bound


def _select(
    mdp: MDP,
    kept: Demonstrations,
    wanted: IntentMixture,
    by_driver: bool,
    most: int,
    executor: Mapper | None,
    progress: Progress | None,
) -> Selection:
    """Return what cross-validation says of 1 to `most` styles; whole drivers are held out where they are known."""
    drivers = 0 if kept.groups is None else np.unique(kept.groups).size
    whole = kept.groups if drivers > 1 and not by_driver else None
    blocks = drivers if by_driver or whole is not None else len(kept)
    folds = min(_FOLDS, blocks) if blocks > 1 else 0
    if by_driver and folds:
        most = min(most, drivers - -(-drivers // folds))  # those that the largest fold leaves to learn from
    return select_intents(
        mdp,
        kept,
        range(1, most + 1),
        mixture=wanted,
        groups=kept.groups if by_driver else None,
        fold_groups=whole,
        folds=folds,
        resamples=0,
        random_state=wanted.random_state,
        verbose=wanted.verbose,
        progress=progress,
        executor=executor,
    )


def _features(model: str, features: str | FeatureChoice) -> FeatureChoice:
    """Return the features; with turns for ways to a destination, since km alone cannot make short loops cost enough."""
    chosen = choose_features(features)
    return replace(chosen, turns=True) if model == "DestinationMaxEnt" and isinstance(features, str) else chosen


def _model(name: str, mdp: MDP, max_length: int, device: str) -> Any:
    """Return the single-intent model by its name."""
    if name == "MaxEnt":
        return MaxEnt(max_length=max_length, bounds=_BOUNDS, device=device, **_CAPPED)
    if name == "DestinationMaxEnt":
        if mdp.gamma != 1.0:
            raise InvalidParameter(
                f"DestinationMaxEnt needs discount 1; gamma is {mdp.gamma}. Leave gamma out.",
                parameter="gamma",
                value=mdp.gamma,
            )
        return DestinationMaxEnt(bounds=_DESTINATION_BOUNDS, device=device, **(_CAPPED | {"solver": "bfgs"}))
    raise InvalidParameter(f"model must be one of {', '.join(MODELS)}; it is {name!r}.", parameter="model", value=name)
