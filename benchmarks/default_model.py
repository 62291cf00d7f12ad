"""Held-out likelihood of the default choice of a single-intent model, on every data set of the repository.

Run as `python -m benchmarks.default_model [NAME ...]`. Models are fitted to a sample and scored on other demonstrations
in nats per move: log P(action | earlier states, the recording continues). This quantity is comparable between models,
unlike their log-likelihoods. `DestinationMaxEnt` is given the destination as well. With known intents, ANID is between
their labels and the posteriors of the held-out demonstrations, and GEVD between true and learned rewards. Causal models
have a finite horizon at discount 1. A star marks the choice of `limiirl.irl.choose_model`.
"""

import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone

import limiirl as ll
from benchmarks import shanghai_data
from benchmarks.measure import describe_machine
from limiirl.irl import choose_model

FOLDER = Path(os.environ.get("LIMIIRL_DATA", Path(__file__).parents[2] / "shared" / "data"))
MOVES = 20  # length of the pieces of long recordings
N_TRIPS = 300


class Sample(NamedTuple):
    """Training and held-out demonstrations, with the true intents and rewards if they are known."""

    mdp: ll.MDP
    train: ll.Demonstrations
    test: ll.Demonstrations
    n_intents: int
    labels: NDArray[np.int64] | None = None
    truth: ll.RewardEnsemble | None = None


def sample_world(world: Any) -> Sample:
    """Sample a world with known intents."""
    train, _ = world.sample(100, seed=2)
    test, labels = world.sample(100, seed=3)
    return Sample(world.mdp, train.replace(labels=None), test, world.ensemble.n_intents, labels, world.ensemble)


def make_frozen_lake(slippery: bool) -> Sample:
    """Two intents on Gymnasium's 4 x 4 lake: one walks to the goal, the other to a corner; both avoid holes."""
    env = gymnasium.make("FrozenLake-v1", is_slippery=slippery)
    cells = "".join(letter.decode() for letter in env.unwrapped.desc.ravel())  # type: ignore[attr-defined]
    phi = np.array([[cell == "H", cell == "G", i == 3] for i, cell in enumerate(cells)], dtype=np.float64)
    mdp = ll.MDP.from_gymnasium(env).replace(
        gamma=0.95,
        state_features=phi,
        action_features=None,
        edge_features=None,
        feature_names=("hole", "goal", "corner"),
    )
    truth = ll.RewardEnsemble([0.5, 0.5], [[-50.0, 20.0, 0.0], [-50.0, 0.0, 5.0]])

    def draw(seed: int) -> tuple[ll.Demonstrations, NDArray[np.int64]]:
        parts = [
            ll.MaxCausalEnt().sample(mdp, theta, 50, seed=seed + k, max_length=30)
            for k, theta in enumerate(truth.thetas)
        ]
        return ll.Demonstrations.concat(parts), np.repeat([0, 1], 50)

    (train, _), (test, labels) = draw(0), draw(10)
    return Sample(mdp, train, test, 2, labels, truth)


def pieces(states: Any, actions: Any, n: int, seed: int = 0) -> ll.Demonstrations:
    """Return n random pieces of `MOVES` moves of windows (W, T) of states and actions."""
    rng, parts = np.random.default_rng(seed), []
    for _ in range(n):
        i, a = rng.integers(len(states)), rng.integers(states.shape[1] - MOVES)
        parts.append((states[i, a : a + MOVES + 1].tolist(), actions[i, a : a + MOVES].tolist()))
    return ll.Demonstrations.from_lists([p[0] for p in parts], [p[1] for p in parts])


def swirl_labyrinth() -> Sample:
    """Pieces of windows of the ten water-restricted mice; dynamics are known and deterministic."""
    data = np.load(FOLDER / "swirl_labyrinth" / "labyrinth.npz")
    successor = data["next_state"]
    states, actions = np.indices(successor.shape)
    mdp = ll.MDP.from_edges(states.ravel(), successor.ravel(), action=actions.ravel(), gamma=0.95)
    held_out = np.arange(len(data["states"])) % 5 == 0
    parts = [pieces(data["states"][part], data["actions"][part], 300) for part in (~held_out, held_out)]
    return Sample(mdp, *parts, 3)


def swirl_gridworld() -> Sample:
    """Pieces of simulated trajectories; dynamics are known and stochastic."""
    data = np.load(FOLDER / "swirl_gridworld" / "gridworld.npz")
    mdp = ll.MDP.from_dense(data["transition"], np.full(25, 1 / 25), gamma=0.95)
    held_out = np.arange(len(data["states"])) % 5 == 0
    parts = [pieces(data["states"][part], data["actions"][part], 300) for part in (~held_out, held_out)]
    return Sample(mdp, *parts, 2)


def mice(gamma: float) -> Sample:
    """Pieces of 19 mice without actions; dynamics are estimated from the pieces, as by `limiirl fit`."""
    table = pd.read_csv(FOLDER / "mouse_labyrinth" / "bouts.csv")
    rng, own = np.random.default_rng(0), []
    for _, bouts in table[table["mouse"] != "D6"].groupby("mouse"):
        nodes = [np.array(text.split(), dtype=int) for text in bouts["nodes"]]
        cut = [path[a : a + MOVES + 1] for path in nodes for a in range(0, len(path) - 1, MOVES)]
        own += [cut[i] for i in rng.permutation(len(cut))[:60]]
    demos = ll.Demonstrations.from_lists([own[i].tolist() for i in rng.permutation(len(own))])
    return Sample(ll.MDP.from_demonstrations(demos, gamma=gamma), demos[:600], demos[600:], 3)


def shanghai() -> Sample:
    """Taxi trips between known origins and destinations."""
    data = shanghai_data.read()
    demos = data.demos
    chosen = np.random.default_rng(0).permutation(len(demos))[: 2 * N_TRIPS]
    return Sample(data.mdp, demos[chosen[:N_TRIPS]], demos[chosen[N_TRIPS:]], 3)


def borlange() -> Sample:
    """GPS trips; the destination of a trip is an additional link after the last link."""
    edges = pd.read_csv(FOLDER / "borlange" / "link_pairs.csv.gz")
    angle, inside = edges["turn_angle"], edges["to_destination"] == 0
    columns = [edges["travel_time"], (angle > -3.1) & (angle < -0.5236), edges["travel_time"] > 0, np.abs(angle) > 3.1]
    phi = np.stack([np.where(inside, column, 0.0) for column in columns], axis=1)
    mdp = ll.MDP.from_edges(
        edges["src"], edges["dst"], edge_features=phi, feature_names=("time", "left", "link", "U-turn")
    )
    trips = pd.read_csv(FOLDER / "borlange" / "trips.csv.gz")
    demos = ll.Demonstrations.from_lists([[int(link) for link in path.split("_")] for path in trips["path"]])
    test = np.load(FOLDER / "borlange" / "splits.npz")["test"][0]
    return Sample(mdp, demos[~test][:N_TRIPS], demos[test], 2)


SAMPLES: dict[str, Callable[[], Sample]] = {
    "ElementWorld, wind 0.1": lambda: sample_world(ll.worlds.ElementWorld(seed=2)),
    "ElementWorld, no wind": lambda: sample_world(ll.worlds.ElementWorld(seed=2, wind=0.0)),
    "ObjectWorld": lambda: sample_world(ll.worlds.ObjectWorld(seed=2)),
    "PuddleWorld": lambda: sample_world(ll.worlds.PuddleWorld(seed=2)),
    "SyntheticWorld": lambda: sample_world(ll.worlds.SyntheticWorld(seed=2)),
    "FrozenLake, slippery": lambda: make_frozen_lake(True),
    "FrozenLake, not slippery": lambda: make_frozen_lake(False),
    "SWIRL's gridworld": swirl_gridworld,
    "SWIRL's labyrinth": swirl_labyrinth,
    "mice, estimated, discount 1": lambda: mice(1.0),
    "mice, estimated, discount 0.99": lambda: mice(0.99),
    "Shanghai": shanghai,
    "Borlänge": borlange,
}
MODELS: tuple[Any, ...] = (
    ll.MaxEnt(),
    ll.MaxEnt(bounds=(-10.0, 10.0)),
    ll.MaxCausalEnt(),
    ll.DestinationMaxEnt(),
)


def log_moves(model: Any, mdp: ll.MDP, theta: NDArray[np.float64], demos: ll.Demonstrations) -> NDArray[np.float64]:
    """Return sum_t log P(a_t | s_t, t, the recording continues) (N,), or log P(s_t+1 | ...) without actions."""
    if isinstance(model, ll.DestinationMaxEnt):
        return np.asarray(model.log_prob(mdp, theta, demos))[:, 0]
    steps, total = demos.steps(mdp), np.zeros(len(demos))
    stationary = isinstance(model, ll.MaxCausalEnt) and model.max_length == np.inf
    state = demos.states[np.arange(steps.n_transitions) + steps.demo_of_step]
    following = demos.states[np.arange(steps.n_transitions) + steps.demo_of_step + 1]
    policy = np.empty(0)
    for t in np.unique(steps.t_of_step):
        if t == 0 or not stationary:
            policy = model.policy(mdp, theta, int(t))
        here = np.flatnonzero(steps.t_of_step == t)
        if demos.actions is not None:
            action = demos.actions[here + steps.demo_of_step[here]]
            p = policy[state[here], action]
        else:
            table = pd.Series(policy[mdp.src, mdp.act] * mdp.prob).groupby([mdp.src, mdp.dst]).sum()
            p = table.loc[list(zip(state[here], following[here], strict=True))].to_numpy()
        np.add.at(total, steps.demo_of_step[here], np.log(p))
    return total


def score(model: Any, sample: Sample, n_intents: int) -> list[str]:
    """Return the cells of one fit: nats per move, ANID, GEVD and CPU seconds."""
    longest = int(max(sample.train.lengths.max(), sample.test.lengths.max()))
    if isinstance(model, ll.MaxEnt) or (isinstance(model, ll.MaxCausalEnt) and sample.mdp.gamma == 1.0):
        model = clone(model).set_params(max_length=longest)
    start = time.process_time()
    mix = ll.IntentMixture(n_intents, model, random_state=0, max_iter=60, likelihood_tol=1e-5).fit(
        sample.mdp, sample.train
    )
    seconds = time.process_time() - start
    own = np.stack([log_moves(mix.irl_, sample.mdp, theta, sample.test) for theta in mix.thetas_], axis=1)
    total = np.logaddexp.reduce(own + np.log(mix.weights_), axis=1)
    n_moves = int((sample.test.lengths - 1).sum())
    cells = [f"{total.sum() / n_moves:8.4f}"]
    if sample.labels is not None and sample.truth is not None and n_intents > 1:
        cells.append(f"{ll.metrics.anid(sample.labels, mix.predict_proba(sample.test)):6.3f}")
        cells.append(f"{ll.metrics.gevd(sample.mdp, sample.truth, mix.ensemble_).value:7.3f}")
    else:
        cells += ["     -", "      -"]
    return [*cells, f"{seconds:7.1f}"]


def main() -> None:
    """Print one line per data set, number of intents and model."""
    warnings.simplefilter("ignore")
    print("default_model: held-out nats per move, ANID, GEVD, CPU seconds; * is the default")
    print(describe_machine())
    for name in sys.argv[1:] or SAMPLES:
        sample = SAMPLES[name]()
        estimated = name.startswith("mice")
        chosen = type(choose_model(sample.mdp, sample.train, estimated=estimated).model)
        for n_intents in sorted({1, sample.n_intents}):
            for model in MODELS:
                mark = "*" if type(model) is chosen and repr(model) == f"{chosen.__name__}()" else " "
                label = " ".join(repr(model).split())
                try:
                    cells = "  ".join(score(model, sample, n_intents))
                except ll.errors.LimiirlError as error:
                    cells = f"not applicable: {type(error).__name__}, {error.parameter}"
                print(f"{mark} {name:<32} K={n_intents}  {label:<28} {cells}", flush=True)


if __name__ == "__main__":
    main()
