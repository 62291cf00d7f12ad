"""Choice of ridge coefficients by cross-validation, with warm starts along a path of penalties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from limiirl._io import to_pandas
from limiirl._progress import Progress, check_progress, report_progress
from limiirl._typing import FloatArray
from limiirl._validation import as_generator, check_count, check_positive
from limiirl.demos import Demonstrations, Groups
from limiirl.errors import InvalidParameter
from limiirl.irl import validate
from limiirl.mdp import MDP


@dataclass(frozen=True, eq=False)
class PenaltyPath:
    """Held-out log-likelihood of each combination of ridge coefficients.

    Attributes
    ----------
    ridges : list of dict
        Coefficient of each pattern of feature names, per combination.
    scores : (P, F)
        Mean held-out log-likelihood per demonstration of each combination and fold.
    best : int
        Index of the combination with the highest mean score.
    model : model
        Copy of the model with the best coefficients, fitted to all demonstrations.
    """

    ridges: list[dict[str, float]]
    scores: FloatArray
    best: int
    model: Any

    @property
    def ridge(self) -> dict[str, float]:
        """The coefficients with the highest mean score."""
        return self.ridges[self.best]

    @property
    def theta(self) -> FloatArray:
        """Reward parameters (d,) of the fit with the best coefficients."""
        return np.asarray(self.model.theta_)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per combination: coefficients, mean score and its standard error."""
        columns: dict[str, Any] = {name: [ridge[name] for ridge in self.ridges] for name in self.ridges[0]}
        n = self.scores.shape[1]
        columns["score"] = self.scores.mean(axis=1)
        columns["error"] = self.scores.std(axis=1, ddof=1) / np.sqrt(n)
        return to_pandas(columns)


def select_penalty(  # noqa: PLR0913 (keyword-only options with defaults)
    mdp: MDP,
    demos: Demonstrations,
    irl: Any,
    grid: Mapping[str, Sequence[float]],
    *,
    n_folds: int = 5,
    groups: ArrayLike | None = None,
    seed: int | np.random.Generator | None = 0,
    progress: Progress | None = None,
    verbose: bool = False,
) -> PenaltyPath:
    """Choose the ridge coefficients of blocks of features by the likelihood of held-out demonstrations.

    Combinations of the grid are fitted from the strongest to the weakest penalty. Each fit starts from the solution of
    the previous one.

    Parameters
    ----------
    mdp : MDP
    demos : Demonstrations
    irl : model
        `MaxEnt`, `MaxCausalEnt`, `MLIRL` or `DestinationMaxEnt`; its ridge is replaced.
    grid : mapping of str to sequence of float
        Candidate coefficients of each pattern of feature names, such as ``{"link *": [1e-3, 1e-4]}``.
    n_folds : int
    groups : (N,), optional
        Groups that are held out together, such as drivers or animals; the groups of `demos` by default.
    seed : int, Generator or None
        Seed of the folds.
    progress, verbose
        As for `IntentMixture`.

    Returns
    -------
    PenaltyPath

    Examples
    --------
    >>> from limiirl import MaxEnt
    >>> mdp = MDP.from_edges([0, 0, 1, 2], [1, 2, 3, 3], p0=[1, 0, 0, 0], state_features=[[0], [1], [0], [0]])
    >>> demos = Demonstrations.from_lists([[0, 1, 3], [0, 2, 3]] * 10)
    >>> select_penalty(mdp, demos, MaxEnt(bounds=None), {"*": [10.0, 0.1, 0.0]}).ridge
    {'*': 10.0}
    """
    validate.mdp(mdp)
    check_progress(progress)
    demos = validate.in_numbers_of(mdp, demos)
    n_folds = check_count(n_folds, "n_folds", least=2)
    folds = _assign_folds(demos, demos.groups if groups is None else groups, n_folds, seed)
    ridges = list(_combinations(grid))
    validate.ridge(ridges[0], mdp.feature_names)
    base = clone(irl)
    if getattr(base, "max_length", np.inf) is None:
        base.set_params(max_length=int(demos.lengths.max()))
    scores = np.empty((len(ridges), n_folds))
    with report_progress("penalties", verbose, progress) as report:
        for fold in range(n_folds):
            held_out, start = folds == fold, None
            for i, ridge in enumerate(ridges):
                model = clone(base).set_params(ridge=ridge)
                train = demos[~held_out]
                start = model.fit_many(mdp, train, np.ones((len(train), 1)), start)
                scores[i, fold] = np.mean(model.log_prob(mdp, start, demos[held_out]))
                if report is not None:
                    report(fold * len(ridges) + i + 1, n_folds * len(ridges), f"fold {fold + 1} of {n_folds}")
    best = int(np.argmax(scores.mean(axis=1)))
    model = clone(base).set_params(ridge=ridges[best])
    model.fit(mdp, demos)
    return PenaltyPath(ridges, scores, best, model)


def _combinations(grid: Mapping[str, Sequence[float]]) -> Iterator[dict[str, float]]:
    """Yield the combinations of coefficients, from strong to weak."""
    if not isinstance(grid, Mapping) or not grid:
        raise InvalidParameter.of("grid", grid, "must map patterns of feature names to sequences of coefficients")
    axes = []
    for name, values in grid.items():
        checked = sorted({check_positive(value, "grid", zero=True) for value in np.atleast_1d(values)}, reverse=True)
        if not checked:
            raise InvalidParameter.of("grid", name, "must have at least one coefficient per pattern")
        axes.append(checked)
    for values in product(*axes):
        yield dict(zip(grid, values, strict=True))


def _assign_folds(demos: Demonstrations, groups: ArrayLike | None, n_folds: int, seed: Any) -> Any:
    """Return the fold (N,) of each demonstration; the demonstrations of a group are in one fold."""
    units = Groups.for_demos(groups, demos)
    if len(units) < n_folds:
        raise InvalidParameter.of("n_folds", n_folds, f"must be at most {len(units)}, the number of {units.noun}")
    fold = as_generator(seed).permutation(np.arange(len(units)) % n_folds)
    return units.broadcast(fold)
