"""Page on a driver experiment."""

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
"""Method of each column of the reward plots (paper, Appendix F)."""
# Descriptions of the settings of a `DriverPlan`.
_SETTINGS = {
    "n_intents": "styles per mixture",
    "n_splits": "random splits",
    "n_train": "training trips per split",
    "n_test": "maximum number of test trips per split",
    "gammas": "discounts",
    "max_length": "maximum number of segments per trip",
    "bounds": "bounds of rewards",
    "max_evaluations": "maximum number of evaluations per M-step",
    "resp_tol": "EM tolerance (mean change in responsibilities)",
    "max_iter": "maximum number of EM iterations",
    "m_gtol": "M-step tolerance (relative gradient)",
    "destination_bounds": "bounds of rewards given the destination",
    "n_routes": "test trips with predicted routes",
    "device": "device",
}
_EXAMPLES = 3


def experiment_report(data: DriverData, results: DriverResults, example: DriverExample) -> Report:
    """Return the report on a driver experiment: the table of the paper, and the best ensemble per initialisation."""
    return drivers_page(experiment_view(data, results, example))


def experiment_view(data: DriverData, results: DriverResults, example: DriverExample) -> DriversView:
    """Return the contents of the page on a driver experiment.

    Descriptions and maps show the trips of `example`. Forecasts use the model conditioned on the destination.
    """
    plan, gamma, split, trips = results.plan, results.plan.gammas[0], example.split, example.trips
    ensembles = {start: results.best(method, gamma, split).ensemble for start, method in STARTS.items()}
    facts = {_SETTINGS.get(name, name): _format_setting(value) for name, value in plan.to_dict().items()}
    # Forecasts use another model, so the page omits its posterior over styles.
    forecasts = [
        replace(forecast, intents=np.empty(0))
        for forecast in example_forecasts(data.network, example.guide, trips, _EXAMPLES)
    ]
    view = view_of_mixture(data.network, choose_features(plan.features), ensembles, example.mixture, trips)
    return replace(
        view,
        title="Driver experiment: styles, routes and forecasts",
        facts=facts,
        forecasts=forecasts,
        trained=False,
        source=f"All columns show split {split}, in which k-means initialisation has the highest training likelihood.",
        tables=[_table(results, to_destination=False), _table(results, to_destination=True)],
    )


def _table(results: DriverResults, *, to_destination: bool) -> Table:
    """Return the table of the paper (iterations, time and NLL), with the errors of predicted routes."""
    own = [row for row in results.rows() if (row.method in DESTINATION_METHODS) == to_destination]
    rows: list[list[Content]] = [_method_row(row) for row in own]
    extra = results.baselines("surplus")
    for name, missed in results.baselines().items():
        rows.append([name, *["–"] * 6, _percent(missed), _percent(extra[name])])
    columns: list[Column | str] = [Column("Method", "left"), "Discount", "Iterations", "Minutes", "Test NLL"]
    columns += ["Gain over one intent", "Splits with gain", "Missed, %", "Surplus, %"]
    what = (
        "given the origin and the destination" if to_destination else "including the probability of the first segment"
    )
    caption = (
        f"Mean ± half-width of the 95 % interval over {_count_splits(results, own)}. NLL is the negative "
        f"log-likelihood of the mixture in nats per test trip, {what}; *gain* is the decrease in NLL. The splits are "
        "drawn from the same trips, so the intervals are too narrow, and drivers can have both training and test "
        "trips. Minutes depend on the machine and its load. *Missed* is the percentage of the driven distance that is "
        "not on the most likely route from the origin to the destination; *surplus* is the percentage "
        "of that route that was not driven."
    )
    name = "destination" if to_destination else "drivers"
    title = "Models given the destination" if to_destination else "Iterations, time and likelihood"
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
    if math.isfinite(value.half_width):
        return Cell.estimate(value.mean, value.half_width, digits=digits)
    return Cell.number(value.mean, digits)


def _percent(value: Interval) -> Cell:
    shown = _interval(value._replace(mean=100.0 * value.mean, half_width=100.0 * value.half_width), 1)
    half_width = value.half_width if math.isfinite(value.half_width) else None
    return replace(shown, value=value.mean if math.isfinite(value.mean) else "", half_width=half_width)


def _format_setting(value: Any) -> str:
    if isinstance(value, list):
        bounds = len(value) == 2 and value[0] < value[1]
        return (" to " if bounds else ", ").join(map(_format_setting, value))
    return f"{value:,g}".replace("-", "−") if isinstance(value, int | float) else str(value)
