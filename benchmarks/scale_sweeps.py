"""Forward and backward passes over a partitioned network, each part with copies of the messages at its borders.

Everything runs in one process, but a part reads only its own data and the exchanged data, whose size is counted.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from limiirl import MDP
from limiirl.kernels.graph import build_graph

Float = NDArray[np.float64]
Int = NDArray[np.int64]


class Side(NamedTuple):
    """One direction of a part: a matrix (owned, owned + halo), and the states (halo,) that it receives."""

    matrix: csr_array
    halo: Int


class Evaluation(NamedTuple):
    """log Z (K,), expected features (K, d), bytes exchanged in a backward pass, bytes stored, messages lost (K,)."""

    log_Z: Float
    features: Float
    exchanged: int
    stored: int
    lost: Float


class Cut:
    """An MDP with deterministic transitions, and the part (S,) of each state."""

    def __init__(self, mdp: MDP, parts: Int) -> None:
        self.mdp, self.owned = mdp, [np.flatnonzero(parts == p) for p in range(parts.max() + 1)]
        links = csr_array((np.ones(mdp.n_edges), (mdp.src, mdp.dst)), shape=(mdp.n_states, mdp.n_states))
        self.out = [_side(links, mine) for mine in self.owned]
        self.into = [_side(links.T.tocsr(), mine) for mine in self.owned]
        self.part, self.place = parts, np.empty(mdp.n_states, dtype=np.int64)
        for mine in self.owned:
            self.place[mine] = np.arange(mine.size)

    @property
    def halo_states(self) -> int:
        """Number of messages sent in a backward step by all parts."""
        return sum(side.halo.size for side in self.out)

    def gather(self, sides: list[Side], messages: list[Float], scale: Int) -> tuple[list[Float], int]:
        """Exchange messages at the borders, sum over neighbours, and return the sums and the number of bytes sent.

        Messages and sums of part p are in units of 2^scale[p] (K,).
        """
        sums, sent = [], 0
        for p, (side, mine) in enumerate(zip(sides, messages, strict=True)):
            halo = np.empty((side.halo.size, mine.shape[1]))
            for q in np.unique(self.part[side.halo]):
                from_q = self.part[side.halo] == q
                received = messages[q][self.place[side.halo[from_q]]]
                sent += received.nbytes
                halo[from_q] = np.ldexp(received.astype(np.float64), scale[q] - scale[p])
            sums.append(side.matrix @ np.concatenate([mine.astype(np.float64), halo]))
        return sums, sent


def _side(links: csr_array, mine: Int) -> Side:
    rows = links[mine].tocoo()
    outside = np.setdiff1d(rows.col, mine)
    number = np.full(links.shape[1], -1)
    number[mine], number[outside] = np.arange(mine.size), mine.size + np.arange(outside.size)
    shape = (mine.size, mine.size + outside.size)
    return Side(csr_array((rows.data, (rows.row, number[rows.col])), shape=shape), outside)


def evaluate(cut: Cut, thetas: Float, length: int, kind: str = "float64") -> Evaluation:
    """Return value and gradient of log Z over at most `length` states, with discount 1 and linear arithmetic.

    `kind` is the precision of messages: "float64"; "kept", stored with 32 bits for the forward pass but propagated
    with 64; or "carried", propagated and stored with 32 bits. Sums always have 64 bits. Each part has its own scale, a
    power of two.
    """
    carry = np.float32 if kind == "carried" else np.float64
    keep = np.float64 if kind == "float64" else np.float32
    weights = [np.exp(cut.mdp.state_features[mine] @ thetas.T) for mine in cut.owned]
    scale = np.zeros((length, len(weights), len(thetas)), dtype=np.int64)
    lost, exchanged = np.zeros(len(thetas)), 0
    message = [w.astype(carry) for w in weights]
    stored = [np.empty((length, *w.shape), dtype=keep) for w in weights]
    for t in range(length - 1, -1, -1):
        if t < length - 1:
            sums, sent = cut.gather(cut.out, message, scale[t + 1])
            exchanged += sent
            scale[t] = scale[t + 1]
            new = [total + np.ldexp(1.0, -own) for total, own in zip(sums, scale[t], strict=True)]
            new = [n * w for n, w in zip(new, weights, strict=True)] if t else new
            message = [_rescale(n, own).astype(carry) for n, own in zip(new, scale[t], strict=True)]
        for kept, part in zip(stored, message, strict=True):
            kept[t] = part
            lost += np.count_nonzero(kept[t] == 0.0, axis=0)
    alpha = [cut.mdp.p0[mine, None] * w for mine, w in zip(cut.owned, weights, strict=True)]
    unit = scale[0].max(axis=0)
    starts = [
        a * np.ldexp(kept[0].astype(np.float64), own - unit)
        for a, kept, own in zip(alpha, stored, scale[0], strict=True)
    ]
    Z = np.sum([part.sum(axis=0) for part in starts], axis=0)
    counts, own = [part / Z for part in starts], np.zeros_like(scale[0])
    for t in range(1, length):
        alpha = [_rescale(part, exponent).astype(carry) for part, exponent in zip(alpha, own, strict=True)]
        sums, _ = cut.gather(cut.into, alpha, own)
        for p, count in enumerate(counts):
            count += np.ldexp(sums[p] * stored[p][t], own[p] + scale[t, p] - unit) / Z
        alpha = [total * w for total, w in zip(sums, weights, strict=True)]
    features = sum(cut.mdp.state_features[mine].T @ count for mine, count in zip(cut.owned, counts, strict=True))
    stored_bytes = sum(kept.nbytes for kept in stored)
    return Evaluation(
        np.log(Z) + unit * np.log(2.0), features.T, exchanged, stored_bytes, lost / (cut.mdp.n_states * length)
    )


def _rescale(part: Float, scale: Int) -> Float:
    """Divide by the power of two of the largest entry of each intent, and add the exponent to scale (K,)."""
    power = np.frexp(part.max(axis=0))[1].astype(np.int64)
    scale += power
    return np.ldexp(part, -power)


def bisect(at: Float, n_parts: int) -> Int:
    """Return parts (S,) of equal size by recursive bisection of the longer side; n_parts is a power of two."""
    parts = np.zeros(len(at), dtype=np.int64)
    for _ in range(n_parts.bit_length() - 1):
        halves = np.empty_like(parts)
        for p in range(parts.max() + 1):
            mine = np.flatnonzero(parts == p)
            axis = int(np.argmax(np.ptp(at[mine], axis=0)))
            rank = np.argsort(np.argsort(at[mine, axis], kind="stable"))
            halves[mine] = 2 * p + (rank >= mine.size // 2)
        parts = halves
    return parts


def state_rank(mdp: MDP) -> Int:
    """Return the position (S,) of each state in the order of the path graph."""
    return build_graph(mdp.n_states, mdp.src, mdp.dst).rank


def in_strips(rank: Int, n_parts: int) -> Int:
    """Return parts (S,) of equal size that are consecutive in an order."""
    return rank * n_parts // rank.size


def halo(mdp: MDP, parts: Int, n_parts: int, depth: int = 1) -> Float:
    """Return the number (n_parts,) of states that a part reads from others per step, averaged over both directions.

    With a depth above 1, return the numbers (depth, n_parts) by distance from the part.
    """
    received = np.zeros((depth, n_parts))
    for near, far in ((mdp.src, mdp.dst), (mdp.dst, mdp.src)):
        links = csr_array((np.ones(near.size), (near, far)), shape=(mdp.n_states, mdp.n_states))
        cut = parts[near] != parts[far]
        # Encode a pair (state, part that reads it) as one integer.
        ring = known = np.unique(far[cut] * n_parts + parts[near[cut]])
        for j in range(depth):
            received[j] += np.bincount(ring % n_parts, minlength=n_parts) / 2.0
            state, part = np.divmod(ring, n_parts)
            degree = np.diff(links.indptr)[state]
            at = np.repeat(links.indptr[state + 1] - np.cumsum(degree), degree) + np.arange(degree.sum())
            state, part = links.indices[at].astype(np.int64), np.repeat(part, degree)
            beyond = parts[state] != part
            ring = np.setdiff1d(state[beyond] * n_parts + part[beyond], known)
            known = np.union1d(known, ring)
    return received if depth > 1 else received[0]
