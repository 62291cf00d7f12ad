"""What a reader must know who has not read the paper: the worlds, the models, the starts and the measures."""

from __future__ import annotations

from collections.abc import Sequence

from limiirl.experiments.results import Results
from limiirl.experiments.spec import AGENT_WORLDS
from limiirl.experiments.studies_beyond import model_of, start_of
from limiirl.experiments.studies_models import ML_IRL
from limiirl.report.document import Facts, Fold, Section, Text

(AGENTS,) = AGENT_WORLDS
"""The world in which agents are recorded several times each."""

_INTENTS = (
    "People and animals act with different *intents*, and nobody labels which. From recorded walks alone a mixture "
    "model learns one reward function for each intent, how common each is, and who follows which. It is fitted by EM, "
    "which improves a first guess step by step; this report is about where to begin{more}."
)
_ELEMENTS = (
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
_MODELS = {
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
    texts += [_ELEMENTS] if "ElementWorld" in worlds else []
    if AGENTS in worlds:
        texts.append(_PUDDLE.format(the="the" if worlds == {AGENTS} else "another"))
    terms = _MEASURES | {name: said for name, said in _MODELS.items() if name in models}
    terms |= _CLUSTERS | (_FEATURES if "sigma-girl" in names else {}) | _OTHERS
    terms |= {name: said for name, said in _BETTER.items() if name in starts}
    if not models:
        del terms["accuracy"]
    return Section("What is compared", [Text("\n\n".join(texts)), Fold("Words and abbreviations", [Facts(terms)])])
