"""Introduction and methods of a report: worlds, models, initialisations and measures; versions, seeds and commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from limiirl.experiments import (
    AGENT_WORLDS,
    FULL_GMM,
    ML_IRL,
    TRUE_LABELS,
    Results,
    Spec,
    model_of,
    start_of,
    with_agents,
)
from limiirl.mixture import IntentMixture
from limiirl.report.document import Code, Facts, Fold, Item, Section, Text

(AGENTS,) = AGENT_WORLDS
"""The world in which agents are recorded several times each."""

_INTENTS = (
    "People and animals act with different *intents*, and recordings do not show which. From unlabelled trajectories, "
    "a mixture model learns one reward function per intent, the mixture weights, and the probability of each "
    "intent for every trajectory. EM fits the mixture by improving an initial guess step by step; this report compares "
    "initial guesses{more}."
)
_ELEMENT_TERMS = (
    "ElementWorld is the test: a cylinder of coloured lanes between a start column and a goal. There is one kind of "
    "demonstrator per colour; a step costs it 1 on its own colour and 10 on any other, and wind deflects some steps. "
    "The methods see the trajectories without labels; the labels are used only to score the results."
)
_PUDDLE = (
    "The continuous PuddleWorld is {the} test: a square with a puddle in its middle, between a start and a goal. One "
    "agent ignores the puddle, the others walk around it. Each agent is recorded many times, and the task is to find "
    "which agents share an intent."
)
_MEASURES = {
    "NLL": "negative log-likelihood of test data under the mixture, in nats per trajectory or per agent",
    "ANID": "adjusted normalised information distance between learned and true clusters: 0 is perfect, 1 is chance",
    "EVD, GEVD": "(generalised) expected value difference: true reward that is lost by planning with learned rewards",
    "accuracy": "fraction of trajectories or agents assigned to the correct intent, under the best matching of intents",
}
_MODEL_TERMS = {
    "MaxEnt": "the probability of a trajectory grows with its reward; deflections by the wind count as choices",
    "MaxCausalEnt": "choices are as random as the rewards allow, given that the wind is not a choice: soft value "
    "iteration",
    "ML-IRL": "the probability of an action grows with its value under an optimal policy; rewards are unbounded",
    ML_IRL: "the probability of an action grows with its value under an optimal policy; rewards lie between -10 and 0",
    "ML-IRL, averaged": "the probability of an action grows with its value under the same noisy policy (Babes-Vroman "
    "et al.); rewards are unbounded",
    "Sigma-GIRL": "the reward for which the policy gradient of an agent vanishes; needs several trajectories per agent "
    "and no model of the world",
}
_CLUSTERS = {
    "k-means, GMM": "EM starts from clusters of the trajectories' features: hard clusters, or a Gaussian mixture with "
    "one shared covariance (GMM) or one covariance per cluster (full GMM)",
    "MLE, mean": "initial rewards of a cluster: the maximum-likelihood rewards, or its mean features minus the overall "
    "mean",
}
_FEATURES = {
    "reward features, policy features": "description of an agent for clustering: the reward features that it "
    "collected, or the states that it visited"
}
_OTHERS = {
    "random rewards, random responsibilities": "EM starts from random rewards or random responsibilities",
    "supervised": "fitted to the true labels: the best that can be reached",
}
_BETTER = {
    "best start": "the clustering whose initial rewards have the highest likelihood among several clusterings",
    "best start, no EM": "the same without EM: the initial rewards themselves",
    "k-means, split and merge": "EM from k-means, followed by moves that split one intent and merge two others if that "
    "raises the likelihood",
}


def terms_section(results: Sequence[Results]) -> Section:
    """Return the introduction of a report, limited to what its studies compare."""
    names = {result.study.name for result in results}
    worlds = {spec.world for result in results for spec in result.study.specs}
    methods = [name for result in results if result.study.name.startswith("beyond") for name in result.study.methods]
    models, starts = set(map(model_of, methods)), set(map(start_of, methods))
    models |= {ML_IRL} if "mlirl" in names else set()
    models |= {"Sigma-GIRL"} if "sigma-girl" in names else set()
    if models and names & {"table1", "boxplots"}:
        models.add("MaxEnt")
    texts = [_INTENTS.format(more=" and behaviour models" if models else "")]
    texts += [_ELEMENT_TERMS] if "ElementWorld" in worlds else []
    if AGENTS in worlds:
        texts.append(_PUDDLE.format(the="the" if worlds == {AGENTS} else "another"))
    terms = _MEASURES | {name: text for name, text in _MODEL_TERMS.items() if name in models}
    terms |= _CLUSTERS | (_FEATURES if "sigma-girl" in names else {}) | _OTHERS
    terms |= {name: text for name, text in _BETTER.items() if name in starts}
    if not models:
        del terms["accuracy"]
    return Section("What is compared", [Text("\n\n".join(texts)), Fold("Terms and abbreviations", [Facts(terms)])])


_ELEMENTS = (
    "ElementWorlds were generated from their seeds with E = 3 elements, wind 0.1, height 6 and discount 0.99 unless "
    "stated otherwise. Demonstrators act optimally, choose uniformly among ties, and stop at the goal or after 50 "
    "states. The numbers of demonstrations per intent differ by at most one. There are 100 training demonstrations, "
    "unless stated otherwise, and 100 test demonstrations: NLL and ANID are computed on the test demonstrations, GEVD "
    "(unnormalised) on the true rewards."
)
_AGENTS = (
    "In the continuous PuddleWorld three agents (center, up, border) walk to the goal with Gaussian policies trained "
    "for each seed; center has one intent, the other two share the second. The stated number of trajectories per agent "
    "is drawn for training and again for testing. Scores are over the three agents. Rewards are identified only up to "
    "transformations that keep the behaviour, so there is no GEVD."
)
_FITTED = (
    "Mixtures were fitted by EM with exact gradients, until responsibilities changed by less than {tol} per {unit} or, "
    "unless stated otherwise, for at most {caps}."
)
_MODELS = {
    "MaxEnt": "*MaxEnt* is a distribution over whole trajectories with rewards between -10 and 0; its maximum length "
    "is that of the longest demonstration of both sets.",
    "MaxCausalEnt": "*MaxCausalEnt* is soft value iteration with infinite horizon.",
    "MLIRL": "*ML-IRL* is a Boltzmann policy on the values of an optimal policy or, *averaged*, on its own values "
    "after 100 Bellman backups; that of the paper has rewards between -10 and 0.",
    "SigmaGIRL": "*Sigma-GIRL* uses policies cloned from the training trajectories, GPOMDP gradients with baseline, "
    "diagonal shrunk covariances of these, and weights on the simplex.",
}
_SHARED = (
    "With *Sigma-GIRL* in ElementWorld, the demonstrations of each intent are divided among {n} agents; its ANID and "
    "accuracy are per agent, and its GEVD uses weights identified up to their norm."
)
_TESTS = (
    "ANID uses the Dirichlet null with its exact expectation. Durations are of initialisation and EM on one thread "
    "with compiled code. Intervals are Student's; tests are paired by world, Student's and Wilcoxon's, two-sided."
)
# Descriptions of initialisations by `init` of a specification or by a further parameter.
_STARTS = {
    "kmeans": "*k-means* clusters {points}, best of 20 restarts.",
    "gmm": "*GMM* is a Gaussian mixture of the same, standardised, with one shared covariance, best of 5 restarts.",
    FULL_GMM: "*Full GMM* is not standardised and has one covariance per component, best of 5 random restarts.",
    "best": "*Best start* is the clustering among k-means and GMM of the features and k-means of the demonstrations' "
    "gradients whose initial rewards have the highest training likelihood; no labels are used.",
    "split_merge": "*Split and merge* continues after EM, at most 10 times, with a move that splits one intent and "
    "merges two others, followed by EM, if that raises the training likelihood.",
    "random_rewards": "*Random rewards* are uniform within the bounds of the model, on [-10, 0] if it has none, with "
    "Dirichlet weights, as in the paper.",
    "random": "*Random responsibilities* are uniform on the simplex, followed by an M-step.",
    TRUE_LABELS: "*Supervised* is one M-step on the true labels.",
}
_COUNTS = "discounted feature counts of the demonstrations"
_NAMES = {"MLIRL": "ML-IRL", "SigmaGIRL": "Sigma-GIRL"}


def _procedure(results: Sequence[Results]) -> str:
    """Return the procedure as prose, limited to the worlds, models and initialisations of the studies."""
    specs = list(dict.fromkeys(spec for result in results for spec in result.study.specs))
    worlds, models = {spec.world for spec in specs}, {spec.model for spec in specs}
    n_agents = sorted({spec.n_agents for spec in specs if spec.n_agents is not None})
    parts = [text for world, text in (("ElementWorld", _ELEMENTS), (AGENTS, _AGENTS)) if world in worlds]
    texts = [text for model, text in _MODELS.items() if model in models]
    texts += [_SHARED.format(n=", ".join(map(str, n_agents)))] if n_agents else []
    return "\n\n".join([*parts, _fits(specs), " ".join([*texts, _TESTS])])


def _fits(specs: Sequence[Spec]) -> str:
    """Return the stopping rule of EM with the iteration limit per model, and how each initialisation is made."""
    kinds = {with_agents(spec) for spec in specs}
    limits: dict[tuple[str, str], int] = {}
    for spec in specs:
        at = spec.model, spec.world
        limits[at] = max(limits.get(at, 0), spec.max_iter)
    usual = max(limits.values())
    texts = []
    if usual:  # otherwise all fits are supervised
        others = {at: n for at, n in limits.items() if 0 < n < usual}
        fewer = [f"{_NAMES.get(model, model)} in {world} for at most {n}" for (model, world), n in others.items()]
        caps = f"{usual} iterations{''.join(f', {one}' for one in fewer)}"
        units = " or ".join({True: "agent", False: "demonstration"}[kind] for kind in sorted(kinds))
        tol = f"{IntentMixture().resp_tol:.0e}".replace("e-0", "e-")
        texts = [_FITTED.format(tol=tol, unit=units, caps=caps)]
    policy = any(("cluster_on", "policy") in spec.model_parameters for spec in specs)
    means = f"mean discounted reward {'or policy ' if policy else ''}features of the agents"
    points = ", or ".join(what for kind, what in ((False, _COUNTS), (True, means)) if kind in kinds)
    used = {spec.init for spec in specs} | {value for spec in specs for _, value in spec.mixture_parameters}
    used |= {"kmeans", "gmm"} if "best" in used else set()
    texts += [text.format(points=points) for start, text in _STARTS.items() if start in used]
    return " ".join(texts)


def _mixtures(results: Sequence[Results]) -> str:
    """Return the parameters of the mixtures, each with the models that they were used with."""
    models: dict[str, dict[str, None]] = {}
    for spec in (s for result in results for s in result.study.specs):
        agents = () if spec.n_agents is None else (("n_agents", spec.n_agents),)
        given = _arguments((("max_iter", spec.max_iter), *spec.mixture_parameters, *agents))
        models.setdefault(given, {})[spec.model] = None
    return "; ".join(f"{given}: {', '.join(names)}" for given, names in models.items())


def _arguments(given: Sequence[tuple[str, object]]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in given)


def methods_items(results: Sequence[Results], runs: Sequence[dict[str, Any]]) -> list[Item]:
    """Return the methods: the procedure, settings and versions, and the commands of the runs."""
    specs = dict.fromkeys((s.model, s.model_parameters) for result in results for s in result.study.specs)
    facts: dict[str, object] = {
        "worlds": ", ".join(f"{result.study.name} {len(result.seeds)}" for result in results),
        "seeds": "; ".join(f"{result.study.name} {_ranges(result.seeds)}" for result in results),
        "models": ", ".join(f"{name}({_arguments(given)})" for name, given in specs),
        "mixtures": _mixtures(results),
    }
    if not runs:
        return [Text(_procedure(results)), Facts(facts)]
    versions, machines = (_distinct(runs, key) for key in ("versions", "machine"))
    facts["versions"] = "; ".join(", ".join(f"{name} {version}" for name, version in v.items()) for v in versions)
    facts["machine"] = "; ".join(f"{m['system']}, {m['processor']}, {m['cores']} cores" for m in machines)
    facts["run"] = " to ".join(dict.fromkeys(run["started"][:10] for run in (runs[0], runs[-1])))
    commands = dict.fromkeys(str(run["command"]) for run in runs)
    return [Text(_procedure(results)), Facts(facts), Code("\n".join(commands), "Made by")]


def _distinct(runs: Sequence[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    return [run[key] for i, run in enumerate(runs) if all(run[key] != other[key] for other in runs[:i])]


def _ranges(seeds: Sequence[int]) -> str:
    """Return ascending numbers as text, consecutive ones as ranges.

    >>> _ranges([0, 1, 2, 5])
    '0 to 2, 5'
    """
    parts: list[list[int]] = []
    for seed in seeds:
        if parts and seed == parts[-1][-1] + 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    return ", ".join(f"{part[0]} to {part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)
