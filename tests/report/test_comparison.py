"""Tables of several models."""

import numpy as np
import pandas as pd
import pytest

import limiirl as ll
from limiirl import MDP, Demonstrations, IntentMixture, MaxCausalEnt, MaxEnt, SwitchingMixture
from limiirl.errors import IdentifiabilityWarning, InvalidParameter, NotFitted
from tests.helpers import raises

WALK = MDP.from_edges(
    [0, 0, 1, 1, 2, 2], [1, 2, 1, 2, 1, 2], p0=[1, 0, 0], gamma=0.9, state_features=[[0, 0], [1, 0], [0, 1]],
    feature_names=["left", "right_&_up"],
)  # fmt: skip
IRL = MaxEnt(6, bounds=(-3, 3))
DEMOS = Demonstrations.concat([IRL.sample(WALK, theta, 50, k) for k, theta in enumerate(([1, -1], [-1, 1]))])
ONE, TWO = (IntentMixture(k, IRL, random_state=0).fit(WALK, DEMOS) for k in (1, 2))


def test_the_table_has_the_estimates_of_all_models():
    table = ll.compare([ONE, TWO], ["one", "two"], held_out=DEMOS[:10], covariance="robust")
    frame = table.to_frame()
    assert isinstance(frame, pd.DataFrame)
    own = frame[(frame.model == "two") & (frame.parameter == "left")]
    np.testing.assert_array_equal(own.value, TWO.thetas_[:, 0])
    np.testing.assert_array_equal(own.standard_error, TWO.standard_errors(covariance="robust").thetas[:, 0])
    np.testing.assert_array_equal(own.t, own.value / own.standard_error)
    np.testing.assert_allclose(table.held_out, [ONE.score(DEMOS[:10]), TWO.score(DEMOS[:10])], rtol=1e-12)
    rows = {row[0].text: row[1:] for row in table.table().cells}
    assert [cell.value for cell in rows["BIC"]] == [ONE.bic(), TWO.bic()]
    assert [cell.mark for cell in rows["BIC"]] == [None, "best"]
    expected = [mix.score(DEMOS) * len(DEMOS) for mix in (ONE, TWO)]
    np.testing.assert_allclose([cell.value for cell in rows["log-likelihood"]], expected, rtol=1e-12)
    assert rows["intent 1: left"][0].text == ""
    assert rows["intent 1: left"][1].half_width == own.standard_error.iloc[1]


def test_formats_have_every_row():
    table = ll.compare([ONE, TWO])
    n = len(table.table().cells)
    assert sum(line.startswith("|") for line in table.to_markdown().splitlines()) == n + 2
    assert table.to_latex().count(r"\\") == n + 1
    assert r"right\_\&\_up" in table.to_latex()
    assert table.to_html().count("<tr>") == n + 1
    assert "right_&amp;_up" in table.to_html()
    lines = str(table).splitlines()
    assert lines[0].split() == ["(1)", "(2)"]
    assert len({line.index("±") for line in lines if "intent 0: left" in line or "intent 0: right" in line}) == 1


def test_summaries_of_single_models_and_switching_intents_are_columns():
    irl = MaxCausalEnt(bounds=None, ridge=1e-3)
    with pytest.warns(IdentifiabilityWarning):
        irl.fit(WALK, DEMOS)
    long = Demonstrations.from_lists([[0, 1, 1, 1, 2, 2, 2, 1, 1, 1]] * 3 + [[0, 2, 2, 1, 1, 1, 1, 2, 2]] * 3)
    switching = SwitchingMixture(2, irl, random_state=0, max_iter=20).fit(WALK, long)
    table = ll.compare([irl.summary(WALK, DEMOS), switching])
    assert np.isnan(table.held_out).all()
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in table.table().cells}
    assert rows["units"] == ["100", str(long.n_transitions)]
    assert rows["intent 1: share of steps"][0] == ""
    assert all(cell.mark is None for row in table.table().cells for cell in row)  # different units


def test_arguments_are_checked():
    with raises(InvalidParameter, parameter="models"):
        ll.compare([])
    with raises(InvalidParameter, parameter="names", value=1):
        ll.compare([ONE, TWO], ["one"])
    with raises(NotFitted, parameter="models", index=1):
        ll.compare([ONE, IntentMixture(2)])
