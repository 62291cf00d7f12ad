"""Reports on road networks, map matching, driving styles, forecasts and street closures.

The report on a driver experiment is imported on first use, because the other reports do not need
`limiirl.experiments`.
"""

from typing import TYPE_CHECKING, Any

from limiirl.report.roads.closure import change_page
from limiirl.report.roads.forecasts import forecast_example, forecast_page, turn_words
from limiirl.report.roads.matching import quality_page
from limiirl.report.roads.network import network_page
from limiirl.report.roads.styles import drivers_page, styles_report, styles_view, write_styles
from limiirl.report.roads.view import DriversView, ForecastExample

if TYPE_CHECKING:
    from limiirl.report.roads.experiment import experiment_report, experiment_view

__all__ = [
    "DriversView",
    "ForecastExample",
    "change_page",
    "drivers_page",
    "experiment_report",
    "experiment_view",
    "forecast_example",
    "forecast_page",
    "network_page",
    "quality_page",
    "styles_report",
    "styles_view",
    "turn_words",
    "write_styles",
]


def __getattr__(name: str) -> Any:
    if name in ("experiment_report", "experiment_view"):
        from limiirl.report.roads import experiment

        return getattr(experiment, name)
    raise AttributeError(f"module 'limiirl.report.roads' has no attribute {name!r}")
