"""`separation`: separability of intents in feature space and the prospects of a warm start, as text and figure."""

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

# Least purity of clusters for a warm start.
GOOD_PURITY = 0.9
# Realised epsilon below which EM keeps nearly all demonstrations in their clusters.
_SMALL = 0.05
# Fraction of outermost demonstrations that the summary may ignore.
_OUTERMOST = 0.05


def describe(result: Separation) -> list[str]:
    """Return the lines of the summary."""
    listed, q = ", ".join(map(str, result.names.tolist())), result.over_all.quantities
    radius = f"r up to {np.max(q.r):.3g}"
    mass = f"log Q_all / Q_k up to {np.max(result.log_Q_all - result.log_Q):.3g}"
    return [
        f"Separable: {_describe_separability(result)}.",
        f"Intents {listed}: mean of the least distances between them {result.margin:.3g}.",
        f"Warm start: {_describe_warm_start(result)}.",
        f"Clusters agree with the intents for {100 * result.purity:.3g} % of {result.labels.size} demonstrations.",
        f"Realised epsilon: {result.epsilon:.3g} with mean rewards, {result.epsilon_mle:.3g} with fitted ones.",
        *_describe_theorem(result),
        f"Its quantities over all trajectories: zeta {q.zeta:.3g}, delta {q.delta:.3g},",
        f"  margin_between {q.margin_between:.3g}, margin_within {q.margin_within:.3g}, {radius}, {mass}.",
    ]


def _describe_separability(result: Separation) -> str:
    k = int(np.argmin(result.gaps))
    name, gap = result.names[k].item(), result.gaps[k]
    if result.separable:
        return f"yes, among the demonstrations; the smallest gap is {gap:.3g}, of intent {name} along its mean"
    overlap = f"intent {name} overlaps with others by {-gap:.3g} along its mean"
    if np.all(result.gaps_without(_OUTERMOST) > 0.0):
        return f"nearly, except for the outermost {100 * _OUTERMOST:.0f} % of demonstrations; {overlap}"
    return f"no; {overlap}"


def _describe_warm_start(result: Separation) -> str:
    if result.helps and result.epsilon_mle < _SMALL:
        return "should help"
    if result.helps:
        return "should help, though EM still moves some demonstrations"
    if result.purity < GOOD_PURITY:
        return "unreliable: clusters in feature space differ from the intents. Use several starts, or an embedding"
    return "unreliable: EM moves away from the clusters immediately. Use several starts"


def _describe_theorem(result: Separation) -> list[str]:
    how = "exact" if result.exact else f"experts' trajectories estimated from {result.n_demos_used} demonstrations"
    basis = f"  ({how}; supports from {result.supports})"
    text = [f"Theorem 1: epsilon <= {result.over_all.epsilon:.3g}; both assumptions hold over all trajectories", basis]
    if not result.guaranteed:
        text = ["Theorem 1: does not apply. Over all trajectories", basis, *_list_failures(result.over_all)]
        alone = f"epsilon <= {result.among_demos.epsilon:.3g}" if result.among_demos.applies else "it does not apply:"
        text += [f"  Among the demonstrations alone: {alone}", *_list_failures(result.among_demos)]
    if not result.maxent:
        text.append("  It is a statement about MaxEnt; the realised epsilon is that of the given model.")
    return text


def _list_failures(bound: Bound) -> list[str]:
    return [f"  - {text}" for text in bound.failures]


# Largest number of points or demonstrations per intent in the analysis of all trajectories.
_POINTS = 1000
# Realised epsilon below which EM keeps most demonstrations in their clusters.
_MODERATE = 0.3
_TINY = 1e-300


@dataclass(frozen=True, eq=False, repr=False)
class Separation:
    """Result of `separation`; its string is a summary, `plot` draws a figure.

    Attributes
    ----------
    names : (K,)
        Labels of the intents.
    labels, clusters : (N,) int64
        Index of each demonstration's intent, and of its cluster.
    features : (N, d)
        phi of each demonstration, centred on their mean.
    purity : float
        Fraction of demonstrations whose cluster is that of their intent.
    margin : float
        Inter-cluster margin of appendix C; see `inter_cluster_margin`.
    epsilon, epsilon_mle : float
        Realised epsilon of a start from the clusters, with mean rewards (as in theorem 1) and with fitted rewards.
    epsilon_labels : float
        `epsilon` of a start from the labels.
    among_demos : Bound
        Theorem 1 as if the demonstrations were all trajectories: optimistic.
    over_all : Bound
        Theorem 1 over every trajectory of the model.
    exact : bool
        True if `over_all` covers every trajectory of the experts; otherwise it uses their demonstrations.
    n_demos_used : int
        Number of demonstrations used by `over_all`: all, or a fraction of each cluster for a large MDP.
    supports : str
        Source of the experts' supports: "policies" or "demonstrations".
    log_Q, log_Q_all : (K,) and float
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

    def gaps_without(self, share: float) -> FloatArray:
        """Return the gaps (K,) without the outermost fraction `share` of either side."""
        gaps = []
        for k, mean in enumerate(self.means):
            along = self.features @ mean / max(float(np.linalg.norm(mean)), _TINY)
            own = self.labels == k
            gaps.append(np.quantile(along[own], share) - np.quantile(along[~own], 1.0 - share))
        return np.array(gaps)

    @property
    def gaps(self) -> FloatArray:
        """Gap (K,) between an intent's demonstrations and all others along its cluster's mean; negative: overlap."""
        return self.gaps_without(0.0)

    @property
    def separable(self) -> bool:
        """True if the mean of every cluster separates its intent's demonstrations from all others."""
        return bool(np.all(self.gaps > 0.0))

    @property
    def guaranteed(self) -> bool:
        """True if theorem 1 applies over all trajectories."""
        return self.over_all.applies

    @property
    def helps(self) -> bool:
        """True if a warm start should help: most clusters match the intents, and EM keeps them."""
        return self.purity >= GOOD_PURITY and self.epsilon_mle < _MODERATE

    def plot(self) -> Figure:
        """Draw the demonstrations in feature space, and the gap between each intent and the others."""
        return draw(self)

    def __str__(self) -> str:
        return "\n".join(describe(self))

    def __repr__(self) -> str:
        return str(self)


def separation(
    mdp: MDP,
    demos: Demonstrations,
    labels: ArrayLike,
    irl: Any = None,
    *,
    clusters: ArrayLike | None = None,
    policies: ArrayLike | None = None,
    random_state: int = 0,
    max_work: float = 1e8,
) -> Separation:
    """Analyse the separability of labelled intents in feature space and the prospects of a warm start.

    Parameters
    ----------
    mdp : MDP
    demos : Demonstrations
    labels : (N,)
        Intent of each demonstration, or the `labels_` of a fitted mixture; at least two distinct.
    irl : model, optional
        `MaxEnt()` by default. Theorem 1 is about MaxEnt with a finite `max_length`, the realised epsilon about any
        model.
    clusters : (N,), optional
        Clusters to start from, one per intent; by default k-means on the features.
    policies : (K, P), optional
        The experts' policies in the order of the sorted labels; by default the supports are the demonstrated actions.
    random_state : int
        Seed of k-means.
    max_work : float
        Budget of dynamic programming steps, about 10 ns each; a large MDP is analysed with fewer trajectories.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0, 0], [3, 0], [0, 3]])
    >>> demos = Demonstrations.from_lists([[0, 1], [0, 1], [0, 2], [0, 2]])
    >>> result = separation(mdp, demos, ["left", "left", "right", "right"], MaxEnt(bounds=(-5, 5)))
    >>> print(result)
    Separable: yes, among the demonstrations; the smallest gap is 4.24, of intent left along its mean.
    Intents left, right: mean of the least distances between them 4.24.
    Warm start: should help.
    Clusters agree with the intents for 100 % of 4 demonstrations.
    Realised epsilon: 0.000247 with mean rewards, 6.12e-07 with fitted ones.
    Theorem 1: epsilon <= 0.0225; both assumptions hold over all trajectories
      (exact; supports from demonstrations)
    Its quantities over all trajectories: zeta 0, delta 0,
      margin_between 4.5, margin_within inf, r up to 0, log Q_all / Q_k up to 1.1.
    """
    validate.mdp(mdp)
    numbers = check_labels(labels, validate.demonstrations(demos))
    names = np.unique(np.array(np.asarray(labels).tolist()))  # plain types, also of a data frame
    F = demos.features(mdp)
    if clusters is None:
        starts = kmeans_clusters(F, numbers, random_state)
    else:
        starts = align_clusters(_check_number(check_labels(clusters, demos, "clusters"), names.size), numbers)
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
    """Return the path set of a model and of the experts of labelled demonstrations.

    Experts end in a terminal state or after `max_length` states if all demonstrations do, otherwise anywhere.
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
    """Return theorem 1 over all trajectories, True if it is exact, and the number of demonstrations used.

    It is exact if the feature distributions of all experts are known and every demonstration is used.
    """
    work = paths.max_length * (paths.mdp.n_edges + paths.mdp.n_states) * paths.n_intents
    limit = int(np.clip(max_work // work, 1, _POINTS))
    distributions = [feature_distribution(paths, k, limit) for k in range(paths.n_intents)]
    some = _sample(clusters, limit * paths.n_intents)
    result = smallest_bound(all_clouds(paths, demos[some], labels[some], clusters[some], distributions))
    return result, all(each is not None for each in distributions) and some.size == len(demos), some.size


def _sample(clusters: IntArray, most: int) -> IntArray:
    """Return about `most` demonstrations, the same fraction of each cluster and at least one."""
    members = [np.flatnonzero(clusters == k) for k in np.unique(clusters)]
    share = min(1.0, most / clusters.size)
    chosen = [each[np.linspace(0, each.size - 1, max(1, int(share * each.size))).astype(np.int64)] for each in members]
    return np.sort(np.concatenate(chosen))


def _check_number(clusters: IntArray, n_intents: int) -> IntArray:
    if int(clusters.max()) + 1 != n_intents:
        rule = f"must have {n_intents} distinct values, one per intent"
        raise InvalidParameter.of("clusters", int(clusters.max()) + 1, rule)
    return clusters


# Okabe and Ito's colours, which remain distinct under most colour vision deficiencies.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#f0e442", "#000000")
_OTHERS, _GAP, _OVERLAP = "#999999", "#009e73", "#d55e00"


def draw(result: Separation) -> Figure:
    """Draw the first two principal components, and the projections on each cluster's mean (paper, figure 1, middle).

    A ring marks a demonstration in another intent's cluster. The band between an intent's own projections and all
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
    ax.set_xlabel("projection on the cluster's mean, in units of the features", fontsize=8)
    verdict = "theorem 1 applies" if result.guaranteed else "theorem 1 does not apply"
    figure.suptitle(
        f"clusters are {100 * result.purity:.3g} % pure, realised epsilon {result.epsilon:.2g}; {verdict}", fontsize=10
    )
    return figure


def _draw_plane(result: Separation, ax: Axes) -> None:
    axes, shares = _components(result.features)
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
    ax.set_title("demonstrations, centred; arrows: means of clusters", fontsize=9)
    for side, label, share in (("x", "first", shares[0]), ("y", "second", shares[1])):
        getattr(ax, f"set_{side}label")(f"{label} principal component ({100 * share:.0f} % of variance)", fontsize=8)
    ax.legend(fontsize=8, frameon=False)
    _plain(ax)


def _draw_projection(result: Separation, k: int, ax: Axes) -> None:
    """Draw all demonstrations along Phi_k, intent k's own above the others."""
    mean, gap = result.means[k], float(result.gaps[k])
    along = result.features @ mean / max(float(np.linalg.norm(mean)), 1e-300)
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
    ax.set_title(f"intent {result.names[k].item()}: {text} on its mean", fontsize=9)
    ax.set_ylim(-0.1, 1.0)
    ax.set_yticks([0.15, 0.75], ["others", "its own"], fontsize=8)
    _plain(ax)


def _components(points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the first two principal components (2, d) and their fractions of the variance; zeros if missing."""
    _, scale, rows = np.linalg.svd(points, full_matrices=False)
    axes, variance = np.zeros((2, points.shape[1])), np.zeros(2)
    n = min(2, len(rows))
    # Fix the arbitrary signs: the largest entry is positive.
    largest = rows[np.arange(n), np.abs(rows[:n]).argmax(axis=1)]
    axes[:n] = rows[:n] * np.where(largest < 0.0, -1.0, 1.0)[:, None]
    variance[:n] = scale[:n] ** 2
    return axes, variance / max(float(np.sum(scale**2)), 1e-300)


def _colour(k: int) -> str:
    return _COLOURS[k % len(_COLOURS)]


def _plain(ax: Axes) -> None:
    ax.tick_params(labelsize=8)
    ax.spines[["top", "right"]].set_visible(False)
