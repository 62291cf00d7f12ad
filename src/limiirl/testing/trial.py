"""A model on one problem: what the rules ask of it, and how they say that it failed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from limiirl.irl.checks import box
from limiirl.irl.optimise import Box
from limiirl.irl.prepared import prepare
from limiirl.testing.problems import Problem

Float = NDArray[np.float64]

# Log-probabilities of a demonstration under two fits that should be the same: optimisers stop where they like.
SAME_FIT = 1e-3
# The same sums, added up in another order.
ROUNDING = 1e-9
# A mean log-likelihood that should not be lower than another.
NOT_WORSE = 1e-6


class Failure(NamedTuple):
    """A rule that a model breaks: the check's name, what was expected, what came, and the remedy."""

    check: str
    expected: str
    got: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.check}: expected {self.expected}; got {self.got}. {self.remedy}"


class Unmet(Exception):
    """A rule is not kept."""

    def __init__(self, expected: str, got: str, remedy: str) -> None:
        super().__init__(expected, got, remedy)
        self.expected, self.got, self.remedy = expected, got, remedy


class Trial:
    """A model and a problem; every question is asked of a fresh copy of the model."""

    def __init__(self, model: Any, problem: Problem) -> None:
        self.model, self.problem = model, problem
        self.mdp, self.demos = problem.mdp, problem.demos
        self.n = len(problem.demos)

    def fresh(self) -> Any:
        """Return an unfitted copy. What `clone` cannot copy breaks a rule of its own; the others go on."""
        try:
            return clone(self.model)
        except (RuntimeError, TypeError):
            return copy.deepcopy(self.model)

    def rng(self) -> np.random.Generator:
        """Return the same random numbers for every rule."""
        return np.random.default_rng(20)

    def weights(self) -> Float:
        """Return weights (N,), all different and none zero."""
        return self.rng().uniform(0.2, 1.0, self.n)

    def fit(self, **arguments: Any) -> tuple[Any, Float]:
        """Return a fresh model and the theta (d,) that it fits to the problem's demonstrations."""
        model = self.fresh()
        return model, np.asarray(model.fit(self.mdp, self.demos, **arguments), dtype=np.float64)

    def log_prob(self, model: Any, thetas: Float, demos: Any = None) -> Float:
        """Return log-probabilities (N, K)."""
        found = model.log_prob(self.mdp, np.atleast_2d(thetas), self.demos if demos is None else demos)
        return np.asarray(found, dtype=np.float64)

    def box(self, d: int) -> Box:
        """Return the model's bounds, infinite where it has none."""
        return box(getattr(self.model, "bounds", None), [f"parameter {j}" for j in range(d)])

    def nearby(self, theta: Float, n: int) -> Float:
        """Return other parameters (n, d) that the model allows."""
        return self.box(theta.size).clip(theta + 0.3 * self.rng().normal(size=(n, theta.size)))

    def objective(self, model: Any, theta: Float, weights: Float) -> float:
        """Return the weighted mean log-likelihood, less the model's penalty if it has one."""
        used = weights > 0
        log_p = self.log_prob(model, theta)[used, 0]
        penalty = prepare(model, self.mdp, self.demos).penalty(theta[None])
        return float(weights[used] @ log_p) / float(weights.sum()) - penalty / self.n

    def same_fit(self, model: Any, one: Float, other: Float, which: Any = slice(None)) -> float:
        """Return the largest difference of the demonstrations' log-probabilities under two parameters."""
        log_p = self.log_prob(model, np.array([one, other]))[which]
        equal = log_p[:, 0] == log_p[:, 1]  # -inf is equal to itself
        with np.errstate(invalid="ignore"):
            return float(np.max(np.where(equal, 0.0, np.abs(log_p[:, 0] - log_p[:, 1])), initial=0.0))


def always(_: Trial) -> str:
    """Say that a rule applies."""
    return ""


@dataclass(frozen=True)
class Rule:
    """Something that must hold.

    Attributes
    ----------
    function : callable
        Raises `Unmet`.
    skip : callable
        Returns why the rule does not apply to a trial, or an empty text.
    once : bool
        Whether one problem is enough to see it.
    """

    function: Callable[[Trial], None]
    skip: Callable[[Trial], str] = always
    once: bool = False

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.__name__


def expect(condition: Any, expected: str, got: Any, remedy: str) -> None:
    """Raise `Unmet` unless a condition holds."""
    if not condition:
        raise Unmet(expected, str(got), remedy)


def same_value(one: Any, other: Any) -> bool:
    """Return whether two parameters are the same, arrays by their content."""
    if one is other:
        return True
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(np.asarray(one), np.asarray(other))
    try:
        return bool(one == other)
    except (TypeError, ValueError):
        return False


def same_parameters(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether two sets of parameters are the same."""
    return one.keys() == other.keys() and all(same_value(one[name], other[name]) for name in one)
