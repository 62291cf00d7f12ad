"""Behaviour cloning: a multinomial logit model of the action, with the features of one step."""

from __future__ import annotations

from typing import Self

import numpy as np
from scipy import sparse

from limiirl._typing import FloatArray
from limiirl._validation import check_positive, check_type
from limiirl.baselines.events import Baseline, Events
from limiirl.demos import Demonstrations
from limiirl.irl import RIDGES, MaxCausalEnt
from limiirl.mdp import MDP

# Discount that is 0 in effect; `MDP` requires a positive discount.
_NO_DISCOUNT = float(np.finfo(np.float64).tiny)
# Ridge if there are too few demonstrations for validation; otherwise, every fifth demonstration is held out.
_FALLBACK, _LEFT_OUT = 0.01, 5


def as_one_step(mdp: MDP) -> MDP:
    """Return an MDP in which planning is equivalent to discount 0: state features become features of the edges."""
    if mdp.state_features is None:
        return mdp.replace(gamma=_NO_DISCOUNT)
    n, m = mdp.n_state_features, mdp.n_action_features
    parts = [sparse.csr_array(mdp.state_features)[mdp.dst]]
    if mdp.edge_features is not None:
        parts.append(sparse.csr_array(mdp.edge_features))
    names = mdp.feature_names
    return mdp.replace(
        gamma=_NO_DISCOUNT,
        state_features=None,
        edge_features=sparse.hstack(parts, format="csr"),
        feature_names=(*names[n : n + m], *names[:n], *names[n + m :]),
    )


class BehaviourCloning(Baseline):
    """Behaviour cloning: p(a | s) is proportional to exp(theta . E[phi(s, a, s')]).

    The features are the state features of the next state, the action features and the edge features. This is
    `MaxCausalEnt` at discount 0: the policy depends only on the rewards of the next step.

    Parameters
    ----------
    ridge : float, optional
        Coefficient of the penalty ``|theta|^2 / 2`` that is added to the negative mean log-likelihood per step. By
        default, the coefficient maximises the likelihood of a held-out fifth of the demonstrations.

    Attributes
    ----------
    theta_ : (d,)
        Parameters in the order of `feature_names_`.
    feature_names_ : tuple of str
    ridge_ : float

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 0, 0])
    >>> demos = Demonstrations.from_lists([[0, 1, 0, 1, 0, 1, 0, 2, 0]])
    >>> model = BehaviourCloning(ridge=1e-6).fit(demos, mdp)
    >>> np.exp(model.predictive_log_prob(demos)).round(3).tolist()
    [0.75, 1.0, 0.75, 1.0, 0.75, 1.0, 0.25, 1.0]
    """

    def __init__(self, ridge: float | None = None) -> None:
        self.ridge = ridge

    def fit(self, demos: Demonstrations, mdp: MDP | None = None) -> Self:
        """Fit the model; `mdp` is required. See `Baseline.fit`."""
        check_type(mdp, "mdp", MDP, remedy="Pass an MDP with features.")
        return super().fit(demos, mdp)

    def _fit(self, demos: Demonstrations, events: Events) -> None:
        del events
        self._one_step = as_one_step(self.mdp_)
        self.feature_names_ = self._one_step.feature_names
        if self.ridge is not None:
            self.ridge_ = check_positive(self.ridge, "ridge", zero=True)
        else:
            self.ridge_ = self._choose_ridge(demos)
        self.theta_ = self._search(demos, self.ridge_, None)
        self._set_policy()

    def _search(self, demos: Demonstrations, ridge: float, start: FloatArray | None) -> FloatArray:
        model = MaxCausalEnt(ridge=ridge, ridge_per="step")
        starts = None if start is None else start[None]
        return np.asarray(model.fit_many(self._one_step, demos, np.ones((len(demos), 1)), starts)[0])

    def _choose_ridge(self, demos: Demonstrations) -> float:
        left_out = np.arange(len(demos)) % _LEFT_OUT == 0
        train, test = demos[~left_out], demos[left_out]
        if train.n_transitions == 0 or test.n_transitions == 0:
            return _FALLBACK
        scores: list[float] = []
        theta: FloatArray | None = None
        for ridge in RIDGES:
            theta = self._search(train, ridge, theta)
            self.theta_ = theta
            self._set_policy()
            scores.append(float(self._log_prob(test).mean()))
        return RIDGES[int(np.argmax(scores))]

    def _set_policy(self) -> None:
        policy = MaxCausalEnt().policy(self._one_step, self.theta_)
        self._pair = policy[self._one_step.pair_state, self._one_step.pair_action]

    def _predict(self, demos: Demonstrations, events: Events) -> FloatArray:
        del events
        return self._log_prob(demos)

    def _log_prob(self, demos: Demonstrations) -> FloatArray:
        """Return log pi(a | s) (n,) or, if actions are not recorded, log sum_a pi(a | s) P(s' | s, a) (n,)."""
        mdp, steps = self._one_step, demos.steps(self._one_step)
        prob = self._pair[mdp.pair_of_edge[steps.edge]]
        if not self.by_action_:
            prob = prob * mdp.prob[steps.edge]
            if steps.ambiguous.size:
                each = self._pair[mdp.pair_of_edge[steps.cand_edge]] * mdp.prob[steps.cand_edge]
                prob[steps.ambiguous] = np.add.reduceat(each, steps.cand_ptr[:-1])
        return np.asarray(np.log(prob))
