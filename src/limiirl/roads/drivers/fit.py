"""`fit_drivers`: mixtures of driving styles, fitted to matched trips."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from limiirl._parallel import Mapper
from limiirl._validation import check_choice, check_count
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


MODELS = ("DestinationMaxEnt", "MaxEnt")
"""Names of the models. `DestinationMaxEnt` conditions paths on their destination (Ziebart et al. 2008); in `MaxEnt`,
the model of the paper, a trip may end anywhere."""
STICK_BREAKING, SELECT = "stick_breaking", "select"
_MOST_INTENTS, _FOLDS = 6, 5
_BOUNDS = (-10.0, 0.0)
# The sum over paths to a destination is finite only if cycles are costly, and cities have short cycles.
_DESTINATION_BOUNDS = (-50.0, 0.0)
# Groups of lengths are collinear; the ridge determines their coefficients and improves held-out likelihoods (ADR 0025).
_RIDGE = 1e-3
# Mean change in responsibilities at which EM stops; 1e-6, as in the paper, needs many more iterations.
_TOLERANCE = 1e-3
# Gain in nats per trip below which EM stops; further iterations do not improve held-out likelihoods (ADR 0025).
_GAIN = 5e-4
# Maximum number of EM iterations, also the length of the progress bar; Porto needs about 20.
_MAX_ITER = 30
# M-steps with few L-BFGS evaluations, as in the paper; a Hessian costs more than fifty gradients in a city.
_M_STEP: dict[str, Any] = {"solver": "lbfgs", "gtol": 1e-3, "max_evaluations": 50}


@dataclass(frozen=True, eq=False)
class DriverFit:
    """Fitted mixture of driving styles, with the selection of the number of styles.

    Attributes
    ----------
    mixture : IntentMixture
        Fitted mixture; intents are styles.
    demos : Demonstrations
        Trips that the mixture was fitted to.
    n_clusters : int
        Number of clusters of a stick-breaking Gaussian mixture on the features of the trips, as in the paper.
    capped : bool
        True if `n_clusters` is the maximum of the search (6, or the number of drivers or trips if it is lower). The
        number of clusters may then be too low.
    selection : Selection or None
        Result of the cross-validation; None unless `n_intents` is "select".
    features : FeatureChoice
        Features of the rewards.
    """

    mixture: IntentMixture
    demos: Demonstrations
    n_clusters: int
    capped: bool
    selection: Selection | None
    features: FeatureChoice


def fit_drivers(  # noqa: PLR0913 (independent options with defaults)
    network: RoadNetwork,
    demos: Demonstrations,
    n_intents: int | str = STICK_BREAKING,
    *,
    model: str = "DestinationMaxEnt",
    features: str | FeatureChoice = "paper",
    gamma: float = 1.0,
    max_length: int = 300,
    by_driver: bool = False,
    init: Any = "kmeans",
    seed: int = 0,
    verbose: bool = False,
    executor: Mapper | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
    **mixture: Any,
) -> DriverFit:
    """Fit a mixture of driving styles to trips matched to a network.

    Parameters
    ----------
    network : RoadNetwork
    demos : Demonstrations
        Result of `Matches.demonstrations`; trips of more than `max_length` segments are excluded.
    n_intents : int, "stick_breaking" or "select"
        Number of styles. "stick_breaking" selects at most 6 with a Gaussian mixture on the features of the trips, as in
        the paper; "select" cross-validates 1 to 6 styles with `select_intents`.
    model : {"DestinationMaxEnt", "MaxEnt"}
        `DestinationMaxEnt` is conditioned on the destination of each trip and predicts routes better (ADR 0025).
        `MaxEnt`, the model of the paper, also models where trips end.
    features : "paper", "plain" or FeatureChoice
        With DestinationMaxEnt, "paper" and "plain" also have turns and choices (see `FeatureChoice`).
    gamma : float
        Discount; 0.999 in the released code of the paper. DestinationMaxEnt requires 1.
    max_length : int
        Maximum number of segments of a trip, L in the paper.
    by_driver : bool
        If True, all trips of a driver (`demos.groups`) have the same style.
    seed : int
        Seed of the fit and of the selection.
    init, verbose, executor, **mixture
        Passed to `IntentMixture` and its `fit`; M-steps have at most 50 evaluations. By default, `resp_tol` is 1e-3,
        `likelihood_tol`, in nats per trip (or driver), is 5e-4, and `max_iter` is 30.
    device : {"cpu", "gpu", "auto"}
        Device of the model.
    progress : callable, optional
        Called as ``progress(done, total, message)`` after each iteration of EM, or after each fit if `n_intents` is
        "select".

    Examples
    --------
    >>> from limiirl.roads import City
    >>> city = City(seed=0)
    >>> driven = city.drive(12, 4, seed=0)
    >>> fit = fit_drivers(city.network, driven.demos, 2, features="plain", by_driver=True)
    >>> fit.mixture.weights_.shape
    (2,)
    """
    check_choice(model, "model", MODELS)
    if isinstance(n_intents, str):
        if n_intents not in (STICK_BREAKING, SELECT):
            raise InvalidParameter.of("n_intents", n_intents, f"must be an integer, {STICK_BREAKING!r} or {SELECT!r}")
    else:
        check_count(n_intents, "n_intents")
    kept = _select_trips(demos, model, max_length)
    if by_driver and kept.groups is None:
        message = "by_driver=True requires demos with groups (drivers). Pass groups, or by_driver=False."
        raise InvalidDemos(message, parameter="by_driver", value=by_driver)
    chosen = _choose_features(model, features)
    mdp = network.mdp(chosen, gamma=gamma)
    template = IntentMixture(
        irl=_make_model(model, mdp, max_length, device),
        init=init,
        random_state=seed,
        verbose=verbose,
        progress=None if n_intents == SELECT else progress,
        **({"resp_tol": _TOLERANCE, "likelihood_tol": _GAIN, "max_iter": _MAX_ITER} | mixture),
    )
    groups = kept.groups if by_driver else None
    most = min(_MOST_INTENTS, len(kept) if groups is None else np.unique(groups).size)
    n_clusters = stick_breaking(kept.features(mdp), most, seed)
    if n_intents == SELECT:
        selection = _select(mdp, kept, template, by_driver, most, executor, progress)
        return DriverFit(selection.best, kept, n_clusters, n_clusters == most, selection, chosen)
    number = n_clusters if n_intents == STICK_BREAKING else n_intents
    fitted = template.set_params(n_intents=number).fit(mdp, kept, groups, executor=executor)
    return DriverFit(fitted, kept, n_clusters, n_clusters == most, None, chosen)


def _select_trips(demos: Demonstrations, model: str, max_length: int) -> Demonstrations:
    """Return the trips with at most `max_length` segments and positive probability under the model."""
    short = demos[demos.lengths <= max_length]
    if not len(short):
        message = f"None of {len(demos)} trips has at most {max_length} segments. Increase max_length."
        raise InvalidDemos(message, parameter="max_length", value=max_length)
    if model != "DestinationMaxEnt":
        return short
    # DestinationMaxEnt: a path visits its destination once.
    admitted = short[DestinationMaxEnt().admits(short)]
    if not len(admitted):
        message = (
            f"All {len(short)} trips visit their last segment more than once. Pass other trips, or model='MaxEnt'."
        )
        raise InvalidDemos(message, parameter="demos")
    return admitted


def _select(
    mdp: MDP, kept: Demonstrations, template: IntentMixture, by_driver: bool, most: int, executor: Mapper | None,
    progress: Progress | None,
) -> Selection:  # fmt: skip
    """Cross-validate 1 to `most` styles; if drivers are known, all trips of a driver are in the same fold."""
    drivers = 0 if kept.groups is None else np.unique(kept.groups).size
    whole = kept.groups if drivers > 1 and not by_driver else None
    blocks = drivers if by_driver or whole is not None else len(kept)
    folds = min(_FOLDS, blocks) if blocks > 1 else 0
    if by_driver and folds:
        most = min(most, drivers - -(-drivers // folds))  # minimum number of training drivers over the folds
    return select_intents(
        mdp,
        kept,
        range(1, most + 1),
        mixture=template,
        groups=kept.groups if by_driver else None,
        fold_groups=whole,
        folds=folds,
        resamples=0,
        verbose=template.verbose,
        progress=progress,
        executor=executor,
    )


def _choose_features(model: str, features: str | FeatureChoice) -> FeatureChoice:
    """Return the features; DestinationMaxEnt also has turns and choices, so that cycles can be costly."""
    chosen = choose_features(features)
    return (
        replace(chosen, turns=True, choices=True)
        if model == "DestinationMaxEnt" and isinstance(features, str)
        else chosen
    )


def _make_model(name: str, mdp: MDP, max_length: int, device: str) -> Any:
    if name == "MaxEnt":
        return MaxEnt(max_length=max_length, bounds=_BOUNDS, device=device, **_M_STEP)
    if mdp.gamma != 1.0:
        raise InvalidParameter.of("gamma", mdp.gamma, "must be 1 for DestinationMaxEnt", remedy="Use the model MaxEnt.")
    return DestinationMaxEnt(bounds=_DESTINATION_BOUNDS, ridge=_RIDGE, device=device, **(_M_STEP | {"solver": "bfgs"}))
