"""Evaluation of a fitted mixture: likelihood, recovery of the true intents, and GEVD."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from limiirl._typing import FloatArray
from limiirl._validation import as_floats, to_array
from limiirl.demos import Demonstrations, Groups, as_attribute
from limiirl.errors import DivergentPartition, InvalidDemos, InvalidParameter, NumericalError
from limiirl.irl import impossible_unit
from limiirl.mdp import MDP, RewardEnsemble
from limiirl.metrics.clusterings import anid, hard_labels, nid
from limiirl.metrics.gevd import GEVD, gevd
from limiirl.metrics.intervals import mean_interval
from limiirl.mixture import validate

if TYPE_CHECKING:
    from limiirl.mixture import IntentMixture


@dataclass(frozen=True, eq=False, repr=False)
class NLL:
    """Negative log-likelihood of demonstrations, or of groups that share an intent, in nats.

    Attributes
    ----------
    values, names : (G,)
        Negative log-likelihood and name of each demonstration, or of each group in sorted order.
    n_demos, n_steps : (G,) int64
        Number of demonstrations and number of states of each entry.
    unit : "demonstrations" or "groups"

    Examples
    --------
    >>> NLL(np.array([2.0, 4.0]), np.arange(2), np.array([1, 1]), np.array([1, 3]), "demonstrations")
    NLL 3.0000 per demonstration, 1.5000 per step (2 demonstrations, 4 steps)
    """

    values: FloatArray
    names: NDArray[Any]
    n_demos: NDArray[np.int64]
    n_steps: NDArray[np.int64]
    unit: str

    @property
    def total(self) -> float:
        """Sum of the values."""
        return float(self.values.sum())

    @property
    def mean(self) -> float:
        """Mean per demonstration, or per group."""
        return float(self.values.mean())

    @property
    def per_demo(self) -> float:
        """Total divided by the number of demonstrations."""
        return self.total / int(self.n_demos.sum())

    @property
    def per_step(self) -> float:
        """Total divided by the number of states."""
        return self.total / int(self.n_steps.sum())

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON types."""
        names = ("unit", "mean", "per_demo", "per_step", "total")
        counts = {"n_demos": int(self.n_demos.sum()), "n_steps": int(self.n_steps.sum())}
        lists = {"names": self.names.tolist(), "values": self.values.tolist()}
        return {name: getattr(self, name) for name in names} | counts | lists

    def __repr__(self) -> str:
        grouped = f"{self.mean:.4f} per group, " if self.unit == "groups" else ""
        size = f"{self.n_demos.sum()} demonstrations, {self.n_steps.sum()} steps"
        return f"NLL {grouped}{self.per_demo:.4f} per demonstration, {self.per_step:.4f} per step ({size})"


def mixture_nll(
    mixture: IntentMixture, demos: Demonstrations, groups: ArrayLike | None = None, covariates: Any = None
) -> NLL:
    """Return ``-log sum_k rho_k p(tau | theta_k)`` of each demonstration under a fitted mixture.

    Start and transition probabilities are included, so that values are comparable only for the same MDP and
    `max_length`. Demonstrations with the same entry in `groups` (N,) share one intent and have one joint likelihood.

    Examples
    --------
    >>> from limiirl import MDP, IntentMixture, MaxEnt
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> demos = Demonstrations.from_lists([[0, 1], [0, 1], [0, 2]])
    >>> mix = IntentMixture(2, MaxEnt(2, bounds=(-3, 3)), init=[0, 0, 1]).fit(mdp, demos)
    >>> mixture_nll(mix, demos).values.round(3)
    array([0.454, 0.454, 1.147])
    """
    units, lengths = _group_demos(demos, groups)
    if not hasattr(mixture, "score_samples"):
        remedy = "For given rewards use ensemble_nll(irl, mdp, ensemble, demos)."
        raise InvalidParameter.of("mixture", type(mixture).__name__, "must be a fitted IntentMixture", remedy=remedy)
    return _build_nll(
        -np.asarray(mixture.score_samples(demos, groups, **_options(covariates)), dtype=np.float64), units, lengths
    )


def _options(covariates: Any) -> dict[str, Any]:
    """Return the argument for mixtures by covariates; other estimators do not take it."""
    return {} if covariates is None else {"covariates": covariates}


def ensemble_nll(
    irl: Any, mdp: Any, ensemble: RewardEnsemble, demos: Demonstrations, groups: ArrayLike | None = None
) -> NLL:
    """Return the negative log-likelihood of each demonstration under an ensemble of rewards for a single-intent model.

    The model must have a method ``log_prob(mdp, thetas, demos)``, as `MaxEnt` has, and a `max_length`.

    Examples
    --------
    >>> from limiirl import MDP, MaxEnt
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> demos = Demonstrations.from_lists([[0, 1], [0, 2]])
    >>> ensemble_nll(MaxEnt(2), mdp, RewardEnsemble([0.5, 0.5], [[3.0], [-3.0]]), demos).values.round(4)
    array([0.7416, 0.7416])
    """
    units, lengths = _group_demos(demos, groups)
    if not isinstance(ensemble, RewardEnsemble):
        rule = "must be a RewardEnsemble, such as mixture.ensemble_"
        raise InvalidParameter.of("ensemble", type(ensemble).__name__, rule)
    if isinstance(irl, type) or not hasattr(irl, "log_prob"):
        name = getattr(irl, "__name__", type(irl).__name__)
        raise InvalidParameter.of("irl", name, "must be a single-intent model such as MaxEnt(50)")
    used = ensemble.weights > 0.0
    log_p = units.sum(np.asarray(irl.log_prob(mdp, ensemble.thetas[used], demos), dtype=np.float64))
    values = -np.logaddexp.reduce(log_p + np.log(ensemble.weights[used]), axis=1)
    impossible = np.flatnonzero(~np.isfinite(values))
    if impossible.size:
        raise impossible_unit(units, int(impossible[0]))
    return _build_nll(values, units, lengths)


def _group_demos(demos: Demonstrations, groups: ArrayLike | None) -> tuple[Groups, NDArray[np.int64]]:
    if not isinstance(demos, Demonstrations) or len(demos) == 0:
        given = len(demos) if isinstance(demos, Demonstrations) else type(demos).__name__
        raise InvalidDemos.of("demos", given, "must be a non-empty Demonstrations object")
    return Groups.from_labels(groups, len(demos)), demos.lengths


def _build_nll(values: FloatArray, units: Groups, lengths: NDArray[np.int64]) -> NLL:
    steps = np.rint(units.sum(lengths.astype(np.float64))).astype(np.int64)
    return NLL(values, units.names, units.counts.astype(np.int64), steps, units.noun)


_SHOWN = 12


@dataclass(frozen=True, eq=False)
class Recovery:
    """Agreement of a posterior with the true intents.

    Attributes
    ----------
    labels, intent : (L,)
        Sorted true intents, and the learned intent matched with each true intent, or -1 if there is none.
    counts : (L, K) int64
        Number of demonstrations by true intent (rows) and most probable learned intent (columns).
    accuracy : float
        Fraction of demonstrations whose most probable intent is matched with their label.
    nid, anid, nid_hard, anid_hard : float
        Distances of the labels from the posterior (soft, as in the paper) and from the most probable intents (hard).
    """

    labels: NDArray[Any]
    counts: NDArray[np.int64]
    intent: NDArray[np.int64]
    accuracy: float
    nid: float
    anid: float
    nid_hard: float
    anid_hard: float

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON types."""
        fields = asdict(self).items()
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in fields}

    def __str__(self) -> str:
        n, (L, K) = int(self.counts.sum()), self.counts.shape
        width = max(len(str(label)) for label in [*self.labels[:_SHOWN], "label"])
        intents = "intent" if L == 1 else "intents"
        lines = [
            f"Compared with {n} labels of {L} {intents}: {100 * self.accuracy:.1f} % correct after matching",
            f"  NID   {self.nid:.4f} soft, {self.nid_hard:.4f} hard",
            f"  ANID  {self.anid:.4f} soft, {self.anid_hard:.4f} hard (0 is perfect, 1 is chance)",
            f"  {'label':>{width}}  {'  '.join(f'intent {k}' for k in range(K))}  matched with",
        ]
        for label, row, intent in zip(self.labels[:_SHOWN], self.counts, self.intent, strict=False):
            cells = "  ".join(f"{count:>{len(f'intent {k}')}}" for k, count in enumerate(row))
            lines.append(f"  {label!s:>{width}}  {cells}  {'none' if intent < 0 else f'intent {intent}'}")
        return "\n".join(lines + ([f"  ... {L - _SHOWN} more"] if L > _SHOWN else []))


@dataclass(frozen=True, eq=False)
class Reference:
    """Mean NLL under the true ensemble, and ANID between the posteriors under the true and the learned ensemble."""

    nll: float
    anid: float
    anid_hard: float


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """Result of `evaluate`.

    `recovery` is None without labels; `gevd` and `reference` are None without true rewards. `reference` is also None if
    the likelihood under the true rewards is not finite.
    """

    n_intents: int
    nll: NLL
    recovery: Recovery | None = None
    gevd: GEVD | None = None
    reference: Reference | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON types."""
        return {
            "n_intents": self.n_intents,
            "nll": self.nll.to_dict(),
            "recovery": None if self.recovery is None else self.recovery.to_dict(),
            "gevd": None if self.gevd is None else self.gevd.to_dict(),
            "reference": None if self.reference is None else asdict(self.reference),
        }

    def __str__(self) -> str:
        score, n = self.nll, self.nll.values.size
        mean = f"{score.mean:.4f}" if n < 2 else f"{mean_interval(score.values)} (95 %)"
        size = f"{score.n_demos.sum()} demonstrations, {score.n_steps.sum()} steps"
        grouped = f" in {n} groups" if score.unit == "groups" else ""
        head = f"{self.n_intents} intents on {size}{grouped}"
        parts = [f"{head}\n  NLL   {mean} per {score.unit[:-1]}, {score.per_step:.4f} per step"]
        if self.recovery is not None:
            parts.append(str(self.recovery))
        if self.reference is not None:
            true = self.reference
            parts.append(
                "Compared with the true rewards under the same model\n"
                f"  NLL   {true.nll:.4f} per {score.unit[:-1]} under the true rewards\n"
                f"  ANID  {true.anid:.4f} soft, {true.anid_hard:.4f} hard between the two posteriors"
            )
        if self.gevd is not None:
            parts.append(str(self.gevd))
        return "\n\n".join(parts)

    __repr__ = __str__


def evaluate(
    mixture: IntentMixture,
    demos: Demonstrations,
    labels: ArrayLike | None = None,
    truth: RewardEnsemble | None = None,
    groups: ArrayLike | None = None,
    covariates: Any = None,
) -> Evaluation:
    """Evaluate the likelihood of a fitted mixture and, if known, the recovery of the true intents and rewards.

    Parameters
    ----------
    mixture : IntentMixture
    demos : Demonstrations
        Preferably demonstrations that were not used in the fit.
    labels : (N,), optional
        True intent of each demonstration; default: `demos.labels`.
    truth : RewardEnsemble, optional
        True weights and rewards; rewards refer to the features of the fitted MDP.
    groups : (N,), optional
        Group of each demonstration; demonstrations of a group share one intent.
    covariates : array or table, optional
        Covariates of the mixture weights; required if the mixture was fitted with covariates.

    Examples
    --------
    >>> from limiirl import MDP, IntentMixture, MaxEnt
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], gamma=0.5, state_features=[[0], [1], [-1]])
    >>> demos = Demonstrations.from_lists([[0, 1], [0, 1], [0, 2]], labels=["left", "left", "right"])
    >>> mix = IntentMixture(2, MaxEnt(2, bounds=(-9, 9)), init=[1, 1, 0]).fit(mdp, demos)
    >>> print(evaluate(mix, demos))
    2 intents on 3 demonstrations, 6 steps
      NLL   0.65 ± 0.99 (95 %) per demonstration, 0.3238 per step
    <BLANKLINE>
    Compared with 3 labels of 2 intents: 100.0 % correct after matching
      NID   0.0019 soft, 0.0000 hard
      ANID  0.0021 soft, 0.0000 hard (0 is perfect, 1 is chance)
      label  intent 0  intent 1  matched with
       left         0         2  intent 1
      right         1         0  intent 0
    >>> evaluation = evaluate(mix, demos, truth=RewardEnsemble([0.5, 0.5], [[2.0], [-2.0]]))
    >>> round(evaluation.gevd.value, 2), evaluation.gevd.largest(1)[0].evd
    (0.33, 2.0)
    """
    if isinstance(labels, RewardEnsemble):
        rule, remedy = "must be an array (N,) of true intents", "Pass an ensemble as truth=."
        raise InvalidParameter.of("labels", labels, rule, remedy=remedy)
    score = mixture_nll(mixture, demos, groups, covariates)
    U = mixture.predict_proba(demos, groups, **_options(covariates))
    known = demos.labels if labels is None else labels
    recovery = None if known is None else recover(known, U)
    K = len(mixture.weights_)
    if truth is None:
        return Evaluation(K, score, recovery)
    if not isinstance(truth, RewardEnsemble):
        raise InvalidParameter.of("truth", type(truth).__name__, "must be a RewardEnsemble")
    if not isinstance(mixture.mdp_, MDP):
        message = "truth requires a mixture fitted with an MDP, because GEVD is computed from optimal policies."
        raise InvalidParameter(message, parameter="truth")
    distance = gevd(mixture.mdp_, truth, mixture.ensemble_)
    return Evaluation(K, score, recovery, distance, _compute_reference(mixture, demos, truth, groups, U))


def recover(labels: ArrayLike, U: ArrayLike) -> Recovery:
    """Compare true intents (N,), which may be numbers or strings, with a posterior (N, K).

    Examples
    --------
    >>> recovery = recover(["a", "a", "b"], [[0.1, 0.9], [0.6, 0.4], [0.9, 0.1]])
    >>> recovery.counts.tolist(), recovery.intent.tolist(), round(recovery.accuracy, 3)
    ([[1, 1], [1, 0]], [1, 0], 0.667)
    """
    posterior = as_floats(U, "U")
    hard = hard_labels(posterior)
    given = cast("NDArray[Any]", as_attribute(to_array(labels, "labels"), "labels", len(posterior)))
    names, index = np.unique(given, return_inverse=True)
    counts = np.rint(np.eye(names.size)[index].T @ hard).astype(np.int64)
    rows, columns = linear_sum_assignment(-counts)
    intent = np.full(names.size, -1)
    intent[rows] = columns
    return Recovery(
        labels=names,
        counts=counts,
        intent=intent,
        accuracy=float(counts[rows, columns].sum() / index.size),
        nid=nid(index, posterior),
        anid=anid(index, posterior),
        nid_hard=nid(index, hard),
        anid_hard=anid(index, hard),
    )


def _compute_reference(
    mixture: IntentMixture, demos: Demonstrations, truth: RewardEnsemble, groups: ArrayLike | None, U: FloatArray
) -> Reference | None:
    """Return the reference values of the true ensemble, or None if its likelihood is not finite."""
    validate.check_fitted(mixture)
    units, used = Groups.from_labels(groups, len(demos)), truth.weights > 0.0
    try:
        log_p = units.sum(np.asarray(mixture.irl_.log_prob(mixture.mdp_, truth.thetas[used], demos)))
    except (DivergentPartition, NumericalError):
        return None  # infinite partition function
    joint = log_p + np.log(truth.weights[used])
    log_lik = np.logaddexp.reduce(joint, axis=1)
    if not np.all(np.isfinite(log_lik)):
        return None
    V = units.broadcast(np.exp(joint - log_lik[:, None]))
    return Reference(-float(log_lik.mean()), anid(V, U), anid(hard_labels(V), hard_labels(U)))
