"""Small road networks for tests: random grids with one-ways and missing streets, in metres about a point."""

import itertools

import numpy as np

from limiirl.roads import RoadNetwork
from limiirl.roads.geometry import Plane

CENTRE = (41.15, -8.63)


def from_xy(xy, tail, head, **known):
    """A network whose nodes lie at metres east and north of the centre."""
    lat, lon = Plane(*CENTRE).degrees(np.asarray(xy, dtype=np.float64)).T
    return RoadNetwork.from_segments(lat, lon, np.asarray(tail), np.asarray(head), centre=CENTRE, **known)


def random_grid(seed, *, nx=4, ny=4, block_m=100.0, jitter_m=15.0, one_way=0.3, missing=0.1, u_turns=False):
    """A jittered grid; some streets are one-way, some missing, some have a node halfway."""
    rng = np.random.default_rng(seed)
    xy = [np.array([i, j]) * block_m + rng.uniform(-jitter_m, jitter_m, 2) for j in range(ny) for i in range(nx)]
    streets = [(j * nx + i, j * nx + i + 1) for j in range(ny) for i in range(nx - 1)]
    streets += [(j * nx + i, (j + 1) * nx + i) for j in range(ny - 1) for i in range(nx)]
    pairs = []
    for a, b in streets:
        kind, halfway = rng.random(), rng.random() < 0.3
        if kind < missing:
            continue
        nodes = [a, b]
        if halfway:
            xy.append((xy[a] + xy[b]) / 2 + rng.uniform(-5.0, 5.0, 2))
            nodes = [a, len(xy) - 1, b]
        if rng.random() < 0.5:
            nodes.reverse()
        pairs += list(itertools.pairwise(nodes))
        if kind > missing + one_way:
            pairs += list(itertools.pairwise(reversed(nodes)))
    tail, head = np.array(pairs).T
    return from_xy(xy, tail, head, u_turns=u_turns)


def random_path(network, rng, n):
    """A walk of at most n segments along legal turns."""
    path = [int(rng.integers(network.n_segments))]
    while len(path) < n:
        out = network.turn_to[network.out_ptr[path[-1]] : network.out_ptr[path[-1] + 1]]
        if not out.size:
            break
        path.append(int(rng.choice(out)))
    return np.array(path)


def illegal_turns(network, path):
    """The places k of a path from which no legal turn leads to the next segment."""
    path, n = np.asarray(path, dtype=np.int64), network.n_segments
    legal = network.turn_from.astype(np.int64) * n + network.turn_to
    return np.flatnonzero(~np.isin(path[:-1] * n + path[1:], legal)).tolist()


def drive(network, path, *, step_m, rng=None, noise_m=0.0, margin=0.3):
    """Metres east and north (n, 2) of fixes along a path, from and to a share `margin` inside its end segments."""
    xy = network.node_xy
    lengths = np.hypot(*(xy[network.head[path]] - xy[network.tail[path]]).T)
    ends = np.cumsum(lengths)
    at = np.append(
        np.arange(margin * lengths[0], ends[-1] - margin * lengths[-1], step_m), ends[-1] - margin * lengths[-1]
    )
    k = np.minimum(np.searchsorted(ends, at, side="right"), path.size - 1)
    share = ((at - (ends[k] - lengths[k])) / lengths[k])[:, None]
    places = (1 - share) * xy[network.tail[path[k]]] + share * xy[network.head[path[k]]]
    return places if rng is None else places + noise_m * rng.normal(size=places.shape)
