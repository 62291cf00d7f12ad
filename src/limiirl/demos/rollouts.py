"""Recording episodes of a policy in a Gymnasium environment."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl.errors import BackendUnavailable, InvalidDemos, InvalidParameter

Policy: TypeAlias = Callable[[Any, np.random.Generator], Any] | ArrayLike


def roll_out(env: Any, policy: Policy, n: int, seed: int, max_steps: int) -> tuple[list[list[int]], list[list[int]]]:
    """Record n episodes as lists of states and of actions, both counted from 0; see `Demonstrations.from_rollouts`."""
    for name, value, lowest in (("n", n, 1), ("seed", seed, 0), ("max_steps", max_steps, 0)):
        if value < lowest:
            raise InvalidParameter(f"{name} must be at least {lowest}; got {value}. Choose a larger one.")
    first_state, n_states = _discrete(env, "observation")
    first_action, n_actions = _discrete(env, "action")
    if callable(policy):
        choose = policy
    else:
        pick = _table_policy(np.asarray(policy), n_states, n_actions)

        def choose(observation: Any, rng: np.random.Generator) -> int:
            return pick(int(observation) - first_state, rng) + first_action

    # The environment seeds its own generator with `seed`; with the same stream here, luck and choice would be one.
    rng = np.random.default_rng([seed, 1])
    states: list[list[int]] = []
    actions: list[list[int]] = []
    for episode in range(n):
        # Seeding every reset would repeat one episode; seeding the first continues the environment's stream.
        observation, _ = env.reset(seed=seed if episode == 0 else None)
        visited, taken = [int(observation) - first_state], list[int]()
        for _ in range(max_steps):
            action = choose(observation, rng)
            observation, _, terminated, truncated, _ = env.step(action)
            visited.append(int(observation) - first_state)
            taken.append(int(action) - first_action)
            if terminated or truncated:
                break
        states.append(visited)
        actions.append(taken)
    return states, actions


def _discrete(env: Any, kind: str) -> tuple[int, int]:
    """Return the first element and the size of a discrete space."""
    try:
        from gymnasium.spaces import Discrete
    except ImportError:
        raise BackendUnavailable(
            "Rollouts need gymnasium, which is not installed. Run pip install gymnasium."
        ) from None
    space = getattr(env, f"{kind}_space", None)
    if not isinstance(space, Discrete):
        raise InvalidDemos(
            f"Rollouts need a discrete {kind} space; got {space}. "
            f"Wrap the environment so that its {kind}s are numbers, e.g. in gymnasium.wrappers.Transform{kind.title()}."
        )
    return int(space.start), int(space.n)


def _table_policy(table: NDArray[Any], n_states: int, n_actions: int) -> Callable[[int, np.random.Generator], int]:
    """Turn an array of actions (S,) or of probabilities (S, A) into a function of the state and a generator."""
    if table.shape == (n_states,) and table.dtype.kind in "iu":
        outside = (table < 0) | (table >= n_actions)
        if np.any(outside):
            s = int(np.argmax(outside))
            raise InvalidParameter(
                f"The policy's action in state {s} is {table[s]}. Choose one of 0 to {n_actions - 1}."
            )
        return lambda s, _: int(table[s])
    if table.shape == (n_states, n_actions) and table.dtype.kind in "iuf":
        return _random_policy(table.astype(np.float64))
    raise InvalidParameter(
        f"A policy must be a function, an integer array of shape ({n_states},) or probabilities of shape "
        f"({n_states}, {n_actions}); got shape {table.shape}, dtype {table.dtype}. Give every state its row."
    )


def _random_policy(table: NDArray[np.float64]) -> Callable[[int, np.random.Generator], int]:
    """Draw actions with the probabilities in each state's row; a row of zeros says that nothing is chosen there."""
    # NaN fails the first comparison.
    valid = np.all(table >= 0, axis=1) & ((np.abs(table.sum(axis=1) - 1) <= 1e-8) | ~np.any(table, axis=1))
    if not np.all(valid):
        s = int(np.argmin(valid))
        raise InvalidParameter(
            f"A policy's probabilities must be at least 0 and sum to 1 in each state; those of state {s} are "
            f"{table[s].tolist()}. Divide each row by its sum."
        )
    cumulative = np.cumsum(table, axis=1)
    total = cumulative[:, -1:]
    # Divided by itself the last entry is exactly 1, as are those before it that are no smaller: no draw passes the last
    # possible action.
    cumulative = np.divide(cumulative, total, out=np.zeros_like(cumulative), where=total > 0)

    def pick(s: int, rng: np.random.Generator) -> int:
        if cumulative[s, -1] == 0:
            raise InvalidParameter(f"The policy has no action in state {s}, which was visited. Give it probabilities.")
        return int(np.searchsorted(cumulative[s], rng.random(), side="right"))

    return pick
