"""The convergence monitor of EM: history, stopping rule and reports; and the display of both estimators' progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from limiirl._typing import FloatArray

if TYPE_CHECKING:
    from limiirl.mixture.bayesian.search import SearchStep


@dataclass(frozen=True, eq=False)
class Iteration:
    """One line of a mixture's history.

    Attributes
    ----------
    iteration : int
        0 is the initial ensemble; n the ensemble after n M-steps.
    log_likelihood : float
        Mean over units of the log-likelihood of the mixture.
    objective : float
        The same less the model's penalty: what never falls but for an `event`.
    change : float
        Mean over units of the absolute change of responsibilities, summed over intents. At iteration 0 it is measured
        from the clusters of a warm start (the realised epsilon of the paper's theorem 1), nan without any.
    weights : (K,)
    n_evaluations : int
        Values and gradients that the M-step took, the most of any intent; 0 where the model does not tell.
    temperature : float
    event : str
        Empty, or why the objective may have fallen: "start", "projected" (from rewards outside the bounds),
        "annealed", "reseeded 2". Or a move that `refine` took, over which it rose: "split 2, merged 0 into 1"; such
        an entry stands for several M-steps, so that `iteration` goes up by as many.
    """

    iteration: int
    log_likelihood: float
    objective: float
    change: float
    weights: FloatArray
    n_evaluations: int = 0
    temperature: float = 1.0
    event: str = ""


Callback = Callable[[Iteration], None]


class EMProgress(NamedTuple):
    """The report of one iteration of EM, which `IntentMixture(callback=)` is called with.

    Attributes
    ----------
    done, total : int
        M-steps of this start, and the most that it may take.
    message : str
    restart : int
        The number of the start, from 0.
    iteration : Iteration
    """

    done: int
    total: int
    message: str
    restart: int
    iteration: Iteration


class ConvergenceMonitor:
    """History, stopping rule and reports of one run of EM.

    Parameters
    ----------
    max_iter : int
        Most M-steps after the start.
    tol : float
        EM has converged when the mean absolute change of responsibilities is below this (the paper's rule).
    likelihood_tol : float, optional
        It has also converged when the objective rises by less than this.
    callback : callable, optional
        Given each `Iteration`.

    Examples
    --------
    >>> import numpy as np
    >>> monitor = ConvergenceMonitor(10, 1e-3)
    >>> for number, change in enumerate((np.nan, 0.5, 1e-4)):
    ...     monitor.record(Iteration(number, -1.0, -1.0, change, np.ones(1)))
    >>> monitor.converged, len(monitor.history)
    (True, 3)
    """

    def __init__(
        self, max_iter: int, tol: float, likelihood_tol: float | None = None, callback: Callback | None = None
    ) -> None:
        self.max_iter, self.tol, self.likelihood_tol, self.callback = max_iter, tol, likelihood_tol, callback
        self.history: list[Iteration] = []

    def record(self, entry: Iteration) -> None:
        """Append an iteration to the history, and report it."""
        self.history.append(entry)
        if self.callback is not None:
            self.callback(entry)

    @property
    def converged(self) -> bool:
        """Whether a stopping rule holds after the last iteration."""
        if len(self.history) < 2:
            return False
        last, before = self.history[-1], self.history[-2]
        if last.event or last.temperature != 1.0:
            return False
        if last.change < self.tol:
            return True
        return self.likelihood_tol is not None and last.objective - before.objective < self.likelihood_tol

    @property
    def stops(self) -> bool:
        """Whether EM has converged, or has used up its iterations."""
        return len(self.history) > self.max_iter or self.converged


Reports = Callable[[int], Callback | None]


@contextmanager
def reporting(
    verbose: bool, n_starts: int, max_iter: int, callback: Callable[[EMProgress], None] | None
) -> Iterator[Reports]:
    """Yield a factory: number of a start -> callback of its EM."""

    def report(start: int, entry: Iteration) -> None:
        if callback is not None:
            name = f"start {start + 1} of {n_starts}: " if n_starts > 1 else ""
            message = f"{name}log-likelihood {entry.log_likelihood:.4f}, change {entry.change:.1e}"
            callback(EMProgress(entry.iteration, max_iter, message, start, entry))

    if not verbose:
        yield lambda start: None if callback is None else lambda entry: report(start, entry)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("log-likelihood {task.fields[value]}, change {task.fields[change]}"),
    )
    # On stderr, so that a command's output stays clean.
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:

        def show_start(start: int) -> Callback:
            name = "EM" if n_starts == 1 else f"EM, start {start + 1} of {n_starts}"
            task = bar.add_task(name, total=max_iter, value="", change="")

            def show(entry: Iteration) -> None:
                value, change = f"{entry.log_likelihood:.4f}", f"{entry.change:.1e}"
                bar.update(task, completed=entry.iteration, value=value, change=change)
                report(start, entry)

            return show

        yield show_start


SearchCallback = Callable[["SearchStep"], None]


@contextmanager
def searching(verbose: bool, callback: SearchCallback | None) -> Iterator[SearchCallback | None]:
    """Yield what to call with each step of a search.

    Examples
    --------
    >>> with searching(False, None) as told:
    ...     print(told)
    None
    """
    if not verbose:
        yield callback
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    # On stderr, so that a command's output stays clean.
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("first rewards", total=None)

        def show(step: SearchStep) -> None:
            said = f"{step.event}: {step.n_intents} intents, bound {step.bound:.3f}"
            bar.update(task, advance=1, description=said)
            if callback is not None:
                callback(step)

        yield show
