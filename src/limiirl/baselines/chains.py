"""Markov chains and back-off n-grams."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import optimize

from limiirl._typing import FloatArray, IntArray
from limiirl._validation import check_count
from limiirl.baselines.events import Baseline, Events, count_available
from limiirl.demos import Demonstrations

# Bounds and initial value of log alpha, and number of folds if there is a single demonstration.
_LOG_BOUNDS, _LOG_START, _FOLDS = (-9.0, 12.0), 0.0, 5


class Contexts:
    """Contexts that occur in demonstrations: the last k states at a decision, for each level k = 1, ..., `order`.

    Contexts are numbered per level. A decision at step t has only contexts of at most t + 1 states.
    """

    def __init__(self, demos: Demonstrations, events: Events, order: int, n_states: int) -> None:
        self.n_states = n_states
        self.keys: list[IntArray] = [np.arange(n_states)]
        for level in range(1, order):
            shorter, present = self.number(demos, events)[-1], events.t >= level
            self.keys.append(np.unique((shorter * n_states + demos.states[events.position - level])[present]))

    def number(self, demos: Demonstrations, events: Events) -> list[IntArray]:
        """Return the index (n,) of each decision's context at each level; -1 if the history is too short or unseen."""
        numbers = [events.state]
        for level, keys in enumerate(self.keys[1:], 1):
            key = numbers[-1] * self.n_states + demos.states[np.maximum(events.position - level, 0)]
            known = (events.t >= level) & (numbers[-1] >= 0)
            numbers.append(np.where(known, find(keys, key), -1))
        return numbers


def find(keys: IntArray, values: IntArray) -> IntArray:
    """Return the position of each value in sorted keys, or -1 if it is absent."""
    if keys.size == 0:
        return np.full(values.size, -1)
    at = np.minimum(np.searchsorted(keys, values), keys.size - 1)
    return np.where(keys[at] == values, at, -1)


class LevelCounts(NamedTuple):
    """Event counts at one level, by sorted keys context * n_events + event, and their sums per context."""

    keys: IntArray
    counts: FloatArray
    sums: FloatArray


class Observed(NamedTuple):
    """Counts (levels, n) of the contexts of n decisions: `own` of the observed event, `total` over all events."""

    own: FloatArray
    total: FloatArray


def smooth(data: Observed, base: FloatArray, log_alpha: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the probability (n,) of each decision, and its derivatives (levels, n) with respect to log alpha.

    p_k = (own_k + alpha_k p_{k-1}) / (total_k + alpha_k), where p_0 is the base distribution.
    """
    p, gradients = base, np.zeros_like(data.own)
    for k, alpha in enumerate(np.exp(log_alpha)):
        norm = data.total[k] + alpha
        level = (data.own[k] + alpha * p) / norm
        gradients[:k] *= alpha / norm
        gradients[k] = alpha * (p - level) / norm
        p = level
    return p, gradients


class _Chain(Baseline):
    """Base class of models of the next event given the last states; cross-validation selects the smoothing."""

    _shared: bool  # True if all levels have the same concentration

    def __init__(self, order: int) -> None:
        self.order = order

    def _fit(self, demos: Demonstrations, events: Events) -> None:
        order = check_count(self.order, "order")
        self._contexts = Contexts(demos, events, order, self.n_states_)
        self._base = 1.0 / np.maximum(count_available(self), 1.0)
        numbers = self._contexts.number(demos, events)
        self._levels = [self._count(number, events.event) for number in numbers]
        self.concentration_ = self._choose(numbers, events)

    def _count(self, number: IntArray, event: IntArray) -> LevelCounts:
        present = number >= 0
        keys, counts = np.unique_counts(number[present] * self.n_events_ + event[present])
        sums = np.bincount(number[present], minlength=int(number.max(initial=-1)) + 1)
        return LevelCounts(keys, counts.astype(np.float64), sums.astype(np.float64))

    def _choose(self, numbers: list[IntArray], events: Events) -> FloatArray:
        """Return the concentration of each level, chosen by cross-validation."""
        fold = events.demo
        if fold[-1] == 0:  # divide the single demonstration into folds
            fold = np.arange(fold.size) * _FOLDS // fold.size
        full = self._observe(numbers, events.event)
        own, total = full.own.copy(), full.total.copy()
        for k, number in enumerate(numbers):
            present = number >= 0
            for counts, key in ((total[k], number), (own[k], number * self.n_events_ + events.event)):
                code = key[present] * (fold[-1] + 1) + fold[present]
                _, inverse, sizes = np.unique(code, return_inverse=True, return_counts=True)
                counts[present] -= sizes[inverse]
        data, base = Observed(own, total), self._base[events.state]

        n = 1 if self._shared else len(numbers)

        def objective(log_alpha: FloatArray) -> tuple[float, FloatArray]:
            p, gradients = smooth(data, base, np.broadcast_to(log_alpha, len(numbers)))
            gradient = -np.mean(gradients / p, axis=1)
            return -float(np.mean(np.log(p))), gradient.sum(keepdims=True) if self._shared else gradient

        bounds = [_LOG_BOUNDS] * n
        result = optimize.minimize(objective, np.full(n, _LOG_START), jac=True, method="L-BFGS-B", bounds=bounds)
        return np.broadcast_to(np.exp(result.x), len(numbers)).copy()

    def number_contexts(self, demos: Demonstrations, events: Events) -> IntArray:
        """Return the index (n,) of the longest context of each decision, or -1 if this context is unseen."""
        numbers = self._contexts.number(demos, events)
        first = np.cumsum([0, *(keys.size for keys in self._contexts.keys)])
        level = np.minimum(events.t, len(numbers) - 1)
        number = np.stack(numbers)[level, np.arange(level.size)]
        return np.where(number >= 0, number + first[level], -1)

    def _observe(self, numbers: list[IntArray], event: IntArray) -> Observed:
        own, total = np.zeros((2, len(numbers), event.size))
        for k, (number, level) in enumerate(zip(numbers, self._levels, strict=True)):
            slot = find(level.keys, number * self.n_events_ + event)
            seen = (number >= 0) & (number < level.sums.size)
            total[k, seen] = level.sums[number[seen]]
            hit = seen & (slot >= 0)
            own[k, hit] = level.counts[slot[hit]]
        return Observed(own, total)

    def _predict(self, demos: Demonstrations, events: Events) -> FloatArray:
        data = self._observe(self._contexts.number(demos, events), events.event)
        log_alpha = np.log(self.concentration_)
        p, _ = smooth(data, self._base[events.state], log_alpha)
        return np.asarray(np.log(p))


class MarkovChain(_Chain):
    """Markov chain: the distribution of the next action given the last `order` states.

    p_k(a | c_k) = (n(c_k, a) + alpha p_{k-1}(a | c_{k-1})) / (n(c_k) + alpha), where c_k are the last k states, n are
    counts, and p_0 is uniform over the possible actions. The concentration alpha maximises the likelihood of each
    demonstration given the others. If the context of `order` states is unseen, or if a demonstration has fewer states
    so far, the prediction is based on shorter contexts.

    Parameters
    ----------
    order : int
        Number of states of a context, including the current state.

    Attributes
    ----------
    concentration_ : (order,)
        alpha, the same value for each level 1 to `order`.

    Examples
    --------
    >>> demos = Demonstrations.from_lists([[0, 1, 0, 2] * 10] * 2)
    >>> round(MarkovChain(1).fit(demos).score(demos), 2), round(MarkovChain(2).fit(demos).score(demos), 2)
    (-0.36, -0.02)
    """

    _shared = True

    def __init__(self, order: int = 1) -> None:
        super().__init__(order)


class NGram(_Chain):
    """Back-off n-gram: a Markov chain over the last 1 to `order` states with one concentration per context length.

    Like `MarkovChain`, but with a separate concentration alpha_k for contexts of k states. The concentrations are
    optimised jointly; a large alpha_k means that contexts of k states do not improve the prediction.

    Parameters
    ----------
    order : int
        Maximum number of states of a context, including the current state.

    Attributes
    ----------
    concentration_ : (order,)
        alpha_1, ..., alpha_order.

    Examples
    --------
    >>> demos = Demonstrations.from_lists([[0, 1, 0, 2] * 10] * 2)
    >>> round(NGram(order=3).fit(demos[:1]).score(demos[1:]), 2)
    -0.02
    """

    _shared = False

    def __init__(self, order: int = 5) -> None:
        super().__init__(order)
