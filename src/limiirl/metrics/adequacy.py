"""Adequacy of a fitted mixture: residuals and calibration of its next-step probabilities, and simulated features.

At each step, the mixture predicts the distribution p of the next action, or of the end of the trajectory, from the
steps so far. The surprise of the outcome, -log p(outcome), minus its expectation, the entropy of p, has mean 0 if the
model is correct, and the surprises of different steps are uncorrelated. The sum over a demonstration, a state or a
step, divided by its standard deviation, is therefore approximately N(0, 1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, softmax

from limiirl._typing import FloatArray, IntArray
from limiirl._validation import check_count
from limiirl.demos import Demonstrations, Groups
from limiirl.errors import InvalidDemos, InvalidParameter, LimiirlError
from limiirl.irl import OptionalMembers
from limiirl.metrics.routes import batch_prefixes, extract_prefixes
from limiirl.mixture import IntentMixture, validate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BINS = 10
# Sums with a smaller variance are excluded: the model predicts these outcomes with certainty.
_LEAST_VARIANCE = 1e-8
_LISTED = 3


@dataclass(frozen=True, eq=False)
class Residuals:
    """Standardised residuals of demonstrations, states or steps.

    Attributes
    ----------
    index : (m,)
        Demonstration, state or step.
    z : (m,)
        Excess surprise in standard deviations; large positive values mark what the model explains worst.
    excess : (m,)
        Mean surprise minus entropy, in nats per step.
    count : (m,)
        Number of steps.
    p_value : (m,)
        One-sided p-value of z, adjusted for the number m of residuals (Holm).
    """

    index: IntArray
    z: FloatArray
    excess: FloatArray
    count: IntArray
    p_value: FloatArray

    def worst(self, n: int) -> Residuals:
        """Return the n residuals with the largest z, the largest first."""
        order = np.argsort(-self.z, kind="stable")[:n]
        return Residuals(self.index[order], self.z[order], self.excess[order], self.count[order], self.p_value[order])


@dataclass(frozen=True, eq=False)
class Calibration:
    """Predicted probabilities of all possible outcomes, in bins, and the frequency with which these occurred.

    `error` is the standard error of the frequency under the model.
    """

    predicted: FloatArray
    observed: FloatArray
    error: FloatArray
    count: IntArray

    @property
    def expected_error(self) -> float:
        """Mean absolute difference between frequency and prediction, weighted by the number of outcomes."""
        return float(np.sum(self.count * np.abs(self.observed - self.predicted)) / np.sum(self.count))


class PredictiveCheck(NamedTuple):
    """Observed means of features and of the length, simulated means and standard deviations, and two-sided p-values."""

    name: tuple[str, ...]
    observed: FloatArray
    simulated: FloatArray
    deviation: FloatArray
    p_value: FloatArray


class HeldOut(NamedTuple):
    """Mean log-probability per action of the mixture and of a baseline.

    `error` is the standard error of the difference, clustered by demonstration.
    """

    name: str
    mixture: float
    baseline: float
    error: float


@dataclass(frozen=True, eq=False)
class Adequacy:
    """Result of `check_fit`.

    Attributes
    ----------
    demo, t, state : (m,)
        Demonstration, step and state of each prediction.
    log_prob, surprise, variance : (m,)
        Log-probability of the outcome, -log_prob minus the entropy of the prediction, and the variance of the surprise
        under the model.
    calibration : Calibration
    predictive : PredictiveCheck or None
        None if the model cannot simulate trajectories.
    held_out : tuple of HeldOut
    """

    demo: IntArray
    t: IntArray
    state: IntArray
    log_prob: FloatArray
    surprise: FloatArray
    variance: FloatArray
    calibration: Calibration
    predictive: PredictiveCheck | None
    held_out: tuple[HeldOut, ...]
    state_names: tuple[str, ...] | None = field(repr=False)
    ids: NDArray[Any] | None = field(repr=False)

    @property
    def by_demo(self) -> Residuals:
        """Residuals of demonstrations."""
        return self._sum(self.demo)

    @property
    def by_state(self) -> Residuals:
        """Residuals of states."""
        return self._sum(self.state)

    @property
    def by_step(self) -> Residuals:
        """Residuals of steps since the start."""
        return self._sum(self.t)

    @property
    def z(self) -> float:
        """Total excess surprise in standard deviations."""
        total = float(self.variance.sum())
        return float(self.surprise.sum()) / total**0.5 if total > _LEAST_VARIANCE else 0.0

    def _sum(self, labels: IntArray) -> Residuals:
        index, inverse, count = np.unique(labels, return_inverse=True, return_counts=True)
        surprise, variance = (np.bincount(inverse, weights=part) for part in (self.surprise, self.variance))
        z = np.where(variance > _LEAST_VARIANCE, surprise / np.sqrt(np.maximum(variance, _LEAST_VARIANCE)), 0.0)
        p, order = ndtr(-z), np.argsort(-z, kind="stable")
        adjusted = np.empty(p.size)
        adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1)), 1.0)
        return Residuals(index, z, surprise / count, count, adjusted)

    def name_state(self, state: int) -> str:
        """Return the name of a state, or its number."""
        return str(state) if self.state_names is None else self.state_names[state]

    def name_demo(self, demo: int) -> str:
        """Return the identifier of a demonstration, or its number."""
        return str(demo if self.ids is None else self.ids[demo])

    def __str__(self) -> str:
        n = np.unique(self.demo).size
        excess = f"excess surprise {self.surprise.mean():+.4f} (z = {self.z:.1f})"
        lines = [
            f"{self.t.size} predictions in {n} demonstrations",
            f"  log-probability  {self.log_prob.mean():.4f} per step; {excess}",
            f"  calibration      mean absolute error {self.calibration.expected_error:.3f}",
        ]
        names: dict[str, Callable[[int], str]] = {
            "demonstration": self.name_demo,
            "state": self.name_state,
            "step": str,
        }
        for noun, residuals in zip(names, (self.by_demo, self.by_state, self.by_step), strict=True):
            few = residuals.worst(_LISTED)
            worst = [f"{names[noun](int(i))} (z = {z:.1f})" for i, z in zip(few.index, few.z, strict=True)]
            significant = int(np.count_nonzero(residuals.p_value < 0.05))
            lines.append(
                f"  worst {noun + 's:':<15} {', '.join(worst)}; {significant} of {residuals.z.size} beyond chance"
            )
        if self.predictive is not None:
            check = self.predictive
            low = [f"{check.name[j]} (p = {check.p_value[j]:.3f})" for j in np.flatnonzero(check.p_value < 0.05)]
            lines.append(f"  simulated means that differ from the observed ones: {', '.join(low) or 'none'}")
        for row in self.held_out:
            difference = f"{row.mixture - row.baseline:+.4f} ± {row.error:.4f}"
            lines.append(f"  {row.name}: {row.baseline:.4f} per action; the mixture {difference}")
        return "\n".join(lines)

    def plot(self) -> Figure:
        """Draw the calibration, and the residuals of demonstrations and states in order of size."""
        import matplotlib.pyplot as plt

        figure, (left, middle, right) = plt.subplots(1, 3, figsize=(10.0, 3.2), layout="constrained")
        c = self.calibration
        left.plot([0.0, 1.0], [0.0, 1.0], color="#999999", linewidth=0.8)
        left.errorbar(c.predicted, c.observed, 1.96 * c.error, fmt="o", capsize=3)
        left.set(xlabel="predicted probability", ylabel="frequency", title="Calibration")
        for axes, noun, residuals in ((middle, "demonstrations", self.by_demo), (right, "states", self.by_state)):
            axes.plot(np.sort(residuals.z), ".", markersize=4)
            axes.axhspan(-1.96, 1.96, color="#999999", alpha=0.2, linewidth=0)
            axes.set(xlabel=f"{noun}, best explained first", ylabel="excess surprise (z)", title=noun.capitalize())
        plt.close(figure)
        return figure


def check_fit(
    mixture: IntentMixture,
    demos: Demonstrations | None = None,
    *,
    covariates: Any = None,
    baselines: Mapping[str, Any] | None = None,
    simulations: int = 200,
    seed: Any = 0,
) -> Adequacy:
    """Check the next-step predictions of a fitted mixture, and find what it explains worst.

    Steps without a recorded or unambiguous action are omitted, and so is the end of a demonstration if the model gives
    it probability 0. Every demonstration is predicted separately, also if the mixture was fitted with groups.

    Parameters
    ----------
    mixture : IntentMixture
    demos : Demonstrations, optional
        Preferably held-out demonstrations; by default the training data, for which residuals are slightly too small.
    covariates : array or table, optional
        Required if the mixture was fitted with covariates, except for the training data.
    baselines : mapping from names to fitted predictors of `limiirl.baselines`, optional
        Compared on the same actions. Fit them to the training data.
    simulations : int
        Number of simulated data sets for the comparison of mean features; 0 for none.
    seed : int, Generator or None

    Examples
    --------
    >>> from limiirl import MDP, IntentMixture, MaxEnt
    >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], p0=[1, 0, 0, 0], state_features=[[0], [1], [-1], [0]])
    >>> demos = Demonstrations.from_lists([[0, 1, 3]] * 30 + [[0, 2, 3]] * 10)
    >>> mix = IntentMixture(1, MaxEnt(bounds=(-5, 5), stop="terminal")).fit(mdp, demos)
    >>> checked = check_fit(mix)
    >>> abs(checked.z) < 0.01, checked.by_state.index.tolist(), bool(checked.predictive.p_value.min() > 0.5)
    (True, [0, 1, 2, 3], True)
    """
    validate.check_fitted(mixture)
    demos = validate.training_demos(mixture) if demos is None else validate.check_demos(demos, mixture.mdp_)
    if not isinstance(demos, Demonstrations):
        raise InvalidDemos("demos is required, because the mixture has no training demonstrations.", parameter="demos")
    missing = {"next_actions", "log_prob_prefix"} - (OptionalMembers.of(mixture.irl_).supports or frozenset())
    if missing:
        rule = f"must support {', '.join(sorted(missing))}"
        raise InvalidParameter.of("mixture", type(mixture.irl_).__name__, rule)
    rho = np.broadcast_to(
        mixture.unit_weights(demos, Groups.for_demos(None, demos), covariates), (len(demos), len(mixture.weights_))
    )
    demo, t, outcome = _list_outcomes(mixture.mdp_, demos)
    parts = [
        _predict(mixture, demos, rho, demo[part], t[part], outcome[part]) for part in batch_prefixes(t + 1)
    ]  # fmt: skip
    log_prob, entropy, variance, stop = (np.concatenate([part[i] for part in parts]) for i in range(4))
    used = np.isfinite(log_prob) | (outcome >= 0)  # ends of probability 0 are not modelled
    bins = np.sum([part[4] for part in parts], axis=0)
    state = demos.states[demos.offsets[demo] + t]
    compared = _compare(baselines or {}, demos, demo, t, outcome, log_prob - np.log1p(-np.minimum(stop, 1 - 1e-12)))
    n = check_count(simulations, "simulations", least=0)
    return Adequacy(
        demo=demo[used],
        t=t[used],
        state=state[used],
        log_prob=log_prob[used],
        surprise=-log_prob[used] - entropy[used],
        variance=variance[used],
        calibration=_calibrate(bins),
        predictive=_simulate(mixture, demos, n, seed) if n else None,
        held_out=compared,
        state_names=demos.state_names,
        ids=demos.ids,
    )


def _list_outcomes(mdp: Any, demos: Demonstrations) -> tuple[IntArray, IntArray, IntArray]:
    """Return the demonstration, the step and the action of each outcome; -1 is the end of a demonstration."""
    steps = demos.steps(mdp)
    known = np.flatnonzero(steps.edge >= 0)
    demo = np.concatenate([steps.demo_of_step[known], np.arange(len(demos))])
    t = np.concatenate([steps.t_of_step[known], demos.lengths - 1])
    outcome = np.concatenate([mdp.act[steps.edge[known]], np.full(len(demos), -1)])
    order = np.lexsort((t, demo))
    return demo[order], t[order], outcome[order]


def _predict(
    mixture: Any, demos: Demonstrations, rho: FloatArray, demo: IntArray, t: IntArray, outcome: IntArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return the log-probability, entropy, variance of the surprise, probability of the end, and sums over bins."""
    prefixes = extract_prefixes(demos, demo, t)
    with np.errstate(divide="ignore"):
        log_joint = mixture.irl_.log_prob_prefix(mixture.mdp_, mixture.thetas_, prefixes) + np.log(rho[demo])
    posterior = softmax(log_joint, axis=1)
    following = mixture.irl_.next_actions(mixture.mdp_, mixture.thetas_, prefixes)
    action = np.einsum("nk,nka->na", posterior, following.action)
    stop = np.sum(posterior * following.stop, axis=1)
    p = np.column_stack([action, stop])  # outcome -1 is the last column
    with np.errstate(divide="ignore", invalid="ignore"):
        log_p = np.log(p)
        terms = np.where(p > 0.0, p * log_p, 0.0)
        entropy = -terms.sum(axis=1)
        variance = np.maximum(np.where(p > 0.0, terms * log_p, 0.0).sum(axis=1) - entropy**2, 0.0)
    taken = np.arange(len(p)), outcome
    used = (p[taken] > 0.0) | (outcome >= 0)
    possible = (p > 0.0) & (p < 1.0) & used[:, None]
    happened = np.zeros(p.shape)
    happened[taken] = 1.0
    q = p[possible]
    number = np.minimum((q * _BINS).astype(np.int64), _BINS - 1)
    columns = (np.ones(q.size), q, happened[possible], q * (1.0 - q))
    bins = np.array([np.bincount(number, weights=column, minlength=_BINS) for column in columns], dtype=np.float64)
    return log_p[taken], entropy, variance, stop, bins


def _calibrate(bins: FloatArray) -> Calibration:
    count, predicted, observed, variance = bins[:, bins[0] > 0]
    return Calibration(predicted / count, observed / count, np.sqrt(variance) / count, count.astype(np.int64))


def _simulate(mixture: Any, demos: Demonstrations, n: int, seed: Any) -> PredictiveCheck | None:
    """Compare the mean features and length with those of n simulated data sets."""
    mdp, N = mixture.mdp_, len(demos)
    try:
        drawn, _ = mixture.sample(n * N, seed)
    except LimiirlError:  # the model cannot sample, or trajectories have no end
        return None
    names = (*mdp.feature_names, "length")
    own, other = (np.column_stack([part.features(mdp), part.lengths]) for part in (demos, drawn))
    observed, means = own.mean(axis=0), other.reshape(n, N, -1).mean(axis=1)
    # Ties are counted by half.
    above = np.mean((means > observed) + 0.5 * (means == observed), axis=0)
    p = np.minimum(2.0 * np.minimum(above, 1.0 - above) + 1.0 / n, 1.0)
    return PredictiveCheck(names, observed, means.mean(axis=0), means.std(axis=0), p)


def _compare(
    baselines: Mapping[str, Any],
    demos: Demonstrations,
    demo: IntArray,
    t: IntArray,
    outcome: IntArray,
    log_prob: FloatArray,
) -> tuple[HeldOut, ...]:
    """Compare with baselines on the recorded actions."""
    acted = outcome >= 0
    position = demos.offsets[demo[acted]] + t[acted] - demo[acted]  # among the transitions of all demonstrations
    rows = []
    for name, baseline in baselines.items():
        other = np.asarray(baseline.predictive_log_prob(demos))[position]
        by_demo = np.bincount(demo[acted], weights=log_prob[acted] - other, minlength=len(demos))
        counts = np.bincount(demo[acted], minlength=len(demos))
        centred = by_demo - counts * (by_demo.sum() / counts.sum())
        error = float(np.sqrt(np.sum(centred**2)) / counts.sum())
        rows.append(HeldOut(name, float(log_prob[acted].mean()), float(other.mean()), error))
    return tuple(rows)
