"""Agents from grouped demonstrations in a finite MDP: what `Agents.from_demonstrations` does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from limiirl.demos.agent_checks import Agent
from limiirl.demos.checks import place
from limiirl.demos.units import Units
from limiirl.errors import InvalidDemos, InvalidParameter

if TYPE_CHECKING:
    from limiirl.demos.demonstrations import Demonstrations
    from limiirl.mdp import MDP
    from limiirl.mdp.features import FeatureInput, FeatureMatrix

Float = NDArray[np.float64]

# Features of every step are dense. So many numbers take 4 GiB.
_MOST = 2**29


def grouped(
    mdp: MDP,
    demos: Demonstrations,
    groups: ArrayLike | None,
    policy_features: FeatureInput | None,
    reward_features: FeatureInput | None,
) -> tuple[tuple[Agent, ...], NDArray[Any], NDArray[Any] | None]:
    """Return one record a group, with names and labels; see `Agents.from_demonstrations`."""
    given = demos.groups if groups is None else groups
    if given is None:
        raise InvalidDemos(
            "An agent is all demonstrations of a group, and the demonstrations have no groups. Pass groups=..., whom "
            "each belongs to."
        )
    if not len(demos):
        raise InvalidDemos(
            "There must be at least one agent; there are no demonstrations. Check the filter or the file."
        )
    units = Units.of(given, len(demos))
    actions = _actions(mdp, demos)
    seen = None if policy_features is None else _table(policy_features, "policy_features", mdp)
    paid = None if reward_features is None else _table(reward_features, "reward_features", mdp, of_actions=True)
    width = mdp.n_states if seen is None else seen.shape[-1]
    steps = _Steps(demos, units)
    _check_size(width, mdp.n_features if paid is None else paid.shape[-1], steps.n_padded)
    x = None if seen is None else _rows(seen, demos.states)
    phi = _of_mdp(mdp, demos) if paid is None else _of_table(paid, demos.states, actions)
    records = []
    for unit in range(len(units)):
        where, present = steps.of(unit)
        flat = where[present]
        live = np.zeros(present.shape, dtype=np.bool_)
        live[present] = actions[flat] >= 0
        chosen = np.zeros(present.shape, dtype=np.int64)
        chosen[live] = actions[where[live]]
        ours = np.zeros((*present.shape, width))
        if x is None:
            ours[(*np.nonzero(present), demos.states[flat])] = 1.0
        else:
            ours[present] = x[flat]
        collected = np.zeros((*present.shape, phi.shape[1]))
        collected[present] = phi[flat]
        records.append(Agent(ours, chosen, collected, live))
    return tuple(records), units.names, _labels(demos, units)


class _Steps:
    """Where the steps of each agent stand in the flat arrays of demonstrations."""

    def __init__(self, demos: Demonstrations, units: Units) -> None:
        self._offsets, self._lengths = demos.offsets, demos.lengths
        order = np.argsort(units.spread(np.arange(len(units))), kind="stable")
        self._members = np.split(order, np.cumsum(units.counts.astype(np.int64))[:-1])
        self.n_padded = sum(len(ours) * int(self._lengths[ours].max()) for ours in self._members)

    def of(self, unit: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return positions (n, H) of an agent's steps, and whether a step is one, or comes after the end."""
        ours = self._members[unit]
        t = np.arange(int(self._lengths[ours].max()))
        return self._offsets[ours][:, None] + t, t < self._lengths[ours][:, None]


def _actions(mdp: MDP, demos: Demonstrations) -> NDArray[np.int64]:
    """Return the action of each step (n,), known from the edge where it was not recorded; -1 in last states."""
    steps = demos.steps(mdp)
    if steps.ambiguous.size:
        k = int(steps.ambiguous[0])
        position = int(demos.offsets[steps.demo_of_step[k]] + steps.t_of_step[k])
        raise InvalidDemos(
            f"{place(demos.offsets, demos.ids, position)}: several actions lead from state {demos.states[position]} to "
            f"state {demos.states[position + 1]}, and which of them was taken is not recorded. Record the actions."
        )
    found = np.full(demos.n_steps, -1, dtype=np.int64)
    found[demos.offsets[steps.demo_of_step] + steps.t_of_step] = mdp.act[steps.edge]
    return found


def _of_table(table: Any, states: NDArray[np.int64], actions: NDArray[np.int64]) -> Float:
    """Return the features (n, q) of each step from those of states, or of actions in them."""
    if table.ndim == 2:
        return _rows(table, states)
    return np.asarray(np.where(actions[:, None] >= 0, table[states, actions], 0.0))


def _of_mdp(mdp: MDP, demos: Demonstrations) -> Float:
    """Return all features (n, d) of the MDP that each step collects."""
    steps = demos.steps(mdp)
    moves = demos.offsets[steps.demo_of_step] + steps.t_of_step
    columns = []
    if mdp.state_features is not None:
        columns.append(_rows(mdp.state_features, demos.states))
    for matrix, rows in ((mdp.action_features, mdp.pair_of_edge[steps.edge]), (mdp.edge_features, steps.edge)):
        if matrix is not None:
            block = np.zeros((demos.n_steps, matrix.shape[1]))
            block[moves] = _rows(matrix, rows)
            columns.append(block)
    return np.concatenate(columns, axis=1)


def _check_size(p: int, q: int, n_steps: int) -> None:
    if n_steps * (p + q) > _MOST:
        raise InvalidParameter(
            f"{p} policy and {q} reward features in each of {n_steps} steps, padding included, take too much memory. "
            "Pass policy_features or reward_features with fewer columns, or shorter demonstrations."
        )


def _table(given: FeatureInput, what: str, mdp: MDP, *, of_actions: bool = False) -> Any:
    """Return features that a caller gave, dense or sparse, of the states, or where allowed of the actions in them."""
    shapes = f"({mdp.n_states}, m)" + (f" or ({mdp.n_states}, {mdp.n_actions}, m)" if of_actions else "")
    if sparse.issparse(given):
        table: Any = sparse.csr_array(given)
    else:
        try:
            table = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidParameter(f"{what} must be an array {shapes} of numbers ({error}).") from None
    leading = table.shape[:-1]
    if leading != (mdp.n_states,) and not (of_actions and leading == (mdp.n_states, mdp.n_actions)):
        raise InvalidParameter(
            f"{what} must have the shape {shapes}, a row for each state of the MDP; it is {table.shape}."
        )
    return table


def _rows(table: FeatureMatrix, rows: NDArray[np.integer]) -> Float:
    """Return rows of a dense or sparse matrix as a dense one."""
    found = table[rows]
    return found if isinstance(found, np.ndarray) else np.asarray(found.toarray())


def _labels(demos: Demonstrations, units: Units) -> NDArray[Any] | None:
    """Return the label that all demonstrations of an agent share."""
    if demos.labels is None:
        return None
    index = units.spread(np.arange(len(units)))
    first = np.zeros(len(units), dtype=np.int64)
    first[index[::-1]] = np.arange(len(demos))[::-1]
    labels = demos.labels[first]
    differs = demos.labels != labels[index]
    if np.any(differs):
        i = int(np.argmax(differs))
        raise InvalidDemos(
            f"An agent has one intent; {units.name(int(index[i]))} has the labels {labels[index[i]].item()!r} and "
            f"{demos.labels[i].item()!r} (demonstration {i}). Group by intent too, or pass demos.replace(labels=None)."
        )
    return labels
