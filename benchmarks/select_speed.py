"""Time of mixtures of a causal model with one reward per place: state elimination and Newton steps against L-BFGS.

Run as `python -m benchmarks.select_speed`. The recordings are simulated: animals walk in a binary tree of 127 places,
drawn to one of two ends, and rarely turn back. As `limiirl select` does by default, states are extended by the previous
place, which gives one reward per place and two for staying and turning back. "full" M-steps use L-BFGS with 50
evaluations each, and solve linear systems with iterative refinement. The last column is the processor time relative to
the default within this run.
"""

import time
import warnings

import numpy as np

from benchmarks.measure import describe_machine
from limiirl import MDP, Demonstrations, IntentMixture, MaxCausalEnt
from limiirl.demos import with_previous_state
from limiirl.irl.causal import stationary

PLACES, PIECES, MOVES = 127, 600, 20


def simulate(seed: int = 0) -> tuple[MDP, Demonstrations]:
    """Return recordings of a labyrinth and their MDP, whose states include the previous place."""
    rng = np.random.default_rng(seed)
    near = [[n for n in ((p - 1) // 2, 2 * p + 1, 2 * p + 2) if 0 <= n < PLACES and n != p] for p in range(PLACES)]
    goals = [set(_path_to_root(goal)) for goal in (PLACES - 1, PLACES // 2)]
    recordings = []
    for i in range(PIECES):
        goal, path = goals[i % 2], [int(rng.integers(PLACES))]
        for _ in range(MOVES):
            before = path[-2] if len(path) > 1 else -1
            weights = np.array([(4.0 if n in goal else 1.0) * (0.2 if n == before else 1.0) for n in near[path[-1]]])
            path.append(int(rng.choice(near[path[-1]], p=weights / weights.sum())))
        recordings.append(path)
    demos = Demonstrations.from_lists(recordings)
    return with_previous_state(MDP.from_demonstrations(demos, gamma=0.99), demos)


def _path_to_root(place: int) -> list[int]:
    return [place] if place == 0 else [place, *_path_to_root((place - 1) // 2)]


def fit(mdp: MDP, demos: Demonstrations, n_intents: int) -> tuple[float, IntentMixture]:
    """Return the processor time of a fit, and the fit."""
    start = time.process_time()
    mixture = IntentMixture(n_intents, MaxCausalEnt(ridge=1e-4, ridge_per="step"), random_state=0, max_iter=30)
    mixture.fit(mdp, demos)
    return time.process_time() - start, mixture


def main() -> None:
    """Print one row per number of intents and method."""
    warnings.simplefilter("ignore")
    mdp, demos = simulate()
    print(f"select_speed: {PIECES} recordings of {MOVES} moves, {mdp.n_states} states, {mdp.n_features} rewards")
    print(describe_machine())
    fit(mdp, demos, 1)  # compile
    few, small = stationary._FEW_FACTORS, stationary._SMALL_HESSIAN
    for n_intents in (1, 2, 3):
        default = 0.0
        for name, limits in (("default", (few, small)), ("full M-steps", (few, 0)), ("full, refinement", (0, 0))):
            stationary._FEW_FACTORS, stationary._SMALL_HESSIAN = limits
            taken, mixture = fit(mdp, demos, n_intents)
            default = default or taken
            print(
                f"  K = {n_intents}  {name:<17} {taken:7.2f} s of processor time, {mixture.n_iter_:3d} iterations, "
                f"log-likelihood {mixture.log_likelihood_:.4f}, {taken / default:5.1f} times the default"
            )


if __name__ == "__main__":
    main()
