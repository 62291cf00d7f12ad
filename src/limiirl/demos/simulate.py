"""Sampling of demonstrations from a policy in an MDP."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from limiirl._typing import FloatArray, IndexArray, Seed
from limiirl._validation import as_generator, check_count
from limiirl.demos.demonstrations import Demonstrations
from limiirl.demos.validate import NOT_RECORDED
from limiirl.mdp import MDP, check_policy


def simulate(mdp: MDP, policy: ArrayLike, n: int, seed: Seed = None, *, max_length: int = 50) -> Demonstrations:
    """Sample n demonstrations of a stationary policy, with actions.

    A demonstration starts in a state drawn from p0, and ends in a terminal state or after `max_length` states.

    Parameters
    ----------
    mdp : MDP
    policy : (P,)
        Probability pi(a | s) of each state-action pair, in the order of `mdp.pair_state` and `mdp.pair_action`.
    n : int
        Number of demonstrations.
    seed : int, Generator or None
    max_length : int
        Maximum number of states per demonstration.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1], [1, 2, 2], p0=[1.0, 0.0, 0.0])
    >>> demos = simulate(mdp, [0.25, 0.75, 1.0], 1000, seed=0)
    >>> demos.lengths.min(), demos.lengths.max(), (demos.lengths == 3).mean()
    (np.int64(2), np.int64(3), np.float64(0.277))
    """
    weights = check_policy(mdp, policy)
    check_count(n, "n", bytes_each=64.0)
    check_count(max_length, "max_length")
    rng = as_generator(seed)
    cumulative = np.cumsum(weights[mdp.pair_of_edge] * mdp.prob)
    # bounds[out_ptr[s]] to bounds[out_ptr[s + 1]] is the probability mass of the edges that leave s.
    bounds = np.concatenate([[0.0], cumulative])
    demo = np.arange(n)
    starts = np.cumsum(mdp.p0)
    state = _draw(starts, np.zeros(n), np.full(n, starts[-1]), rng)
    demos, states, actions = [demo], [state], []
    for _ in range(max_length - 1):
        active = ~mdp.terminal[state]
        taken = np.full(demo.size, NOT_RECORDED, dtype=np.int64)
        demo, state = demo[active], state[active]
        if not demo.size:
            break
        edge = _draw(cumulative, bounds[mdp.out_ptr[state]], bounds[mdp.out_ptr[state + 1]], rng)
        taken[active] = mdp.act[edge]
        state = mdp.dst[edge].astype(np.intp)
        demos.append(demo)
        states.append(state)
        actions.append(taken)
    actions.append(np.full(states[-1].size, NOT_RECORDED, dtype=np.int64))
    # Steps are in order of time; a stable sort groups them by demonstration.
    owner = np.concatenate(demos)
    order = np.argsort(owner, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=n))])
    flat_states, flat_actions = np.concatenate(states)[order], np.concatenate(actions)[order]
    return Demonstrations(flat_states.astype(np.int64), offsets.astype(np.int64), flat_actions)


def _draw(cumulative: FloatArray, low: FloatArray, high: FloatArray, rng: np.random.Generator) -> IndexArray:
    """Draw one index per interval [low, high) of the cumulative sums, by inverse transform sampling.

    Points that round to `high` are moved below it, so that an index of zero probability is never drawn.
    """
    point = low + rng.random(low.size) * (high - low)
    return np.asarray(np.searchsorted(cumulative, np.minimum(point, np.nextafter(high, -np.inf)), side="right"))
