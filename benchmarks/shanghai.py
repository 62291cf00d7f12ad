"""Route prediction for taxis in Shanghai given both ends: 5-fold cross-validation with one or more intents.

The folds are random and not those of the authors, which `limiirl reproduce rivals --part shanghai` uses.

Run as `python -m benchmarks.shanghai` from the root of a checkout with the shared data. Finished folds are read from
`docs/results/shanghai/fold_N.json` and not run again. `--tables` only writes the tables from the finished folds.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from benchmarks import shanghai_data as data
from benchmarks.shanghai_table import write
from limiirl import MDP, Demonstrations, DestinationMaxEnt, IntentMixture, MaxEnt
from limiirl.forecast import Forecaster
from limiirl.metrics import edit_distance

Float = NDArray[np.float64]
OUT = Path(__file__).parents[1] / "docs" / "results" / "shanghai"
# Number of training paths from the other four folds; and, to select K, numbers of training and validation paths.
N_TRAIN, N_CHOOSE, N_JUDGE = 5_000, 2_000, 3_000
CHOICES = (1, 2, 3, 4)
# Length of the longest path, fixed before any fit; L of the model without destinations.
LONGEST = 49
BOUNDS = (-10.0, 0.0)


@dataclass(frozen=True)
class Method:
    """A method of route prediction.

    Attributes
    ----------
    irl : single-intent model
    intents : bool
        Whether to select the number of intents; otherwise it is one.
    lengths : bool
        Whether the length is the only feature.
    """

    irl: Any
    intents: bool = False
    lengths: bool = False


METHODS = {
    "shortest path": Method(DestinationMaxEnt(bounds=(-100.0, 0.0)), lengths=True),
    "destination, one intent": Method(DestinationMaxEnt(bounds=BOUNDS)),
    "destination, K intents": Method(DestinationMaxEnt(bounds=BOUNDS), intents=True),
    "no destination, one intent": Method(MaxEnt(LONGEST, bounds=BOUNDS)),
    "no destination, K intents": Method(MaxEnt(LONGEST, bounds=BOUNDS), intents=True),
    "from the start, one intent": Method(MaxEnt(LONGEST, bounds=BOUNDS, condition="start")),
    "from the start, K intents": Method(MaxEnt(LONGEST, bounds=BOUNDS, condition="start"), intents=True),
}


def mixture(irl: Any, n_intents: int, mdp: MDP, demos: Demonstrations, max_iter: int) -> IntentMixture:
    """Fit a mixture from a warm start; EM stops when the log-likelihood per path increases by less than 1e-5."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # EM may stop at max_iter; weights and bounds are in the results
        model = IntentMixture(n_intents, irl, max_iter=max_iter, likelihood_tol=1e-5, random_state=0)
        return model.fit(mdp, demos)


def log_likelihood(fit: IntentMixture, mdp: MDP, demos: Demonstrations) -> Float:
    """Return the log-likelihood (N,) of paths under the model."""
    log_p = fit.irl_.log_prob(mdp, fit.thetas_, demos)
    return np.asarray(logsumexp(log_p + np.log(fit.weights_), axis=1))


def log_ends(fit: IntentMixture, mdp: MDP, demos: Demonstrations) -> Float:
    """Return the log-probability (N,) of both ends of each path, for a model that does not condition on them.

    The sum over all paths of at most `LONGEST` links between two links is a sum of powers of the transition matrix.
    """
    if isinstance(fit.irl_, DestinationMaxEnt):
        return np.zeros(len(demos))
    log_p = np.empty((len(demos), len(fit.thetas_)))
    for k, theta in enumerate(fit.thetas_):
        r_state, r_edge = mdp.rewards(theta)
        moves = np.zeros((mdp.n_states, mdp.n_states))
        # Entries are summed, because two links may be connected by several turns.
        np.add.at(moves, (mdp.src, mdp.dst), np.exp(r_state[mdp.dst, 0] + (0.0 if r_edge is None else r_edge[:, 0])))
        power, total = np.eye(mdp.n_states), np.eye(mdp.n_states)
        for _ in range(LONGEST - 1):
            power = power @ moves
            total += power
        if fit.irl_.condition == "start":
            log_start = -np.log(total.sum(axis=1))
        else:
            log_start = np.log(mdp.p0) + r_state[:, 0] - fit.irl_.log_partition(mdp, theta)[0]
        log_p[:, k] = log_start[demos.start_states] + np.log(total[demos.start_states, demos.last_states])
    return np.asarray(logsumexp(log_p + np.log(fit.weights_), axis=1))


def run_method(method: Method, mdp: MDP, train: Demonstrations, judge: Demonstrations, test: Demonstrations) -> Any:
    """Return the results of one method on one fold as JSON types."""
    begun = time.perf_counter()
    if method.lengths:
        mdp = data.lengths_only(mdp)
    chosen, judged = 1, {}
    if method.intents:
        judged = {
            k: float(log_likelihood(mixture(method.irl, k, mdp, train[:N_CHOOSE], 15), mdp, judge).mean())
            for k in CHOICES
        }
        chosen = max(judged, key=lambda k: judged[k])
    fit = mixture(method.irl, chosen, mdp, train, 30)
    fitted = time.perf_counter() - begun
    log_p = log_likelihood(fit, mdp, test)
    # The intent of a new path is unknown, so intents are averaged with the mixture weights.
    routes = Forecaster(fit, train).predict_routes(test.start_states, test.last_states)
    edits = edit_distance(test, routes, normalised=True)
    raw = edit_distance(test, routes)
    return {
        "n_intents": chosen,
        "judged": judged,
        "log_likelihood": float(log_p.mean()),
        "log_likelihood_given_ends": float((log_p - log_ends(fit, mdp, test)).mean()),
        "edit_distance": float(edits.mean()),
        "exact": float(np.mean(raw == 0)),
        "weights": fit.weights_.tolist(),
        "thetas": fit.thetas_.tolist(),
        "features": list(mdp.feature_names),
        "iterations": int(fit.n_iter_),
        "seconds": fitted,
    }


def run_fold(fold: int, report: Callable[[str], None] = print) -> None:
    """Run the missing methods of a fold, and write each result immediately."""
    file = OUT / f"fold_{fold}.json"
    done: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    mdp, demos = data.read().mdp, data.read().demos
    mine = data.folds(len(demos)) == fold
    others = np.random.default_rng(fold).permutation(np.flatnonzero(~mine))
    train, judge = demos[others[:N_TRAIN]], demos[others[N_TRAIN : N_TRAIN + N_JUDGE]]
    for name, method in METHODS.items():
        if name not in done:
            done[name] = run_method(method, mdp, train, judge, demos[mine])
            OUT.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(done, indent=1) + "\n")
            summary = {key: done[name][key] for key in ("n_intents", "log_likelihood_given_ends", "exact", "seconds")}
            report(f"fold {fold}, {name}: {summary}")


def main() -> None:
    """Run the missing folds, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", action="store_true", help="only write the tables of finished folds")
    if not parser.parse_args().tables:
        for fold in range(data.N_FOLDS):
            run_fold(fold)
    write(OUT)


if __name__ == "__main__":
    main()
