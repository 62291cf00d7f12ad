"""Searches that share their evaluations: the same answers to the last bit, and no thread left whatever goes wrong."""

import faulthandler
import sys
import threading
import warnings

import numpy as np
import pytest

from limiirl import MaxEnt
from limiirl.errors import DivergentPartition, LimiirlWarning
from limiirl.irl.maxent import path_sums
from limiirl.irl.optim import Box, minimise_lbfgs
from limiirl.irl.optim.lbfgs import BatchedEvaluator
from limiirl.worlds import RoadGrid
from tests.helpers import raises

HERE = threading.current_thread
# Far more than any test here takes: these are guards against threads that wait for each other, not measures of speed.
PATIENCE_S, LIMIT_S = 60.0, 300.0


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = set(threading.enumerate())
    # Threads that wait for each other would stop the whole run without a word; so they end it, and say where they wait.
    faulthandler.dump_traceback_later(LIMIT_S, exit=True, file=sys.__stderr__)
    yield
    faulthandler.cancel_dump_traceback_later()
    assert set(threading.enumerate()) <= before


def comes_back(call):
    """What a call returns, or the error that it raises; fails if it does neither."""
    outcome = []

    def run():
        try:
            outcome.append(call())
        except BaseException as error:  # noqa: BLE001 (looked at by the test)
            outcome.append(error)

    caller = threading.Thread(target=run, daemon=True)
    caller.start()
    caller.join(PATIENCE_S)
    assert not caller.is_alive(), "the caller and its searches wait for each other"
    return outcome[0]


class Bowls:
    """K quartic bowls in pure Python, one after the other; says who asked and where it was evaluated."""

    heavy = True

    def __init__(self, centres):
        self.centres = np.asarray(centres, dtype=float)
        self.calls = []
        self.threads = set()

    def evaluate(self, thetas, which):
        self.calls.append(which.tolist())
        self.threads.add(HERE())
        away = [(theta - self.centres[k], k + 1.0) for theta, k in zip(thetas, which, strict=True)]
        values = [sum(float(x) ** 4 + steep * float(x) ** 2 for x in gap) for gap, steep in away]
        gradients = [[4.0 * x**3 + 2.0 * steep * x for x in gap] for gap, steep in away]
        return np.array(values), np.array(gradients)


def one(k, theta=0.0):
    return np.array([[theta]]), np.array([k])


def ask(values, k, theta=0.0):
    return float(values.evaluate(*one(k, theta))[0][0])


class TestAnswers:
    @pytest.mark.parametrize("gamma", [1.0, 0.99])
    def test_a_fit_on_a_graph_is_the_same_to_the_last_bit(self, monkeypatch, gamma):
        mdp = RoadGrid(400, 800, gamma=gamma).mdp
        rng = np.random.default_rng(0)
        model = MaxEnt(25, solver="lbfgs", max_evaluations=25, gtol=1e-3)
        demos = model.sample(mdp, -rng.uniform(0.5, 5.0, mdp.n_features), 40, seed=0)
        weights = rng.dirichlet(np.full(3, 0.3), size=40)
        runs, seen = BatchedEvaluator.run, []
        monkeypatch.setattr(BatchedEvaluator, "run", lambda self, search, n: (seen.append(n), runs(self, search, n))[1])
        found = {}
        for together, states in ((True, mdp.n_states), (False, mdp.n_states + 1)):
            monkeypatch.setattr(path_sums, "_HEAVY", states)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", LimiirlWarning)  # the cap ends some searches
                found[together] = model.fit_many(mdp, demos, weights)
        assert seen == [3]  # in lockstep once, and once not
        np.testing.assert_array_equal(found[True], found[False])
        assert len(np.unique(found[True], axis=0)) == 3

    def test_python_functions_are_minimised_alike_with_fewer_calls(self):
        centres = np.random.default_rng(1).uniform(-3.0, 3.0, (4, 3))
        box = Box(np.full(3, -2.0), np.full(3, 2.0))
        starts = np.zeros((4, 3))
        starts[2] = box.clip(centres[2])  # begins at its minimum, so that it ends long before the others
        together, apart = Bowls(centres), Bowls(centres)
        apart.heavy = False
        found, wanted = (minimise_lbfgs(bowls, starts, box, 1e-8, 200) for bowls in (together, apart))
        for mine, alone, centre in zip(found, wanted, centres, strict=True):
            np.testing.assert_array_equal(mine.theta, alone.theta)
            assert (mine.value, mine.status, mine.n_evaluations) == (alone.value, alone.status, alone.n_evaluations)
            np.testing.assert_allclose(mine.theta, box.clip(centre), atol=1e-5)
        each = [result.n_evaluations for result in found]
        assert len(together.calls) == max(each) < sum(each) == len(apart.calls)
        assert all(call == [0] for call in apart.calls[: each[0]])

    def test_all_that_are_left_are_asked_at_once_in_order_and_in_the_callers_thread(self):
        bowls = Bowls(np.zeros((3, 1)))

        def search(values, k):
            return [ask(values, k, step) for step in range((2, 5, 3)[k])]

        found = BatchedEvaluator(bowls).run(search, 3)
        assert found == [[(step**4 + (k + 1.0) * step**2) for step in range(n)] for k, n in enumerate((2, 5, 3))]
        assert bowls.calls == [[0, 1, 2], [0, 1, 2], [1, 2], [1], [1]]
        assert bowls.threads == {HERE()}

    def test_a_search_that_asks_for_nothing_ends(self):
        bowls = Bowls(np.zeros((2, 1)))
        assert BatchedEvaluator(bowls).run(lambda values, k: k, 3) == [0, 1, 2]
        assert BatchedEvaluator(bowls).run(lambda values, k: k if k else ask(values, k), 2) == [0.0, 1]
        assert bowls.calls == [[0]]

    def test_several_values_may_be_asked_for_at_once(self):
        bowls = Bowls(np.zeros((2, 1)))

        def search(values, k):
            return values.evaluate(np.array([[1.0], [2.0]])[: k + 1], np.full(k + 1, k))[1].ravel().tolist()

        assert BatchedEvaluator(bowls).run(search, 2) == [[6.0], [8.0, 40.0]]
        assert bowls.calls == [[0, 1, 1]]


class TestFailures:
    @pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, SystemExit])
    def test_of_a_search_reaches_the_caller(self, error):
        def search(values, k):
            for step in range(5):
                ask(values, k, step)
                if (k, step) == (1, 2):
                    raise error("at step 2")
            return k

        bowls = Bowls(np.zeros((3, 1)))
        with pytest.raises(error, match="at step 2"):
            BatchedEvaluator(bowls).run(search, 3)
        assert len(bowls.calls) == 3  # nobody goes on

    @pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, MemoryError])
    def test_of_an_evaluation_reaches_the_caller(self, error):
        class Fragile(Bowls):
            def evaluate(self, thetas, which):
                if len(self.calls) == 2:
                    raise error("the third time")
                return super().evaluate(thetas, which)

        finished = []

        def search(values, k):
            for step in range(2 if k == 0 else 5):
                ask(values, k, step)
            finished.append(k)

        with pytest.raises(error, match="the third time"):
            BatchedEvaluator(Fragile(np.zeros((3, 1)))).run(search, 3)
        assert finished == [0]

    def test_of_an_evaluation_is_seen_by_no_search(self):
        """A search that catches what it may must not take the end for an error of its own, and go on."""
        caught = []

        def search(values, k):
            try:
                ask(values, k)
            except Exception as error:  # noqa: BLE001 (as a careless search would)
                caught.append(error)

        class Broken:
            def evaluate(self, thetas, which):
                raise OverflowError("broken")

        with pytest.raises(OverflowError, match="broken"):
            BatchedEvaluator(Broken()).run(search, 3)
        assert caught == []

    def test_of_several_searches_is_that_of_the_first_as_without_threads(self):
        slow = threading.Event()

        def search(values, k):
            ask(values, k)
            if k == 0:
                slow.wait(timeout=60.0)  # the others fail before it does
            elif k == 2:
                slow.set()
            raise ArithmeticError(f"search {k}")

        for _ in range(20):
            slow.clear()
            with pytest.raises(ArithmeticError, match="search 0"):
                BatchedEvaluator(Bowls(np.zeros((3, 1)))).run(search, 3)

    def test_of_a_thread_that_cannot_start_leaves_none_waiting(self, monkeypatch):
        begin, started = threading.Thread.start, []

        def start(thread):
            if len(started) == 2:
                raise RuntimeError("can't start new thread")
            started.append(thread)
            begin(thread)

        monkeypatch.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            BatchedEvaluator(Bowls(np.zeros((3, 1)))).run(ask, 3)
        assert not any(thread.is_alive() for thread in started)

    def test_of_a_start_names_its_column(self):
        class Walled(Bowls):
            def evaluate(self, thetas, which):
                values, gradients = super().evaluate(thetas, which)
                return np.where(which == 1, np.inf, values), gradients

        box = Box(np.full(1, -1.0), np.full(1, 1.0))
        with raises(DivergentPartition, parameter="starts", index=1):
            minimise_lbfgs(Walled(np.zeros((3, 1))), np.zeros((3, 1)), box, 1e-6, 10)


class TestNobodyWaitsForEver:
    """What ends one of several searches, or all: everybody comes back, within a time that nothing needs."""

    @pytest.mark.parametrize("quitter", [0, 1, 2])
    def test_where_one_search_ends_early(self, quitter):
        def search(values, k):
            return [ask(values, k, step) for step in range(1 if k == quitter else 6)]

        found = comes_back(lambda: BatchedEvaluator(Bowls(np.zeros((3, 1)))).run(search, 3))
        assert [len(values) for values in found] == [1 if k == quitter else 6 for k in range(3)]

    @pytest.mark.parametrize("step", [0, 1, 4])
    @pytest.mark.parametrize("failing", [(0,), (2,), (0, 1, 2)])
    def test_where_searches_raise(self, failing, step):
        def search(values, k):
            for now in range(6):
                if (now, k in failing) == (step, True):
                    raise ArithmeticError(f"search {k}")
                ask(values, k, now)

        error = comes_back(lambda: BatchedEvaluator(Bowls(np.zeros((3, 1)))).run(search, 3))
        assert isinstance(error, ArithmeticError)

    @pytest.mark.parametrize("answer", ["raises", "one value too few", "nothing at all"])
    @pytest.mark.parametrize("call", [0, 3])
    def test_where_the_objective_breaks(self, answer, call):
        class Broken(Bowls):
            def evaluate(self, thetas, which):
                values, gradients = super().evaluate(thetas, which)
                if len(self.calls) <= call:
                    return values, gradients
                if answer == "raises":
                    raise OverflowError("broken")
                return None if answer == "nothing at all" else (values[:-1], gradients[:-1])

        def search(values, k):
            return [ask(values, k, step) for step in range(6)]

        error = comes_back(lambda: BatchedEvaluator(Broken(np.zeros((3, 1)))).run(search, 3))
        kinds = {"raises": OverflowError, "one value too few": IndexError, "nothing at all": TypeError}
        assert isinstance(error, kinds[answer])
