"""Page of a driver experiment."""

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
"""Columns of the reward plots (paper, Appendix F) by method."""
# Descriptions of the settings of a plan.
_SETTINGS = {
    "n_intents": "styles per mixture",
    "n_splits": "random splits",
    "n_train": "training trips per split",
    "n_test": "test trips per split, at most",
    "gammas": "discounts",
    "max_length": "segments per trip, at most",
    "bounds": "bounds of rewards",
    "max_evaluations": "evaluations per M-step, at most",
    "resp_tol": "EM tolerance, mean change of responsibilities",
    "max_iter": "EM iterations, at most",
    "m_gtol": "M-step tolerance, relative gradient",
    "destination_bounds": "bounds of rewards, given the destination",
    "n_routes": "test trips with predicted routes",
    "device": "device",
}
_EXAMPLES = 3


def experiment_report(data: DriverData, results: DriverResults, example: DriverExample) -> Report:
    """Return the page of a driver experiment: the table of the paper, and the best ensemble per initialisation."""
    return drivers_page(experiment_view(data, results, example))


def experiment_view(data: DriverData, results: DriverResults, example: DriverExample) -> DriversView:
    """Return the contents of the page of a driver experiment.

    Descriptions and maps use the trips of the example; forecasts use the model that is given destinations.
    """
    plan, gamma, split, trips = results.plan, results.plan.gammas[0], example.split, example.trips
    ensembles = {start: results.best(method, gamma, split).ensemble for start, method in STARTS.items()}
    facts = {_SETTINGS.get(name, name): _format_setting(value) for name, value in plan.to_dict().items()}
    # The styles of the forecasting model are not those of the page, so their posterior is left out.
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
        source=f"All columns show split {split}, on which the k-means initialisation has the best training likelihood.",
        tables=[_table(results, to_destination=False), _table(results, to_destination=True)],
    )


def _table(results: DriverResults, *, to_destination: bool) -> Table:
    """Return the table of the paper (iterations, time and NLL) with the errors of predicted routes."""
    own = [row for row in results.rows() if (row.method in DESTINATION_METHODS) == to_destination]
    rows: list[list[Content]] = [_method_row(row) for row in own]
    extra = results.baselines("surplus")
    for name, missed in results.baselines().items():
        rows.append([name, *["–"] * 6, _percent(missed), _percent(extra[name])])
    columns: list[Column | str] = [Column("Method", "left"), "Discount", "Iterations", "Minutes", "Test NLL"]
    columns += ["Gain over one intent", "Splits with gain", "Missed, %", "Extra, %"]
    what = "given origin and destination" if to_destination else "of whole trips, first segment included"
    caption = (
        f"Means and half-widths of 95 % intervals over {_count_splits(results, own)}. NLL of the mixture in nats per "
        f"trip, {what}. Splits are drawn from the same trips and overlap, so the intervals are too narrow; a driver "
        "have trips in both halves, so nothing is tested on unseen drivers. Minutes depend on the machine and its "
        "Missed is the fraction of the driven distance that the most likely route leaves out, given both ends; extra "
        "is the fraction of that route which was not driven."
    )
    name = "destination" if to_destination else "drivers"
    title = "Given the destination" if to_destination else "Iterations, time and likelihood"
    return Table(f"cross-validation-{name}", title, caption.replace(" %", "\u00a0%"), columns, rows)


def _count_splits(results: DriverResults, rows: Sequence[DriverRow]) -> str:
    most, fewest = results.plan.n_splits, min((row.n for row in rows), default=0)
    return f"{most} random splits" if fewest == most else f"up to {most} random splits (the experiment is incomplete)"


def _method_row(row: DriverRow) -> list[Content]:
    return [
        row.method,
        f"{row.gamma:g}",
        _interval(row.iterations, 1),
        _interval(row.minutes, 2),
        _interval(row.nll, 2),
        "–" if row.gain is None else _interval(row.gain, 2),
        "–" if row.gain is None else f"{row.n_better} of {row.gain.n}",
        _percent(row.missed),
        _percent(row.surplus),
    ]


def _interval(value: Interval, digits: int) -> Cell:
    """Return a mean with its half-width, which a single split does not have."""
    if math.isfinite(value.half_width):
        return Cell.estimate(value.mean, value.half_width, digits=digits)
    return Cell.number(value.mean, digits)


def _percent(value: Interval) -> Cell:
    """Return a fraction in percent; the CSV file has the fraction."""
    shown = _interval(value._replace(mean=100.0 * value.mean, half_width=100.0 * value.half_width), 1)
    spread = (value.half_width,) if math.isfinite(value.half_width) else ()
    return replace(shown, value=value.mean if math.isfinite(value.mean) else "", spread=spread)


def _format_setting(value: Any) -> str:
    if isinstance(value, list):
        bounds = len(value) == 2 and value[0] < value[1]
        return (" to " if bounds else ", ").join(map(_format_setting, value))
    return f"{value:,g}".replace("-", "−") if isinstance(value, int | float) else str(value)
