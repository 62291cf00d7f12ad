"""What a study is: settings that are compared over the same worlds; and the methods and the setting of the paper's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

from limiirl.errors import InvalidParameter
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
        Number of worlds by default: where the study is the paper's, the paper's.
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
        return self._cells.get((method, x))

    @cached_property
    def _cells(self) -> dict[tuple[str, Point], Spec]:
        return {(setting.method, setting.x): setting.spec for setting in self.settings}

    @property
    def specs(self) -> tuple[Spec, ...]:
        """Distinct specifications."""
        return tuple(dict.fromkeys(setting.spec for setting in self.settings))


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
