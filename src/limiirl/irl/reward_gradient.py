"""Gradients of the likelihood with respect to the reward of every state and edge, for rewards that are not linear.

The gradient is the observed minus the expected number of visits: with log p(tau) = F(tau) - log Z for a total reward F,
d log p / d r(s) = n_s(tau) - E[n_s], and likewise for edges. It is the gradient of a linear reward whose features
indicate the states and edges, so that every model with gradients provides it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import clone

from limiirl._typing import FloatArray
from limiirl._validation import as_floats
from limiirl.demos import Demonstrations
from limiirl.errors import BackendUnavailable, InvalidParameter
from limiirl.irl import validate
from limiirl.irl.defaults import choose_model
from limiirl.irl.problem import make_problem
from limiirl.mdp import MDP


class RewardTable(NamedTuple):
    """Rewards of states (S,) or (K, S) and of edges (E,) or (K, E), or their gradients; None stands for zeros."""

    state: Any = None
    edge: Any = None


class RewardLikelihood:
    """Log-likelihood of demonstrations as a function of the rewards of all states and edges.

    Parameters
    ----------
    mdp : MDP
        Its features are ignored.
    demos : Demonstrations
    irl : model, optional
        An exact model with a linear reward: `MaxEnt`, `MaxCausalEnt`, `MLIRL` or `DestinationMaxEnt`; by default that
        of `choose_model`. Its bounds and ridge are ignored.
    weights : (N,) or (N, K), optional
        Weights of the demonstrations, such as responsibilities; 1 by default.

    Examples
    --------
    >>> from limiirl import DestinationMaxEnt
    >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3])
    >>> demos = Demonstrations.from_lists([[0, 1, 3], [0, 1, 3], [0, 1, 3], [0, 2, 3]])
    >>> likelihood = RewardLikelihood(mdp, demos, DestinationMaxEnt())
    >>> value, gradient = likelihood.value_and_grad(RewardTable(state=np.zeros(4)))
    >>> round(value, 3), (gradient.state + 0.0).tolist()  # probability 1/2 per path
    (-2.773, [0.0, 1.0, -1.0, 0.0])
    """

    def __init__(self, mdp: MDP, demos: Demonstrations, irl: Any = None, weights: ArrayLike | None = None) -> None:
        validate.mdp(mdp)
        demos = validate.in_numbers_of(mdp, demos)
        model = clone(choose_model(mdp, demos).model if irl is None else irl)
        if not {"bounds", "ridge"} <= set(model.get_params()):
            rule = "must have a reward that is linear in the features of an MDP"
            raise InvalidParameter.of("irl", type(model).__name__, rule)
        self._shape = mdp.n_states, mdp.n_edges
        names = tuple(f"reward {j}" for j in range(sum(self._shape)))
        features = {"state_features": sparse.eye_array(mdp.n_states, format="csr"), "action_features": None}
        features["edge_features"] = sparse.eye_array(mdp.n_edges, format="csr")
        self._mdp = mdp.replace(**features, goal_features=(), feature_names=names)
        self._problem = make_problem(model.set_params(bounds=None, ridge=0.0), self._mdp, demos)
        given = np.ones((len(demos), 1)) if weights is None else np.asarray(weights, dtype=np.float64)
        columns = given[:, None] if given.ndim == 1 else given
        objective = self._problem.objective(validate.weights(columns, demos, columns=True))
        self._weights = columns
        if objective is None:
            raise InvalidParameter.of("irl", type(model).__name__, "must have a likelihood with gradients")
        self._objective: Any = objective
        self._constant: FloatArray | None = None

    def value_and_grad(self, rewards: RewardTable | ArrayLike) -> tuple[Any, RewardTable]:
        """Return the weighted log-likelihood, and its gradients with respect to the rewards.

        Parameters
        ----------
        rewards : RewardTable, or array
            Rewards of states and edges. An array contains the rewards of states. With K rows, there is one row per
            column of the weights, or one for each of K intents if the weights have a single column.

        Returns
        -------
        float or (K,), RewardTable
            The value is -inf, with gradients of 0, if a partition function diverges. The gradient with respect to
            rewards that are None is None.
        """
        table = rewards if isinstance(rewards, RewardTable) else RewardTable(state=rewards)
        thetas, single = self._join(table)
        K, own = len(thetas), self._weights.shape[1]
        if own not in (1, K):
            raise InvalidParameter.of("rewards", K, f"must have {own} rows, one per column of the weights")
        which = np.arange(own) if own == K else np.zeros(K, dtype=np.intp)
        loss, derivative = self._objective.evaluate(thetas, which)
        total = self._weights.sum(axis=0)[which]
        finite = np.isfinite(loss)
        value = np.where(finite, -total * loss + self._offset(thetas, loss, which, finite), -np.inf)
        gradient = np.where(finite[:, None], -total[:, None] * derivative, 0.0)
        parts = np.split(gradient, [self._shape[0]], axis=1)
        given = [part if own is not None else None for part, own in zip(parts, table, strict=True)]
        if not single:
            return value, RewardTable(*given)
        return float(value[0]), RewardTable(*(None if part is None else part[0] for part in given))

    def _join(self, table: RewardTable) -> tuple[FloatArray, bool]:
        """Return thetas (K, S + E), and whether the rewards have one dimension."""
        checked: list[FloatArray | None] = []
        for own, name, size in zip(table, ("state", "edge"), self._shape, strict=True):
            values = None if own is None else as_floats(own, "rewards")
            if values is not None and (values.ndim not in (1, 2) or values.shape[-1] != size):
                rule = f"must have {size} entries per intent, one per {name}"
                raise InvalidParameter.of("rewards", values.shape, rule)
            if values is not None and not np.all(np.isfinite(values)):
                raise InvalidParameter.of("rewards", "nan or inf", f"must be finite (rewards of {name}s)")
            checked.append(values)
        present = [values for values in checked if values is not None]
        if not present:
            raise InvalidParameter.of("rewards", None, "must have rewards of states or of edges")
        if len({values.shape[:-1] for values in present}) > 1:
            shapes = [values.shape for values in present]
            raise InvalidParameter.of("rewards", shapes, "must have the same number of rows for states and for edges")
        single, K = present[0].ndim == 1, 1 if present[0].ndim == 1 else len(present[0])
        parts = [
            np.zeros((K, size)) if values is None else values.reshape(K, size)
            for values, size in zip(checked, self._shape, strict=True)
        ]
        return np.hstack(parts), single

    def _offset(self, thetas: FloatArray, loss: FloatArray, which: Any, finite: Any) -> FloatArray:
        """Return the part of the log-likelihood that does not depend on the rewards and that objectives omit."""
        if self._constant is None:
            if not np.any(finite):
                return np.zeros(len(loss))
            j = int(np.argmax(finite))
            log_prob = self._problem.log_prob(thetas[j : j + 1])
            known = self._weights.sum(axis=0)
            at = np.sum(np.where(self._weights > 0.0, self._weights * log_prob, 0.0), axis=0)
            reference = self._objective.evaluate(
                np.repeat(thetas[j : j + 1], known.size, axis=0), np.arange(known.size)
            )[0]
            self._constant = np.asarray(at + known * reference)
        return np.asarray(self._constant[which])


def value_and_reward_grad(
    mdp: MDP,
    rewards: RewardTable | ArrayLike,
    demos: Demonstrations,
    irl: Any = None,
    weights: ArrayLike | None = None,
) -> tuple[Any, RewardTable]:
    """Return the log-likelihood of demonstrations, and its gradients with respect to the rewards of states and edges.

    See `RewardLikelihood`, which repeated calls should use: it stores the statistics of the demonstrations.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3])
    >>> demos = Demonstrations.from_lists([[0, 1, 3], [0, 1, 3], [0, 1, 3], [0, 2, 3]])
    >>> from limiirl import DestinationMaxEnt
    >>> value_and_reward_grad(mdp, RewardTable(edge=np.zeros(4)), demos, DestinationMaxEnt())[1].edge.tolist()
    [1.0, -1.0, 1.0, -1.0]
    """
    return RewardLikelihood(mdp, demos, irl, weights).value_and_grad(rewards)


def jax_log_likelihood(
    mdp: MDP, demos: Demonstrations, irl: Any = None, weights: ArrayLike | None = None
) -> Callable[..., Any]:
    """Return a function of rewards whose value and gradient JAX can use; it may be part of a compiled function.

    Returns
    -------
    callable
        ``f(state, edge)`` takes the rewards of states (S,) or (K, S) and of edges (E,) or (K, E), and returns the
        weighted log-likelihood, a scalar or (K,). Enable 64-bit numbers in JAX for full accuracy.

    Examples
    --------
    >>> import jax
    >>> from limiirl import DestinationMaxEnt
    >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3])
    >>> demos = Demonstrations.from_lists([[0, 1, 3], [0, 1, 3], [0, 1, 3], [0, 2, 3]])
    >>> f = jax_log_likelihood(mdp, demos, DestinationMaxEnt())
    >>> gradient = jax.grad(lambda x: f(x * jax.numpy.array([0.0, 1.0, 0.0, 0.0]), jax.numpy.zeros(4)))(0.0)
    >>> print(gradient.round(3))
    1.0
    """
    try:
        jax: Any = import_module("jax")
    except ImportError as error:
        raise BackendUnavailable("jax_log_likelihood requires JAX. Install it with pip install jax.") from error
    likelihood = RewardLikelihood(mdp, demos, irl, weights)

    def evaluate(state: Any, edge: Any) -> Any:
        value, gradient = likelihood.value_and_grad(RewardTable(np.asarray(state, float), np.asarray(edge, float)))
        return (
            np.asarray(value, state.dtype),
            np.asarray(gradient.state, state.dtype),
            np.asarray(gradient.edge, edge.dtype),
        )

    def call(state: Any, edge: Any) -> Any:
        shapes = (
            jax.ShapeDtypeStruct(state.shape[:-1], state.dtype),
            jax.ShapeDtypeStruct(state.shape, state.dtype),
            jax.ShapeDtypeStruct(edge.shape, edge.dtype),
        )
        return jax.pure_callback(evaluate, shapes, state, edge)

    def value(state: Any, edge: Any) -> Any:
        return call(state, edge)[0]

    def forward(state: Any, edge: Any) -> Any:
        value, *gradients = call(state, edge)
        return value, gradients

    def backward(gradients: Any, scale: Any) -> Any:
        return tuple(scale[..., None] * gradient for gradient in gradients)

    log_likelihood: Any = jax.custom_vjp(value)
    log_likelihood.defvjp(forward, backward)
    differentiable: Callable[..., Any] = log_likelihood
    return differentiable


def torch_log_likelihood(
    mdp: MDP, demos: Demonstrations, irl: Any = None, weights: ArrayLike | None = None
) -> Callable[..., Any]:
    """Return a function of rewards whose value and gradient PyTorch can use; see `jax_log_likelihood`.

    The result is on the device, and has the type, of the rewards of states.
    """
    try:
        torch: Any = import_module("torch")
    except ImportError as error:
        raise BackendUnavailable("torch_log_likelihood requires PyTorch. Install it with pip install torch.") from error
    likelihood = RewardLikelihood(mdp, demos, irl, weights)

    class LogLikelihood(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, state: Any, edge: Any) -> Any:
            table = RewardTable(*(part.detach().cpu().double().numpy() for part in (state, edge)))
            value, gradient = likelihood.value_and_grad(table)
            ctx.save_for_backward(
                torch.as_tensor(gradient.state, dtype=state.dtype, device=state.device),
                torch.as_tensor(gradient.edge, dtype=edge.dtype, device=edge.device),
            )
            return torch.as_tensor(np.asarray(value), dtype=state.dtype, device=state.device)

        @staticmethod
        def backward(ctx: Any, scale: Any) -> Any:
            return tuple(scale[..., None] * gradient for gradient in ctx.saved_tensors)

    apply: Callable[..., Any] = LogLikelihood.apply
    return apply
