"""What one trial came to: a flat record, the same whenever it is computed again, times apart.

On one machine with the same packages it is so to the last bit; elsewhere sums may be taken in another order.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

MEASURED = ("seconds_start", "seconds_em")
"""Fields that are measured on a machine, and so differ between runs."""


@dataclass(frozen=True)
class Record:
    """The outcome of one trial, keyed by its specification's hash and its seed.

    The scores carry the suffix `_start` for the mixture with which EM began. A trial that failed has its `error`, and
    None for everything that was not reached.

    Attributes
    ----------
    spec, seed : str, int
        The key.
    error, trace : str
        Empty, or what went wrong in one line, and Python's trace of it.
    max_length : int
        L of the model.
    n_iter, converged : int, bool
        Of EM. The supervised baseline makes no iteration.
    seconds_start, seconds_em : float
        Wall time of the initialisation, and of EM.
    margin : float
        Mean over pairs of intents of the smallest distance between their demonstrations' features.
    change : float
        Realised epsilon: how far the first E-step moves from the clusters of the warm start.
    nll, train_nll : float
        Of the test and training demonstrations.
    anid, anid_hard : float
        Of the test demonstrations' posterior, and of their most likely intents, from the true labels.
    anid_truth : float
        The same from the posterior of the true ensemble under the same model.
    accuracy : float
        Share of the test demonstrations, or test agents, whose most likely intent is the true one, after the best
        matching of intents.
    gevd, gevd_normalised : float
        None where rewards cannot be compared with the truth.
    weights, thetas : (K,), (K, d)
    history : list of float
        Mean NLL of the training demonstrations by iteration of EM; the first is the start's.
    """

    spec: str
    seed: int
    error: str = ""
    trace: str = ""
    max_length: int | None = None
    n_iter: int | None = None
    converged: bool | None = None
    seconds_start: float | None = None
    seconds_em: float | None = None
    margin: float | None = None
    change: float | None = None
    nll_start: float | None = None
    nll: float | None = None
    train_nll_start: float | None = None
    train_nll: float | None = None
    anid_start: float | None = None
    anid: float | None = None
    anid_hard_start: float | None = None
    anid_hard: float | None = None
    anid_truth_start: float | None = None
    anid_truth: float | None = None
    accuracy_start: float | None = None
    accuracy: float | None = None
    gevd_start: float | None = None
    gevd: float | None = None
    gevd_normalised_start: float | None = None
    gevd_normalised: float | None = None
    weights_start: list[float] | None = None
    weights: list[float] | None = None
    thetas_start: list[list[float]] | None = None
    thetas: list[list[float]] | None = None
    history: list[float] | None = None

    @property
    def key(self) -> tuple[str, int]:
        """Hash of the specification, and seed."""
        return self.spec, self.seed

    @property
    def failed(self) -> bool:
        """Whether the trial ended in an error."""
        return bool(self.error)

    @property
    def seconds(self) -> float | None:
        """Wall time of initialisation and EM together: the paper's duration."""
        if self.seconds_start is None or self.seconds_em is None:
            return None
        return self.seconds_start + self.seconds_em

    def reproducible(self) -> dict[str, Any]:
        """Return all fields but those that are measured: what any run of the same trial must come to.

        >>> Record("ab", 0, seconds_em=1.0).reproducible() == Record("ab", 0, seconds_em=2.0).reproducible()
        True
        """
        return {name: value for name, value in asdict(self).items() if name not in MEASURED}


FIELDS = tuple(field.name for field in fields(Record))
