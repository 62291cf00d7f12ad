"""Are these intents separable in feature space, and will a warm start help? The theory's answer beside the data's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limiirl.demos import Demonstrations
from limiirl.errors import InvalidParameter
from limiirl.irl import MaxEnt
from limiirl.irl.checks import demonstrations, positive
from limiirl.irl.checks import mdp as check_mdp
from limiirl.mdp import MDP
from limiirl.theory.bound import Bound
from limiirl.theory.estimates import all_clouds, demonstrated_clouds, sweep
from limiirl.theory.extremes import feature_law
from limiirl.theory.realised import aligned, check_labels, inter_cluster_margin, kmeans_clusters, realised_epsilon
from limiirl.theory.typical import PathSet, observed_supports
from limiirl.theory.words import GOOD_PURITY, lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Float = NDArray[np.float64]
Int = NDArray[np.int64]

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
    labels: Int
    clusters: Int
    features: Float
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
    log_Q: Float
    log_Q_all: float
    maxent: bool

    @cached_property
    def means(self) -> Float:
        """Phi_k (K, d): the centred mean features of each cluster."""
        return np.array([self.features[self.clusters == k].mean(axis=0) for k in range(self.names.size)])

    def gaps_but_for(self, share: float) -> Float:
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
    def gaps(self) -> Float:
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
        from limiirl.theory.plot import draw

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
    check_mdp(mdp)
    numbers = check_labels(labels, demonstrations(demos))
    names = np.unique(np.array(np.asarray(labels).tolist()))  # plain types, also of a table's column
    F = demos.features(mdp)
    if clusters is None:
        starts = kmeans_clusters(F, numbers, random_state)
    else:
        starts = aligned(_as_many(check_labels(clusters, demos, "clusters"), names.size), numbers)
    irl = MaxEnt() if irl is None else irl
    paths = path_set(mdp, demos, numbers, irl, policies)
    over_all, exact, n_looked_at = _over_all(paths, demos, numbers, starts, positive(max_work, "max_work"))
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


def path_set(mdp: MDP, demos: Demonstrations, labels: Int, irl: Any, policies: ArrayLike | None = None) -> PathSet:
    """Return the trajectories of a model and of the experts behind labelled demonstrations.

    Experts end in a terminal state or after `max_length` states if all demonstrations do; otherwise anywhere.
    """
    longest = getattr(irl, "max_length", None)
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
            "order of the sorted labels."
        )
    return paths


def _over_all(
    paths: PathSet, demos: Demonstrations, labels: Int, clusters: Int, max_work: float
) -> tuple[Bound, bool, int]:
    """Return theorem 1 over all trajectories, whether it is exact, and the number of demonstrations looked at.

    It is exact where the trajectories of all experts were listed, and every demonstration was looked at.
    """
    work = paths.max_length * (paths.mdp.n_edges + paths.mdp.n_states) * paths.n_intents
    limit = int(np.clip(max_work // work, 1, _POINTS))
    laws = [feature_law(paths, k, limit) for k in range(paths.n_intents)]
    some = _sample(clusters, limit * paths.n_intents)
    found = sweep(all_clouds(paths, demos[some], labels[some], clusters[some], laws))
    return found, all(law is not None for law in laws) and some.size == len(demos), some.size


def _sample(clusters: Int, most: int) -> Int:
    """Return about `most` demonstrations, the same share of each cluster and at least one."""
    members = [np.flatnonzero(clusters == k) for k in np.unique(clusters)]
    share = min(1.0, most / clusters.size)
    chosen = [each[np.linspace(0, each.size - 1, max(1, int(share * each.size))).astype(np.int64)] for each in members]
    return np.sort(np.concatenate(chosen))


def _as_many(clusters: Int, n_intents: int) -> Int:
    if int(clusters.max()) + 1 != n_intents:
        raise InvalidParameter(
            f"clusters must be as many as intents, {n_intents}; there are {int(clusters.max()) + 1}. Cluster again, or "
            "merge labels."
        )
    return clusters
