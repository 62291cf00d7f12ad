"""Numba kernels of the road package: spatial index, routing, map matching and GPS cleaning; import its modules."""

import limiirl.kernels  # noqa: F401 (sets the folder of compiled kernels)
