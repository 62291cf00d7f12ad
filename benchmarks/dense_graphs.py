"""Path sums to goals: dense factorisation compared with sparse elimination, on lattices and on random graphs.

Run as `python -m benchmarks.dense_graphs`. The last part is a graph like that of hyperlinks between 4,600 pages: one
value with its gradient over 1,000 pairs, and a fit of two intents.
"""

import time

import numpy as np

from benchmarks.measure import describe_machine
from limiirl import MDP, Demonstrations, DestinationMaxEnt, IntentMixture
from limiirl.irl import GoalValues, make_goal_values
from limiirl.irl.destination.dense import DenseGoalValues


def lattice(side: int) -> MDP:
    """Return a square lattice with moves in four directions."""
    x, y = np.divmod(np.arange(side * side), side)
    right, down = np.flatnonzero(x < side - 1), np.flatnonzero(y < side - 1)
    src = np.concatenate([right, right + side, down, down + 1])
    dst = np.concatenate([right + side, right, down + 1, down])
    return MDP.from_edges(src, dst, side * side, state_features=np.ones((side * side, 1)))


def hyperlinks(n: int, links: int, seed: int = 0) -> MDP:
    """Return a random graph in which each state links to the next one and to `links` others."""
    rng = np.random.default_rng(seed)
    src = np.concatenate([np.arange(n), np.repeat(np.arange(n), links)])
    dst = np.concatenate([(np.arange(n) + 1) % n, rng.integers(n, size=n * links)])
    action = np.concatenate([np.zeros(n, dtype=int), np.tile(np.arange(1, links + 1), n)])
    return MDP.from_edges(
        src, dst, n, action=action, state_features=np.ones((n, 1)), edge_features=rng.random((src.size, 2))
    )


def measure(values: GoalValues, theta: np.ndarray, starts: np.ndarray, goals: np.ndarray) -> tuple[float, float]:
    """Return the wall time and the CPU time of one value with its gradient, without a cached factorisation."""
    weights = np.ones((starts.size, 1))
    values.sum_pairs(theta[None], starts, goals, weights)
    wall, cpu = time.perf_counter(), time.process_time()
    values.sum_pairs((theta - 1e-9)[None], starts, goals, weights)
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    """Print the times of both factorisations, the choice, and the results of the large graph."""
    print(describe_machine())
    print("value and gradient over 2 S pairs, CPU ms: sparse, dense, ratio, chosen")
    rng = np.random.default_rng(1)
    graphs = {f"lattice, {side**2} states": lattice(side) for side in (20, 30, 45)}
    for n in (300, 1000):
        graphs |= {f"random, {n} states, {1 + d} edges per state": hyperlinks(n, d) for d in (1, 2, 4, 10)}
    for name, mdp in graphs.items():
        theta = np.zeros(mdp.n_features)
        theta[0] = -np.log(1.0 + mdp.n_edges / mdp.n_states) - 0.7
        starts, goals = rng.integers(mdp.n_states, size=(2, 2 * mdp.n_states))
        sparse, dense = (measure(kind(mdp), theta, starts, goals)[1] for kind in (GoalValues, DenseGoalValues))
        chosen = "dense" if isinstance(make_goal_values(mdp), DenseGoalValues) else "sparse"
        print(f"  {name:42s} {1e3 * sparse:9.1f} {1e3 * dense:9.1f} {sparse / dense:6.1f} x  {chosen}", flush=True)
    large(rng)


def large(rng: np.random.Generator) -> None:
    """Print the time of one evaluation and of a fit on a graph of 4,600 states and 119,600 edges."""
    mdp = hyperlinks(4600, 25)
    theta = np.array([-3.8, -1.0, 0.5])
    starts, goals = rng.integers(mdp.n_states, size=(2, 1000))
    begun = time.perf_counter()
    values = make_goal_values(mdp)
    print(
        f"{mdp.n_states} states, {mdp.n_edges} edges: {type(values).__name__}, "
        f"chosen in {time.perf_counter() - begun:.2f} s"
    )
    wall, cpu = measure(values, theta, starts, goals)
    print(f"  value and gradient over 1,000 pairs: {wall:.2f} s ({cpu:.2f} s of CPU)")
    model, half = DestinationMaxEnt(bounds=None, ridge=1e-4), starts.size // 2
    other = np.array([-3.8, 1.0, -1.0])
    paths = [
        model.sample(mdp, t, s, g, seed=0)
        for t, s, g in ((theta, starts[:half], goals[:half]), (other, starts[half:], goals[half:]))
    ]
    demos = Demonstrations.concat(paths)
    begun, cpu = time.perf_counter(), time.process_time()
    mix = IntentMixture(2, model, accelerate=True, max_evaluations=10, random_state=0).fit(mdp, demos)
    wall, cpu = time.perf_counter() - begun, time.process_time() - cpu
    print(
        f"  two intents, 1,000 paths, accelerated: {wall:.0f} s ({cpu:.0f} s of CPU), {mix.n_iter_} iterations, "
        f"{sum(entry.n_evaluations for entry in mix.history_)} evaluations, converged: {mix.converged_}"
    )


if __name__ == "__main__":
    main()
