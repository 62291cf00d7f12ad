"""Plot a small world, trajectories of one intent, and the reward fitted to them.

Run as `python examples/recover_rewards.py [FILE]`; the default FILE is docs/images/recovery.png.
"""

import sys
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import limiirl as ll


def main(target: Path) -> None:
    """Sample trajectories, fit a reward to them, and plot four panels."""
    world = ll.worlds.ElementWorld(seed=3, gamma=1.0)
    truth = np.clip(world.ensemble.thetas[0], -2.5, 0.0)
    irl = ll.MaxEnt(max_length=40, stop="terminal")
    demos = irl.sample(world.mdp, truth, 500, seed=1)
    # Every trajectory reaches the goal exactly once, so the reward of the goal is not identified and stays 0.
    warnings.simplefilter("ignore", ll.errors.IdentifiabilityWarning)
    fitted = irl.fit(world.mdp, demos)

    figure, axes = plt.subplots(1, 4, figsize=(15, 4.6), constrained_layout=True)
    world.plot(ax=axes[0])
    axes[0].set_title("a world of three elements")
    world.plot(theta=truth, ax=axes[1])
    axes[1].set_title("true reward of one intent")
    visits = np.bincount(demos.states, minlength=world.mdp.n_states).reshape(world.grid.shape) / len(demos)
    image = axes[2].imshow(visits, cmap="viridis", aspect="equal")
    figure.colorbar(image, ax=axes[2], label="visits per trajectory", shrink=0.8)
    axes[2].set(title="occupancy of 500 trajectories", xticks=[], yticks=[])
    world.plot(theta=fitted, ax=axes[3])
    axes[3].set_title("fitted reward")
    figure.savefig(target, dpi=110)


if __name__ == "__main__":
    default = Path(__file__).parent.parent / "docs" / "images" / "recovery.png"
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else default)
