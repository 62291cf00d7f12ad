"""Are these intents separable in feature space, and will a warm start help? The theory's answer beside the data's.

What a `Separation` says, in words.

Figure 1 (middle) of the paper for one's own data: intents in feature space, and the margins between them.
"""

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
from limiirl.theory.bound import Bound, aligned, check_labels, inter_cluster_margin, kmeans_clusters, realised_epsilon
from limiirl.theory.estimates import all_clouds, demonstrated_clouds, sweep
from limiirl.theory.feature_sets import PathSet, feature_distribution, observed_supports

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Clusters that agree with the intents for a smaller share of the demonstrations are no good start.
GOOD_PURITY = 0.9
# A realised epsilon below this: EM keeps nearly everybody where the clusters have them.
_SMALL = 0.05
# Demonstrations at the fringe of an intent that an answer may leave out, if it says so.
_OUTERMOST = 0.05


def lines(found: Separation) -> list[str]:
    """Return the answer, one sentence or two a line."""
    listed, q = ", ".join(map(str, found.names.tolist())), found.over_all.quantities
    radius = f"r up to {np.max(q.r):.3g}"
    mass = f"log Q_all / Q_k up to {np.max(found.log_Q_all - found.log_Q):.3g}"
    return [
        f"Separable: {_separable(found)}.",
        f"Intents {listed}: the least distances between them are {found.margin:.3g} on average.",
        f"Warm start: {_helps(found)}.",
        f"Clusters agree with the intents for {100 * found.purity:.3g} % of {found.labels.size} demonstrations.",
        f"Realised epsilon: {found.epsilon:.3g} with mean rewards, {found.epsilon_mle:.3g} with fitted ones.",
        *_theorem(found),
        f"Its quantities over all trajectories: zeta {q.zeta:.3g}, delta {q.delta:.3g},",
        f"  margin_between {q.margin_between:.3g}, margin_within {q.margin_within:.3g}, {radius}, {mass}.",
    ]


def _separable(found: Separation) -> str:
    k = int(np.argmin(found.gaps))
    name, gap = found.names[k].item(), found.gaps[k]
    if found.separable:
        return f"yes, among the demonstrations; the nearest to others is intent {name}, by {gap:.3g} along its mean"
    overlap = f"intent {name} overlaps with others by {-gap:.3g} along its mean"
    if np.all(found.gaps_but_for(_OUTERMOST) > 0.0):
        return f"nearly, but for the outermost {100 * _OUTERMOST:.0f} % of demonstrations; {overlap}"
    return f"no; {overlap}"


def _helps(found: Separation) -> str:
    if found.helps and found.epsilon_mle < _SMALL:
        return "should help"
    if found.helps:
        return "should help, though EM still moves some demonstrations"
    if found.purity < GOOD_PURITY:
        return "do not rely on it: clusters in feature space are not these intents. Try several starts, or an embedding"
    return "do not rely on it: EM moves away from the clusters at once. Try several starts"


def _theorem(found: Separation) -> list[str]:
    how = "exact" if found.exact else f"experts' trajectories estimated from {found.n_looked_at} demonstrations"
    basis = f"  ({how}; supports from {found.supports})"
    told = [f"Theorem 1: epsilon <= {found.over_all.epsilon:.3g}; both assumptions hold over all trajectories", basis]
    if not found.guaranteed:
        told = ["Theorem 1: promises nothing here. Over all trajectories", basis, *_listed(found.over_all)]
        alone = f"epsilon <= {found.among_demos.epsilon:.3g}" if found.among_demos.applies else "nothing either:"
        told += [f"  Among the demonstrations alone it would promise {alone}", *_listed(found.among_demos)]
    if not found.maxent:
        told.append("  It is about MaxEnt, not about the model given; the realised epsilon is about that model.")
    return told


def _listed(found: Bound) -> list[str]:
    return [f"  - {text}" for text in found.failures]


# Points an intent that are listed, or demonstrations that stand for it, when all trajectories are looked at.
_POINTS = 1000
# A realised epsilon below this: EM leaves most demonstrations where the clusters have them.
_MODERATE = 0.3
_TINY = 1e-300


@dataclass(frozen=True, eq=False, repr=False)
class Separation:
    """What `separation` finds; printing it gives the answer in words, `plot` a picture.

    Attributes
    ----------
    names : (K,)
        The intents' labels.
    labels, clusters : (N,) int64
        Number of each demonstration's intent, and of its cluster.
    features : (N, d)
        phi of each demonstration, centred on their mean.
    purity : float
        Share of demonstrations whose cluster is that of their intent.
    margin : float
        The appendix's inter-cluster margin: mean over pairs of intents of the least distance between demonstrations.
    epsilon, epsilon_mle : float
        Realised epsilon of a start from the clusters, with mean rewards (theorem 1's) and with those of a fit.
    epsilon_labels : float
        The same as `epsilon`, from the labels themselves.
    among_demos : Bound
        Theorem 1 as if nothing but the demonstrations could happen: optimistic.
    over_all : Bound
        Theorem 1 over every trajectory of the model.
    exact : bool
        Whether `over_all` knows every trajectory of the experts; else demonstrations stand for them.
    n_looked_at : int
        Demonstrations that `over_all` looked at: all, or a share of each cluster where the MDP is large.
    supports : str
        Where the experts' supports come from: "policies" or "demonstrations".
    log_Q, log_Q_all : (K,) and float
        Log of the mass of each T_k, and of all trajectories.
    maxent : bool
        Whether the model is the one that the theorem is about.
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
    n_looked_at: int
    supports: str
    log_Q: FloatArray
    log_Q_all: float
    maxent: bool

    @cached_property
    def means(self) -> FloatArray:
        """Phi_k (K, d): the centred mean features of each cluster."""
        return np.array([self.features[self.clusters == k].mean(axis=0) for k in range(self.names.size)])

    def gaps_but_for(self, share: float) -> FloatArray:
        """Return (K,) how far an intent's demonstrations are from all others along its cluster's mean.

        Negative gaps are overlaps. The outermost `share` of either side is left out.
        """
        found = []
        for k, mean in enumerate(self.means):
            along = self.features @ mean / max(float(np.linalg.norm(mean)), _TINY)
            own = self.labels == k
            found.append(np.quantile(along[own], share) - np.quantile(along[~own], 1.0 - share))
        return np.array(found)

    @property
    def gaps(self) -> FloatArray:
        """(K,) how far an intent's demonstrations are from all others along its cluster's mean; negative: overlap."""
        return self.gaps_but_for(0.0)

    @property
    def separable(self) -> bool:
        """Whether the mean of every cluster has its intent's demonstrations on one side and all others on the other."""
        return bool(np.all(self.gaps > 0.0))

    @property
    def guaranteed(self) -> bool:
        """Whether theorem 1 applies over all trajectories."""
        return self.over_all.applies

    @property
    def helps(self) -> bool:
        """Whether a warm start should help: clusters are the intents, mostly, and EM keeps them."""
        return self.purity >= GOOD_PURITY and self.epsilon_mle < _MODERATE

    def plot(self) -> Figure:
        """Draw the demonstrations in feature space, and how far each intent stands from the others."""
        return draw(self)

    def __str__(self) -> str:
        return "\n".join(lines(self))

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
    """Say whether labelled intents are separable in feature space, and whether a warm start will help.

    Parameters
    ----------
    mdp : MDP
    demos : Demonstrations
    labels : (N,)
        The intent of each demonstration: known, or the `labels_` of a fitted mixture. At least two.
    irl : model, optional
        `MaxEnt()` by default. The theorem is about MaxEnt with a finite `max_length`; the realised epsilon is about
        any model.
    clusters : (N,), optional
        The clusters to start from, as many as intents; k-means on the features by default.
    policies : (K, P), optional
        The experts' policies in the order of the sorted labels. By default an expert can take the actions that its
        demonstrations take.
    random_state : int
        Seeds k-means.
    max_work : float
        Steps of dynamic programming that may be taken, some ten nanoseconds each. Where the MDP is large, fewer
        trajectories are looked at.

    Examples
    --------
    >>> mdp = MDP.from_edges([0, 0], [1, 2], p0=[1, 0, 0], state_features=[[0, 0], [3, 0], [0, 3]])
    >>> demos = Demonstrations.from_lists([[0, 1], [0, 1], [0, 2], [0, 2]])
    >>> found = separation(mdp, demos, ["left", "left", "right", "right"], MaxEnt(bounds=(-5, 5)))
    >>> print(found)
    Separable: yes, among the demonstrations; the nearest to others is intent left, by 4.24 along its mean.
    Intents left, right: the least distances between them are 4.24 on average.
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
    names = np.unique(np.array(np.asarray(labels).tolist()))  # plain types, also of a table's column
    F = demos.features(mdp)
    if clusters is None:
        starts = kmeans_clusters(F, numbers, random_state)
    else:
        starts = aligned(_as_many(check_labels(clusters, demos, "clusters"), names.size), numbers)
    irl = MaxEnt() if irl is None else irl
    paths = path_set(mdp, demos, numbers, irl, policies)
    over_all, exact, n_looked_at = _over_all(paths, demos, numbers, starts, check_positive(max_work, "max_work"))
    return Separation(
        names=names,
        labels=numbers,
        clusters=starts,
        features=F - F.mean(axis=0),
        purity=float(np.mean(starts == numbers)),
        margin=float(inter_cluster_margin(F, numbers)),
        epsilon=realised_epsilon(mdp, demos, starts, irl),
        epsilon_mle=realised_epsilon(mdp, demos, starts, irl, "mle"),
        epsilon_labels=realised_epsilon(mdp, demos, numbers, irl),
        among_demos=sweep(demonstrated_clouds(mdp, demos, numbers, starts)),
        over_all=over_all,
        exact=exact,
        n_looked_at=n_looked_at,
        supports="demonstrations" if policies is None else "policies",
        log_Q=paths.log_Q,
        log_Q_all=paths.log_Q_all,
        maxent=isinstance(irl, MaxEnt) and irl.condition == "none",
    )


def path_set(mdp: MDP, demos: Demonstrations, labels: IntArray, irl: Any, policies: ArrayLike | None = None) -> PathSet:
    """Return the trajectories of a model and of the experts behind labelled demonstrations.

    Experts end in a terminal state or after `max_length` states if all demonstrations do; otherwise anywhere.
    """
    longest = irl.max_length if isinstance(irl, MaxEnt) else None
    longest = int(demos.lengths.max()) if longest is None else longest
    if not np.isfinite(longest):
        raise InvalidParameter(
            "Theorem 1 needs a finite path set; max_length is inf. Give the model a max_length, such as the longest "
            f"demonstration's {int(demos.lengths.max())}."
        )
    supports = observed_supports(mdp, demos, labels) if policies is None else policies
    whole = bool(np.all(mdp.terminal[demos.last_states] | (demos.lengths == longest)))
    paths = PathSet(mdp, supports, int(longest), getattr(irl, "stop", "anywhere"), complete=whole)
    if paths.n_intents != int(labels.max()) + 1:
        raise InvalidParameter(
            f"policies must have one row an intent, {int(labels.max()) + 1}; there are {paths.n_intents}. Follow the "
            "order of the sorted labels.",
            parameter="policies",
        )
    return paths


def _over_all(
    paths: PathSet, demos: Demonstrations, labels: IntArray, clusters: IntArray, max_work: float
) -> tuple[Bound, bool, int]:
    """Return theorem 1 over all trajectories, whether it is exact, and the number of demonstrations looked at.

    It is exact where the trajectories of all experts were listed, and every demonstration was looked at.
    """
    work = paths.max_length * (paths.mdp.n_edges + paths.mdp.n_states) * paths.n_intents
    limit = int(np.clip(max_work // work, 1, _POINTS))
    laws = [feature_distribution(paths, k, limit) for k in range(paths.n_intents)]
    some = _sample(clusters, limit * paths.n_intents)
    found = sweep(all_clouds(paths, demos[some], labels[some], clusters[some], laws))
    return found, all(law is not None for law in laws) and some.size == len(demos), some.size


def _sample(clusters: IntArray, most: int) -> IntArray:
    """Return about `most` demonstrations, the same share of each cluster and at least one."""
    members = [np.flatnonzero(clusters == k) for k in np.unique(clusters)]
    share = min(1.0, most / clusters.size)
    chosen = [each[np.linspace(0, each.size - 1, max(1, int(share * each.size))).astype(np.int64)] for each in members]
    return np.sort(np.concatenate(chosen))


def _as_many(clusters: IntArray, n_intents: int) -> IntArray:
    if int(clusters.max()) + 1 != n_intents:
        raise InvalidParameter(
            f"clusters must be as many as intents, {n_intents}; there are {int(clusters.max()) + 1}. Cluster again, or "
            "merge labels.",
            parameter="clusters",
        )
    return clusters


# Okabe and Ito's colours, told apart by most kinds of colour vision; more intents than these repeat them.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#f0e442", "#000000")
_OTHERS, _GAP, _OVERLAP = "#999999", "#009e73", "#d55e00"


def draw(found: Separation) -> Figure:
    """Draw the plane of the first two principal components, and the projections on each cluster's mean beside it.

    A ring marks a demonstration whose cluster is not that of its intent. On the right, as in the paper's figure, all
    demonstrations are projected on Phi_k: the band between an intent's own and all others is green where they are
    apart and red where they overlap.
    """
    import matplotlib.pyplot as plt

    n_intents = found.names.size
    figure = plt.figure(figsize=(10.0, max(4.0, 1.1 * n_intents + 1.6)), layout="constrained")
    grid = figure.add_gridspec(n_intents, 2, width_ratios=(1.1, 1.0))
    _draw_plane(found, figure.add_subplot(grid[:, 0]))
    shared: Axes | None = None
    for k in range(n_intents):
        ax = figure.add_subplot(grid[k, 1], sharex=shared)
        shared = shared or ax
        _draw_projection(found, k, ax)
        ax.tick_params(labelbottom=k == n_intents - 1)
    ax.set_xlabel("projection on the cluster's mean, in units of the features", fontsize=8)
    verdict = "theorem 1 applies" if found.guaranteed else "theorem 1 does not apply"
    figure.suptitle(
        f"clusters are {100 * found.purity:.3g} % pure, realised epsilon {found.epsilon:.2g}; {verdict}", fontsize=10
    )
    return figure


def _draw_plane(found: Separation, ax: Axes) -> None:
    axes, shares = _components(found.features)
    where, means = found.features @ axes.T, found.means @ axes.T
    for k, name in enumerate(found.names.tolist()):
        mine, colour = found.labels == k, _colour(k)
        ax.plot(*where[mine].T, "o", markersize=5, color=colour, alpha=0.5, markeredgewidth=0.0, label=f"intent {name}")
        ax.annotate(
            "", means[k], (0.0, 0.0), arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 2}, zorder=3
        )
    wrong = found.labels != found.clusters
    if np.any(wrong):
        ax.plot(*where[wrong].T, "o", markersize=9, markerfacecolor="none", color="black", label="in another cluster")
    ax.plot(0.0, 0.0, "+", color="black", markersize=9)
    ax.set_aspect("equal", adjustable="datalim")
    ax.set_title("demonstrations, centred; arrows: means of clusters", fontsize=9)
    for side, label, share in (("x", "first", shares[0]), ("y", "second", shares[1])):
        getattr(ax, f"set_{side}label")(f"{label} principal component ({100 * share:.0f} % of variance)", fontsize=8)
    ax.legend(fontsize=8, frameon=False)
    _plain(ax)


def _draw_projection(found: Separation, k: int, ax: Axes) -> None:
    """Draw all demonstrations along Phi_k, intent k's own above the others."""
    mean, gap = found.means[k], float(found.gaps[k])
    along = found.features @ mean / max(float(np.linalg.norm(mean)), 1e-300)
    mine = found.labels == k
    # Spread over the row by rank, so that equal projections stay visible without chance in the picture.
    spread = np.argsort(np.argsort(along, kind="stable"), kind="stable") % 7 / 20.0
    ax.plot(along[mine], 0.6 + spread[mine], "o", color=_colour(k), markersize=4, alpha=0.5, markeredgewidth=0.0)
    ax.plot(along[~mine], spread[~mine], "o", color=_OTHERS, markersize=4, alpha=0.5, markeredgewidth=0.0)
    low, high = float(along[mine].min()), float(along[~mine].max())
    ax.axvspan(min(low, high), max(low, high), color=_GAP if gap > 0.0 else _OVERLAP, alpha=0.15, linewidth=0.0)
    for edge in (low, high):
        ax.axvline(edge, color="black", linewidth=0.8, linestyle="--")
    told = f"apart by {gap:.3g}" if gap > 0.0 else f"overlap by {-gap:.3g}"
    ax.set_title(f"intent {found.names[k].item()}: {told} on its mean", fontsize=9)
    ax.set_ylim(-0.1, 1.0)
    ax.set_yticks([0.15, 0.75], ["others", "its own"], fontsize=8)
    _plain(ax)


def _components(points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return two directions (2, d) of most variance, and their shares of it; zeros where there is one feature only."""
    _, scale, rows = np.linalg.svd(points, full_matrices=False)
    axes, variance = np.zeros((2, points.shape[1])), np.zeros(2)
    n = min(2, len(rows))
    # A direction's sign is arbitrary: its largest entry is positive, so that the same data give the same picture.
    largest = rows[np.arange(n), np.abs(rows[:n]).argmax(axis=1)]
    axes[:n] = rows[:n] * np.where(largest < 0.0, -1.0, 1.0)[:, None]
    variance[:n] = scale[:n] ** 2
    return axes, variance / max(float(np.sum(scale**2)), 1e-300)


def _colour(k: int) -> str:
    return _COLOURS[k % len(_COLOURS)]


def _plain(ax: Axes) -> None:
    ax.tick_params(labelsize=8)
    ax.spines[["top", "right"]].set_visible(False)
