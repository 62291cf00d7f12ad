"""Hidden Markov model over Markov chains."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from limiirl._typing import FloatArray, IntArray, Seed
from limiirl._validation import as_generator, check_count, check_positive
from limiirl.baselines.chains import NGram, find
from limiirl.baselines.events import Baseline, Events
from limiirl.demos import Demonstrations
from limiirl.kernels import switching as kernel

# Candidate concentrations, and the concentration if there are too few demonstrations to leave out one in _LEFT_OUT.
_CONCENTRATIONS, _FALLBACK, _LEFT_OUT = (0.5, 2.0, 8.0, 32.0), 2.0, 5
# Pseudo-count of each initial state and transition of the hidden chain, and initial probability of no transition.
_PSEUDO, _STAY = 0.1, 0.95


class _Parameters(NamedTuple):
    """Parameters of the hidden chain, and expected counts of distinct decisions (m, K) and of contexts (n, K)."""

    initial: FloatArray
    transition: FloatArray
    own: FloatArray
    total: FloatArray


class _Training(NamedTuple):
    """Training decisions: the m distinct pairs of a context and an event, and the index of each step's pair in `data`.

    `base` (m,) are the probabilities under the back-off n-gram.
    """

    keys: IntArray
    context: IntArray
    base: FloatArray
    data: kernel.Decisions


class HMM(Baseline):
    """Hidden Markov model whose components are Markov chains over the last `order` states.

    A hidden component z_t follows a Markov chain with K states. Given z_t = k, the next action has the probability
    (n_k(c, a) + alpha p(a | c)) / (n_k(c) + alpha), where c are the last `order` states, n_k are expected counts, and p
    is a back-off n-gram of the same order that is fitted to all decisions. EM finds a local maximum of the posterior
    density; the action probabilities have a Dirichlet prior with mean p.

    Parameters
    ----------
    n_components : int
        Number K of components.
    order : int
        Number of states of a context, including the current state.
    concentration : float, optional
        The value alpha. By default, it maximises the likelihood of a held-out fifth of the demonstrations.
    n_init : int
        Number of random initialisations; the result with the highest likelihood is kept.
    window : int
        Number of steps per window; the initialisation assigns each window to a random component.
    max_iter : int
    tol : float
        EM stops if the log-likelihood per step changes by less than this value.
    random_state : int, Generator or None

    Attributes
    ----------
    initial_, transition_ : (K,), (K, K)
        Distribution of the first component, and transition probabilities.
    concentration_ : float
    history_ : list of float
        Log-likelihood per step of the training data before each iteration.
    converged_ : bool

    Examples
    --------
    >>> demos = Demonstrations.from_lists([[0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0] * 5] * 5)
    >>> model = HMM(2, order=1, random_state=0).fit(demos)
    >>> model.transition_.shape
    (2, 2)
    """

    def __init__(
        self,
        n_components: int = 3,
        order: int = 2,
        *,
        concentration: float | None = None,
        n_init: int = 3,
        window: int = 20,
        max_iter: int = 200,
        tol: float = 1e-5,
        random_state: Seed = None,
    ) -> None:
        self.n_components = n_components
        self.order = order
        self.concentration = concentration
        self.n_init = n_init
        self.window = window
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def _fit(self, demos: Demonstrations, events: Events) -> None:
        for name in ("n_components", "order", "n_init", "window", "max_iter"):
            check_count(getattr(self, name), name)
        check_positive(self.tol, "tol", zero=True)
        rng = as_generator(self.random_state)
        self.concentration_ = self._choose_concentration(demos, rng)
        self._chain = NGram(self.order).fit(demos, self.mdp_)
        training = self._prepare(demos, events)
        best = -np.inf
        for _ in range(self.n_init):
            parameters, history = self._run(training, events, rng)
            if history[-1] > best:
                best, self._parameters, self.history_ = history[-1], parameters, history
        self._keys = training.keys
        self.initial_, self.transition_ = self._parameters.initial, self._parameters.transition
        self.converged_ = len(self.history_) < self.max_iter

    def _choose_concentration(self, demos: Demonstrations, rng: np.random.Generator) -> float:
        if self.concentration is not None:
            return check_positive(self.concentration, "concentration")
        left_out = np.arange(len(demos)) % _LEFT_OUT == 0
        parts = demos[~left_out], demos[left_out]
        if any(part.n_transitions == 0 for part in parts):
            return _FALLBACK
        seed, scores = int(rng.integers(2**31)), []
        for concentration in _CONCENTRATIONS:
            trial = HMM(**{**self.get_params(), "concentration": concentration, "n_init": 1, "random_state": seed})
            scores.append(trial.fit(parts[0], self.mdp_).score(parts[1]))
        return _CONCENTRATIONS[int(np.argmax(scores))]

    def _prepare(self, demos: Demonstrations, events: Events) -> _Training:
        context = self._chain.number_contexts(demos, events)
        keys, first, index = np.unique(context * self.n_events_ + events.event, return_index=True, return_inverse=True)
        base = np.exp(self._chain.predictive_log_prob(demos))[first]
        return _Training(keys, context[first], base, _as_data(index, demos))

    def _run(self, training: _Training, events: Events, rng: np.random.Generator) -> tuple[_Parameters, list[float]]:
        """Run EM from a random assignment of windows to components."""
        K, n = self.n_components, events.state.size
        window = np.cumsum(events.t % self.window == 0) - 1
        counts = np.zeros((training.keys.size, K))
        np.add.at(counts, (training.data.number, rng.integers(0, K, window[-1] + 1)[window]), 1.0)
        transition = np.full((K, K), (1.0 - _STAY) / max(K - 1, 1))
        np.fill_diagonal(transition, _STAY if K > 1 else 1.0)
        initial = np.full(K, 1.0 / K)
        history: list[float] = []
        while True:
            total = np.zeros((int(training.context.max()) + 1, K))
            np.add.at(total, training.context, counts)
            parameters = _Parameters(initial, transition, counts, total)
            emission = self._emit(counts, total[training.context], training.base)
            result = kernel.count(_as_chain(parameters, emission), training.data)
            history.append(result.log_prob / n)
            if len(history) == self.max_iter or (len(history) > 1 and abs(history[-1] - history[-2]) < self.tol):
                return parameters, history
            counts = result.decisions
            initial, transition = (_normalise(x + _PSEUDO) for x in (result.initial, result.transitions))

    def _emit(self, own: FloatArray, total: FloatArray, base: FloatArray) -> FloatArray:
        """Return the log-probabilities (n, K) of decisions, given expected counts of decisions and contexts."""
        alpha = self.concentration_
        return np.asarray(np.log((own + alpha * base[:, None]) / (total + alpha)))

    def _predict(self, demos: Demonstrations, events: Events) -> FloatArray:
        own, total = np.zeros((2, events.state.size, self.n_components))
        context = self._chain.number_contexts(demos, events)
        known = (context >= 0) & (context < len(self._parameters.total))
        total[known] = self._parameters.total[context[known]]
        slot = find(self._keys, context * self.n_events_ + events.event)
        known &= slot >= 0
        own[known] = self._parameters.own[slot[known]]
        emission = self._emit(own, total, np.exp(self._chain.predictive_log_prob(demos)))
        data = _as_data(np.arange(events.state.size), demos)
        return kernel.infer(_as_chain(self._parameters, emission), data, smooth=False).log_prob


def _as_data(index: IntArray, demos: Demonstrations) -> kernel.Decisions:
    offsets = demos.offsets - np.arange(len(demos) + 1)
    return kernel.Decisions(index.astype(np.int32), np.zeros(index.size, dtype=np.int32), offsets)


def _as_chain(parameters: _Parameters, log_emission: FloatArray) -> kernel.Chain:
    K = parameters.initial.size
    return kernel.Chain.of(log_emission, parameters.initial, np.log(parameters.transition), np.zeros((1, K)))


def _normalise(weights: FloatArray) -> FloatArray:
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))
