"""How a run was made, in a paragraph that can go into a paper, with versions, seeds and commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from limiirl.experiments.results import Results
from limiirl.report.document import Code, Facts, Item, Text
from limiirl.report.studies.terms import AGENTS

_ELEMENTS = (
    "ElementWorlds were generated from their seeds with E = 3 elements, wind 0.1, height 6 and discount 0.99 unless "
    "said otherwise. Demonstrators act optimally, uniform over ties, and stop at the goal or after 50 states; every "
    "intent has the same number of demonstrations within one. Mixtures were fitted by EM with exact gradients to 100 "
    "demonstrations, until responsibilities changed by less than 1e-6 a demonstration or for 100 iterations, and "
    "judged by 100 others. *Random rewards* are uniform on [-10, 0] with Dirichlet weights, as in the paper; *random "
    "responsibilities* are uniform on the simplex, followed by an M-step. k-means clusters the demonstrations' "
    "discounted feature counts, the best of 20 starts; *GMM* is a Gaussian mixture of the standardised counts with one "
    "covariance for all components, *full GMM* one of the counts with a covariance each, the best of 5 random starts; "
    "*supervised* is one M-step on the true labels. NLL and ANID (Dirichlet null, exact expectation) are of the test "
    "demonstrations, GEVD (unnormalised) is of the true rewards."
)
_AGENTS = (
    "In the continuous PuddleWorld three agents (center, up, border) walk to the goal with Gaussian policies, which "
    "are trained for each seed; center has one intent, the other two share the other. As many trajectories an agent as "
    "are said are drawn to learn from, and as many others to judge by. Policies are cloned from the first, gradients "
    "are GPOMDP's with baseline. Agents are clustered by their mean discounted reward or policy features, in place of "
    "the first E-step. Scores are of the three agents; rewards are known there only up to what does not change "
    "behaviour, so that there is no GEVD."
)
_MODELS = {
    "MaxEnt": "*MaxEnt* is over whole trajectories with rewards between -10 and 0; the largest length of a trajectory "
    "is the longest demonstration of both sets.",
    "MaxCausalEnt": "*MaxCausalEnt* is soft value iteration without an end.",
    "MLIRL": "*ML-IRL* is a Boltzmann policy, on the values of an optimal policy or, *averaged*, on its own, "
    "by 100 sweeps.",
    "SigmaGIRL": "*Sigma-GIRL* has diagonal, shrunk covariances of the gradients and weights on the simplex.",
}
_BEST = (
    "*Best start* is that of k-means and GMM of the features and k-means of the demonstrations' gradients whose first "
    "rewards explain the demonstrations to learn from best; no label is looked at."
)
_HANDED_OUT = (
    "Where *Sigma-GIRL* is used in ElementWorld, {n} agents share the demonstrations of each intent; its ANID and "
    "accuracy are of agents, and its GEVD is of weights that are known up to their length."
)
_TESTS = (
    "Durations are of one thread, initialisation and EM, compiled code. Intervals are Student's; tests are paired by "
    "world, Student's and Wilcoxon's, two-sided."
)


def _procedure(results: Sequence[Results]) -> str:
    """Return how the studies were made, in words: of the worlds and models that they have, and no others."""
    specs = dict.fromkeys(spec for found in results for spec in found.study.specs)
    worlds, models = {spec.world for spec in specs}, {spec.model for spec in specs}
    handed = sorted({spec.n_agents for spec in specs if spec.n_agents is not None})
    parts = [text for world, text in (("ElementWorld", _ELEMENTS), (AGENTS, _AGENTS)) if world in worlds]
    told = [text for model, text in _MODELS.items() if model in models]
    told += [_BEST] if any(spec.init == "best" for spec in specs) else []
    told += [_HANDED_OUT.format(n=", ".join(map(str, handed)))] if handed else []
    return "\n\n".join([*parts, " ".join([*told, _TESTS])])


def _settings(results: Sequence[Results]) -> str:
    """Return every model with the parameters that it was given, as one would write it."""
    specs = dict.fromkeys((s.model, s.model_parameters) for found in results for s in found.study.specs)
    return ", ".join(f"{name}({', '.join(f'{k}={v!r}' for k, v in given)})" for name, given in specs)


def methods_items(results: Sequence[Results], runs: Sequence[dict[str, Any]]) -> list[Item]:
    """Return the methods: the procedure, what was run, and the commands that made it."""
    worlds = {found.study.name: len(found.seeds) for found in results}
    facts: dict[str, object] = {"worlds": ", ".join(f"{name} {n}" for name, n in worlds.items())}
    facts["seeds"] = "; ".join(f"{found.study.name} {_ranges(found.seeds)}" for found in results)
    facts["models"] = _settings(results)
    items: list[Item] = [Text(_procedure(results))]
    if runs:
        versions = _distinct(runs, "versions")
        facts["versions"] = "; ".join(", ".join(f"{name} {version}" for name, version in v.items()) for v in versions)
        machines = _distinct(runs, "machine")
        facts["machine"] = "; ".join(f"{m['system']}, {m['processor']}, {m['cores']} cores" for m in machines)
        facts["run"] = f"{runs[0]['started'][:10]} to {runs[-1]['started'][:10]}"
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
