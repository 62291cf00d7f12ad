"""Recovery of known switching intents, their planning, and the time and memory of fits.

    python -m benchmarks.switching              # all sections
    python -m benchmarks.switching recovery     # one of recovery, planning, groups, labyrinth, memory

The labyrinth is `swirl_labyrinth` of the shared data: ../shared/data beside the checkout, or the folder in
`LIMIIRL_DATA`. Times are processor times, because they depend less on other work of the machine.
"""

import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

import limiirl as ll
from benchmarks.measure import describe_machine, peak_bytes, run_fresh
from limiirl.mdp import add_edge_features, turn_features

DATA = Path(os.environ.get("LIMIIRL_DATA", Path(__file__).parents[2] / "shared" / "data"))
REPEATS, ANIMALS = 100, 6
WORLDS, K, DEMOS, STEPS, DWELL = 20, 3, 20, 250, 25.0
SIZES = (1_000_000, 3_000_000, 10_000_000)
Float = NDArray[np.float64]


def endless(world: ll.worlds.ElementWorld) -> ll.MDP:
    """Return the MDP of a world whose goal leads back to the start zone."""
    mdp = world.mdp
    goals, starts = np.flatnonzero(mdp.terminal), np.flatnonzero(mdp.p0)
    src = np.concatenate([mdp.src, np.repeat(goals, starts.size)])
    dst = np.concatenate([mdp.dst, np.tile(starts, goals.size)])
    act = np.concatenate([mdp.act, np.zeros(goals.size * starts.size, dtype=np.int64)])
    prob = np.concatenate([mdp.prob, np.full(goals.size * starts.size, 1.0 / starts.size)])
    return ll.MDP.from_edges(
        src, dst, n_states=mdp.n_states, action=act, prob=prob, p0=mdp.p0, gamma=0.95, state_features=mdp.state_features
    )


def rewards(world: ll.worlds.ElementWorld) -> Float:
    """Return the rewards (K, d) of softmax-optimal agents: half of those of the world, and 8 for the goal.

    With the whole rewards, actions would be almost deterministic. Without a reward for the goal, which leads back to
    the start zone here, the best policy of every intent would be to stay in the start zone.
    """
    thetas = 0.5 * world.ensemble.thetas
    thetas[:, 1] = 8.0
    return thetas


def simulate(mdp: ll.MDP, thetas: Float, P: Float, rng: np.random.Generator) -> tuple[ll.Demonstrations, NDArray]:
    """Return demonstrations whose intents switch with probabilities P, and the intents of their steps."""
    policies = [ll.MaxCausalEnt().policy(mdp, theta) for theta in thetas]
    kernel = np.zeros((mdp.n_states, mdp.n_actions, mdp.n_states))
    np.add.at(kernel, (mdp.src, mdp.act, mdp.dst), mdp.prob)
    paths, actions, intents = [], [], []
    for _ in range(DEMOS):
        s, z = [int(rng.choice(mdp.n_states, p=mdp.p0))], [int(rng.integers(len(P)))]
        a = []
        for t in range(STEPS):
            a.append(int(rng.choice(mdp.n_actions, p=policies[z[-1]][s[-1]])))
            s.append(int(rng.choice(mdp.n_states, p=kernel[s[-1], a[-1]])))
            if t < STEPS - 1:
                z.append(int(rng.choice(len(P), p=P[z[-1]])))
        paths.append(s)
        actions.append(a)
        intents.append(z)
    return ll.Demonstrations.from_lists(paths, actions), np.concatenate(intents)


def match(truth: NDArray, labels: NDArray) -> NDArray:
    """Return the fitted intent of each true one that maximises the agreement of labels."""
    table = np.zeros((K, K))
    np.add.at(table, (truth, labels), 1.0)
    return linear_sum_assignment(-table)[1]


def recovery() -> None:
    """Print the accuracy of segments, rewards and dwell times over worlds."""
    print(f"recovery: {WORLDS} worlds, K = {K}, {DEMOS} demonstrations of {STEPS} steps, dwell time {DWELL:g} steps")
    P = np.full((K, K), 1.0 / DWELL / (K - 1))
    np.fill_diagonal(P, 1.0 - 1.0 / DWELL)
    rows: dict[str, list[list[float]]] = {name: [] for name in ("truth", "labels", "kmeans", "random, 5 starts", "one")}
    for seed in range(WORLDS):
        world = ll.worlds.ElementWorld(n_elements=K, wind=0.1, height=6, seed=seed)
        mdp, rng = endless(world), np.random.default_rng(seed)
        thetas = rewards(world)
        demos, truth = simulate(mdp, thetas, P, rng)
        test, test_truth = simulate(mdp, thetas, P, rng)
        base = ll.MaxCausalEnt(ridge=1e-4)
        exact = ll.SwitchingMixture(K, base, init=_given(thetas, P), max_iter=0)
        fits = {
            "truth": exact,
            "labels": ll.SwitchingMixture(K, base, init=truth),
            "kmeans": ll.SwitchingMixture(K, base, random_state=0),
            "random, 5 starts": ll.SwitchingMixture(K, base, init="random", n_init=5, random_state=0),
            "one": ll.SwitchingMixture(1, base),
        }
        for name, sw in fits.items():
            start = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                sw.fit(mdp, demos)
            seconds = time.process_time() - start
            score, evd = sw.score(test), [float("nan")]
            accuracy = dwell = float("nan")
            if name == "one":
                evd = [ll.metrics.evd(mdp, theta, sw.thetas_[0]) for theta in thetas]
            else:
                labels = sw.predict(test)
                order = match(test_truth, labels)
                accuracy = float(np.mean(order[test_truth] == labels))
                evd = [ll.metrics.evd(mdp, thetas[k], sw.thetas_[order[k]]) for k in range(K)]
                dwell = float(np.mean(sw.dwell_times_))
            rows[name].append([accuracy, float(np.mean(evd)), dwell, score, float(sw.n_iter_), seconds])
    heads = f"{'accuracy':>16}{'EVD':>16}{'dwell time':>16}{'test nats':>18}{'iterations':>12}{'seconds':>9}"
    print(f"  {'start':18}{heads}")
    for name, values in rows.items():
        table = np.array(values)
        mean, half = table.mean(axis=0), 1.96 * table.std(axis=0, ddof=1) / np.sqrt(WORLDS)
        shown = (f"{mean[j]:.{digits}f} ± {half[j]:.{digits}f}" for j, digits in enumerate((3, 3, 1, 4)))
        cells = "".join(f"{cell:>{width}}" for cell, width in zip(shown, (16, 16, 16, 18), strict=True))
        print(f"  {name:18}{cells}{mean[4]:12.0f}{mean[5]:9.2f}")
    print("  truth: the true rewards and probabilities; one: a single intent. Accuracy is of the most probable")
    print("  sequences of the test demonstrations; EVD is the mean over intents; ± 95 % over worlds.")


class _given:  # noqa: N801
    """Parameters in the form that `init` accepts."""

    def __init__(self, thetas: Float, P: Float) -> None:
        self.initial_, self.thetas_, self.transition_ = np.full(len(P), 1.0 / len(P)), thetas, P
        self.logits_ = ll.switching.Logits(np.log(P), np.zeros((len(P), 0)))


def planning() -> None:
    """Print how the policies change if agents plan with the switches of their intents."""
    print("planning: agents that plan as if their intent lasted, and agents that foresee their switches")
    print(f"  {'dwell time':>12}{'total variation':>18}{'KL, nats per step':>20}")
    for dwell in (2.0, 5.0, 10.0, 25.0, 100.0, 1000.0):
        tv, kl = [], []
        for seed in range(WORLDS):
            world = ll.worlds.ElementWorld(n_elements=K, wind=0.1, height=6, seed=seed)
            mdp, thetas = endless(world), rewards(world)
            P = np.full((K, K), 1.0 / dwell / (K - 1))
            np.fill_diagonal(P, 1.0 - 1.0 / dwell)
            lasting, foreseeing = plan(mdp, thetas, np.eye(K)), plan(mdp, thetas, P)
            used = lasting > 0.0
            tv.append(0.5 * np.mean(np.sum(np.abs(lasting - foreseeing), axis=2)))
            ratio = np.log(np.where(used, foreseeing, 1.0) / np.where(used, lasting, 1.0))
            kl.append(np.mean(np.sum(foreseeing * ratio, axis=2)))
        print(f"  {dwell:12g}{np.mean(tv):18.4f}{np.mean(kl):20.4f}")
    print("  averages over states, intents and worlds; KL is what a fit with the exact rewards loses")


def plan(mdp: ll.MDP, thetas: Float, P: Float) -> Float:
    """Return the soft policies (K, S, A) if the intent after each step is drawn from P (K, K)."""
    kernel = np.zeros((mdp.n_states, mdp.n_actions, mdp.n_states))
    np.add.at(kernel, (mdp.src, mdp.act, mdp.dst), mdp.prob)
    able = kernel.sum(axis=2) > 0.0
    r = (mdp.state_features @ np.asarray(thetas).T).T
    V = np.zeros((K, mdp.n_states))
    for _ in range(2000):
        Q = r[:, :, None] + mdp.gamma * np.einsum("sat,kt->ksa", kernel, P @ V)
        Q = np.where(able, Q, -np.inf)
        top = Q.max(axis=2)
        new = top + np.log(np.sum(np.exp(Q - top[:, :, None]), axis=2))
        change, V = np.max(np.abs(new - V)), new
        if change < 1e-10:
            break
    return np.where(able, np.exp(Q - V[:, :, None]), 0.0)


def groups() -> None:
    """Print the size and the power of comparisons of dwell times between conditions, by estimator."""
    print(f"groups: {REPEATS} worlds, K = {K}, {2 * ANIMALS} animals with one recording of {STEPS} steps each")
    print(f"  {'dwell times':>12}{'estimator':>12}{'undefined':>12}{'p <= 0.05':>12}{'switching rate: p <= 0.05':>28}")
    for other in (DWELL, 0.5 * DWELL):
        undefined, rejected = {"shrunken": 0.0, "raw": 0.0}, {"shrunken": 0.0, "raw": 0.0, "rate": 0.0}
        for seed in range(REPEATS):
            world = ll.worlds.ElementWorld(n_elements=K, wind=0.1, height=6, seed=seed)
            mdp, rng = endless(world), np.random.default_rng(seed)
            samples = []
            for dwell in (DWELL, other):
                P = np.full((K, K), 1.0 / dwell / (K - 1))
                np.fill_diagonal(P, 1.0 - 1.0 / dwell)
                samples.append(simulate(mdp, rewards(world), P, rng)[0][:ANIMALS])
            demos = samples[0] + samples[1]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                sw = ll.SwitchingMixture(K, ll.MaxCausalEnt(ridge=1e-4), random_state=0, tol=1e-4).fit(mdp, demos)
            dynamics = sw.group_dynamics(demos)
            n = dynamics.transitions.sum(axis=2)
            raw = n / (n - dynamics.transitions.diagonal(axis1=1, axis2=2))
            # A raw dwell time without an expected switch is longer than the recording: it is undefined.
            tables = {"shrunken": dynamics.dwell_times, "raw": np.where(raw > STEPS, np.nan, raw)}
            tables["rate"] = dynamics.switching_rate[:, None]
            for name, values in tables.items():
                compared = ll.metrics.compare_groups(
                    values, np.repeat([0, 1], ANIMALS), n_resamples=2, correction="none"
                )
                rejected[name] += np.mean([row.p <= 0.05 for row in compared.rows]) / REPEATS
                if name in undefined:
                    undefined[name] += np.mean(~np.isfinite(values)) / REPEATS
        for name, share in undefined.items():
            cells = f"{DWELL:g}, {other:g}".rjust(12) + f"{name:>12}{100 * share:10.1f} %{rejected[name]:12.3f}"
            print(f"  {cells}{rejected['rate']:28.3f}")
    print("  without an effect (equal dwell times) the fractions are the size of the test; otherwise its power")


def labyrinth() -> None:
    """Print the time of fits to recordings of mice."""
    path = DATA / "swirl_labyrinth" / "labyrinth.npz"
    if not path.exists():
        print("labyrinth: no data")
        return
    with np.load(path) as data:
        following, states, actions = (data[name].astype(np.int64) for name in ("next_state", "states", "actions"))
    places = np.arange(127)
    src, act = np.repeat(places, 4), np.tile(np.arange(4), 127)
    mdp = ll.MDP.from_edges(src, following.ravel(), action=act, gamma=0.9, state_features=np.eye(127))
    train = np.arange(len(states)) % 5 != 0
    demos = ll.Demonstrations.from_lists(list(states[train]), list(actions[train, :-1]))
    longer, own = ll.with_history(mdp, demos)
    depth = np.floor(np.log2(places + 1)).astype(int)
    turned = add_edge_features(longer, turn_features(longer, root=0, per=depth))
    print(
        f"labyrinth: {own.n_transitions} steps, {turned.n_states} states, {turned.n_features} features, K = 5, "
        "default settings, to convergence"
    )
    print(f"  {'switching':14}{'iterations':>12}{'converged':>11}{'nats per step':>15}{'processor s':>13}{'wall s':>8}")
    for switching in ("homogeneous", "state"):
        cpu, wall = time.process_time(), time.perf_counter()
        sw = ll.SwitchingMixture(5, ll.MaxCausalEnt(ridge=1e-5), switching, random_state=0, max_iter=1000)
        sw.fit(turned, own)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        print(f"  {switching:14}{sw.n_iter_:12}{sw.converged_!s:>11}{sw.log_likelihood_:15.4f}{cpu:13.1f}{wall:8.1f}")


def memory() -> None:
    """Print the memory and the time of fits to many steps, each in a new process."""
    print("memory: K = 3, 100 states, demonstrations of 1,000 steps, 5 EM iterations")
    print(f"  {'steps':>12}{'peak GB':>10}{'GB above 0 steps':>18}{'bytes per step':>16}{'processor s':>13}")
    first = float(run_fresh("benchmarks.switching", "size", "1000").split()[0])
    for n in SIZES:
        peak, seconds = (float(value) for value in run_fresh("benchmarks.switching", "size", str(n)).split())
        print(f"  {n:12,}{peak / 1e9:10.2f}{(peak - first) / 1e9:18.2f}{(peak - first) / n:16.0f}{seconds:13.1f}")


def size(n: int) -> None:
    """Fit demonstrations with n steps in all, and print the peak memory and the processor time."""
    rng = np.random.default_rng(0)
    S, length = 100, 1000
    places = np.arange(S)
    src, dst = np.repeat(places, 2), np.column_stack([(places + 1) % S, (places - 1) % S]).ravel()
    mdp = ll.MDP.from_edges(src, dst, action=np.tile([0, 1], S), gamma=0.9, state_features=rng.normal(size=(S, 5)))
    # Two directions, each for about 50 steps.
    turns = np.repeat(rng.random(n // 50 + 1) < 0.5, 50)[:n]
    back = (rng.random(n) < np.where(turns, 0.8, 0.2)).astype(np.int64)
    N = n // length
    moves = (1 - 2 * back).reshape(N, length)
    states = np.concatenate([np.zeros((N, 1), dtype=np.int64), np.cumsum(moves, axis=1)], axis=1) % S
    actions = np.concatenate([back.reshape(N, length), np.full((N, 1), -1)], axis=1)
    demos = ll.Demonstrations(states.ravel(), (length + 1) * np.arange(N + 1), actions.ravel())
    del turns, back, moves, states, actions
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ll.SwitchingMixture(3, ll.MaxCausalEnt(ridge=1e-4), random_state=0, max_iter=5).fit(mdp, demos)
    print(peak_bytes(), time.process_time() - start)


if __name__ == "__main__":
    chosen = sys.argv[1:] or ["recovery", "planning", "groups", "labyrinth", "memory"]
    if chosen[0] == "size":
        size(int(chosen[1]))
    else:
        print(describe_machine())
        for section in chosen:
            sections = {"recovery": recovery, "planning": planning, "groups": groups, "labyrinth": labyrinth}
            (sections | {"memory": memory})[section]()
