"""Compiled loops of the road package: spatial index, routing, map matching, GPS cleaning. Its modules are its face."""
