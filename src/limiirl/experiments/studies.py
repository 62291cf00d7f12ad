"""The paper's experiments on ElementWorld: which settings each one compares, and over how many worlds.

Paper: sections "ElementWorld Results" and "Sensitivity Analysis", appendices D and E.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from limiirl.errors import InvalidParameter
from limiirl.experiments.paper import NAMES
from limiirl.experiments.spec import FULL_GMM, SUPERVISED, Spec, parameters

BASE = Spec(world_parameters=parameters(n_elements=3, wind=0.1, height=6, gamma=0.99))
"""The paper's main setting: E = K = 3, w = 0.1, h = 6, discount 0.99, N = 100, L the longest demonstration."""

METHODS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "k-means, MLE": {"init": "kmeans", "reward_init": "mle"},
        "k-means, mean": {"init": "kmeans", "reward_init": "mean"},
        "GMM, MLE": {"init": "gmm", "reward_init": "mle"},
        "full GMM, MLE": {"init": FULL_GMM, "reward_init": "mle"},
        "random rewards": {"init": "random_rewards"},
        "random responsibilities": {"init": "random", "reward_init": "mle"},
        "supervised": {"init": SUPERVISED, "reward_init": "mle", "max_iter": 0},
    }
)
"""Methods by name, as changes of a specification.

The paper's random start is "random rewards". Its soft clusters come from a Gaussian mixture whose kind it does not
name; ours has one covariance for all components, the "full" one a covariance each and random starts.
"""

PAPER_LENGTH, FIXED_LENGTH = "L = longest", "L = 50"
EARLY_STOPS = MappingProxyType({"1 iteration": 1, "2 iterations": 2, "3 iterations": 3})
"""Variants of table 1: the paper's length; its nominal one; warm starts cut where the paper's ended, by its rule that
rolls the last iteration back, and by its own count.
"""

WARM = ("k-means, MLE", "k-means, mean")
"""The paper's methods."""

Point = float | str


@dataclass(frozen=True)
class Setting:
    """One cell of a study: a method at one point of the study's axis."""

    method: str
    x: Point
    spec: Spec


@dataclass(frozen=True)
class Study:
    """Settings that are compared over the same worlds.

    Attributes
    ----------
    name, title : str
    axis : str
        What `x` of the settings is.
    repeats : int
        Number of worlds by default: the paper's.
    settings : tuple of Setting
    """

    name: str
    title: str
    axis: str
    repeats: int
    settings: tuple[Setting, ...]

    def __post_init__(self) -> None:
        if not self.settings:
            raise InvalidParameter(f"A study compares settings; {self.name!r} has none. Give it at least one.")

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the methods, in order."""
        return tuple(dict.fromkeys(setting.method for setting in self.settings))

    @property
    def points(self) -> tuple[Point, ...]:
        """Points of the axis, in order."""
        return tuple(dict.fromkeys(setting.x for setting in self.settings))

    def spec(self, method: str, x: Point) -> Spec | None:
        """Return the specification of one cell, None where the study has none."""
        return next((s.spec for s in self.settings if s.method == method and s.x == x), None)

    @property
    def specs(self) -> tuple[Spec, ...]:
        """Distinct specifications."""
        return tuple(dict.fromkeys(setting.spec for setting in self.settings))


def _sweep(name: str, title: str, axis: str, specs: Iterable[tuple[float, Spec]]) -> Study:
    settings = tuple(Setting(method, x, method_spec(spec, method)) for x, spec in specs for method in METHODS)
    return Study(name, title, axis, 20, settings)


def method_spec(spec: Spec, method: str) -> Spec:
    """Return a specification with a method; the supervised one has as many intents as there are labels.

    Examples
    --------
    >>> method_spec(BASE.with_(n_intents=5), "supervised").n_intents
    3
    """
    if method not in METHODS:
        raise InvalidParameter(f"There is no method named {method!r}; known are {', '.join(METHODS)}.")
    changed = spec.with_(**METHODS[method])
    if changed.supervised:
        return changed.with_(n_intents=int(dict(spec.world_parameters).get("n_elements", spec.n_intents)))  # type: ignore[arg-type]
    return changed


def _table() -> tuple[Setting, ...]:
    long = [Setting(method, PAPER_LENGTH, method_spec(BASE, method)) for method in METHODS]
    early = [
        Setting(method, name, method_spec(BASE, method).with_(max_iter=stop))
        for name, stop in EARLY_STOPS.items()
        for method in WARM
    ]
    fixed = [Setting(method, FIXED_LENGTH, method_spec(BASE, method).with_(max_length=50)) for method in NAMES]
    return tuple(long + early + fixed)


_MAIN = _table()

STUDIES = MappingProxyType(
    {
        study.name: study
        for study in (
            Study("table1", "Table 1: initialisations compared", "variant", 100, _MAIN),
            Study("boxplots", "Box plots of Table 1", "variant", 100, _MAIN[: len(METHODS)]),
            _sweep(
                "demos",
                "Number of demonstrations",
                "demonstrations N",
                [(n, BASE.with_(n_demos=n)) for n in (20, 40, 100, 200, 400)],
            ),
            _sweep(
                "wind",
                "Cluster separation",
                "wind w",
                [(w, BASE.in_world(wind=w)) for w in (0.0, 0.05, 0.1, 0.15, 0.2)],
            ),
            _sweep(
                "clusters",
                "Number of learned intents",
                "intents learned K (E = 3)",
                [(k, BASE.with_(n_intents=k)) for k in range(1, 6)],
            ),
            _sweep(
                "elements",
                "Number of true intents",
                "elements E = K",
                [(e, BASE.in_world(n_elements=e).with_(n_intents=e)) for e in range(2, 7)],
            ),
            _sweep(
                "imbalance",
                "Imbalance of the intents",
                "geometric parameter p",
                [(p, BASE.with_(imbalance=p)) for p in (0.0, 0.1, 0.2, 0.3, 0.4)],
            ),
            Study(
                "margin",
                "Margin between the intents",
                "wind w",
                10,
                # The margin is a property of the demonstrations; the cheapest method carries it.
                tuple(
                    Setting("supervised", w, method_spec(BASE.in_world(wind=w), "supervised"))
                    for w in (0.0, 0.05, 0.1, 0.15, 0.2)
                ),
            ),
        )
    }
)
"""Studies by the name that `limiirl reproduce` knows them by."""

SWEEPS = ("demos", "wind", "clusters", "elements", "imbalance")


def choose(names: Sequence[str]) -> tuple[Study, ...]:
    """Return studies by name; "all" is every one.

    Examples
    --------
    >>> [study.name for study in choose(["margin", "table1"])]
    ['table1', 'margin']
    """
    unknown = [name for name in names if name not in STUDIES and name != "all"]
    if unknown or not names:
        wrong = f"there is no study named {unknown[0]!r}" if unknown else "none was named"
        raise InvalidParameter(f"Choose among {', '.join(STUDIES)} and all; {wrong}.")
    return tuple(study for name, study in STUDIES.items() if name in names or "all" in names)


def tasks(studies: Iterable[Study], repeats: int | None = None) -> Iterator[tuple[Spec, int]]:
    """Return every trial of some studies once, the methods of a world one after the other.

    Parameters
    ----------
    studies : iterable of Study
    repeats : int, optional
        Number of worlds, with seeds 0 to repeats - 1; each study's own by default.

    Examples
    --------
    >>> len(list(tasks(choose(["margin"])))), len(list(tasks(choose(["all"]), repeats=1)))
    (50, 153)
    """
    if repeats is not None and (isinstance(repeats, bool) or repeats < 1):
        raise InvalidParameter(f"repeats must be at least 1; got {repeats!r}. It is the number of worlds.")
    wanted = {study.name: (study, study.repeats if repeats is None else repeats) for study in studies}
    most = max((n for _, n in wanted.values()), default=0)
    for seed in range(most):
        # A specification that several studies share, such as the main setting, is one trial.
        yield from (
            (spec, seed) for spec in dict.fromkeys(s for study, n in wanted.values() if seed < n for s in study.specs)
        )
