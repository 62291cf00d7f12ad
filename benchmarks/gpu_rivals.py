"""Forward-backward passes on a GPU in JAX, in numba.cuda and with the kernels of limiirl, launched in three ways.

One evaluation is a backward and a forward pass over a road network of the paper's size, with K = 3, discount 1, all
messages stored, and float64. JAX and numba.cuda do not rescale messages, which favours them. Run as `python -m
benchmarks.gpu_rivals` on a machine with a GPU; ADR 0018 quotes the result.
"""

import argparse
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.measure import describe_machine, seconds
from benchmarks.path_sums import MAX_LENGTH, intents, network
from limiirl.irl.maxent.backends import compile_mdp
from limiirl.kernels.gpu.device import need_device
from limiirl.kernels.gpu.forward_backward import LinearKernels
from limiirl.kernels.graph import Alpha, CountBuffers, Neighbours, PathGraph, Rewards, Weights

N_INTENTS = 3


class Problem:
    """The graph and the weights of K intents, on the host."""

    def __init__(self, quick: bool) -> None:
        mdp = network(quick)
        self.graph: PathGraph = compile_mdp(mdp).graph
        node, _ = mdp.rewards(intents(mdp, N_INTENTS))
        self.node = np.ascontiguousarray(node[self.graph.order])
        self.p0 = mdp.p0[self.graph.order]
        self.shape = (mdp.n_states, N_INTENTS)


class LimiirlKernels:
    """Kernels of limiirl: one launch per pass, one launch per step, or the launches of all steps as a CUDA graph."""

    def __init__(self, problem: Problem, shared_memory: bool = True) -> None:
        device = self.device = need_device()
        self.xp = device.xp
        self.kernels = LinearKernels(device)
        if not shared_memory:  # read everything from global memory
            device.shared_bytes = 0
        S, K = problem.shape
        self.columns = (0,) * K
        neighbours = [
            Neighbours(*(device.put(v) if isinstance(v, np.ndarray) else v for v in side)) for side in problem.graph[:2]
        ]
        self.out, self.into = neighbours
        ones = device.put(np.ones(MAX_LENGTH))
        self.rewards = Rewards(device.put(problem.node.ravel()), None, None, ones, True)
        self.weights = Weights(self.xp.empty(S * K), None)
        self.messages = self.xp.zeros((MAX_LENGTH, (S + 1) * K))
        self.exponents = self.xp.zeros((MAX_LENGTH, K), dtype=np.int64)
        self.alpha = Alpha(self.xp.zeros((2, (S + 1) * K)), self.xp.zeros(K, dtype=np.int64), self.xp.zeros(K))
        self.counts = self.xp.zeros(S * K)
        self.alpha0 = device.put((problem.p0[:, None] * np.exp(problem.node)).ravel())
        self.gain = ones

    def run_both(self, n: int) -> None:
        """Run both passes with n steps per launch."""
        self.kernels.fill(self.out, self.rewards, self.weights, self.columns)
        size = self.weights.node.size
        self.messages[-1, :size] = self.weights.node
        self.exponents[-1] = 0
        for i in range(MAX_LENGTH - 1 - n, -1, -n):
            rows, exponents = self.messages[i : i + n + 1], self.exponents[i : i + n + 1]
            self.kernels.backward(self.out, self.rewards, self.weights, None, rows, exponents, i, self.columns)
        self.alpha.value[0, :size] = self.alpha0
        self.alpha.exponent[:] = 0
        self.counts[:] = 0.0
        for i in range(0, MAX_LENGTH - 1, n):
            part = self.messages[i : i + n + 1], self.exponents[i : i + n + 1]
            counts = CountBuffers(self.counts, None, None, None)
            self.kernels.forward(
                self.into, self.rewards, self.weights, *part, self.alpha, self.gain, counts, i, self.columns
            )

    def whole(self) -> None:
        self.run_both(MAX_LENGTH - 1)
        self.device.xp.cuda.Device().synchronize()

    def steps(self) -> None:
        self.run_both(1)
        self.device.xp.cuda.Device().synchronize()

    def record(self) -> Callable[[], None]:
        """Return a function that replays the launches of all steps."""
        stream = self.xp.cuda.Stream(non_blocking=True)
        with stream:
            self.run_both(1)
            stream.synchronize()
            stream.begin_capture()
            self.run_both(1)
            graph = stream.end_capture()

        def replay() -> None:
            graph.launch(stream)
            stream.synchronize()

        return replay


def in_jax(problem: Problem) -> Callable[[], Any]:
    """Return an evaluation in JAX, with padded neighbour lists and two scans."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    S, K = problem.shape
    tables = [jnp.asarray(side.table.reshape(S, side.width).astype(np.int32)) for side in problem.graph[:2]]
    w, p0, zero = jnp.exp(jnp.asarray(problem.node)), jnp.asarray(problem.p0), jnp.zeros((1, K))

    def gather(message: Any, table: Any) -> Any:
        padded = jnp.concatenate([message, zero])
        return sum(padded[table[:, q]] for q in range(table.shape[1]))

    @jax.jit
    def run(w: Any, out: Any, into: Any) -> Any:
        def back(u: Any, _: Any) -> Any:
            new = w * (1.0 + gather(u, out))
            return new, u

        last, messages = jax.lax.scan(back, w, None, length=MAX_LENGTH - 1)

        def forth(carried: Any, u: Any) -> Any:
            alpha, counts = carried
            arrived = gather(alpha, into)
            return (arrived * w, counts + arrived * u), None

        first = p0[:, None] * w
        (_, counts), _ = jax.lax.scan(forth, (first, jnp.zeros_like(w)), messages, reverse=True)
        return last, counts

    return lambda: jax.block_until_ready(run(w, *tables))


def in_numba(problem: Problem) -> Callable[[], Any]:
    """Return an evaluation in numba.cuda, with one thread per entry and one launch per step."""
    # numba 0.68 imports this name, which numpy 2.5 no longer has; it is not used here.
    vars(np).setdefault("row_stack", np.vstack)
    from numba import cuda

    S, K = problem.shape
    out, into = (cuda.to_device(side.table.astype(np.int32)) for side in problem.graph[:2])
    widths = problem.graph.out.width, problem.graph.into.width
    w = cuda.to_device(np.exp(problem.node).ravel())
    messages = cuda.to_device(np.zeros((MAX_LENGTH, (S + 1) * K)))
    alpha = cuda.to_device(np.zeros((2, (S + 1) * K)))
    counts = cuda.to_device(np.zeros(S * K))

    @cuda.jit
    def back(table, width, w, prev, new, size, n_columns):  # type: ignore[no-untyped-def]
        i = cuda.grid(1)
        if i < size:
            s = i // n_columns
            k = i - s * n_columns
            total = 1.0
            for q in range(width):
                total += prev[table[s * width + q] * n_columns + k]
            new[i] = total * w[i]

    @cuda.jit
    def forth(table, width, w, cur, new, u, counts, size, n_columns):  # type: ignore[no-untyped-def]  # noqa: PLR0913
        i = cuda.grid(1)
        if i < size:
            s = i // n_columns
            k = i - s * n_columns
            total = 0.0
            for q in range(width):
                total += cur[table[s * width + q] * n_columns + k]
            counts[i] += total * u[i]
            new[i] = total * w[i]

    rows, sides = [messages[t] for t in range(MAX_LENGTH)], [alpha[0], alpha[1]]
    blocks = math.ceil(S * K / 256)

    def run() -> None:
        for t in range(MAX_LENGTH - 2, -1, -1):
            back[blocks, 256](out, widths[0], w, rows[t + 1], rows[t], S * K, K)
        for t in range(1, MAX_LENGTH):
            forth[blocks, 256](into, widths[1], w, sides[(t - 1) % 2], sides[t % 2], rows[t], counts, S * K, K)
        cuda.synchronize()

    return run


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    problem = Problem(parser.parse_args().quick)
    S, K = problem.shape
    print(f"one evaluation, {S:,} states, {problem.graph.n_edges:,} edges, L = {MAX_LENGTH}, K = {K}")
    print(f"{describe_machine()}; {need_device().name}")
    calls: dict[str, Callable[[], Callable[[], Any]]] = {
        "limiirl, one launch per pass": lambda: LimiirlKernels(problem).whole,
        "JAX, padded neighbours, scans": lambda: in_jax(problem),
        "numba.cuda, one launch per step": lambda: in_numba(problem),
        "limiirl, one launch per pass, no shared memory": lambda: LimiirlKernels(problem, shared_memory=False).whole,
        "limiirl, one launch per step": lambda: LimiirlKernels(problem, shared_memory=False).steps,
        "limiirl, one launch per step, as a CUDA graph": lambda: LimiirlKernels(problem, shared_memory=False).record(),
    }
    for name, make in calls.items():
        try:
            call = make()
            call()
            print(f"  {name:<52} {1e3 * seconds(call, 20):8.2f} ms", flush=True)
        except Exception as error:  # noqa: BLE001 (a missing or broken library is reported in the table)
            print(f"  {name:<52} failed: {type(error).__name__}: {str(error).splitlines()[0][:90]}", flush=True)


if __name__ == "__main__":
    main()
