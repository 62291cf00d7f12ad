"""Specifications of trials and studies: frozen values with a stable hash; the paper's methods and its main setting."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any

from limiirl._validation import check_count
from limiirl.errors import InvalidFile, InvalidParameter

Plain = bool | int | float | str | tuple[float, ...] | None
Parameters = tuple[tuple[str, Plain], ...]
# Part of every hash: raise it when a trial of the same specification would come to another result.
PROCEDURE = 1
TRUE_LABELS, FULL_GMM = "labels", "gmm_full"
_LONGEST = "longest"
# Fields that hold parameters by name.
_MAPPINGS = ("world_parameters", "model_parameters", "mixture_parameters")
# What such a field must not hold, for a trial takes it from elsewhere.
_ELSEWHERE: dict[str, dict[str, str]] = {
    "world_parameters": {"seed": "the trial's seed"},
    "model_parameters": {"max_length": "the field max_length"},
    "mixture_parameters": {
        "irl": "the field model",
        "random_state": "the trial's seed",
        **{name: f"the field {name}" for name in ("n_intents", "init", "reward_init", "max_iter")},
    },
}
AGENT_WORLDS = ("ContinuousPuddleWorld",)
"""Worlds that have agents of their own."""
# What makes no difference there, by its default: another value would only make another hash.
_WITHOUT_EFFECT = {"imbalance": 0.0, "max_length": _LONGEST, "n_agents": None}


def parameters(**values: Any) -> Parameters:
    """Return parameters as a frozen value, in the order of their names.

    >>> parameters(wind=0.1, n_elements=3)
    (('n_elements', 3), ('wind', 0.1))
    """
    return tuple((name, _plain(name, values[name])) for name in sorted(values))


def _plain(name: str, value: Any) -> Plain:
    """Return a value in the one form that all equal values share, so that equal settings have one hash."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        number = float(value)
        return int(number) if number.is_integer() else number
    if isinstance(value, list | tuple) and all(isinstance(x, Real) for x in value):
        return tuple(int(x) if float(x).is_integer() else float(x) for x in value)
    raise InvalidParameter(
        f"Parameter {name} of a specification must be a number, text, None or a list of numbers; got {value!r}. "
        "It is written to JSON and hashed.",
        parameter=name,
        value=value,
    )


@dataclass(frozen=True)
class Spec:
    """One setting of an experiment; together with a seed it determines a trial and its result.

    Attributes
    ----------
    world : str
        Name in `limiirl.worlds.WORLDS`.
    world_parameters : tuple of (name, value)
        All but the seed, which is the trial's; made by `parameters`, or a mapping.
    n_demos, n_test : int
        Demonstrations to learn from, and others to judge by.
    imbalance : float
        p of the geometric shares of the intents; 0 is equal shares.
    n_intents : int
        K.
    model, model_parameters : str, tuple
        Name of a registered model, and its parameters but for `max_length`.
    init : str
        `IntentMixture`'s; or "labels": the true ones, for the supervised baseline; or "gmm_full": scikit-learn's
        Gaussian mixture with a covariance for each component, the best of 5 random starts.
    reward_init : str
    max_iter : int
        EM's largest number of iterations.
    max_length : int or "longest"
        L: a number, or the longest demonstration of both sets, fixed before fitting.
    mixture_parameters : tuple of (name, value)
        Further parameters of `IntentMixture`, such as `n_init`.
    n_agents : int, optional
        For a model that learns from agents: how many share the demonstrations of an intent. A world that has agents of
        its own needs no such number; `n_demos` and `n_test` are then trajectories an agent.

    Examples
    --------
    >>> spec = Spec(world_parameters=parameters(n_elements=3, wind=0.1))
    >>> spec.hash
    '...'
    >>> spec.with_(n_demos=20).hash == spec.hash
    False
    >>> Spec.from_dict(spec.to_dict()) == spec
    True
    """

    world: str = "ElementWorld"
    world_parameters: Parameters = ()
    n_demos: int = 100
    n_test: int = 100
    imbalance: float = 0.0
    n_intents: int = 3
    model: str = "MaxEnt"
    model_parameters: Parameters = ()
    init: str = "kmeans"
    reward_init: str = "mle"
    max_iter: int = 100
    max_length: int | str = _LONGEST
    mixture_parameters: Parameters = ()
    n_agents: int | None = None

    def __post_init__(self) -> None:
        sizes = {"n_demos": 1, "n_test": 1, "n_intents": 1, "max_iter": 0}
        if isinstance(self.max_length, str):
            if self.max_length != _LONGEST:
                raise InvalidParameter(
                    f"max_length must be a number or 'longest'; got {self.max_length!r}.",
                    parameter="max_length",
                    value=self.max_length,
                )
        else:
            sizes["max_length"] = 1
        if self.n_agents is not None:
            sizes["n_agents"] = 1
        for name, least in sizes.items():
            check_count(getattr(self, name), name, least=least)
        forms: dict[str, Any] = {name: int(getattr(self, name)) for name in sizes}
        if not isinstance(self.imbalance, Real) or not 0.0 <= self.imbalance < 1.0:
            raise InvalidParameter(
                f"imbalance must lie in [0, 1); got {self.imbalance!r}. It is p of geometric weights.",
                parameter="imbalance",
                value=self.imbalance,
            )
        forms["imbalance"] = float(self.imbalance)
        for name in _MAPPINGS:
            forms[name] = parameters(**dict(getattr(self, name)))
        for name, form in forms.items():
            object.__setattr__(self, name, form)
        self._check_effects()

    def _check_effects(self) -> None:
        """Refuse what a trial would not heed."""
        for name, taken in _ELSEWHERE.items():
            twice = next((key for key, _ in getattr(self, name) if key in taken), None)
            if twice is not None:
                raise InvalidParameter(
                    f"{name} must not hold {twice!r}, which is {taken[twice]}. Pass it there.",
                    parameter=name,
                    value=twice,
                )
        if self.world in AGENT_WORLDS:
            for name, default in _WITHOUT_EFFECT.items():
                value = getattr(self, name)
                if value != default:
                    raise InvalidParameter(
                        f"{name} has no effect in {self.world}, which has agents of its own; got {value!r}. Leave it "
                        f"at {default!r}.",
                        parameter=name,
                        value=value,
                    )

    @cached_property
    def hash(self) -> str:
        """Sixteen hexadecimal digits that depend on every field and on `PROCEDURE`, and on nothing else."""
        text = json.dumps([PROCEDURE, self.to_dict()], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        content = asdict(self)
        for name in _MAPPINGS:
            content[name] = {key: list(v) if isinstance(v, tuple) else v for key, v in content[name]}
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Spec:
        """Return the specification that `to_dict` described."""
        known = {field.name for field in fields(cls)}
        if set(content) != known:
            odd = sorted(set(content) ^ known)
            raise InvalidFile(
                f"A specification has missing or unknown fields: {', '.join(odd)}. Use the version that wrote it.",
                value=odd,
            )
        given = dict(content)
        for name in _MAPPINGS:
            given[name] = parameters(**given[name])
        return cls(**given)

    def with_(self, **changes: Any) -> Spec:
        """Return a specification with some fields changed."""
        return replace(self, **changes)

    def in_world(self, **changes: Any) -> Spec:
        """Return a specification with some of the world's parameters changed.

        >>> Spec().in_world(wind=0.2).world_parameters
        (('wind', 0.2),)
        """
        return replace(self, world_parameters=parameters(**{**dict(self.world_parameters), **changes}))

    @property
    def supervised(self) -> bool:
        """Whether the true labels are given."""
        return self.init == TRUE_LABELS


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
        "supervised": {"init": TRUE_LABELS, "reward_init": "mle", "max_iter": 0},
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
            raise InvalidParameter(
                f"settings must have at least one entry; the study {self.name!r} has none.", parameter="settings"
            )

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
        raise InvalidParameter(
            f"method must be one of {', '.join(METHODS)}; got {method!r}.", parameter="method", value=method
        )
    changed = spec.with_(**METHODS[method])
    if changed.supervised:
        return changed.with_(n_intents=int(dict(spec.world_parameters).get("n_elements", spec.n_intents)))  # type: ignore[arg-type]
    return changed
