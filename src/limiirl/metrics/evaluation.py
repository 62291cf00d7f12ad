"""`evaluate`: a fitted mixture judged by all that is known: demonstrations, whose they are, and the true rewards."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from limiirl.demos import Demonstrations
from limiirl.demos.checks import as_attribute
from limiirl.demos.units import Units
from limiirl.errors import DivergentPartition, InvalidParameter, NumericalError
from limiirl.mdp import MDP
from limiirl.mdp.ensemble import RewardEnsemble
from limiirl.metrics.clusterings import anid, hard, nid
from limiirl.metrics.intervals import mean_interval
from limiirl.metrics.likelihood import NLL, mixture_nll
from limiirl.mixture import checks

if TYPE_CHECKING:
    from limiirl.metrics.gevd import GEVD
    from limiirl.mixture import IntentMixture

Float = NDArray[np.float64]

_SHOWN = 12


@dataclass(frozen=True, eq=False)
class Recovery:
    """How well a mixture tells apart demonstrations whose intents are known.

    Attributes
    ----------
    labels : (L,)
        The known intents, sorted.
    counts : (L, K) int64
        Demonstrations of each known intent (rows) whose most likely learned intent is each (columns).
    intent : (L,) int64
        The learned intent that each known one is matched with, each at most once; -1 for none.
    accuracy : float
        Share of demonstrations that are given the intent matched with theirs.
    nid, anid : float
        Distances from the posterior: soft, as in the paper.
    nid_hard, anid_hard : float
        Distances from the most likely intents.
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
        """Return plain values for JSON."""
        fields = asdict(self).items()
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in fields}

    def __str__(self) -> str:
        n, (L, K) = int(self.counts.sum()), self.counts.shape
        width = max(len(str(label)) for label in [*self.labels[:_SHOWN], "label"])
        intents = "intent" if L == 1 else "intents"
        lines = [
            f"Against {n} labels of {L} {intents}: {100 * self.accuracy:.1f} % right after matching",
            f"  NID   {self.nid:.4f} soft, {self.nid_hard:.4f} hard",
            f"  ANID  {self.anid:.4f} soft, {self.anid_hard:.4f} hard (0 is perfect, 1 is chance)",
            f"  {'label':>{width}}  {'  '.join(f'intent {k}' for k in range(K))}  matched with",
        ]
        for label, row, intent in zip(self.labels[:_SHOWN], self.counts, self.intent, strict=False):
            cells = "  ".join(f"{count:>{len(f'intent {k}')}}" for k, count in enumerate(row))
            lines.append(f"  {label!s:>{width}}  {cells}  {'nobody' if intent < 0 else f'intent {intent}'}")
        return "\n".join(lines + ([f"  ... {L - _SHOWN} more"] if L > _SHOWN else []))


@dataclass(frozen=True, eq=False)
class Reference:
    """The true ensemble under the mixture's own model, for comparison.

    Attributes
    ----------
    nll : float
        Mean NLL of the demonstrations, or groups, under the true rewards and shares.
    anid, anid_hard : float
        Distance of the learned posterior from the true ensemble's.
    """

    nll: float
    anid: float
    anid_hard: float


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """All that `evaluate` found; parts are None where nothing to compare with was given.

    Attributes
    ----------
    n_intents : int
    nll : NLL
    recovery : Recovery or None
    gevd : GEVD or None
    reference : Reference or None
        None also where the true rewards have no likelihood under the model.
    """

    n_intents: int
    nll: NLL
    recovery: Recovery | None = None
    gevd: GEVD | None = None
    reference: Reference | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
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
        counted = f"{score.n_demos.sum()} demonstrations, {score.n_steps.sum()} steps"
        grouped = f" in {n} groups" if score.unit == "groups" else ""
        head = f"{self.n_intents} intents on {counted}{grouped}"
        parts = [f"{head}\n  NLL   {mean} a {score.unit[:-1]}, {score.per_step:.4f} a step"]
        if self.recovery is not None:
            parts.append(str(self.recovery))
        if self.reference is not None:
            found = self.reference
            parts.append(
                "Against the true rewards under the same model\n"
                f"  NLL   {found.nll:.4f} a {score.unit[:-1]} with the true rewards\n"
                f"  ANID  {found.anid:.4f} soft, {found.anid_hard:.4f} hard from their posterior"
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
) -> Evaluation:
    """Judge a fitted mixture: its likelihood, and where they are known, the true intents and the true rewards.

    Parameters
    ----------
    mixture : IntentMixture
        Fitted, or loaded.
    demos : Demonstrations
        Best others than it was fitted to.
    labels : (N,), optional
        The known intent of each demonstration; `demos.labels` where there are such.
    truth : RewardEnsemble, optional
        The true shares and rewards, of the MDP that was fitted.
    groups : (N,), optional
        Demonstrations of a group share their intent.

    Examples
    --------
    >>> from limiirl import MDP, IntentMixture, MaxEnt
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], gamma=0.5, state_features=[[0], [1], [-1]])
    >>> demos = Demonstrations.from_lists([[0, 1], [0, 1], [0, 2]], labels=["left", "left", "right"])
    >>> mix = IntentMixture(2, MaxEnt(2, bounds=(-9, 9)), init=[1, 1, 0]).fit(mdp, demos)
    >>> print(evaluate(mix, demos))
    2 intents on 3 demonstrations, 6 steps
      NLL   0.65 ± 0.99 (95 %) a demonstration, 0.3238 a step
    <BLANKLINE>
    Against 3 labels of 2 intents: 100.0 % right after matching
      NID   0.0019 soft, 0.0000 hard
      ANID  0.0021 soft, 0.0000 hard (0 is perfect, 1 is chance)
      label  intent 0  intent 1  matched with
       left         0         2  intent 1
      right         1         0  intent 0
    >>> found = evaluate(mix, demos, truth=RewardEnsemble([0.5, 0.5], [[2.0], [-2.0]]))
    >>> round(found.gevd.value, 2), found.gevd.largest(1)[0].evd
    (0.33, 2.0)
    """
    if isinstance(labels, RewardEnsemble):
        raise InvalidParameter("labels must be known intents (N,); a RewardEnsemble was given. Pass it as truth=.")
    score = mixture_nll(mixture, demos, groups)
    U = mixture.predict_proba(demos, groups)
    known = demos.labels if labels is None else labels
    recovery = None if known is None else recover(known, U)
    K = len(mixture.weights_)
    if truth is None:
        return Evaluation(K, score, recovery)
    if not isinstance(truth, RewardEnsemble):
        raise InvalidParameter(f"truth must be a RewardEnsemble; got {type(truth).__name__}. Wrap weights and thetas.")
    if not isinstance(mixture.mdp_, MDP):
        raise InvalidParameter("GEVD plans in the MDP, and this mixture was fitted without one. Leave out truth.")
    from limiirl.metrics.gevd import gevd

    found = gevd(mixture.mdp_, truth, mixture.ensemble_)
    return Evaluation(K, score, recovery, found, _reference(mixture, demos, truth, groups, U))


def recover(labels: ArrayLike, U: ArrayLike) -> Recovery:
    """Compare known intents (N,), numbers or names, with a posterior (N, K).

    Examples
    --------
    >>> found = recover(["a", "a", "b"], [[0.1, 0.9], [0.6, 0.4], [0.9, 0.1]])
    >>> found.counts.tolist(), found.intent.tolist(), round(found.accuracy, 3)
    ([[1, 1], [1, 0]], [1, 0], 0.667)
    """
    posterior = np.asarray(U, dtype=np.float64)
    told = hard(posterior)
    given = cast("NDArray[Any]", as_attribute(labels, "labels", len(posterior)))
    names, index = np.unique(given, return_inverse=True)
    counts = np.rint(np.eye(names.size)[index].T @ told).astype(np.int64)
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
        nid_hard=nid(index, told),
        anid_hard=anid(index, told),
    )


def _reference(
    mixture: IntentMixture, demos: Demonstrations, truth: RewardEnsemble, groups: ArrayLike | None, U: Float
) -> Reference | None:
    """Return what the true ensemble says about the demonstrations under the mixture's model, if it says anything."""
    checks.fitted(mixture)
    units, used = Units.of(groups, len(demos)), truth.weights > 0.0
    try:
        log_p = units.total(np.asarray(mixture.irl_.log_prob(mixture.mdp_, truth.thetas[used], demos)))
    except (DivergentPartition, NumericalError):
        return None  # the true rewards may lie where this model has no finite sum
    joint = log_p + np.log(truth.weights[used])
    log_lik = np.logaddexp.reduce(joint, axis=1)
    if not np.all(np.isfinite(log_lik)):
        return None
    V = units.spread(np.exp(joint - log_lik[:, None]))
    return Reference(-float(log_lik.mean()), anid(V, U), anid(hard(V), hard(U)))
