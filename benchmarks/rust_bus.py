"""Replacement of the motors of buses (Rust 1987): likelihood and time of a fit, beside econirl (`pip install econirl`).

Run as `python -m benchmarks.rust_bus [REPEATS]` in an environment that has both packages. econirl ships the data. Both
fit the infinite-horizon logit model with discount 0.9999, an operating cost per mileage bin and a replacement cost.
limiirl uses the transition probabilities that econirl estimates, so that the times of econirl include their estimation
and its standard errors. Times include no imports.

econirl ships simulated data, which are its default, and Rust's original data. The second table has the log-likelihood
of both by group of buses, without and with the transitions of the mileage: by 0, 1 or 2 bins, with one distribution.
"""

import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np

from benchmarks.measure import describe_machine
from limiirl import MDP, Demonstrations, MaxCausalEnt

GAMMA = 0.9999
N_BINS = 90


def make_problem(tensor: Any, bins: Any, replaced: Any) -> tuple[MDP, Demonstrations]:
    """Return the MDP, and one demonstration of one step per decision, whose next state is the most likely one."""
    T = np.asarray(tensor, dtype=np.float64)
    T /= T.sum(axis=2, keepdims=True)
    action, src, dst = np.nonzero(T)
    keep = action == 0
    mdp = MDP.from_edges(
        src,
        dst,
        action=action,
        prob=T[action, src, dst],
        n_states=N_BINS,
        p0=np.full(N_BINS, 1.0 / N_BINS),
        gamma=GAMMA,
        edge_features=np.stack([-src * keep, -1.0 * ~keep], axis=1),
        feature_names=("operating cost", "replacement cost"),
    )
    best = T.argmax(axis=2)
    states = np.stack([bins, best[replaced, bins]], axis=1)
    return mdp, Demonstrations.from_lists(states.tolist(), replaced[:, None].tolist())


def measure(call: Callable[[], Any], repeats: int) -> tuple[Any, float, float]:
    """Return the result, and the processor time of the first call and the smallest of the others."""
    times = []
    for _ in range(repeats + 1):
        start = time.process_time()
        result = call()
        times.append(time.process_time() - start)
    return result, times[0], min(times[1:])


def estimate_transitions(frame: Any) -> tuple[Any, float]:
    """Return the transition probabilities (2, S, S) of the mileage, and the log-likelihood of the observed ones."""
    bins, replaced, bus = (frame[name].to_numpy() for name in ("mileage_bin", "replaced", "bus_id"))
    step = (bins[1:] - bins[:-1])[(bus[1:] == bus[:-1]) & (replaced[:-1] == 0)]
    counts = np.bincount(step[(step >= 0) & (step <= 2)], minlength=3)
    p = counts / counts.sum()
    tensor, here = np.zeros((2, N_BINS, N_BINS)), np.arange(N_BINS)
    for more in range(3):
        np.add.at(tensor[0], (here, np.minimum(here + more, N_BINS - 1)), p[more])
    tensor[1] = tensor[0, 0]
    return tensor, float(counts[p > 0] @ np.log(p[p > 0]))


def fit_groups(frames: dict[str, Any]) -> None:
    """Print the log-likelihood of all buses, and of each group with replacements."""
    print("data, group, decisions, replacements, log-likelihood of decisions, and with transitions")
    model = MaxCausalEnt(max_length=np.inf, bounds=None, ridge=0.0)
    for name, frame in frames.items():
        for group in ("all", *sorted(frame["group"].unique())):
            part = frame if group == "all" else frame[frame["group"] == group]
            bins, replaced = part["mileage_bin"].to_numpy(), part["replaced"].to_numpy()
            if not replaced.any():
                continue  # the replacement cost is infinite
            tensor, moves = estimate_transitions(part)
            mdp, demos = make_problem(tensor, bins, replaced)
            own = float(np.log(model.policy(mdp, model.fit(mdp, demos))[bins, replaced]).sum())
            print(
                f"  {name:<10}{group!s:>4}{len(part):7d}{replaced.sum():5d}{own:12.2f}{own + moves:12.2f}", flush=True
            )


def main() -> None:
    """Print log-likelihoods, parameters and times of both packages."""
    from econirl import NFXP
    from econirl.datasets import load_rust_bus, rust_bus_reward_spec

    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print(describe_machine(), f"econirl {version('econirl')}", sep=", ")
    frame = load_rust_bus()

    def fit_econirl() -> Any:
        model = NFXP(n_states=N_BINS, discount=GAMMA, utility=rust_bus_reward_spec(N_BINS))
        return model.fit(frame, state="mileage_bin", action="replaced", id="bus_id")

    theirs, first, other = measure(fit_econirl, repeats)
    bins, replaced = frame["mileage_bin"].to_numpy(), frame["replaced"].to_numpy()
    mdp, demos = make_problem(theirs.transition_tensor_, bins, replaced)
    model = MaxCausalEnt(max_length=np.inf, bounds=None, ridge=0.0)
    theta, first_own, other_own = measure(lambda: model.fit(mdp, demos), repeats)
    own = float(np.log(model.policy(mdp, theta)[bins, replaced]).sum())
    print(f"{bins.size} decisions in {N_BINS} mileage bins, discount {GAMMA}")
    print("          log-likelihood  operating cost  replacement cost  first fit  later fits (s of CPU)")
    costs = list(theirs.params_.values())
    rows = (
        ("econirl", float(theirs.log_likelihood_), costs, first, other),
        ("limiirl", own, theta.tolist(), first_own, other_own),
    )
    for name, value, values, early, late in rows:
        print(f"{name:<10}{value:14.4f}{values[0]:16.6f}{values[1]:18.5f}{early:11.2f}{late:12.3f}")
    print(f"ratio of times: {first / first_own:.1f} for the first fit, {other / other_own:.1f} for later fits")
    fit_groups({"simulated": frame, "original": load_rust_bus(original=True)})


if __name__ == "__main__":
    main()
