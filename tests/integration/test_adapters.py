"""The examples of docs/adapters.md, run against the real libraries on small data made here."""

import re
import runpy
from pathlib import Path
from typing import Any

import gymnasium
import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pytest

import limiirl as ll

PAGE = Path(__file__).resolve().parents[2] / "docs" / "adapters.md"
EXAMPLES = dict(re.findall(r"^## (.+?)\n(?:(?!^## ).)*?^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S))


def run(title: str, folder: Path, **names: Any) -> tuple[ll.MDP, ll.Demonstrations]:
    """Run the example under a title of the page with the names that its text announces."""
    script = folder / "example.py"
    script.write_text(EXAMPLES[title], encoding="utf-8")
    values = runpy.run_path(str(script), {"ll": ll, "np": np, "pd": pd} | names)
    return values["mdp"], values["demos"]


def state_lists(demos: ll.Demonstrations) -> list[list[str]]:
    """Return the names of the states of each demonstration."""
    names = demos.state_names
    assert names is not None
    return [[names[state] for state in demo.states] for demo in demos]


def list_edges(mdp: ll.MDP) -> set[tuple[str, str]]:
    """Return the names of the ends of the edges."""
    names = mdp.state_names
    assert names is not None
    return {(names[i], names[j]) for i, j in zip(mdp.src, mdp.dst, strict=True)}


def test_every_example_has_a_test():
    titles = re.findall(r"^## (.+)$", PAGE.read_text("utf-8"), re.M)
    source = Path(__file__).read_text("utf-8")
    assert list(EXAMPLES) == titles
    assert [title for title in titles if f'"{title}"' not in source] == []


@pytest.mark.smoke
@pytest.mark.parametrize("library", [pd, pl])
def test_frames(library: Any, tmp_path: Path):
    columns = {
        "animal": ["fox", "fox", "fox", "owl", "owl"],
        "night": [0, 0, 1, 0, 0],
        "minute": [1, 0, 0, 0, 1],
        "place": ["pond", "den", "den", "den", "den"],
    }
    mdp, demos = run("pandas and polars", tmp_path, df=library.DataFrame(columns))
    assert state_lists(demos) == [["den", "pond"], ["den"], ["den", "den"]]
    assert demos.groups is not None
    assert demos.groups.tolist() == ["fox", "fox", "owl"]
    assert list_edges(mdp) >= {("den", "pond"), ("den", "den")}


def test_pose_tables(tmp_path: Path):
    poses = pd.DataFrame(
        {
            "animal": ["a"] * 6 + ["b"] * 3,
            "frame": [0, 1, 2, 3, 4, 5, 0, 1, 2],
            "x": [5.0, 6.0, 25.0, 45.0, 46.0, 45.0, 45.0, 25.0, 26.0],
            "y": [5.0, 6.0, 5.0, 5.0, 35.0, 36.0, 5.0, 5.0, 5.0],
        }
    )
    mdp, demos = run("Movement and pose tables", tmp_path, poses=poses)
    assert state_lists(demos) == [["left", "middle", "right", "shelter"], ["right", "middle"]]
    assert list_edges(mdp) >= {("left", "middle"), ("middle", "right"), ("right", "shelter"), ("right", "middle")}


def choose_at_random(_: Any, rng: np.random.Generator) -> int:
    return int(rng.integers(4))


@pytest.mark.slow
def test_gymnasium(tmp_path: Path):
    mdp, demos = run("Gymnasium", tmp_path, policy=choose_at_random)
    assert (mdp.n_states, len(demos), mdp.gamma) == (16, 20, 0.95)
    assert np.isfinite(ll.MaxCausalEnt().log_prob(mdp, np.zeros((1, mdp.n_features)), demos)).all()


# Minari recommends metadata for published data sets.
@pytest.mark.filterwarnings("ignore::UserWarning:minari")
def test_minari(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import minari
    from minari.data_collector import EpisodeBuffer

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    env = gymnasium.make("FrozenLake-v1")
    recorded = ll.Demonstrations.from_rollouts(env, choose_at_random, n=10, seed=0)
    states = [demo.states.tolist() for demo in recorded]
    actions = [demo.actions.tolist() for demo in recorded if demo.actions is not None]
    buffers = []
    for i in range(len(recorded)):
        ends = [step + 1 == len(actions[i]) for step in range(len(actions[i]))]
        flags = {"rewards": [0.0] * len(ends), "terminations": ends, "truncations": [False] * len(ends)}
        buffers.append(EpisodeBuffer(id=i, observations=states[i], actions=actions[i], **flags))
    minari.create_dataset_from_buffers(
        "frozenlake/random-v0", buffers, env, algorithm_name="random", data_format="arrow"
    )

    mdp, demos = run("Minari", tmp_path)
    assert demos == ll.Demonstrations.from_lists(states, actions)
    # A log-probability exists only if every recorded transition is possible.
    assert np.isfinite(ll.MaxCausalEnt().log_prob(mdp, np.zeros((1, mdp.n_features)), demos)).all()


@pytest.mark.slow
def test_networkx(tmp_path: Path):
    graph = nx.DiGraph()
    graph.add_weighted_edges_from(
        [("home", "shop", 5.0), ("shop", "work", 9.0), ("home", "work", 20.0)], weight="minutes"
    )
    routes = [["home", "shop", "work"], ["home", "shop", "work"], ["home", "work"]]
    mdp, demos = run("NetworkX", tmp_path, graph=graph, routes=routes)
    np.testing.assert_allclose(demos.features(mdp), [[14.0], [14.0], [20.0]], rtol=1e-12)


@pytest.mark.slow
def test_osmnx(tmp_path: Path):
    import osmnx

    graph = nx.MultiDiGraph(crs="epsg:4326")
    for node, (x, y) in {101: (0.0, 0.0), 102: (0.0, 0.01), 103: (0.01, 0.01), 104: (0.01, 0.0)}.items():
        graph.add_node(node, x=x, y=y)
    for source, target, kind in [
        (101, 102, "primary"),
        (102, 103, "primary"),
        (101, 104, "service"),
        (104, 103, "service"),
    ]:
        graph.add_edge(source, target, highway=kind, oneway=True)
    graph = osmnx.distance.add_edge_lengths(graph)
    routes = [osmnx.routing.shortest_path(graph, 101, 103, weight="length"), [101, 104, 103]]
    mdp, demos = run("OSMnx", tmp_path, graph=graph, routes=routes, destination=103)
    assert mdp.feature_names == ("length", "primary")
    side = 6_371_009 * np.deg2rad(0.01)  # the radius of the earth that OSMnx uses, in metres
    n_primary = [2.0 if 102 in route else 0.0 for route in routes]
    np.testing.assert_allclose(demos.features(mdp)[:, 0], 2 * side, rtol=1e-6)
    np.testing.assert_array_equal(demos.features(mdp)[:, 1], n_primary)


# movingpandas warns of an optional dependency, and calls pandas with an argument that pandas 3.1 deprecates.
@pytest.mark.filterwarnings("ignore::UserWarning:movingpandas", "ignore:The inplace keyword")
def test_movingpandas(tmp_path: Path):
    import geopandas
    import movingpandas
    import shapely

    points = pd.DataFrame(
        {
            "animal": ["a", "a", "a", "b", "b"],
            "time": pd.Timestamp("2024-01-01") + pd.to_timedelta([0, 1, 5, 60, 120], unit="min"),
            "x": [0.5, 1.5, 0.2, 1.1, 0.3],
            "y": 0.5,
        }
    )
    collection = movingpandas.TrajectoryCollection(points, "animal", t="time", x="x", y="y", crs="EPSG:3857")
    boxes = [shapely.box(0, 0, 1, 1), shapely.box(1, 0, 2, 1)]
    zones = geopandas.GeoDataFrame({"zone": ["west", "east"]}, geometry=boxes, crs="EPSG:3857")
    mdp, demos = run("movingpandas and scikit-mobility", tmp_path, collection=collection, zones=zones)
    assert state_lists(demos) == [["west", "east", "west"], ["east", "west"]]
    assert list_edges(mdp) == {("west", "east"), ("east", "west")}
