"""Plot a mixture fitted to unlabelled demonstrations: the world, and each intent's members and reward.

Run as `python examples/find_intents.py [FILE]`; the default FILE is docs/images/intents.png.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import limiirl as ll


def main(target: Path) -> None:
    """Fit three intents, and plot the occupancy of their members and their rewards."""
    world = ll.worlds.ElementWorld(seed=2)
    demos, labels = world.sample(100, seed=2)
    mix = ll.IntentMixture(n_intents=3, random_state=0).fit(world.mdp, demos)
    mix = mix.align_to(world.ensemble)

    figure, axes = plt.subplots(2, 4, figsize=(12, 7.6), constrained_layout=True)
    world.plot(ax=axes[0, 0])
    axes[0, 0].set_title("a world of three elements")
    right = np.sum(mix.labels_ == labels)
    axes[1, 0].axis("off")
    text = f"100 unlabelled\ndemonstrations.\n\n{right} of 100 assigned to\ntheir true intent."
    axes[1, 0].text(0.0, 0.75, text, fontsize=13, va="top", transform=axes[1, 0].transAxes)
    for k in range(3):
        members = demos[mix.labels_ == k]
        visits = np.bincount(members.states, minlength=world.mdp.n_states).reshape(world.grid.shape) / len(members)
        image = axes[0, k + 1].imshow(visits, cmap="viridis", vmin=0, vmax=0.8)
        axes[0, k + 1].set(xticks=[], yticks=[], title=f"intent {k}: {100 * mix.weights_[k]:.0f} %")
        world.plot(theta=mix.thetas_[k], ax=axes[1, k + 1])
        axes[1, k + 1].set_title("learned reward")
    figure.colorbar(image, ax=axes[0, 1:], label="visits per demonstration", shrink=0.8)
    figure.savefig(target, dpi=90)


if __name__ == "__main__":
    default = Path(__file__).parent.parent / "docs" / "images" / "intents.png"
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else default)
