"""`Agents`: several agents, each recorded many times, for models that know no MDP and learn from batches alone."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl.demos.checks import as_attribute, frozen
from limiirl.demos.selection import Subset, same
from limiirl.errors import InvalidDemos, InvalidFile, InvalidParameter

Float = NDArray[np.float64]
RELEASED = ("center", "up", "border")
"""The agents of the experiment by Ramponi et al. (2020): the first has an intent to itself, the others share one."""


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

    policy_features: Float
    actions: NDArray[Any]
    reward_features: Float
    live: NDArray[np.bool_]


@dataclass(frozen=True, eq=False, repr=False)
class Agents:
    """M agents with several trajectories each; an agent has one intent.

    Build them with `from_arrays` or `from_released`. Arrays are read-only; two values are equal when their content is.
    `agents[0]` is one `Agent`; slices, masks and index arrays select several.

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
    names: NDArray[Any]
    labels: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        if not self.records:
            raise InvalidDemos("There must be at least one agent; there are none. Check the filter or the file.")
        checked = tuple(_checked(record, i) for i, record in enumerate(self.records))
        for i, record in enumerate(checked):
            for name in ("policy_features", "actions", "reward_features"):
                ours, first = _width(getattr(record, name)), _width(getattr(checked[0], name))
                if ours != first:
                    raise InvalidDemos(
                        f"All agents must have the same {name}; those of agent {i} have {ours}, those of agent 0 "
                        f"{first}. Record the same for all."
                    )
        object.__setattr__(self, "records", checked)
        for name in ("names", "labels"):
            array = as_attribute(getattr(self, name), name, len(checked))
            object.__setattr__(self, name, None if array is None else frozen(array))

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
        """Build from one entry an agent, each an array (n, H, ...) or n arrays (H_j, ...) of different lengths.

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
                    f"{what} must have one entry for each of {n} agents, as policy_features do; it has {len(entries)}."
                )
        records = []
        for i in range(n):
            x, lengths = _padded(policy_features[i], "policy_features", i)
            a, _ = _padded(actions[i], "actions", i, lengths)
            phi, _ = _padded(reward_features[i], "reward_features", i, lengths)
            present = np.arange(x.shape[1]) < lengths[:, None]
            chosen = present if live is None else _padded(live[i], "live", i, lengths)[0]
            records.append(Agent(x, a, phi, chosen))
        numbers = np.arange(n) if names is None else names
        return cls(tuple(records), numbers, labels)  # type: ignore[arg-type]

    @classmethod
    def from_released(cls, path: str | os.PathLike[str], dataset: int = 0, names: Sequence[str] = RELEASED) -> Agents:
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
        parts = ("policy_features", "actions", "reward_features")
        try:
            with np.load(path, allow_pickle=False) as stored:
                wanted = [f"{name}_{dataset}_{part}" for name in names for part in parts]
                absent = [key for key in wanted if key not in stored.files]
                if absent:
                    kept = sorted({key.removesuffix(f"_{parts[0]}") for key in stored.files if key.endswith(parts[0])})
                    raise InvalidFile(f"{path} has no {absent[0]}. It has {', '.join(kept) or 'no agents at all'}.")
                arrays = [stored[key] for key in wanted]
        except FileNotFoundError:
            raise InvalidFile(f"{path} does not exist. Give the npz file of the released agents.") from None
        except InvalidFile:
            raise
        except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise InvalidFile(f"{path} is not an npz file of plain arrays ({error!s:.200}).") from error
        x, actions, phi = (arrays[start::3] for start in range(3))
        try:
            return cls.from_arrays(x, actions, phi, [np.any(each != 0, axis=-1) for each in x], names=list(names))
        except InvalidDemos as error:
            raise InvalidFile(f"{path}: {error}") from None

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

    def subsample(self, n: int, seed: int | np.random.Generator) -> Agents:
        """Return the same agents with n trajectories each, drawn without repetition.

        Examples
        --------
        >>> x = np.ones((5, 3, 1))
        >>> Agents.from_arrays([x], [x], [x]).subsample(2, seed=0)[0].live.shape
        (2, 3)
        """
        rng = np.random.default_rng(seed)
        records = []
        for i, record in enumerate(self.records):
            have = len(record.live)
            if isinstance(n, bool) or not isinstance(n, int | np.integer) or not 1 <= n <= have:
                raise InvalidParameter(
                    f"n must be a whole number from 1 to the {have} trajectories of agent {i}; it is {n!r}."
                )
            chosen = np.sort(rng.permutation(have)[:n])
            records.append(Agent._make(part[chosen] for part in record))
        return Agents(tuple(records), self.names, self.labels)

    def features(self, gamma: float, of: str = "reward") -> Float:
        """Return (M, q) or (M, p): the mean over an agent's trajectories of sum_t gamma^t phi_t, or of gamma^t x_t.

        Examples
        --------
        >>> x = np.ones((5, 3, 1))
        >>> Agents.from_arrays([x], [x], [2 * x]).features(0.5)
        array([[3.5]])
        """
        if of not in ("reward", "policy"):
            raise InvalidParameter(f"Features are of 'reward' or of 'policy'; got {of!r}.")
        found = []
        for record in self.records:
            values = record.reward_features if of == "reward" else record.policy_features * record.live[:, :, None]
            found.append(np.einsum("t,ntq->q", gamma ** np.arange(values.shape[1]), values) / len(values))
        return np.array(found)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Agents):
            return NotImplemented
        if len(self) != len(other) or not same(self.names, other.names) or not same(self.labels, other.labels):
            return False
        pairs = zip(self.records, other.records, strict=True)
        return all(same(a, b) for one, two in pairs for a, b in zip(one, two, strict=True))

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


def _width(array: NDArray[Any]) -> str:
    """Say what must agree between agents."""
    return f"{array.shape[2]} columns of real numbers" if array.ndim == 3 else "numbers of a finite set"


def _padded(
    given: Any, what: str, agent: int, lengths: NDArray[np.int64] | None = None
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return an agent's trajectories as one array, zeros after the end of each, and their lengths (n,)."""
    try:
        parts = [np.asarray(part) for part in given]
    except (TypeError, ValueError) as error:
        raise InvalidDemos(f"{what} of agent {agent} must be an array, or one a trajectory ({error}).") from None
    found = np.array([len(part) if part.ndim else 0 for part in parts], dtype=np.int64)
    if not parts or np.any(found == 0):
        where = f"; trajectory {int(np.argmax(found == 0))} has none" if parts else "; it has no trajectories"
        raise InvalidDemos(f"{what} of agent {agent} must be trajectories of at least one step{where}. Leave it out.")
    if lengths is not None and not np.array_equal(found, lengths):
        if found.size != lengths.size:
            raise InvalidDemos(
                f"{what} of agent {agent} have {found.size} trajectories, its policy_features {lengths.size}. "
                "Record both in every step."
            )
        j = int(np.argmax(found != lengths))
        raise InvalidDemos(
            f"{what} of agent {agent}, trajectory {j}, have {found[j]} steps, its policy_features {lengths[j]}. "
            "Record both in every step."
        )
    shapes = {part.shape[1:] for part in parts}
    if len(shapes) != 1:
        raise InvalidDemos(
            f"{what} of agent {agent} must have the same number of columns in every trajectory; there are "
            f"{' and '.join(str(shape) for shape in sorted(shapes))}."
        )
    padded = np.zeros((len(parts), int(found.max()), *parts[0].shape[1:]), dtype=np.result_type(*parts))
    for j, part in enumerate(parts):
        padded[j, : len(part)] = part
    return padded, found


def _checked(record: Agent, agent: int) -> Agent:
    """Return an agent's arrays as float64, int64 and bool, read-only."""
    x, phi = (_real(getattr(record, name), name, agent) for name in ("policy_features", "reward_features"))
    actions = np.asarray(record.actions)
    if actions.ndim == 2 and actions.dtype.kind in "iu":
        if np.any(actions < 0):
            j, t = np.argwhere(actions < 0)[0]
            raise InvalidDemos(
                f"Discrete actions are numbered from 0; agent {agent}, trajectory {j}, step {t} has {actions[j, t]}. "
                "Mark steps without a choice by live=False, and number the actions 0, 1, 2, ..."
            )
        actions = actions.astype(np.int64)
    elif actions.ndim == 3:
        actions = _real(actions, "actions", agent)
    else:
        raise InvalidDemos(
            f"actions of agent {agent} must be real vectors (n, H, b) or integers (n, H); they have shape "
            f"{actions.shape} and dtype {actions.dtype}. Add an axis to real numbers: actions[..., None]."
        )
    live = np.asarray(record.live)
    steps = {"policy_features": x, "actions": actions, "reward_features": phi, "live": live}
    for name, array in steps.items():
        if array.shape[:2] != x.shape[:2]:
            raise InvalidDemos(
                f"{name} of agent {agent} are for {array.shape[:2]} trajectories and steps, its policy_features for "
                f"{x.shape[:2]}. Record both in every step."
            )
    if live.dtype.kind != "b" or live.ndim != 2:
        raise InvalidDemos(
            f"live of agent {agent} must be booleans (n, H); it has shape {live.shape} and dtype {live.dtype}."
        )
    if not np.any(live):
        raise InvalidDemos(f"agent {agent} never chooses an action: live is False throughout. Leave the agent out.")
    return Agent(frozen(x), frozen(actions), frozen(phi), frozen(live))


def _real(given: Any, what: str, agent: int) -> Float:
    try:
        array = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidDemos(f"{what} of agent {agent} must be numbers ({error}).") from None
    if array.ndim != 3 or array.shape[2] == 0:
        raise InvalidDemos(f"{what} of agent {agent} must have the shape (n, H, m); it is {array.shape}.")
    bad = ~np.isfinite(array)
    if np.any(bad):
        j, t, c = np.argwhere(bad)[0]
        raise InvalidDemos(
            f"{what} must be finite; agent {agent}, trajectory {j}, step {t}, column {c} is {array[j, t, c]}. "
            "Mend it, or leave the trajectory out."
        )
    return array
