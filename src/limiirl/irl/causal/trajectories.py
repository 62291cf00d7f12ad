"""Most likely trajectories between two states under a policy, and samples of a policy that changes over time."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from limiirl._typing import FloatArray, IntArray
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.irl import validate
from limiirl.irl.causal.finite_horizon import FiniteHorizonSolver
from limiirl.irl.causal.stationary import PolicySolver
from limiirl.irl.maxent.viterbi import cheapest, connected
from limiirl.kernels.forward_backward.sampling import advance, best_arrival
from limiirl.kernels.soft_bellman import Moves
from limiirl.mdp import MDP


def most_likely(solver: PolicySolver, theta: FloatArray, start: object, goal: object) -> tuple[Demonstrations, float]:
    """Return the likeliest trajectory from one state to another, and its log-probability, that of the start included.

    Without a horizon it ends when it first gets there, and nothing is said of what comes later. Up to a horizon it must
    stop there, and may pass there before. Of equals it takes the shortest, up to a horizon.
    """
    mdp = solver.choices.mdp
    s, g = validate.state(mdp, start, "start"), validate.state(mdp, goal, "goal")
    if mdp.p0[s] == 0.0:
        raise InvalidParameter(
            f"start must be a state in which trajectories begin; p0 of state {s} is 0. Give the state a share of the "
            "start distribution with mdp.replace(p0=...).",
            parameter="start",
            value=s,
        )
    if isinstance(solver, FiniteHorizonSolver):
        edges, log_prob = _up_to_horizon(solver, theta, s, g)
    else:
        edges, log_prob = _of_any_length(solver, theta, s, g)
    states = np.concatenate([[s], mdp.dst[edges]]).astype(np.int64)
    actions = np.append(mdp.act[edges], -1).astype(np.int64)
    found = Demonstrations(states=states, offsets=np.array([0, states.size]), actions=actions)
    return found, math.log(mdp.p0[s]) + log_prob


def _of_any_length(solver: PolicySolver, theta: FloatArray, start: int, goal: int) -> tuple[IntArray, float]:
    """Return the edges of the likeliest way: every step's log-probability is a cost, so that Dijkstra finds it."""
    mdp = solver.choices.mdp
    if not connected(mdp, start, goal):
        raise InvalidParameter(
            f"No trajectory leads from start = {start} to goal = {goal}. Choose another goal.",
            parameter="goal",
            value=goal,
        )
    everywhere = Moves(np.array([0, mdp.n_pairs]), mdp.pair_state.astype(np.int64), np.arange(mdp.n_pairs))
    log_pi = solver.solve(theta[None], everywhere).log_choice[:, 0]
    log_move = log_pi[mdp.pair_of_edge] + np.log(mdp.prob)
    # Rounding may leave a little more than 0 where there is only one choice.
    edges = cheapest(mdp.src, mdp.dst, np.maximum(0.0, -log_move), mdp.n_states, start, goal)
    return edges, float(log_move[edges].sum())


def _up_to_horizon(solver: FiniteHorizonSolver, theta: FloatArray, start: int, goal: int) -> tuple[IntArray, float]:
    """Return the edges of the likeliest trajectory that stops in the goal, layer by layer (Viterbi)."""
    mdp, policy = solver.choices.mdp, solver.log_policies(theta)
    order, log_prob = mdp.in_order, np.log(mdp.prob)
    src, flat = mdp.src[order], np.zeros(mdp.n_states)

    def moves(log_pi: FloatArray) -> FloatArray:
        return np.asarray((log_pi[mdp.pair_of_edge] + log_prob)[order])

    layers = [np.full(mdp.n_states, -np.inf)]
    layers[0][start] = 0.0
    best, length = -math.inf, 0
    for t in range(solver.max_length):
        log_pi, log_stop = policy(t)
        if layers[t][goal] + log_stop[goal] > best:
            best, length = float(layers[t][goal] + log_stop[goal]), t
        if t == solver.max_length - 1 or layers[t].max() <= best:  # nothing that goes on becomes more likely
            break
        layers.append(np.empty(mdp.n_states))
        advance(mdp.in_ptr, src, moves(log_pi), None, 1.0, flat, 1.0, layers[t], layers[t + 1])
    if best == -math.inf:
        exactly = "at most" if solver.stop or mdp.terminal[goal] else "exactly"
        raise InvalidParameter(
            f"No trajectory of {exactly} max_length = {solver.max_length} states leads from start = {start} to goal = "
            f"{goal}. Choose another goal, or make a model with a larger max_length.",
            parameter="goal",
            value=goal,
        )
    edges, at = np.empty(length, dtype=np.int64), goal
    for t in range(length - 1, -1, -1):
        came = best_arrival(mdp.in_ptr, src, moves(policy(t)[0]), None, 1.0, layers[t], at)
        edges[t], at = order[came], int(src[came])
    return edges, best


def walk(
    mdp: MDP, policy: Callable[[int], tuple[FloatArray, FloatArray]], n: int, rng: np.random.Generator, last: int
) -> Demonstrations:
    """Draw n trajectories that start from p0 and make at most `last` moves.

    Parameters
    ----------
    policy : callable
        Of a step: the probabilities (P,) of pairs for those who go on, and (S,) of stopping.
    """
    state = rng.choice(mdp.n_states, size=n, p=mdp.p0 / mdp.p0.sum())
    states, actions = np.full((n, last + 1), -1), np.full((n, last + 1), -1)
    states[:, 0] = state
    walker = np.arange(n)
    for t in range(last):
        pi, stop = policy(t)
        mass = np.concatenate([[0.0], np.cumsum(pi[mdp.pair_of_edge] * mdp.prob)])
        here = states[walker, t]
        low, high = mass[mdp.out_ptr[here]], mass[mdp.out_ptr[here + 1]]
        on = rng.random(walker.size) >= stop[here]
        walker, low, high = walker[on], low[on], high[on]
        point = np.minimum(low + rng.random(walker.size) * (high - low), np.nextafter(high, -np.inf))
        edge = np.searchsorted(mass[1:], point, side="right")
        actions[walker, t], states[walker, t + 1] = mdp.act[edge], mdp.dst[edge]
    made = states >= 0
    offsets = np.concatenate([[0], np.cumsum(made.sum(axis=1))])
    return Demonstrations(states[made], offsets, actions[made])
