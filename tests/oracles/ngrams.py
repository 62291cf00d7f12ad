"""N-grams and hidden Markov models over them, with dictionaries and by enumeration."""

from collections import Counter
from itertools import product

import numpy as np


def contexts(states, t, order):
    """Return the last 1 to `order` states before decision t, those that exist."""
    return [tuple(states[t - k + 1 : t + 1]) for k in range(1, order + 1) if t - k + 1 >= 0]


class DictionaryNGram:
    """p_k(e | c_k) = (n(c_k, e) + alpha_k p_{k-1}(e)) / (n(c_k) + alpha_k) over lists of (states, events)."""

    def __init__(self, data, alphas, available):
        self.alphas, self.available = alphas, available
        self.counts, self.sums = Counter(), Counter()
        for states, events in data:
            for t, event in enumerate(events):
                for context in contexts(states, t, len(alphas)):
                    self.counts[context, event] += 1
                    self.sums[context] += 1

    def prob(self, states, t, event):
        p = 1.0 / self.available(states[t])
        for alpha, context in zip(self.alphas, contexts(states, t, len(self.alphas)), strict=False):
            p = (self.counts[context, event] + alpha * p) / (self.sums[context] + alpha)
        return p

    def log_prob(self, data):
        return np.log([self.prob(states, t, event) for states, events in data for t, event in enumerate(events)])


def enumerate_hmm(initial, transition, emission):
    """Return log p(e_t | e_<t) of one sequence with emission probabilities (T, K), over all sequences of components."""
    T, K = emission.shape
    joint = []
    for n in range(T + 1):
        total = 0.0
        for path in product(range(K), repeat=n):
            p = 1.0
            for t, k in enumerate(path):
                p *= (initial[k] if t == 0 else transition[path[t - 1], k]) * emission[t, k]
            total += p
        joint.append(total)
    return np.diff(np.log(joint))
