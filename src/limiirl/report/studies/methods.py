"""The introduction and the methods of a report: worlds, models, starts and measures; versions, seeds and commands."""

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
    "People and animals act with different *intents*, and nobody labels which. From recorded walks alone a mixture "
    "model learns one reward function for each intent, how common each is, and who follows which. It is fitted by EM, "
    "which improves a first guess step by step; this report is about where to begin{more}."
)
_ELEMENT_TERMS = (
    "ElementWorld is the test: a cylinder of coloured lanes between a start column and a goal. There are as many kinds "
    "of walkers as colours; each pays 1 for a step on its own colour and 10 on any other, and the wind blows some "
    "steps astray. The walks are given to the methods without saying whose they are; the truth is kept to judge by."
)
_PUDDLE = (
    "The continuous PuddleWorld is {the} test: a square with a puddle in its middle, between a start and a goal. One "
    "agent does not mind the puddle, the others go around it; each is recorded many times, and the question is which "
    "agents want the same."
)
_MEASURES = {
    "NLL": "negative log-likelihood: how surprised the mixture is by what it has not seen, in nats a walk, or an agent",
    "ANID": "adjusted normalised information distance: are the same walks put together? 0 is perfect, 1 is chance",
    "EVD, GEVD": "(generalised) expected value difference: reward that a planner loses who trusts the learned rewards",
    "accuracy": "share of walks, or of agents, that are put to the right intent, by the best matching of intents",
}
_MODEL_TERMS = {
    "MaxEnt": "a walk is the likelier the more reward it collects; luck with the wind counts as if it had been chosen",
    "MaxCausalEnt": "choices are as random as rewards allow, knowing that the wind is no choice: soft value iteration",
    "ML-IRL": "a step is the likelier the more it is worth to who acts optimally from then on; rewards have no bounds",
    ML_IRL: "a step is the likelier the more it is worth to who acts optimally from then on; rewards have the paper's "
    "bounds, -10 to 0",
    "ML-IRL, averaged": "a step is the likelier the more it is worth to who keeps choosing in that noisy way from then "
    "on (Babes-Vroman et al.); rewards have no bounds",
    "Sigma-GIRL": "an agent wants that reward under which no small change of its policy would gain; it needs agents "
    "with several walks each, and no model of the world",
}
_CLUSTERS = {
    "k-means, GMM": "EM begins from clusters of walks by what they stepped on: hard ones, or soft ones of a Gaussian "
    "mixture with one covariance for all clusters (GMM) or one each (full GMM)",
    "MLE, mean": "the first rewards of a cluster: the most likely ones, or its mean features less the overall mean",
}
_FEATURES = {
    "reward features, policy features": "what describes an agent to the clustering: the rewards that it met on the "
    "way, or where it was"
}
_OTHERS = {
    "random rewards, random responsibilities": "EM begins from rewards, or from memberships, drawn at random",
    "supervised": "the true labels are given: what could be reached at best",
}
_BETTER = {
    "best start": "walks are clustered in several ways, and EM begins where the first rewards explain them best",
    "best start, no EM": "the same, without EM: the first rewards of those clusters",
    "k-means, split and merge": "EM from k-means, and then moves that split one intent and merge two others, wherever "
    "that explains the walks better",
}


def terms_section(results: Sequence[Results]) -> Section:
    """Return the introduction of a report of some studies: of what they compare, and of nothing else."""
    names = {found.study.name for found in results}
    worlds = {spec.world for found in results for spec in found.study.specs}
    methods = [method for found in results if found.study.name.startswith("beyond") for method in found.study.methods]
    models, starts = set(map(model_of, methods)), set(map(start_of, methods))
    models |= {ML_IRL} if "mlirl" in names else set()
    models |= {"Sigma-GIRL"} if "sigma-girl" in names else set()
    if models and names & {"table1", "boxplots"}:
        models.add("MaxEnt")
    texts = [_INTENTS.format(more=" and which model of behaviour to learn" if models else "")]
    texts += [_ELEMENT_TERMS] if "ElementWorld" in worlds else []
    if AGENTS in worlds:
        texts.append(_PUDDLE.format(the="the" if worlds == {AGENTS} else "another"))
    terms = _MEASURES | {name: said for name, said in _MODEL_TERMS.items() if name in models}
    terms |= _CLUSTERS | (_FEATURES if "sigma-girl" in names else {}) | _OTHERS
    terms |= {name: said for name, said in _BETTER.items() if name in starts}
    if not models:
        del terms["accuracy"]
    return Section("What is compared", [Text("\n\n".join(texts)), Fold("Words and abbreviations", [Facts(terms)])])


_ELEMENTS = (
    "ElementWorlds were generated from their seeds with E = 3 elements, wind 0.1, height 6 and discount 0.99 unless "
    "said otherwise. Demonstrators act optimally, uniform over ties, and stop at the goal or after 50 states; every "
    "intent has the same number of demonstrations within one. There are 100 demonstrations to learn from, unless said "
    "otherwise, and 100 others to judge by: NLL and ANID are of these, GEVD (unnormalised) is of the true rewards."
)
_AGENTS = (
    "In the continuous PuddleWorld three agents (center, up, border) walk to the goal with Gaussian policies, which "
    "are trained for each seed; center has one intent, the other two share the other. As many trajectories an agent as "
    "are said are drawn to learn from, and as many others to judge by. Scores are of the three agents; rewards are "
    "known there only up to what does not change behaviour, so that there is no GEVD."
)
_FITTED = (
    "Mixtures were fitted by EM with exact gradients, until responsibilities changed by less than {tol} {unit} or, "
    "unless said otherwise, for {caps}."
)
_MODELS = {
    "MaxEnt": "*MaxEnt* is over whole trajectories with rewards between -10 and 0; the largest length of a trajectory "
    "is the longest demonstration of both sets.",
    "MaxCausalEnt": "*MaxCausalEnt* is soft value iteration without an end.",
    "MLIRL": "*ML-IRL* is a Boltzmann policy, on the values of an optimal policy or, *averaged*, on its own, "
    "by 100 sweeps; the *paper's* has rewards between -10 and 0.",
    "SigmaGIRL": "*Sigma-GIRL* has policies cloned from the trajectories to learn from, GPOMDP's gradients with "
    "baseline, diagonal, shrunk covariances of these, and weights on the simplex.",
}
_HANDED_OUT = (
    "Where *Sigma-GIRL* is used in ElementWorld, {n} agents share the demonstrations of each intent; its ANID and "
    "accuracy are of agents, and its GEVD is of weights that are known up to their length."
)
_TESTS = (
    "ANID has the Dirichlet null with its exact expectation. Durations are of one thread, initialisation and EM, "
    "compiled code. Intervals are Student's; tests are paired by world, Student's and Wilcoxon's, two-sided."
)
# How a start is made, by `init` of a specification or by what is done beside it.
_STARTS = {
    "kmeans": "*k-means* clusters {points}, the best of 20 starts.",
    "gmm": "*GMM* is a Gaussian mixture of the same, standardised, with one covariance for all components, the best of "
    "5 starts.",
    FULL_GMM: "*Full GMM* is one that is not standardised, with a covariance each, the best of 5 random starts.",
    "best": "*Best start* is that of k-means and GMM of the features and k-means of the demonstrations' gradients "
    "whose first rewards explain the demonstrations to learn from best; no label is looked at.",
    "split_merge": "*Split and merge* goes on after EM, at most 10 times, with a move that splits one intent and "
    "merges two others and with EM from there, wherever that raises the likelihood of what is learned from.",
    "random_rewards": "*Random rewards* are uniform within the model's bounds, on [-10, 0] where it has none, with "
    "Dirichlet weights, as in the paper.",
    "random": "*Random responsibilities* are uniform on the simplex, followed by an M-step.",
    TRUE_LABELS: "*Supervised* is one M-step on the true labels.",
}
_COUNTS = "discounted feature counts of the demonstrations"
_MEANS = {
    False: "mean discounted reward features of the agents",
    True: "mean discounted reward or policy features of the agents",
}
_NAMES = {"MLIRL": "ML-IRL", "SigmaGIRL": "Sigma-GIRL"}


def _procedure(results: Sequence[Results]) -> str:
    """Return how the studies were made, in words: of the worlds, models and starts that they have, and no others."""
    specs = list(dict.fromkeys(spec for found in results for spec in found.study.specs))
    worlds, models = {spec.world for spec in specs}, {spec.model for spec in specs}
    handed = sorted({spec.n_agents for spec in specs if spec.n_agents is not None})
    parts = [text for world, text in (("ElementWorld", _ELEMENTS), (AGENTS, _AGENTS)) if world in worlds]
    told = [text for model, text in _MODELS.items() if model in models]
    told += [_HANDED_OUT.format(n=", ".join(map(str, handed)))] if handed else []
    return "\n\n".join([*parts, _fits(specs), " ".join([*told, _TESTS])])


def _fits(specs: Sequence[Spec]) -> str:
    """Return when EM stops, by the largest number that each model is given, and how each start is made."""
    kinds = {with_agents(spec) for spec in specs}
    most: dict[tuple[str, str], int] = {}
    for spec in specs:
        at = spec.model, spec.world
        most[at] = max(most.get(at, 0), spec.max_iter)
    usual = max(most.values())
    told = []
    if usual:  # else nothing is fitted but on labels
        others = {at: n for at, n in most.items() if 0 < n < usual}
        fewer = [f"{_NAMES.get(model, model)} in {world} for {n}" for (model, world), n in others.items()]
        unit = {True: "an agent", False: "a demonstration"}
        caps = f"{usual} iterations{''.join(f', {one}' for one in fewer)}"
        units = " or ".join(unit[kind] for kind in sorted(kinds))
        tol = f"{IntentMixture().tol:.0e}".replace("e-0", "e-")
        told = [_FITTED.format(tol=tol, unit=units, caps=caps)]
    both = any(("cluster_on", "policy") in spec.model_parameters for spec in specs)
    points = ", or ".join(what for kind, what in ((False, _COUNTS), (True, _MEANS[both])) if kind in kinds)
    used = {spec.init for spec in specs} | {value for spec in specs for _, value in spec.mixture_parameters}
    used |= {"kmeans", "gmm"} if "best" in used else set()
    told += [text.format(points=points) for start, text in _STARTS.items() if start in used]
    return " ".join(told)


def _settings(results: Sequence[Results]) -> str:
    """Return every model with the parameters that it was given, as one would write it."""
    specs = dict.fromkeys((s.model, s.model_parameters) for found in results for s in found.study.specs)
    return ", ".join(f"{name}({_written(given)})" for name, given in specs)


def _mixtures(results: Sequence[Results]) -> str:
    """Return what mixtures were given beside a start, and the models that they were given it with."""
    models: dict[str, dict[str, None]] = {}
    for spec in (s for found in results for s in found.study.specs):
        agents = () if spec.n_agents is None else (("n_agents", spec.n_agents),)
        given = _written((("max_iter", spec.max_iter), *spec.mixture_parameters, *agents))
        models.setdefault(given, {})[spec.model] = None
    return "; ".join(f"{given}: {', '.join(names)}" for given, names in models.items())


def _written(given: Sequence[tuple[str, object]]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in given)


def methods_items(results: Sequence[Results], runs: Sequence[dict[str, Any]]) -> list[Item]:
    """Return the methods: the procedure, what was run, and the commands that made it."""
    worlds = {found.study.name: len(found.seeds) for found in results}
    facts: dict[str, object] = {"worlds": ", ".join(f"{name} {n}" for name, n in worlds.items())}
    facts["seeds"] = "; ".join(f"{found.study.name} {_ranges(found.seeds)}" for found in results)
    facts["models"] = _settings(results)
    facts["mixtures"] = _mixtures(results)
    items: list[Item] = [Text(_procedure(results))]
    if runs:
        versions = _distinct(runs, "versions")
        facts["versions"] = "; ".join(", ".join(f"{name} {version}" for name, version in v.items()) for v in versions)
        machines = _distinct(runs, "machine")
        facts["machine"] = "; ".join(f"{m['system']}, {m['processor']}, {m['cores']} cores" for m in machines)
        facts["run"] = " to ".join(dict.fromkeys(run["started"][:10] for run in (runs[0], runs[-1])))
        commands = dict.fromkeys(str(run["command"]) for run in runs)
        items.append(Facts(facts))
        items.append(Code("\n".join(commands), "Made by"))
    else:
        items.append(Facts(facts))
    return items


def _distinct(runs: Sequence[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for run in runs:
        if run[key] not in found:
            found.append(run[key])
    return found


def _ranges(seeds: Sequence[int]) -> str:
    """Return numbers in words, runs of them as ranges.

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
