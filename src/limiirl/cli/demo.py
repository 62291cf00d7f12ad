"""What `limiirl demo` does: sample three intents of ElementWorld, fit a reward to each, compare with the truth."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limiirl import MaxEnt
from limiirl.errors import InvalidParameter
from limiirl.worlds import ElementWorld

Float = NDArray[np.float64]
MAX_LENGTH = 30


@dataclass(frozen=True)
class Recovered:
    """True and fitted rewards (K, d) of the world's intents, with standard errors, nan at a bound."""

    world: ElementWorld
    n: int
    truth: Float
    fitted: Float
    errors: Float

    def as_dict(self) -> dict[str, Any]:
        """Return plain lists for JSON; None stands for no standard error."""
        errors = [[None if np.isnan(e) else e for e in row] for row in self.errors.tolist()]
        names = list(self.world.mdp.feature_names)
        return {"features": names, "truth": self.truth.tolist(), "fitted": self.fitted.tolist(), "errors": errors}


def recover(n: int, seed: int) -> Recovered:
    """Draw n trajectories of each intent from the exact model, and fit the reward that explains them."""
    if n < 1:
        raise InvalidParameter(f"demos must be at least 1; it is {n}.")
    world = ElementWorld(seed=seed)
    irl = MaxEnt(max_length=MAX_LENGTH)
    # Mild tastes: at the paper's -10 nobody ever sets foot on a foreign element, and no data could tell -10 from -9.
    truth = np.clip(world.ensemble.thetas, -2.5, 0.0)
    fitted, errors = np.empty_like(truth), np.empty_like(truth)
    for k, theta in enumerate(truth):
        fitted[k] = irl.fit(world.mdp, irl.sample(world.mdp, theta, n, seed=seed + k))
        errors[k] = _standard_errors(irl, world, fitted[k], n)
    return Recovered(world, n, truth, fitted, errors)


def _standard_errors(irl: MaxEnt, world: ElementWorld, theta: Float, n: int) -> Float:
    """Return (d,) standard errors from the exact Hessian; nan where the parameter lies on a bound."""
    free = ~np.isin(np.array(world.mdp.feature_names), irl.result_.at_bound)
    found = np.full(theta.size, np.nan)
    information = n * irl.hessian(world.mdp, theta)[np.ix_(free, free)]
    found[free] = np.sqrt(np.diag(np.linalg.inv(information)))
    return found


def table(found: Recovered) -> None:
    """Print the comparison."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(found.world.mdp, highlight=False)
    console.print(f"\n{found.n} trajectories of each intent, at most {MAX_LENGTH} states long.", highlight=False)
    console.print("Rewards: the true one, then the one fitted with its standard error.\n", highlight=False)
    grid = Table("feature", *(f"intent {k + 1}" for k in range(len(found.truth))))
    for j, name in enumerate(found.world.mdp.feature_names):
        shown = zip(found.truth[:, j], found.fitted[:, j], found.errors[:, j], strict=True)
        grid.add_row(name, *(f"{true:5.2f} → {fit:5.2f} {_spread(error)}" for true, fit, error in shown))
    console.print(grid)
    distance = np.nanmax(np.abs(found.fitted - found.truth) / found.errors)
    console.print(f"Largest distance from the truth: {distance:.1f} standard errors.", highlight=False)


def _spread(error: float) -> str:
    return "bound" if np.isnan(error) else f"±{error:.2f}"
