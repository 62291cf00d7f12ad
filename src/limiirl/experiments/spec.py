"""Specifications of trials and studies, the methods that are compared, and the main setting of the paper."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any

from limiirl._validation import check_choice, check_count
from limiirl.errors import InvalidFile, InvalidParameter

Plain = bool | int | float | str | tuple[float, ...] | None
Parameters = tuple[tuple[str, Plain], ...]
# Part of every hash. Increase it when a change of the code changes the results of a specification.
PROCEDURE = 1
TRUE_LABELS, FULL_GMM = "labels", "gmm_full"
_LONGEST = "longest"
# Fields that contain named parameters, and their reserved names, which other fields or the seed determine.
_MAPPINGS: dict[str, dict[str, str]] = {
    "world_parameters": {"seed": "the seed of the trial"},
    "model_parameters": {"max_length": "the field max_length"},
    "mixture_parameters": {
        "irl": "the field model",
        "random_state": "the seed of the trial",
        **{name: f"the field {name}" for name in ("n_intents", "init", "reward_init", "max_iter")},
    },
}
AGENT_WORLDS = ("ContinuousPuddleWorld",)
"""Worlds that generate agents instead of demonstrations."""
# Fields that have no effect in these worlds. They must have these values, so that equal trials have equal hashes.
_NO_EFFECT = {"imbalance": 0.0, "max_length": _LONGEST, "n_agents": None}


def parameters(**values: Any) -> Parameters:
    """Return parameters as a sorted tuple of (name, value).

    >>> parameters(wind=0.1, n_elements=3)
    (('n_elements', 3), ('wind', 0.1))
    """
    return tuple((name, _normalise(name, values[name])) for name in sorted(values))


def _normalise(name: str, value: Any) -> Plain:
    """Return the canonical form of a value, so that equal settings have equal hashes."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        number = float(value)
        return int(number) if number.is_integer() else number
    if isinstance(value, list | tuple) and all(isinstance(x, Real) for x in value):
        return tuple(int(x) if float(x).is_integer() else float(x) for x in value)
    raise InvalidParameter.of(name, value, "must be a number, a string, None or a list of numbers")


@dataclass(frozen=True)
class Spec:
    """Settings of a trial; a specification and a seed determine its result.

    Attributes
    ----------
    world, world_parameters : str, tuple of (name, value)
        Name in `limiirl.worlds.WORLDS`, and the parameters of the world except the seed, as a mapping or as the result
        of `parameters`.
    n_demos, n_test : int
        Numbers of training and test demonstrations.
    imbalance : float
        Parameter p of geometric mixture weights; 0 for equal weights.
    n_intents : int
        Number of intents K.
    model, model_parameters : str, tuple
        Name of a registered model, and its parameters other than `max_length`.
    init, reward_init : str
        Parameters of `IntentMixture`. `init` may also be "labels" (true labels, for the supervised baseline) or
        "gmm_full" (scikit-learn's Gaussian mixture with full covariances; the best of 5 random initialisations).
    max_iter : int
        Maximum number of EM iterations.
    max_length : int or "longest"
        Maximum trajectory length L of the model. "longest" means the longest training or test demonstration for MaxEnt,
        and no limit for causal models.
    mixture_parameters : tuple of (name, value)
        Further parameters of `IntentMixture`, such as `n_init`.
    n_agents : int, optional
        For models of agents: number of agents per intent, among which the demonstrations are divided. The worlds of
        `AGENT_WORLDS` generate agents; there, `n_demos` and `n_test` are numbers of trajectories per agent.

    Examples
    --------
    >>> spec = Spec(world_parameters=parameters(n_elements=3, wind=0.1))
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
        if not isinstance(self.max_length, str):
            sizes["max_length"] = 1
        elif self.max_length != _LONGEST:
            raise InvalidParameter.of("max_length", self.max_length, "must be an integer or 'longest'")
        if self.n_agents is not None:
            sizes["n_agents"] = 1
        forms: dict[str, Any] = {n: check_count(getattr(self, n), n, least=least) for n, least in sizes.items()}
        if not isinstance(self.imbalance, Real) or not 0.0 <= self.imbalance < 1.0:
            raise InvalidParameter.of("imbalance", self.imbalance, "must lie in [0, 1)")
        forms["imbalance"] = float(self.imbalance)
        for name, reserved in _MAPPINGS.items():
            forms[name] = parameters(**dict(getattr(self, name)))
            for key, _ in forms[name]:
                if key in reserved:
                    raise InvalidParameter(
                        f"{name} must not contain {key!r}, which is set by {reserved[key]}.", parameter=name, value=key
                    )
        for name, form in forms.items():
            object.__setattr__(self, name, form)
        for name, default in _NO_EFFECT.items() if self.world in AGENT_WORLDS else ():
            if getattr(self, name) != default:
                rule = f"must be {default!r} in {self.world}, where it has no effect"
                raise InvalidParameter.of(name, getattr(self, name), rule)

    @cached_property
    def hash(self) -> str:
        """Hash of all fields and of `PROCEDURE`, in 16 hexadecimal digits."""
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
        """Inverse of `to_dict`."""
        wrong = sorted(set(content) ^ {field.name for field in fields(cls)})
        if wrong:
            raise InvalidFile(
                f"content must have the fields of Spec; missing or unknown: {', '.join(wrong)}. Use the version of "
                "limiirl that wrote the content.",
                parameter="content",
                value=wrong,
            )
        return cls(**content)

    def with_(self, **changes: Any) -> Spec:
        """Return a specification with some fields changed."""
        return replace(self, **changes)

    def in_world(self, **changes: Any) -> Spec:
        """Return a specification with some world parameters changed.

        >>> Spec().in_world(wind=0.2).world_parameters
        (('wind', 0.2),)
        """
        return replace(self, world_parameters=parameters(**{**dict(self.world_parameters), **changes}))

    @property
    def supervised(self) -> bool:
        """True if the mixture is initialised with the true labels."""
        return self.init == TRUE_LABELS


BASE = Spec(world_parameters=parameters(n_elements=3, wind=0.1, height=6, gamma=0.99))
"""Main setting of the paper: E = K = 3, w = 0.1, h = 6, discount 0.99, N = 100, L = longest demonstration."""

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
"""Methods by name, as overrides of a specification.

The random initialisation of the paper is "random rewards". The paper does not state the covariance type of its Gaussian
mixture: "GMM" has a tied covariance, and "full GMM" has full covariances and random initialisations.
"""

Point = float | str


@dataclass(frozen=True)
class Setting:
    """Cell of a study: a method at one point of the axis."""

    method: str
    x: Point
    spec: Spec


@dataclass(frozen=True)
class Study:
    """Settings that are compared on the same worlds.

    Attributes
    ----------
    name, title : str
    axis : str
        Label of the axis. Its points are the values `x` of the settings.
    repeats : int
        Default number of worlds; for studies of the paper, the number in the paper.
    settings : tuple of Setting
    """

    name: str
    title: str
    axis: str
    repeats: int
    settings: tuple[Setting, ...]

    def __post_init__(self) -> None:
        if not self.settings:
            raise InvalidParameter.of("settings", self.settings, "must not be empty")

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the methods, in order."""
        return tuple(dict.fromkeys(setting.method for setting in self.settings))

    @property
    def points(self) -> tuple[Point, ...]:
        """Points of the axis, in order."""
        return tuple(dict.fromkeys(setting.x for setting in self.settings))

    def spec(self, method: str, x: Point) -> Spec | None:
        """Return the specification of a cell, or None if the study does not contain the cell."""
        return self._cells.get((method, x))

    @cached_property
    def _cells(self) -> dict[tuple[str, Point], Spec]:
        return {(setting.method, setting.x): setting.spec for setting in self.settings}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        settings = [{"method": s.method, "x": s.x, "spec": s.spec.to_dict()} for s in self.settings]
        return {
            "name": self.name,
            "title": self.title,
            "axis": self.axis,
            "repeats": self.repeats,
            "settings": settings,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Study:
        """Inverse of `to_dict`."""
        settings = (Setting(s["method"], s["x"], Spec.from_dict(s["spec"])) for s in content["settings"])
        return cls(content["name"], content["title"], content["axis"], content["repeats"], tuple(settings))

    @property
    def specs(self) -> tuple[Spec, ...]:
        """Distinct specifications."""
        return tuple(dict.fromkeys(setting.spec for setting in self.settings))


def method_spec(spec: Spec, method: str) -> Spec:
    """Apply a method of `METHODS` to a specification; the supervised method has one intent per true intent.

    Examples
    --------
    >>> method_spec(BASE.with_(n_intents=5), "supervised").n_intents
    3
    """
    changed = spec.with_(**METHODS[check_choice(method, "method", tuple(METHODS))])
    if changed.supervised:
        return changed.with_(n_intents=int(dict(spec.world_parameters).get("n_elements", spec.n_intents)))  # type: ignore[arg-type]
    return changed
