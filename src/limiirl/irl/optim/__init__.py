"""Bound-constrained minimisation of K functions at once."""

from limiirl.irl.optim.lbfgs import minimise_lbfgs, minimise_nonsmooth
from limiirl.irl.optim.projected_bfgs import CuttingPlanes, minimise_bfgs
from limiirl.irl.optim.projected_newton import Box, Objective, minimise_newton
from limiirl.irl.optim.solvers import (
    SOLVERS,
    Solver,
    difference_hessian,
    evaluate_separately,
    increasing_costs,
    minimise_ray,
    minimise_scaled,
)

__all__ = [
    "SOLVERS",
    "Box",
    "CuttingPlanes",
    "Objective",
    "Solver",
    "difference_hessian",
    "evaluate_separately",
    "increasing_costs",
    "minimise_bfgs",
    "minimise_lbfgs",
    "minimise_newton",
    "minimise_nonsmooth",
    "minimise_ray",
    "minimise_scaled",
]
