"""Numba kernels of the road package: spatial index, routing, map matching and GPS cleaning; import its modules."""
