"""How well K intents predict demonstrations that were left out, and whether another sample would give the same intents.

Both refit the mixture to parts of the data. The parts are the same for every K, so that numbers of intents are
compared on the same demonstrations; seeds depend on K and the part alone, not on which other K are looked at.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from limiirl.demos import Demonstrations
from limiirl.demos.units import Units
from limiirl.errors import InvalidParameter
from limiirl.irl import MaxEnt
from limiirl.irl import checks as irl_checks
from limiirl.mixture import checks
from limiirl.mixture.estimator import IntentMixture
from limiirl.mixture.init import is_given

Float = NDArray[np.float64]
Int = NDArray[np.int64]
T = TypeVar("T")

# The share of the units in each resample.
RESAMPLED = 0.8
# Refits end once the objective rises by less than this many nats a unit. They are compared for differences a hundred
# times as large, and with an intent too many EM creeps on for long, to settle who shares it.
REFIT_TOL = 1e-5
# What a seed is for.
_WHOLE, _FOLDS, _FOLD, _RESAMPLES, _RESAMPLE, _STICKS = range(6)


@dataclass
class Notes:
    """What went wrong on the way to one row: errors that were survived, and warnings."""

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def attempt(self, what: str, call: Callable[[], T]) -> T | None:
        """Return what a call returns, or None where it fails on the data, noting why."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                return call()
            except (
                ValueError,
                ArithmeticError,
                RuntimeError,
            ) as error:  # ours are ValueErrors, others' models raise all
                self.errors.append(f"{what}: {error}")
                return None
            finally:
                self.warnings += [str(warning.message) for warning in caught]


@dataclass(frozen=True, eq=False)
class Problem:
    """A mixture to fit with several numbers of intents, to all units or to some.

    Attributes
    ----------
    mixture : IntentMixture
        Its parameters but `n_intents` and `random_state` are used.
    groups : (N,) or None
    units : Units
        What the groups make of the demonstrations.
    entropy : int
        The root of all seeds.
    blocks : (G,) or None
        Numbers of those whose units stay in one fold.
    """

    mixture: IntentMixture
    mdp: Any
    demos: Demonstrations
    groups: NDArray[Any] | None
    units: Units
    entropy: Any
    blocks: Int | None = None

    @classmethod
    def of(
        cls,
        mixture: IntentMixture,
        mdp: Any,
        demos: Demonstrations,
        groups: ArrayLike | None,
        random_state: Any,
        fold_groups: ArrayLike | None = None,
    ) -> Problem:
        """Return a problem whose model's longest trajectory does not depend on the part of the data that it sees."""
        irl = MaxEnt() if mixture.irl is None else checks.fresh(mixture.irl)
        if getattr(irl, "max_length", 0) is None:
            irl.set_params(max_length=int(checks.demonstrations(demos).lengths.max()))
        units = Units.among(groups, checks.demonstrations(demos))
        names = None if groups is None else units.spread(units.names)
        seed = checks.seeds(mixture.random_state if random_state is None else random_state, 1)[0]
        blocks = _blocks(fold_groups, groups, len(demos))
        return cls(clone(mixture).set_params(irl=irl), mdp, demos, names, units, seed.entropy, blocks)

    def check(self, most: int, folds: int, resamples: int) -> None:
        """Check everything that would otherwise fail in the middle of the work, `most` intents included."""
        checks.settings(self.mixture)
        init, n, noun = self.mixture.init, len(self.units), self.units.noun
        if is_given(init):
            raise InvalidParameter(
                f"select_intents needs an init that works for any number of intents and any part of the data; "
                f"{type(init).__name__} does not. Pass a name, a clusterer or a function."
            )
        for value, name in ((folds, "folds"), (resamples, "resamples")):
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 0 or value == 1:
                raise InvalidParameter(f"{name} must be a whole number of at least 2, or 0 for none; it is {value!r}.")
        blocks = np.arange(n) if self.blocks is None else self.blocks
        held = noun if self.blocks is None else "fold_groups"
        if folds > blocks.max() + 1:
            raise InvalidParameter(
                f"folds={folds} is more than the {blocks.max() + 1} {held}. Use at most {blocks.max() + 1}."
            )
        smallest = [(n, f"there are {n} {noun}")]
        if folds:
            left = n - int(np.bincount(self.folds(folds)).max())
            smallest.append((left, f"{folds} folds leave {left} of {n} {noun} to fit"))
        if resamples:
            left = resample_size(n)
            smallest.append((left, f"a resample has {left} of {n} {noun}"))
        possible, why = min(smallest)
        if most > possible:
            raise InvalidParameter(
                f"n_intents must be at most {possible}, since {why}; the largest is {most}. Use fewer, or pass folds=0 "
                "and resamples=0 to go without what needs refits."
            )

    def fit(self, n_intents: int) -> IntentMixture:
        """Return the mixture fitted to all demonstrations."""
        return self._fitted(n_intents, (_WHOLE, n_intents), None)

    def fit_fold(self, n_intents: int, fold: int, chosen: NDArray[np.bool_]) -> IntentMixture:
        """Return the mixture fitted to the chosen units (G,), a fold's training data."""
        return self._fitted(n_intents, (_FOLD, n_intents, fold), chosen)

    def fit_resample(self, n_intents: int, i: int, chosen: NDArray[np.bool_]) -> IntentMixture:
        """Return the mixture fitted to the chosen units (G,), a resample."""
        return self._fitted(n_intents, (_RESAMPLE, n_intents, i), chosen)

    def _fitted(self, n_intents: int, key: tuple[int, ...], chosen: NDArray[np.bool_] | None) -> IntentMixture:
        mixture: IntentMixture = clone(self.mixture)
        mixture.set_params(n_intents=n_intents, random_state=self.seed(*key), callback=None, verbose=False)
        if chosen is None:
            return mixture.fit(self.mdp, self.demos, self.groups)
        if mixture.likelihood_tol is None:
            mixture.likelihood_tol = REFIT_TOL
        members = self.units.spread(chosen)
        if not (mixture.embedding is None or isinstance(mixture.embedding, str) or callable(mixture.embedding)):
            mixture.embedding = np.asarray(mixture.embedding)[members]
        return mixture.fit(self.mdp, *self.part(chosen))

    def part(self, chosen: NDArray[np.bool_]) -> tuple[Demonstrations, NDArray[Any] | None]:
        """Return the demonstrations of the chosen units (G,), and their groups."""
        members = self.units.spread(chosen)
        return self.demos[members], None if self.groups is None else self.groups[members]

    def folds(self, n: int) -> Int:
        """Return the fold (G,) of each unit, at random; numbers of units, or of blocks, differ by one at most."""
        blocks = np.arange(len(self.units)) if self.blocks is None else self.blocks
        order = self._rng(_FOLDS, n).permutation(int(blocks.max()) + 1)
        found = np.empty(order.size, dtype=np.int64)
        found[order] = np.arange(order.size) % n
        return found[blocks]

    def resample(self, i: int) -> NDArray[np.bool_]:
        """Return which units (G,) are in resample i: a share of `RESAMPLED`, without repetition."""
        n = len(self.units)
        found = np.zeros(n, dtype=bool)
        found[self._rng(_RESAMPLES, i).permutation(n)[: resample_size(n)]] = True
        return found

    def seed(self, *key: int) -> int:
        """Return a seed of its own for each key."""
        return int(np.random.SeedSequence(self.entropy, spawn_key=key).generate_state(1)[0])

    def sticks_seed(self) -> int:
        """Return the seed of the stick-breaking mixture."""
        return self.seed(_STICKS)

    def _rng(self, *key: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(self.entropy, spawn_key=key))


def _blocks(fold_groups: ArrayLike | None, groups: ArrayLike | None, n: int) -> Int | None:
    """Return the number (N,) of each demonstration's fold group."""
    if fold_groups is None:
        return None
    if groups is not None:
        raise InvalidParameter("With groups no group is split between folds anyway. Pass groups or fold_groups.")
    found = Units.of(fold_groups, n).index
    assert found is not None  # groups were given
    return found


def whole_numbers(n_intents: Iterable[int]) -> list[int]:
    """Return the numbers of intents to try, in order; 1 is always one of them.

    Examples
    --------
    >>> whole_numbers([4, 2, 2])
    [1, 2, 4]
    """
    try:
        given = list(n_intents)
    except TypeError:
        raise InvalidParameter(
            f"n_intents must be several whole numbers, such as range(1, 7); it is {n_intents!r}."
        ) from None
    return sorted({1, *(irl_checks.count(k, f"n_intents[{i}]") for i, k in enumerate(given))})


def resample_size(n: int) -> int:
    """Return the number of units in a resample of n.

    Examples
    --------
    >>> resample_size(100), resample_size(2)
    (80, 1)
    """
    return max(1, int(RESAMPLED * n))


def agreement(labels: list[Any]) -> float:
    """Return the mean adjusted Rand index between any two of several labellings; nan for fewer than two.

    Two labellings with one label alone each are left out: they agree fully, but on nothing.

    Examples
    --------
    >>> agreement([[0, 0, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0]])
    1.0
    """
    told = [(a, b) for a, b in combinations(labels, 2) if np.unique(a).size > 1 or np.unique(b).size > 1]
    pairs = [adjusted_rand_score(a, b) for a, b in told]
    return float(np.mean(pairs)) if pairs else float("nan")
