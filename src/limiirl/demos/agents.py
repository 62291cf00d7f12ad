"""`Agents`: batches of recorded trajectories per agent, for models that need no MDP."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from limiirl._io import Kind, read_archive, read_arrays, write_archive
from limiirl._typing import FloatArray, Seed
from limiirl._validation import as_generator
from limiirl.demos.groups import Groups
from limiirl.demos.indexing import Subset, same_arrays
from limiirl.demos.validate import as_attribute, as_readonly, name_step
from limiirl.errors import InvalidDemos, InvalidFile, InvalidParameter

if TYPE_CHECKING:
    from limiirl.demos.demonstrations import Demonstrations
    from limiirl.mdp import MDP, FeatureInput, FeatureMatrix


class Agent(NamedTuple):
    """What one agent did: n trajectories, padded to the H steps of the longest.

    Attributes
    ----------
    policy_features : (n, H, p) float64
        x_t: what the policy sees.
    actions : (n, H, b) float64 or (n, H) int64
        Vectors, or numbers of a finite set.
    reward_features : (n, H, q) float64
        phi_t: what rewards are made of; zero after the end of a trajectory.
    live : (n, H) bool
        The steps in which the agent chose its action. Rewards may go on after them, as at a goal that is never left.
    """

    policy_features: FloatArray
    actions: NDArray[Any]
    reward_features: FloatArray
    live: NDArray[np.bool_]


def pad_trajectories(
    given: Any, what: str, agent: int, lengths: NDArray[np.int64] | None = None
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return an agent's trajectories as one array, zeros after the end of each, and their lengths (n,)."""
    try:
        parts = [np.asarray(part) for part in given]
    except (TypeError, ValueError) as error:
        raise InvalidDemos(
            f"{what} of agent {agent} must be an array, or one per trajectory ({error}).", parameter=what, index=agent
        ) from None
    found = np.array([len(part) if part.ndim else 0 for part in parts], dtype=np.int64)
    if not parts or np.any(found == 0):
        where = f"; trajectory {int(np.argmax(found == 0))} has none" if parts else "; it has no trajectories"
        raise InvalidDemos(
            f"{what} of agent {agent} must be trajectories of at least one step{where}. Leave it out.",
            parameter=what,
            index=agent,
        )
    if lengths is not None and not np.array_equal(found, lengths):
        if found.size != lengths.size:
            raise InvalidDemos(
                f"{what} of agent {agent} have {found.size} trajectories, its policy_features {lengths.size}. "
                "Record both in every step.",
                parameter=what,
                value=found.size,
                index=agent,
            )
        j = int(np.argmax(found != lengths))
        raise InvalidDemos(
            f"{what} of agent {agent}, trajectory {j}, have {found[j]} steps, its policy_features {lengths[j]}. "
            "Record both in every step.",
            parameter=what,
            value=int(found[j]),
            index=(agent, j),
        )
    shapes = {part.shape[1:] for part in parts}
    if len(shapes) != 1:
        raise InvalidDemos(
            f"{what} of agent {agent} must have the same number of columns in every trajectory; there are "
            f"{' and '.join(str(shape) for shape in sorted(shapes))}.",
            parameter=what,
            index=agent,
        )
    padded = np.zeros((len(parts), int(found.max()), *parts[0].shape[1:]), dtype=np.result_type(*parts))
    for j, part in enumerate(parts):
        padded[j, : len(part)] = part
    return padded, found


def check_agent(record: Agent, agent: int) -> Agent:
    """Return an agent's arrays as float64, int64 and bool, read-only; what does not fit together is an error."""
    x, phi = (_real(getattr(record, name), name, agent) for name in ("policy_features", "reward_features"))
    actions = np.asarray(record.actions)
    if actions.ndim == 2 and actions.dtype.kind in "iu":
        if np.any(actions < 0):
            j, t = np.argwhere(actions < 0)[0]
            raise InvalidDemos(
                f"Discrete actions are numbered from 0; agent {agent}, trajectory {j}, step {t} has {actions[j, t]}. "
                "Mark steps without a choice by live=False, and number the actions 0, 1, 2, ...",
                parameter="actions",
                value=int(actions[j, t]),
                index=(agent, int(j), int(t)),
            )
        actions = actions.astype(np.int64)
    elif actions.ndim == 3:
        actions = _real(actions, "actions", agent)
    else:
        raise InvalidDemos(
            f"actions of agent {agent} must be real vectors (n, H, b) or integers (n, H); they have shape "
            f"{actions.shape} and dtype {actions.dtype}. Add an axis to real numbers: actions[..., None].",
            parameter="actions",
            value=actions.shape,
            index=agent,
        )
    live = np.asarray(record.live)
    steps = {"policy_features": x, "actions": actions, "reward_features": phi, "live": live}
    for name, array in steps.items():
        if array.shape[:2] != x.shape[:2]:
            raise InvalidDemos(
                f"{name} of agent {agent} are for {array.shape[:2]} trajectories and steps, its policy_features for "
                f"{x.shape[:2]}. Record both in every step.",
                parameter=name,
                value=array.shape,
                index=agent,
            )
    if live.dtype.kind != "b" or live.ndim != 2:
        raise InvalidDemos(
            f"live of agent {agent} must be booleans (n, H); it has shape {live.shape} and dtype {live.dtype}.",
            parameter="live",
            value=live.shape,
            index=agent,
        )
    if not np.any(live):
        raise InvalidDemos(
            f"agent {agent} never chooses an action: live is False throughout. Leave the agent out.",
            parameter="live",
            value=False,
            index=agent,
        )
    return Agent(as_readonly(x), as_readonly(actions), as_readonly(phi), as_readonly(live))


def check_alike(records: tuple[Agent, ...]) -> None:
    """Raise unless all agents have the same features and the same kind of actions."""
    for i, record in enumerate(records):
        for name in ("policy_features", "actions", "reward_features"):
            ours, first = _width(getattr(record, name)), _width(getattr(records[0], name))
            if ours != first:
                raise InvalidDemos(
                    f"All agents must have the same {name}; those of agent {i} have {ours}, those of agent 0 "
                    f"{first}. Record the same for all.",
                    parameter=name,
                    value=ours,
                    index=i,
                )


def _width(array: NDArray[Any]) -> str:
    """Say what must agree between agents."""
    return f"{array.shape[2]} columns of real numbers" if array.ndim == 3 else "numbers of a finite set"


def _real(given: Any, what: str, agent: int) -> FloatArray:
    try:
        array = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidDemos(f"{what} of agent {agent} must be numbers ({error}).", parameter=what, index=agent) from None
    if array.ndim != 3 or array.shape[2] == 0:
        raise InvalidDemos(
            f"{what} of agent {agent} must have the shape (n, H, m); it is {array.shape}.",
            parameter=what,
            value=array.shape,
            index=agent,
        )
    bad = ~np.isfinite(array)
    if np.any(bad):
        j, t, c = np.argwhere(bad)[0]
        raise InvalidDemos(
            f"{what} must be finite; agent {agent}, trajectory {j}, step {t}, column {c} is {array[j, t, c]}. "
            "Mend it, or leave the trajectory out.",
            parameter=what,
            value=float(array[j, t, c]),
            index=(agent, int(j), int(t), int(c)),
        )
    return array


KIND = Kind("limiirl.agents", 1, "a file of agents", "Agents.save")
RELEASED = ("center", "up", "border")
"""The agents of the experiment by Ramponi et al. (2020): the first has an intent to itself, the others share one."""

_PARTS = ("policy_features", "actions", "reward_features")


def save(agents: Agents, path: str | os.PathLike[str]) -> None:
    """Write agents to `path`; see `Agents.save`."""
    header: dict[str, Any] = {"n_agents": len(agents), "texts": {}}
    arrays = {f"{i}.{part}": array for i, record in enumerate(agents) for part, array in record._asdict().items()}
    for name in ("names", "labels"):
        values = getattr(agents, name)
        if values is not None and values.dtype.kind == "U":
            header["texts"][name] = values.tolist()
        elif values is not None:
            arrays[name] = values
    write_archive(path, KIND, header, arrays)


def load(path: str | os.PathLike[str]) -> tuple[tuple[Agent, ...], NDArray[Any], NDArray[Any] | None]:
    """Return records, names and labels that `save` wrote; see `Agents.load`."""
    header, arrays = read_archive(path, KIND)
    try:
        texts = {name: np.array(values, dtype=np.str_) for name, values in header["texts"].items()}
        records = [Agent._make(arrays[f"{i}.{part}"] for part in Agent._fields) for i in range(int(header["n_agents"]))]
        names = texts["names"] if "names" in texts else arrays["names"]
        return tuple(records), names, texts.get("labels", arrays.get("labels"))
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise InvalidFile(
            f"{path} is damaged: {error!s:.300} is missing or wrong. Save the agents again.",
            parameter="path",
            value=str(path),
        ) from error


def read_released(path: str | os.PathLike[str], dataset: int, names: Sequence[str]) -> list[list[NDArray[Any]]]:
    """Return policy features, actions and reward features of the agents named; see `Agents.from_released`."""
    wanted = [f"{name}_{dataset}_{part}" for name in names for part in _PARTS]

    def chosen(files: list[str]) -> list[str]:
        absent = [key for key in wanted if key not in files]
        if absent:
            kept = sorted({key.removesuffix(f"_{_PARTS[0]}") for key in files if key.endswith(_PARTS[0])})
            raise InvalidFile(
                f"{path} has no {absent[0]}. It has {', '.join(kept) or 'no agents at all'}.",
                parameter="path",
                value=absent[0],
            )
        return wanted

    arrays = read_arrays(path, "Give the npz file of the released agents.", chosen)
    return [[arrays[key] for key in wanted[start::3]] for start in range(3)]


# Features of every step are dense. So many numbers take 4 GiB.
_MOST = 2**29


def group_demonstrations(
    mdp: MDP,
    demos: Demonstrations,
    groups: ArrayLike | None,
    policy_features: FeatureInput | None,
    reward_features: FeatureInput | None,
) -> tuple[tuple[Agent, ...], NDArray[Any], NDArray[Any] | None]:
    """Return one record per group, with names and labels; see `Agents.from_demonstrations`."""
    given = demos.groups if groups is None else groups
    if given is None:
        raise InvalidDemos(
            "An agent is all demonstrations of a group, and the demonstrations have no groups. Pass groups=..., whom "
            "each belongs to.",
            parameter="groups",
        )
    if not len(demos):
        raise InvalidDemos(
            "There must be at least one agent; there are no demonstrations. Check the filter or the file.",
            parameter="demos",
            value=0,
        )
    units = Groups.from_labels(given, len(demos))
    actions = _actions(mdp, demos)
    seen = None if policy_features is None else _table(policy_features, "policy_features", mdp)
    paid = None if reward_features is None else _table(reward_features, "reward_features", mdp, of_actions=True)
    width = mdp.n_states if seen is None else seen.shape[-1]
    steps = _AgentRows(demos, units)
    _check_size(width, mdp.n_features if paid is None else paid.shape[-1], steps.n_padded)
    x = None if seen is None else _rows(seen, demos.states)
    phi = _mdp_features(mdp, demos) if paid is None else _table_features(paid, demos.states, actions)
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


class _AgentRows:
    """Where the steps of each agent stand in the flat arrays of demonstrations."""

    def __init__(self, demos: Demonstrations, units: Groups) -> None:
        self._offsets, self._lengths = demos.offsets, demos.lengths
        order = np.argsort(units.broadcast(np.arange(len(units))), kind="stable")
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
        index = int(steps.demo_of_step[k]), int(steps.t_of_step[k])
        position = int(demos.offsets[index[0]]) + index[1]
        raise InvalidDemos(
            f"{name_step(demos.ids, index)}: several actions lead from state {demos.states[position]} to state "
            f"{demos.states[position + 1]}, and which of them was taken is not recorded. Record the actions.",
            parameter="demos",
            index=index,
        )
    found = np.full(demos.n_steps, -1, dtype=np.int64)
    found[demos.offsets[steps.demo_of_step] + steps.t_of_step] = mdp.act[steps.edge]
    return found


def _table_features(table: Any, states: NDArray[np.int64], actions: NDArray[np.int64]) -> FloatArray:
    """Return the features (n, q) of each step from those of states, or of actions in them."""
    if table.ndim == 2:
        return _rows(table, states)
    return np.asarray(np.where(actions[:, None] >= 0, table[states, actions], 0.0))


def _mdp_features(mdp: MDP, demos: Demonstrations) -> FloatArray:
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
            "Pass policy_features or reward_features with fewer columns, or shorter demonstrations.",
            parameter="policy_features",
            value=p,
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
            raise InvalidParameter(f"{what} must be an array {shapes} of numbers ({error}).", parameter=what) from None
    leading = table.shape[:-1]
    if leading != (mdp.n_states,) and not (of_actions and leading == (mdp.n_states, mdp.n_actions)):
        raise InvalidParameter(
            f"{what} must have the shape {shapes}, a row for each state of the MDP; it is {table.shape}.",
            parameter=what,
            value=table.shape,
        )
    return table


def _rows(table: FeatureMatrix, rows: NDArray[np.integer]) -> FloatArray:
    """Return rows of a dense or sparse matrix as a dense one."""
    found = table[rows]
    return found if isinstance(found, np.ndarray) else np.asarray(found.toarray())


def _labels(demos: Demonstrations, units: Groups) -> NDArray[Any] | None:
    """Return the label that all demonstrations of an agent share."""
    if demos.labels is None:
        return None
    index = units.broadcast(np.arange(len(units)))
    first = np.zeros(len(units), dtype=np.int64)
    first[index[::-1]] = np.arange(len(demos))[::-1]
    labels = demos.labels[first]
    differs = demos.labels != labels[index]
    if np.any(differs):
        i = int(np.argmax(differs))
        raise InvalidDemos(
            f"An agent has one intent; {units.name(int(index[i]))} has the labels {labels[index[i]].item()!r} and "
            f"{demos.labels[i].item()!r} (demonstration {i}). Group by intent too, or pass demos.replace(labels=None).",
            parameter="labels",
            value=demos.labels[i].item(),
            index=i,
        )
    return labels


@dataclass(frozen=True, eq=False, repr=False)
class Agents:
    """M agents with several trajectories each; an agent has one intent.

    Build them with `from_arrays`, `from_demonstrations`, `from_released` or `load`. Arrays are read-only; two values
    are equal when their content is. `agents[0]` is one `Agent`; slices, masks and index arrays select several.

    Attributes
    ----------
    records : tuple of Agent
    names : (M,)
        Integers or strings, all different or not; 0 to M - 1 unless given.
    labels : (M,) or None
        Known intents.

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
        if not self.records:
            raise InvalidDemos(
                "There must be at least one agent; there are none. Check the filter or the file.",
                parameter="records",
                value=self.records,
            )
        records = tuple(check_agent(record, i) for i, record in enumerate(self.records))
        check_alike(records)
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
        """Build from one entry per agent, each an array (n, H, ...) or n arrays (H_j, ...) of different lengths.

        Parameters
        ----------
        policy_features : M times (n, H, p)
        actions : M times (n, H, b) of real numbers, or (n, H) of integers
        reward_features : M times (n, H, q)
        live : M times (n, H) of booleans, optional
            Whether the agent still chose; by default in all steps.
        names, labels : (M,), optional
            See the class.

        Examples
        --------
        >>> short, long = np.ones((1, 2)), np.ones((3, 2))
        >>> agents = Agents.from_arrays([[short, long]], [[[0], [1, 0, 1]]], [[short, long]])
        >>> agents[0].live.astype(int).tolist()
        [[1, 0, 0], [1, 1, 1]]
        """
        given = {"policy_features": policy_features, "actions": actions, "reward_features": reward_features}
        n = len(policy_features)
        for what, entries in {**given, **({} if live is None else {"live": live})}.items():
            if len(entries) != n:
                raise InvalidDemos(
                    f"{what} must have one entry for each of {n} agents, as policy_features do; it has {len(entries)}.",
                    parameter=what,
                    value=len(entries),
                )
        records = []
        for i in range(n):
            x, lengths = pad_trajectories(policy_features[i], "policy_features", i)
            a, _ = pad_trajectories(actions[i], "actions", i, lengths)
            phi, _ = pad_trajectories(reward_features[i], "reward_features", i, lengths)
            present = np.arange(x.shape[1]) < lengths[:, None]
            chosen = present if live is None else pad_trajectories(live[i], "live", i, lengths)[0]
            records.append(Agent(x, a, phi, chosen))
        return cls(tuple(records), names, labels)  # type: ignore[arg-type]

    @classmethod
    def from_released(
        cls, path: str | os.PathLike[str], *, dataset: int = 0, names: Sequence[str] = RELEASED
    ) -> Agents:
        """Read agents of the continuous PuddleWorld that were released with Sigma-GIRL, as an npz file without pickles.

        The file holds, for each agent and data set, `{agent}_{dataset}_policy_features` (n, H, p), `..._actions`
        (n, H, b) and `..._reward_features` (n, H, q). After the goal the policy features are zero, and nothing is
        chosen any more, while its reward goes on to the last step.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "agents.npz"
        >>> x = np.array([[[0.2, 0.8], [0.0, 0.0]]] * 3)
        >>> np.savez(path, up_0_policy_features=x, up_0_actions=x, up_0_reward_features=np.ones((3, 2, 1)))
        >>> Agents.from_released(path, names=["up"])[0].live[0]
        array([ True, False])
        """
        x, actions, phi = read_released(path, dataset, names)
        try:
            return cls.from_arrays(x, actions, phi, [np.any(each != 0, axis=-1) for each in x], names=list(names))
        except InvalidDemos as error:
            raise InvalidFile(f"{path}: {error}", parameter="path", value=str(path)) from None

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
        """Build one agent from all demonstrations of a group, in a finite MDP.

        A demonstration of T states is a trajectory of T steps, in the last of which nothing is chosen. Step t has the
        features of state t, and of the action taken there; the agents' `features(mdp.gamma)` are then the means over
        each group of `demos.features(mdp)`.

        The weights that `SigmaGIRL` learns are not negative and sum to 1, so that a feature can only ever be good.
        Where the MDP's features are costs, as elements or metres are, pass them negative:
        ``reward_features=-mdp.state_features``. Do not pass a feature both ways: with equal weights both cancel, and
        nothing that an agent does speaks against a reward that is always zero. Likewise leave one feature out where
        all sum to the same in every step and demonstrations have one length.

        Parameters
        ----------
        mdp : MDP
            Where the demonstrations were made; every step must be one of its edges.
        demos : Demonstrations
            With their actions, unless these follow from the states. Labels are kept, one per agent.
        groups : (N,), optional
            Whom each demonstration belongs to; by default `demos.groups`. Agents come in the order of their names.
        policy_features : (S, p), optional
            What a policy sees of each state; by default which of the S states it is.
        reward_features : (S, q) or (S, A, q), optional
            Of each state, or of each action in it, for which the last state of a demonstration has none. By default
            all features that the MDP has, of states, of actions and of edges.

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
        """Write one npz file of plain arrays. It appears whole or not at all, and `load` restores exactly this value.

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
        save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Agents:
        """Read what `save` wrote; a file that is truncated, not ours or of a newer limiirl is an `InvalidFile`.

        Examples
        --------
        >>> Agents.load("nowhere.npz")
        Traceback (most recent call last):
        limiirl.errors.MissingFile: nowhere.npz does not exist. Give a file that Agents.save wrote.
        """
        records, names, labels = load(path)
        try:
            return cls(records, names, labels)
        except InvalidDemos as error:
            raise InvalidFile(
                f"{path} is damaged: {error} Save the agents again.", parameter="path", value=str(path)
            ) from None

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
        chosen = np.arange(len(self))[index]
        labels = None if self.labels is None else self.labels[chosen]
        return Agents(tuple(self.records[i] for i in chosen.tolist()), self.names[chosen], labels)

    @property
    def discrete(self) -> bool:
        """Whether actions are numbers of a finite set, not vectors."""
        return self.records[0].actions.ndim == 2

    @property
    def n_policy_features(self) -> int:
        """Number of policy features, p."""
        return int(self.records[0].policy_features.shape[2])

    @property
    def n_reward_features(self) -> int:
        """Number of reward features, q."""
        return int(self.records[0].reward_features.shape[2])

    def subsample(self, n: int, seed: Seed = None) -> Agents:
        """Return the same agents with n trajectories each, drawn without repetition.

        Examples
        --------
        >>> x = np.ones((5, 3, 1))
        >>> Agents.from_arrays([x], [x], [x]).subsample(2, seed=0)[0].live.shape
        (2, 3)
        """
        rng = as_generator(seed)
        records = []
        for i, record in enumerate(self.records):
            have = len(record.live)
            if isinstance(n, bool) or not isinstance(n, int | np.integer) or not 1 <= n <= have:
                raise InvalidParameter(
                    f"n must be a whole number from 1 to the {have} trajectories of agent {i}; it is {n!r}.",
                    parameter="n",
                    value=n,
                    index=i,
                )
            chosen = np.sort(rng.permutation(have)[:n])
            records.append(Agent._make(part[chosen] for part in record))
        return Agents(tuple(records), self.names, self.labels)

    def features(self, gamma: float, *, of: str = "reward") -> FloatArray:
        """Return (M, q) or (M, p): the mean over an agent's trajectories of sum_t gamma^t phi_t, or of gamma^t x_t.

        Examples
        --------
        >>> x = np.ones((5, 3, 1))
        >>> Agents.from_arrays([x], [x], [2 * x]).features(0.5)
        array([[3.5]])
        """
        if of not in ("reward", "policy"):
            raise InvalidParameter(f"Features are of 'reward' or of 'policy'; got {of!r}.", parameter="of", value=of)
        found = []
        for record in self.records:
            values = record.reward_features if of == "reward" else record.policy_features * record.live[:, :, None]
            found.append(np.einsum("t,ntq->q", gamma ** np.arange(values.shape[1]), values) / len(values))
        return np.array(found)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Agents):
            return NotImplemented
        if (
            len(self) != len(other)
            or not same_arrays(self.names, other.names)
            or not same_arrays(self.labels, other.labels)
        ):
            return False
        pairs = zip(self.records, other.records, strict=True)
        return all(same_arrays(a, b) for one, two in pairs for a, b in zip(one, two, strict=True))

    def __hash__(self) -> int:
        return hash((self.names.tobytes(), *(record.actions.tobytes() for record in self.records)))

    def __repr__(self) -> str:
        counts = sorted({len(record.live) for record in self.records})
        each = f"{counts[0]} trajectories each" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} trajectories"
        longest = max(record.live.shape[1] for record in self.records)
        kind = "discrete actions" if self.discrete else f"actions in {self.records[0].actions.shape[2]} dimensions"
        lines = [
            f"Agents: {_many(len(self), 'agent')}, {each} of up to {_many(longest, 'step')}",
            f"  policy    {_many(self.n_policy_features, 'feature')}, {kind}",
            f"  reward    {_many(self.n_reward_features, 'feature')}",
        ]
        return "\n".join(lines)


def _many(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
