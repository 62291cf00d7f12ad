"""Pages with hostile names make no requests and run nothing, and files with pickled code are refused unread."""

import pickle
import re
import zipfile
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import limiirl as ll
from limiirl.errors import InvalidFile, LimiirlError
from limiirl.report import write
from limiirl.report.roads import network_page, styles_report
from limiirl.roads import City, DriverFit
from limiirl.streams import FeatureStore
from tests.oracles.report import HOSTILE

# Attributes that make a browser load an address. A link (<a href>) loads nothing until the user follows it.
LOADING = {"src", "srcset", "poster", "data", "action", "background", "ping", "xlink:href"}


class PageParser(HTMLParser):
    """Parser that collects the scripts of a page, event handlers and addresses that a browser loads."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.scripts: list[dict[str, str | None]] = []
        self.handlers: list[str] = []
        self.loaded: list[str] = []
        self.tags: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "script":
            self.scripts.append(dict(attrs))
        for name, value in attrs:
            if name.startswith("on") or (value or "").strip().lower().startswith("javascript:"):
                self.handlers.append(f"{tag} {name}={value}")
            loads = name in LOADING or (name == "href" and tag in {"link", "base", "use", "image"})
            if loads and not (value or "").startswith(("data:", "#")):
                self.loaded.append(f"{tag} {name}={value}")


def check_page(path: Path, n_names: int, *, scripts: int = 0) -> None:
    """Check that a page loads and runs nothing, and shows at least n_names hostile names as text."""
    page = path.read_text(encoding="utf-8")
    parser = PageParser(page)
    assert parser.handlers == []
    assert parser.loaded == []
    assert not parser.tags & {"iframe", "object", "embed", "form", "base"}
    # A block of data is not run; the script of the maps is allowed by its checksum (test_maps.py).
    assert len([script for script in parser.scripts if script.get("type") != "application/json"]) == scripts
    assert page.count("alert(1)") >= n_names
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:")
    assert re.findall(r"@import|url\((?!#)", page) == []


@pytest.fixture(scope="module")
def hostile() -> tuple[ll.MDP, ll.Demonstrations]:
    """A problem of three states in which states, actions, features and groups have hostile names."""
    states = [f"{HOSTILE} {i}" for i in range(3)]
    rng = np.random.default_rng(0)
    paths = [[states[i] for i in rng.choice(3, size=12, p=p)] for p in ([0.6, 0.2, 0.2], [0.1, 0.1, 0.8]) * 6]
    groups = [f"{HOSTILE} animal {i % 4}" for i in range(12)]
    demos = ll.Demonstrations.from_lists(paths, groups=groups)
    table = {"state": states, f"{HOSTILE} x": [0.0, 1.0, 0.0], f"{HOSTILE} y": [0.0, 0.0, 1.0]}
    return ll.MDP.from_demonstrations(demos, gamma=0.9, state_features=table), demos


def test_names_on_the_page_of_a_mixture(hostile: tuple[ll.MDP, ll.Demonstrations], tmp_path: Path):
    mix = ll.IntentMixture(2, ll.MaxCausalEnt(ridge=0.1), random_state=0).fit(*hostile)
    check_page(mix.report(tmp_path, intent_names=[HOSTILE, "other"]), 10)


@pytest.mark.slow
def test_names_on_the_page_of_a_switching_mixture(hostile: tuple[ll.MDP, ll.Demonstrations], tmp_path: Path):
    model = ll.SwitchingMixture(2, ll.MaxCausalEnt(ridge=0.1), random_state=0).fit(*hostile)
    check_page(model.report(tmp_path, intent_names=[HOSTILE, "other"]), 10)


@pytest.mark.slow
def test_names_of_streets_and_drivers(small_city: City, small_fit: DriverFit, tmp_path: Path):
    n = small_city.network.n_segments
    names = ("", *(f"{HOSTILE} street {i}" for i in range(3)))
    network = small_city.network.replace(street_names=names, street_of=np.arange(n) % 4)
    demos = small_fit.demos.replace(groups=np.array([f"{HOSTILE} {group}" for group in small_fit.demos.groups]))
    check_page(write(styles_report(network, replace(small_fit, demos=demos)), tmp_path / "styles"), 3, scripts=1)
    check_page(write(network_page(network), tmp_path / "network"), 3, scripts=1)


class Code:
    """An object that creates a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return (Path.touch, (self.mark,))


READERS: dict[str, Callable[[Path], object]] = {
    "mdp.npz": ll.MDP.load,
    "demos.parquet": ll.Demonstrations.from_file,
    "demos.csv": ll.Demonstrations.from_file,
    "agents.npz": ll.Agents.from_released,
    "roads.npz": lambda path: ll.roads.RoadNetwork.load(path),
    "trips.csv": lambda path: ll.roads.read_trips(path),
    "matches.npz": lambda path: ll.roads.Matches.load(path),
    "gridworld.npz": lambda path: ll.datasets.load_swirl_gridworld(path.parent),
    "labyrinth.npz": lambda path: ll.datasets.load_swirl_labyrinth(path.parent),
    "mixture.json": lambda path: ll.IntentMixture.load(path.parent),
    "store.json": lambda path: FeatureStore.open(path.parent),
}


@pytest.mark.parametrize("kind", ["pickle", "array"])
@pytest.mark.parametrize("name", READERS)
def test_pickled_code_is_never_run(name: str, kind: str, tmp_path: Path):
    path, mark = tmp_path / name, tmp_path / "mark"
    if kind == "pickle":
        path.write_bytes(pickle.dumps(Code(mark)))
    else:
        np.savez(tmp_path / "objects.npz", header=np.array([Code(mark)], dtype=object))
        (tmp_path / "objects.npz").rename(path)
    with pytest.raises(LimiirlError) as caught:
        READERS[name](path)
    assert isinstance(caught.value, InvalidFile)
    assert not mark.exists()


def test_the_test_object_runs_code_when_it_is_unpickled(tmp_path: Path):
    pickle.loads(pickle.dumps(Code(tmp_path / "mark")))
    assert (tmp_path / "mark").exists()


def test_members_of_archives_are_read_by_name_and_never_extracted(tmp_path: Path):
    path = tmp_path / "folder" / "mdp.npz"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../outside.npy", b"x")
    with pytest.raises(InvalidFile):
        ll.MDP.load(path)
    assert list(tmp_path.rglob("outside*")) == []
