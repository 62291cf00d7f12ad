"""Pages about roads and drivers: a built network, how well trips were matched to it, and what drivers were found."""

from limiirl.report.roads.change_page import change_page
from limiirl.report.roads.drivers_page import drivers_page
from limiirl.report.roads.forecasts import forecast_example, forecast_page, turn_words
from limiirl.report.roads.network_page import network_page
from limiirl.report.roads.quality_page import quality_page
from limiirl.report.roads.styles_report import (
    experiment_report,
    experiment_view,
    styles_report,
    styles_view,
    write_styles,
)
from limiirl.report.roads.view import DriversView, ForecastExample
from limiirl.roads.drivers.gauge import Gauged, fixed_gauge
from limiirl.roads.drivers.styles import StyleWords, style_words

__all__ = [
    "DriversView",
    "ForecastExample",
    "Gauged",
    "StyleWords",
    "change_page",
    "drivers_page",
    "experiment_report",
    "experiment_view",
    "fixed_gauge",
    "forecast_example",
    "forecast_page",
    "network_page",
    "quality_page",
    "style_words",
    "styles_report",
    "styles_view",
    "turn_words",
    "write_styles",
]
