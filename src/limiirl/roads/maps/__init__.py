"""Maps: readers of every format, the rules of the road, and the network built from a table of ways."""

from limiirl.roads.maps.builders import build, from_networkx, from_osm, from_ways

__all__ = ["build", "from_networkx", "from_osm", "from_ways"]
