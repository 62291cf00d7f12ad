"""The studies of the paper, and further studies that compare all models and initialisations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from limiirl._validation import check_choice, check_count
from limiirl.experiments.results import NAMES
from limiirl.experiments.spec import BASE, METHODS, TRUE_LABELS, Setting, Spec, Study, method_spec, parameters

PAPER_LENGTH, FIXED_LENGTH = "L = longest", "L = 50"
EARLY_STOPS = MappingProxyType({"1 iteration": 1, "2 iterations": 2, "3 iterations": 3})
"""Variants of Table 1: L of the paper's code, L = 50 of the paper's text, and few EM iterations from warm starts."""

WARM = ("k-means, MLE", "k-means, mean")
"""Warm starts of the paper."""


def _table() -> tuple[Setting, ...]:
    long = [Setting(method, PAPER_LENGTH, method_spec(BASE, method)) for method in METHODS]
    early = [
        Setting(method, name, method_spec(BASE, method).with_(max_iter=stop))
        for name, stop in EARLY_STOPS.items()
        for method in WARM
    ]
    fixed = [Setting(method, FIXED_LENGTH, method_spec(BASE, method).with_(max_length=50)) for method in NAMES]
    return tuple(long + early + fixed)


_WINDS = (0.0, 0.05, 0.1, 0.15, 0.2)
# Name, title, axis, points of the axis, and a function from a point to its specification.
_SENSITIVITY: tuple[tuple[str, str, str, Sequence[Any], Callable[[Any], Spec]], ...] = (
    ("demos", "Number of demonstrations", "demonstrations N", (20, 40, 100, 200, 400), lambda n: BASE.with_(n_demos=n)),
    ("wind", "Cluster separation", "wind w", _WINDS, lambda w: BASE.in_world(wind=w)),
    (
        "clusters",
        "Number of learned intents",
        "intents learned K (E = 3)",
        range(1, 6),
        lambda k: BASE.with_(n_intents=k),
    ),
    ("elements", "Number of true intents", "elements E = K", range(2, 7), lambda e: _with_elements(e, 0.1)),
    (
        "imbalance",
        "Imbalance of the mixture weights",
        "geometric parameter p",
        (0.0, 0.1, 0.2, 0.3, 0.4),
        lambda p: BASE.with_(imbalance=p),
    ),
)
SWEEPS = tuple(name for name, *_ in _SENSITIVITY)


def _with_elements(n_elements: int, wind: float) -> Spec:
    return BASE.in_world(n_elements=n_elements, wind=wind).with_(n_intents=n_elements)


def _paper_studies() -> tuple[Study, ...]:
    """Return the studies of Table 1, of the sensitivity analysis and of the margin."""
    main = _table()
    sensitivity = [
        Study(name, title, axis, 20, tuple(Setting(m, x, method_spec(make(x), m)) for x in points for m in METHODS))
        for name, title, axis, points, make in _SENSITIVITY
    ]
    # The margin depends only on the demonstrations, so the fastest method is used.
    margin = (Setting("supervised", w, method_spec(BASE.in_world(wind=w), "supervised")) for w in _WINDS)
    return (
        Study("table1", "Table 1: initialisations compared", "variant", 100, main),
        Study("boxplots", "Box plots of Table 1", "variant", 100, main[: len(METHODS)]),
        *sensitivity,
        Study("margin", "Margin between the intents", "wind w", 10, tuple(margin)),
    )


ML_IRL = "ML-IRL, paper's"
"""Name of ML-IRL with the paper's settings."""

PAPERS_ML_IRL = parameters(q="hard", beta=0.5, bounds=(-10.0, 0.0))
"""Settings of ML-IRL in the paper: a Boltzmann policy over the optimal Q-values, and bounded rewards."""

PUDDLE_GAMMA = 0.999

_PUDDLE = Spec(
    world="ContinuousPuddleWorld", world_parameters=parameters(gamma=PUDDLE_GAMMA), n_intents=2, model="SigmaGIRL"
)


def _sigma(init: str, cluster_on: str = "reward", **changes: Any) -> Mapping[str, Any]:
    given = parameters(gamma=PUDDLE_GAMMA, cluster_on=cluster_on)
    return MappingProxyType({"init": init, "model_parameters": given, **changes})


SIGMA_METHODS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "k-means, reward features": _sigma("kmeans"),
        "k-means, policy features": _sigma("kmeans", "policy"),
        "GMM, reward features": _sigma("gmm"),
        "GMM, policy features": _sigma("gmm", "policy"),
        "random responsibilities": _sigma("random"),
        "random rewards": _sigma("random_rewards"),
        "supervised": _sigma(TRUE_LABELS, max_iter=0),
    }
)
"""Methods for Sigma-GIRL by name, as overrides of a specification.

Agents are clustered by their mean discounted reward features or policy features. "Babes-Vroman" in the paper's figure
is EM from a random initialisation, but the paper does not state which one. Therefore both are included.
"""

TRAJECTORIES = (5, 20, 100)
"""Numbers of training trajectories per agent, equal to the numbers of test trajectories. The paper states no number."""


def _model_studies() -> tuple[Study, ...]:
    """Return the studies of the paper's appendix with other models."""
    return (
        Study(
            "mlirl",
            f"Box plots with {ML_IRL}",
            "model",
            20,
            tuple(
                Setting(method, ML_IRL, method_spec(BASE.with_(model="MLIRL", model_parameters=PAPERS_ML_IRL), method))
                for method in METHODS
            ),
        ),
        Study(
            "sigma-girl",
            "Box plots with Sigma-GIRL",
            "trajectories per agent",
            40,
            tuple(
                Setting(method, n, _PUDDLE.with_(n_demos=n, n_test=n, **changes))
                for n in TRAJECTORIES
                for method, changes in SIGMA_METHODS.items()
            ),
        ),
    )


N_AGENTS = 2
"""Number of agents per intent for Sigma-GIRL: the smallest number for which agents can be clustered."""

BEYOND_MODELS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "MaxEnt": {},
        "MaxCausalEnt": {"model": "MaxCausalEnt"},
        "ML-IRL": {"model": "MLIRL"},
        ML_IRL: {"model": "MLIRL", "model_parameters": PAPERS_ML_IRL},
        "ML-IRL, averaged": {"model": "MLIRL", "model_parameters": parameters(q="bv")},
        "Sigma-GIRL": {
            "model": "SigmaGIRL",
            "model_parameters": parameters(gamma=0.99),
            "n_agents": N_AGENTS,
            # EM does not converge even within 100 iterations, which would take several seconds per trial.
            "max_iter": 25,
        },
    }
)
"""Models by name, as overrides of a specification.

"ML-IRL" has unbounded rewards, "ML-IRL, paper's" uses the paper's bounds and Q-values, and "ML-IRL, averaged" uses the
softmax backup of Babes-Vroman et al. (2011).
"""

_MOVES = "k-means, split and merge"
BETTER_STARTS = ("best start", "best start, no EM", _MOVES)
"""Initialisations that evaluate more candidates than those of the paper."""

BEYOND_STARTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        **{name: METHODS[name] for name in ("k-means, MLE", "k-means, mean", "GMM, MLE")},
        "best start": {"init": "best"},
        "best start, no EM": {"init": "best", "max_iter": 0},
        _MOVES: {"init": "kmeans", "mixture_parameters": parameters(refine="split_merge")},
        **{name: METHODS[name] for name in ("random rewards", "random responsibilities", "supervised")},
    }
)
"""Initialisations by name, as overrides of a specification.

"best start" clusters several embeddings and selects the clustering with the highest likelihood; "split and merge"
refines the result of EM.
"""

_SEPARATOR = ": "
_PAPERS = (3, 0.1)
_ONE = ("k-means, MLE", "supervised")
_LEAST = (*_ONE, "best start")
_FEW = (*_LEAST, "random responsibilities")
_SOME = (*_FEW, "GMM, MLE", "best start, no EM", _MOVES)
# Initialisations for Sigma-GIRL. Mean rewards are omitted, because mean features are not in the simplex of the weights
# (future work in the paper). GMMs are omitted, because two agents per intent are too few to estimate a covariance.
_OF_AGENTS = ("k-means, MLE", "random responsibilities", "supervised")


def starts_at(model: str, n_elements: int, wind: float) -> tuple[str, ...]:
    """Return the initialisations of a model in a world: all of them in the paper's setting, fewer if fits are slow.

    With eight intents, a fit of a causal model takes 100 times as long as with three. Therefore ML-IRL is run with at
    most six intents. Sigma-GIRL is run with at most four, because it cannot separate more with so few demonstrations.

    Examples
    --------
    >>> starts_at("ML-IRL", 6, 0.1), starts_at("ML-IRL", 8, 0.1)
    (('k-means, MLE', 'supervised'), ())
    """
    if model == "Sigma-GIRL":
        return _OF_AGENTS if n_elements <= 4 and wind in (0.0, 0.1, 0.2, 0.3) else ()
    if (n_elements, wind) == _PAPERS:
        return tuple(BEYOND_STARTS)
    if model in ("MaxEnt", "MaxCausalEnt"):
        few_intents = tuple(start for start in BEYOND_STARTS if n_elements > 3 or start != _MOVES)
        return few_intents if n_elements <= 4 else _SOME if n_elements <= 6 else _LEAST
    return _FEW if n_elements <= 4 else _ONE if n_elements <= 6 else ()


def join_method(model: str, start: str) -> str:
    """Return the name of the method that combines a model and an initialisation.

    Examples
    --------
    >>> join_method("MaxCausalEnt", "GMM, MLE")
    'MaxCausalEnt: GMM, MLE'
    """
    check_choice(model, "model", tuple(BEYOND_MODELS))
    check_choice(start, "start", tuple(BEYOND_STARTS))
    return f"{model}{_SEPARATOR}{start}"


def model_of(method: str) -> str:
    """Return the model of a method."""
    return method.partition(_SEPARATOR)[0]


def start_of(method: str) -> str:
    """Return the initialisation of a method."""
    return method.partition(_SEPARATOR)[2]


def _settings(x: float, n_elements: int, wind: float) -> Iterable[Setting]:
    base = _with_elements(n_elements, wind)
    for model, changes in BEYOND_MODELS.items():
        wanted = starts_at(model, n_elements, wind)
        for start in (name for name in BEYOND_STARTS if name in wanted):
            yield Setting(join_method(model, start), x, base.with_(**changes).with_(**BEYOND_STARTS[start]))


def _beyond_studies() -> tuple[Study, ...]:
    """Return the studies that are not in the paper."""
    return (
        Study(
            "beyond-models",
            "Every model in the paper's setting",
            "elements E = K",
            100,
            tuple(
                setting
                for setting in _settings(_PAPERS[0], *_PAPERS)
                if start_of(setting.method) in _ONE and model_of(setting.method) != "Sigma-GIRL"
            ),
        ),
        Study(
            "beyond-elements",
            "Every model and start: number of intents",
            "elements E = K",
            20,
            tuple(setting for e in range(2, 9) for setting in _settings(e, e, 0.1)),
        ),
        Study(
            "beyond-wind",
            "Every model and start: wind",
            "wind w",
            20,
            tuple(setting for w in (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3) for setting in _settings(w, 3, w)),
        ),
    )


STUDIES: Mapping[str, Study] = MappingProxyType(
    {study.name: study for study in (*_paper_studies(), *_model_studies(), *_beyond_studies())}
)
"""Studies by name, as accepted by `limiirl reproduce`."""

GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"models": ("boxplots", "mlirl", "sigma-girl"), "beyond": ("beyond-models", "beyond-elements", "beyond-wind")}
)
"""Studies by group: "models" contains the paper's box plots of three models, "beyond" the studies not in the paper."""


def choose_studies(names: Sequence[str]) -> tuple[Study, ...]:
    """Return studies by name or group; "all" selects the studies of the paper.

    Examples
    --------
    >>> [study.name for study in choose_studies(["margin", "table1"])]
    ['table1', 'margin']
    >>> [study.name for study in choose_studies(["models"])]
    ['boxplots', 'mlirl', 'sigma-girl']
    """
    papers = tuple(name for name in STUDIES if name not in GROUPS["beyond"])
    groups = {**GROUPS, "all": papers}
    choices = (*STUDIES, *groups)
    for name in names or [""]:
        check_choice(name, "studies", choices)
    wanted = {study for name in names for study in groups.get(name, (name,))}
    return tuple(study for name, study in STUDIES.items() if name in wanted)


def iterate_trials(studies: Iterable[Study], repeats: int | None = None) -> Iterator[tuple[Spec, int]]:
    """Yield every distinct trial of the given studies as (specification, seed), world by world.

    Parameters
    ----------
    studies : iterable of Study
    repeats : int, optional
        Number of worlds, with seeds 0 to repeats - 1. The default is `Study.repeats`.

    Examples
    --------
    >>> len(list(iterate_trials(choose_studies(["margin"]))))
    50
    """
    if repeats is not None:
        check_count(repeats, "repeats")
    wanted = {study.name: (study, study.repeats if repeats is None else repeats) for study in studies}
    most = max((n for _, n in wanted.values()), default=0)
    for seed in range(most):
        # Several studies contain the same specification, such as the main setting.
        yield from (
            (spec, seed) for spec in dict.fromkeys(s for study, n in wanted.values() if seed < n for s in study.specs)
        )
