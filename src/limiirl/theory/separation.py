"""Separability of intents in feature space, and the usefulness of a warm start."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl._typing import FloatArray, IntArray
from limiirl._validation import check_positive
from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.irl import MaxEnt, validate
from limiirl.mdp import MDP
from limiirl.theory.bound import (
    Bound,
    align_clusters,
    check_labels,
    compute_epsilon,
    inter_cluster_margin,
    kmeans_clusters,
)
from limiirl.theory.estimates import all_clouds, clouds_of_demos, smallest_bound
from limiirl.theory.feature_sets import PathSet, check_supports, feature_distribution, find_supports

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Minimum purity of clusters at which a warm start is considered reliable.
GOOD_PURITY = 0.9
# Realised epsilon below which EM keeps nearly all demonstrations in their clusters.
_SMALL = 0.05
# Fraction of outermost demonstrations that are ignored for "nearly separable".
_OUTERMOST = 0.05


def describe(result: Separation) -> list[str]:
    """Return the lines of the summary."""
    listed, q = ", ".join(map(str, result.names.tolist())), result.over_all.quantities
    radius = f"r up to {np.max(q.r):.3g}"
    mass = f"log Q_all / Q_k up to {np.max(result.log_Q_all - result.log_Q):.3g}"
    return [
        f"Separable: {_describe_separability(result)}.",
        f"Intents {listed}: distance between nearest demonstrations {result.margin:.3g} (mean over pairs of intents).",
        f"Warm start: {_describe_warm_start(result)}.",
        f"Clusters agree with the intents for {100 * result.purity:.3g} % of {result.labels.size} demonstrations.",
        f"Realised epsilon: {result.epsilon:.3g} with mean rewards, {result.epsilon_mle:.3g} with fitted rewards.",
        *_describe_theorem(result),
        f"Quantities over all trajectories: zeta {q.zeta:.3g}, delta {q.delta:.3g},",
        f"  margin_between {q.margin_between:.3g}, margin_within {q.margin_within:.3g}, {radius}, {mass}.",
    ]


def _describe_separability(result: Separation) -> str:
    k = int(np.argmin(result.gaps))
    name, gap = result.names[k].item(), result.gaps[k]
    if result.separable:
        return f"yes, among the demonstrations; the smallest gap is {gap:.3g} (intent {name}, along its cluster mean)"
    overlap = f"intent {name} overlaps with others by {-gap:.3g} along its cluster mean"
    if np.all(result.gaps_without(_OUTERMOST) > 0.0):
        return f"nearly, except for the outermost {100 * _OUTERMOST:.0f} % of demonstrations; {overlap}"
    return f"no; {overlap}"


def _describe_warm_start(result: Separation) -> str:
    if result.helps and result.epsilon_mle < _SMALL:
        return "should help"
    if result.helps:
        return "should help, although EM reassigns some demonstrations"
    if result.purity < GOOD_PURITY:
        return "unreliable: clusters and intents differ in feature space. Use several initialisations, or an embedding"
    return "unreliable: EM reassigns many demonstrations in its first iteration. Use several initialisations"


def _describe_theorem(result: Separation) -> list[str]:
    how = "exact" if result.exact else f"experts' trajectories estimated from {result.n_demos_used} demonstrations"
    basis = f"  ({how}; supports from {result.supports})"
    text = [f"Theorem 1: epsilon <= {result.over_all.epsilon:.3g}; both assumptions hold over all trajectories", basis]
    if not result.guaranteed:
        failures, alone = ([f"  - {text}" for text in each.failures] for each in (result.over_all, result.among_demos))
        verdict = f"epsilon <= {result.among_demos.epsilon:.3g}" if result.among_demos.applies else "does not apply"
        text = ["Theorem 1: does not apply over all trajectories", basis, *failures]
        text += [f"  Among the demonstrations alone: {verdict}", *alone]
    if not result.maxent:
        text.append("  Theorem 1 assumes MaxEnt; the realised epsilon is computed with the given model.")
    return text


# Largest number of points or demonstrations per intent in the analysis of all trajectories.
_POINTS = 1000
# Realised epsilon below which EM keeps most demonstrations in their clusters.
_MODERATE = 0.3
_TINY = 1e-300


@dataclass(frozen=True, eq=False, repr=False)
class Separation:
    """Result of `separation`; `print` shows a summary, and `plot` draws a figure.

    Attributes
    ----------
    names : (K,)
        Labels of the intents.
    labels, clusters : (N,) int64
        Index of each demonstration's intent, and of its cluster.
    features : (N, d)
        phi of each demonstration, minus the mean over demonstrations.
    purity : float
        Fraction of demonstrations in the cluster of their intent.
    margin : float
        Inter-cluster margin of appendix C; see `inter_cluster_margin`.
    epsilon, epsilon_mle : float
        Realised epsilon if EM starts from the clusters, with mean rewards (as in theorem 1) and with fitted rewards.
    epsilon_labels : float
        `epsilon` if EM starts from the labels.
    among_demos : Bound
        Theorem 1 with the demonstrations as the set of all trajectories, an optimistic approximation.
    over_all : Bound
        Theorem 1 over every trajectory of the model.
    exact : bool
        True if `over_all` covers all trajectories of the experts, False if it uses their demonstrations instead.
    n_demos_used : int
        Number of demonstrations used for `over_all`; for a large MDP, a fraction of each cluster.
    supports : str
        Source of the experts' supports: "policies" or "demonstrations".
    log_Q, log_Q_all : (K,), float
        Log-mass of each T_k, and of all trajectories.
    maxent : bool
        True if the model is MaxEnt, as in the theorem.
    """

    names: NDArray[Any]
    labels: IntArray
    clusters: IntArray
    features: FloatArray
    purity: float
    margin: float
    epsilon: float
    epsilon_mle: float
    epsilon_labels: float
    among_demos: Bound
    over_all: Bound
    exact: bool
    n_demos_used: int
    supports: str
    log_Q: FloatArray
    log_Q_all: float
    maxent: bool

    @cached_property
    def means(self) -> FloatArray:
        """Phi_k (K, d): the centred mean features of each cluster."""
        return np.array([self.features[self.clusters == k].mean(axis=0) for k in range(self.names.size)])

    def gaps_without(self, fraction: float) -> FloatArray:
        """Return the gaps (K,) without the outermost `fraction` of demonstrations on either side."""
        gaps = []
        for k, mean in enumerate(self.means):
            along = self.features @ mean / max(float(np.linalg.norm(mean)), _TINY)
            own = self.labels == k
            gaps.append(np.quantile(along[own], fraction) - np.quantile(along[~own], 1.0 - fraction))
        return np.array(gaps)

    @property
    def gaps(self) -> FloatArray:
        """Gap (K,) between each intent and all others along its cluster mean; negative if they overlap."""
        return self.gaps_without(0.0)

    @property
    def separable(self) -> bool:
        """True if all gaps are positive."""
        return bool(np.all(self.gaps > 0.0))

    @property
    def guaranteed(self) -> bool:
        """True if theorem 1 applies over all trajectories."""
        return self.over_all.applies

    @property
    def helps(self) -> bool:
        """True if a warm start should help: the clusters match the intents, and EM changes them little."""
        return self.purity >= GOOD_PURITY and self.epsilon_mle < _MODERATE

    def plot(self) -> Figure:
        """Draw the demonstrations in feature space, and the gap between each intent and the others."""
        return draw(self)

    def __repr__(self) -> str:
        return "\n".join(describe(self))


def separation(
    mdp: MDP,
    demos: Demonstrations,
    labels: ArrayLike,
    irl: Any = None,
    *,
    clusters: ArrayLike | None = None,
    policies: ArrayLike | None = None,
    seed: int | np.random.Generator | None = 0,
    max_work: float = 1e8,
) -> Separation:
    """Analyse the separability of labelled intents in feature space and the usefulness of a warm start.

    Parameters
    ----------
    mdp : MDP
    demos : Demonstrations
    labels : (N,)
        Intent of each demonstration, or the `labels_` of a fitted mixture; at least two distinct labels.
    irl : model, optional
        `MaxEnt()` by default. Theorem 1 assumes MaxEnt with a finite `max_length`; the realised epsilon is defined for
        every model.
    clusters : (N,), optional
        Initial clusters, one per intent; by default k-means on the features.
    policies : (K, P), optional
        Policies of the experts, in the order of the sorted labels, whose positive entries are the supports. By default,
        the support of an expert contains the state-action pairs of its demonstrations.
    seed : int, Generator or None
        Seed of k-means.
    max_work : float
        Maximum number of dynamic programming steps (about 10 ns each). Fewer trajectories are analysed in large MDPs.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0, 0], [3, 0], [0, 3]])
    >>> demos = Demonstrations.from_lists([[0, 1], [0, 1], [0, 2], [0, 2]])
    >>> result = separation(mdp, demos, ["left", "left", "right", "right"], MaxEnt(bounds=(-5, 5)))
    >>> print(result)
    Separable: yes, among the demonstrations; the smallest gap is 4.24 (intent left, along its cluster mean).
    Intents left, right: distance between nearest demonstrations 4.24 (mean over pairs of intents).
    Warm start: should help.
    Clusters agree with the intents for 100 % of 4 demonstrations.
    Realised epsilon: 0.000247 with mean rewards, 6.12e-07 with fitted rewards.
    Theorem 1: epsilon <= 0.0225; both assumptions hold over all trajectories
      (exact; supports from demonstrations)
    Quantities over all trajectories: zeta 0, delta 0,
      margin_between 4.5, margin_within inf, r up to 0, log Q_all / Q_k up to 1.1.
    """
    validate.mdp(mdp)
    demos = validate.demonstrations(validate.in_numbers_of(mdp, demos))
    numbers = check_labels(labels, demos)
    names = np.unique(np.array(np.asarray(labels).tolist()))  # Python types, also for a pandas column
    F = demos.features(mdp)
    if clusters is None:
        starts = kmeans_clusters(F, numbers, seed)
    else:
        given = check_labels(clusters, demos, "clusters")
        if given.max() + 1 != names.size:
            rule = f"must have {names.size} distinct values, one per intent"
            raise InvalidParameter.of("clusters", int(given.max()) + 1, rule)
        starts = align_clusters(given, numbers)
    irl = MaxEnt() if irl is None else irl
    paths = path_set(mdp, demos, numbers, irl, policies)
    over_all, exact, n_demos_used = _over_all(paths, demos, numbers, starts, check_positive(max_work, "max_work"))
    return Separation(
        names=names,
        labels=numbers,
        clusters=starts,
        features=F - F.mean(axis=0),
        purity=float(np.mean(starts == numbers)),
        margin=float(inter_cluster_margin(F, numbers)),
        epsilon=compute_epsilon(mdp, demos, starts, irl),
        epsilon_mle=compute_epsilon(mdp, demos, starts, irl, "mle"),
        epsilon_labels=compute_epsilon(mdp, demos, numbers, irl),
        among_demos=smallest_bound(clouds_of_demos(mdp, demos, numbers, starts)),
        over_all=over_all,
        exact=exact,
        n_demos_used=n_demos_used,
        supports="demonstrations" if policies is None else "policies",
        log_Q=paths.log_Q,
        log_Q_all=paths.log_Q_all,
        maxent=isinstance(irl, MaxEnt) and irl.condition == "none",
    )


def path_set(mdp: MDP, demos: Demonstrations, labels: IntArray, irl: Any, policies: ArrayLike | None = None) -> PathSet:
    """Return the path set of a model, with one expert per label.

    If every demonstration ends in a terminal state or has `max_length` states, experts stop only there.
    """
    longest = irl.max_length if isinstance(irl, MaxEnt) else None
    longest = int(demos.lengths.max()) if longest is None else longest
    if not np.isfinite(longest):
        raise InvalidParameter.of("max_length", longest, "must be finite for theorem 1")
    supports = find_supports(mdp, demos, labels) if policies is None else check_supports(mdp, policies, "policies")
    whole = bool(np.all(mdp.terminal[demos.last_states] | (demos.lengths == longest)))
    paths = PathSet(mdp, supports, int(longest), getattr(irl, "stop", "anywhere"), complete=whole)
    if paths.n_intents != int(labels.max()) + 1:
        rule = f"must have {int(labels.max()) + 1} rows, one per intent in the order of the sorted labels"
        raise InvalidParameter.of("policies", paths.n_intents, rule)
    return paths


def _over_all(
    paths: PathSet, demos: Demonstrations, labels: IntArray, clusters: IntArray, max_work: float
) -> tuple[Bound, bool, int]:
    """Return the bound over all trajectories, True if it is exact, and the number of demonstrations used.

    It is exact if the feature distributions of all experts were computed and all demonstrations were used.
    """
    work = paths.max_length * (paths.mdp.n_edges + paths.mdp.n_states) * paths.n_intents
    limit = int(np.clip(max_work // work, 1, _POINTS))
    distributions = [feature_distribution(paths, k, limit) for k in range(paths.n_intents)]
    some = _sample(clusters, limit * paths.n_intents)
    result = smallest_bound(all_clouds(paths, demos[some], labels[some], clusters[some], distributions))
    return result, all(each is not None for each in distributions) and some.size == len(demos), some.size


def _sample(clusters: IntArray, most: int) -> IntArray:
    """Return the indices of about `most` demonstrations: the same fraction (at least one) of each cluster."""
    members = [np.flatnonzero(clusters == k) for k in np.unique(clusters)]
    fraction = min(1.0, most / clusters.size)
    sizes = [max(1, int(fraction * each.size)) for each in members]
    chosen = [each[np.linspace(0, each.size - 1, n).astype(int)] for each, n in zip(members, sizes, strict=True)]
    return np.sort(np.concatenate(chosen))


# Okabe and Ito's colours, which remain distinct under most colour vision deficiencies.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#f0e442", "#000000")
_OTHERS, _GAP, _OVERLAP = "#999999", "#009e73", "#d55e00"


def draw(result: Separation) -> Figure:
    """Draw the first two principal components, and the projections on each cluster mean (paper, figure 1, middle).

    Rings mark demonstrations in the cluster of another intent. The band between the projections of an intent and of all
    others is green if they are separated and red if they overlap.
    """
    import matplotlib.pyplot as plt

    n_intents = result.names.size
    figure = plt.figure(figsize=(10.0, max(4.0, 1.1 * n_intents + 1.6)), layout="constrained")
    grid = figure.add_gridspec(n_intents, 2, width_ratios=(1.1, 1.0))
    _draw_plane(result, figure.add_subplot(grid[:, 0]))
    shared: Axes | None = None
    for k in range(n_intents):
        ax = figure.add_subplot(grid[k, 1], sharex=shared)
        shared = shared or ax
        _draw_projection(result, k, ax)
        ax.tick_params(labelbottom=k == n_intents - 1)
    ax.set_xlabel("projection on the cluster mean, in units of the features", fontsize=8)
    verdict = "theorem 1 applies" if result.guaranteed else "theorem 1 does not apply"
    figure.suptitle(
        f"clusters are {100 * result.purity:.3g} % pure, realised epsilon {result.epsilon:.2g}; {verdict}", fontsize=10
    )
    return figure


def _draw_plane(result: Separation, ax: Axes) -> None:
    axes, explained = _components(result.features)
    where, means = result.features @ axes.T, result.means @ axes.T
    for k, name in enumerate(result.names.tolist()):
        mine, colour = result.labels == k, _colour(k)
        ax.plot(*where[mine].T, "o", markersize=5, color=colour, alpha=0.5, markeredgewidth=0.0, label=f"intent {name}")
        ax.annotate(
            "", means[k], (0.0, 0.0), arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 2}, zorder=3
        )
    wrong = result.labels != result.clusters
    if np.any(wrong):
        ax.plot(*where[wrong].T, "o", markersize=9, markerfacecolor="none", color="black", label="in another cluster")
    ax.plot(0.0, 0.0, "+", color="black", markersize=9)
    ax.set_aspect("equal", adjustable="datalim")
    ax.set_title("demonstrations, centred; arrows: cluster means", fontsize=9)
    for side, label, ratio in (("x", "first", explained[0]), ("y", "second", explained[1])):
        getattr(ax, f"set_{side}label")(f"{label} principal component ({100 * ratio:.0f} % of variance)", fontsize=8)
    ax.legend(fontsize=8, frameon=False)
    _plain(ax)


def _draw_projection(result: Separation, k: int, ax: Axes) -> None:
    """Draw all demonstrations along Phi_k, with those of intent k above the others."""
    mean, gap = result.means[k], float(result.gaps[k])
    along = result.features @ mean / max(float(np.linalg.norm(mean)), _TINY)
    mine = result.labels == k
    # Jitter by rank, so that equal projections stay visible and the figure is reproducible.
    spread = np.argsort(np.argsort(along, kind="stable"), kind="stable") % 7 / 20.0
    ax.plot(along[mine], 0.6 + spread[mine], "o", color=_colour(k), markersize=4, alpha=0.5, markeredgewidth=0.0)
    ax.plot(along[~mine], spread[~mine], "o", color=_OTHERS, markersize=4, alpha=0.5, markeredgewidth=0.0)
    low, high = float(along[mine].min()), float(along[~mine].max())
    ax.axvspan(min(low, high), max(low, high), color=_GAP if gap > 0.0 else _OVERLAP, alpha=0.15, linewidth=0.0)
    for edge in (low, high):
        ax.axvline(edge, color="black", linewidth=0.8, linestyle="--")
    text = f"apart by {gap:.3g}" if gap > 0.0 else f"overlap by {-gap:.3g}"
    ax.set_title(f"intent {result.names[k].item()}: {text} along its cluster mean", fontsize=9)
    ax.set_ylim(-0.1, 1.0)
    ax.set_yticks([0.15, 0.75], ["others", "this intent"], fontsize=8)
    _plain(ax)


def _components(points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the first two principal components (2, d) and their fractions of the variance; zeros if d < 2."""
    _, scale, rows = np.linalg.svd(points, full_matrices=False)
    axes, variance = np.zeros((2, points.shape[1])), np.zeros(2)
    n = min(2, len(rows))
    # Fix the arbitrary signs: the largest entry is positive.
    largest = rows[np.arange(n), np.abs(rows[:n]).argmax(axis=1)]
    axes[:n] = rows[:n] * np.where(largest < 0.0, -1.0, 1.0)[:, None]
    variance[:n] = scale[:n] ** 2
    return axes, variance / max(float(np.sum(scale**2)), _TINY)


def _colour(k: int) -> str:
    return _COLOURS[k % len(_COLOURS)]


def _plain(ax: Axes) -> None:
    ax.tick_params(labelsize=8)
    ax.spines[["top", "right"]].set_visible(False)
