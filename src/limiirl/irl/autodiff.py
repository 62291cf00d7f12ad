"""Log-likelihoods as differentiable functions of JAX and PyTorch, so that any network can be the reward of a model.

Values and gradients are those of `RewardLikelihood`, on the device of the model. The libraries are imported when a
function is created.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from limiirl.demos import Demonstrations
from limiirl.errors import BackendUnavailable
from limiirl.irl.reward_gradient import RewardLikelihood, RewardTable
from limiirl.mdp import MDP


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
