"""Who follows which intent, as a table to print or to write."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl.demos.agents import Agents
from limiirl.demos.units import Units
from limiirl.errors import InvalidFile
from limiirl.files import atomic_write

if TYPE_CHECKING:
    from limiirl.mixture.estimator import IntentMixture

_SHOWN = 20
_PLURALS = {"demo": "demonstrations", "group": "groups", "agent": "agents"}


@dataclass(frozen=True, eq=False)
class Membership:
    """A row for each demonstration, group or agent: name, most likely intent, posterior (G, K), log-likelihood."""

    unit: str
    names: NDArray[Any]
    intent: NDArray[np.int64]
    posterior: NDArray[np.float64]
    log_likelihood: NDArray[np.float64]

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists for JSON."""
        columns = ("intent", "posterior", "log_likelihood")
        return {self.unit: self.names.tolist()} | {name: getattr(self, name).tolist() for name in columns}

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write a .csv or .parquet file with a column for each intent's probability, whole or not at all."""
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.parquet as pq

        columns = {self.unit: self.names, "intent": self.intent}
        columns |= {f"probability_{k}": column for k, column in enumerate(self.posterior.T)}
        table = pa.table({name: pa.array(values) for name, values in columns.items()})
        table = table.append_column("log_likelihood", pa.array(self.log_likelihood))
        check_suffix(path)
        with atomic_write(path) as scratch:
            if Path(path).suffix == ".csv":
                pyarrow.csv.write_csv(table, scratch)
            else:
                pq.write_table(table, scratch)

    def __str__(self) -> str:
        n, K = self.posterior.shape
        counts = np.bincount(self.intent, minlength=K)
        shares = ", ".join(f"intent {k}: {count}" for k, count in enumerate(counts))
        lines = [f"{n} {_PLURALS[self.unit]} ({shares})", ""]
        lines.append(f"{self.unit:>12}  intent  {'  '.join(f'p({k})' for k in range(K))}  log-likelihood")
        for i in range(min(n, _SHOWN)):
            posterior = " ".join(f"{p:5.3f}" for p in self.posterior[i])
            lines.append(f"{self.names[i]!s:>12}  {self.intent[i]:>6}  {posterior}  {self.log_likelihood[i]:14.3f}")
        if n > _SHOWN:
            lines.append(f"{'...':>12}  {n - _SHOWN} more")
        return "\n".join(lines)


def check_suffix(path: str | os.PathLike[str]) -> None:
    """Check that `Membership.write` can write such a file there."""
    if Path(path).suffix not in (".csv", ".parquet"):
        raise InvalidFile(f"{path} must end in .csv or .parquet.")
    if not Path(path).parent.is_dir():
        raise InvalidFile(f"{path} cannot be written: there is no folder {Path(path).parent}. Make it first.")


def membership(
    mixture: IntentMixture, demos: Any, groups: ArrayLike | None = None, *, partial: bool = False
) -> Membership:
    """Return who follows which intent: a row for each of some Demonstrations or Agents, or for each group.

    Examples
    --------
    >>> from limiirl import MDP, Demonstrations, IntentMixture, MaxEnt
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0], [1], [-1]])
    >>> demos = Demonstrations.from_lists([[0, 1], [0, 1], [0, 2]])
    >>> mix = IntentMixture(2, MaxEnt(bounds=(-3, 3)), init=[0, 0, 1]).fit(mdp, demos)
    >>> print(membership(mix, demos))
    3 demonstrations (intent 0: 2, intent 1: 1)
    <BLANKLINE>
            demo  intent  p(0)  p(1)  log-likelihood
               0       0  0.999 0.001          -0.454
               1       0  0.999 0.001          -0.454
               2       1  0.005 0.995          -1.147
    """
    units = Units.of(groups, len(demos))
    posterior = mixture.predict_proba(demos, groups, partial=partial)
    log_likelihood = mixture.score_samples(demos, groups, partial=partial)
    known = demos.names if isinstance(demos, Agents) else demos.ids
    names = np.arange(len(demos)) if known is None else known
    if units.index is not None:
        _, first = np.unique(units.index, return_index=True)
        posterior, names = posterior[first], units.names
    unit = "group" if units.grouped else "agent" if isinstance(demos, Agents) else "demo"
    return Membership(unit, names, np.argmax(posterior, axis=1), posterior, log_likelihood)
