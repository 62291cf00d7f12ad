"""Linear systems of a policy: (I - gamma P) x = y and their transposes, for K policies at once.

The first kind gives values and Newton's steps towards them, the second the adjoint, from which a gradient follows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import linalg

from limiirl.errors import NumericalError
from limiirl.irl.choices import Choices
from limiirl.kernels.choices import fill_systems

Float = NDArray[np.float64]

# Up to this many states a dense solve is quicker than setting up a sparse one.
DENSE = 250
# Iterations of BiCGSTAB, and how often it is begun anew from its residual, before LU takes over.
_ITERATIONS, _ROUNDS = 300, 3
# A graph is narrow if its states can be numbered so that edges join numbers at most this many times sqrt(S) apart.
# Streets and grids have 1 to 3, random graphs 12 and more; narrow ones have a sparse LU. Porto's 85,000 segments take
# 0.08 s by LU and 0.84 s by BiCGSTAB, a random graph of 3,000 states with 4 edges each 0.6 and 0.05 s.
NARROW = 6.0
# Solutions by the LU of another policy, each correcting the one before, before it is made anew; and by how much the
# residual must fall each time.
CORRECTIONS, _FALL = 8, 0.3


class Factors:
    """The last LU of each column's system: a policy that has changed little is solved for by the one before.

    Parameters
    ----------
    columns : (K,)
        The numbers under which the systems at hand are known; equal ones share a LU.
    """

    def __init__(self, columns: NDArray[np.intp]) -> None:
        self.columns = columns
        self.of: dict[int, Any] = {}

    def part(self, columns: NDArray[np.intp]) -> Factors:
        """Return the same for some of the columns."""
        found = Factors(columns)
        found.of = self.of
        return found


def solve(
    choices: Choices,
    omega: Float,
    right: Float,
    *,
    transposed: bool = False,
    rtol: float = 1e-13,
    factors: Factors | None = None,
) -> Float:
    """Return x (S, K) with (I - gamma P_k) x_k = right_k, P_k[s, s'] = sum_a omega_k(s, a) P(s' | s, a).

    Parameters
    ----------
    omega : (P, K)
        Weights of the choices; for the derivative of a value they need not be probabilities.
    right : (S, K)
    transposed : bool
        Solve with the transposed matrices instead.
    rtol : float
        The residual that an iterative solution may leave, relative to the right side; a direct one leaves rounding.
    factors : Factors, optional
        What is known of systems with nearly the same omega; it is brought up to date.

    Examples
    --------
    A state that is left with probability 1/2 is visited twice.

    >>> from limiirl.mdp import MDP
    >>> mdp = MDP.from_edges([0, 0], [0, 1], action=[0, 0], prob=[0.5, 0.5])
    >>> solve(Choices(mdp), np.ones((1, 1)), np.array([[1.0], [0.0]]), transposed=True).ravel()
    array([2., 1.])
    """
    n = choices.mdp.n_states
    try:
        if n <= DENSE:
            systems = np.empty((omega.shape[1], n, n))
            fill_systems(choices.graph, omega, systems)
            if transposed:
                systems = systems.transpose(0, 2, 1)
            found = np.linalg.solve(systems, right.T[:, :, None])[:, :, 0].T
        else:
            known = Factors(np.arange(omega.shape[1])) if factors is None else factors
            found = np.column_stack(
                [
                    _sparse(choices, omega[:, k], right[:, k], transposed, rtol, known.of, int(column))
                    for k, column in enumerate(known.columns)
                ]
            )
    except (np.linalg.LinAlgError, RuntimeError):  # what numpy and SuperLU say of a singular matrix
        found = np.full(right.shape, np.nan)
    if not np.all(np.isfinite(found)):
        raise NumericalError(
            "The values of a policy left the range of float64: an end is reached too rarely. Lower gamma."
        )
    return np.ascontiguousarray(found)


def _sparse(
    choices: Choices, omega: Float, right: Float, transposed: bool, rtol: float, known: dict[int, Any], column: int
) -> Float:
    """Solve by LU where the graph is narrow; else by BiCGSTAB where it gets there, as random graphs fill LU in."""
    n = choices.mdp.n_states
    choose: Any = sparse.csr_array((omega, np.arange(omega.size), choices.graph.pair_ptr), shape=(n, omega.size))
    matrix = sparse.csr_array(sparse.eye_array(n) - choices.graph.gamma * (choose @ choices.moves))
    if choices.bandwidth <= NARROW * np.sqrt(n):
        return _direct(matrix, right, transposed, rtol, known, column)
    matrix = sparse.csr_array(matrix.T) if transposed else matrix
    wanted = rtol * float(np.linalg.norm(right))
    x, residual = np.zeros(n), right
    for _ in range(_ROUNDS):
        size = float(np.linalg.norm(residual))
        if size <= wanted:
            return x
        step, _ = linalg.bicgstab(matrix, residual, rtol=min(0.1, 0.5 * wanted / size), atol=0.0, maxiter=_ITERATIONS)
        if np.all(np.isfinite(step)):
            x = x + np.asarray(step)
        residual = right - matrix @ x
    if float(np.linalg.norm(residual)) <= wanted:
        return x
    return np.asarray(linalg.splu(matrix.tocsc()).solve(right))


def _direct(matrix: Any, right: Float, transposed: bool, rtol: float, known: dict[int, Any], column: int) -> Float:
    """Solve by the LU that is known, as long as corrections by it get there fast, else by one of this matrix."""
    trans, operator = ("T", matrix.T) if transposed else ("N", matrix)
    if column in known:
        x, residual = np.zeros(right.size), right
        size = float(np.linalg.norm(right))
        wanted = rtol * size
        for _ in range(CORRECTIONS):
            x = x + known[column].solve(residual, trans)
            residual = right - operator @ x
            before, size = size, float(np.linalg.norm(residual))
            if size <= wanted:
                return np.asarray(x)
            if not size <= _FALL * before:
                break
    known[column] = linalg.splu(matrix.tocsc())
    return np.asarray(known[column].solve(right, trans))
