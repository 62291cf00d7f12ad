"""Forecasts of trips from a fitted mixture: next states, destinations, routes, flows, and effects of MDP changes."""

from limiirl.forecast.forecaster import Forecaster
from limiirl.forecast.partial_trips import DestinationPosterior, NextStates
from limiirl.forecast.routes import Route, cheapest_routes
from limiirl.forecast.scenarios import Change, Flows, RouteChange
from limiirl.forecast.trip_models import condition_on_ends

__all__ = [
    "Change",
    "DestinationPosterior",
    "Flows",
    "Forecaster",
    "NextStates",
    "Route",
    "RouteChange",
    "cheapest_routes",
    "condition_on_ends",
]
