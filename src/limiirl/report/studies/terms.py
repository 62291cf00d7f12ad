"""What a reader must know who has not read the paper: the world, the methods and the measures, in a few lines."""

from __future__ import annotations

from limiirl.report.document import Facts, Fold, Section, Text

_WORLD = (
    "People and animals act with different *intents*, and nobody labels which. From recorded walks alone a mixture "
    "model learns one reward function for each intent, how common each is, and who follows which. It is fitted by EM, "
    "which improves a first guess step by step; this report is about where to begin.\n\n"
    "ElementWorld is the test: a cylinder of coloured lanes between a start column and a goal. Each of three kinds of "
    "walkers pays 1 for a step on its own colour and 10 on any other, and the wind blows some steps astray. The walks "
    "are given to the methods without saying whose they are; the truth is kept to judge by."
)
_TERMS = {
    "NLL": "negative log-likelihood: how surprised the mixture is by walks that it has not seen, in nats a walk",
    "ANID": "adjusted normalised information distance: are the same walks put together? 0 is perfect, 1 is chance",
    "EVD, GEVD": "(generalised) expected value difference: reward that a planner loses who trusts the learned rewards",
    "k-means, GMM": "EM begins from clusters of walks by what they stepped on: hard ones, or soft ones of a Gaussian "
    "mixture with one covariance for all clusters (GMM) or one each (full GMM)",
    "MLE, mean": "the first rewards of a cluster: the most likely ones, or its mean features less the overall mean",
    "random rewards, random responsibilities": "EM begins from rewards, or from memberships, drawn at random",
    "supervised": "the true labels are given: what could be reached at best",
}


def terms_section() -> Section:
    """Return the introduction of a report."""
    return Section("What is compared", [Text(_WORLD), Fold("Words and abbreviations", [Facts(_TERMS)])])
