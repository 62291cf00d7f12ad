"""Numba kernels for roads: spatial index, routing, map matching and GPS cleaning. Import the modules directly."""

import limiirl.kernels  # noqa: F401 (sets the folder of compiled kernels)
