"""Maps: readers of map formats, rules for OpenStreetMap tags, and construction of road networks."""

from limiirl.roads.maps.builders import build, from_networkx, from_osm, from_ways

__all__ = ["build", "from_networkx", "from_osm", "from_ways"]
