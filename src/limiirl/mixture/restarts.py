"""Several starts of EM, here or on the workers of an engine; what they found, and how far their solutions lie apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiirl.demos import Demonstrations
from limiirl.irl.prepared import Prepared, prepare
from limiirl.mdp.ensemble import RewardEnsemble
from limiirl.mixture.align import assign
from limiirl.mixture.em import Settings, Solution, run
from limiirl.mixture.progress import Told
from limiirl.mixture.split_merge import refine
from limiirl.mixture.spread import Mapper, spread
from limiirl.mixture.starts import Starts

if TYPE_CHECKING:
    from limiirl.mixture.estimator import IntentMixture

Float = NDArray[np.float64]
Seed = np.random.SeedSequence
# Objectives (nats a unit) closer than this are the same solution, reached to within EM's tolerance.
_SAME_OBJECTIVE = 1e-5


@dataclass(frozen=True)
class Restart:
    """One start of EM.

    Attributes
    ----------
    objective : float
        Mean penalised log-likelihood.
    n_iter, converged : int, bool
    ensemble : RewardEnsemble
        Intents in the order of the best solution's.
    distance : float
        Share of the units that would have to change intent to turn this solution into the best.
    best : bool
        Whether it reached the best objective.
    """

    objective: float
    n_iter: int
    converged: bool
    ensemble: RewardEnsemble
    distance: float
    best: bool


def compare(solutions: list[Solution], best: Solution) -> list[Restart]:
    """Return what each start found, aligned with the best."""
    found = []
    for solution in solutions:
        order = assign(-(best.U.T @ solution.U))
        distance = 0.5 * float(np.mean(np.sum(np.abs(solution.U[:, order] - best.U), axis=1)))
        found.append(
            Restart(
                solution.objective,
                solution.n_iter,
                solution.converged,
                RewardEnsemble(solution.rho[order], solution.thetas[order]),
                distance,
                best.objective - solution.objective <= _SAME_OBJECTIVE,
            )
        )
    return found


class Outcome(NamedTuple):
    """What one start led to.

    Attributes
    ----------
    solution : Solution
    empty : tuple of int
        Intents that had no members where it began.
    model : object
        The single-intent model afterwards: one without a `prepare` may keep what its `fit` has settled.
    """

    solution: Solution
    empty: tuple[int, ...]
    model: Any


class FromStart:
    """EM from one of several starts, as a function of the start's number and its seed.

    Copies for workers leave what was prepared behind; each prepares once, whatever the number of its starts.

    Parameters
    ----------
    mixture : IntentMixture
        Whose parameters to use.
    irl : model
        Its model, fresh.
    settings : Settings
    mdp, demos, groups
        What `IntentMixture.fit` is given.
    """

    def __init__(
        self, mixture: IntentMixture, irl: Any, settings: Settings, mdp: Any, demos: Demonstrations, groups: Any
    ) -> None:
        self.n_intents, self.reward_init, self.refine = mixture.n_intents, mixture.reward_init, mixture.refine
        self.init, self.embedding = mixture.init, mixture.embedding
        self.irl, self.settings = irl, settings
        self.mdp, self.demos, self.groups = mdp, demos, groups
        self._told: Told | None = None
        self._starts: Starts | None = None

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_told": None, "_starts": None}

    @property
    def starts(self) -> Starts:
        """The `init` with the data that it is applied to."""
        if self._starts is None:
            prepared = prepare(self.irl, self.mdp, self.demos, self.groups)
            self._starts = Starts(self.init, self.embedding, prepared)
        return self._starts

    @property
    def prepared(self) -> Prepared:
        """The model with its data."""
        return self.starts.prepared

    def __call__(self, task: tuple[int, Seed]) -> Outcome:
        """Return what EM finds from start i."""
        i, seed = task
        rng, tell = np.random.default_rng(seed), None if self._told is None else self._told(i)
        start = self.starts.begin(self.n_intents, self.reward_init, rng, first=i == 0)
        found = run(self.prepared, start, self.settings, tell)
        if self.refine is not None:
            found = refine(self.prepared, found, self.settings, tell)
        return Outcome(found, start.empty, None if hasattr(self.irl, "prepare") else self.irl)

    def run(self, seeds: Sequence[Seed], told: Told, engine: Mapper | None) -> list[Outcome]:
        """Return what EM finds from each start, in their order; an engine tells of a start when it has ended."""
        self._told = told if engine is None else None
        outcomes = []
        for i, outcome in enumerate(spread(self, enumerate(seeds), engine)):
            outcomes.append(outcome)
            if engine is not None and (tell := told(i)) is not None:
                for entry in outcome.solution.history:
                    tell(entry)
        model = outcomes[-1].model
        if engine is not None and model is not None:
            self.irl, self._starts = model, None
        return outcomes
