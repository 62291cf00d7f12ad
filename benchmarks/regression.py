"""Compare the numerical results of two versions: about 7,900 arrays from all packages.

    python benchmarks/regression.py OUT.npz [--only NAME ...]  run all sections, or the sections that start with NAME
    python benchmarks/regression.py --compare A.npz B.npz      print the differences
    python benchmarks/regression.py --list                     list the sections

The version of limiirl on PYTHONPATH is imported: run the script once with the `src` of a checkout of the earlier
version (0.1 is commit 83d3a29) and once with this one. Nothing else is imported from the repository. Names that are
likely to change are in ADAPTERS below. An exception removes only the arrays of its call or part; it is printed and
stored in the file.
"""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):  # before numpy is loaded
    os.environ.setdefault(_name, "1")

import csv  # noqa: E402
import inspect  # noqa: E402
import json  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
import traceback  # noqa: E402
import warnings  # noqa: E402
from contextlib import contextmanager  # noqa: E402
from functools import cache  # noqa: E402
from importlib import import_module  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402

# ---------------------------------------------------------------------------------------------------------- ADAPTERS
# Names between this line and "END OF ADAPTERS" may change between versions. Known renames are resolved automatically;
# add others here.

DATA = Path(os.environ.get("LIMIIRL_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


def ll():
    """Return the library, imported late because --compare does not need it."""
    return import_module("limiirl")


def _first(*homes):
    """Return the first 'module:name' that exists. If a name moves, add its new location."""
    for home in homes:
        module, _, name = home.partition(":")
        try:
            package = import_module(module)
            return getattr(package, name) if name else package
        except (ImportError, AttributeError):
            continue
    raise ImportError(f"none of {homes}: add the new home to ADAPTERS")


def _space(name):
    """Return MaxEnt parameters: number_space= in 0.1, arithmetic= later."""
    named = "arithmetic" if "arithmetic" in inspect.signature(ll().MaxEnt).parameters else "number_space"
    return {named: name}


def _resp_tol(value):
    """Return IntentMixture parameters: tol= in 0.1, resp_tol= later."""
    named = "resp_tol" if "resp_tol" in inspect.signature(ll().IntentMixture).parameters else "tol"
    return {named: value}


def planning():
    """Return the module with optimal_values, action_values, optimal_policy and policy_values."""
    return _first("limiirl.mdp.planning", "limiirl.planning")


def stick_breaking(points, most, seed):
    """Return the number of clusters of the stick-breaking GMM, which is internal in 0.1."""
    return _first(
        "limiirl.mixture.stick_breaking:stick_breaking",
        "limiirl.mixture.selection.recommend:stick_breaking",
        "limiirl.mixture.selection.stick_breaking:stick_breaking",
    )(points, most, seed)


def simulate(mdp, policy, n, seed, max_length=50):
    """Return trajectories of a stationary policy (P,), which is internal in 0.1."""
    return _first("limiirl.demos.simulate:simulate", "limiirl.demos:simulate")(
        mdp, policy, n, seed, max_length=max_length
    )


def with_choices(mdp):
    """Return the MDP with the action feature "choices"."""
    return _first("limiirl.irl:with_choices", "limiirl.irl.destination:with_choices", "limiirl:with_choices")(mdp)


def causal(*args, length=None, **kwargs):
    """Return MaxCausalEnt, whose maximum length is horizon= in 0.1 and max_length= later."""
    cls = ll().MaxCausalEnt
    if length is not None:
        named = "horizon" if "horizon" in inspect.signature(cls).parameters else "max_length"
        kwargs[named] = length
    return cls(*args, **kwargs)


def executor(workers):
    """Return a local executor: ll.engines.Engine(workers=) in 0.1, ll.executors later."""
    lib = ll()
    if hasattr(lib, "executors"):
        home = lib.executors
        made = getattr(home, "Executor", None) or getattr(home, "LocalExecutor", None) or home.Engine
        return made(workers=workers)

    return import_module("limiirl.engines").Engine(workers=workers)


def _epsilon(*args, **kwargs):
    """Return the realised epsilon: realised_epsilon in 0.1, compute_epsilon later."""
    theory = ll().theory
    return (getattr(theory, "compute_epsilon", None) or theory.realised_epsilon)(*args, **kwargs)


def run_with(function, *args, workers, **kwargs):
    """Call a function with engine= (0.1) or executor= (later)."""
    named = "engine" if "engine" in inspect.signature(function).parameters else "executor"
    return function(*args, **kwargs, **{named: executor(workers)})


def command_line(*words):
    """Run `limiirl` with this interpreter and PYTHONPATH, and return stdout."""
    call = [sys.executable, "-c", "from limiirl.cli import main; main()", *map(str, words)]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"limiirl {' '.join(map(str, words))} exited with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def reproduce(folder):
    """Run Table 1 of the paper in three worlds, with its report."""
    command_line("reproduce", "table1", "--repeats", 3, "--workers", 2, "--out", folder, "--json")


def tables_of_run(folder):
    """Return the CSV files of a report, tables first; `_not_a_time` drops times."""
    return sorted((folder / "report" / "tables").glob("*.csv")) + sorted((folder / "report" / "figures").glob("*.csv"))


def trial_numbers(record):
    """Return the reproducible values of a record as a dict, without hash and texts."""
    return record.reproducible() if hasattr(record, "reproducible") else vars(record)


def path_set(mdp, supports, max_length):
    """Return the path set of theory.PathSet for the support of each intent."""
    return ll().theory.PathSet(mdp, supports, max_length)


class roads_api:
    """Return limiirl.roads with the names of 0.1."""

    NEW = {
        "record": "simulate_gps",
        "recording": "simulate_recording",
        "recovered": "path_recovery",
        "describe": "summarize",
        "segments_at": "nearest_segments",
        "quality": "measure_quality",
    }

    def fit_drivers(self, *args, **settings):
        """Fit with the defaults of 0.1: no `likelihood_tol`, 100 iterations, and no ridge."""
        fit, settings = ll().roads.fit_drivers, {"likelihood_tol": None, "max_iter": 100} | settings
        module = import_module(fit.__module__)
        if hasattr(module, "_RIDGE"):  # since ADR 0025
            module._RIDGE = 0.0
        if "max_length" in inspect.signature(fit).parameters and "max_segments" in settings:
            settings["max_length"] = settings.pop("max_segments")
        return fit(*args, **settings)

    def __getattr__(self, name):
        roads = ll().roads
        return getattr(roads, name) if hasattr(roads, name) else getattr(roads, self.NEW[name])


def quality_of(network, trips, matches):
    """Return measures of matched trips, a submodule of roads in 0.1."""
    roads = ll().roads
    measure = roads.measure_quality if hasattr(roads, "measure_quality") else roads.quality
    return (measure if callable(measure) else measure.quality)(network, trips, matches)


# --------------------------------------------------------------------------------------------------- END OF ADAPTERS


class Recorder:
    """Named float arrays, and errors."""

    def __init__(self):
        self.arrays, self.errors, self.times, self._path = {}, {}, {}, []

    def _name(self, name):
        return "/".join([*self._path, name])

    def put(self, name, value):
        """Record a number, an array, a nested structure of them, or Demonstrations."""
        for tail, array in flatten(value):
            full = self._name(name) + tail
            if full in self.arrays:
                raise KeyError(f"{full} is there twice")
            self.arrays[full] = array

    def get(self, name, thunk):
        """Record and return the result of a call; on an error, record it and return None."""
        try:
            value = thunk()
            self.put(name, value)
            return value
        except Exception as error:  # noqa: BLE001
            self.fail(name, error)
            return None

    def fields(self, name, value, names):
        """Record some attributes of an object."""
        for field in names.split():
            self.get(f"{name}.{field}", lambda field=field: _call(getattr(value, field)))

    def fail(self, name, error):
        full = self._name(name)
        last = traceback.extract_tb(error.__traceback__)[-1]
        self.errors[full] = f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"
        print(f"  ERROR {full}: {self.errors[full]}", flush=True)

    @contextmanager
    def part(self, name):
        """Open a named part; an exception ends only this part."""
        self._path.append(name)
        try:
            yield
        except Exception as error:  # noqa: BLE001
            self.fail("!", error)
            if os.environ.get("GOLDEN_TRACE"):
                traceback.print_exc()
        finally:
            self._path.pop()

    def save(self, path):
        texts = {"errors": self.errors, "times": self.times, "meta": _meta()}
        with open(path, "wb") as file:
            np.savez_compressed(file, **self.arrays, **{f"__{k}__": np.array(json.dumps(v)) for k, v in texts.items()})


def _call(value):
    return value() if inspect.ismethod(value) else value


def _meta():
    return {"limiirl": str(ll().__file__), "version": ll().__version__, "numpy": np.__version__}


def flatten(value):
    """Yield pairs of a name suffix and a float array."""
    if value is None:
        yield "", np.array(np.nan)
    elif hasattr(value, "offsets") and hasattr(value, "states") and hasattr(value, "last_states"):  # Demonstrations
        yield ".states", np.asarray(value.states, dtype=np.float64)
        yield ".offsets", np.asarray(value.offsets, dtype=np.float64)
        if value.actions is not None:
            yield ".actions", np.asarray(value.actions, dtype=np.float64)
        if value.groups is not None and np.asarray(value.groups).dtype.kind in "iufb":
            yield ".groups", np.asarray(value.groups, dtype=np.float64)
    elif hasattr(value, "toarray"):
        yield "", np.asarray(value.toarray(), dtype=np.float64)
    elif isinstance(value, dict):
        for key, entry in value.items():
            if not isinstance(entry, str):
                for tail, array in flatten(entry):
                    yield f"[{key}]{tail}", array
    elif hasattr(value, "_asdict"):
        yield from flatten(value._asdict())
    elif isinstance(value, list | tuple):
        try:
            array = np.asarray(value)
            plain = array.dtype.kind in "iufb"
        except ValueError:
            plain = False
        if plain:
            yield "", array.astype(np.float64)
        else:
            for i, entry in enumerate(value):
                if not isinstance(entry, str):
                    for tail, array in flatten(entry):
                        yield f"[{i}]{tail}", array
    else:
        array = np.asarray(value)
        if array.dtype.kind not in "iufb":
            raise TypeError(f"no numbers: {type(value).__name__} of dtype {array.dtype}")
        yield "", array.astype(np.float64)


SECTIONS = {}


def section(function):
    """Register a section under the function's name."""
    SECTIONS[function.__name__] = function
    return function


def beginnings(demos, n):
    """Return the first n states of each demonstration, or all but the last."""
    parts = [(d.states, d.actions) for d in demos]
    cut = [max(1, min(n, len(s) - 1)) for s, _ in parts]
    states = [s[:m] for (s, _), m in zip(parts, cut, strict=True)]
    if demos.actions is None:
        return ll().Demonstrations.from_lists(states)
    actions = [a[: m - 1] for (_, a), m in zip(parts, cut, strict=True)]
    return ll().Demonstrations.from_lists(states, actions)


def statesonly(demos):
    """Return the demonstrations without actions."""
    return ll().Demonstrations.from_lists([d.states for d in demos])


# ------------------------------------------------------------------------------------------------------------ worlds


@cache
def element():
    world = ll().worlds.ElementWorld(seed=2)
    return (world, *world.sample(60, seed=2))


@cache
def puddle():
    world = ll().worlds.PuddleWorld(seed=1)
    return (world, *world.sample(50, seed=3, policy="boltzmann", beta=5.0))


@cache
def objects():
    world = ll().worlds.ObjectWorld(size=5, n_objects=7, n_colours=2, n_intents=2, seed=4)
    return (world, *world.sample(40, seed=1, max_length=20, policy="boltzmann", beta=4.0))


@cache
def synthetic():
    world = ll().worlds.SyntheticWorld(n_states=41, n_features=5, n_intents=3, seed=3)
    return (world, *world.sample(60, seed=5, policy="boltzmann", beta=3.0))


WORLDS = {"element": element, "puddle": puddle, "objects": objects, "synthetic": synthetic}


@cache
def tangle():
    """Return a small random MDP with all three types of features, a terminal state and stochastic transitions."""
    rng = np.random.default_rng(11)
    S, A = 7, 3
    T = rng.dirichlet(np.full(3, 0.7), size=(S, A))
    dense = np.zeros((S, A, S))
    for s in range(S):
        for a in range(A):
            dense[s, a, rng.choice(S, 3, replace=False)] = T[s, a]
    dense[6] = 0.0
    terminal = np.arange(S) == 6
    return ll().MDP.from_dense(
        dense,
        np.array([0.5, 0.3, 0.2, 0, 0, 0, 0]),
        gamma=0.95,
        state_features=rng.normal(size=(S, 2)),
        action_features=rng.normal(size=(S, A, 1)),
        edge_features=rng.normal(size=(S, A, S, 1)),
        terminal=terminal,
    )


@cache
def tangle_demos():
    mdp = tangle()
    return ll().MaxEnt(8, bounds=(-3, 3)).sample(mdp, [0.4, -0.3, 0.5, -0.2], 40, seed=1)


@cache
def town():
    """Return the town of docs/forecasting.md, with two types of drivers."""
    lib = ll()
    grid = lib.worlds.RoadGrid(n_states=200, n_edges=400, seed=4)
    main = (grid.road_class < 2).astype(float)
    phi = np.column_stack([grid.length_km, grid.length_km * (1.0 - main)])
    mdp = lib.MDP.from_edges(grid.mdp.src, grid.mdp.dst, state_features=phi, feature_names=["km", "km small"])
    styles = lib.RewardEnsemble([0.6, 0.4], [[-14.0, -26.0], [-30.0, 0.0]])
    irl, rng = lib.DestinationMaxEnt(bounds=(-60.0, 0.0)), np.random.default_rng(0)
    labels = rng.choice(2, p=styles.weights, size=120)
    ends = rng.integers(200, size=120), rng.choice([7, 60, 150], size=120)
    by_style = [irl.sample(mdp, theta, *ends, seed=rng) for theta in styles.thetas]
    demos = lib.Demonstrations.concat(by_style)[labels * 120 + np.arange(120)]
    return grid, mdp, styles, demos, labels


@cache
def couriers():
    """Return the agents of docs/sigma_girl.md, and new ones."""
    steps, noise = 6, 0.5

    def cost(gain, weights):
        square, total = 1.0, 0.0
        for t in range(steps):
            total += 0.9**t * (weights[0] * square + weights[1] * (gain**2 * square + noise**2))
            square = (1.0 - gain) ** 2 * square + noise**2
        return total

    def courier(weights, n, rng):
        gain = min(np.linspace(0.0, 1.0, 1001), key=lambda k: cost(k, weights))
        distance, x, actions = rng.normal(size=n), [], []
        for _ in range(steps):
            action = -gain * distance + noise * rng.normal(size=n)
            x.append(distance)
            actions.append(action)
            distance = distance + action
        x, actions = np.stack(x, axis=1)[..., None], np.stack(actions, axis=1)[..., None]
        return x, actions, np.concatenate([-(x**2), -(actions**2)], axis=2)

    rng = np.random.default_rng(0)
    truth, labels = np.array([[0.8, 0.2], [0.3, 0.7]]), [0, 1, 1, 0, 1, 0]
    records = [courier(truth[k], 300, rng) for k in labels]
    agents = ll().Agents.from_arrays(*zip(*records, strict=True), names=list("abcdef"), labels=labels)
    new = ll().Agents.from_arrays(*zip(courier(truth[1], 200, rng), courier(truth[0], 100, rng), strict=True))
    return agents, new


# -------------------------------------------------------------------------------------------------- MDP and planning


def put_mdp(r, name, mdp):
    r.fields(
        name,
        mdp,
        "src act dst prob p0 gamma terminal n_states n_actions n_edges n_pairs n_features "
        "n_state_features n_action_features n_edge_features deterministic out_ptr pair_state pair_action pair_of_edge",
    )
    r.get(f"{name}.rewards", lambda: [x for x in mdp.rewards(np.eye(mdp.n_features)) if x is not None])


@section
def mdp(r):
    lib = ll()
    rng = np.random.default_rng(0)
    made = {"dense": tangle()}
    with r.part("edges"):
        made["edges"] = lib.MDP.from_edges(
            [0, 0, 1, 1, 2, 3, 3],
            [1, 2, 2, 3, 3, 0, 4],
            n_states=5,
            gamma=0.9,
            state_features=rng.normal(size=(5, 2)),
            edge_features=rng.normal(size=(7, 1)),
        )
        made["edges_prob"] = lib.MDP.from_edges(
            [0, 0, 0, 1, 1],
            [1, 2, 2, 2, 0],
            action=[0, 0, 1, 0, 1],
            prob=[0.25, 0.75, 1.0, 1.0, 1.0],
            p0=[0.5, 0.5, 0.0],
            gamma=0.8,
        )
    with r.part("networkx"):
        import networkx as nx

        graph = nx.grid_2d_graph(3, 4)
        for i, node in enumerate(graph.nodes):
            graph.nodes[node]["height"] = float(np.sin(i))
        for i, edge in enumerate(graph.edges):
            graph.edges[edge]["length"] = 1.0 + 0.1 * i
        made["networkx"] = lib.MDP.from_networkx(graph, features=["height", "length"], terminal=[(2, 3)])
        made["networkx_multi"] = lib.MDP.from_networkx(
            nx.MultiDiGraph([(0, 1), (0, 1), (1, 2), (2, 0), (1, 3)]), gamma=0.9
        )
    with r.part("demonstrations"):
        _, demos, _ = element()
        made["demos_actions"] = lib.MDP.from_demonstrations(demos, gamma=0.99)
        made["demos_states"] = lib.MDP.from_demonstrations(statesonly(demos), smoothing=0.5)
        frame = {"demo": [0, 0, 0, 1, 1], "t": [0, 1, 2, 0, 1], "state": [0, 0, 1, 0, 1], "action": [1, 1, -1, 0, -1]}
        made["demos_frame"] = lib.MDP.from_demonstrations(frame, smoothing=0.5)
    with r.part("gymnasium"):
        from types import SimpleNamespace

        coin = SimpleNamespace(
            P={
                0: {0: [(0.5, 0, 0.0, False), (0.5, 1, 1.0, True)], 1: [(1.0, 0, 0.0, False)]},
                1: {0: [(1.0, 1, 0.0, True)]},
            }
        )
        made["gymnasium"] = lib.MDP.from_gymnasium(coin)
    with r.part("roadgrid"):
        grid = lib.worlds.RoadGrid(n_states=300, n_edges=620, seed=1)
        made["roadgrid"] = grid.mdp
        r.fields("grid", grid, "node_xy tail head length_km road_class speed_class region one_way turns")
    with r.part("choices"):
        made["choices"] = with_choices(town()[1])
    with tempfile.TemporaryDirectory() as folder:
        for name, one in made.items():
            with r.part(name):
                put_mdp(r, "mdp", one)
                one.save(Path(folder) / f"{name}.npz")
                again = lib.MDP.load(Path(folder) / f"{name}.npz")
                put_mdp(r, "loaded", again)
                r.put("fingerprint_same", again.fingerprint() == one.fingerprint())


@section
def planning_(r):
    plan = planning()
    for name, make in WORLDS.items():
        world, _, _ = make()
        for k, theta in enumerate(world.ensemble.thetas):
            with r.part(f"{name}{k}"):
                put_plans(r, plan, world.mdp, theta)
    with r.part("tangle"):
        put_plans(r, plan, tangle(), np.array([0.4, -0.3, 0.5, -0.2]))
    with r.part("grid"):
        _, mdp, styles, _, _ = town()
        kept = mdp.src != 60  # a goal: nothing leads on from it
        one = ll().MDP.from_edges(
            mdp.src[kept], mdp.dst[kept], n_states=mdp.n_states, state_features=mdp.state_features
        )
        put_plans(r, plan, one, styles.thetas[0])


def put_plans(r, plan, mdp, theta):
    V = plan.optimal_values(mdp, theta)
    r.put("optimal_values", V)
    if mdp.gamma < 1.0:
        r.get("worst_values", lambda: plan.optimal_values(mdp, theta, minimise=True))
    r.get("action_values", lambda: plan.action_values(mdp, V, theta))
    policy = plan.optimal_policy(mdp, theta)
    r.put("optimal_policy", policy)
    r.get("policy_values", lambda: plan.policy_values(mdp, policy, theta))
    r.get("soft_policy", lambda: ll().worlds.boltzmann_policy(mdp, theta, 2.0))


# --------------------------------------------------------------------------------------- demonstrations and sampling


@section
def demos(r):
    lib = ll()
    for name, make in WORLDS.items():
        with r.part(name):
            world, demos, labels = make()
            put_mdp(r, "mdp", world.mdp)
            r.fields("ensemble", world.ensemble, "weights thetas")
            r.put("sample", demos)
            r.put("labels", labels)
            r.get("optimal", lambda: world.sample(20, seed=9))
            r.get("boltzmann", lambda: world.sample(20, seed=9, policy="boltzmann", beta=2.0, max_length=15))
            shares = lib.worlds.geometric_weights(world.ensemble.n_intents, 0.4)
            r.put("geometric", shares)
            r.get("unequal", lambda: world.sample(20, seed=9, weights=shares))
            r.get("policies", world.policies)
            for which, given in (("recorded", demos), ("states", statesonly(demos))):
                r.get(f"features_{which}", lambda given=given: given.features(world.mdp))
                r.get(f"log_q_{which}", lambda given=given: given.log_q(world.mdp))
            r.fields("demos", demos, "lengths n_steps n_transitions start_states last_states")
            steps = demos.steps(world.mdp)
            r.fields("steps", steps, "demo_of_step edge")
            uniform = 1.0 / np.bincount(world.mdp.pair_state, minlength=world.mdp.n_states)[world.mdp.pair_state]
            r.get("simulate", lambda: simulate(world.mdp, uniform, 15, 4, 12))
    with r.part("tangle"):
        r.get("features", lambda: tangle_demos().features(tangle()))
        r.get("features_states", lambda: beginnings(tangle_demos(), 4).features(tangle()))
        r.get("log_q", lambda: statesonly(tangle_demos()).log_q(tangle()))
    with r.part("files"), tempfile.TemporaryDirectory() as folder:
        import pandas as pd

        _, demos, _ = puddle()
        demos.to_parquet(Path(folder) / "d.parquet")
        r.put("parquet", lib.Demonstrations.from_parquet(Path(folder) / "d.parquet"))
        rows = [
            (i, t, s, a, i % 3)
            for i, d in enumerate(demos)
            for t, (s, a) in enumerate(zip(d.states, [*d.actions, -1], strict=True))
        ]
        frame = pd.DataFrame(rows, columns=["demo", "t", "state", "action", "group"]).sample(frac=1.0, random_state=0)
        r.put("frame", lib.Demonstrations.from_frame(frame))
        frame.to_csv(Path(folder) / "d.csv", index=False)
        r.put("csv", lib.Demonstrations.from_file(Path(folder) / "d.csv"))
        r.put("concat", lib.Demonstrations.concat([demos[:3], demos[[7, 5]], demos.subset(slice(9, 12))]))
    with r.part("continuous"):
        world = lib.worlds.ContinuousPuddleWorld(seed=0)
        agents = world.agents(10, seed=0)
        r.get("features", lambda: agents.features(0.999))
        r.get("policy_features", lambda: agents.features(0.999, of="policy"))
        r.fields("ensemble", world.ensemble, "weights thetas")


# ------------------------------------------------------------------------------------------------------------ models


def put_fit(r, name, irl, mdp, demos, **more):
    theta = r.get(f"{name}.theta", lambda: irl.fit(mdp, demos, **more))
    if theta is not None:
        r.fields(
            f"{name}.result", irl.result_, "value n_evaluations n_hessians projected_gradient null_directions converged"
        )
    return theta


def put_maxent(r, irl, mdp, thetas, demos, ends, *, finite=True):
    r.get("log_partition", lambda: irl.log_partition(mdp, thetas))
    r.get("expected_features", lambda: irl.expected_features(mdp, thetas))
    r.get("hessian", lambda: irl.hessian(mdp, thetas[0]))
    r.get("state_marginals", lambda: irl.state_marginals(mdp, thetas))
    r.get("edge_marginals", lambda: irl.edge_marginals(mdp, thetas))
    if finite:
        r.get("time_marginals", lambda: irl.time_marginals(mdp, thetas[0]))
    put_model(r, irl, mdp, thetas, demos, ends)


def put_model(r, irl, mdp, thetas, demos, ends, *, free=True):
    """Record the methods of a model for demonstrations."""
    rng = np.random.default_rng(7)
    weights = rng.uniform(0.1, 1.0, size=(len(demos), 2))
    r.get("log_prob", lambda: irl.log_prob(mdp, thetas, demos))
    r.get("log_prob_states", lambda: irl.log_prob(mdp, thetas, statesonly(demos)))
    begun = beginnings(demos, 3)
    if free:  # a model that needs no goals
        r.get("log_prob_prefix", lambda: irl.log_prob_prefix(mdp, thetas, begun))
    if hasattr(irl, "next_actions"):
        r.get("next_actions", lambda: irl.next_actions(mdp, thetas, begun))
    if hasattr(irl, "policy"):
        r.get("policy", lambda: irl.policy(mdp, thetas[0]))
        r.get("policy_2", lambda: irl.policy(mdp, thetas[-1], 2))
    r.get("most_likely", lambda: irl.most_likely(mdp, thetas[0], *ends))
    r.get("null_directions", lambda: irl.null_directions(mdp, thetas[0]))
    if hasattr(irl, "residual"):
        r.get("residual", lambda: irl.residual(mdp, thetas))
    if free:
        r.get("sample", lambda: irl.sample(mdp, thetas[0], 12, seed=3))
    put_fit(r, "fit", irl, mdp, demos)
    put_fit(r, "fit_weighted", irl, mdp, demos, weights=weights[:, 0], start=thetas[0])
    r.get("fit_many", lambda: irl.fit_many(mdp, demos, weights, thetas[:2]))


def some_thetas(world, K=2):
    rng = np.random.default_rng(5)
    d = world.mdp.n_features
    return np.vstack([world.ensemble.thetas[0], rng.uniform(-1.5, -0.1, size=(K, d))])


@section
def maxent(r):
    lib = ll()
    for name, make in WORLDS.items():
        with r.part(name):
            world, demos, _ = make()
            ends = int(demos.start_states[0]), int(demos.last_states[0])
            put_maxent(r, lib.MaxEnt(int(demos.lengths.max()) + 3), world.mdp, some_thetas(world), demos, ends)
    world, demos, _ = element()
    ended = demos[world.mdp.terminal[demos.last_states]]
    ends = int(demos.start_states[0]), int(demos.last_states[0])
    thetas = some_thetas(world)
    variants = {
        "terminal": {"stop": "terminal"},
        "terminal_or_max_length": {"stop": "terminal_or_max_length"},
        "start": {"condition": "start"},
        "log": _space("log"),
        "linear": _space("linear"),
        "lbfgs": {"solver": "lbfgs"},
        "bfgs": {"solver": "bfgs", "ridge": 0.01},
        "wide": {"bounds": (-10.0, 10.0), "ridge": 0.001},
        "checkpoints": {"max_memory": 20000.0},
    }
    for name, settings in variants.items():
        with r.part(name):
            kept = ended if "stop" in settings else demos
            put_maxent(r, lib.MaxEnt(30, **settings), world.mdp, thetas, kept, ends)
    with r.part("long"):
        irl = lib.MaxEnt(400)
        r.put("log_partition", irl.log_partition(world.mdp, thetas))
        r.put("expected_features", irl.expected_features(world.mdp, thetas))
    with r.part("none"):
        irl = lib.MaxEnt()
        put_fit(r, "fit", irl, world.mdp, demos)
        r.put("max_length", irl.max_length_)
    with r.part("tangle"):
        put_maxent(
            r,
            lib.MaxEnt(9, bounds=(-5, 5)),
            tangle(),
            np.array([[0.4, -0.3, 0.5, -0.2], [0.1, 0.0, -0.4, 0.3]]),
            tangle_demos(),
            (0, 6),
        )


@section
def maxent_infinite(r):
    lib = ll()
    _grid, mdp, styles, demos, _ = town()
    ends = int(demos.start_states[0]), int(demos.last_states[0])
    thetas = np.vstack([styles.thetas[:1] * 2.0, [[-40.0, -5.0]]])
    with r.part("town"):
        put_maxent(r, lib.MaxEnt(np.inf, bounds=(-60.0, 0.0)), mdp, thetas, demos[:60], ends, finite=False)
    with r.part("town_start"):
        put_maxent(
            r, lib.MaxEnt(np.inf, bounds=(-60.0, 0.0), condition="start"), mdp, thetas, demos[:60], ends, finite=False
        )
    with r.part("element_terminal"):
        world = lib.worlds.ElementWorld(gamma=1.0, seed=2)
        walks, _ = world.sample(40, seed=2)
        thetas = np.minimum(some_thetas(world), -0.05) - 1.5
        ends = int(walks.start_states[0]), int(walks.last_states[0])
        put_maxent(r, lib.MaxEnt(np.inf, stop="terminal"), world.mdp, thetas, walks, ends, finite=False)
        put_maxent_roadgrid(r)


def put_maxent_roadgrid(r):
    """Record MaxEnt with finite lengths and several intents on the features of the grid."""
    lib = ll()
    grid = lib.worlds.RoadGrid(n_states=300, n_edges=620, seed=1)
    thetas = np.random.default_rng(2).uniform(-3.0, -0.2, size=(3, grid.mdp.n_features))
    irl = lib.MaxEnt(40)
    r.put("roadgrid.log_partition", irl.log_partition(grid.mdp, thetas))
    r.put("roadgrid.expected_features", irl.expected_features(grid.mdp, thetas))
    walks = irl.sample(grid.mdp, thetas[0], 40, seed=8)
    r.put("roadgrid.sample", walks)
    put_fit(r, "roadgrid.fit", lib.MaxEnt(40, ridge=0.01), grid.mdp, walks)


@section
def maxcausalent(r):
    for name, make in WORLDS.items():
        with r.part(name):
            world, demos, _ = make()
            ends = int(demos.start_states[0]), int(demos.last_states[0])
            put_model(r, causal(), world.mdp, some_thetas(world), demos, ends)
    world, demos, _ = element()
    ends = int(demos.start_states[0]), int(demos.last_states[0])
    ended = demos[world.mdp.terminal[demos.last_states]]
    for name, irl, kept in (
        ("horizon", causal(length=30), demos),
        ("horizon_terminal", causal(length=30, stop="terminal_or_max_length"), ended),
        ("bounds", causal(0.7, bounds=(-10.0, 0.0), ridge=0.01), demos),
    ):
        with r.part(name):
            put_model(r, irl, world.mdp, some_thetas(world), kept, ends)
    with r.part("tangle"):
        put_model(
            r, causal(), tangle(), np.array([[0.4, -0.3, 0.5, -0.2], [0.1, 0.0, -0.4, 0.3]]), tangle_demos(), (0, 6)
        )


@section
def mlirl(r):
    for q in ("hard", "bv"):
        for name in ("element", "puddle", "synthetic"):
            with r.part(f"{q}_{name}"):
                world, demos, _ = WORLDS[name]()
                ends = int(demos.start_states[0]), int(demos.last_states[0])
                put_model(r, ll().MLIRL(q=q), world.mdp, some_thetas(world), demos, ends)
        with r.part(f"{q}_tangle"):
            thetas = np.array([[0.4, -0.3, 0.5, -0.2], [0.1, 0.0, -0.4, 0.3]])
            put_model(r, ll().MLIRL(1.0, q=q, bounds=(-4, 4)), tangle(), thetas, tangle_demos(), (0, 6))


@section
def destination(r):
    lib = ll()
    _, mdp, styles, demos, _ = town()
    ends = int(demos.start_states[0]), int(demos.last_states[0])
    for name, world, thetas, settings in (
        ("town", mdp, styles.thetas, {}),
        ("newton", mdp, styles.thetas, {"solver": "newton"}),
        ("lbfgs", mdp, styles.thetas, {"solver": "lbfgs", "ridge": 1e-4}),
        ("choices", with_choices(mdp), np.column_stack([styles.thetas * 0.3, [-1.2, -1.5]]), {}),
    ):
        with r.part(name):
            irl = lib.DestinationMaxEnt(bounds=(-60.0, 0.0), **settings)
            kept = demos[irl.admits(demos)]
            put_model(r, irl, world, np.asarray(thetas), kept, ends, free=False)
            r.get("sample", lambda: irl.sample(world, thetas[0], demos.start_states[:9], demos.last_states[:9], seed=2))
            r.get("log_value", lambda: irl.log_value(world, thetas, [7, 60]))
            r.get("policy_to", lambda: irl.policy_to(world, thetas[1], 60))
            r.get(
                "expected_flow",
                lambda: irl.expected_flow(world, thetas[0], demos.start_states[:20], demos.last_states[:20]),
            )
            r.get("prefix_goals", lambda: irl.log_prob_prefix(world, thetas, beginnings(kept, 4), kept.last_states))


@section
def sigma_girl(r):
    lib = ll()
    agents, new = couriers()
    sets = {"couriers": (agents, new, {"gamma": 0.9})}
    with r.part("load"):
        released = lib.Agents.from_released(DATA / "sigma_girl_gridworld" / "gridworld_agents.npz", dataset=0)
        sets["released"] = (released.subsample(30, 0), released.subsample(20, 1), {"gamma": 0.99})
        world, _, _ = puddle()
        walks, labels = world.sample(90, seed=6, policy="boltzmann", beta=1.0, max_length=20)
        groups = labels * 3 + np.arange(90) % 3
        grouped = lib.Agents.from_demonstrations(world.mdp, walks, groups)
        sets["grid"] = (grouped, grouped, {"gamma": 0.99})
    for name, (given, others, settings) in sets.items():
        for covariance in ("diagonal", "full") if name == "couriers" else ("diagonal",):
            with r.part(f"{name}_{covariance}"):
                irl = lib.SigmaGIRL(covariance=covariance, **settings)
                d = given.n_reward_features
                thetas = np.random.default_rng(1).dirichlet(np.ones(d), size=3)
                r.get("features", lambda: irl.features(None, given))
                r.get("log_prob", lambda: irl.log_prob(None, thetas, given))
                r.get("log_prob_new", lambda: irl.log_prob(None, thetas, others))
                r.get("fit", lambda: irl.fit(None, given))
                weights = np.random.default_rng(2).uniform(0.1, 1.0, size=(len(given), 2))
                r.get("fit_weighted", lambda: irl.fit(None, given, weights=weights[:, 0]))
                r.get("fit_many", lambda: irl.fit_many(None, given, weights))
                r.get("null_directions", lambda: irl.null_directions(None, thetas[0]))


# ---------------------------------------------------------------------------------------------------------- mixtures


def put_mixture(r, mix, demos, new=None, begun=None, groups=None, ends=None, can="sample next likely policy partial"):
    """Record all values of a fitted mixture; `can` lists the optional methods of its model."""
    lib = ll()
    r.fields("mix", mix, "weights_ thetas_ responsibilities_ labels_ n_iter_ converged_ log_likelihood_ objective_")
    r.get("history", lambda: np.array([[h.log_likelihood, h.objective, h.change] for h in mix.history_]))
    r.get("history_evaluations", lambda: [h.n_evaluations for h in mix.history_])
    r.get(
        "restarts", lambda: np.array([[s.objective, s.n_iter, s.converged, s.distance, s.best] for s in mix.restarts_])
    )
    r.get("restarts_thetas", lambda: np.array([s.ensemble.thetas for s in mix.restarts_]))
    if groups is not None:
        r.fields("mix", mix, "group_responsibilities_")
        r.get("groups", lambda: np.unique(mix.groups_).size)
    for name in ("score", "bic", "aic", "icl"):
        r.get(name, lambda name=name: getattr(mix, name)(demos, groups))
    r.get("score_samples", lambda: mix.score_samples(demos, groups))
    put_summary(r, mix, demos, groups)
    if new is not None:
        r.get("new_proba", lambda: mix.predict_proba(new))
        r.get("new_labels", lambda: mix.predict(new))
        r.get("new_score", lambda: mix.score(new))
    if begun is not None and "partial" in can:
        r.get("partial_proba", lambda: mix.predict_proba(begun, partial=True))
        r.get("partial_score", lambda: mix.score_samples(begun, partial=True))
    if begun is not None and "next" in can:
        r.get("next_actions", lambda: mix.next_actions(begun))
    if ends is not None and "likely" in can:
        r.get("most_likely", lambda: mix.most_likely(*ends))
        r.get("most_likely_0", lambda: mix.most_likely(*ends, intent=0))
    if "policy" in can:
        r.get("policy", lambda: [mix.policy(k) for k in range(len(mix.weights_))])
    if "sample" in can:
        r.get("sample", lambda: mix.sample(15, seed=5))
    with tempfile.TemporaryDirectory() as folder:
        try:
            mix.save(Path(folder) / "mix")
            again = lib.IntentMixture.load(Path(folder) / "mix")
            r.fields("loaded", again, "weights_ thetas_")
            r.get("loaded.proba", lambda: again.predict_proba(demos, groups))
        except Exception as error:  # noqa: BLE001
            r.fail("save", error)


def put_summary(r, mix, demos, groups):
    def numbers(summary):
        return {
            "status_ok": summary.status == "ok",
            **{
                name: getattr(summary, name)
                for name in [
                    "n_units",
                    "n_iter",
                    "log_likelihood",
                    "bic",
                    "n_free",
                    "weights",
                    "weight_errors",
                    "sizes",
                    "counts",
                    "thetas",
                    "errors",
                    "n_starts",
                    "n_best",
                    "distances",
                ]
            },
        }

    r.get("summary", lambda: numbers(mix.summary()))
    r.get("summary_demos", lambda: numbers(mix.summary(demos, groups)))
    errors = None
    try:
        errors = mix.standard_errors(demos, groups)
    except Exception as error:  # noqa: BLE001
        r.fail("standard_errors", error)
    if errors is not None:
        r.fields("standard_errors", errors, "weights thetas covariance n_free")


def fit_mixture(r, name, mdp, demos, *args, new=None, begun=None, groups=None, ends=None, can=None, **kwargs):
    """Fit and record a mixture in a separate part, and return it, or None on an error."""
    mix = None
    with r.part(name):
        mix = ll().IntentMixture(*args, **({"random_state": 0} | kwargs))
        mix.fit(mdp, demos, groups) if groups is not None else mix.fit(mdp, demos)
        more = {} if can is None else {"can": can}
        put_mixture(r, mix, demos, new, begun, groups, ends, **more)
    return mix


def element_pieces():
    world, demos, labels = element()
    irl = ll().MaxEnt(max_length=30)
    new, new_labels = world.sample(30, seed=3)
    ends = int(demos.start_states[0]), int(demos.last_states[0])
    return world, demos, labels, irl, new, new_labels, {"new": new, "begun": beginnings(new, 4), "ends": ends}


@section
def mixture_inits(r):
    """Fit MaxEnt on ElementWorld with every initialisation."""
    lib = ll()
    world, demos, labels, irl, _, _, more = element_pieces()
    base = {"max_iter": 40}
    soft = np.random.default_rng(4).dirichlet(np.ones(3), size=len(demos))
    from sklearn.cluster import AgglomerativeClustering

    def by_first_feature(points, n_intents, rng):  # a function as init
        return np.argsort(np.argsort(points[:, -1], kind="stable"), kind="stable") * n_intents // len(points)

    variants = {
        "kmeans": {},
        "gmm": {"init": "gmm"},
        "random": {"init": "random"},
        "random_rewards": {"init": "random_rewards"},
        "best": {"init": "best"},
        "labels": {"init": labels},
        "responsibilities": {"init": soft},
        "ensemble": {"init": world.ensemble},
        "clusterer": {"init": AgglomerativeClustering(3)},
        "callable": {"init": by_first_feature},
        "mean": {"reward_init": "mean"},
        "mean_clipped": {"reward_init": "mean_clipped"},
        "mean_ray": {"reward_init": "mean_ray"},
        "gmm_mean": {"init": "gmm", "reward_init": "mean"},
        "n_init": {"init": "random", "n_init": 3},
        "n_init_rewards": {"init": "random_rewards", "n_init": 3},
        "split_merge": {"init": "random_rewards", "refine": "split_merge", "random_state": 3},
        "shares": {"embedding": "shares"},
        "gradients": {"embedding": "gradients"},
        "embedding": {"embedding": np.random.default_rng(6).normal(size=(len(demos), 2))},
        "annealing": {"annealing": (3.0, 5)},
        "reseed": {"degenerate": "reseed", "init": "random_rewards"},
        "keep": {"degenerate": "keep", "init": "random_rewards"},
        "likelihood_tol": {"likelihood_tol": 1e-4},
        "start_only": {"max_iter": 0},
        "few_evaluations": {"max_evaluations": 3},
    }
    for name, settings in variants.items():
        full = name in ("kmeans", "gmm_mean", "n_init")
        fit_mixture(
            r,
            name,
            world.mdp,
            demos,
            3,
            irl,
            **(base | settings),
            **(more if full else {"new": more["new"], "can": ""}),
        )
    with r.part("align"):
        one = lib.IntentMixture(3, irl, random_state=0).fit(world.mdp, demos)
        two = lib.IntentMixture(3, irl, init="random", random_state=1, max_iter=40).fit(world.mdp, demos)
        r.fields("to_mixture", two.align_to(one), "weights_ thetas_ labels_")
        r.fields("to_ensemble", one.align_to(world.ensemble), "weights_ thetas_ labels_")
    with r.part("executor"):
        mix = lib.IntentMixture(3, irl, init="random", n_init=3, max_iter=40, random_state=0)
        run_with(mix.fit, world.mdp, demos, workers=1)
        r.fields("mix", mix, "weights_ thetas_ responsibilities_ n_iter_")


@section
def mixture_models(r):
    """Fit every model on several worlds."""
    lib = ll()
    world, demos, _labels, _, _new, _, more = element_pieces()
    ended = demos[world.mdp.terminal[demos.last_states]]
    for name, irl, kept in (
        ("MaxEnt_terminal", lib.MaxEnt(30, stop="terminal"), ended),
        ("MaxEnt_start", lib.MaxEnt(30, condition="start"), demos),
        ("MaxEnt_lbfgs", lib.MaxEnt(30, solver="lbfgs", ridge=0.01), demos),
        ("MaxCausalEnt", causal(), demos),
        ("MaxCausalEnt_horizon", causal(length=30), demos),
        ("MLIRL_hard", lib.MLIRL(), demos),
        ("MLIRL_bv", lib.MLIRL(q="bv"), demos),
    ):
        given = more if name != "MaxEnt_terminal" else {k: v for k, v in more.items() if k != "new"}
        fit_mixture(r, f"element_{name}", world.mdp, kept, 3, irl, max_iter=30, **given)
    for name, K in (("puddle", 2), ("objects", 2), ("synthetic", 3)):
        place, walks, _ = WORLDS[name]()
        ends = int(walks.start_states[0]), int(walks.last_states[0])
        for kind, irl in (("MaxEnt", lib.MaxEnt()), ("MaxCausalEnt", causal())):
            fit_mixture(
                r, f"{name}_{kind}", place.mdp, walks, K, irl, begun=beginnings(walks, 3), ends=ends, max_iter=25
            )
    fit_mixture(r, "puddle_MLIRL", puddle()[0].mdp, puddle()[1], 2, lib.MLIRL(), max_iter=25)
    fit_mixture(
        r,
        "tangle",
        tangle(),
        tangle_demos(),
        2,
        lib.MaxEnt(9, bounds=(-5, 5)),
        max_iter=25,
        begun=beginnings(tangle_demos(), 3),
    )
    _, mdp, _, trips, _ = town()
    ends = int(trips.start_states[0]), int(trips.last_states[0])
    fit_mixture(
        r, "town_Destination", mdp, trips, 2, lib.DestinationMaxEnt(bounds=(-60.0, 0.0)), ends=ends, can="likely"
    )
    fit_mixture(
        r,
        "town_infinite",
        mdp,
        trips,
        2,
        lib.MaxEnt(np.inf, bounds=(-60.0, 0.0)),
        max_iter=30,
        begun=beginnings(trips, 4),
        ends=ends,
    )
    agents, others = couriers()
    fit_mixture(r, "SigmaGIRL", None, agents, 2, lib.SigmaGIRL(gamma=0.9), new=others, can="")
    fit_mixture(
        r, "SigmaGIRL_policy", None, agents, 2, lib.SigmaGIRL(gamma=0.9, cluster_on="policy"), init="gmm", can=""
    )
    with r.part("split_merge_causal"):
        wide = lib.worlds.ElementWorld(n_elements=4, seed=1)
        walks, _ = wide.sample(60, seed=1)
        mix = lib.IntentMixture(4, causal(), init="random_rewards", refine="split_merge", max_iter=25, random_state=2)
        put_mixture(r, mix.fit(wide.mdp, walks), walks, can="")


@section
def mixture_groups(r):
    lib = ll()
    world, demos, labels, irl, _, _, more = element_pieces()
    groups = labels * 5 + np.arange(len(demos)) % 5
    for name, model in (("MaxEnt", irl), ("MaxCausalEnt", causal()), ("MLIRL", lib.MLIRL())):
        mix = fit_mixture(r, name, world.mdp, demos, 3, model, groups=groups, max_iter=30, begun=more["begun"])
        with r.part(f"{name}_predict"):
            new = more["new"]
            r.put("proba", mix.predict_proba(new, np.arange(len(new)) % 7))
            r.put("partial", mix.predict_proba(more["begun"], np.arange(len(new)) % 7, partial=True))
    _, mdp, _, trips, kinds = town()
    fit_mixture(
        r,
        "Destination",
        mdp,
        trips,
        2,
        lib.DestinationMaxEnt(bounds=(-60.0, 0.0)),
        groups=kinds * 6 + np.arange(len(trips)) % 6,
        can="",
    )


@section
def bayesian(r):
    lib = ll()
    world, demos, labels = element()
    groups = labels * 5 + np.arange(len(demos)) % 5

    def keep(name, given, mdp, walks, who=None):
        with r.part(name):
            mix = given.fit(mdp, walks, who)
            r.fields(
                "mix",
                mix,
                "n_intents_ weights_ thetas_ responsibilities_ labels_ bound_ expected_intents_ "
                "new_intent_weight_ concentration_ n_iter_ converged_",
            )
            r.get("intent_posterior", lambda: mix.intent_posterior_)
            r.get("history", lambda: np.array([[s.bound, s.n_intents] for s in mix.history_]))
            r.get("credible_intervals", mix.credible_intervals)
            for criterion in ("score", "bic", "aic", "icl"):
                r.get(criterion, lambda criterion=criterion: getattr(mix, criterion)(walks, who))
            put_summary(r, mix, walks, who)
            r.get("partial", lambda: mix.predict_proba(beginnings(walks, 4), partial=True))
            r.fields("mixture", mix.mixture_, "weights_ thetas_")
            r.get("proba", lambda: mix.predict_proba(walks, who))

    B = lib.BayesianIntentMixture
    keep("causal", B(6, causal(), random_state=0), world.mdp, demos)
    keep("causal_groups", B(5, causal(), random_state=0), world.mdp, demos, groups)
    keep("maxent", B(5, lib.MaxEnt(30), random_state=0), world.mdp, demos)
    keep(
        "learned_alpha",
        B(4, lib.MaxEnt(9, bounds=(-5, 5)), concentration=(1.0, 1.0), prior_scale=3.0, random_state=1),
        tangle(),
        tangle_demos(),
    )
    keep("gmm", B(4, lib.MLIRL(), init="gmm", random_state=0), puddle()[0].mdp, puddle()[1])


@section
def selection(r):
    lib = ll()
    world, demos, labels = element()

    def keep(name, result):
        rows = [
            "n_intents",
            "log_likelihood",
            "bic",
            "aic",
            "icl",
            "held_out",
            "held_out_se",
            "behind",
            "behind_se",
            "stability",
            "n_iter",
            "converged",
            "n_empty",
        ]
        for row in rows:
            r.get(f"{name}.{row}", lambda row=row: [float(getattr(each, row)) for each in result.rows])
        r.put(f"{name}.recommended", result.recommended)
        r.put(f"{name}.recommendations", result.recommendations)
        r.fields(f"{name}.best", result.best, "weights_ thetas_")

    with r.part("maxent"):
        mixture = lib.IntentMixture(irl=lib.MaxEnt(30), max_iter=20, random_state=0)
        keep(
            "all",
            lib.select_intents(world.mdp, demos, range(1, 5), mixture=mixture, folds=3, resamples=3),
        )
    with r.part("causal"):
        mixture = lib.IntentMixture(irl=causal(), max_iter=10, random_state=0)
        keep(
            "groups",
            lib.select_intents(
                world.mdp,
                demos,
                [2, 3],
                mixture=mixture,
                folds=3,
                resamples=2,
                groups=labels * 5 + np.arange(len(demos)) % 5,
            ),
        )
        keep(
            "fold_groups",
            lib.select_intents(
                world.mdp,
                demos,
                [2],
                mixture=mixture,
                folds=3,
                resamples=0,
                fold_groups=np.arange(len(demos)) % 6,
            ),
        )
    with r.part("sticks"):
        for name, make in WORLDS.items():
            place, walks, _ = make()
            points = walks.features(place.mdp)
            r.get(name, lambda points=points: [stick_breaking(points, most, 0) for most in (3, 6)])
    with r.part("sigma_girl"):
        agents, _ = couriers()
        mixture = lib.IntentMixture(irl=lib.SigmaGIRL(gamma=0.9), random_state=0)
        keep("agents", lib.select_intents(None, agents, [1, 2], mixture=mixture, folds=2, resamples=2))


# ------------------------------------------------------------------------------------------------- metrics and theory


@cache
def element_mixture():
    world, demos, _, irl, *_ = element_pieces()
    return ll().IntentMixture(3, irl, random_state=0).fit(world.mdp, demos)


GEVD = "value normalised normalised_tight bounds interval flow evd"


@section
def metrics(r):
    lib = ll()
    m = lib.metrics
    world, _demos, labels, irl, new, new_labels, _ = element_pieces()
    mix = element_mixture()
    with r.part("rewards"):
        for name, make in WORLDS.items():
            place, _, _ = make()
            thetas = some_thetas(place)
            for i, learned in enumerate(thetas[1:]):
                for metric in ("evd", "evd_interval", "ile", "ile_interval", "epic", "dard"):
                    r.get(
                        f"{name}.{metric}.{i}",
                        lambda metric=metric, learned=learned: getattr(m, metric)(place.mdp, thetas[0], learned),
                    )
        plain = tangle().replace(
            edge_features=None, feature_names=("a", "b", "c")
        )  # these two need a reward of every move
        r.get("tangle.epic", lambda: m.epic(plain, [0.4, -0.3, 0.5], [0.1, 0.0, -0.4]))
        r.get("tangle.dard", lambda: m.dard(plain, [0.4, -0.3, 0.5], [0.1, 0.0, -0.4]))
        r.get("tangle.evd", lambda: m.evd(tangle(), [0.4, -0.3, 0.5, -0.2], [0.1, 0.0, -0.4, 0.3]))
    with r.part("gevd"):
        for distance in ("evd", "ile", "epic", "dard"):
            with r.part(distance):
                result = m.gevd(world.mdp, world.ensemble, mix.ensemble_, distance=distance)
                r.fields("g", result, GEVD)
                r.get("largest", lambda: [list(x) for x in result.largest(3)])
        more = lib.RewardEnsemble([0.2, 0.5, 0.2, 0.1], np.vstack([mix.thetas_, mix.thetas_[:1] * 0.5]))
        r.fields("unequal", m.gevd(world.mdp, world.ensemble, more), GEVD)
    with r.part("clusterings"):
        rng = np.random.default_rng(0)
        U, V = rng.dirichlet(np.ones(3), size=40), rng.dirichlet(np.ones(4) * 0.3, size=40)
        pairs = {
            "soft": (U, V),
            "labels": (labels, mix.responsibilities_),
            "hard": ((getattr(m, "hard_labels", None) or m.hard)(U), (getattr(m, "hard_labels", None) or m.hard)(V)),
            "mixed": (labels, mix.labels_),
        }
        for name, pair in pairs.items():
            r.get(f"nid.{name}", lambda pair=pair: m.nid(*pair))
            r.get(f"anid.{name}", lambda pair=pair: m.anid(*pair))
        r.get("anid.dealt", lambda: m.anid(labels, mix.labels_, null="hypergeometric"))
        r.get("hard", lambda: (getattr(m, "hard_labels", None) or m.hard)(U))
    with r.part("intervals"):
        rng = np.random.default_rng(1)
        a, b = rng.normal(size=20), rng.normal(0.4, 1.2, size=20)
        r.get("mean", lambda: m.mean_interval(a))
        r.get("mean_99", lambda: m.mean_interval(a, 0.99))
        r.get("bootstrap", lambda: m.bootstrap_interval(a, n_resamples=500, seed=3))
        r.get(
            "bootstrap_median", lambda: m.bootstrap_interval(a, np.median, method="percentile", n_resamples=500, seed=3)
        )
        r.fields(
            "paired",
            (getattr(m, "compare_paired", None) or m.paired)(a, b),
            "means difference t p_t p_wilcoxon effect level",
        )
        r.fields(
            "paired_tie",
            (getattr(m, "compare_paired", None) or m.paired)(a, b, lower_is_better=False, level=0.99, tie=0.1),
            "means difference t p_t p_wilcoxon effect level",
        )
        r.get(
            "agrees",
            lambda: [
                (getattr(m, "agrees_with", None) or m.agrees)((1.0, 0.2), (1.3, 0.2)),
                (getattr(m, "agrees_with", None) or m.agrees)((1.0, 0.1), (1.3, 0.1)),
                (getattr(m, "agrees_with", None) or m.agrees)((1.0, 0.1), (1.3, 0.1), 0.2),
            ],
        )
    with r.part("likelihood"):
        r.fields("mixture", m.mixture_nll(mix, new), "values n_demos n_steps mean total per_demo per_step")
        r.fields(
            "ensemble",
            m.ensemble_nll(irl, world.mdp, world.ensemble, new, np.arange(len(new)) % 4),
            "values n_demos n_steps mean total per_demo per_step",
        )
    with r.part("evaluate"):
        scores = m.evaluate(mix, new, labels=new_labels, truth=world.ensemble)
        r.fields("nll", scores.nll, "values mean per_step")
        r.fields("recovery", scores.recovery, "counts intent accuracy nid anid nid_hard anid_hard")
        r.fields("gevd", scores.gevd, GEVD)
        r.fields("reference", scores.reference, "nll anid anid_hard")
    with r.part("routes"):
        _, mdp, _styles, trips, _ = town()
        length = town()[0].length_km
        guess = lib.forecast.cheapest_routes(mdp, length[mdp.dst], trips.start_states, trips.last_states)
        r.put("cheapest", guess)
        r.get(
            "distance_missed",
            lambda: (getattr(m, "missing_distance_fraction", None) or m.distance_missed)(trips, guess, length),
        )
        r.get(
            "distance_missed_plain",
            lambda: (getattr(m, "missing_distance_fraction", None) or m.distance_missed)(trips, guess),
        )
        threshold = "threshold" if "threshold" in inspect.signature(m.match_rate).parameters else "share"
        r.get(
            "match_rate",
            lambda: [m.match_rate(trips, guess, length), m.match_rate(trips, guess, length, **{threshold: 0.5})],
        )
        r.get("edit_distance", lambda: m.edit_distance(trips, guess))
        r.get("edit_normalised", lambda: m.edit_distance(trips, guess, normalised=True))
        r.get("feature_distance", lambda: m.feature_distance(mdp, trips, guess))
    with r.part("next_actions"):
        accuracy = m.next_action_accuracy(mix, new)
        r.fields("found", accuracy, "demo t correct probability accuracy log_loss by_step")


QUANTITIES = (
    "zeta delta margin_between margin_within r mean_norm sizes log_Q log_Q_other typical_norm atypical_between "
    "atypical_within misfit_between misfit_within log_lower mean_margins"
)


@section
def theory(r):
    lib = ll()
    t = lib.theory

    def keep(name, bound):
        with r.part(name):
            r.fields(
                "sep",
                bound,
                "labels clusters features purity margin epsilon epsilon_mle epsilon_labels exact "
                "log_Q log_Q_all maxent gaps means guaranteed helps separable",
            )
            used = "n_demos_used" if hasattr(bound, "n_demos_used") else "n_looked_at"
            r.get("sep.n_looked_at", lambda: getattr(bound, used))
            gaps = getattr(bound, "gaps_without", None) or bound.gaps_but_for
            r.get("sep.gaps_but_for", lambda: gaps(0.05))
            for which in ("among_demos", "over_all"):
                limit = getattr(bound, which)
                r.fields(which, limit, "epsilon log_beta applies")
                r.get(f"{which}.n_failures", lambda limit=limit: len(limit.failures))
                r.fields(f"{which}.quantities", limit.quantities, QUANTITIES)
                again = t.bound(limit.quantities)
                r.put(f"{which}.bound", [again.epsilon, again.log_beta])
                r.get(f"{which}.log_upper", lambda limit=limit: limit.quantities.log_upper())

    for name, make in WORLDS.items():
        world, demos, labels = make()
        with r.part(name):
            keep("separation", t.separation(world.mdp, demos, labels, max_work=2e7))
            F = demos.features(world.mdp)
            r.get("margin", lambda: t.inter_cluster_margin(F, labels))
            for rewards in ("mean", "mle", "mean_ray", "mean_clipped"):
                r.get(
                    f"epsilon.{rewards}",
                    lambda rewards=rewards: _epsilon(world.mdp, demos, labels, reward_init=rewards),
                )
            r.get("epsilon.causal", lambda: _epsilon(world.mdp, demos, labels, causal(), "mle"))
    with r.part("tiny"):
        mdp = lib.MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0, 0], [3, 0], [0, 3]])
        demos = lib.Demonstrations.from_lists([[0, 1], [0, 1], [0, 2], [0, 2]])
        keep("separation", t.separation(mdp, demos, [0, 0, 1, 1], lib.MaxEnt(bounds=(-5, 5))))
    with r.part("paths"):
        world, demos, labels = element()
        policies = world.policies()
        keep("with_policies", t.separation(world.mdp, demos, labels, policies=policies, max_work=2e7))
        paths = path_set(world.mdp, np.asarray(policies) > 0, 10)
        r.fields("paths", paths, "log_Q log_Q_other log_Q_all")
        r.get("contains", lambda: paths.contains(demos[demos.lengths <= 10]))
        for k in range(3):
            r.fields(
                f"extremes{k}",
                getattr(t, "feature_extremes", getattr(t, "extremes", None))(paths, k, some_thetas(world)),
                "inside_min inside_max outside_max margin",
            )
        short = path_set(tangle(), np.ones((2, tangle().n_pairs), bool), 3)
        law = getattr(t, "feature_distribution", getattr(t, "feature_law", None))(short, 0)
        if law is None:
            r.put("law", None)
        else:
            order = np.lexsort(law.points.T)
            r.put("law", [law.points[order], law.log_mass[order]])


# ----------------------------------------------------------------------------------------------------------- streams


@section
def streams(r):
    import pyarrow.parquet as pq

    lib = ll()
    world = lib.worlds.SyntheticWorld(n_intents=3, n_features=6, n_states=61, seed=1)

    def tables(paths):
        read = [pq.read_table(p) for p in paths]
        names = [n for n in read[0].column_names if n != "demo"]
        return {n: np.concatenate([t.column(n).to_numpy() for t in read]) for n in names}

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "walks").mkdir()
        for i in range(3):
            world.sample(400, seed=i)[0].to_parquet(folder / "walks" / f"part-{i}.parquet")
        store = None
        with r.part("store"):
            store = lib.streams.write_features(world.mdp, folder / "walks", folder / "features")
            r.fields("store", store, "n n_demos n_features longest")
            r.put("rows", store.take(np.arange(0, 1200, 7)))
            again = lib.streams.FeatureStore.open(folder / "features")
            again.verify()
            r.put("opened", again.take(np.array([0, 399, 400, 1199])))
        irl = lib.MaxEnt(bounds=(-15.0, 0.0))
        with r.part("fit"):
            mix = lib.IntentMixture(3, irl, **_resp_tol(1e-4), random_state=0)
            lib.streams.fit_streamed(mix, world.mdp, store, checkpoint=folder / "fit.npz")
            r.fields("mix", mix, "weights_ thetas_ n_iter_ converged_ log_likelihood_ objective_")
            r.put("history", np.array([[h.log_likelihood, h.change] for h in mix.history_]))
            r.put("assigned", tables(lib.streams.assign(mix, store, folder / "memberships")))
            parts = [lib.Demonstrations.from_parquet(folder / "walks" / f"part-{i}.parquet") for i in range(3)]
            whole = lib.IntentMixture(3, irl, **_resp_tol(1e-4), random_state=0).fit(
                world.mdp, lib.Demonstrations.concat(parts)
            )
            r.fields("in_memory", whole, "weights_ thetas_ n_iter_")
            resumed = lib.IntentMixture(3, irl, **_resp_tol(1e-6), max_iter=20, init=world.ensemble)
            lib.streams.fit_streamed(resumed, world.mdp, store, sample=300, block=100)
            r.fields("ensemble", resumed, "weights_ thetas_ n_iter_")
        with r.part("grouped"):
            walks = [world.sample(60, seed=10 + i)[0] for i in range(2)]
            walks = [w.replace(groups=np.arange(60) // 4 + 100 * i) for i, w in enumerate(walks)]
            grouped = lib.streams.write_features(world.mdp, walks, folder / "grouped", by_group=True)
            mix = lib.IntentMixture(2, irl, random_state=0, max_iter=15)
            lib.streams.fit_streamed(mix, world.mdp, grouped)
            r.fields("mix", mix, "weights_ thetas_ n_iter_")
            r.put("assigned", tables(lib.streams.assign(mix, grouped, folder / "grouped_memberships")))
        with r.part("executor"):
            other = run_with(lib.streams.write_features, world.mdp, folder / "walks", folder / "again", workers=1)
            r.put("rows", other.take(np.arange(0, 1200, 7)))
            mix = lib.IntentMixture(3, irl, **_resp_tol(1e-3), random_state=0)
            run_with(lib.streams.fit_streamed, mix, world.mdp, other, workers=1)
            r.fields("mix", mix, "weights_ thetas_ n_iter_")


# ------------------------------------------------------------------------------------------------------------- roads


@cache
def city():
    made = ll().roads.City(seed=1, radius_km=0.8)
    return made, made.drive(n_drivers=12, trips_each=6)


@cache
def match_recording():
    roads = roads_api()
    made, driven = city()
    trips = roads.record(made.network, driven.demos, noise_m=10.0, step_s=15.0, seed=1)
    cleaned = roads.clean(trips, made.network)
    return trips, cleaned, roads.match(made.network, cleaned)


NETWORK = "lat lon tail head length_m road_class lanes speed_kmh turn_from turn_to bearing duration_s opposite turn_angle node_xy"
MATCHES = "segments offsets trip confidence whole span fix_segment fix_along_m fix_distance_m fix_offsets"


@section
def roads_network(r):
    roads = roads_api()
    made, driven = city()
    with r.part("city"):
        r.fields("network", made.network, NETWORK)
        r.fields("ensemble", made.ensemble, "weights thetas")
        r.fields("city", made, "places")
        r.fields("driven", driven, "demos style home")
        r.get("regions", lambda: roads.regions(made.network, radius_km=0.3))
        r.get("nearest", lambda: made.network.nearest([41.154, 41.15], [-8.6311, -8.63]))
        r.get("segments_at", lambda: roads.segments_at(made.network, 41.154, -8.6311))
        r.get(
            "describe",
            lambda: {
                k: v
                for k, v in roads.describe(made.network).items()
                if k
                in (
                    "segments",
                    "turns",
                    "nodes",
                    "km",
                    "km_by_class",
                    "segment_m",
                    "bounds",
                    "one_way_share",
                    "turns_out",
                    "dead_ends",
                )
            },
        )
        with tempfile.TemporaryDirectory() as folder:
            made.network.save(Path(folder) / "n.npz")
            r.fields("loaded", roads.RoadNetwork.load(Path(folder) / "n.npz"), NETWORK)
    for name, choice in (
        ("paper", "paper"),
        ("plain", "plain"),
        ("styles", made.features),
        ("lanes", roads.FeatureChoice(lanes=True, turns=True, length=True, regions=False)),
    ):
        with r.part(f"features_{name}"):
            put_mdp(r, "mdp", made.network.mdp(choice))
            r.get("features", lambda: driven.demos.features(made.network.mdp(choice)))
    with r.part("networkx"):
        import networkx as nx

        graph = nx.MultiDiGraph()
        for i in range(4):
            for j in range(4):
                graph.add_node(4 * i + j, y=41.15 + 0.001 * i, x=-8.63 + 0.0013 * j)
        for i in range(4):
            for j in range(3):
                for a, b in ((4 * i + j, 4 * i + j + 1), (4 * j + i, 4 * j + i + 4)):
                    graph.add_edge(a, b, highway="residential" if i % 2 else "primary", length=100.0 + i)
                    graph.add_edge(b, a, highway="residential" if i % 2 else "primary", length=100.0 + i)
        graph.graph["crs"] = "epsg:4326"
        r.fields("network", roads.from_networkx(graph), NETWORK)


@section
def roads_matching(r):
    roads = roads_api()
    made, driven = city()
    trips, cleaned, hmm = match_recording()
    with r.part("gps"):
        r.fields("trips", trips, "lat lon time_s offsets")
        r.fields("cleaned", cleaned, "source fix whole n_trips")
        r.fields("cleaned.trips", cleaned.trips, "lat lon time_s offsets")
        flawed = roads.recording(
            made.network, driven.demos[:20], noise_m=8.0, step_s=10.0, seed=2, drift_m=5.0, outliers=0.02, lost=0.05
        )
        r.fields("flawed", flawed, "segment along_m outlier")
        r.fields("flawed.trips", flawed.trips, "lat lon time_s offsets")
        r.fields("flawed.cleaned", roads.clean(flawed.trips, made.network).trips, "lat lon time_s offsets")
    with r.part("noise"):
        r.get("noise", lambda: roads.estimate_noise(made.network, cleaned))
    with r.part("hmm"):
        r.fields("matches", hmm, MATCHES)
        r.get("lengths_m", lambda: hmm.lengths_m(made.network))
        r.get("demos", hmm.demonstrations)
        r.get("cycles", hmm.cycles)
        recovery = roads.recovered(made.network, driven.demos, hmm, cleaned.source)
        r.fields("recovered", recovery, "driven_m added_m share")
        name = "recovered_m" if hasattr(recovery, "recovered_m") else "found_m"  # of version 0.1
        r.get("recovered.found_m", lambda: getattr(recovery, name))
        quality = quality_of(made.network, cleaned, hmm)
        r.fields(
            "quality",
            quality,
            "n_trips n_matched n_whole n_paths n_fixes n_fixes_matched "
            "distance_m gap_s gap_m n_gaps length_ratio confidence worst typical",
        )
        name_of_gaps = "fraction_in_gaps" if hasattr(quality, "fraction_in_gaps") else "gap_share"
        r.get("quality.fraction_in_gaps", lambda: getattr(quality, name_of_gaps))
        r.fields("flawed", roads.match(made.network, roads.clean(flawed.trips, made.network)), MATCHES)
        with tempfile.TemporaryDirectory() as folder:
            hmm.save(Path(folder) / "m.npz")
            r.fields("loaded", roads.Matches.load(Path(folder) / "m.npz"), MATCHES)
    with r.part("particles"):
        matches = roads.match(made.network, roads.clean(trips[:15], made.network), "particles", n_particles=60)
        r.fields("matches", matches, MATCHES)
        given = roads.match(made.network, trips[:4], "particles", sigma_m=10.0, n_particles=40, seed=3)
        r.fields("given", given, MATCHES)
    with r.part("privacy"):
        r.fields("trim", roads.privacy.trim_ends(cleaned, 200.0, seed=0), "lat lon time_s offsets")
        r.fields("mask", roads.privacy.mask_zones(cleaned, [(41.154, -8.6311, 150.0)]), "lat lon time_s offsets")
        suppress = roads.privacy.suppress_small
        axes = "total_axes" if "total_axes" in inspect.signature(suppress).parameters else "totals"
        r.get("suppress", lambda: suppress([[40, 3, 12], [25, 9, 30]], **{axes: (1,)}))
    with r.part("porto"):
        folder = DATA / "porto_road_osm"
        porto = roads.from_ways(folder / "osm_ways.jsonl.gz", folder / "osm_nodes.csv.gz")
        r.put("sizes", [porto.n_segments, porto.n_turns, porto.n_nodes])
        for name in ("tail", "head", "length_m", "road_class", "turn_from", "turn_to"):
            values = np.asarray(getattr(porto, name), dtype=np.float64)
            r.put(f"sums.{name}", [values.sum(), values[::97].sum(), values[-1]])
        mdp = porto.mdp("paper")
        r.put("paper_features", np.asarray(mdp.state_features.sum(axis=0)).ravel())
        read = roads.read_trips(_head(DATA / "porto_taxi_trips" / "porto_trips_1pct.csv.gz", 25))
        r.fields("trips", read, "lat lon time_s offsets")
        matches = roads.match(porto, roads.clean(read, porto))
        r.fields("matches", matches, MATCHES)


@cache
def _head(path, n):
    """Write the first n rows of a gzipped CSV to a file."""
    import gzip

    out = Path(tempfile.mkdtemp()) / "head.csv"
    with gzip.open(path, "rt") as file:
        out.write_text("".join(line for _, line in zip(range(n + 1), file, strict=False)))
    return out


NEXT = "state edge probability offsets stop intents"


def put_routes(r, name, routes):
    r.put(f"{name}.states", [list(map(int, route.states)) for route in routes])
    r.put(f"{name}.numbers", np.array([[x.probability, x.log_prob, x.exact] for x in routes]))
    r.put(f"{name}.intents", np.array([x.intents for x in routes]))


def put_forecasts(r, mix, trips, closed):
    """Record next states, routes, destinations, flows, and the effects of a closure."""
    forecaster = ll().forecast.Forecaster(mix)
    starts, goals = trips.start_states[:12], trips.last_states[:12]
    begun = beginnings(trips[:12], 5)
    start, goal = int(starts[0]), int(goals[0])
    r.fields("next", forecaster.next_states(begun), NEXT)
    r.fields("next_goal", forecaster.next_states(begun, goal=goals), NEXT)
    r.get("intents", lambda: forecaster.intents(begun))
    r.get("intents_goal", lambda: forecaster.intents(begun, goal=goals))
    r.get("intents_history", lambda: forecaster.intents(begun[0].states, history=trips[3:6]))
    r.fields("destinations", forecaster.destinations(begun), "candidates probability most_likely")
    r.fields(
        "destinations_few",
        forecaster.destinations(begun[1].states, candidates=np.unique(goals)),
        "candidates probability",
    )
    put_routes(r, "routes", forecaster.routes(start, goal, k=3))
    put_routes(r, "route", [forecaster.route(start, goal)])
    r.get(
        "predicted", lambda: (getattr(forecaster, "predict_routes", None) or forecaster.predicted_routes)(starts, goals)
    )
    known = (getattr(forecaster, "with_history", None) or forecaster.knowing)(trips[3:6])
    r.get("knowing", lambda: known.weights if hasattr(known, "weights") else known.shares)
    r.fields(
        "ending_as",
        (getattr(forecaster, "with_destinations", None) or forecaster.ending_as)(trips[5:40]).destinations(begun),
        "candidates probability",
    )
    flows = forecaster.flows(starts, goals)
    r.fields("flows", flows, "edge state edge_by_intent state_by_intent trips cut_off")
    other = (getattr(forecaster, "with_closures", None) or forecaster.closing)(states=[closed])
    change = forecaster.compare(other, starts, goals)
    r.fields("closing", change, "edge state cut_off trips_lost gains losses")
    r.get(
        "closing_edge",
        lambda: (
            (getattr(forecaster, "with_closures", None) or forecaster.closing)(edges=[3, 5]).flows(starts, goals).edge
        ),
    )

    def routes_change():
        comparison = forecaster.compare_routes(other, start, goal, k=3)
        return {
            "routes": [list(map(int, x)) for x in comparison.routes],
            "before": comparison.before,
            "after": comparison.after,
        }

    r.get("compare_routes", routes_change)
    features = np.asarray(
        mix.mdp_.state_features.toarray() if hasattr(mix.mdp_.state_features, "toarray") else mix.mdp_.state_features
    )
    r.get(
        "changing",
        lambda: (
            (getattr(forecaster, "with_features", None) or forecaster.changing)(state_features=features * 0.9 + 0.01)
            .flows(starts, goals)
            .state
        ),
    )


def busiest(mdp, trips, ends):
    """Return a state that many trips visit between their ends."""
    counts = np.bincount(trips.states, minlength=mdp.n_states).astype(float)
    counts[np.unique(ends)] = 0.0
    return int(np.argmax(counts))


@section
def forecasts(r):
    lib = ll()
    _, mdp, _, trips, _ = town()
    ends = np.concatenate([trips.start_states, trips.last_states])
    closed = busiest(mdp, trips, ends)
    for name, irl in (
        ("destination", lib.DestinationMaxEnt(bounds=(-60.0, 0.0))),
        ("maxent", lib.MaxEnt(60, bounds=(-60.0, 0.0))),
        ("infinite", lib.MaxEnt(np.inf, bounds=(-60.0, 0.0))),
    ):
        with r.part(name):
            mix = lib.IntentMixture(2, irl, random_state=0, max_iter=15).fit(mdp, trips)
            put_forecasts(r, mix, trips, closed)
            if name != "destination":
                own = lib.forecast.Forecaster(mix)
                r.get("model_ends", lambda: own.destinations(beginnings(trips[:6], 5), prior="model").probability)
                r.get("own_flows", lambda: own.flows(n_trips=10.0).state)


@section
def roads_drivers(r):
    lib = ll()
    roads = roads_api()
    made, _driven = city()
    _, _, matches = match_recording()
    demos = matches.demonstrations()
    fits = {}
    for name, settings in (
        ("destination", {"model": "DestinationMaxEnt", "features": made.features, "by_driver": True}),
        ("maxent", {"model": "MaxEnt", "features": "plain", "max_segments": 80}),
        (
            "paper",
            {"model": "MaxEnt", "features": "paper", "max_segments": 80, "gamma": 0.999, "init": "gmm", "max_iter": 4},
        ),
    ):
        with r.part(name):
            fits[name] = fit = roads.fit_drivers(made.network, demos, 2, **settings)
            n_clusters = getattr(
                fit, "n_clusters" if hasattr(fit, "n_clusters") else "sticks"
            )  # "sticks" in version 0.1
            r.put("sticks", [n_clusters, fit.capped, len(fit.demos)])
            groups = fit.demos.groups if name == "destination" else None
            put_mixture(r, fit.mixture, fit.demos, groups=groups, can="")
    with r.part("sticks"):
        r.fields(
            "mix",
            roads.fit_drivers(
                made.network, demos, model="DestinationMaxEnt", features=made.features, max_iter=2
            ).mixture,
            "weights_ thetas_",
        )
    for name in ("destination", "maxent"):
        with r.part(f"forecast_{name}"):
            mix, kept = fits[name].mixture, fits[name].demos
            ends = np.concatenate([kept.start_states, kept.last_states])
            put_forecasts(r, mix, kept, busiest(mix.mdp_, kept, ends))
    for name in ("destination", "maxent"):
        with r.part(f"closure_{name}"):
            fit = fits[name]
            here = roads.segments_at(made.network, 41.154, -8.6311)
            closure = roads.close_streets(made.network, lib.forecast.Forecaster(fit.mixture), fit.demos, here, least=2)
            r.fields(
                "closure", closure, "closed before after cut_off passages extra_m extra_s redirected detour_m detour_s"
            )
            for side in ("gains", "losses"):
                r.get(
                    side,
                    lambda side=side: [
                        [x.segment, *(np.nan if v is None else v for v in (x.before, x.after, x.change)), x.km]
                        for x in getattr(closure, side)(5)
                    ],
                )


# ------------------------------------------------------------------------------------------- shared data, experiments


@section
def labyrinth(r):
    """Fit a causal mixture to bouts of mice, with dynamics from the recordings."""
    lib = ll()
    with open(DATA / "mouse_labyrinth" / "bouts.csv", encoding="utf-8") as file:
        bouts = [list(map(int, row["nodes"].split())) for _, row in zip(range(400), csv.DictReader(file), strict=False)]
    pieces = [bout[i : i + 20] for bout in bouts for i in range(0, len(bout) - 5, 20)][:150]
    demos = lib.Demonstrations.from_lists(pieces)
    with r.part("mdp"):
        mdp = lib.MDP.from_demonstrations(demos, gamma=0.8)
        put_mdp(r, "mdp", mdp)
    fit_mixture(r, "causal", mdp, demos, 2, causal(ridge=0.01), max_iter=6, can="partial", begun=beginnings(demos, 5))


@section
def trials(r):
    """Run the first two settings of some studies with one seed each."""
    ex = ll().experiments
    for name in ("demos", "wind", "imbalance", "margin", "mlirl", "sigma-girl", "beyond-models"):
        with r.part(name):
            for i, setting in enumerate(ex.STUDIES[name].settings[:2]):
                record = trial_numbers(ex.run_trial(setting.spec, 1))
                kept = {k: v for k, v in record.items() if k not in ("spec", "error", "trace") and "second" not in k}
                r.get(f"{i}", lambda kept=kept: kept)
    with r.part("own"):
        base = ex.Spec(
            world="SyntheticWorld", world_parameters=ex.parameters(separation=0.5, n_states=41), n_demos=40, n_test=40
        )
        for method in ("k-means, MLE", "random rewards"):
            record = trial_numbers(ex.run_trial(ex.method_spec(base, method), 0))
            kept = {k: v for k, v in record.items() if k not in ("spec", "error", "trace") and "second" not in k}
            r.get(method, lambda kept=kept: kept)


def _not_a_time(name):
    return not any(word in name.lower() for word in ("second", "duration", "time"))


@section
def reproduce_table1(r):
    """Record the tables and records of `limiirl reproduce table1 --repeats 3`."""
    ex = ll().experiments
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        reproduce(folder)
        for path in tables_of_run(folder):
            with r.part(f"{path.parent.name}_{path.stem}"):
                with open(path, newline="", encoding="utf-8") as file:
                    rows = list(csv.DictReader(file))
                # Long tables have one measure per row (n_iter, seconds, nll, ...), which may be a time.
                rows = [row for row in rows if _not_a_time(row.get("Measure", "") + row.get("measure", ""))]
                for column in [c for c in rows[0] if _not_a_time(c)]:
                    values = [_number(row[column]) for row in rows]
                    if not all(v is None for v in values):
                        r.put(column, [np.nan if v is None else v for v in values])
        with r.part("records"):
            study = ex.STUDIES["table1"]
            results = ex.Results.of(study, ex.Store(folder).read())
            r.put("failures", len(results.failures))
            measures = (
                "n_iter",
                "nll",
                "nll_start",
                "train_nll",
                "anid",
                "anid_start",
                "anid_hard",
                "anid_truth",
                "gevd",
                "gevd_start",
                "gevd_normalised",
                "accuracy",
            )
            for setting in study.settings:
                for measure in measures:
                    r.get(
                        f"{setting.method}@{setting.x}.{measure}",
                        lambda s=setting, m=measure: results.values(s.method, s.x, m),
                    )


def _number(text):
    try:
        return float(text)
    except (TypeError, ValueError):
        return None


# --------------------------------------------------------------------------------------------------- run and compare


def run(out, only):
    warnings.simplefilter("ignore")
    print("limiirl:", _meta(), flush=True)
    r, begun = Recorder(), time.perf_counter()
    for name, function in SECTIONS.items():
        if only and not any(name.startswith(one) for one in only):
            continue
        start, before, failed = time.perf_counter(), len(r.arrays), len(r.errors)
        with r.part(name.rstrip("_")):
            function(r)
        r.times[name] = time.perf_counter() - start
        print(
            f"{name.rstrip('_'):<18} {len(r.arrays) - before:6d} arrays  {len(r.errors) - failed:3d} errors "
            f"{r.times[name]:7.1f} s",
            flush=True,
        )
    r.save(out)
    total = sum(a.size for a in r.arrays.values())
    print(
        f"{len(r.arrays)} arrays of {total:,} numbers, {len(r.errors)} errors, {time.perf_counter() - begun:.0f} s -> {out}"
    )
    return 1 if r.errors else 0


def difference(a, b):
    """Return the largest |a - b| / max(1, |a|), or inf if shapes or non-finite entries differ."""
    if a.shape != b.shape:
        return np.inf
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    x, y = a[~same], b[~same]
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return np.inf
    return float(np.max(np.abs(x - y) / np.maximum(1.0, np.abs(x))))


def compare(first, second, tolerance=1e-12):
    with np.load(first) as one, np.load(second) as two:
        A, B = ({k: f[k] for k in f.files} for f in (one, two))
    texts = [{k: json.loads(str(F.pop(f"__{k}__"))) for k in ("errors", "times", "meta")} for F in (A, B)]
    print(f"A: {first}  {texts[0]['meta']}\nB: {second}  {texts[1]['meta']}\n")
    names = list(dict.fromkeys([*A, *B]))
    sections, listed = {}, []
    for name in names:
        row = sections.setdefault(name.split("/")[0], {"n": 0, "same": 0, "off": 0, "missing": 0, "worst": 0.0})
        row["n"] += 1
        if name not in A or name not in B:
            row["missing"] += 1
            listed.append((name, "missing in " + ("A" if name not in A else "B")))
            continue
        a, b = A[name], B[name]
        if a.shape == b.shape and a.tobytes() == b.tobytes():
            row["same"] += 1
            continue
        worst = difference(a, b)
        row["worst"] = max(row["worst"], worst)
        if worst > tolerance:
            row["off"] += 1
            listed.append((name, f"shapes {a.shape} and {b.shape}" if a.shape != b.shape else f"{worst:.3g}"))
    print(
        f"{'section':<18} {'arrays':>7} {'bit-identical':>14} {'> 1e-12':>8} {'missing':>8} {'largest difference':>19}"
    )
    for name, row in sections.items():
        print(f"{name:<18} {row['n']:>7} {row['same']:>14} {row['off']:>8} {row['missing']:>8} {row['worst']:>19.3g}")
    total = {k: sum(row[k] for row in sections.values()) for k in ("n", "same", "off", "missing")}
    worst = max((row["worst"] for row in sections.values()), default=0.0)
    print(f"{'ALL':<18} {total['n']:>7} {total['same']:>14} {total['off']:>8} {total['missing']:>8} {worst:>19.3g}")
    if listed:
        print("\nDiffer by more than 1e-12, or are missing:")
        for name, what in listed:
            print(f"  {name}: {what}")
    for label, run in zip("AB", texts, strict=True):
        if run["errors"]:
            print(f"\nErrors recorded in {label}:")
            for name, what in run["errors"].items():
                print(f"  {name}: {what}")
    return 0 if total["same"] == total["n"] else 1


def main(words):
    if words[:1] == ["--compare"]:
        return compare(*words[1:3])
    if words[:1] == ["--list"]:
        print("\n".join(SECTIONS))
        return 0
    only = words[words.index("--only") + 1 :] if "--only" in words else []
    return run(words[0], only)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
