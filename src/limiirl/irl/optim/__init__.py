"""Minimisation of several smooth functions within bounds; the only place that calls an optimiser."""

from limiirl.irl.optim.gradient_sampling import minimise_nonsmooth
from limiirl.irl.optim.lbfgs import minimise_lbfgs
from limiirl.irl.optim.projected_bfgs import CuttingPlanes, minimise_bfgs
from limiirl.irl.optim.projected_newton import Box, Objective, minimise_newton
from limiirl.irl.optim.solvers import SOLVERS, minimise_ray

__all__ = [
    "SOLVERS",
    "Box",
    "CuttingPlanes",
    "Objective",
    "minimise_bfgs",
    "minimise_lbfgs",
    "minimise_newton",
    "minimise_nonsmooth",
    "minimise_ray",
]
