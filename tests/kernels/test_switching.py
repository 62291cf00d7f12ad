"""Forward-backward and Viterbi recursions against enumeration, in extreme arithmetic, and for any number of threads."""

import numba
import numpy as np
import pytest

from limiirl.kernels import switching as kernel
from tests.oracles.switching import Sequences, transition_rows


def draw(seed, lengths, K, n_rows=3, n_decisions=5):
    """Return log-emissions, initial probabilities, A, eta and the decisions of random demonstrations."""
    rng = np.random.default_rng(seed)
    n = int(np.sum(lengths))
    data = kernel.Decisions(
        rng.integers(n_decisions, size=n).astype(np.int32),
        rng.integers(n_rows, size=n).astype(np.int32),
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
    )
    log_emission = np.log(rng.dirichlet(np.ones(n_decisions), size=K).T)
    return log_emission, rng.dirichlet(np.ones(K)), rng.normal(size=(K, K)), rng.normal(size=(n_rows, K)), data


def enumerate_all(log_emission, initial, A, eta, data):
    for lo, hi in zip(data.offsets[:-1], data.offsets[1:], strict=True):
        rows = [transition_rows(A, eta.T, np.eye(len(eta))[data.row[t]]) for t in range(lo, hi - 1)]
        transitions = np.array(rows).reshape(-1, *A.shape)
        yield Sequences.of(initial, transitions, np.exp(log_emission[data.number[lo:hi]]))


@pytest.mark.parametrize("K", [1, 2, 3])
def test_counts_equal_sums_over_sequences(K):
    log_emission, initial, A, eta, data = draw(K, [1, 5, 6], K)
    counts = kernel.count(kernel.Chain.of(log_emission, initial, A, eta), data)
    sequences = list(enumerate_all(log_emission, initial, A, eta, data))
    decisions, origin, target = np.zeros((5, K)), np.zeros((3, K)), np.zeros((3, K))
    smoothed = np.concatenate([one.smooth() for one in sequences])
    np.add.at(decisions, data.number, smoothed)
    for one, lo in zip(sequences, data.offsets, strict=False):
        for t, pair in enumerate(one.pairs()):
            origin[data.row[lo + t]] += pair.sum(axis=1)
            target[data.row[lo + t]] += pair.sum(axis=0)
    assert counts.bad == -1
    assert counts.log_prob == pytest.approx(sum(one.log_prob for one in sequences), abs=1e-12)
    expected = {
        "decisions": decisions,
        "initial": sum(one.smooth()[0] for one in sequences),
        "origin": origin,
        "target": target,
        "transitions": sum(one.pairs().sum(axis=0) for one in sequences),
    }
    for name, values in expected.items():
        np.testing.assert_allclose(getattr(counts, name), values, rtol=0, atol=1e-12, err_msg=name)


def test_viterbi_maximises_the_joint_probability():
    for seed in range(20):
        log_emission, initial, A, eta, data = draw(seed, [1, 7], 3)
        path = kernel.viterbi(log_emission, np.log(initial), A, eta, data)
        for one, lo, hi in zip(
            enumerate_all(log_emission, initial, A, eta, data), data.offsets[:-1], data.offsets[1:], strict=True
        ):
            assert tuple(path[lo:hi].tolist()) in one.best()[1]


@pytest.mark.parametrize("shift", [-5e3, -1e6])
def test_improbable_decisions_do_not_underflow(shift):
    """A factor common to all intents moves the likelihood, and nothing else."""
    log_emission, initial, A, eta, data = draw(0, [40, 30], 3)
    shifted = log_emission.copy()
    shifted[2] += shift
    plain, moved = (
        kernel.infer(kernel.Chain.of(e, initial, A, eta), data, smooth=True) for e in (log_emission, shifted)
    )
    np.testing.assert_allclose(moved.intents, plain.intents, rtol=0, atol=1e-9)
    np.testing.assert_allclose(moved.log_prob, plain.log_prob + shift * (data.number == 2), rtol=1e-12, atol=1e-9)


def test_long_runs_of_improbable_decisions_do_not_underflow():
    n = 20_000
    log_emission = np.array([[-1.0, -900.0], [-900.0, -1.0]])
    data = kernel.Decisions((np.arange(n) >= n // 2).astype(np.int32), np.zeros(n, np.int32), np.array([0, n]))
    A = np.log([[0.999, 0.001], [0.001, 0.999]])
    posterior = kernel.infer(kernel.Chain.of(log_emission, np.full(2, 0.5), A, np.zeros((1, 2))), data, smooth=True)
    np.testing.assert_allclose(posterior.intents[:, 1], data.number, rtol=0, atol=1e-12)
    expected = -n + np.log(0.5) + (n - 2) * np.log(0.999) + np.log(0.001)
    assert posterior.log_prob.sum() == pytest.approx(expected, rel=1e-12)


def test_impossible_decision_is_located():
    log_emission, initial, A, eta, data = draw(0, [4, 5, 6], 2)
    log_emission[3] = -np.inf
    data.number[:] = np.where(data.number == 3, 0, data.number)
    data.number[11] = 3
    chain = kernel.Chain.of(log_emission, initial, A, eta)
    assert kernel.count(chain, data).bad == 11
    assert kernel.infer(chain, data, smooth=True).bad == 11


def test_results_do_not_depend_on_the_number_of_threads():
    lengths = np.random.default_rng(0).integers(1, 900, size=120)
    log_emission, initial, A, eta, data = draw(1, lengths, 3, n_rows=40, n_decisions=300)
    chain = kernel.Chain.of(log_emission, initial, A, eta)
    assert kernel.divide(data.offsets, 8).size > 3
    results, before = [], numba.get_num_threads()
    try:
        for threads in range(1, before + 1):
            numba.set_num_threads(threads)
            results.append((kernel.count(chain, data), kernel.infer(chain, data, smooth=True)))
    finally:
        numba.set_num_threads(before)
    assert len(results) > 1
    for counts, posterior in results[1:]:
        for one, other in zip((*counts, *posterior), (*results[0][0], *results[0][1]), strict=True):
            np.testing.assert_array_equal(one, other)


def test_shared_sums_of_distinct_rows_equal_separate_ones():
    lengths = [3000, 2000, 4000, 1]
    log_emission, initial, A, eta, data = draw(2, lengths, 2, n_rows=sum(lengths))
    data = data._replace(row=np.arange(sum(lengths), dtype=np.int32))
    chain = kernel.Chain.of(log_emission, initial, A, eta)
    shared, separate = (kernel.count(chain, data, distinct_rows=distinct) for distinct in (True, False))
    for one, other in zip(shared, separate, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("n", [1, 4095, 4097, 100_000])
def test_blocks_contain_all_demonstrations_once(n):
    offsets = np.unique(np.concatenate([[0, n], np.random.default_rng(0).integers(0, n, size=50)]))
    blocks = kernel.divide(offsets, 8)
    assert blocks[0] == 0
    assert blocks[-1] == len(offsets) - 1
    assert np.all(np.diff(blocks) > 0)


def test_gradients_of_the_normaliser():
    rng = np.random.default_rng(0)
    A, eta, origin = rng.normal(size=(3, 3)), rng.normal(size=(4, 3)), rng.random((4, 3))
    origin[2, 1] = 0.0
    value, d_A, d_eta = kernel.normalise_logits(A, eta, origin)
    table = np.exp(A[None] + eta[:, None])
    assert value == pytest.approx(np.sum(origin * np.log(table.sum(axis=2))), rel=1e-13)
    for array, gradient in ((A, d_A), (eta, d_eta)):
        for index in np.ndindex(*array.shape):
            before = array[index]
            ends = []
            for step in (1e-5, -1e-5):
                array[index] = before + step
                ends.append(kernel.normalise_logits(A, eta, origin)[0])
            array[index] = before
            assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(gradient[index], abs=1e-8)
