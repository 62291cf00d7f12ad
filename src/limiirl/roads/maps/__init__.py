"""Maps: readers of all formats, tag rules, and the network built from OSM ways."""

from limiirl.roads.maps.builders import build, from_networkx, from_osm, from_ways

__all__ = ["build", "from_networkx", "from_osm", "from_ways"]
