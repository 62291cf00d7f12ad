"""Intents that switch, by enumeration of every sequence of intents: slow and obvious."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

from limiirl.demos import Demonstrations
from limiirl.mdp import MDP
from tests.oracles.causal import stationary_policy
from tests.oracles.dense_planning import tensors

Float = NDArray[np.float64]


@dataclass
class Sequences:
    """All sequences of intents of one demonstration, with their joint probabilities with the decisions."""

    paths: list[tuple[int, ...]]
    joint: Float
    emissions: Float
    initial: Float
    transitions: Float

    @classmethod
    def of(cls, initial: Float, transitions: Float, emissions: Float) -> Sequences:
        """Enumerate for initial (K,), transitions (T - 1, K, K) after each decision, and emissions (T, K)."""
        T, K = emissions.shape
        paths = list(itertools.product(range(K), repeat=T))
        joint = []
        for path in paths:
            p = initial[path[0]] * emissions[0, path[0]]
            for t in range(1, T):
                p *= transitions[t - 1][path[t - 1], path[t]] * emissions[t, path[t]]
            joint.append(p)
        return cls(paths, np.array(joint), emissions, initial, transitions)

    @property
    def log_prob(self) -> float:
        return math.log(math.fsum(self.joint))

    def smooth(self) -> Float:
        """P(z_t = k | all decisions) (T, K)."""
        T, K = self.emissions.shape
        result = np.zeros((T, K))
        for path, p in zip(self.paths, self.joint, strict=True):
            for t, k in enumerate(path):
                result[t, k] += p
        return result / self.joint.sum()

    def pairs(self) -> Float:
        """P(z_t = j, z_{t+1} = k | all decisions) (T - 1, K, K)."""
        T, K = self.emissions.shape
        result = np.zeros((T - 1, K, K))
        for path, p in zip(self.paths, self.joint, strict=True):
            for t in range(T - 1):
                result[t, path[t], path[t + 1]] += p
        return result / self.joint.sum()

    def _until(self, t: int) -> Sequences:
        return Sequences.of(self.initial, self.transitions[:t], self.emissions[: t + 1])

    def filter(self) -> Float:
        """P(z_t = k | decisions 0, ..., t) (T, K)."""
        return np.array([self._until(t).smooth()[-1] for t in range(len(self.emissions))])

    def predictive(self) -> Float:
        """log P(decision t | earlier decisions) (T,)."""
        log_prob = np.array([self._until(t).log_prob for t in range(len(self.emissions))])
        return np.diff(log_prob, prepend=0.0)

    def best(self) -> tuple[float, list[tuple[int, ...]]]:
        """The largest joint probability, and all sequences that have it up to rounding."""
        top = float(self.joint.max())
        return top, [path for path, p in zip(self.paths, self.joint, strict=True) if p >= top * (1.0 - 1e-12)]


def emission_tables(mdp: MDP, thetas: Float, demos: Demonstrations, beta: float = 1.0) -> list[Float]:
    """P(decision | state, intent) of each demonstration (T, K); unrecorded actions are summed, with their outcomes."""
    T, _ = tensors(mdp, np.zeros(mdp.n_features))
    policies = [stationary_policy(mdp, theta, "soft", beta) for theta in thetas]
    result = []
    for demo in demos:
        states, table = demo.states.tolist(), np.zeros((len(demo.states) - 1, len(thetas)))
        actions = [-1] * len(table) if demo.actions is None else demo.actions.tolist()[: len(table)]
        for t, a in enumerate(actions):
            s, after = states[t], states[t + 1]
            able = [b for b in range(T.shape[1]) if T[s, b, after] > 0.0]
            for k, pi in enumerate(policies):
                if a >= 0:
                    table[t, k] = pi[s, a]
                elif len(able) == 1:
                    table[t, k] = pi[s, able[0]]
                else:
                    table[t, k] = sum(pi[s, b] * T[s, b, after] for b in able)
        result.append(table)
    return result


def transition_rows(A: Float, B: Float, x: Float) -> Float:
    """softmax_k(A_jk + B_k . x) (K, K) for one vector x (m,)."""
    K = len(A)
    result = np.zeros((K, K))
    for j in range(K):
        weights = [math.exp(A[j, k] + float(B[k] @ x)) for k in range(K)]
        for k in range(K):
            result[j, k] = weights[k] / math.fsum(weights)
    return result


@dataclass
class Problem:
    """A random MDP, demonstrations, and parameters of a switching mixture with their rows x_t (n, m).

    With logits `first` (K, 1 + m), the first intent depends on the standardised covariates z (n, m) of the first step.
    """

    mdp: MDP
    demos: Demonstrations
    kind: str
    initial: Float
    thetas: Float
    A: Float
    B: Float
    x: Float
    covariates: Float | None
    first: Float | None = None
    z: Float | None = None

    @property
    def options(self) -> dict[str, str]:
        """Options of the mixture."""
        return {} if self.first is None else {"initial": "covariates"}

    def initial_of(self, step: int) -> Float:
        """P(z_0 = k) (K,) of the demonstration whose first step is `step`."""
        if self.first is None or self.z is None:
            return self.initial
        weights = [math.exp(c[0] + float(c[1:] @ self.z[step])) for c in self.first]
        return np.array(weights) / math.fsum(weights)

    def start(self) -> SimpleNamespace:
        """The parameters in the form that `init` accepts."""
        logits = SimpleNamespace(A=self.A, B=self.B)
        names = {"initial_": self.initial, "thetas_": self.thetas, "logits_": logits, "initial_logits_": self.first}
        return SimpleNamespace(**names, transition_=None)

    def enumerate(self, thetas: Float | None = None) -> list[Sequences]:
        """All sequences of each demonstration."""
        emissions = emission_tables(self.mdp, self.thetas if thetas is None else thetas, self.demos)
        result, first = [], 0
        for table in emissions:
            rows = [transition_rows(self.A, self.B, self.x[first + t]) for t in range(len(table) - 1)]
            result.append(Sequences.of(self.initial_of(first), np.array(rows).reshape(-1, *self.A.shape), table))
            first += len(table)
        return result


def random_problem(
    seed: int,
    kind: str = "homogeneous",
    n_intents: int = 2,
    recorded: str = "all",
    lengths: tuple[int, ...] = (1, 4, 6),
    initial: str = "constant",
) -> Problem:
    """Draw a problem with 4 states, 3 actions and demonstrations with the given numbers of decisions.

    `recorded` is "all", "none" or "some": the actions that are recorded. Several actions can cause a transition.
    """
    rng = np.random.default_rng(seed)
    S, n_actions, d, K, m = 4, 3, 3, n_intents, 2
    T = rng.dirichlet(np.full(S, 0.4), size=(S, n_actions))
    T[T < 0.05] = 0.0
    T /= T.sum(axis=2, keepdims=True)
    mdp = MDP.from_dense(T, np.full(S, 1.0 / S), gamma=0.8, state_features=rng.normal(size=(S, d)))
    states, actions = [], []
    for n in lengths:
        path, acts = [int(rng.integers(S))], []
        for _ in range(n):
            acts.append(int(rng.integers(n_actions)))
            path.append(int(rng.choice(S, p=T[path[-1], acts[-1]])))
        states.append(path)
        actions.append([a if recorded == "all" or rng.random() < 0.5 else -1 for a in acts])
    demos = Demonstrations.from_lists(states, None if recorded == "none" else actions)
    n = sum(lengths)
    A, B = rng.normal(size=(K, K)), np.zeros((K, 0))
    x, covariates = np.zeros((n, 0)), None
    if kind == "state":
        decided = np.concatenate([path[:-1] for path in states])
        x, B = np.eye(S)[decided], rng.normal(size=(K, S))
    elif kind == "covariates":
        covariates = rng.normal(size=(n, m)) * [1.0, 30.0] + [5.0, 0.0]
        x, B = (covariates - covariates.mean(axis=0)) / covariates.std(axis=0), rng.normal(size=(K, m))
    thetas = 2.0 * rng.normal(size=(K, d))
    start, first, z = rng.dirichlet(np.ones(K)), None, None
    if initial == "covariates":
        covariates = rng.normal(size=(n, m)) if covariates is None else covariates
        z = (covariates - covariates.mean(axis=0)) / covariates.std(axis=0)
        first = np.vstack([np.zeros(1 + m), rng.normal(size=(K - 1, 1 + m))])
    return Problem(mdp, demos, kind, start, thetas, A, B, x, covariates, first, z)
