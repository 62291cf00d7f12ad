"""Inference with a reward that is known: prefixes, what comes next, policies, and the likeliest trajectory."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import sparse

from limiirl._typing import FloatArray, IntArray
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.irl import validate
from limiirl.irl.maxent.infinite_horizon import InfinitePathSums
from limiirl.irl.maxent.likelihood import ObservedPaths
from limiirl.irl.maxent.path_sums import FinitePathSums
from limiirl.irl.maxent.viterbi import Heaviest, Layers, connected, heaviest_of_any_length

Engine = FinitePathSums | InfinitePathSums
# Entries from which on a policy is returned as a sparse array.


class NextActions(NamedTuple):
    """What comes next, for N prefixes and K intents.

    Attributes
    ----------
    action : (N, K, A)
        Probability that the trajectory goes on by each action.
    stop : (N, K)
        Probability that it ends here. With `action` it sums to 1; where the prefix itself has probability zero, so
        that nothing can be said, all are 0.

    Examples
    --------
    >>> NextActions(action=np.array([[[0.5, 0.25]]]), stop=np.array([[0.25]])).action.sum()
    np.float64(0.75)
    """

    action: FloatArray
    stop: FloatArray


class Continuations(NamedTuple):
    """What lies ahead of n places, a place being a state at a step, for K intents.

    Attributes
    ----------
    edge : (m,)
        The edges on which a trajectory can go on from a place; those of place i are ptr[i]:ptr[i + 1].
    ptr : (n + 1,)
    log_move : (m, K)
        Log-weight of going on by each edge, divided by a factor of its place.
    log_stop : (n, K)
        Log-weight of stopping, divided by the same.
    log_factor : (n, K)
    log_Z : (K,) or None
        None where the model is conditioned on the start.
    log_first : (f, K)
        Log-weight of all ways to go on from the f first states that were asked for, their own reward excluded.
    """

    edge: IntArray
    ptr: IntArray
    log_move: FloatArray
    log_stop: FloatArray
    log_factor: FloatArray
    log_Z: FloatArray | None
    log_first: FloatArray

    @property
    def owner(self) -> IntArray:
        """The place (m,) of each edge."""
        return np.repeat(np.arange(self.ptr.size - 1), np.diff(self.ptr))

    def log_total(self, *, stop: bool = True) -> FloatArray:
        """Return (n, K) the log-weight of all ways to go on, stopping included or not, divided by the factor."""
        floor = self.log_stop if stop else np.full_like(self.log_stop, -np.inf)
        filled = np.flatnonzero(np.diff(self.ptr))
        top = floor.copy()
        if filled.size:
            top[filled] = np.maximum(top[filled], np.maximum.reduceat(self.log_move, self.ptr[filled]))
        shift = np.where(top > -np.inf, top, 0.0)
        total = np.exp(floor - shift)
        if filled.size:
            total[filled] += np.add.reduceat(np.exp(self.log_move - shift[self.owner]), self.ptr[filled])
        with np.errstate(divide="ignore"):
            return np.asarray(shift + np.log(total))


def continuations(
    engine: Engine, thetas: FloatArray, step: IntArray, state: IntArray, firsts: IntArray
) -> Continuations:
    """Return what lies ahead of states (n,) at steps (n,), and of first states (f,), in one sweep for all intents.

    Examples
    --------
    From state 0 one may stop, or take one of two edges, of which the first can be followed by another.

    >>> from limiirl.mdp import MDP
    >>> engine = FinitePathSums(MDP.from_edges([0, 0, 1], [1, 2, 2], p0=[1, 0, 0]), 3)
    >>> ahead = continuations(engine, np.zeros((1, 3)), np.array([0]), np.array([0]), np.array([0]))
    >>> np.exp(ahead.log_move + ahead.log_factor[ahead.owner]).ravel(), np.exp(ahead.log_first)
    (array([2., 1.]), array([[4.]]))
    """
    mdp, n_places = engine.mdp, state.size
    leaves = step + 1 < engine.max_length
    sizes = np.where(leaves, mdp.out_ptr[state + 1] - mdp.out_ptr[state], 0)
    ptr = np.concatenate([[0], np.cumsum(sizes)])
    edge = np.arange(ptr[-1]) + np.repeat(mdp.out_ptr[state] - ptr[:-1], sizes)
    found = engine.backward_messages(
        thetas,
        np.concatenate([np.repeat(step + 1, sizes), np.zeros(firsts.size, dtype=np.int64)]),
        np.concatenate([mdp.dst[edge].astype(np.int64), firsts]),
    )
    log_move, scale = found.value[: edge.size], np.zeros((n_places, thetas.shape[0]))
    filled = sizes > 0
    scale[filled] = found.scale[ptr[:-1][filled]]
    log_move = log_move + np.log(mdp.prob[edge])[:, None]
    _, r_edge = mdp.rewards(thetas)
    if r_edge is not None:
        log_move += np.repeat(mdp.gamma ** step.astype(np.float64), sizes)[:, None] * r_edge[edge]
    may_stop = np.ones(n_places, dtype=bool) if engine.stop == "anywhere" else mdp.terminal[state]
    if engine.stop == "terminal_or_max_length":
        may_stop = may_stop | ~leaves
    log_stop = np.where(may_stop[:, None], -scale, -np.inf)
    log_first = found.value[edge.size :] + found.scale[edge.size :]
    return Continuations(edge, ptr, log_move, log_stop, scale, found.log_Z, log_first)


def prefix_continuations(engine: Engine, thetas: FloatArray, demos: Demonstrations) -> Continuations:
    """Return what lies ahead of the last states of prefixes, after checking them against the model."""
    validate.fits_model(engine.mdp, demos, "anywhere", engine.max_length)  # a prefix may break off anywhere
    firsts = demos.start_states if engine.by_start else np.empty(0, dtype=np.int64)
    return continuations(engine, thetas, demos.lengths - 1, demos.last_states, firsts)


def log_prob_prefix(engine: Engine, thetas: FloatArray, demos: Demonstrations) -> FloatArray:
    """Return (N, K) the log-probability that a trajectory begins so; see `MaxEnt.log_prob_prefix`."""
    ahead = prefix_continuations(engine, thetas, demos)
    log_weight = ObservedPaths(engine.mdp, demos, by_start=engine.by_start).log_weight(thetas)
    total = ahead.log_total() + ahead.log_factor
    log_Z = ahead.log_Z
    if log_Z is None:
        log_Z = ahead.log_first + engine.mdp.rewards(thetas)[0][demos.start_states]
    # A start from which no trajectory ends has log Z = -inf, and what begins there is impossible.
    possible = total > -np.inf
    return np.where(possible, log_weight + total - np.where(possible, log_Z, 0.0), -np.inf)


def next_actions(engine: Engine, thetas: FloatArray, demos: Demonstrations) -> NextActions:
    """Return what comes next after each prefix; see `MaxEnt.next_actions`."""
    mdp, ahead = engine.mdp, prefix_continuations(engine, thetas, demos)
    total = ahead.log_total()
    total = np.where(total > -np.inf, total, 0.0)  # then all parts are -inf, and their probabilities 0
    action = np.zeros((len(demos), thetas.shape[0], mdp.n_actions))
    move = np.exp(ahead.log_move - total[ahead.owner])
    place = ahead.owner * mdp.n_actions + mdp.act[ahead.edge]
    for k in range(thetas.shape[0]):
        summed = np.bincount(place, weights=move[:, k], minlength=len(demos) * mdp.n_actions)
        action[:, k] = summed.reshape(len(demos), mdp.n_actions)
    return NextActions(action, np.exp(ahead.log_stop - total))


def policy(engine: Engine, theta: FloatArray, step: object) -> FloatArray:
    """Return (S, A) the probability of each action for those who go on; see `MaxEnt.policy`."""
    mdp, t = engine.mdp, _step(step, engine.max_length)
    states = np.arange(mdp.n_states)
    ahead = continuations(engine, theta[None], np.full(mdp.n_states, t), states, states)
    total = ahead.log_total(stop=False)
    total = np.where(total > -np.inf, total, 0.0)
    move = np.exp(ahead.log_move - total[ahead.owner])[:, 0]
    if isinstance(engine, InfinitePathSums):  # a state that no start leads to may lead to some that a start leads to
        move[ahead.log_first[ahead.owner, 0] == -np.inf] = 0.0
    shape = (mdp.n_states, mdp.n_actions)
    return sparse.csr_array((move, (mdp.src[ahead.edge], mdp.act[ahead.edge])), shape=shape).toarray()


def most_likely(engine: Engine, theta: FloatArray, start: object, goal: object) -> tuple[Demonstrations, float]:
    """Return the likeliest trajectory between two states and its log-probability; see `MaxEnt.most_likely`."""
    mdp = engine.mdp
    s, g = validate.state(mdp, start, "start"), validate.state(mdp, goal, "goal")
    log_start = 0.0
    if not engine.by_start:
        if mdp.p0[s] == 0.0:
            raise InvalidParameter(
                f"start must be a state in which trajectories begin; p0 of state {s} is 0. Use condition='start', or "
                "give the state a share of the start distribution with mdp.replace(p0=...).",
                parameter="start",
                value=s,
            )
        log_start = math.log(mdp.p0[s])
    if engine.stop == "terminal" and not mdp.terminal[g]:
        raise InvalidParameter(
            f"goal must be terminal, because the model has stop='terminal'; state {g} is not. Use stop='anywhere', or "
            "mark the state as terminal.",
            parameter="goal",
            value=g,
        )
    only = np.zeros(mdp.n_states)
    only[s] = 1.0
    starts = only if engine.by_start else None
    found = _heaviest(engine, theta, s, g, starts)
    log_Z = float(engine.log_partition(theta[None], starts=None if starts is None else starts[:, None])[0])
    states = np.concatenate([[s], mdp.dst[found.edges]]).astype(np.int64)
    actions = np.append(mdp.act[found.edges], -1).astype(np.int64)
    demo = Demonstrations(states=states, offsets=np.array([0, states.size]), actions=actions)
    return demo, log_start + found.log_weight - log_Z


def _heaviest(engine: Engine, theta: FloatArray, start: int, goal: int, starts: FloatArray | None) -> Heaviest:
    """Return the heaviest trajectory between two states, or say that there is none."""
    only_last = engine.stop == "terminal_or_max_length" and not engine.mdp.terminal[goal]
    if isinstance(engine, InfinitePathSums):
        found, which, remedy = None, "No trajectory", "Choose another goal."
        if connected(engine.mdp, start, goal):
            found = heaviest_of_any_length(engine.mdp, theta, engine.log_beta(theta, starts), start, goal)
    else:
        layers = Layers(engine.mdp, theta)
        found = layers.heaviest(start, goal, engine.max_length, only_last=only_last)
        which = f"No trajectory of {'exactly' if only_last else 'at most'} max_length = {engine.max_length} states"
        remedy = "Choose another goal, or make a model with a larger max_length."
    if found is None:
        raise InvalidParameter(
            f"{which} leads from start = {start} to goal = {goal}. {remedy}", parameter="goal", value=goal
        )
    return found


def _step(value: object, max_length: float) -> int:
    """Return a step at which a trajectory of the model can be."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not 0 <= value < max_length:  # type: ignore[operator]
        upper = "" if max_length == math.inf else f" and at most max_length - 1 = {int(max_length) - 1}"
        raise InvalidParameter(
            f"step must be a whole number, at least 0{upper}; it is {value!r}.", parameter="step", value=value
        )
    return int(value)  # type: ignore[call-overload, no-any-return]
