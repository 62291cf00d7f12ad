"""Milliseconds per value and gradient of every model, on ElementWorld and on the streets of Porto.

Run as `python -m benchmarks.choices`; `--small` omits Porto, which is also skipped if its data are absent. Each causal
model is compared with a plain formulation of the same computation, which must agree: on ElementWorld, dense value
iteration or backward induction in numpy with one dense solve for the adjoint; on Porto, the same with scipy.sparse and
`spsolve`. Times are for one thread: wall-clock time, and in brackets processor time, which varies less on a busy
machine and is used for the ratios. "One intent at a time" is the cost of K separate evaluations.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks import choices_plain, porto
from benchmarks.measure import describe_machine
from limiirl import MDP, MLIRL, MaxCausalEnt, MaxEnt
from limiirl.demos import Agents, Demonstrations, Groups
from limiirl.demos.simulate import simulate
from limiirl.irl import SigmaGIRL
from limiirl.irl.causal.problem import CausalLikelihood
from limiirl.irl.maxent.problem import PathLikelihood
from limiirl.worlds import ElementWorld

Float = NDArray[np.float64]
Call = Callable[[], tuple[Float, Float]]
MODELS: dict[str, Any] = {
    "MaxCausalEnt": MaxCausalEnt(),
    "MaxCausalEnt, horizon": MaxCausalEnt(max_length=50),
    "MLIRL, hard": MLIRL(),
    "MLIRL, bv": MLIRL(q="bv"),
}
PORTO: dict[str, Any] = {
    "MaxCausalEnt": MaxCausalEnt(),
    "MaxCausalEnt, horizon 300": MaxCausalEnt(max_length=300),
    "MLIRL, hard": MLIRL(),
    "MLIRL, bv, 50 backups": MLIRL(q="bv", n_backups=50),
}


def measure_ms(call: Callable[[], object], repeats: int, *, warm: bool = True) -> tuple[float, float]:
    """Return the smallest wall-clock and processor time in milliseconds of several calls; `warm` adds a first call."""
    if warm:
        call()
    walls, cpus = [], []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        call()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return 1e3 * min(walls), 1e3 * min(cpus)


def format_ms(times: tuple[float, float]) -> str:
    """Return both times as text."""
    return f"{times[0]:10.2f} ({times[1]:8.2f}) ms"


def causal(model: Any, mdp: MDP, demos: Demonstrations, thetas: Float) -> tuple[Call, CausalLikelihood]:
    """Return a function that evaluates the M-step objective and its gradient for each intent."""
    K = len(thetas)
    problem = model.make_problem(mdp, demos, Groups.from_labels(None, len(demos)))
    moments = problem.moments(np.random.default_rng(0).dirichlet(np.ones(K), size=len(demos)))
    objective = CausalLikelihood(problem.solver, problem.decisions, moments.decisions, moments.counts, np.zeros(K))
    return lambda: objective.evaluate(thetas, np.arange(K)), objective


def compare(models: dict[str, Any], mdp: MDP, demos: Demonstrations, thetas: Float, repeats: int) -> None:
    """Print one line per causal model: its time, the time of the plain formulation, and the ratio."""
    K = len(thetas)
    for name, model in models.items():
        call, objective = causal(model, mdp, demos, thetas)
        plain = choices_plain.formulation(model, mdp, objective)
        answers: list[tuple[float, Float]] = []
        n = max(1, repeats // 40)
        base = measure_ms(lambda f=plain, out=answers: out.extend(f(thetas[k], k) for k in range(K)), n, warm=False)
        for k, mine in enumerate(zip(*call(), strict=True)):
            for own_part, other in zip(mine, answers[k], strict=True):
                np.testing.assert_allclose(own_part, other, rtol=1e-6, atol=1e-8)
        own = measure_ms(call, repeats)
        alone = [
            measure_ms(lambda k=k, f=objective: f.evaluate(thetas[k : k + 1], np.array([k])), repeats) for k in range(K)
        ]
        apart = f", one intent at a time {sum(cpu for _, cpu in alone) / own[1]:.2f} x" if K > 1 else ""
        print(
            f"  K = {K}  {name:<26} {format_ms(own)}   plain {format_ms(base)}   "
            f"{base[1] / own[1]:6.1f} x faster{apart}"
        )


def elements(repeats: int) -> None:
    """Print the table for ElementWorld, including MaxEnt and SigmaGIRL."""
    world = ElementWorld(n_elements=3, seed=0)
    mdp, demos = world.mdp, world.sample(100, seed=0)[0].replace(labels=None)
    agents = Agents.from_demonstrations(mdp, demos, np.repeat(np.arange(20), 5))
    sigma = SigmaGIRL().make_problem(None, agents, Groups.for_demos(None, agents)).profile
    paths = MaxEnt(50).make_problem(mdp, demos, Groups.from_labels(None, len(demos)))
    print(
        f"ElementWorld: {mdp.n_states} states, {mdp.n_pairs} state-action pairs, 100 demonstrations, gamma {mdp.gamma}"
    )
    for K in (1, 3):
        thetas, which = world.ensemble.thetas[:K], np.arange(K)
        moments = paths.observed.moments(np.random.default_rng(0).dirichlet(np.ones(K), size=len(demos)))
        likelihood = PathLikelihood(paths.path_sums, paths.observed, moments, np.zeros(K))
        taken = measure_ms(lambda f=likelihood, t=thetas, k=which: f.evaluate(t, k), repeats)
        print(f"  K = {K}  {'MaxEnt, 50 states':<26} {format_ms(taken)}")
        compare(MODELS, mdp, demos, thetas, repeats)
        omegas = np.random.default_rng(0).dirichlet(np.ones(agents.n_reward_features), size=K)
        taken = measure_ms(lambda w=omegas: [sigma.gradients(omega) for omega in w], repeats)
        print(f"  K = {K}  {'SigmaGIRL, 20 agents':<26} {format_ms(taken)}")


def streets(repeats: int) -> None:
    """Print the table for Porto, or the reason why it is skipped."""
    if not porto.available():
        print(f"Porto: skipped, no data set porto_road_osm at {porto.FOLDER}; set LIMIIRL_DATA to its parent folder")
        return
    mdp = porto.network(gamma=0.99)
    uniform = 1.0 / np.bincount(mdp.pair_state, minlength=mdp.n_states)[mdp.pair_state]
    demos = simulate(mdp, uniform, 1000, np.random.default_rng(0), max_length=100)
    print(f"Porto: {mdp.n_states:,} segments, {mdp.n_edges:,} turns, 1,000 random trajectories, discount {mdp.gamma}")
    thetas = -np.random.default_rng(1).uniform(0.5, 3.0, (1, mdp.n_features))
    compare(PORTO, mdp, demos, thetas, repeats)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="ElementWorld only")
    options = parser.parse_args()
    numba.set_num_threads(1)
    print("choices: value and gradient of the M-step objective, one thread, wall-clock (processor)")
    print(describe_machine())
    with threadpool_limits(1):
        elements(200)
        if not options.small:
            streets(3)


if __name__ == "__main__":
    main()
