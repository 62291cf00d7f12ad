"""Odd arguments, tables and command lines give a valid result or an error of limiirl, and do not change their inputs.

FUZZ_CASES=5000 sets the number of cases of the first two tests, and draws new cases in every run.
"""

import contextlib
import csv
import dataclasses
import datetime as dt
import inspect
import io
import math
import os
import shutil
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from decimal import Decimal
from pathlib import Path
from types import FrameType
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import limiirl as ll
from limiirl import metrics, mixture, worlds
from limiirl.cli import main
from limiirl.errors import LimiirlError, LimiirlWarning
from tests.helpers import examples

CASES = int(os.environ.get("FUZZ_CASES", "0"))
FUZZ = settings(
    max_examples=CASES or examples(400),
    derandomize=not CASES,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
LIMIT_S = 20

MDP = ll.MDP.from_edges(
    [0, 0, 1, 2], [1, 2, 3, 3], gamma=0.9, state_features=np.array([[0.0, 1], [1, 0], [0, 0], [2, 1]])
)
DEMOS = ll.Demonstrations.from_lists([[0, 1, 3], [0, 2, 3]] * 4, groups=list("aabbccdd"), labels=[0, 1] * 4)
ENSEMBLE = ll.RewardEnsemble([0.5, 0.5], [[0.5, -1.0], [-0.5, 1.0]])
U = np.tile([[0.9, 0.1], [0.2, 0.8]], (4, 1))
TABLE = {"demo": ["a", "a", "b"], "t": [0, 1, 0], "state": [0, 1, 2], "action": [0, -1, -1], "group": ["x", "x", "y"]}
FITTED = ll.IntentMixture(2, ll.MaxEnt(bounds=(-3, 3)), init=ENSEMBLE, max_iter=0).fit(MDP, DEMOS)
# Nested models with identified rewards.
NARROW = MDP.replace(state_features=MDP.state_features[:, :1], feature_names=None)
ONE = ll.IntentMixture(1, ll.MaxEnt(bounds=None)).fit(NARROW, DEMOS)
WIDE = ll.IntentMixture(1, ll.MaxEnt(bounds=None)).fit(MDP, DEMOS)
RNG = np.random.default_rng(0)
FEATURES = list(RNG.normal(size=(3, 9, 4, 2)))
AGENTS = ll.Agents.from_arrays(FEATURES, list(RNG.normal(size=(3, 9, 4, 1))), FEATURES)
# A valid value of each required parameter, by name.
VALID: dict[str, Any] = {
    "mdp": MDP,
    "demos": DEMOS,
    "df": TABLE,
    "data": DEMOS,
    "others": DEMOS,
    "given": DEMOS,
    "source": TABLE,
    "theta": [0.5, -1.0],
    "thetas": ENSEMBLE.thetas,
    "weights": ENSEMBLE.weights,
    "ensemble": ENSEMBLE,
    "theta_true": [0.5, -1.0],
    "theta_learned": [0.4, 0.0],
    "truth": ENSEMBLE,
    "learned": ENSEMBLE,
    "other": ENSEMBLE,
    "U": U,
    "V": U,
    "one": U,
    "two": U,
    "values": [0.1, 0.5, 0.9],
    "a": [1.0, 2.0, 4.0],
    "b": [2.0, 2.5, 3.0],
    "states": [[0, 1], [0, 2]],
    "src": [0, 1],
    "dst": [1, 2],
    "T": np.eye(2)[:, None, :],
    "p0": [0.25] * 4,
    "n": 3,
    "k": 0,
    "K": 2,
    "n_intents": 2,
    "seed": 0,
    "index": [0, 1],
    "gamma": 0.9,
    "state": 0,
    "step": 1,
    "offsets": [0, 2, 4],
    "labels": [0, 1] * 4,
    "groups": list("aabbccdd"),
    "policy": [0.5, 0.5, 1.0, 1.0],
    "names": ["x", "y"],
    "parts": [DEMOS, DEMOS],
    "features": MDP.state_features,
    "paths": [[0, 1, 3]],
    "mixture": FITTED,
    "irl": ll.MaxEnt(max_length=3),
    "start": 0,
    "longest": 3,
    "goal": 3,
    "max_steps": 2,
    "graph": nx.DiGraph([("a", "b"), ("b", "c")]),
    "true": DEMOS,
    "forecast": DEMOS,
    "ours": (0.5, 0.1),
    "paper": (0.4, 0.1),
    "first": [0.1, 0.2, 0.4],
    "second": [0.3, 0.2, 0.5],
    "policy_features": FEATURES,
    "actions": list(RNG.normal(size=(3, 9, 4, 1))),
    "reward_features": FEATURES,
}
# Valid values that differ from those above, by call.
VALID_FOR: dict[str, dict[str, Any]] = {
    "Agents": {"records": AGENTS.records},
    "Agents.from_demonstrations": {"demos": DEMOS.replace(labels=None)},
    "Demonstrations": {"states": [0, 1, 0, 2]},
    "DestinationMaxEnt.fit": {"mdp": MDP.replace(gamma=1.0)},
    "MDP": {"act": [0, 0], "prob": [1.0, 1.0], "p0": [0.5, 0.5, 0.0], "terminal": [False, False, True]},
    "MaxCausalEnt().fit": {"demos": DEMOS},
    "MaxCausalEnt().fit_many": {"weights": U},
    "MaxEnt().fit": {"demos": DEMOS},
    "MaxEnt().fit_many": {"weights": U},
    "SigmaGIRL.fit": {"mdp": None, "demos": AGENTS},
    "metrics.bootstrap_test": {"null": WIDE, "alternative": FITTED, "n_resamples": 3},
    "metrics.compare_groups": {"values": [[0.1], [0.2], [0.4], [0.3]], "condition": list("xxyy")},
    "metrics.correct_p_values": {"p": [0.01, 0.2]},
    "metrics.edit_distance": {"one": DEMOS, "other": DEMOS},
    "metrics.likelihood_ratio_test": {"restricted": ONE, "full": WIDE},
    "metrics.wald_test": {"estimate": ONE.delta_method(lambda weights, thetas: thetas[0, 0])},
    "mixture.compare_groups": {"condition": list("xxxxyyyy")},
    "mixture.fit": {"demos": DEMOS},
    "mixture.delta_method": {"function": lambda weights, thetas: thetas[0, 0]},
    "mixture.profile_intervals": {"parameters": []},
}
CLASSES: tuple[type, ...] = (ll.MaxEnt, ll.MaxCausalEnt, ll.MLIRL, ll.DestinationMaxEnt, ll.SigmaGIRL)
SKIPPED = {
    "save",
    "load",
    "from_file",
    "from_parquet",
    "to_parquet",
    "from_gymnasium",
    "from_rollouts",
    "from_released",
}
# Drawings, parts of EM and helpers, which only the library calls, and sampling, which compiles in every call.
SKIPPED |= {"plot_rewards", "report", "draw_flow", "set_params", "get_params", "sample_posterior"}
SKIPPED |= {
    "condition_of_groups",
    "unit_weights",
    "fit_from",
    "make_problem",
    "path_sums_for_fit",
    "fit_params",
    "check_thetas",
    "intent_counts",
    "align_to_labels",
}


class Hang(Exception):
    """A call took longer than `LIMIT_S`."""


@contextlib.contextmanager
def time_limit() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise Hang

    previous = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def public_calls() -> dict[str, Callable[..., Any]]:
    """Public constructors, class methods, functions and methods of fitted objects, by name."""
    calls: dict[str, Callable[..., Any]] = {}

    def add_methods(name: str, owner: Any) -> None:
        for attribute in dir(owner):
            if not attribute.startswith("_") and attribute not in SKIPPED:
                with contextlib.suppress(AttributeError):
                    value = getattr(owner, attribute)
                    if inspect.ismethod(value):  # of a class, only class methods
                        calls[f"{name}.{attribute}"] = value

    for cls in (ll.MDP, ll.Demonstrations, ll.RewardEnsemble, ll.Agents):
        calls[cls.__name__] = cls
        add_methods(cls.__name__, cls) if cls is not ll.RewardEnsemble else None
    for name in metrics.__all__:
        value = getattr(metrics, name)
        if inspect.isfunction(value) and name not in SKIPPED:
            calls[f"metrics.{name}"] = value
    for name in ("ElementWorld", "ObjectWorld", "PuddleWorld", "SyntheticWorld"):
        calls[f"worlds.{name}"] = getattr(worlds, name)
    calls["mixture.membership_table"] = mixture.membership_table
    for name, owner in {"mdp": MDP, "demos": DEMOS, "ensemble": ENSEMBLE, "mixture": FITTED}.items():
        add_methods(name, owner)
    for cls in CLASSES:
        calls[f"{cls.__name__}.fit"] = lambda mdp, demos, cls=cls, **more: cls(**more).fit(mdp, demos)
    add_methods("MaxEnt()", ll.MaxEnt(max_length=3))
    add_methods("MaxCausalEnt()", ll.MaxCausalEnt())
    calls["IntentMixture.fit"] = lambda mdp, demos, groups=None, **more: ll.IntentMixture(
        **{"n_intents": 2, "max_iter": 2} | more
    ).fit(mdp, demos, groups)
    return calls


CALLS = public_calls()


def parameters_of(name: str) -> dict[str, Any]:
    """Parameters of a call and their valid values."""
    values, valid = {}, VALID | VALID_FOR.get(name, {})
    for parameter in inspect.signature(CALLS[name]).parameters.values():
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) and parameter.name != "cls":
            required = parameter.default is inspect.Parameter.empty
            own = required or parameter.name in VALID_FOR.get(name, {})
            values[parameter.name] = valid[parameter.name] if own else parameter.default
    return values


def more_parameters(name: str) -> list[str]:
    """Parameters of the constructor of a model or mixture that a call fits."""
    owner = {cls.__name__: cls for cls in (*CLASSES, ll.IntentMixture)}.get(name.partition(".")[0])
    skipped = {"self", "device", "progress", "verbose"}
    return (
        [x for x in inspect.signature(owner).parameters if x not in skipped] if owner and name.endswith(".fit") else []
    )


ODD_NUMBERS = [
    -1,
    0,
    1,
    3,
    2**31,
    2**32 + 1,
    2**63,
    2**70,
    0.5,
    1.5,
    -0.0,
    math.nan,
    math.inf,
    -math.inf,
    1e308,
    5e-324,
]
ODD_SCALARS = [None, True, False, "", "x", "0", "é\0", b"x", 1j, Decimal(1), dt.date(2024, 1, 31), dt.timedelta(1), ...]
ODD_OBJECTS = [
    *([], [[]], [None], [[0, 1], [2]], {}, set(), {"a": 1}, (), range(3), object(), iter([1, 2])),
    *(np.array([]), np.array(3), np.zeros((2, 2)), np.zeros((0, 2)), np.zeros((2, 2, 2)), np.array([True, False])),
    *(
        np.array([1j, 2]),
        np.array([1, 2], "m8[s]"),
        np.array(["2024-01-31"], "M8[D]"),
        np.array([None, 1], dtype=object),
    ),
    *(np.ma.array([1.0, 2.0], mask=[True, False]), np.array([np.nan, 1]), np.array([np.inf, 1]), np.array(["a", "b"])),
    *(np.full(8, -1), np.full(8, 2**62), np.arange(8) + 0.5, np.zeros(2, dtype="i4,f4"), np.float32(1), np.int8(-1)),
    *(pd.DataFrame({"x": [1]}), pd.Series([1, 2]), pd.Timestamp(0), pd.NA, np.random.default_rng(0)),
    *(MDP, DEMOS, ENSEMBLE, DEMOS[:0], MDP.replace(gamma=1.0), U, ll.MaxEnt(), ll.MaxEnt),
]
ODD = st.one_of(
    st.sampled_from(ODD_NUMBERS),
    st.sampled_from(ODD_SCALARS),
    st.sampled_from(ODD_OBJECTS),
    st.lists(st.sampled_from([*ODD_NUMBERS, *ODD_SCALARS]), max_size=4),
    st.lists(st.lists(st.sampled_from(ODD_NUMBERS), max_size=3), max_size=3),
)


@st.composite
def odd_calls(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """The name of a call, and its arguments, of which one or two are odd."""
    name = draw(st.sampled_from(sorted(CALLS)))
    arguments = parameters_of(name)
    names = [*arguments, *more_parameters(name)]
    for parameter in draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True)) if names else ():
        arguments[parameter] = draw(ODD)
    return name, arguments


def assert_valid(result: Any) -> None:
    """Assert that a result satisfies the invariants of its type."""
    if isinstance(result, ll.MDP):
        sums = np.bincount(result.pair_of_edge, result.prob, minlength=result.n_pairs)
        np.testing.assert_allclose(sums, 1.0, rtol=1e-6)
        np.testing.assert_allclose(result.p0.sum(), 1.0, rtol=1e-6)
        assert 0.0 < result.gamma <= 1.0
        ends = np.concatenate([result.src, result.dst])
        assert np.all((ends >= 0) & (ends < result.n_states))
    elif isinstance(result, ll.Demonstrations):
        assert np.all(result.lengths >= 1)
        assert result.lengths.sum() == result.states.size
        assert np.all(result.states >= 0)
        for column in (result.groups, result.labels, result.ids):
            assert column is None or len(column) == len(result)
    elif isinstance(result, ll.RewardEnsemble):
        assert np.isfinite(result.thetas).all()
        np.testing.assert_allclose(result.weights.sum(), 1.0, rtol=1e-6)
    elif isinstance(result, ll.IntentMixture):
        assert_valid(result.ensemble_)
        assert np.all(result.responsibilities_ >= 0.0)
        np.testing.assert_allclose(result.responsibilities_.sum(axis=1), 1.0, rtol=1e-6)
        assert np.isfinite(result.log_likelihood_)
    elif isinstance(result, tuple | list):
        for part in result:
            assert_valid(part)
    elif isinstance(result, float | np.ndarray):
        values = np.asarray(result)
        assert values.dtype.kind in "biuUSmM" or (values.dtype.kind == "f" and not np.isnan(values).any())


def freeze(value: Any) -> Any:
    """Return the content of an argument, to compare before and after a call; that of an iterator or RNG is omitted."""
    if isinstance(value, np.ndarray):
        content = repr(value.tolist()) if value.dtype.hasobject else value.tobytes()
        mask = np.ma.getmaskarray(value).tobytes() if np.ma.isMaskedArray(value) else b""
        return type(value), value.dtype, value.shape, value.flags.writeable, content, mask
    if isinstance(value, pd.DataFrame | pd.Series):
        return type(value), repr(value.to_dict()), str(value.index)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value), *(freeze(getattr(value, field.name)) for field in dataclasses.fields(value))
    if isinstance(value, dict):
        return [(repr(key), freeze(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [freeze(item) for item in value]
    if hasattr(value, "get_params") and not isinstance(value, type):
        return type(value), freeze(value.get_params(deep=False)), sorted(vars(value))
    if isinstance(value, Iterator | np.random.Generator) or type(value) is object:
        return type(value)
    return repr(value)


SHARED = (MDP, DEMOS, ENSEMBLE, AGENTS, U, FEATURES, TABLE, ODD_OBJECTS)


def test_frozen_contents_differ_after_a_change():
    for value, change in [
        (np.zeros(3), lambda x: x.__setitem__(1, 1.0)),
        (pd.DataFrame({"a": [1, 2]}), lambda x: x.__setitem__("b", 0)),
        ({"a": [1, [2]]}, lambda x: x["a"][1].append(3)),
        (ll.MaxEnt(), lambda x: x.set_params(max_length=3)),
        (MDP.replace(gamma=0.5), lambda x: object.__setattr__(x, "gamma", 0.25)),
    ]:
        before = freeze(value)
        assert freeze(value) == before
        change(value)
        assert freeze(value) != before


@pytest.mark.parametrize("name", sorted(CALLS))
def test_the_arguments_that_are_varied_are_valid(name: str):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LimiirlWarning)
        assert_valid(CALLS[name](**parameters_of(name)))


@pytest.mark.parametrize(
    ("name", "odd"),
    [
        ("Agents.from_arrays", {"policy_features": np.array(3)}),
        ("Demonstrations", {"action_names": np.array(3)}),
        ("Demonstrations", {"times": [[1, 2], [3]]}),
        ("Demonstrations.from_lists", {"actions": np.array(3)}),
        ("IntentMixture.fit", {"max_iter": 2**40}),
        ("MDP", {"feature_names": np.array([np.nan, 1.0])}),
        ("MDP", {"p0": [[1.0], [0.5, 0.5]]}),
        ("MDP.from_networkx", {"features": [[]]}),
        ("MDP.from_networkx", {"p0": {"a": "x"}}),
        ("MDP.from_networkx", {"terminal": 3}),
        ("MDP.from_networkx", {"terminal": [[0]]}),
        ("MaxEnt().fit_many", {"mdp": 3, "starts": [[0.0]]}),
        ("SigmaGIRL.fit", {"n_starts": 2**40}),
        ("SigmaGIRL.fit", {"random_state": -1}),
        ("metrics.compare_paired", {"names": True}),
        ("metrics.compare_paired", {"tie": [[1.0], [2.0, 3.0]]}),
        ("metrics.edit_distance", {"normalised": np.array([True, False])}),
        ("metrics.ensemble_nll", {"irl": ll.MaxEnt}),
    ],
)
def test_arguments_that_raised_other_exceptions(name: str, odd: dict[str, Any]):
    with pytest.raises(LimiirlError) as caught:
        CALLS[name](**parameters_of(name) | odd)
    assert caught.value.parameter in odd


@FUZZ
@given(odd_calls())
def test_odd_arguments_give_a_valid_result_or_an_error_of_limiirl(call: tuple[str, dict[str, Any]]):
    name, arguments = call
    before, shared = freeze(arguments), freeze(SHARED)
    with warnings.catch_warnings(), time_limit():
        warnings.simplefilter("ignore")
        # Python requires an IndexError of sequences.
        refused = (LimiirlError, IndexError) if name == "demos.subset" else LimiirlError
        with contextlib.suppress(refused):
            assert_valid(CALLS[name](**arguments))
    assert freeze(arguments) == before
    assert freeze(SHARED) == shared


CELLS = [
    "0",
    "1",
    "2",
    "3",
    "01",
    "1.0",
    "1e2",
    "-1",
    "",
    " ",
    "NA",
    "nan",
    "x",
    "=1+1",
    "9:00",
    "10:00",
    "2024-01-31",
    "true",
]
CELLS += ["2000000000", "12345678901234567890", "12345678901234567891", "\x1b[2J", "a\0", "é", '"a""b"', "inf", "0x10"]
HEADERS = [
    "demo,t,state",
    "demo,t,state,action",
    "demo,t,state,group",
    "demo,t,state,label,x",
    "t,state",
    "demo,t,state,state",
]


@st.composite
def odd_files(draw: st.DrawFn) -> tuple[str, bytes]:
    """The header of a CSV file, and its content in some encoding."""
    header = draw(st.sampled_from(HEADERS))
    row = st.lists(st.sampled_from(CELLS), min_size=header.count(",") + 1, max_size=header.count(",") + 1)
    rows = draw(st.lists(row, max_size=4))
    text = "\n".join([header, *map(",".join, rows)]) + draw(st.sampled_from(["\n", "", ",\n", "\n\n"]))
    return header, text.encode(draw(st.sampled_from(["utf-8", "utf-8", "utf-8", "utf-8-sig", "latin-1", "utf-16"])))


@FUZZ
@given(odd_files())
def test_odd_tables_keep_identifiers_or_are_refused(tmp_path_factory: pytest.TempPathFactory, file: tuple[str, bytes]):
    header, content = file
    path = tmp_path_factory.getbasetemp() / "odd.csv"
    path.write_bytes(content)
    with warnings.catch_warnings(), time_limit(), contextlib.suppress(LimiirlError):
        warnings.simplefilter("ignore")
        demos = ll.Demonstrations.from_file(path)
        text = content.decode("utf-8-sig").splitlines()
        written = {next(csv.reader([line]))[0] for line in text[1:] if line.strip()}
        assert header.startswith("demo")
        assert {str(name) for name in demos.ids.tolist()} == written
        ll.MDP.from_demonstrations(demos)


COMMANDS = [
    "fit FILE -k ODD --out OUT",
    "fit FILE -k 1 --out ODD",
    "fit FILE -k 1 --out OUT --seed ODD",
    "fit FILE -k 1 --out OUT --gamma ODD",
    "fit FILE -k 1 --out OUT --model ODD",
    "fit FILE -k 1 --out OUT --init ODD",
    "fit FILE -k 1 --out OUT --set ODD",
    "fit FILE -k 1 --out OUT --mdp ODD",
    "fit ODD -k 1 --out OUT --json",
    "fit FILE -k 1 --out OUT --executor dask --scheduler ODD",
    "fit FILE -k 1 --out OUT --workers ODD",
    "infer FILE -k ODD --out OUT",
    "select FILE -k ODD --folds 0 --resamples 0",
    "select FILE -k 1 --folds ODD --resamples 0",
    "select FILE -k 1 --folds 0 --resamples 0 --plot ODD",
    "predict ODD FILE",
    "predict MIXTURE ODD",
    "predict MIXTURE FILE --out ODD",
    "evaluate MIXTURE FILE --truth ODD",
    "evaluate MIXTURE FILE --labels ODD",
    "stream features ODD --mdp FILE --out OUT",
    "stream fit ODD -k 1 --out OUT",
    "stream assign MIXTURE ODD --out OUT",
    "roads build ODD --out OUT",
    "roads match ODD FILE --out OUT",
    "roads fit ODD ODD --out OUT",
    "roads forecast ODD MIXTURE ODD",
    "roads close FILE ODD ODD --at ODD",
    "reproduce ODD --out OUT",
    "report ODD --out OUT",
    "ODD",
    "fit ODD",
]
WORDS = [
    "",
    "0",
    "-1",
    "1",
    "x",
    "nan",
    "inf",
    "1e999",
    "999999999999999999999",
    "FILE",
    "MIXTURE",
    "LOOP",
    ".",
    "/",
    "\x1b[2J",
    "a\0b",
]
WORDS += [
    "x" * 300,
    "irl__max_length=1000000000",
    "irl__gamma=nan",
    "max_iter=-1",
    "resp_tol=[",
    "é",
    "caf\udce9",
    "--help",
    "null",
]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Paths of a CSV file, a mixture, a loop of links, and an output that does not exist."""
    folder = tmp_path_factory.mktemp("commands")
    rows = (f"w{i},{t},{s},g{i % 2},{i % 2}" for i in range(6) for t, s in enumerate([0, 1 + i % 2, 3]))
    (folder / "steps.csv").write_text("\n".join(["demo,t,state,group,label", *rows]))
    (folder / "loop").symlink_to("loop")
    with pytest.raises(SystemExit, match="0"):
        main(["fit", str(folder / "steps.csv"), "-k", "1", "--out", str(folder / "mixture")])
    return {"FILE": "steps.csv", "MIXTURE": "mixture", "LOOP": "loop", "OUT": "out"} | {"folder": str(folder)}


@pytest.mark.slow
@settings(FUZZ, max_examples=CASES // 10 or examples(150))
@given(st.sampled_from(COMMANDS), st.sampled_from(WORDS), st.sampled_from(WORDS))
def test_odd_command_lines_end_with_a_result_or_one_sentence(
    places: dict[str, str], command: str, one: str, other: str
):
    odd = iter([one, other])
    words = [next(odd, one) if word == "ODD" else word for word in command.split()]
    words = [places.get(word, word) for word in words]
    before, errors = Path.cwd(), io.StringIO()
    os.chdir(places["folder"])
    table, code = Path("steps.csv").read_bytes(), 0
    try:
        with warnings.catch_warnings(), time_limit(), redirect_stdout(io.StringIO()), redirect_stderr(errors):
            warnings.simplefilter("ignore")
            main(words)
    except SystemExit as ended:
        code = ended.code
    finally:
        kept = Path("steps.csv").read_bytes() == table and Path("mixture", "mixture.json").is_file()
        shutil.rmtree("out", ignore_errors=True)
        os.chdir(before)
    assert code in (None, 0, 2), (words, errors.getvalue())
    assert kept, words
    assert "\x1b" not in errors.getvalue()
