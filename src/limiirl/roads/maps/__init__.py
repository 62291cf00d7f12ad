"""Maps: readers of map formats, rules for OpenStreetMap tags, and construction of road networks."""

from limiirl.roads.maps.builders import build, from_networkx, from_osm, from_ways
from limiirl.roads.maps.osm import PLACES

__all__ = ["PLACES", "build", "from_networkx", "from_osm", "from_ways"]
