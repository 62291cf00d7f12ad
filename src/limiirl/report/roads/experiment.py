"""The page of a driver experiment."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from limiirl.experiments import DESTINATION_METHODS, DriverData, DriverExample, DriverResults, DriverRow
from limiirl.metrics import Interval
from limiirl.report.document import Report
from limiirl.report.roads.styles import drivers_page, example_forecasts, view_of_mixture
from limiirl.report.roads.view import DriversView
from limiirl.report.tables import Cell, Column, Content, Table
from limiirl.roads import choose_features

STARTS: Mapping[str, str] = {
    "hard clusters (k-means)": "k-means, MLE",
    "soft clusters (GMM)": "GMM, MLE",
    "random rewards": "random rewards",
}
"""Columns of the reward plots by the method that they show, as in the paper's appendix F."""
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
_EXAMPLES = 3


def experiment_report(data: DriverData, results: DriverResults, example: DriverExample) -> Report:
    """Return the page of a driver experiment: the table of the paper, and the best ensembles of three starts."""
    return drivers_page(experiment_view(data, results, example))


def experiment_view(data: DriverData, results: DriverResults, example: DriverExample) -> DriversView:
    """Return what the page of a driver experiment shows.

    Words and maps are of the trips of the example; the forecasts are by the model that is given destinations.
    """
    plan, gamma, split, trips = results.plan, results.plan.gammas[0], example.split, example.trips
    ensembles = {start: results.best(method, gamma, split).ensemble for start, method in STARTS.items()}
    facts = {_SETTINGS.get(name, name): _said(value) for name, value in plan.as_dict().items()}
    # Styles of the model that forecasts are not those of the page, so that their probabilities go unnamed.
    forecasts = [
        replace(forecast, intents=np.empty(0))
        for forecast in example_forecasts(data.network, example.guide, trips, _EXAMPLES)
    ]
    view = view_of_mixture(data.network, choose_features(plan.features), ensembles, example.mixture, trips)
    return replace(
        view,
        title="Drivers: styles, routes and forecasts",
        facts=facts,
        forecasts=forecasts,
        trained=False,
        source=f"All starts are of split {split}, the one whose hard start explains its training trips best.",
        tables=[_table(results, to_destination=False), _table(results, to_destination=True)],
    )


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
