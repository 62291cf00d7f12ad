"""`Agents`: several agents, each recorded many times, for models that know no MDP and learn from batches alone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl.demos import agent_demos, agent_files
from limiirl.demos.agent_checks import Agent, check_alike, checked, padded
from limiirl.demos.agent_files import RELEASED
from limiirl.demos.checks import as_attribute, frozen
from limiirl.demos.selection import Subset, same
from limiirl.errors import InvalidDemos, InvalidFile, InvalidParameter

if TYPE_CHECKING:
    from limiirl.demos.demonstrations import Demonstrations
    from limiirl.mdp import MDP
    from limiirl.mdp.features import FeatureInput

__all__ = ["RELEASED", "Agent", "Agents"]

Float = NDArray[np.float64]


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
            raise InvalidDemos("There must be at least one agent; there are none. Check the filter or the file.")
        records = tuple(checked(record, i) for i, record in enumerate(self.records))
        check_alike(records)
        object.__setattr__(self, "records", records)
        if self.names is None:
            object.__setattr__(self, "names", np.arange(len(records)))
        for name in ("names", "labels"):
            array = as_attribute(getattr(self, name), name, len(records))
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
            x, lengths = padded(policy_features[i], "policy_features", i)
            a, _ = padded(actions[i], "actions", i, lengths)
            phi, _ = padded(reward_features[i], "reward_features", i, lengths)
            present = np.arange(x.shape[1]) < lengths[:, None]
            chosen = present if live is None else padded(live[i], "live", i, lengths)[0]
            records.append(Agent(x, a, phi, chosen))
        return cls(tuple(records), names, labels)  # type: ignore[arg-type]

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
        x, actions, phi = agent_files.read_released(path, dataset, names)
        try:
            return cls.from_arrays(x, actions, phi, [np.any(each != 0, axis=-1) for each in x], names=list(names))
        except InvalidDemos as error:
            raise InvalidFile(f"{path}: {error}") from None

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
            With their actions, unless these follow from the states. Labels are kept, one an agent.
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
        return cls(*agent_demos.grouped(mdp, demos, groups, policy_features, reward_features))

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
        agent_files.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Agents:
        """Read what `save` wrote; a file that is truncated, not ours or of a newer limiirl is an `InvalidFile`.

        Examples
        --------
        >>> Agents.load("nowhere.npz")
        Traceback (most recent call last):
        limiirl.errors.MissingFile: nowhere.npz does not exist. Give a file that Agents.save wrote.
        """
        records, names, labels = agent_files.load(path)
        try:
            return cls(records, names, labels)
        except InvalidDemos as error:
            raise InvalidFile(f"{path} is damaged: {error} Save the agents again.") from None

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
