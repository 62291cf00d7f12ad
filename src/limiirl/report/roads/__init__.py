"""Reports on road networks, map matching, driving styles, forecasts and street closures."""

from limiirl.report.roads.data import network_page, quality_page
from limiirl.report.roads.experiment import experiment_report
from limiirl.report.roads.forecasts import change_page, describe_turn, forecast_example, forecast_page
from limiirl.report.roads.styles import drivers_page, styles_report, styles_view
from limiirl.report.roads.view import DriversView, ForecastExample

__all__ = [
    "DriversView",
    "ForecastExample",
    "change_page",
    "describe_turn",
    "drivers_page",
    "experiment_report",
    "forecast_example",
    "forecast_page",
    "network_page",
    "quality_page",
    "styles_report",
    "styles_view",
]
