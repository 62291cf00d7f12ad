"""Most likely trajectories under a policy, and samples from a time-dependent policy."""

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
from limiirl.irl.graph import is_connected, shortest_path
from limiirl.kernels.forward_backward.sampling import advance, best_arrival
from limiirl.kernels.soft_bellman import ObservedPairs
from limiirl.mdp import MDP


def most_likely(solver: PolicySolver, theta: FloatArray, start: object, goal: object) -> tuple[Demonstrations, float]:
    """Return the most likely trajectory from one state to another, and its log-probability, including log p0(start).

    With a stationary policy, the trajectory ends at its first visit to the goal. With a finite horizon, it ends with
    the action of stopping in the goal, and it may visit the goal before. If several trajectories are equally likely,
    the shortest is returned.
    """
    mdp = solver.pairs.mdp
    s, g = validate.state(mdp, start, "start"), validate.state(mdp, goal, "goal")
    if mdp.p0[s] == 0.0:
        raise InvalidParameter.of("start", s, "must be a state with p0 > 0", remedy="Use mdp.replace(p0=...).")
    if isinstance(solver, FiniteHorizonSolver):
        edges, log_prob = _viterbi(solver, theta, s, g)
    else:
        edges, log_prob = _shortest_path(solver, theta, s, g)
    states = np.concatenate([[s], mdp.dst[edges]]).astype(np.int64)
    actions = np.append(mdp.act[edges], -1).astype(np.int64)
    path = Demonstrations(states=states, offsets=np.array([0, states.size]), actions=actions)
    return path, math.log(mdp.p0[s]) + log_prob


def _shortest_path(solver: PolicySolver, theta: FloatArray, start: int, goal: int) -> tuple[IntArray, float]:
    """Return the edges of the most likely path and its log-probability, with Dijkstra's algorithm."""
    mdp = solver.pairs.mdp
    if not is_connected(mdp, start, goal):
        raise InvalidParameter.of("goal", goal, f"must be reachable from start = {start}")
    all_pairs = ObservedPairs(np.array([0, mdp.n_pairs]), mdp.pair_state.astype(np.int64), np.arange(mdp.n_pairs))
    log_pi = solver.solve(theta[None], all_pairs).log_prob[:, 0]
    log_edge = log_pi[mdp.pair_of_edge] + np.log(mdp.prob)
    # Rounding may leave log-probabilities slightly above 0.
    edges = shortest_path(mdp.src, mdp.dst, np.maximum(0.0, -log_edge), mdp.n_states, start, goal)
    return edges, float(log_edge[edges].sum())


def _viterbi(solver: FiniteHorizonSolver, theta: FloatArray, start: int, goal: int) -> tuple[IntArray, float]:
    """Return the edges of the most likely trajectory that stops in the goal and its log-probability."""
    mdp, policy = solver.pairs.mdp, solver.log_policies(theta)
    order, log_prob = mdp.in_order, np.log(mdp.prob)
    src, flat = mdp.src[order], np.zeros(mdp.n_states)

    def log_edges(log_pi: FloatArray) -> FloatArray:
        return np.asarray((log_pi[mdp.pair_of_edge] + log_prob)[order])

    layers = [np.full(mdp.n_states, -np.inf)]
    layers[0][start] = 0.0
    best, length = -math.inf, 0
    for t in range(solver.max_length):
        log_pi, log_stop = policy(t)
        if layers[t][goal] + log_stop[goal] > best:
            best, length = float(layers[t][goal] + log_stop[goal]), t
        if t == solver.max_length - 1 or layers[t].max() <= best:  # no longer trajectory is more likely
            break
        layers.append(np.empty(mdp.n_states))
        advance(mdp.in_ptr, src, log_edges(log_pi), None, 1.0, flat, 1.0, layers[t], layers[t + 1])
    if best == -math.inf:
        within = "at most" if solver.stop or mdp.terminal[goal] else "exactly"
        rule = f"must be reachable from start = {start} in {within} max_length = {solver.max_length} states"
        raise InvalidParameter.of("goal", goal, rule)
    edges, at = np.empty(length, dtype=np.int64), goal
    for t in range(length - 1, -1, -1):
        arrival = best_arrival(mdp.in_ptr, src, log_edges(policy(t)[0]), None, 1.0, layers[t], at)
        edges[t], at = order[arrival], int(src[arrival])
    return edges, best


def sample_finite_horizon(
    mdp: MDP, policy: Callable[[int], tuple[FloatArray, FloatArray]], n: int, rng: np.random.Generator, last: int
) -> Demonstrations:
    """Draw n trajectories of at most `last` transitions that start from p0.

    `policy(step)` returns the probabilities (P,) of pairs, given that the trajectory continues, and (S,) of stopping.
    """
    state = rng.choice(mdp.n_states, size=n, p=mdp.p0 / mdp.p0.sum())
    states, actions = np.full((n, last + 1), -1), np.full((n, last + 1), -1)
    states[:, 0] = state
    active = np.arange(n)
    for t in range(last):
        pi, stop = policy(t)
        mass = np.concatenate([[0.0], np.cumsum(pi[mdp.pair_of_edge] * mdp.prob)])
        here = states[active, t]
        low, high = mass[mdp.out_ptr[here]], mass[mdp.out_ptr[here + 1]]
        on = rng.random(active.size) >= stop[here]
        active, low, high = active[on], low[on], high[on]
        point = np.minimum(low + rng.random(active.size) * (high - low), np.nextafter(high, -np.inf))
        edge = np.searchsorted(mass[1:], point, side="right")
        actions[active, t], states[active, t + 1] = mdp.act[edge], mdp.dst[edge]
    visited = states >= 0
    offsets = np.concatenate([[0], np.cumsum(visited.sum(axis=1))])
    return Demonstrations(states[visited], offsets, actions[visited])
