"""Time of GEVD for two ensembles of three intents, on ElementWorld and on 10,000 road segments; EVD with dense tensors.

Run as `python -m benchmarks.gevd`.
"""

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import describe_machine, seconds
from limiirl.mdp import MDP
from limiirl.mdp.ensemble import RewardEnsemble
from limiirl.metrics import evd, gevd
from limiirl.worlds import ElementWorld, RoadGrid

Float = NDArray[np.float64]

N_STATES, N_EDGES, GAMMA = 10_000, 20_300, 0.99
DENSE_SIZES = ((54, None), (500, 1_000))


def perturb(truth: RewardEnsemble, seed: int) -> RewardEnsemble:
    """Return the ensemble with rewards perturbed by about a third, and other weights."""
    rng = np.random.default_rng(seed)
    return RewardEnsemble(
        rng.dirichlet(np.full(3, 5.0)), truth.thetas * np.exp(rng.normal(0.0, 0.3, truth.thetas.shape))
    )


def town(n_states: int, n_edges: int) -> tuple[MDP, RewardEnsemble]:
    """Return a road network with three reward functions, in which every feature has a cost."""
    mdp = RoadGrid(n_states, n_edges, gamma=GAMMA).mdp
    rng = np.random.default_rng(0)
    return mdp, RewardEnsemble(np.full(3, 1 / 3), -rng.random((3, mdp.n_features)))


class Dense:
    """EVD by value iteration on a dense tensor (S, A, S), to 1e-10 of the largest value."""

    def __init__(self, mdp: MDP) -> None:
        """Build the tensor, which is not timed."""
        self.mdp = mdp
        self.T = np.zeros((mdp.n_states, mdp.n_actions, mdp.n_states))
        self.T[mdp.src, mdp.act, mdp.dst] = mdp.prob
        self.absent = ~self.T.any(axis=2)
        # A matrix product is several times faster in numpy than a tensor product.
        self.rows = self.T.reshape(-1, mdp.n_states)

    def iterate(self, reward: Float, policy: Float | None = None) -> tuple[Float, Float]:
        """Return V (S,) and Q (S, A), optimal or of a policy (S, A)."""
        V = reward
        while True:
            continuation = (self.rows @ V).reshape(self.absent.shape)
            Q = np.where(self.absent, -np.inf, reward[:, None] + self.mdp.gamma * continuation)
            mean = Q.max(axis=1) if policy is None else (policy * np.where(self.absent, 0.0, Q)).sum(axis=1)
            new = np.where(self.mdp.terminal, reward, mean)
            if np.abs(new - V).max() <= 1e-10 * (1.0 - self.mdp.gamma) * np.abs(new).max():
                return new, Q
            V = new

    def evd(self, theta_true: Float, theta_learned: Float) -> float:
        """Return p0 . (V* - V)."""
        true, learned = (self.mdp.rewards(theta)[0][:, 0] for theta in (theta_true, theta_learned))
        Q = self.iterate(learned)[1]
        finite = Q[~self.absent]
        slack = 1e-6 * np.ptp(finite)
        ties = ~self.absent & (Q.max(axis=1, keepdims=True) <= Q + slack)
        policy = ties / np.maximum(ties.sum(axis=1, keepdims=True), 1)
        return float(self.mdp.p0 @ (self.iterate(true)[0] - self.iterate(true, policy)[0]))


def main() -> None:
    """Print the time of GEVD in both worlds, and of EVD compared with dense value iteration."""
    print("gevd: two ensembles of 3 intents each, including the interval over ties and both bounds")
    print(describe_machine())
    world = ElementWorld()
    learned = perturb(world.ensemble, 1)
    result = gevd(world.mdp, world.ensemble, learned)
    time = 1e3 * seconds(lambda: gevd(world.mdp, world.ensemble, learned), 50)
    print(f"  ElementWorld, {world.mdp.n_states} states {time:8.1f} ms, value {result.value:.4g} (target: under 20 ms)")
    mdp, truth = town(N_STATES, N_EDGES)
    learned = perturb(truth, 1)
    result = gevd(mdp, truth, learned)
    time = seconds(lambda: gevd(mdp, truth, learned), 3)
    print(f"  roads, {mdp.n_states:,} states    {time:8.2f} s,  value {result.value:.4g} (target: under 5 s)")
    print(f"evd of one pair, discount {GAMMA}, compared with value iteration on dense tensors")
    for n_states, n_edges in DENSE_SIZES:
        mdp, truth = (world.mdp, world.ensemble) if n_edges is None else town(n_states, n_edges)
        true, other = truth.thetas[0], perturb(truth, 1).thetas[0]
        dense = Dense(mdp)
        gap = abs(dense.evd(true, other) - evd(mdp, true, other))
        slow = seconds(lambda d=dense, a=true, b=other: d.evd(a, b), 2)  # type: ignore[misc]
        fast = seconds(lambda m=mdp, a=true, b=other: evd(m, a, b), 10)  # type: ignore[misc]
        print(
            f"  {n_states:6,} states  dense {1e3 * slow:9.1f} ms  limiirl {1e3 * fast:7.1f} ms  "
            f"ratio {slow / fast:7.1f}  difference {gap:.1e}"
        )


if __name__ == "__main__":
    main()
