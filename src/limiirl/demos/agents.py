"""Units that share one intent: `Groups` of demonstrations, and `Agents`, trajectories for model-free methods."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from limiirl._io import FileFormat, read_archive, read_arrays, write_archive
from limiirl._typing import FloatArray, Seed
from limiirl._validation import as_floats, as_generator, check_choice
from limiirl.demos.demonstrations import Subset, format_count, same_arrays
from limiirl.demos.names import check_mdp
from limiirl.demos.validate import as_attribute, as_readonly, name_step
from limiirl.errors import InvalidDemos, InvalidFile, InvalidParameter
from limiirl.mdp import name_of

if TYPE_CHECKING:
    from limiirl.demos.demonstrations import Demonstrations
    from limiirl.mdp import MDP, FeatureInput, FeatureMatrix


@dataclass(frozen=True, eq=False)
class Groups:
    """A partition of N demonstrations into G groups, each of which has one intent.

    Attributes
    ----------
    index : (N,) int64 or None
        Group of each demonstration; None if every demonstration is its own group.
    counts : (G,) float64
        Demonstrations per group.
    names : (G,)
        Sorted labels of the groups; 0 to N - 1 if every demonstration is its own group.
    each : str
        Plural noun for messages: "demonstrations" or "agents".

    Examples
    --------
    >>> groups = Groups.from_labels(["ann", "bob", "ann"], 3)
    >>> groups.names.tolist(), groups.counts.tolist()
    (['ann', 'bob'], [2.0, 1.0])
    >>> groups.sum(np.array([1.0, 5.0, 10.0])).tolist()
    [11.0, 5.0]
    >>> groups.broadcast(np.array([[0.25], [0.75]])).ravel().tolist()
    [0.25, 0.75, 0.25]
    """

    index: NDArray[np.int64] | None
    counts: FloatArray
    names: NDArray[Any]
    each: str = "demonstrations"

    @classmethod
    def from_labels(cls, groups: ArrayLike | None, n: int, each: str = "demonstrations") -> Groups:
        """Group n demonstrations or agents by labels (n,); without labels, each is its own group."""
        if groups is None:
            return cls(None, np.ones(n), np.arange(n), each)
        checked = as_attribute(groups, "groups", n)
        if checked is None:
            raise InvalidDemos.of("groups", groups, f"must be an array of {n} strings or numbers")
        names, index, counts = np.unique(checked, return_inverse=True, return_counts=True)
        return cls(index.astype(np.int64), counts.astype(np.float64), names, each)

    @classmethod
    def for_demos(cls, groups: ArrayLike | None, demos: Sized) -> Groups:
        """Return the groups of demonstrations or of agents."""
        from limiirl.demos.agents import Agents  # circular import

        return cls.from_labels(groups, len(demos), "agents" if isinstance(demos, Agents) else "demonstrations")

    def __len__(self) -> int:
        return self.counts.size

    @property
    def labels(self) -> NDArray[Any] | None:
        """Label (N,) of each demonstration's group; None if every demonstration is its own group."""
        return None if self.index is None else self.names[self.index]

    @property
    def grouped(self) -> bool:
        """True if labels were given."""
        return self.index is not None

    @property
    def noun(self) -> str:
        """Plural noun for messages: "groups", "demonstrations" or "agents"."""
        return "groups" if self.grouped else self.each

    def name(self, group: int) -> str:
        """Return the name of a group for messages: "demonstration 3", "agent 3" or "group 'ann'"."""
        return f"{self.noun[:-1]} {self.names[group].item()!r}"

    def sum(self, values: FloatArray) -> FloatArray:
        """Return the sums (G,) or (G, m) of values (N,) or (N, m) over each group."""
        if self.index is None:
            return values
        sums = np.zeros((len(self), *values.shape[1:]))
        np.add.at(sums, self.index, values)
        return sums

    def mean(self, values: FloatArray) -> FloatArray:
        """Return the means (G, m) of values (N, m) over each group."""
        return values if self.index is None else self.sum(values) / self.counts[:, None]

    def reduce(self, values: ArrayLike, name: str) -> NDArray[Any]:
        """Return the value (G,) of each group, given values (N,) of demonstrations; raise if one varies in a group."""
        labels = as_attribute(values, name, int(self.counts.sum()))
        if labels is None:
            raise InvalidDemos(f"{name} is required: one value per demonstration.", parameter=name)
        if self.index is None:
            return labels
        first = np.unique(self.index, return_index=True)[1]
        varies = np.flatnonzero(labels != labels[first][self.index])
        if varies.size:
            i = int(varies[0])
            rule = f"must be constant within a group ({self.name(int(self.index[i]))})"
            raise InvalidDemos.of(
                name, labels[i].item(), rule, index=i, remedy="Split the group, or correct the value."
            )
        return np.asarray(labels[first])

    def broadcast(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the values (N,) or (N, m) of demonstrations, given the values (G,) or (G, m) of their groups."""
        return values if self.index is None else values[self.index]


class Agent(NamedTuple):
    """Trajectories of one agent: n trajectories, padded to the H steps of the longest.

    Attributes
    ----------
    policy_features : (n, H, p) float64
        Policy inputs x_t.
    actions : (n, H, b) float64 or (n, H) int64
        Continuous or discrete actions.
    reward_features : (n, H, q) float64
        Reward features phi_t; zero after the end of a trajectory.
    live : (n, H) bool
        True in the steps in which the agent chose an action. Reward features may be nonzero in other steps, for
        example in an absorbing goal.
    """

    policy_features: FloatArray
    actions: NDArray[Any]
    reward_features: FloatArray
    live: NDArray[np.bool_]


def pad_trajectories(
    trajectories: Any, name: str, agent: int, lengths: NDArray[np.int64] | None = None
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return an agent's trajectories as one zero-padded array, and their lengths (n,)."""
    try:
        parts = [np.asarray(part) for part in trajectories]
    except (TypeError, ValueError):
        rule = "must be an array, or one array per trajectory"
        raise InvalidDemos.of(name, trajectories, rule, index=agent) from None
    sizes = np.array([len(part) if part.ndim else 0 for part in parts], dtype=np.int64)
    if not parts:
        raise InvalidDemos.of(name, 0, "must have at least one trajectory", index=agent)
    if np.any(sizes == 0):
        raise InvalidDemos.of(name, 0, "must have at least one step", index=(agent, int(np.argmax(sizes == 0))))
    if lengths is not None and sizes.size != lengths.size:
        rule = f"must have {lengths.size} trajectories, as in policy_features"
        raise InvalidDemos.of(name, sizes.size, rule, index=agent)
    if lengths is not None and not np.array_equal(sizes, lengths):
        j = int(np.argmax(sizes != lengths))
        rule = f"must have {lengths[j]} steps, as in policy_features"
        raise InvalidDemos.of(name, int(sizes[j]), rule, index=(agent, j))
    shapes = sorted({part.shape[1:] for part in parts})
    if len(shapes) != 1:
        raise InvalidDemos.of(name, shapes, "must have the same number of columns in every trajectory", index=agent)
    padded = np.zeros((len(parts), int(sizes.max()), *shapes[0]), dtype=np.result_type(*parts))
    for j, part in enumerate(parts):
        padded[j, : len(part)] = part
    return padded, sizes


def check_agent(record: Agent, agent: int) -> Agent:
    """Validate the arrays of an agent; return them as read-only float64, int64 and bool arrays."""
    x, phi = (_as_features(getattr(record, name), name, agent) for name in ("policy_features", "reward_features"))
    actions = np.asarray(record.actions)
    if actions.ndim == 2 and actions.dtype.kind in "iu":
        if np.any(actions < 0):
            j, t = (int(i) for i in np.argwhere(actions < 0)[0])
            rule, remedy = "must be nonnegative", "Set live=False in steps without an action."
            raise InvalidDemos.of("actions", int(actions[j, t]), rule, index=(agent, j, t), remedy=remedy)
        actions = actions.astype(np.int64)
    elif actions.ndim == 3:
        actions = _as_features(actions, "actions", agent)
    else:
        rule = f"must be real vectors of shape (n, H, b) or integers of shape (n, H), not {actions.dtype}"
        remedy = "Add an axis to real numbers: actions[..., None]."
        raise InvalidDemos.of("actions", actions.shape, rule, index=agent, remedy=remedy)
    live = np.asarray(record.live)
    for name, array in {"actions": actions, "reward_features": phi, "live": live}.items():
        if array.shape[:2] != x.shape[:2]:
            rule = f"must have as many trajectories and steps as policy_features, {x.shape[:2]}"
            raise InvalidDemos.of(name, array.shape, rule, index=agent)
    if live.dtype.kind != "b" or live.ndim != 2:
        rule = f"must be a boolean array of shape (n, H), not {live.dtype}"
        raise InvalidDemos.of("live", live.shape, rule, index=agent)
    if not np.any(live):
        raise InvalidDemos.of("live", False, "must be True in at least one step", index=agent)
    return Agent(as_readonly(x), as_readonly(actions), as_readonly(phi), as_readonly(live))


def check_consistent(records: tuple[Agent, ...]) -> None:
    """Raise `InvalidDemos` unless all agents have equally many features and the same type of actions."""
    for i, record in enumerate(records):
        for name in ("policy_features", "actions", "reward_features"):
            kind, first = _describe_columns(getattr(record, name)), _describe_columns(getattr(records[0], name))
            if kind != first:
                raise InvalidDemos.of(name, kind, f"must be the same for all agents; agent 0 has {first}", index=i)


def _describe_columns(array: NDArray[Any]) -> str:
    return f"{array.shape[2]} real columns" if array.ndim == 3 else "discrete"


def _as_features(values: Any, name: str, agent: int) -> FloatArray:
    try:
        array = as_floats(values, name, boolean=True)
    except InvalidParameter as error:
        raise InvalidDemos(str(error), parameter=name, value=error.value, index=agent) from None
    if array.ndim != 3 or array.shape[2] == 0:
        raise InvalidDemos.of(name, array.shape, "must have shape (n, H, m) with m >= 1", index=agent)
    bad = ~np.isfinite(array)
    if np.any(bad):
        j, t, c = (int(i) for i in np.argwhere(bad)[0])
        raise InvalidDemos.of(name, float(array[j, t, c]), "must be finite", index=(agent, j, t, c))
    return array


FORMAT = FileFormat("limiirl.agents", 1, "a file of agents", "Agents.save")
RELEASED = ("center", "up", "border")
"""Agents in the experiment of Ramponi et al. (2020). "up" and "border" have the same intent; "center" has another."""

_PARTS = ("policy_features", "actions", "reward_features")


# Maximum number of entries in the dense features of all steps (4 GiB of float64).
_LARGEST = 2**29


def group_demonstrations(
    mdp: MDP,
    demos: Demonstrations,
    labels: ArrayLike | None,
    policy_features: FeatureInput | None,
    reward_features: FeatureInput | None,
) -> tuple[tuple[Agent, ...], NDArray[Any], NDArray[Any] | None]:
    """Return one record per group, with names and labels; see `Agents.from_demonstrations`."""
    check_mdp(mdp)
    if not hasattr(demos, "groups"):
        raise InvalidDemos.of("demos", type(demos).__name__, "must be Demonstrations")
    labels = demos.groups if labels is None else labels
    if labels is None:
        message = "groups must be given if demos.groups is None. Pass the agent of each demonstration."
        raise InvalidDemos(message, parameter="groups")
    if not len(demos):
        raise InvalidDemos("demos must contain at least one demonstration.", parameter="demos", value=0)
    groups = Groups.from_labels(labels, len(demos))
    demos = demos.renumber(mdp)
    actions = _infer_actions(mdp, demos)
    inputs = None if policy_features is None else _as_table(policy_features, "policy_features", mdp)
    rewards = None if reward_features is None else _as_table(reward_features, "reward_features", mdp, of_actions=True)
    width = mdp.n_states if inputs is None else inputs.shape[-1]
    rows = _AgentRows(demos, groups)
    _check_size(width, mdp.n_features if rewards is None else rewards.shape[-1], rows.n_padded)
    x = None if inputs is None else _dense_rows(inputs, demos.states)
    phi = _mdp_features(mdp, demos) if rewards is None else _table_features(rewards, demos.states, actions)
    records = []
    for group in range(len(groups)):
        position, present = rows.positions(group)
        flat = position[present]
        live = np.zeros(present.shape, dtype=np.bool_)
        live[present] = actions[flat] >= 0
        padded_actions = np.zeros(present.shape, dtype=np.int64)
        padded_actions[live] = actions[position[live]]
        padded_x = np.zeros((*present.shape, width))
        if x is None:
            padded_x[(*np.nonzero(present), demos.states[flat])] = 1.0
        else:
            padded_x[present] = x[flat]
        padded_phi = np.zeros((*present.shape, phi.shape[1]))
        padded_phi[present] = phi[flat]
        records.append(Agent(padded_x, padded_actions, padded_phi, live))
    return tuple(records), groups.names, _group_labels(demos, groups)


class _AgentRows:
    """Positions of each agent's steps in the flat arrays of demonstrations."""

    def __init__(self, demos: Demonstrations, groups: Groups) -> None:
        self._offsets, self._lengths = demos.offsets, demos.lengths
        order = np.argsort(groups.broadcast(np.arange(len(groups))), kind="stable")
        self._members = np.split(order, np.cumsum(groups.counts.astype(np.int64))[:-1])
        self.n_padded = sum(len(members) * int(self._lengths[members].max()) for members in self._members)

    def positions(self, group: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the positions (n, H) of an agent's steps, and the mask (n, H) of steps that are not padding."""
        members = self._members[group]
        t = np.arange(int(self._lengths[members].max()))
        return self._offsets[members][:, None] + t, t < self._lengths[members][:, None]


def _infer_actions(mdp: MDP, demos: Demonstrations) -> NDArray[np.int64]:
    """Return the action (n,) of each step, or -1 in last states; unrecorded actions are inferred from the edges."""
    steps = demos.steps(mdp)
    if steps.ambiguous.size:
        k = int(steps.ambiguous[0])
        index = int(steps.demo_of_step[k]), int(steps.t_of_step[k])
        position = int(demos.offsets[index[0]]) + index[1]
        message = (
            f"{name_step(demos.ids, index)}: several actions lead from state "
            f"{name_of(mdp.state_names, demos.states[position])} to state "
            f"{name_of(mdp.state_names, demos.states[position + 1])}, and the action is not recorded. Record the "
            "actions."
        )
        raise InvalidDemos(message, parameter="demos", index=index)
    actions = np.full(demos.n_steps, -1, dtype=np.int64)
    actions[demos.offsets[steps.demo_of_step] + steps.t_of_step] = mdp.act[steps.edge]
    return actions


def _table_features(table: Any, states: NDArray[np.int64], actions: NDArray[np.int64]) -> FloatArray:
    """Return the features (n, q) of each step from features of states (S, q) or of state-action pairs (S, A, q)."""
    if table.ndim == 2:
        return _dense_rows(table, states)
    return np.asarray(np.where(actions[:, None] >= 0, table[states, actions], 0.0))


def _mdp_features(mdp: MDP, demos: Demonstrations) -> FloatArray:
    """Return the state, action and edge features (n, d) of each step."""
    steps = demos.steps(mdp)
    position = demos.offsets[steps.demo_of_step] + steps.t_of_step
    columns = []
    if mdp.state_features is not None:
        columns.append(_dense_rows(mdp.state_features, demos.states))
    for matrix, rows in ((mdp.action_features, mdp.pair_of_edge[steps.edge]), (mdp.edge_features, steps.edge)):
        if matrix is not None:
            block = np.zeros((demos.n_steps, matrix.shape[1]))
            block[position] = _dense_rows(matrix, rows)
            columns.append(block)
    return np.concatenate(columns, axis=1)


def _check_size(p: int, q: int, n_steps: int) -> None:
    if n_steps * (p + q) > _LARGEST:
        message = (
            f"policy_features and reward_features must fit in 4 GiB; got {p} + {q} columns in {n_steps} padded steps. "
            "Pass features with fewer columns, or shorter demonstrations."
        )
        raise InvalidParameter(message, parameter="policy_features", value=p)


def _as_table(features: FeatureInput, name: str, mdp: MDP, *, of_actions: bool = False) -> Any:
    """Validate dense or sparse features of states, or of state-action pairs if `of_actions`."""
    shapes = f"({mdp.n_states}, m)" + (f" or ({mdp.n_states}, {mdp.n_actions}, m)" if of_actions else "")
    if sparse.issparse(features):
        table: Any = sparse.csr_array(features)
    else:
        table = as_floats(features, name, boolean=True)
    leading = table.shape[:-1]
    if leading != (mdp.n_states,) and not (of_actions and leading == (mdp.n_states, mdp.n_actions)):
        raise InvalidParameter.of(name, table.shape, f"must have shape {shapes}")
    return table


def _dense_rows(table: FeatureMatrix, rows: NDArray[np.integer]) -> FloatArray:
    selected = table[rows]
    return selected if isinstance(selected, np.ndarray) else np.asarray(selected.toarray())


def _group_labels(demos: Demonstrations, groups: Groups) -> NDArray[Any] | None:
    """Return the label of each group; all demonstrations of a group must have the same label."""
    if demos.labels is None:
        return None
    index = groups.broadcast(np.arange(len(groups)))
    first = np.zeros(len(groups), dtype=np.int64)
    first[index[::-1]] = np.arange(len(demos))[::-1]
    labels = demos.labels[first]
    differs = demos.labels != labels[index]
    if np.any(differs):
        i = int(np.argmax(differs))
        value = demos.labels[i].item()
        message = (
            f"labels must be constant within a group; {groups.name(int(index[i]))} has {labels[index[i]].item()!r} and "
            f"{value!r} (demonstration {i}). Group by label too, or pass demos.replace(labels=None)."
        )
        raise InvalidDemos(message, parameter="labels", value=value, index=i)
    return labels


@dataclass(frozen=True, eq=False, repr=False)
class Agents:
    """M agents with several trajectories each; every agent has one intent.

    Build them with `from_arrays`, `from_demonstrations`, `from_released` or `load`. Arrays are read-only, and equality
    compares content. `agents[0]` is one `Agent`; slices, masks and index arrays select several.

    Attributes
    ----------
    records : tuple of Agent
    names : (M,)
        Integers or strings; default: 0 to M - 1.
    labels : (M,) or None
        True intents, if known.

    Examples
    --------
    >>> x, phi = np.ones((2, 3, 1)), np.zeros((2, 3, 2))
    >>> agents = Agents.from_arrays([x, x], [[[0, 1, 1], [1, 0, 1]]] * 2, [phi, phi], names=["ann", "bob"])
    >>> agents
    Agents: 2 agents, 2 trajectories each of up to 3 steps
      policy    1 feature, discrete actions
      reward    2 features
    >>> len(agents), agents.discrete, agents.names.tolist()
    (2, True, ['ann', 'bob'])
    """

    records: tuple[Agent, ...]
    names: NDArray[Any] = None  # type: ignore[assignment]
    labels: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.records, Sequence) or not all(isinstance(record, Agent) for record in self.records):
            raise InvalidDemos.of("records", self.records, "must be a sequence of Agent", remedy="Use from_arrays.")
        if not self.records:
            raise InvalidDemos.of("records", self.records, "must contain at least one agent")
        records = tuple(check_agent(record, i) for i, record in enumerate(self.records))
        check_consistent(records)
        object.__setattr__(self, "records", records)
        if self.names is None:
            object.__setattr__(self, "names", np.arange(len(records)))
        for name in ("names", "labels"):
            array = as_attribute(getattr(self, name), name, len(records))
            object.__setattr__(self, name, None if array is None else as_readonly(array))

    @classmethod
    def from_arrays(
        cls,
        policy_features: Sequence[Any],
        actions: Sequence[Any],
        reward_features: Sequence[Any],
        live: Sequence[Any] | None = None,
        *,
        names: ArrayLike | None = None,
        labels: ArrayLike | None = None,
    ) -> Agents:
        """Build agents from sequences with one entry per agent: an array (n, H, ...), or a list of n arrays (H_j, ...).

        Parameters
        ----------
        policy_features : sequence of M arrays (n, H, p)
        actions : sequence of M arrays (n, H, b) of real numbers, or (n, H) of integers
        reward_features : sequence of M arrays (n, H, q)
        live : sequence of M boolean arrays (n, H), optional
            Steps in which the agent chose an action; default: all steps.
        names, labels : (M,), optional

        Examples
        --------
        >>> short, long = np.ones((1, 2)), np.ones((3, 2))
        >>> agents = Agents.from_arrays([[short, long]], [[[0], [1, 0, 1]]], [[short, long]])
        >>> agents[0].live.astype(int).tolist()
        [[1, 0, 0], [1, 1, 1]]
        """
        columns = {
            "policy_features": policy_features,
            "actions": actions,
            "reward_features": reward_features,
            "live": live,
        }
        for name, values in columns.items():
            sized = isinstance(values, Sequence) or (isinstance(values, np.ndarray) and values.ndim > 0)
            if not sized and not (name == "live" and values is None):
                raise InvalidDemos.of(name, values, "must be a sequence with one entry per agent")
        n = len(policy_features)
        for name, entries in (("actions", actions), ("reward_features", reward_features), ("live", live)):
            if entries is not None and len(entries) != n:
                raise InvalidDemos.of(name, len(entries), f"must have one entry per agent ({n}, as in policy_features)")
        records = []
        for i in range(n):
            x, lengths = pad_trajectories(policy_features[i], "policy_features", i)
            a, _ = pad_trajectories(actions[i], "actions", i, lengths)
            phi, _ = pad_trajectories(reward_features[i], "reward_features", i, lengths)
            present = np.arange(x.shape[1]) < lengths[:, None]
            active = present if live is None else pad_trajectories(live[i], "live", i, lengths)[0]
            records.append(Agent(x, a, phi, active))
        return cls(tuple(records), names, labels)  # type: ignore[arg-type]

    @classmethod
    def from_released(
        cls, path: str | os.PathLike[str], *, dataset: int = 0, names: Sequence[str] = RELEASED
    ) -> Agents:
        """Read the npz file of the continuous PuddleWorld agents that was released with Sigma-GIRL.

        The file has the arrays `{agent}_{dataset}_policy_features` (n, H, p), `{agent}_{dataset}_actions` (n, H, b) and
        `{agent}_{dataset}_reward_features` (n, H, q). After the goal, policy features are zero, no action is chosen,
        and the reward of the goal continues to the last step.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "agents.npz"
        >>> x = np.array([[[0.2, 0.8], [0.0, 0.0]]] * 3)
        >>> np.savez(path, up_0_policy_features=x, up_0_actions=x, up_0_reward_features=np.ones((3, 2, 1)))
        >>> Agents.from_released(path, names=["up"])[0].live[0]
        array([ True, False])
        """
        keys = [f"{name}_{dataset}_{part}" for name in names for part in _PARTS]

        def select(files: list[str]) -> list[str]:
            missing = [key for key in keys if key not in files]
            if missing:
                stored = sorted({key.removesuffix(f"_{_PARTS[0]}") for key in files if key.endswith(_PARTS[0])})
                message = f"{path} has no {missing[0]}. It contains {', '.join(stored) or 'no agents'}."
                raise InvalidFile(message, parameter="path", value=missing[0])
            return keys

        arrays = read_arrays(path, "Use the npz file of the released agents.", select)
        x, actions, phi = ([arrays[key] for key in keys[start::3]] for start in range(3))
        try:
            return cls.from_arrays(x, actions, phi, [np.any(each != 0, axis=-1) for each in x], names=list(names))
        except InvalidDemos as error:
            raise InvalidFile.at(path, f"is invalid: {error}") from None

    @classmethod
    def from_demonstrations(
        cls,
        mdp: MDP,
        demos: Demonstrations,
        groups: ArrayLike | None = None,
        *,
        policy_features: FeatureInput | None = None,
        reward_features: FeatureInput | None = None,
    ) -> Agents:
        """Build one agent from the demonstrations of each group, in a finite MDP.

        A demonstration of T states is a trajectory of T steps; the last step has no action. The agents'
        `features(mdp.gamma)` are the group means of `demos.features(mdp)`.

        `SigmaGIRL` learns nonnegative weights that sum to 1. Therefore negate features that are costs:
        ``reward_features=-mdp.state_features``. Do not pass both a feature and its negative, because with equal weights
        they cancel. If demonstrations have equal lengths and the features of every step have the same sum, drop one
        feature.

        Parameters
        ----------
        mdp : MDP
            Every step of the demonstrations must be one of its edges.
        demos : Demonstrations
            Actions must be recorded unless they are determined by the states. Labels must be constant within a group.
        groups : (N,), optional
            Agent of each demonstration; default: `demos.groups`. Agents are sorted by name.
        policy_features : (S, p), optional
            Policy inputs of each state; default: state indicators.
        reward_features : (S, q) or (S, A, q), optional
            Reward features of states, or of state-action pairs. Default: all features of the MDP.

        Examples
        --------
        >>> from limiirl.worlds import ElementWorld
        >>> world = ElementWorld(n_elements=2)
        >>> demos, intents = world.sample(60, seed=1)
        >>> demos = demos[np.argsort(intents)]
        >>> groups = np.arange(60) // 6  # the first five agents have intent 0
        >>> agents = Agents.from_demonstrations(world.mdp, demos, groups, reward_features=-world.mdp.state_features)
        >>> agents
        Agents: 10 agents, 6 trajectories each of up to 14 steps
          policy    36 features, discrete actions
          reward    4 features
        >>> agents.labels.tolist()
        [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]
        """
        return cls(*group_demonstrations(mdp, demos, groups, policy_features, reward_features))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one npz file of plain arrays, atomically and without loss; `load` reads it.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "agents.npz"
        >>> x = np.ones((5, 3, 1))
        >>> agents = Agents.from_arrays([x], [x], [x], names=["ann"])
        >>> agents.save(path)
        >>> Agents.load(path) == agents
        True
        """
        header: dict[str, Any] = {"n_agents": len(self), "texts": {}}
        arrays = {f"{i}.{part}": array for i, record in enumerate(self) for part, array in record._asdict().items()}
        for name in ("names", "labels"):
            values = getattr(self, name)
            if values is not None and values.dtype.kind == "U":
                header["texts"][name] = values.tolist()
            elif values is not None:
                arrays[name] = values
        write_archive(path, FORMAT, header, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Agents:
        """Read a file written by `save`; raise `InvalidFile` if it is not such a file, is corrupted, or is too new."""
        header, arrays = read_archive(path, FORMAT)
        try:
            texts = {name: np.array(values, dtype=np.str_) for name, values in header["texts"].items()}
            fields = [[arrays[f"{i}.{part}"] for part in Agent._fields] for i in range(int(header["n_agents"]))]
            names = texts["names"] if "names" in texts else arrays["names"]
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            reason = f"is corrupted: {error!s:.300} is missing or invalid. Save the agents again."
            raise InvalidFile.at(path, reason) from error
        try:
            return cls(tuple(map(Agent._make, fields)), names, texts.get("labels", arrays.get("labels")))
        except InvalidDemos as error:
            raise InvalidFile.at(path, f"is corrupted: {error}") from None

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Agent]:
        return iter(self.records)

    @overload
    def __getitem__(self, index: int) -> Agent: ...
    @overload
    def __getitem__(self, index: Subset) -> Agents: ...
    def __getitem__(self, index: int | Subset) -> Agent | Agents:
        if isinstance(index, int | np.integer):
            return self.records[index]
        selected = np.arange(len(self))[index]
        labels = None if self.labels is None else self.labels[selected]
        return Agents(tuple(self.records[i] for i in selected.tolist()), self.names[selected], labels)

    @property
    def discrete(self) -> bool:
        """True if actions are discrete."""
        return self.records[0].actions.ndim == 2

    @property
    def n_policy_features(self) -> int:
        """Number p of policy features."""
        return int(self.records[0].policy_features.shape[2])

    @property
    def n_reward_features(self) -> int:
        """Number q of reward features."""
        return int(self.records[0].reward_features.shape[2])

    def subsample(self, n: int, seed: Seed = None) -> Agents:
        """Return the same agents with n trajectories each, drawn without replacement."""
        rng = as_generator(seed)
        records = []
        for i, record in enumerate(self.records):
            size = len(record.live)
            if isinstance(n, bool) or not isinstance(n, int | np.integer) or not 1 <= n <= size:
                message = f"n must be an integer from 1 to {size}, the number of trajectories of agent {i}; got {n!r}."
                raise InvalidParameter(message, parameter="n", value=n, index=i)
            selected = np.sort(rng.permutation(size)[:n])
            records.append(Agent._make(part[selected] for part in record))
        return Agents(tuple(records), self.names, self.labels)

    def features(self, gamma: float, *, of: str = "reward") -> FloatArray:
        """Return the mean discounted feature counts of each agent: reward features (M, q) or policy features (M, p).

        Examples
        --------
        >>> x = np.ones((5, 3, 1))
        >>> Agents.from_arrays([x], [x], [2 * x]).features(0.5)
        array([[3.5]])
        """
        check_choice(of, "of", ("reward", "policy"))
        means = []
        for record in self.records:
            values = record.reward_features if of == "reward" else record.policy_features * record.live[:, :, None]
            means.append(np.einsum("t,ntq->q", gamma ** np.arange(values.shape[1]), values) / len(values))
        return np.array(means)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Agents):
            return NotImplemented
        if len(self) != len(other) or not same_arrays(self.names, other.names):
            return False
        pairs = (pair for two in zip(self.records, other.records, strict=True) for pair in zip(*two, strict=True))
        return same_arrays(self.labels, other.labels) and all(same_arrays(one, other) for one, other in pairs)

    def __hash__(self) -> int:
        return hash((self.names.tobytes(), *(record.actions.tobytes() for record in self.records)))

    def __repr__(self) -> str:
        counts = sorted({len(record.live) for record in self.records})
        each = f"{counts[0]} trajectories each" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} trajectories"
        longest = max(record.live.shape[1] for record in self.records)
        kind = "discrete actions" if self.discrete else f"actions in {self.records[0].actions.shape[2]} dimensions"
        lines = [
            f"Agents: {format_count(len(self), 'agent')}, {each} of up to {format_count(longest, 'step')}",
            f"  policy    {format_count(self.n_policy_features, 'feature')}, {kind}",
            f"  reward    {format_count(self.n_reward_features, 'feature')}",
        ]
        return "\n".join(lines)
