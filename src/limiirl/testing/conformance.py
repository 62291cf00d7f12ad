"""`check_irl_model`: whether a single-intent model keeps the rules that mixtures rely on."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from limiirl.errors import ConformanceError, InvalidParameter
from limiirl.irl import PARAMETERS, REQUIRED
from limiirl.testing import rules
from limiirl.testing.rules import (
    Failure,
    Problem,
    Rule,
    Trial,
    Unmet,
    fit_returns_theta,
    given,
    log_prob_is_a_matrix,
    problems,
)

# Without these on a problem, the rules that follow would only say the same again.
_GATES = (Rule(fit_returns_theta), Rule(log_prob_is_a_matrix))
_RULES = (
    *rules.PARAMETER_RULES,
    *_GATES,
    *rules.FIT_RULES,
    *rules.WEIGHT_RULES,
    *rules.LOG_PROB_RULES,
    *rules.MIXTURE_RULES,
)


@dataclass(frozen=True)
class Check:
    """One rule for one model on one problem, to be called."""

    rule: Rule
    trial: Trial

    @property
    def name(self) -> str:
        """The rule and the problem, as in "fit_returns_theta[stochastic]"."""
        return f"{self.rule.name}[{self.trial.problem.name}]"

    def __str__(self) -> str:
        return self.name

    def __call__(self) -> None:
        """Raise `ConformanceError` if the rule is broken."""
        failure, cause = self._run()
        if failure is not None:
            raise ConformanceError(f"{type(self.trial.model).__name__} fails {failure}", (failure,)) from cause

    def failure(self) -> Failure | None:
        """Return what is wrong, or None."""
        return self._run()[0]

    def _run(self) -> tuple[Failure | None, Exception | None]:
        try:
            # Small problems are short of data, and models say so; that breaks no rule.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.rule.function(self.trial)
        except Unmet as unmet:
            return Failure(self.name, unmet.expected, unmet.got, unmet.remedy), None
        except Exception as error:  # noqa: BLE001 (a model of somebody else's may raise anything; all of it is reported)
            came = f"{type(error).__name__}: {str(error).rstrip('.')}"
            remedy = "Call this check alone (limiirl.testing.checks) to see where."
            return Failure(self.name, "no error", came, remedy), error
        return None, None


@dataclass(frozen=True)
class Report:
    """The checks that a model passed, and those that do not apply to it with the reason."""

    model: str
    passed: tuple[str, ...]
    skipped: tuple[str, ...]

    def __str__(self) -> str:
        lines = [
            f"{self.model} passes {len(self.passed)} checks.",
            *(f"  not applied: {line}" for line in self.skipped),
        ]
        return "\n".join(lines)


def checks(model: Any, *, mdp: Any = None, demos: Any = None) -> list[Check]:
    """Return the checks that apply to a model, for a test of each.

    Parameters
    ----------
    model, mdp, demos
        See `check_irl_model`.

    Examples
    --------
    In a file of tests: ``@pytest.mark.parametrize("check", checks(MyModel()), ids=str)``, then ``check()``.

    >>> from limiirl import MaxEnt
    >>> first = checks(MaxEnt())[0]
    >>> print(first)
    parameters_round_trip[deterministic]
    >>> first()
    """
    _require_methods(model)
    return [check for check, why in _all(model, mdp, demos) if not why]


def check_irl_model(model: Any, *, mdp: Any = None, demos: Any = None) -> Report:
    """Check that a single-intent model keeps the rules that `IntentMixture` relies on, or raise `ConformanceError`.

    The error lists every check that fails, with what was expected, what came and the remedy. A model may declare
    ``normalised = False`` if its `log_prob` is a score and no probability, and ``takes_action_features = False`` if it
    is for rewards of states alone; the checks of these are then left out.

    Parameters
    ----------
    model : object
        An instance, with the parameters to check it with; it is copied, never changed.
    mdp : MDP, optional
        Check on this MDP, by random walks in it unless `demos` are given, instead of on small problems of limiirl's
        own: with certain moves, with slippery ones, with a discount and cycles, and with features on actions.
    demos : Demonstrations, optional
        Check on these demonstrations.

    Returns
    -------
    Report

    Examples
    --------
    >>> from limiirl import MaxEnt
    >>> report = check_irl_model(MaxEnt(bounds=(-5, 5)))
    >>> "fit_many_is_fit[discounted]" in report.passed
    True
    >>> from sklearn.cluster import KMeans
    >>> check_irl_model(KMeans())
    Traceback (most recent call last):
    limiirl.errors.ConformanceError: KMeans lacks the method log_prob. A model needs fit, log_prob, get_params and ...
    """
    _require_methods(model)
    passed, skipped, failed = [], {}, []
    closed: set[str] = set()
    for check, why in _all(model, mdp, demos):
        place = check.trial.problem.name
        if why or place in closed:
            skipped[check.name] = why or "fit or log_prob fails on this problem"
            continue
        failure = check.failure()
        if failure is None:
            passed.append(check.name)
            continue
        failed.append(failure)
        if check.rule in _GATES:
            closed.add(place)
    if failed:
        lines = "\n".join(f"- {failure}" for failure in failed)
        total = len(failed) + len(passed)
        raise ConformanceError(f"{type(model).__name__} fails {len(failed)} of {total} checks:\n{lines}", tuple(failed))
    return Report(type(model).__name__, tuple(passed), tuple(f"{name}: {why}" for name, why in skipped.items()))


def _all(model: Any, mdp: Any, demos: Any) -> Iterator[tuple[Check, str]]:
    """Yield every check of a model, with the reason why it does not apply, if any."""
    trials = [Trial(model, problem) for problem in _problems(model, mdp, demos)]
    for rule in _RULES:
        known = [(trial, rule.skip(trial)) for trial in trials]
        # A rule for some problems only is not worth a line for each of the others.
        apply = [(trial, why) for trial, why in known if not why] or known[:1]
        for trial, why in apply[:1] if rule.once else apply:
            yield Check(rule, trial), why


def _problems(model: Any, mdp: Any, demos: Any) -> list[Problem]:
    if mdp is not None or demos is not None:
        problem = given(mdp, demos)
        if len(problem.demos) < 2:
            raise InvalidParameter(f"The checks need at least 2 demonstrations; there are {len(problem.demos)}.")
        return [problem]
    actions = getattr(model, "takes_action_features", True)
    return [problem for problem in problems() if actions or not problem.action_features]


def _require_methods(model: Any) -> None:
    if isinstance(model, type):
        raise ConformanceError(f"{model.__name__} is a class. Pass an instance of it: {model.__name__}().")
    missing = [name for name in REQUIRED + PARAMETERS if not callable(getattr(model, name, None))]
    if missing:
        raise ConformanceError(
            f"{type(model).__name__} lacks the method {', '.join(missing)}. A model needs fit, log_prob, get_params "
            "and set_params; sklearn.base.BaseEstimator brings the last two."
        )
