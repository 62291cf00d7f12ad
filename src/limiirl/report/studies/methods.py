"""Overview and methods of a report: worlds, models, initialisations, measures, versions, seeds and commands."""

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
"""The world with several recordings per agent."""

_INTENTS = (
    "Demonstrators such as drivers or animals act with different *intents*, which are not recorded. From "
    "unlabelled trajectories, a mixture model learns one reward function per intent, the mixture weights, and the "
    "posterior over intents of each trajectory. The mixture is fitted by expectation-maximisation (EM), whose result "
    "depends on the initialisation. This report compares initialisations{more}."
)
_ELEMENT_TERMS = (
    "The benchmark is ElementWorld, a cylinder of coloured lanes between a start column and a goal. There is one type "
    "of demonstrator per colour, for which a step costs 1 on its own colour and 10 on any other colour. Wind deflects "
    "some of the steps. The trajectories are given to the methods without labels; the labels are used for evaluation "
    "only."
)
_PUDDLE = (
    "{which} benchmark is the continuous PuddleWorld, a square with a puddle between a start and a goal. One agent "
    "ignores the puddle and the others avoid it. Each agent is recorded several times, and the task is to infer which "
    "agents share an intent."
)
MEASURE_TERMS = {
    "NLL": "negative log-likelihood of the test data under the mixture, in nats per trajectory or per agent",
    "ANID": "adjusted normalised information distance between learned and true clusters; 0 is perfect, 1 is chance",
    "EVD, GEVD": "expected value difference: the true value that is lost by planning with the learned rewards; the "
    "generalised EVD (GEVD) matches learned and true intents by optimal transport",
    "accuracy": "fraction of trajectories or agents that are assigned to the correct intent, under the best matching "
    "of learned and true intents",
}
_MODEL_TERMS = {
    "MaxEnt": "maximum entropy IRL: the probability of a trajectory is proportional to the exponential of its reward; "
    "deflections by the wind are treated as choices",
    "MaxCausalEnt": "maximum causal entropy IRL: soft value iteration, where the wind is part of the dynamics",
    "ML-IRL": "maximum likelihood IRL: a Boltzmann policy over the optimal Q-values; rewards are unbounded",
    ML_IRL: "maximum likelihood IRL: a Boltzmann policy over the optimal Q-values; rewards lie between −10 and 0",
    "ML-IRL, averaged": "maximum likelihood IRL: a Boltzmann policy over its own Q-values (Babes-Vroman et al.); "
    "rewards are unbounded",
    "Sigma-GIRL": "estimates the reward for which the policy gradient of an agent vanishes; requires several "
    "trajectories per agent and no transition model",
}
_CLUSTERS = {
    "k-means, GMM": "EM is initialised with clusters of the trajectories' features: hard clusters (k-means), or soft "
    "clusters of a Gaussian mixture with a shared covariance (GMM) or one covariance per component (full GMM)",
    "MLE, mean": "initial rewards of a cluster: the maximum-likelihood rewards, or the mean features of the cluster "
    "minus the overall mean",
}
_FEATURES = {
    "reward features, policy features": "features by which agents are clustered: the reward features that an agent "
    "collected, or the states that it visited"
}
_OTHERS = {
    "random rewards, random responsibilities": "EM is initialised with random rewards or random responsibilities",
    "supervised": "one M-step with the true labels: the reference for all unsupervised methods",
}
_BETTER = {
    "best start": "the clustering, among several, whose initial rewards have the highest likelihood",
    "best start, no EM": "the initial rewards of best start, without EM",
    "k-means, split and merge": "EM from k-means, followed by steps that split one intent and merge two others if this "
    "increases the likelihood",
}


def terms_section(results: Sequence[Results]) -> Section:
    """Return the overview of a report, limited to the worlds, models and initialisations of its studies."""
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
        texts.append(_PUDDLE.format(which="The" if worlds == {AGENTS} else "A second"))
    terms = MEASURE_TERMS | {name: text for name, text in _MODEL_TERMS.items() if name in models}
    terms |= _CLUSTERS | (_FEATURES if "sigma-girl" in names else {}) | _OTHERS
    terms |= {name: text for name, text in _BETTER.items() if name in starts}
    if not models:
        del terms["accuracy"]
    return Section("Overview", [Text("\n\n".join(texts)), Fold("Terms and abbreviations", [Facts(terms)])])


_ELEMENTS = (
    "ElementWorlds were generated from the seeds listed below. Unless stated otherwise, they have E = 3 elements, wind "
    "0.1, height 6 and discount 0.99, there are 100 training demonstrations, and the numbers of demonstrations per "
    "intent differ by at most one. Demonstrators act optimally, break ties uniformly at random, and stop at the goal "
    "or after 50 states. NLL and ANID were computed on another 100 demonstrations, and the unnormalised GEVD with the "
    "true rewards."
)
_AGENTS = (
    "In the continuous PuddleWorld, three agents (center, up, border) move to the goal with Gaussian policies that "
    "were trained separately for each seed. Agent center has one intent; agents up and border share the other. The "
    "stated number of trajectories per agent was drawn for training, and the same number for testing. Scores were "
    "computed over the three agents. GEVD is not reported, because rewards are identified only up to transformations "
    "that leave the behaviour unchanged."
)
_FITTED = (
    "Mixtures were fitted by EM with exact gradients. Unless stated otherwise, EM stopped when the responsibilities "
    "changed by less than {tol} per {unit}, or after {limits}."
)
_MODELS = {
    "MaxEnt": "*MaxEnt* is the maximum entropy distribution over trajectories, with rewards between −10 and 0. Its "
    "maximum length is the length of the longest training or test demonstration.",
    "MaxCausalEnt": "*MaxCausalEnt* is the policy of soft value iteration with infinite horizon.",
    "MLIRL": "*ML-IRL* is a Boltzmann policy over the optimal Q-values. *Averaged ML-IRL* uses the Q-values of the "
    "Boltzmann policy itself after 100 Bellman backups. The *paper's ML-IRL* has rewards between −10 and 0.",
    "SigmaGIRL": "*Sigma-GIRL* uses policies cloned from the training trajectories, GPOMDP gradients with baseline, "
    "diagonal covariances of the gradients with shrinkage, and reward weights on the simplex.",
}
_SHARED = (
    "For *Sigma-GIRL* in ElementWorld, the demonstrations of each intent were divided among {n} agents. ANID and "
    "accuracy were computed over agents, and the GEVD with reward weights that are identified up to their norm."
)
_TESTS = (
    "ANID is adjusted with its exact expectation under the Dirichlet null model. Durations include initialisation and "
    "EM on one thread, and exclude compilation. Confidence intervals are Student's. Tests are two-sided and paired by "
    "world: Student's t-test and Wilcoxon's signed-rank test."
)
# Descriptions of initialisations by `init` of a specification or by a further parameter.
_STARTS = {
    "kmeans": "*k-means* clusters {points}, best of 20 restarts.",
    "gmm": "*GMM* fits a Gaussian mixture with a shared covariance to the standardised features, best of 5 restarts.",
    FULL_GMM: "*Full GMM* fits one covariance per component to features that are not standardised, best of 5 random "
    "restarts.",
    "best": "*Best start* selects the clustering whose initial rewards have the highest training likelihood, among "
    "k-means and GMM of the features and k-means of the demonstrations' gradients. It uses no labels.",
    "split_merge": "*Split and merge* splits one intent and merges two others after EM, runs EM again, and accepts the "
    "result if the training likelihood increases; this is repeated at most 10 times.",
    "random_rewards": "*Random rewards* are uniform within the bounds of the model, or on [−10, 0] if it has none, "
    "with mixture weights from a Dirichlet distribution, as in the paper.",
    "random": "*Random responsibilities* are drawn uniformly from the simplex, followed by an M-step.",
    TRUE_LABELS: "*Supervised* is one M-step with the true labels.",
}
_COUNTS = "the discounted feature counts of the demonstrations"
_NAMES = {"MLIRL": "ML-IRL", "SigmaGIRL": "Sigma-GIRL"}


def _describe_procedure(results: Sequence[Results]) -> str:
    """Return the description of the procedure, limited to the worlds, models and initialisations of the studies."""
    specs = list(dict.fromkeys(spec for result in results for spec in result.study.specs))
    worlds, models = {spec.world for spec in specs}, {spec.model for spec in specs}
    n_agents = sorted({spec.n_agents for spec in specs if spec.n_agents is not None})
    parts = [text for world, text in (("ElementWorld", _ELEMENTS), (AGENTS, _AGENTS)) if world in worlds]
    texts = [text for model, text in _MODELS.items() if model in models]
    texts += [_SHARED.format(n=", ".join(map(str, n_agents)))] if n_agents else []
    return "\n\n".join([*parts, _describe_fits(specs), " ".join([*texts, _TESTS])])


def _describe_fits(specs: Sequence[Spec]) -> str:
    """Return the stopping rule of EM, with the iteration limit per model, and a description of each initialisation."""
    by_agent = {with_agents(spec) for spec in specs}
    limits: dict[tuple[str, str], int] = {}
    for spec in specs:
        at = spec.model, spec.world
        limits[at] = max(limits.get(at, 0), spec.max_iter)
    usual = max(limits.values())
    texts = []
    if usual:  # otherwise all fits are supervised
        others = {at: n for at, n in limits.items() if 0 < n < usual}
        fewer = ", ".join(f"{n} for {_NAMES.get(model, model)} in {world}" for (model, world), n in others.items())
        limits_text = f"{usual} iterations" + (f" ({fewer})" if fewer else "")
        units = " or ".join({True: "agent", False: "demonstration"}[kind] for kind in sorted(by_agent))
        tol = f"{IntentMixture().resp_tol:.0e}".replace("e-0", "e-")
        texts = [_FITTED.format(tol=tol, unit=units, limits=limits_text)]
    policy = any(("cluster_on", "policy") in spec.model_parameters for spec in specs)
    means = f"the mean discounted reward {'or policy ' if policy else ''}features of the agents"
    points = ", or ".join(what for kind, what in ((False, _COUNTS), (True, means)) if kind in by_agent)
    used = {spec.init for spec in specs} | {value for spec in specs for _, value in spec.mixture_parameters}
    used |= {"kmeans", "gmm"} if "best" in used else set()
    texts += [text.format(points=points) for start, text in _STARTS.items() if start in used]
    return " ".join(texts)


def _describe_mixtures(results: Sequence[Results]) -> str:
    models: dict[str, dict[str, None]] = {}
    for spec in (s for result in results for s in result.study.specs):
        agents = () if spec.n_agents is None else (("n_agents", spec.n_agents),)
        given = _arguments((("max_iter", spec.max_iter), *spec.mixture_parameters, *agents))
        models.setdefault(given, {})[spec.model] = None
    return "; ".join(f"{', '.join(names)} with {given}" for given, names in models.items())


def _arguments(given: Sequence[tuple[str, object]]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in given)


def methods_items(results: Sequence[Results], runs: Sequence[dict[str, Any]]) -> list[Item]:
    """Return the methods section: the procedure, settings and versions, and the commands of the runs."""
    specs = dict.fromkeys((s.model, s.model_parameters) for result in results for s in result.study.specs)
    facts: dict[str, object] = {
        "worlds per study": ", ".join(f"{result.study.name}: {len(result.seeds)}" for result in results),
        "seeds": "; ".join(f"{result.study.name}: {_format_ranges(result.seeds)}" for result in results),
        "models": ", ".join(f"{name}({_arguments(given)})" for name, given in specs),
        "mixtures": _describe_mixtures(results),
    }
    facts |= run_facts(runs)
    commands = dict.fromkeys(str(run["command"]) for run in runs)
    items: list[Item] = [Text(_describe_procedure(results)), Facts(facts)]
    return [*items, Code("\n".join(commands), "Command")] if commands else items


def run_facts(runs: Sequence[dict[str, Any]]) -> dict[str, object]:
    """Return the versions, machines and dates of the logged invocations; see `Store.runs`."""
    if not runs:
        return {}
    versions, machines = (_distinct(runs, key) for key in ("versions", "machine"))
    return {
        "versions": "; ".join(", ".join(f"{name} {version}" for name, version in v.items()) for v in versions),
        "machine": "; ".join(f"{m['system']}, {m['processor']}, {m['cores']} cores" for m in machines),
        "date": " to ".join(dict.fromkeys(run["started"][:10] for run in (runs[0], runs[-1]))),
    }


def _distinct(runs: Sequence[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    return [run[key] for i, run in enumerate(runs) if all(run[key] != other[key] for other in runs[:i])]


def _format_ranges(seeds: Sequence[int]) -> str:
    parts: list[list[int]] = []
    for seed in seeds:
        if parts and seed == parts[-1][-1] + 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    return ", ".join(f"{part[0]} to {part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)
