"""Forecasts: what those who were watched will do next, where they are going, and what a change of the world changes.

`Forecaster` asks `FreeEnds` or `GivenEnds` what each intent says of a trip, and averages over intents; the questions
(`next_turns`, `destinations`, `routes`, `flows`, `what_if`) know nothing of the model behind.
"""

from limiirl.forecast.destinations import DestinationPosterior
from limiirl.forecast.flows import Flows
from limiirl.forecast.forecaster import Forecaster
from limiirl.forecast.next_state import NextStates
from limiirl.forecast.routes import Route, cheapest_routes
from limiirl.forecast.scenarios import Change, RouteChange

__all__ = [
    "Change",
    "DestinationPosterior",
    "Flows",
    "Forecaster",
    "NextStates",
    "Route",
    "RouteChange",
    "cheapest_routes",
]
