"""Restarts and selections by executors: results, warnings and errors equal those of a loop."""

import os
import pickle
import runpy
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from typing import Any

import numpy as np
import pytest

import limiirl as ll
from limiirl import _parallel
from limiirl._parallel import map_tasks
from limiirl.errors import ConvergenceWarning, InvalidParameter, LimiirlError
from limiirl.executors import Executor, Session
from limiirl.mixture.selection.cross_validation import WHOLE, RefitRunner, RefitTask, SelectionProblem
from tests.helpers import raises
from tests.oracles.mixture import crossings, walks

IRL = ll.MaxEnt(max_length=7, bounds=(-5, 5))
MDP, (DEMOS, _) = crossings(), walks(60, seed=1)


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """Two workers of this machine for all tests: each loads what it runs once."""
    with Executor(workers=2).session() as opened:
        yield opened


def bits(mix: ll.IntentMixture) -> list[Any]:
    """All that a fit finds, to the last bit."""
    arrays = (mix.weights_, mix.thetas_, mix.responsibilities_, mix.labels_)
    starts = [(r.objective, r.n_iter, r.distance, r.best, r.ensemble.thetas.tobytes()) for r in mix.restarts_]
    history = [(entry.objective, entry.n_evaluations, entry.event) for entry in mix.history_]
    return [*(array.tobytes() for array in arrays), mix.log_likelihood_, mix.converged_, starts, history]


def restarts(**changes: Any) -> ll.IntentMixture:
    given = {"init": "random", "n_init": 4, "random_state": 3, "max_iter": 300, "resp_tol": 1e-3}
    return ll.IntentMixture(2, IRL, **(given | changes))


def select(executor: Any = None, **changes: Any) -> ll.Selection:
    given = {"mixture": ll.IntentMixture(irl=IRL, resp_tol=1e-3), "folds": 3, "resamples": 2, "seed": 0}
    return ll.select_intents(MDP, DEMOS, (1, 2, 3), executor=executor, **(given | changes))


@pytest.mark.slow
@pytest.mark.parametrize("refine", [None, "split_merge"])
def test_parallel_restarts_equal_sequential_restarts(refine: str | None, session: Session) -> None:
    alone, spread_out = restarts(refine=refine).fit(MDP, DEMOS), restarts(refine=refine)
    spread_out.fit(MDP, DEMOS, executor=session)
    assert bits(spread_out) == bits(alone)
    assert len({restart.objective for restart in alone.restarts_}) > 1, "starts that differ in nothing test nothing"
    # The data are the caller's, not copies from afar.
    assert spread_out.mdp_ is MDP
    assert spread_out.summary().to_dict() == alone.summary().to_dict()
    assert "executor" not in spread_out.get_params()


def test_groups_and_max_length_are_the_same_in_workers(session: Session) -> None:
    groups = np.arange(len(DEMOS)) // 3
    mixes = [ll.IntentMixture(2, ll.MaxEnt(bounds=(-5, 5)), n_init=2, random_state=0) for _ in range(2)]
    alone = mixes[0].fit(MDP, DEMOS, groups)
    spread_out = mixes[1].fit(MDP, DEMOS, groups, executor=session)
    assert bits(spread_out) == bits(alone)
    assert spread_out.irl_.max_length == alone.irl_.max_length == DEMOS.lengths.max()
    np.testing.assert_array_equal(spread_out.predict(DEMOS), alone.predict(DEMOS))


class ResolvingModel:
    """A model without `make_problem` that settles something in `fit` and needs it in `log_prob`."""

    def fit(self, mdp: Any, demos: Any, weights: Any = None, start: Any = None) -> Any:
        self.resolved_ = len(demos)
        return IRL.fit(mdp, demos, weights, start)

    def log_prob(self, mdp: Any, thetas: Any, demos: Any) -> Any:
        assert self.resolved_ > 0
        return IRL.log_prob(mdp, thetas, demos)


def test_fitted_attributes_return_from_workers(session: Session) -> None:
    alone, spread_out = (
        ll.IntentMixture(2, ResolvingModel(), n_init=2, random_state=0, max_iter=3, resp_tol=1e-2).fit(
            MDP, DEMOS, executor=executor
        )
        for executor in (None, session)
    )
    assert bits(spread_out) == bits(alone)
    assert spread_out.irl_.resolved_ == len(DEMOS)
    np.testing.assert_array_equal(spread_out.predict_proba(DEMOS), alone.predict_proba(DEMOS))


@pytest.mark.slow
def test_callback_is_called_after_each_restart(session: Session) -> None:
    calls: dict[bool, list[tuple[int, int | None, str]]] = {True: [], False: []}
    for elsewhere, seen in calls.items():
        mix = restarts(progress=lambda *report, seen=seen: seen.append(report))
        mix.fit(MDP, DEMOS, executor=session if elsewhere else None)
    assert calls[True] == calls[False]


@pytest.mark.slow
def test_selection_does_not_depend_on_the_executor(session: Session) -> None:
    alone = select()
    with ThreadPoolExecutor(1) as pool:
        for executor in (session, pool):
            ticks: list[tuple[int, int]] = []
            selection = select(executor, progress=lambda done, total, _, ticks=ticks: ticks.append((done, total)))
            assert selection.to_dict() == alone.to_dict()
            assert {k: bits(mix) for k, mix in selection.mixtures.items()} == {
                k: bits(mix) for k, mix in alone.mixtures.items()
            }
            assert ticks == [(i, 19) for i in range(1, 20)]
            assert selection.best.mdp_ is MDP
            assert selection.best.standard_errors().weights.tolist() == alone.best.standard_errors().weights.tolist()


def fails_at_two(points: Any, n_intents: int, rng: Any) -> Any:
    """An init that cannot make two clusters, nor three of 40 points, which is how many a fold leaves."""
    del rng
    if n_intents == 2 or (n_intents == 3 and len(points) == 40):
        raise InvalidParameter("no such clusters")
    return np.arange(len(points)) % n_intents


@pytest.mark.slow
def test_failures_are_reported_the_same_way(session: Session) -> None:
    given = {"mixture": ll.IntentMixture(irl=IRL, init=fails_at_two), "resamples": 0}
    alone, elsewhere = select(**given), select(session, **given)
    assert elsewhere.to_dict() == alone.to_dict()
    assert [row.error for row in alone.rows] == [
        "",
        "fit: no such clusters",
        "; ".join(f"fold {i}: no such clusters" for i in (1, 2, 3)),
    ]


def never(points: Any, n_intents: int, rng: Any) -> Any:
    raise InvalidParameter(f"no {n_intents} clusters of {len(points)} by {type(rng).__name__}")


def test_error_without_any_successful_fit_is_the_same(session: Session) -> None:
    for executor in (None, session):
        with pytest.raises(LimiirlError, match="no 1 clusters of 60"):
            select(executor, mixture=ll.IntentMixture(irl=IRL, init=never))


def test_failed_numbers_of_intents_are_skipped() -> None:
    seen: list[RefitTask] = []

    class Watched(RefitRunner):
        def __call__(self, part: RefitTask) -> Any:
            seen.append(part)
            return super().__call__(part)

    class Here:
        def map(self, function: Any, tasks: Any) -> Any:
            return map(type(function)(Watched(**vars(function.function))), tasks)

    select(Here(), mixture=ll.IntentMixture(irl=IRL, init=fails_at_two), resamples=0)
    assert [part for part in seen if part.n_intents == 2] == [RefitTask(2, WHOLE)]
    assert len(seen) == 1 + 3 + 1 + 1 + 3


def test_fit_returns_without_its_data() -> None:
    demos, _ = walks(2000, seed=1)
    problem = SelectionProblem.from_data(ll.IntentMixture(irl=IRL, max_iter=2), MDP, demos, None, 0)
    whole = RefitRunner(problem, 3)(RefitTask(1, WHOLE)).value
    travelled = pickle.loads(pickle.dumps(whole))
    assert len(pickle.dumps(whole)) < 0.5 * len(pickle.dumps(demos))
    assert not hasattr(travelled.mixture, "mdp_")
    assert hasattr(whole.mixture, "mdp_"), "the one that stays keeps them"
    assert travelled.with_data(problem).mixture.mdp_ is MDP
    assert whole.with_data(problem) is whole


def warns(task: int) -> int:
    warnings.warn(f"task {task} did not converge", ConvergenceWarning, stacklevel=2)
    return task


def test_warnings_of_workers_are_issued_again(session: Session) -> None:
    with pytest.warns(ConvergenceWarning, match="task 5 did not converge"):
        assert list(map_tasks(warns, [5], session)) == [5]


def test_without_an_executor_tasks_run_lazily_in_this_thread() -> None:
    taken: list[int] = []

    def tasks() -> Any:
        for i in range(3):
            taken.append(i)
            yield i

    results = map_tasks(lambda _: threading.get_ident(), tasks(), None)
    assert next(results) == threading.get_ident()
    assert taken == [0]


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ThreadPool])
def test_several_threads_are_rejected(pool: Any) -> None:
    with pool(4) as executor, raises(InvalidParameter, parameter="executor", value=executor):
        select(executor)
    with pool(1) as executor:
        assert list(map_tasks(abs, [-2, 1], executor)) == [2, 1]


def test_executor_must_have_map() -> None:
    with raises(InvalidParameter, parameter="executor", value="dask"):
        restarts().fit(MDP, DEMOS, executor="dask")


def test_dask_client_is_rejected_with_its_address() -> None:
    distributed = pytest.importorskip("distributed", reason="the extra 'cluster' is not installed")
    with (
        distributed.Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None) as client,
        raises(InvalidParameter, parameter="executor", value=client) as caught,
    ):
        restarts().fit(MDP, DEMOS, executor=client)
    assert "scheduler='inproc://" in str(caught.value)


def test_dask_executor_is_accepted() -> None:
    distributed = pytest.importorskip("distributed", reason="the extra 'cluster' is not installed")
    with distributed.Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None) as client:
        assert list(map_tasks(abs, [-2, 1], client.get_executor())) == [2, 1]


@pytest.mark.parametrize(("given", "expected"), [(None, "passive"), ("active", "active")])
def test_threads_sleep_at_barriers_unless_the_user_decides(
    monkeypatch: pytest.MonkeyPatch, given: str | None, expected: str
) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "to be restored")
    if given is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    else:
        monkeypatch.setenv("OMP_WAIT_POLICY", given)
    assert _parallel.__file__ is not None
    runpy.run_path(_parallel.__file__)
    assert os.environ["OMP_WAIT_POLICY"] == expected
