"""Rules about a model's parameters: scikit-learn's, which let a mixture copy a model and a worker receive it."""

from __future__ import annotations

import pickle

import numpy as np
from sklearn.base import clone

from limiirl.testing.trial import Rule, Trial, Unmet, expect, same_parameters

_STORE = "Let __init__ do nothing but self.name = name for each parameter; check values in fit."


def parameters_round_trip(trial: Trial) -> None:
    """get_params, set_params and clone agree."""
    model, wanted = trial.model, trial.model.get_params(deep=False)
    try:
        twin = clone(model)
    except (RuntimeError, TypeError) as error:
        raise Unmet("clone(model) to succeed", f"{type(error).__name__}: {error}", _STORE) from None
    expect(type(twin) is type(model), "clone(model) to be of the same class", type(twin).__name__, _STORE)
    expect(
        same_parameters(twin.get_params(deep=False), {name: clone(value, safe=False) for name, value in wanted.items()})
        or same_parameters(twin.get_params(deep=False), wanted),
        f"the parameters {wanted} of a clone",
        twin.get_params(deep=False),
        _STORE,
    )
    returned = twin.set_params(**wanted)
    expect(
        returned is twin,
        "set_params to return the model itself",
        type(returned).__name__,
        "Return self; sklearn.base.BaseEstimator does all of this.",
    )
    try:
        twin.set_params(no_such_parameter_=1)
    except ValueError:
        return
    raise Unmet("set_params to refuse an unknown parameter", "no error", "Derive from sklearn.base.BaseEstimator.")


def constructor_does_no_work(trial: Trial) -> None:
    """The constructor stores what it is given, whatever it is, and nothing else."""
    given = {name: object() for name in trial.model.get_params(deep=False)}
    try:
        made = type(trial.model)(**given)
    except Exception as error:  # noqa: BLE001 (whatever a constructor raises is what the rule forbids)
        raise Unmet("a constructor that takes anything", f"{type(error).__name__}: {error}", _STORE) from None
    changed = [name for name, value in given.items() if getattr(made, name, None) is not value]
    expect(not changed, "each parameter stored as it is", f"a changed {', '.join(changed)}", _STORE)
    more = sorted(set(vars(made)) - set(given))
    expect(not more, "no attribute but the parameters before fit", ", ".join(more), _STORE)


def pickles(trial: Trial) -> None:
    """A worker process gets the same model."""
    model, theta = trial.fit()
    remedy = "Define the class at the top of a module, and keep no open files, locks or lambdas in it."
    try:
        copied = pickle.loads(pickle.dumps(model))  # noqa: S301 (made in this very line, as joblib does)
    except Exception as error:  # noqa: BLE001 (any error means that it cannot be sent)
        raise Unmet("a model that can be sent to a worker", f"{type(error).__name__}: {error}", remedy) from None
    expect(
        same_parameters(copied.get_params(deep=False), model.get_params(deep=False)),
        "the same parameters in a worker",
        copied.get_params(deep=False),
        remedy,
    )
    expect(
        np.array_equal(trial.log_prob(copied, theta), trial.log_prob(model, theta)),
        "the same log_prob in a worker",
        "another",
        "Keep what fit settles in attributes with a trailing underscore, not in a module's variables.",
    )


RULES = (Rule(parameters_round_trip, once=True), Rule(constructor_does_no_work, once=True), Rule(pickles, once=True))
