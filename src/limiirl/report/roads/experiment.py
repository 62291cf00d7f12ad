"""From a fit, or from a whole driver experiment, to its page: what is shown is put together here."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from limiirl.demos import Demonstrations
from limiirl.errors import InvalidDemos, InvalidParameter, LimiirlWarning
from limiirl.experiments.drivers import DriverResults, DriverRow
from limiirl.experiments.drivers_trial import DESTINATION_METHODS, DriverData, Trial, driver_mixture
from limiirl.forecast import Forecaster
from limiirl.mdp import RewardEnsemble
from limiirl.metrics import Interval
from limiirl.mixture import IntentMixture
from limiirl.report.document import Report
from limiirl.report.page import write
from limiirl.report.roads.forecasts import forecast_example
from limiirl.report.roads.styles import drivers_page, selection_table
from limiirl.report.roads.view import DriversView, ForecastExample
from limiirl.report.tables import Cell, Column, Content, Table
from limiirl.roads.drivers.fit import DriverFit
from limiirl.roads.features import FeatureChoice, choose
from limiirl.roads.network import RoadNetwork

STARTS: Mapping[str, str] = {
    "hard clusters (k-means)": "k-means, MLE",
    "soft clusters (GMM)": "GMM, MLE",
    "random rewards": "random rewards",
}
"""Columns of the reward plots by the method that they show, as in the paper's appendix F."""
# Starts of `IntentMixture` as a reader knows them.
_NAMES = {
    "kmeans": "k-means",
    "gmm": "GMM",
    "best": "the best of k-means and GMM",
    "random": "random memberships",
    "random_rewards": "random rewards",
}
# The settings of a plan in words.
_SETTINGS = {
    "n_intents": "styles of a mixture",
    "n_splits": "random splits",
    "n_train": "training trips of a split",
    "n_test": "test trips of a split, at most",
    "gammas": "discounts",
    "max_length": "segments of a trip, at most",
    "bounds": "bounds of rewards",
    "max_evaluations": "evaluations of an M-step, at most",
    "tol": "EM stops at a mean change of memberships of",
    "max_iter": "EM iterations, at most",
    "m_tol": "an M-step stops at a relative gradient of",
    "destination_bounds": "bounds of rewards, given the destination",
    "n_routes": "test trips whose routes are predicted",
    "device": "where the models computed",
}
_SHOWN = 2000
_EXAMPLES = 3
# A trip to forecast should be neither a hop nor a tour.
_EXAMPLE_SEGMENTS = (40, 150)


def styles_view(
    network: RoadNetwork, fit: DriverFit, *, title: str = "Driving styles", examples: int = 0
) -> DriversView:
    """Return what the page of one fit shows, with so many example forecasts."""
    mixture, demos = fit.mixture, fit.demos
    facts = {
        "model": type(mixture.irl_).__name__,
        "trips": f"{len(demos):,}",
        "clusters that a stick-breaking GMM sees": fit.sticks,
        "EM iterations": mixture.n_iter_,
    }
    start = _NAMES.get(mixture.init, mixture.init) if isinstance(mixture.init, str) else "a start that was given"
    forecasts = _examples(network, mixture, demos, examples)
    view = _view(network, fit.features, {start: mixture.ensemble_}, mixture, demos)
    tables = [] if fit.selection is None else [selection_table(fit.selection)]
    return replace(view, title=title, facts=facts, forecasts=forecasts, trained=True, tables=tables)


def styles_report(
    network: RoadNetwork, fit: DriverFit, *, title: str = "Driving styles", examples: bool = True
) -> Report:
    """Return the page of one fit: styles in words and on the map, rewards, and, as examples, single trips.

    Examples
    --------
    >>> from limiirl.roads import City
    >>> from limiirl.roads.drivers.fit import fit_drivers
    >>> city = City(seed=1, radius_km=0.8)
    >>> demos = city.drive(n_drivers=6, trips_each=4).demos
    >>> fit = fit_drivers(city.network, demos, 2, model="DestinationMaxEnt", features=city.features, by_driver=True)
    >>> styles_report(city.network, fit).title
    'Driving styles'
    """
    view = styles_view(network, fit, title=title, examples=_EXAMPLES if examples else 0)
    return drivers_page(replace(view, examples=examples))


def write_styles(network: RoadNetwork, fit: DriverFit, folder: str | PathLike[str], *, examples: bool = True) -> Path:
    """Write the page of a fit to a folder, with single trips as examples or without, and return its address."""
    return write(styles_report(network, fit, examples=examples), folder)


def experiment_report(data: DriverData, results: DriverResults) -> Report:
    """Return the page of a driver experiment: the table of the paper, and the best ensembles of three starts."""
    return drivers_page(experiment_view(data, results))


def experiment_view(data: DriverData, results: DriverResults) -> DriversView:
    """Return what the page of a driver experiment shows.

    Words and maps are of the test trips of the split whose hard start explains its training trips best; the forecasts
    are by the model that is given destinations.
    """
    plan, gamma = results.plan, results.plan.gammas[0]
    best = results.best(STARTS["hard clusters (k-means)"], gamma)
    ensembles = {start: results.best(method, gamma, best.split).ensemble for start, method in STARTS.items()}
    shown = data.split(plan, best.split)[1][:_SHOWN]
    mixture = _restored(data, results, Trial(best.split, best.method, gamma), shown)
    bound = list(DESTINATION_METHODS)[-1]
    guide = _restored(data, results, Trial(best.split, bound, 1.0), data.split(plan, best.split)[0])
    facts = {_SETTINGS.get(name, name): _said(value) for name, value in plan.as_dict().items()}
    # Styles of the model that forecasts are not those of the page, so that their probabilities go unnamed.
    forecasts = [replace(found, intents=np.empty(0)) for found in _examples(data.network, guide, shown, _EXAMPLES)]
    view = _view(data.network, choose(plan.features), ensembles, mixture, shown)
    return replace(
        view,
        title="Drivers: styles, routes and forecasts",
        facts=facts,
        forecasts=forecasts,
        trained=False,
        source=f"All starts are of split {best.split}, the one whose hard start explains its training trips best.",
        tables=[_table(results, to_destination=False), _table(results, to_destination=True)],
    )


def _restored(data: DriverData, results: DriverResults, trial: Trial, demos: Demonstrations) -> IntentMixture:
    """Return the mixture of a trial as it was fitted, with the memberships of some trips."""
    found = [record for record in results.of(trial.method, trial.gamma) if record.split == trial.split]
    if not found:
        raise InvalidParameter(
            f"The trial of {trial.method!r} in split {trial.split} has not been run. Run the experiment to its end."
        )
    record = found[0]
    mixture = driver_mixture(results.plan, trial).set_params(init=record.ensemble, max_iter=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LimiirlWarning)  # nothing is learned here, and what was has been told
        fitted: IntentMixture = mixture.fit(data.mdp(results.plan, trial), demos)
    return fitted


def _view(
    network: RoadNetwork,
    features: FeatureChoice,
    ensembles: Mapping[str, RewardEnsemble],
    mixture: IntentMixture,
    demos: Demonstrations,
) -> DriversView:
    plain = mixture.mdp_.replace(gamma=1.0)
    memberships = np.asarray(mixture.responsibilities_)
    return DriversView(
        network, plain.feature_names, features.groups, ensembles, demos, memberships, demos.features(plain)
    )


def _examples(network: RoadNetwork, mixture: IntentMixture, demos: Demonstrations, n: int) -> list[ForecastExample]:
    """Return forecasts of the first n trips of middling length, whose own ends are not among the candidates.

    A trip that leads to no other's end has none.
    """
    if n == 0 or len(demos) < 2:  # no other trip's end
        return []
    low, high = _EXAMPLE_SEGMENTS
    middling = np.flatnonzero((demos.lengths >= low) & (demos.lengths <= high))
    found: list[ForecastExample] = []
    forecaster = Forecaster(mixture, demos)
    for i in (middling if middling.size else np.argsort(-demos.lengths)).tolist():
        others = forecaster.ending_as(demos[np.arange(len(demos)) != i])
        with suppress(InvalidDemos):
            found.append(forecast_example(others, network, demos[i].states, title=f"Trip {len(found) + 1}"))
        if len(found) == n:
            break
    return found


def _table(results: DriverResults, *, to_destination: bool) -> Table:
    """Return the paper's table: iterations, time and NLL, and beside them what the routes miss."""
    own = [row for row in results.rows() if (row.method in DESTINATION_METHODS) == to_destination]
    rows: list[list[Content]] = [_line(row) for row in own]
    beside = results.baselines("surplus")
    for name, missed in results.baselines().items():
        rows.append([name, "–", "–", "–", "–", "–", "–", _percent(missed), _percent(beside[name])])
    columns: list[Column | str] = [
        Column("Method", "left"),
        "Discount",
        "Iterations",
        "Minutes",
        "Test NLL",
        "Gain on one intent",
        "Splits that gain",
        "Missed, %",
        "Beside, %",
    ]
    what = "given both ends of a trip" if to_destination else "of whole trips, the first segment's included"
    caption = (
        f"Means and 95 % intervals (half-widths) over {_splits(results, own)}. NLL in nats a trip, "
        f"{what}; of the mixture, not the mean of its parts. Splits are drawn from the same trips and overlap, so that "
        "the intervals are too narrow; a driver may have trips in both halves, so that nothing here is of drivers "
        "unseen. Minutes were measured on the machine at hand, with whatever else it did. Missed is the share of the "
        "driven distance that the most likely route leaves out, given both ends; beside is the share of that route's "
        "distance which is off the driven one."
    )
    caption = caption.replace(" %", "\u00a0%")
    name = "destination" if to_destination else "drivers"
    title = "Given the destination" if to_destination else "Iterations, time and likelihood"
    return Table(f"cross-validation-{name}", title, caption, columns, rows)


def _splits(results: DriverResults, rows: Sequence[DriverRow]) -> str:
    """How many splits the figures are of; fewer for some where the experiment is not done."""
    most, fewest = results.plan.n_splits, min((row.n for row in rows), default=0)
    return f"{most} random splits" if fewest == most else f"up to {most} random splits, as far as they have been run"


def _line(row: DriverRow) -> list[Content]:
    gain = "–" if row.gain is None else _interval(row.gain, 2)
    better = "–" if row.gain is None else f"{row.n_better} of {row.gain.n}"
    return [
        row.method,
        f"{row.gamma:g}",
        _interval(row.iterations, 1),
        _interval(row.minutes, 2),
        _interval(row.nll, 2),
        gain,
        better,
        _percent(row.missed),
        _percent(row.surplus),
    ]


def _interval(found: Interval, digits: int) -> Cell:
    """A figure with its interval, or alone where a single split has none."""
    if math.isfinite(found.half_width):
        return Cell.estimate(found.mean, found.half_width, digits=digits)
    return Cell.number(found.mean, digits)


def _percent(found: Interval) -> Cell:
    """A share in percent; the file holds the share."""
    shown = _interval(found._replace(mean=100.0 * found.mean, half_width=100.0 * found.half_width), 1)
    spread = (found.half_width,) if math.isfinite(found.half_width) else ()
    return replace(shown, value=found.mean if math.isfinite(found.mean) else "", spread=spread)


def _said(value: Any) -> str:
    if isinstance(value, list):
        return (
            " to ".join(map(_said, value)) if len(value) == 2 and value[0] < value[1] else ", ".join(map(_said, value))
        )
    return f"{value:,g}".replace("-", "−") if isinstance(value, int | float) else str(value)
