"""Pages about roads and drivers: a built network, how well trips were matched to it, and what drivers were found."""

from limiirl.report.roads.closure import change_page
from limiirl.report.roads.experiment import experiment_report, experiment_view, styles_report, styles_view, write_styles
from limiirl.report.roads.forecasts import forecast_example, forecast_page, turn_words
from limiirl.report.roads.matching import quality_page
from limiirl.report.roads.network import network_page
from limiirl.report.roads.styles import drivers_page
from limiirl.report.roads.view import DriversView, ForecastExample
from limiirl.roads.drivers.styles import Gauged, StyleWords, fixed_gauge, style_words

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
