"""Batched L-BFGS searches: results equal single searches bit for bit, and no thread is left after an error."""

import faulthandler
import sys
import threading
import warnings

import numpy as np
import pytest

from limiirl import MaxEnt
from limiirl.errors import DivergentPartition, LimiirlWarning
from limiirl.irl.base import Status
from limiirl.irl.maxent import path_sums
from limiirl.irl.optim import Box, minimise_lbfgs
from limiirl.irl.optim.lbfgs import BatchedEvaluator
from limiirl.worlds import RoadGrid
from tests.helpers import raises

current_thread = threading.current_thread
# Timeouts against deadlocks; no test takes nearly as long.
PATIENCE_S, LIMIT_S = 60.0, 300.0


@pytest.fixture(autouse=True)
def check_threads():
    before = set(threading.enumerate())
    # A deadlock ends the process and prints the stack of each thread.
    faulthandler.dump_traceback_later(LIMIT_S, exit=True, file=sys.__stderr__)
    yield
    faulthandler.cancel_dump_traceback_later()
    assert set(threading.enumerate()) <= before


def run_with_timeout(call):
    """Return the result of a call or the error that it raises; fail after a timeout."""
    outcome = []

    def run():
        try:
            outcome.append(call())
        except BaseException as error:  # noqa: BLE001 (returned to the test)
            outcome.append(error)

    caller = threading.Thread(target=run, daemon=True)
    caller.start()
    caller.join(PATIENCE_S)
    assert not caller.is_alive(), "deadlock"
    return outcome[0]


class Bowls:
    """K quartic functions in pure Python; records the columns and the thread of each evaluation."""

    batched = True

    def __init__(self, centres):
        self.centres = np.asarray(centres, dtype=float)
        self.calls = []
        self.threads = set()

    def evaluate(self, thetas, which):
        self.calls.append(which.tolist())
        self.threads.add(current_thread())
        away = [(theta - self.centres[k], k + 1.0) for theta, k in zip(thetas, which, strict=True)]
        values = [sum(float(x) ** 4 + steepness * float(x) ** 2 for x in difference) for difference, steepness in away]
        gradients = [[4.0 * x**3 + 2.0 * steepness * x for x in difference] for difference, steepness in away]
        return np.array(values), np.array(gradients)


def one(k, theta=0.0):
    return np.array([[theta]]), np.array([k])


def evaluate_at(values, k, theta=0.0):
    return float(values.evaluate(*one(k, theta))[0][0])


class TestResults:
    @pytest.mark.parametrize("gamma", [1.0, 0.99])
    def test_batched_fits_are_bitwise_equal(self, monkeypatch, gamma):
        mdp = RoadGrid(400, 800, gamma=gamma).mdp
        rng = np.random.default_rng(0)
        model = MaxEnt(25, solver="lbfgs", max_evaluations=25, gtol=1e-3)
        demos = model.sample(mdp, -rng.uniform(0.5, 5.0, mdp.n_features), 40, seed=0)
        weights = rng.dirichlet(np.full(3, 0.3), size=40)
        run, batches = BatchedEvaluator.run, []
        monkeypatch.setattr(
            BatchedEvaluator, "run", lambda self, search, n: (batches.append(n), run(self, search, n))[1]
        )
        thetas = {}
        for together, states in ((True, mdp.n_states), (False, mdp.n_states + 1)):
            monkeypatch.setattr(path_sums, "_BATCH_STATES", states)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", LimiirlWarning)  # max_evaluations ends some searches
                thetas[together] = model.fit_many(mdp, demos, weights)
        assert batches == [3]  # the first fit is batched, the second is not
        np.testing.assert_array_equal(thetas[True], thetas[False])
        assert len(np.unique(thetas[True], axis=0)) == 3

    def test_batched_searches_need_fewer_calls(self):
        centres = np.random.default_rng(1).uniform(-3.0, 3.0, (4, 3))
        box = Box(np.full(3, -2.0), np.full(3, 2.0))
        starts = np.zeros((4, 3))
        starts[2] = box.clip(centres[2])  # starts at its minimum and ends first
        together, apart = Bowls(centres), Bowls(centres)
        apart.batched = False
        results, expected = (minimise_lbfgs(bowls, starts, box, 1e-8, 200) for bowls in (together, apart))
        for mine, alone, centre in zip(results, expected, centres, strict=True):
            np.testing.assert_array_equal(mine.theta, alone.theta)
            assert (mine.value, mine.status, mine.n_evaluations) == (alone.value, alone.status, alone.n_evaluations)
            np.testing.assert_allclose(mine.theta, box.clip(centre), atol=1e-5)
        each = [result.n_evaluations for result in results]
        assert len(together.calls) == max(each) < sum(each) == len(apart.calls)
        assert all(call == [0] for call in apart.calls[: each[0]])

    def test_active_searches_are_evaluated_together_in_the_calling_thread(self):
        bowls = Bowls(np.zeros((3, 1)))

        def search(values, k):
            return [evaluate_at(values, k, step) for step in range((2, 5, 3)[k])]

        results = BatchedEvaluator(bowls).run(search, 3)
        assert results == [[(step**4 + (k + 1.0) * step**2) for step in range(n)] for k, n in enumerate((2, 5, 3))]
        assert bowls.calls == [[0, 1, 2], [0, 1, 2], [1, 2], [1], [1]]
        assert bowls.threads == {current_thread()}

    def test_search_without_evaluations_ends(self):
        bowls = Bowls(np.zeros((2, 1)))
        assert BatchedEvaluator(bowls).run(lambda values, k: k, 3) == [0, 1, 2]
        assert BatchedEvaluator(bowls).run(lambda values, k: k if k else evaluate_at(values, k), 2) == [0.0, 1]
        assert bowls.calls == [[0]]

    def test_search_may_request_several_values(self):
        bowls = Bowls(np.zeros((2, 1)))

        def search(values, k):
            return values.evaluate(np.array([[1.0], [2.0]])[: k + 1], np.full(k + 1, k))[1].ravel().tolist()

        assert BatchedEvaluator(bowls).run(search, 2) == [[6.0], [8.0, 40.0]]
        assert bowls.calls == [[0, 1, 1]]


class TestFailures:
    @pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, SystemExit])
    def test_errors_of_a_search_are_raised(self, error):
        def search(values, k):
            for step in range(5):
                evaluate_at(values, k, step)
                if (k, step) == (1, 2):
                    raise error("at step 2")
            return k

        bowls = Bowls(np.zeros((3, 1)))
        with pytest.raises(error, match="at step 2"):
            BatchedEvaluator(bowls).run(search, 3)
        assert len(bowls.calls) == 3  # no search continues

    @pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, MemoryError])
    def test_errors_of_an_evaluation_are_raised(self, error):
        class Fragile(Bowls):
            def evaluate(self, thetas, which):
                if len(self.calls) == 2:
                    raise error("the third time")
                return super().evaluate(thetas, which)

        finished = []

        def search(values, k):
            for step in range(2 if k == 0 else 5):
                evaluate_at(values, k, step)
            finished.append(k)

        with pytest.raises(error, match="the third time"):
            BatchedEvaluator(Fragile(np.zeros((3, 1)))).run(search, 3)
        assert finished == [0]

    def test_errors_of_an_evaluation_are_not_raised_in_searches(self):
        """A search that catches all exceptions must not catch the error of an evaluation."""
        caught = []

        def search(values, k):
            try:
                evaluate_at(values, k)
            except Exception as error:  # noqa: BLE001 (a search that catches everything)
                caught.append(error)

        class Broken:
            def evaluate(self, thetas, which):
                raise OverflowError("broken")

        with pytest.raises(OverflowError, match="broken"):
            BatchedEvaluator(Broken()).run(search, 3)
        assert caught == []

    def test_first_search_determines_the_error(self):
        slow = threading.Event()

        def search(values, k):
            evaluate_at(values, k)
            if k == 0:
                slow.wait(timeout=60.0)  # the others fail before it does
            elif k == 2:
                slow.set()
            raise ArithmeticError(f"search {k}")

        for _ in range(20):
            slow.clear()
            with pytest.raises(ArithmeticError, match="search 0"):
                BatchedEvaluator(Bowls(np.zeros((3, 1)))).run(search, 3)

    def test_no_thread_waits_if_one_cannot_start(self, monkeypatch):
        begin, started = threading.Thread.start, []

        def start(thread):
            if len(started) == 2:
                raise RuntimeError("can't start new thread")
            started.append(thread)
            begin(thread)

        monkeypatch.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            BatchedEvaluator(Bowls(np.zeros((3, 1)))).run(evaluate_at, 3)
        assert not any(thread.is_alive() for thread in started)

    def test_divergent_start_names_its_column(self):
        class Divergent(Bowls):
            def evaluate(self, thetas, which):
                values, gradients = super().evaluate(thetas, which)
                return np.where(which == 1, np.inf, values), gradients

        box = Box(np.full(1, -1.0), np.full(1, 1.0))
        with raises(DivergentPartition, parameter="starts", index=1):
            minimise_lbfgs(Divergent(np.zeros((3, 1))), np.zeros((3, 1)), box, 1e-6, 10)


class TestNoDeadlocks:
    """Every call returns, whichever search or evaluation fails."""

    @pytest.mark.parametrize("first", [0, 1, 2])
    def test_one_search_ends_early(self, first):
        def search(values, k):
            return [evaluate_at(values, k, step) for step in range(1 if k == first else 6)]

        results = run_with_timeout(lambda: BatchedEvaluator(Bowls(np.zeros((3, 1)))).run(search, 3))
        assert [len(values) for values in results] == [1 if k == first else 6 for k in range(3)]

    @pytest.mark.parametrize("step", [0, 1, 4])
    @pytest.mark.parametrize("failing", [(0,), (2,), (0, 1, 2)])
    def test_searches_raise(self, failing, step):
        def search(values, k):
            for now in range(6):
                if (now, k in failing) == (step, True):
                    raise ArithmeticError(f"search {k}")
                evaluate_at(values, k, now)

        error = run_with_timeout(lambda: BatchedEvaluator(Bowls(np.zeros((3, 1)))).run(search, 3))
        assert isinstance(error, ArithmeticError)

    @pytest.mark.parametrize("failure", ["raises", "one value too few", "nothing at all"])
    @pytest.mark.parametrize("call", [0, 3])
    def test_objective_fails(self, failure, call):
        class Broken(Bowls):
            def evaluate(self, thetas, which):
                values, gradients = super().evaluate(thetas, which)
                if len(self.calls) <= call:
                    return values, gradients
                if failure == "raises":
                    raise OverflowError("broken")
                return None if failure == "nothing at all" else (values[:-1], gradients[:-1])

        def search(values, k):
            return [evaluate_at(values, k, step) for step in range(6)]

        error = run_with_timeout(lambda: BatchedEvaluator(Broken(np.zeros((3, 1)))).run(search, 3))
        errors = {"raises": OverflowError, "one value too few": IndexError, "nothing at all": TypeError}
        assert isinstance(error, errors[failure])


class Barrier:
    """Ill-conditioned quadratic with a logarithmic barrier; infinite outside, like a partition function."""

    batched = False
    curvature = np.logspace(0.0, 3.0, 20)

    def evaluate(self, thetas, which):
        del which
        slack = 10.0 - thetas.sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            values = 0.5 * np.sum(self.curvature * (thetas - 1.0) ** 2, axis=1) - np.log(slack)
        values[slack <= 0.0] = np.inf
        return values, self.curvature * (thetas - 1.0) + 1.0 / slack[:, None]


def test_steps_to_infinite_values_are_shortened():
    objective, rng = Barrier(), np.random.default_rng(0)
    start = rng.normal(size=(1, 20))
    start -= max(0.0, start.sum() - 9.9) / 20.0
    free = Box(np.full(20, -np.inf), np.full(20, np.inf))
    result = minimise_lbfgs(objective, start, free, 1e-4, 250)[0]
    assert result.status is Status.CONVERGED
    gradient = objective.evaluate(result.theta[None], np.zeros(1))[1]
    np.testing.assert_allclose(gradient, 0.0, rtol=0.0, atol=1e-4)
