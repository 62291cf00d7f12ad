"""GPS traces: readers of trips, validation, and cleaning."""

from limiirl.roads.traces.cleaning import CleanedTrips, clean
from limiirl.roads.traces.read import read_trips
from limiirl.roads.traces.tables import COLUMN_NAMES
from limiirl.roads.traces.trips import SkippedTrip, Trips

__all__ = ["COLUMN_NAMES", "CleanedTrips", "SkippedTrip", "Trips", "clean", "read_trips"]
